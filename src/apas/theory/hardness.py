"""Theorem 1, executable: whether a row survives every shift is as hard a question as whether a formula can be true.

`reduction` turns a formula into a network with two hidden layers, an input and a delta, so that class 0 survives every
shift exactly if no assignment makes the formula true. With one hidden layer the same question takes linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from apas.bounds.rational import exact_margin
from apas.certify.witness import Witness
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.shifts.box import inside_box, within_box
from apas.theory.formula import Formula, check_assignment, read_dimacs
from apas.theory.gadgets import (
    Unit,
    clause_unit,
    discretizer_units,
    gap,
    generating_unit,
    input_value,
    shift_size,
)
from apas.theory.neighbourhood import Neighbourhood, failing_neighbourhood
from apas.theory.realizations import Answer, DistinctRealizations, distinct_realizations

__all__ = [
    "Answer",
    "DistinctRealizations",
    "Formula",
    "Neighbourhood",
    "Reduction",
    "distinct_realizations",
    "failing_neighbourhood",
    "read_dimacs",
    "reduction",
]

_Array = NDArray[np.float64]
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
    X: _Array
    delta: float
    gap: Fraction
    target: int = field(default=0, init=False)

    def parameters(self, assignment: Sequence[bool]) -> _Array:
        """Parameters of the shifted model that stands for an assignment, shape (k,); they lie in the set.

        The logit of that model is about gap / 2 if the assignment makes the formula true, else negative.
        """
        truth = check_assignment(assignment, self.formula.variables)
        move = np.zeros(len(self.model.parameters))
        signs = np.where(truth, 1.0, -1.0)
        for part in self.model.parameters.slices[:2]:
            move[part] = signs
        return inside_box(self.model.parameters.values, 1.0, self.delta, move)

    def assignment(self, witness: _Array | Witness) -> tuple[bool, ...]:
        """Read the assignment off a shifted model that gives class 1; it makes the formula true.

        Parameters
        ----------
        witness : ndarray of shape (k,) or Witness
            Parameters of a shifted model, or the witness of a certificate.
        """
        values = np.asarray(witness if isinstance(witness, np.ndarray) else witness.parameters(self.model))
        base = self.model.parameters.values
        if values.shape != base.shape or not within_box(base, 1.0, self.delta, values).all():
            raise InputError(
                f"`witness` must be {len(base)} parameters within delta = {self.delta:g} of those of the network; pass "
                "the witness of a certificate."
            )
        if self.logit(values) < 0:
            raise InputError("`witness` must be a shifted model that gives class 1, but its logit is negative.")
        part = slice(0, self.formula.variables)
        w, b = (values[where][part] for where in self.model.parameters.slices[:2])
        x = Fraction(float(self.X[0, 0]))
        return tuple(
            Fraction(wi) * x + Fraction(bi) > Fraction(1, 2) for wi, bi in zip(w.tolist(), b.tolist(), strict=True)
        )

    def logit(self, values: _Array) -> Fraction:
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
    float64 numbers of the network as they are. `apas.theory.gadgets` says what each unit is for.

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
        [first[0], second[0], signs[:, None]], [first[1], second[1], [_rounded_down(-n + room / 2)]], activation="relu"
    )
    return Reduction(formula, model, np.array([[float(input_value(n))]]), _rounded_down(shift_size(n)), room)


def _layer(units: Sequence[Unit], inputs: int) -> tuple[_Array, _Array]:
    """Weights (inputs, units) and biases of a layer."""
    weights = np.zeros((inputs, len(units)))
    for j, unit in enumerate(units):
        for i, weight in unit.weights.items():
            weights[i, j] = weight
    return weights, np.array([float(unit.bias) for unit in units])


def _rounded_down(value: Fraction) -> float:
    """The largest float64 that is not above `value`."""
    near = float(value)
    return near if Fraction(near) <= value else float(np.nextafter(near, -np.inf))
