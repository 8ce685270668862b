"""`IntervalBounds`, `LinearBounds` and `Exact`: proofs about every shift, and what they have in common."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from apas._parallel import in_parallel, row_parts
from apas._random import Stream
from apas._typing import Floats, Indices
from apas.certification.api import OutputRange
from apas.certification.certificate import BoundEvidence, Certificate, DrawnShift, Witness, confirmed_witness
from apas.certification.claims import Every, Verdict
from apas.certification.failing_draws import drawn_blocks
from apas.certification.max_shift.result import MaxShift
from apas.certification.question import Question
from apas.display.numbers import at_least
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.base import Chained, offers
from apas.models.feedforward import FeedForward
from apas.models.forward import inner_names
from apas.shifts.base import Ball, Bounded, Box, Ellipsoid, Finite, MovesInput, Region, Sparse, Unbounded
from apas.shifts.geometry import inside_box
from apas.worst_case.ball import is_exact_ball
from apas.worst_case.decide import ALL_STEPS, Finding, WorstCases
from apas.worst_case.exact_arithmetic import is_piecewise_linear
from apas.worst_case.geometry import margins_in
from apas.worst_case.intervals import Boxes, is_exact, rivals

#: How a step that proved a row says so.
PROOFS = {
    "interval": "interval arithmetic bounds the margin from below by {bound}",
    "exact": "interval arithmetic, exact here, bounds the margin from below by {bound}",
    "linear": "linear bounds keep the margin at or above {bound}",
    "splitting": "distinguishing {nodes} cases bounds the margin from below by {bound}",
    "solver": "multipliers suggested by a solver bound the margin from below by {bound}",
    "ball": "the margin cannot fall below {bound} within the ball",
    "ellipsoid": "the margin cannot fall below {bound} within the ellipsoid",
}


def every(question: Question) -> Every:
    """The claim of all worst-case methods."""
    return Every(question.region, question.claim_rows)


def no_worst_case(question: Question, name: str) -> str | None:
    """Why no method can speak of every shift of the set, if the set itself knows why."""
    if not offers(question.shifts, Unbounded):
        return None
    why = f"{name} speaks of every shift, but {question.shifts.no_worst_case}, so nothing can be said about every one"
    return f'{why} of them; use method="sampling", which speaks of most.'


def no_network(question: Question, name: str) -> str | None:
    """Why a model is no dense network, with the name of the layer; None if it is one, or the set has no shape."""
    if question.network is not None:
        return None
    # a set that moves rows has a shape, but no place before there is a network
    shifts = question.shifts
    rows = offers(shifts, MovesInput) and offers(shifts, Bounded) and shifts.geometry(question.coordinates) is not None
    if not rows and not isinstance(question.geometry, Region):
        return None
    chain = question.model.dense_chain() if offers(question.model, Chained) else ""
    why = chain if isinstance(chain, str) else ""
    instead = f"use {'' if rows else 'Attack to look for a failing shift, or '}Sampling, for any model"
    return f"{name} needs a dense network{why and f', but {why}'}; {instead}."


def decide_rows(question: Question, method: str, steps: Sequence[str], time_limit: float = np.inf) -> list[Certificate]:
    """One certificate per row in a box; `steps` are those of `apas.worst_case.decide`."""
    question = question.embedded
    parts = row_parts(len(question), question.n_jobs)
    found: list[tuple[Finding, Witness | None]] = []
    with Progress(len(question), "going through the rows") as progress:
        if len(parts) == 1:
            found = _findings(question, steps, time_limit, progress)
        else:
            jobs = ((question.take(rows), steps, time_limit) for rows in parts)
            for part in in_parallel(_findings, jobs, question.n_jobs):
                found += part
                progress.advance(len(part))
    claim = every(question)
    for finding, _ in found:  # of the box around shifts of tied parameters, which has more of them
        finding.exact = finding.exact and not question.tied
    return [certificate(question, i, claim, method, *row, time_limit) for i, row in enumerate(found)]


def decide_together(question: Question, method: str) -> list[Certificate]:
    """One certificate per row where parameters share what moves: proved by a bound, or broken in closed form."""
    question = question.embedded
    network, region, base = question.network, question.geometry, question.model.parameters
    assert network is not None
    assert isinstance(region, Ball | Sparse | Ellipsoid)
    bounds = margins_in(network, question.X, question.wanted, region)
    exact = isinstance(region, Sparse) and is_exact(network)
    least, error = bounds.least(question.delta)
    found = [Finding(bound=value, exact=exact) for value in (least - error).tolist()]
    witnesses: list[Witness | None] = [None] * len(question)
    for finding in (finding for finding in found if finding.bound > 0):
        finding.prove(bounds.step, finding.bound)
    rows = np.array([i for i, finding in enumerate(found) if finding.open], dtype=np.intp)
    points = bounds.take(rows).worst(question.delta[rows]) if len(rows) else None
    for row, point in zip(rows.tolist(), [] if points is None else points, strict=False):
        delta = float(question.delta[row])
        values = region.pull_inside(base, base.values + delta * point, delta)
        witnesses[row] = confirmed_witness(question, row, values)
        if witnesses[row] is not None:
            found[row].broken, found[row].step = True, bounds.step
    claim, pairs = every(question), zip(found, witnesses, strict=True)
    return [certificate(question, i, claim, method, *row, np.inf) for i, row in enumerate(pairs)]


def _findings(
    question: Question, steps: Sequence[str], time_limit: float, progress: Progress | None = None
) -> list[tuple[Finding, Witness | None]]:
    network = question.network
    assert network is not None
    found = [Finding() for _ in range(len(question))]
    witnesses: list[Witness | None] = [None] * len(question)
    for delta in sorted(set(question.delta.tolist())):
        rows = np.flatnonzero(question.delta == delta)
        some = question if len(rows) == len(question) else question.take(rows)

        def accept(i: int, direction: Floats, rows: Indices = rows, delta: float = delta) -> bool:
            row = int(rows[i])
            values = inside_box(network.parameters.values, question.reach, delta, direction)
            witnesses[row] = confirmed_witness(question, row, values)
            return witnesses[row] is not None

        asked = (network, some.X, some.wanted, question.radii, delta)
        done = progress.advance if progress else lambda _: None
        part = WorstCases(*asked, steps=steps, time_limit=time_limit, accept=accept, done=done).run()
        for row, finding in zip(rows.tolist(), part, strict=True):
            found[row] = finding
    return list(zip(found, witnesses, strict=True))


def certificate(
    question: Question, i: int, claim: Every, method: str, finding: Finding, witness: Witness | None, time_limit: float
) -> Certificate:
    """Say in words what was found about row `i`."""
    written = at_least(finding.bound) if np.isfinite(finding.bound) else None
    bound = None if written is None else float(written)
    if finding.proved:
        verdict = Verdict.CERTIFIED
        reason = PROOFS["exact" if finding.exact else finding.step].format(bound=written, nodes=finding.nodes)
    elif witness is not None:
        verdict, reason = Verdict.REFUTED, "a shift of the set is known on which it is not kept"
    else:
        verdict, reason = Verdict.UNKNOWN, "there is no bound on the margin"
        if np.isfinite(time_limit):
            reason = f"neither a proof nor a failing shift was found (time limit {time_limit:g} s)"
            reason += f"; every margin is at least {written}" if written is not None else ""
        elif written is not None:
            reason = f"the bound on the margin, {written}, is not above 0, and no failing shift is known"
    evidence = BoundEvidence(finding.step, bound, finding.nodes, finding.exact)
    return Certificate(claim, verdict, float(question.delta[i]), question.target[i], method, evidence, reason, witness)


def proved_ranges(question: Question, method: str, time_limit: float | None = None) -> list[OutputRange]:
    """Per row a set that contains every margin; with a time limit its ends are sharpened until they are attained."""
    question = question.embedded
    network, binary = question.network, len(question.model.classes) == 2
    assert network is not None
    claim = every(question)
    low, high = _enclose_margins(question, network)
    # where the bounds overflow, infinity less infinity may stand for an end: none is known then
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    closed = is_exact(network) and not isinstance(question.geometry, Ball | Ellipsoid) and not question.tied
    items = []
    with Progress(len(question), "going through the rows") as progress:
        for i, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            below, above = (least, closed), (-most, closed and binary)
            if time_limit is not None and not closed and isinstance(question.geometry, Box):
                deadline, wanted = time.monotonic() + time_limit, int(question.wanted[i])
                known = float(question.base_margins[i])
                below, above = _edge(question, network, i, wanted, least, known, deadline), (-most, False)
                if binary:  # the largest margin is the least one towards the other class, turned round
                    above = _edge(question, network, i, 1 - wanted, -most, -known, deadline)
            ends, attained = (below[0], -above[0]), (below[1], above[1])
            items.append(OutputRange.of(question, i, ends, claim, attained, method))
            progress.advance(1)
    return items


def _enclose_margins(question: Question, network: FeedForward) -> tuple[Floats, Floats]:
    """Ends of a set that contains the margin of every shifted model."""
    geometry, X, delta = question.geometry, question.X, question.delta
    assert isinstance(geometry, Region)

    def least(wanted: Indices) -> Floats:
        return np.subtract(*margins_in(network, X, wanted, geometry).least(delta))

    low = least(question.wanted)
    if len(network.classes) == 2:  # the largest margin is the least one towards the other class, turned round
        return low, -least(1 - question.wanted)
    if isinstance(geometry, Ball | Ellipsoid):
        raise Unsupported("output_range in a ball needs a model with two classes; use LinfShifts, or Sampling.")
    # the margin is at most what the wanted score can exceed any one rival by
    high = np.full(len(question), np.inf)
    for rival in rivals(network, question.wanted).T:
        boxes = margins_in(network, X, rival, geometry)
        assert isinstance(boxes, Boxes)
        place = (rivals(network, rival) == question.wanted[:, None]).argmax(axis=1)
        against = boxes.against(delta)
        least_lead = against[place, np.arange(len(question))] - boxes.error(delta)
        high = np.minimum(high, -least_lead)
    return low, high


class Proof:
    """What methods have in common that prove claims about every shift of a dense network."""

    name: ClassVar[str]
    #: Of several methods a `Cascade` asks the tightest for the largest shift.
    tightness: ClassVar[int]
    time_limit: float = np.inf

    def claim(self, question: Question) -> Every:
        """What the method will speak about."""
        return every(question)

    def unsupported(self, question: Question) -> str | None:
        """None for dense networks in boxes of shifts, else why not."""
        name, question = type(self).__name__, question.embedded
        geometry = question.geometry
        complaint = no_worst_case(question, name) or no_network(question, name)
        if complaint is None and not isinstance(geometry, Box):
            instead = "IntervalBounds, Attack or Sampling" if isinstance(geometry, Region) else "Sampling"
            if isinstance(geometry, Finite):
                instead = "Exact, which asks every model, or Sampling"
            return f"{name} needs shifts in a box (LinfShifts) here, got {question.shifts!r}; use {instead}."
        return complaint

    def largest_shift(self, question: Question, stream: Stream, *, limit: float, search: Any = None) -> list[MaxShift]:
        """The largest delta that is proved, in closed form or by bisection; the stream is not used."""
        from apas.certification.max_shift.proved import worst_case  # which attacks, too

        complaint = self.unsupported(question)
        if complaint is not None:
            raise Unsupported(complaint)
        return worst_case(question.embedded, self.claim(question), limit, self.name, self.time_limit)


@dataclass(frozen=True)
class IntervalBounds(Proof):
    """Decide `Every` by interval arithmetic, rounded outwards so that the bound holds in real arithmetic.

    Exact for networks with at most one hidden layer, of any activation: there the row is certified, refuted with a
    shift, or within rounding of the boundary. For deeper networks it certifies or says nothing. In a ball of shifts
    (`LpShifts`) the slopes of the margin are bounded by intervals instead; exact where only the output layer moves. For
    `SparseShifts` only the largest effects count.
    """

    name: ClassVar[str] = "interval"
    tightness: ClassVar[int] = 1

    def unsupported(self, question: Question) -> str | None:
        """None for dense networks in boxes, balls and sparse sets of shifts, else why not."""
        question = question.embedded
        if question.network is not None and isinstance(question.geometry, Region):
            return None
        return super().unsupported(question)

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        if isinstance(question.embedded.geometry, Box):
            return decide_rows(question, self.name, ("interval",))
        return decide_together(question, self.name)

    def ranges(self, question: Question, stream: Stream) -> list[OutputRange]:
        """A set that contains every margin, per row."""
        return proved_ranges(question, self.name)


@dataclass(frozen=True)
class LinearBounds(Proof):
    """Decide `Every` by linear bounds with weights and biases as what moves (in the manner of CROWN).

    At least as tight as interval arithmetic, and tighter with two or more hidden layers. Every activation is covered.
    """

    name: ClassVar[str] = "linear"
    tightness: ClassVar[int] = 2

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        return decide_rows(question, self.name, ("interval", "linear"))


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
        return proved_ranges(question, self.name, self.time_limit)


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
        found = WorstCases(*asked, steps=ALL_STEPS, time_limit=left, accept=accept).run()[0]
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
