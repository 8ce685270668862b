"""The share of valid shifts by halving the box of shifts: Algorithm 3 of the paper.

The tree stores per pair of halves whose they are and along which axis: a dozen bytes, and volumes of exactly
2**-depth. Open parts count with the shares of them that are proved (`share_below`), which the paper does not.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apas._typing import Array, Bools, Floats, Indices, Integers
from apas.models.feedforward import FeedForward
from apas.worst_case.enumeration.box_bounds import margin_lines, margin_slopes, share_below


class PartBounds(NamedTuple):
    """What is known about parts of a box; everything holds in real arithmetic."""

    least: Floats
    most: Floats
    failing: Floats | Bools
    valid: Floats | Bools
    effects: Floats
    error: Floats


@dataclass(eq=False)
class ShiftBox:
    """A row, and the box that the parameters of its dense network run through."""

    net: FeedForward
    x: Floats
    wanted: int
    radii: Floats
    delta: float

    def __post_init__(self) -> None:
        self.moving = np.flatnonzero(self.radii)  # numbers of the parameters that move: the axes of the cube
        self._reach = self.delta * self.radii[self.moving]
        # more than what the few roundings behind an end of a parameter can do
        self._rounding = 2.0**-50 * (np.abs(self.net.parameters.values[self.moving]) + self._reach)
        # more than what coarser arithmetic does to a margin where the network is used
        self._in_use = float(self.net.rounding(self.x[None], self.radii, self.delta)[0])

    def directions(self, points: Floats) -> Floats:
        """Points of the cube, shape (points, axes), as directions in [-1, 1], shape (points, k)."""
        moves = np.zeros((len(points), len(self.radii)))
        moves[:, self.moving] = 2.0 * points - 1.0
        return moves

    def ends(self, start: Floats, width: Floats) -> tuple[Floats, Floats]:
        """Least and largest value of every parameter in parts of the cube, shape (parts, k)."""
        low = np.repeat(self.net.parameters.values[None, :], len(start), axis=0)
        high = low.copy()
        low[:, self.moving] += self._reach * (2.0 * start - 1.0)
        high[:, self.moving] += self._reach * (2.0 * (start + width) - 1.0)
        return low, high

    def bound(self, start: Floats, width: Floats) -> PartBounds:
        """What is known about parts of the cube, given by their lower corners and widths."""
        rows, wanted = self._items(len(start))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite settles nothing
            least, most, slopes, error = margin_slopes(self.net, rows, wanted, *self._around(start, width), ceiling=0.0)
            effects = slopes[:, self.moving] * (2.0 * self._reach * width)
            error = error + self._in_use
            least, most = least - error, most + error
        return PartBounds(least, most, ~(least > 0), ~(most < 0), effects, error)

    def measure(self, start: Floats, width: Floats) -> PartBounds:
        """What `bound` says, and bounds on the share of each part that fails or is valid."""
        # failing is against any rival, at most the sum of shares; valid is against all, at most the least
        rows, wanted = self._items(len(start))
        middle = self._around(start + 0.5 * width, np.zeros_like(width))
        half = self._reach * width * (1.0 + 2.0**-50)
        effects, failing, valid = np.zeros_like(width), np.zeros(len(width)), np.ones(len(width))
        with np.errstate(over="ignore", invalid="ignore"):
            against = margin_lines(self.net, rows, wanted, self._around(start, width), middle, self._in_use)
            for lines in against:
                low, high = (slope[:, self.moving] * half for slope in lines.slopes)
                settled = lines.least > 0
                failing += np.where(settled, 0.0, share_below(lines.middle[0], low, high))
                valid = np.minimum(valid, share_below(-lines.middle[1], -high, -low))
                np.maximum(effects, 2.0 * np.maximum(-low, high), out=effects, where=~settled[:, None])
        least = np.minimum.reduce([lines.least for lines in against])
        most = np.minimum.reduce([lines.most for lines in against])
        failing, valid = np.minimum(failing, ~(least > 0)), np.minimum(valid, ~(most < 0))
        return PartBounds(least, most, failing, valid, effects, against[0].error)

    def _items(self, count: int) -> tuple[Floats, Indices]:
        return np.broadcast_to(self.x, (count, len(self.x))), np.full(count, self.wanted, dtype=np.intp)

    def _around(self, start: Floats, width: Floats) -> tuple[Floats, Floats]:
        """The ends of parts, rounded outward."""
        low, high = self.ends(start, width)
        low[:, self.moving] -= self._rounding
        high[:, self.moving] += self._rounding
        return low, high


OPEN, VALID, FAILING, HALVED = 0, 1, -1, 2  # what is known about a part


class BoxTree:
    """Parts of the unit cube ``[0, 1]**axes``; number 0 is the cube itself."""

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self._pairs = 0
        self._parent = np.empty(64, dtype=np.int64)
        self._axis = np.empty(64, dtype=np.int32)
        #: Per part how often the cube was halved to get it (its volume is ``2**-depth``), and what is known of it.
        self.depth, self.status = np.zeros(129, dtype=np.int32), np.zeros(129, dtype=np.int8)

    def __len__(self) -> int:
        return 2 * self._pairs + 1

    def halve(self, nodes: Integers, axes: Indices) -> Integers:
        """Halve parts, each along its axis; the numbers of the halves, lower before upper."""
        first, last = self._pairs, self._pairs + len(nodes)
        if last > len(self._parent):  # what is beyond the halves that there are is set when they are made
            self.resize(max(last, 2 * len(self._parent)))
        self._parent[first:last], self._axis[first:last] = nodes, axes
        halves = np.arange(2 * first + 1, 2 * last + 1)
        self.depth[halves] = np.repeat(self.depth[nodes] + 1, 2)
        self.status[nodes], self.status[halves] = HALVED, OPEN
        self._pairs = last
        return halves

    def volume(self, nodes: Integers) -> Fraction:
        """The share of the cube that some parts make up together, exactly."""
        counts = np.bincount(self.depth[nodes]).tolist()
        return sum((Fraction(count, 1 << depth) for depth, count in enumerate(counts) if count), Fraction(0))

    def having(self, *statuses: int) -> Integers:
        """Numbers of the parts of which one of these is known."""
        return np.flatnonzero(np.isin(self.status[: len(self)], statuses))

    def coordinates(self, nodes: Integers) -> tuple[Floats, Floats]:
        """Lower corner and width of each part, shape (parts, axes): exact, as all of it are multiples of ``2**-k``."""
        start, width = np.zeros((len(nodes), self.axes)), np.ones((len(nodes), self.axes))
        below = np.flatnonzero(nodes > 0)
        nodes = nodes[below]
        while len(nodes):
            pair = (nodes - 1) >> 1
            where = below, self._axis[pair]
            # from the smallest part outward: what is known so far lies in the lower or upper half of what comes next
            start[where] = 0.5 * (start[where] + ((nodes + 1) & 1))
            width[where] *= 0.5
            nodes = self._parent[pair]
            if not nodes.all():
                below, nodes = below[nodes > 0], nodes[nodes > 0]
        return start, width

    def resize(self, pairs: int) -> None:
        """Have memory for so many pairs of halves."""
        for name, size in (("_parent", pairs), ("_axis", pairs), ("depth", 2 * pairs + 1), ("status", 2 * pairs + 1)):
            setattr(self, name, np.resize(getattr(self, name), size).copy())


PARTS, NUMBERS = 4096, 1 << 18  # how many parts are looked at together at most, and how many numbers that may take
PROBED = 128  # the same while a single failing shift is looked for, where what is found decides what to look at next
THIN = 2.0**-40  # a part that is thinner along an axis is not halved along it
UNITS = 2**40  # shares of a part are counted in units of one in this many; sums of them stay exact in float64
Probe = Callable[[Floats, Floats], bool]  # finds a failing shift in parts, given as lower corners and widths


class Partition(NamedTuple):
    """What is robust, non-robust and undecided: volumes whose sum is exactly 1, or the interval networks themselves."""

    robust: Any
    non_robust: Any
    undecided: Any


def float_below(number: Fraction) -> float:
    """The largest float64 number that does not exceed a rational one."""
    try:
        nearest = float(number)  # correctly rounded; to compare it with a fraction is exact
    except OverflowError:
        nearest = math.copysign(math.inf, number)
    return nearest if nearest <= number else math.nextafter(nearest, -math.inf)


def float_above(number: Fraction) -> float:
    """The least float64 number that a rational one does not exceed."""
    return 0.0 - float_below(-number)


@dataclass(frozen=True, eq=False)
class Split:
    """A box of shifts, cut into parts that are valid, that fail, and that are open."""

    box: ShiftBox
    tree: BoxTree
    lower: Fraction
    upper: Fraction
    evaluated: int
    stopped: str

    @property
    def interval(self) -> tuple[float, float]:
        """Both bounds in float64, rounded down and up."""
        return float_below(self.lower), float_above(self.upper)

    @property
    def volumes(self) -> Partition:
        """What the settled and the open parts make up, each counted as a whole, as the paper does."""
        return Partition(*(self.tree.volume(self.tree.having(status)) for status in (VALID, FAILING, OPEN)))

    @property
    def open(self) -> int:
        """How many parts are not settled."""
        return len(self.tree.having(OPEN))

    def boxes(self) -> tuple[Floats, Floats, NDArray[np.int8]]:
        """Settled parts: ends of every parameter, shape (parts, k), and 1 for valid or -1 for failing."""
        nodes = self.tree.having(VALID, FAILING)
        return *self.box.ends(*self.tree.coordinates(nodes)), self.tree.status[nodes]


def split(
    box: ShiftBox, *, time_limit: float | None = None, report: Callable[[int], None] | None = None, **asked: Any
) -> Split:
    """Cut a box of shifts into parts until enough is known, as `_Run` is asked."""
    run = _Run(box, deadline=math.inf if time_limit is None else time.monotonic() + time_limit, **asked)
    run.look(np.zeros(1, dtype=np.int64))
    while (stopped := run.stopped()) is None:
        before = run.evaluated
        run.look(run.halved())
        if report is not None:
            report(run.evaluated - before)
    run.tree.resize(len(run.tree) // 2)  # gives back the memory that nothing is stored in
    return Split(box, run.tree, run.lower, run.upper, run.evaluated, stopped)


@dataclass(eq=False)
class _Run:
    """The state of `split`: the tree, the open parts, those with the least keys first, and what is known of volumes.

    It ends where the share is known to a `gap`, on its side of `coverage` or, with a `precision`, where less is open.
    """

    box: ShiftBox
    gap: Fraction
    max_boxes: int
    deadline: float
    coverage: Fraction | None = None
    probe: Probe | None = None
    precision: Fraction | None = None

    def __post_init__(self) -> None:
        self.hunts = self.probe is not None and self.precision is None  # for one failing shift, and for nothing else
        self.undecided = Fraction(1)
        self.tree = BoxTree(len(self.box.moving))
        self.valid = self.failing = Fraction(0)  # of the parts there are now
        self.lower, self.upper = Fraction(0), Fraction(1)  # the best so far: a part may be known better than its halves
        self.evaluated = 0
        self.found = False
        self.keys, self.waiting = np.empty(0), list[Array]()
        self.batch = min(max(2, NUMBERS // len(self.box.radii)), PROBED if self.hunts else PARTS)

    def stopped(self) -> str | None:
        """Why to stop now, or None."""
        if self.precision is not None:
            if self.undecided < self.precision:
                return "precision" if self.undecided else "settled"
        elif self.found or (self.coverage is not None and (self.lower >= self.coverage or self.upper < self.coverage)):
            return "decided"
        elif self.lower == self.upper:
            return "settled"
        elif self.upper - self.lower <= self.gap:
            return "gap"
        if not len(self.keys):
            return "rounding"
        if self.evaluated + 2 > self.max_boxes:
            return "limit"
        return "time" if time.monotonic() >= self.deadline else None

    def halved(self) -> Integers:
        """The halves of the parts that come next, or their quarters."""
        left = min(self.batch, self.max_boxes - self.evaluated)
        times = 1 if self.hunts or left < 4 else 2
        count = left // 2**times
        order = np.argpartition(self.keys, count - 1) if count < len(self.keys) else np.arange(len(self.keys))
        nodes, valid, failing, axes = (column[order[:count]] for column in self.waiting)
        self.keys, *self.waiting = (column[order[count:]] for column in (self.keys, *self.waiting))
        self._count(nodes, -valid, -failing)
        nodes = self.tree.halve(nodes, axes[:, 0])
        return nodes if times == 1 else self.tree.halve(nodes, np.repeat(axes[:, 1], 2))

    def look(self, nodes: Integers) -> None:
        """Bound the margin over parts; count and settle them, or let them wait to be halved."""
        start, width = self.tree.coordinates(nodes)
        known = self.box.bound(start, width) if self.hunts else self.box.measure(start, width)
        self.evaluated += len(nodes)
        settled = known.least > 0, known.most < 0
        self.tree.status[nodes[settled[0]]] = VALID
        self.tree.status[nodes[settled[1]]] = FAILING
        valid, failing = (
            np.where(sure, UNITS, np.minimum(np.floor(UNITS * (1.0 - share)), UNITS - 1))
            for sure, share in zip(settled, (known.failing, known.valid), strict=True)
        )
        self._count(nodes, valid, failing)
        self.lower, self.upper = max(self.lower, self.valid), min(self.upper, 1 - self.failing)
        if self.precision is not None:
            self.undecided -= self.tree.volume(nodes[settled[0] | settled[1]])
        if self.probe is not None and not self.found and not settled[0].all():
            self.found = self.probe(start[~settled[0]], width[~settled[0]])
        effects = np.where(width > THIN, known.effects, 0.0)
        wild = ~np.isfinite(effects).all(axis=1)
        effects[wild] = width[wild]
        # where the margin changes less than rounding could do, no smaller part will be settled either
        waits = ~(settled[0] | settled[1]) & (wild | (effects.sum(axis=1) > known.error)) & effects.any(axis=1)
        rest = np.flatnonzero(waits)
        effects = effects[rest]
        axes = effects.argmax(axis=1)
        effects[np.arange(len(rest)), axes] *= 0.5
        # a precision is about volumes: there an open part counts as a whole, whatever is known of its shares
        unknown = UNITS - valid[rest] - failing[rest] if self.precision is None else np.full(len(rest), float(UNITS))
        keys = known.least[rest] if self.hunts else -np.ldexp(unknown, -self.tree.depth[nodes[rest]])
        both = np.stack([axes, effects.argmax(axis=1)], axis=1)
        columns: tuple[Array, ...] = keys, nodes[rest], valid[rest], failing[rest], both
        if len(self.keys):
            columns = tuple(map(np.concatenate, zip((self.keys, *self.waiting), columns, strict=True)))
        self.keys, *self.waiting = columns

    def _count(self, nodes: Integers, valid: Floats, failing: Floats) -> None:
        """Add what is known of parts to what is known of the whole, exactly."""
        depth = self.tree.depth[nodes]
        for which, units in (("valid", valid), ("failing", failing)):
            sums = np.bincount(depth, units).tolist()
            share = sum((Fraction(int(s), UNITS << d) for d, s in enumerate(sums) if s), Fraction(0))
            setattr(self, which, getattr(self, which) + share)
