"""What float32 arithmetic can do to the margins of a dense network: a bound, not a measurement.

Let u = 2**-24. A float32 operation is off by at most u of its result, so a sum of n products and a bias, added up in
any order, with or without fused operations, is off by at most ``gamma(n + 1)`` of the sum of their magnitudes, where
``gamma(m) = m u / (1 - m u)``. Let c be what the numbers that enter a layer are off by, as a share of the magnitudes
behind them (those of `FeedForward.margin_scale`). Behind the layer it is ``(1 + c) (1 + gamma(n + 4)) - 1``: one unit
is for rounding each weight to float32, two are to spare. An activation that is nowhere steeper than 1 keeps c and adds
its own error. The inputs begin with u, since they are rounded to float32 too.

The result holds for every network of a box of parameters if the magnitudes do. It says nothing about arithmetic that is
coarser than float32, such as TF32 or bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apas.errors import InputError

DTYPES = ("float64", "float32")
#: A scale of 1 stands for margins that rounding may move by this much: see `apas.certification.question`.
UNIT = 1e-12
#: Half the distance from 1 to the next float32 number.
ROUNDOFF = 2.0**-24
#: How many times that an activation function of a library may be off, as a share of its argument's magnitude or of 1.
FUNCTION = 16
#: Steeper than 1 is one activation alone.
STEEPEST = {"gelu": 1.13}
#: Added to every magnitude, so that the bound covers what underflow does; and from where on numbers may overflow.
SMALL, LARGEST = 2.0**-100, 1e38


def check_dtype(dtype: Any) -> str:
    """The name of the arithmetic that a network is computed in where it is used."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(f'`dtype` of FeedForward must be "float64" or "float32", got {dtype!r}.')
    return dtype


def relative_error(inputs: Sequence[int], activations: Sequence[str]) -> float:
    """How far float32 scores can be from real ones, as a share of the magnitudes behind them."""
    error = ROUNDOFF
    for i, count in enumerate(inputs):
        share = (count + 4) * ROUNDOFF
        if share > 0.01:  # beyond 160,000 inputs nothing is promised
            return float("inf")
        error += (1 + error) * share / (1 - share)
        if i < len(activations):
            error *= STEEPEST.get(activations[i], 1.0)
            error += FUNCTION * ROUNDOFF * (1 + error)
    # the difference of two scores, and its comparison with a threshold that is rounded too
    return error + 8 * ROUNDOFF


def head_error(output: str, threshold: float, classes: int) -> float:
    """How far from 0 a margin can be whose probability float32 puts on the other side of the threshold.

    A relative error e of a probability p moves its logit by at most ``2 e / (1 - p)`` while ``e p / (1 - p)`` is at
    most one half. Behind a softmax stand two exponentials, a sum and a quotient.
    """
    if output == "identity":
        return 0.0
    error = (2 * FUNCTION + classes + 8) * ROUNDOFF
    small = error * threshold <= 0.5 * (1 - threshold)
    return 2 * error / (1 - threshold) if small else float("inf")
