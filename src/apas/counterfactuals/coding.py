"""How a model without preprocessing sees the rows of a space: scaled numbers, one-hot and thermometer columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.feature import ON_GRID, Feature, numbers
from apas.errors import InputError

__all__ = ["Coding"]

_Array = NDArray[np.float64]


class Coding:
    """Columns per feature, in the order of the features.

    Parameters
    ----------
    features : sequence of Feature
    scale : {"minmax"} or None

    Examples
    --------
    >>> grade = Feature("grade", "ordinal", values=("low", "middle", "high"), code="thermometer")
    >>> Coding([grade], None).encode(np.array([[1.0], [2.0]]))
    array([[1., 1., 0.],
           [1., 1., 1.]])
    """

    def __init__(self, features: Sequence[Feature], scale: str | None) -> None:
        self.features = tuple(features)
        self.scale = scale
        ends = np.cumsum([0, *(width(f) for f in self.features)])
        self.slices = tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(ends))
        self.n_columns = int(ends[-1])
        #: What is subtracted from a number, and what it is divided by then.
        self.lines = [_line(f, scale) for f in self.features]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, those of levels as pandas and scikit-learn would call them."""
        return tuple(name for f in self.features for name in _names(f))

    @property
    def is_plain(self) -> bool:
        """Whether the model sees the numbers as they are in the table."""
        return self.scale is None and all(f.code == "number" and _own_numbers(f) for f in self.features)

    def encode(self, rows: _Array) -> _Array:
        """Numbers per cell (see `FeatureSpace`) as the columns of the model."""
        found = np.empty((len(rows), self.n_columns))
        for i, (feature, part) in enumerate(zip(self.features, self.slices, strict=True)):
            found[:, part] = self._coded(i, feature, rows[:, i])
        return found

    def decode(self, columns: _Array) -> _Array:
        """Numbers per cell of columns that `encode` made, or that are near such."""
        found = np.empty((len(columns), len(self.features)))
        for i, (feature, part) in enumerate(zip(self.features, self.slices, strict=True)):
            block = columns[:, part]
            if not feature.is_level:
                base, width_ = self.lines[i]
                found[:, i] = _without_dust(feature, base + width_ * block[:, 0], abs(base) + width_)
                continue
            table = self._coded(i, feature, np.arange(len(feature.values or ()), dtype=np.float64))
            found[:, i] = np.abs(block[:, None, :] - table).sum(axis=2).argmin(axis=1)
        return found

    def _coded(self, i: int, feature: Feature, cells: _Array) -> _Array:
        if feature.code == "number":
            base, width_ = self.lines[i]
            values = cells
            if feature.is_level and _own_numbers(feature):
                values = np.array(feature.values, dtype=np.float64)[cells.astype(int)]
            return ((values - base) / width_)[:, None]
        levels = np.arange(len(feature.values or ()))
        hit = levels == cells[:, None] if feature.code == "onehot" else levels <= cells[:, None]
        return hit.astype(np.float64)


def _without_dust(feature: Feature, values: _Array, size: float) -> _Array:
    """Values on the grid or the list of a feature where rounding, of numbers of that size, has moved them off it."""
    if feature.listed is not None:
        near = feature.listed[np.abs(values[:, None] - feature.listed).argmin(axis=1)]
    elif feature.kind == "integer":  # also between its steps, where what was not changed may be
        near = np.rint(values)
    elif feature.step is not None:
        near = feature.on_grid(np.rint((values - feature.anchor) / feature.step))
    else:
        return values
    dust = ON_GRID * (feature.step or 0.0) + 8 * np.spacing(np.maximum(size, np.abs(near)))
    return np.where(np.abs(values - near) <= dust, near, values)


def width(feature: Feature) -> int:
    """How many columns a feature takes."""
    return 1 if feature.code == "number" else len(feature.values or ())


def _own_numbers(feature: Feature) -> bool:
    """Whether a number stands for itself: that of a level only if levels are numbers."""
    return not feature.is_level or numbers(feature.values or ())


def _names(feature: Feature) -> list[str]:
    if feature.code == "number":
        return [feature.name]
    sign = "_" if feature.code == "onehot" else ">="
    return [f"{feature.name}{sign}{value}" for value in feature.values or ()]


def _line(feature: Feature, scale: str | None) -> tuple[float, float]:
    """What is subtracted from a number, and what it is divided by then."""
    if scale is None or feature.code != "number":
        return 0.0, 1.0
    if feature.is_level:
        levels = feature.values or ()
        values: Sequence[Any] = levels if _own_numbers(feature) else range(len(levels))
        low, high = float(min(values)), float(max(values))
    else:
        low, high = feature.ends
    if not np.isfinite(high - low) or high <= low:
        raise InputError(
            f'`scale` "minmax" needs a range of feature {feature.name!r} with high above low, got {low:g} to {high:g}; '
            "give it `low` and `high`."
        )
    return low, high - low
