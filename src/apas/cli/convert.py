"""`apas convert`: a model file of one format as another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from apas.cli import options
from apas.cli.options import group_options, optional, split_words
from apas.cli.output import check_outputs, print_json, print_line
from apas.errors import InputError


@group_options
def convert_command(
    source: Annotated[Path, Argument(help="Model file to read, of any format that apas reads.")],
    target: Annotated[
        Path, Argument(help="Model file to write: .json, .safetensors, .onnx, .apas, .skops, .ubj, .txt or .cbm.")
    ],
    *,
    layers: options.LayerOptions,
    threshold: Annotated[float | None, optional("From where on a binary model says class 1.", "as in the file")] = None,
    classes: Annotated[str | None, optional("Class labels, with commas between them.", "as in the file")] = None,
    feature_names: Annotated[
        str | None, optional("Names of the inputs, with commas between them.", "as in the file")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Read a model file of one format and write it in another, with every number as it was.

    Examples, from a graph and from the state of a PyTorch module:

    apas convert model.onnx model.json

    apas convert model.pt model.safetensors --activation relu --output sigmoid
    """
    from apas import load_model, save_model
    from apas.models.digest import model_digest

    check_outputs({"TARGET": target}, source)
    said: dict[str, Any] = {
        "threshold": threshold,
        "classes": None if classes is None else [_label(word) for word in split_words(classes)],
        "feature_names": None if feature_names is None else split_words(feature_names),
    }
    model = layers.read(source, **said)
    save_model(model, target)
    written = load_model(target)
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
