"""The anytime test against 20,000 fixed draws, and how long its boundaries take."""

from __future__ import annotations

import statistics
import time
from fractions import Fraction
from functools import partial

import numpy as np

import apas
from apas import FeedForward, Sampling
from apas.stats.sequential import boundary
from benchmarks.radius import oracle
from benchmarks.sampling import question
from benchmarks.timing import interleaved, ratio

__all__ = ["compare"]

ROWS, ASKED, MOST_DRAWS = 50, 5, 2400


def compare(rounds: int = 7) -> None:
    """Print draws and times of rows of which at most a tenth of what is allowed fails."""
    known = oracle()
    net, X = question((8, 8, 1)) if known is None else known
    X = np.resize(X, (ROWS, X.shape[1]))
    # where 99.95 % of the shifts keep the class, with confidence: a tenth of what coverage 0.995 leaves out
    deltas = apas.max_shift(net, X, target=1, method=Sampling(coverage=0.9995, n_samples=100_000), rng=0).deltas
    draws = [c.evidence.draws for c in certify(net, X, deltas, Sampling(), 1)]
    calls = [partial(certify, net, X, deltas, method) for method in (Sampling(n_samples=20_000), Sampling())]
    fixed, anytime = interleaved(*calls, rounds=rounds)
    print(f"Anytime test, {ROWS} rows of {'the diabetes network' if known else 'a random 8-8-1 network'}, one thread")
    print(f"median draws {statistics.median(draws):.0f} (at most {MOST_DRAWS}), all certified")
    print(
        f"20,000 fixed draws {1e3 * statistics.median(fixed):.1f} ms, anytime {1e3 * statistics.median(anytime):.1f} ms"
    )
    print(f"times faster {ratio(fixed, anytime)} (at least {ASKED})")
    _time_boundaries()


def certify(net: FeedForward, X: object, deltas: object, method: Sampling, seed: int) -> apas.Certificates:
    """What is timed: the whole public call."""
    found = apas.certify(net, X, deltas, target=1, method=method, rng=seed)
    if not found.certified.all():
        raise AssertionError("the benchmark's rows must be certified")
    return found


def _time_boundaries() -> None:
    single, rows = [], []
    for number in range(20):  # a risk that nothing remembers
        test = boundary(0.995, Fraction(999, 1000) + Fraction(number + 1, 10**6))
        for k in (0, 10, 80):
            begin = time.process_time()
            test.needed(k)
            single.append(time.process_time() - begin)
        failing = [(260 * (i + 1), True) for i in range(100)]
        begin = time.process_time()
        test.decide(failing, 30_000)
        rows.append(time.process_time() - begin)
    print(
        f"N_k on demand {1e3 * max(single):.2f} ms (below 5), a row of 100 failures {1e3 * max(rows):.1f} ms (below 50)"
    )


if __name__ == "__main__":
    compare()
