"""Theorems 1 and 2 and the Distinct-Realizations Problem: robustness is as hard as whether a formula can be true.

Formulas are in conjunctive normal form, as the DIMACS format writes them. Units, delta and gap of the network of a
formula are explained in the chapter on theory of the documentation.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np

from apas._typing import Floats
from apas._validation import check_integer, check_probability
from apas.certification.api import certify
from apas.certification.certificate import Certificate, Witness
from apas.certification.claims import Every, Verdict
from apas.certification.question import SHIFTS, Method, pick
from apas.errors import InputError, Unsupported
from apas.models.base import ROUNDING, Dense, as_model, class_indices, encoded_rows, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Bounded, Box, Region, ShiftSet
from apas.shifts.geometry import inside_box, within_box
from apas.shifts.linf import LinfShifts
from apas.worst_case.enumeration.box_bounds import margin_ranges
from apas.worst_case.enumeration.splitting import float_below
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR, exact_margin, exact_sign

MOST_TRIED = 20  # variables for which going through all assignments is a matter of seconds
MOST_DIGITS = 12  # of a number in a file: no formula that fits into memory needs more


@dataclass(frozen=True)
class Formula:
    """A conjunction of clauses; a clause is a set of literals, of which at least one must be true.

    Parameters
    ----------
    variables : int
        How many there are; they are numbered from 1.
    clauses : sequence of collections of int
        Literals as in DIMACS: ``3`` is variable 3, ``-3`` its negation. The empty clause is never true.

    Examples
    --------
    >>> formula = Formula(2, [[1, 2], [-1, 2], [-2]])
    >>> formula.holds([True, False]), formula.solution()
    (False, None)
    """

    variables: int
    clauses: Sequence[Collection[int]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", check_integer(self.variables, "variables", "Formula", least=1))
        given: Any = self.clauses
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InputError(f"`clauses` of Formula must be a list of lists of literals, got {given!r}.")
        object.__setattr__(self, "clauses", tuple(_clause(clause, self.variables) for clause in given))

    @classmethod
    def from_dimacs(cls, text: str) -> Self:
        r"""Read a formula from the text of a DIMACS CNF file, in which a line that begins with ``%`` ends it.

        Examples
        --------
        >>> Formula.from_dimacs("c either, not both\np cnf 2 2\n1 2 0\n-1 -2 0\n").solution()
        (False, True)
        """
        if not isinstance(text, str):
            raise InputError(f"`text` must be the text of a DIMACS file, got {type(text).__name__}.")
        return cls(*_parsed(text))

    def to_dimacs(self) -> str:
        """The formula as the text of a DIMACS CNF file."""
        lines = [" ".join(map(str, [*sorted(clause, key=abs), 0])) for clause in self.clauses]
        return "\n".join([f"p cnf {self.variables} {len(self.clauses)}", *lines]) + "\n"

    @property
    def needed(self) -> tuple[frozenset[int], ...]:
        """The clauses without those that are always true, each once, in their order."""
        return tuple(dict.fromkeys(frozenset(c) for c in self.clauses if not any(-literal in c for literal in c)))

    def holds(self, assignment: Sequence[bool]) -> bool:
        """Whether every clause is true under an assignment: one truth value per variable."""
        values = check_assignment(assignment, self.variables)
        return all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in self.clauses)

    def solutions(self) -> Iterator[tuple[bool, ...]]:
        """Every assignment that makes the formula true, by trying all of them."""
        if self.variables > MOST_TRIED:
            limit = f"at most {MOST_TRIED} to try all assignments"
            raise InputError(f"`variables` must be {limit}, got {self.variables}; use a solver.")
        return (values for values in product((False, True), repeat=self.variables) if self.holds(values))

    def solution(self) -> tuple[bool, ...] | None:
        """The first assignment that makes the formula true, or None if there is none."""
        return next(self.solutions(), None)

    def __str__(self) -> str:
        names = ([f"x{n}" if n > 0 else f"not x{-n}" for n in sorted(clause, key=abs)] for clause in self.clauses)
        shown = [" or ".join(literals) or "false" for literals in names]
        return " and ".join(f"({clause})" for clause in shown) or "true"


def read_dimacs(path: str | Path) -> Formula:
    """Read a formula from a DIMACS CNF file."""
    try:
        return Formula.from_dimacs(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`path` must be a DIMACS file that can be read, got {str(path)!r}: {error}.") from error


def check_assignment(assignment: Any, variables: int) -> tuple[bool, ...]:
    """Give an assignment as one truth value per variable."""
    values = tuple(assignment) if isinstance(assignment, Iterable) and not isinstance(assignment, str) else ()
    if len(values) != variables or not all(isinstance(v, bool | np.bool_) for v in values):
        wanted = f"one True or False for each of the {variables} variables"
        raise InputError(f"`assignment` must be {wanted}, got {assignment!r}.")
    return tuple(map(bool, values))


def _clause(clause: Any, variables: int) -> frozenset[int]:
    literals = tuple(clause) if isinstance(clause, Iterable) and not isinstance(clause, str) else (None,)
    for literal in literals:
        number = isinstance(literal, int | np.integer) and not isinstance(literal, bool)
        if not number or not 1 <= abs(literal) <= variables:
            shown = clause if literals == (None,) else literal
            wanted = f"hold literals from 1 to {variables} or their negatives"
            raise InputError(f"`clauses` of Formula must {wanted}, got {shown!r}.")
    return frozenset(map(int, literals))


def _parsed(text: str) -> tuple[int, list[list[int]]]:
    """How many variables a DIMACS text announces, and its clauses."""
    header: tuple[int, int] | None = None
    clauses: list[list[int]] = [[]]
    for place, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("c"):
            continue
        if words[0] == "%":
            break
        if words[0] == "p":
            if header is not None:
                raise InputError(f"`text` must have one line 'p cnf', got a second one in line {place}; remove it.")
            counts = [int(word) for word in words[2:] if _is_number(word)]
            if len(words) != 4 or words[1] != "cnf" or len(counts) != 2 or counts[0] < 1:
                wanted = "announce 'p cnf VARIABLES CLAUSES' with at least one variable"
                raise InputError(f"`text` must {wanted}, got {reprlib.repr(' '.join(words))} in line {place}.")
            header = counts[0], counts[1]
            continue
        if header is None:
            wanted = "have the line 'p cnf VARIABLES CLAUSES' first"
            raise InputError(f"`text` must {wanted}, got {reprlib.repr(line)} in line {place}.")
        for word in words:
            if not _is_number(word.removeprefix("-")) or abs(int(word)) > header[0]:
                wanted = f"hold literals from 1 to {header[0]}, their negatives and 0"
                raise InputError(f"`text` must {wanted}, got {reprlib.repr(word)} in line {place}.")
            if int(word):
                clauses[-1].append(int(word))
            else:
                clauses.append([])
    if header is None:
        raise InputError("`text` must have a line 'p cnf VARIABLES CLAUSES', got none; put it above the clauses.")
    if clauses.pop():
        raise InputError("`text` must end each clause with 0, but the last one goes on to the end; add the 0.")
    if len(clauses) != header[1]:
        wanted = f"hold the {header[1]} clauses that its line 'p cnf' announces"
        raise InputError(f"`text` must {wanted}, got {len(clauses)}; correct one or the other.")
    return header[0], clauses


def _is_number(word: str) -> bool:
    """Whether a word is a number without a sign, and none that Python would take long to read."""
    return word.isascii() and word.isdecimal() and len(word) <= MOST_DIGITS


@dataclass(frozen=True)
class GadgetUnit:
    """A relu unit: weights by the number of what enters it, and its bias."""

    weights: dict[int, int]
    bias: Fraction


def shift_size(variables: int) -> Fraction:
    """How far each parameter moves: so little that a unit with inputs in [0, 1] is moved by at most delta (n + 1)."""
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


HALVINGS = 60  # of the box, before giving up


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A box of shifted models, all in the set, on each of which the row is not valid."""

    low: Floats  # ends of each parameter, shape (k,)
    high: Floats
    margin: float  # at most this on every model of the box, and below 0
    log10_share: float  # of the set, rounded down: so large a share of the shifts fails at least


def failing_neighbourhood(
    model: FeedForward, x: Floats, delta: float, witness: Floats | Witness, *, target: Any
) -> Neighbourhood:
    """Grow a box of failing shifts around one, in the box of all shifts by up to `delta` (``LinfShifts()``).

    So the robust fraction is below 1 as soon as one shift fails with a margin below 0, not only at 0.

    Parameters
    ----------
    x : ndarray of shape (1, features)
    witness : ndarray of shape (k,) or Witness
        Parameters of a shifted model on which the margin of the row is below 0.
    target : label
        The class that is to be kept.

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
        wanted = f"{len(base)} parameters within delta = {delta:g} of those of the network"
        raise InputError(f"`witness` must be {wanted}; pass the witness of a certificate.")
    return np.asarray(values, dtype=np.float64)


MOST = 10_000_000  # numbers of a network that is built (80 MB)


@dataclass(frozen=True, eq=False)
class Reduction:
    """A formula as a question about a network: whether class 0 survives every shift of every parameter by up to delta.

    It does exactly if no assignment makes the formula true. The set is that of ``LinfShifts()``.

    A shifted model that stands for a solution has the logit gap / 2, up to the rounding of its parameters. If there is
    no solution, every shifted model has a logit of at most -gap / 2.

    Examples
    --------
    >>> import apas
    >>> hard = reduction(Formula(2, [[1, 2], [-1, -2]]))
    >>> certificate = apas.certify(hard.model, hard.X, hard.delta, target=hard.target, method="exact")[0]
    >>> certificate.verdict.name, hard.formula.holds(hard.assignment(certificate.witness))
    ('REFUTED', True)
    """

    formula: Formula
    model: FeedForward  # fully connected, relu, sizes 1, n, 2n + m, 1 for n variables and m clauses
    X: Floats  # the row, shape (1, 1)
    delta: float  # ``1 / (8 (n + 1)**2)``, rounded down
    gap: Fraction
    target: int = field(default=0, init=False)

    def parameters(self, assignment: Sequence[bool]) -> Floats:
        """Parameters of the shifted model that stands for an assignment, shape (k,); they lie in the set.

        The logit of that model is about gap / 2 if the assignment makes the formula true, else negative.
        """
        truth = check_assignment(assignment, self.formula.variables)
        move = np.zeros(len(self.model.parameters))
        for tensor in self.model.parameters.split(move)[:2]:
            tensor[...] = np.where(truth, 1.0, -1.0)
        return inside_box(self.model.parameters.values, 1.0, self.delta, move)

    def assignment(self, witness: Floats | Witness) -> tuple[bool, ...]:
        """Read the assignment off a shifted model that gives class 1; it makes the formula true."""
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
    float64 numbers of the network as they are.

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
        got = type(formula).__name__
        raise InputError(f"`formula` must be a Formula, got {got}; read one with Formula.from_dimacs(text).")
    n, clauses = formula.variables, formula.needed
    if (numbers := (n + 2) * (2 * n + len(clauses)) + 2 * n + 1) > MOST:
        got = f"got {numbers} for {n} variables and {len(clauses)} clauses"
        raise InputError(f"`formula` must give a network of at most {MOST} parameters, {got}; take a smaller one.")
    first = _layer([generating_unit()] * n, 1)
    lower, upper = zip(*(discretizer_units(i) for i in range(n)), strict=True)
    second, room = _layer([*lower, *upper, *map(clause_unit, clauses)], n), gap(n)
    last = np.array([1.0] * (2 * n) + [-1.0] * len(clauses))[:, None], np.array([float_below(-n + room / 2)])
    model = FeedForward(*zip(first, second, last, strict=True), activation="relu")
    return Reduction(formula, model, np.array([[float(input_value(n))]]), float_below(shift_size(n)), room)


def _layer(units: Sequence[GadgetUnit], inputs: int) -> tuple[Floats, Floats]:
    weights = np.zeros((inputs, len(units)))
    for j, unit in enumerate(units):
        weights[list(unit.weights), j] = list(unit.weights.values())
    return weights, np.array([float(unit.bias) for unit in units])


class Answer(StrEnum):
    """What is known about a yes-or-no question."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class DistinctRealizations:
    """Whether two models of the set give outputs below, and at or above, a threshold; with the two models.

    Without a "yes" one of them at most is known: the model itself.
    """

    answer: Answer
    below: FeedForward | None
    above: FeedForward | None
    threshold: float
    delta: float
    certificate: Certificate  # every shift keeps the class of the model itself, which a "yes" refutes and a "no" proves
    reason: str

    def __bool__(self) -> bool:
        raise TypeError('the answer may be "unknown": compare .answer with "yes", "no" or "unknown".')

    def sentence(self) -> str:
        """Say the answer in words that are true as they stand."""
        sides = f"outputs below, and at or above, {self.threshold:g}"
        what = f"at delta = {self.delta:g} there are two shifted models with {sides}"
        if self.answer is Answer.UNKNOWN:
            return f"unknown: it is not settled whether {what}; {self.reason}."
        said = what if self.answer is Answer.YES else f"it is not so that {what}"
        return f"{self.answer}: {said}; {self.reason}."

    def __str__(self) -> str:
        return self.sentence()


def distinct_realizations(
    model: Any, x: Any, delta: float, tau: float, *, shifts: ShiftSet | str = "linf", method: Method | str | None = None
) -> DistinctRealizations:
    """Answer the Distinct-Realizations Problem (DRP): whether ``M1(x) < tau <= M2(x)`` for two models of the set.

    The model itself is one of the set. So the question is whether some shift takes `x` to the other side of `tau`.

    Parameters
    ----------
    model : object
        A dense network with two classes: see `as_model`.
    x : array_like of shape (features,) or (1, features), or data frame with one row
    tau : float
        What outputs are compared with: probabilities of class 1, or the number itself of networks with
        ``output="identity"``. Takes the place of the model's own threshold. Probabilities are compared by their logits,
        that of `tau` rounded to float64.
    method : Method or str, optional
        One that speaks of every shift; unless given, ``"exact"`` in a box and ``"cascade"`` elsewhere.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0]]], [[0.0]], output="identity")
    >>> found = distinct_realizations(net, [2.0], 0.125, 1.75)
    >>> str(found.answer), found.above.margin(np.array([[2.0]]), 1), found.below.margin(np.array([[2.0]]), 1)
    ('yes', array([0.25]), array([-0.125]))
    """
    given = as_model(model)
    if not offers(given, Dense) or len(given.classes) != 2:
        raise Unsupported("`model` of distinct_realizations must be a dense network with two classes.")
    chosen = pick(shifts, SHIFTS, ShiftSet, "shifts")
    geometry = chosen.geometry(given.parameters) if offers(chosen, Bounded) else None
    if not isinstance(geometry, Region):
        sets = "a LinfShifts or an LpShifts, or a SparseShifts"
        raise Unsupported(f"`shifts` of distinct_realizations must be {sets}, got {chosen!r}.")
    flat = isinstance(x, list | tuple) and x and not isinstance(x[0], list | tuple | np.ndarray)
    rows = encoded_rows(given, [x] if flat else x[None, :] if isinstance(x, np.ndarray) and x.ndim == 1 else x)[1]
    if len(rows) != 1:
        raise InputError(f"`x` of distinct_realizations must be one row, got {len(rows)}; ask about one at a time.")
    network = _with_threshold(given.as_feedforward(), tau)
    label = network.classes[1 if float(network.margin(rows, network.classes[1])[0]) >= 0 else 0]
    method = method or ("exact" if isinstance(geometry, Box) else "cascade")
    found = certify(network, rows, delta, target=label, shifts=chosen, method=method, rng=0)[0]
    if not isinstance(found.claim, Every):
        raise InputError(f'`method` of distinct_realizations must speak of every shift, got {method!r}; use "exact".')
    sides: list[FeedForward | None] = [None, None]
    answer, reason, side = Answer.UNKNOWN, found.reason, _side(network, rows)
    if side is None:
        reason = "the output of the model itself is the threshold, up to rounding"
    else:
        sides[side] = network
        if found.verdict is Verdict.CERTIFIED:
            answer = Answer.NO
        elif found.witness is not None:
            answer, sides[1 - side] = Answer.YES, network.with_parameters(found.witness.parameters(network))
    return DistinctRealizations(answer, sides[0], sides[1], float(tau), float(found.delta), found, reason)


def _with_threshold(network: FeedForward, tau: Any) -> FeedForward:
    if network.output != "identity":
        tau = check_probability(tau, "tau", "distinct_realizations")
    elif isinstance(tau, bool) or not isinstance(tau, Real) or not math.isfinite(tau):
        raise InputError(f"`tau` of distinct_realizations must be a finite number, got {reprlib.repr(tau)}.")
    return network.with_options(threshold=float(tau), feature_names=None)


def _side(network: FeedForward, row: Floats) -> int | None:
    """1 if the output is at or above the threshold, 0 if below, None if rounding leaves that open."""
    margin = float(network.margin(row, network.classes[1])[0])
    if PIECEWISE_LINEAR.issuperset(network.activations):
        sign = exact_sign(network.weights, network.biases, network.activations, row[0], 1, network.offset)
        known = (sign >= 0) == (margin >= 0)
    else:
        still = np.zeros(len(network.parameters))
        known = abs(margin) > ROUNDING * float(network.margin_scale(row, still)[0])
    return int(margin >= 0) if known else None
