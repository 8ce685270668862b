"""`apas certify`: certify the rows of a CSV file."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from apas.cli import options
from apas.cli.options import group_options, optional, parse_spans, pick_method
from apas.cli.output import PAGE, cell, give, new_table, print_table
from apas.cli.rows import read_rows
from apas.display.numbers import at_least, at_most, exactly
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certification.results import Certificates

#: By what evidence.
CertifyMethod = StrEnum("CertifyMethod", "sampling interval linear attack exact enumeration cascade")
SamplingTest = StrEnum("SamplingTest", "anytime fixed")


@group_options
def certify_command(
    model: options.ModelFile,
    rows: Annotated[Path | None, options.ROWS] = None,
    target: Annotated[str | None, optional('Class the rows must keep, or "predicted".', "needed")] = None,
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
    test: Annotated[
        SamplingTest | None, optional("May it go on, or is the number fixed (sampling)?", "fixed with --samples")
    ] = None,
    further: Annotated[
        Path | None, Option("--continue", help="Draw on for open rows of this certificate file, instead of ROWS.")
    ] = None,
    time_limit: Annotated[
        float | None, optional("Seconds per row (exact, cascade, enumeration).", "60; none with enumeration")
    ] = None,
    region: Annotated[
        list[str] | None,
        optional(
            'Certify all values of a feature: FEATURE="at least" or "at most", FEATURE=LOW..HIGH, FEATURE=NUMBER (so '
            "far to either side), FEATURE=LEVEL,LEVEL; several times.",
            "the rows alone",
        ),
    ] = None,
    beyond: Annotated[
        Path | None, optional("Changed numbers may go further: CSV file with the rows that ROWS were made from.")
    ] = None,
    sizes: Annotated[int, Option(help="The largest of so many nested regions that passes (--region, --beyond).")] = 1,
    space: Annotated[Path | None, optional("TOML file with ranges of features (--region, --beyond).")] = None,
    seeds: options.SeedOptions,
    common: options.QuestionOptions,
) -> None:
    """Certify that explanations keep their class while the model shifts.

    Examples, for most shifts and for every shift:

    apas certify model.json rows.csv --target 1 --delta 0.05 --save promises.json

    apas certify model.json rows.csv --target 1 --delta 0.01 --method cascade

    Any number of rows, block by block; after an interruption the same with --resume:

    apas certify model.json rows.csv --target 1 --delta 0.05 --out certificates.jsonl --jobs 2

    "At least" and "between" instead of single numbers; and offers that may be exceeded:

    apas certify model.json rows.csv --target 1 --delta 0.05 --space space.toml --region "income=at least"

    apas certify model.json offers.csv --target 1 --delta 0.05 --space space.toml --beyond rejected.csv

    What the draws left open goes on, at no cost:

    apas certify model.json --continue promises.json --samples 200000 --save further.json
    """
    from apas import certify

    common.check_outputs(model, rows, further, beyond, space)
    if further is not None:
        given: dict[str, Any] = {"ROWS": rows, "--target": target, "--delta": delta, "--coverage": coverage}
        given |= {"--confidence": confidence, "--time-limit": time_limit, "--test": test, "--seed": seeds.seed}
        given |= {"--derived": seeds.derived or None, "--bits": seeds.bits, "--region": region, "--beyond": beyond}
        _continue(model, further, samples, [name for name, value in given.items() if value is not None], common)
        return
    if rows is None or target is None:
        missing = "argument 'ROWS'" if rows is None else "option '--target'"
        raise InputError(f"Missing {missing}; see `apas certify --help`.")
    common.check_delta(delta)
    draws = {"coverage": coverage, "confidence": confidence, "samples": samples, "test": test}
    how = pick_method(method, **draws, time_limit=time_limit)
    ask = _about_regions(region, beyond, sizes, space) or certify
    asked: dict[str, Any] = {"delta": delta, "method": how, "rng": seeds.pick(confidence)}
    without = {"derived": seeds.derived, "region": region, "beyond": beyond}
    common.answer(ask, print_certificates, model, rows, target, without, **asked)


def _about_regions(
    spans: list[str] | None, before: Path | None, sizes: int, space: Path | None
) -> Callable[..., Certificates] | None:
    """How `certify` is asked about regions; None if it is not."""
    if not spans and before is None:
        if sizes != 1 or space is not None:
            raise InputError("`--sizes` and `--space` go with `--region` or `--beyond`; leave them out.")
        return None
    from apas import Counterfactuals, FeatureSpace, Region, certify

    known = None if space is None else FeatureSpace.from_toml(space)
    region = Region(parse_spans(spans), beyond=before is not None, space=known, sizes=sizes)

    def ask(net: Any, table: Any, *, target: Any, **more: Any) -> Certificates:
        if before is None:
            return certify(net, table, target=target, region=region, **more)
        inputs = read_rows(before, net, None if known is None else known.names)
        offers = Counterfactuals.from_frame(net, inputs, table, target=target, space=known)
        return certify(offers.model, offers, target=target, region=region, **more)

    return ask


def _continue(model: Path, file: Path, samples: int | None, given: list[str], common: options.QuestionOptions) -> None:
    """Draw on for the rows of a certificate file that were left open."""
    from apas import load_certificates
    from apas.cli.workers import workers

    if samples is None:
        raise InputError("Missing option '--samples': say after how many draws in all to leave a row open.")
    given += [name for name, changed in common.changed().items() if changed]
    if given:
        raise InputError(f"`{given[0]}` goes without `--continue`, whose file has all that; leave it out.")
    found = load_certificates(file)
    with workers(common.jobs, common.dask) as n_jobs:
        more = found.continued(n_samples=samples, model=common.layers().read(model), n_jobs=n_jobs)
    give(more, print_certificates, as_json=common.as_json, save=common.save)


#: Per kind of evidence what the table shows of it: heading, entry, and how it is written.
SHOWN: dict[str, list[tuple[str, str, Callable[[Any], str]]]] = {
    "sampling": [("draws", "draws", str), ("failures", "failures", str)],
    "bound": [("step", "step", str), ("bound", "bound", at_least)],
    "share": [("lower", "lower", at_least), ("upper", "upper", at_most)],
    "enumeration": [("lower", "lower", at_least), ("upper", "upper", at_most), ("boxes", "evaluated", str)],
}


def print_certificates(certificates: Certificates) -> None:
    """Print a table of the verdicts and what they mean; numbers are rounded to the safe side."""
    colours = {"CERTIFIED": "green", "REFUTED": "red", "UNKNOWN": "yellow"}
    some = certificates[:PAGE]
    found = [c.evidence.to_dict() for c in some]
    columns = next((SHOWN[e["kind"]] for e in found if e["kind"] in SHOWN), [])
    headings = [heading for heading, _, _ in columns]
    table = new_table("row", "verdict", "target", "delta", *headings, "reason")
    for index, c, evidence in zip(some.to_frame().index, some, found, strict=True):
        verdict = cell(c.verdict.name, style=colours[c.verdict.name])
        values = [(evidence.get(entry), write) for _, entry, write in columns]
        cells = [cell("-" if value is None else write(value)) for value, write in values]
        table.add_row(cell(index), verdict, cell(c.target), exactly(c.delta), *cells, cell(c.reason))
    print_table(table, certificates.summary(), len(certificates))
