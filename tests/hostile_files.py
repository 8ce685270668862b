"""Model files of somebody who means harm, by the name that they bear."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np

import apas

Write = Callable[[Path], None]
NETWORK = apas.FeedForward([np.ones((2, 3)), np.ones((3, 1))], [np.zeros(3), np.zeros(1)])


class Bomb:
    """Unpickling it makes the file `flag`."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self):
        return (open, (str(self.flag), "w"))


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return content.getvalue()


def _twice(name: str, content: bytes) -> bytes:
    """An archive with two members of one name."""
    other = f"{name[:-1]}~"
    return archive({name: content, other: content}).replace(other.encode(), name.encode())


def bomb(name: str, size: int, said: int | None = None) -> bytes:
    """An archive of `size` zeros in a thousandth of that, which says that it expands to `said` bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    body = piece * (size // 2**20) + packer.flush()
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(body), size if said is None else said, len(name), 0)
    local = b"PK\x03\x04" + fields + name.encode() + body
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode()
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def pickles(flag: Path) -> dict[str, bytes]:
    """What must not run, whatever the file is called."""
    trap = Bomb(flag)
    dumped = io.BytesIO()
    joblib.dump(trap, dumped)
    named = {f"pickle {p}": pickle.dumps(trap, protocol=p) for p in (0, 1, 2, 3, 4, 5)}
    return {
        **named,
        "joblib": dumped.getvalue(),
        "torch": archive({"net/data.pkl": pickle.dumps(trap, protocol=2), "net/version": b"3\n"}),
        "pickle in an archive": archive({"schema.json": pickle.dumps(trap), "model.pkl": pickle.dumps(trap)}),
    }


def anywhere(good: bytes) -> dict[str, bytes]:
    """What can be wrong with a file of any format, given a good one."""
    noise = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8).tobytes()
    return {
        "empty": b"", "one byte": good[:1], "half": good[: len(good) // 2], "all but the end": good[:-3],
        "noise": noise, "zeros": bytes(4096), "an archive of nothing": archive({}),
        "a million members": b"PK\x03\x04" + b"PK\x01\x02" * 1_000_000,
    }  # fmt: skip


def network_json(**changed: object) -> bytes:
    good = {
        "format": "apas-model", "version": 1, "kind": "feedforward", "weights": [[[1.0], [2.0]]], "biases": [[0.5]],
        "activation": [], "output": "sigmoid", "threshold": 0.5, "classes": [0, 1], "feature_names": None,
    }  # fmt: skip
    return json.dumps({**good, **changed}).encode()


def json_files() -> dict[str, bytes | Write]:
    deep = 10**6
    return {
        "nested lists": b"[" * deep,
        "nested and closed": b"[" * deep + b"]" * deep,
        "nested objects": b'{"a":' * deep,
        "nested weights": b'{"format": "apas-model", "weights": ' + b"[" * deep,
        "NaN": network_json(weights=[[[1.0], [float("nan")]]]),
        "infinite": network_json(biases=[[float("inf")]]),
        "wrong shapes": network_json(weights=[[[1.0], [2.0, 3.0]]]),
        "layers that do not fit": network_json(weights=[[[1.0]], [[1.0], [1.0]]], biases=[[0.0], [0.0]]),
        "a number of a million digits": network_json().replace(b"2.0", b"2" * 10**6),
        "a number beyond floats": network_json().replace(b"2.0", b"2" * 400),
        "a number beyond floats, as a float": network_json().replace(b"2.0", b"2e400"),
        "a field twice": network_json().replace(b'"threshold": 0.5', b'"threshold": 0.9, "threshold": 0.5'),
        "ten gigabytes of nothing": lambda path: os.truncate(_touched(path), 10**10),
        "a pipe": lambda path: os.mkfifo(path),
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a folder": lambda path: path.mkdir(),
    }


def slow_json_files() -> dict[str, bytes | Write]:
    """What is refused by and by: millions of lists or numbers, until the memory is full."""
    return {
        "ten megabytes of brackets": b"[" + b"[]," * (10 * 2**20 // 3) + b"[]]",
        "thirty megabytes of numbers": b"[" + b"1.5," * (30 * 2**20 // 4) + b"1]",
    }


def _touched(path: Path) -> Path:
    path.touch()
    return path


def safetensors_files() -> dict[str, bytes | Write]:
    from safetensors.numpy import save

    from apas.models.files.tensors import safetensors_bytes

    good = safetensors_bytes(NETWORK)
    size = int.from_bytes(good[:8], "little")

    def header(text: bytes, data: bytes = b"") -> bytes:
        return struct.pack("<Q", len(text)) + text + data

    def said(**tensors: np.ndarray) -> bytes:
        described = json.loads(good[8 : 8 + size])["__metadata__"]
        return save({name.replace("_", "."): array for name, array in tensors.items()}, described)

    def huge(path: Path) -> None:
        path.write_bytes(struct.pack("<Q", 10**10))
        os.truncate(path, 10**10 + 8)

    def placed(*parts: tuple[int, int], dtype: str = "F64", shape: tuple[int, ...] = (1, 1)) -> bytes:
        tensors = {f"{i}.weight": {"dtype": dtype, "shape": shape, "data_offsets": p} for i, p in enumerate(parts)}
        return header(json.dumps(tensors).encode(), bytes(max(8, *(end for _, end in parts))))

    nan = np.full((2, 3), np.nan)
    twice = b'{"a":{"dtype":"F64","shape":[1,1],"data_offsets":[0,8]},"__metadata__":{},"__metadata__":{"apas":"{}"}}'
    shapes = {"dtype": "F64", "shape": [10**6, 10**6], "data_offsets": [0, 8]}
    return {
        "a header of ten gigabytes": struct.pack("<Q", 10**10) + good[8:],
        "a header of ten gigabytes that are there": huge,
        "a header of 2 ** 64 - 1 bytes": struct.pack("<Q", 2**64 - 1) + good[8:],
        "a header of five megabytes": header(b"{" + b" " * 5 * 2**20 + b"}"),
        "nested brackets": header(b'{"a":' + b"[" * 10**6),
        "no object": header(b"[]"),
        "a shape without numbers": header(json.dumps({"0.weight": shapes}).encode(), bytes(8)),
        "a header in no encoding": header(b'{"\xff\xfe": 1}'),
        "two tensors in one place": placed((0, 8), (0, 16)),
        "tensors that overlap": placed((0, 8), (4, 12)),
        "a hole between tensors": placed((0, 8), (16, 24)),
        "negative offsets": placed((-8, 0)),
        "offsets the wrong way round": placed((8, 0)),
        "numbers of half the size": placed((0, 8), dtype="F32"),
        "numbers of a kind that is none": placed((0, 8), dtype="F65"),
        "negative sizes": placed((0, 8), shape=(-1, -1)),
        "sizes that wrap around": placed((0, 8), shape=(2**32, 2**32)),
        "metadata twice": header(twice, bytes(8)),
        "offsets beyond the end": header(b'{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,80000000000]}}', bytes(8)),
        "NaN": said(layer0_weight=nan, layer1_weight=np.ones((3, 1))),
        "wrong shapes": said(layer0_weight=np.ones((2, 3)), layer1_weight=np.ones((4, 1))),
        "whole numbers": said(layer0_weight=np.ones((2, 1), dtype=np.int64)),
        "a strange tensor": said(layer0_weight=np.ones((2, 1)), evil=np.ones(3)),
        "no tensor": said(),
    }


def skops_node(loader: str, module: str, name: str, **content: object) -> dict[str, object]:
    return {"__loader__": loader, "__module__": module, "__class__": name, "__id__": 1, **content}


def skops_file(node: dict[str, object], **members: bytes) -> bytes:
    schema = {**node, "protocol": 2, "_skops_version": "0.16.0"}
    return archive({"schema.json": json.dumps(schema).encode(), **members})


def skops_array(header: bytes) -> bytes:
    """An estimator's file whose array has this header."""
    node = skops_node("NdArrayNode", "numpy", "ndarray", type="numpy", file="a.npy")
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    return skops_file(node, **{"a.npy": array})


def skops_estimator(classifier: object, change: Callable[[object], None]) -> bytes:
    import skops.io

    change(classifier)
    return skops.io.dumps(classifier)


def skops_files(flag: Path) -> dict[str, bytes | Write]:
    from sklearn.linear_model import LogisticRegression

    def fitted():
        return LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0, 1, 1])

    def setting(name: str, value: object) -> bytes:
        return skops_estimator(fitted(), lambda estimator: setattr(estimator, name, value))

    texts = skops_node("TupleNode", "builtins", "tuple", content=[
        {**skops_node("JsonNode", "builtins", "str", content=json.dumps(f"touch {flag}"), is_json=True), "__id__": 7}
    ])  # fmt: skip
    deep: dict[str, object] = skops_node("ListNode", "builtins", "list", content=[])
    for i in range(400):
        deep = {**skops_node("ListNode", "builtins", "list", content=[deep]), "__id__": 100 + i}
    return {
        "os.system": skops_file(skops_node("FunctionNode", "os", "system")),
        "a partial": skops_file(skops_node("PartialNode", "functools", "partial", content={
            "func": skops_node("FunctionNode", "os", "system"), "args": texts, "kwds": texts, "namespace": texts})),
        "a constructor": skops_file(skops_node("ConstructorFromReduceNode", "subprocess", "Popen", content=texts)),
        "an object": skops_file(skops_node("ObjectNode", "subprocess", "Popen", content=texts)),
        "a method": skops_file(skops_node("MethodNode", "builtins", "method", content={"func": "system", "obj": texts})),
        "a type": skops_file(skops_node("TypeNode", "os", "_wrap_close")),
        "a module of that name": skops_file(skops_node("ObjectNode", "sklearn.linear_model.evil.x", "Perceptron")),
        "a module that runs when imported": skops_file(skops_node("FunctionNode", "numpy.f2py.__main__", "exp")),
        "a module of tests": skops_file(skops_node("FunctionNode", "numpy.conftest", "exp")),
        "a random state": skops_file(skops_node("RandomStateNode", "numpy.random.mtrand", "RandomState", content=texts)),
        "a loader that is none": skops_file({**skops_node("X", "a", "b"), "__loader__": ["ListNode"]}),
        "no loader": skops_file({"__class__": "system", "__module__": "os"}),
        "a class in a dictionary": skops_file(skops_node("DictNode", "os", "environ", content={}, key_types=texts)),
        "a list": skops_file(skops_node("ListNode", "builtins", "list", content=[])),
        "a list of lists": skops_file(deep),
        "nested brackets": archive({"schema.json": b"[" * 10**6}),
        "itself": skops_file(skops_node("ListNode", "builtins", "list", content=[skops_node("ListNode", "builtins", "list", content=[])])),
        "a tree without end": skops_estimator(_tree(), _lead_back),
        "NaN": setting("coef_", np.array([[np.nan, 1.0]])),
        "wrong shapes": setting("intercept_", np.zeros(7)),
        "texts for numbers": setting("coef_", np.array([["a", "b"]])),
        "objects for numbers": setting("coef_", np.array([[{}, []]], dtype=object)),
        "not fitted": skops_estimator(LogisticRegression(), lambda _: None),
        "members of one name": _twice("schema.json", b"{}"),
        "members that lead out of the folder": archive({"../schema.json": b"{}", "/schema.json": b"{}"}),
        "a file outside": archive({"schema.json": json.dumps({**skops_node(
            "NdArrayNode", "numpy", "ndarray", type="numpy", file="../../secret.bin"), "protocol": 2}).encode()}),
        "no shape": archive({"schema.json": json.dumps({**skops_node(
            "NdArrayNode", "numpy", "ndarray", type="numpy", file="a.npy"), "protocol": 2}).encode(),
            "a.npy": b"\x93NUMPY\x01\x00F\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }   \n"}),
        "an array of objects": archive({"schema.json": json.dumps({**skops_node(
            "NdArrayNode", "numpy", "ndarray", type="numpy", file="a.npy"), "protocol": 2}).encode(),
            "a.npy": _object_array(flag)}),
        **{f"an array that begins with {header!r}": skops_array(header) for header in (
            b"{'descr': '''", b"{'descr': (", b"(", b"{'descr': '<f8', 'shape': (1,)", b"\\", b"\xff", b"{" * 500, b"")},
        "escapes in a type": skops_file(skops_node("ObjectNode", "\x1b[31m" * 2000, "\x1b]8;;http://a\x07\n")),
        "a zip bomb": bomb("schema.json", 2**31),
        "a zip bomb that lies": bomb("schema.json", 2**31, said=100),
    }  # fmt: skip


def _tree():
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])


def _lead_back(classifier) -> None:
    """Its only split leads to itself."""
    import numpy as np

    tree = classifier.tree_
    state = tree.__getstate__()
    nodes = np.array(state["nodes"])
    nodes["left_child"][0] = 0
    tree.__setstate__({**state, "nodes": nodes})


def _object_array(flag: Path) -> bytes:
    content = io.BytesIO()
    np.save(content, np.array([Bomb(flag)], dtype=object), allow_pickle=True)
    return content.getvalue()


def onnx_model(**changed: object) -> object:
    import onnx

    from apas.models.files.onnx import onnx_bytes

    model = onnx.load_model_from_string(onnx_bytes(NETWORK))
    tensor = next(t for t in model.graph.initializer if t.name == "layer0.weight")
    if "location" in changed:
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in changed.items():
            tensor.external_data.add(key=key, value=str(value))
    return model


def onnx_files(secret: Path) -> dict[str, bytes | Write]:
    import onnx
    from onnx import numpy_helper

    def changed(change: Callable[[object], None]) -> bytes:
        model = onnx_model()
        change(model)
        return model.SerializeToString()

    def outside(name: str, **more: object) -> bytes:
        return onnx_model(location=name, **more).SerializeToString()

    def linked(path: Path) -> None:
        (path.parent / "link.bin").symlink_to(secret)
        path.write_bytes(outside("link.bin"))

    def weights(model, array) -> None:
        kept = [t for t in model.graph.initializer if t.name != "layer0.weight"]
        del model.graph.initializer[:]
        model.graph.initializer.extend([*kept, numpy_helper.from_array(array, "layer0.weight")])

    def huge(model) -> None:
        tensor = next(t for t in model.graph.initializer if t.name == "layer0.weight")
        del tensor.dims[:]
        tensor.dims.extend([10**6, 10**6])

    def unused(model) -> None:
        tensor = model.graph.initializer.add(name="unused", data_type=1, dims=[1])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"../{secret.name}")

    def other(kind: str, domain: str = "") -> Callable[[object], None]:
        def change(model) -> None:
            model.graph.node[1].op_type, model.graph.node[1].domain = kind, domain

        return change

    def beside(name: str, make: Write, **more: object) -> Write:
        def place(path: Path) -> None:
            make(path.parent / name)
            path.write_bytes(outside(name, **more))

        return place

    def nested(path: Path) -> None:
        content = b""
        for _ in range(2000):  # an attribute with a graph with a node with an attribute ..., by hand
            for tag in (b"\x32", b"\x2a", b"\x0a"):
                content = tag + _varint(len(content)) + content
        path.write_bytes(b"\x08\x09\x3a" + _varint(len(content)) + content)

    return {
        "outside, through a pipe": beside("pipe.bin", os.mkfifo),
        "outside, five gigabytes of nothing": beside("big.bin", lambda path: os.truncate(_touched(path), 5 * 10**9)),
        "outside, more than the shape": beside("more.bin", lambda path: path.write_bytes(bytes(10**6))),
        "outside, a folder": beside("inner", Path.mkdir),
        "metadata that are not UTF-8": onnx_model().SerializeToString().replace(b"feedforward", b"\xff" * 11),
        "a key that is not UTF-8": changed(lambda model: setattr(model.metadata_props[0], "key", "apaz")).replace(
            b"apaz", b"\xc3\x28ab"
        ),
        "a name that is not UTF-8": onnx_model().SerializeToString().replace(b"layer0", b"\xed\xa0\x80aaa"),
        "a kind of node that is not UTF-8": onnx_model().SerializeToString().replace(b"Gemm", b"\xffemm"),
        "a layer without weights": changed(lambda model: model.graph.node[0].input.__delitem__(slice(1, None))),
        "a map of nothing": changed(
            lambda model: (
                model.graph.node.add(op_type="ZipMap", output=["map"]),
                setattr(model.graph.output[0], "name", "map"),
            )
        ),
        "escapes in a name": changed(lambda model: setattr(model.graph.node[0], "op_type", "\x1b[31m\n" * 3000)),
        "negative sizes": changed(lambda model: model.graph.initializer[0].dims.__setitem__(0, -1)),
        "sizes that wrap around": changed(lambda model: model.graph.initializer[0].dims.extend([2**32, 2**32])),
        "a number of a million digits": changed(lambda model: setattr(model.metadata_props[0], "value", "9" * 10**6)),
        "nested graphs": nested,
        "outside": outside(f"../{secret.name}"),
        "outside, by backslash": outside(f"..\\{secret.name}"),
        "outside, in a constant that nobody uses": changed(unused),
        "outside, absolute": outside(str(secret)),
        "outside, through a folder": outside(f"folder/../../{secret.name}"),
        "outside, by a link": linked,
        "the folder above": outside(".."),
        "no name": outside(""),
        "a file that is not there": outside("nowhere.bin"),
        "itself": lambda path: path.write_bytes(outside(path.name)),
        "itself, from beyond the end": lambda path: path.write_bytes(outside(path.name, offset=10**12, length=10**12)),
        "itself, a negative part": lambda path: path.write_bytes(outside(path.name, offset=-5, length=10)),
        "an offset that is no number": lambda path: path.write_bytes(outside(path.name, offset="x")),
        "NaN": changed(lambda model: weights(model, np.full((2, 3), np.nan))),
        "wrong shapes": changed(lambda model: weights(model, np.ones((2, 4)))),
        "whole numbers": changed(lambda model: weights(model, np.ones((2, 3), dtype=np.int64))),
        "a shape without numbers": changed(huge),
        "a strange node": changed(other("Loop")),
        "a node of somebody": changed(other("PyOp", "evil")),
        "no nodes": changed(lambda model: model.graph.ClearField("node")),
        "a circle": changed(lambda model: model.graph.node[0].input.__setitem__(0, "output")),
        "too many nodes": changed(lambda model: model.graph.node.extend([model.graph.node[1]] * 20_000)),
        "nested metadata": changed(lambda model: setattr(model.metadata_props[0], "value", "[" * 10**6)),
    }


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def state_record(*tensors: tuple[str, str, int, int, tuple[int, ...], tuple[int, ...]]) -> bytes:
    """The record of a state, written by hand: name, storage, count, offset, shape and strides of each tensor."""

    def text(word: str) -> bytes:
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def number(value: int) -> bytes:
        raw = value.to_bytes(9, "little", signed=True)
        return b"\x8a\x09" + raw

    record = b"\x80\x02}("
    for name, key, count, offset, shape, strides in tensors:
        place = b"(" + text("storage") + b"ctorch\nDoubleStorage\n" + text(key) + text("cpu") + number(count) + b"tQ"
        sizes = b"".join(b"(" + b"".join(map(number, part)) + b"t" for part in (shape, strides))
        record += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + number(offset) + sizes
        record += b"\x89ccollections\nOrderedDict\n)RtR"
    return record + b"u."


def state_file(record: bytes, **storages: bytes) -> bytes:
    members = {"net/data.pkl": record, "net/byteorder": b"little", "net/version": b"3\n"}
    return archive({**members, **{f"net/data/{key}": content for key, content in storages.items()}})


GOOD_STATE = state_file(
    state_record(
        ("0.weight", "a", 6, 0, (3, 2), (2, 1)), ("0.bias", "b", 3, 0, (3,), (1,)),
        ("2.weight", "c", 3, 0, (1, 3), (3, 1)), ("2.bias", "d", 1, 0, (1,), (1,)),
    ),
    a=np.ones(6).tobytes(), b=np.zeros(3).tobytes(), c=np.ones(3).tobytes(), d=np.zeros(1).tobytes(),
)  # fmt: skip


def state_files(flag: Path) -> dict[str, bytes | Write]:
    one = np.ones(1).tobytes()

    def tensor(count: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], data: bytes = one) -> bytes:
        return state_file(state_record(("0.weight", "a", count, offset, shape, strides)), a=data)

    called = f"cos\nsystem\nX{struct.pack('<I', len(f'touch {flag}')).decode()}touch {flag}\x85R.".encode()
    return {
        "os.system": state_file(b"\x80\x02" + called),
        "an instance": state_file(b"\x80\x02(ios\nsystem\n."),
        "by an extension": state_file(b"\x80\x02\x82\x01."),
        "a stack of names": state_file(pickle.dumps(Bomb(flag), protocol=4)),
        "a program": archive({"net/data.pkl": b"\x80\x02}.", "net/constants.pkl": b"\x80\x02).", "net/code/a.py": b""}),
        "more numbers than there are": tensor(10**9, 0, (1, 10**9), (10**9, 1)),
        "a view beyond the end": tensor(1, 0, (1, 2), (1, 1)),
        "a view that repeats": tensor(1, 0, (10**6, 10**6), (0, 0)),
        "a view from beyond the end": tensor(1, 2**61, (1, 1), (1, 1)),
        "a view from before the start": tensor(1, -1, (1, 1), (1, 1)),
        "negative sizes": tensor(1, 0, (-1, -1), (1, 1)),
        "an empty view": tensor(1, 0, (0, 1), (1, 1)),
        "no storage": state_file(state_record(("0.weight", "a", 1, 0, (1, 1), (1, 1)))),
        "a broken number": tensor(1, 0, (1, 1), (1, 1), b"123"),
        "NaN": tensor(2, 0, (1, 2), (2, 1), np.full(2, np.nan).tobytes()),
        "wrong shapes": state_file(state_record(
            ("0.weight", "a", 6, 0, (3, 2), (2, 1)), ("2.weight", "b", 4, 0, (1, 4), (4, 1))),
            a=np.ones(6).tobytes(), b=np.ones(4).tobytes()),
        "tied": state_file(state_record(
            ("0.weight", "a", 4, 0, (2, 2), (2, 1)), ("2.weight", "a", 4, 0, (2, 2), (2, 1))), a=np.ones(4).tobytes()),
        "a record without end": state_file(b"\x80\x02}" + b"(" * 1000),
        "a record of many steps": state_file(b"\x80\x02" + b"N" * 200_000),
        "a record of marks": state_file(b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."),
        "a large record": state_file(b"\x80\x02" + b"N" * 2 * 2**20 + b"."),
        "not a dictionary": state_file(b"\x80\x02N."),
        "a dictionary of numbers": state_file(b"\x80\x02}X\x01\x00\x00\x00aK\x01s."),
        "members of one name": _twice("net/data.pkl", b"\x80\x02}."),
        "members that lead out of the folder": archive({"../data.pkl": b"\x80\x02N.", "../../etc/passwd": b""}),
        "two records": archive({"a/data.pkl": b"\x80\x02}.", "b/data.pkl": b"\x80\x02}."}),
        "a zip bomb": bomb("net/data.pkl", 2**31),
        "a zip bomb that lies": bomb("net/data.pkl", 2**31, said=100),
    }  # fmt: skip
