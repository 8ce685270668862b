"""The cheapest rows that refits accept, from safest to cheapest, where models have no gradients.

A row moves on a grid: per feature the values between which the refits tell differences. What every move of one feature
does to the margins of all refits is a *sweep*. An ensemble of trees is a table of boxes on the grid, each with the
value of its leaf: a box that holds the row, or fails to in one feature only, is all that such moves can reach, so that
one pass over the table is a sweep, without calling a model. Any other model is asked about all these rows in one batch.

The rows of the path are asked for more and more modestly: the mean of the margins over the refits must be k of their
standard deviations above 0, for a falling k that is fixed in advance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._typing import Bools, Floats, Indices, Integers
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.sources.neighbours import rows_of_class
from apas.counterfactuals.space.feature import Feature
from apas.models.base import Leaves, Model, ReadsCells, class_indices, offers
from apas.models.trees import Trees

#: How many standard deviations of the refits' margins their mean must lie above 0 along a path, safest first.
LADDER = (5.0, 4.0, 3.0, 2.5, 2.0, 1.65, 1.3)
#: The same for the margin of one model, in units of the median margin of known rows of the class.
MARGINS = (2.5, 2.0, 1.6, 1.3, 1.1, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
BEAM, STEPS, PATIENCE = 8, 30, 2  # states kept, steps at most, and steps after the last gain
EACH = 1  # values per feature that a state hands on
PAIRS = 24  # first moves of pairs that are tried together
KNOWN = 24  # known rows from which a search starts as well
DEEP = 0.75  # half of them have margins above this quantile
THRESHOLDS = 63  # per feature, of those that trees have
FINE = 127  # a feature with at most so many steps is taken whole
COARSE = 15  # values of a feature where nothing is known about the model
LEAST = 500  # candidates per call of a model: its overhead would cost more than fewer
PROBES = 33  # places of a range at which an encoder is looked at
CHECKS = 12  # rows on which tables are compared with the models they stand for
EDGE = 1e-5  # margins closer to 0 are left alone: libraries that sum in float32 may decide otherwise there
AGREEMENT = 1e-4  # how far a table and its model may be apart, for the same reason


@dataclass(frozen=True)
class Demand:
    """What the margins of the refits must satisfy: mean - k sd >= need, or the least of them if `k` is None."""

    k: float | None
    need: float = EDGE

    def slack(self, sweep: Sweep) -> Floats:
        """By how much every move satisfies it."""
        return (sweep.least if self.k is None else sweep.mean - self.k * sweep.sd) - self.need


@dataclass(frozen=True)
class Sweep:
    """Margins after each move, over the refits: their mean, standard deviation and least."""

    mean: Floats
    sd: Floats
    least: Floats

    @classmethod
    def of(cls, margins: Floats) -> Sweep:
        """Of margins of shape (refits, moves)."""
        sd = margins.std(axis=0, ddof=1) if len(margins) > 1 else np.zeros(margins.shape[1])
        return cls(margins.mean(axis=0), sd, margins.min(axis=0))


@dataclass(frozen=True)
class Grid:
    """The values of all features, ascending with missing ones last, which of them every row has, and cuts.

    `cuts` counts the places before each value at which some refit tells two of them apart.
    """

    values: tuple[Floats, ...]
    common: tuple[Bools, ...]
    cuts: tuple[Integers, ...]


class RowGrid:
    """Where one row may go: per feature the values that it may have, its own among them; a state is a place in each."""

    def __init__(self, search: Search, grid: Grid) -> None:
        self.search, self.grid = search, grid
        space, x = search.task.space, search.input
        # of each set of features that must not change as a whole, one is left alone
        held = {min(known) for known in search.avoid}
        self.places: list[Indices] = []
        start = []
        for i, feature in enumerate(space):
            places = _reachable(feature, grid, i, x[i], i in held)
            self.places.append(places)
            values = grid.values[i][places]
            start.append(np.flatnonzero((values == x[i]) | (np.isnan(values) & np.isnan(x[i])))[0])
        self.start = np.array(start)
        self.sizes = np.array([len(p) for p in self.places])
        self.first = np.cumsum([0, *self.sizes[:-1]])
        self.feature = np.repeat(np.arange(len(x)), self.sizes)
        self.place = np.concatenate([np.arange(n) for n in self.sizes])
        values = [grid.values[i][p] for i, p in enumerate(self.places)]
        self.values = np.concatenate(values)
        costs = [f.differences(v, np.full(len(v), x[i])) for i, (f, v) in enumerate(zip(space, values, strict=True))]
        self.largest = search.task.distance != "l1"
        self.cost = np.concatenate(costs) / (1 if self.largest else len(x))

    def point(self, state: Indices) -> Floats:
        """The row itself."""
        return self.values[self.first + state]

    def costs(self, state: Indices) -> Floats:
        """What the row costs after each move."""
        own = self.cost[self.first + state]
        if not self.largest:
            return np.asarray(own.sum() - own[self.feature] + self.cost)
        others = np.array([np.delete(own, i).max(initial=0.0) for i in range(len(own))])
        return np.maximum(others[self.feature], self.cost)

    def moved(self, state: Indices, move: int) -> Indices:
        """The state after a move."""
        after = state.copy()
        after[self.feature[move]] = self.place[move]
        return after

    def moves(self, state: Indices) -> Floats:
        """The rows after all moves, shape (moves, features)."""
        rows = np.tile(self.point(state), (len(self.values), 1))
        rows[np.arange(len(rows)), self.feature] = self.values
        return rows

    def nearest(self, rows: Floats) -> Integers:
        """The states nearest to rows, shape (rows, features); what is not on the grid stays as it is."""
        found = np.tile(self.start, (len(rows), 1))
        for i, feature in enumerate(self.search.task.space):
            values = self.values[self.first[i] : self.first[i] + self.sizes[i]]
            apart = np.abs(rows[:, i, None] - values)
            near = np.nan_to_num(apart, nan=np.inf).argmin(axis=1)
            fits = np.isfinite(rows[:, i]) & (feature.kind != "categorical" or (apart == 0).any(axis=1))
            found[:, i] = np.where(fits & (self.sizes[i] > 1), near, found[:, i])
        return found


def _reachable(feature: Feature, grid: Grid, i: int, own: float, held: bool) -> Indices:
    """Places of the values that a feature may have: where nothing tells values apart, the nearest to its own."""
    values, cuts = grid.values[i], grid.cuts[i]
    same = (values == own) | (np.isnan(values) & np.isnan(own))
    here = int(np.flatnonzero(same)[0])
    fine = grid.common[i] & ~same & feature.allows(values, np.full(len(values), own)) & (not held)
    above, below = np.flatnonzero(fine[here:]) + here, np.flatnonzero(fine[:here])[::-1]
    if feature.kind != "categorical":  # the first value behind each cut
        above = above[np.unique(cuts[above], return_index=True)[1]]
        above = above[cuts[above] > cuts[here]]
        below = below[np.unique(-cuts[below], return_index=True)[1]]
        below = below[cuts[below] < cuts[here]]
    return np.sort(np.concatenate([below, [here], above]).astype(np.intp))


def _grid_values(task: Task, inputs: Floats, wanted: Sequence[Floats | None]) -> tuple[list[Floats], list[Bools]]:
    """Values of each feature and which of them are common: at both sides of thresholds, or spread where there are none."""
    values, common = [], []
    for i, (feature, thresholds) in enumerate(zip(task.space, wanted, strict=True)):
        shared = _common_values(task, i, feature, thresholds) if feature.mutable else np.empty(0)
        own = inputs[:, i]
        found = np.unique(np.concatenate([shared, own[~np.isnan(own)]]))
        missing = [np.nan] if np.isnan(own).any() else []
        values.append(np.array([*found, *missing]))
        common.append(np.array([*np.isin(found, shared), *(False for _ in missing)], dtype=bool))
    return values, common


def _common_values(task: Task, i: int, feature: Feature, thresholds: Floats | None) -> Floats:
    if feature.listed is not None:
        return feature.listed
    low, high = feature.ends
    steps = np.inf if feature.step is None else (high - low) / feature.step
    if steps <= (FINE if thresholds is not None else COARSE):
        return feature.on_grid(np.arange(np.ceil(-1e-9), np.floor(steps + 1e-9) + 1))
    if thresholds is None:
        known = None if task.background is None else task.background[:, i][~np.isnan(task.background[:, i])]
        spread = np.linspace(*feature.ends, COARSE) if np.isfinite(high - low) else np.empty(0)
        asked = spread if known is None or not len(known) else np.quantile(known, np.linspace(0, 1, COARSE))
        sides = (0,)
    else:
        asked, sides = np.sort(thresholds[(thresholds > low) & (thresholds < high)]), (0, 1)
        if len(np.unique(asked)) > THRESHOLDS:  # where they are densest
            asked = np.quantile(asked, np.linspace(0, 1, THRESHOLDS + 2)[1:-1], method="nearest")
    # values are steps, or short decimals beside a threshold: a range has ten thousand to a hundred thousand of them
    digits = -int(np.floor(np.log10(feature.span * 1e-4)))
    unit = feature.step or 10.0**-digits
    count = np.unique([np.floor((asked - (feature.anchor if feature.step else 0.0)) / unit) + side for side in sides])
    found = feature.on_grid(count) if feature.step else np.round(count * unit, max(0, digits))
    return np.unique(found[(found >= low) & (found <= high)])


class LeafTable:
    """The leaves of all refits as boxes on the grid of a call."""

    def __init__(self, grid: Grid, parts: Sequence[tuple[Any, ...]], base: Floats) -> None:
        self.grid, self.base = grid, base  # base: (refits, outputs)
        self.refit = np.repeat(np.arange(len(parts)), [len(value) for value, *_ in parts])
        self.value = np.concatenate([value for value, *_ in parts])
        #: Boxes are bounded in some features only: per bound its box, feature, and first and last place inside.
        counts = [len(value) for value, *_ in parts]
        before = np.cumsum([0, *counts[:-1]])
        self.box = np.concatenate([box + a for a, (_, box, *_) in zip(before, parts, strict=True)])
        self.feature, self.low, self.high = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))

    @classmethod
    def of(cls, task: Task, refits: Sequence[Model], inputs: Floats) -> LeafTable | None:
        """The table, or None if a refit is no ensemble of trees that can be read, or mixes features before them."""
        ensembles = [refit.trees() if offers(refit, Leaves) else None for refit in refits]
        encoders = [_Encoder(Task(m, task.space), t) for m, t in zip(refits, ensembles, strict=True) if t is not None]
        if len(encoders) < len(refits):
            return None
        probes = [np.unique(np.concatenate([_probes(task, i, inputs), inputs[:1, i]])) for i in range(len(task.space))]
        pooled: list[list[Floats]] = [[] for _ in task.space]
        for encoder in encoders:
            told = encoder.thresholds(probes)
            if told is None:
                return None
            for i, some in enumerate(told):
                pooled[i].append(some)
        values, common = _grid_values(task, inputs, [np.concatenate(some) for some in pooled])
        parts, cuts = [], [np.zeros(max(0, len(v) - 1), dtype=bool) for v in values]
        for encoder in encoders:
            part = encoder.boxes(values, cuts)
            if part is None:
                return None
            parts.append(part)
        counted = tuple(np.concatenate([[0], np.cumsum(c)]) for c in cuts)
        for i, v in enumerate(values):  # what is missing is apart from all values
            counted[i][-1] += np.isnan(v[-1])
        table = cls(Grid(tuple(values), tuple(common), counted), parts, np.array([t.base for t in ensembles if t]))
        return table if table._agrees(task, refits, inputs) else None

    def sums(self, places: Indices) -> Floats:
        """What the refits give the row of these places, shape (refits, outputs)."""
        at = places[self.feature]
        outside = np.bincount(self.box[(at < self.low) | (at > self.high)], minlength=len(self.value)) > 0
        hit, found = np.flatnonzero(~outside), self.base.copy()
        for k in range(found.shape[1]):
            found[:, k] += np.bincount(self.refit[hit], self.value[hit, k], minlength=len(found))
        return found

    def _agrees(self, task: Task, refits: Sequence[Model], inputs: Floats) -> bool:
        """Whether the table says what the refits say about some rows; what is read of a library may be otherwise."""
        draws = np.random.default_rng(0)
        sizes = [int(np.isfinite(v).sum()) or 1 for v in self.grid.values]
        places = np.array([[draws.integers(n) for n in sizes] for _ in range(CHECKS)])
        rows = np.array([[v[p] for v, p in zip(self.grid.values, row, strict=True)] for row in places])
        label = task.model.classes[-1]
        told = np.array([towards(self.sums(row), len(task.model.classes) - 1) for row in places])
        said = np.array([refit.margin(Task(refit, task.space).encoded(rows), label) for refit in refits]).T
        clear = (np.abs(told) > EDGE) & (np.abs(said) > EDGE)
        return bool(((told > 0) == (said > 0))[clear].all())


def towards(sums: Floats, wanted: int) -> Floats:
    """Margins towards a class, from outputs in the last axis: one for two classes, else one per class."""
    if sums.shape[-1] == 1:
        return sums[..., 0] if wanted == 1 else -sums[..., 0]
    return np.asarray(sums[..., wanted] - np.delete(sums, wanted, axis=-1).max(axis=-1))


def _probes(task: Task, i: int, inputs: Floats) -> Floats:
    """Values of a feature at which an encoder is looked at before any threshold is known."""
    feature = task.space.features[i]
    if not feature.mutable:
        return np.unique(inputs[:1, i])
    if feature.listed is not None:
        return feature.listed
    known = inputs[:, i] if task.background is None else np.concatenate([inputs[:, i], task.background[:, i]])
    ends = (np.nanmin(known, initial=np.inf), np.nanmax(known, initial=-np.inf))
    low, high = (end if np.isfinite(end) else seen for end, seen in zip(feature.ends, ends, strict=True))
    if not np.isfinite(high - low):
        return np.zeros(1)
    spread = np.linspace(low, high, PROBES)
    return feature.snapped(spread, np.full(PROBES, np.nan)) if feature.step else spread


class _Encoder:
    """How the numbers that one ensemble compares depend on the features: each on one of them, or the table gives up."""

    def __init__(self, task: Task, trees: Trees) -> None:
        self.task, self.trees = task, trees
        #: Whether the model reads cells as they are, so that columns are features.
        self.plain = offers(task.model, ReadsCells)

    def _read(self, points: Floats) -> Floats:
        return self.trees.read(self.task.encoded(points))

    def columns(self, values: Sequence[Floats]) -> tuple[Integers, list[Floats]] | None:
        """The feature that each column depends on, and its numbers for the values of that feature."""
        sizes = [len(v) for v in values]
        if self.plain:  # all features at once: row number i has value number i of each
            rows = np.stack([v[np.arange(max(sizes)) % len(v)] for v in values], axis=1)
            found, names = self._read(rows), getattr(self.task.model, "feature_names", None)
            place = {name: i for i, name in enumerate(self.task.space.names)}
            owner = np.array([place[n] for n in names] if names else range(len(values)))
            return owner, [found[: sizes[f], c] for c, f in enumerate(owner)]
        first, of = np.array([v[0] for v in values]), np.repeat(np.arange(len(values)), sizes)
        rows = np.tile(first, (len(of), 1))
        rows[np.arange(len(of)), of] = np.concatenate(values)
        draws = np.random.default_rng(0)
        places = np.stack([draws.integers(n, size=CHECKS) for n in sizes], axis=1)
        mixed = np.stack([v[places[:, i]] for i, v in enumerate(values)], axis=1)
        found = self._read(np.concatenate([rows, mixed]))
        found, told = found[: len(rows)], found[len(rows) :]
        differs = ~((found == found[:1]) | (np.isnan(found) & np.isnan(found[:1])))
        depends = np.stack([differs[of == f].any(axis=0) for f in range(len(values))])
        owner = depends.argmax(axis=0)
        numbers = [found[of == f, c] for c, f in enumerate(owner)]
        expected = np.stack([numbers[c][places[:, f]] for c, f in enumerate(owner)], axis=1)
        same = np.isclose(expected, told, rtol=1e-6, atol=1e-9, equal_nan=True).all()
        return (owner, numbers) if same and (depends.sum(axis=0) <= 1).all() else None

    def thresholds(self, probes: Sequence[Floats]) -> list[Floats] | None:
        """The thresholds of each feature in its own units, as far as they can be told."""
        known = self.columns(probes)
        if known is None:
            return None
        found: list[list[Floats]] = [[] for _ in probes]
        for c, (f, numbers) in enumerate(zip(*known, strict=True)):
            asked = self.trees.threshold[self.trees.column == c]
            rises = np.diff(numbers)
            if self.plain:
                found[f].append(asked)
            elif len(rises) and ((rises > 0).all() or (rises < 0).all()):  # between the probes it is taken as straight
                order = slice(None, None, 1 if rises[0] > 0 else -1)
                back = np.interp(asked, numbers[order], probes[f][order], left=np.nan, right=np.nan)
                found[f].append(back[~np.isnan(back)])
        return [np.concatenate([np.empty(0), *some]) for some in found]

    def boxes(self, values: Sequence[Floats], cuts: list[Bools]) -> tuple[Any, ...] | None:
        """The leaves: their values, and of each bound its box, feature and ends; where nodes cut is noted in `cuts`."""
        known = self.columns(values)
        if known is None:
            return None
        trees, (owner, numbers) = self.trees, known
        feature = np.where(trees.column >= 0, owner[trees.column], 0)
        runs = [list[tuple[Indices, Indices, Indices]](), list[tuple[Indices, Indices, Indices]]()]
        for c, given in enumerate(numbers):
            nodes, whole = np.flatnonzero(trees.column == c), len(values[owner[c]])
            if not len(nodes):
                continue
            left = given <= trees.threshold[nodes, None]
            left[:, np.isnan(given)] = trees.missing_left[nodes, None]
            for row, node in enumerate(nodes.tolist()):
                if node in trees.levels:
                    left[row] = trees.goes_left(node, given)
            cuts[owner[c]] |= (left[:, 1:] != left[:, :-1]).any(axis=0)
            for side, inside in enumerate((left, ~left)):
                edges = np.diff(np.pad(inside.astype(np.int8), ((0, 0), (1, 1))), axis=1)
                (row, first), last = np.nonzero(edges == 1), np.nonzero(edges == -1)[1] - 1
                runs[side].append((nodes[row], first, last))
            assert whole == left.shape[1]
        return self._descend(feature, [_Runs(len(trees.column), some) for some in runs], [len(v) for v in values])

    def _descend(self, feature: Integers, sides: Sequence[_Runs], sizes: Sequence[int]) -> tuple[Any, ...]:
        """Boxes of all leaves; a set of categories that are not neighbours makes several boxes of one leaf."""
        trees, last = self.trees, np.array(sizes) - 1
        node, values, bounds = trees.roots, [], []
        low, high = np.zeros((len(node), len(sizes)), dtype=np.int32), np.tile(last.astype(np.int32), (len(node), 1))
        count = 0
        while len(node):
            leaf = trees.left[node] < 0
            box, f = np.nonzero((low[leaf] > 0) | (high[leaf] < last))
            values.append(trees.value[node[leaf]])
            bounds.append((box + count, f, low[leaf][box, f], high[leaf][box, f]))
            count += int(leaf.sum())
            node, low, high = node[~leaf], low[~leaf], high[~leaf]
            following = []
            for side, child in zip(sides, (trees.left, trees.right), strict=True):
                for at, first, end in side.of(node):
                    f, nlow, nhigh = feature[node[at]], low[at], high[at]
                    every = np.arange(len(at))
                    nlow[every, f] = np.maximum(nlow[every, f], first)
                    nhigh[every, f] = np.minimum(nhigh[every, f], end)
                    fits = nlow[every, f] <= nhigh[every, f]
                    following.append((child[node[at]][fits], nlow[fits], nhigh[fits]))
            if not following:
                break
            node, low, high = (np.concatenate(part) for part in zip(*following, strict=True))
        return np.concatenate(values), *(np.concatenate(part) for part in zip(*bounds, strict=True))


class _Runs:
    """Per node the runs of places that it sends to one side."""

    def __init__(self, nodes: int, parts: Sequence[tuple[Indices, Indices, Indices]]) -> None:
        node, first, last = (np.concatenate([np.empty(0, dtype=np.intp), *(p[i] for p in parts)]) for i in range(3))
        order = np.argsort(node, kind="stable")
        self.first, self.last = first[order], last[order]
        self.count = np.bincount(node, minlength=nodes)
        self.begin = np.cumsum(self.count) - self.count

    def of(self, nodes: Integers) -> Iterable[tuple[Indices, Indices, Indices]]:
        """The first runs of all nodes, the second ones and so on: which nodes have one, and its ends."""
        for number in range(int(self.count[nodes].max(initial=0))):
            at = np.flatnonzero(self.count[nodes] > number)
            place = self.begin[nodes[at]] + number
            yield at, self.first[place], self.last[place]


class LeafSweeps:
    """Sweeps of one row by passes over the table; boxes that it cannot reach are left out."""

    def __init__(self, table: LeafTable, grid: RowGrid, wanted: int) -> None:
        self.grid, self.wanted = grid, wanted
        refits, self.outputs = table.base.shape
        # the first place of the row's grid inside, and the last one
        counts = [np.searchsorted(p, np.arange(len(v) + 1)) for p, v in zip(grid.places, table.grid.values, strict=True)]
        offsets = np.cumsum([0, *(len(c) for c in counts[:-1])])[table.feature]
        places = np.concatenate(counts)
        low, high = places[offsets + table.low], places[offsets + table.high + 1] - 1
        gone = np.zeros(len(table.value), dtype=bool)
        gone[table.box[low > high]] = True
        bounded = ~gone[table.box] & ((low > 0) | (high < grid.sizes[table.feature] - 1))
        box = table.box[bounded]
        free = ~gone
        free[box] = False
        self.base = table.base.copy()
        for k in range(self.outputs):  # of boxes without bounds, which hold the row wherever it goes
            self.base[:, k] += np.bincount(table.refit[free], table.value[free, k], minlength=refits)
        boxes, self.starts, self.counts = np.unique(box, return_index=True, return_counts=True)
        self.refit, self.value = table.refit[boxes], table.value[boxes]
        self.feature, low, high = table.feature[bounded], low[bounded], high[bounded]
        # per feature the first and last place inside of each box, in bytes, since a pass reads all of them
        self.low = np.zeros((len(grid.sizes), len(boxes)), dtype=np.uint8)
        self.high = np.full_like(self.low, 255)
        number = np.repeat(np.arange(len(boxes)), self.counts)
        self.low[self.feature, number], self.high[self.feature, number] = low, high
        # Each feature has a place more than values, where what was added at a first place has been taken away again.
        self.offsets, self.width = grid.first + np.arange(len(grid.sizes)), int(grid.sizes.sum() + len(grid.sizes))
        begin = np.repeat(self.refit, self.counts) * self.width + self.offsets[self.feature]
        self.steps = np.stack([begin, begin + low, begin + high + 1, begin + grid.sizes[self.feature]], axis=1)
        self.columns = np.arange(len(grid.values)) + grid.feature

    def __call__(self, states: Sequence[Indices]) -> list[Sweep]:
        """The sweep of each state."""
        return [Sweep.of(towards(self.margins(state), self.wanted)) for state in states]

    def margins(self, state: Indices) -> Floats:
        """What all refits give the row after every move, shape (refits, moves, outputs)."""
        # in the lower half of each number the features in which a box misses the row, in the upper the sum of theirs
        misses = np.zeros(len(self.refit), dtype=np.uint32)
        for f, place in enumerate(state.tolist()):
            if self.grid.sizes[f] > 1:
                misses += ((self.low[f] > place) | (self.high[f] < place)) * np.uint32((f << 16) + 1)
        held, near = np.flatnonzero(misses == 0), np.flatnonzero(misses & 0xFFFF == 1)
        # A box that holds the row is lost by a move out of its bounds; one that fails in a single feature is won by a
        # move into them. Both are steps up and down at places of that feature, of which running sums are taken.
        counts, feature = self.counts[held], misses[near] >> 16
        bounds = np.repeat(self.starts[held] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        begin = self.refit[near] * self.width + self.offsets[feature]
        enter, leave = begin + self.low[feature, near], begin + self.high[feature, near] + 1
        places, owner = np.concatenate([self.steps[bounds].ravel(), enter, leave]), np.repeat(held, counts)
        refits = len(self.base)
        found = np.empty((refits, len(self.columns), self.outputs))
        for k in range(self.outputs):
            lost, won = self.value[owner, k], self.value[near, k]
            sizes = np.concatenate([(lost[:, None] * [-1.0, 1.0, -1.0, 1.0]).ravel(), won, -won])
            steps = np.bincount(places, sizes, minlength=refits * self.width).reshape(refits, self.width)
            total = self.base[:, k] + np.bincount(self.refit[held], self.value[held, k], minlength=refits)
            found[:, :, k] = total[:, None] + np.cumsum(steps, axis=1)[:, self.columns]
        return found


class PredictedSweeps:
    """Sweeps by the models' own answers, for at least so many rows at a time that calls cost little."""

    def __init__(self, refits: Sequence[Model], grid: RowGrid, scale: float) -> None:
        self.grid, self.scale = grid, scale
        self.tasks = [Task(refit, grid.search.task.space) for refit in refits]

    def __call__(self, states: Sequence[Indices]) -> list[Sweep]:
        """The sweep of each state."""
        rows, each = np.concatenate([self.grid.moves(state) for state in states]), len(self.grid.values)
        distinct, back = np.unique(rows, axis=0, return_inverse=True)
        label = self.grid.search.target
        margins = np.array([task.margins(distinct, label) for task in self.tasks])
        # logarithms of odds have no end where a share is 0 or 1, and one such refit would drown all others
        margins = np.tanh(margins / (2 * self.scale))[:, back.ravel()]
        return [Sweep.of(margins[:, i * each : (i + 1) * each]) for i in range(len(states))]


class RefitSearch:
    """The search of one row on its grid, for all demands of a path."""

    def __init__(self, grid: RowGrid, sweeps: Callable[[Sequence[Indices]], list[Sweep]], least: int = 0) -> None:
        self.grid, self.sweeps, self.least = grid, sweeps, least
        self.known: dict[bytes, Sweep] = {}

    def look(self, states: Iterable[Indices]) -> None:
        """Sweep the states that are new; and, to fill a call, some that may be asked about next."""
        new = {s.tobytes(): s for s in states if s.tobytes() not in self.known}
        if not new:
            return
        for state in list(new.values()):
            for i in np.flatnonzero(self.grid.sizes > 1):
                for place in (self.grid.start[i], state[i] - 1, state[i] + 1):
                    if len(new) * len(self.grid.values) >= self.least:
                        break
                    if 0 <= place < self.grid.sizes[i]:
                        other = self.grid.moved(state, int(self.grid.first[i] + place))
                        new |= {other.tobytes(): other} if other.tobytes() not in self.known else {}
        self.known |= zip(new, self.sweeps(list(new.values())), strict=True)

    def slacks(self, state: Indices, demand: Demand) -> Floats:
        """By how much the rows after every move satisfy a demand."""
        return demand.slack(self.known[state.tobytes()])

    def slack(self, state: Indices, demand: Demand) -> float:
        """The same for the row itself."""
        self.look([state])
        return float(self.slacks(state, demand)[self.grid.first[0] + state[0]])

    def expired(self) -> bool:
        """Whether the time of the call is up."""
        return time.monotonic() > self.grid.search.task.deadline

    def path(self, demands: Sequence[Demand], starts: Integers) -> Floats:
        """A row for each demand that one was found for, without those that cost no less than a safer one."""
        self.look([self.grid.start, *starts])
        beams = self._beams(demands)
        found: list[Floats] = []
        last: tuple[float, Indices | None] = (np.inf, None)
        for demand, (cost, state) in zip(demands, beams, strict=True):
            if cost < last[0] and state is not None:
                last = (cost, state)
            elif last[1] is None:  # nothing on the way from the input: from what is known
                fits = [s for s in starts if self.slack(s, demand) >= 0]
                last = min(((self._cost(s), s) for s in fits), key=lambda pair: pair[0], default=last)
            if last[1] is None:
                continue
            better = self._polish(last[1], demand)
            if not found or self._cost(better) < self._cost(last[1]) or last[1] is state:
                found.append(self.grid.point(better))
            last = (self._cost(better), better)
        kept: list[Floats] = []
        for row in found:
            if not kept or self.grid.search.cost(row) < self.grid.search.cost(kept[-1]):
                kept.append(row)
        return np.array(kept).reshape(len(kept), len(self.grid.start))

    def _cost(self, state: Indices) -> float:
        return float(self.grid.costs(state)[self.grid.first[0] + state[0]])

    def _beams(self, demands: Sequence[Demand]) -> list[tuple[float, Indices | None]]:
        """The cheapest state found for each demand by beams from the input, which go on side by side."""
        start = self.grid.start
        best: list[tuple[float, Indices | None]] = [(np.inf, None)] * len(demands)
        beams, idle = [[start] for _ in demands], [0] * len(demands)
        lacks = [-self.slack(start, demand) for demand in demands]
        for _ in range(STEPS):
            if self.expired():
                break
            self.look(state for beam in beams for state in beam)
            for i, demand in enumerate(demands):
                if beams[i]:
                    before = best[i][0]
                    best[i], beams[i] = self._advance(demand, lacks[i], beams[i], best[i])
                    idle[i] = idle[i] + 1 if best[i][0] == before < np.inf else 0
                    beams[i] = beams[i] if idle[i] < PATIENCE else []
            if not any(beams):
                break
        return best

    def _advance(
        self, demand: Demand, lack: float, beam: list[Indices], best: tuple[float, Indices | None]
    ) -> tuple[tuple[float, Indices | None], list[Indices]]:
        """The cheapest state so far, and the next beam: by what a row would cost if it went on gaining as it has."""
        options: list[tuple[float, int, int]] = []
        for number, state in enumerate(beam):
            slacks, costs = self.slacks(state, demand), self.grid.costs(state)
            fits = np.where(slacks >= 0, costs, np.inf)
            move = int(fits.argmin())
            if fits[move] < best[0]:
                best = (float(fits[move]), self.grid.moved(state, move))
            gained = lack + slacks
            with np.errstate(divide="ignore", invalid="ignore"):
                estimate = np.where((slacks < 0) & (gained > 0) & (costs > 0), costs * lack / gained, np.inf)
            some = np.flatnonzero(np.isfinite(estimate) & (costs < best[0]))
            some = some[np.argsort(estimate[some], kind="stable")]
            for _ in range(EACH):  # values of one feature that differ little must not fill the beam
                first = np.unique(self.grid.feature[some], return_index=True)[1]
                options += [(float(estimate[m]), number, int(m)) for m in some[first]]
                some = np.delete(some, first)
        following: dict[bytes, Indices] = {}
        for _, number, move in sorted(options):
            state = self.grid.moved(beam[number], move)
            if state.tobytes() not in following and not any((state == old).all() for old in beam):
                following[state.tobytes()] = state
            if len(following) == BEAM:
                break
        return best, list(following.values())

    def _polish(self, state: Indices, demand: Demand) -> Indices:
        """A state that no move, and none of the tried pairs of moves, makes cheaper."""
        while not self.expired():
            self.look([state])
            slacks, costs, now = self.slacks(state, demand), self.grid.costs(state), self._cost(state)
            now -= 1e-12 * max(now, 1e-12)  # costs are sums in another order each time
            fits = np.where(slacks >= 0, costs, np.inf)
            if fits.min() < now:
                state = self.grid.moved(state, int(fits.argmin()))
                continue
            down = np.flatnonzero((costs < now) & (slacks < 0))
            down = down[np.argsort(-slacks[down], kind="stable")][:PAIRS]
            firsts = [self.grid.moved(state, int(move)) for move in down]
            self.look(firsts)
            pairs = [(np.where(self.slacks(s, demand) >= 0, self.grid.costs(s), np.inf), s) for s in firsts]
            options = [(float(c.min()), i, int(c.argmin())) for i, (c, _) in enumerate(pairs)]
            if not options or min(options)[0] >= now:
                return state
            _, i, move = min(options)
            state = self.grid.moved(pairs[i][1], move)
        return state


def _known_states(search: Search, grid: RowGrid, known: Floats) -> Integers:
    """States near known rows of the class: of all of them the nearest, and of those that lie deep in it."""
    if not len(known):
        return np.empty((0, len(search.input)), dtype=np.intp)
    margins = search.task.once(("known margins", search.target), lambda: search.task.margins(known, search.target))
    found = grid.nearest(known)
    costs = grid.cost[grid.first + found].sum(axis=1)
    order = np.argsort(costs, kind="stable")
    deep = order[margins[order] >= np.quantile(margins, DEEP)]
    return np.unique(found[np.concatenate([order[: KNOWN // 2], deep[: KNOWN // 2]])], axis=0)


def refit_path(search: Search, refits: Sequence[Model], all_accept: bool = False) -> Floats:
    """Rows from the safest to the cheapest that the refits accept, shape (rows, features); there may be none.

    With one model its margin is what must be large; with `all_accept` the path ends with rows that every refit accepts.
    """
    task, x = search.task, search.input
    inputs = x[None] if task.inputs is None else task.inputs
    table = task.once("leaf table", lambda: LeafTable.of(task, refits, inputs))
    known = rows_of_class(task, search.target)
    if table is not None:
        grid = RowGrid(search, table.grid)
        wanted = int(class_indices(task.model.classes, search.target, 1)[0])
        looking = RefitSearch(grid, LeafSweeps(table, grid, wanted))
    else:
        values, common = _grid_values(task, inputs, [None] * len(task.space))
        grid = RowGrid(search, Grid(tuple(values), tuple(common), tuple(np.arange(len(v)) for v in values)))
        scale = max(1.0, float(np.median(np.abs(task.margins(known if len(known) else x[None], search.target)))))
        looking = RefitSearch(grid, PredictedSweeps(refits, grid, scale), LEAST)
    states = _known_states(search, grid, known)
    demands = [Demand(k) for k in LADDER]
    if len(refits) == 1:
        looking.look([grid.start, *states])
        here = [max(looking.slack(s, Demand(None, 0.0)), 0.0) for s in states]
        size = float(np.median(here)) if any(here) else abs(looking.slack(grid.start, Demand(None, 0.0)))
        demands = [Demand(None, part * size) for part in MARGINS]
    if all_accept:
        demands.append(Demand(None))
    rows = looking.path(demands, states)
    return rows[task.valid(rows, search.target)] if len(rows) else rows
