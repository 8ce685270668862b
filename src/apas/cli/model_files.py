"""`apas shift`, `convert` and `retrain`: model files compared, written in another format, and refitted."""

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

import apas
from apas.cli import options
from apas.cli.options import group_options, optional, split_words
from apas.cli.output import cell, check_outputs, give, new_table, print_json, print_line, print_table
from apas.cli.rows import read_rows, whole_numbers
from apas.display.numbers import at_most
from apas.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


@group_options
def shift_command(
    old: Path = Argument(help="Model file of the base model."),
    new: Path = Argument(help="Model file of the changed model, with parameters of the same shapes."),
    *,
    p: float = Option(
        math.inf, help="Distance to report as delta: 0 counts changes, 1 sums them, 2 is Euclidean, or inf."
    ),
    layers: options.LayerOptions,
    as_json: options.Json = False,
) -> None:
    """Measure how far the parameters moved from one model file to another, overall and per layer.

    Example:  apas shift model.json new.json
    """
    from apas.shifts.distance import check_order, compare_models

    base, other = (layers.read(path) for path in (old, new))
    report = compare_models(base, [other], p=check_order(p), names=[str(new)], columns=["model 1"])
    give(report, print_report, as_json=as_json)


def print_report(report: "apas.ShiftReport") -> None:
    """Print a table of distances, rounded up, and what they mean."""
    table = new_table("layer", "kind", right=("size", *(f"p = {p:g}" for p in report.norms)))
    parts = [("all", "all", sum(size for _, _, size in report.parts)), *report.parts]
    for (layer, kind, size), found in zip(parts, report.distances[:, :, 0].tolist(), strict=True):
        distances = [at_most(d) if p else f"{d:.0f}" for p, d in zip(report.norms, found, strict=True)]
        table.add_row(cell(layer), cell(kind), str(size), *distances)
    print_table(table, report.summary())


@group_options
def convert_command(
    source: Path = Argument(help="Model file to read, of any format that apas reads."),
    target: Path = Argument(help="Model file to write: .json, .safetensors, .onnx, .apas, .skops, .ubj, .txt or .cbm."),
    *,
    layers: options.LayerOptions,
    threshold: float | None = optional("From where on a binary model says class 1.", "as in the file"),
    classes: str | None = optional("Class labels, with commas between them.", "as in the file"),
    feature_names: str | None = optional("Names of the inputs, with commas between them.", "as in the file"),
    as_json: options.Json = False,
) -> None:
    """Read a model file of one format and write it in another, with every number as it was.

    Examples, from a graph and from the state of a PyTorch module:

    apas convert model.onnx model.json

    apas convert model.pt model.safetensors --activation relu --output sigmoid
    """
    from apas.models.digest import model_digest

    check_outputs({"TARGET": target}, source)
    labels = None if classes is None else [_label(word) for word in split_words(classes)]
    names = None if feature_names is None else split_words(feature_names)
    model = layers.read(source, threshold=threshold, classes=labels, feature_names=names)
    apas.save_model(model, target)
    written = apas.load_model(target)
    digest = model_digest(written)
    if digest != model_digest(model):
        raise InputError(f"{target} does not hold the model that {source} does; please report both files.")
    if as_json:
        print_json({"format": "apas-convert", "file": str(target), "model": repr(written), "digest": digest})
    else:
        print_line(f"{target}: {written!r}, SHA-256 of the model {digest}")


def _label(word: str) -> Any:
    """A whole number where the word is one, as labels mostly are; a text otherwise."""
    return int(word) if word.removeprefix("-").isdecimal() and str(int(word)) == word else word


#: What of a pipeline is not fitted anew.
Kept = StrEnum("Kept", "preprocessing")


def retrain_command(
    model: Path = Argument(help="Model file that holds a classifier and its settings (.apas or .skops)."),
    data: Path = Argument(help="CSV file with a header line and a row per training example."),
    *,
    target: str = Option(metavar="COLUMN", help="Column with the classes."),
    folder: Path = Option(help="Folder for the refits; those that are there are not trained again."),
    models: int = Option(59, help="How many refits to make."),
    fraction: float = Option(1.0, help="Share of the rows that each refit sees."),
    bootstrap: bool = Option(True, help="Draw the rows of each refit with replacement."),
    when: str | None = optional("Column with the period of each row; goes with --window."),
    window: int | None = optional("Periods in a row that each refit sees, from a random one on."),
    keep: Kept | None = optional("Keep the preprocessing as it is fitted."),
    seed: int | None = optional("Seed of rows and refits.", "that of the folder, or a new one"),
    jobs: options.Jobs = None,
    as_json: options.Json = False,
) -> None:
    """Train a classifier anew, many times, each time on rows drawn from the same data, and keep the refits.

    A run that was stopped goes on where it was. Examples, with new samples and with windows of 12 months:

    apas retrain model.apas train.csv --target approved --models 59 --folder refits

    apas retrain model.apas train.csv --target approved --folder refits --when month --window 12
    """
    from apas.models.base import FromEstimator, offers

    read = apas.load_model(model)
    if not offers(read, FromEstimator):
        raise InputError(
            f"`MODEL` must hold a classifier with its settings to be trained anew, but {model} holds numbers alone; "
            "write it with apas.save_model(classifier, 'model.apas') in the program that trained it."
        )
    table, labels, periods = _read_table(data, read, target, when)
    kept = None if keep is None else keep.value
    made = apas.retrain(
        read, table, labels, n_models=models, bootstrap=bootstrap, fraction=fraction, when=periods, window=window,
        keep=kept, n_jobs=1 if jobs is None else jobs, rng=seed, folder=folder,
    )  # fmt: skip
    if as_json:
        told = {"folder": str(folder), "models": len(made), "process": made.process, "entropy": hex(made.entropy)}
        print_json({"format": "apas-retrain", **told})
    else:
        print_line(f"{folder}: {len(made)} models, {made.process} (seed {made.entropy})")


def _read_table(data: Path, model: "apas.Model", target: str, when: str | None) -> "tuple[DataFrame, Any, Any]":
    """Rows in the model's columns, their classes as the model has them, and their periods."""
    from apas.models.base import Named, offers

    names = model.feature_names if offers(model, Named) else None
    others = [target] if when is None else [target, when]
    table = whole_numbers(read_rows(data, model, None if names is None else [*names, *others]))
    missing = [column for column in (*others, *(names or ())) if column not in table.columns]
    if missing:
        raise InputError(f"{data} must have the column {missing[0]!r}, but has not; see its header line.")
    known = {str(label): label for label in model.classes}
    known |= {str(float(label)): label for label in model.classes if isinstance(label, int | float)}
    found = [str(cell) for cell in table[target]]
    strange = [cell for cell in found if cell not in known]
    if strange:
        told = f"must hold classes of the model ({', '.join(map(str, model.classes))}), got {strange[0]!r}"
        raise InputError(f"column {target!r} of {data} {told}.")
    rows = table[list(names)] if names is not None else table.drop(columns=others)
    rows = rows.astype({rows.columns[j]: "category" for j in getattr(model, "categories", ())})  # a CSV has texts
    return rows, [known[cell] for cell in found], None if when is None else table[when].to_numpy()
