"""Numbers written so that they stay true, and values as JSON can hold them."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any


def plain(value: Any) -> Any:
    """Give a NumPy or pandas scalar as the Python value that JSON can hold, anything unusual as text."""
    import numpy as np

    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def at_most(value: float, digits: int = 6) -> str:
    """Write a number with so many digits, rounded up: typed in as a delta, it still covers the change."""
    if float(nearest := f"{value:.{digits}g}") >= value:
        return nearest
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value)):g}"


def at_least(value: float) -> str:
    """Write a number with six digits, rounded down: typed in as a delta, it is still certified."""
    if float(nearest := f"{value:g}") <= value:
        return nearest
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal_from_float(value)):g}"


def exactly(value: float) -> str:
    """Write a number with six digits if these are all it has, else with as many as it takes: what was asked about."""
    return nearest if float(nearest := f"{value:g}") == value else repr(float(value))
