"""`apas generate`: certified counterfactuals for the rows of a CSV file."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from apas.cli import options
from apas.cli.options import OfferOptions, group_options, optional, pick_method
from apas.cli.output import PAGE, cell, check_outputs, give, new_table, print_table, write_out
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.counterfactuals.result import Counterfactuals

#: Where candidates come from.
SourceName = StrEnum("SourceName", "robust milp neighbours wachter prototype roar")


@group_options
def generate_command(
    model: options.ModelFile,
    rows: Annotated[Path, Argument(help="CSV file with a header line and a row per input to explain.")],
    delta: options.Delta = None,
    *,
    offers: OfferOptions,
    source: Annotated[SourceName, Option(help="Where candidates come from.")] = SourceName.robust,
    method: Annotated[
        options.MethodName, Option(help="sampling certifies most shifts, the others every shift.")
    ] = options.MethodName.sampling,
    coverage: Annotated[float | None, optional("Share of shifts that must keep the class (sampling).", "0.995")] = None,
    confidence: options.Confidence = None,
    samples: Annotated[int | None, Option(help="How many shifted models to draw (sampling).")] = None,
    k: Annotated[int, Option("--k", help="Counterfactuals per row.")] = 1,
    max_candidates: Annotated[int, Option(help="Candidates to look at for each of them.")] = 200,
    time_limit: Annotated[float | None, Option(help="Seconds for the searches of all rows.")] = None,
    simultaneous: options.Simultaneous = False,
    seeds: options.SeedOptions,
    movement: options.ShiftOptions,
    layers: options.LayerOptions,
    where: options.BlockOptions,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    """Find counterfactuals that are certified to keep their class while the model shifts.

    With a delta of 0 they are the nearest rows that are valid on the model itself, and nothing is certified.

    Examples, from a training table, from a description of the features, and for numbers that are a little off:

    apas generate model.json rejected.csv --background train.csv --delta 0.05

    apas generate model.json rejected.csv --space space.toml --delta 0.01 --out offers.csv

    apas generate model.json rejected.csv --background train.csv --delta 0.05 --tolerance 0.02 --beyond
    """
    from apas import generate
    from apas.cli.workers import workers

    out = where.out
    check_outputs({"--out": out, "--save": save}, model, rows, *offers.files)
    movement.check_delta(delta)
    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples)
    if delta == 0 and save is not None:
        raise InputError("`--save` goes with a delta above 0: at 0 nothing is certified; use --out or --json.")
    without = {"simultaneous": simultaneous, "derived": seeds.derived, "save": save, "json": as_json}
    in_blocks = where.streams(**without, time_limit=time_limit)
    if in_blocks and offers.target is None:
        raise InputError("Missing option '--target': in blocks nobody sees which class all rows have.")
    shifts, net = movement.pick(), layers.read(model)
    table, about = offers.open(net, rows)
    asked: dict[str, Any] = {**about, "delta": delta, "source": source.value, "shifts": shifts, "method": how, "k": k}
    asked |= {"max_candidates": max_candidates, "rng": seeds.pick(confidence)}
    if in_blocks:
        from apas.cli.stream import write_rows

        files = {"MODEL": model, "ROWS": rows, "--background": offers.background}
        ask = partial(generate, net, background=asked.pop("background"))
        where.stream(ask, table, files, asked, counts="status", lines=k, size=8, write=write_rows)
        return
    with workers(where.jobs, where.dask) as n_jobs:
        found = generate(net, table.read(), time_limit=time_limit, simultaneous=simultaneous, n_jobs=n_jobs, **asked)
    if out is not None:
        _write(found, out)
    give(found, print_counterfactuals, as_json=as_json, save=save)


def _write(found: Counterfactuals, path: Path) -> None:
    """The counterfactuals as a table in raw units, beside the row they belong to and how the search ended."""
    from apas.display.tables import csv_text

    frame = found.points.copy()
    name = "status" if "status" not in frame else "search_status"  # a feature may be called so
    frame.insert(0, name, [status.name for status in found.status], allow_duplicates=True)
    write_out(path, csv_text(frame))


def print_counterfactuals(found: Counterfactuals) -> None:
    """Print what each counterfactual changes, what it costs and what was certified."""
    colours = {"FOUND": "green", "EXHAUSTED": "yellow", "BUDGET": "yellow", "INFEASIBLE": "red"}
    table = new_table("row", "rank", "status", "target", "cost", "changes", "reason")
    for (index, changes), item in zip(found[:PAGE].to_frame()["changes"].items(), found, strict=False):
        status = cell(item.status.name, style=colours[item.status.name])
        cost = f"{item.cost:.4g}" if item.is_found else "-"
        told = (cell(value) for value in (item.target, cost, changes, item.reason))
        table.add_row(cell(index), str(item.rank), status, *told)
    print_table(table, found.summary(), len(found))
