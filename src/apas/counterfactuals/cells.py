"""Cells of a table as numbers and back, one column at a time."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._validation import check_matrix, is_frame
from apas.counterfactuals.feature import Feature
from apas.errors import InputError

__all__ = ["checked_table", "levels_of", "missing_rows", "numbers_of"]

_Array = NDArray[np.float64]


def checked_table(X: Any, names: tuple[str, ...], argument: str) -> Any:
    """A table with exactly these columns: a data frame in their order, or a 2-D array."""
    if is_frame(X):  # the names of features are texts, while pandas numbers columns that were given none
        X = X.set_axis([str(c) for c in X.columns], axis=1)
    try:
        return check_matrix(X, len(names), names)
    except InputError as error:  # what is checked here is a table of the space, whatever the model has
        said = str(error).replace("`X`", f"`{argument}`").replace("the model's columns", "the space's columns")
        raise InputError(said.replace("as the model has features", "as the space has features")) from None


def missing_rows(table: Any) -> NDArray[np.bool_]:
    """Which rows of a data frame or 2-D array hold nothing at all."""
    import pandas as pd

    return np.asarray(np.all(pd.isna(table), axis=1), dtype=bool)


def numbers_of(feature: Feature, cells: NDArray[Any], argument: str, rows: NDArray[np.intp] | None = None) -> _Array:
    """Values of a numeric column, numbers of the levels of any other.

    Parameters
    ----------
    feature : Feature
    cells : ndarray of shape (n,)
    argument : str
        What the table is called, for errors.
    rows : ndarray of int, shape (n,), optional
        Where the cells are in the table, for errors; unless given they are all of its rows.

    Examples
    --------
    >>> numbers_of(Feature("housing", "categorical", values=("own", "rent")), np.array(["rent", "own"]), "X")
    array([1., 0.])
    """
    if feature.is_level:
        return _level_numbers(feature, cells, argument, rows)
    try:
        values = np.full(len(cells), np.nan) if cells.dtype.kind in "mMc" else np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        cell = cells[bad[0]]
        raise InputError(
            f"`{argument}` must hold finite numbers in column {feature.name!r}, which is {feature.kind}, but row "
            f"{_place(int(bad[0]), rows)} is {reprlib.repr(cell.item() if isinstance(cell, np.generic) else cell)}; "
            "fill, encode or drop it."
        )
    return values


def _place(row: int, rows: NDArray[np.intp] | None) -> int:
    return row if rows is None else int(rows[row])


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan


def _level_numbers(
    feature: Feature, cells: NDArray[Any], argument: str, rows: NDArray[np.intp] | None
) -> _Array:  # fmt: skip
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
                f"`{argument}` has {reprlib.repr(cell)} in row {_place(row, rows)} of column {feature.name!r}, whose "
                f"levels are {known}{more}; add it to the space, or correct the row."
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
