"""Memory stays bounded for many rows, many samples and many parameters."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import apas
from apas import FeedForward, Sampling


@pytest.mark.parametrize(
    ("rows", "samples", "sizes"),
    [(50_000, 64, (8, 8, 1)), (1, 120_000, (8, 8, 1)), (2, 64, (1000, 1000, 1)), (2000, 64, (100, 300, 3))],
    ids=str,
)
def test_peak(rows, samples, sizes):
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(a, b)) / a for a, b in zip(sizes, sizes[1:], strict=False)]
    output = "softmax" if sizes[-1] > 1 else "sigmoid"
    net = FeedForward(weights, [np.ones(b) for b in sizes[1:]], output=output)
    X = rng.random((rows, sizes[0]))
    held = X.nbytes + net.parameters.values.nbytes
    # warm up, so that modules loaded on first use are not counted
    apas.certify(
        net, X[:1], 0.001, target="predicted", method=Sampling(coverage=0.5, confidence=0.9, n_samples=64), rng=0
    )
    tracemalloc.start()
    method = Sampling(coverage=0.5, confidence=0.9, n_samples=samples)
    apas.certify(net, X, 0.001, target="predicted", method=method, rng=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # what is asked about is copied, and the answers of 50,000 rows take about 1 kB each; the draws must not add up
    # (120,000 of 81 parameters would be 78 MB)
    assert peak < 6 * held + 2000 * rows + 48e6, f"{peak / 1e6:.0f} MB"
