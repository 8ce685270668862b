"""`apas certify`: certify the rows of a CSV file."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from apas.cli import options
from apas.cli.options import group_options, optional, pick_method
from apas.cli.output import cell, check_outputs, new_table, print_table
from apas.display.numbers import at_least, at_most, exactly

if TYPE_CHECKING:
    from apas.certification.results import Certificates

#: By what evidence.
CertifyMethod = StrEnum("CertifyMethod", "sampling interval linear attack exact enumeration cascade")


@group_options
def certify_command(
    model: options.ModelFile,
    rows: options.RowsFile,
    target: options.Target,
    delta: options.Delta = None,
    *,
    method: Annotated[
        CertifyMethod,
        Option(help="sampling asks about most shifts, enumeration about most or every, the others about every."),
    ] = CertifyMethod.sampling,
    coverage: Annotated[
        float | None,
        optional("Share of the shifts that must keep the class (sampling, enumeration).", "0.995; 1 with enumeration"),
    ] = None,
    confidence: options.Confidence = None,
    samples: Annotated[int | None, Option(help="How many shifted models to draw (sampling).")] = None,
    time_limit: Annotated[
        float | None, optional("Seconds per row (exact, cascade, enumeration).", "60; none with enumeration")
    ] = None,
    draws: options.SeedOptions,
    common: options.QuestionOptions,
) -> None:
    """Certify that explanations keep their class while the model shifts.

    Examples, for most shifts and for every shift:

    apas certify model.json rows.csv --target 1 --delta 0.05 --save promises.json

    apas certify model.json rows.csv --target 1 --delta 0.01 --method cascade
    """
    from apas import certify

    check_outputs({"--save": common.save}, model, rows)
    common.check_delta(delta)
    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples, time_limit=time_limit)
    common.answer(certify, print_certificates, model, rows, target, delta=delta, method=how, rng=draws.pick())


#: Per kind of evidence what the table shows of it: heading, entry, and how it is written.
SHOWN: dict[str, list[tuple[str, str, Callable[[Any], str]]]] = {
    "sampling": [("draws", "draws", str), ("failures", "failures", str)],
    "bound": [("step", "step", str), ("bound", "bound", at_least)],
    "enumeration": [("lower", "lower", at_least), ("upper", "upper", at_most), ("boxes", "evaluated", str)],
}


def print_certificates(certificates: Certificates) -> None:
    """Print a table of the verdicts and what they mean; numbers are rounded to the safe side."""
    colours = {"CERTIFIED": "green", "REFUTED": "red", "UNKNOWN": "yellow"}
    found = [c.evidence.to_dict() for c in certificates]
    columns = next((SHOWN[e["kind"]] for e in found if e["kind"] in SHOWN), [])
    headings = [heading for heading, _, _ in columns]
    table = new_table("row", "verdict", "target", "delta", *headings, "reason")
    for index, c, evidence in zip(certificates.to_frame().index, certificates, found, strict=True):
        verdict = cell(c.verdict.name, style=colours[c.verdict.name])
        values = [(evidence.get(entry), write) for _, entry, write in columns]
        cells = [cell("-" if value is None else write(value)) for value, write in values]
        table.add_row(cell(index), verdict, cell(c.target), exactly(c.delta), *cells, cell(c.reason))
    print_table(table, certificates.summary())
