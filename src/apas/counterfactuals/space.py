"""`FeatureSpace`: which tables are allowed, in raw units, and how a model sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas._validation import is_frame
from apas.counterfactuals.cells import checked_table, levels_of, missing_rows, numbers_of
from apas.counterfactuals.coding import Coding
from apas.counterfactuals.feature import Feature, is_same
from apas.counterfactuals.inference import inferred
from apas.counterfactuals.spacefile import features_from, read_toml, written
from apas.errors import InputError

if TYPE_CHECKING:
    from os import PathLike

    from pandas import DataFrame

    from apas.models.protocol import Model

__all__ = ["FeatureSpace"]

_Array = NDArray[np.float64]
DISTANCES = ("l1", "linf")


@dataclass(frozen=True)
class FeatureSpace:
    """The features of a table, what they may be, and how they may change.

    Inside, a row is a vector of numbers, one per feature: the value of a continuous or integer feature, the number of
    the level of an ordinal, categorical or binary one.

    Parameters
    ----------
    features : sequence of Feature
        One per column, in the order of the columns.
    scale : {"minmax"}, optional
        Scale numbers to [0, 1] by their ranges before they reach a model that has no preprocessing of its own.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"income": [1800.0, 2500.0], "housing": ["rent", "own"]})
    >>> space = FeatureSpace.from_frame(table, increase=["income"])
    >>> space["income"].direction, space["housing"].values
    ('increase', ('own', 'rent'))
    """

    features: Sequence[Feature]
    scale: str | None = None

    def __post_init__(self) -> None:
        features = tuple(self.features) if isinstance(self.features, Iterable) else ()
        strangers = [f for f in features if not isinstance(f, Feature)]
        if strangers or not features:
            got = "none" if not strangers else repr(strangers[0])
            raise InputError(f"`features` of FeatureSpace must be apas.Feature objects, one per column, got {got}.")
        names = [f.name for f in features]
        doubled = sorted({n for n in names if names.count(n) > 1})
        if doubled:
            raise InputError(f"`features` of FeatureSpace must have different names, got {doubled[0]!r} twice.")
        if self.scale not in (None, "minmax"):
            raise InputError(f'`scale` of FeatureSpace must be "minmax" or None, got {self.scale!r}.')
        object.__setattr__(self, "features", features)
        _ = self.coding  # a range that scaling needs and does not have is an error now, not later

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        kinds: Mapping[str, str] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        values: Mapping[str, Sequence[Any]] | None = None,
        steps: Mapping[str, float] | None = None,
        codes: Mapping[str, str] | None = None,
        immutable: Sequence[str] = (),
        increase: Sequence[str] = (),
        decrease: Sequence[str] = (),
        label: str | None = None,
        scale: str | None = None,
    ) -> FeatureSpace:
        """Read the features off a table: kinds from the types of its columns, ranges and levels from its rows.

        Parameters
        ----------
        frame : data frame
            Numbers with a fraction are continuous, whole numbers integer, 0 and 1 or two texts binary, other texts
            categorical; an ordered pandas categorical is ordinal.
        kinds, ranges, values, steps, codes : mapping from column name, optional
            What differs from that: see `Feature`.
        immutable, increase, decrease : sequence of str
            Columns that may not change, may only grow, may only fall.
        label : str, optional
            A column that is no feature.
        scale : {"minmax"}, optional
        """
        features = inferred(
            frame, label=label, immutable=immutable, increase=increase, decrease=decrease,
            kind=kinds or {}, range=ranges or {}, values=values or {}, step=steps or {}, code=codes or {},
        )  # fmt: skip
        return cls(features, scale)

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> FeatureSpace:
        """Read a space from a TOML file; `to_toml` shows what it looks like."""
        return cls(*read_toml(path))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FeatureSpace:
        """Make a space from what `to_dict` gives."""
        return cls(*features_from(content))

    def to_toml(self, path: str | PathLike[str] | None = None) -> str:
        """The space as the text of a TOML file, which is written as well if a path is given."""
        return written(self.to_dict(), path)

    def to_dict(self) -> dict[str, Any]:
        """The space as JSON values."""
        described: dict[str, Any] = {"scale": self.scale} if self.scale else {}
        return {**described, "features": {f.name: _described(f) for f in self.features}}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(f.name for f in self.features)

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    @cached_property
    def coding(self) -> Coding:
        """How a model without preprocessing sees a row."""
        return Coding(self.features, self.scale)

    def numbers(self, X: Any, argument: str = "X", *, gaps: bool = False) -> _Array:
        """A table in raw units as one number per cell, shape (rows, features); unknown categories are an error.

        With `gaps`, a row without any value is one of NaN rather than an error.
        """
        table = checked_table(X, self.names, argument)
        there = np.arange(len(table))
        if gaps:
            there = np.flatnonzero(~missing_rows(table))
        found = np.full((len(table), len(self)), np.nan)
        for i, feature in enumerate(self.features):
            cells = np.asarray(table.iloc[:, i] if is_frame(table) else table[:, i])
            found[there, i] = numbers_of(feature, cells[there], argument, there)
        return found

    def table(self, numbers: _Array, index: Any = None) -> DataFrame:
        """Numbers per cell as a data frame in raw units; whole numbers come back as integers."""
        import pandas as pd

        if all(f.kind == "continuous" for f in self.features):  # one block is much faster than one column at a time
            return pd.DataFrame(np.array(numbers, order="F"), columns=[f.name for f in self.features], index=index)
        return pd.DataFrame({f.name: levels_of(f, numbers[:, i]) for i, f in enumerate(self.features)}, index=index)

    def like(self, numbers: _Array, X: Any, rows: Any = None) -> Any:
        """Numbers per cell in raw units, as a data frame or array as `X` is; `rows` are those of `X` they stem from."""
        if is_frame(X):
            table = self.table(numbers, index=X.index if rows is None else X.index[rows])
            return table.rename(columns={str(c): c for c in X.columns if not isinstance(c, str)})
        frame = self.table(numbers)
        plain = all(not f.is_level or _are_numbers(f) for f in self.features)
        return frame.to_numpy(dtype=np.float64 if plain else object)

    def snapped(self, points: _Array, inputs: _Array) -> _Array:
        """The nearest allowed rows, feature by feature; what was not changed is allowed."""
        columns = [f.snapped(points[:, i], inputs[:, i]) for i, f in enumerate(self.features)]
        return np.stack(columns, axis=1)

    def settled(self, points: _Array, inputs: _Array) -> _Array:
        """The rows with the very numbers of their inputs wherever they differ from them by rounding alone."""
        return np.where(is_same(points, inputs, self._sizes), inputs, points)

    @cached_property
    def _sizes(self) -> _Array:
        return np.array([f.size for f in self.features])

    def allowed(self, points: _Array, inputs: _Array) -> NDArray[np.bool_]:
        """Which cells satisfy their constraints, shape (rows, features)."""
        return np.stack([f.allows(points[:, i], inputs[:, i]) for i, f in enumerate(self.features)], axis=1)

    def differences(self, points: _Array, inputs: _Array) -> _Array:
        """How far the cells are apart in units of their ranges (0 or 1 for categories), shape (rows, features)."""
        return np.stack([f.differences(points[:, i], inputs[:, i]) for i, f in enumerate(self.features)], axis=1)

    def costs(self, points: _Array, inputs: _Array, distance: str = "l1") -> _Array:
        """What the changes cost, shape (rows,): mean ("l1") or largest ("linf") of the differences."""
        apart = self.differences(points, inputs)
        return np.asarray(apart.mean(axis=1) if distance == "l1" else apart.max(axis=1))

    def bind(self, model: Any) -> Model:
        """The model as one that takes rows of this space in raw units.

        A pipeline does so already. Any other model is put behind the coding of the space: numbers (scaled if the space
        says so), one-hot and thermometer columns, in the order of the features.
        """
        from apas.counterfactuals.coded import bound

        return bound(model, self)

    def encode(self, X: Any) -> _Array:
        """Rows in raw units as a model without preprocessing sees them."""
        return self.coding.encode(self.numbers(X))

    def decode(self, Z: Any) -> DataFrame:
        """What `encode` made of rows, turned back."""
        table = checked_table(Z, self.coding.names, "Z")
        try:
            columns = np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("`Z` must hold the numbers that `encode` gives, one per column of the model.") from None
        return self.table(self.coding.decode(columns))


def _described(feature: Feature) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": feature.kind}
    if feature.low is not None and feature.high is not None:
        found["range"] = [feature.low, feature.high]
    else:
        found |= {n: getattr(feature, n) for n in ("low", "high") if getattr(feature, n) is not None}
    if feature.values is not None:
        found["values"] = list(feature.values)
    if feature.step is not None and not (feature.kind == "integer" and feature.step == 1):
        found["step"] = feature.step
    if not feature.mutable:
        found["mutable"] = False
    if feature.direction is not None:
        found["direction"] = feature.direction
    if feature.code != ("onehot" if feature.kind == "categorical" else "number"):
        found["code"] = feature.code
    return found


def _are_numbers(feature: Feature) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in feature.values or ())
