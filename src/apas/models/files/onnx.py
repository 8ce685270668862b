"""Dense networks as `.onnx` files: the graph read as a chain of layers, and a second opinion of onnxruntime.

The graph is followed from the output back to the input. Every node on the way must be one that a dense network has; a
graph with any other is refused with that node's name.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from apas._optional import require
from apas._sanitise import for_error
from apas._typing import Array, Floats
from apas.errors import InputError, UnsafeFile, Unsupported
from apas.models.feedforward import FeedForward
from apas.models.files.formats import BROKEN, LoadOptions, check_description, describe_network
from apas.models.files.json import parse_json
from apas.models.forward import LEAKY_SLOPE, scores

#: How each activation is written.
_OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.01}),
    "hard_tanh": ("Clip", {}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "identity": ("Identity", {}),
    "softplus": ("Softplus", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "gelu": ("Gelu", {"approximate": "none"}),
}
#: Which activation a node is; one that does nothing is silent.
_NAMES = {kind: name for name, (kind, _) in _OPERATORS.items() if name != "identity"}
_SILENT = ("Identity", "Cast", "Flatten", "Dropout", "Reshape")  # nodes that change no number of a row
_HEADS = {"Sigmoid": "sigmoid", "Softmax": "softmax", "LogSoftmax": "softmax"}
_FLOATS = (1, 11)  # types of numbers that a Cast may make: float and double


@dataclass(frozen=True)
class Graph:
    """A graph taken apart."""

    path: Path
    makers: dict[str, Any]
    constant: Callable[[str], Array | None]
    attributes: Callable[[Any], dict[str, Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int

    def refuse(self, why: str) -> Unsupported:
        """Say what has no place in a dense network."""
        return Unsupported(f"{self.path} is not a graph of dense layers: {for_error(why, 300)}.")

    def damage(self, why: str) -> InputError:
        """Say what does not fit together."""
        return InputError(f"{self.path} does not hold a usable network: {for_error(why, 300)}.")


@dataclass
class Chain:
    """Layers as they are met: `nodes` from the input to the last layer, and `pending`, an activation behind it."""

    nodes: list[Any] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)
    biases: list[Array | None] = field(default_factory=list)
    activation: list[str] = field(default_factory=list)
    pending: str | None = None
    output: str | None = None
    classes: list[Any] | None = None
    used: set[str] = field(default_factory=set)
    flattens: bool = False
    single: bool = False  # whether any number on the way is a float32 one


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
            raise graph.damage(f"{name!r} comes from nowhere")
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
        name = _input_name(node, 0)
        node = graph.makers.get(name)
    for other in graph.makers.values():  # labels are looked up by the position of the largest probability
        if other.op_type == "ArrayFeatureExtractor" and (known := graph.constant(_input_name(other, 0))) is not None:
            listed = [v.decode() if isinstance(v, bytes) else v for v in known.ravel().tolist()]
            if chain.classes is not None and chain.classes != listed:
                raise graph.refuse("its labels and its map of probabilities name different classes")
            chain.classes = listed
    if node is None or node.op_type != "Concat":
        return name
    below, above = node.input if len(node.input) == 2 else ("", "")
    less, last = graph.makers.get(below), graph.makers.get(above)
    one = graph.constant(_input_name(less, 0)) if less is not None and less.op_type == "Sub" else None
    fits = one is not None and one.size == 1 and one.item() == 1 and less is not None and _input_name(less, 1) == above
    if not fits or last is None or last.op_type != "Sigmoid" or graph.attributes(node).get("axis") not in (1, -1):
        raise graph.refuse("the node Concat puts values together, where layers have one")
    return above


def _input_name(node: Any, place: int) -> str:
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
        raise graph.damage(f"a layer of {width} outputs has biases of shape {bias.shape}")
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


ROWS = 8
UNITS = 64  # how many units of rounding the numbers may differ by, in proportion to the magnitudes behind them
_DTYPES: dict[str, Any] = {"tensor(float)": np.float32, "tensor(double)": np.float64}


def check_with_onnxruntime(path: Path, model: Any, graph: Graph, chain: Chain, network: FeedForward) -> None:
    """Compare the numbers of the last layer on a few rows; do nothing if onnxruntime is absent or cannot run them."""
    # What it gets is a graph of the layers that were read and their numbers, not the file.
    try:
        import onnxruntime
    except ImportError:
        return
    session = _session(onnxruntime, model, graph, chain)
    given = None if session is None else session.get_inputs()[0]
    if given is None or given.type not in _DTYPES:
        return
    rows = np.random.default_rng(0).normal(size=(ROWS, network.n_features)).astype(_DTYPES[given.type])
    shape = [n if isinstance(n, int) else -1 for n in given.shape[1:]] if chain.flattens else [-1]
    try:  # a file may have a fixed number of rows, so that they go in one by one
        found = [session.run(None, {given.name: row.reshape(1, *shape)})[0].ravel() for row in rows]
    except Exception as error:  # noqa: BLE001  (its errors have no common class)
        raise InputError(f"{path} cannot be run by onnxruntime, so apas refuses it: {type(error).__name__}.") from None
    ours = scores(network.weights, network.biases, network.activations, rows.astype(np.float64))
    still, precise = np.zeros(len(network.parameters)), network.with_dtype("float64")
    size = precise.margin_scale(rows.astype(np.float64), still)[:, None]
    band = UNITS * np.finfo(found[0].dtype).eps * size
    if any(len(row) != ours.shape[1] for row in found) or not (np.abs(np.stack(found) - ours) <= band).all():
        raise InputError(
            f"{path} gives other numbers in onnxruntime than the network that apas read from it, so apas refuses it; "
            "please report this file."
        )


def _session(onnxruntime: Any, model: Any, graph: Graph, chain: Chain) -> Any:
    from onnx import helper, numpy_helper

    kept = {name: graph.constant(name) for node in chain.nodes for name in node.input if name}
    tensors = [numpy_helper.from_array(np.array(array), name) for name, array in kept.items() if array is not None]
    inputs = [i for i in model.graph.input if i.name in graph.inputs]
    last = helper.make_empty_tensor_value_info(chain.nodes[-1].output[0])
    layers = helper.make_graph(chain.nodes, "layers", inputs, [last], tensors)
    opsets = [entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    pruned = helper.make_model(layers, opset_imports=opsets, ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(pruned.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  (its errors have no common class, and one that cannot run says nothing)
        return None


KEY = "apas"
NODES = 10_000  # most nodes of a graph: a dense network has a few per layer
IR_VERSION, OPSET = 9, 20  # versions of the format and of the operators that we write; the first that have a Gelu


def onnx_bytes(network: FeedForward) -> bytes:
    """Give a network as the bytes of an ``.onnx`` file in double precision."""
    # What ONNX has no place for (threshold, classes, names) stands in its metadata.
    onnx = require("onnx", feature="an .onnx file", extra="onnx")
    make, double = onnx.helper, onnx.TensorProto.DOUBLE
    nodes: list[Any] = []
    arrays: dict[str, Floats] = {}
    value = "input"
    if "hard_tanh" in network.activations:
        arrays |= {"low": np.array(-1.0), "high": np.array(1.0)}
    for i, (weight, bias) in enumerate(zip(network.weights, network.given_biases, strict=True)):
        arrays[f"layer{i}.weight"] = weight
        if bias is not None:
            arrays[f"layer{i}.bias"] = bias
        given = [value, f"layer{i}.weight", *([] if bias is None else [f"layer{i}.bias"])]
        value = f"layer{i}"
        nodes.append(make.make_node("Gemm", given, [value]))
        if i < len(network.activations):
            kind, settings = _OPERATORS[network.activations[i]]
            limits = ["low", "high"] if kind == "Clip" else []
            nodes.append(make.make_node(kind, [value, *limits], [f"{value}.active"], **settings))
            value = f"{value}.active"
    final = {"sigmoid": ("Sigmoid", {}), "softmax": ("Softmax", {"axis": -1}), "identity": ("Identity", {})}
    kind, settings = final[network.output]
    nodes.append(make.make_node(kind, [value], ["output"], **settings))
    widths = {"input": network.n_features, "output": network.weights[-1].shape[1]}
    ends = [make.make_tensor_value_info(name, double, ["rows", width]) for name, width in widths.items()]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = make.make_graph(nodes, "apas", ends[:1], ends[1:], tensors)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    make.set_model_props(model, {KEY: json.dumps(describe_network(network), allow_nan=False)})
    return bytes(model.SerializeToString())


def read_onnx(path: Path, raw: bytes, options: LoadOptions) -> FeedForward:
    """Read a graph of dense layers, and compare it with onnxruntime if that is installed."""
    onnx = require("onnx", feature="an .onnx file", extra="onnx")
    decode_error = require("google.protobuf.message", feature="an .onnx file", extra="onnx").DecodeError
    try:
        model = onnx.load_model_from_string(raw)
    except (*BROKEN, decode_error):
        raise InputError(f"{path} is not a whole ONNX file: it cannot be decoded.") from None
    if not model.graph.node:
        raise InputError(f"{path} is not an ONNX file: it holds no graph.")
    if len(model.graph.node) > NODES:
        raise InputError(f"{path} has {len(model.graph.node)} nodes, more than the {NODES} that apas reads.")
    _check_texts(path, model)
    graph = _taken_apart(onnx, path, model)
    chain = read_chain(graph)
    _check_input(graph, model, len(chain.weights[0]), chain.flattens)
    chain.single |= any(i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for i in model.graph.input)
    said = {entry.key: entry.value for entry in model.metadata_props}.get(KEY)
    layers: Any = (path, chain.weights, chain.biases)
    how: dict[str, Any] = {"activation": chain.activation, "output": chain.output}
    if said is None:
        dtype = "float32" if chain.single else "float64"
        network = options.network(*layers, **how, classes=chain.classes, dtype=dtype)
    else:
        fields = check_description(parse_json(path, said.encode(), "the metadata of "), path)
        dtype = fields.pop("dtype", "float64")  # of the network that was written, in double precision
        # an output that is compared with the threshold itself ends in nothing
        network = LoadOptions(**fields).network(*layers, **how, dtype=dtype)
        options.confirm(path, network)
    check_with_onnxruntime(path, model, graph, chain, network)
    return network


def _check_texts(path: Path, model: Any) -> None:
    """Refuse texts that are not UTF-8: protobuf decodes them on demand only, and gives bytes for them."""
    waiting = [model]
    while waiting:
        message = waiting.pop()
        for part in message.DESCRIPTOR.fields:  # of those that hold numbers none is touched
            inner = part.message_type is not None
            if not inner and part.type != part.TYPE_STRING:
                continue
            value = getattr(message, part.name)
            if hasattr(value, "extend"):
                values = list(value)
            else:
                values = [value] if not inner or message.HasField(part.name) else []
            if inner:
                waiting.extend(values)
            elif not all(isinstance(text, str) for text in values):
                raise InputError(f"{path} is not a whole ONNX file: the part {part.name!r} is not a text in UTF-8.")


def _taken_apart(onnx: Any, path: Path, model: Any) -> Graph:
    nodes, tensors = model.graph.node, {t.name: t for t in model.graph.initializer}
    for node in nodes:
        if node.op_type == "Constant" and node.output and [a.HasField("t") for a in node.attribute] == [True]:
            tensors[node.output[0]] = node.attribute[0].t
    for tensor in tensors.values():  # whatever is done with them
        _check_place(onnx, path, tensor)

    @cache
    def constant(name: str) -> Array | None:
        return _array(onnx, path, tensors[name]) if name in tensors else None

    def attributes(node: Any) -> dict[str, Any]:
        return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    labels = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.STRING)
    return Graph(
        path,
        {name: node for node in nodes for name in node.output},
        constant,
        attributes,
        tuple(i.name for i in model.graph.input if i.name not in tensors),
        tuple(o.name for o in model.graph.output if o.type.tensor_type.elem_type not in labels),
        max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1),
    )


def _check_input(graph: Graph, model: Any, width: int, flattens: bool) -> None:
    (given,) = (i for i in model.graph.input if i.name == graph.inputs[0])
    if not given.type.tensor_type.HasField("shape"):
        return
    sizes = [d.dim_value for d in given.type.tensor_type.shape.dim][1:]  # 0 stands for one that is open
    if not flattens and len(sizes) != 1:
        raise graph.refuse(f"its input has {len(sizes) + 1} dimensions, not rows of numbers")
    if all(sizes) and math.prod(sizes) != width:
        raise graph.damage(f"its input has {math.prod(sizes)} numbers per row, but its first layer takes {width}")


def _check_place(onnx: Any, path: Path, tensor: Any) -> None:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    name = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
    if not name or name in (".", "..") or any(mark in name for mark in "/\\:\0"):  # a plain name, in any system's eyes
        raise UnsafeFile(
            f"{path} keeps numbers in {name!r}, but apas reads only files in the same folder, given by their plain "
            "names; write the model into one file."
        )


def _external(path: Path, tensor: Any, size: int) -> bytes:
    """The `size` bytes of a tensor that are kept in a file beside the model."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    place = path.parent / said["location"]
    try:
        status = place.lstat()  # a link could lead out of the folder
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFile(f"{path} keeps numbers in {said['location']!r}, which is not a plain file.")
        offset = int(said.get("offset", 0))
        length = int(said.get("length", status.st_size - offset))
        if offset < 0 or length != size or offset + length > status.st_size:
            raise InputError(
                f"{path} must have {size} bytes of numbers in {said['location']!r} for {tensor.name!r}, but has not; "
                "it is damaged."
            )
        with place.open("rb") as file:
            file.seek(offset)
            return bytes(file.read(length))
    except OSError as error:
        raise InputError(f"{path} keeps numbers in {place}, which cannot be read: {error.strerror}.") from None


def _array(onnx: Any, path: Path, tensor: Any) -> Array:
    shape = tuple(tensor.dims)
    try:
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        if min(shape, default=0) < 0:  # NumPy would take -1 for as many as there are
            raise ValueError("no size")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            content = _external(path, tensor, math.prod(shape) * kind.itemsize)
            return np.frombuffer(content, dtype=kind.newbyteorder("<")).reshape(shape)
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except BROKEN as error:
        if isinstance(error, InputError | UnsafeFile):
            raise
        raise InputError(
            f"{path} must have numbers of shape {shape} for {tensor.name!r}, but has not; it is damaged."
        ) from None
