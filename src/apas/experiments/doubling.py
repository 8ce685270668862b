"""The paper's search for the largest delta (Algorithms 1 and 4), exactly as its program ran it.

`apas.max_shift(search="paper")` is the same search with draws of our own, fresh for each test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.entry import certify
from apas.certify.problem import Method
from apas.models.feedforward import FeedForward
from apas.shifts.linf import LinfShifts

__all__ = ["largest_passing", "published_delta"]

_Array = NDArray[np.float64]
#: Where the search starts, and how narrow the bracket becomes.
FIRST = 1e-4
#: Nothing passes for ever: the search ends here.
LAST = 1e6


def largest_passing(passes: Callable[[NDArray[np.intp], _Array], NDArray[np.bool_]], rows: int) -> _Array:
    """Double from 1e-4 while the test passes, then bisect until the bracket is narrower than 1e-4; its lower end.

    Parameters
    ----------
    passes : callable
        Given numbers of rows and a delta for each, says which pass.
    rows : int

    Returns
    -------
    ndarray of shape (rows,)
        0 where the first test fails.

    Examples
    --------
    >>> largest_passing(lambda rows, delta: delta < np.array([0.00005, 0.11507])[rows], 2).round(5)
    array([0.     , 0.11505])
    """
    low, high = np.zeros(rows), np.full(rows, FIRST)
    going = np.arange(rows)
    while len(going):
        going = going[passes(going, high[going])]
        low[going] = high[going]
        going = going[high[going] < LAST]
        high[going] *= 2
    going = np.flatnonzero((low > 0) & (low < high))
    while len(going := going[high[going] - low[going] >= FIRST]):
        middle = 0.5 * (low[going] + high[going])
        passed = passes(going, middle)
        low[going[passed]], high[going[~passed]] = middle[passed], middle[~passed]
    return low


def published_delta(
    network: FeedForward, X: _Array, method: Method | str, shifts: LinfShifts | None = None, *, target: Any = 1
) -> _Array:
    """The largest delta of each row that the search finds with a method of `certify` as its test.

    With `PublishedSampling` it is Algorithm 1 with the published draws, with ``"interval"`` Algorithm 4. Neither makes
    the delta itself a certificate at the claim's confidence: draws chose it.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> published_delta(net, np.array([[2.0, 0.5]]), "interval").round(5)
    array([0.4285])
    """
    moves = LinfShifts() if shifts is None else shifts

    def passes(rows: NDArray[np.intp], delta: _Array) -> NDArray[np.bool_]:
        return certify(network, X[rows], delta, target=target, shifts=moves, method=method).certified

    return largest_passing(passes, len(X))
