"""What a counterfactual changes, in words that people read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.feature import Feature, is_same
from apas.counterfactuals.space import FeatureSpace

__all__ = ["change_texts", "changes_of", "differ", "number_pair", "number_text"]

NONE_FOUND = "(none found)"


def changes_of(space: FeatureSpace, before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    """All changes of a row in one line.

    Examples
    --------
    >>> space = FeatureSpace([Feature("income", "integer"), Feature("housing", "categorical", values=("own", "rent"))])
    >>> changes_of(space, np.array([2100.0, 1.0]), np.array([2300.0, 0.0]))
    'income 2,100 -> 2,300, housing rent -> own'
    """
    if np.isnan(after).any():
        return NONE_FOUND
    texts = change_texts(space, before, after)
    return ", ".join(f"{name} {text}" for name, text in zip(space.names, texts, strict=True) if text) or "(no change)"


def change_texts(space: FeatureSpace, before: NDArray[np.float64], after: NDArray[np.float64]) -> list[str]:
    """Per feature its change, such as "2,100 -> 2,300"; empty where there is none."""
    if np.isnan(after).any():
        return [""] * len(space)
    return [
        "" if is_same(a, b, feature.size) else " -> ".join(_shown_pair(feature, float(a), float(b)))
        for feature, a, b in zip(space.features, before, after, strict=True)
    ]


def differ(before: Any, after: Any) -> bool:
    """Whether two cells of a table differ, by more than rounding if they are numbers.

    Examples
    --------
    >>> differ(0.3, 0.1 + 0.2), differ(1, 2), differ("rent", "own")
    (False, True, True)
    """
    are_numbers = all(isinstance(cell, float | int) for cell in (before, after))
    if are_numbers and (isinstance(before, float) or isinstance(after, float)):  # whole numbers are exact
        return not bool(is_same(before, after))
    return bool(before != after)


def _shown_pair(feature: Feature, before: float, after: float) -> tuple[str, str]:
    if feature.is_level:
        levels: Any = feature.values
        return str(levels[int(before)]), str(levels[int(after)])
    return number_pair(before, after)


def number_pair(before: float, after: float) -> tuple[str, str]:
    """Two numbers with as few digits as tell them apart, but at least four.

    Examples
    --------
    >>> number_pair(2100.0, 2300.0), number_pair(0.123456, 0.123451)
    (('2,100', '2,300'), ('0.12346', '0.12345'))
    """
    for digits in range(4, 18):
        texts = number_text(before, digits), number_text(after, digits)
        if texts[0] != texts[1]:
            return texts
    return repr(before), repr(after)


def number_text(value: float, digits: int = 4) -> str:
    """A number as people read it: whole ones in full, others with so many digits."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    text = f"{value:,.{digits}g}"
    return text if "e" not in text or abs(value) < 1e-4 else f"{value:,.0f}"
