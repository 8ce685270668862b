"""`apas calibrate`: the delta above which the next update keeps every row, from updates in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from apas.cli import options
from apas.cli.options import group_options, optional, parse_target, split_words
from apas.cli.output import cell, check_outputs, give, new_table, page, print_table
from apas.cli.rows import read_rows, whole_numbers
from apas.display.numbers import exactly
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certification.calibration import Calibration


@group_options
def calibrate_command(
    model: options.ModelFile,
    rows: options.RowsFile,
    target: options.Target,
    *,
    updates: Annotated[Path, Option(help="Folder with updates of the model (apas retrain).")],
    coverage: Annotated[float, Option(help="Share of updates that are to keep all rows together.")] = 0.9,
    confidence: Annotated[float, Option(help="How surely that share is reached.")] = 0.95,
    marginal: Annotated[bool, Option("--marginal", help="Claim a probability on average over calibrations.")] = False,
    others: Annotated[Path | None, optional("Folder with other refits: score margins by their spread.")] = None,
    grid: Annotated[str | None, optional("Deltas such as 0.02,0.05: calibrate offers for the rows instead.")] = None,
    background: Annotated[Path | None, optional("CSV file with known rows, for offers.")] = None,
    space: Annotated[Path | None, optional("TOML file: what the features may be, for offers.")] = None,
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
    from apas import FeatureSpace, ObservedShifts, RetrainedModels, calibrate_delta, calibrate_offers

    check_outputs({"--save": save}, model, rows, background, space)
    net, made = layers.read(model), RetrainedModels.load(updates)
    how: dict[str, Any] = {"coverage": coverage, "confidence": None if marginal else confidence, "rng": seed}
    if grid is None:
        if background is not None or space is not None:
            raise InputError("`--background` and `--space` go with `--grid`, for offers; leave them out.")
        how["score"] = "max_shift" if others is None else ObservedShifts(RetrainedModels.load(others))
        found = calibrate_delta(net, made, read_rows(rows, net), target=parse_target(target, net), **how)
    else:
        if others is not None:
            raise InputError("`--others` goes without `--grid`: offers are ordered by their delta; leave it out.")
        try:
            deltas = [float(word) for word in split_words(grid)]
        except ValueError:
            raise InputError(f"`--grid` must be deltas such as 0.02,0.05,0.1, got {grid!r}.") from None
        allowed = None if space is None else FeatureSpace.from_toml(space)
        names = None if allowed is None else allowed.names
        known = None if background is None else whole_numbers(read_rows(background, net, names))
        how |= {"space": allowed, "background": known, "target": parse_target(target, net, predicted=False)}
        found = calibrate_offers(net, read_rows(rows, net, names), made, deltas, **how)
    give(found, print_calibration, as_json=as_json, save=save)


def print_calibration(found: Calibration) -> None:
    """Print a line per row, the delta and the claim."""
    table = new_table("row", "verdict", "target", found.claim.scored, "updates that break it")
    changes = [] if found.offers is None else list(found.offers[found.offers.found].changes())
    if changes:
        table.add_column("changes")
    labels = found._labels()
    for i in page(len(found), [not c.is_certified for c in found]):
        index, c = labels[i], found[i]
        told = [cell(c.verdict.name, style="green" if c.is_certified else "yellow"), cell(c.target)]
        score = getattr(c.evidence, "score", None)
        told += map(cell, ("-" if score is None else exactly(score), f"{c.evidence.failures} of {c.evidence.draws}"))
        table.add_row(cell(index), *told, *map(cell, changes[i : i + 1]))
    print_table(table, f"delta {exactly(found.delta)}. {found.summary()}", len(found))
