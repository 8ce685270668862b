"""Theorems 1 and 2, executable: robustness is as hard a question as whether a formula can be true.

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

`reduction` turns a formula into a network with two hidden layers, an input and a delta, so that class 0 survives every
shift exactly if no assignment makes the formula true. With one hidden layer the same question takes linear time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.certification.certificate import Witness
from apas.errors import InputError
from apas.models.base import class_indices
from apas.models.feedforward import FeedForward
from apas.shifts.box_rounding import inside_box, within_box
from apas.shifts.linf import LinfShifts
from apas.theory.formula import Formula, check_assignment
from apas.worst_case.enumeration.box_bounds import margin_ranges
from apas.worst_case.enumeration.splitting import float_below
from apas.worst_case.exact_arithmetic import exact_margin


@dataclass(frozen=True)
class GadgetUnit:
    """A relu unit: weights by the number of what enters it, and its bias."""

    weights: dict[int, int]
    bias: Fraction


def shift_size(variables: int) -> Fraction:
    """How far each parameter moves: delta."""
    return Fraction(1, 8 * (variables + 1) ** 2)


def input_value(variables: int) -> int:
    """The one input: with weight and bias moved by delta it adds up to a move of 1/2."""
    return 4 * (variables + 1) ** 2 - 1


def gap(variables: int) -> Fraction:
    """How far apart the logits of formulas that can and that cannot be true are at least; always above 0.77."""
    n, delta = variables, shift_size(variables)
    eta = delta * (n + 1)
    return 1 - (n * delta + n * eta * (1 + delta) + eta + 2 * delta)


def generating_unit() -> GadgetUnit:
    """The unit whose value shifts choose freely between 0 and 1."""
    return GadgetUnit({0: 0}, Fraction(1, 2))


def discretizer_units(variable: int) -> tuple[GadgetUnit, GadgetUnit]:
    """The two units p and q whose sum says how far a value is from 1/2."""
    return GadgetUnit({variable: -2}, Fraction(1)), GadgetUnit({variable: 2}, Fraction(-1))


def clause_unit(literals: Iterable[int]) -> GadgetUnit:
    """The unit that is 1 if none of the literals is true, else 0; negated literals by the negation gadget."""
    weights = {abs(literal) - 1: -1 if literal > 0 else 1 for literal in sorted(literals, key=abs)}
    return GadgetUnit(weights, Fraction(1 - sum(weight > 0 for weight in weights.values())))


#: How often the size of the box is halved before giving up.
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A box of shifted models, all in the set, on each of which the row is not valid.

    Attributes
    ----------
    low, high : ndarray of shape (k,)
        Ends of each parameter.
    margin : float
        On every model of the box the margin is at most this, which is below 0.
    log10_share : float
        Decimal logarithm of the share of the set that the box takes up, rounded down; a lower bound on the share of
        shifts that fail.
    """

    low: Floats
    high: Floats
    margin: float
    log10_share: float


def failing_neighbourhood(
    model: FeedForward, x: Floats, delta: float, witness: Floats | Witness, *, target: Any
) -> Neighbourhood:
    """Grow a box of failing shifts around one, in the box of all shifts by up to `delta` (``LinfShifts()``).

    So the robust fraction is below 1 as soon as one shift fails with a margin below 0, not only at 0.

    Parameters
    ----------
    model : FeedForward
    x : ndarray of shape (1, features)
    delta : float
    witness : ndarray of shape (k,) or Witness
        Parameters of a shifted model on which the margin of the row is below 0.
    target : label
        The class that is to be kept.

    Returns
    -------
    Neighbourhood

    Examples
    --------
    >>> net = FeedForward([[[1.0]]], [[0.0]], output="identity")
    >>> around = failing_neighbourhood(net, np.array([[1.0]]), 0.5, np.array([0.5, -0.5]), target=1)
    >>> around.margin < 0, round(10**around.log10_share, 3)
    (True, 0.016)
    """
    base, reach = model.parameters.values, LinfShifts().radii(model.parameters)
    values = read_witness(witness, model, reach, delta)
    wanted = class_indices(model.classes, target, 1)
    moving = reach > 0
    ends = [inside_box(base, reach, delta, np.full(len(base), sign)) for sign in (-1.0, 1.0)]
    size = delta
    for _ in range(HALVINGS):
        low, high = np.maximum(values - size, ends[0]), np.minimum(values + size, ends[1])
        # an end of the set may lie a rounding error before the witness
        low, high = np.minimum(low, values), np.maximum(high, values)
        _, most, error = margin_ranges(model, x, wanted, low[None, :], high[None, :])
        worst, widths = float(most[0] + error[0]), (high - low)[moving] / (2 * delta)
        if worst < 0 and widths.all():  # a box without a width would have no volume
            return Neighbourhood(low, high, worst, math.nextafter(float(np.log10(widths).sum()) - 1e-9, -math.inf))
        size *= 0.5
    raise InputError("`witness` must be a shifted model on which the margin is below 0 by more than rounding.")


def read_witness(witness: Any, model: FeedForward, radii: Floats | float, delta: float) -> Floats:
    """Parameters of a shifted model, given as such or as the witness of a certificate, in the box of the shifts."""
    given, base = getattr(witness, "parameters", None), model.parameters.values
    values = given(model) if callable(given) else witness
    if np.shape(values) != base.shape or not within_box(base, radii, delta, np.asarray(values)).all():
        raise InputError(
            f"`witness` must be {len(base)} parameters within delta = {delta:g} of those of the network; pass the "
            "witness of a certificate."
        )
    return np.asarray(values, dtype=np.float64)


#: Numbers of a network that is built, at most (80 MB).
MOST = 10_000_000


@dataclass(frozen=True, eq=False)
class Reduction:
    """A formula as a question about a network: whether class 0 survives every shift of every parameter by up to delta.

    It does exactly if no assignment makes the formula true. The set is that of ``LinfShifts()``.

    Attributes
    ----------
    formula : Formula
    model : FeedForward
        Fully connected, relu, sizes 1, n, 2n + m, 1 for n variables and m clauses.
    X : ndarray of shape (1, 1)
        The row.
    delta : float
        ``1 / (8 (n + 1)**2)``, rounded down.
    gap : Fraction
        A shifted model that stands for a solution has the logit gap / 2, up to the rounding of its parameters. If
        there is no solution, every shifted model has a logit of at most -gap / 2.

    Examples
    --------
    >>> import apas
    >>> hard = reduction(Formula(2, [[1, 2], [-1, -2]]))
    >>> certificate = apas.certify(hard.model, hard.X, hard.delta, target=hard.target, method="exact")[0]
    >>> certificate.verdict.name, hard.formula.holds(hard.assignment(certificate.witness))
    ('REFUTED', True)
    """

    formula: Formula
    model: FeedForward
    X: Floats
    delta: float
    gap: Fraction
    target: int = field(default=0, init=False)

    def parameters(self, assignment: Sequence[bool]) -> Floats:
        """Parameters of the shifted model that stands for an assignment, shape (k,); they lie in the set.

        The logit of that model is about gap / 2 if the assignment makes the formula true, else negative.
        """
        truth = check_assignment(assignment, self.formula.variables)
        move = np.zeros(len(self.model.parameters))
        signs = np.where(truth, 1.0, -1.0)
        for tensor in self.model.parameters.split(move)[:2]:
            tensor[...] = signs
        return inside_box(self.model.parameters.values, 1.0, self.delta, move)

    def assignment(self, witness: Floats | Witness) -> tuple[bool, ...]:
        """Read the assignment off a shifted model that gives class 1; it makes the formula true.

        Parameters
        ----------
        witness : ndarray of shape (k,) or Witness
            Parameters of a shifted model, or the witness of a certificate.
        """
        values = read_witness(witness, self.model, 1.0, self.delta)
        if self.logit(values) < 0:
            raise InputError("`witness` must be a shifted model that gives class 1, but its logit is negative.")
        w, b = (t.ravel()[: self.formula.variables] for t in self.model.parameters.split(values)[:2])
        x, pairs = Fraction(float(self.X[0, 0])), zip(w.tolist(), b.tolist(), strict=True)
        return tuple(Fraction(wi) * x + Fraction(bi) > Fraction(1, 2) for wi, bi in pairs)

    def logit(self, values: Floats) -> Fraction:
        """The output of the shifted model with these parameters, without rounding."""
        shifted = self.model.with_parameters(np.asarray(values, dtype=np.float64))
        return exact_margin(shifted.weights, shifted.biases, shifted.activations, self.X[0], 1)


def reduction(formula: Formula) -> Reduction:
    """Build the network that is robust exactly if a formula cannot be true.

    Parameters
    ----------
    formula : Formula
        Clauses of any length; those that are always true are left out.

    Notes
    -----
    delta and the output's bias are rounded down, so that the claim about formulas without a solution holds for the
    float64 numbers of the network as they are. `apas.theory.hardness` says what each unit is for.

    References
    ----------
    Marzari, Leofante, Cicalese and Farinelli (2024), "Rigorous Probabilistic Guarantees for Robust Counterfactual
    Explanations", ECAI, Theorem 1; the construction is another one, whose two cases are a gap apart.

    Examples
    --------
    >>> reduction(Formula(3, [[1, -2, 3]])).model
    <FeedForward 1-3-7-1, relu, sigmoid output, classes [0, 1]>
    """
    if not isinstance(formula, Formula):
        raise InputError(
            f"`formula` must be a Formula, got {type(formula).__name__}; read one with Formula.from_dimacs(text)."
        )
    n, clauses = formula.variables, formula.needed
    if (numbers := (n + 2) * (2 * n + len(clauses)) + 2 * n + 1) > MOST:
        raise InputError(
            f"`formula` must give a network of at most {MOST} parameters, got {numbers} for {n} variables and "
            f"{len(clauses)} clauses; take a smaller one."
        )
    first = _layer([generating_unit() for _ in range(n)], 1)
    lower, upper = zip(*(discretizer_units(i) for i in range(n)), strict=True)
    second = _layer([*lower, *upper, *(clause_unit(clause) for clause in clauses)], n)
    signs = np.array([1.0] * (2 * n) + [-1.0] * len(clauses))
    room = gap(n)
    model = FeedForward(
        [first[0], second[0], signs[:, None]], [first[1], second[1], [float_below(-n + room / 2)]], activation="relu"
    )
    return Reduction(formula, model, np.array([[float(input_value(n))]]), float_below(shift_size(n)), room)


def _layer(units: Sequence[GadgetUnit], inputs: int) -> tuple[Floats, Floats]:
    """Weights (inputs, units) and biases of a layer."""
    weights = np.zeros((inputs, len(units)))
    for j, unit in enumerate(units):
        for i, weight in unit.weights.items():
            weights[i, j] = weight
    return weights, np.array([float(unit.bias) for unit in units])
