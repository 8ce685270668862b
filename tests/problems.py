"""Networks to ask about: random ones, and standard problems with known answers that every method runs.

The share of valid shifts and the largest worst-case delta are derived by hand in the comment above each case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from apas import FeedForward, LinfShifts


def network(sizes, output, activation, seed):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) for a, b in zip(sizes, sizes[1:], strict=False)]
    threshold = 0.5 if sizes[-1] > 2 else 0.4
    biases = [rng.normal(size=b) for b in sizes[1:]]
    return FeedForward(weights, biases, activation=activation, output=output, threshold=threshold)


@dataclass(frozen=True)
class Case:
    """A question and its answer."""

    name: str
    model: FeedForward
    x: tuple[float, ...]
    target: Any
    delta: float
    share: float
    """Share of the shifts that keep the class."""
    worst_case: float
    """Largest delta at which every shift keeps the class."""
    shifts: LinfShifts = LinfShifts()

    @property
    def X(self) -> np.ndarray:
        return np.array([self.x])

    @property
    def every(self) -> bool:
        """Whether every shift by `delta` keeps the class."""
        return self.delta <= self.worst_case


def linear(weights: list[float], bias: float, **options: Any) -> FeedForward:
    return FeedForward([np.array(weights)[:, None]], [[bias]], **options)


def only_bias(margin: float, delta: float, name: str) -> Case:
    # the margin is margin + delta u with u uniform on [-1, 1]: valid where u >= -margin / delta
    share = min(1.0, 0.5 + 0.5 * margin / delta)
    shifts = LinfShifts(kinds=("bias",))
    return Case(name, linear([2.0], margin - 1.0), (0.5,), 1, delta, share, margin, shifts)


def product(delta: float, bound: float) -> Case:
    # one hidden unit that stays active: (1 + delta u)(1 + delta v) - bound, the output bias does not move.
    # P((1 + delta u)(1 + delta v) < c) with both factors uniform on [a, b]: for a**2 < c < a b the region under the
    # hyperbola is c (log(c / a) - log(a)) - a (c / a - a), divided by (b - a)**2
    a, b = 1 - delta, 1 + delta
    assert a * a < bound < a * b
    lost = bound * (math.log(bound / a) - math.log(a)) - a * (bound / a - a)
    net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [-bound]])
    worst = 1 - math.sqrt(bound)
    return Case("product", net, (1.0,), 1, delta, 1 - lost / (b - a) ** 2, worst, LinfShifts(kinds=("weight",)))


WEIGHTS = LinfShifts(kinds=("weight",))

CASES = [
    only_bias(0.3, 0.4, "bias-some"),  # share 0.875
    only_bias(0.3, 0.3012, "bias-almost"),  # share 0.998
    only_bias(0.3, 0.2, "bias-all"),  # share 1
    # class 0: the margin is -(w x + b) = 0.3
    Case("class-0", linear([1.0], -1.3), (1.0,), 0, 0.4, 0.875, 0.3, LinfShifts(kinds=("bias",))),
    # 1 + 0.8 (u1 + u2) >= 0 fails where u1 + u2 < -1.25: a triangle of legs 0.75 in a square of area 4
    Case("two-weights", linear([0.5, 0.5], 0.0), (1.0, 1.0), 1, 0.8, 1 - 0.75**2 / 2 / 4, 0.5, WEIGHTS),
    # negative input: 1 + 0.4 (2 u1 - u2) fails where u2 > 2 u1 + 2.5: a triangle of legs 0.25 and 0.5
    Case("negative-input", linear([1.0, 1.0], 0.0), (2.0, -1.0), 1, 0.4, 1 - 0.0625 / 4, 1 / 3, WEIGHTS),
    # relative: 2 (1 + 0.9 u) stays positive, the bias is 0 and never moves
    Case("relative", linear([2.0], 0.0), (1.0,), 1, 0.9, 1.0, 1.0, LinfShifts(relative=True)),
    # relative: 2 (1 + 1.25 u) fails where u < -0.8
    Case("relative-wide", linear([2.0], 0.0), (1.0,), 1, 1.25, 0.9, 1.0, LinfShifts(relative=True)),
    # an unscaled input: 5000 w - 3000 with w = 1 + 0.5 u fails where u < -0.8
    Case("unscaled", linear([1.0], -3000.0), (5000.0,), 1, 0.5, 0.9, 0.4, WEIGHTS),
    product(0.2, 0.7),
    # a threshold of 0.8 moves the boundary to logit(0.8) = log 4: 1.6 - log 4 + 0.4 u
    Case(
        "threshold", linear([1.0], 0.6, threshold=0.8), (1.0,), 1, 0.4,
        0.5 + 0.5 * (1.6 - math.log(4)) / 0.4, 1.6 - math.log(4), LinfShifts(kinds=("bias",)),
    ),
    # three classes, biases move: class "b" leads class "a" by 1 and class "c" by 9; it loses where u_a - u_b > 1.25
    # (delta 0.8): a triangle of legs 0.75 in a square of area 4
    Case(
        "three-classes",
        FeedForward([[[0.0, 0.0, 0.0]]], [[2.0, 3.0, -6.0]], output="softmax", classes=["a", "b", "c"]),
        (1.0,), "b", 0.8, 1 - 0.75**2 / 2 / 4, 0.5, LinfShifts(kinds=("bias",)),
    ),
]  # fmt: skip


def case(name: str) -> Case:
    """The case called `name`."""
    return next(c for c in CASES if c.name == name)


#: A network with one moving weight: its class is lost while that weight has grown by more than LOST and less than BACK.
LOST, BACK = 0.11, 0.29


def recovering():
    """Margin 0.01 - (distance of t from the nearer end of 0.1 to 0.3, if between), where t is how far the weight grew."""
    return FeedForward([[[0.0]], [[1.0, 1.0, 1.0]], [[-1.0], [2.0], [-1.0]]], [[0.0], [-0.1, -0.2, -0.3], [0.01]])


RECOVERING_SHIFTS = LinfShifts(layers=[0], kinds=("weight",))


def recovering_share(rungs):
    """The share of u, uniform on [-1, 1], with ``r u`` outside of LOST to BACK at each rung r."""
    broken, end = 0.0, 0.0
    for low, high in sorted((LOST / r, min(1.0, BACK / r)) for r in rungs if r > LOST):
        broken += max(0.0, high - max(low, end))
        end = max(end, high)
    return 1 - broken / 2
