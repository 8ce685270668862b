"""Algorithm 3 level by level: the box of shifts is halved until a level leaves little open.

`apas.Enumeration` is what to use. This is the plain procedure of the paper, to see what its rule for choosing the
weight to halve is worth, and every part it makes is kept to be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apas.bounds.shiftbox import ShiftBox

__all__ = ["RULES", "Level", "levels_of"]

_Array = NDArray[np.float64]
#: Which weight of an open part is halved: "first" always the first one of the network, as the published program does;
#: "effect" the one with the largest effect on the margin.
RULES: Final = ("first", "effect")


@dataclass(frozen=True)
class Level:
    """The parts of one size, and what is settled so far.

    Attributes
    ----------
    number : int
        1 is the whole box; parts of level s have the volume ``2**(1 - s)``.
    places : list of float
        Where each part lies when the halves of a part are laid side by side in the unit interval.
    states : list of int
        1 if all its shifts are valid, -1 if all fail, 0 if it is open.
    looked : int
        How many parts were looked at, on this level and before.
    valid, failing, open : float
        Shares of the whole box; they add up to 1.
    """

    number: int
    places: list[float]
    states: list[int]
    looked: int
    valid: float
    failing: float
    open: float

    @property
    def n_open(self) -> int:
        """How many parts are open; twice as many are looked at next."""
        return self.states.count(0)

    def to_dict(self) -> dict[str, Any]:
        """The level as JSON values."""
        return dict(vars(self))


def levels_of(box: ShiftBox, rule: str, *, most: int, leave: float = 0.0) -> list[Level]:
    """Halve a box level by level.

    Parameters
    ----------
    box : ShiftBox
    rule : {"first", "effect"}
    most : int
        How many levels there are at most.
    leave : float, default 0.0
        Stop at the first level that leaves a smaller share open.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.3]])  # valid where the bias, in [-0.7, 1.3], is at least 0
    >>> box = ShiftBox(net, np.array([0.0]), 1, np.array([0.0, 1.0]), 1.0)
    >>> [(level.valid, level.failing, level.open) for level in levels_of(box, "effect", most=4)]
    [(0.0, 0.0, 1.0), (0.5, 0.0, 0.5), (0.5, 0.25, 0.25), (0.625, 0.25, 0.125)]
    """
    axes = len(box.moving)
    start, width, place = np.zeros((1, axes)), np.ones((1, axes)), np.zeros(1)
    levels: list[Level] = []
    looked, settled = 0, np.zeros(2)
    for number in range(1, most + 1):
        known, size = box.bound(start, width), 2.0 ** (1 - number)
        states = (known.least > 0).astype(int) - (known.most < 0)
        looked += len(states)
        settled += size * np.array([np.count_nonzero(states > 0), np.count_nonzero(states < 0)])
        rest = np.flatnonzero(states == 0)
        valid, failing = settled.tolist()
        levels.append(Level(number, place.tolist(), states.tolist(), looked, valid, failing, size * len(rest)))
        if not len(rest) or levels[-1].open < leave:
            break
        axis = np.zeros(len(rest), dtype=int) if rule == "first" else known.effects[rest].argmax(axis=1)
        start, width = _halves(start[rest], width[rest], axis)
        place = (place[rest, None] + np.array([0.0, 0.5 * size])).ravel()
    return levels


def _halves(start: _Array, width: _Array, axis: NDArray[np.intp]) -> tuple[_Array, _Array]:
    """Lower and upper half of each part along its axis, one after the other."""
    parts = np.arange(len(start))
    half = width.copy()
    half[parts, axis] *= 0.5
    upper = start.copy()
    upper[parts, axis] += half[parts, axis]
    return np.stack([start, upper], axis=1).reshape(-1, start.shape[1]), np.repeat(half, 2, axis=0)
