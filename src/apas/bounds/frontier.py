"""The open parts of a box that is being cut up, in order of what is to be cut next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Frontier"]


class Frontier:
    """Parts with a key each and whatever else is known of them; those with the least keys come out first.

    Examples
    --------
    >>> frontier = Frontier()
    >>> frontier.push(np.array([3.0, 1.0, 2.0]), np.array([30, 10, 20]))
    >>> frontier.pop(1)
    (array([10]),)
    >>> len(frontier)
    2
    """

    def __init__(self) -> None:
        self._keys = np.empty(0)
        self._columns: tuple[NDArray[Any], ...] = ()

    def __len__(self) -> int:
        return len(self._keys)

    def push(self, keys: NDArray[np.float64], *columns: NDArray[Any]) -> None:
        """Add parts: their keys, and columns of the same length."""
        if not len(self):
            self._keys, self._columns = keys, columns
            return
        self._keys = np.concatenate([self._keys, keys])
        self._columns = tuple(np.concatenate(pair) for pair in zip(self._columns, columns, strict=True))

    def pop(self, count: int) -> tuple[NDArray[Any], ...]:
        """Take out up to `count` parts with the least keys: their columns."""
        if count >= len(self):
            columns, self._keys, self._columns = self._columns, self._keys[:0], ()
            return columns
        order = np.argpartition(self._keys, count - 1)
        taken = tuple(column[order[:count]] for column in self._columns)
        self._keys = self._keys[order[count:]]
        self._columns = tuple(column[order[count:]] for column in self._columns)
        return taken
