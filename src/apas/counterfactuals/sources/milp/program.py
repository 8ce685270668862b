"""The mixed-integer program of the cheapest change: what can be done to one input, and units, as rows and columns.

Where a feature must leap before it goes on, the leap is a column of its own: the parent of those that need it. Units
that keep their phase within the budget are no columns; others get rows where a wrong value could help.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.space.encoder import Piece, pieces_of
from apas.counterfactuals.space.feature import ON_GRID, Feature
from apas.errors import Unsupported
from apas.models.base import Dense
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, activation_range, derivative
from apas.optimize.highs import Program, ProgramBuilder, power_above
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
    def by_feature(self) -> list[range]:
        """The columns of each of these features."""
        return list(itertools.starmap(range, itertools.pairwise([*self.starts.tolist(), len(self)])))

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
    columns: list[tuple[Any, ...]] = []
    for i, (feature, piece) in enumerate(zip(space, parts, strict=True)):
        if piece is not None:
            here = own[i] if i in own else piece.part(x[i : i + 1])[0]
            _FeatureColumns(columns, i, feature, piece, float(x[i]), here, indicated=i in avoided).add()
    kinds: list[Any] = [("feature", np.intp), ("gain", float, (weights.shape[1],)), ("shift", float), ("cost", float)]
    table = np.array(columns, dtype=[*kinds, ("top", float), ("integer", bool), ("parent", np.intp)])
    return Changes(reached[0], **{name: np.ascontiguousarray(table[name]) for name in table.dtype.names or ()})


@dataclass
class _FeatureColumns:
    """Adds the columns of one feature; if it is `indicated`, some 0-1 columns add up to whether it changes."""

    columns: list[tuple[Any, ...]]
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
        elif low <= high:
            behind = self._gate() if self.indicated and low <= x <= high and low < high else -1
            if not low <= x <= high:  # it has to leap into its range
                behind = self._leap(low if x < low else high)
            for sign, room in ((1.0, high - max(x, low)), (-1.0, min(x, high) - low)):
                if room > 0:
                    self._amount(sign, room, behind)

    def _append(
        self, gain: Floats, shift: float, cost: float, top: float = 1.0, integer: bool = True, parent: int = -1
    ) -> int:
        self.columns.append((self.i, gain, shift, cost, top, integer, parent))
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
            behind = gate if on and start == at else self._leap(float(feature.on_grid(np.array(start))))
            if room > MANY:
                self._amount(sign, room * step, behind)
            elif room > 0:
                gain, cost = piece.line * sign * step, step / feature.span
                self._append(gain, sign * step, cost, top=float(room), parent=behind)

    def _leap(self, number: float) -> int:
        """A column that is 1 if the feature goes to a number."""
        cost = float(self.feature.differences(np.array([number]), np.array([self.x]))[0])
        return self._append(self.piece.part(np.array([number]))[0] - self.here, number - self.x, cost)

    def _gate(self) -> int:
        """A column that says that the feature changes, and does nothing by itself."""
        return self._append(np.zeros(len(self.here)), 0.0, 0.0)

    def _amount(self, sign: float, room: float, parent: int) -> None:
        """A column that runs along a line, in units of the feature's span."""
        assert self.piece.line is not None
        span = self.feature.span
        gain = self.piece.line * sign * span
        self._append(gain, sign * span, 1.0, top=room / span, integer=False, parent=parent)


TIE = 1e-6  # with "linf" the sum of all differences counts a little, so that nothing changes without need
#: Ranges are wider than computed by this part of what was added up: far more than rounding, far less than matters.
OUTWARD = 1e-9


@dataclass(frozen=True)
class ChangeBudget:
    """Changes whose cost is limited."""

    effect: "Effect"
    cost: float = np.inf
    tie: float = TIE

    @cached_property
    def top(self) -> Floats:
        """Largest amounts of the columns, each by itself; a whole step that costs too much is not taken."""
        changes = self.effect.changes
        if not np.isfinite(self.cost):
            return changes.top
        most = np.divide(self.cost, changes.cost, out=np.full(len(changes), np.inf), where=changes.cost > 0)
        most = np.where(changes.integer, np.floor(most * (1 + OUTWARD) + OUTWARD), most)
        return np.asarray(np.minimum(changes.top, most))

    def most(self, forms: Floats) -> Floats:
        """An upper bound on ``amounts @ forms``; `forms` has shape (columns, m)."""
        changes, top = self.effect.changes, self.top
        if not len(changes):
            return np.zeros(forms.shape[1])
        each = np.maximum(forms, 0.0) * top[:, None]
        values = np.where(changes.parent[:, None] < 0, forms * top[:, None], each)
        for child in changes.children:
            values[changes.parent[child]] += values[child]
            values[child] = 0.0
        # of each feature the best way to change it, or not to
        bound = np.maximum.reduceat(np.maximum(values, 0.0), changes.starts, axis=0).sum(axis=0)
        if self.effect.distance == "l1" and np.isfinite(self.cost):
            # all of the cost goes where it adds most: the fractional knapsack, which is solved in order of worth
            paid = np.flatnonzero(changes.cost > 0)
            worth = forms[paid] / changes.cost[paid, None]
            order = np.argsort(-worth, axis=0)
            price = (changes.cost * top)[paid][order]
            bought = np.clip(self.cost - (np.cumsum(price, axis=0) - price), 0.0, price)
            most = (bought * np.maximum(np.take_along_axis(worth, order, axis=0), 0.0)).sum(axis=0)
            bound = np.minimum(bound, most)
        return np.asarray(bound + OUTWARD * each.sum(axis=0))


def unit_ranges(budget: ChangeBudget, *, scores: bool = False) -> UnitRanges:
    """Ranges of the pre-activations, layer by layer; with `scores`, those of the scores last."""
    net, changes = budget.effect.net, budget.effect.changes
    spread = OUTWARD * np.abs(changes.base)
    ranges = [(changes.base - budget.most(-changes.gain) - spread, changes.base + budget.most(changes.gain) + spread)]
    last = None if scores else -1
    for i, (w, b) in enumerate(zip(net.weights[1:last], net.biases[1:last], strict=True)):
        least, most = activation_range(net.activations[i], *ranges[-1])
        up, down = np.maximum(w, 0.0), np.minimum(w, 0.0)
        low, high = least @ up + most @ down + b, most @ up + least @ down + b
        size = OUTWARD * (np.maximum(np.abs(least), np.abs(most)) @ np.abs(w) + np.abs(b))
        if (low < high).any():
            carried = _carried_back(budget, ranges, np.hstack([w, -w]))
            low, high = np.maximum(low, b - carried[len(b) :]), np.minimum(high, b + carried[: len(b)])
        ranges.append((low - size, high + size))
    return ranges


def _carried_back(budget: ChangeBudget, ranges: UnitRanges, forms: Floats) -> Floats:
    """Upper bounds on ``a @ forms`` for the activations a of the last layer that `ranges` has, by lines."""
    net, changes, const = budget.effect.net, budget.effect.changes, np.zeros(forms.shape[1])
    for i in range(len(ranges) - 1, -1, -1):
        (low, high), up, down = ranges[i], np.maximum(forms, 0.0), np.minimum(forms, 0.0)
        # a line above the activation, and one below it
        above = pencil(net.activations[i], -high, -low, mirrored=True)
        below = pencil(net.activations[i], low, high, mirrored=False)
        slope_up, slope_down = above.leaning_slope(-high, -low), below.leaning_slope(low, high)
        const = const - above.height(slope_up) @ up + below.height(slope_down) @ down
        forms = slope_up[:, None] * up + slope_down[:, None] * down
        const = const + (net.biases[i] @ forms if i else changes.base @ forms)
        forms = net.weights[i] @ forms if i else changes.gain @ forms
    return const + budget.most(forms)


def network_of(task: Task) -> tuple[FeedForward, list[Piece | None]]:
    """The network behind the preprocessing, and what each feature adds to the pre-activations of its first layer."""
    assert isinstance(task.model, Dense)
    net, pieces = task.model.as_feedforward(), pieces_of(task)
    if pieces.complaint is not None:
        raise Unsupported(pieces.complaint)
    return net, [None if piece is None else piece.through(net.weights[0]) for piece in pieces.parts]


class PhaseBinaries:
    """Binaries that say in which phase a unit is, that is on which side of a kink its pre-activation lies."""

    def __init__(self, binaries: Sequence[tuple[Any, ...]], columns: int, activations: Sequence[str]) -> None:
        # the unit's activation is ``scale * v[own]``, its pre-activation ``form @ v + const`` in a range of this width
        forms, *others = zip(*binaries, strict=True)
        self.column, self.layer, self.unit, self.own, self.scale, *more = map(np.array, others)
        self.const, self.width, self.kink, self.sign, self.weight = more
        self.form = np.zeros((len(forms), columns))
        for row, form in zip(self.form, forms, strict=True):  # later columns are not in it
            row[: len(form)] = form
        self.groups = [(name, np.flatnonzero(self.layer == i)) for i, name in enumerate(activations)]

    def gaps(self, v: Floats) -> Floats:
        """How far each unit's activation is from that of its pre-activation, in terms of the margin."""
        z = self.form @ v + self.const
        for name, own in self.groups:
            z[own] = activate(name, z[own])
        return np.asarray(np.abs(self.scale * v[self.own] - z) * self.weight)


@dataclass(frozen=True)
class ChangeProgram(Program):
    """The program of a change of one input; its first columns are those of the changes."""

    phases: PhaseBinaries | None = None


@dataclass(frozen=True)
class Contrast:
    """The margin: the least of ``scores @ signs + const``, one column per rival."""

    signs: Floats
    const: Floats

    @classmethod
    def of(cls, net: FeedForward, wanted: int) -> Self:
        """What the scores of a network are compared by."""
        outputs, sign = net.weights[-1].shape[1], 1.0 if wanted == 1 else -1.0
        if outputs == 1:
            return cls(np.array([[sign]]), np.array([-sign * net.offset]))
        if outputs == 2:
            return cls(np.array([[-sign], [sign]]), np.array([-sign * net.offset]))
        signs = -np.delete(np.eye(outputs), wanted, axis=1)
        signs[wanted] = 1.0
        return cls(signs + 0.0, np.zeros(outputs - 1))

    def margins(self, scores: Floats) -> Floats:
        """Margins of rows of scores."""
        return np.asarray((scores @ self.signs + self.const).min(axis=-1))


def write_units(
    writer: ProgramBuilder, effect: "Effect", ranges: UnitRanges
) -> tuple[Floats, Floats, list[tuple[Any, ...]]]:
    """Write the hidden units; returns the scores as ``form @ v + const``, and the phases."""
    net, changes = effect.net, effect.changes
    form, const, phases = np.zeros((len(changes.base), len(writer.low))), changes.base, list[tuple[Any, ...]]()
    form[:, : len(changes)], needs = changes.gain.T, effect.gainful_sides
    for i, (name, weight) in enumerate(zip(net.activations, effect.weights, strict=True)):
        (low, high), (large, small) = ranges[i], needs[i]
        slope, height = _straight_line(name, low, high)
        unsettled, slope = np.flatnonzero(np.isnan(slope)).tolist(), np.nan_to_num(slope)
        least, most = activation_range(name, low, high)
        scales = power_above(np.maximum(np.abs(least), np.abs(most))).tolist()
        own = dict.fromkeys(unsettled, 0)
        for k in unsettled:
            scale, ends, clips = scales[k], (float(low[k]), float(high[k])), name == "hard_tanh"
            own[k] = a = writer.column(float(least[k]) / scale, float(most[k]) / scale)
            columns = np.flatnonzero(form[k])
            affine = columns, form[k, columns], float(const[k])
            for sign in (-1.0, 1.0) if clips else (1.0, -1.0):
                if not (small[k] if sign > 0 else large[k]):
                    continue
                # beyond its other end a clip is that end, as the column of the activation says
                at = ends if not clips else (max(ends[0], -1.0), ends[1]) if sign > 0 else (ends[0], min(ends[1], 1.0))
                binary = writer.bound_activation(a, sign, affine, name, *at, scale=scale)
                if binary is not None:
                    kink, way = (sign, -sign) if clips else (0.0, 1.0)
                    unit = binary, i, k, a, scale, affine[2], ends[1] - ends[0], kink, way, float(weight[k])
                    phases.append((form[k], *unit))
        after = np.zeros((len(low), len(writer.low)))
        after[:, : form.shape[1]] = slope[:, None] * form
        after[unsettled, list(own.values())] = [scales[k] for k in unsettled]
        form, const = net.weights[i + 1].T @ after, (slope * const + height) @ net.weights[i + 1] + net.biases[i + 1]
    return form, const, phases


def _straight_line(name: str, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Slope and height of an activation that is a straight line on a range; slope NaN where it is not."""
    kinks = {"identity": (), "hard_tanh": (-1.0, 1.0)}.get(name, (0.0,))
    bent, middle = np.zeros(len(low), dtype=bool), 0.5 * (low + high)
    for kink in kinks:
        bent |= (low < kink) & (kink < high)
    slope = derivative(name, middle)
    return np.where(bent, np.nan, slope), np.where(bent, 0.0, activate(name, middle.copy()) - slope * middle)


NOTHING = 1e-9  # amounts and costs below this are rounding of the solver, and taken for 0


@dataclass(frozen=True)
class Effect:
    """Changes of one input, and the network that they act on."""

    net: FeedForward
    changes: Changes
    goal: Contrast
    distance: str
    avoid: Sequence[frozenset[int]] = ()

    @property
    def tie(self) -> float:
        """How much the sum of all differences counts besides the cost."""
        return 0.0 if self.distance == "l1" else TIE

    @cached_property
    def weights(self) -> list[Floats]:
        """Per hidden layer how much the margin can change at most if a unit is off by 1."""
        weight, found = np.abs(self.goal.signs).max(axis=1), []
        for w in self.net.weights[:0:-1]:
            weight = np.abs(w) @ weight
            found.append(weight)
        return found[::-1]

    @cached_property
    def gainful_sides(self) -> list[tuple[Bools, Bools]]:
        """Per hidden layer whether the margin can gain from a unit that is too large, and from one too small."""
        large, small, found = (self.goal.signs > 0).any(axis=1), (self.goal.signs < 0).any(axis=1), []
        for w in self.net.weights[:0:-1]:
            up, down = w > 0, w < 0
            large, small = (np.asarray((up & a | down & b).any(axis=1)) for a, b in ((large, small), (small, large)))
            found.append((large, small))
        return found[::-1]

    def size(self, ranges: UnitRanges) -> float:
        """How large what margins are sums of can be while units stay within ranges; at least 1."""
        least = 1.0 + float(np.abs(self.goal.const).max())
        sizes = (
            weight @ np.maximum(np.abs(low), np.abs(high))
            for weight, (low, high) in zip(self.weights, ranges, strict=False)
        )
        return least + max(map(float, sizes), default=0.0)

    def round_amounts(self, values: Floats) -> Floats | None:
        """Amounts that can be taken, near the values of the first columns; None if they would change too much."""
        changes = self.changes
        amounts = np.clip(values[: len(changes)], 0.0, changes.top)
        amounts = np.where(changes.integer, np.rint(amounts), np.where(amounts > NOTHING, amounts, 0.0))
        amounts[changes.children[amounts[changes.parent[changes.children]] == 0]] = 0.0
        if self.avoid:
            changed = frozenset(changes.feature[(amounts > 0) & (changes.shift != 0)].tolist())
            if any(known <= changed for known in self.avoid):
                return None
        return amounts

    def cost(self, amounts: Floats) -> tuple[float, float]:
        """What amounts cost, and the sum of all differences."""
        differences = np.bincount(self.changes.feature, weights=self.changes.cost * amounts)
        total = float(differences.sum())
        return (total if self.distance == "l1" else float(differences.max(initial=0.0))), total

    def margins(self, amounts: Floats) -> tuple[Floats, Floats]:
        """Margins of rows of amounts, and the size of what they are sums of."""
        a = self.changes.base + amounts @ self.changes.gain
        size = np.abs(a).max(axis=-1)
        for name, w, b in zip(self.net.activations, self.net.weights[1:], self.net.biases[1:], strict=True):
            a = activate(name, a)
            size = np.abs(a) @ np.abs(w).max(axis=1) + np.abs(b).max()
            a = a @ w + b
        return self.goal.margins(a), 1.0 + size

    def margin(self, amounts: Floats) -> tuple[float, float]:
        """The same for one row."""
        margins, sizes = self.margins(amounts[None])
        return float(margins[0]), float(sizes[0])

    def pre_activations(self, amounts: Floats) -> list[Floats]:
        """Pre-activations of the hidden units, layer by layer."""
        z = self.changes.base + amounts @ self.changes.gain
        found = [z]
        for name, w, b in zip(self.net.activations, self.net.weights[1:], self.net.biases[1:], strict=True):
            z = activate(name, z.copy()) @ w + b
            found.append(z)
        return found[:-1]


def change_program(budget: ChangeBudget, margin: float | None, ranges: UnitRanges | None = None) -> ChangeProgram:
    """Least cost with at least this margin; or (None) the largest margin, as the least negative of a column.

    The first columns are the changes; that of the margin follows.
    """
    widest, effect = margin is None, budget.effect
    ranges = unit_ranges(budget, scores=widest) if ranges is None else ranges
    changes, goal = effect.changes, effect.goal
    largest, t = effect.distance == "linf" and not widest, len(changes)
    writer = ProgramBuilder()
    writer.columns(np.zeros(t), budget.top, integer=changes.integer)
    if widest:
        low, high = ranges[-1]
        up, down = np.maximum(goal.signs, 0.0), np.minimum(goal.signs, 0.0)
        least, most = low @ up + high @ down + goal.const, high @ up + low @ down + goal.const
        writer.column(float(least.min()), float(most.min()))
    if largest:
        writer.column(0.0, min(budget.cost, 1.0 + float((changes.cost * budget.top).sum())))
        for columns in changes.by_feature:
            writer.sparse({t: -1.0, **dict(zip(columns, changes.cost[columns].tolist(), strict=True))}, -np.inf, 0.0)
    form, const, phases = write_units(writer, effect, ranges)
    cost = np.zeros(len(writer.low))
    if not widest:
        cost[:t] = changes.cost * (budget.tie if largest else 1.0)
    if widest or largest:
        cost[t] = -1.0 if widest else 1.0
    for signs, offset in zip(goal.signs.T, goal.const, strict=True):
        values = signs @ form + (cost if widest else 0.0)
        writer.row(None, values, (margin or 0.0) - float(signs @ const + offset), np.inf)
    _write_changes(writer, budget)
    if not largest and not widest and np.isfinite(budget.cost):
        writer.row(None, cost.copy(), -np.inf, budget.cost)
    binaries = PhaseBinaries(phases, len(cost), effect.net.activations) if phases else None
    return ChangeProgram(**vars(writer.finish(cost).scaled_rows()), phases=binaries)


def _write_changes(writer: ProgramBuilder, budget: ChangeBudget) -> None:
    """Of the ways to change a feature at most one; no child without its parent; and what must not change together."""
    changes, top = budget.effect.changes, budget.top
    for columns in changes.by_feature:
        roots = [c for c in columns if changes.parent[c] < 0 and changes.integer[c]]
        if len(roots) > 1 and changes.top[roots].max() <= 1:
            writer.sparse(dict.fromkeys(roots, 1.0), -np.inf, 1.0)
    for child in changes.children.tolist():
        writer.sparse({child: 1.0, int(changes.parent[child]): -float(top[child])}, -np.inf, 0.0)
    changeable = set(changes.feature.tolist())
    for features in budget.effect.avoid:
        if features <= changeable:  # otherwise one of them stays as it is anyway
            indicators = np.flatnonzero((changes.parent < 0) & np.isin(changes.feature, list(features)))
            writer.sparse(dict.fromkeys(indicators.tolist(), 1.0), -np.inf, len(features) - 1.0)


#: How much of what is left of a column is tried in one step of a climb, and how many steps there are.
CLIMB_PARTS, CLIMB = (0.1, 0.3, 1.0), 200


def climb(effect: Effect, margin: float, deadline: float) -> Floats | None:
    """Amounts with a margin, not cheap: step by step the column that brings most for its cost; None if none does."""
    amounts, paid = np.zeros(len(effect.changes)), 0.0
    reached = effect.margin(amounts)[0]
    for _ in range(CLIMB):
        if reached >= margin or time.monotonic() > deadline:
            break
        steps = _steps(effect, amounts)
        gains = effect.margins(steps)[0] - reached
        costs = np.array([effect.cost(step)[0] for step in steps]) - paid
        far = np.flatnonzero(gains >= margin - reached)
        if len(far):
            amounts = steps[far[costs[far].argmin()]]
        else:
            worth = np.where(gains > 0, gains / np.maximum(costs, 1e-9), 0.0)
            if not worth.max(initial=0.0) > 0:
                return None
            amounts = steps[worth.argmax()]
        reached, paid = effect.margin(amounts)[0], effect.cost(amounts)[0]
    return amounts if reached >= margin else None


def _steps(effect: Effect, amounts: Floats) -> Floats:
    """Rows of amounts that differ from some in one column, and in what it excludes or needs."""
    changes, found = effect.changes, []
    for column in range(len(changes)):
        for part in CLIMB_PARTS:
            step, rest = amounts.copy(), part * (changes.top[column] - amounts[column])
            step[(changes.feature == changes.feature[column]) & (np.arange(len(changes)) != column)] = 0.0
            step[column] += np.ceil(rest) if changes.integer[column] else rest
            if changes.parent[column] >= 0:
                step[changes.parent[column]] = 1.0
            kept = effect.round_amounts(step)
            if kept is not None and (kept != amounts).any():
                found.append(kept)
    return np.array(found).reshape(-1, len(changes))
