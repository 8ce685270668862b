"""The smallest delta at which pushing the units of a deep network against the margin breaks a row.

An upper bound on the largest robust delta: below it failing shifts may exist that were not found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.backward import Objective
from apas.bounds.interval import output_terms, rivals
from apas.bounds.pushes import Pushes, pushed_parameters
from apas.bounds.relaxation import Relaxation
from apas.models.feedforward import FeedForward

__all__ = ["broken_radius"]

_Array = NDArray[np.float64]
#: Relative width at which a bracket counts as closed, and how often it may be halved.
CLOSED, HALVINGS = 1e-6, 60


def broken_radius(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array, proved: _Array, limit: float
) -> tuple[_Array, _Array]:
    """Per row a delta above `proved` with a failing shift, as small as found, and its direction of the unit box.

    Parameters
    ----------
    net : FeedForward
        With at least one hidden layer.
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
    radii : ndarray of shape (k,)
    proved : ndarray of shape (rows,)
        Where to begin: every shift up to here is known to keep the row.
    limit : float

    Returns
    -------
    delta : ndarray of shape (rows,)
        Infinite where nothing failed up to `limit`.
    directions : ndarray of shape (rows, k)
    """
    search = _Search(net, X, wanted, radii)
    low = proved.copy()
    high = np.minimum(np.maximum(2 * proved, 1e-3 * limit), limit)
    fails = search.fails(high)
    while (~fails & (high < limit)).any():  # double until it breaks
        low = np.where(fails, low, high)
        high = np.where(fails, high, np.minimum(4 * high, limit))
        fails = search.fails(high)
    broken = np.where(fails, high, np.inf)
    for _ in range(HALVINGS):
        wide = fails & (broken - low > CLOSED * broken)
        if not wide.any():
            break
        middle = np.where(wide, 0.5 * (low + np.where(fails, broken, low)), np.where(fails, broken, limit))
        now = search.fails(middle)
        broken, low = np.where(wide & now, middle, broken), np.where(wide & ~now, middle, low)
    return broken, search.directions()


class _Search:
    """Rows against their rivals, with the pushes that broke each row at the smallest delta so far."""

    def __init__(self, net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array) -> None:
        self.net, self.X, self.wanted = net, X, wanted
        self.relaxation = Relaxation(net, radii, 1.0)
        self.terms = [(rival, output_terms(net, self.relaxation.unit_reach, wanted, rival)) for rival in rivals(net, wanted).T]
        self.pushes = [[np.zeros((len(X), w.shape[1])) for w in net.weights[:-1]] for _ in self.terms]
        self.kept = [p.copy() for p in self.pushes[0]]
        self.rival = self.terms[0][0].copy()
        self.smallest = np.full(len(X), np.inf)

    def fails(self, delta: _Array) -> NDArray[np.bool_]:
        """Whether some shift by `delta` (one per row) is found to break each row."""
        broken = np.zeros(len(self.X), dtype=bool)
        for i, (rival, (v, v_reach, bias, bias_reach)) in enumerate(self.terms):
            objective = Objective(v, delta[:, None] * v_reach, bias - delta * bias_reach)
            several = Pushes(self.relaxation, self.X, objective, delta[:, None])
            # from where the last one ended, and afresh from the network itself
            margins, pushes = several.improved(self.pushes[i])
            again, others = several.improved([np.zeros_like(p) for p in pushes])
            better = again < margins
            self.pushes[i] = [np.where(better[:, None], b, a) for a, b in zip(pushes, others, strict=True)]
            now = np.minimum(margins, again) < 0
            first = now & (delta < self.smallest)
            for kept, new in zip(self.kept, self.pushes[i], strict=True):
                kept[first] = new[first]
            self.rival = np.where(first, rival, self.rival)
            self.smallest = np.where(first, delta, self.smallest)
            broken |= now
        return broken

    def directions(self) -> _Array:
        """Of each row the direction that broke it; meaningless for the others."""
        found = np.zeros((len(self.X), len(self.net.parameters)))
        for row in np.flatnonzero(np.isfinite(self.smallest)).tolist():
            relaxation = self.relaxation.at(float(self.smallest[row]))
            push = output_push(self.net, int(self.wanted[row]), int(self.rival[row]))
            found[row] = pushed_parameters(relaxation, self.X[row], [p[row] for p in self.kept], push)
        return found


def output_push(net: FeedForward, wanted: int, rival: int) -> _Array:
    """How the outputs are pushed: the wanted score down, the rival's up."""
    push = np.zeros(net.weights[-1].shape[1])
    if len(push) == 1:
        push[0] = -1.0 if wanted == 1 else 1.0
    else:
        push[rival], push[wanted] = 1.0, -1.0
    return push
