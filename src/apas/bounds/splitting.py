"""The share of valid shifts between two bounds, by halving the box of shifts: Algorithm 3 of the paper.

A part of the box on which the margin is proved to be above 0 (or below 0) is settled; the others are halved along the
axis with the largest effect on the margin. Settled parts are weighed by their volumes, which are powers of one half, so
that the share lies between two exact fractions: the volume settled as valid, and what is not settled as failing.

Bounds on how steep the margin is tell beforehand that neither half of a part can be settled: to come from ``least < 0``
to above 0, halving has to remove at least ``-least``, but removes at most half of the axis's effect. Such halves are
halved again at once, instead of being looked at (a fifth to a third fewer parts have to be looked at for the same
bounds).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from apas.bounds.boxtree import FAILING, OPEN, VALID, BoxTree
from apas.bounds.shiftbox import ShiftBox

__all__ = ["Split", "split"]

_Array = NDArray[np.float64]
_Nodes = NDArray[np.int64]
#: How many parts are looked at together at most, and how many numbers that may take.
PARTS, NUMBERS = 4096, 1 << 19
#: The same while a single failing shift is looked for, where what is found decides what to look at next.
PROBED = 256
#: How often a part is halved at once, if no fewer halvings can settle anything.
HALVINGS = 3
#: A part that is thinner along an axis is not halved along it.
THIN = 2.0**-40
#: Finds a failing shift in parts, given as lower corners and widths.
Probe = Callable[[_Array, _Array], bool]


@dataclass(frozen=True, eq=False)
class Split:
    """A box of shifts, cut into parts that are valid, that fail, and that are open.

    Attributes
    ----------
    box : ShiftBox
    tree : BoxTree
    valid, failing : Fraction
        Exact share of the volume that is settled as such.
    evaluated : int
        How many parts were looked at.
    stopped : str
        Why the run ended: "settled" (nothing is open), "decided", "gap", "limit" (of parts), or "rounding" (what is
        open cannot be told from the boundary in float64).
    """

    box: ShiftBox
    tree: BoxTree
    valid: Fraction
    failing: Fraction
    evaluated: int
    stopped: str

    @property
    def lower(self) -> Fraction:
        """At least this share of the shifts is valid."""
        return self.valid

    @property
    def upper(self) -> Fraction:
        """At most this share of the shifts is valid."""
        return 1 - self.failing

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
        has found a failing shift. The part with the least bound is then looked at first, else the largest.
    report : callable, optional
        Told how many parts were looked at, from time to time.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.3]])  # valid where the bias, in [-0.7, 1.3], is at least 0
    >>> box = ShiftBox(net, np.array([0.0]), 1, np.array([0.0, 1.0]), 1.0)
    >>> found = split(box, gap=Fraction(1, 10), max_boxes=100)
    >>> found.lower, found.upper, found.evaluated
    (Fraction(5, 8), Fraction(11, 16), 9)
    """
    run = _Run(box, gap, max_boxes, coverage, probe)
    while (stopped := run.stopped()) is None:
        looked_at = run.step()
        if report is not None:
            report(looked_at)
    run.tree.trim()
    return Split(box, run.tree, run.valid, run.failing, run.evaluated, stopped)


class _Run:
    """The state of `split`: the tree, the parts to look at next, and the volumes so far."""

    def __init__(
        self, box: ShiftBox, gap: Fraction, max_boxes: int, coverage: Fraction | None, probe: Probe | None
    ) -> None:
        self.box, self.gap, self.max_boxes, self.coverage, self.probe = box, gap, max_boxes, coverage, probe
        self.tree = BoxTree(len(box.moving))
        self.valid = self.failing = Fraction(0)
        self.evaluated = 0
        self.found = False
        self.nodes, self.keys = np.zeros(1, dtype=np.int64), np.zeros(1)  # smaller keys come first
        fits = max(1, NUMBERS // len(box.radii))
        self.batch = min(fits, PARTS if probe is None else PROBED)

    def stopped(self) -> str | None:
        """Why to stop now, or None."""
        open_share = 1 - self.valid - self.failing
        if self.found or (
            self.coverage is not None and (self.valid >= self.coverage or 1 - self.failing < self.coverage)
        ):
            return "decided"
        if not open_share:
            return "settled"
        if open_share <= self.gap:
            return "gap"
        if self.evaluated >= self.max_boxes:
            return "limit"
        return None if len(self.nodes) else "rounding"

    def step(self) -> int:
        """Look at the next parts, settle or halve them; how many they were."""
        nodes = self._next()
        start, width = self.tree.coordinates(nodes)
        least, most, effects, error = self.box.bound(start, width)
        self.evaluated += len(nodes)
        valid, failing = least > 0, most < 0
        self.valid += self._settle(nodes[valid], VALID)
        self.failing += self._settle(nodes[failing], FAILING)
        if self.probe is not None and not valid.all():
            self.found = self.probe(start[~valid], width[~valid])
        effects[width <= THIN] = 0.0
        wild = ~np.isfinite(effects).all(axis=1)
        effects[wild] = width[wild]
        # where the margin changes less than rounding could do, no smaller part will be settled either
        rest = np.flatnonzero(~valid & ~failing & (wild | (effects.sum(axis=1) > error)))
        rest = rest[effects[rest].any(axis=1)]
        # parts come largest first: if those that wait use up the limit, halves of these will not be looked at
        if self.probe is not None or len(self.nodes) < self.max_boxes - self.evaluated:
            self._halve(nodes[rest], least[rest], most[rest], effects[rest])
        return len(nodes)

    def _next(self) -> _Nodes:
        count = min(self.batch, len(self.nodes), self.max_boxes - self.evaluated)
        if count == len(self.nodes):
            nodes, self.nodes, self.keys = self.nodes, self.nodes[:0], self.keys[:0]
            return nodes
        order = np.argpartition(self.keys, count - 1)
        nodes = self.nodes[order[:count]]
        self.nodes, self.keys = self.nodes[order[count:]], self.keys[order[count:]]
        return nodes

    def _settle(self, nodes: _Nodes, status: int) -> Fraction:
        """The volume of some parts, now that it is known what they are."""
        self.tree.settle(nodes, status)
        counts = np.bincount(self.tree.depth(nodes)).tolist()
        return sum((Fraction(count, 2**depth) for depth, count in enumerate(counts) if count), Fraction(0))

    def _halve(self, nodes: _Nodes, least: _Array, most: _Array, effects: _Array) -> None:
        """Halve parts until some of what comes out could be settled, and let that wait for its turn."""
        waiting, keys = [self.nodes], [self.keys]
        origin = every = np.arange(len(nodes))  # which of the bounds and effects a node goes by
        gain = np.zeros(len(nodes))
        for last in [False] * (HALVINGS - 1) + [True]:
            axes = effects.argmax(axis=1)
            gain += 0.5 * effects[every, axes]
            effects[every, axes] *= 0.5
            halves, origin = self.tree.halve(nodes, axes[origin]), np.repeat(origin, 2)
            again = ((least + gain < 0) & (most - gain > 0))[origin] & (not last)
            ready = halves[~again]
            waiting.append(ready)
            keys.append(self.tree.depth(ready).astype(np.float64) if self.probe is None else least[origin[~again]])
            nodes, origin = halves[again], origin[again]
        self.nodes, self.keys = np.concatenate(waiting), np.concatenate(keys)
