"""What the user says about a network whose file does not say it, or does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from apas.errors import InputError
from apas.models.activations import ACTIVATIONS
from apas.models.architecture import check_activations
from apas.models.description import build_network
from apas.models.feedforward import OUTPUTS, FeedForward
from apas.models.protocol import Dense, Model, Named, offers

__all__ = ["Stated"]

_Kind = TypeVar("_Kind", bound=Model)


@dataclass(frozen=True)
class Stated:
    """The keyword arguments of `load_model`; None for what was not said.

    Examples
    --------
    >>> Stated(activation="tanh").said()
    ['activation']
    """

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
            "activation": network.activations, "output": network.output, "threshold": network.threshold,
            "classes": network.classes,
            "feature_names": model.feature_names if offers(model, Named) else None,
        }  # fmt: skip
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
        """Make a network of what a file holds and what the user says about the rest.

        Parameters
        ----------
        path : Path
            For messages.
        weights, biases : sequences
            As `FeedForward` takes them.
        activation, output, classes
            What the file says, or None where it says nothing.
        dtype : str
            In which arithmetic the network is used.
        """
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
