"""First failures along rays, exact or on a grid fixed beforehand, and the order statistic that is certified.

Bounds (`Rays.floors`) decide which rays get a closer look, never chance; how far to look (`reach`) is guessed and
enlarged until enough failures were found.
"""

from collections.abc import Sequence
from itertools import pairwise
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
from apas.models.base import ROUNDING
from apas.models.feedforward import FeedForward
from apas.models.forward import GELU_STEEPEST, LEAKY_SLOPE, activate, margins_from_scores
from apas.worst_case.intervals import rivals

#: Largest second derivative of the smooth activations, rounded up in the last digit: 4 / (3 sqrt(3)) of tanh,
#: 1 / (6 sqrt(3)) of sigmoid, exactly 1/4 and 1 of softplus and elu, 2 phi(0) = sqrt(2 / pi) of gelu.
CURVATURE = {"tanh": 0.76980036, "sigmoid": 0.09622505, "softplus": 0.25, "elu": 1.0, "gelu": 0.79788457}
#: The one Lipschitz constant that is above 1.
STEEPEST = {"gelu": GELU_STEEPEST}


def chord_gaps(name: str, first: Floats, last: Floats) -> tuple[Floats | None, Floats | None]:
    """How far the activation can lie below and above the chord between its values at `first` and `last`; None is 0."""
    if name in CURVATURE:
        # a function leaves its chord over a width w by at most w**2 / 8 times its largest second derivative
        gap = (last - first) ** 2 * (CURVATURE[name] / 8)
        return gap, gap
    if name == "relu":
        return _kink(first, last), None
    if name == "leaky_relu":
        return (1 - LEAKY_SLOPE) * _kink(first, last), None
    if name == "hard_tanh":
        return _kink(first + 1, last + 1), _kink(first - 1, last - 1)
    return None, None


def _kink(first: Floats, last: Floats) -> Floats:
    """Largest distance between max(z, 0) and its chord, where z runs from `first` to `last` through 0."""
    gap = first * last
    np.minimum(gap, 0.0, out=gap)  # the same sign at both ends: no kink in between
    width = last - first
    np.abs(width, out=width)
    width += 1e-300  # without a width there is no gap either
    gap /= width
    np.negative(gap, out=gap)
    return np.asarray(gap)


#: Values of every layer before and after its activation, (rows, units, samples).
_Path = list[tuple[Floats, Floats]]


class Rays:
    """A block of rows against a block of directions."""

    def __init__(self, net: FeedForward, X: Floats, wanted: Indices, directions: Floats) -> None:
        self.net, self.wanted = net, wanted
        flat = np.ascontiguousarray(directions.T)
        samples = flat.shape[1]
        parts = net.parameters.slices
        self.slopes = [  # per layer: how fast weights (inputs, outputs, samples) and biases (outputs, samples) move
            (flat[parts[2 * i]].reshape(*w.shape, samples), flat[parts[2 * i + 1]]) for i, w in enumerate(net.weights)
        ]
        first = self.slopes[0][0]
        self.z0 = (X @ net.weights[0] + net.biases[0])[:, :, None]
        self.z1 = (X @ first.reshape(len(first), first.shape[1] * samples)).reshape(len(X), first.shape[1], samples)
        self.z1 += self.slopes[0][1]
        self._sizes: dict[int, Floats] = {}

    def margins(self, t: Floats) -> Floats:
        """Margins at ``t`` (one per row), shape (rows, samples)."""
        scores = self._path(t)[-1][0]
        return self._margin(np.broadcast_to(scores, (*scores.shape[:2], self.z1.shape[2])))

    def _margin(self, scores: Floats) -> Floats:
        return np.asarray(margins_from_scores(scores.transpose(2, 0, 1), self.wanted, self.net.offset).T)

    def floors(self, points: list[Floats]) -> Floats:
        """Lower bounds between neighbouring `points` (each one t per row), (intervals, rows, samples)."""
        paths = [self._path(t) for t in points]
        return np.stack([self._between(*pair) for pair in pairwise(zip(points, paths, strict=True))])

    def _path(self, t: Floats) -> _Path:
        """Values of every layer before and after its activation; at t = 0 one sample stands for all."""
        at_start = not t.any()  # where all samples are the network itself
        z = self.z0 if at_start else self.z0 + t[:, None, None] * self.z1
        path = []
        for i, name in enumerate(self.net.activations):
            a = activate(name, z.copy())
            path.append((z, a))
            if at_start:
                z = np.matmul(self.net.weights[i + 1].T, a) + self.net.biases[i + 1][:, None]
            else:
                (slope, bias_slope), far = self.slopes[i + 1], t[:, None, None]
                z = np.einsum("mis,ios->mos", far * a, slope)
                z += np.matmul(self.net.weights[i + 1].T, a)
                z += self.net.biases[i + 1][:, None] + far * bias_slope
        return [*path, (z, z)]

    def _between(self, left: tuple[Floats, _Path], right: tuple[Floats, _Path]) -> Floats:
        """A lower bound on the margin between two points whose paths are known."""
        start, stop = left[0][:, None, None], right[0][:, None, None]
        below: Floats | None = None
        above: Floats | None = None
        for i, name in enumerate(self.net.activations):
            (first, a_first), (last, a_last) = left[1][i], right[1][i]
            gap_below, gap_above = chord_gaps(name, first, last)
            if name in STEEPEST and below is not None and above is not None:
                # the one that is not monotone passes deviations on to both sides, at most as much steeper as it is
                below = above = STEEPEST[name] * np.maximum(below, above)
            below, above = (
                b if a is None else a if b is None else a + b for a, b in ((below, gap_below), (above, gap_above))
            )
            step = a_last - a_first
            step *= (stop - start) / 4
            below, above = self._deviation(i + 1, step, below, above, stop)
        return self._least((left[1][-1][0], right[1][-1][0]), below, above)

    def _deviation(
        self, layer: int, step: Floats, below: Floats | None, above: Floats | None, stop: Floats
    ) -> tuple[Floats, Floats]:
        """How far the next layer can lie below and above its chord; `step` holds da / 4 times the width in t."""
        # dw da > 0 bends the sum below its chord by up to a quarter of itself, < 0 above it. Up to t = stop a weight
        # w + t u is at most w+ + stop u+ and at least -(w- + stop u-). With p the quantities that go with u+ below and
        # u- above, and q the others, both sums come from p + q with abs(u) and p - q with u
        slope = self.slopes[layer][0]
        if layer not in self._sizes:
            self._sizes[layer] = np.abs(slope)
        size = self._sizes[layer]
        both, difference = np.abs(step), step  # p + q and p - q
        for deviation, sign in ((below, 1.0), (above, -1.0)):
            if deviation is not None:
                moved = stop * deviation
                both += moved
                difference += moved if sign > 0 else -moved
        spread, bend = np.einsum("mis,ios->mos", both, size), np.einsum("mis,ios->mos", difference, slope)
        low, high = (spread + bend) / 2, (spread - bend) / 2
        weights = self.net.weights[layer].T
        for deviation, same, other in ((below, low, high), (above, high, low)):
            if deviation is not None:
                same += np.matmul(np.maximum(weights, 0.0), deviation)
                other += np.matmul(np.maximum(-weights, 0.0), deviation)
        return low, high

    def _least(self, ends: tuple[Floats, Floats], below: Floats | None, above: Floats | None) -> Floats:
        """Least margin between the ends: the lower one, less how far the wanted score falls and its rivals rise."""
        lower = np.minimum(self._margin(np.broadcast_to(ends[0], ends[1].shape)), self._margin(ends[1]))
        if below is None or above is None:
            return lower  # without a hidden layer the margin is linear, and least at an end
        if self.net.weights[-1].shape[1] == 1:
            return np.asarray(lower - np.where((self.wanted == 1)[:, None], below[:, 0], above[:, 0]))
        rows = np.arange(len(self.wanted))
        others = above.copy()
        others[rows, self.wanted] = -np.inf
        return np.asarray(lower - below[rows, self.wanted] - others.max(axis=1))


#: Activations as sums of kinks: (scale, shift) of each ``max(z + shift, 0)``, then slope and value of the linear part.
KINKS = {
    "relu": ([(1.0, 0.0)], 0.0, 0.0),
    "leaky_relu": ([(1 - LEAKY_SLOPE, 0.0)], LEAKY_SLOPE, 0.0),
    "identity": ([], 1.0, 0.0),
    "hard_tanh": ([(1.0, 1.0), (-1.0, -1.0)], 0.0, -1.0),
}


def first_ray_failures(rays: Rays, rows: Indices, samples: Indices, t: Floats, band: Floats) -> Floats:
    """For each pair of a row and a sample the least s in [0, t] at which the margin is not above `band`, else inf."""
    first = np.full(len(rows), np.inf)
    for rival in rivals(rays.net, rays.wanted).T:
        (c0, c1, z0, z1), smooth = _terms(rays, rows, samples, rival[rows])
        smooth[:, 0] -= band
        first = np.minimum(first, _first_root(c0, c1, z0, z1, smooth, t))
    return first


def _terms(rays: Rays, rows: Indices, samples: Indices, rival: Indices) -> tuple[Sequence[Floats], Floats]:
    """The margin as sum of (c0 + t c1) max(z0 + t z1, 0), plus a quadratic with coefficients (pairs, 3)."""
    z0, z1 = rays.z0[rows, :, 0], rays.z1[rows, :, samples]
    if not rays.net.activations:  # the first layer is the output itself
        value, slope = (_score_gap(rays, rows, rival, z0) - _threshold(rays, rows), _score_gap(rays, rows, rival, z1))
        empty = np.empty((len(rows), 0))
        return (empty, empty, empty, empty), np.stack([value, slope, np.zeros(len(rows))], axis=1)
    w, b = rays.net.weights[1], rays.net.biases[1]
    slope, bias_slope = rays.slopes[1]
    c0 = _score_gap(rays, rows, rival, np.broadcast_to(w.T, (len(rows), *w.T.shape)))
    c1 = _score_gap(rays, rows, rival, slope[:, :, samples].transpose(2, 1, 0))
    smooth = np.zeros((len(rows), 3))
    smooth[:, 0] = _score_gap(rays, rows, rival, np.broadcast_to(b, (len(rows), len(b)))) - _threshold(rays, rows)
    smooth[:, 1] = _score_gap(rays, rows, rival, bias_slope[:, samples].T)
    units, tilt, level = KINKS[rays.net.activations[0]]
    a0, a1 = tilt * z0 + level, tilt * z1
    smooth[:, 0] += (c0 * a0).sum(axis=1)
    smooth[:, 1] += (c0 * a1 + c1 * a0).sum(axis=1)
    smooth[:, 2] += (c1 * a1).sum(axis=1)
    parts = [(scale * c0, scale * c1, z0 + shift, z1) for scale, shift in units] or [(c0[:, :0],) * 4]
    return [np.hstack(columns) for columns in zip(*parts, strict=True)], smooth


def _score_gap(rays: Rays, rows: Indices, rival: Indices, values: Floats) -> Floats:
    """Values per output (pairs, outputs, ...) as the wanted one minus the rival, or signed for one output."""
    wanted = rays.wanted[rows]
    if values.shape[1] == 1:
        sign = np.where(wanted == 1, 1.0, -1.0)
        return np.asarray(sign.reshape(-1, *[1] * (values.ndim - 2)) * values[:, 0])
    pairs = np.arange(len(rows))
    return np.asarray(values[pairs, wanted] - values[pairs, rival])


def _threshold(rays: Rays, rows: Indices) -> Floats:
    """What the margin is diminished by: the offset of a binary network, towards the wanted class."""
    if len(rays.net.classes) > 2:
        return np.zeros(len(rows))
    return np.where(rays.wanted[rows] == 1, rays.net.offset, -rays.net.offset)


def _first_root(c0: Floats, c1: Floats, z0: Floats, z1: Floats, smooth: Floats, t: Floats) -> Floats:
    """Least s in [0, t] at which the sum of kinks and quadratic is at most 0, else inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = np.where(z0 * z1 < 0, -z0 / z1, np.inf)
        # a unit that begins at its kink comes alive at once if it rises, and never if it falls
        crossing = np.where((z0 == 0) & (z1 > 0), 0.0, crossing)
    crossing = np.where(crossing < t[:, None], crossing, np.inf)
    order = np.argsort(crossing, axis=1)
    starts = np.hstack([np.zeros((len(t), 1)), np.take_along_axis(crossing, order, axis=1)])
    ends = np.minimum(np.hstack([starts[:, 1:], np.full((len(t), 1), np.inf)]), t[:, None])
    active = (z0 > 0).astype(float)
    turns = np.where(np.isfinite(crossing), np.sign(z1), 0.0)  # +1: the unit comes alive, -1: it dies
    pieces = []
    for term, base in zip((c0 * z0, c0 * z1 + c1 * z0, c1 * z1), smooth.T, strict=True):
        change = np.take_along_axis(turns * term, order, axis=1)
        begin = base + (active * term).sum(axis=1)
        pieces.append(np.hstack([begin[:, None], begin[:, None] + np.cumsum(change, axis=1)]))
    return np.asarray(_root_in_piece(pieces[2], pieces[1], pieces[0], starts, ends).min(axis=1))


def _root_in_piece(a: Floats, b: Floats, c: Floats, start: Floats, end: Floats) -> Floats:
    """Least s in [start, end] with a s**2 + b s + c <= 0, else inf; elementwise."""
    inside = start <= end
    start, end = np.where(inside, start, 0.0), np.where(inside, end, 0.0)
    at_start, at_end = (a * start + b) * start + c, (a * end + b) * end + c
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if not np.isfinite(b * b - 4 * a * c).all():
            # a quadratic and a multiple of it have the same roots; beyond 1e150 a square may overflow
            largest = np.max([np.abs(a), np.abs(b), np.abs(c)], axis=0)
            a, b, c = (np.where(largest > 1e150, v / largest, v) for v in (a, b, c))
        # the form of the quadratic formula that loses no digits
        half = -0.5 * (b + np.where(b < 0, -1.0, 1.0) * np.sqrt(b * b - 4 * a * c))
        candidates = [np.where(a != 0, half / a, np.inf), np.where(half != 0, c / half, np.inf)]
    found = np.full(a.shape, np.inf)
    for candidate in candidates:  # NaN, where there is no root, fails both comparisons
        found = np.where((candidate > start) & (candidate <= end), np.minimum(found, candidate), found)
    # an end that is not above 0 is a failure even where rounding has pushed the root out of the piece
    found = np.where(at_end <= 0, np.minimum(found, end), found)
    found = np.where(at_start <= 0, start, found)
    return np.where(inside, found, np.inf)


#: Ratio of neighbouring values of the grid for networks without exact roots: what is lost by it is at most 0.5 %.
RATIO = 1.005
#: How many rays are looked at together, by how many guess the reach, and how many activations are held at a time.
RAYS, GUESSING, BLOCK = 512, (128, 1024), 1 << 17


class RayFailures(NamedTuple):
    """The smallest first failures of a row."""

    radii: Floats
    sure: Floats
    draw: int | None


def has_exact_roots(net: FeedForward) -> bool:
    """Whether the first failure along a ray is known exactly: at most one hidden layer, piecewise linear."""
    return len(net.activations) <= 1 and all(name in KINKS for name in net.activations)


def smallest_failures(
    question: Question, stream: Stream, samples: int, rank: int, limit: float, start: Floats
) -> list[RayFailures]:
    """At least the `rank` smallest clear failures up to `limit` of each row, fewer if there are not so many."""
    search = RaySearch(question, stream, samples, limit, start)
    reach = search.guess(rank)
    found: list[Any] = [None] * len(question)
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

    def __init__(self, question: Question, stream: Stream, samples: int, limit: float, start: Floats) -> None:
        assert question.network is not None  # it alone has rays
        self.question, self.net, self.stream, self.samples = question, question.network, stream, samples
        self.limit, self.start, self.exact = limit, start, has_exact_roots(self.net)
        # behind one hidden layer chords are close enough over the whole reach; deeper, half of it is needed
        self.shares = (0.0, 1.0) if len(self.net.activations) < 2 else (0.0, 0.5, 1.0)
        widest = max(w.shape[1] for w in self.net.weights)
        # directions of a block hold 2**18 numbers: in tiles of 128 as they are drawn, or 16 of a large network
        self.rays = max(1, min(RAYS, (1 << 18) // max(1, len(self.net.parameters)) // 128 * 128 or 16))
        self.rows = max(1, BLOCK // (widest * self.rays))

    def guess(self, rank: int) -> Floats:
        """A delta per row at which somewhat more rays have failed than are needed."""
        count = min(self.samples, GUESSING[self.samples > 4096])
        # half as many again, and 3: with fewer rays than are certified, the share that fails is a guess
        wanted = min(count, int(np.ceil(1.5 * rank / self.samples * count)) + 3)
        reach = np.empty(len(self.question))
        directions = self.question.directions(self.stream, 0, count)
        step = max(1, self.rows * self.rays // count)
        for first in range(0, len(self.question), step):
            part = slice(first, first + step)
            rays = Rays(self.net, self.question.X[part], self.question.wanted[part], directions)
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
            directions = self.question.directions(self.stream, begin, end)
            for first in range(0, len(rows), self.rows):
                part = slice(first, first + self.rows)
                some = rows[part]
                rays = Rays(self.net, self.question.X[some], self.question.wanted[some], directions)
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
        found = []
        for mine in pairs:
            radii, sure, draws = [np.concatenate(part) for part in zip(*mine, strict=True)] or [np.empty(0)] * 3
            clear = np.isfinite(sure)
            sure, draws = sure[clear], draws[clear]
            earliest = int(draws[np.lexsort((draws, sure))[0]]) if len(sure) else None
            found.append(RayFailures(np.sort(radii), np.sort(sure), earliest))
        return found

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


#: How much a root is taken to be smaller than computed: "valid below D" says nothing about D itself.
BELOW = 1 - 1e-9


def along_rays(
    question: Question, claim: Most, stream: Stream, plan: Plan, limit: float, known: tuple[Floats, ...], trace: Trace
) -> list[MaxShift]:
    """The order statistic of first failures along rays, as an answer per row; `known` is what is proved and broken."""
    network, (proved, broken) = question.network, known
    assert network is not None  # it alone has rays
    stream, (samples, allowed, refuting) = stream.part("rays"), plan
    start = np.where(proved > 0, proved, limit * 1e-6)  # where a grid begins of which nothing is proved
    exact = has_exact_roots(network)
    parts = row_parts(len(start), question.n_jobs, per_worker=1)
    jobs = ((question.take(rows), stream, samples, refuting, limit, start[rows]) for rows in parts)
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
