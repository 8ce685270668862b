"""Numbers written so that they stay true, and values as JSON can hold them."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np

__all__ = ["at_least", "at_most", "exactly", "plain"]


def plain(value: Any) -> Any:
    """Give a NumPy or pandas scalar as the Python value that JSON can hold, anything unusual as text.

    Examples
    --------
    >>> plain(np.float64(0.5)), plain(("a", 1))
    (0.5, "('a', 1)")
    """
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def at_most(value: float) -> str:
    """Write a number with six digits, rounded up: typed in as a delta, it still covers the change.

    Examples
    --------
    >>> at_most(0.25), at_most(0.105839501)
    ('0.25', '0.10584')
    """
    if float(nearest := f"{value:g}") >= value:
        return nearest
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(value)):g}"


def at_least(value: float) -> str:
    """Write a number with six digits, rounded down: typed in as a delta, it is still certified.

    Examples
    --------
    >>> at_least(0.25), at_least(0.105839599)
    ('0.25', '0.105839')
    """
    if float(nearest := f"{value:g}") <= value:
        return nearest
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal_from_float(value)):g}"


def exactly(value: float) -> str:
    """Write a number with six digits if these are all it has, else with as many as it takes: what was asked about.

    Examples
    --------
    >>> exactly(0.25), exactly(1.0), exactly(0.105839501)
    ('0.25', '1', '0.105839501')
    """
    return nearest if float(nearest := f"{value:g}") == value else repr(float(value))
