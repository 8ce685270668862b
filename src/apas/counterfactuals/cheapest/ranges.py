"""What the units of a network can be while an input changes at no more than a given cost.

The smaller the cost, the fewer units can change their phase, and the fewer cases have to be told apart. For the first
layer the most that changes can add is the lesser of two bounds: every feature does its best, or all of the cost goes
where it adds most. Deeper units are bounded by intervals and by lines that are carried back to the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apas.bounds.lines import Pencil, pencil
from apas.bounds.ranges import activation_range
from apas.counterfactuals.cheapest.moves import Moves
from apas.models.feedforward import FeedForward

__all__ = ["Reach", "unit_ranges"]

_Array = NDArray[np.float64]
#: Ranges are wider than computed by this part of what was added up: far more than rounding, far less than matters.
OUTWARD = 1e-9


@dataclass(frozen=True)
class Reach:
    """Moves whose cost is limited.

    Attributes
    ----------
    moves : Moves
    budget : float
        What all differences may add up to ("l1"), or each may be ("linf"); infinite for no limit.
    distance : {"l1", "linf"}
    """

    moves: Moves
    budget: float
    distance: str

    @cached_property
    def top(self) -> _Array:
        """Largest amounts of the columns, each by itself; a whole step that costs too much is not taken."""
        moves = self.moves
        if not np.isfinite(self.budget):
            return moves.top
        most = np.divide(self.budget, moves.cost, out=np.full(len(moves), np.inf), where=moves.cost > 0)
        most = np.where(moves.integer, np.floor(most * (1 + OUTWARD) + OUTWARD), most)
        return np.asarray(np.minimum(moves.top, most))

    def most(self, forms: _Array) -> _Array:
        """An upper bound on ``amounts @ forms``; `forms` has shape (columns, m)."""
        moves, top = self.moves, self.top
        if not len(moves):
            return np.zeros(forms.shape[1])
        each = np.maximum(forms, 0.0) * top[:, None]
        bound = self._feature_by_feature(np.where(moves.parent[:, None] < 0, forms * top[:, None], each))
        if self.distance == "l1" and np.isfinite(self.budget):
            bound = np.minimum(bound, self._where_it_adds_most(forms, top))
        return np.asarray(bound + OUTWARD * each.sum(axis=0))

    def _feature_by_feature(self, values: _Array) -> _Array:
        """Of each feature the best way to change it, or not to."""
        moves = self.moves
        for child in moves.children:
            values[moves.parent[child]] += values[child]
            values[child] = 0.0
        best = np.maximum.reduceat(np.maximum(values, 0.0), moves.starts, axis=0)
        return np.asarray(best.sum(axis=0))

    def _where_it_adds_most(self, forms: _Array, top: _Array) -> _Array:
        moves = self.moves
        paid = np.flatnonzero(moves.cost > 0)
        worth = forms[paid] / moves.cost[paid, None]
        order = np.argsort(-worth, axis=0)
        price = (moves.cost * top)[paid][order]
        spent = np.cumsum(price, axis=0)
        bought = np.clip(self.budget - (spent - price), 0.0, price)
        return np.asarray((bought * np.maximum(np.take_along_axis(worth, order, axis=0), 0.0)).sum(axis=0))


def unit_ranges(net: FeedForward, reach: Reach, *, scores: bool = False) -> list[tuple[_Array, _Array]]:
    """Ranges of what reaches each hidden unit, layer by layer; with `scores`, those of the scores last.

    Examples
    --------
    >>> from apas.counterfactuals.feature import Feature
    >>> from apas.counterfactuals.cheapest.moves import moves_from
    >>> from apas.counterfactuals.pieces import pieces_of
    >>> from apas.counterfactuals.source import Search, Task
    >>> from apas.counterfactuals.space import FeatureSpace
    >>> net = FeedForward([[[2.0], [1.0]], [[1.0]]], [[0.0], [0.0]])
    >>> task = Task(net, FeatureSpace([Feature("a", low=0, high=1), Feature("b", low=0, high=1)]))
    >>> search = Search(task, 0, np.array([0.5, 0.5]), 1)
    >>> moves = moves_from(search, [p.through(net.weights[0]) for p in pieces_of(task).parts], net.weights[0], 0.0)
    >>> [[round(float(end[0]), 6) for end in ends] for ends in unit_ranges(net, Reach(moves, 0.25, "l1"), scores=True)]
    [[1.0, 2.0], [1.0, 2.0]]
    """
    moves = reach.moves
    spread = OUTWARD * np.abs(moves.base)
    ranges = [(moves.base - reach.most(-moves.gain) - spread, moves.base + reach.most(moves.gain) + spread)]
    last = None if scores else -1
    for i, (w, b) in enumerate(zip(net.weights[1:last], net.biases[1:last], strict=True)):
        least, most = activation_range(net.activations[i], *ranges[-1])
        up, down = np.maximum(w, 0.0), np.minimum(w, 0.0)
        low, high = least @ up + most @ down + b, most @ up + least @ down + b
        size = OUTWARD * (np.maximum(np.abs(least), np.abs(most)) @ np.abs(w) + np.abs(b))
        if (low < high).any():
            carried = _carried(net, reach, ranges, np.hstack([w, -w]))
            low, high = np.maximum(low, b - carried[len(b) :]), np.minimum(high, b + carried[: len(b)])
        ranges.append((low - size, high + size))
    return ranges


def _carried(net: FeedForward, reach: Reach, ranges: Sequence[tuple[_Array, _Array]], forms: _Array) -> _Array:
    """Upper bounds on ``a @ forms`` for the activations a of the last layer that `ranges` has, by lines."""
    const = np.zeros(forms.shape[1])
    for i in range(len(ranges) - 1, -1, -1):
        slope_up, height_up, slope_down, height_down = _lines(net.activations[i], *ranges[i])
        up, down = np.maximum(forms, 0.0), np.minimum(forms, 0.0)
        const = const + height_up @ up + height_down @ down
        forms = slope_up[:, None] * up + slope_down[:, None] * down
        const = const + (net.biases[i] @ forms if i else reach.moves.base @ forms)
        forms = net.weights[i] @ forms if i else reach.moves.gain @ forms
    return const + reach.most(forms)


def _lines(name: str, low: _Array, high: _Array) -> tuple[_Array, _Array, _Array, _Array]:
    """Slopes and heights of a line above an activation and of one below it."""
    above, below = pencil(name, -high, -low, mirrored=True), pencil(name, low, high, mirrored=False)
    up, down = _leaning(above, -high, -low), _leaning(below, low, high)
    return up, -above.height(up), down, below.height(down)


def _leaning(lines: Pencil, low: _Array, high: _Array) -> _Array:
    """The slope that loses least: steep where more of the range lies beyond the pivot than before it."""
    return np.where(high - lines.at > lines.at - low, lines.steep, lines.flat)
