"""`apas menu`: what each applicant could change alone, or in pairs, and what is proved to lead nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from apas.cli import options
from apas.cli.options import OfferOptions, group_options, optional, pick_method, split_words
from apas.cli.output import PAGE, cell, check_outputs, give, new_table, print_table, write_out

if TYPE_CHECKING:
    from apas.counterfactuals.menu import Menu


@group_options
def menu_command(
    model: options.ModelFile,
    rows: Annotated[Path, Argument(help="CSV file with a header line and a row per applicant.")],
    delta: options.Delta = None,
    *,
    offers: OfferOptions,
    features: Annotated[str | None, optional("Features to choose from, with commas.", "all that may change")] = None,
    size: Annotated[int, Option(help="How many features a set has at most.")] = 2,
    coverage: Annotated[float | None, optional("Share of shifts that must keep the class.", "0.995")] = None,
    confidence: options.Confidence = None,
    samples: Annotated[int | None, Option(help="How many shifted models to draw.")] = None,
    time_limit: Annotated[float | None, Option(help="Seconds for all searches.")] = None,
    seed: options.Seed = None,
    movement: options.ShiftOptions,
    layers: options.LayerOptions,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    out: Annotated[Path | None, Option(help="Write the menu to this page (.html).")] = None,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    """Find the cheapest certified offer for each feature and each pair, and prove which lead nowhere.

    Examples, for the terminal, and as a page and certificates for letters:

    apas menu model.json rejected.csv --background train.csv --delta 0.05

    apas menu model.json rejected.csv --space space.toml --delta 0.05 --beyond --out menu.html --save promises.json
    """
    from apas import menu
    from apas.cli.workers import workers

    check_outputs({"--out": out, "--save": save}, model, rows, *offers.files)
    movement.check_delta(delta)
    how = pick_method(options.MethodName.sampling, coverage=coverage, confidence=confidence, samples=samples)
    net = layers.read(model)
    table, about = offers.read(net, rows)
    chosen: dict[str, Any] = {"features": None if features is None else split_words(features), "size": size}
    with workers(jobs, dask) as n_jobs:
        claimed: dict[str, Any] = {"shifts": movement.pick(), "method": how, "n_jobs": n_jobs, "rng": seed}
        found = menu(net, table, delta, **about, **chosen, **claimed, time_limit=time_limit)
    if out is not None:
        write_out(out, found.to_html())
    if save is not None:
        from apas import save_certificates

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
