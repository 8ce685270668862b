"""`Exact`: proofs and witnesses for piecewise linear networks of any depth, without a commercial solver."""

import time
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np

from apas._random import Stream
from apas._typing import Floats
from apas.certification.api import OutputRange
from apas.certification.certificate import BoundEvidence, Certificate, DrawnShift
from apas.certification.claims import Verdict
from apas.certification.failing_draws import drawn_blocks
from apas.certification.methods.bounds import Proof, decide_rows, decide_together, every, proved_ranges
from apas.certification.question import Question
from apas.display.numbers import at_least
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.models.forward import inner_names
from apas.shifts.base import Ball, Box, Ellipsoid, Finite, Sparse
from apas.worst_case.ball import is_exact_ball
from apas.worst_case.decide import ALL_STEPS, worst_cases
from apas.worst_case.exact_arithmetic import is_piecewise_linear
from apas.worst_case.intervals import is_exact

#: Relative width at which the bracket around an end of a range counts as closed.
CLOSED = 1e-6


@dataclass(frozen=True, kw_only=True)
class Exact(Proof):
    """Decide `Every` exactly: a bound that holds in real arithmetic, or a shift that breaks the row.

    Intervals, linear bounds and a quick attack come first, then branch and bound on the phases of units, and where that
    takes too many cases a mixed-integer program in HiGHS. The solver is not believed: its point must break the row in
    float64 and in exact rational arithmetic, and its bound is proved again from dual variables.

    Parameters
    ----------
    time_limit : float, default 60.0
        Seconds per row after which the answer is ``UNKNOWN``.

    Notes
    -----
    For networks of relu, leaky relu, hard tanh and identity units of any depth, and for all others with at most one
    hidden layer; in balls and ellipsoids (`LpShifts`, `EllipsoidShifts`) where only the output layer moves, as in
    linear models; for sparse shifts (`SparseShifts`) with at most one hidden layer. Of models that exist
    (`ObservedShifts`), whatever they are, each is asked. A row whose least margin is 0 up to rounding stays
    ``UNKNOWN``.
    """

    time_limit: float = 60.0
    name: ClassVar[str] = "exact"
    tightness: ClassVar[int] = 3

    def __post_init__(self) -> None:
        number = isinstance(self.time_limit, Real) and not isinstance(self.time_limit, bool | np.bool_)
        if not number or not self.time_limit >= 0:
            raise InputError(f"`time_limit` of Exact must be a number of at least 0, got {self.time_limit!r}.")
        object.__setattr__(self, "time_limit", float(self.time_limit))

    def unsupported(self, question: Question) -> str | None:
        """None where exact answers are possible, else why not."""
        question = question.embedded
        network, geometry = question.network, question.geometry
        closed = isinstance(geometry, Finite)
        if network is not None:
            if isinstance(geometry, Box) and is_piecewise_linear(network.activations) and not question.tied:
                return None
            closed = closed or (isinstance(geometry, Ball | Ellipsoid) and is_exact_ball(network, geometry.radii))
            closed = closed or (isinstance(geometry, Sparse) and is_exact(network))
        if closed:
            return None
        complaint = super().unsupported(question)
        if complaint is None and question.tied:
            return f"Exact needs parameters that are each used once, but {question.tied}; use LinearBounds or Attack."
        if complaint is None and network is not None and not is_exact(network):
            names = {inner for name in network.activations for inner in inner_names(name)}
            others = sorted(name for name in names if not is_piecewise_linear([name]))
            if others:
                needs = "Exact needs relu, leaky_relu, hard_tanh or identity units beyond one hidden layer"
                return f"{needs}, got {', '.join(others)}; use LinearBounds, or Cascade, which also attacks."
        return complaint

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        if isinstance(question.geometry, Finite):
            return _asked_each(question, len(question.geometry.models), self.name)
        if isinstance(question.embedded.geometry, Box):
            return decide_rows(question, self.name, ALL_STEPS, self.time_limit)
        return decide_together(question, self.name)

    def ranges(self, question: Question, stream: Stream) -> list[OutputRange]:
        """The least and the largest margin, attained up to rounding where two classes allow it."""
        question = question.embedded
        network, base = question.network, question.base_margins
        assert network is not None

        def sharpen(i: int, low: float, high: float) -> tuple[tuple[float, float], tuple[bool, bool]]:
            deadline, wanted, known = time.monotonic() + self.time_limit, int(question.wanted[i]), float(base[i])
            below, above = _edge(question, network, i, wanted, low, known, deadline), (-high, False)
            if len(network.classes) == 2:  # the largest margin is the least one towards the other class, turned round
                above = _edge(question, network, i, 1 - wanted, -high, -known, deadline)
            return (below[0], -above[0]), (below[1], above[1])

        return proved_ranges(question, self.name, sharpen)


def _asked_each(question: Question, models: int, method: str) -> list[Certificate]:
    claim, nowhere = every(question), Stream(0, "listed")  # nothing is drawn
    least, doubtful = np.full(len(question), np.inf), np.zeros(len(question), dtype=bool)
    broken = np.full(len(question), -1)
    for begin, _, directions in drawn_blocks(question, nowhere, models):
        margins = question.margins(directions)
        fails = ~(margins >= -question.band)  # written so that a NaN fails
        first = np.where(fails.any(axis=0) & (broken < 0), begin + fails.argmax(axis=0), -1)
        broken = np.where(broken < 0, first, broken)
        doubtful |= (~fails & ~(margins > question.band)).any(axis=0)
        least = np.minimum(least, (margins - question.band).min(axis=0))
    answers = []
    for i, number in enumerate(broken.tolist()):
        delta, witness, bound = float(question.delta[i]), None, None
        if number >= 0:
            verdict, reason = Verdict.REFUTED, f"model number {number} does not keep it"
            witness = DrawnShift(question.shifts, delta, nowhere.entropy, nowhere.purpose, number)
        elif doubtful[i]:
            verdict, reason = Verdict.UNKNOWN, "on some model it is within rounding of the boundary"
        else:
            written = at_least(float(least[i]))
            verdict, bound = Verdict.CERTIFIED, float(written)
            asked = f"each of the {models}" if models > 1 else "it"
            reason = f"{asked} was asked, and the least margin is {written}"
        evidence = BoundEvidence("models", bound, models, exact=bound is not None)
        answers.append(Certificate(claim, verdict, delta, question.target[i], method, evidence, reason, witness))
    return answers


def _edge(
    question: Question, network: FeedForward, row: int, wanted: int, low: float, known: float, deadline: float
) -> tuple[float, bool]:
    """The least margin of one row, proved from below, and whether a shift attains it.

    Whether every margin exceeds s is the question about a network whose wanted score is lowered by s: a bisection.
    """
    x, delta = question.X[row : row + 1], float(question.delta[row])
    high = known

    def above(level: float) -> bool | None:
        nonlocal high
        lowered = _lower_margin(network, wanted, level)

        def accept(_: int, direction: Floats) -> bool:
            nonlocal high
            label = network.classes[wanted]
            margin = float(lowered.shifted_margins(x, label, (question.radii * direction)[None, :], delta)[0, 0])
            high = min(high, margin + level)
            return margin <= 0

        left = max(deadline - time.monotonic(), 0.0)
        asked = (lowered, x, np.array([wanted]), question.radii, delta)
        found = worst_cases(*asked, steps=ALL_STEPS, time_limit=left, accept=accept)[0]
        return None if found.open else found.proved

    scale = max(abs(known), abs(low), 1e-12)  # around 0 no relative width would ever be small
    while high - low > CLOSED * scale:
        middle = 0.5 * (low + high)
        answer = above(middle)
        if answer is None:
            break
        low, high = (middle, high) if answer else (low, min(high, middle))
    return low, high - low <= 2 * CLOSED * scale  # open only where a verdict was undecided


def _lower_margin(network: FeedForward, wanted: int, level: float) -> FeedForward:
    """The network whose margin towards a class is less by `level`, or by a rounding error more: never by less."""
    biases = network.biases[-1].copy()
    place, sign = (0, 1.0 if wanted == 1 else -1.0) if len(biases) == 1 else (wanted, 1.0)
    biases[place] = np.nextafter(biases[place] - sign * level, -sign * np.inf)
    same = {name: getattr(network, name) for name in ("output", "threshold", "classes", "dtype")}
    # with a bias, which the last layer may lack; how far each parameter moves is told apart
    return type(network)(network.weights, [*network.given_biases[:-1], biases], activation=network.activations, **same)
