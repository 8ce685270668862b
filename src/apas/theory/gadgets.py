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
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import combinations, count, pairwise, product

import numpy as np

from apas.errors import InputError
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
                for source, fixed in ((*unit.weights.items(), (-1, unit.bias))):
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
    equivalence : bool
    """

    gadget: str
    statement: str
    against_if: Counterexample | None
    against_only_if: Counterexample | None
    corrected: str
    equivalence: bool = True

    @property
    def verdict(self) -> LemmaVerdict:
        """Whether it holds, in one direction, or fails."""
        wrong = [self.against_if, self.against_only_if].count(None)
        if wrong == 2:
            return LemmaVerdict.HOLDS
        return LemmaVerdict.ONE_DIRECTION if wrong and self.equivalence else LemmaVerdict.FAILS


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
            raise InputError(f"`delta` of PaperGadgets must be a fraction such as '1/16', got {self.delta!r}.") from None
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
        d, plus, n, m = self.delta, self.plus, Fraction(variables), Fraction(clauses)
        low, zero, one, point = (ZERO, 2 * d), FIXED_0, FIXED_1, lambda s: [(s, s)]
        false, true = (ZERO, 8 * d + 2 * d**2), (1 - 4 * d - 4 * d**2, ONE)
        y, edge, no, c = self.discretizer(), self._edges(plus), self.negation(), self.clause()
        all_false, *some_true = product((low, plus), repeat=3)
        discrete = _against_only_at(y, point, {ZERO, ONE}, ONE)
        chosen = (
            _against_only_at(edge.then(y), point, {ZERO, ONE}, ONE)
            or _against(edge, [[zero]], _inside(zero))
            or _against(edge, [[one]], _inside(plus))
        )
        both, end, rest = self.conjunction(clauses), self.end(variables, clauses), [UNIT] * (clauses - 1)
        ends = [lambda s: [(s * n, s * n), (ZERO, m)], lambda s: [(ZERO, n), (s * m, s * m)]]
        ties = [_against_only_at(end, box, {ONE}, HALF) for box in ends]
        # Of m true clauses at their least, the sum falls under the printed bound from some m on.
        least = plus[0] * true[0]
        many = next(k for k in count(1) if k * least <= k - 1 + false[1])
        largest = c.enclosure(all_false)[0][1]
        short = clauses - 1 + false[1]
        lengths = Counterexample((true[0],) * many, (plus[0],) * many, many * least)
        broken = _against(both, [[(ZERO, largest), *rest]], lambda found: found[1] <= short)
        scaled = _against(c, [[zero] * 3], _inside(zero))
        return [
            LemmaCheck("generating", "chi^ is in [0, 1]", _against(self.generating(), [[one]], _inside(UNIT)), None, "-", False),
            LemmaCheck("discretizer", "y = 1 iff chi^ is 0 or 1", _against(y, [[zero], [one]], _inside(one)), discrete, "y = 1 for some choice iff chi^ is 0 or 1"),
        ]
