"""Speed of generation: `apas.generate` against the loop of the paper, written down plainly.

The plain loop solves a mixed-integer program with the usual big-M encoding, tests the point on one shifted model after
the other until one fails, and widens the margin by 0.2 if one does. Both look for counterfactuals of the same diabetes
rows under the same shifts. The loop certifies nothing, since it pays nothing for its search; `generate` does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import apas
from benchmarks.plain import passes
from benchmarks.timing import interleaved, ratio

__all__ = ["compare", "plain_counterfactual"]

_Array = NDArray[np.float64]
BIG, DRAWS, STEP = 1000.0, 10_000, 0.2


def plain_counterfactual(net: apas.FeedForward, x: _Array, delta: float) -> _Array:
    """The first point of the loop that all shifted models accept."""
    weights, biases = list(net.weights), list(net.biases)
    margin = 0.01
    while True:
        point = nearest(weights, biases, x, margin)
        if passes(weights, biases, point, delta, DRAWS):
            return point
        margin += STEP


def nearest(weights: list[_Array], biases: list[_Array], x: _Array, margin: float) -> _Array:
    """The nearest point of the unit cube in l1 whose logit reaches the margin, for one hidden layer of ReLUs."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    (first, last), (shift, end) = weights, biases
    inputs, hidden = first.shape
    # variables: point, change, activation, negative part, which of the two
    eye, none = np.eye(inputs), np.zeros((inputs, 3 * hidden))
    units = np.hstack(
        [first.T, np.zeros((hidden, inputs)), -np.eye(hidden), np.eye(hidden), np.zeros((hidden, hidden))]
    )
    on = np.hstack([np.zeros((hidden, 2 * inputs)), np.eye(hidden), np.zeros((hidden, hidden)), -BIG * np.eye(hidden)])
    off = np.hstack([np.zeros((hidden, 2 * inputs + hidden)), np.eye(hidden), BIG * np.eye(hidden)])
    logit = np.concatenate([np.zeros(2 * inputs), last[:, 0], np.zeros(2 * hidden)])
    rows = np.vstack([np.hstack([-eye, eye, none]), np.hstack([eye, eye, none]), units, on, off, logit])
    low = np.concatenate([-x, x, -shift, np.full(2 * hidden, -np.inf), [margin - end[0]]])
    high = np.concatenate([np.full(2 * inputs, np.inf), -shift, np.zeros(hidden), np.full(hidden, BIG), [np.inf]])
    found = milp(
        np.concatenate([np.zeros(inputs), np.ones(inputs), np.zeros(3 * hidden)]),
        integrality=np.concatenate([np.zeros(2 * inputs + 2 * hidden), np.ones(hidden)]),
        bounds=Bounds(0.0, np.concatenate([np.ones(2 * inputs), np.full(2 * hidden, BIG), np.ones(hidden)])),
        constraints=LinearConstraint(rows, low, high),
    )
    return np.asarray(found.x[:inputs])


def compare(rounds: int = 3, rows: int = 50) -> None:
    """Print seconds per counterfactual, and how many times faster than the loop."""
    from apas.paper.networks import prepare

    prepared = prepare("diabetes")
    net, inputs = prepared.network, prepared.inputs[:rows]
    space = apas.FeatureSpace([apas.Feature(n, low=0.0, high=1.0) for n in net.feature_names or ()])

    def ours(source: str) -> Callable[[int], apas.Counterfactuals]:
        return lambda seed: apas.generate(net, inputs, prepared.delta, space=space, source=source, rng=seed)

    def plain(_: int) -> _Array:
        return np.stack([plain_counterfactual(net, x, prepared.delta) for x in inputs])

    sources = {"milp": 8, "robust": 5}
    with threadpool_limits(1):
        slow, *fast = interleaved(plain, *(ours(source) for source in sources), rounds=rounds)
        loop = plain(0)
    each = 1000 / len(inputs)
    print(f"Generation: {len(inputs)} diabetes inputs, delta {prepared.delta:.6f}, one thread")
    print()
    print(f"{'source':<8} {'ms':>7}   {'x loop':<20} {'asked':>5}   mean l1")
    print(f"{'loop':<8} {np.median(slow) * each:7.1f}   {'':<20} {'':>5}   {np.abs(loop - inputs).mean():.5f}")
    for (source, asked), seconds in zip(sources.items(), fast, strict=True):
        l1 = np.abs(ours(source)(0).numbers - inputs).mean()
        print(f"{source:<8} {np.median(seconds) * each:7.1f}   {ratio(slow, seconds):<20} {asked:>5}   {l1:.5f}")


if __name__ == "__main__":
    compare()
