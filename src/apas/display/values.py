"""Values as JSON can hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Give a NumPy or pandas scalar as the Python value that JSON can hold, anything unusual as text.

    Examples
    --------
    >>> plain(np.float64(0.5)), plain(("a", 1))
    (0.5, "('a', 1)")
    """
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
