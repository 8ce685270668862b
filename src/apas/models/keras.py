"""Keras models of dense layers as dense networks in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from apas._typing import Array, Floats
from apas._validation import check_names, check_numbers, check_probability
from apas.errors import InputError, Unsupported
from apas.models.base import ModelWrapper
from apas.models.digest import canonical
from apas.models.feedforward import FeedForward

OUTPUTS = ("logit", "probability", "logits", "probabilities")
#: Layers that change no number once the model is trained.
SILENT = ("InputLayer", "Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "ActivityRegularization")
_NAMES = {name: name for name in ("relu", "tanh", "sigmoid", "elu", "gelu", "linear", "hard_tanh")}
_NAMES["linear"] = "identity"
#: Activations that are layers, and the settings with which they are those of `FeedForward`.
_LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {"max_value": None, "negative_slope": 0.0, "threshold": 0.0}),
    "LeakyReLU": ("leaky_relu", {"negative_slope": 0.01}),
    "ELU": ("elu", {"alpha": 1.0}),
    "Softmax": ("softmax", {"axis": -1}),
}


def from_keras(
    model: Any,
    *,
    output: str | None = None,
    threshold: float = 0.5,
    classes: Sequence[Any] | None = None,
    input_shape: Sequence[int] | None = None,
    feature_names: Sequence[str] | None = None,
) -> KerasModel:
    """Read a trained Keras model, without changing it."""
    if not model.built:
        raise InputError("the Keras model must be built, but has no weights yet; fit it, or call it on a batch.")
    weights, biases, steps = _layers(model)
    head, hidden = _head(model, steps, output), steps[:-1]
    if "softmax" in hidden:
        raise Unsupported("the Keras model has a softmax between its layers, which has no place in a dense network.")
    single = weights[-1].shape[1] == 1
    if single != (head in ("logit", "probability")):
        raise InputError(
            f'`output` of as_model is "{head}", but the model gives {weights[-1].shape[1]} numbers per row; certify '
            "one model per label if several labels can hold at once."
        )
    level, names = check_probability(threshold, "threshold", "as_model"), check_names(feature_names)
    said: dict[str, Any] = {"output": "sigmoid" if single else "softmax", "threshold": level, "classes": classes}
    net = FeedForward(weights, biases, activation=hidden, feature_names=names, dtype=_dtype(model), **said)
    shape = tuple(input_shape) if input_shape is not None else tuple(model.input_shape[1:])
    first = next(kind for kind, _, _ in _chain(model) if kind in ("dense", "flatten"))
    if len(shape) != 1 and first != "flatten":
        raise Unsupported(f"the Keras model takes inputs of shape {shape}, but does not begin with a Flatten layer.")
    if None in shape or np.prod(shape, dtype=int) != net.n_features:
        raise InputError(f"`input_shape` of as_model is {shape}, but the first layer takes {net.n_features} numbers.")
    scaler = _normalization(model)
    return (
        KerasModel(model, net, head, shape) if scaler is None else NormalizedKerasModel(model, net, head, shape, scaler)
    )


def _normalization(model: Any) -> tuple[Floats, Floats] | None:
    """Mean and standard deviation of the Normalization layer that a model begins with, in its own arithmetic."""
    found = [layer for kind, layer, _ in _chain(model) if kind == "normalization"]
    if not found:
        return None
    if len(found) > 1 or next(iter(_chain(model)))[1] is not found[0] or found[0].get_config().get("invert"):
        raise Unsupported(
            "the Keras model has a Normalization layer elsewhere than at its beginning, or an inverted one."
        )
    mean, variance = (np.asarray(_array(part)).reshape(-1) for part in (found[0].mean, found[0].variance))
    # Keras divides by the square root, and never by less than its epsilon, 1e-7
    return mean, np.maximum(np.sqrt(variance), np.asarray(1e-7, dtype=variance.dtype))


def _layers(model: Any) -> tuple[list[Floats], list[Floats | None], list[str]]:
    """Weights, biases, and what stands behind each layer."""
    dense: list[Any] = []
    steps: list[str] = []
    for kind, layer, name in _chain(model):
        if kind in ("flatten", "normalization"):
            continue  # before the first layer it joins the numbers of an input, later it does nothing
        if kind == "dense":
            dense.append(layer)
            steps.append(name)
        elif not steps or steps[-1] != "identity":
            raise Unsupported(f"the Keras model has the activation {name} elsewhere than behind a linear Dense layer.")
        else:
            steps[-1] = name
    if not dense:
        raise Unsupported("the Keras model has no Dense layer.")
    if len(dense) > len({id(layer) for layer in dense}):
        raise Unsupported("the Keras model uses a Dense layer twice; tied weights move together, which is not dense.")
    weights = [np.asarray(_array(layer.kernel), dtype=np.float64) for layer in dense]
    biases = [np.asarray(_array(layer.bias), dtype=np.float64) if layer.use_bias else None for layer in dense]
    return weights, biases, steps


def _dtype(model: Any) -> str:
    """The coarsest arithmetic of the layers."""
    kinds = {str(getattr(layer, "compute_dtype", "float32")) for kind, layer, _ in _chain(model) if kind == "dense"}
    if not kinds <= {"float32", "float64"}:
        raise Unsupported(
            f"the Keras model computes in {' and '.join(sorted(kinds))}, but apas allows for the rounding of float32 "
            'and float64 alone; build it with dtype="float32".'
        )
    return "float32" if "float32" in kinds else "float64"


def _chain(model: Any) -> Iterator[tuple[str, Any, str]]:
    if type(model).__name__ not in ("Sequential", "Functional"):
        raise Unsupported(
            f"{type(model).__name__} is a Keras model of its own class, whose layers do not say what it computes; "
            "build it as a keras.Sequential, or give its arrays to apas.FeedForward."
        )
    if type(model).__name__ == "Functional":  # each layer must take what the layer before it gives, and nothing else
        if len(model.outputs) != 1:
            raise Unsupported(f"the Keras model is no plain chain of layers: it has {len(model.outputs)} outputs.")
        for before, entry in itertools.pairwise(model.get_config()["layers"]):
            if [_sources(node) for node in entry["inbound_nodes"]] != [[before["name"]]]:
                raise Unsupported(f"the Keras model is no plain chain of layers: see what goes into {entry['name']!r}.")
    for layer in model.layers:
        kind = type(layer).__name__
        if type(layer).__module__.split(".")[0] != "keras":
            raise Unsupported(f"the Keras model has a layer {kind} of your own, which apas cannot read.")
        if kind in ("Sequential", "Functional"):
            yield from _chain(layer)
        elif kind == "Dense":
            if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
                raise Unsupported("the Keras model has a Dense layer that is quantized or has LoRA weights.")
            yield "dense", layer, _activation(layer.get_config()["activation"])
        elif kind in ("Flatten", "Normalization"):
            yield kind.lower(), layer, ""
        elif kind == "Activation":
            yield "activation", layer, _activation(layer.get_config()["activation"])
        elif kind in _LAYERS:
            name, wanted = _LAYERS[kind]
            settings = layer.get_config()
            if any(settings.get(key) != value for key, value in wanted.items()):
                raise Unsupported(f"the Keras model has a layer {kind} with other settings than {wanted}.")
            yield "activation", layer, name
        elif kind not in SILENT:
            raise Unsupported(f"the Keras model has a layer {kind}; apas reads Dense layers and their activations.")


def _sources(node: Any) -> list[str]:
    """Names of the layers whose numbers go into a call, wherever they stand in its arguments."""
    if isinstance(node, dict) and node.get("class_name") == "__keras_tensor__":
        return [str(node["config"]["keras_history"][0])]
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
    return [name for part in parts for name in _sources(part)]


def _activation(found: Any) -> str:
    name = found if isinstance(found, str) else None
    if name == "softmax":
        return name
    if name not in _NAMES:
        raise Unsupported(
            f"the Keras model has the activation {found!r}, but apas reads {', '.join(_NAMES)}, softmax and the layers "
            f"{', '.join(_LAYERS)}."
        )
    return _NAMES[name]


def _head(model: Any, steps: list[str], output: str | None) -> str:
    told = {"sigmoid": "probability", "softmax": "probabilities"}.get(steps[-1])
    if output is not None and output not in OUTPUTS:
        raise InputError(f"`output` of as_model must be one of {', '.join(map(repr, OUTPUTS))}, got {output!r}.")
    if told is None and steps[-1] != "identity":
        raise Unsupported(f"the Keras model ends in the activation {steps[-1]}, which says nothing about classes.")
    if output is not None and told is not None and output != told:
        raise InputError(f'`output` of as_model is "{output}", but the model ends in a {steps[-1]}; leave it out.')
    if told is None and output not in ("logit", "logits"):
        raise InputError(
            "`output` of as_model must say what the model's numbers are, since its last layer is linear; pass "
            'apas.as_model(model, output="logit") for one logit, or "logits" for one per class'
            f"{'' if output is None else f', got {output!r}'}."
        )
    return str(told or output)


def _array(value: Any) -> Any:
    """Numbers of a variable or of an answer, whatever Keras computes with."""
    value = getattr(value, "value", value)
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


class KerasModel(ModelWrapper):
    """A Keras model of dense layers, computed in float64 by NumPy."""

    _inner: FeedForward

    def __init__(self, model: Any, network: FeedForward, head: str, shape: tuple[int, ...]) -> None:
        super().__init__(network)
        self._model, self._head, self._shape = model, head, shape

    def library_classes(self, X: Any) -> Array:
        """Classes of the rows according to Keras itself, in its own arithmetic."""
        net = self._inner
        given = check_numbers(X).astype(net.dtype).reshape(-1, *self._shape)
        raw = np.asarray(_array(self._model(given, training=False)), dtype=np.float64)
        if len(net.classes) > 2:
            chosen = raw.argmax(axis=1)
        elif self._head == "logits":
            chosen = (raw[:, 1] - raw[:, 0] >= net.offset).astype(int)
        else:
            chosen = (raw[:, -1] >= (net.offset if self._head == "logit" else net.threshold)).astype(int)
        return np.array([net.classes[i] for i in chosen])

    def __repr__(self) -> str:
        return f"<{type(self._model).__name__} as {self._inner!r}>"


class NormalizedKerasModel(KerasModel):
    """A Keras model of dense layers behind a Normalization layer, which is its preprocessing."""

    def __init__(
        self, model: Any, network: FeedForward, head: str, shape: tuple[int, ...], scaler: tuple[Floats, Floats]
    ) -> None:
        super().__init__(model, network, head, shape)
        self._mean, self._deviation = scaler
        self.n_raw_features = network.n_features

    def encode(self, X: Any) -> Floats:
        """Rows scaled as the layer does it, in its arithmetic."""
        rows = check_numbers(X, self.feature_names).astype(self._mean.dtype)
        return np.asarray((rows - self._mean) / self._deviation, dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Architecture and scaling as JSON values."""
        return {**self._inner.describe(), "preprocessing": canonical([self._mean, self._deviation])}
