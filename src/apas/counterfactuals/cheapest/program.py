"""The cheapest change that a piecewise linear network answers with a wanted margin, as a mixed-integer program."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.cheapest.ranges import Reach, unit_ranges
from apas.counterfactuals.cheapest.sheet import Mixed, Sheet
from apas.counterfactuals.cheapest.units import Contrast, count_columns, sides, write_units
from apas.models.feedforward import FeedForward

__all__ = ["cheapest_program", "widest_program"]

_Array = NDArray[np.float64]
_Sets = tuple[frozenset[int], ...]
#: With "linf" the sum of all differences counts a little, so that nothing changes without need.
TIE = 1e-6


def cheapest_program(
    net: FeedForward,
    reach: Reach,
    goal: Contrast,
    margin: float,
    avoid: _Sets = (),
    ranges: list[tuple[_Array, _Array]] | None = None,
) -> Mixed:
    """Least cost with at least this margin; the first columns are the moves.

    Parameters
    ----------
    net : FeedForward
        With relu, leaky_relu, hard_tanh and identity units.
    reach : Reach
        What may be done, and at what cost.
    goal : Contrast
    margin : float
    avoid : tuple of frozenset of int
        Of each set of features one must stay as it is.
    ranges : list of pairs of ndarray, optional
        Of what reaches the hidden units, if more is known than `unit_ranges` would find.
    """
    ranges, needs = unit_ranges(net, reach) if ranges is None else ranges, sides(net, goal)
    moves, largest = reach.moves, reach.distance == "linf"
    sheet = Sheet(len(moves) + largest + count_columns(net, ranges, needs))
    sheet.columns(np.zeros(len(moves)), reach.top, moves.integer)
    cost = np.zeros(sheet.total)
    cost[: len(moves)] = moves.cost * (TIE if largest else 1.0)
    if largest:
        t = sheet.column(0.0, min(reach.budget, 1.0 + float((moves.cost * reach.top).sum())))
        cost[t] = 1.0
        for columns in _by_feature(reach):
            sheet.sparse({t: -1.0, **dict(zip(columns, moves.cost[columns].tolist(), strict=True))}, -np.inf, 0.0)
    form, const = write_units(sheet, net, moves, ranges, needs, goal)
    for signs, offset in zip(goal.signs.T, goal.const, strict=True):
        sheet.row(signs @ form, margin - float(signs @ const + offset), np.inf)
    _write_moves(sheet, reach, avoid)
    if not largest and np.isfinite(reach.budget):
        sheet.row(cost.copy(), -np.inf, reach.budget)
    return sheet.finished(cost, net.activations)


def widest_program(net: FeedForward, reach: Reach, goal: Contrast, avoid: _Sets = ()) -> Mixed:
    """Largest margin, as the least negative of it: the last of its first ``len(moves) + 1`` columns."""
    ranges, needs = unit_ranges(net, reach, scores=True), sides(net, goal)
    moves = reach.moves
    sheet = Sheet(len(moves) + 1 + count_columns(net, ranges, needs))
    sheet.columns(np.zeros(len(moves)), reach.top, moves.integer)
    low, high = ranges[-1]
    up, down = np.maximum(goal.signs, 0.0), np.minimum(goal.signs, 0.0)
    least, most = low @ up + high @ down + goal.const, high @ up + low @ down + goal.const
    t = sheet.column(float(least.min()), float(most.min()))
    form, const = write_units(sheet, net, moves, ranges, needs, goal)
    for signs, offset in zip(goal.signs.T, goal.const, strict=True):
        values = signs @ form
        values[t] -= 1.0
        sheet.row(values, -float(signs @ const + offset), np.inf)
    _write_moves(sheet, reach, avoid)
    cost = np.zeros(sheet.total)
    cost[t] = -1.0
    return sheet.finished(cost, net.activations)


def _by_feature(reach: Reach) -> list[list[int]]:
    starts = reach.moves.starts.tolist()
    return [list(range(a, b)) for a, b in itertools.pairwise([*starts, len(reach.moves)])]


def _write_moves(sheet: Sheet, reach: Reach, avoid: _Sets) -> None:
    """Of the ways to change a feature at most one; no child without its parent; and what must not change together."""
    moves, top = reach.moves, reach.top
    if (moves.integer & (moves.parent < 0)).any():
        for columns in _by_feature(reach):
            roots = [c for c in columns if moves.parent[c] < 0 and moves.integer[c]]
            if len(roots) > 1 and moves.top[roots].max() <= 1:
                sheet.sparse(dict.fromkeys(roots, 1.0), -np.inf, 1.0)
    for child in moves.children.tolist():
        sheet.sparse({child: 1.0, int(moves.parent[child]): -float(top[child])}, -np.inf, 0.0)
    changeable = set(moves.feature.tolist())
    for features in avoid:
        if features <= changeable:  # otherwise one of them stays as it is anyway
            indicators = np.flatnonzero((moves.parent < 0) & np.isin(moves.feature, list(features)))
            sheet.sparse(dict.fromkeys(indicators.tolist(), 1.0), -np.inf, len(features) - 1.0)
