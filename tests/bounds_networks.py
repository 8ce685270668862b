"""Random networks for tests of bounds."""

from __future__ import annotations

import numpy as np

from apas import FeedForward


def network(sizes, output, activation, seed):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) for a, b in zip(sizes, sizes[1:], strict=False)]
    threshold = 0.5 if sizes[-1] > 2 else 0.4
    biases = [rng.normal(size=b) for b in sizes[1:]]
    return FeedForward(weights, biases, activation=activation, output=output, threshold=threshold)
