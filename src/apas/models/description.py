"""What a model file says besides its numbers: which format it is, and what the network's numbers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apas.errors import InputError
from apas.models.feedforward import FeedForward

__all__ = ["CONVERT", "FIELDS", "VERSION", "build_network", "check_description", "describe_network"]

VERSION = 1
FIELDS = ("activation", "output", "threshold", "classes", "feature_names")
#: What a file says only where it is not the usual: float64.
OPTIONAL = ("dtype",)
CONVERT = "in the program that trained the model, write it with: apas.save_model(model, 'model.json')"


def describe_network(network: FeedForward) -> dict[str, Any]:
    """All of a network but its weights and biases, as JSON values.

    Examples
    --------
    >>> describe_network(FeedForward([[[1.0]]], [[0.0]]))["output"]
    'sigmoid'
    """
    described = network.describe()
    return {
        "format": "apas-model", "version": VERSION, "kind": "feedforward",
        **{key: described[key] for key in (*FIELDS, *OPTIONAL) if key in described},
    }  # fmt: skip


def check_description(content: Any, path: Path, *, arrays: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a description, none unknown, and all there but for those that may be left out.

    Parameters
    ----------
    content : object
        What the file holds.
    path : Path
        For messages.
    arrays : sequence of str
        Fields that hold numbers and must be there too.
    """
    needed = (*arrays, *FIELDS)
    if not isinstance(content, dict) or content.get("format") != "apas-model":
        raise InputError(f'{path} is not a model file: it must hold an object with "format": "apas-model"; {CONVERT}.')
    version = content.get("version")
    if type(version) is not int or version != VERSION or content.get("kind") != "feedforward":
        raise InputError(
            f"{path} is a model file of version {version!r} and kind {content.get('kind')!r}, but this apas reads "
            f"version {VERSION} and kind 'feedforward'; use a newer apas."
        )
    unknown = sorted(set(content) - {*needed, *OPTIONAL, "format", "version", "kind"})
    if unknown:
        raise InputError(f"{path} has the unknown field {unknown[0]!r}; a model file has only {', '.join(needed)}.")
    missing = [key for key in needed if key not in content]
    if missing:
        raise InputError(f"{path} must have the field {missing[0]!r}, but has not; {CONVERT}.")
    return {key: content[key] for key in (*needed, *OPTIONAL) if key in content}


def build_network(path: Path, fields: Mapping[str, Any]) -> FeedForward:
    """Make a network of the arguments of `FeedForward` that a file holds."""
    try:
        return FeedForward(**fields)
    except InputError as error:
        raise InputError(f"{path} does not hold a usable network: {error}") from error
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"{path} does not hold a usable network: a field has the wrong type ({error}).") from error
