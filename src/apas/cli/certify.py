"""`apas certify`: certify the rows of a CSV file."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from apas.certify.certificates import Certificates

__all__ = ["certify_command"]


class Kind(StrEnum):
    """What may move."""

    weight = "weight"
    bias = "bias"


def certify_command(
    model: Annotated[Path, typer.Argument(help="Model file (.json, written by apas.save_model).")],
    rows: Annotated[Path, typer.Argument(help="CSV file with a header line and a row per explanation.")],
    target: Annotated[str, typer.Option(help='Class the rows must keep, or "predicted".')],
    delta: Annotated[float, typer.Option(help="How far each parameter may move.")],
    coverage: Annotated[float, typer.Option(help="Share of the shifts that must keep the class.")] = 0.995,
    confidence: Annotated[float, typer.Option(help="Confidence of the statement.")] = 0.999,
    samples: Annotated[int | None, typer.Option(help="How many shifted models to draw.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws, to repeat a run.")] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Delta is a share of each parameter's size.")] = False,
    only: Annotated[Kind | None, typer.Option(help="Move only weights or only biases.")] = None,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Let the confidence hold for all rows together.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Number of processes, -1 for all cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificates as JSON.")] = False,
) -> None:
    """Certify that explanations keep their class while the model shifts.

    Example:  apas certify model.json explanations.csv --target 1 --delta 0.05
    """
    from apas import LinfShifts, Sampling, certify, load_model
    from apas.cli.rows import parse_target, read_rows

    net = load_model(model)
    certificates = certify(
        net,
        read_rows(rows, net),
        delta,
        target=parse_target(target, net),
        shifts=LinfShifts(relative=relative, kinds=("weight", "bias") if only is None else (only.value,)),
        method=Sampling(coverage=coverage, confidence=confidence, n_samples=samples),
        simultaneous=simultaneous,
        n_jobs=jobs,
        rng=seed,
    )
    if as_json:
        typer.echo(json.dumps(certificates.to_dict(), indent=1))
    else:
        print_certificates(certificates)


def print_certificates(certificates: Certificates) -> None:
    """Print a table of the verdicts and what they mean."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"CERTIFIED": "green", "REFUTED": "red", "UNKNOWN": "yellow"}
    table = Table("row", "verdict", "target", "delta", "draws", "failures", "reason", box=None, pad_edge=False)
    for index, line in certificates.to_frame().iterrows():
        verdict = Text(line["verdict"], style=colours[line["verdict"]])
        shown = [str(line[c]) for c in ("target", "draws", "failures", "reason")]
        table.add_row(str(index), verdict, shown[0], f"{line['delta']:g}", *shown[1:])
    # a pipe has no width; leave the wrapping to whoever reads it
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print()
    console.print(Text(certificates.summary()))
