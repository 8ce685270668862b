"""`Attack`: refutations by a search for one shift that breaks a row. Not to find one proves nothing.

The search only proposes; what counts is what `apas.certification.certificate` found to lie in the set and to fail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from apas._parallel import in_parallel
from apas._random import Stream, unit_cube
from apas._typing import Floats, Indices
from apas._validation import check_integer
from apas.certification.certificate import BoundEvidence, Certificate, Witness, confirmed_witness
from apas.certification.claims import Every, Verdict
from apas.certification.methods.bounds import no_worst_case
from apas.certification.question import Question
from apas.display.progress import Progress
from apas.models.base import Differentiable, offers
from apas.shifts.base import Box, Region
from apas.shifts.geometry import inside_box
from apas.worst_case.attack import ConvexSet, Draw, LeastMargins, ParameterMoves, UnitPushes, search


@dataclass(frozen=True)
class AttackSpace:
    """The ground, the ball it is searched in, and the random starts."""

    question: Question
    landscape: UnitPushes | ParameterMoves
    ball: ConvexSet
    draw: Draw

    @classmethod
    def of(cls, question: Question, stream: Stream) -> AttackSpace:
        """Pushes of units for dense networks in a box; else the parameters themselves."""
        network, shifts, geometry = question.network, question.shifts, question.geometry
        if network is not None and isinstance(geometry, Box):
            units = UnitPushes(network, question.X, question.wanted, question.radii, question.delta)
            size = units.size
            return cls(question, units, Box(np.ones(size)), lambda a, b: unit_cube(size, stream, a, b))
        # that there are gradients and a ball has been asked before: `Attack.unsupported`
        model = cast(Differentiable, question.model if network is None else network)
        ball = shifts if offers(shifts, ConvexSet) else cast(ConvexSet, geometry)
        moves = ParameterMoves(model, question.X, question.target, question.radii > 0, question.delta)
        return cls(question, moves, ball, lambda a, b: shifts.directions(question.model.parameters, stream, a, b))

    def take(self, rows: Indices) -> AttackSpace:
        """The same for some of the rows."""
        return replace(self, question=self.question.take(rows), landscape=self.landscape.take(rows))

    def at(self, delta: Floats) -> AttackSpace:
        """The same with shifts of other sizes."""
        return replace(self, question=replace(self.question, delta=delta), landscape=self.landscape.at(delta))

    @property
    def goal(self) -> Floats:
        """Margins below this fail beyond rounding: a power of two, as the last bits of the band depend on the batch."""
        band = self.question.band
        return np.where(np.isfinite(band), -np.ldexp(2.0, np.frexp(band)[1]), -np.inf)

    def search(self, goal: Floats, **how: Any) -> LeastMargins:
        """Look for margins below `goal`, with restarts, steps and warm starts as in `apas.worst_case.attack`."""
        return search(self.landscape, self.ball, self.draw, goal, **how)

    def witness(self, row: int, point: Floats) -> Witness | None:
        """The shift of a row that a point stands for, if it lies in the set and fails."""
        base, delta = self.question.model.parameters, float(self.question.delta[row])
        if isinstance(self.landscape, UnitPushes):
            values = inside_box(base.values, self.question.radii, delta, self.landscape.direction(row, point))
        else:
            values = self.ball.pull_inside(base, base.values + delta * point, delta)
        return confirmed_witness(self.question, row, values)


#: How many rows, and how many coordinates of points, are held at a time.
ROWS, POINTS = 256, 1 << 22
#: The search for a delta that breaks begins this far below the limit where nothing better is known.
FAR_BELOW = 2.0**-24
#: Rounds of shrinking delta and searching again, by short searches and by long ones, and the relative gain below which
#: a row has come to rest.
ROUNDS, LONG_ROUNDS, REST = 8, 2, 1e-4
#: How many times shorter the first searches are; how many coordinates the starts of one have together, two at least.
SHORT, TOGETHER = 4, 4000
#: Halvings of a bracket around the delta at which a given direction begins to fail.
HALVINGS = 30
#: By how much delta is raised until the witness stands up to confirmation.
RAISES = (1.0, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6, 1 + 1e-4)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Refute `Every` by finding a shift that breaks the row; never certify.

    Dense networks in a box are searched by pushing their units, in closed form with at most one hidden layer; other
    models that have gradients, and other sets of shifts, by moving all parameters.

    Parameters
    ----------
    restarts : int, default 20
        How many points the search starts from.
    steps : int, default 100
        How many gradient steps it takes from each.
    """

    restarts: int = 20
    steps: int = 100
    name: ClassVar[str] = "attack"
    only_refutes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "restarts", check_integer(self.restarts, "restarts", "Attack", least=1))
        object.__setattr__(self, "steps", check_integer(self.steps, "steps", "Attack", least=1))

    def claim(self, question: Question) -> Every:
        """What the method will speak about."""
        return Every(question.region, question.claim_rows)

    def unsupported(self, question: Question) -> str | None:
        """None if there are gradients and a ball to follow them in, else the error a user reads."""
        question = _seen(question)
        complaint = no_worst_case(question, "Attack")
        if complaint is not None:
            return complaint
        if question.network is None and not offers(question.model, Differentiable):
            offered = f"a model with gradients (`parameter_gradient`), which {type(question.model).__name__}"
            return f'Attack needs {offered} does not offer; use method="sampling", which takes every model.'
        if not isinstance(question.geometry, Region) and not offers(question.shifts, ConvexSet):
            needs = "Attack needs shifts of all parameters in a box or a ball (LinfShifts, LpShifts)"
            return f'{needs}, got {question.shifts}; use method="sampling", which takes every set of shifts.'
        return None

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """Search, confirm, decide: one certificate per row."""
        question = _seen(question)
        own, certificates = Stream(stream.entropy, "attack"), list[Certificate]()
        with Progress(len(question), "looking for failing shifts") as progress:
            for part in in_parallel(
                self._run, ((question.take(rows), own) for rows in _parts(question)), question.n_jobs
            ):
                certificates += part
                progress.advance(len(part))
        return certificates

    def _run(self, question: Question, stream: Stream) -> list[Certificate]:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what is not finite is never confirmed
            space, claim = AttackSpace.of(question, stream), self.claim(question)
            found = space.search(space.goal, restarts=self.restarts, steps=self.steps)
            close = found.margins <= -space.goal  # failing, or within rounding of it
            certificates = list[Certificate]()
            rows = zip(found.points, found.used.tolist(), close.tolist(), strict=True)
            for i, (point, used, near) in enumerate(rows):
                reason = f"none of the {used} shifts tried loses it, which proves nothing"
                if not space.landscape.size:
                    reason = "the worst shift, known in closed form, does not lose it, which interval bounds can prove"
                verdict, witness = Verdict.UNKNOWN, space.witness(i, point) if near else None
                if witness is not None:
                    verdict, reason = Verdict.REFUTED, "a shift that loses it was found and checked"
                elif near:
                    reason = "the worst shift found is within rounding of the boundary"
                about = float(question.delta[i]), question.target[i], self.name, BoundEvidence("attack", None, used)
                certificates.append(Certificate(claim, verdict, *about, reason, witness))
            return certificates


def broken_deltas(
    question: Question, start: Floats, limit: float, *, attack: Attack | None = None
) -> tuple[Floats, list[Witness | None]]:
    """Per row the smallest delta, from `start` up to `limit`, at which the attack finds a failing shift, with it."""
    attack, question = attack if attack is not None else Attack(), _seen(question)
    deltas, witnesses = np.full(len(question), np.inf), list[Witness | None]()
    with Progress(len(question), "looking for failing shifts") as progress:
        for rows in _parts(question):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                space = AttackSpace.of(question.take(rows), Stream(0, "attack"))
                delta, points = _least(space, start[rows], limit, attack)
                for i, row in enumerate(rows):
                    alone, witness = space.take(np.array([i])), None
                    for factor in RAISES if np.isfinite(delta[i]) else ():
                        raised = min(float(delta[i]) * factor, limit)
                        witness = alone.at(np.array([raised])).witness(0, points[i])
                        if witness is not None:
                            deltas[row] = raised
                            break
                    witnesses.append(witness)
            progress.advance(len(rows))
    return deltas, witnesses


def _seen(question: Question) -> Question:
    """The question as the attack sees it: of a dense network, unless the model's own gradients know more."""
    embedded = question.embedded
    if embedded is question:
        return question
    known = isinstance(embedded.geometry, Region) and not embedded.tied
    own = isinstance(question.geometry, Region) and offers(question.model, Differentiable)
    return question if own and not known else embedded


def _parts(question: Question) -> list[Indices]:
    """Rows that are looked at together: few enough that a point for each fits into memory."""
    rows, step = np.arange(len(question)), max(1, min(ROWS, POINTS // len(question.model.parameters)))
    return [rows[first : first + step] for first in range(0, len(rows), step)]


def _least(space: AttackSpace, start: Floats, limit: float, attack: Attack) -> tuple[Floats, Floats]:
    """Deltas at which the rows break, as small as can be found, and the points that break them."""
    delta, points = _bracket_deltas(space, start, limit, attack)
    broken = np.flatnonzero(np.isfinite(delta))
    if len(broken):
        delta[broken] = _lower_deltas(space.take(broken), points[broken], start[broken], delta[broken])
    # short searches come to rest where long ones do, as a rule, and so do those of few starts; a long one has the last
    # word
    restarts = min(attack.restarts, max(2, TOGETHER // max(1, space.landscape.size)))
    searches = ((attack.steps // SHORT, ROUNDS), (attack.steps, LONG_ROUNDS))
    for steps, rounds in searches if space.landscape.size else ():  # without coordinates the worst shift is known
        rows = broken
        for _ in range(rounds):
            if not len(rows):
                break
            part = space.take(rows).at(delta[rows])
            found = part.search(np.full(len(rows), -np.inf), restarts=restarts, steps=steps, warm=points[rows])
            worse = np.flatnonzero(found.margins < 2 * part.goal)
            rows, before = rows[worse], delta[rows[worse]]
            if len(rows):
                points[rows] = found.points[worse]
                delta[rows] = _lower_deltas(space.take(rows), points[rows], start[rows], before)
                rows = rows[delta[rows] < (1 - REST) * before]
    return delta, points


def _bracket_deltas(space: AttackSpace, start: Floats, limit: float, attack: Attack) -> tuple[Floats, Floats]:
    """Deltas at which the rows break, up to twice as large as need be, and the points that break them."""
    broken, points = np.full(len(start), np.inf), np.zeros((len(start), space.landscape.size))
    tried = np.minimum(np.where(start > 0, 2 * start, limit * FAR_BELOW), limit)
    open_rows = np.arange(len(start))
    while len(open_rows):
        part = space.take(open_rows).at(tried[open_rows])
        last = tried[open_rows] >= limit
        goal = part.goal
        found = part.search(goal, restarts=1, steps=attack.steps // 10 + 1)
        if last.any():  # the last chance is worth the whole effort
            some = np.flatnonzero(last & ~(found.margins < goal))
            again = part.take(some).search(goal[some], restarts=attack.restarts, steps=attack.steps)
            found.margins[some], found.points[some] = again.margins, again.points
        hit = found.margins < goal
        broken[open_rows[hit]], points[open_rows[hit]] = tried[open_rows[hit]], found.points[hit]
        open_rows = open_rows[~hit & ~last]
        tried[open_rows] = np.minimum(2 * tried[open_rows], limit)
    return broken, points


def _lower_deltas(space: AttackSpace, points: Floats, low: Floats, high: Floats) -> Floats:
    """Bisect for the delta from which on each row fails at its point; the upper end, which does, is returned."""
    goal = space.at(high).goal
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        fails = space.landscape.at(middle).margins(points[:, None, :])[:, 0] < goal
        high, low = np.where(fails, middle, high), np.where(fails, low, middle)
    return high
