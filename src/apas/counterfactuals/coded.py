"""A model behind the coding of a feature space, so that it takes rows in raw units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.errors import InputError
from apas.models.convert import as_model, encoded_rows
from apas.models.digest import canonical
from apas.models.parameters import Parameters
from apas.models.protocol import Described, LibraryBacked, Model, Named, Raw, offers

if TYPE_CHECKING:
    from apas.counterfactuals.feature import Feature
    from apas.counterfactuals.space import FeatureSpace

__all__ = ["CodedModel", "bound"]

_Array = NDArray[np.float64]
#: Capabilities that need nothing of the space.
_PASSED_ON = ("margin_scale", "input_gradient", "parameter_gradient", "as_feedforward", "dtype")


def bound(model: Any, space: FeatureSpace) -> Model:
    """The model as one that takes raw rows of the space: itself if it does so, else behind the space's coding."""
    net = as_model(model)
    names = net.feature_names if offers(net, Named) else None
    raw = net.n_raw_features if offers(net, Raw) else net.n_features
    complaint: str | None = None
    if raw == len(space) and (names is None or set(names) == set(space.names)):
        # a model behind a coding takes raw rows whatever scale the space has: to code them twice would be wrong
        complaint = None if isinstance(net, CodedModel) else _complaint(net, space)
        if complaint is None:
            return net
    elif raw == len(space) == space.coding.n_columns:
        missing = next(n for n in names or () if n not in space.names)
        raise InputError(f"`space` must have the model's columns, but it lacks {missing!r}; add it.")
    if space.coding.n_columns == raw:
        _check_order(space, names)
        return CodedModel(net, space)
    raise InputError(
        complaint
        or f"`space` must match the model, which takes {raw} columns, but it has {len(space)} features in "
        f"{space.coding.n_columns} columns; describe exactly the columns the model was trained with."
    )


def _complaint(net: Model, space: FeatureSpace) -> str | None:
    """None if the model takes raw rows of the space, whose columns it has; else what it says about them."""
    if not offers(net, Raw):
        if space.coding.is_plain:
            _check_order(space, net.feature_names if offers(net, Named) else None)
            return None
        return ""
    scales = offers(net, Described) and "preprocessing" in net.describe()  # a pipeline does so by itself
    if space.scale is not None and not scales:
        return ""
    import pandas as pd

    rows = max(len(f.values or ()) if f.is_level else 1 for f in space.features)
    columns = {f.name: [_example(f, row) for row in range(rows)] for f in space.features}
    try:
        encoded_rows(net, pd.DataFrame(columns))
    except InputError as error:
        said = str(error).split(": ", 1)[-1]
        return f"`space` must have kinds and levels that the model knows, but its preprocessing says: {said}"
    return None


def _example(feature: Feature, row: int) -> Any:
    """A value of the feature; over the rows, all levels occur."""
    if feature.is_level and feature.values:
        return feature.values[row % len(feature.values)]
    return float(np.clip(feature.ends, -1e6, 1e6).mean())


def _check_order(space: FeatureSpace, names: tuple[str, ...] | None) -> None:
    """If the model names its columns, those that stand for one feature must be where the space has them."""
    if names is None or tuple(names) == space.coding.names:
        return
    for feature, part in zip(space.features, space.coding.slices, strict=True):
        if part.stop - part.start == 1 and names[part.start] != feature.name:
            raise InputError(
                f"`space` must have the features in the order of the model's columns, but column {part.start} is "
                f"{names[part.start]!r} for the model and {feature.name!r} for the space."
            )


class CodedModel:
    """A model that encodes raw rows by the coding of a space; it offers what the model behind it offers."""

    def __init__(self, net: Any, space: FeatureSpace) -> None:
        self._net, self._space = net, space
        for name in ("margin", "shifted_margins", *_PASSED_ON):
            if hasattr(net, name):
                setattr(self, name, getattr(net, name))
        if offers(net, LibraryBacked):
            self.library_classes = self._library_classes

    margin: Any
    shifted_margins: Any

    @property
    def space(self) -> FeatureSpace:
        """The space whose coding the model stands behind."""
        return self._space

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels of the model behind."""
        return self._net.classes  # type: ignore[no-any-return]

    @property
    def n_features(self) -> int:
        """Number of inputs in model units."""
        return self._net.n_features  # type: ignore[no-any-return]

    @property
    def parameters(self) -> Parameters:
        """Parameters of the model behind."""
        return self._net.parameters  # type: ignore[no-any-return]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features of the space."""
        return self._space.names

    @property
    def n_raw_features(self) -> int:
        """Number of features of the space."""
        return len(self._space)

    def encode(self, X: Any) -> _Array:
        """Raw rows as the model behind sees them."""
        return self.encoded(self._space.numbers(X))

    def encoded(self, numbers: _Array) -> _Array:
        """The same for rows of numbers per cell."""
        columns = self._space.coding.encode(numbers)
        return self._net.encode(columns) if offers(self._net, Raw) else columns

    def _library_classes(self, X: Any) -> NDArray[Any]:
        return self._net.library_classes(self._space.encode(X))  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """What decides the output besides the parameters, the coding included."""
        behind = {"classes": [canonical(c) for c in self.classes], "n_features": self.n_features}
        behind = self._net.describe() if offers(self._net, Described) else behind
        return {**behind, "feature_names": list(self.feature_names), "coding": canonical(self._coding())}

    def _coding(self) -> dict[str, Any]:
        """What of the space the model depends on: not what may change, nor how."""
        coding = self._space.coding
        return {"columns": list(coding.names), "lines": [list(line) for line in coding.lines]}

    def __repr__(self) -> str:
        return f"<{self._net!r} behind a space of {len(self._space)} features>"
