"""The share of valid shifts between two bounds, by halving the box of shifts: Algorithm 3 of the paper, and more.

A part of the box on which the margin is proved to be above 0 (or below 0) is settled; the others are halved along the
axis with the largest effect on the margin. Volumes are powers of one half, so that the share lies between two exact
fractions. The paper counts an open part as wholly unknown. Here it counts with the shares of it that are proved to be
valid and to fail (see `tails`): on networks with dozens of parameters that is the difference between knowing nothing
and knowing the share to a few digits, because a sum of many independent terms is seldom near its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from apas.bounds.boxtree import FAILING, OPEN, VALID, BoxTree
from apas.bounds.frontier import Frontier
from apas.bounds.shiftbox import PartBounds, ShiftBox

__all__ = ["Split", "split"]

_Array = NDArray[np.float64]
_Nodes = NDArray[np.int64]
#: How many parts are looked at together at most, and how many numbers that may take.
PARTS, NUMBERS = 4096, 1 << 18
#: The same while a single failing shift is looked for, where what is found decides what to look at next.
PROBED = 128
#: A part that is thinner along an axis is not halved along it.
THIN = 2.0**-40
#: Shares of a part are counted in units of one in this many; sums of them stay exact in float64.
UNITS = 2**40
#: Finds a failing shift in parts, given as lower corners and widths.
Probe = Callable[[_Array, _Array], bool]


@dataclass(frozen=True, eq=False)
class Split:
    """A box of shifts, cut into parts that are valid, that fail, and that are open.

    Attributes
    ----------
    box : ShiftBox
    tree : BoxTree
    lower, upper : Fraction
        The share of valid shifts lies between these exact fractions.
    evaluated : int
        How many parts were looked at.
    stopped : str
        Why the run ended: "settled" (nothing is open), "decided", "gap", "limit" (of parts), or "rounding" (what is
        open cannot be told from the boundary in float64).
    """

    box: ShiftBox
    tree: BoxTree
    lower: Fraction
    upper: Fraction
    evaluated: int
    stopped: str

    @property
    def interval(self) -> tuple[float, float]:
        """Both bounds in float64, rounded down and up."""
        lower, upper = float(self.lower), float(self.upper)
        return (
            lower if Fraction(lower) <= self.lower else float(np.nextafter(lower, 0.0)),
            upper if Fraction(upper) >= self.upper else float(np.nextafter(upper, 1.0)),
        )

    @property
    def open(self) -> int:
        """How many parts are not settled."""
        return len(self.tree.having(OPEN))

    def boxes(self) -> tuple[_Array, _Array, NDArray[np.int8]]:
        """Settled parts: ends of every parameter, shape (parts, k), and 1 for valid or -1 for failing."""
        nodes = self.tree.having(VALID, FAILING)
        return *self.box.ends(*self.tree.coordinates(nodes)), self.tree.statuses(nodes)


def split(
    box: ShiftBox,
    *,
    gap: Fraction,
    max_boxes: int,
    coverage: Fraction | None = None,
    probe: Probe | None = None,
    report: Callable[[int], None] | None = None,
) -> Split:
    """Cut a box of shifts into parts until enough is known.

    Parameters
    ----------
    box : ShiftBox
    gap : Fraction
        Stop when upper and lower bound of the valid share are this close.
    max_boxes : int
        Look at no more parts than this.
    coverage : Fraction, optional
        Stop as soon as it is certain whether the valid share is at least this.
    probe : callable, optional
        Called with the lower corners and widths of parts that are not settled as valid; stop as soon as it says that it
        has found a failing shift. The part with the least bound is then halved first, else the one with the largest
        unknown volume, and only settled parts count.
    report : callable, optional
        Told how many parts were looked at, from time to time.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.3]])  # valid where the bias, in [-0.7, 1.3], is at least 0
    >>> box = ShiftBox(net, np.array([0.0]), 1, np.array([0.0, 1.0]), 1.0)
    >>> found = split(box, gap=Fraction(1, 100), max_boxes=100)
    >>> float(found.lower) < 0.65 < float(found.upper), found.stopped
    (True, 'gap')
    """
    run = _Run(box, gap, max_boxes, coverage, probe)
    run.look(np.zeros(1, dtype=np.int64))
    while (stopped := run.stopped()) is None:
        before = run.evaluated
        run.look(run.halved())
        if report is not None:
            report(run.evaluated - before)
    run.tree.trim()
    return Split(box, run.tree, run.lower, run.upper, run.evaluated, stopped)


class _Run:
    """The state of `split`: the tree, the open parts, and what is known of the volume."""

    def __init__(
        self, box: ShiftBox, gap: Fraction, max_boxes: int, coverage: Fraction | None, probe: Probe | None
    ) -> None:
        self.box, self.gap, self.max_boxes, self.coverage, self.probe = box, gap, max_boxes, coverage, probe
        self.tree = BoxTree(len(box.moving))
        self.valid = self.failing = Fraction(0)  # of the parts there are now
        self.lower, self.upper = Fraction(0), Fraction(1)  # the best so far: a part may be known better than its halves
        self.evaluated = 0
        self.found = False
        self.waiting = Frontier()
        fits = max(2, NUMBERS // len(box.radii))
        self.batch = min(fits, PARTS if probe is None else PROBED)

    def stopped(self) -> str | None:
        """Why to stop now, or None."""
        if self.found or (self.coverage is not None and (self.lower >= self.coverage or self.upper < self.coverage)):
            return "decided"
        if self.lower == self.upper:
            return "settled"
        if self.upper - self.lower <= self.gap:
            return "gap"
        if not len(self.waiting):
            return "rounding"
        return "limit" if self.evaluated + 2 > self.max_boxes else None

    def halved(self) -> _Nodes:
        """The halves of the parts that come next, or their quarters."""
        left = min(self.batch, self.max_boxes - self.evaluated)
        times = 1 if self.probe is not None or left < 4 else 2
        nodes, valid, failing, axes = self.waiting.pop(left // 2**times)
        self._count(nodes, -valid, -failing)
        nodes = self.tree.halve(nodes, axes[:, 0])
        return nodes if times == 1 else self.tree.halve(nodes, np.repeat(axes[:, 1], 2))

    def look(self, nodes: _Nodes) -> None:
        """Bound the margin over parts; count and settle them, or let them wait to be halved."""
        start, width = self.tree.coordinates(nodes)
        known = self.box.measure(start, width) if self.probe is None else self.box.bound(start, width)
        self.evaluated += len(nodes)
        settled = known.least > 0, known.most < 0
        self.tree.settle(nodes[settled[0]], VALID)
        self.tree.settle(nodes[settled[1]], FAILING)
        valid, failing = (
            np.where(sure, UNITS, np.minimum(np.floor(UNITS * (1.0 - share)), UNITS - 1))
            for sure, share in zip(settled, (known.failing, known.valid), strict=True)
        )
        self._count(nodes, valid, failing)
        self.lower, self.upper = max(self.lower, self.valid), min(self.upper, 1 - self.failing)
        if self.probe is not None and not settled[0].all():
            self.found = self.probe(start[~settled[0]], width[~settled[0]])
        self._wait(nodes, ~(settled[0] | settled[1]), width, known, valid, failing)

    def _count(self, nodes: _Nodes, valid: _Array, failing: _Array) -> None:
        """Add what is known of parts to what is known of the whole, exactly."""
        depth = self.tree.depth(nodes)
        for which, units in (("valid", valid), ("failing", failing)):
            sums = np.bincount(depth, units).tolist()
            share = sum((Fraction(int(s), UNITS << d) for d, s in enumerate(sums) if s), Fraction(0))
            setattr(self, which, getattr(self, which) + share)

    def _wait(
        self, nodes: _Nodes, open_: NDArray[np.bool_], width: _Array, known: PartBounds, valid: _Array, failing: _Array
    ) -> None:
        effects = np.where(width > THIN, known.effects, 0.0)
        wild = ~np.isfinite(effects).all(axis=1)
        effects[wild] = width[wild]
        # where the margin changes less than rounding could do, no smaller part will be settled either
        rest = np.flatnonzero(open_ & (wild | (effects.sum(axis=1) > known.error)) & effects.any(axis=1))
        effects = effects[rest]
        axes = effects.argmax(axis=1)
        effects[np.arange(len(rest)), axes] *= 0.5
        unknown = np.ldexp(UNITS - valid[rest] - failing[rest], -self.tree.depth(nodes[rest]))
        keys = -unknown if self.probe is None else known.least[rest]
        both = np.stack([axes, effects.argmax(axis=1)], axis=1)
        self.waiting.push(keys, nodes[rest], valid[rest], failing[rest], both)
