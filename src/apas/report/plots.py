"""What the page's plots show, as JSON values: the drawing itself is done in the browser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from apas.display.numbers import at_most
from apas.report.draws import Curves, Histograms
from apas.report.later import Later
from apas.report.rows import Line
from apas.report.subject import Subject

__all__ = ["plot_data"]


def plot_data(
    subject: Subject, later: Later | None, lines: Sequence[Line], curves: Curves | str, bars: Histograms | str
) -> dict[str, Any]:
    """Everything that is drawn; null for a part that the page lacks.

    Parameters
    ----------
    subject : Subject
    later : Later or None
    lines : sequence of Line
    curves, bars
        Or why there are none.
    """
    before = [reading.margin for reading in subject.rows.readings or ()]
    measured = None if later is None else later.measured
    return {
        "labels": [line.label for line in lines],
        "verdicts": [line.verdict for line in lines],
        "outcomes": [line.outcome for line in lines],
        "marks": [line.marks() for line in lines],
        "margins": before,
        "after": None if later is None or later.margins is None else [_number(m) for m in later.margins],
        "curves": curves.to_dict() if isinstance(curves, Curves) else None,
        "histograms": bars.to_dict() if isinstance(bars, Histograms) else None,
        "radii": subject.radii is not None,
        "most": "certified for most shifts" if not any(r.per_test for r in subject.radii or ())
        else "the published search ended",
        "measured": None if measured is None or not (measured.comparable and math.isfinite(measured.delta))
        else {"at": measured.delta, "text": at_most(measured.delta)},
        "layers": None if measured is None else [
            {"name": f"{layer} {kind}", "size": size, "distance": _number(distance), "text": at_most(distance)}
            for layer, kind, size, distance in measured.parts
        ],
        "order": None if measured is None else "inf" if measured.p == math.inf else f"{measured.p:g}",
    }  # fmt: skip


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
