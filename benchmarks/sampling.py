"""The sampling test: one row, a thousand rows, and how the cost grows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import apas
from apas import FeedForward, LinfShifts, Sampling
from apas._random import Stream
from apas.certification.failing_draws import ALIGN, block_size
from apas.certification.question import Question
from apas.worst_case.intervals import Boxes
from benchmarks.plain import random_network, sampling_test
from benchmarks.timing import interleaved, ratio

__all__ = ["compare", "scaling"]

SIZES = [(8, 8, 1), (7, 16, 1), (9, 18, 1), (72, 5, 1), (30, 100, 50, 1)]
SAMPLES, ROWS, DELTA = 1379, 1000, 0.02
ASKED = {"one row": (30, 20, 15, 10, 3), "1,000 rows": (300, 300, 300, 300, 100)}


def compare(rounds: int = 7) -> None:
    """Print ratios against the plain loop, and against drawing the directions plus the matrix products."""
    print(f"Sampling test, n = {SAMPLES}, one thread, new seed each call; median (min-max) over {rounds} rounds")
    print("ratio to the plain loop (more is better) and to drawing + products (less is better)\n")
    heads = f"{'network':14} {'plain ms':>9} {'rows':>6} {'ours ms':>9} {'x plain':>24} {'asked':>6}"
    print(f"{heads} {'/ draw + products':>22}")
    for i, sizes in enumerate(SIZES):
        net, X = question(sizes)
        for label, rows in (("one row", X[:1]), ("1,000 rows", X)):
            plain, ours, floor = interleaved(
                partial(run_plain, net, X[0]), partial(certify, net, rows), partial(draw_and_multiply, net, rows),
                rounds=rounds,
            )  # fmt: skip
            print(
                f"{'-'.join(map(str, sizes)):14} {1e3 * statistics.median(plain):9.1f} {len(rows):6} "
                f"{1e3 * statistics.median(ours):9.2f} {ratio(plain, ours, times=len(rows)):>24} "
                f"{ASKED[label][i]:6} {ratio(ours, floor):>22}"
            )


def question(sizes: tuple[int, ...]) -> tuple[FeedForward, NDArray[np.float64]]:
    """A random network and rows, nearly alike, that every draw keeps but intervals do not prove: each draw is made."""
    weights, biases = random_network(sizes, seed=0)
    net, x = FeedForward(weights, biases), np.random.default_rng(6).random((1, sizes[0]))
    # of what intervals take off the margin the row keeps nine tenths, far more than draws take off
    bound = Boxes(net, x, np.ones(1, dtype=np.intp), np.ones(len(net.parameters))).least(np.array([DELTA]))[0]
    biases[-1] = biases[-1] - 0.1 * net.margin(x, 1) - 0.9 * bound
    return FeedForward(weights, biases), x * (1 + 1e-6 * np.arange(ROWS)[:, None])


def certify(net: FeedForward, X: NDArray[np.float64], seed: int, samples: int = SAMPLES) -> apas.Certificates:
    """What is timed: the whole public call."""
    certificates = apas.certify(net, X, DELTA, target=1, method=Sampling(n_samples=samples), rng=seed)
    if not certificates.certified.all():
        raise AssertionError("the benchmark's rows must be certified, or fewer draws are made than are counted")
    return certificates


def run_plain(net: FeedForward, x: NDArray[np.float64], seed: int) -> int:
    """The baseline; it has its own fixed seed."""
    return sampling_test(list(net.weights), list(net.biases), x, DELTA, SAMPLES)


def draw_and_multiply(net: FeedForward, X: NDArray[np.float64], seed: int) -> None:
    """The floor: draw the same directions, and take all layers' matrix products with them on the same blocks."""
    question = Question(net, X, np.full(len(X), 1), np.full(len(X), DELTA), LinfShifts())
    stream, step = Stream(seed, "floor"), block_size(question)
    shapes = [w.shape for w in net.weights]
    ends = np.cumsum([0, *((n + 1) * m for n, m in shapes)]).tolist()
    ones = np.column_stack([X, np.ones(len(X))])
    for start in range(0, SAMPLES, step):
        stop = min(start + step, SAMPLES) if step < ALIGN else -(-min(start + step, SAMPLES) // ALIGN) * ALIGN
        drawn = LinfShifts().directions(net.parameters, stream, start, stop)
        rows = max(1, (1 << 16) // (len(drawn) * max(m for _, m in shapes)))
        for first in range(0, len(X), rows):
            products(ones[first : first + rows], drawn, shapes, ends)


def products(
    a: NDArray[np.float64], drawn: NDArray[np.float64], shapes: list[tuple[int, int]], ends: list[int]
) -> None:
    """Matrix products of all layers with the drawn numbers, in the layout in which they were drawn."""
    last = drawn.flags.f_contiguous and len(drawn) > 1
    for i, ((begin, end), (n, m)) in enumerate(zip(pairwise(ends), shapes, strict=True)):
        if last:
            layer = drawn.T[begin:end].reshape(n + 1, m, len(drawn))
            z = (
                (a @ layer.reshape(n + 1, -1)).reshape(len(a), m, -1)
                if i == 0
                else np.einsum("mis,ios->mos", a, layer[:n])
            )
        else:
            layer = drawn[:, begin:end].reshape(len(drawn), n + 1, m)
            z = a @ layer if i == 0 else a @ layer[:, :n]
        a = z


def scaling(folder: Path, rounds: int = 3) -> None:
    """Save a plot of the time against samples, parameters and rows, over three decades each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    net, X = question((8, 8, 1))
    series: list[tuple[str, list[int], Callable[[int], Callable[[int], object]]]] = [
        ("samples", [2000, 20_000, 200_000, 2_000_000], lambda n: partial(certify, net, X[:1], samples=n)),
        ("rows", [100, 1000, 10_000, 100_000], lambda n: partial(certify, net, np.resize(X, (n, 8)))),
        ("parameters", [1000, 10_000, 100_000, 1_000_000], lambda n: partial(certify, *wide(n))),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for ax, (name, values, call) in zip(axes, series, strict=True):
        seconds = [statistics.median(interleaved(call(n), rounds=rounds)[0]) for n in values]
        slope = np.polyfit(np.log(values[1:]), np.log(seconds[1:]), 1)[0]
        ax.loglog(values, seconds, "o-", color="#1b4f7f", label=f"measured, slope {slope:.2f}")
        ax.loglog(values, [seconds[-1] * v / values[-1] for v in values], "--", color="grey", label="linear")
        ax.set(xlabel=name, ylabel="seconds" if name == "samples" else "", title=f"time against {name}")
        ax.legend(frameon=False)
        print(
            f"{name:11} "
            + "  ".join(f"{v:,}: {s:.3g} s" for v, s in zip(values, seconds, strict=True))
            + f"  slope {slope:.2f}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "scaling.png", dpi=110)
    plt.close(figure)
    print(f"saved {folder / 'scaling.png'}")


def wide(parameters: int) -> tuple[FeedForward, NDArray[np.float64]]:
    """A network with one hidden layer of about this many parameters, and one row."""
    width = max(2, round((parameters / 2) ** 0.5))
    net, X = question((2 * width, width, 1))
    return net, X[:1]
