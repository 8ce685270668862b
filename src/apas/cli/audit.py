"""`apas audit`: whether a new model keeps the promises of a certificate file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Option

from apas.cli import options
from apas.cli.options import optional
from apas.cli.output import cell, check_outputs, give, new_table, page, print_table
from apas.display.numbers import exactly
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.contracts.audit import AuditReport
    from apas.models.base import Model


@dataclass(eq=False, repr=False)
class AuditOptions:
    """What both audits take: of a certificate file, and of a ledger."""

    validity_only: Annotated[
        bool, Option("--validity-only", help="Ask only which rows are valid on the new model.")
    ] = False
    space: Annotated[Path | None, optional("TOML file that says what repairs may change.")] = None
    no_repairs: Annotated[bool, Option("--no-repairs", help="Do not look for repairs.")] = False
    activation: options.Activation = None
    output: options.Output = None
    as_json: options.Json = False
    markdown: Annotated[Path | None, Option(help="Write the report to this Markdown file, too.")] = None
    junit: Annotated[Path | None, Option(help="Write the report to this JUnit XML file, too.")] = None

    def read(self, path: Path) -> Model:
        """Read a model file."""
        return options.LayerOptions(self.activation, self.output).read(path)

    def check_outputs(self, *inputs: Path | Sequence[Path] | None, out: Path | None = None) -> None:
        """Refuse files to write that are among those that are read."""
        check_outputs({"--markdown": self.markdown, "--junit": self.junit, "--out": out}, *inputs, self.space)

    def arguments(self) -> dict[str, Any]:
        """What `audit` takes besides the models."""
        from apas import FeatureSpace

        space = None if self.space is None else FeatureSpace.from_toml(self.space)
        return {"validity_only": self.validity_only, "space": space, "repairs": not self.no_repairs}

    def finish(self, report: AuditReport) -> NoReturn:
        """Write the files that were asked for, print the report, and end with its exit code."""
        from apas._atomic import write_text

        for path, text in ((self.markdown, report.to_markdown), (self.junit, report.to_junit)):
            if path is None:
                continue
            try:
                write_text(path, text())
            except OSError as error:
                raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        give(report, print_audit, as_json=self.as_json)
        raise typer.Exit(report.exit_code)


_COLOURS = {"HELD": "green", "NOT_PROMISED": "yellow", "OPEN": "yellow"}


@options.group_options
def audit_command(
    certificates: options.CertificatesFile,
    new_model: options.ModelFile,
    *,
    base: Annotated[Path | None, optional("Model file of the certified model, to measure the shift.")] = None,
    how: AuditOptions,
    where: options.BlockOptions,
) -> None:
    """Ask a new model whether it keeps what certificates promised, and what would repair the promises it breaks.

    The exit code is 0 if no promise is broken, 1 if any is, and 2 for bad input.

    Example:  apas audit promises.json new.json --base model.json
    """
    from apas import audit

    how.check_outputs(certificates, new_model, base, out=where.out)
    in_blocks = where.streams(json=how.as_json, markdown=how.markdown, junit=how.junit)
    if not in_blocks and (where.out or where.jobs or where.dask):
        raise InputError("`--jobs` and `--dask` of audit go with `--out`, whose file must end in .jsonl or .parquet.")
    new, old = (None if path is None else how.read(path) for path in (new_model, base))
    if not in_blocks:
        how.finish(audit(certificates, new, base=old, **how.arguments()))
    from apas.cli.stream import StoredRows, write_rows

    files = {"CERTIFICATES": certificates, "NEW_MODEL": new_model, "--base": base}
    ask, written = partial(audit, new_model=new, base=old), {"counts": "outcome", "size": 2048, "write": write_rows}
    counts = where.stream(ask, StoredRows(certificates), files, how.arguments(), **written)
    raise typer.Exit(int(any(word.startswith("BROKEN") for word in counts)))


def print_audit(report: AuditReport) -> None:
    """Print a line per row, what repairs the broken ones, and what it all comes to."""
    table = new_table("row", "outcome", "delta", "reason")
    labels = report._labels()
    for i in page(len(report), [row.outcome.name not in _COLOURS for row in report]):
        label, row = labels[i], report[i]
        outcome = cell(row.outcome.name, style=_COLOURS.get(row.outcome.name, "red"))
        table.add_row(cell(label), outcome, exactly(row.delta), cell(row.reason))
        if row.repair is not None:
            table.add_row("", "", "", cell(f"nearest repair: {row.repair}"))
    print_table(table, "\n".join([report.summary(), *report.notes]), len(report))
