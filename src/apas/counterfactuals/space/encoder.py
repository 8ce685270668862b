"""How a model sees the rows of a space: cells as numbers, scaling, one-hot and thermometer columns.

Preprocessing of a model's own is probed: a constant plus a part from each feature, of numbers a straight line. What is
not so (a logarithm, a product of two features) shows when rows are encoded whose sum is known in advance.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._typing import Array, Bools, Floats, Indices
from apas._validation import check_matrix, is_frame
from apas.counterfactuals.space.feature import ON_GRID, Feature, is_missing, numbers
from apas.errors import InputError
from apas.models.base import Described, LibraryBacked, Model, ModelWrapper, Named, Raw, as_model, encoded_rows, offers
from apas.models.digest import canonical

if TYPE_CHECKING:
    from apas.counterfactuals.sources.base import Search, Task
    from apas.counterfactuals.space.space import FeatureSpace


def checked_table(X: Any, names: tuple[str, ...], argument: str) -> Any:
    """A table with exactly these columns: a data frame in their order, or a 2-D array."""
    if is_frame(X):  # the names of features are texts, while pandas numbers columns that were given none
        X = X.set_axis([str(c) for c in X.columns], axis=1)
    try:
        return check_matrix(X, len(names), names)
    except InputError as error:  # what is checked here is a table of the space, whatever the model has
        said = str(error).replace("`X`", f"`{argument}`").replace("the model's columns", "the space's columns")
        raise InputError(said.replace("as the model has features", "as the space has features")) from None


def missing_cells(cells: Any) -> Bools:
    """Which cells of a column or a table hold nothing: NaN, None or what pandas has for it."""
    import pandas as pd

    return np.asarray(pd.isna(cells), dtype=bool)


def numbers_of(feature: Feature, cells: Array, argument: str, rows: Indices | None = None) -> Floats:
    """Values of a numeric column, numbers of the levels of any other."""
    if feature.is_level:
        places = {value: float(i) for i, value in enumerate(feature.values or ())}
        found = np.empty(len(cells))
        for row, cell in enumerate(cells.tolist()):  # a number equals its level whatever its type: 1.0 is 1
            try:
                place = places.get(None if is_missing(cell) else cell)
            except TypeError:  # a list, say, which is no level
                place = None
            if place is None:
                known = ", ".join(repr(v) for v in (feature.values or ())[:8])
                more = ", ..." if len(places) > 8 else ""
                raise InputError(
                    f"`{argument}` has {reprlib.repr(cell)} in row {row if rows is None else rows[row]} of column "
                    f"{feature.name!r}, whose levels are {known}{more}; add it to the space, or correct the row."
                )
            found[row] = place
        return found
    try:
        values = np.full(len(cells), np.nan) if cells.dtype.kind in "mMc" else np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        cell, place = cells[bad[0]], bad[0] if rows is None else rows[bad[0]]
        shown = reprlib.repr(cell.item() if isinstance(cell, np.generic) else cell)
        raise InputError(
            f"`{argument}` must hold finite numbers in column {feature.name!r}, which is {feature.kind}, but row "
            f"{place} is {shown}; fill, encode or drop it."
        )
    return values


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan


def level_values(feature: Feature, numbers: Floats) -> Any:
    """Raw cells of a column: levels for their numbers, integers where the feature is one."""
    if feature.is_level:
        values = feature.values or ()
        levels = [None if np.isnan(n) else values[int(n)] for n in numbers]
        if None not in levels:
            return levels
        import pandas as pd

        # a column of missing cells alone has the type of no level: it gets that of one which holds a level, too
        return pd.Series([*(np.nan if level is None else level for level in levels), values[0]]).array[:-1]
    if feature.kind == "integer" and (numbers == np.rint(numbers)).all():
        return numbers.astype(np.int64)
    return numbers


class Coding:
    """Columns per feature, in the order of the features."""

    def __init__(self, features: Sequence[Feature], scale: str | None) -> None:
        self.features, columns = tuple(features), [_names(f) for f in features]
        self.names = tuple(itertools.chain(*columns))  # those of levels as pandas and scikit-learn would call them
        ends = np.cumsum([0, *map(len, columns)]).tolist()
        self.slices, self.n_columns = tuple(itertools.starmap(slice, itertools.pairwise(ends))), int(ends[-1])
        #: What is subtracted from a number, and what it is divided by then.
        self.lines = [_line(f, scale) for f in features]
        #: Whether the model sees the numbers as they are in the table; and whether there are no levels.
        self.is_plain = scale is None and all(f.code == "number" and _own_numbers(f) for f in features)
        self._without_levels = not any(f.code != "number" or f.is_level for f in features)
        self._bases, self._widths = np.array(self.lines).reshape(-1, 2).T

    def encode(self, rows: Floats) -> Floats:
        """Numbers per cell (see `FeatureSpace`) as the columns of the model."""
        if self._without_levels:
            return np.asarray((rows - self._bases) / self._widths)
        found = np.empty((len(rows), self.n_columns))
        for i, (feature, part) in enumerate(zip(self.features, self.slices, strict=True)):
            found[:, part] = self._code_cells(i, feature, rows[:, i])
        return found

    def decode(self, columns: Floats) -> Floats:
        """Numbers per cell of columns that `encode` made, or that are near such."""
        found = np.empty((len(columns), len(self.features)))
        for i, (feature, part) in enumerate(zip(self.features, self.slices, strict=True)):
            block = columns[:, part]
            if not feature.is_level:
                base, width_ = self.lines[i]
                found[:, i] = _on_feature_grid(feature, base + width_ * block[:, 0], abs(base) + width_)
                continue
            table = self._code_cells(i, feature, np.arange(len(feature.values or ()), dtype=np.float64))
            found[:, i] = np.abs(block[:, None, :] - table).sum(axis=2).argmin(axis=1)
        return found

    def _code_cells(self, i: int, feature: Feature, cells: Floats) -> Floats:
        if feature.code == "number":
            base, width_ = self.lines[i]
            if feature.is_level and _own_numbers(feature):
                cells = np.array(feature.values, dtype=np.float64)[cells.astype(int)]
            return ((cells - base) / width_)[:, None]
        levels = np.arange(len(feature.values or ()))
        return (levels == cells[:, None] if feature.code == "onehot" else levels <= cells[:, None]).astype(np.float64)


def _on_feature_grid(feature: Feature, values: Floats, size: float) -> Floats:
    """Values on the grid or the list of a feature where rounding, of numbers of that size, has moved them off it."""
    if feature.listed is not None:
        near = feature.listed[np.abs(values[:, None] - feature.listed).argmin(axis=1)]
    elif feature.kind == "integer":  # also between its steps, where what was not changed may be
        near = np.rint(values)
    elif feature.step is not None:
        near = feature.on_grid(np.rint((values - feature.anchor) / feature.step))
    else:
        return values
    # scaling to [0, 1] and back rounds a difference, a quotient, a product and a sum: a few units in the last place of
    # the largest number involved, to which the tolerance for decimal steps is added
    allowance = ON_GRID * (feature.step or 0.0) + 8 * np.spacing(np.maximum(size, np.abs(near)))
    return np.where(np.abs(values - near) <= allowance, near, values)


def _own_numbers(feature: Feature) -> bool:
    """Whether a number stands for itself: that of a level only if levels are numbers."""
    return not feature.is_level or numbers(feature.values or ())


def _names(feature: Feature) -> list[str]:
    if feature.code == "number":
        return [feature.name]
    sign = "_" if feature.code == "onehot" else ">="
    return [f"{feature.name}{sign}{'nan' if value is None else value}" for value in feature.values or ()]


def _line(feature: Feature, scale: str | None) -> tuple[float, float]:
    """What is subtracted from a number, and what it is divided by then."""
    if scale is None or feature.code != "number":
        return 0.0, 1.0
    if feature.is_level:
        levels = feature.values or ()
        values: Sequence[Any] = levels if _own_numbers(feature) else range(len(levels))
        low, high = float(min(values)), float(max(values))
    else:
        low, high = feature.ends
    if not np.isfinite(high - low) or high <= low:
        raise InputError(
            f'`scale` "minmax" needs a range of feature {feature.name!r} with high above low, got {low:g} to {high:g}; '
            "give it `low` and `high`."
        )
    return low, high - low


def bound(model: Any, space: FeatureSpace) -> Model:
    """The model as one that takes raw rows of the space: itself if it does so, else behind the space's coding."""
    net = as_model(model)
    names = net.feature_names if offers(net, Named) else None
    raw = net.n_raw_features if offers(net, Raw) else net.n_features
    complaint: str | None = None
    if raw == len(space) and (names is None or set(names) == set(space.names)):
        # a model behind a coding takes raw rows whatever scale the space has: to code them twice would be wrong
        complaint = None if isinstance(net, CodedModel) else _complaint(net, space)
        codes = space.scale is None and all(map(_own_numbers, space.features))  # such as an embedding takes
        if complaint is None or (
            codes and not offers(net, Raw) and names in (None, space.names) and raw < space.coding.n_columns
        ):
            return net
    elif raw == len(space) == space.coding.n_columns:
        missing = next(n for n in names or () if n not in space.names)
        raise InputError(f"`space` must have the model's columns, but it lacks {missing!r}; add it.")
    if space.coding.n_columns == raw:
        _check_order(space, names)
        return CodedModel(net, space)
    raise InputError(
        complaint
        or f"`space` must match the model, which takes {raw} columns, but it has {len(space)} features in "
        f"{space.coding.n_columns} columns; describe exactly the columns the model was trained with."
    )


def _complaint(net: Model, space: FeatureSpace) -> str | None:
    """None if the model takes raw rows of the space, whose columns it has; else what it says about them."""
    if not offers(net, Raw):
        if space.coding.is_plain:
            _check_order(space, net.feature_names if offers(net, Named) else None)
            return None
        return ""
    scales = offers(net, Described) and "preprocessing" in net.describe()  # a pipeline does so by itself
    if space.scale is not None and not scales:
        return ""
    import pandas as pd

    values = {f.name: f.values if f.is_level else (float(np.clip(f.ends, -1e6, 1e6).mean()),) for f in space}
    rows = range(max(len(v or ()) for v in values.values()))  # over the rows, all levels occur
    columns = {name: [v[row % len(v)] for row in rows] for name, v in values.items() if v}
    try:
        encoded = encoded_rows(net, pd.DataFrame(columns))[1]
        if any(f.has_missing for f in space.features):
            net.margin(encoded, net.classes[-1])  # what reads cells as they are is asked whether it takes missing ones
    except InputError as error:
        said = str(error).split(": ", 1)[-1]
        return f"`space` must have kinds and levels that the model knows, but its preprocessing says: {said}"
    return None


def _check_order(space: FeatureSpace, names: tuple[str, ...] | None) -> None:
    """If the model names its columns, those that stand for one feature must be where the space has them."""
    if names is None or tuple(names) == space.coding.names:
        return
    for feature, part in zip(space.features, space.coding.slices, strict=True):
        if part.stop - part.start == 1 and names[part.start] != feature.name:
            raise InputError(
                f"`space` must have the features in the order of the model's columns, but column {part.start} is "
                f"{names[part.start]!r} for the model and {feature.name!r} for the space."
            )


class CodedModel(ModelWrapper):
    """A model that encodes raw rows by the coding of a space; it offers what the model behind it offers."""

    def __init__(self, net: Any, space: FeatureSpace) -> None:
        super().__init__(net)
        self._net, self.space = net, space
        self.feature_names, self.n_raw_features = space.names, len(space)
        if offers(net, LibraryBacked):
            self.library_classes = self._library_classes

    def encode(self, X: Any) -> Floats:
        """Raw rows as the model behind sees them."""
        return self.encoded(self.space.numbers(X))

    def encoded(self, numbers: Floats) -> Floats:
        """The same for rows of numbers per cell."""
        columns = self.space.coding.encode(numbers)
        return self._net.encode(columns) if offers(self._net, Raw) else columns

    def _library_classes(self, X: Any) -> Array:
        return self._net.library_classes(self.space.encode(X))  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """What decides the output besides the parameters, the coding included."""
        behind = {"classes": [canonical(c) for c in self.classes], "n_features": self.n_features}
        behind = self._net.describe() if offers(self._net, Described) else behind
        # what of the space the model depends on: not what may change, nor how
        names, lines = self.space.coding.names, self.space.coding.lines
        coding = {"columns": list(names), "lines": [list(line) for line in lines]}
        return {**behind, "feature_names": list(self.feature_names), "coding": canonical(coding)}

    def __repr__(self) -> str:
        return f"<{self._net!r} behind a space of {len(self.space)} features>"


ACCURACY = 1e-9  # how far a column may be from the sum of its parts, in units of its largest entry
#: Where between the ends of its range a number is tried.
FRACTIONS = (0.0, 0.003, 0.05, 0.17, 0.31, 0.5, 0.62, 0.77, 0.9, 0.994, 1.0)
FEW = 64  # a feature in steps that has at most so many values may depend on them in any way
PAIRS = 12  # pairs of rows on which the sums are checked
INSTEAD = 'use source="neighbours", or apas.Given with the rows of another tool.'


@dataclass(frozen=True)
class Piece:
    """The part of one feature."""

    numbers: Floats
    added: Floats
    line: Floats | None

    def covers(self, number: float) -> bool:
        """Whether the part of a number is known."""
        if self.line is not None:
            return bool(self.numbers[0] <= number <= self.numbers[-1])
        return bool((self.numbers == number).any())

    def part(self, numbers: Floats) -> Floats:
        """What numbers that are covered add, shape (len(numbers), columns)."""
        if self.line is not None:
            return np.outer(numbers - self.numbers[0], self.line)
        return self.added[np.searchsorted(self.numbers, numbers)]

    def through(self, weights: Floats) -> Piece:
        """The same for the columns after a linear map."""
        return Piece(self.numbers, self.added @ weights, None if self.line is None else self.line @ weights)


@dataclass(frozen=True)
class Pieces:
    """The parts of all features, None for those that never change, with their accuracy; or what is wrong with them."""

    parts: tuple[Piece | None, ...]
    accuracy: Floats
    complaint: str | None = None
    inputs: Floats | None = None  # the rows to explain, encoded along with the others

    def input_row(self, search: Search) -> Floats | None:
        """The input of a search in model units, if it was encoded along."""
        given, row = search.task.inputs, search.row
        if self.inputs is None or given is None or row >= len(self.inputs):
            return None
        return self.inputs[row] if np.array_equal(given[row], search.input) else None


def pieces_of(task: Task) -> Pieces:
    """Find what each feature adds, once per task: rows in which one is changed, and pairs of rows to check the sums."""
    return task.once("pieces", lambda: _pieces_of(task))


def _pieces_of(task: Task) -> Pieces:
    tried, owner, probes = _probes(task)
    inputs, rows, one, two = probes
    encoded = task.once("pieces/encoded", lambda: task.encoded(np.concatenate(probes)))
    encoded_inputs, encoded = encoded[: len(inputs)], encoded[len(inputs) :]
    scale = ACCURACY * np.maximum(np.abs(encoded).max(axis=0, initial=0.0), np.finfo(float).tiny)
    parts: list[Piece | None] = []
    for i, feature in enumerate(task.space):
        piece = _piece(feature, tried[i], encoded[: len(rows)][owner == i], scale) if feature.mutable else None
        if piece is None and feature.mutable:
            bends = "numbers to enter the model along straight lines, but the preprocessing bends"
            return Pieces((), scale, f"MilpSource needs {bends} {feature.name!r}; {INSTEAD}")
        parts.append(piece)
    culprit = _culprit(task, parts, (one, two), encoded[len(rows) :].reshape(2, PAIRS, -1), scale)
    if culprit is None:
        return Pieces(tuple(parts), scale, inputs=encoded_inputs)
    mixes = "every feature to enter the model by itself, but what the preprocessing makes of"
    said = f"MilpSource needs {mixes} {culprit.name!r} depends on other features; {INSTEAD}"
    return Pieces(tuple(parts), scale, said)


def probe_rows(task: Task) -> Floats:
    """The rows to encode for `pieces_of`, whatever the model: first the inputs, unless cells of them are missing."""
    return np.concatenate(_probes(task)[-1])


def _probes(task: Task) -> tuple[Any, ...]:
    """Numbers of each feature to try, the feature of each, and tables: inputs, rows that try them, and pairs."""
    space, numbers = task.space, [numbers_to_try(task, i) for i in range(len(task.space))]
    tried = [n if f.mutable else np.empty(0) for f, n in zip(space, numbers, strict=True)]
    middle = np.array([n[len(n) // 2] for n in numbers])
    rows, owner = one_by_one(tried, middle)
    inputs = np.empty((0, len(space))) if task.inputs is None or np.isnan(task.inputs).any() else task.inputs
    return tried, owner, (inputs, rows, *_pairs(task, numbers, middle))


def one_by_one(values: Sequence[Floats], base: Any) -> tuple[Floats, Indices]:
    """Rows in which one feature has each of its values and the others those of a base, and which feature that is."""
    of = np.repeat(np.arange(len(values)), [len(v) for v in values])
    rows = np.tile(base, (len(of), 1))
    rows[np.arange(len(of)), of] = np.concatenate(values)
    return rows, of


def numbers_to_try(task: Task, i: int) -> Floats:
    """Numbers of a feature to look at: all of them if they are few or stand for levels."""
    feature = task.space.features[i]
    if feature.listed is not None:
        return feature.listed
    low, high = _ends(task, i)
    if feature.step is None:
        return np.unique(low + np.array(FRACTIONS) * (high - low))
    first, last = feature.steps_between(low, high)
    if last < first:
        return np.array([low])
    steps = np.arange(first, last + 1) if last - first < FEW else first + np.rint(np.array(FRACTIONS) * (last - first))
    return np.unique(feature.on_grid(steps))


def _ends(task: Task, i: int) -> tuple[float, float]:
    """Ends of a feature's range; where it has none, of what is known of it."""
    low, high = task.space.features[i].ends
    if task.background is not None and len(task.background):
        known = task.background[:, i]
        low = low if np.isfinite(low) else min(float(known.min()), high)
        high = high if np.isfinite(high) else max(float(known.max()), low)
    if not np.isfinite(low):
        low = high - max(1.0, abs(high)) if np.isfinite(high) else 0.0
    return low, high if np.isfinite(high) else low + max(1.0, abs(low))


def _pairs(task: Task, numbers: list[Floats], middle: Floats) -> tuple[Floats, Floats]:
    """Rows that agree in what never changes and in nothing else."""
    draws = np.random.default_rng(0)
    one, two = np.tile(middle, (PAIRS, 1)), np.tile(middle, (PAIRS, 1))
    for i, feature in enumerate(task.space):
        if feature.mutable:
            one[:, i], two[:, i] = draws.choice(numbers[i], (2, PAIRS))
        elif task.background is not None and len(task.background):
            one[:, i] = two[:, i] = draws.choice(task.background[:, i], PAIRS)
        elif feature.listed is not None or np.isfinite(np.subtract(*feature.ends)):
            one[:, i] = two[:, i] = draws.choice(numbers[i], PAIRS)
    return one, two


def _piece(feature: Feature, numbers: Floats, encoded: Floats, scale: Floats) -> Piece | None:
    """What was seen, as a line where it is one; None if it cannot be told in between."""
    added = encoded - encoded[0]
    if feature.kind != "categorical":
        width = numbers[-1] - numbers[0]
        line = added[-1] / width if width > 0 else np.zeros(encoded.shape[1])
        if (np.abs(added - np.outer(numbers - numbers[0], line)) <= scale).all():
            return Piece(numbers, added, line)
    if feature.listed is None:  # a step in between that was not tried may add anything
        steps = np.inf if feature.step is None else (feature.ends[1] - feature.ends[0]) / feature.step
        if not np.isfinite(steps) or len(numbers) < np.floor(steps + ON_GRID) + 1:
            return None
    return Piece(numbers, added, None)


def _culprit(task: Task, parts: list[Piece | None], pairs: Any, encoded: Floats, scale: Floats) -> Feature | None:
    """The first feature that does not add what it should, if some pair of rows differs by more than its parts."""
    one, two = encoded
    steps = {i: p.part(pairs[1][:, i]) - p.part(pairs[0][:, i]) for i, p in enumerate(parts) if p is not None}
    gap = two - one
    for step in steps.values():
        gap = gap - step
    wrong = np.flatnonzero(~(np.abs(gap) <= scale).all(axis=1))
    if not len(wrong):
        return None
    row, last = pairs[0][wrong[0]].copy(), one[wrong[0]]
    for i, step in steps.items():
        row[i] = pairs[1][wrong[0], i]
        here = task.encoded(row[None])[0]
        if (np.abs(here - last - step[wrong[0]]) > scale).any():
            return task.space.features[i]
        last = here
    return task.space.features[0]
