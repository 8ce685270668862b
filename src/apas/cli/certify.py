"""`apas certify`, `max-shift`, `calibrate`, `generate` and `menu`: what is certified about the rows of a table."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import apas
from apas._atomic import refusing, write_text
from apas.cli import options
from apas.cli.options import MethodName, OfferOptions, group_options, optional, parse_target, pick_method, split_words
from apas.cli.output import PAGE, cell, check_outputs, give, new_table, print_rows
from apas.cli.rows import read_rows, whole_numbers
from apas.cli.workers import workers
from apas.display.numbers import at_least, at_most, exactly
from apas.errors import InputError

#: By what evidence.
CertifyMethod = StrEnum("CertifyMethod", "sampling interval linear attack exact enumeration cascade")
SamplingTest = StrEnum("SamplingTest", "anytime fixed")


@group_options
def certify_command(
    model: options.ModelFile,
    rows: Annotated[Path | None, options.ROWS] = None,
    target: str | None = optional('Class the rows must keep, or "predicted".', "needed"),
    delta: options.Delta = None,
    *,
    method: CertifyMethod = Option(
        CertifyMethod.sampling,
        help="sampling asks about most shifts, enumeration about most or every, the others about every.",
    ),
    coverage: float | None = optional(
        "Share of the shifts that must keep the class (sampling, enumeration).", "0.995; 1 with enumeration"
    ),
    confidence: options.Confidence = None,
    samples: options.Samples = None,
    test: SamplingTest | None = optional("May it go on, or is the number fixed (sampling)?", "fixed with --samples"),
    further: Path | None = Option(
        None, "--continue", help="Draw on for open rows of this certificate file, instead of ROWS."
    ),
    time_limit: float | None = optional("Seconds per row (exact, cascade, enumeration).", "60; none with enumeration"),
    region: list[str] | None = optional(
        'Certify all values of a feature: FEATURE="at least" or "at most", FEATURE=LOW..HIGH, FEATURE=NUMBER (so '
        "far to either side), FEATURE=LEVEL,LEVEL; several times.",
        "the rows alone",
    ),
    beyond: Path | None = optional("Changed numbers may go further: CSV file with the rows that ROWS were made from."),
    sizes: int = Option(1, help="The largest of so many nested regions that passes (--region, --beyond)."),
    space: Path | None = optional("TOML file with ranges of features (--region, --beyond)."),
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
    ask = _about_regions(region, beyond, sizes, space) or apas.certify
    asked: dict[str, Any] = {"delta": delta, "method": how, "rng": seeds.pick(confidence)}
    without = {"derived": seeds.derived, "region": region, "beyond": beyond}
    common.answer(ask, print_certificates, model, rows, target, without, **asked)


def _about_regions(
    spans: list[str] | None, before: Path | None, sizes: int, space: Path | None
) -> "Callable[..., apas.Certificates] | None":
    """How `certify` is asked about regions; None if it is not."""
    if not spans and before is None:
        if sizes != 1 or space is not None:
            raise InputError("`--sizes` and `--space` go with `--region` or `--beyond`; leave them out.")
        return None
    known = None if space is None else apas.FeatureSpace.from_toml(space)
    region = apas.Region(options.parse_spans(spans), beyond=before is not None, space=known, sizes=sizes)

    def ask(net: Any, table: Any, *, target: Any, **more: Any) -> "apas.Certificates":
        if before is not None:
            inputs = read_rows(before, net, None if known is None else known.names)
            table = apas.Counterfactuals.from_frame(net, inputs, table, target=target, space=known)
            net = table.model
        return apas.certify(net, table, target=target, region=region, **more)

    return ask


def _continue(model: Path, file: Path, samples: int | None, given: list[str], common: options.QuestionOptions) -> None:
    """Draw on for the rows of a certificate file that were left open."""
    if samples is None:
        raise InputError("Missing option '--samples': say after how many draws in all to leave a row open.")
    told = {"--shifts": common.shifts != "linf", "--relative": common.relative, "--only": common.only is not None}
    told |= {"--refits": common.refits is not None, "--simultaneous": common.simultaneous}
    told |= {"--out": common.out is not None, "--resume": common.resume}
    given += [name for name, is_told in told.items() if is_told]
    if given:
        raise InputError(f"`{given[0]}` goes without `--continue`, whose file has all that; leave it out.")
    found = apas.load_certificates(file)
    with workers(common.jobs, common.dask) as n_jobs:
        more = found.continued(n_samples=samples, model=common.read(model), n_jobs=n_jobs)
    give(more, print_certificates, as_json=common.as_json, save=common.save)


#: Per kind of evidence what the table shows of it: heading, entry, and how it is written.
SHOWN: dict[str, list[tuple[str, str, Callable[[Any], str]]]] = {
    "sampling": [("draws", "draws", str), ("failures", "failures", str)],
    "bound": [("step", "step", str), ("bound", "bound", at_least)],
    "share": [("lower", "lower", at_least), ("upper", "upper", at_most)],
    "enumeration": [("lower", "lower", at_least), ("upper", "upper", at_most), ("boxes", "evaluated", str)],
}


def print_certificates(certificates: "apas.Certificates") -> None:
    """Print a table of the verdicts and what they mean; numbers are rounded to the safe side."""
    colours = {"CERTIFIED": "green", "REFUTED": "red", "UNKNOWN": "yellow"}
    found = [c.evidence.to_dict() for c in certificates[:PAGE]]
    columns = next((SHOWN[e["kind"]] for e in found if e["kind"] in SHOWN), [])

    def cells(i: int) -> list[Any]:
        c, known = certificates[i], [(found[i].get(entry), write) for _, entry, write in columns]
        values = ["-" if value is None else write(value) for value, write in known]
        return [cell(c.verdict.name, colours[c.verdict.name]), c.target, exactly(c.delta), *values, c.reason]

    headings = [heading for heading, _, _ in columns]
    print_rows(certificates, new_table("row", "verdict", "target", "delta", *headings, "reason"), cells)


#: How to look for the largest shift with draws.
SearchName = StrEnum("SearchName", "rays confirm paper")


@group_options
def max_shift_command(
    model: options.ModelFile,
    rows: options.RowsFile,
    target: options.Target,
    *,
    method: MethodName = Option(
        MethodName.sampling, help="sampling asks about most shifts, the others about every shift."
    ),
    search: SearchName | None = optional("How to search (sampling).", "rays; confirm above 100,000 parameters"),
    coverage: options.Coverage = None,
    confidence: options.Confidence = None,
    samples: int | None = Option(None, help="How many directions to draw (sampling)."),
    time_limit: float | None = optional("Seconds per row (exact, cascade).", "60"),
    seeds: options.SeedOptions,
    limit: float | None = optional("Where to stop looking.", "10 times the largest parameter; 10 if relative"),
    common: options.QuestionOptions,
) -> None:
    """Find the largest shift of the model at which each explanation is certified to keep its class.

    Examples, for most shifts and for every shift:

    apas max-shift model.json rows.csv --target 1

    apas max-shift model.json rows.csv --target 1 --method cascade --jobs 2
    """
    common.check_outputs(model, rows)
    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples, time_limit=time_limit)
    asked: dict[str, Any] = {"method": how, "search": None if search is None else search.value, "limit": limit}
    asked["rng"] = seeds.pick(confidence)
    common.answer(apas.max_shift, print_max_shifts, model, rows, target, {"derived": seeds.derived}, **asked)


def print_max_shifts(found: "apas.MaxShifts") -> None:
    """Print a table of the answers and what they mean; numbers are rounded to the safe side."""
    rounding = {"way_refuted_at": at_most, "provable": at_least, "broken_at": at_most}
    table = new_table("row", right=("delta", *rounding), no_wrap=True)
    table.add_column("reason")

    def cells(i: int) -> list[str]:
        shown = [write(float(getattr(found[i], name))) for name, write in rounding.items()]
        return [found[i].written(), *shown, found[i].reason]

    print_rows(found, table, cells)


@group_options
def calibrate_command(
    model: options.ModelFile,
    rows: options.RowsFile,
    target: options.Target,
    *,
    updates: Path = Option(help="Folder with updates of the model (apas retrain)."),
    coverage: float = Option(0.9, help="Share of updates that are to keep all rows together."),
    confidence: float = Option(0.95, help="How surely that share is reached."),
    marginal: bool = Option(False, "--marginal", help="Claim a probability on average over calibrations."),
    others: Path | None = optional("Folder with other refits: score margins by their spread."),
    grid: str | None = optional("Deltas such as 0.02,0.05: calibrate offers for the rows instead."),
    background: Path | None = optional("CSV file with known rows, for offers."),
    space: Path | None = optional("TOML file: what the features may be, for offers."),
    seed: options.Seed = None,
    layers: options.LayerOptions,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    """Find the delta above which the next update of the model keeps every row of a file, or every offer.

    Examples, for rows that are accepted, and for offers to rows that are not:

    apas calibrate model.apas accepted.csv --target 1 --updates refits --save calibration.json

    apas calibrate model.apas rejected.csv --target 1 --updates refits --grid 0.02,0.05,0.1 --space space.toml
    """
    check_outputs({"--save": save}, model, rows, background, space)
    net, made = layers.read(model), apas.RetrainedModels.load(updates)
    how: dict[str, Any] = {"coverage": coverage, "confidence": None if marginal else confidence, "rng": seed}
    if grid is None:
        if background is not None or space is not None:
            raise InputError("`--background` and `--space` go with `--grid`, for offers; leave them out.")
        how["score"] = "max_shift" if others is None else apas.ObservedShifts(apas.RetrainedModels.load(others))
        found = apas.calibrate_delta(net, made, read_rows(rows, net), target=parse_target(target, net), **how)
    else:
        if others is not None:
            raise InputError("`--others` goes without `--grid`: offers are ordered by their delta; leave it out.")
        try:
            deltas = [float(word) for word in split_words(grid)]
        except ValueError:
            raise InputError(f"`--grid` must be deltas such as 0.02,0.05,0.1, got {grid!r}.") from None
        allowed = None if space is None else apas.FeatureSpace.from_toml(space)
        names = None if allowed is None else allowed.names
        known = None if background is None else whole_numbers(read_rows(background, net, names))
        how |= {"space": allowed, "background": known, "target": parse_target(target, net, predicted=False)}
        found = apas.calibrate_offers(net, read_rows(rows, net, names), made, deltas, **how)
    give(found, print_calibration, as_json=as_json, save=save)


def print_calibration(found: "apas.Calibration") -> None:
    """Print a line per row, the delta and the claim."""
    table = new_table("row", "verdict", "target", found.claim.scored, "updates that break it")
    changes = [] if found.offers is None else list(found.offers[found.offers.found].changes())
    if changes:
        table.add_column("changes")

    def cells(i: int) -> list[Any]:
        c, score = found[i], getattr(found[i].evidence, "score", None)
        told = ["-" if score is None else exactly(score), f"{c.evidence.failures} of {c.evidence.draws}"]
        verdict = cell(c.verdict.name, "green" if c.is_certified else "yellow")
        return [verdict, c.target, *told, *changes[i : i + 1]]

    summary = f"delta {exactly(found.delta)}. {found.summary()}"
    print_rows(found, table, cells, summary, urgent=lambda c: not c.is_certified)


#: Where candidates come from.
SourceName = StrEnum("SourceName", "robust milp neighbours wachter prototype roar")


@group_options
def generate_command(
    model: options.ModelFile,
    rows: Path = Argument(help="CSV file with a header line and a row per input to explain."),
    delta: options.Delta = None,
    *,
    offers: OfferOptions,
    source: SourceName = Option(SourceName.robust, help="Where candidates come from."),
    method: MethodName = Option(MethodName.sampling, help="sampling certifies most shifts, the others every shift."),
    coverage: options.Coverage = None,
    confidence: options.Confidence = None,
    samples: options.Samples = None,
    k: int = Option(1, "--k", help="Counterfactuals per row."),
    max_candidates: int = Option(200, help="Candidates to look at for each of them."),
    time_limit: float | None = Option(None, help="Seconds for the searches of all rows."),
    seeds: options.SeedOptions,
    common: options.QuestionOptions,
) -> None:
    """Find counterfactuals that are certified to keep their class while the model shifts.

    With a delta of 0 they are the nearest rows that are valid on the model itself, and nothing is certified.

    Examples, from a training table, from a description of the features, and for numbers that are a little off:

    apas generate model.json rejected.csv --background train.csv --delta 0.05

    apas generate model.json rejected.csv --space space.toml --delta 0.01 --out offers.csv

    apas generate model.json rejected.csv --background train.csv --delta 0.05 --tolerance 0.02 --beyond
    """
    check_outputs({"--out": common.out, "--save": common.save}, model, rows, offers.background, offers.space)
    common.check_delta(delta)
    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples)
    if delta == 0 and common.save is not None:
        raise InputError("`--save` goes with a delta above 0: at 0 nothing is certified; use --out or --json.")
    in_blocks = common.streams(**common.whole(), derived=seeds.derived, time_limit=time_limit)
    if in_blocks and offers.target is None:
        raise InputError("Missing option '--target': in blocks nobody sees which class all rows have.")
    shifts, net = common.pick(), common.read(model)
    table, about = offers.open(net, rows)
    asked: dict[str, Any] = {**about, "delta": delta, "source": source.value, "shifts": shifts, "method": how, "k": k}
    asked |= {"max_candidates": max_candidates, "rng": seeds.pick(confidence)}
    if in_blocks:
        from apas.cli.stream import write_rows

        files = {"MODEL": model, "ROWS": rows, "--background": offers.background}
        ask = partial(apas.generate, net, background=asked.pop("background"))
        common.stream(ask, table, files, asked, counts="status", lines=k, size=8, write=write_rows)
        return
    asked |= {"time_limit": time_limit, "simultaneous": common.simultaneous}
    with workers(common.jobs, common.dask) as n_jobs:
        found = apas.generate(net, table.read(), n_jobs=n_jobs, **asked)
    if common.out is not None:
        _write_table(found, common.out)
    give(found, print_counterfactuals, as_json=common.as_json, save=common.save)


def _write_table(found: "apas.Counterfactuals", path: Path) -> None:
    """The counterfactuals as a table in raw units, beside the row they belong to and how the search ended."""
    from apas.display.tables import csv_text

    frame = found.points.copy()
    name = "status" if "status" not in frame else "search_status"  # a feature may be called so
    frame.insert(0, name, [status.name for status in found.status], allow_duplicates=True)
    with refusing("`--out` cannot be written"):
        write_text(path, csv_text(frame))


def print_counterfactuals(found: "apas.Counterfactuals") -> None:
    """Print what each counterfactual changes, what it costs and what was certified."""
    colours = {"FOUND": "green", "EXHAUSTED": "yellow", "BUDGET": "yellow", "INFEASIBLE": "red"}
    changes = list(found[:PAGE].changes())

    def cells(i: int) -> list[Any]:
        item, status = found[i], found[i].status.name
        cost = f"{item.cost:.4g}" if item.is_found else "-"
        return [item.rank, cell(status, colours[status]), item.target, cost, changes[i], item.reason]

    print_rows(found, new_table("row", "rank", "status", "target", "cost", "changes", "reason"), cells)


@group_options
def menu_command(
    model: options.ModelFile,
    rows: Path = Argument(help="CSV file with a header line and a row per applicant."),
    delta: options.Delta = None,
    *,
    offers: OfferOptions,
    features: str | None = optional("Features to choose from, with commas.", "all that may change"),
    size: int = Option(2, help="How many features a set has at most."),
    coverage: options.Coverage = None,
    confidence: options.Confidence = None,
    samples: options.Samples = None,
    time_limit: float | None = Option(None, help="Seconds for all searches."),
    seed: options.Seed = None,
    movement: options.ShiftOptions,
    layers: options.LayerOptions,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    out: Path | None = Option(None, help="Write the menu to this page (.html)."),
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    """Find the cheapest certified offer for each feature and each pair, and prove which lead nowhere.

    Examples, for the terminal, and as a page and certificates for letters:

    apas menu model.json rejected.csv --background train.csv --delta 0.05

    apas menu model.json rejected.csv --space space.toml --delta 0.05 --beyond --out menu.html --save promises.json
    """
    check_outputs({"--out": out, "--save": save}, model, rows, offers.background, offers.space)
    movement.check_delta(delta)
    how = pick_method(MethodName.sampling, coverage=coverage, confidence=confidence, samples=samples)
    net = layers.read(model)
    table, about = offers.open(net, rows)
    chosen: dict[str, Any] = {"features": None if features is None else split_words(features), "size": size}
    with workers(jobs, dask) as n_jobs:
        claimed: dict[str, Any] = {"shifts": movement.pick(), "method": how, "n_jobs": n_jobs, "rng": seed}
        found = apas.menu(net, table.read(), delta, **about, **chosen, **claimed, time_limit=time_limit)
    if out is not None:
        with refusing("`--out` cannot be written"):
            write_text(out, found.to_html())
    if save is not None:
        apas.save_certificates(found.offers, save)
    give(found, print_menu, as_json=as_json)


def print_menu(found: "apas.Menu") -> None:
    """Print what each set of features can do for each applicant."""
    colours = {"OFFER": "green", "UNREACHABLE": "red", "FRAGILE": "red", "OPEN": "yellow"}

    def cells(i: int) -> list[Any]:
        item, status = found[i], found[i].status.name
        cost = "-" if item.offer is None else f"{item.cost:.4g}"
        return [", ".join(item.features), cell(status, colours[status]), cost, item.changes or item.reason]

    print_rows(found, new_table("row", "features", "status", "cost", "offer, or why there is none"), cells)
