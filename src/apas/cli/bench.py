"""`apas bench`: how fast this machine draws shifted models, against the loop that anyone would write first."""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import time
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from apas.cli import options
from apas.cli.output import new_table, print_json, print_table
from apas.errors import InputError

if TYPE_CHECKING:
    from apas._typing import Floats, Integers
    from apas.models.feedforward import FeedForward

SIZES = ((8, 8, 1), (30, 100, 50, 1))
ROWS = (1, 100)
DRAWS, DELTA = 1379, 0.02


def bench_command(
    rounds: Annotated[int, Option(help="How often each is timed; the medians are shown.")] = 5,
    as_json: options.Json = False,
) -> None:
    """Time the sampling test against a plain loop in NumPy, on random networks, in one thread.

    Both draw as many shifted models and ask each of them about all rows, from random streams of their own.

    Example:  apas bench --rounds 3
    """
    from threadpoolctl import threadpool_limits

    if rounds < 1:
        raise InputError(f"`--rounds` must be a positive number, got {rounds}.")
    with threadpool_limits(1):
        lines = [_compare(sizes, rows, rounds) for sizes, rows in itertools.product(SIZES, ROWS)]
    if as_json:
        print_json(
            {"format": "apas-bench", "draws": DRAWS, "rounds": rounds, "machine": _machine(), "comparisons": lines}
        )
    else:
        _print(lines, rounds)


def _compare(sizes: tuple[int, ...], rows: int, rounds: int) -> dict[str, Any]:
    """Time both on one network; turn by turn, so that a busy machine slows down both."""
    import numpy as np

    from apas import FeedForward, Sampling, certify

    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]
    biases = [0.1 * rng.normal(size=b) for b in sizes[1:]]
    biases[-1] += 5.0  # so far from the boundary that no draw fails, and every draw is made
    net, X = FeedForward(weights, biases), rng.random((rows, sizes[0]))
    plain, ours = [], []
    for turn in range(rounds):
        began = time.perf_counter()
        failures = plain_failures(net, X, turn)
        between = time.perf_counter()
        found = certify(net, X, DELTA, target=1, method=Sampling(n_samples=DRAWS), rng=turn)
        ours.append(time.perf_counter() - between)
        plain.append(between - began)
        if failures.any() or not found.certified.all():
            raise AssertionError("rows far from the boundary failed, so that fewer draws were made than are counted")
    slow, fast = statistics.median(plain), statistics.median(ours)
    return {
        "network": "-".join(map(str, sizes)),
        "parameters": len(net.parameters.values),
        "rows": rows,
        "loop_seconds": slow,
        "apas_seconds": fast,
        "ratio": slow / fast,
    }


def plain_failures(net: FeedForward, X: Floats, seed: int) -> Integers:
    """How many shifted models put each row below 0: one model at a time, all rows together."""
    import numpy as np

    rng = np.random.default_rng(seed)
    failures = np.zeros(len(X), dtype=np.int64)
    for _ in range(DRAWS):
        a = X
        for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            assert bias is not None
            moved = weight + rng.uniform(-DELTA, DELTA, weight.shape)
            a = a @ moved + (bias + rng.uniform(-DELTA, DELTA, bias.shape))
            if i < len(net.weights) - 1:
                a = np.maximum(a, 0.0)
        failures += a[:, 0] < 0.0
    return failures


def _machine() -> dict[str, Any]:
    import numpy as np

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _print(lines: list[dict[str, Any]], rounds: int) -> None:
    table = new_table("network", right=("parameters", "rows", "loop ms", "apas ms", "times as fast"))
    for line in lines:
        times = [f"{1e3 * line[name]:.2f}" for name in ("loop_seconds", "apas_seconds")]
        table.add_row(line["network"], str(line["parameters"]), str(line["rows"]), *times, f"{line['ratio']:.1f}")
    machine = _machine()
    print_table(
        table,
        f"{DRAWS} shifted models each; medians of {rounds} rounds in one thread; Python {machine['python']}, "
        f"NumPy {machine['numpy']}, {machine['system']}.",
    )
