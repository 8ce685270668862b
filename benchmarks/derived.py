"""Derived seeds: what SHAKE-128 costs in time and a risk of 2^-64 in delta, on the diabetes network of the paper."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

import apas
from apas import FeedForward, Sampling
from benchmarks.radius import oracle

__all__ = ["compare"]

DELTA, DRAWS, ROUNDS = 0.05, 20_000, 5


def compare(rounds: int = ROUNDS) -> None:
    """Print times at equal draws, with both kinds of seeds in each round, and deltas along rays."""
    found = oracle()
    if found is None:
        print("Derived seeds: left out, since the authors' diabetes network is not here (set APAS_DATA)")
        return
    net, X = found
    print(f"{DRAWS} draws at delta {DELTA}, processor time; median of {rounds} rounds, one after the other")
    for rows in (X[:1], X):
        seconds = [[_seconds(net, rows, seed) for seed in (number, "derived")] for number in range(rounds)]
        chosen, derived = np.median(seconds, axis=0)
        ratio = np.median([b / a for a, b in seconds])
        print(f"{len(rows):3} rows: chosen {1e3 * chosen:6.1f} ms, derived {1e3 * derived:6.1f} ms, ratio {ratio:.2f}")
    print("median delta along rays, as a part of that of 20,000 chosen draws at 0.999")
    today = np.mean([_deltas(net, X, DRAWS, seed) for seed in range(3)], axis=0)
    for draws in (DRAWS, 50_000, 100_000):
        print(f"{draws:7} draws, 2^-64: {np.median(_deltas(net, X, draws, 'derived') / today):.3f}")


def _seconds(net: FeedForward, X: NDArray[np.float64], seed: int | str) -> float:
    begin = time.process_time()
    found = apas.certify(net, X, DELTA, target=1, method=Sampling(n_samples=DRAWS), rng=seed)
    spent = time.process_time() - begin
    if not found.certified.all():
        raise AssertionError("the benchmark's rows must be certified, or fewer draws are made than are counted")
    return spent


def _deltas(net: FeedForward, X: NDArray[np.float64], draws: int, seed: int | str) -> NDArray[np.float64]:
    return apas.max_shift(net, X, target=1, method=Sampling(n_samples=draws, test="fixed"), rng=seed).deltas


if __name__ == "__main__":
    compare()
