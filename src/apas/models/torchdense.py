"""Sequences of linear layers in PyTorch as dense networks in NumPy."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apas._validation import check_numbers
from apas.models.feedforward import FeedForward
from apas.models.parameters import Parameters
from apas.models.torchhead import SILENT, Head, final_layer, unhooked
from apas.models.torchpasses import answer

__all__ = ["DenseTorchModel", "dense_layers"]

_Array = NDArray[np.float64]
_Layers = tuple[list[_Array], list[_Array | None], list[str]]
_NAMES = {
    nn.ReLU: "relu", nn.LeakyReLU: "leaky_relu", nn.Hardtanh: "hard_tanh", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid",
    nn.ELU: "elu", nn.GELU: "gelu",
}  # fmt: skip
#: Settings with which these activations are those of `FeedForward`.
_SETTINGS: dict[Any, dict[str, Any]] = {
    nn.LeakyReLU: {"negative_slope": 0.01},
    nn.Hardtanh: {"min_val": -1.0, "max_val": 1.0},
    nn.ELU: {"alpha": 1.0},
    nn.GELU: {"approximate": "none"},
}


class DenseTorchModel:
    """A module that is a dense network, computed in float64 by NumPy.

    Parameters
    ----------
    module : torch.nn.Module
        A copy of the user's in eval mode, to be asked for its own opinion.
    head : Head
        What its numbers mean.
    network : FeedForward
        The same network.
    shape : tuple of int
        Shape of one input of the module.
    """

    def __init__(self, module: Any, head: Head, network: FeedForward, shape: tuple[int, ...]) -> None:
        self._module, self._head, self._network, self._shape = module, head, network, shape

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels."""
        return self._network.classes

    @property
    def n_features(self) -> int:
        """Number of inputs."""
        return self._network.n_features

    @property
    def parameters(self) -> Parameters:
        """Weights (inputs, outputs) and biases, layer by layer; those that a layer does not have are absent."""
        return self._network.parameters

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the inputs, if given."""
        return self._network.feature_names

    def margin(self, X: _Array, target: Any) -> _Array:
        """Margins of the rows `X` towards `target`, shape (rows,)."""
        return self._network.margin(X, target)

    def shifted_margins(self, X: _Array, target: Any, directions: _Array, delta: float | _Array) -> _Array:
        """Margins on the networks ``parameters + delta * direction``, shape (directions, rows)."""
        return self._network.shifted_margins(X, target, directions, delta)

    def margin_scale(self, X: _Array, radii: _Array, delta: float | _Array = 1.0) -> _Array:
        """Sum of magnitudes behind any margin of each row."""
        return self._network.margin_scale(X, radii, delta)

    def input_gradient(self, X: _Array, target: Any, moves: _Array | None = None) -> tuple[_Array, _Array]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""
        return self._network.input_gradient(X, target, moves)

    def parameter_gradient(self, X: _Array, target: Any, moves: _Array | None = None) -> tuple[_Array, _Array]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""
        return self._network.parameter_gradient(X, target, moves)

    def as_feedforward(self) -> FeedForward:
        """The network in NumPy."""
        return self._network

    def library_classes(self, X: Any) -> NDArray[Any]:
        """Classes of the rows according to the module itself, in float64 so that rounding has no say in it."""
        device = next(self._module.parameters()).device
        rows = torch.tensor(check_numbers(X), dtype=torch.float64, device=device)
        with torch.no_grad():
            raw = answer(copy.deepcopy(self._module).double(), rows.reshape(-1, *self._shape))
        labels = np.empty(len(self.classes), dtype=object)
        labels[:] = self.classes
        return np.asarray(labels[self._head.classes_of(raw)])

    def describe(self) -> dict[str, Any]:
        """As the network describes itself: it has the same digest as the one in NumPy."""
        return self._network.describe()

    def __repr__(self) -> str:
        return f"<{type(self._module).__name__} as {self._network!r}>"


def dense_layers(module: Any, shape: Sequence[int] | None) -> _Layers | None:
    """Weights, biases and activations of a sequence of linear layers, or None if it is anything else.

    `Softplus` is anything else: PyTorch's is linear from 20 on, where ours is larger by up to 2e-9.

    Examples
    --------
    >>> weights, biases, activations = dense_layers(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), None)
    >>> [w.shape for w in weights], activations
    ([(3, 2), (2, 1)], ['tanh'])
    """
    layers = list(_flat(module))
    if None in layers:
        return None
    first_is_flat = bool(layers) and type(layers[0]) is nn.Flatten
    if shape is not None and len(shape) != 1 and not first_is_flat:
        return None  # a linear layer then works on the last dimension only
    layers = [layer for layer in layers if type(layer) not in SILENT]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    used = [p for layer in linear for p in layer.parameters()]
    if not linear or len({id(p) for p in used}) < len(used):  # tied weights move together
        return None
    if final_layer(module) is not None:  # a softmax over another dimension is none over the classes
        layers.pop()
    activations: list[str] = []
    for before, layer in zip([None, *layers], layers, strict=False):
        if type(layer) is nn.Linear:
            if type(before) is nn.Linear:
                activations.append("identity")
        elif type(before) is not nn.Linear or (name := _activation(layer)) is None:
            return None
        else:
            activations.append(name)
    if type(layers[-1]) is not nn.Linear:
        return None
    weights = [_array(layer.weight).T for layer in linear]
    biases = [None if layer.bias is None else _array(layer.bias) for layer in linear]
    return weights, biases, activations


def _flat(module: Any) -> Iterator[Any]:
    """The layers of nested sequences; None for what could do anything."""
    if not unhooked(module):
        yield None
    elif type(module) is nn.Sequential:
        for layer in module:
            yield from _flat(layer)
    elif type(module) is nn.Flatten:
        yield module if (module.start_dim, module.end_dim) == (1, -1) else None
    elif type(module) in (nn.Linear, nn.Softmax, nn.LogSoftmax, *SILENT, *_NAMES):
        yield module
    else:
        yield None


def _activation(layer: Any) -> str | None:
    wanted = _SETTINGS.get(type(layer), {})
    return _NAMES.get(type(layer)) if all(getattr(layer, name) == value for name, value in wanted.items()) else None


def _array(tensor: Any) -> _Array:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)
