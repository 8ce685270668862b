"""Worst-case answers: exact verdicts against the usual encoding, interval bounds against plain loops, tightness."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import apas
from apas import FeedForward
from apas.worst_case.intervals import Boxes
from benchmarks.milp import least_margin
from benchmarks.timing import interleaved, ratio

__all__ = ["compare"]

_Array = NDArray[np.float64]
SIZES = [(8, 20, 10, 1), (20, 64, 32, 1), (30, 100, 50, 1)]
FACTORS = (0.9, 0.98, 0.995, 1.005, 1.02, 1.1)
ROUNDS = 3  # of all factors, each a millionth larger than before


def deep_network(sizes: tuple[int, ...], seed: int) -> FeedForward:
    """A random ReLU network."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) * np.sqrt(2 / a) for a, b in pairwise(sizes)]
    return FeedForward(weights, [0.1 * rng.normal(size=b) for b in sizes[1:]])


def towards_one(net: FeedForward, x: _Array) -> FeedForward:
    """The network itself if it gives the row class 1, else with its output turned round, for the usual encoding."""
    if net.margin(x, 1)[0] > 0:
        return net
    return FeedForward([*net.weights[:-1], -net.weights[-1]], [*net.biases[:-1], -net.biases[-1]])


def verdicts(sizes: tuple[int, ...], networks: int, rows: int) -> None:
    """Print the times of verdicts around the largest robust delta, and the ratios to the usual encoding.

    Once as single calls of one row each, once as one call per network with all rows and deltas. All verdicts of one
    program are asked for one after the other, then all of the other, as whoever uses one of them would: each has the
    processor's caches to itself.
    """
    asked = []
    for seed in range(networks):
        base, rng = deep_network(sizes, seed), np.random.default_rng(100 + seed)
        for x in rng.random((rows, 1, sizes[0])):
            net = towards_one(base, x)
            star = apas.max_shift(net, x, target=1, method="exact")[0].delta
            asked += [(net, x, star, factor * (1 + 1e-6 * i)) for i in range(ROUNDS) for factor in FACTORS]
    ours, answers = _timed(asked, lambda net, x, delta: apas.certify(net, x, delta, target=1, method="exact")[0])
    usual, margins = _timed(asked, lambda net, x, delta: least_margin(list(net.weights), list(net.biases), x[0], delta))
    unknown = wrong = 0
    steps: dict[str, int] = {}
    for answer, margin in zip(answers, margins, strict=True):
        unknown += answer.verdict is apas.Verdict.UNKNOWN
        wrong += abs(margin) > 1e-4 and answer.is_certified != (margin > 0)
        step = answer.evidence.to_dict()["step"]
        steps[step] = steps.get(step, 0) + 1
    deltas = np.array(FACTORS) * (1 + 1e-4)  # that no call has seen
    once = [
        (net, np.repeat(x, len(FACTORS), axis=0), star * deltas, 1.0)
        for net, x, star, _ in asked[:: ROUNDS * len(FACTORS)]
    ]
    together = sum(_timed(once, lambda net, X, delta: apas.certify(net, X, delta, target=1, method="exact"))[0])
    near = [pair for pair, question in zip(zip(ours, usual, strict=True), asked, strict=True) if 0.99 < question[3] < 1]
    name = "-".join(map(str, sizes))
    for label, pairs, least in (("all", list(zip(ours, usual, strict=True)), 10), ("0.995 delta*", near, 3)):
        one, other = (1e3 * statistics.median(t) for t in zip(*pairs, strict=True))
        worst = min(b / a for a, b in pairs)
        figures = f"ours {one:7.2f} ms  usual {other:8.2f} ms  x {other / one:6.1f}  worst single {worst:.1f}"
        print(f"{name:14} {label:13} n={len(pairs):3}  {figures}  asked {least}")
    means = f"ours {1e3 * ROUNDS * together / len(ours):.2f} ms  usual {1e3 * sum(usual) / len(ours):.2f} ms"
    print(f"{'':14} six deltas in one call, means: {means}  x {sum(usual) / ROUNDS / together:.1f}")
    decided = ", ".join(f"{k} {v}" for k, v in sorted(steps.items()))
    print(f"{'':14} {unknown} unknown, {wrong} against the usual encoding; decided by {decided}")


def _timed(
    asked: list[tuple[FeedForward, _Array, Any, float]], call: Callable[..., Any]
) -> tuple[list[float], list[Any]]:
    """Seconds of each question, and its answer."""
    seconds, answers = [], []
    for net, x, delta, factor in asked:
        began = time.process_time()
        answers.append(call(net, x, delta * factor))
        seconds.append(time.process_time() - began)
    return seconds, answers


def plain_interval(net: FeedForward, x: _Array, delta: float) -> float:
    """Interval arithmetic as it is usually written: four products per weight, one row at a time."""
    low = high = x
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        down, up = w - delta, w + delta
        ends = np.stack([low[:, None] * down, low[:, None] * up, high[:, None] * down, high[:, None] * up])
        low, high = ends.min(axis=0).sum(axis=0) + b - delta, ends.max(axis=0).sum(axis=0) + b + delta
        if i < len(net.activations):
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
    return float(low[0])


def intervals(rounds: int) -> None:
    """Print the time per row of interval bounds in one call, row by row, and by the plain loop."""
    net, rows, few, delta = deep_network((30, 100, 50, 1), 0), 10_000, 50, 0.001
    X = np.random.default_rng(0).random((rows, 30))
    wanted, radii = np.ones(rows, dtype=np.intp), np.ones(len(net.parameters))

    def bounds(seed: int, X: _Array) -> object:
        return Boxes(net, X, wanted[: len(X)], radii).least(np.full(len(X), delta))

    def call(seed: int, X: _Array) -> object:
        return apas.certify(net, X, delta, target="predicted", method="interval")

    def one_by_one(seed: int, run: Callable[[int, _Array], object]) -> object:
        return [run(seed, X[i : i + 1]) for i in range(few)]

    def written_out(seed: int) -> object:
        return [plain_interval(net, x, delta) for x in X[:few]]

    for name, run in (("bounds", bounds), ("certify", call)):
        together, alone, plain = interleaved(
            partial(run, X=X), partial(one_by_one, run=run), written_out, rounds=rounds
        )  # fmt: skip
        each, share = 1e6 * statistics.median(together) / rows, rows / few
        figures = f"row by row x {ratio(alone, together, times=share)}  plain x {ratio(plain, together, times=share)}"
        print(f"interval {name:8} 10,000 rows {each:6.2f} us/row  {figures}  asked 10 and 30")


def tightness() -> None:
    """Print how far the proved radius of each bound reaches towards the exact one."""
    for sizes in [(8, 20, 10, 1), (20, 64, 32, 1), (8, 16, 16, 16, 1)]:
        shares: dict[str, list[float]] = {"interval": [], "linear": []}
        for seed in range(5):
            net = deep_network(sizes, seed)
            X = np.random.default_rng(seed).random((3, sizes[0]))
            exact = apas.max_shift(net, X, target="predicted", method="exact").deltas
            for method, found in shares.items():
                found += (apas.max_shift(net, X, target="predicted", method=method).deltas / exact).tolist()
        medians = "  ".join(f"{m} {statistics.median(v):.2f}" for m, v in shares.items())
        print(f"proved delta / exact delta, {'-'.join(map(str, sizes)):12}  {medians}")


def compare(rounds: int = 5) -> None:
    """Print everything."""
    print("Exact verdicts, whole public calls, one row at a time; medians\n")
    for sizes in SIZES:
        verdicts(sizes, networks=4, rows=2)
    print()
    intervals(rounds)
    print()
    tightness()
