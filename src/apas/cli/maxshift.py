"""`apas max-shift`: the largest shift at which the rows of a CSV file are certified."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apas.certify.maxshifts import MaxShifts
from apas.cli.certify import Kind
from apas.display.numbers import at_least, at_most
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certify.sampling import Sampling

__all__ = ["max_shift_command"]


class Method(StrEnum):
    """By what evidence."""

    sampling = "sampling"
    interval = "interval"
    exact = "exact"


class Search(StrEnum):
    """How to look for the largest shift with draws."""

    rays = "rays"
    confirm = "confirm"
    paper = "paper"


def max_shift_command(
    model: Annotated[Path, typer.Argument(help="Model file (.json, written by apas.save_model).")],
    rows: Annotated[Path, typer.Argument(help="CSV file with a header line and a row per explanation.")],
    target: Annotated[str, typer.Option(help='Class the rows must keep, or "predicted".')],
    method: Annotated[
        Method, typer.Option(help="Draw shifts, or prove it for every shift (interval, exact).")
    ] = Method.sampling,
    search: Annotated[
        Search | None,
        typer.Option(help="How to search with draws.", show_default="rays; confirm above 100,000 parameters"),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Share of the shifts that must keep the class.", show_default="0.995")
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Confidence of the statement.", show_default="0.999")] = None,
    samples: Annotated[int | None, typer.Option(help="How many directions to draw.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws, to repeat a run.")] = None,
    limit: Annotated[
        float | None,
        typer.Option(help="Where to stop looking.", show_default="10 times the largest parameter; 10 if relative"),
    ] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Delta is a share of each parameter's size.")] = False,
    only: Annotated[Kind | None, typer.Option(help="Move only weights or only biases.")] = None,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Let the confidence hold for all rows together.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Number of processes, -1 for all cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Find the largest shift of the model at which each explanation is certified to keep its class.

    Example:  apas max-shift model.json explanations.csv --target 1
    """
    from apas import LinfShifts, load_model, max_shift
    from apas.cli.rows import parse_target, read_rows

    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples)
    net = load_model(model)
    found = max_shift(
        net,
        read_rows(rows, net),
        target=parse_target(target, net),
        shifts=LinfShifts(relative=relative, kinds=("weight", "bias") if only is None else (only.value,)),
        method=how,
        search=None if search is None else search.value,
        limit=limit,
        simultaneous=simultaneous,
        n_jobs=jobs,
        rng=seed,
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    else:
        print_max_shifts(found)


def pick_method(method: Method, **options: float | None) -> Sampling | str:
    """What `max_shift` takes as its method; a proof has no share, no confidence and no draws to choose."""
    from apas import Sampling

    given = {name: value for name, value in options.items() if value is not None}
    if method is not Method.sampling:
        for name in given:
            raise InputError(f"`--{name}` goes with `--method sampling`, got `--method {method.value}`; leave it out.")
        return method.value
    if "samples" in given:
        given["n_samples"] = given.pop("samples")
    return Sampling(**given)  # type: ignore[arg-type]


def print_max_shifts(found: MaxShifts) -> None:
    """Print a table of the answers and what they mean; numbers are rounded to the safe side."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("row", box=None, pad_edge=False)
    rounding = {"delta": at_least, "upper": at_most, "provable": at_least, "broken_at": at_most}
    for name in rounding:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reason")
    for (index, line), item in zip(found.to_frame().iterrows(), found, strict=True):
        shown = [write(float(line[name])) for name, write in rounding.items()]
        shown[0] = item.written()
        table.add_row(Text(str(index)), *shown, Text(line["reason"]))
    # a pipe has no width; leave the wrapping to whoever reads it
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print()
    console.print(Text(found.summary()))
