"""Cells of a table as numbers and back, one column at a time."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.feature import Feature
from apas.errors import InputError

__all__ = ["levels_of", "numbers_of"]

_Array = NDArray[np.float64]


def numbers_of(feature: Feature, cells: NDArray[Any], argument: str) -> _Array:
    """Values of a numeric column, numbers of the levels of any other.

    Examples
    --------
    >>> numbers_of(Feature("housing", "categorical", values=("own", "rent")), np.array(["rent", "own"]), "X")
    array([1., 0.])
    """
    if feature.is_level:
        return _level_numbers(feature, cells, argument)
    try:
        values = np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row = int(bad[0])
        raise InputError(
            f"`{argument}` must hold finite numbers in column {feature.name!r}, which is {feature.kind}, but row {row} "
            f"is {reprlib.repr(cells[row])}; fill, encode or drop it."
        )
    return values


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan


def _level_numbers(feature: Feature, cells: NDArray[Any], argument: str) -> _Array:
    places = {value: float(i) for i, value in enumerate(feature.values or ())}
    found = np.empty(len(cells))
    for row, cell in enumerate(cells.tolist()):  # a number equals its level whatever its type: 1.0 is 1
        try:
            place = places.get(cell)
        except TypeError:  # a list, say, which is no level
            place = None
        if place is None:
            known = ", ".join(repr(v) for v in (feature.values or ())[:8])
            more = ", ..." if len(places) > 8 else ""
            raise InputError(
                f"`{argument}` has {reprlib.repr(cell)} in row {row} of column {feature.name!r}, whose levels are "
                f"{known}{more}; add it to the space, or correct the row."
            )
        found[row] = place
    return found


def levels_of(feature: Feature, numbers: _Array) -> NDArray[Any] | list[Any]:
    """Raw cells of a column: levels for their numbers, integers where the feature is one."""
    if feature.is_level:
        values = feature.values or ()
        return [values[int(n)] for n in numbers]
    if feature.kind == "integer" and (numbers == np.rint(numbers)).all():
        return numbers.astype(np.int64)
    return numbers
