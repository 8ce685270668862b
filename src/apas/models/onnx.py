"""ONNX graphs of dense layers: which output decides, and the chain of layers behind it.

The graph is followed from the output back to the input. Every node on the way must be one that a dense network has; a
graph with any other is refused with that node's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._sanitise import for_error
from apas.errors import InputError, Unsupported
from apas.models.activations import LEAKY_SLOPE

__all__ = ["Chain", "Graph", "read_chain"]

_Array = NDArray[Any]
_NAMES = {
    "Relu": "relu", "LeakyRelu": "leaky_relu", "Clip": "hard_tanh", "Tanh": "tanh", "Sigmoid": "sigmoid",
    "Softplus": "softplus", "Elu": "elu", "Gelu": "gelu",
}  # fmt: skip
#: Nodes that change no number of a row.
_SILENT = ("Identity", "Cast", "Flatten", "Dropout", "Reshape")
_HEADS = {"Sigmoid": "sigmoid", "Softmax": "softmax", "LogSoftmax": "softmax"}
#: Types of numbers that a Cast may make: float and double.
_FLOATS = (1, 11)


@dataclass(frozen=True)
class Graph:
    """A graph taken apart.

    Attributes
    ----------
    path : Path
        For messages.
    makers : dict
        Node by the name of what it gives.
    constant : callable
        The array of that name, or None if it is computed.
    attributes : callable
        Settings of a node by name.
    inputs, outputs : tuple of str
        Names of what goes in, and of the numbers (not labels) that come out.
    opset : int
        Version of the operators.
    """

    path: Path
    makers: dict[str, Any]
    constant: Callable[[str], _Array | None]
    attributes: Callable[[Any], dict[str, Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int

    def refuse(self, why: str) -> Unsupported:
        """Say what has no place in a dense network."""
        return Unsupported(f"{self.path} is not a graph of dense layers: {for_error(why, 300)}.")

    def damaged(self, why: str) -> InputError:
        """Say what does not fit together."""
        return InputError(f"{self.path} does not hold a usable network: {for_error(why, 300)}.")


@dataclass
class Chain:
    """Layers as they are met: `nodes` from the input to the last layer, and `pending`, an activation behind it."""

    nodes: list[Any] = field(default_factory=list)
    weights: list[_Array] = field(default_factory=list)
    biases: list[_Array | None] = field(default_factory=list)
    activation: list[str] = field(default_factory=list)
    pending: str | None = None
    output: str | None = None
    classes: list[Any] | None = None
    used: set[str] = field(default_factory=set)
    flattens: bool = False
    single: bool = False
    """Whether any number on the way is a float32 one."""


def read_chain(graph: Graph) -> Chain:
    """The dense layers behind the only output that gives numbers."""
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise graph.refuse(
            f"it has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs of numbers, not one each"
        )
    chain = Chain()
    chain.nodes = _nodes_behind(graph, chain)
    _take_head(graph, chain)
    for node in chain.nodes:
        _add(graph, chain, node)
    if not chain.weights:
        raise graph.refuse("it has no layer")
    if chain.pending is not None:
        raise graph.refuse(f"it ends in the node {chain.pending}, which says nothing about classes")
    if chain.output == "sigmoid" and chain.weights[-1].shape[1] != 1:
        raise graph.refuse("it gives several labels at once; certify one model per label")
    return chain


def _take_head(graph: Graph, chain: Chain) -> None:
    """Take the sigmoid or softmax from the end of the nodes, and what changes nothing behind it."""
    nodes = chain.nodes
    while nodes and nodes[-1].op_type in ("Identity", "Cast"):
        _check_silent(graph, chain, nodes.pop())
    if not nodes or nodes[-1].op_type not in _HEADS:
        return
    head = nodes.pop()
    axis = graph.attributes(head).get("axis", -1 if graph.opset >= 13 else 1)
    if head.op_type != "Sigmoid" and axis not in (1, -1):
        raise graph.refuse(f"the node {head.op_type} does not run over the classes")
    chain.output = _HEADS[head.op_type]


def _nodes_behind(graph: Graph, chain: Chain) -> list[Any]:
    name = _without_classes(graph, chain, graph.outputs[0])
    found: list[Any] = []
    while name not in graph.inputs:
        node = graph.makers.get(name)
        if node is None or len(found) > len(graph.makers):
            raise graph.damaged(f"{name!r} comes from nowhere")
        computed = [i for i in node.input if i and graph.constant(i) is None]
        if len(computed) != 1:
            raise graph.refuse(f"the node {node.op_type} brings {len(computed)} values together, where layers have one")
        found.append(node)
        name = computed[0]
    return found[::-1]


def _without_classes(graph: Graph, chain: Chain, name: str) -> str:
    """Undo what scikit-learn's converter puts behind the probabilities: a map by class, and 1 - p beside p."""
    node = graph.makers.get(name)
    if node is not None and node.op_type == "ZipMap":
        settings = graph.attributes(node)
        labels = settings.get("classlabels_int64s") or settings.get("classlabels_strings") or []
        chain.classes = [label.decode() if isinstance(label, bytes) else int(label) for label in labels]
        name = _given(node, 0)
        node = graph.makers.get(name)
    for other in graph.makers.values():  # labels are looked up by the position of the largest probability
        if other.op_type == "ArrayFeatureExtractor" and (known := graph.constant(_given(other, 0))) is not None:
            listed = [v.decode() if isinstance(v, bytes) else v for v in known.ravel().tolist()]
            if chain.classes is not None and chain.classes != listed:
                raise graph.refuse("its labels and its map of probabilities name different classes")
            chain.classes = listed
    if node is None or node.op_type != "Concat":
        return name
    below, above = node.input if len(node.input) == 2 else ("", "")
    less, last = graph.makers.get(below), graph.makers.get(above)
    one = graph.constant(_given(less, 0)) if less is not None and less.op_type == "Sub" else None
    fits = one is not None and one.size == 1 and one.item() == 1 and less is not None and _given(less, 1) == above
    if not fits or last is None or last.op_type != "Sigmoid" or graph.attributes(node).get("axis") not in (1, -1):
        raise graph.refuse("the node Concat puts values together, where layers have one")
    return above


def _given(node: Any, place: int) -> str:
    """The name of what goes into a node at a place; empty if nothing does."""
    return str(node.input[place]) if place < len(node.input) else ""


def _add(graph: Graph, chain: Chain, node: Any) -> None:
    kind, settings = node.op_type, graph.attributes(node)
    constants = [graph.constant(name) if name else None for name in node.input]
    if node.domain not in ("", "ai.onnx"):
        raise graph.refuse(f"it has the node {node.domain}.{kind}")
    if kind in ("MatMul", "Gemm", "Add"):
        names = [name for name, array in zip(node.input, constants, strict=True) if array is not None]
        if chain.used.intersection(names) or len(set(names)) < len(names):
            raise graph.refuse(f"a constant is used twice ({sorted(names)}), and tied parameters move together")
        chain.used.update(names)
    if kind in ("MatMul", "Gemm"):
        _add_layer(graph, chain, constants, settings, kind)
    elif kind == "Add":
        _add_bias(graph, chain, constants)
    elif kind in _SILENT:
        _check_silent(graph, chain, node)
    elif kind in _NAMES:
        _activate(graph, chain, kind, constants, settings)
    else:
        raise graph.refuse(f"it has the node {kind}")


def _add_layer(graph: Graph, chain: Chain, constants: list[Any], settings: dict[str, Any], kind: str) -> None:
    weight = constants[1] if len(constants) > 1 else None
    if weight is None or weight.ndim != 2 or weight.dtype.kind != "f":
        raise graph.refuse(f"the node {kind} has no constant matrix on its right side")
    if weight.dtype.itemsize < 4:
        raise graph.refuse("it computes in half precision, whose rounding no claim allows for; export it in float32")
    chain.single |= weight.dtype.itemsize < 8
    if settings.get("transA") or settings.get("alpha", 1.0) != 1.0 or settings.get("beta", 1.0) != 1.0:
        raise graph.refuse("a node Gemm turns or scales its input, which layers do not")
    if kind == "Gemm" and settings.get("transB"):
        weight = weight.T
    if chain.weights:
        chain.activation.append(_NAMES.get(chain.pending or "", "identity"))
    chain.pending = None
    chain.weights.append(np.asarray(weight, dtype=np.float64))
    chain.biases.append(None)
    if kind == "Gemm" and len(constants) > 2 and constants[2] is not None:
        _add_bias(graph, chain, [constants[2]])


def _add_bias(graph: Graph, chain: Chain, constants: list[Any]) -> None:
    bias = next((c for c in constants if c is not None), None)
    if bias is None or not chain.weights or chain.pending is not None or chain.biases[-1] is not None:
        raise graph.refuse("a node Add stands elsewhere than behind a layer without biases")
    width = chain.weights[-1].shape[1]
    # one number for all units would be one parameter, not many
    if bias.dtype.kind != "f" or bias.size != width or any(n != 1 for n in bias.shape[:-1]):
        raise graph.damaged(f"a layer of {width} outputs has biases of shape {bias.shape}")
    chain.biases[-1] = np.asarray(bias, dtype=np.float64).ravel()


def _check_silent(graph: Graph, chain: Chain, node: Any) -> None:
    kind, settings = node.op_type, graph.attributes(node)
    constants = [graph.constant(name) if name else None for name in node.input]
    if kind == "Cast" and settings.get("to") not in _FLOATS:
        raise graph.refuse("a node Cast makes other numbers than floating point ones")
    chain.single |= kind == "Cast" and settings["to"] == _FLOATS[0]
    if kind == "Flatten" and settings.get("axis", 1) != 1:
        raise graph.refuse("a node Flatten joins rows")
    if kind == "Dropout" and len(constants) > 2 and constants[2] is not None and constants[2].any():
        raise graph.refuse("a node Dropout is in training mode")
    if kind == "Reshape":
        shape = constants[1].ravel().tolist() if len(constants) > 1 and constants[1] is not None else []
        width = chain.weights[-1].shape[1] if chain.weights else None
        if len(shape) != 2 or shape[0] not in (0, -1) or (width is not None and shape[1] not in (-1, width)):
            raise graph.refuse(f"a node Reshape makes another shape than rows of numbers: {shape}")
    chain.flattens |= kind in ("Flatten", "Reshape") and not chain.weights


def _activate(graph: Graph, chain: Chain, kind: str, constants: list[Any], settings: dict[str, Any]) -> None:
    if not chain.weights or chain.pending is not None:
        raise graph.refuse(f"the node {kind} does not stand behind a layer")
    limits = [None if c is None else float(c) for c in constants[1:3]] or [settings.get("min"), settings.get("max")]
    wrong = (
        (kind == "LeakyRelu" and not np.isclose(settings.get("alpha", 0.01), LEAKY_SLOPE, rtol=1e-7, atol=0))
        or (kind == "Elu" and settings.get("alpha", 1.0) != 1.0)
        or (kind == "Gelu" and settings.get("approximate", b"none") != b"none")
        or (kind == "Clip" and limits != [-1.0, 1.0])
    )
    if wrong:
        shown = limits if kind == "Clip" else settings
        raise graph.refuse(f"the node {kind} has other settings ({shown}) than the activation {_NAMES[kind]}")
    chain.pending = kind
