"""First failures along rays, exact or on a grid fixed beforehand, and the order statistic that is certified.

Bounds (`Rays.floors`) decide which rays get a closer look, never chance; how far to look (`reach`) is guessed and
enlarged until enough failures were found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from apas._parallel import in_parallel, row_parts
from apas._random import Stream
from apas._typing import Floats, Indices, Integers
from apas.certification.claims import Most
from apas.certification.max_shift.proved import first_break
from apas.certification.max_shift.result import MaxShift, Plan, Trace
from apas.certification.question import Question
from apas.display.progress import Progress
from apas.models.base import ROUNDING, class_indices
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, margins_from_scores
from apas.worst_case.rays import KINKS, Rays, first_ray_failures

#: Ratio of neighbouring values of the grid for networks without exact roots: what is lost by it is at most 0.5 %.
RATIO = 1.005
#: How many rays are looked at together, by how many guess the reach, and how many activations are held at a time.
RAYS, GUESSING, BLOCK = 512, (128, 1024), 1 << 17


class RayFailures(NamedTuple):
    """The smallest first failures of a row."""

    radii: Floats
    sure: Floats
    draw: int | None


_NOTHING = RayFailures(np.empty(0), np.empty(0), None)


def has_exact_roots(net: FeedForward) -> bool:
    """Whether the first failure along a ray is known exactly: at most one hidden layer, piecewise linear."""
    return len(net.activations) <= 1 and all(name in KINKS for name in net.activations)


def smallest_failures(
    question: Question, net: FeedForward, stream: Stream, samples: int, rank: int, limit: float, start: Floats
) -> list[RayFailures]:
    """At least the `rank` smallest clear failures up to `limit` of each row, fewer if there are not so many."""
    search = RaySearch(question, net, stream, samples, limit, start)
    reach = search.guess(rank)
    found = [_NOTHING] * len(question)
    rows = np.arange(len(question))
    with Progress(samples, "looking along rays") as progress:
        while len(rows):
            for row, answer in zip(rows, search.scan(rows, reach[rows], progress), strict=True):
                found[row] = answer
            short = np.array([len(found[row].sure) < rank for row in rows]) & (reach[rows] < limit)
            rows = rows[short]
            # a guess that was too short is so by a little as a rule: what is looked at again should not be much
            reach[rows] = np.minimum(1.4 * reach[rows], limit)
    return found


class RaySearch:
    """First failures of rows along one sample of rays, block by block."""

    def __init__(
        self, question: Question, net: FeedForward, stream: Stream, samples: int, limit: float, start: Floats
    ) -> None:
        self.question, self.net, self.stream, self.samples = question, net, stream, samples
        self.limit, self.start, self.parameters = limit, start, question.model.parameters
        self.wanted = class_indices(question.model.classes, question.one_target, len(question))
        self.exact = has_exact_roots(net)
        # behind one hidden layer chords are close enough over the whole reach; deeper, half of it is needed
        self.shares = (0.0, 1.0) if len(net.activations) < 2 else (0.0, 0.5, 1.0)
        widest = max(w.shape[1] for w in net.weights)
        # directions of a block hold 2**18 numbers: in tiles of 128 as they are drawn, or 16 of a large network
        self.rays = max(1, min(RAYS, (1 << 18) // max(1, len(net.parameters)) // 128 * 128 or 16))
        self.rows = max(1, BLOCK // (widest * self.rays))

    def draw(self, begin: int, end: int) -> Floats:
        """Directions of a range of draws."""
        return self.question.shifts.directions(self.parameters, self.stream, begin, end)

    def guess(self, rank: int) -> Floats:
        """A delta per row at which somewhat more rays have failed than are needed."""
        count = min(self.samples, GUESSING[self.samples > 4096])
        # half as many again, and 3: with fewer rays than are certified, the share that fails is a guess
        wanted = min(count, int(np.ceil(1.5 * rank / self.samples * count)) + 3)
        reach = np.empty(len(self.question))
        directions = self.draw(0, count)
        step = max(1, self.rows * self.rays // count)
        for first in range(0, len(self.question), step):
            part = slice(first, first + step)
            rays = Rays(self.net, self.question.X[part], self.wanted[part], directions)
            low = np.log(self.start[part])
            high = np.full(len(low), np.log(self.limit))
            for _ in range(10):  # to a 1024th of the orders of magnitude: a guess needs no more
                middle = 0.5 * (low + high)
                enough = (rays.margins(np.exp(middle)) <= 0).sum(axis=1) >= wanted
                low, high = np.where(enough, low, middle), np.where(enough, middle, high)
            reach[part] = np.exp(high)
        return np.minimum(reach, self.limit)

    def scan(self, rows: Indices, reach: Floats, progress: Progress) -> list[RayFailures]:
        """All first failures up to `reach` of some rows."""
        band = ROUNDING * self.net.margin_scale(self.question.X[rows], self.question.radii, reach)
        pairs: list[list[tuple[Floats, Floats, Integers]]] = [[] for _ in rows]
        for begin in range(0, self.samples, self.rays):
            end = min(begin + self.rays, self.samples)
            directions = self.draw(begin, end)
            for first in range(0, len(rows), self.rows):
                part = slice(first, first + self.rows)
                some = rows[part]
                rays = Rays(self.net, self.question.X[some], self.wanted[some], directions)
                points = [share * reach[part] for share in self.shares]
                doubtful = ~(rays.floors(points) > band[part, None])
                row, sample = np.nonzero(doubtful.any(axis=0))
                # nothing fails before the first interval that is in doubt
                begin_at = np.array(self.shares)[doubtful[:, row, sample].argmax(axis=0)] * reach[part][row]
                radii, sure = self.refine(rays, some, row, sample, begin_at, reach[part], band[part])
                hit = np.isfinite(radii)
                for i in np.unique(row[hit]):
                    mine = hit & (row == i)
                    pairs[first + i].append((radii[mine], sure[mine], begin + sample[mine]))
            progress.advance(end - begin)
        return [_sort_failures(p) for p in pairs]

    def refine(
        self, rays: Rays, rows: Indices, row: Indices, sample: Indices, begin: Floats, reach: Floats, band: Floats
    ) -> tuple[Floats, Floats]:
        """Where each pair is no longer clearly valid and where it clearly fails: roots, or values of the row's grid."""
        if not len(row):
            return np.empty(0), np.empty(0)
        if self.exact:
            allowance = band[row]
            first = first_ray_failures(rays, row, sample, reach[row], allowance)
            # a margin of exactly 0 is no clear failure, even where there is nothing to round
            sure = first_ray_failures(rays, row, sample, reach[row], -np.maximum(allowance, 1e-300))
            # where numbers overflow on the way no root is known: nothing is clearly valid, and nothing clearly fails
            known = np.isfinite(allowance)
            return np.where(known, first, 0.0), np.where(known, sure, np.inf)
        start, found = self.start[rows][row], np.full((2, len(row)), np.inf)
        first = np.floor(np.log(np.maximum(begin, start) / start) / np.log(RATIO)).astype(np.intp)
        last = last_rung(start, reach[row], self.limit)
        count = last - first + 1
        chunk = max(1, BLOCK // int(count.max()) // max(w.shape[1] for w in self.net.weights))
        order = np.argsort(count)  # pairs with as many rungs go together
        for a in range(0, len(row), chunk):
            part = order[a : a + chunk]
            rungs = first[part, None] + np.arange(int(count[part].max()))
            values = rung_value(start[part, None], rungs, self.limit)
            margins = _along(rays, row[part], sample[part], values)
            looked, allowance = rungs <= last[part, None], band[row[part], None]
            for answer, failing in zip(found, (~(margins > allowance), ~(margins >= -allowance)), strict=True):
                hit = failing & looked
                where = np.take_along_axis(values, hit.argmax(axis=1)[:, None], axis=1)[:, 0]
                answer[part] = np.where(hit.any(axis=1), where, np.inf)
        return found[0], found[1]


def rung_value(start: Any, rung: Any, limit: float) -> Any:
    """Value of a rung of the grid: a geometric sequence from `start` that ends at `limit`."""
    return np.minimum(start * RATIO**rung, limit)


def last_rung(start: Floats, reach: Floats, limit: float) -> Indices:
    """Number of the last rung that is not above `reach`; `limit` itself is the last of all."""
    # a reach that is a rung itself must count although its logarithm is rounded: 1e-9 of a rung is far more than that
    below = np.floor(np.log(reach / start) / np.log(RATIO) + 1e-9).clip(0)
    last = np.ceil(np.log(limit / start) / np.log(RATIO) - 1e-9)
    return np.asarray(np.where(reach >= limit, last, below).astype(np.intp))


def _along(rays: Rays, row: Indices, sample: Indices, values: Floats) -> Floats:
    """Margins of pairs at several values of t each, shape (pairs, values)."""
    t = values[:, :, None]
    z = rays.z0[row, None, :, 0] + t * rays.z1[row, :, sample][:, None, :]
    for i, name in enumerate(rays.net.activations):
        a = activate(name, z)
        slope, bias_slope = rays.slopes[i + 1]
        z = np.matmul(t * a, slope[:, :, sample].transpose(2, 0, 1)) + a @ rays.net.weights[i + 1]
        z += rays.net.biases[i + 1] + t * bias_slope[:, sample].T[:, None, :]
    return margins_from_scores(z.transpose(1, 0, 2), rays.wanted[row], rays.net.offset).T


def _sort_failures(pairs: list[tuple[Floats, Floats, Integers]]) -> RayFailures:
    if not pairs:
        return _NOTHING
    radii, sure, draws = (np.concatenate(column) for column in zip(*pairs, strict=True))
    clear = np.isfinite(sure)
    if not clear.any():
        return RayFailures(np.sort(radii), np.empty(0), None)
    earliest = int(draws[clear][np.lexsort((draws[clear], sure[clear]))[0]])
    return RayFailures(np.sort(radii), np.sort(sure[clear]), earliest)


#: How much a root is taken to be smaller than computed: "valid below D" says nothing about D itself.
BELOW = 1 - 1e-9


def along_rays(
    question: Question,
    claim: Most,
    stream: Stream,
    plan: Plan,
    limit: float,
    proved: Floats,
    broken: Floats,
    trace: Trace,
) -> list[MaxShift]:
    """The order statistic of first failures along rays, as an answer per row."""
    network = question.network
    assert network is not None  # it alone has rays
    stream, (samples, allowed, refuting) = stream.part("rays"), plan
    start = np.where(proved > 0, proved, limit * 1e-6)  # where a grid begins of which nothing is proved
    exact = has_exact_roots(network)
    if question.n_jobs == 1 or len(start) == 1:
        found_rays = smallest_failures(question, network, stream, samples, refuting, limit, start)
    else:
        parts = row_parts(len(start), question.n_jobs, per_worker=1)
        jobs = ((question.take(rows), network, stream, samples, refuting, limit, start[rows]) for rows in parts)
        found_rays = [one for part in in_parallel(smallest_failures, jobs, question.n_jobs) for one in part]
    answers = []
    for i, found in enumerate(found_rays):
        enough, refuted = len(found.radii) > allowed, len(found.sure) >= refuting
        if exact:
            way, grid = "along the whole way up to delta", {}
            delta = float(found.radii[allowed]) * BELOW if enough else limit
            upper = float(found.sure[refuting - 1]) / BELOW if refuted else np.inf
        else:
            way = f"at every grid value (ratio {RATIO}) up to delta"
            grid = {"rungs_from": float(start[i]), "rungs_ratio": RATIO}
            delta = limit
            if enough:  # the rung before the one that failed; 0 before the first
                rung = int(last_rung(start[i : i + 1], found.radii[allowed : allowed + 1], limit)[0])
                delta = float(rung_value(start[i], rung - 1, limit)) if rung else 0.0
            upper = float(found.sure[refuting - 1]) if refuted else np.inf
        reason = f"{way}{'' if enough else ', which is the limit'}: at most {allowed} of {samples} rays failed before"
        if delta <= proved[i]:
            delta = float(proved[i])
            unsure = "within rounding of the boundary, where nothing is certified"
            reason = "proved for every shift" if delta else unsure
        breaks = float(broken[i])
        if np.isinf(breaks) and found.draw is not None:
            # where the first ray clearly fails, if the model itself agrees that it does
            direction = question.shifts.directions(question.model.parameters, stream, found.draw, found.draw + 1)
            breaks = float(first_break(question.take(slice(i, i + 1)), direction, found.sure[:1])[0])
        ends = (delta, max(upper, delta), float(proved[i]), breaks, False, delta >= limit)
        told = {**trace, "exact_roots": exact, **grid}
        answers.append(MaxShift(*ends, claim, question.target[i], reason, told))
    return answers
