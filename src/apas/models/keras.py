"""Keras models: dense ones as networks or chains in NumPy; others are called as they are, with PyTorch behind Keras."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from apas._typing import Array, Floats
from apas._validation import check_names, check_numbers, check_probability
from apas.errors import InputError, Unsupported
from apas.models.base import ModelWrapper
from apas.models.dense_chain import ChainBuilder, ChainModel, DenseChain, Entries, NotDense, fixed
from apas.models.digest import canonical
from apas.models.feedforward import FeedForward

OUTPUTS = ("logit", "probability", "logits", "probabilities")
_BY_HEAD = {"sigmoid": "probability", "softmax": "probabilities"}
#: Layers that change no number once the model is trained.
SILENT = {"InputLayer", "Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "Identity"}
SILENT |= {"ActivityRegularization"}
#: Activations of `ChainBuilder`, with their settings, by Keras's names for functions.
_SAME = ("relu", "tanh", "sigmoid", "gelu", "silu", "softmax", "softplus")
_FUNCTIONS: dict[str, tuple[Any, ...]] = {"linear": (), **{name: (name,) for name in _SAME}, "elu": ("elu", 1.0)}
_FUNCTIONS |= {"leaky_relu": ("leaky_relu", 0.2), "relu6": ("clip", 0.0, 6.0), "hard_tanh": ("clip", -1.0, 1.0)}
#: Operations on tensors that are the same functions, by the names of their classes.
_OPERATIONS = {name.title(): name for name in ("relu", "tanh", "sigmoid", "silu", "relu6", "softplus", "softmax")}
_OPERATIONS["HardTanh"] = "hard_tanh"


def from_keras(model: Any, *, output: Any, threshold: Any, classes: Any, input_shape: Any, feature_names: Any) -> Any:
    """Read a trained Keras model, without changing it; the options are those of `as_model`."""
    if not model.built:
        raise InputError("the Keras model must be built, but has no weights yet; fit it, or call it on a batch.")
    if output is not None and output not in OUTPUTS:
        raise InputError(f"`output` of as_model must be one of {', '.join(map(repr, OUTPUTS))}, got {output!r}.")
    level, names = check_probability(threshold, "threshold", "as_model"), check_names(feature_names)
    said: dict[str, Any] = {"threshold": level, "classes": classes, "feature_names": names}
    try:
        reader = _LayerReader(model, input_shape)
        last = reader.call(model, 0)
        kind, chain = reader.finish(last, output, said)
    except NotDense as why:
        return _called_as_it_is(model, str(why), output, input_shape, said)
    found = chain.plain() or ChainModel(chain, reader.builder.parameters())
    return KerasModel(model, found, chain.network, kind, reader)


class _LayerReader:
    """Follows the layers of a model, with the number of a value for what each gives."""

    def __init__(self, model: Any, input_shape: Sequence[int] | None) -> None:
        self.shape = tuple(_input_shape(model) if input_shape is None else input_shape)
        if not self.shape or not all(isinstance(n, int | np.integer) for n in self.shape):
            raise NotDense(f"{type(model).__name__} does not say what one input looks like")
        self.flat = len(self.shape) == 1
        self.scaler: tuple[Floats, Floats] | None = None
        self.builder = ChainBuilder(int(np.prod(self.shape)))
        self.dtype = _dtype(model)
        self.names: dict[int, str] = {}

    def call(self, model: Any, value: int) -> int:
        """What a model of layers gives to a value."""
        kind = type(model).__name__
        if kind == "Sequential" and _is_keras(model):
            for layer in model.layers:
                value = self._step(layer, [value])
            return value
        if kind != "Functional" or not _is_keras(model):
            raise NotDense(f"{kind} is a Keras model of its own class, whose layers do not say what it computes")
        for operation in model.operations:
            self._check_own(operation)
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise NotDense(
                f"the Keras model has {len(model.inputs)} inputs and {len(model.outputs)} outputs, not one each"
            )
        known = {id(model.inputs[0]): value}

        def value_of(tensor: Any) -> int:
            if id(tensor) not in known:
                try:  # no version of Keras promises these names
                    layer, number, _ = tensor._keras_history
                    node = layer._inbound_nodes[number]
                    told, inputs = node.arguments.kwargs, node.input_tensors
                except (AttributeError, LookupError, TypeError, ValueError) as error:
                    raise NotDense(f"this version of Keras does not tell how layers are connected ({error})") from None
                if told.get("training"):
                    raise NotDense(f"{layer.name} is called in training mode")
                known[id(tensor)] = self._step(layer, [value_of(given) for given in inputs])
            return known[id(tensor)]

        return value_of(model.outputs[0])

    def _check_own(self, layer: Any) -> None:
        if not _is_keras(layer):
            raise NotDense(f"{layer.name} is a layer {type(layer).__name__} of your own, which apas cannot read")

    def _step(self, layer: Any, values: list[int]) -> int:
        self._check_own(layer)
        try:
            return self._layer(layer, type(layer).__name__, values)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise NotDense(f"{layer.name} ({type(layer).__name__}) does not fit: {error}") from None

    def _layer(self, layer: Any, kind: str, values: list[int]) -> int:
        value = values[0] if values else 0
        if kind in SILENT:
            return value
        if kind in ("Sequential", "Functional"):
            return self.call(layer, value)
        if kind == "Flatten" or (kind == "Reshape" and len(layer.target_shape) == 1):
            self.flat = True
            return value
        if kind == "Normalization" and not layer.get_config().get("invert"):
            return self._normalization(layer, value)
        if not self.flat:
            raise NotDense(f"{layer.name} ({kind}) works on inputs of several dimensions")
        if kind == "Add" and len(values) > 1:
            return self.builder.add(*values)
        if len(values) == 1 and (settings := self._activation(layer, kind)) is not None:
            return self._activate(value, *settings)
        if kind == "Dense":
            if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
                raise NotDense(f"{layer.name} is a Dense layer that is quantized or has LoRA weights")
            kernel, width = self._entries(layer, "kernel"), self.builder.width(value)
            if value == 0 and kernel.shape[1] != width:
                why = f"`input_shape` of as_model is {self.shape},"
                raise InputError(f"{why} but the first layer takes {kernel.shape[1]} numbers.")
            value = self.builder.affine(value, kernel, self._entries(layer, "bias") if layer.use_bias else None)
            return self._activate(value, *self._function(layer))
        if kind == "BatchNormalization":
            learned = (("gamma", layer.scale), ("beta", layer.center))
            entries = [self._entries(layer, name) if used else None for name, used in learned]
            statistics = _array(layer.moving_mean), _array(layer.moving_variance)
            return self.builder.normalize(value, *statistics, layer.epsilon, *entries)
        if kind == "PReLU":
            return self.builder.slopes(value, self._entries(layer, "alpha"))
        raise NotDense(f"{layer.name} is a {kind}, which is no part of a dense network")

    def _normalization(self, layer: Any, value: int) -> int:
        """What a model begins with is its preprocessing, in its arithmetic; elsewhere a layer that does not move."""
        mean, variance = (np.asarray(_array(part)).reshape(-1) for part in (layer.mean, layer.variance))
        # Keras divides by the square root, and never by less than its epsilon, 1e-7
        deviation = np.maximum(np.sqrt(variance), np.asarray(1e-7, dtype=variance.dtype))
        if value == 0 and self.scaler is None and len(mean) == self.builder.width(0):
            self.scaler = mean, deviation
            return 0
        factor = 1.0 / deviation.astype(np.float64)
        return self.builder.scale(value, fixed(factor), fixed(-mean.astype(np.float64) * factor))

    def _activation(self, layer: Any, kind: str) -> tuple[Any, ...] | None:
        """The activation that a layer is, with its settings; None if it is none."""
        told = layer.get_config() if hasattr(layer, "get_config") else {}
        if kind == "Activation":
            return self._function(layer)
        if kind == "ReLU":
            slope, most = float(told.get("negative_slope") or 0.0), told.get("max_value")
            if told.get("threshold") or (most is not None and slope):
                raise NotDense(f"{layer.name} is a ReLU with a threshold, or with a slope and a largest value")
            return ("leaky_relu", slope) if most is None else ("clip", 0.0, float(most))
        if kind in ("LeakyReLU", "LeakyRelu"):
            return "leaky_relu", float(layer.negative_slope)
        if kind in ("ELU", "Elu"):
            return "elu", float(layer.alpha)
        if kind == "Gelu":
            return ("gelu_tanh" if layer.approximate else "gelu",)
        if kind in ("Softmax", "LogSoftmax") and getattr(layer, "axis", -1) not in (-1, 1):
            raise NotDense(f"{layer.name} is a softmax that does not run over the classes")
        return _FUNCTIONS[_OPERATIONS[kind]] if kind in _OPERATIONS else None

    def _function(self, layer: Any) -> tuple[Any, ...]:
        found = layer.get_config()["activation"]
        if not isinstance(found, str) or found not in _FUNCTIONS:
            raise NotDense(f"{layer.name} has the activation {found!r}, which is no part of a dense network")
        return _FUNCTIONS[found]

    def _activate(self, value: int, *settings: Any) -> int:
        if settings == ("softplus",) and self.dtype == "float64" and _backend() == "torch":
            # PyTorch's is the identity from 20 on, 2e-9 below the function: more than float64 hides, but less than the
            # 16 roundoffs that the bound on float32 arithmetic has for every activation
            settings = ("softplus", 1.0, 20.0)
        return self.builder.activate(value, *settings) if settings else value

    def _entries(self, layer: Any, part: str) -> Entries:
        """Variables of a layer, by its name; layers of nested models may share one."""
        name = self.names.get(id(layer), layer.name)
        while id(layer) not in self.names and name in self.names.values():
            name += "_"
        self.names[id(layer)] = name
        array = np.asarray(_array(getattr(layer, part)), dtype=np.float64)
        return self.builder.coordinates(f"{name}.{part}", array, "bias" if part in ("bias", "beta") else "weight", name)

    def finish(self, last: int, output: str | None, said: dict[str, Any]) -> tuple[str, DenseChain]:
        """What the numbers are that the model gives, and the chain in front of its sigmoid or softmax."""
        last, head = self.builder.before(last, "sigmoid", "softmax")
        told, ending = _BY_HEAD.get(head), self.builder.nodes[last].activation
        if told is None and ending != "identity":
            raise Unsupported(f"the Keras model ends in the activation {ending}, which says nothing about classes.")
        if output is not None and told is not None and output != told:
            raise InputError(f'`output` of as_model is "{output}", but the model ends in a {head}; leave it out.')
        if told is None and output not in ("logit", "logits"):
            must = "`output` of as_model must say what the model's numbers are, since its last layer is linear; pass"
            got = "" if output is None else f", got {output!r}"
            how = 'apas.as_model(model, output="logit") for one logit, or "logits" for one per class'
            raise InputError(f"{must} {how}{got}.")
        kind, single = str(told or output), self.builder.width(last) == 1
        if single != (kind in ("logit", "probability")):
            why = f'`output` of as_model is "{kind}", but the model gives {self.builder.width(last)} numbers per row;'
            raise InputError(f"{why} certify one model per label if several labels can hold at once.")
        said = {"output": "sigmoid" if single else "softmax", "dtype": self.dtype, **said}
        try:
            return kind, self.builder.finish(last, self.builder.parameters(), **said)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise NotDense(f"the Keras model is no network of layers: {error}") from None


def _input_shape(model: Any) -> Any:
    return (getattr(model, "input_shape", None) or ())[1:]


def _is_keras(layer: Any) -> bool:
    return type(layer).__module__.split(".")[0] == "keras"


def _backend() -> str:
    return str(sys.modules["keras"].backend.backend())


def _dtype(model: Any) -> str:
    """The coarsest arithmetic of the layers; what goes into one, and into the model, is cast to it."""
    layers = model._flatten_layers()
    kinds = {str(layer.dtype if type(layer).__name__ == "InputLayer" else layer.compute_dtype) for layer in layers}
    if not kinds <= {"float32", "float64"}:
        why = f"the Keras model computes in {' and '.join(sorted(kinds))}, but apas allows for the rounding of float32"
        raise Unsupported(f'{why} and float64 alone; build it with dtype="float32".')
    # most backends multiply float64 matrices in float32 (PyTorch's does): Keras says by its rules of promotion
    precise = kinds == {"float64"} and sys.modules["keras"].backend.result_type("float64", "float64") == "float64"
    return "float64" if precise else "float32"


def _array(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _called_as_it_is(model: Any, why: str, output: str | None, input_shape: Any, said: dict[str, Any]) -> Any:
    """A model that is not dense, for draws and attacks: PyTorch can call it with other numbers in its variables."""
    if _backend() != "torch":
        raise Unsupported(f"{why}; with KERAS_BACKEND=torch apas can draw shifts of such a model, but proves nothing.")
    from apas.models.torch.adapter import KerasModule, from_torch

    last = model.layers[-1].get_config().get("activation") if model.layers else None
    told = _BY_HEAD.get(last if isinstance(last, str) else "")
    shape = input_shape if input_shape is not None else _input_shape(model) or None
    module = KerasModule(model, why).eval()
    return from_torch(module, output=output or told, input_shape=shape, **said)


class KerasModel(ModelWrapper):
    """A dense Keras model, computed in float64 by NumPy; a Normalization layer at its beginning is preprocessing."""

    def __init__(
        self, model: Any, inner: FeedForward | ChainModel, network: FeedForward, kind: str, reader: _LayerReader
    ) -> None:
        super().__init__(inner)
        self._model, self._network, self._kind, self._shape = model, network, kind, reader.shape
        self._scaler: Any = reader.scaler
        if self._scaler is not None:  # a model that takes rows as they are offers no encoder
            self.n_raw_features, self.encode = network.n_features, self._encode

    def _encode(self, X: Any) -> Floats:
        mean, deviation = self._scaler
        rows = check_numbers(X, self.feature_names).astype(mean.dtype)
        return np.asarray((rows - mean) / deviation, dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Architecture and scaling as JSON values."""
        described: dict[str, Any] = self._inner.describe()
        return described if self._scaler is None else {**described, "preprocessing": canonical(list(self._scaler))}

    def library_classes(self, X: Any) -> Array:
        """Classes of the rows according to Keras itself, in its own arithmetic."""
        given = check_numbers(X).astype(self._network.dtype).reshape(-1, *self._shape)
        return self._network.classes_of(np.asarray(_array(self._model(given, training=False))), self._kind)

    def __repr__(self) -> str:
        return f"<{type(self._model).__name__} as {self._inner!r}>"
