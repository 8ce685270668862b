"""`apas max-shift`: the largest shift at which the rows of a CSV file are certified."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apas.cli import options
from apas.cli.options import Norm, pick_method, pick_shifts, read_model
from apas.cli.output import cell, print_json, print_table
from apas.display.numbers import at_least, at_most

if TYPE_CHECKING:
    from apas.certification.max_shift.result import MaxShifts


class Method(StrEnum):
    """By what evidence."""

    sampling = "sampling"
    interval = "interval"
    linear = "linear"
    exact = "exact"
    cascade = "cascade"


class Search(StrEnum):
    """How to look for the largest shift with draws."""

    rays = "rays"
    confirm = "confirm"
    paper = "paper"


def max_shift_command(
    model: options.ModelFile,
    rows: options.RowsFile,
    target: options.Target,
    method: Annotated[
        Method, typer.Option(help="sampling asks about most shifts, the others about every shift.")
    ] = Method.sampling,
    search: Annotated[
        Search | None,
        typer.Option(help="How to search (sampling).", show_default="rays; confirm above 100,000 parameters"),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="Share of the shifts that must keep the class (sampling).", show_default="0.995"),
    ] = None,
    confidence: options.Confidence = None,
    samples: Annotated[int | None, typer.Option(help="How many directions to draw (sampling).")] = None,
    time_limit: options.TimeLimit = None,
    seed: options.Seed = None,
    limit: Annotated[
        float | None,
        typer.Option(help="Where to stop looking.", show_default="10 times the largest parameter; 10 if relative"),
    ] = None,
    shifts: options.Shifts = Norm.linf,
    relative: options.Relative = False,
    only: options.Only = None,
    simultaneous: options.Simultaneous = False,
    activation: options.Activation = None,
    output: options.Output = None,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    """Find the largest shift of the model at which each explanation is certified to keep its class.

    Examples, for most shifts and for every shift:

    apas max-shift model.json rows.csv --target 1

    apas max-shift model.json rows.csv --target 1 --method cascade --jobs 2
    """
    from apas import max_shift
    from apas.cli.cluster import workers
    from apas.cli.options import parse_target, read_rows
    from apas.cli.output import check_outputs, save_to

    check_outputs({"--save": save}, model, rows)
    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples, time_limit=time_limit)
    which = pick_shifts(shifts, relative=relative, only=only)
    net = read_model(model, activation=activation, output=output)
    table, label = read_rows(rows, net), parse_target(target, net)
    with workers(jobs, dask) as n_jobs:
        found = max_shift(
            net,
            table,
            target=label,
            shifts=which,
            method=how,
            search=None if search is None else search.value,
            limit=limit,
            simultaneous=simultaneous,
            n_jobs=n_jobs,
            rng=seed,
        )
    save_to(save, found)
    if as_json:
        print_json(found.to_dict())
    else:
        print_max_shifts(found)


def print_max_shifts(found: MaxShifts) -> None:
    """Print a table of the answers and what they mean; numbers are rounded to the safe side."""
    from rich.table import Table

    table = Table("row", box=None, pad_edge=False)
    rounding = {"delta": at_least, "way_refuted_at": at_most, "provable": at_least, "broken_at": at_most}
    for name in rounding:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reason")
    for (index, line), item in zip(found.to_frame().iterrows(), found, strict=True):
        shown = [write(float(getattr(item, name))) for name, write in rounding.items()]
        shown[0] = item.written()
        table.add_row(cell(index), *shown, cell(line["reason"]))
    print_table(table, found.summary())
