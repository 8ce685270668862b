"""Upper bounds on Lipschitz constants of dense networks, for one network or for all of a box of them."""

from __future__ import annotations

import numpy as np

from apas._typing import Floats
from apas.models.feedforward import FeedForward
from apas.worst_case.intervals import STEEPEST

#: Room for the rounding of norms and products, which are exact to about 1e-14 of their size.
ROUNDING = 1e-9


def lipschitz_bound(network: FeedForward, reach: Floats | None = None, *, margin: bool = False) -> float:
    """A bound on how fast the output changes with the input: ``|f(x) - f(y)| <= bound * ||x - y||_2``.

    An upper bound, not the constant itself: the lesser of the product of the layers' norms and of the norm of the
    product of their magnitudes. It holds for all inputs.

    Parameters
    ----------
    network : FeedForward
    reach : ndarray of shape (k,), optional
        How far each parameter may move; the bound then holds for every network of that box.
    margin : bool, default False
        Take the margin (the logit, or the lead over the best other class) in place of the output, which is the
        probability of class 1 for networks with two classes and ``output`` other than "identity".

    Examples
    --------
    >>> net = FeedForward([[[3.0], [4.0]]], [[0.0]])
    >>> round(lipschitz_bound(net, margin=True), 6), round(lipschitz_bound(net), 6)
    (5.0, 1.25)
    """
    theta = network.parameters
    moves = np.zeros(len(theta)) if reach is None else np.asarray(reach, dtype=np.float64)
    reaches = theta.split(moves)[::2]
    hidden = list(zip(network.weights[:-1], reaches[:-1], network.activations, strict=True))
    norm = 1.0
    for w, r, name in hidden:
        norm *= STEEPEST.get(name, 1.0) * (float(np.linalg.norm(w, 2)) + float(np.linalg.norm(r)))
    bounds = []
    for v, r in _outputs(network.weights[-1], reaches[-1]):
        slopes = np.abs(v) + r
        for w, r_w, name in reversed(hidden):
            slopes = STEEPEST.get(name, 1.0) * ((np.abs(w) + r_w) @ slopes)
        bounds.append(min(float(np.linalg.norm(slopes)), norm * float(np.linalg.norm(v) + np.linalg.norm(r))))
    steepest = 1.0 if margin or network.output == "identity" else 0.25  # of the logistic function
    return steepest * max(bounds) * (1 + ROUNDING)


def _outputs(w: Floats, r: Floats) -> list[tuple[Floats, Floats]]:
    """Weights and reaches of every difference of scores that a margin can be."""
    count = w.shape[1]
    if count == 1:
        return [(w[:, 0], r[:, 0])]
    return [(w[:, i] - w[:, j], r[:, i] + r[:, j]) for i in range(count) for j in range(i)]
