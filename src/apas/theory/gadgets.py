"""The paper's own gadgets and reduction (the appendix, proof of Theorem 1), with its lemmas checked in rational numbers.

The figures of the gadgets are not part of the paper's text; this is what its intervals say. Every parameter that moves
has an interval of width 2 delta, whose upper end is its value in the proof: ``PLUS = [1 - 2d, 1]`` instead of 1, ``MINUS
= [-1 - 2d, -1]`` instead of -1. The constants of negation and clause are such edges, too: otherwise the printed ends
``1 - 2d``, ``8d`` and ``1 - 4d - 4d^2`` would not come out. All units are relu, but for the output z.

- Generating: ``chi = relu(w2 relu(w1))`` with w1 in [-d, d] and w2 in [1/d - 2d, 1/d], so that chi is in [0, 1]; from
  there one edge PLUS to each output: ``chi^`` for the discretizer, ``chi~`` for each occurrence of the variable.
- Discretizer: ``u = relu(1 - chi^)``, then ``y = relu(u - chi^) + relu(chi^ - u)``. Of this one the text only says what
  it does; these are edges PLUS and MINUS that do it.
- Negation: ``relu(1 - chi~)``. Clause: ``c = relu(1 - relu(1 - l1 - l2 - l3))``.
- Conjunction: ``c~ = relu(sum c)``, and the same for ``n~ = relu(sum y)``. End: ``z = n~ + c~ - (n + m) + 1/2``.

Ranges of outputs are enclosed by interval arithmetic in fractions. A lemma holds if the enclosures say so, and fails if
a corner of the intervals is a counterexample, evaluated exactly; there is no rounding anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import combinations, count, pairwise, product

import numpy as np

from apas._typing import Floats
from apas._validation import check_integer
from apas.errors import InputError, Unsupported
from apas.models.feedforward import FeedForward
from apas.shifts.linf import LinfShifts
from apas.theory.formula import Formula, check_assignment
from apas.theory.realizations import Answer

Interval = tuple[Fraction, Fraction]
ZERO, HALF, ONE = Fraction(0), Fraction(1, 2), Fraction(1)
FIXED_0, FIXED_1, UNIT = (ZERO, ZERO), (ONE, ONE), (ZERO, ONE)


@dataclass(frozen=True)
class IntervalUnit:
    """A unit whose parameters lie in intervals: weights by the number of what enters, and a bias."""

    weights: dict[int, Interval]
    bias: Interval = FIXED_0
    relu: bool = True

    def moved(self, sources: Sequence[int]) -> IntervalUnit:
        """The same unit, behind other units."""
        return IntervalUnit({sources[i]: w for i, w in self.weights.items()}, self.bias, self.relu)

    def parameters(self) -> tuple[Interval, ...]:
        """Weights, then the bias."""
        return (*self.weights.values(), self.bias)


@dataclass(frozen=True)
class IntervalNetwork:
    """A layered network whose parameters lie in intervals; a parameter moves if its interval has a width.

    Attributes
    ----------
    inputs : int
        How many numbers enter; none of them may be negative.
    layers : tuple of tuples of IntervalUnit
    """

    inputs: int
    layers: tuple[tuple[IntervalUnit, ...], ...]

    @property
    def moving(self) -> list[Interval]:
        """Intervals of the parameters that move, layer by layer and unit by unit, weights before the bias."""
        units = (unit for layer in self.layers for unit in layer)
        return [p for unit in units for p in unit.parameters() if p[0] < p[1]]

    def trace(self, box: Sequence[Interval], ranges: Sequence[Interval] | None = None) -> list[list[Interval]]:
        """Enclose the pre-activations of every layer, for inputs in `box` and moving parameters in `ranges`."""
        moving = iter(self.moving if ranges is None else ranges)
        values, found = [*box, FIXED_1], []
        for layer in self.layers:
            sums = []
            for unit in layer:
                low = high = ZERO
                for source, fixed in (*unit.weights.items(), (-1, unit.bias)):
                    a, b = next(moving) if fixed[0] < fixed[1] else fixed
                    least, most = values[source]  # never negative, so the sign of an end says which value it meets
                    low += a * (least if a >= 0 else most)
                    high += b * (most if b >= 0 else least)
                sums.append((low, high))
            found.append(sums)
            ends = zip(sums, layer, strict=True)
            values = [(max(z[0], ZERO), max(z[1], ZERO)) if unit.relu else z for z, unit in ends] + [FIXED_1]
        return found

    def enclosure(self, box: Sequence[Interval], ranges: Sequence[Interval] | None = None) -> list[Interval]:
        """Between which numbers the outputs lie."""
        ends = zip(self.trace(box, ranges)[-1], self.layers[-1], strict=True)
        return [(max(z[0], ZERO), max(z[1], ZERO)) if unit.relu else z for z, unit in ends]

    def outputs(self, inputs: Sequence[Fraction], parameters: Sequence[Fraction]) -> list[Fraction]:
        """The outputs for one choice of the moving parameters, exactly."""
        return [low for low, _ in self.enclosure([(x, x) for x in inputs], [(p, p) for p in parameters])]

    def then(self, other: IntervalNetwork, sources: Sequence[int] | None = None) -> IntervalNetwork:
        """Another network behind this one, whose input number i is output number ``sources[i]`` of this one."""
        wires = range(other.inputs) if sources is None else sources
        first = tuple(unit.moved(wires) for unit in other.layers[0])
        return IntervalNetwork(self.inputs, (*self.layers, first, *other.layers[1:]))


def beside(networks: Iterable[IntervalNetwork]) -> IntervalNetwork:
    """Networks of the same depth next to each other, with the inputs of all."""
    parts = list(networks)
    widths = [[part.inputs, *(len(layer) for layer in part.layers)] for part in parts]
    layers = []
    for depth in range(len(parts[0].layers)):
        starts = [sum(width[depth] for width in widths[:k]) for k in range(len(parts))]
        pairs = zip(parts, starts, widths, strict=True)
        layers.append(tuple(u.moved(range(s, s + w[depth])) for part, s, w in pairs for u in part.layers[depth]))
    return IntervalNetwork(sum(part.inputs for part in parts), tuple(layers))


class LemmaVerdict(StrEnum):
    """What is the case about a lemma at one delta, for every choice of the parameters."""

    HOLDS = "holds"
    ONE_DIRECTION = "holds in one direction"
    FAILS = "fails"


@dataclass(frozen=True)
class Counterexample:
    """Inputs, moving parameters and output of a gadget, against a lemma."""

    inputs: tuple[Fraction, ...]
    parameters: tuple[Fraction, ...]
    output: Fraction

    def __str__(self) -> str:
        inputs, parameters = (", ".join(map(str, values)) for values in (self.inputs, self.parameters))
        return f"inputs {inputs}; parameters {parameters}; output {self.output}"


@dataclass(frozen=True)
class LemmaCheck:
    """A statement of the paper about a gadget, held against the gadget at one delta.

    Attributes
    ----------
    gadget, statement : str
    against_if, against_only_if : Counterexample or None
        Counterexamples with the fewest parameters off their value in the proof. A statement that is no equivalence has
        the first alone.
    corrected : str
        What is true instead, for some or every choice of the parameters as it says.
    """

    gadget: str
    statement: str
    against_if: Counterexample | None
    against_only_if: Counterexample | None
    corrected: str

    @property
    def verdict(self) -> LemmaVerdict:
        """Whether it holds, in one direction, or fails."""
        right = [self.against_if, self.against_only_if].count(None)
        if right == 2:
            return LemmaVerdict.HOLDS
        return LemmaVerdict.ONE_DIRECTION if right and " iff " in self.statement else LemmaVerdict.FAILS


def _inside(*ends: Interval) -> Callable[[Interval], bool]:
    """Whether an enclosure lies in one of the intervals."""
    return lambda found: any(low <= found[0] and found[1] <= high for low, high in ends)


def _apart(ends: Interval) -> Callable[[Interval], bool]:
    """Whether an enclosure and an interval have nothing in common."""
    return lambda found: found[1] < ends[0] or found[0] > ends[1]


def _corners(network: IntervalNetwork, cases: Sequence[Sequence[Interval]]) -> Iterator[Counterexample]:
    """Corners of the parameters and of the boxes of inputs; those with the fewest parameters off their upper end first."""
    moving = network.moving
    for size in range(len(moving) + 1):
        for chosen in combinations(range(len(moving)), size):
            parameters = tuple(p[0] if i in chosen else p[1] for i, p in enumerate(moving))
            for inputs in (corner for case in cases for corner in product(*(dict.fromkeys(ends) for ends in case))):
                yield Counterexample(inputs, parameters, network.outputs(inputs, parameters)[0])


def _against(
    network: IntervalNetwork, cases: Sequence[Sequence[Interval]], fine: Callable[[Interval], bool]
) -> Counterexample | None:
    """None if the output is fine for all inputs in the boxes and every choice of parameters, else a counterexample."""
    if all(fine(network.enclosure(case)[0]) for case in cases):
        return None
    found = next((corner for corner in _corners(network, cases) if not fine((corner.output, corner.output))), None)
    if found is None:
        raise Unsupported("neither the enclosures nor the corners of this gadget settle the lemma at this delta.")
    return found


def _against_only_at(
    network: IntervalNetwork, box: Callable[[Fraction], Sequence[Interval]], allowed: set[Fraction], top: Fraction
) -> Counterexample | None:
    """None if the output is below `top` for all inputs ``box(s)``, s in [0, 1], but for the `allowed` s."""
    # Every end of every enclosure is piecewise linear in s. Layer by layer, `points` gets the kinks of its relus: zeros
    # of a pre-activation, found by its values at the ends of a piece on which it is linear.
    points = [ZERO, ONE]
    for layer in range(len(network.layers)):
        ends = [[end for pair in network.trace(box(s))[layer] for end in pair] for s in points]
        pieces = zip(pairwise(points), pairwise(ends), strict=True)
        kinks = [p + (q - p) * e / (e - f) for (p, q), (at_p, at_q) in pieces for e, f in zip(at_p, at_q) if e * f < 0]
        points = sorted({*points, *kinks})
    # On a linear piece whose ends are at most `top`, the middle is below it only if all of the inner points are.
    if any(network.enclosure(box(s))[0][1] > top for s in allowed):
        raise Unsupported(f"this gadget goes above {top}, so that the lemma's proof is not one of it.")
    inner = [*(s for s in points if s not in allowed), *((p + q) / 2 for p, q in pairwise(points))]
    return _against(network, [box(s) for s in inner], lambda found: found[1] < top)


@dataclass(frozen=True)
class PaperGadgets:
    """The gadgets of the paper's proof for one delta.

    Parameters
    ----------
    delta : Fraction, str, int or float
        How far parameters move, above 0 and below 1/4; floats are taken as they are.

    Examples
    --------
    >>> gadgets = PaperGadgets("1/16")
    >>> false = (Fraction(0), 2 * gadgets.delta)
    >>> print(*gadgets.clause().enclosure([false] * 3)[0])
    0 35/64
    """

    delta: Fraction

    def __post_init__(self) -> None:
        try:
            delta = Fraction(self.delta)
        except (ValueError, TypeError, ArithmeticError):
            raise InputError(
                f"`delta` of PaperGadgets must be a fraction such as '1/16', got {self.delta!r}."
            ) from None
        if not 0 < delta < Fraction(1, 4):  # from 1/4 on, numbers that stand for false stand for true as well
            raise InputError(f"`delta` of PaperGadgets must be above 0 and below 1/4, got {delta}.")
        object.__setattr__(self, "delta", delta)

    @property
    def plus(self) -> Interval:
        """The interval instead of the weight 1; and the numbers that stand for true."""
        return (1 - 2 * self.delta, ONE)

    @property
    def minus(self) -> Interval:
        """The interval instead of the weight -1."""
        return (-1 - 2 * self.delta, -ONE)

    def _edges(self, *intervals: Interval) -> IntervalNetwork:
        """Edges from one input to as many outputs as there are intervals."""
        return IntervalNetwork(1, (tuple(IntervalUnit({0: interval}) for interval in intervals),))

    def generating(self, outputs: int = 1) -> IntervalNetwork:
        """The input 1, two weights that choose chi, and the outputs of chi."""
        first, second = (-self.delta, self.delta), (1 / self.delta - 2 * self.delta, 1 / self.delta)
        return self._edges(first).then(self._edges(second)).then(self._edges(*[self.plus] * outputs))

    def discretizer(self) -> IntervalNetwork:
        """From chi^ to y."""
        plus, minus = self.plus, self.minus
        units = IntervalUnit({0: minus}, plus), IntervalUnit({0: FIXED_1})
        sides = IntervalUnit({0: plus, 1: minus}), IntervalUnit({0: minus, 1: plus})
        return IntervalNetwork(1, (units, sides, (IntervalUnit({0: plus, 1: plus}),)))

    def negation(self) -> IntervalNetwork:
        """From chi~ to its negation."""
        return IntervalNetwork(1, ((IntervalUnit({0: self.minus}, self.plus),),))

    def clause(self) -> IntervalNetwork:
        """From three literals to c."""
        lacks = IntervalUnit(dict.fromkeys(range(3), self.minus), self.plus)
        return IntervalNetwork(3, ((lacks,), (IntervalUnit({0: self.minus}, self.plus),)))

    def conjunction(self, clauses: int) -> IntervalNetwork:
        """From the c of all clauses to c~; and from all y to n~."""
        return IntervalNetwork(clauses, ((IntervalUnit(dict.fromkeys(range(clauses), self.plus)),),))

    def end(self, variables: int, clauses: int) -> IntervalNetwork:
        """From n~ and c~ to z."""
        constant = HALF - variables - clauses
        unit = IntervalUnit({0: self.plus, 1: self.plus}, (constant - 2 * self.delta, constant), relu=False)
        return IntervalNetwork(2, ((unit,),))

    def lemmas(self, variables: int = 3, clauses: int = 2) -> list[LemmaCheck]:
        """Hold the paper's statements against the gadgets; conjunction and end with so many variables and clauses.

        Returns
        -------
        list of LemmaCheck
            Each is settled at this delta: by enclosures for all choices of the parameters, or by counterexamples.
        """
        variables = check_integer(variables, "variables", "lemmas", least=1)
        clauses = check_integer(clauses, "clauses", "lemmas", least=1)
        d, plus, n, m = self.delta, self.plus, Fraction(variables), Fraction(clauses)
        low, zero, one = (ZERO, 2 * d), FIXED_0, FIXED_1
        false, true = (ZERO, 8 * d + 2 * d**2), (1 - 4 * d - 4 * d**2, ONE)
        y, edge, no, c = self.discretizer(), self._edges(plus), self.negation(), self.clause()
        both, end, others = self.conjunction(clauses), self.end(variables, clauses), [UNIT] * (clauses - 1)
        all_false, *some_true = product((low, plus), repeat=3)
        not_1 = _against(y, [[zero], [one]], _inside(one))
        between = _against_only_at(y, lambda s: [(s, s)], {ZERO, ONE}, ONE)
        # wherever y = 1, chi is 0 or 1; there, chi~ is what its edge makes of it
        literal = (
            _against_only_at(edge.then(y), lambda s: [(s, s)], {ZERO, ONE}, ONE)
            or _against(edge, [[zero]], _inside(zero))
            or _against(edge, [[one]], _inside(plus))
        )
        lacking = _against_only_at(end, lambda s: [(s * n, s * n), (ZERO, m)], {ONE}, HALF) or _against_only_at(
            end, lambda s: [(ZERO, n), (s * m, s * m)], {ONE}, HALF
        )
        printed = None if false[1] < true[0] or d >= Fraction(2, 25) else Counterexample((d,), (), false[1])
        reached, short = (ZERO, c.enclosure(all_false)[0][1]), clauses - 1 + false[1]
        # true clauses at their least add up to no more than the printed bound from some number of them on
        k = next(k for k in count(1) if k * plus[0] * true[0] <= k - 1 + false[1])
        lowest = Counterexample((true[0],) * k, (plus[0],) * k, k * plus[0] * true[0])
        some = "only if, for every choice; if, for some choice"
        table: list[tuple[str, str, Counterexample | None, Counterexample | None, str]] = [
            ("generating", "chi^ is in [0, 1]", _against(self.generating(), [[one]], _inside(UNIT)), None, "as printed"),
            ("discretizer", "y = 1 iff chi^ is 0 or 1", not_1, between, some),
            ("discretizer", "y = 1 iff every chi~ is 0 or in [1 - 2d, 1]",
             _against(edge.then(y), [[zero], [plus]], _inside(one)), literal, "only if, for every choice"),
            ("discretizer", "y = 1 iff chi^ = chi~ = 0, or chi^ = 1 and chi~ is in [1 - 2d, 1]",
             not_1, between or literal, some),
            ("negation", "it is in [0, 2d] or in [1 - 2d, 1]",
             _against(no, [[zero], [plus]], _inside(low, plus)), None, "as printed"),
            ("negation", "it is in [0, 2d] iff chi~ is in [1 - 2d, 1]",
             _against(no, [[plus]], _inside(low)), _against(no, [[zero]], _apart(low)), "as printed, if d < 1/4"),
            ("negation", "it is in [1 - 2d, 1] iff chi~ = 0",
             _against(no, [[zero]], _inside(plus)), _against(no, [[plus]], _apart(plus)), "as printed, if d < 1/4"),
            ("clause", "c is in [0, 8d + 2d^2] iff all literals are in [0, 2d]",
             _against(c, [all_false], _inside(false)), _against(c, some_true, _apart(false)),
             "a false clause reaches 8d + 12d^2"),
            ("clause", "c is in [1 - 4d - 4d^2, 1] iff a literal is in [1 - 2d, 1]",
             _against(c, some_true, _inside(true)), _against(c, [all_false], _apart(true)),
             "only if 12d + 16d^2 < 1, that is d < (sqrt(13) - 3) / 8 = 0.0756..."),
            ("conjunction", "8d + 2d^2 < 1 - 4d - 4d^2, if d < 2/25", printed, None,
             "as printed; but to tell false clauses from true ones, 8d + 12d^2 < 1 - 4d - 4d^2 is needed"),
            ("conjunction", "c~ = m iff every c = 1", _against(both, [[one] * clauses], _inside((m, m))),
             _against_only_at(both, lambda s: [(s, s), *others], {ONE}, m), some),
            ("conjunction", "c~ <= m - 1 + 8d + 2d^2 iff some clause is false",
             _against(both, [[reached, *others]], lambda found: found[1] <= short), lowest,
             f"if some is false, c~ <= m - 1 + 8d + 12d^2; as low may be {k} true clauses"),
            ("end", "z = 1/2 iff n~ = n and c~ = m", _against(end, [[(n, n), (m, m)]], _inside((HALF, HALF))),
             lacking, f"{some}; z is never above 1/2"),
            ("sketch", "shifts move M(x) by factors between 1 - p1(d) and 1 + p2(d)",
             _against(c, [[zero] * 3], _inside(zero)), None, "a clause of three zeros is 0 and reaches 2d"),
        ]  # fmt: skip
        return [LemmaCheck(*row) for row in table]

    def pinned(self, variables: int, clauses: int) -> int:
        """How many parameters are at their upper end wherever z = 1/2, in the network of a formula of this size.

        One is enough: the choices with z = 1/2 then lie in a face of the box of all choices, which is a null set.
        """
        # No y and no c is above 1, so the last three units get no more than they are given here. The upper end of one
        # unit is affine in that of each of its parameters. So if it is `top`, and lower with a parameter at its lower
        # end, it is lower with the parameter anywhere but at its upper end.
        if self.clause().enclosure([UNIT] * 3)[0][1] > 1:
            raise Unsupported("a clause of these gadgets goes above 1, so that z = 1/2 may be no tie.")
        _against_only_at(self.discretizer(), lambda s: [(s, s)], {ZERO, ONE}, ONE)
        n, m, found = Fraction(variables), Fraction(clauses), 0
        last = [(self.conjunction(k), [UNIT] * k, Fraction(k)) for k in (variables, clauses)]
        for network, box, top in [*last, (self.end(variables, clauses), [(ZERO, n), (ZERO, m)], HALF)]:
            moving = network.moving
            if network.enclosure(box)[0][1] > top:
                raise Unsupported(f"a conjunction or end of these gadgets goes above {top}, so that z = 1/2 is no tie.")
            for i, (low, _) in enumerate(moving):
                found += network.enclosure(box, [*moving[:i], (low, low), *moving[i + 1 :]])[0][1] < top
        return found


@dataclass(frozen=True)
class PaperAnswer:
    """Whether some choice of the parameters has z = 1/2.

    Attributes
    ----------
    answer : Answer
    assignment : tuple of bool or None
        With "yes": one whose choice has it.
    bound : Fraction
        No choice has a larger z: 1/2 with "yes", less with "no".
    boxes : int
        How many boxes of choices were enclosed.
    """

    answer: Answer
    assignment: tuple[bool, ...] | None
    bound: Fraction
    boxes: int


@dataclass(frozen=True, eq=False)
class PaperReduction:
    """The paper's network of a formula: some choice of its parameters has z = 1/2 iff the formula is satisfiable.

    Attributes
    ----------
    formula : Formula
    gadgets : PaperGadgets
    network : IntervalNetwork
        An input 1 per variable, seven hidden layers, the output z.

    Examples
    --------
    >>> found = paper_reduction(Formula(1, [[1], [-1]])).decide()
    >>> str(found.answer), found.bound < Fraction(1, 2)
    ('no', True)
    """

    formula: Formula
    gadgets: PaperGadgets
    network: IntervalNetwork

    def choice(self, assignment: Sequence[bool]) -> list[Fraction]:
        """The moving parameters as the proof chooses them for an assignment."""
        chosen = [self.gadgets.delta * value for value in check_assignment(assignment, self.formula.variables)]
        return [*chosen, *(high for _, high in self.network.moving[len(chosen) :])]

    def output(self, choice: Sequence[Fraction]) -> Fraction:
        """The output z for moving parameters, exactly."""
        return self.network.outputs([ONE] * self.formula.variables, choice)[0]

    def decide(self, limit: int = 10_000) -> PaperAnswer:
        """Halve the intervals of the weights that choose the assignment, until each box of choices is settled.

        Interval arithmetic settles a box if z is below 1/2 on all of it. The answer is "yes" as soon as the assignment in
        the middle of a box has z = 1/2, and "unknown" after `limit` boxes.
        """
        n, moving = self.formula.variables, self.network.moving
        stack, settled = [moving[:n]], []
        for boxes in range(1, limit + 1):
            box = stack.pop()
            high = self.network.enclosure([FIXED_1] * n, [*box, *moving[n:]])[0][1]
            if high < HALF:
                settled.append(high)
            else:
                truth = tuple(low + top > self.gadgets.delta for low, top in box)
                if self.output(self.choice(truth)) == HALF:
                    return PaperAnswer(Answer.YES, truth, HALF, boxes)
                k = max(range(n), key=lambda i: box[i][1] - box[i][0])
                middle = (box[k][0] + box[k][1]) / 2
                stack += [[*box[:k], half, *box[k + 1 :]] for half in ((box[k][0], middle), (middle, box[k][1]))]
            if not stack:
                return PaperAnswer(Answer.NO, None, max(settled), boxes)
        return PaperAnswer(Answer.UNKNOWN, None, HALF, limit)

    def model(self) -> FeedForward:
        """The network in the middle of all intervals; class 1 is z at or above 1/2. Without rounding, or refused."""
        tensors = self._tensors(lambda ends: (ends[0] + ends[1]) / 2)
        return FeedForward(tensors[::2], tensors[1::2], output="identity", threshold=0.5)

    def shifts(self) -> LinfShifts:
        """All choices as a set of shifts of `model` by delta: parameters that do not move have the scale 0."""
        return LinfShifts(scale=self._tensors(lambda ends: Fraction(ends[0] < ends[1])))

    def _tensors(self, number: Callable[[Interval], Fraction]) -> list[Floats]:
        """Weights and biases of all layers in turn, by what is made of their intervals."""
        tensors, width = [], self.network.inputs
        for layer in self.network.layers:
            weights, bias = np.zeros((width, len(layer))), np.zeros(len(layer))
            for j, unit in enumerate(layer):
                numbers = [number(ends) for ends in unit.parameters()]
                if any(Fraction(float(value)) != value for value in numbers):
                    raise InputError(
                        f"`delta` must be a power of 1/2 for a network of floats, got {self.gadgets.delta}."
                    )
                weights[list(unit.weights), j], bias[j] = [float(w) for w in numbers[:-1]], float(numbers[-1])
            tensors += [weights, bias]
            width = len(layer)
        return tensors


def paper_reduction(formula: Formula, delta: Fraction | str | float | PaperGadgets = "1/16") -> PaperReduction:
    """Assemble the paper's gadgets to the network of a formula, as in its proof of Theorem 1.

    Parameters
    ----------
    formula : Formula
        With clauses of one to three literals; shorter ones repeat a literal, and those that are always true are left out.
    delta : Fraction, str, float or PaperGadgets, default "1/16"
        Below 2/25, as in the paper; or the gadgets themselves.

    Examples
    --------
    >>> paper = paper_reduction(Formula(2, [[1, 2], [-1]]))
    >>> print(paper.decide().assignment, paper.output(paper.choice([False, True])), paper.output(paper.choice([True, True])))
    (False, True) 1/2 -1/2
    """
    if not isinstance(formula, Formula):
        raise InputError(f"`formula` must be a Formula, got {type(formula).__name__}.")
    gadgets = delta if isinstance(delta, PaperGadgets) else PaperGadgets(delta)  # type: ignore[arg-type]
    if gadgets.delta >= Fraction(2, 25):
        raise InputError(f"`delta` of paper_reduction must be below 2/25, got {gadgets.delta}.")
    n, clauses = formula.variables, [sorted(clause, key=abs) for clause in formula.needed]
    if wrong := [len(clause) for clause in clauses if not 1 <= len(clause) <= 3]:
        raise InputError(f"`formula` must have clauses of one to three literals, got one of {wrong[0]}.")
    literals = [literal for clause in clauses for literal in (3 * clause)[:3]]
    occurrences = [[k for k, literal in enumerate(literals) if abs(literal) == v + 1] for v in range(n)]
    # outputs of the generating gadgets in turn: chi^ of a variable (-1), then its chi~, one per occurrence
    outputs = [(v, k) for v in range(n) for k in (-1, *occurrences[v])]
    places = {output: place for place, output in enumerate(outputs)}
    sources = [places[v, -1] for v in range(n)] + [places[abs(literal) - 1, k] for k, literal in enumerate(literals)]
    carry = IntervalNetwork(1, ((IntervalUnit({0: FIXED_1}),),))
    entering = [gadgets.negation() if literal < 0 else carry for literal in literals]
    parts = [beside(entering[i : i + 3]).then(gadgets.clause()) for i in range(0, len(literals), 3)]
    network = (
        beside(gadgets.generating(1 + len(uses)) for uses in occurrences)
        .then(beside([*[gadgets.discretizer()] * n, *parts]), sources)
        .then(beside([gadgets.conjunction(n), gadgets.conjunction(len(clauses))]))
        .then(gadgets.end(n, len(clauses)))
    )
    return PaperReduction(formula, gadgets, network)
