"""Sequences of linear layers in PyTorch as dense networks in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apas._validation import check_numbers
from apas.models.backed import BackedNetwork
from apas.models.feedforward import FeedForward
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


class DenseTorchModel(BackedNetwork):
    """A module that is a dense network, computed in float64 by NumPy, which allows for the module's own rounding.

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
        super().__init__(network, self.library_classes, type(module).__name__)
        self._module, self._head, self._shape = module, head, shape

    def library_classes(self, X: Any) -> NDArray[Any]:
        """Classes of the rows according to the module itself, in its own arithmetic."""
        first = next(self._module.parameters())
        rows = torch.tensor(check_numbers(X), dtype=first.dtype, device=first.device)
        with torch.no_grad():
            raw = answer(self._module, rows.reshape(-1, *self._shape))
        labels = np.empty(len(self.classes), dtype=object)
        labels[:] = self.classes
        return np.asarray(labels[self._head.classes_of(raw)])


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
