"""`MilpSource`: the paper's own source of candidates, without a commercial solver."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from apas._validation import check_number
from apas.counterfactuals.search.source import Candidate, Search, Task
from apas.counterfactuals.sources.milp.nearest import Nearest, NearestPoint
from apas.counterfactuals.space.encoder import INSTEAD, Piece, pieces_of
from apas.errors import InputError, Unsupported
from apas.models.base import Dense, offers
from apas.models.feedforward import FeedForward
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR

#: A margin is close enough to the least that passes if it is estimated to be larger by no more than this part.
CLOSE = 0.004
#: How many margins to try before a candidate is offered.
TRIES = 24
#: How many of them no point may have.
MISSES = 5
#: By what part margins grow when candidates are not taken: at first, and at most.
FIRST_GROWTH, LAST_GROWTH = 0.02, 0.5
#: What growing margins grow by at least.
LEAST_STEP = 0.01


@dataclass(frozen=True, kw_only=True)
class MilpSource:
    """The cheapest allowed rows that a piecewise linear network puts into the wanted class with a growing margin.

    For dense networks of any depth with relu, leaky relu, hard tanh and identity units. What a feature may be and how
    it may change, costs and units are exact in a mixed-integer program, which is solved by branch and bound on linear
    programs (HiGHS). What comes out is moved onto the grid of the space and evaluated again by the model itself.

    Parameters
    ----------
    margin : float, default 0.01
        What the first candidate's margin is at least; if there is none, it is the one with the largest margin.
    step : float, optional
        Offer a candidate for each of the margins ``margin``, ``margin + step``, and so on: with 0.2 the paper's loop.
        None, the default, looks for the least margin with which a candidate passes the search's own test, from how
        far it and others are from passing; this takes a handful of programs, and costs less in the end.
    max_margin : float, default 20.0
        Where to stop.
    time_limit : float, default 10.0
        Seconds per program; the best point found by then is taken.

    Examples
    --------
    >>> from apas.counterfactuals.space.feature import Feature
    >>> from apas.counterfactuals.space.space import FeatureSpace
    >>> space = FeatureSpace([Feature("income", low=0, high=10), Feature("cars", "integer", low=0, high=5)])
    >>> net = FeedForward([[[1.0], [2.0]]], [[-8.0]], feature_names=space.names)
    >>> search = Search(Task(net, space), 0, np.array([3.0, 1.0]), 1)
    >>> points = MilpSource(step=1.0, max_margin=2.5).candidates(search)
    >>> [c.point.round(6).tolist() for c in points]
    [[6.01, 1.0], [7.01, 1.0], [8.01, 1.0]]
    """

    margin: float = 0.01
    step: float | None = None
    max_margin: float = 20.0
    time_limit: float = 10.0

    def __post_init__(self) -> None:
        for name in ("margin", "max_margin"):
            check_number(getattr(self, name), name, "MilpSource", least=0.0)
        check_number(self.time_limit, "time_limit", "MilpSource", above=0.0)
        if self.step is not None:
            check_number(self.step, "step", "MilpSource", above=0.0)
        if self.max_margin < self.margin:
            raise InputError(
                f"`max_margin` of MilpSource must not be below `margin`, got {self.max_margin:g} and {self.margin:g}."
            )

    @property
    def ordered(self) -> bool:
        """Whether no candidate costs less than those before it."""
        return True

    def unsupported(self, task: Task) -> str | None:
        """None if the model, its preprocessing and the space can be written as a program, else why not."""
        if not offers(task.model, Dense):
            return f"MilpSource needs a dense network, got {task.model!r}; {INSTEAD}"
        others = sorted(set(task.model.as_feedforward().activations) - PIECEWISE_LINEAR)
        if others:
            return (
                "MilpSource needs relu, leaky_relu, hard_tanh or identity units, since others have no straight pieces, "
                f"got {', '.join(others)}; {INSTEAD}"
            )
        for feature in task.space:
            low, high = feature.ends
            bounded = (np.isfinite(low) or feature.direction == "increase") and (
                np.isfinite(high) or feature.direction == "decrease"
            )
            if feature.mutable and not bounded:
                return (
                    f"MilpSource needs a range of feature {feature.name!r}, got {low:g} to {high:g}; give it `low` and "
                    "`high`."
                )
        return task.once("milp/pieces", lambda: pieces_of(task)).complaint

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """Different candidates for one row, allowed by the space and valid on the model, cheapest first."""
        net, parts = search.task.once("milp/network", lambda: network_of(search.task))
        nearest = Nearest(search, net, parts, self.time_limit)
        return self._in_steps(nearest) if self.step is not None else self._closing_in(nearest)

    def _in_steps(self, nearest: Nearest) -> Iterator[Candidate]:
        """One candidate per margin."""
        found, step, number = nearest.at(self.margin), self.step or 0.0, 0
        if found is None:
            yield from _largest(nearest)
        while found is not None:
            yield Candidate(found.point)
            number += 1
            while self.margin + number * step <= found.reach:  # the same point would come out
                number += 1
            margin = self.margin + number * step
            found = nearest.at(margin) if margin <= self.max_margin else None

    def _closing_in(self, nearest: Nearest) -> Generator[Candidate, float | None, None]:
        """Candidates that only ask how far they are from passing, until one passes that is close to the cheapest."""
        found = nearest.at(self.margin)
        if found is None:
            yield from _largest(nearest)
            return
        slack = yield Candidate(found.point, final=False)
        bracket = _Bracket(self.margin, self.max_margin)
        while slack is not None:
            bracket.note(found, slack)
            margin = bracket.next_margin()
            while margin is not None:
                further = nearest.at(margin)
                if bracket.is_news(further):
                    break
                margin = bracket.next_margin()
            if margin is None or further is None:
                break
            found = further
            slack = yield Candidate(found.point, final=False)
        last = found if slack is None else bracket.passing
        if last is not None:
            yield Candidate(last.point)
            yield from self._growing(nearest, last)

    def _growing(self, nearest: Nearest, found: NearestPoint) -> Iterator[Candidate]:
        """Candidates with margins that grow slowly at first, then faster."""
        growth, last = FIRST_GROWTH, found if found.margin <= self.max_margin else None
        while last is not None:
            margin = last.margin + max(growth * last.margin, LEAST_STEP)
            growth = min(2 * growth, LAST_GROWTH)
            last = nearest.at(margin) if margin <= self.max_margin else None
            if last is not None:
                yield Candidate(last.point)


def _largest(nearest: Nearest) -> Iterator[Candidate]:
    """The point with the largest margin, where the first margin is out of reach."""
    found = nearest.widest()
    if found is not None:
        yield Candidate(found.point)


class _Bracket:
    """Margins that failed and passed, and where between them the least that passes should be.

    From one point to the next the slack grows about as much as the margin, so that two looks tell where it is 0.
    """

    def __init__(self, margin: float, ceiling: float) -> None:
        self.asked, self.top, self.tries = margin, ceiling, 0
        self.failed: list[tuple[NearestPoint, float]] = []
        self.passing: NearestPoint | None = None
        self.spare, self.missed = 0.0, 0

    def note(self, found: NearestPoint, slack: float) -> None:
        """Keep what a look at the point for the margin asked for has shown."""
        if slack < 0:
            self.failed.append((found, slack))
        else:
            self.passing, self.spare, self.top = found, slack, self.asked

    def is_news(self, found: NearestPoint | None) -> bool:
        """Whether the point for the margin asked for is worth a look; if not, the margin is as good as a higher one."""
        known = found is None or (self.passing is not None and found.margin >= self.passing.margin)
        self.missed += found is None
        if known:
            self.top = self.asked
        return not known

    def next_margin(self) -> float | None:
        """What to ask for next; None if the least margin that passes is known well enough, or out of reach."""
        self.tries += 1
        if not self.failed or self.tries > TRIES or self.missed > MISSES or self._is_narrow():
            return None
        last, slack = self.failed[-1]
        if self.passing is None:
            wish = last.margin - slack / self._slope() + CLOSE * last.margin
        else:
            share = slack / (slack - self.spare) if slack > -np.inf else 0.5
            wish = last.margin + share * (self.passing.margin - last.margin)
            if not self._jumps() and self.top - wish <= CLOSE * self.top:
                return None
            # rather a little too far than not far enough; where margins jump, not beyond a point that is just enough
            wish += -CLOSE * self.top if self._jumps() else 0.4 * CLOSE * self.top
        inside = last.reach < wish < self.top and self.tries < TRIES / 2
        self.asked = wish if inside else 0.5 * (last.reach + self.top)
        return self.asked

    def _is_narrow(self) -> bool:
        """Whether nothing worth mentioning can be between what failed and what passed."""
        return self.top - self.failed[-1][0].reach <= (0.1 * CLOSE if self._jumps() else CLOSE) * self.top

    def _jumps(self) -> bool:
        """Whether the point that passed has a larger margin than was asked for, as where features go in steps."""
        return self.passing is not None and self.passing.margin > (1 + CLOSE) * self.top

    def _slope(self) -> float:
        """How much slack a margin brings, from the last two that failed."""
        if len(self.failed) < 2:
            return 1.0
        (a, s), (b, t) = self.failed[-2:]
        grown = b.margin - a.margin
        return float(np.clip((t - s) / grown, 0.25, 4.0)) if grown > 0 and s > -np.inf else 1.0


def network_of(task: Task) -> tuple[FeedForward, list[Piece | None]]:
    """The network behind the preprocessing, and what each feature adds to the pre-activations of its first layer."""
    assert isinstance(task.model, Dense)
    net = task.model.as_feedforward()
    pieces = task.once("milp/pieces", lambda: pieces_of(task))
    if pieces.complaint is not None:
        raise Unsupported(pieces.complaint)
    return net, [None if piece is None else piece.through(net.weights[0]) for piece in pieces.parts]
