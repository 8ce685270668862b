"""`apas generate`, `menu` and `letter`: certified offers for the rows of a table, and pages that tell of them."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from apas._atomic import refusing, write_text
from apas.cli import options
from apas.cli.options import OfferOptions, group_options, optional, parse_pairs, pick_method, split_words
from apas.cli.output import PAGE, cell, check_outputs, give, new_table, print_json, print_line, print_table
from apas.cli.promises import ReferenceColumn, References, read_references
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.counterfactuals.menu import Menu
    from apas.counterfactuals.result import Counterfactuals


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
    method: options.MethodName = Option(
        options.MethodName.sampling, help="sampling certifies most shifts, the others every shift."
    ),
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
    from apas import generate
    from apas.cli.workers import workers

    check_outputs({"--out": common.out, "--save": common.save}, model, rows, *offers.files)
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
        ask = partial(generate, net, background=asked.pop("background"))
        common.stream(ask, table, files, asked, counts="status", lines=k, size=8, write=write_rows)
        return
    asked |= {"time_limit": time_limit, "simultaneous": common.simultaneous}
    with workers(common.jobs, common.dask) as n_jobs:
        found = generate(net, table.read(), n_jobs=n_jobs, **asked)
    if common.out is not None:
        _write_table(found, common.out)
    give(found, print_counterfactuals, as_json=common.as_json, save=common.save)


def _write_table(found: Counterfactuals, path: Path) -> None:
    """The counterfactuals as a table in raw units, beside the row they belong to and how the search ended."""
    from apas.display.tables import csv_text

    frame = found.points.copy()
    name = "status" if "status" not in frame else "search_status"  # a feature may be called so
    frame.insert(0, name, [status.name for status in found.status], allow_duplicates=True)
    with refusing("`--out` cannot be written"):
        write_text(path, csv_text(frame))


def print_counterfactuals(found: Counterfactuals) -> None:
    """Print what each counterfactual changes, what it costs and what was certified."""
    colours = {"FOUND": "green", "EXHAUSTED": "yellow", "BUDGET": "yellow", "INFEASIBLE": "red"}
    table = new_table("row", "rank", "status", "target", "cost", "changes", "reason")
    for (index, changes), item in zip(found[:PAGE].to_frame()["changes"].items(), found, strict=False):
        status = cell(item.status.name, style=colours[item.status.name])
        cost = f"{item.cost:.4g}" if item.is_found else "-"
        told = (cell(value) for value in (item.target, cost, changes, item.reason))
        table.add_row(cell(index), str(item.rank), status, *told)
    print_table(table, found.summary(), len(found))


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
    from apas import menu, save_certificates
    from apas.cli.workers import workers

    check_outputs({"--out": out, "--save": save}, model, rows, *offers.files)
    movement.check_delta(delta)
    how = pick_method(options.MethodName.sampling, coverage=coverage, confidence=confidence, samples=samples)
    net = layers.read(model)
    table, about = offers.open(net, rows)
    chosen: dict[str, Any] = {"features": None if features is None else split_words(features), "size": size}
    with workers(jobs, dask) as n_jobs:
        claimed: dict[str, Any] = {"shifts": movement.pick(), "method": how, "n_jobs": n_jobs, "rng": seed}
        found = menu(net, table.read(), delta, **about, **chosen, **claimed, time_limit=time_limit)
    if out is not None:
        with refusing("`--out` cannot be written"):
            write_text(out, found.to_html())
    if save is not None:
        save_certificates(found.offers, save)
    give(found, print_menu, as_json=as_json)


def print_menu(found: Menu) -> None:
    """Print what each set of features can do for each applicant."""
    colours = {"OFFER": "green", "UNREACHABLE": "red", "FRAGILE": "red", "OPEN": "yellow"}
    table = new_table("row", "features", "status", "cost", "offer, or why there is none")
    for index, item in zip(found[:PAGE].to_frame().index, found, strict=False):
        cost = "-" if item.offer is None else f"{item.cost:.4g}"
        status = cell(item.status.name, style=colours[item.status.name])
        table.add_row(cell(index), cell(", ".join(item.features)), status, cost, cell(item.changes or item.reason))
    print_table(table, found.summary(), len(found))


@group_options
def letter_command(
    certificates: options.CertificatesFile,
    *,
    folder: Path = Option(Path("letters"), "--folder", "-o", help="Where to write the pages."),
    references: References = None,
    reference_column: ReferenceColumn = None,
    expires: str | None = optional("Last day of the promises (UTC), such as 2027-06-30."),
    answer: str | None = optional("What the class means to people.", "its name"),
    name: list[str] | None = optional("What people call a feature: FEATURE=WORDS; several times."),
    sender: str = optional("Who writes.", default=""),
    template: Path | None = optional("A page of your own (Jinja).", "the one of apas"),
    as_json: options.Json = False,
) -> None:
    """Write a page for each applicant: what to change, what is promised, until when, and what is not.

    Rows that are not certified are left out. Each option has a code, which `apas ledger list --digest` finds.

    Examples, with what the class means, and with a page of your own:

    apas letter promises.json --expires 2099-12-31 --answer approved -o letters

    apas letter promises.json --template own.html -o letters
    """
    from apas import write_letter

    said: dict[str, Any] = {"expires": expires, "answer": answer, "sender": sender, "template": template}
    said |= {"references": read_references(references, reference_column), "names": parse_pairs(name, "--name")}
    pages = write_letter(certificates, folder, **said)
    if as_json:
        print_json({"format": "apas-letters", "pages": [str(page) for page in pages]})
        return
    for page in pages:
        print_line(str(page))
    print_line(f"{len(pages)} letter{'' if len(pages) == 1 else 's'}.")
