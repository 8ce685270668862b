"""What the explanations of Table 1 are worth: one measure for all methods, on points as the network sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.fraction import robust_fraction
from apas.certify.sampling import Sampling
from apas.experiments.baselines import WANTED
from apas.experiments.networks import Preparation
from apas.metrics.distance import l0, l1
from apas.metrics.plausibility import lof
from apas.metrics.validity import delta_validity
from apas.models.feedforward import FeedForward

__all__ = ["SHARES", "scores"]

_Array = NDArray[np.float64]
#: Draws that estimate the share of the shifts under which an explanation stays valid, and their seed, which no method
#: has.
DRAWS, SEED = 10_000, 987_654_321
#: Those of the figures that are shares of all inputs; the others are means over the explanations valid on the network.
SHARES = ("found", "vm1", "vm2_one_pass", "vm2_most_shifted", "vm2_scratch", "delta_validity")


def scores(preparation: Preparation, points: _Array, judges: Sequence[FeedForward] = ()) -> dict[str, Any]:
    """Measure explanations as the paper does, and how robust they are.

    Parameters
    ----------
    preparation : Preparation
    points : ndarray of shape (inputs, columns)
        NaN where there is none, which counts as a failure in all shares.
    judges : sequence of FeedForward
        Networks trained from scratch that no method has seen.

    Returns
    -------
    dict
        ``found``; ``vm1``; ``vm2_one_pass``, ``vm2_most_shifted`` and ``vm2_scratch`` (the mean over the judges, None
        without any): shares of the inputs whose explanation is valid on the network and on the other one; ``l1``,
        ``l0``, ``lof``; ``delta_validity``: the share proved for every shift up to delta; ``robust_fraction`` and
        ``least_fraction``: mean and least estimated share of these shifts. None where there is nothing to average.
    """
    network, X = preparation.network, preparation.inputs
    found = np.asarray(np.isfinite(points).all(axis=1))
    valid = _accepts(network, points, found)
    later = {"one_pass": preparation.retrained, "most_shifted": preparation.most_shifted}
    kept, start = points[valid], X[valid]
    fractions = _fractions(network, kept, preparation.delta)
    return {
        "found": float(found.mean()), "vm1": float(valid.mean()),
        **{f"vm2_{name}": float(_accepts(net, points, valid).mean()) for name, net in later.items()},
        "vm2_scratch": _mean(np.array([_accepts(judge, points, valid).mean() for judge in judges])),
        "l1": _mean(l1(start, kept)), "l0": _mean(l0(start, kept, features=_features(preparation))),
        "lof": _mean(lof(preparation.d1.X, kept)) if len(kept) else None,
        "delta_validity": float(delta_validity(network, points, preparation.delta, target=WANTED).mean()),
        "robust_fraction": _mean(fractions), "least_fraction": float(fractions.min()) if len(fractions) else None,
    }  # fmt: skip


def _accepts(network: FeedForward, points: _Array, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the points are among some, and in the wanted class."""
    accepted = among.copy()
    accepted[among] = network.margin(points[among], WANTED) >= 0
    return accepted


def _fractions(network: FeedForward, points: _Array, delta: float) -> _Array:
    method = Sampling(n_samples=DRAWS)
    curves = robust_fraction(network, points, delta, target=WANTED, method=method, rng=SEED)
    return np.array([curve.estimate[0] for curve in curves])


def _features(preparation: Preparation) -> list[int]:
    """The feature that each column of the network belongs to."""
    parts = preparation.tables.space.coding.slices
    return [i for i, part in enumerate(parts) for _ in range(part.start, part.stop)]


def _mean(values: _Array) -> float | None:
    return float(np.mean(values)) if len(values) else None
