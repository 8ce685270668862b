"""Dense networks as `.onnx` files: protobuf, in which nothing can run; numbers in other files only beside it."""

from __future__ import annotations

import json
import math
import stat
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._optional import require
from apas.errors import InputError, UnsafeFile
from apas.models.archive import BROKEN
from apas.models.description import check_description, describe_network
from apas.models.feedforward import FeedForward
from apas.models.jsonfile import parse_json
from apas.models.onnx import Graph, read_chain
from apas.models.onnxcheck import check_with_onnxruntime
from apas.models.stated import Stated

__all__ = ["onnx_bytes", "read_onnx"]

KEY = "apas"
#: Most nodes of a graph: a dense network has a few per layer.
NODES = 10_000
#: Versions of the format and of the operators that we write; the first that have a Gelu.
IR_VERSION, OPSET = 9, 20
_OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}), "leaky_relu": ("LeakyRelu", {"alpha": 0.01}), "hard_tanh": ("Clip", {}), "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}), "identity": ("Identity", {}), "softplus": ("Softplus", {}),
    "elu": ("Elu", {"alpha": 1.0}), "gelu": ("Gelu", {"approximate": "none"}),
}  # fmt: skip


def onnx_bytes(network: FeedForward) -> bytes:
    """Give a network as the bytes of an ``.onnx`` file in double precision.

    What ONNX has no place for (threshold, classes, names) stands in its metadata.
    """
    onnx = require("onnx", feature="an .onnx file", extra="onnx")
    make, double = onnx.helper, onnx.TensorProto.DOUBLE
    nodes: list[Any] = []
    arrays: dict[str, NDArray[np.float64]] = {}
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
    content: bytes = model.SerializeToString()
    return content


def read_onnx(path: Path, raw: bytes, stated: Stated) -> FeedForward:
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
    if said is None:
        network = stated.network(
            path, chain.weights, chain.biases, activation=chain.activation, output=chain.output, classes=chain.classes,
            dtype="float32" if chain.single else "float64",
        )  # fmt: skip
    else:
        fields = check_description(parse_json(path, said.encode(), "the metadata of "), path)
        dtype = fields.pop("dtype", "float64")  # of the network that was written, in double precision
        own = Stated(**fields)
        # an output that is compared with the threshold itself ends in nothing
        network = own.network(
            path, chain.weights, chain.biases, activation=chain.activation, output=chain.output, dtype=dtype
        )
        stated.confirm(path, network)
    check_with_onnxruntime(path, model, graph, chain, network)
    return network


def _check_texts(path: Path, model: Any) -> None:
    """Refuse texts that are not UTF-8: protobuf decodes them on demand only, and gives bytes for them."""
    waiting = [model]
    while waiting:
        message = waiting.pop()
        for field in message.DESCRIPTOR.fields:  # of those that hold numbers none is touched
            inner = field.message_type is not None
            if not inner and field.type != field.TYPE_STRING:
                continue
            value = getattr(message, field.name)
            if hasattr(value, "extend"):
                values = list(value)
            else:
                values = [value] if not inner or message.HasField(field.name) else []
            if inner:
                waiting.extend(values)
            elif not all(isinstance(text, str) for text in values):
                raise InputError(f"{path} is not a whole ONNX file: the field {field.name!r} is not a text in UTF-8.")


def _taken_apart(onnx: Any, path: Path, model: Any) -> Graph:
    nodes, tensors = model.graph.node, {t.name: t for t in model.graph.initializer}
    for node in nodes:
        if node.op_type == "Constant" and node.output and [a.HasField("t") for a in node.attribute] == [True]:
            tensors[node.output[0]] = node.attribute[0].t
    for tensor in tensors.values():  # whatever is done with them
        _check_place(onnx, path, tensor)

    @cache
    def constant(name: str) -> NDArray[Any] | None:
        return _array(onnx, path, tensors[name]) if name in tensors else None

    def attributes(node: Any) -> dict[str, Any]:
        return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    labels = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.STRING)
    return Graph(
        path, {name: node for node in nodes for name in node.output}, constant, attributes,
        tuple(i.name for i in model.graph.input if i.name not in tensors),
        tuple(o.name for o in model.graph.output if o.type.tensor_type.elem_type not in labels),
        max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1),
    )  # fmt: skip


def _check_input(graph: Graph, model: Any, width: int, flattens: bool) -> None:
    (given,) = (i for i in model.graph.input if i.name == graph.inputs[0])
    if not given.type.tensor_type.HasField("shape"):
        return
    sizes = [d.dim_value for d in given.type.tensor_type.shape.dim][1:]  # 0 stands for one that is open
    if not flattens and len(sizes) != 1:
        raise graph.refuse(f"its input has {len(sizes) + 1} dimensions, not rows of numbers")
    if all(sizes) and math.prod(sizes) != width:
        raise graph.damaged(f"its input has {math.prod(sizes)} numbers per row, but its first layer takes {width}")


def _check_place(onnx: Any, path: Path, tensor: Any) -> None:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    name = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
    # a plain name, in any system's eyes
    if not name or name in (".", "..") or any(mark in name for mark in "/\\:\0"):
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
            content: bytes = file.read(length)
            return content
    except OSError as error:
        raise InputError(f"{path} keeps numbers in {place}, which cannot be read: {error.strerror}.") from None


def _array(onnx: Any, path: Path, tensor: Any) -> NDArray[Any]:
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
