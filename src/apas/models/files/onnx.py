"""Dense networks as `.onnx` files: the graph read as a chain of layers, and a second opinion of onnxruntime."""

import json
import math
import stat
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from apas._atomic import refusing
from apas._fields import parse_json
from apas._lazy import require
from apas._sanitise import for_error
from apas._typing import Array, Floats
from apas.errors import InputError, UnsafeFile, Unsupported
from apas.models.base import Model
from apas.models.dense_chain import ChainBuilder, ChainModel, ChainNetwork, Entries
from apas.models.feedforward import FeedForward
from apas.models.files.formats import BROKEN, LoadOptions, check_description, describe_network
from apas.models.forward import LEAKY_SLOPE, scores

#: How each activation is written.
_OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name.title(), {}) for name in ("relu", "tanh", "sigmoid", "identity", "softplus")
}
_OPERATORS |= {"leaky_relu": ("LeakyRelu", {"alpha": 0.01}), "hard_tanh": ("Clip", {}), "elu": ("Elu", {"alpha": 1.0})}
_OPERATORS["gelu"] = "Gelu", {"approximate": "none"}
#: Activations without settings, by their nodes; a softmax has its place at the end.
_PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus"}
_PLAIN |= {"Softmax": "softmax", "LogSoftmax": "softmax"}
_SILENT = ("Identity", "Cast", "Flatten", "Dropout", "Reshape")  # nodes that change no number of a row
_FLOATS = (1, 11)  # types of numbers that a Cast may make: float and double


class GraphReader:
    """Follows the nodes of a graph, with the number of a value for each name; `made` are the nodes of values."""

    def __init__(self, onnx: Any, path: Path, model: Any) -> None:
        self.onnx, self.path, nodes = onnx, path, model.graph.node
        tensors = {t.name: t for t in model.graph.initializer}
        for node in nodes:
            if node.op_type == "Constant" and node.output and [a.HasField("t") for a in node.attribute] == [True]:
                tensors[node.output[0]] = node.attribute[0].t
        for tensor in tensors.values():  # whatever is done with them
            said = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
            elsewhere = tensor.data_location == onnx.TensorProto.EXTERNAL
            # a plain name, in any system's eyes
            if elsewhere and (not said or said in (".", "..") or any(mark in said for mark in "/\\:\0")):
                why = f"{path} keeps numbers in {said!r}, but apas reads only files in the same folder,"
                raise UnsafeFile(f"{why} given by their plain names; write the model into one file.")
        self.tensors, self.makers = tensors, {name: node for node in nodes for name in node.output}
        inputs = [i for i in model.graph.input if i.name not in tensors]
        labels = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.STRING)
        self.inputs = [i.name for i in inputs]
        self.outputs = [o.name for o in model.graph.output if o.type.tensor_type.elem_type not in labels]
        shaped = len(inputs) == 1 and inputs[0].type.tensor_type.HasField("shape")
        #: Numbers per dimension of a row, 0 for an open one; None if the graph does not say.
        self.sizes = [d.dim_value for d in inputs[0].type.tensor_type.shape.dim][1:] if shaped else None
        self.opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
        known = self.sizes is not None and all(self.sizes)
        self.builder = ChainBuilder(math.prod(self.sizes or ()) if known else 0)
        self.flat = self.sizes is None or len(self.sizes) == 1
        self.single = False  # whether any number on the way is a float32 one
        self.values, self.made, self.nodes = dict[str, int](), dict[int, str](), list[Any]()
        self.classes: list[Any] | None = None
        self.output: str | None = None
        self.end, self.layers = "", 0
        self.constant = cache(lambda name: _array(onnx, path, tensors[name]) if name in tensors else None)

    def _attributes(self, node: Any) -> dict[str, Any]:
        return {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}

    def refuse(self, why: str) -> Unsupported:
        """Say what has no place in a dense network."""
        return Unsupported(f"{self.path} is not a graph of dense layers: {for_error(why, 300)}.")

    def damage(self, why: str) -> InputError:
        """Say what does not fit together."""
        return InputError(f"{self.path} does not hold a usable network: {for_error(why, 300)}.")

    def read(self) -> int:
        """The value whose numbers the only output gives, without the sigmoid or softmax at its end."""
        builder = self.builder
        if len(self.inputs) != 1 or len(self.outputs) != 1:
            why = f"it has {len(self.inputs)} inputs and {len(self.outputs)} outputs of numbers,"
            raise self.refuse(f"{why} not one each")
        self.values[self.inputs[0]] = 0
        end = self._without_classes(self.outputs[0])
        for node in self._nodes_behind(end):
            try:
                self.values[node.output[0]] = value = self._value(node)
            except ValueError as error:
                if isinstance(error, InputError):
                    raise
                raise self.refuse(f"the node {node.op_type} does not fit: {error}") from None
            self.made.setdefault(value, node.op_type)
            self.nodes.append(node)
        last = self.values[end]
        made = [self.values[node.output[0]] for node in self.nodes]
        before, head = builder.before(last, "sigmoid", "softmax")
        if head:
            self.nodes, last, self.output = self.nodes[: made.index(last)], before, head
        if builder.nodes[last].activation != "identity":
            raise self.refuse(f"it ends in the node {self.made[last]}, which says nothing about classes")
        if not self.layers:
            raise self.refuse("it has no layer")
        if self.output == "sigmoid" and builder.width(last) != 1:
            raise self.refuse("it gives several labels at once; certify one model per label")
        self.end = next(node.output[0] for node in reversed(self.nodes) if self.values[node.output[0]] == last)
        return last

    def _nodes_behind(self, end: str) -> list[Any]:
        """The nodes that an output is computed by, each behind those that it needs."""
        found, waiting, opened = dict[str, Any](), [(end, False)], set[str]()
        while waiting:
            name, done = waiting.pop()
            if done:
                found[name] = self.makers[name]
                continue
            if name in found or name in self.inputs:
                continue
            if name not in self.makers or name in opened:  # nothing makes it, or it makes itself
                raise self.damage(f"{name!r} comes from nowhere")
            if self.makers[name].output[0] != name:
                raise self.refuse(f"it uses more than one output of the node {self.makers[name].op_type}")
            opened.add(name)
            waiting.append((name, True))
            waiting += [(i, False) for i in self.makers[name].input if i and self.constant(i) is None]
        return list(found.values())

    def _without_classes(self, name: str) -> str:
        """Undo what scikit-learn's converter puts behind the probabilities: a map by class, and 1 - p beside p."""
        node = self.makers.get(name)
        if node is not None and node.op_type == "ZipMap":
            settings = self._attributes(node)
            labels = settings.get("classlabels_int64s") or settings.get("classlabels_strings") or []
            self.classes = [label.decode() if isinstance(label, bytes) else int(label) for label in labels]
            name = _input_name(node, 0)
            node = self.makers.get(name)
        for other in self.makers.values():  # labels are looked up by the position of the largest probability
            if other.op_type == "ArrayFeatureExtractor" and (known := self.constant(_input_name(other, 0))) is not None:
                listed = [v.decode() if isinstance(v, bytes) else v for v in known.ravel().tolist()]
                if self.classes is not None and self.classes != listed:
                    raise self.refuse("its labels and its map of probabilities name different classes")
                self.classes = listed
        if node is None or node.op_type != "Concat":
            return name
        below, above = node.input if len(node.input) == 2 else ("", "")
        less, last = self.makers.get(below), self.makers.get(above)
        one = self.constant(_input_name(less, 0)) if less is not None and less.op_type == "Sub" else None
        fits = one is not None and one.size == 1 and one.item() == 1 and _input_name(less, 1) == above
        if not fits or last is None or last.op_type != "Sigmoid" or self._attributes(node).get("axis") not in (1, -1):
            raise self.refuse("the node Concat puts values together, where layers have one")
        return str(above)

    def _value(self, node: Any) -> int:
        builder, kind, settings = self.builder, node.op_type, self._attributes(node)
        constants = [self.constant(name) if name else None for name in node.input]
        given = [self.values[name] for name, c in zip(node.input, constants, strict=True) if name and c is None]
        if node.domain not in ("", "ai.onnx") or not given:
            raise self.refuse(f"it has the node {f'{node.domain}.' if node.domain else ''}{kind}")
        if kind in _SILENT:
            return self._silent(node, constants, settings, given[0])
        if not self.flat:
            raise self.refuse(f"its input has {len(self.sizes or ()) + 1} dimensions, not rows of numbers")
        if kind in ("MatMul", "Gemm"):
            return self._layer(node, constants, settings, given[0])
        if kind == "Add" and len(given) == 2:
            return builder.add(*given)
        if kind == "Mul" and len(given) == 2:
            for one, other in (node.input, node.input[::-1]):  # z * sigmoid(z)
                maker = self.makers.get(other)
                if maker is not None and maker.op_type == "Sigmoid" and _input_name(maker, 0) == one:
                    return builder.activate(self.values[one], "silu")
        if len(given) != 1:
            raise self.refuse(f"the node {kind} brings {len(given)} values together, where layers have one")
        if kind == "Add":
            return builder.scale(given[0], None, self._bias(node, 0 if constants[0] is not None else 1, given[0]))
        constant = all(c is not None for c in constants[1:])
        if kind == "BatchNormalization" and len(constants) == 5 and constant and not settings.get("training_mode"):
            scale, bias, mean, variance = (np.asarray(c) for c in constants[1:])
            if builder.width(given[0]) == 0:
                builder.nodes[0].width = scale.size
            learned = [self._entries(node.input[i], c, k) for i, c, k in ((1, scale, "weight"), (2, bias, "bias"))]
            eps = float(np.float32(settings.get("epsilon", 1e-5)))  # as all settings of nodes
            return builder.normalize(given[0], mean, variance, eps, *learned)
        if kind == "PRelu" and len(constants) == 2:
            return builder.slopes(given[0], self._entries(node.input[1], constants[1], "weight"))
        return builder.activate(given[0], *self._activation(kind, constants, settings))

    def _activation(self, kind: str, constants: list[Any], settings: dict[str, Any]) -> tuple[Any, ...]:
        if kind in ("Softmax", "LogSoftmax") and settings.get("axis", -1 if self.opset >= 13 else 1) not in (1, -1):
            raise self.refuse(f"the node {kind} does not run over the classes")
        if kind == "LeakyRelu":  # settings are float32 numbers, and that of the usual slope is not the nearest to 0.01
            alpha = float(settings.get("alpha", LEAKY_SLOPE))
            return "leaky_relu", LEAKY_SLOPE if np.isclose(alpha, LEAKY_SLOPE, rtol=1e-7, atol=0) else alpha
        if kind == "Elu":
            return "elu", float(settings.get("alpha", 1.0))
        if kind == "Clip":
            limits = [None if c is None else float(c.item()) for c in constants[1:3]]
            low, high = (*(limits or map(settings.get, ("min", "max"))), None)[:2]
            return "clip", -math.inf if low is None else low, math.inf if high is None else high
        if kind == "Gelu":
            by_tanh = settings.get("approximate", b"none") == b"tanh"
            self.single |= by_tanh  # its definition has float32 constants, also where all else is double
            return ("gelu_tanh" if by_tanh else "gelu",)
        if kind == "Swish" and settings.get("alpha", 1.0) == 1.0:
            return ("silu",)
        if kind not in _PLAIN:
            raise self.refuse(f"it has the node {kind}")
        return (_PLAIN[kind],)

    def _layer(self, node: Any, constants: list[Any], settings: dict[str, Any], value: int) -> int:
        kind = node.op_type
        weight = constants[1] if len(constants) > 1 else None
        if weight is None or weight.ndim != 2 or weight.dtype.kind != "f":
            raise self.refuse(f"the node {kind} has no constant matrix on its right side")
        if settings.get("transA") or settings.get("alpha", 1.0) != 1.0 or settings.get("beta", 1.0) != 1.0:
            raise self.refuse("a node Gemm turns or scales its input, which layers do not")
        entries = self._entries(node.input[1], weight, "weight")
        entries = entries.transpose(0, 2, 1) if kind == "Gemm" and settings.get("transB") else entries
        count, width = entries.shape[1], self.builder.width(value)
        if value == 0 and width == 0:
            self.builder.nodes[0].width = width = count
        if count != width and value == 0:
            raise self.damage(f"its input has {width} numbers per row, but its first layer takes {count}")
        if count != width:
            raise self.damage(f"`weights[{self.layers}]` of FeedForward must have {width} rows, got {count}")
        self.layers += 1
        value = self.builder.affine(value, entries)
        if kind == "Gemm" and len(constants) > 2 and constants[2] is not None:
            value = self.builder.scale(value, None, self._bias(node, 2, value))
        return value

    def _bias(self, node: Any, place: int, value: int) -> Entries:
        bias, width = self.constant(_input_name(node, place)), self.builder.width(value)
        # one number for all units would be one parameter, not many
        if bias is None or bias.dtype.kind != "f" or bias.size != width or any(n != 1 for n in bias.shape[:-1]):
            shape = None if bias is None else bias.shape
            if node.op_type == "Gemm" or self.made.get(value) == "MatMul":
                raise self.damage(f"a layer of {width} outputs has biases of shape {shape}")
            raise self.refuse(f"a node Add stands elsewhere than behind a layer, and adds numbers of shape {shape}")
        return self._entries(node.input[place], bias, "bias").reshape(3, -1)

    def _entries(self, name: str, array: Any, kind: str) -> Entries:
        if array is None or array.dtype.kind != "f":
            raise self.refuse(f"the numbers {name!r} of a layer are no constants of floating point numbers")
        if array.dtype.itemsize < 4:
            raise self.refuse("it computes in half precision, whose rounding no claim allows for; export it in float32")
        self.single |= array.dtype.itemsize < 8
        return self.builder.coordinates(name, array, kind, name.rpartition(".")[0] or name)

    def _silent(self, node: Any, constants: list[Any], settings: dict[str, Any], value: int) -> int:
        kind = node.op_type
        if kind == "Cast" and settings.get("to") not in _FLOATS:
            raise self.refuse("a node Cast makes other numbers than floating point ones")
        self.single |= kind == "Cast" and settings["to"] == _FLOATS[0]
        if kind == "Flatten" and settings.get("axis", 1) != 1:
            raise self.refuse("a node Flatten joins rows")
        if kind == "Dropout" and len(constants) > 2 and constants[2] is not None and constants[2].any():
            raise self.refuse("a node Dropout is in training mode")
        if kind == "Reshape":
            shape = constants[1].ravel().tolist() if len(constants) > 1 and constants[1] is not None else []
            width = self.builder.width(value)
            if len(shape) != 2 or shape[0] not in (0, -1) or (width and shape[1] not in (-1, width)):
                raise self.refuse(f"a node Reshape makes another shape than rows of numbers: {shape}")
        self.flat |= kind in ("Flatten", "Reshape")
        return value


def _input_name(node: Any, place: int) -> str:
    """The name of what goes into a node at a place; empty if nothing does."""
    return str(node.input[place]) if place < len(node.input) else ""


ROWS = 8
UNITS = 64  # how many units of rounding the numbers may differ by, in proportion to the magnitudes behind them
_DTYPES: dict[str, Any] = {"tensor(float)": np.float32, "tensor(double)": np.float64}


def check_with_onnxruntime(path: Path, model: Any, reader: GraphReader, network: FeedForward) -> None:
    """Compare the numbers of the last layer on a few rows; do nothing if onnxruntime is absent or cannot run them."""
    # What it gets is a graph of the layers that were read and their numbers, not the file.
    try:
        import onnxruntime
    except ImportError:
        return
    from onnx import helper, numpy_helper

    kept = {name: reader.constant(name) for node in reader.nodes for name in node.input if name}
    tensors = [numpy_helper.from_array(np.array(array), name) for name, array in kept.items() if array is not None]
    inputs = [i for i in model.graph.input if i.name in reader.inputs]
    layers = helper.make_graph(
        reader.nodes, "layers", inputs, [helper.make_empty_tensor_value_info(reader.end)], tensors
    )
    opsets = [entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    content = helper.make_model(layers, opset_imports=opsets, ir_version=model.ir_version).SerializeToString()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  (its errors have no common class, and one that cannot run says nothing)
        return
    given = session.get_inputs()[0]
    if given.type not in _DTYPES:
        return
    rows = np.random.default_rng(0).normal(size=(ROWS, network.n_features)).astype(_DTYPES[given.type])
    shape = [n if isinstance(n, int) else -1 for n in given.shape[1:]] or [-1]
    try:  # a file may have a fixed number of rows, so that they go in one by one
        found = [session.run(None, {given.name: row.reshape(1, *shape)})[0].ravel() for row in rows]
    except Exception as error:  # noqa: BLE001  (as above)
        raise InputError(f"{path} cannot be run by onnxruntime, so apas refuses it: {type(error).__name__}.") from None
    ours = scores(network.weights, network.biases, network.activations, rows.astype(np.float64))
    still, precise = np.zeros(len(network.parameters)), network.with_dtype("float64")
    size = precise.margin_scale(rows.astype(np.float64), still)[:, None]
    band = UNITS * np.finfo(np.float32 if reader.single else found[0].dtype).eps * size
    if any(len(row) != ours.shape[1] for row in found) or not (np.abs(np.stack(found) - ours) <= band).all():
        why = f"{path} gives other numbers in onnxruntime than the network that apas read from it, so apas refuses it;"
        raise InputError(f"{why} please report this file.")


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


def read_onnx(path: Path, raw: bytes, options: LoadOptions) -> Model:
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
    reader = GraphReader(onnx, path, model)
    last = reader.read()
    single = reader.single or any(i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for i in model.graph.input)
    theta = reader.builder.parameters()
    try:
        chain = reader.builder.finish(last, theta, output="sigmoid" if reader.builder.width(last) == 1 else "softmax")
    except InputError as error:
        raise InputError(f"{path} does not hold a usable network: {error}") from error
    except ValueError as error:
        raise reader.refuse(str(error)) from None
    found = chain.plain() or chain.network
    layers: Any = (path, found.weights, found.given_biases)
    how: dict[str, Any] = {"activation": list(found.activations), "output": reader.output, "kind": type(found)}
    said = {entry.key: entry.value for entry in model.metadata_props}.get(KEY)
    if said is None:
        network = options.network(*layers, **how, classes=reader.classes, dtype="float32" if single else "float64")
    else:
        fields = check_description(parse_json(path, said.encode(), "the metadata of "), path)
        dtype = fields.pop("dtype", "float64")  # of the network that was written, in double precision
        # an output that is compared with the threshold itself ends in nothing
        network = LoadOptions(**fields).network(*layers, **how, dtype=dtype)
        options.confirm(path, network)
    check_with_onnxruntime(path, model, reader, network)
    return ChainModel(replace(chain, network=network), theta) if isinstance(network, ChainNetwork) else network


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


def _external(path: Path, tensor: Any, size: int) -> bytes:
    """The `size` bytes of a tensor that are kept in a file beside the model."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    place = path.parent / said["location"]
    with refusing(f"{path} keeps numbers in {place}, which cannot be read"):
        status = place.lstat()  # a link could lead out of the folder
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFile(f"{path} keeps numbers in {said['location']!r}, which is not a plain file.")
        offset = int(said.get("offset", 0))
        length = int(said.get("length", status.st_size - offset))
        if offset < 0 or length != size or offset + length > status.st_size:
            must = f"{path} must have {size} bytes of numbers in {said['location']!r} for {tensor.name!r}, but has not;"
            raise InputError(f"{must} it is damaged.")
        with place.open("rb") as file:
            file.seek(offset)
            return bytes(file.read(length))


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
        must = f"{path} must have numbers of shape {shape} for {tensor.name!r}, but has not;"
        raise InputError(f"{must} it is damaged.") from None
