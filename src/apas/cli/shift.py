"""`apas shift`: how far two model files lie from each other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from apas.cli import options
from apas.cli.options import group_options
from apas.cli.output import cell, give, new_table, print_table
from apas.display.numbers import at_most

if TYPE_CHECKING:
    from apas.shifts.distance import ShiftReport


@group_options
def shift_command(
    old: Annotated[Path, Argument(help="Model file of the base model.")],
    new: Annotated[Path, Argument(help="Model file of the changed model, with parameters of the same shapes.")],
    *,
    p: Annotated[
        float, Option(help="Distance to report as delta: 0 counts changes, 1 sums them, 2 is Euclidean, or inf.")
    ] = math.inf,
    layers: options.LayerOptions,
    as_json: options.Json = False,
) -> None:
    """Measure how far the parameters moved from one model file to another, overall and per layer.

    Example:  apas shift model.json new.json
    """
    from apas.shifts.distance import check_order, compare_models

    base, other = (layers.read(path) for path in (old, new))
    report = compare_models(base, [other], p=check_order(p), names=[str(new)], columns=["model 1"])
    give(report, print_report, as_json=as_json)


def print_report(report: ShiftReport) -> None:
    """Print a table of distances, rounded up, and what they mean."""
    table = new_table("layer", "kind", right=("size", *(f"p = {p:g}" for p in report.norms)))
    frame = report.to_frame()
    for start in range(0, len(frame), len(report.norms)):
        lines = frame.iloc[start : start + len(report.norms)]
        layer, kind, size = (str(lines[name].iloc[0]) for name in ("layer", "kind", "size"))
        distances = [at_most(d) if p else f"{d:.0f}" for p, d in zip(lines["p"], lines[report.models[0]], strict=True)]
        table.add_row(cell(layer), cell(kind), size, *distances)
    print_table(table, report.summary())
