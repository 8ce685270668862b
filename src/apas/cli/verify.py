"""`apas verify`: recompute every claim of a certificate file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apas.cli import options
from apas.cli.modelfile import read_model
from apas.cli.output import cell, print_json, print_table
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.contracts.report import VerifyReport

__all__ = ["verify_command"]

_COLOURS = {"HOLDS": "green", "FAILS": "red", "NOT_CHECKED": "yellow"}


def verify_command(
    certificates: Annotated[Path, typer.Argument(help="Certificate file (.json, written by --save).")],
    model: options.ModelFile,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Put certified rows to the same test on new draws, too (sampling).")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the new draws, to repeat a run.")] = None,
    space: Annotated[
        Path | None, typer.Option(help="TOML file: the space that encodes the rows, if one does (apas generate).")
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(help="Model file of a model that exists (ObservedShifts); once for each, in their order."),
    ] = None,
    activation: options.Activation = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Check a certificate file against the model it is about: draw again, prove again, replay witnesses.

    The exit code is 0 if all hold, 1 if something does not hold or the model is another one, 2 for bad input, and 3
    if all that was checked holds but some rows could not be checked.

    Example:  apas verify promises.json model.json
    """
    from apas import FeatureSpace, verify

    if seed is not None and not fresh:
        raise InputError("`--seed` goes with `--fresh`; leave it out.")
    net = read_model(model, activation=activation, output=output)
    bound = net if space is None else FeatureSpace.from_toml(space).bind(net)
    others = [read_model(path, activation=activation, output=output) for path in models or []]
    report = verify(certificates, bound, models=others, fresh=fresh, rng=seed)
    if as_json:
        print_json(report.to_dict())
    else:
        print_report(report)
    raise typer.Exit(report.exit_code)


def print_report(report: VerifyReport) -> None:
    """Print a line per statement, and what they come to."""
    from rich.table import Table

    table = Table("row", "statement", "claimed", "check", "reason", box=None, pad_edge=False)
    for label, line in zip(report._labels(), report, strict=True):
        check = cell(line.check.value, style=_COLOURS[line.check.name])
        table.add_row(cell(label), cell(line.statement), cell(line.claimed), check, cell(line.reason))
    print_table(table, report.summary())
