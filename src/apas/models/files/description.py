"""What a model file says besides its numbers, and what the user says where the file does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from apas.errors import InputError
from apas.models.activations import ACTIVATIONS
from apas.models.base import Dense, Model, Named, offers
from apas.models.feedforward import OUTPUTS, FeedForward, check_activations

VERSION = 1
FIELDS = ("activation", "output", "threshold", "classes", "feature_names")
#: What a file says only where it is not the usual: float64.
OPTIONAL = ("dtype",)
CONVERT = "in the program that trained the model, write it with: apas.save_model(model, 'model.json')"


def describe_network(network: FeedForward) -> dict[str, Any]:
    """All of a network but its weights and biases, as JSON values."""
    described = network.describe()
    return {
        "format": "apas-model",
        "version": VERSION,
        "kind": "feedforward",
        **{key: described[key] for key in (*FIELDS, *OPTIONAL) if key in described},
    }


def check_description(content: Any, path: Path, *, arrays: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a description, none unknown, and all there but for those that may be left out."""
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


_Kind = TypeVar("_Kind", bound=Model)


@dataclass(frozen=True)
class Stated:
    """The keyword arguments of `load_model`; None for what was not said."""

    activation: str | Sequence[str] | None = None
    output: str | None = None
    threshold: float | None = None
    classes: Sequence[Any] | None = None
    feature_names: Sequence[str] | None = None

    def said(self) -> list[str]:
        """Names of the arguments that were given."""
        return [name for name, value in vars(self).items() if value is not None]

    def confirm(self, path: Path, model: _Kind) -> _Kind:
        """Refuse what contradicts a file that speaks for itself; give the model."""
        if not self.said() or not offers(model, Dense):
            return model
        network = model.as_feedforward()
        found = {
            "activation": network.activations,
            "output": network.output,
            "threshold": network.threshold,
            "classes": network.classes,
            "feature_names": model.feature_names if offers(model, Named) else None,
        }
        for name in self.said():
            given: Any = getattr(self, name)
            if name == "activation":
                given = check_activations(given, len(network.activations))
            elif not isinstance(given, str | float | int):
                given = tuple(given)
            if given != found[name]:
                shown = list(found[name]) if isinstance(found[name], tuple) else found[name]
                raise InputError(
                    f"`{name}` of load_model is {getattr(self, name)!r}, but {path} says {shown!r}; leave it out."
                )
        return model

    def network(
        self,
        path: Path,
        weights: Sequence[Any],
        biases: Sequence[Any],
        *,
        activation: Sequence[str] | None = None,
        output: str | None = None,
        classes: Sequence[Any] | None = None,
        dtype: str = "float64",
    ) -> FeedForward:
        """Make a network of what a file holds and what the user says about the rest."""
        hidden = len(weights) - 1
        if activation is None and self.activation is None and hidden:
            raise InputError(
                f"`activation` of load_model must say what is computed between the {hidden + 1} layers, which {path} "
                f'does not tell; pass activation="relu" (or --activation relu), or another of {", ".join(ACTIVATIONS)}.'
            )
        if output is None and self.output is None:
            raise InputError(
                f"`output` of load_model must say what the numbers of the last layer are, which {path} does not tell; "
                f'pass output="sigmoid" for one logit, "softmax" for a score per class, or "identity" for a number '
                "that is compared with `threshold` itself (on the command line: --output)."
            )
        if self.output is not None and self.output not in OUTPUTS:
            raise InputError(
                f"`output` of load_model must be one of {', '.join(map(repr, OUTPUTS))}, got {self.output!r}; "
                '"sigmoid" stands for one logit and "softmax" for a logit per class.'
            )
        chosen = output or self.output
        if chosen == "identity" and self.threshold is None:
            raise InputError(
                f'`threshold` of load_model must be given with output="identity", as {path} does not tell it.'
            )
        fields = {
            "weights": weights,
            "biases": biases,
            "activation": activation if activation is not None else self.activation if hidden else (),
            "output": chosen,
            "threshold": 0.5 if self.threshold is None else self.threshold,
            "classes": classes if classes is not None else self.classes,
            "feature_names": self.feature_names,
            "dtype": dtype,
        }
        return self.confirm(path, build_network(path, fields))
