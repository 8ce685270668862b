"""`apas audit`: whether a new model keeps the promises of a certificate file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from apas.cli import options
from apas.cli.options import read_model
from apas.cli.output import cell, check_outputs, print_json, print_table
from apas.display.numbers import exactly
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.contracts.audit import AuditReport
    from apas.counterfactuals.space.space import FeatureSpace


ValidityOnly: TypeAlias = Annotated[
    bool, typer.Option("--validity-only", help="Take a model of any architecture; ask only which rows are valid on it.")
]
Space: TypeAlias = Annotated[
    Path | None, typer.Option(help="TOML file that says what repairs may change.", show_default="none")
]
NoRepairs: TypeAlias = Annotated[bool, typer.Option("--no-repairs", help="Do not look for repairs.")]
Markdown: TypeAlias = Annotated[Path | None, typer.Option(help="Write the report to this Markdown file, too.")]
Junit: TypeAlias = Annotated[Path | None, typer.Option(help="Write the report to this JUnit XML file, too.")]

_COLOURS = {"HELD": "green", "NOT_PROMISED": "yellow"}


def audit_command(
    certificates: Annotated[Path, typer.Argument(help="Certificate file (.json, written by --save).")],
    new_model: options.ModelFile,
    base: Annotated[
        Path | None, typer.Option(help="Model file of the certified model, to measure the shift.", show_default="none")
    ] = None,
    validity_only: ValidityOnly = False,
    space: Space = None,
    no_repairs: NoRepairs = False,
    activation: options.Activation = None,
    output: options.Output = None,
    as_json: options.Json = False,
    markdown: Markdown = None,
    junit: Junit = None,
) -> None:
    """Ask a new model whether it keeps what certificates promised, and what would repair the promises it breaks.

    The exit code is 0 if no promise is broken, 1 if any is, and 2 for bad input.

    Example:  apas audit promises.json new.json --base model.json
    """
    from apas import audit

    check_outputs({"--markdown": markdown, "--junit": junit}, certificates, new_model, base, space)
    new, old = (
        None if path is None else read_model(path, activation=activation, output=output) for path in (new_model, base)
    )
    report = audit(
        certificates, new, base=old, validity_only=validity_only, space=read_space(space), repairs=not no_repairs
    )
    write_reports(report, markdown, junit)
    if as_json:
        print_json(report.to_dict())
    else:
        print_audit(report)
    raise typer.Exit(report.exit_code)


def read_space(path: Path | None) -> FeatureSpace | None:
    """The space of ``--space``."""
    from apas import FeatureSpace

    return None if path is None else FeatureSpace.from_toml(path)


def write_reports(report: AuditReport, markdown: Path | None, junit: Path | None) -> None:
    """Write the files that were asked for."""
    from apas._atomic import write_text

    for path, text in ((markdown, report.to_markdown), (junit, report.to_junit)):
        if path is None:
            continue
        try:
            write_text(path, text())
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None


def print_audit(report: AuditReport) -> None:
    """Print a line per row, what repairs the broken ones, and what it all comes to."""
    from rich.table import Table

    table = Table("row", "outcome", "delta", "reason", box=None, pad_edge=False)
    for label, row in zip(report._labels(), report, strict=True):
        outcome = cell(row.outcome.name, style=_COLOURS.get(row.outcome.name, "red"))
        table.add_row(cell(label), outcome, exactly(row.delta), cell(row.reason))
        if row.repair is not None:
            table.add_row("", "", "", cell(f"nearest repair: {row.repair}"))
    print_table(table, "\n".join([report.summary(), *report.notes]))
