"""Margins of piecewise linear networks without any rounding.

Every float64 is a whole number times a power of two, and so is every sum and product of such numbers. A layer is
brought to one common power of two, after which its arithmetic is that of Python's unbounded integers: some thirty
times faster than `fractions.Fraction`, which looks for a common divisor after each operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from operator import lshift, mul

import numpy as np

from apas._typing import Floats
from apas.errors import Unsupported
from apas.models.forward import LEAKY_SLOPE

#: Activations that map rational numbers to rational numbers.
PIECEWISE_LINEAR = frozenset({"relu", "leaky_relu", "hard_tanh", "identity"})
#: Numbers together with the power of two that they are multiples of.
_Scaled = tuple[list[int], int]
_Tensors = Sequence[Floats]


def exact_sign(
    weights: _Tensors, biases: _Tensors, activations: Sequence[str], x: Floats, wanted: int, offset: float = 0.0
) -> int:
    """Sign of the margin in real arithmetic: -1, 0 or 1."""
    number, _ = _margin(weights, biases, activations, x, wanted, offset)
    return (number > 0) - (number < 0)


def exact_margin(
    weights: _Tensors, biases: _Tensors, activations: Sequence[str], x: Floats, wanted: int, offset: float = 0.0
) -> Fraction:
    """The margin in real arithmetic; the parameters are those of `exact_sign`."""
    number, power = _margin(weights, biases, activations, x, wanted, offset)
    return Fraction(number << max(power, 0), 1 << max(-power, 0))


def _margin(
    weights: _Tensors, biases: _Tensors, activations: Sequence[str], x: Floats, wanted: int, offset: float
) -> tuple[int, int]:
    """The margin as a whole number and the power of two it counts."""
    for name in activations:
        if name not in PIECEWISE_LINEAR:
            known = ", ".join(sorted(PIECEWISE_LINEAR))
            raise Unsupported(f"`activations` must be piecewise linear ({known}) for exact arithmetic, got {name!r}.")
    scores, power = _integers(x)
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        scores, power = _layer(scores, power, w, b)
        if i < len(activations):
            scores, power = _activate(activations[i], scores, power)
    if len(scores) > 2:  # more than two classes have no threshold
        return scores[wanted] - max(scores[:wanted] + scores[wanted + 1 :]), power
    score = scores[0] if len(scores) == 1 else scores[1] - scores[0]
    (against,), against_power = _integers(np.array([offset]))
    common = min(power, against_power)
    margin = (score << (power - common)) - (against << (against_power - common))
    return (margin if wanted == 1 else -margin), common


def _layer(numbers: list[int], power: int, w: Floats, b: Floats) -> _Scaled:
    # switched-off units need no weights: as a rule half of the work
    live = [i for i, number in enumerate(numbers) if number]
    # the bias is the weight of an input that is always 1
    numbers, power = _below_one([numbers[i] for i in live], power)
    numbers.append(1 << -power)
    columns, scale = _integers(np.vstack([w[live], b]).T)
    count = len(numbers)
    return [sum(map(mul, numbers, columns[i : i + count])) for i in range(0, len(columns), count)], power + scale


def _below_one(numbers: list[int], power: int) -> _Scaled:
    """The same numbers as multiples of a power of two that 1 is a multiple of as well."""
    return ([number << power for number in numbers], 0) if power > 0 else (numbers, power)


def _activate(name: str, numbers: list[int], power: int) -> _Scaled:
    if name == "relu":
        return [number if number > 0 else 0 for number in numbers], power
    if name == "leaky_relu":
        slope, below = LEAKY_SLOPE.as_integer_ratio()  # the slope that float64 holds, which is not 1/100
        bits = below.bit_length() - 1
        return [number << bits if number > 0 else number * slope for number in numbers], power - bits
    if name == "hard_tanh":
        numbers, power = _below_one(numbers, power)
        one = 1 << -power
        return [max(-one, min(one, number)) for number in numbers], power
    return numbers, power


def _integers(array: Floats) -> _Scaled:
    """Whole numbers n, in C order, and one power p such that the array is n * 2**p exactly."""
    fractions, exponents = np.frexp(array.ravel())
    whole = np.ldexp(fractions, 53).astype(np.int64)
    used = exponents[whole != 0]
    if not len(used):
        return [0] * len(whole), 0
    least = int(used.min())
    up = np.maximum(exponents - least, 0)  # the exponent of 0 is 0, whatever the others are
    if up.max() <= 9:  # 53 + 9 bits fit into 63
        return (whole << up).tolist(), least - 53
    return list(map(lshift, whole.tolist(), up.tolist())), least - 53
