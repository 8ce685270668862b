"""`apas certify`: certify the rows of a CSV file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from apas.certify.certificates import Certificates
from apas.cli.asked import Kind, Norm, pick_method, pick_shifts
from apas.display.numbers import at_least, at_most

__all__ = ["certify_command"]


class Method(StrEnum):
    """By what evidence."""

    sampling = "sampling"
    interval = "interval"
    linear = "linear"
    attack = "attack"
    exact = "exact"
    enumeration = "enumeration"
    cascade = "cascade"


def certify_command(
    model: Annotated[Path, typer.Argument(help="Model file (.json, written by apas.save_model).")],
    rows: Annotated[Path, typer.Argument(help="CSV file with a header line and a row per explanation.")],
    target: Annotated[str, typer.Option(help='Class the rows must keep, or "predicted".')],
    delta: Annotated[float, typer.Option(help="How far the parameters may move.")],
    method: Annotated[
        Method,
        typer.Option(help="sampling asks about most shifts, enumeration about most or every, the others about every."),
    ] = Method.sampling,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Share of the shifts that must keep the class (sampling, enumeration).",
            show_default="0.995; 1 with enumeration",
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of the statement (sampling).", show_default="0.999")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="How many shifted models to draw (sampling).")] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds to search for a proof, per row (exact, cascade).", show_default="60"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws, to repeat a run.")] = None,
    shifts: Annotated[
        Norm, typer.Option(help="Delta bounds each change (linf), their sum (l1) or Euclidean length (l2).")
    ] = Norm.linf,
    relative: Annotated[
        bool, typer.Option("--relative", help="Delta is a share of each parameter's size (linf).")
    ] = False,
    only: Annotated[Kind | None, typer.Option(help="Move only weights or only biases.")] = None,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Let the confidence hold for all rows together.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Number of processes, -1 for all cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificates as JSON.")] = False,
) -> None:
    """Certify that explanations keep their class while the model shifts.

    Examples, for most shifts and for every shift:

    apas certify model.json rows.csv --target 1 --delta 0.05

    apas certify model.json rows.csv --target 1 --delta 0.01 --method cascade
    """
    from apas import certify, load_model
    from apas.cli.rows import parse_target, read_rows

    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples, time_limit=time_limit)
    which = pick_shifts(shifts, relative=relative, only=only)
    net = load_model(model)
    certificates = certify(
        net,
        read_rows(rows, net),
        delta,
        target=parse_target(target, net),
        shifts=which,
        method=how,
        simultaneous=simultaneous,
        n_jobs=jobs,
        rng=seed,
    )
    if as_json:
        typer.echo(json.dumps(certificates.to_dict(), indent=1))
    else:
        print_certificates(certificates)


#: Per kind of evidence what the table shows of it: heading, entry, and how it is written.
SHOWN: dict[str, list[tuple[str, str, Callable[[Any], str]]]] = {
    "sampling": [("draws", "draws", str), ("failures", "failures", str)],
    "bound": [("step", "step", str), ("bound", "bound", at_least)],
    "enumeration": [("lower", "lower", at_least), ("upper", "upper", at_most), ("boxes", "evaluated", str)],
}


def print_certificates(certificates: Certificates) -> None:
    """Print a table of the verdicts and what they mean; numbers are rounded to the safe side."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"CERTIFIED": "green", "REFUTED": "red", "UNKNOWN": "yellow"}
    found = [c.evidence.to_dict() for c in certificates]
    columns = next((SHOWN[e["kind"]] for e in found if e["kind"] in SHOWN), [])
    headings = [heading for heading, _, _ in columns]
    table = Table("row", "verdict", "target", "delta", *headings, "reason", box=None, pad_edge=False)
    for index, c, evidence in zip(certificates.to_frame().index, certificates, found, strict=True):
        verdict = Text(c.verdict.name, style=colours[c.verdict.name])
        values = [(evidence.get(entry), write) for _, entry, write in columns]
        cells = ["-" if value is None else write(value) for value, write in values]
        table.add_row(Text(str(index)), verdict, Text(str(c.target)), f"{c.delta:g}", *cells, Text(c.reason))
    # a pipe has no width; leave the wrapping to whoever reads it
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print()
    console.print(Text(certificates.summary()))
