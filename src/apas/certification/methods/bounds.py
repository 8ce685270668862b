"""`IntervalBounds` and `LinearBounds`: proofs about every shift in one pass over the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apas._parallel import in_parallel, row_parts
from apas._random import Stream
from apas._typing import Floats, Indices
from apas.certification.certificate import BoundEvidence, Certificate, Witness
from apas.certification.claims import Every, Verdict
from apas.certification.confirmation import confirmed_witness
from apas.certification.question import Question
from apas.display.numbers import at_least
from apas.display.progress import Progress
from apas.shifts.box import inside_box
from apas.shifts.gaussian import GaussianShifts
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts
from apas.worst_case.ball.bounds import is_exact_ball, least_margins_ball, worst_points_ball
from apas.worst_case.decide import Finding, worst_cases


def is_exact_in_ball(question: Question) -> bool:
    """Whether the least margin over the ball is known in closed form."""
    return question.network is not None and is_exact_ball(question.network, question.radii)


def decided_in_ball(question: Question, method: str) -> list[Certificate]:
    """One certificate per row: proved by a bound, or broken where the worst shift is known in closed form."""
    network, shifts = question.network, question.shifts
    assert network is not None
    assert isinstance(shifts, LpShifts)
    bound, error = least_margins_ball(network, question.X, question.wanted, question.radii, shifts.p, question.delta)
    found = [Finding(bound=value) for value in (bound - error).tolist()]
    witnesses: list[Witness | None] = [None] * len(question)
    rows = [i for i, finding in enumerate(found) if not finding.bound > 0]
    for finding in found:
        if finding.bound > 0:
            finding.prove("ball", finding.bound)
    some = question.take(np.array(rows, dtype=np.intp))
    points = worst_points_ball(network, some.X, some.wanted, question.radii, shifts.p, some.delta) if rows else None
    for row, point in zip(rows, [] if points is None else points, strict=False):
        delta, base = float(question.delta[row]), question.model.parameters
        values = shifts.pull_inside(base, base.values + delta * point, delta)
        witnesses[row] = confirmed_witness(question, row, values)
        if witnesses[row] is not None:
            found[row].broken, found[row].step = True, "ball"
    claim = every(question)
    return [
        certificate(question, i, claim, method, finding, witness, np.inf)
        for i, (finding, witness) in enumerate(zip(found, witnesses, strict=True))
    ]


#: How a step that proved a row says so.
PROOFS = {
    "interval": "interval arithmetic bounds the margin from below by {bound}",
    "exact": "interval arithmetic, exact here, bounds the margin from below by {bound}",
    "linear": "linear bounds keep the margin at or above {bound}",
    "splitting": "distinguishing {nodes} cases bounds the margin from below by {bound}",
    "solver": "multipliers suggested by a solver bound the margin from below by {bound}",
    "ball": "the margin cannot fall below {bound} within the ball",
}


def every(question: Question) -> Every:
    """The claim of all worst-case methods."""
    return Every(question.region, question.claim_rows)


def unbounded(shifts: GaussianShifts, name: str) -> str:
    """Why no method can speak of every normal shift."""
    return (
        f"{name} speaks of every shift, but normal shifts ({shifts!r}) have no bound, so nothing can be said about "
        'every one of them; use method="sampling", which speaks of most.'
    )


def unsupported_dense(question: Question, name: str) -> str | None:
    """Why a method for dense networks in boxes cannot answer, or None."""
    shifts = question.shifts
    if isinstance(shifts, GaussianShifts):
        return unbounded(shifts, name)
    searchable = isinstance(shifts, LinfShifts | LpShifts)
    if question.network is None and searchable:
        return f"{name} needs a dense network; use Attack to look for a failing shift, or Sampling, for any model."
    if not isinstance(shifts, LinfShifts):
        instead = "IntervalBounds, Attack or Sampling" if searchable else "Sampling"
        if isinstance(shifts, ObservedShifts):
            instead = "Exact, which asks every model, or Sampling"
        return f"{name} needs shifts in a box (LinfShifts) here, got {shifts!r}; use {instead}."
    return None


def decided(question: Question, method: str, steps: Sequence[str], time_limit: float = np.inf) -> list[Certificate]:
    """One certificate per row; `steps` are those of `apas.worst_case.decide`."""
    parts = row_parts(len(question), question.n_jobs)
    with Progress(len(question), "going through the rows") as progress:
        if len(parts) == 1:
            found, witnesses = _findings(question, steps, time_limit, progress)
        else:
            found, witnesses = _in_parallel(question, parts, steps, time_limit, progress)
    claim = every(question)
    return [
        certificate(question, i, claim, method, finding, witness, time_limit)
        for i, (finding, witness) in enumerate(zip(found, witnesses, strict=True))
    ]


def _in_parallel(
    question: Question, parts: list[Indices], steps: Sequence[str], time_limit: float, progress: Progress
) -> tuple[list[Finding], list[Witness | None]]:
    found: list[Finding] = []
    witnesses: list[Witness | None] = []
    jobs = ((question.take(rows), steps, time_limit) for rows in parts)
    for part in in_parallel(_findings, jobs, question.n_jobs):
        found += part[0]
        witnesses += part[1]
        progress.advance(len(part[0]))
    return found, witnesses


def _findings(
    question: Question, steps: Sequence[str], time_limit: float, progress: Progress | None = None
) -> tuple[list[Finding], list[Witness | None]]:
    network = question.network
    assert network is not None
    found = [Finding() for _ in range(len(question))]
    witnesses: list[Witness | None] = [None] * len(question)
    for delta in np.unique(question.delta).tolist():
        rows = np.flatnonzero(question.delta == delta)

        def accept(i: int, direction: Floats, rows: Indices = rows, delta: float = delta) -> bool:
            row = int(rows[i])
            values = inside_box(network.parameters.values, question.reach, delta, direction)
            witnesses[row] = confirmed_witness(question, row, values)
            return witnesses[row] is not None

        part = worst_cases(
            network,
            question.X[rows],
            question.wanted[rows],
            question.radii,
            delta,
            steps=steps,
            time_limit=time_limit,
            accept=accept,
            done=progress.advance if progress else lambda _: None,
        )
        for row, finding in zip(rows.tolist(), part, strict=True):
            found[row] = finding
    return found, witnesses


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
        verdict, reason = Verdict.UNKNOWN, _open(finding, time_limit)
    evidence = BoundEvidence(finding.step, bound, finding.nodes, finding.exact)
    return Certificate(claim, verdict, float(question.delta[i]), question.target[i], method, evidence, reason, witness)


def _open(finding: Finding, time_limit: float) -> str:
    if np.isfinite(time_limit):
        return f"neither a proof nor a failing shift was found (time limit {time_limit:g} s)"
    if np.isfinite(finding.bound):
        return f"the bound on the margin, {at_least(finding.bound)}, is not above 0, and no failing shift is known"
    return "there is no bound on the margin"


@dataclass(frozen=True)
class IntervalBounds:
    """Decide `Every` by interval arithmetic, rounded outwards so that the bound holds in real arithmetic.

    Exact for networks with at most one hidden layer, of any activation: there the row is certified, refuted with a
    shift, or within rounding of the boundary. For deeper networks it certifies or says nothing. In a ball of shifts
    (`LpShifts`) the slopes of the margin are bounded by intervals instead; exact where only the output layer moves.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> apas.certify(net, [[2.0, 0.5]], 0.4, target=1, method=apas.IntervalBounds())[0].verdict.name
    'CERTIFIED'
    """

    def claim(self, question: Question) -> Every:
        """What the method will speak about."""
        return every(question)

    def unsupported(self, question: Question) -> str | None:
        """None for dense networks in boxes and balls of shifts, else why not."""
        if question.network is not None and isinstance(question.shifts, LpShifts):
            return None
        return unsupported_dense(question, "IntervalBounds")

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        if isinstance(question.shifts, LpShifts):
            return decided_in_ball(question, "interval")
        return decided(question, "interval", ("interval",))


@dataclass(frozen=True)
class LinearBounds:
    """Decide `Every` by linear bounds with weights and biases as what moves (in the manner of CROWN).

    At least as tight as interval arithmetic, and tighter with two or more hidden layers. Every activation is covered.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]], [[1.0]], [[1.0]]], [[0.0], [0.0], [0.0]])
    >>> apas.certify(net, [[2.0, 0.5]], 0.1, target=1, method=apas.LinearBounds())[0].verdict.name
    'CERTIFIED'
    """

    def claim(self, question: Question) -> Every:
        """What the method will speak about."""
        return every(question)

    def unsupported(self, question: Question) -> str | None:
        """None for dense networks in boxes of shifts, else why not."""
        return unsupported_dense(question, "LinearBounds")

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        return decided(question, "linear", ("interval", "linear"))
