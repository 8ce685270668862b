"""What became of promised regions on a new model: proved to be kept as a whole, broken by a row of it, or open.

Of the rows that were found the nearest is reported. A model without bounds is asked about rows, which proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas.certification.question import Question
from apas.certification.region import ONE_OF, ReadRegion, cells_of
from apas.certification.region_claims import AskedRegion
from apas.display.numbers import plain
from apas.errors import Unsupported
from apas.models.base import encoded_rows, needs_strict, valid

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
    """Whether the model gives the class to rows of the region."""
    margins = question.model.margin(encoded_rows(question.model, read.rows(places))[1], question.target[i])
    labels = np.empty(len(margins), dtype=object)
    labels[:] = [question.target[i]] * len(margins)
    return valid(margins, needs_strict(question.model.classes, labels)).tolist()  # type: ignore[no-any-return]
