"""Modules of dense layers as chains: `torch.fx` says what they compute, layer by layer and operation by operation."""

import operator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn

from apas._typing import Floats
from apas.models.base import Parameters
from apas.models.dense_chain import ChainBuilder, DenseChain, Entries, NotDense, moving
from apas.models.torch.passes import unhooked

#: Layers and functions that change no number of a row in eval mode.
SILENT = (nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)
_FLAT = (nn.Flatten, torch.flatten, "flatten")
_ADD = (operator.add, operator.iadd, torch.add, "add", "add_")
_SAME = (F.dropout, F.alpha_dropout, "contiguous", "clone", "float", "double", torch.clone)
_RESHAPE = ("view", "reshape", torch.reshape)
_SQUEEZE = ("squeeze", torch.squeeze)
#: Settings of activations, with the defaults of PyTorch.
_DEFAULTS: dict[str, dict[str, Any]] = {"leaky_relu": {"negative_slope": 0.01}, "elu": {"alpha": 1.0}}
_DEFAULTS |= {"hardtanh": {"min_val": -1.0, "max_val": 1.0}, "softplus": {"beta": 1.0, "threshold": 20.0}}
_DEFAULTS |= {"gelu": {"approximate": "none"}, "clamp": {"min": None, "max": None}}
_DEFAULTS |= {"softmax": {"dim": -1}, "log_softmax": {"dim": -1}}
_LAYERS: dict[Any, str] = {nn.ReLU: "relu", nn.LeakyReLU: "leaky_relu", nn.LogSoftmax: "log_softmax"}
_LAYERS |= {kind: kind.__name__.lower() for kind in (nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Sigmoid, nn.ELU, nn.GELU)}
_LAYERS |= {kind: kind.__name__.lower() for kind in (nn.SiLU, nn.Softplus, nn.Softmax)}
#: Functions by themselves, and methods of tensors by their names.
_FUNCTIONS: dict[Any, str] = {getattr(F, name): name for name in _LAYERS.values()}
_METHODS = ("relu", "tanh", "sigmoid", "softmax", "log_softmax", "clamp")
_FUNCTIONS |= {key: name for name in _METHODS for key in (getattr(torch, name), name)}
_FUNCTIONS |= {torch.clip: "clamp", "clip": "clamp"}
#: What may turn scores into the numbers that a module gives, by what these are.
_HEADS = {"probability": ("sigmoid",), "probabilities": ("softmax", "log_softmax"), "logits": ("log_softmax",)}


def traced_chain(module: Any, theta: Parameters, kind: str, shape: tuple[int, ...], **options: Any) -> DenseChain:
    """The chain of a module in eval mode; `NotDense` says which layer is none of a dense network."""
    if why := getattr(module, "_not_dense", ""):  # what the reader of a Keras model found
        raise NotDense(why)
    for name, part in module.named_modules():
        if not unhooked(part):
            raise NotDense(f"{name or 'the module'} has hooks, which may do anything")
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # noqa: BLE001  (whatever a module's own code raises when it meets a symbol)
        first = (str(error).splitlines() or [""])[0]
        raise NotDense(f"torch.fx cannot trace {type(module).__name__}: {first}") from None
    return _TraceReader(module, theta, shape).read(graph, kind, options)


class _Proxy(fx.Proxy):  # type: ignore[misc]
    """A symbol that tells ``h += x``, which changes h wherever else it is used, from ``h = h + x``."""

    def __iadd__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})


class _Tracer(fx.Tracer):  # type: ignore[misc]
    def proxy(self, node: Any) -> Any:
        """The symbol of a node."""
        return _Proxy(node, self)


class _TraceReader:
    """Follows the nodes of a traced module, with the number of a value for each."""

    def __init__(self, module: Any, theta: Parameters, shape: tuple[int, ...]) -> None:
        self.module, self.theta, self.flat = module, theta, len(shape) == 1
        self.builder, self.values = ChainBuilder(int(np.prod(shape))), dict[Any, int]()
        self.names = {id(p): name for name, p in module.named_parameters()}
        self.overwritten = set[int]()  # values whose memory an operation in place has given other numbers

    def read(self, graph: Any, kind: str, options: dict[str, Any]) -> DenseChain:
        """All nodes, up to the head that `kind` leaves out."""
        output = None
        for node in graph.nodes:
            if node.op == "output":
                output = node.args[0]
            elif node.op == "placeholder":
                if self.values or node.target.startswith("*"):
                    raise NotDense("the module takes more than one input")
                self.values[node] = 0
            else:
                try:
                    self.values[node] = self._value(node)
                except ValueError as error:
                    raise NotDense(f"{_words(node)} does not fit: {error}") from None
                if self._is_in_place(node):  # views of the same numbers are the same value here
                    self.overwritten.add(self.values[node.args[0] if node.args else node.kwargs["input"]])
        if not isinstance(output, fx.Node) or self.values.get(output, -1) < 0:
            raise NotDense("the module gives something else than one tensor")
        if self.values[output] in self.overwritten:
            raise NotDense("the module gives numbers that an operation in place has overwritten")
        last, _ = self.builder.before(self.values[output], *_HEADS.get(kind, ()))
        try:
            return self.builder.finish(last, self.theta, **options)
        except ValueError as error:
            raise NotDense(f"{type(self.module).__name__} is no network of layers: {error}") from None

    def _input(self, node: Any, place: int = 0) -> int:
        given = node.args[place] if len(node.args) > place else node.kwargs.get("input")
        if not isinstance(given, fx.Node) or self.values.get(given, -1) < 0:
            raise NotDense(f"{_words(node)} takes something else than the numbers of a layer")
        if self.values[given] in self.overwritten:
            raise NotDense(f"{_words(node)} takes numbers that an operation in place has overwritten")
        return self.values[given]

    def _is_in_place(self, node: Any) -> bool:
        """Whether an operation writes its result over what it was given."""
        if node.op == "call_module":
            layer = self.module.get_submodule(node.target)
            return type(layer) not in SILENT and getattr(layer, "inplace", False)
        if node.target in (operator.iadd, "add_"):
            return True
        told = _DEFAULTS.get(_FUNCTIONS.get(node.target, ""), {})
        return node.target in _FUNCTIONS and bool(_argument(node, 1 + len(told), "inplace", False))

    def _value(self, node: Any) -> int:
        if node.kwargs.get("out") is not None:
            raise NotDense(f"{_words(node)} writes its numbers into others")
        if node.op == "get_attr":
            raise NotDense(f"{node.target} is used by itself, not by a layer")
        if node.op == "call_module":
            return self._layer(node, self.module.get_submodule(node.target))
        target, value = node.target, -1
        if target in ("size", getattr) or target is operator.getitem:  # of which only a reshape makes use
            return -1
        if target in _ADD and (len(node.args) != 2 or node.kwargs.get("alpha", 1) != 1):
            raise NotDense(f"{_words(node)} adds with a factor")
        if target in _ADD and not self.flat:
            raise NotDense(f"{_words(node)} adds values of different sizes")
        value = self._input(node)
        if target in _ADD:
            return self.builder.add(value, self._input(node, 1))
        if target in _FUNCTIONS:
            return self._activation(node, value, _FUNCTIONS[target], lambda k, i, d: _argument(node, i, k, d))
        if target in _SAME and not (target in (F.dropout, F.alpha_dropout) and _argument(node, 2, "training", True)):
            return value
        if target in _FLAT and _argument(node, 1, "start_dim", 0) == 1 and _argument(node, 2, "end_dim", -1) == -1:
            self.flat = True
            return value
        if target in _SQUEEZE and _argument(node, 1, "dim", None) in (1, -1) and self.builder.width(value) == 1:
            return value
        sizes: Any = node.args[1:] if len(node.args) > 2 else node.args[1] if len(node.args) == 2 else ()
        rest = sizes[-1] if isinstance(sizes, tuple | list) and len(sizes) == 2 else None
        if target in _RESHAPE and rest in (-1, self.builder.width(value)) and sizes[0] != self.builder.width(value):
            self.flat = True
            return value
        raise NotDense(f"{_words(node)} is no part of a dense network")

    def _layer(self, node: Any, layer: Any) -> int:
        kind, name = type(layer), node.target
        if kind not in (*SILENT, nn.Flatten, nn.Linear, nn.BatchNorm1d, nn.PReLU, *_LAYERS):
            raise NotDense(f"{name} is a {kind.__name__}, which is no part of a dense network")
        value = self._input(node)
        if kind in SILENT:
            return value
        if kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            self.flat = True
            return value
        if not self.flat:
            raise NotDense(f"{name} ({kind.__name__}) works on inputs of several dimensions")
        if kind is nn.Linear:
            weights = self._entries(layer.weight).transpose(0, 2, 1)
            return self.builder.affine(value, weights, None if layer.bias is None else self._entries(layer.bias))
        if kind is nn.BatchNorm1d:
            if layer.running_mean is None or layer.running_var is None:
                raise NotDense(f"{name} has no running statistics, so that rows depend on each other")
            learned = [None if part is None else self._entries(part) for part in (layer.weight, layer.bias)]
            statistics = _array(layer.running_mean), _array(layer.running_var)
            return self.builder.normalize(value, *statistics, layer.eps, *learned)
        if kind is nn.PReLU:
            return self.builder.slopes(value, self._entries(layer.weight))
        if kind is nn.Flatten:
            raise NotDense(f"{name} is a Flatten of some dimensions only")
        return self._activation(node, value, _LAYERS[kind], lambda key, _, default: getattr(layer, key, default))

    def _entries(self, parameter: Any) -> Entries:
        name = self.names.get(id(parameter))
        if name is None:
            raise NotDense("a layer computes with numbers that are none of its parameters")
        return moving(_array(parameter), self.theta.slices[self.theta.names.index(name)].start)

    def _activation(self, node: Any, value: int, name: str, setting: Any) -> int:
        told = _DEFAULTS.get(name, {})
        values = [setting(key, place, default) for place, (key, default) in enumerate(told.items(), start=1)]
        if any(isinstance(v, fx.Node) for v in values):
            raise NotDense(f"{_words(node)} has settings that are computed")
        if "softmax" in name and values[0] not in (1, -1):
            raise NotDense(f"{_words(node)} does not run over the classes")
        if "softmax" in name:
            return self.builder.activate(value, name)
        if name == "gelu":
            return self.builder.activate(value, "gelu_tanh" if values[0] == "tanh" else "gelu")
        if name == "clamp":
            values = [end if v is None else v for v, end in zip(values, (-np.inf, np.inf), strict=True)]
        numbers = (0.0, 6.0) if name == "relu6" else tuple(float(v) for v in values)
        return self.builder.activate(value, "clip" if name in ("hardtanh", "relu6", "clamp") else name, *numbers)


def _array(tensor: Any) -> Floats:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def _argument(node: Any, place: int, key: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(key, default)


def _words(node: Any) -> str:
    target = node.target
    return str(target) if isinstance(target, str) else f"the function {getattr(target, '__name__', target)}"
