"""The leaves of all refits as boxes on a grid of thresholds: exact margins of every one-feature move in one pass.

What an encoder makes of numbers, steps, levels and missing cells is looked up: one-hot columns fold into a category.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from apas._typing import Bools, Floats, Indices, Integers
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.space.encoder import numbers_to_try, one_by_one
from apas.counterfactuals.space.feature import Feature
from apas.models.base import Leaves, Model, ReadsCells, offers
from apas.models.trees import Trees, towards

THRESHOLDS, RARE = 63, 16  # per feature, of those that trees have; and how many of them are spread over all
FINE = 127  # a feature with at most so many steps is taken whole
COARSE = 15  # values of a feature where nothing is known about the model
SPREAD = 48  # numbers of a feature that are encoded to see whether it reaches the trees along a straight line
STRAIGHT = 1e-9  # how far from straight a line may be, in units of the largest entry of its column
CHECKS = 12  # rows on which tables are compared with the models they stand for
EDGE = 1e-5  # margins closer to 0 are left alone: libraries that sum in float32 may decide otherwise there


@dataclass(frozen=True)
class Grid:
    """The values of all features, ascending with missing ones last, and which of them every row has."""

    values: tuple[Floats, ...]
    common: tuple[Bools, ...]
    cuts: tuple[Integers, ...]  # counts the places before each value at which some refit tells two of them apart


class RowGrid:
    """Where one row may go: per feature the values that it may have, its own among them; a state is a place in each."""

    def __init__(self, search: Search, grid: Grid) -> None:
        self.search, self.grid = search, grid
        space, x = search.task.space, search.input
        # of each set of features that must not change as a whole, one is left alone
        held = {min(known) for known in search.avoid}
        self.places = [_reachable(feature, grid, i, x[i], i in held) for i, feature in enumerate(space)]
        parts = [grid.values[i][places] for i, places in enumerate(self.places)]
        self.start = np.array([np.flatnonzero(_is_own(v, own))[0] for v, own in zip(parts, x, strict=True)])
        self.sizes = np.array([len(p) for p in self.places])
        self.first = np.cumsum([0, *self.sizes[:-1]])
        self.feature = np.repeat(np.arange(len(x)), self.sizes)
        self.place = np.concatenate([np.arange(n) for n in self.sizes])
        self.values = np.concatenate(parts)
        costs = [f.differences(v, np.full(len(v), x[i])) for i, (f, v) in enumerate(zip(space, parts, strict=True))]
        self.largest = search.task.distance != "l1"
        self.cost = np.concatenate(costs) / (1 if self.largest else len(x))

    def point(self, state: Indices) -> Floats:
        """The row itself."""
        return np.asarray(self.values[self.first + state])

    def costs(self, state: Indices) -> Floats:
        """What the row costs after each move."""
        own = self.cost[self.first + state]
        if not self.largest:
            return np.asarray(own.sum() - own[self.feature] + self.cost)
        others = np.array([np.delete(own, i).max(initial=0.0) for i in range(len(own))])
        return np.asarray(np.maximum(others[self.feature], self.cost))

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


def _is_own(values: Floats, own: float) -> Bools:
    return np.asarray((values == own) | (np.isnan(values) & np.isnan(own)))


def _reachable(feature: Feature, grid: Grid, i: int, own: float, held: bool) -> Indices:
    """Places of the values that a feature may have: where nothing tells values apart, the nearest to its own."""
    values, cuts = grid.values[i], grid.cuts[i]
    same = _is_own(values, own)
    here = int(np.flatnonzero(same)[0])
    fine = grid.common[i] & ~same & feature.allows(values, np.full(len(values), own)) & (not held)
    above, below = np.flatnonzero(fine[here:]) + here, np.flatnonzero(fine[:here])[::-1]
    if feature.kind != "categorical":  # the first value behind each cut
        above = above[np.unique(cuts[above], return_index=True)[1]]
        above = above[cuts[above] > cuts[here]]
        below = below[np.unique(-cuts[below], return_index=True)[1]]
        below = below[cuts[below] < cuts[here]]
    return np.sort(np.concatenate([below, [here], above]).astype(np.intp))


def grid_values(task: Task, inputs: Floats, wanted: Sequence[Floats | None]) -> tuple[list[Floats], list[Bools]]:
    """Values of each feature, and which of them are common: beside thresholds, or spread where there are none."""
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
        sides = [0]
    else:
        asked, sides = np.sort(thresholds[(thresholds > low) & (thresholds < high)]), [0, 1]
        if len(alone := np.unique(asked)) > THRESHOLDS:
            # where they are densest; and others, the ends among them, since a rare one may be what makes a row safe
            most = np.quantile(asked, np.linspace(0, 1, THRESHOLDS - RARE + 2)[1:-1], method="nearest")
            asked = np.unique(np.concatenate([most, alone[np.linspace(0, len(alone) - 1, RARE).astype(int)]]))
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
        counts = [len(value) for value, *_ in parts]
        self.refit = np.repeat(np.arange(len(parts)), counts)
        self.value = np.concatenate([value for value, *_ in parts])
        #: Boxes are bounded in some features only: per bound its box, feature, and first and last place inside.
        before = np.cumsum([0, *counts[:-1]])
        self.box = np.concatenate([box + a for a, (_, box, *_) in zip(before, parts, strict=True)])
        self.feature, self.low, self.high = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))

    @classmethod
    def of(cls, task: Task, refits: Sequence[Model], inputs: Floats) -> Self | None:
        """The table, or None if a refit is no ensemble of trees that can be read, or mixes features before them."""
        ensembles = [refit.trees() if offers(refit, Leaves) else None for refit in refits]
        encoders = [_Encoder(Task(m, task.space), t) for m, t in zip(refits, ensembles, strict=True) if t is not None]
        if len(encoders) < len(refits):
            return None
        (probes, shared), pooled = _probed_numbers(task, inputs), list[list[Floats]]([] for _ in task.space)
        # the first listed models are those of the search; they may have read the probes along with the inputs
        read: tuple[Floats, ...] = task.once("refits/leaves", tuple)
        for number, encoder in enumerate(encoders):
            told = encoder.thresholds(probes, shared, read[number][len(inputs) :] if len(read) > number else None)
            if told is None:
                return None
            for i, some in enumerate(told):
                pooled[i].append(some)
        values, common = grid_values(task, inputs, [np.concatenate(some) for some in pooled])
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
        return table if table._agrees(task, encoders) else None

    def sums(self, places: Indices) -> Floats:
        """What the refits give the row of these places, shape (refits, outputs)."""
        at = places[self.feature]
        outside = np.bincount(self.box[(at < self.low) | (at > self.high)], minlength=len(self.value)) > 0
        hit, found = np.flatnonzero(~outside), self.base.copy()
        for k in range(found.shape[1]):
            found[:, k] += np.bincount(self.refit[hit], self.value[hit, k], minlength=len(found))
        return found

    def _agrees(self, task: Task, encoders: Sequence["_Encoder"]) -> bool:
        """Whether the table says what the refits say about some rows; what is read of a library may be otherwise."""
        places, rows = _mixed_rows(self.grid.values)
        label = task.model.classes[-1]
        told = np.array([towards(self.sums(row), len(task.model.classes) - 1) for row in places])
        said = np.array([encoder.task.model.margin(encoder.checks(rows), label) for encoder in encoders]).T
        clear = (np.abs(told) > EDGE) & (np.abs(said) > EDGE) & np.isfinite(rows.sum(axis=1, keepdims=True))
        return bool(((told > 0) == (said > 0))[clear].all())


def _mixed_rows(values: Sequence[Floats]) -> tuple[Indices, Floats]:
    """Places of features that have been drawn one by one, and the rows that have these values."""
    draws = np.random.default_rng(0)
    places = np.stack([draws.integers(len(v), size=CHECKS) for v in values], axis=1)
    if (missing := np.array([np.isnan(v[-1]) for v in values])).any():  # it is drawn rarely, but rows begin there
        last = np.array([len(v) - 1 for v in values])
        places = np.concatenate([places, np.where(missing & (draws.random(places.shape) < 0.5), last, places)])
    return places, np.stack([v[places[:, i]] for i, v in enumerate(values)], axis=1)


def _probed_numbers(task: Task, inputs: Floats) -> tuple[list[Floats], list[Bools]]:
    """Numbers of each feature that are encoded to see how it reaches the trees, and which are there for all inputs."""
    found, common = [], []
    for i, feature in enumerate(task.space):
        own = np.unique(inputs[:, i][~np.isnan(inputs[:, i])])
        tried = numbers_to_try(task, i) if feature.mutable or not len(own) else own
        if feature.mutable and feature.listed is None and len(tried) < SPREAD:
            between = np.linspace(tried[0], tried[-1], SPREAD)
            count = np.rint((between - feature.anchor) / feature.step) if feature.step else between
            tried = np.concatenate([tried, feature.on_grid(count) if feature.step else between])
        found.append(np.unique(np.concatenate([tried, own])))
        common.append(np.isin(found[-1], tried))
    return found, common


def leaf_probes(task: Task, inputs: Floats) -> Floats:
    """The inputs, and the rows that a refit has to encode for the table: who encodes all in one go may pass it on."""
    values, _ = _probed_numbers(task, inputs)
    return np.concatenate([inputs, one_by_one(values, [v[0] for v in values])[0], _mixed_rows(values)[1]])


class _Encoder:
    """How the numbers that one ensemble compares depend on the features: each on one of them, or the table gives up."""

    def __init__(self, task: Task, trees: Trees) -> None:
        self.task, self.trees = task, trees
        #: Whether the model reads cells as they are, so that columns are features.
        self.plain = offers(task.model, ReadsCells)
        self._mixed: Floats | None = None  # what the model makes of `_mixed_rows` of the last values
        #: The feature of each column, its values that have been encoded, and what the model makes of them.
        self._told: list[tuple[int, Floats, Floats]] = []
        self._shared: Sequence[Bools] = ()  # which of these values do not depend on the inputs of the call

    def checks(self, rows: Floats) -> Floats:
        """Mixed rows of the last values as the model reads them."""
        return self.task.encoded(rows) if self._mixed is None else self._mixed

    def columns(self, values: Sequence[Floats], encoded: Floats | None = None) -> tuple[Integers, list[Floats]] | None:
        """The feature that each column depends on, and its numbers for these; `encoded` rows, if they are known."""
        sizes = [len(v) for v in values]
        if self.plain:  # all features at once: row number i has value number i of each
            rows = np.stack([v[np.arange(max(sizes)) % len(v)] for v in values], axis=1)
            found, names = self.trees.read(self.task.encoded(rows)), getattr(self.task.model, "feature_names", None)
            place = {name: i for i, name in enumerate(self.task.space.names)}
            owner = np.array([place[n] for n in names] if names else range(len(values)))
            return owner, [found[: sizes[f], c] for c, f in enumerate(owner)]
        (rows, of), (places, mixed) = one_by_one(values, [v[0] for v in values]), _mixed_rows(values)
        if encoded is None and (known := self._known_columns(values)) is not None:
            encoded = np.tile([column[0] for column in known], (len(of) + len(mixed), 1))
            for c, ((f, *_), column) in enumerate(zip(self._told, known, strict=True)):
                encoded[:, c] = np.concatenate([np.where(of == f, 0, column[0]), column[places[:, f]]])
                encoded[: len(of)][of == f, c] = column
        encoded = self.task.encoded(np.concatenate([rows, mixed])) if encoded is None else encoded
        found, self._mixed = self.trees.read(encoded), encoded[len(rows) :]
        found, told = found[: len(rows)], found[len(rows) :]
        differs = ~((found == found[:1]) | (np.isnan(found) & np.isnan(found[:1])))
        depends = np.stack([differs[of == f].any(axis=0) for f in range(len(values))])
        owner = depends.argmax(axis=0)
        numbers = [found[of == f, c] for c, f in enumerate(owner)]
        expected = np.stack([numbers[c][places[:, f]] for c, f in enumerate(owner)], axis=1)
        same = np.isclose(expected, told, rtol=1e-6, atol=1e-9, equal_nan=True).all()
        if not same or (depends.sum(axis=0) > 1).any():
            return None
        self._told = self._told or [(f, values[f], encoded[: len(of)][of == f, c]) for c, f in enumerate(owner)]
        return owner, numbers

    def _known_columns(self, values: Sequence[Floats]) -> list[Floats] | None:
        """What the model makes of values, column by column, from what is told; None if it must be asked."""
        if not self._told or any(np.isnan(v[-1]) for v in values):
            return None
        found = []
        for f, at, seen in self._told:
            place = np.minimum(np.searchsorted(at, values[f]), len(at) - 1)
            same = at[place] == values[f]
            if same.all() or (seen == at).all():  # a column of the table as it is must stay so to the last bit
                found.append(seen[place] if same.all() else values[f])
                continue
            first, *_, last = np.flatnonzero(self._shared[f])
            slope = (seen[last] - seen[first]) / (at[last] - at[first])
            if not (np.abs(seen[first] + (at - at[first]) * slope - seen) <= STRAIGHT * np.abs(seen).max()).all():
                return None
            found.append(np.where(same, seen[place], seen[first] + (values[f] - at[first]) * slope))
        return found

    def thresholds(
        self, probes: Sequence[Floats], shared: Sequence[Bools], encoded: Floats | None = None
    ) -> list[Floats] | None:
        """The thresholds of each feature in its own units, as far as the probes that are shared by all rows tell."""
        known, self._shared = self.columns(probes, encoded), shared
        if known is None:
            return None
        found: list[list[Floats]] = [[] for _ in probes]
        for c, (f, numbers) in enumerate(zip(*known, strict=True)):
            asked, at = self.trees.threshold[self.trees.column == c], probes[f][shared[f]]
            rises = np.diff(numbers := numbers[shared[f]])
            if self.plain:
                found[f].append(asked)
            elif len(rises) and ((rises > 0).all() or (rises < 0).all()):  # between the probes it is taken as straight
                order = slice(None, None, 1 if rises[0] > 0 else -1)
                back = np.interp(asked, numbers[order], at[order], left=np.nan, right=np.nan)
                found[f].append(back[~np.isnan(back)])
        return [np.concatenate([np.empty(0), *some]) for some in found]

    def boxes(self, values: Sequence[Floats], cuts: list[Bools]) -> tuple[Any, ...] | None:
        """The leaves: their values, and of each bound its box, feature and ends; where nodes cut is noted in `cuts`."""
        known = self.columns(values)
        if known is None:
            return None
        trees, (owner, numbers) = self.trees, known
        feature = np.where(trees.column >= 0, owner[trees.column], 0)
        runs: list[list[tuple[Indices, Indices, Indices]]] = [[], []]  # per side: nodes, and places that go there
        for c, given in enumerate(numbers):
            if not len(nodes := np.flatnonzero(trees.column == c)):
                continue
            left = given <= trees.threshold[nodes, None]
            left[:, np.isnan(given)] = trees.missing_left[nodes, None]
            for place in np.flatnonzero(np.isin(nodes, list(trees.levels))) if trees.levels else ():
                left[place] = trees.goes_left(int(nodes[place]), given)
            cuts[owner[c]] |= (left[:, 1:] != left[:, :-1]).any(axis=0)
            for side, inside in enumerate((left, ~left)):
                padded = np.zeros((len(nodes), len(given) + 2), dtype=bool)  # np.pad takes longer than all the rest
                padded[:, 1:-1] = inside
                (row, first), last = np.nonzero(inside & ~padded[:, :-2]), np.nonzero(inside & ~padded[:, 2:])[1]
                runs[side].append((nodes[row], first, last))
        ends = [_first_and_last(runs[side], len(feature)) for side in (0, 1)]
        return self._descend(feature, ends, np.array([len(v) - 1 for v in values]))

    def _descend(self, feature: Integers, ends: Sequence[Integers], last: Integers) -> tuple[Any, ...]:
        """Boxes of all leaves; a set of categories that are not neighbours makes several boxes of one leaf."""
        trees = self.trees
        node, values, bounds = trees.roots, [], []
        low, high = np.zeros((len(node), len(last)), dtype=np.int32), np.tile(last.astype(np.int32), (len(node), 1))
        count = 0
        while len(node):
            leaf = trees.left[node] < 0
            box, f = np.nonzero((low[leaf] > 0) | (high[leaf] < last))
            values.append(trees.value[node[leaf]])
            bounds.append((box + count, f, low[leaf][box, f], high[leaf][box, f]))
            count += int(leaf.sum())
            node, low, high = node[~leaf], low[~leaf], high[~leaf]
            following = []
            for (firsts, lasts), child in zip(ends, (trees.left, trees.right), strict=True):
                for first, end in zip(firsts[:, node], lasts[:, node], strict=True):
                    at = np.flatnonzero(first <= end)
                    f, nlow, nhigh, every = feature[node[at]], low[at], high[at], np.arange(len(at))
                    nlow[every, f] = np.maximum(nlow[every, f], first[at])
                    nhigh[every, f] = np.minimum(nhigh[every, f], end[at])
                    fits = nlow[every, f] <= nhigh[every, f]
                    following.append((child[node[at]][fits], nlow[fits], nhigh[fits]))
            node, low, high = (np.concatenate(part) for part in zip(*following, strict=True))
        return np.concatenate(values), *(np.concatenate(part) for part in zip(*bounds, strict=True))


def _first_and_last(runs: Sequence[tuple[Indices, Indices, Indices]], nodes: int) -> Integers:
    """Runs of places per node, shape (2, runs, nodes): first and last of each; those that a node lacks are empty."""
    node, first, last = (np.concatenate([part[i] for part in runs]) for i in range(3))
    order = np.argsort(node, kind="stable")
    counts = np.bincount(node, minlength=nodes)
    number = np.arange(len(node)) - np.repeat(np.cumsum(counts) - counts, counts)  # the runs of a node in their order
    found = np.zeros((2, int(counts.max(initial=1)), nodes), dtype=np.intp)
    found[1] = -1
    found[:, number, node[order]] = first[order], last[order]
    return found


class LeafSweeps:
    """Sweeps of one row by passes over the table; boxes that it cannot reach are left out."""

    def __init__(self, table: LeafTable, grid: RowGrid, wanted: int) -> None:
        self.grid, self.wanted = grid, wanted
        refits, self.outputs = table.base.shape
        # the first place of the row's grid inside, and the last one
        sizes = [len(values) for values in table.grid.values]
        counts = [np.searchsorted(p, np.arange(n + 1)) for p, n in zip(grid.places, sizes, strict=True)]
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

    def margins(self, state: Indices) -> Floats:
        """Margins of all refits after every move, shape (refits, moves)."""
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
        return towards(found, self.wanted)
