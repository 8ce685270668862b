"""What can be done to one input, as columns of a linear program, and what its units can be meanwhile.

A number that may take any value of a range has a column for going up and one for going down; a feature in steps counts
steps; each other level has a column that is 0 or 1. Where a feature has to leap before it can go on, since its value is
outside its range or between two steps, the leap is a column of its own, and those that need it first are its children.

The smaller the cost, the fewer units can change their phase, and the fewer cases have to be told apart. For the first
layer the most that changes can add is the lesser of two bounds: every feature does its best, or all of the cost goes
where it adds most. Deeper units are bounded by intervals and by lines that are carried back to the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.counterfactuals.search.source import Search
from apas.counterfactuals.space.encoder import Piece
from apas.counterfactuals.space.feature import ON_GRID, Feature
from apas.models.feedforward import FeedForward
from apas.worst_case.intervals import activation_range
from apas.worst_case.linear import Pencil, pencil

#: More steps than this are not counted: the nearest one is as good, and a solver takes so small a step for none.
MANY = 100_000


@dataclass(frozen=True)
class Moves:
    """The columns of an input, ordered by feature."""

    base: Floats
    feature: Indices
    shift: Floats
    cost: Floats
    gain: Floats
    top: Floats
    integer: Bools
    parent: Indices

    def __len__(self) -> int:
        return len(self.feature)

    @cached_property
    def starts(self) -> Indices:
        """The first column of each feature that has some."""
        return np.flatnonzero(np.diff(self.feature, prepend=-1))

    @cached_property
    def children(self) -> Indices:
        """The columns that have a parent."""
        return np.flatnonzero(self.parent >= 0)

    def numbers(self, origin: Floats, amounts: Floats) -> Floats:
        """The row that amounts of each column lead to."""
        row = origin.copy()
        np.add.at(row, self.feature, self.shift * amounts)
        return row


@dataclass
class _Columns:
    """Columns being collected for one feature after the other."""

    units: int
    entries: list[tuple[int, float, float, float, bool, int]] = field(default_factory=list)
    gains: list[Floats] = field(default_factory=list)

    def add(
        self,
        feature: int,
        gain: Floats,
        *,
        shift: float,
        cost: float,
        top: float = 1.0,
        integer: bool = True,
        parent: int = -1,
    ) -> int:
        self.entries.append((feature, shift, cost, top, integer, parent))
        self.gains.append(gain)
        return len(self.entries) - 1

    def collected(self, base: Floats) -> Moves:
        empty: tuple[Sequence[float], ...] = ((),) * 6
        feature, shift, cost, top, integer, parent = zip(*self.entries, strict=True) if self.entries else empty
        return Moves(
            base,
            np.array(feature, dtype=np.intp),
            np.array(shift, dtype=float),
            np.array(cost, dtype=float),
            np.array(self.gains).reshape(len(self.gains), self.units),
            np.array(top, dtype=float),
            np.array(integer, dtype=bool),
            np.array(parent, dtype=np.intp),
        )


def moves_from(search: Search, parts: Sequence[Piece | None], weights: Floats, bias: Floats) -> Moves:
    """All that may be done to the input of a search."""
    x, space = search.input, search.task.space
    strange = [i for i, p in enumerate(parts) if p is not None and not p.covers(float(x[i]))]
    rows = np.tile(x, (1 + len(strange), 1))
    for row, i in enumerate(strange, start=1):
        piece = parts[i]
        rows[row, i] = piece.numbers[0] if piece is not None else x[i]
    reached = search.task.encoded(rows) @ weights + bias
    own = dict(zip(strange, reached[0] - reached[1:], strict=True))
    avoided = frozenset().union(*search.avoid)
    columns = _Columns(weights.shape[1])
    for i, (feature, piece) in enumerate(zip(space, parts, strict=True)):
        if piece is None:
            continue
        here = own[i] if i in own else piece.part(x[i : i + 1])[0]
        _add(columns, i, feature, piece, float(x[i]), here, indicated=i in avoided)
    return columns.collected(reached[0])


def _add(columns: _Columns, i: int, feature: Feature, piece: Piece, x: float, here: Floats, *, indicated: bool) -> None:
    """The columns of one feature; if it is `indicated`, some 0-1 columns add up to whether it changes."""
    low, high = feature.ends
    low = max(low, x) if feature.direction == "increase" else low
    high = min(high, x) if feature.direction == "decrease" else high
    if feature.listed is not None and (piece.line is None or not feature.is_level):
        _levels(columns, i, feature, piece, feature.listed, x, here, (low, high))
    elif feature.is_level or feature.step is not None:
        _steps(columns, i, feature, piece, x, here, (low, high), indicated=indicated)
    elif low <= x <= high:
        assert piece.line is not None
        gate = _gate(columns, i) if indicated and low < high else -1
        for sign, room in ((1.0, high - x), (-1.0, x - low)):
            if room > 0:
                _amount(columns, i, feature, piece.line * sign * feature.span, sign, room, gate)
    elif low <= high:  # it has to leap into its range
        assert piece.line is not None
        end, sign = (low, 1.0) if x < low else (high, -1.0)
        gate = _leap(columns, i, feature, piece, x, here, end)
        if high > low:
            _amount(columns, i, feature, piece.line * sign * feature.span, sign, high - low, gate)


def _levels(
    columns: _Columns,
    i: int,
    feature: Feature,
    piece: Piece,
    listed: Floats,
    x: float,
    here: Floats,
    ends: tuple[float, float],
) -> None:
    """One column per value that it may change to."""
    for number in listed[(listed >= ends[0]) & (listed <= ends[1]) & (listed != x)].tolist():
        _leap(columns, i, feature, piece, x, here, number)


def _steps(
    columns: _Columns,
    i: int,
    feature: Feature,
    piece: Piece,
    x: float,
    here: Floats,
    ends: tuple[float, float],
    *,
    indicated: bool,
) -> None:
    """Columns that count steps, behind leaps if the value is between two of them."""
    step, anchor = (1.0, 0.0) if feature.is_level else (feature.step or 1.0, feature.anchor)
    first = np.ceil((ends[0] - anchor) / step - ON_GRID)
    last = np.floor((ends[1] - anchor) / step + ON_GRID)
    if piece.line is None:
        grid = feature.on_grid(np.arange(first, last + 1))
        grid = grid[np.abs(grid - x) > ON_GRID * np.maximum(step, np.abs(x))]
        return _levels(columns, i, feature, piece, grid, x, here, (-np.inf, np.inf))
    place = (x - anchor) / step
    at = np.rint(place)
    on = feature.is_level or abs(x - feature.on_grid(np.array(at))) <= ON_GRID * max(step, abs(x))
    ways = ((1.0, max(first, at if on else np.ceil(place))), (-1.0, min(last, at if on else np.floor(place))))
    gate = _gate(columns, i) if on and first <= at <= last and first < last and indicated else -1
    for sign, start in ways:
        room = (last - start) if sign > 0 else (start - first)
        if room < 0 or (on and start == at and room == 0):
            continue
        behind = gate
        if not on or start != at:
            behind = _leap(columns, i, feature, piece, x, here, float(feature.on_grid(np.array(start))))
        if room > MANY:
            _amount(columns, i, feature, piece.line * sign * feature.span, sign, room * step, behind)
        elif room > 0:
            columns.add(
                i, piece.line * sign * step, shift=sign * step, cost=step / feature.span, top=float(room), parent=behind
            )
    return None


def _leap(columns: _Columns, i: int, feature: Feature, piece: Piece, x: float, here: Floats, number: float) -> int:
    cost = float(feature.differences(np.array([number]), np.array([x]))[0])
    return columns.add(i, piece.part(np.array([number]))[0] - here, shift=number - x, cost=cost)


def _gate(columns: _Columns, i: int) -> int:
    """A column that says that the feature changes, and does nothing by itself."""
    return columns.add(i, np.zeros(columns.units), shift=0.0, cost=0.0)


def _amount(columns: _Columns, i: int, feature: Feature, gain: Floats, sign: float, room: float, parent: int) -> None:
    span = feature.span
    columns.add(i, gain, shift=sign * span, cost=1.0, top=room / span, integer=False, parent=parent)


#: Ranges are wider than computed by this part of what was added up: far more than rounding, far less than matters.
OUTWARD = 1e-9


@dataclass(frozen=True)
class Reach:
    """Moves whose cost is limited."""

    moves: Moves
    budget: float
    distance: str

    @cached_property
    def top(self) -> Floats:
        """Largest amounts of the columns, each by itself; a whole step that costs too much is not taken."""
        moves = self.moves
        if not np.isfinite(self.budget):
            return moves.top
        most = np.divide(self.budget, moves.cost, out=np.full(len(moves), np.inf), where=moves.cost > 0)
        most = np.where(moves.integer, np.floor(most * (1 + OUTWARD) + OUTWARD), most)
        return np.asarray(np.minimum(moves.top, most))

    def most(self, forms: Floats) -> Floats:
        """An upper bound on ``amounts @ forms``; `forms` has shape (columns, m)."""
        moves, top = self.moves, self.top
        if not len(moves):
            return np.zeros(forms.shape[1])
        each = np.maximum(forms, 0.0) * top[:, None]
        bound = self._feature_by_feature(np.where(moves.parent[:, None] < 0, forms * top[:, None], each))
        if self.distance == "l1" and np.isfinite(self.budget):
            bound = np.minimum(bound, self._where_it_adds_most(forms, top))
        return np.asarray(bound + OUTWARD * each.sum(axis=0))

    def _feature_by_feature(self, values: Floats) -> Floats:
        """Of each feature the best way to change it, or not to."""
        moves = self.moves
        for child in moves.children:
            values[moves.parent[child]] += values[child]
            values[child] = 0.0
        best = np.maximum.reduceat(np.maximum(values, 0.0), moves.starts, axis=0)
        return np.asarray(best.sum(axis=0))

    def _where_it_adds_most(self, forms: Floats, top: Floats) -> Floats:
        moves = self.moves
        paid = np.flatnonzero(moves.cost > 0)
        worth = forms[paid] / moves.cost[paid, None]
        order = np.argsort(-worth, axis=0)
        price = (moves.cost * top)[paid][order]
        spent = np.cumsum(price, axis=0)
        bought = np.clip(self.budget - (spent - price), 0.0, price)
        return np.asarray((bought * np.maximum(np.take_along_axis(worth, order, axis=0), 0.0)).sum(axis=0))


def unit_ranges(net: FeedForward, reach: Reach, *, scores: bool = False) -> list[tuple[Floats, Floats]]:
    """Ranges of what reaches each hidden unit, layer by layer; with `scores`, those of the scores last."""
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


def _carried(net: FeedForward, reach: Reach, ranges: Sequence[tuple[Floats, Floats]], forms: Floats) -> Floats:
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


def _lines(name: str, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Slopes and heights of a line above an activation and of one below it."""
    above, below = pencil(name, -high, -low, mirrored=True), pencil(name, low, high, mirrored=False)
    up, down = _leaning(above, -high, -low), _leaning(below, low, high)
    return up, -above.height(up), down, below.height(down)


def _leaning(lines: Pencil, low: Floats, high: Floats) -> Floats:
    """The slope that loses least: steep where more of the range lies beyond the pivot than before it."""
    return np.where(high - lines.at > lines.at - low, lines.steep, lines.flat)
