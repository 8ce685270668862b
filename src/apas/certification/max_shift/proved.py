"""The largest delta that is proved for every shift, and the shift that breaks a row just beyond it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apas._parallel import in_parallel
from apas._typing import Floats
from apas.certification.certificate import confirmed_witness
from apas.certification.claims import Every
from apas.certification.max_shift.result import MaxShift
from apas.certification.methods.attack import broken_deltas
from apas.certification.question import Question
from apas.display.progress import Progress
from apas.models.feedforward import FeedForward
from apas.shifts.base import Ball, Ellipsoid, Region, Sparse
from apas.shifts.geometry import inside_box
from apas.worst_case.attack import broken_radius
from apas.worst_case.decide import ALL_STEPS, WorstCases
from apas.worst_case.geometry import margins_in
from apas.worst_case.intervals import is_exact

#: How many rows are evaluated on their own shifted models together: each sees all of them, and one counts.
TOGETHER = 64
#: How many numbers the directions of a block of rows hold at most, unless a few rows need more.
NUMBERS = 1 << 21
#: How much larger a delta may be taken until a failing direction fails beyond rounding.
RAISES = (0.0, 1e-8, 1e-6, 1e-4)
#: Relative width at which the bracket around a largest delta counts as closed.
CLOSED = 1e-6
#: Share of the time limit for the first questions at a delta, which doubles once they leave only gaps of this width.
SHARE, NARROW = 1 / 32, 0.01
#: Seconds of one linear bound from which on their bisection keeps the time limit; else it ends, and costs little.
SLOW = 0.1
#: At how many deltas the shift that broke a row is tried again: at most, and at least where shifts are long.
FOLLOWED, FEW = 64, 4
#: What proves a delta, in words.
REASONS = {
    "interval": "proved by interval arithmetic",
    "linear": "proved by linear bounds",
    "exact": "proved for every shift",
    "ball": "proved for every shift of the ball",
}


def proved_deltas(question: Question, network: FeedForward | None, limit: float) -> tuple[Floats, Floats]:
    """Per row the proved delta, and the least one known to break."""
    broken = np.full(len(question), np.inf)
    if network is None:
        return np.zeros(len(question)), broken
    assert isinstance(question.geometry, Region)
    bounds = margins_in(network, question.X, question.wanted, question.geometry)
    proved, open_end = bounds.radius(limit)
    rows = np.flatnonzero(np.isfinite(open_end))
    step = max(TOGETHER, NUMBERS // len(question.radii))
    for part in (rows[start : start + step] for start in range(0, len(rows), step)):
        some = question if len(part) == len(question) else question.take(part)
        # a little beyond what could not be proved, so that the corner there fails by more than rounding
        # (1e-9 is far above the rounding of a margin, and 1e-300 keeps a delta of 0 from having no corners)
        beyond = np.maximum(open_end[part] * (1 + 1e-9), 1e-300)
        corners = (bounds if len(part) == len(question) else bounds.take(part)).worst(beyond)
        if corners is None and isinstance(question.geometry, Sparse):  # only an attack on the parameters can find one
            break
        if corners is None:
            beyond, units = broken_radius(network, some.X, some.wanted, question.radii, proved[part], limit)
            corners = units * question.radii
        broken[part] = first_break(some, corners, beyond)
    return proved, broken


def first_break(question: Question, directions: Floats, delta: Floats) -> Floats:
    """Per row the delta, or a little more, at which its own direction breaks it beyond rounding; else infinite."""
    # evaluated outside the search that found the direction, on parameters pulled towards the base until they lie inside
    broken = np.full(len(question), np.inf)
    for more in RAISES:
        rows = np.flatnonzero(np.isinf(broken) & np.isfinite(delta))
        step = max(1, min(TOGETHER, NUMBERS // directions.shape[1]))
        for part in (rows[start : start + step] for start in range(0, len(rows), step)):
            some = question if len(part) == len(question) else question.take(part)
            reached = delta[part] * (1 + more)
            # a shift that stays inside although delta * direction is rounded: twice, by 2**-53 each
            moves = directions[part] * (reached * (1 - 2.0**-50))[:, None]
            margins = np.diag(some.shifts.margins(some.model, some.X, some.one_target, moves, 1.0))
            fails = margins < -some.at(reached).band
            broken[part[fails]] = reached[fails]
    return broken


def worst_case(question: Question, claim: Every, limit: float, kind: str, time_limit: float) -> list[MaxShift]:
    """Algorithm 4: the largest delta at which every shift is proved to keep the class, by one `kind` of method."""
    network = question.network
    assert network is not None
    proved, broken = proved_deltas(question, network, limit)
    closed = is_exact(network)
    reason, still_open = "interval" if closed else kind, [""] * len(question)
    if isinstance(question.geometry, Ball | Ellipsoid) or (isinstance(question.geometry, Sparse) and not closed):
        reason = {Ball: "ball", Ellipsoid: "exact"}.get(type(question.geometry), "interval")
        broken = broken_deltas(question, proved, limit)[0]
    elif not closed and kind != "interval":
        rows = np.flatnonzero(proved < limit).tolist()
        some = ((question.take(slice(i, i + 1)), float(proved[i]), float(broken[i]), limit) for i in rows)
        jobs = [(_DeltaBracket(*one), kind, time_limit) for one in some]
        with Progress(len(rows), "closing in on the largest shift") as progress:
            for i, answer in zip(rows, in_parallel(_DeltaBracket.close, jobs, question.n_jobs), strict=True):
                proved[i], broken[i], late = answer
                why = f"was not closed within {time_limit:g} seconds" if late else "stays open even with more time"
                still_open[i] = f"; the gap up to `broken_at` {why}" if kind == "exact" else ""
                progress.advance(1)
    answers = list[MaxShift]()
    for low, high, gap, target in zip(proved.tolist(), broken.tolist(), still_open, question.target, strict=True):
        ended = low == limit
        sharp = ended or 0 < high <= low * (1 + 2 * CLOSED)  # bisection closes to CLOSED of the upper end
        text = "never fails up to the limit" if ended else REASONS[reason]
        if not ended:
            text += ", and just beyond it a shift fails" if sharp else gap
        if not low:
            text = "the model itself is within rounding of the boundary, or no bound was found"
        trace = {"method": kind, "claim": "every shift up to delta"}
        answers.append(MaxShift(low, high, low, high, sharp, ended, claim, target, text, trace))
    return answers


@dataclass
class _DeltaBracket:
    """The largest delta of one row: proved up to `low`, broken at `broken`, asked in between until the deadline."""

    alone: Question
    low: float
    broken: float
    limit: float
    deadline: float = np.inf

    def close(self, kind: str, time_limit: float) -> tuple[float, float, bool]:
        """Close the bracket between a proved delta and one that is broken, or not proved; and whether time ran out."""
        self.deadline = time.monotonic() + time_limit
        self.close_linear()
        if kind == "exact" and self.low:
            self.close_exactly(time_limit)
        return self.low, self.broken, time.monotonic() >= self.deadline

    def decide(self, delta: float, steps: Sequence[str], seconds: float = np.inf) -> bool | None:
        """True if proved at `delta`, False if broken by a shift, else None; either moves an end of the bracket."""
        here, network, directions = self.alone.at(delta), self.alone.network, list[Floats]()
        assert network is not None

        def accept(_: int, direction: Floats) -> bool:
            values = inside_box(network.parameters.values, self.alone.reach, delta, direction)
            directions.append(direction)
            return confirmed_witness(here, 0, values) is not None

        left = max(min(seconds, self.deadline - time.monotonic()), 0.0)
        asked = (network, self.alone.X, self.alone.wanted, self.alone.radii, delta)
        found = WorstCases(*asked, steps=steps, accept=accept, time_limit=left).run()[0]
        if found.proved:
            self.low = max(self.low, delta)
        elif found.broken:
            # and the least delta, of some below, at which the direction that broke the row breaks it
            count = int(np.clip(NUMBERS // len(self.alone.radii), FEW, FOLLOWED))
            moves = np.broadcast_to(directions[-1] * self.alone.radii, (count, len(self.alone.radii)))
            many = self.alone.take(np.zeros(count, dtype=np.intp))
            follows = first_break(many, moves, np.linspace(self.low, delta, count + 2)[1:-1])
            self.broken = min(self.broken, delta, float(follows.min()))
        return None if found.open else found.proved

    def close_linear(self) -> None:
        """Bisect what linear bounds prove; a delta that they do not prove bounds the search, and says nothing else."""
        steps, high = ("interval", "linear"), min(self.broken, self.limit)
        # what is not proved at 1e-12 of the limit counts as not proved at all: no bisection would end
        if self.low == 0.0 and self.decide(1e-12 * self.limit, steps) is not True:
            return
        if high == self.limit and self.broken > self.limit and self.decide(self.limit, steps) is True:
            return
        slow = False
        while high - self.low > CLOSED * high and not (slow and time.monotonic() > self.deadline):
            middle, began = _between(self.low, high), time.process_time()
            if not self.low < middle < high:
                break
            high = high if self.decide(middle, steps) is True else middle
            slow = time.process_time() - began > SLOW

    def close_exactly(self, time_limit: float) -> None:
        """Close in from both ends; a delta that stays open in its share of the time is gone round on either side."""
        share, open_deltas, tried, late = SHARE * time_limit, list[float](), None, False
        while time.monotonic() < self.deadline:
            high = min(self.broken, self.limit)
            if high - self.low <= CLOSED * high:
                return
            open_deltas = [d for d in open_deltas if self.low < d < high]
            if open_deltas:
                # the wider of the gaps below and above what is open
                below, above = (self.low, min(open_deltas)), (max(open_deltas), high)
                gap = max(below, above, key=lambda ends: (ends[1] - ends[0]) / ends[1])
                if gap[1] - gap[0] <= (NARROW if late else CLOSED) * gap[1]:
                    if not late:  # what is open is within rounding, and stays so
                        return
                    share, open_deltas, late = 2 * share, [], False
                    continue
                delta = _between(*gap)
            elif tried is None or self.broken < tried * (1 - 2 * CLOSED):
                # just below what is broken, for the shift that is known is often the worst one; or all that was asked
                delta = self.limit if self.broken > self.limit else high * (1 - CLOSED)
                tried = self.broken
            else:
                delta = _between(self.low, high)
            if not self.low < delta <= high:
                return
            began = time.monotonic()
            if self.decide(delta, ALL_STEPS, share) is None:
                open_deltas.append(delta)
                late = late or time.monotonic() - began > 0.5 * share


def _between(low: float, high: float) -> float:
    """By orders of magnitude where the bracket is wide: below a factor of 4 the two means hardly differ."""
    return float((low * high) ** 0.5 if 0 < 4 * low < high else 0.5 * (low + high))
