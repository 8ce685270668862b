"""Dense networks as JSON files: readable by people, and nothing in them can run.

A file holds one object::

    {"format": "apas-model", "version": 1, "kind": "feedforward",
     "weights": [[[...], ...], ...],    one (inputs, outputs) matrix per layer
     "biases": [[...], ...],            one vector per layer, or null for a layer without biases
     "activation": ["relu", ...],       one name per hidden layer
     "output": "sigmoid", "threshold": 0.5, "classes": [0, 1], "feature_names": null}

Numbers are written so that they come back bit by bit.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from apas._atomic import write_text
from apas.errors import InputError, UnsafeFile, Unsupported
from apas.models.convert import as_model
from apas.models.feedforward import FeedForward
from apas.models.protocol import Dense, Described, Model, Named, offers

__all__ = ["load_model", "save_model"]

VERSION = 1
_NEEDED = ("weights", "biases", "activation", "output", "threshold", "classes", "feature_names")
_RUNS_CODE = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".bin", ".dill", ".sav")
_CONVERT = "in the program that trained the model, write it with: apas.save_model(model, 'model.json')"


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a dense network to a ``.json`` file, in one step.

    Parameters
    ----------
    model : object
        A `FeedForward`, or a scikit-learn classifier without preprocessing.
    path : path
        Must end in ``.json``.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/net.json"
    >>> save_model(FeedForward([[[0.1], [0.2]]], [[0.3]]), path)
    >>> load_model(path).weights[0].ravel()
    array([0.1, 0.2])
    """
    target = _json_path(path)
    net = as_model(model)
    if offers(net, Described) and net.describe().get("preprocessing") is not None:
        raise Unsupported(
            "a Pipeline's preprocessing cannot be written to a .json file; save its network alone, with "
            "apas.save_model(apas.as_model(pipeline).as_feedforward(), path), and give it rows encoded by "
            "pipeline[:-1].transform(X)."
        )
    if not offers(net, Dense):
        raise Unsupported(f"{type(model).__name__} is not a dense network, which is all that a .json file can hold.")
    network = net.as_feedforward()
    described = network.describe()
    content = {
        "format": "apas-model", "version": VERSION, "kind": "feedforward",
        "weights": [w.tolist() for w in network.weights],
        "biases": [None if b is None else b.tolist() for b in network.given_biases],
        **{key: described[key] for key in _NEEDED[2:]},
    }  # fmt: skip
    if offers(net, Named) and net.feature_names is not None:
        content["feature_names"] = list(net.feature_names)
    try:
        write_text(target, json.dumps(content, allow_nan=False) + "\n")
    except OSError as error:
        raise InputError(
            f"`path` must be a file that can be written, but {target} cannot: {error.strerror}."
        ) from error
    except TypeError as error:
        raise InputError(f"the model's classes must be numbers or texts to be written to a file ({error}).") from error


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model from a ``.json`` file that `save_model` wrote.

    Pickle, joblib and PyTorch files are refused: reading them can run code.

    Parameters
    ----------
    path : path

    Returns
    -------
    Model
    """
    content = _read(_json_path(path))
    if not isinstance(content, dict) or content.get("format") != "apas-model":
        raise InputError(f'{path} is not a model file: it must hold an object with "format": "apas-model"; {_CONVERT}.')
    version = content.get("version")
    if type(version) is not int or version != VERSION or content.get("kind") != "feedforward":
        raise InputError(
            f"{path} is a model file of version {version!r} and kind {content.get('kind')!r}, but this apas reads "
            f"version {VERSION} and kind 'feedforward'; use a newer apas."
        )
    unknown = sorted(set(content) - {*_NEEDED, "format", "version", "kind"})
    if unknown:
        raise InputError(f"{path} has the unknown field {unknown[0]!r}; a model file has only {', '.join(_NEEDED)}.")
    missing = [key for key in _NEEDED if key not in content]
    if missing:
        raise InputError(f"{path} must have the field {missing[0]!r}, but has not; {_CONVERT}.")
    try:
        return FeedForward(**{key: content[key] for key in _NEEDED})
    except InputError as error:
        raise InputError(f"{path} does not hold a usable network: {error}") from error
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"{path} does not hold a usable network: a field has the wrong type ({error}).") from error


def _json_path(path: str | os.PathLike[str]) -> Path:
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    if target.suffix.lower() in _RUNS_CODE:
        raise UnsafeFile(f"{target} could run code when read, so apas does not; {_CONVERT}.")
    if target.suffix.lower() != ".json":
        raise InputError(f"`path` must end in .json, got {str(target)!r}; {_CONVERT}.")
    return target


def _read(path: Path) -> Any:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"`path` must be the name of a file, got {str(path)!r}: {error}.") from error
    if raw[:1] == b"\x80" or raw[:2] == b"PK":
        raise UnsafeFile(
            f"{path} is not JSON but looks like a pickle or an archive, which could run code when read; {_CONVERT}."
        )
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # ValueError: bad encoding, bad JSON, numbers of too many digits
        first = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{path} is not valid JSON: {first}.") from None
