"""Rows that a user measures by hand: arrays or data frames of numbers, in which a row may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._validation import is_frame
from apas.errors import InputError

__all__ = ["filled", "matrix", "missing", "pair"]

_Array = NDArray[np.float64]


def matrix(X: Any, argument: str, *, gaps: bool = True) -> _Array:
    """Give `X` as finite numbers of shape (rows, columns); rows that miss all cells may stay, as NaN.

    Examples
    --------
    >>> matrix([[1, 2], [None, None]], "points")
    array([[ 1.,  2.],
           [nan, nan]])
    """
    try:
        values = np.asarray(X.detach().cpu() if hasattr(X, "detach") else X)
        if np.iscomplexobj(values) or values.dtype.kind in "mMSU":
            raise TypeError
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"`{argument}` must hold rows of numbers of equal length; encode what is not a number."
        ) from None
    if found.ndim == 1 and not len(found):
        return np.empty((0, 0))
    if found.ndim != 2:
        hint = "; for one row pass x[None, :]" if found.ndim == 1 else ""
        raise InputError(f"`{argument}` must be 2-D (rows, columns), got {found.ndim} dimensions{hint}.")
    bad = ~np.isfinite(found)
    if gaps:
        bad &= ~missing(found)[:, None]
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        either = ", or rows in which all is missing" if gaps else ""
        raise InputError(
            f"`{argument}` must hold finite numbers{either}, but row {row}, column {column} is {found[row, column]}; "
            "fill or drop it."
        )
    return found


def pair(first: Any, second: Any, names: tuple[str, str], *, rows: bool = True) -> tuple[_Array, _Array]:
    """Two tables with the same columns, matched by name where both have names, and with `rows` the same rows.

    Only the second may have missing rows.
    """
    if is_frame(first) and is_frame(second):
        apart = {*first.columns} ^ {*second.columns}
        if apart:
            raise InputError(
                f"`{names[1]}` must have the columns of `{names[0]}`, but {str(min(map(str, apart)))!r} is in one of "
                "them only; give both the same columns."
            )
        second = second[list(first.columns)]
    a, b = matrix(first, names[0], gaps=False), matrix(second, names[1])
    if rows and not len(a) and not len(b):
        return a, b
    if (a.shape != b.shape if rows else a.shape[1] != b.shape[1] and len(b)) or not a.shape[1]:
        what = f"the shape {a.shape}" if rows else f"the {a.shape[1]} columns"
        got = b.shape if rows else b.shape[1]
        raise InputError(f"`{names[1]}` must have {what} of `{names[0]}`, and at least one column, got {got}.")
    return a, b


def missing(rows: _Array) -> NDArray[np.bool_]:
    """Which rows hold nothing."""
    return np.asarray(np.isnan(rows).all(axis=1))


def filled(there: NDArray[np.bool_], values: NDArray[Any]) -> _Array:
    """Values of the rows that are there, NaN for the others."""
    found = np.full(len(there), np.nan)
    found[there] = values
    return found
