"""`apas verify`: recompute every claim of a certificate file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from apas.cli import options
from apas.cli.options import group_options, optional
from apas.cli.output import cell, give, new_table, page, print_table
from apas.display.numbers import exactly
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.contracts.verify import VerifyReport

_COLOURS = {"HOLDS": "green", "FAILS": "red", "NOT_CHECKED": "yellow"}


@group_options
def verify_command(
    certificates: options.CertificatesFile,
    model: options.ModelFile,
    *,
    require_coverage: Annotated[
        float | None, Option(help="Fail rows that certify less than this share of the shifts.")
    ] = None,
    require_confidence: Annotated[float | None, Option(help="Fail rows that claim less than this confidence.")] = None,
    require_delta: Annotated[
        float | None, Option(help="Fail rows that certify a smaller delta than this, in their own set.")
    ] = None,
    require_target: Annotated[
        str | None, Option(help="Fail rows that are about another class than this, as printed.")
    ] = None,
    require_derived: Annotated[
        bool, Option("--require-derived", help="Fail rows whose draws come from a seed that somebody could choose.")
    ] = False,
    fresh: Annotated[
        bool, Option("--fresh", help="Test claims by sampling on models that are drawn now, too.")
    ] = False,
    samples: Annotated[int | None, optional("Models drawn afresh for each row.", "as many as it takes")] = None,
    seed: Annotated[int | None, Option(min=0, help="Seed of the new draws, to repeat a run.")] = None,
    space: Annotated[
        Path | None, Option(help="TOML file: the space that encodes the rows, if one does (apas generate).")
    ] = None,
    models: Annotated[
        list[Path] | None,
        Option(help="Model file of a model that exists, or a folder of refits; once for each, in their order."),
    ] = None,
    layers: options.LayerOptions,
    as_json: options.Json = False,
) -> None:
    """Check a certificate file against the model it is about: draw again, prove again, replay witnesses.

    The exit code is 0 if all hold, 1 if something does not hold or the model is another one, 2 for bad input, and 3
    if all that was checked holds but some rows could not be checked, or there are none.

    Example:  apas verify promises.json model.json
    """
    from apas import FeatureSpace, RetrainedModels, verify

    for name, value in (("--seed", seed), ("--samples", samples)):
        if value is not None and not fresh:
            raise InputError(f"`{name}` goes with `--fresh`; leave it out.")
    net = layers.read(model)
    bound = net if space is None else FeatureSpace.from_toml(space).bind(net)
    others = [
        m for path in models or [] for m in (RetrainedModels.load(path) if path.is_dir() else [layers.read(path)])
    ]
    report = verify(
        certificates,
        bound,
        models=others,
        require_coverage=require_coverage,
        require_confidence=require_confidence,
        require_delta=require_delta,
        require_target=require_target,
        require_derived=require_derived,
        fresh=fresh,
        samples=samples,
        rng=seed,
    )
    give(report, print_report, as_json=as_json)
    raise typer.Exit(report.exit_code)


def print_report(report: VerifyReport) -> None:
    """Print a line per statement with what it claims, the sets that its delta is a size in, and what they come to."""
    columns = ("row", "statement", "claimed", "target", "delta", "coverage", "confidence", "check", "reason")
    table = new_table(*columns)
    labels = report._labels()
    for i in page(len(report), [line.check.name != "HOLDS" for line in report]):
        label, line = labels[i], report[i]
        told = (line.target, exactly(line.delta), exactly(line.coverage), line.sureness())
        check = cell(line.check.value, style=_COLOURS[line.check.name])
        table.add_row(cell(label), cell(line.statement), cell(line.claimed), *map(cell, told), check, cell(line.reason))
    sets = [f"Set: {words}." for words in dict.fromkeys(line.shifts for line in report)]
    print_table(table, "\n".join([*sets, *report.notes, report.summary()]), len(report))
