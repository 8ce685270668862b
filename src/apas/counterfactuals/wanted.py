"""What is asked for when it is not said: the class, the space, and rows where nothing was found."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._validation import is_frame
from apas.certify.entry import check_target
from apas.counterfactuals.feature import Feature
from apas.counterfactuals.space import FeatureSpace
from apas.errors import InputError
from apas.models.convert import predicted_classes
from apas.models.protocol import Model, Named, Raw, offers

__all__ = ["default_space", "own_columns", "wanted_classes", "with_gaps"]


def wanted_classes(model: Model, X: NDArray[np.float64], target: Any) -> NDArray[Any]:
    """One wanted class per row, none of which the model gives already."""
    given = predicted_classes(model, X)[0] if len(X) else np.empty(0, dtype=object)
    if target is None:
        if len(model.classes) != 2:
            raise InputError(
                f"`target` must be the wanted class, one of {list(model.classes)}; a model with more than two classes "
                "has no other one."
            )
        labels = np.empty(len(X), dtype=object)
        labels[:] = [model.classes[0] if g == model.classes[1] else model.classes[1] for g in given]
        return labels
    labels = check_target(model, X, target)
    for i, (wanted, now) in enumerate(zip(labels, given, strict=True)):
        if wanted == now:
            raise InputError(
                f"`X` must hold rows that are not in the wanted class, but the model already gives row {i} class "
                f"{now!r}; leave it out."
            )
    return labels


def default_space(net: Model, space: Any, background: Any, *tables: Any) -> FeatureSpace:
    """The space a user gave, or what can be read off the tables they gave: the background and the rows themselves."""
    if space is not None:
        if not isinstance(space, FeatureSpace):
            raise InputError(
                f"`space` must be an apas.FeatureSpace, got {type(space).__name__}; make one with "
                "FeatureSpace.from_frame(table) or read it with FeatureSpace.from_toml(path)."
            )
        return space
    if background is None:
        raise InputError(
            "`space` or `background` must be given, so that it is known what the features may be; pass the training "
            "table as `background`, or FeatureSpace.from_frame(table, ...) as `space`."
        )
    import pandas as pd

    names = net.feature_names if offers(net, Named) else None
    width = net.n_raw_features if offers(net, Raw) else net.n_features
    frames = [t for t in (background, *tables) if is_frame(t)]
    if frames:
        columns = list(names) if names is not None else list(frames[0].columns)
        parts = [f[columns] for f in frames if set(columns) <= set(f.columns)]
        if not parts:
            missing = next(c for c in columns if c not in frames[0].columns)
            raise InputError(f"`background` must have the model's columns, but it lacks {missing!r}; add it.")
        return FeatureSpace.from_frame(pd.concat(parts, ignore_index=True))
    if not len(background):
        raise InputError("`background` must have rows to read ranges from, got none; pass a `space` instead.")
    rows = np.concatenate([np.asarray(t, dtype=np.float64).reshape(-1, width) for t in (background, *tables)])
    low, high = rows.min(axis=0), rows.max(axis=0)
    labels = names or tuple(f"x{i}" for i in range(width))
    return FeatureSpace(tuple(Feature(n, low=a, high=b) for n, a, b in zip(labels, low, high, strict=True)))


def own_columns(table: Any, space: FeatureSpace) -> Any:
    """The columns of a data frame that the space has; a training table has its label besides."""
    names = list(space.names)
    return table[names] if is_frame(table) and set(names) <= set(table.columns) else table


def with_gaps(space: FeatureSpace, numbers: NDArray[np.float64], X: Any, rows: NDArray[np.intp]) -> Any:
    """Rows in raw units as a frame or array like `X`, with missing values where the numbers are."""
    there = ~np.isnan(numbers).any(axis=1)
    if there.all():
        return space.like(numbers, X, rows)
    found = space.like(numbers[there], X, rows[there])
    if not is_frame(X):
        whole = np.full(numbers.shape, np.nan, dtype=found.dtype)
        whole[there] = found
        return whole
    whole = found.reset_index(drop=True).set_axis(np.flatnonzero(there)).reindex(range(len(numbers)))
    return whole.set_axis(X.index[rows])
