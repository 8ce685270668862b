"""The largest certified shift: rays against Algorithm 1 as a loop, closed form against a mixed-integer program."""

from __future__ import annotations

import json
import os
import statistics
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import apas
from apas import FeedForward, Sampling
from benchmarks.milp import bisect
from benchmarks.plain import largest_shift, random_network
from benchmarks.timing import interleaved, ratio

__all__ = ["compare"]

_Array = NDArray[np.float64]


def oracle() -> tuple[FeedForward, _Array] | None:
    """The authors' diabetes network and counterfactuals, if they are on this machine."""
    folder = Path(os.environ.get("APAS_DATA", Path(__file__).parents[2] / "shared")) / "oracle"
    if not (folder / "diabetes.json").is_file():
        return None
    content = json.loads((folder / "diabetes.json").read_text())
    net = FeedForward(content["base"]["weights"], content["base"]["biases"])
    return net, np.array([row["x"] for row in content["counterfactuals"]])


def deep() -> tuple[FeedForward, _Array]:
    """A random 30-20-10-1 network and rows that it puts into class 1."""
    weights, biases = random_network((30, 20, 10, 1), seed=0)
    biases[-1] = biases[-1] + 1.0
    net = FeedForward(weights, biases)
    X = np.random.default_rng(0).random((200, 30))
    return net, X[net.margin(X, 1) > 0.3][:50]


def run_plain(net: FeedForward, X: _Array, seed: int) -> list[float]:
    """Algorithm 1 as a plain loop on a few rows, since it takes half a second each."""
    return [largest_shift(list(net.weights), list(net.biases), x, 1379) for x in X]


def run_rays(net: FeedForward, X: _Array, samples: int, seed: int) -> apas.MaxShifts:
    """What is timed: the whole public call."""
    return apas.max_shift(net, X, target=1, method=Sampling(n_samples=samples), rng=seed)


def run_exact(net: FeedForward, X: _Array, seed: int) -> apas.MaxShifts:
    """The worst case, in closed form."""
    return apas.max_shift(net, X, target=1, method="exact")


def run_milp(net: FeedForward, X: _Array, seed: int) -> list[float]:
    """The worst case by bisection over a mixed-integer program."""
    return [bisect(list(net.weights), list(net.biases), x) for x in X]


def compare(rounds: int = 5) -> None:
    """Print the ratios."""
    print(f"Largest certified shift, one thread, new seed each call; median (min-max) over {rounds} rounds\n")
    found = oracle()
    cases = [("30-20-10-1, 50 rows", *deep(), (50, 5))]
    if found is None:
        print("(the authors' diabetes network is not here: set APAS_DATA)")
    else:
        cases.insert(0, ("diabetes 8-8-1, 50 CFXs", *found, (500, 50)))
    for name, net, X, asked in cases:
        few = X[:3]
        for samples, least in zip((1379, 20_000), asked, strict=True):
            plain, rays = interleaved(partial(run_plain, net, few), partial(run_rays, net, X, samples), rounds=rounds)
            ms = 1e3 * statistics.median(rays) / len(X)
            times = ratio(plain, rays, times=len(X) / len(few))
            each = 1e3 * statistics.median(plain) / len(few)
            times_text = f"Algorithm 1 {each:7.1f} ms/row  rays {ms:7.2f} ms/row"
            print(f"{name:26} n={samples:6}  {times_text}  x {times}  asked {least}")
    if found is not None:
        net, X = found
        milp, exact = interleaved(partial(run_milp, net, X[:3]), partial(run_exact, net, X), rounds=rounds)
        ms, each = 1e3 * statistics.median(exact) / len(X), 1e3 * statistics.median(milp) / 3
        times = ratio(milp, exact, times=len(X) / 3)
        times_text = f"MILP bisection {each:.1f} ms/row  closed form {ms:.3f} ms/row"
        print(f"{'worst case, 50 CFXs':26}           {times_text}  x {times}  asked 500")
