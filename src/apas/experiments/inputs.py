"""Which rows are explained: as published, and different ones.

The published inputs were drawn with replacement from the rows that the network puts into class 0, and of the drawn ones
only those were kept whose own class 0 survives every shift up to delta. So of 50 inputs 29 to 43 differ, and rows near
the boundary, which are the easiest to explain, are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apas.certify.entry import certify
from apas.models.feedforward import FeedForward

__all__ = ["Chosen", "certified_inputs", "distinct_inputs"]

#: How many inputs are explained.
INPUTS = 50


class Chosen(NamedTuple):
    """Rows to explain.

    Attributes
    ----------
    rows : ndarray of int
        Numbers of the rows, in the order of drawing.
    n_class_0 : int
        From how many they are drawn.
    n_certified : int
        How many of the drawn ones keep class 0 under every shift up to delta.
    """

    rows: NDArray[np.int64]
    n_class_0: int
    n_certified: int


def certified_inputs(
    network: FeedForward, X: NDArray[np.float64], delta: float, *, most: int, seed: int, count: int = INPUTS
) -> Chosen:  # fmt: skip
    """Rows of class 0 as published: the first of those drawn with replacement that keep it under every shift.

    Parameters
    ----------
    network : FeedForward
    X : ndarray of shape (rows, inputs)
    delta : float
    most : int
        As many as there are of class 0 are drawn, but no more than this.
    seed : int
    count : int, default 50

    Examples
    --------
    >>> net = FeedForward([[[1.0]]], [[-0.5]])
    >>> certified_inputs(net, np.array([[0.1], [0.2], [0.49], [0.9]]), 0.1, most=10, seed=1).rows.tolist()
    [1, 0, 0]
    """
    class_0 = np.flatnonzero(network.margin(X, 1) < 0)
    drawn = class_0[np.random.RandomState(seed).choice(len(class_0), min(len(class_0), most))]
    certified = certify(network, X[drawn], delta, target=0, method="interval").certified
    return Chosen(drawn[certified][:count], len(class_0), int(certified.sum()))


def distinct_inputs(
    network: FeedForward, X: NDArray[np.float64], delta: float, *, seed: int, count: int = INPUTS
) -> Chosen:  # fmt: skip
    """Different rows of class 0, drawn without replacement, whether they keep it under shifts or not.

    Parameters
    ----------
    network, X, delta, seed, count
        As above. There are fewer than `count` if no more rows differ.

    Examples
    --------
    >>> net = FeedForward([[[1.0]]], [[-0.5]])
    >>> chosen = distinct_inputs(net, np.array([[0.1], [0.2], [0.49], [0.1], [0.9]]), 0.1, seed=1)
    >>> sorted(chosen.rows.tolist()), chosen.n_class_0, chosen.n_certified
    ([0, 1, 2], 3, 2)
    """
    class_0 = np.flatnonzero(network.margin(X, 1) < 0)
    first = np.sort(np.unique(X[class_0], axis=0, return_index=True)[1])
    different = class_0[first]
    rows = np.random.default_rng(seed).permutation(different)[:count]
    certified = certify(network, X[rows], delta, target=0, method="interval").certified
    return Chosen(rows, len(different), int(certified.sum()))
