"""The gadgets of the paper's proof of Theorem 1, their lemmas, and the network of a formula; in rational numbers.

The chapter on theory of the documentation has their formulas. A parameter that moves has an interval of width 2d, d
being delta, whose upper end is its value in the proof: ``[1 - 2d, 1]`` for 1, ``[-1 - 2d, -1]`` for -1.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, groupby, pairwise, product
from math import ceil
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from apas._typing import Array, Floats
from apas._validation import check_integer
from apas.certification.certificate import Witness
from apas.errors import InputError, Unsupported
from apas.models.feedforward import FeedForward
from apas.shifts.linf import LinfShifts
from apas.theory.hardness import Formula, check_assignment, read_witness

Interval = tuple[Fraction, Fraction]
ZERO, HALF, ONE = Fraction(0), Fraction(1, 2), Fraction(1)
JUST_0, JUST_1, TIE, UNIT = (ZERO, ZERO), (ONE, ONE), (HALF, HALF), (ZERO, ONE)


@dataclass(frozen=True, eq=False)
class GadgetNetwork:
    """A dense network whose parameters lie in intervals; those with a width move."""

    layers: Sequence[Array]  # (inputs + 1, units, 2) each: ends of the weights and, in the last row, of the biases
    relu: bool = True  # all units, or all but the last

    @property
    def moving(self) -> list[Interval]:
        """Intervals of the moving parameters, layer by layer."""
        return [(low, high) for layer in self.layers for low, high in layer.reshape(-1, 2) if low < high]

    def within(self, ranges: Iterable[Interval]) -> Self:
        """The same network with other intervals for the moving parameters."""
        layers, left = [layer.copy() for layer in self.layers], iter(ranges)
        for ends in (ends for layer in layers for ends in layer.reshape(-1, 2) if ends[0] < ends[1]):
            ends[:] = next(left)
        return type(self)(layers, self.relu)

    def trace(self, box: Sequence[Interval]) -> list[Array]:
        """Ends of the pre-activations of each layer, shape (2, units), for inputs in a box without negative numbers."""
        (least, most), found = np.array([*box, JUST_1], dtype=object).T, []
        for layer in self.layers:
            # values are never negative: the sign of a weight's end says which end of the value it meets
            low, high = np.moveaxis(layer, -1, 0)
            lowest = least @ np.maximum(low, 0) + most @ np.minimum(low, 0)
            found.append(np.array([lowest, most @ np.maximum(high, 0) + least @ np.minimum(high, 0)]))
            least, most = (np.append(np.maximum(end, 0), [ONE]) for end in found[-1])
        return found

    def enclosure(self, box: Sequence[Interval]) -> Interval:
        """Between which numbers the first output lies."""
        low, high = self.trace(box)[-1][:, 0]
        return (max(low, ZERO), max(high, ZERO)) if self.relu else (low, high)

    def output(self, inputs: Sequence[Fraction], choice: Sequence[Fraction]) -> Fraction:
        """The first output for one choice of the moving parameters."""
        return self.within((p, p) for p in choice).enclosure([(x, x) for x in inputs])[0]

    def then(self, other: Self, sources: Sequence[int] = ()) -> Self:
        """Another network behind this one; its input i is output ``sources[i]`` of this one, or i."""
        entering = other.layers[0]
        first = np.full((self.layers[-1].shape[1] + 1, *entering.shape[1:]), ZERO)
        first[[*(sources or range(len(entering) - 1)), -1]] = entering
        return type(self)([*self.layers, first, *other.layers[1:]], other.relu)


def network(*layers: Sequence[Sequence[Interval]], relu: bool = True) -> GadgetNetwork:
    """A network from the intervals of its layers: a row for each input, and one for the biases."""
    return GadgetNetwork([np.array(layer, dtype=object) for layer in layers], relu)


def beside(networks: Iterable[GadgetNetwork]) -> GadgetNetwork:
    """Networks of one depth next to each other."""
    layers = []
    for parts in zip(*(part.layers for part in networks), strict=True):
        rows, columns = (np.cumsum([0, *(part.shape[axis] - 1 + axis for part in parts)]) for axis in (0, 1))
        layers.append(np.full((rows[-1] + 1, columns[-1], 2), ZERO))
        for part, row, column in zip(parts, rows, columns, strict=False):
            places = [*range(row, row + len(part) - 1), -1]
            layers[-1][places, column : column + part.shape[1]] = part
    return GadgetNetwork(layers)


class Counterexample(NamedTuple):
    """Inputs, moving parameters and output of a gadget that contradict a lemma."""

    inputs: tuple[Fraction, ...]
    choice: tuple[Fraction, ...]
    output: Fraction

    def __str__(self) -> str:
        def listed(values: tuple[Fraction, ...]) -> str:
            runs = ((value, len(list(run))) for value, run in groupby(values))
            return ", ".join(f"{count} times {value}" if count > 1 else str(value) for value, count in runs)

        return f"inputs {listed(self.inputs)}; parameters {listed(self.choice)}; output {self.output}"


class LemmaCheck(NamedTuple):
    """A statement of the paper about a gadget, at one delta and for every choice of the parameters."""

    gadget: str
    statement: str
    against_if: Counterexample | None  # with the fewest parameters off their value in the proof
    against_only_if: Counterexample | None  # None of what is no equivalence
    corrected: str  # what is true

    @property
    def verdict(self) -> str:
        """Either "holds", "holds in one direction" or "fails"."""
        wrong = sum(found is not None for found in (self.against_if, self.against_only_if))
        return ("holds", "holds in one direction", "fails")[wrong if " iff " in self.statement else 2 * wrong]


def _inside(*intervals: Interval) -> Callable[[Interval], bool]:
    return lambda found: any(low <= found[0] and found[1] <= high for low, high in intervals)


def _apart(interval: Interval) -> Callable[[Interval], bool]:
    return lambda found: found[1] < interval[0] or found[0] > interval[1]


def _against(
    part: GadgetNetwork, cases: Sequence[Sequence[Interval]], fine: Callable[[Interval], bool]
) -> Counterexample | None:
    """None if the output is fine for all inputs in the boxes and every choice, else a corner where it is not."""
    if all(fine(part.enclosure(case)) for case in cases):
        return None
    moving = part.moving
    for lowered in (chosen for k in range(len(moving) + 1) for chosen in combinations(range(len(moving)), k)):
        choice = tuple(ends[i not in lowered] for i, ends in enumerate(moving))
        for inputs in (corner for case in cases for corner in product(*case)):
            output = part.output(inputs, choice)
            if not fine((output, output)):
                return Counterexample(inputs, choice, output)
    raise Unsupported("neither enclosures nor corners of a gadget settle a lemma at this delta.")


def _against_less(
    part: GadgetNetwork, box: Callable[[Fraction], Sequence[Interval]], top: Fraction, *reached: Fraction
) -> Counterexample | None:
    """None if the output is below `top` for inputs in ``box(s)`` at all s in [0, 1] but those where it is `reached`."""
    # With inputs affine in s, each end of each enclosure is piecewise linear in s. Layer by layer, `points` gets the
    # kinks: zeros of a pre-activation's end, between two points where it is linear.
    points = [ZERO, ONE]
    for layer in range(len(part.layers)):
        ends = [[end for pair in part.trace(box(s))[layer] for end in pair] for s in points]
        pieces = [
            (*p, *e) for p, ef in zip(pairwise(points), pairwise(ends), strict=True) for e in zip(*ef, strict=True)
        ]
        points = sorted({*points, *(p + (q - p) * e / (e - f) for p, q, e, f in pieces if e * f < 0)})
    # At most `top` at both ends of a linear piece and below in its middle is below on all of its inside.
    inner = [*(s for s in points if s not in reached), *((p + q) / 2 for p, q in pairwise(points))]
    found = _against(part, [box(s) for s in inner], lambda ends: ends[1] < top)
    if any(part.enclosure(box(s))[1] > top for s in reached) or (found is not None and found.output > top):
        raise Unsupported(f"an output of this gadget goes above {top}.")
    return found


class PaperGadgets:
    """The gadgets of the paper's proof of Theorem 1, for one delta.

    Parameters
    ----------
    delta : Fraction, str or float
        How far parameters move: above 0 and below 2/25, as in the paper.

    Examples
    --------
    >>> gadgets = PaperGadgets("1/16")
    >>> print(*gadgets.clause().enclosure([(0, 2 * gadgets.delta)] * 3))  # a false clause: 8d + 12d^2
    0 35/64
    """

    def __init__(self, delta: Fraction | str | float) -> None:
        try:
            self.delta = d = Fraction(delta)
        except (ValueError, TypeError, ArithmeticError):
            raise InputError(f"`delta` of PaperGadgets must be a number such as '1/16', got {delta!r}.") from None
        if not 0 < d < Fraction(2, 25):
            raise InputError(f"`delta` of PaperGadgets must be above 0 and below 2/25, got {d}.")
        self.plus: Interval = (1 - 2 * d, ONE)  # for a weight 1; and the literals that stand for true
        self.minus: Interval = (-1 - 2 * d, -ONE)

    def generating(self, outputs: int = 1) -> GadgetNetwork:
        """From an input 1 to outputs between 0 and 1; the first weight chooses a truth value."""
        first, second = (-self.delta, self.delta), (1 / self.delta - 2 * self.delta, 1 / self.delta)
        return network([[first], [JUST_0]], [[second], [JUST_0]], [[self.plus] * outputs, [JUST_0] * outputs])

    def discretizer(self) -> GadgetNetwork:
        """From chi^ to y."""
        plus, minus = self.plus, self.minus
        sides = [[plus, minus], [minus, plus], [JUST_0, JUST_0]]  # from u and chi^
        return network([[minus, JUST_1], [plus, JUST_0]], sides, [[plus], [plus], [JUST_0]])

    def negation(self) -> GadgetNetwork:
        """From chi~ to its negation."""
        return network([[self.minus], [self.plus]])

    def clause(self) -> GadgetNetwork:
        """From three literals to c."""
        return network([*[[self.minus]] * 3, [self.plus]], [[self.minus], [self.plus]])

    def conjunction(self, size: int) -> GadgetNetwork:
        """From all c to c~, or from all y to n~."""
        return network([*[[self.plus]] * size, [JUST_0]])

    def end(self, variables: int, clauses: int) -> GadgetNetwork:
        """From n~ and c~ to z."""
        top = HALF - variables - clauses
        return network([[self.plus], [self.plus], [(top - 2 * self.delta, top)]], relu=False)

    def lemmas(self) -> list[LemmaCheck]:
        """Check the paper's statements; conjunction and end with the 3 variables and 2 clauses of its example."""
        d, plus, n, m = self.delta, self.plus, Fraction(3), Fraction(2)
        low, false, true = (ZERO, 2 * d), (ZERO, 8 * d + 2 * d**2), (1 - 4 * d - 4 * d**2, ONE)
        y, edge, no, c = self.discretizer(), network([[plus], [JUST_0]]), self.negation(), self.clause()
        both, end = self.conjunction(2), self.end(3, 2)
        all_false, *some_true = product((low, plus), repeat=3)
        not_1 = _against(y, [[JUST_0], [JUST_1]], _inside(JUST_1))
        between = _against_less(y, lambda s: [(s, s)], ONE, ZERO, ONE)
        # y = 1 only where chi is 0 or 1, and there chi~ is what its edge makes of chi
        literal = (
            _against_less(edge.then(y), lambda s: [(s, s)], ONE, ZERO, ONE)
            or _against(edge, [[JUST_0]], _inside(JUST_0))
            or _against(edge, [[JUST_1]], _inside(plus))
        )
        lacking = _against_less(end, lambda s: [(s * n, s * n), (ZERO, m)], HALF, ONE)
        lacking = lacking or _against_less(end, lambda s: [(ZERO, n), (s * m, s * m)], HALF, ONE)
        printed = None if false[1] < true[0] else Counterexample((d,), (), false[1])
        # true clauses and all weights at their least: from m = k on, their sum is within the printed bound
        k = ceil((1 - false[1]) / (1 - self.conjunction(1).enclosure([true])[0]))
        several, inputs = self.conjunction(k), (true[0],) * k
        choices = (tuple(ends[i >= j] for i, ends in enumerate(several.moving)) for j in range(k + 1))
        corners = (Counterexample(inputs, choice, several.output(inputs, choice)) for choice in choices)
        lowest = next(corner for corner in corners if corner.output <= k - 1 + false[1])
        found: list[tuple[Counterexample | None, Counterexample | None]] = [
            (_against(self.generating(), [[JUST_1]], _inside(UNIT)), None),
            (not_1, between),
            (_against(edge.then(y), [[JUST_0], [plus]], _inside(JUST_1)), literal),
            (not_1, between or literal),
            (_against(no, [[JUST_0], [plus]], _inside(low, plus)), None),
            (_against(no, [[plus]], _inside(low)), _against(no, [[JUST_0]], _apart(low))),
            (_against(no, [[JUST_0]], _inside(plus)), _against(no, [[plus]], _apart(plus))),
            (_against(c, [all_false], _inside(false)), _against(c, some_true, _apart(false))),
            (_against(c, some_true, _inside(true)), _against(c, [all_false], _apart(true))),
            (printed, None),
            (_against(both, [[JUST_1] * 2], _inside((m, m))), _against_less(both, lambda s: [(s, s), UNIT], m, ONE)),
            (_against(both, [[false, UNIT]], _inside((ZERO, m - 1 + false[1]))), lowest),
            (_against(end, [[(n, n), (m, m)]], _inside(TIE)), lacking),
            (_against(c, [[JUST_0] * 3], _inside(JUST_0)), None),
        ]
        said = csv.reader(Path(__file__).with_name("lemmas.csv").read_text(encoding="utf-8").splitlines())
        return [
            LemmaCheck(gadget, statement, *against, corrected.format(k=k))
            for (gadget, statement, corrected), against in zip(said, found, strict=True)
        ]

    def pinned(self, variables: int, clauses: int) -> int:
        """How many parameters of the end gadget must be at their upper end for z = 1/2: with any, a null set."""
        # y and c are at most 1, so n~ is at most n, c~ at most m, z at most 1/2. The upper end of z is affine in that
        # of each parameter: lower with one at its lower end, it is lower with that one anywhere but at its upper end.
        asked = {"variables": variables, "clauses": clauses}
        sizes = [check_integer(count, name, "pinned", least=0) for name, count in asked.items()]
        y = _against_less(self.discretizer(), lambda s: [(s, s)], ONE, ZERO, ONE)
        tops = [(self.clause(), 3, 1), *((self.conjunction(k), k, k) for k in sizes)]
        end, box = self.end(*sizes), [(ZERO, Fraction(k)) for k in sizes]
        if y or any(part.enclosure([UNIT] * k)[1] > top for part, k, top in tops) or end.enclosure(box)[1] > HALF:
            raise Unsupported("an output of these gadgets is above its value in the proof.")
        lowered = [[*end.moving[:i], (low, low), *end.moving[i + 1 :]] for i, (low, _) in enumerate(end.moving)]
        return sum(end.within(ranges).enclosure(box)[1] < HALF for ranges in lowered)


@dataclass(frozen=True, eq=False)
class PaperReduction:
    """The paper's network of a formula: its output z is 1/2 for some choice iff the formula is satisfiable."""

    formula: Formula
    gadgets: PaperGadgets
    network: GadgetNetwork  # with an input 1 for each variable, and seven hidden layers
    X: Floats
    delta: float

    def choice(self, assignment: Sequence[bool]) -> list[Fraction]:
        """The moving parameters that the proof chooses for an assignment."""
        first = [self.gadgets.delta * value for value in check_assignment(assignment, self.formula.variables)]
        return [*first, *(high for _, high in self.network.moving[len(first) :])]

    def output(self, choice: Sequence[Fraction]) -> Fraction:
        """The output z for moving parameters, without rounding."""
        return self.network.output([ONE] * self.formula.variables, choice)

    @cached_property
    def model(self) -> FeedForward:
        """The network in the middle of all intervals, with class 1 for z of at least 1/2; never rounded."""
        exact = [layer.sum(axis=-1) / 2 for layer in self.network.layers]
        rounded = [layer.astype(np.float64) for layer in exact]
        if any((a != b).any() for a, b in zip(exact, rounded, strict=True)):
            raise InputError(f"`delta` must be a power of 1/2 for a network of floats, got {self.gadgets.delta}.")
        weights, biases = zip(*((layer[:-1], layer[-1]) for layer in rounded), strict=True)
        return FeedForward(weights, biases, output="identity", threshold=0.5)

    @property
    def shifts(self) -> LinfShifts:
        """All choices, as shifts of `model`."""
        moves = [(layer[..., 0] < layer[..., 1]).astype(np.float64) for layer in self.network.layers]
        return LinfShifts(scale=[part for layer in moves for part in (layer[:-1], layer[-1])])

    def assignment(self, witness: Floats | Witness) -> tuple[bool, ...]:
        """Read the assignment off a shifted model, or the witness of a certificate."""
        values = read_witness(witness, self.model, self.shifts.radii(self.model.parameters), self.delta)
        return tuple(bool(w > self.delta / 2) for w in np.diag(self.model.parameters.split(values)[0]))


def paper_reduction(formula: Formula, gadgets: PaperGadgets | Fraction | str | float = "1/16") -> PaperReduction:
    """Assemble the paper's gadgets to the network of a formula, as its proof of Theorem 1 does.

    Parameters
    ----------
    formula : Formula
        Clauses of one to three literals. Shorter ones repeat a literal; those that are always true are left out.
    gadgets : PaperGadgets, or Fraction, str or float, default "1/16"
        The gadgets, or their delta.

    Examples
    --------
    >>> paper = paper_reduction(Formula(2, [[1, 2], [-1]]))
    >>> print(paper.output(paper.choice([False, True])), paper.output(paper.choice([True, True])))
    1/2 -1/2
    """
    if not isinstance(formula, Formula):
        raise InputError(f"`formula` must be a Formula, got {type(formula).__name__}.")
    made = gadgets if isinstance(gadgets, PaperGadgets) else PaperGadgets(gadgets)
    n, clauses = formula.variables, [sorted(clause, key=abs) for clause in formula.needed]
    if wrong := [len(clause) for clause in clauses if not 1 <= len(clause) <= 3]:
        raise InputError(f"`formula` must have clauses of one to three literals, got one of {wrong[0]}.")
    literals = [literal for clause in clauses for literal in (3 * clause)[:3]]
    # outputs of all generating gadgets: for each variable chi^, called -1, and a chi~ for each place of its literals
    outputs = [(v, k) for v in range(n) for k in (-1, *(i for i, x in enumerate(literals) if abs(x) == v + 1))]
    wanted = [(v, -1) for v in range(n)] + [(abs(x) - 1, k) for k, x in enumerate(literals)]
    entering = [made.negation() if literal < 0 else network([[JUST_1], [JUST_0]]) for literal in literals]
    parts = [beside(entering[i : i + 3]).then(made.clause()) for i in range(0, len(literals), 3)]
    whole = (
        beside(made.generating(sum(v == u for u, _ in outputs)) for v in range(n))
        .then(beside([*[made.discretizer()] * n, *parts]), [outputs.index(output) for output in wanted])
        .then(beside([made.conjunction(n), made.conjunction(len(clauses))]))
        .then(made.end(n, len(clauses)))
    )
    return PaperReduction(formula, made, whole, np.ones((1, n)), float(made.delta))
