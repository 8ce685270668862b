"""`IntervalBounds` and `LinearBounds`: proofs about every shift in one pass over the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from apas._parallel import in_parallel, row_parts
from apas._random import Stream
from apas._typing import Floats, Indices
from apas.certification.api import OutputRange
from apas.certification.certificate import BoundEvidence, Certificate, Witness, confirmed_witness
from apas.certification.claims import Every, Verdict
from apas.certification.question import Question
from apas.display.numbers import at_least
from apas.display.progress import Progress
from apas.errors import Unsupported
from apas.models.base import Chained, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Ball, Bounded, Box, Ellipsoid, Finite, MovesInput, Region, Sparse, Unbounded
from apas.shifts.geometry import inside_box
from apas.worst_case.decide import Finding, worst_cases
from apas.worst_case.geometry import margins_in
from apas.worst_case.intervals import Boxes, is_exact, rivals

if TYPE_CHECKING:
    from apas.certification.max_shift.result import MaxShift

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
    why = question.model.not_dense() if offers(question.model, Chained) else ""
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
        part = worst_cases(*asked, steps=steps, time_limit=time_limit, accept=accept, done=done)
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


def proved_ranges(
    question: Question, method: str, sharpen: Callable[[int, float, float], Any] | None = None
) -> list[OutputRange]:
    """Per row a set that contains every margin; `sharpen` may close in on its ends, and say which are attained."""
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
        for i, ends in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            attained = (closed, closed and binary)
            if sharpen is not None and not closed and isinstance(question.geometry, Box):
                ends, attained = sharpen(i, *ends)
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
        against = np.stack([boxes.against(delta, j) for j in range(len(boxes.outputs))])
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
