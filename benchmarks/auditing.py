"""Audits: what is asked of a new model, beside what it costs to read the same certificates from a file."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np

import apas
from benchmarks.plain import random_network
from benchmarks.timing import interleaved, ratio

__all__ = ["compare"]

SIZES, ROWS, DELTA, MOVED = (8, 16, 1), 2000, 0.01, 0.001


def compare(rounds: int = 7) -> None:
    """Print how long an audit of certificates in memory and in a file takes, and the margins alone."""
    weights, biases = random_network(SIZES, seed=0)
    net = apas.FeedForward(weights, biases)
    later = apas.FeedForward([w + MOVED for w in weights], [b + MOVED for b in biases])
    rows = np.random.default_rng(6).random((ROWS, SIZES[0]))
    certificates = apas.certify(net, rows, DELTA, target="predicted", rng=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificates.json"
        apas.save_certificates(certificates, path)
        held, read, margins = interleaved(
            lambda _: apas.audit(certificates, later, base=net, repairs=False),
            lambda _: apas.audit(path, later, base=net, repairs=False),
            lambda _: later.margin(rows, 1),
            rounds=rounds,
        )
    print(f"Audit of {ROWS:,} certificates, one thread; median over {rounds} rounds, ratios as median (min-max)")
    print(f"in memory {1e3 * statistics.median(held):7.1f} ms, from a file {1e3 * statistics.median(read):7.1f} ms")
    print(f"file / memory {ratio(read, held)}, memory / margins alone {ratio(held, margins)}")
