"""What an audit looks for: rows of promised regions that a new model rejects, and repairs of broken promises.

A region is kept as a whole, broken by a row of it, of which the nearest found is told, or open. A repair is the nearest
allowed row that is valid on the new model.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from apas._typing import Floats
from apas._validation import is_frame
from apas.certification.question import Question
from apas.certification.region import ONE_OF, ReadRegion, cells_of
from apas.certification.region_claims import AskedRegion
from apas.contracts.certificate_lines import table_cells
from apas.counterfactuals.result import changes_in_words, differ
from apas.counterfactuals.sources.base import NoneExists, Search, Task
from apas.counterfactuals.sources.criteria import nearest_row
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace, own_columns
from apas.display.numbers import plain
from apas.errors import ApasError, Unsupported
from apas.models.base import Differentiable, encoded_rows, offers, valid

PER_ROW, ALTOGETHER = 5.0, 60.0  # seconds for one program or search, and for all repairs of one file
HALVINGS = 40  # how often the way to a point that a search found is halved


@dataclass(frozen=True)
class Repair:
    """The nearest allowed row that is valid on the new model, as seen from the promised one.

    Attributes
    ----------
    values : tuple or None
        The row in raw units as JSON values, one per feature of `names`; None if there is none.
    changes : str
        What has to change on top of the promise, in words.
    cost : float or None
        Mean of the changes, each in units of the feature's range.
    """

    values: tuple[Any, ...] | None
    names: tuple[str, ...]
    changes: str
    cost: float | None
    reason: str

    def __str__(self) -> str:
        return self.changes if self.values is not None else f"none: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """The repair as JSON values."""
        values = None if self.values is None else dict(zip(self.names, self.values, strict=True))
        return {"values": values, "changes": self.changes, "cost": self.cost, "reason": self.reason}

    @classmethod
    def from_dict(cls, told: Any) -> Self | None:
        """The repair that a file tells of, if there is one; it is for people to read, and nothing depends on it."""
        if not isinstance(told, dict):
            return None
        values = told.get("values")
        row, names = (tuple(values.values()), tuple(values)) if isinstance(values, dict) else (None, ())
        return cls(row, names, str(told.get("changes")), None, str(told.get("reason")))


def assumed_space(points: Any, inputs: Any, names: tuple[str, ...] | None) -> FeatureSpace:
    """What features may be where nobody says so, from the rows of the certificates alone."""
    # Numbers may go as far beyond the rows as these are apart, or as large. Where it is known what the rows were made
    # from, only features may change that some of them changed.
    import pandas as pd

    tables = [
        t if is_frame(t) else pd.DataFrame(t, columns=names and list(names)) for t in (points, inputs) if t is not None
    ]
    tables = [t.set_axis([f"x{c}" if isinstance(c, int) else str(c) for c in t.columns], axis=1) for t in tables]
    space = FeatureSpace.from_frame(pd.concat(tables, ignore_index=True))
    changed = set(space.names)
    if inputs is not None:
        before, after = (table_cells(t) for t in reversed(tables))
        pairs = [pair for a, b in zip(before, after, strict=True) for pair in zip(space.names, a, b, strict=True)]
        changed = {name for name, a, b in pairs if differ(a, b)} or changed

    def widened(feature: Feature) -> Feature:
        if feature.low is None or feature.high is None:
            return feature
        reach = max(feature.high - feature.low, abs(feature.low), abs(feature.high)) or 1.0
        return replace(feature, low=feature.low - reach, high=feature.high + reach)

    return FeatureSpace([replace(widened(f), mutable=f.name in changed) for f in space])


def repair_rows(model: Any, space: FeatureSpace, rows: Any, targets: list[Any]) -> list[Repair]:
    """One repair per row."""
    names, end = space.names, time.monotonic() + ALTOGETHER
    try:
        task = Task(space.bind(model), space, deadline=end)
        starts = space.numbers_for(task.model, own_columns(rows, space), "points")
        task = replace(task, inputs=starts)
        programs = MilpSource(margin=0.0, step=1.0, time_limit=PER_ROW)
        exact = programs.unsupported(task) is None
    except ApasError as error:
        return [Repair(None, names, "", None, f"the space does not fit: {error}")] * len(targets)
    found = []
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (start, target) in enumerate(zip(starts, targets, strict=True)):
            found.append(_repair(Search(task, i, start, target), programs if exact else None, end))
    return found


def _repair(search: Search, programs: MilpSource | None, end: float) -> Repair:
    names = search.task.space.names
    if time.monotonic() > end:
        return Repair(None, names, "", None, f"not looked for: the {ALTOGETHER:g} s for all repairs are over")
    try:
        if programs is not None:
            point = next((c.point for c in programs.candidates(search)), None)
        else:  # a search of a slow model must leave time for the other rows
            search = replace(search, task=replace(search.task, deadline=min(end, time.monotonic() + PER_ROW)))
            found = nearest_row(search)
            point = None if found is None else _drawn_back(search, found)
        point = None if point is None else search.settled(point)
    except NoneExists as error:
        return Repair(None, names, "", None, f"no allowed row has the class: {error}")
    except ApasError as error:
        return Repair(None, names, "", None, f"not found: {error}")
    if point is None or not search.is_valid(point):
        return Repair(None, names, "", None, "not found before its time was up" if search.task.is_late else "not found")
    space = search.task.space
    how = (
        "found by descent"
        if offers(search.task.model, Differentiable)
        else "found by trying values, one feature at a time"
    )
    how = "cheapest change that a mixed-integer program found" if programs else f"{how}; there may be nearer"
    values = table_cells(space.table(point[None]))[0]
    return Repair(tuple(values), names, changes_in_words(space, search.input, point), search.cost(point), how)


def _drawn_back(search: Search, found: Floats) -> Floats:
    """The first valid row on the way to a point: a search stops somewhere inside the class."""
    best, outside, inside = found, 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (outside + inside) / 2
        point = search.snapped(search.input + middle * (found - search.input))
        good = search.is_valid(point)
        outside, inside = (outside, middle) if good else (middle, inside)
        if good and search.cost(point) < search.cost(best):
            best = point
    return best


#: How many rows of a region are asked one by one, and how often the way to a failing one is cut.
ROWS, SECTIONS = 256, 10


@dataclass(frozen=True)
class RegionOutcome:
    """What is known of a promised region: kept (True), broken (False) or open (None), and a row that breaks it."""

    kept: bool | None
    cells: tuple[Any, ...] | None = None
    words: str = ""


def region_outcomes(question: Question) -> dict[int, RegionOutcome]:
    """Of each row of a question that stands for a region, what the model itself makes of it."""
    return {i: _outcome(question, i, asked) for i, asked in enumerate(question.regions or ()) if asked is not None}


def _outcome(question: Question, i: int, asked: AskedRegion) -> RegionOutcome:
    model, target = question.model, question.target[i]
    try:
        look = asked.on_model(model, target)
        read, value, first = asked.read(model), float(look.margins[0]), (int(look.box[0]), look.t[0])
    except Unsupported:  # no bounds: rows can be asked, and nothing proved
        read, value, first = replace(asked, trusted=True, _read={}).read(model), 0.0, (0, None)
    if value > 0:
        return RegionOutcome(True)
    cells = cells_of(asked.table, 0, read.names)  # where the promised row itself lies in the unit cube
    own = np.array([(float(cells[s.feature]) - s.low) / (s.high - s.low) for s in read.numbers])
    draws = np.random.default_rng(0)
    # the corners that are seen first, points of the cube, and points near the row
    points = [draws.integers(0, 2, (ROWS // 4, len(read.numbers))), draws.random((ROWS // 2, len(read.numbers)))]
    points += [own + draws.random((ROWS // 4, 1)) * (draws.random((ROWS // 4, len(own))) - own)]
    tried = [(b, read.boxes[b].on_steps(t)) for b in range(len(read.boxes)) for t in np.vstack([*points, own[None]])]
    tried += [] if first[1] is None else [(first[0], first[1])]
    failing = [place for place, ok in zip(tried, _accepts(question, i, read, tried), strict=True) if not ok]
    if not failing:
        return RegionOutcome(None)
    box, t = min(failing, key=lambda place: float(np.abs(place[1] - own).sum()))
    near, far = own, t
    for _ in range(SECTIONS if _accepts(question, i, read, [(box, own)])[0] else 0):
        # the way is cut in eight: a call of a pipeline takes as long for one row as for seven
        cuts = [read.boxes[box].on_steps(near + part / 8 * (far - near)) for part in range(9)]
        fine = [True, *_accepts(question, i, read, [(box, cut) for cut in cuts[1:8]]), False]
        at = fine.index(False)
        near, far = cuts[at - 1], cuts[at] if at < 8 else far
    cells = cells_of(read.rows([(box, far)]), 0, read.names)
    moving = {s.feature for s in asked.region.spans if s.side == ONE_OF or s.high > s.low}
    changed = [f"{name} {plain(value)}" for name, value in cells.items() if name in moving]
    return RegionOutcome(False, tuple(plain(v) for v in cells.values()), ", ".join(changed))


def _accepts(question: Question, i: int, read: ReadRegion, places: list[tuple[int, Any]]) -> list[bool]:
    margins = question.model.margin(encoded_rows(question.model, read.rows(places))[1], question.target[i])
    return valid(margins, np.repeat(question.strict[i], len(margins))).tolist()  # type: ignore[no-any-return]
