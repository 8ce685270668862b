"""The pieces of the network that asks whether a formula can be true (Theorem 1), and what each of them does.

Every parameter of the network moves by up to delta, those that are 0 as well. With n variables, ``delta = 1 / (8 (n +
1)**2)`` is so small that a unit of the second layer, whose inputs lie between 0 and 1, is moved by at most ``eta =
delta (n + 1)``; and the input ``1 / (2 delta) - 1`` is so large that the first layer can be moved to any value.

- Generating: one unit per variable, weight 0 and bias 1/2. Its value chi is 1/2, and shifts move it to any
  number between 0 and 1.
- Discretizer: ``p = relu(1 - 2 chi)`` and ``q = relu(2 chi - 1)`` add up to 1 where chi is 0 or 1, and to less between.
- Negation: "not x" is ``1 - chi``, so a negated literal adds chi where the literal itself subtracts it, and lowers the
  bias by 1.
- Clause: ``t = relu(1 - (number of true literals))`` is 1 if no literal is true, else 0.
- Conjunction and end: the output adds all p and q, subtracts all t, and compares with n. It is half of `gap` where each
  chi is 0 or 1 and each clause is true, and at most minus half of `gap` if the assignment nearest to the chi breaks a
  clause, whatever the shift.

The paper's own gadgets reach the tie of their network on a null set only. These leave room on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Unit", "clause_unit", "discretizer_units", "gap", "generating_unit", "input_value", "shift_size"]


@dataclass(frozen=True)
class Unit:
    """A relu unit: weights by the number of what enters it, and its bias."""

    weights: dict[int, int]
    bias: Fraction


def shift_size(variables: int) -> Fraction:
    """How far each parameter moves: delta.

    Examples
    --------
    >>> shift_size(3)
    Fraction(1, 128)
    """
    return Fraction(1, 8 * (variables + 1) ** 2)


def input_value(variables: int) -> int:
    """The one input: with weight and bias moved by delta it adds up to a move of 1/2.

    Examples
    --------
    >>> input_value(3), shift_size(3) * (input_value(3) + 1)
    (63, Fraction(1, 2))
    """
    return 4 * (variables + 1) ** 2 - 1


def gap(variables: int) -> Fraction:
    """How far apart the logits of formulas that can and that cannot be true are at least; always above 0.77.

    Examples
    --------
    >>> float(gap(3))
    0.835205078125
    """
    n, delta = variables, shift_size(variables)
    eta = delta * (n + 1)
    return 1 - (n * delta + n * eta * (1 + delta) + eta + 2 * delta)


def generating_unit() -> Unit:
    """The unit whose value shifts choose freely between 0 and 1."""
    return Unit({0: 0}, Fraction(1, 2))


def discretizer_units(variable: int) -> tuple[Unit, Unit]:
    """The two units p and q whose sum says how far a value is from 1/2."""
    return Unit({variable: -2}, Fraction(1)), Unit({variable: 2}, Fraction(-1))


def clause_unit(literals: Iterable[int]) -> Unit:
    """The unit that is 1 if none of the literals is true, else 0; negated literals by the negation gadget.

    Examples
    --------
    >>> clause_unit([1, -2])
    Unit(weights={0: -1, 1: 1}, bias=Fraction(0, 1))
    """
    weights = {abs(literal) - 1: -1 if literal > 0 else 1 for literal in sorted(literals, key=abs)}
    return Unit(weights, Fraction(1 - sum(weight > 0 for weight in weights.values())))
