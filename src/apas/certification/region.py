"""Regions: rows that a promise is about together, as users say them, as a row has them, and as a model reads them.

`Region` is what a user says. For each row it becomes a `RowRegion`: per number an interval in raw units, per category a
set of levels, and everything else as in the row. A model reads that as boxes (`AffineBox`), one per combination of
levels, provided that numbers enter it along straight lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np

from apas._fields import Fields
from apas._sanitise import shown
from apas._typing import Floats
from apas._validation import check_flag, check_integer, is_frame
from apas.display.numbers import exactly, plain
from apas.errors import InputError, Unsupported
from apas.models.base import Described, Named, Raw, encoded_rows, offers
from apas.models.feedforward import FeedForward
from apas.worst_case.regions import AffineBox, least_margin_every, rounding_band

#: Ways to say what a number may be, relative to the row or by itself.
AT_LEAST, AT_MOST, BETWEEN, ONE_OF = "at least", "at most", "between", "one of"
#: How many combinations of levels a region may have.
COMBINATIONS = 4096
#: Where a number is tried to see whether it enters the model along a straight line, and how close that must be.
PROBES, STRAIGHT = (0.003, 0.17, 0.5, 0.62, 0.994), 1e-12
NEEDS_STRAIGHT = "`region` needs numbers that enter the model along straight lines"
#: Preprocessing of scikit-learn through which numbers go along straight lines, and categories by themselves.
_STRAIGHT_STEPS = {"Pipeline", "ColumnTransformer", "FeatureUnion", "SimpleImputer", "PCA", "OneHotEncoder"}
_STRAIGHT_STEPS |= {"OrdinalEncoder", "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"}

#: Models whose preprocessing was looked at: to describe a pipeline takes longer than to bound its margins.
_KNOWN_STRAIGHT: WeakSet[Any] = WeakSet()


@dataclass(frozen=True)
class Span:
    """What one feature may be: all numbers from `low` to `high`, every `step`-th if there is one, or some levels."""

    feature: str
    #: How people are told; "at least" and "at most" go to the end of the feature's range, which is the other number.
    side: str
    low: float = 0.0
    high: float = 0.0
    step: float = 0.0
    levels: tuple[Any, ...] = ()

    def words(self) -> str:
        """The span in words."""
        if self.side == ONE_OF:
            return f"{self.feature} one of {', '.join(str(level) for level in self.levels)}"
        low, high, steps = exactly(self.low), exactly(self.high), f" in steps of {exactly(self.step)}" * (self.step > 0)
        if self.side == AT_LEAST:
            return f"{self.feature} at least {low}, up to {high}{steps}"
        if self.side == AT_MOST:
            return f"{self.feature} at most {high}, down to {low}{steps}"
        return f"{self.feature} between {low} and {high}{steps}"

    def to_dict(self) -> dict[str, Any]:
        """The span as JSON values."""
        if self.side == ONE_OF:
            return {"feature": self.feature, "side": self.side, "levels": [plain(level) for level in self.levels]}
        ends = {"low": self.low, "high": self.high}
        return {"feature": self.feature, "side": self.side, **ends, **({"step": self.step} if self.step else {})}

    @classmethod
    def from_dict(cls, about: Fields) -> Span:
        """The span that a file describes."""
        side, name = about.choice("side", AT_LEAST, AT_MOST, BETWEEN, ONE_OF), about.text("feature")
        if side == ONE_OF:
            levels = about.only("feature", "side", "levels").items("levels")
            if not levels or not all(level is None or isinstance(level, str | int | float) for level in levels):
                raise about.wrong("levels", "a list of at least one text or number")
            return cls(name, side, levels=tuple(levels))
        about.only("feature", "side", "low", "high", "step")
        low, high = about.number("low"), about.number("high")
        step = about.number("step", above=0) if "step" in about.content else 0.0
        if not low <= high:
            raise about.wrong("high", f"at least low ({low:g})")
        return cls(name, side, low, high, step)

    def holds(self, cell: Any) -> bool:
        """Whether a cell lies in the span."""
        if self.side == ONE_OF:
            return plain(cell) in self.levels
        if not isinstance(cell, Real) or not self.low <= float(cell) <= self.high:
            return False
        steps = (float(cell) - self.low) / (self.step or 1.0)
        return not self.step or abs(steps - round(steps)) <= 1e-6

    def part(self, size: float, own: Any) -> Span:
        """The span shrunk towards the row's own cell: a nested family as `size` runs from 0 to 1."""
        if self.side == ONE_OF:
            order = sorted(self.levels, key=lambda level: level != own)  # its own one first, the others as they are
            kept = order[: max(1, 1 + round(size * (len(order) - 1)))]
            return Span(self.feature, ONE_OF, levels=tuple(level for level in self.levels if level in kept))
        low, high = own + size * (self.low - own), own + size * (self.high - own)
        if self.step:  # whole steps from where the span begins
            low, high = (self.low + np.ceil((low - self.low) / self.step - 1e-9) * self.step,
                         self.low + np.floor((high - self.low) / self.step + 1e-9) * self.step)  # fmt: skip
        side = self.side if size == 1 else BETWEEN
        return Span(self.feature, side, max(float(low), self.low), min(float(high), self.high), self.step)


@dataclass(frozen=True)
class RowRegion:
    """All rows that equal one row but for some features, each of which may be anything in its span."""

    spans: tuple[Span, ...]
    #: (6, 10) if it is number 6 of 10 nested ones that were fixed beforehand, the largest that passed; else None.
    size: tuple[int, int] | None = None
    kind: ClassVar[str] = "box"

    def words(self) -> str:
        """The region in words."""
        told = "; ".join(span.words() for span in self.spans) or "the row alone"
        return told if self.size is None else f"{told}; size {self.size[0]} of {self.size[1]}"

    @property
    def is_window(self) -> bool:
        """Whether going on beyond it is not covered: some number is between two others."""
        return any(span.side == BETWEEN for span in self.spans)

    def to_dict(self) -> dict[str, Any]:
        """The region as JSON values."""
        size = {} if self.size is None else {"size": list(self.size)}
        return {"spans": [span.to_dict() for span in self.spans], **size}

    @classmethod
    def from_dict(cls, about: Fields) -> RowRegion:
        """The region that a file describes."""
        listed = about.only("spans", "size").items("spans")
        spans = tuple(Span.from_dict(Fields.of(s, f"{about.name('spans')}[{i}]")) for i, s in enumerate(listed))
        if len({span.feature for span in spans}) < len(spans):
            raise about.wrong("spans", "a list with each feature once")
        size = None
        if "size" in about.content:
            told = about.items("size")
            if len(told) != 2 or not all(type(n) is int for n in told) or not 1 <= told[0] <= told[1]:
                raise about.wrong("size", "two numbers, the first not above the second")
            size = (told[0], told[1])
        return cls(spans, size)

    def holds(self, table: Any, own: Any, names: Sequence[str]) -> bool:
        """Whether the one line of a table is a row of the region around another."""
        cells, before, spans = cells_of(table, 0, names), cells_of(own, 0, names), {s.feature: s for s in self.spans}
        same = all(cell == before[n] or cell != cell for n, cell in cells.items() if n not in spans)  # NaN stays
        return same and all(span.holds(cells[name]) for name, span in spans.items() if name in cells)

    def part(self, number: int, sizes: int, cells: Mapping[str, Any]) -> RowRegion:
        """Number `number` of so many nested regions around the row with these cells."""
        return RowRegion(tuple(s.part(number / sizes, cells[s.feature]) for s in self.spans), (number, sizes))


@dataclass(frozen=True, eq=False)
class ReadRegion:
    """A region as one model reads it: a box per combination of levels, and the way back to rows as users have them."""

    points: Any  # rows in the user's units, of which it is about one line
    line: int
    names: tuple[str, ...]
    numbers: tuple[Span, ...]  # that move
    combinations: tuple[dict[str, Any], ...]  # of levels, with the numbers that do not
    boxes: tuple[AffineBox, ...] = ()  # none before the model has read its corners
    _bands: dict[float, list[float]] = field(default_factory=dict, repr=False)
    _kept: dict[tuple[int, float], bool] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, region: RowRegion, points: Any, line: int, names: tuple[str, ...]) -> ReadRegion:
        """The region of one line of a table, before any model has read it."""
        if strange := [s.feature for s in region.spans if s.feature not in names]:
            there = f"which the rows do not have; they have {names}"
            raise InputError(f"`region` names the feature {strange[0]!r}, {there}.")
        sets = [s for s in region.spans if s.side == ONE_OF]
        if int(np.prod([len(s.levels) for s in sets])) > COMBINATIONS:
            most = f"at most {COMBINATIONS} combinations of levels"
            raise InputError(f"`region` must have {most}; leave some levels out.")
        numbers = [s for s in region.spans if s.side != ONE_OF]
        still = {s.feature: s.low for s in numbers if s.high == s.low}
        products = itertools.product(*(s.levels for s in sets))
        chosen = tuple(dict(zip([s.feature for s in sets], levels, strict=True)) | still for levels in products)
        return cls(points, line, names, tuple(s for s in numbers if s.high > s.low), chosen)

    def corners(self, *, trusted: bool) -> list[tuple[int, Floats]]:
        """Places by which it is read: lower ends for all levels, then the upper ends one by one, then probes."""
        p = len(self.numbers)
        ends, probes = list(np.eye(p)), list[Floats]()
        if p and not trusted:
            probes = [f * e for e in ends for f in PROBES] + list(np.random.default_rng(0).random((6, p)))
        lower = [(box, np.zeros(p)) for box in range(len(self.combinations))]
        return lower + [(0, t) for t in ends + probes] + [(len(lower) - 1, t) for t in probes[-3:]]

    def read(self, encoded: Floats, *, trusted: bool) -> ReadRegion:
        """The same with its boxes, from its corners in the model's units; unless trusted, nothing must be bent."""
        corners, p = encoded[: len(self.combinations)], len(self.numbers)
        ways = encoded[len(corners) : len(corners) + p] - corners[0]
        if p and not trusted:
            straight = np.array([corners[box] + t @ ways for box, t in self.corners(trusted=False)])
            scale = np.abs(encoded).max(axis=0) + np.abs(ways).sum(axis=0) + np.finfo(float).tiny
            if (np.abs(encoded - straight) > STRAIGHT * scale).any():
                bent = f"but the preprocessing bends {', '.join(s.feature for s in self.numbers)}"
                instead = "certify single rows, or leave these features out"
                raise Unsupported(f"{NEEDS_STRAIGHT}, {bent}; {instead}.")
        steps = np.array([s.step / (s.high - s.low) if s.step else 0.0 for s in self.numbers])
        return replace(self, boxes=tuple(AffineBox(corner, ways, steps) for corner in corners))

    def cells(self, box: int, t: Floats) -> dict[str, Any]:
        """The cells at a place of a box that are not the row's own."""
        each = zip(self.numbers, t.tolist(), strict=True)
        return self.combinations[box] | {s.feature: s.low + x * (s.high - s.low) for s, x in each}

    def rows(self, places: Sequence[tuple[int, Floats]]) -> Any:
        """The rows at points of boxes, as a table like that of the row."""
        changed = [self.cells(*place) for place in places]
        for cells, span in itertools.product(changed, self.numbers):
            value = cells[span.feature]
            # a whole number of steps is written as such: 0.3, not 0.30000000000000004
            cells[span.feature] = round(value, 9) if span.step else min(max(value, span.low), span.high)
        return with_cells(one_row(self.points, self.line), self.names, changed)

    def bands(self, net: FeedForward, radii: Floats, delta: float) -> list[float]:
        """What a bound over each box can be off by, computed once for all draws; `radii` are those of one set."""
        if delta not in self._bands:
            self._bands[delta] = [rounding_band(net, box, radii, delta) for box in self.boxes]
        return self._bands[delta]

    def kept(self, net: FeedForward, wanted: int, radii: Floats, delta: float) -> bool:
        """Whether intervals over each box show that every shift keeps it, computed once; `radii` are as in `bands`."""
        if (wanted, delta) not in self._kept:
            about = zip(self.boxes, self.bands(net, radii, delta), strict=True)
            # two bands more than the bound has taken off: the margin of a draw, and what it must be above to be kept
            clear = (least_margin_every(net, b, wanted, radii, delta, splits=1)[0] > 2 * band for b, band in about)
            self._kept[wanted, delta] = all(clear)
        return self._kept[wanted, delta]


def names_of(model: Any, points: Any) -> tuple[str, ...]:
    """What the columns of rows are called."""
    names = model.feature_names if offers(model, Named) else None
    if is_frame(points):
        return tuple(str(c) for c in points.columns)
    return tuple(f"x{i}" for i in range(np.shape(points)[1])) if names is None else tuple(names)


def cells_of(points: Any, row: int, names: Sequence[str]) -> dict[str, Any]:
    """The cells of one row by name."""
    values = points.iloc[row].tolist() if is_frame(points) else np.asarray(points)[row].tolist()
    return dict(zip(names, values, strict=True))


def one_row(points: Any, row: int) -> Any:
    """A table of one line."""
    return points.iloc[[row]] if is_frame(points) else points[row : row + 1]


def with_cells(table: Any, names: Sequence[str], changed: Sequence[Mapping[str, Any]], lines: Any = None) -> Any:
    """Copies of lines of a table (of its one line unless told), each with other cells."""
    lines = np.zeros(len(changed), dtype=int) if lines is None else lines
    if not is_frame(table):
        rows, places = np.asarray(table)[lines], {name: place for place, name in enumerate(names)}
        if rows.dtype.kind in "iub" and any(isinstance(v, float) for cells in changed for v in cells.values()):
            rows = rows.astype(np.float64)
        for row, cells in zip(rows, changed, strict=True):
            for name, value in cells.items():
                row[places[name]] = value
        return rows
    import pandas as pd

    found = table.iloc[lines].reset_index(drop=True)
    for name in dict.fromkeys(name for cells in changed for name in cells):
        column = table.columns[list(names).index(name)]
        kind, own = table[column].dtype, table[column].tolist()
        values = [cells.get(name, own[line]) for cells, line in zip(changed, lines, strict=True)]
        if kind.kind in "iu" and all(float(v).is_integer() for v in values):
            values = [int(v) for v in values]
        found[column] = pd.Categorical(values, dtype=kind) if hasattr(kind, "categories") else values
    return found


def read_regions(model: Any, points: Any, regions: Sequence[RowRegion], *, trusted: bool = False) -> list[ReadRegion]:
    """The regions of rows as the model reads them, in one go; unless trusted, preprocessing must bend nothing."""
    names = names_of(model, points)
    asked = [ReadRegion.of(region, points, i, names) for i, region in enumerate(regions)]
    if not trusted:
        _check_straight(model)
    places = [one.corners(trusted=trusted) for one in asked]
    lines = np.repeat(np.arange(len(asked)), [len(some) for some in places])
    cells = [one.cells(*place) for one, some in zip(asked, places, strict=True) for place in some]
    encoded = encoded_rows(model, with_cells(points, names, cells, lines))[1]
    return [one.read(encoded[lines == i], trusted=trusted) for i, one in enumerate(asked)]


def _check_straight(model: Any) -> None:
    """Refuse preprocessing of which nobody knows whether it bends numbers between those that were tried."""
    if not offers(model, Raw) or not offers(model, Described) or model in _KNOWN_STRAIGHT:
        return
    waiting: list[Any] = [model.describe().get("preprocessing")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
            name = part.get("class")
            clips = name == "MinMaxScaler" and ["clip", True] in part["state"]["items"]
            if name is not None and (name not in _STRAIGHT_STEPS or "code" in part or clips):
                instead = "use scikit-learn's scalers and encoders, or certify single rows"
                raise Unsupported(f"{NEEDS_STRAIGHT}, and of {name} nobody knows that here; {instead}.")
    _KNOWN_STRAIGHT.add(model)


@dataclass(frozen=True)
class Region:
    """Rows around each certified row, to be promised together with it.

    Parameters
    ----------
    spans : mapping, optional
        Per feature ``"at least"`` or ``"at most"``: from the row's own number to the end of its range; a pair of
        numbers, with None for an end of the range; a number: so far to either side of the row's own; or a list of
        levels, to which the row's own is added. Other features are as in the row.
    beyond : bool, default False
        Add the numbers in which a row differs from its input, further in the direction of the change.
    space : FeatureSpace, optional
        Where ranges and steps are known from; needed for half-lines.
    sizes : int, default 1
        With more than 1, so many nested regions up to this one, and the largest that passes is certified. All are
        tested on the same draws at full confidence: if a smaller one were false, so would be all larger ones.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=5) for n in net.feature_names])
    >>> region = apas.Region({"income": "at least", "debt": (0.0, 0.5)}, space=space)
    >>> print(apas.certify(net, [[2.0, 0.5]], 0.1, target=1, region=region, rng=0)[0].region.words())
    income at least 2, up to 5; debt between 0 and 0.5
    """

    spans: Mapping[str, Any] | None = None
    beyond: bool = False
    space: Any = None
    sizes: int = 1

    def __post_init__(self) -> None:
        if self.spans is not None and not isinstance(self.spans, Mapping):
            raise InputError(f"`spans` of Region must map features to what they may be, got {shown(self.spans)}.")
        check_flag(self.beyond, "beyond")
        if self.space is not None and not hasattr(self.space, "features"):
            raise InputError(f"`space` of Region must be an apas.FeatureSpace, got {shown(self.space)}.")
        check_integer(self.sizes, "sizes", "Region", least=1)

    @classmethod
    def wanted(cls, region: Any) -> Region | None:
        """What a user passed as `region`."""
        if region is None or isinstance(region, cls):
            return region
        if isinstance(region, str) and region == "beyond":
            return cls(beyond=True)
        if isinstance(region, Mapping):
            return cls(region)
        known = 'an apas.Region, a mapping from features to what they may be, or "beyond"'
        raise InputError(f"`region` must be {known}, got {shown(region)}.")

    def rows(self, points: Any, names: Sequence[str], inputs: Any = None, space: Any = None) -> tuple[RowRegion, ...]:
        """The region of each row, of which `inputs` are what they were made from."""
        known = {f.name: f for f in (self.space or space or ())}
        if strange := [name for name in self.spans or () if name not in names]:
            there = f"which the rows do not have; they have {', '.join(names)}"
            raise InputError(f"`region` names the feature {strange[0]!r}, {there}.")
        if self.beyond and inputs is None:
            instead = "pass what `generate` returned as `X`"
            raise InputError(f'region="beyond" needs to know what the rows were made from; {instead}.')
        return tuple(self._row(points, known, inputs, i, names) for i in range(len(points)))

    def _row(self, points: Any, known: Mapping[str, Any], inputs: Any, row: int, names: Sequence[str]) -> RowRegion:
        cells = cells_of(points, row, names)
        spans = {name: _span(name, said, cells[name], known.get(name)) for name, said in (self.spans or {}).items()}
        for name, was in cells_of(inputs, row, names).items() if self.beyond else ():
            now, feature = cells[name], known.get(name)
            level = feature is not None and feature.is_level
            if now == was or level or not isinstance(now, Real) or not isinstance(was, Real):
                continue
            side = AT_LEAST if now > was else AT_MOST
            more, told = _span(name, side, now, feature), spans.get(name)
            if told is not None:  # a tolerance as well: the half-line begins where that does
                more = replace(more, low=min(more.low, told.low), high=max(more.high, told.high))
            spans[name] = more
        # a number that cannot move is as in the row
        moving = {name: span for name, span in spans.items() if span.side == ONE_OF or span.high > span.low}
        return RowRegion(tuple(moving[name] for name in names if name in moving))


def _span(name: str, said: Any, own: Any, feature: Any) -> Span:
    """What a feature may be, given what a user said and the row's own cell."""
    wrong = f"`region` must say of {name!r} "
    if isinstance(said, set | frozenset | list) or (feature is not None and feature.is_level):
        if isinstance(said, str) or not isinstance(said, Iterable):
            raise InputError(f"{wrong}which levels it may have, as a list, got {shown(said)}.")
        allowed = None if feature is None else feature.values
        levels = [v for v in (allowed or list(said)) if v in said or v == own]
        if strange := [v for v in said if allowed is not None and v not in allowed]:
            raise InputError(f"{wrong}levels that it has ({', '.join(map(repr, allowed or ()))}), got {strange[0]!r}.")
        return Span(name, ONE_OF, levels=tuple(plain(v) for v in (levels if own in levels else [own, *levels])))
    if isinstance(own, bool) or not isinstance(own, Real) or not np.isfinite(float(own)):
        raise InputError(f"{wrong}a list of levels, since the row has {shown(own)} there, got {shown(said)}.")
    least, most = (-np.inf, np.inf) if feature is None else feature.ends
    own = float(own)
    least, most = min(least, own), max(most, own)  # what is there is allowed
    if isinstance(said, str) and said in (AT_LEAST, AT_MOST):
        side, low, high = said, own if said == AT_LEAST else least, own if said == AT_MOST else most
    elif isinstance(said, tuple) and len(said) == 2 and all(v is None or _is_number(v) for v in said):
        low, high = (least if said[0] is None else float(said[0])), (most if said[1] is None else float(said[1]))
        side = AT_LEAST if said[1] is None and said[0] is not None else AT_MOST if said[0] is None else BETWEEN
    elif _is_number(said) and said >= 0:
        low, high, side = max(own - float(said), least), min(own + float(said), most), BETWEEN
    else:
        ways = '"at least", "at most", (low, high), how far to either side, or a list of levels'
        raise InputError(f"{wrong}{ways}, got {shown(said)}.")
    if not np.isfinite(high - low):
        give = "give both numbers, or `space` with a range (Feature(low=..., high=...))"
        raise InputError(f"{wrong}where its range ends: {give}.")
    if not low <= own <= high:
        raise InputError(f"{wrong}a range that holds the row's own number {own:g}, got {low:g} to {high:g}.")
    if feature is not None and feature.listed is not None:  # the only numbers that there are
        inside = [float(v) for v in feature.listed if low <= v <= high]
        return Span(name, ONE_OF, levels=tuple(inside if own in inside else sorted([own, *inside])))
    step = 0.0 if feature is None or feature.step is None else float(feature.step)
    if step:  # from the row's own number in whole steps, as far as they stay inside
        low, high = own - np.floor((own - low) / step + 1e-9) * step, own + np.floor((high - own) / step + 1e-9) * step
        low, high = round(low, 9), round(high, 9)  # as they are written: 0.3, not 0.30000000000000004
    return Span(name, side, float(low), float(high), step)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))
