"""What can be done to one input, as columns of a linear program, and the pre-activations that this can lead to.

Where a feature must leap before it goes on, the leap is a column of its own: the parent of those that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.space.encoder import Piece, pieces_of
from apas.counterfactuals.space.feature import ON_GRID, Feature
from apas.errors import Unsupported
from apas.models.base import Dense
from apas.models.feedforward import FeedForward
from apas.models.forward import activation_range
from apas.worst_case.linear import pencil

UnitRanges = list[tuple[Floats, Floats]]  # per layer the range of the pre-activations of its units
#: More steps than this are not counted: the nearest one is as good, and a solver takes so small a step for none.
MANY = 100_000


@dataclass(frozen=True)
class Changes:
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


def possible_changes(search: Search, parts: Sequence[Piece | None], weights: Floats, bias: Floats) -> Changes:
    """All that may be done to the input of a search."""
    x, space = search.input, search.task.space
    strange = {i: p.numbers[0] for i, p in enumerate(parts) if p is not None and not p.covers(float(x[i]))}
    rows = np.tile(x, (1 + len(strange), 1))
    rows[range(1, len(rows)), list(strange)] = list(strange.values())
    known = None if strange else pieces_of(search.task).input_row(search)
    reached = (search.task.encoded(rows) if known is None else known[None]) @ weights + bias
    own = dict(zip(strange, reached[0] - reached[1:], strict=True))
    avoided = frozenset().union(*search.avoid)
    columns: list[_Column] = []
    for i, (feature, piece) in enumerate(zip(space, parts, strict=True)):
        if piece is not None:
            here = own[i] if i in own else piece.part(x[i : i + 1])[0]
            _FeatureColumns(columns, i, feature, piece, float(x[i]), here, indicated=i in avoided).add()
    kinds = {"feature": np.intp, "shift": float, "cost": float, "top": float, "integer": bool, "parent": np.intp}
    arrays = {name: np.array([getattr(c, name) for c in columns], dtype=kind) for name, kind in kinds.items()}
    gain = np.array([c.gain for c in columns], dtype=float).reshape(len(columns), weights.shape[1])
    return Changes(reached[0], gain=gain, **arrays)


class _Column(NamedTuple):
    feature: int
    gain: Floats
    shift: float
    cost: float
    top: float = 1.0
    integer: bool = True
    parent: int = -1


@dataclass
class _FeatureColumns:
    """Adds the columns of one feature; if it is `indicated`, some 0-1 columns add up to whether it changes."""

    columns: list[_Column]
    i: int
    feature: Feature
    piece: Piece
    x: float
    here: Floats
    indicated: bool

    def add(self) -> None:
        feature, x = self.feature, self.x
        low, high = feature.ends
        low = max(low, x) if feature.direction == "increase" else low
        high = min(high, x) if feature.direction == "decrease" else high
        if feature.listed is not None and (self.piece.line is None or not feature.is_level):
            self._levels(feature.listed[(feature.listed >= low) & (feature.listed <= high)])
        elif feature.is_level or feature.step is not None:
            self._steps(low, high)
        elif low <= x <= high:
            gate = self._gate() if self.indicated and low < high else -1
            for sign, room in ((1.0, high - x), (-1.0, x - low)):
                if room > 0:
                    self._amount(sign, room, gate)
        elif low <= high:  # it has to leap into its range
            end, sign = (low, 1.0) if x < low else (high, -1.0)
            gate = self._leap(end)
            if high > low:
                self._amount(sign, high - low, gate)

    def _append(self, column: _Column) -> int:
        self.columns.append(column)
        return len(self.columns) - 1

    def _levels(self, numbers: Floats) -> None:
        """One column per value that it may change to."""
        for number in numbers[numbers != self.x].tolist():
            self._leap(number)

    def _steps(self, low: float, high: float) -> None:
        """Columns that count steps, behind leaps if the value is between two of them."""
        feature, piece, x = self.feature, self.piece, self.x
        step, (first, last) = feature.step or 1.0, feature.steps_between(low, high)
        if piece.line is None:
            grid = feature.on_grid(np.arange(first, last + 1))
            self._levels(grid[np.abs(grid - x) > ON_GRID * np.maximum(step, np.abs(x))])
            return
        place = (x - feature.anchor) / step
        at = np.rint(place)
        on = feature.is_level or abs(x - feature.on_grid(np.array(at))) <= ON_GRID * max(step, abs(x))
        ways = ((1.0, max(first, at if on else np.ceil(place))), (-1.0, min(last, at if on else np.floor(place))))
        gate = self._gate() if on and first <= at <= last and first < last and self.indicated else -1
        for sign, start in ways:
            room = (last - start) if sign > 0 else (start - first)
            if room < 0 or (on and start == at and room == 0):
                continue
            behind = gate
            if not on or start != at:
                behind = self._leap(float(feature.on_grid(np.array(start))))
            if room > MANY:
                self._amount(sign, room * step, behind)
            elif room > 0:
                gain, cost = piece.line * sign * step, step / feature.span
                self._append(_Column(self.i, gain, sign * step, cost, float(room), parent=behind))

    def _leap(self, number: float) -> int:
        """A column that is 1 if the feature goes to a number."""
        cost = float(self.feature.differences(np.array([number]), np.array([self.x]))[0])
        return self._append(_Column(self.i, self.piece.part(np.array([number]))[0] - self.here, number - self.x, cost))

    def _gate(self) -> int:
        """A column that says that the feature changes, and does nothing by itself."""
        return self._append(_Column(self.i, np.zeros(len(self.here)), 0.0, 0.0))

    def _amount(self, sign: float, room: float, parent: int) -> None:
        """A column that runs along a line, in units of the feature's span."""
        assert self.piece.line is not None
        span = self.feature.span
        gain = self.piece.line * sign * span
        self._append(_Column(self.i, gain, sign * span, 1.0, room / span, integer=False, parent=parent))


#: Ranges are wider than computed by this part of what was added up: far more than rounding, far less than matters.
OUTWARD = 1e-9


@dataclass(frozen=True)
class ChangeBudget:
    """Changes whose cost is limited."""

    changes: Changes
    cost: float
    distance: str

    @cached_property
    def top(self) -> Floats:
        """Largest amounts of the columns, each by itself; a whole step that costs too much is not taken."""
        changes = self.changes
        if not np.isfinite(self.cost):
            return changes.top
        most = np.divide(self.cost, changes.cost, out=np.full(len(changes), np.inf), where=changes.cost > 0)
        most = np.where(changes.integer, np.floor(most * (1 + OUTWARD) + OUTWARD), most)
        return np.asarray(np.minimum(changes.top, most))

    def most(self, forms: Floats) -> Floats:
        """An upper bound on ``amounts @ forms``; `forms` has shape (columns, m)."""
        changes, top = self.changes, self.top
        if not len(changes):
            return np.zeros(forms.shape[1])
        each = np.maximum(forms, 0.0) * top[:, None]
        values = np.where(changes.parent[:, None] < 0, forms * top[:, None], each)
        for child in changes.children:
            values[changes.parent[child]] += values[child]
            values[child] = 0.0
        # of each feature the best way to change it, or not to
        bound = np.maximum.reduceat(np.maximum(values, 0.0), changes.starts, axis=0).sum(axis=0)
        if self.distance == "l1" and np.isfinite(self.cost):
            # all of the cost goes where it adds most: the fractional knapsack, which is solved in order of worth
            paid = np.flatnonzero(changes.cost > 0)
            worth = forms[paid] / changes.cost[paid, None]
            order = np.argsort(-worth, axis=0)
            price = (changes.cost * top)[paid][order]
            bought = np.clip(self.cost - (np.cumsum(price, axis=0) - price), 0.0, price)
            most = (bought * np.maximum(np.take_along_axis(worth, order, axis=0), 0.0)).sum(axis=0)
            bound = np.minimum(bound, most)
        return np.asarray(bound + OUTWARD * each.sum(axis=0))


def unit_ranges(net: FeedForward, budget: ChangeBudget, *, scores: bool = False) -> UnitRanges:
    """Ranges of the pre-activations, layer by layer; with `scores`, those of the scores last."""
    changes = budget.changes
    spread = OUTWARD * np.abs(changes.base)
    ranges = [(changes.base - budget.most(-changes.gain) - spread, changes.base + budget.most(changes.gain) + spread)]
    last = None if scores else -1
    for i, (w, b) in enumerate(zip(net.weights[1:last], net.biases[1:last], strict=True)):
        least, most = activation_range(net.activations[i], *ranges[-1])
        up, down = np.maximum(w, 0.0), np.minimum(w, 0.0)
        low, high = least @ up + most @ down + b, most @ up + least @ down + b
        size = OUTWARD * (np.maximum(np.abs(least), np.abs(most)) @ np.abs(w) + np.abs(b))
        if (low < high).any():
            carried = _carried_back(net, budget, ranges, np.hstack([w, -w]))
            low, high = np.maximum(low, b - carried[len(b) :]), np.minimum(high, b + carried[: len(b)])
        ranges.append((low - size, high + size))
    return ranges


def _carried_back(net: FeedForward, budget: ChangeBudget, ranges: UnitRanges, forms: Floats) -> Floats:
    """Upper bounds on ``a @ forms`` for the activations a of the last layer that `ranges` has, by lines."""
    const = np.zeros(forms.shape[1])
    for i in range(len(ranges) - 1, -1, -1):
        (low, high), up, down = ranges[i], np.maximum(forms, 0.0), np.minimum(forms, 0.0)
        # a line above the activation, and one below it
        above = pencil(net.activations[i], -high, -low, mirrored=True)
        below = pencil(net.activations[i], low, high, mirrored=False)
        slope_up, slope_down = above.leaning_slope(-high, -low), below.leaning_slope(low, high)
        const = const - above.height(slope_up) @ up + below.height(slope_down) @ down
        forms = slope_up[:, None] * up + slope_down[:, None] * down
        const = const + (net.biases[i] @ forms if i else budget.changes.base @ forms)
        forms = net.weights[i] @ forms if i else budget.changes.gain @ forms
    return const + budget.most(forms)


def network_of(task: Task) -> tuple[FeedForward, list[Piece | None]]:
    """The network behind the preprocessing, and what each feature adds to the pre-activations of its first layer."""
    assert isinstance(task.model, Dense)
    net, pieces = task.model.as_feedforward(), pieces_of(task)
    if pieces.complaint is not None:
        raise Unsupported(pieces.complaint)
    return net, [None if piece is None else piece.through(net.weights[0]) for piece in pieces.parts]
