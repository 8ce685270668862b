"""Margins of piecewise linear networks without any rounding.

A float64 is a whole number times a power of two: with one common power per layer its arithmetic is that of unbounded
integers, some thirty times faster than `fractions.Fraction`.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from operator import lshift, mul

import numpy as np

from apas._typing import Floats, Integers
from apas.errors import Unsupported
from apas.models.forward import inner_names, shape_of, units_of

#: Activations that map rational numbers to rational numbers.
PIECEWISE_LINEAR = frozenset({"relu", "leaky_relu", "hard_tanh", "identity"})
PACKED = 512  # from so many weights on they are packed
_Scaled = tuple[list[int], int]  # numbers together with the power of two that they are multiples of
_Tensors = Sequence[Floats]


def exact_sign(
    weights: _Tensors, biases: _Tensors, activations: Sequence[str], x: Floats, wanted: int, offset: float = 0.0
) -> int:
    """Sign of the margin in real arithmetic: -1, 0 or 1."""
    margin = exact_margin(weights, biases, activations, x, wanted, offset)
    return (margin > 0) - (margin < 0)


def exact_margin(
    weights: _Tensors, biases: _Tensors, activations: Sequence[str], x: Floats, wanted: int, offset: float = 0.0
) -> Fraction:
    """The margin in real arithmetic."""
    for name in activations:
        if not is_piecewise_linear([name]):
            known = ", ".join(sorted(PIECEWISE_LINEAR))
            raise Unsupported(f"`activations` must be piecewise linear ({known}) for exact arithmetic, got {name!r}.")
    scores, power = _integers(x)
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        scores, power = _layer(scores, power, w, b)
        if i < len(activations):
            scores, power = _activate(activations[i], scores, power)
    if len(scores) > 2:  # more than two classes have no threshold
        margin = scores[wanted] - max(scores[:wanted] + scores[wanted + 1 :])
    else:
        margin = scores[0] if len(scores) == 1 else scores[1] - scores[0]
        if offset:
            (against,), against_power = _integers(np.array([offset]))
            common = min(power, against_power)
            margin, power = (margin << (power - common)) - (against << (against_power - common)), common
        margin = margin if wanted == 1 else -margin
    return Fraction(margin << max(power, 0), 1 << max(-power, 0))


def _layer(numbers: list[int], power: int, w: Floats, b: Floats) -> _Scaled:
    # switched-off units need no weights: as a rule half of the work
    live = [i for i, number in enumerate(numbers) if number]
    # the bias is the weight of an input that is always 1, which must be a multiple of the power too
    numbers, power = [numbers[i] << max(power, 0) for i in live], min(power, 0)
    numbers.append(1 << -power)
    weights = np.vstack([w[live], b])
    whole, up, scale = _mantissas(weights)
    if weights.size < PACKED or up.max() > 63:  # too few, or too far apart for two words each: number by number
        columns, ends = _shifted(whole.T, up.T), range(0, weights.size, len(numbers))
        return [sum(map(mul, numbers, columns[i : i + len(numbers)])) for i in ends], power + scale
    # Kronecker substitution: the weights of an input stand side by side in one long integer, so that one product takes
    # the place of one per unit. Slots are wide enough for any sum, and what is added keeps them from borrowing: half of
    # two words to each weight, half a slot to each sum.
    slot = -(-(sum(map(abs, numbers)).bit_length() + 129) // 64)
    packed = np.zeros((*weights.shape, slot), dtype="<u8")
    packed[..., 0] = whole.view(np.uint64) << up.astype(np.uint64)
    packed[..., 1] = ((whole >> (63 - up)) >> 1).view(np.uint64) ^ np.uint64(1 << 63)  # in two steps: none is by 64
    long = [int.from_bytes(row.tobytes(), "little") for row in packed]
    step, more = 8 * slot, (1 << (64 * slot - 1)) + (sum(numbers) << 127)
    halves = int.from_bytes((b"\0" * (step - 1) + b"\x80") * len(b), "little")
    sums = (sum(map(mul, numbers, long)) + halves).to_bytes(step * len(b), "little")
    return [int.from_bytes(sums[i : i + step], "little") - more for i in range(0, len(sums), step)], power + scale


def is_piecewise_linear(activations: Iterable[str]) -> bool:
    """Whether all units, of layers whose units have several activations too, map rational numbers to such."""
    names = (inner for name in activations for inner in inner_names(name))
    return all(name in PIECEWISE_LINEAR or shape_of(name)[0] in ("leaky_relu", "clip") for name in names)


def _activate(name: str, numbers: list[int], power: int) -> _Scaled:
    if "*" in name:
        parts = [_activate(inner, numbers[part], power) for inner, part in units_of(name)]
        least = min(scale for _, scale in parts)
        return [number << (scale - least) for part, scale in parts for number in part], least
    kind, settings = shape_of(name)
    if name == "relu":
        return [number if number > 0 else 0 for number in numbers], power
    if kind == "leaky_relu":
        slope, below = settings[0].as_integer_ratio()  # the slope that float64 holds, which may not be 1/100
        bits = below.bit_length() - 1
        return [number << bits if number > 0 else number * slope for number in numbers], power - bits
    if kind == "clip":
        ends, scale = _integers(np.array(settings))
        common = min(power, scale)
        first, last = (end << (scale - common) for end in ends)
        numbers = [number << (power - common) for number in numbers]
        return [max(first, min(last, number)) for number in numbers], common
    return numbers, power


def _integers(array: Floats) -> _Scaled:
    """Whole numbers n, in C order, and one power p such that the array is n * 2**p exactly."""
    whole, up, power = _mantissas(array)
    return _shifted(whole, up), power


def _shifted(whole: Integers, up: Integers) -> list[int]:
    return list(map(lshift, whole.ravel().tolist(), up.ravel().tolist()))


def _mantissas(array: Floats) -> tuple[Integers, Integers, int]:
    """Whole numbers n of at most 53 bits, how far each is shifted up, and one power p: n * 2**(up + p) is the array."""
    fractions, exponents = np.frexp(array)
    whole, used = (fractions * 2.0**53).astype(np.int64), fractions != 0
    least = int(exponents.min(where=used, initial=2000))  # the exponent of 0 is 0, whatever the others are
    return whole, np.where(used, exponents - np.int64(least), 0), least - 53
