"""Dense networks from named tensors: the state of a PyTorch module, and `.safetensors`, read as data.

The record of a state is a program for Python's unpickler, which could call anything. Here the few instructions that
tensors need are followed by hand: they make tuples, dictionaries and descriptions of tensors, and call nothing.
"""

import json
import pickletools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apas._fields import parse_json
from apas._lazy import require
from apas._typing import Array, Floats
from apas.errors import InputError, UnsafeFile, Unsupported
from apas.models.feedforward import FeedForward
from apas.models.files import formats

RECORD = 2**18  # most bytes of a record: enough for a thousand layers
STORAGES = tuple(
    f"{kind}Storage" for kind in ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
)
DICTIONARY = "collections OrderedDict"
TENSOR, PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
KNOWN = {DICTIONARY, TENSOR, PARAMETER, *(f"torch {name}" for name in STORAGES)}
_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK}
_VALUES = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "BINFLOAT", "SHORT_BINUNICODE")


class Global(str):
    """A name that the record would import."""


@dataclass(frozen=True)
class Storage:
    """Where the numbers of a tensor are, and how many."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True)
class Tensor(Storage):
    """A tensor as the record describes it: a view of numbers that are kept."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_record(path: Path, members: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes], str]:
    """What a file of `torch.save` holds: the dictionary, the numbers by key, and ``"<"`` or ``">"``."""
    folders = [name.removesuffix("data.pkl") for name in members if name.split("/")[1:] == ["data.pkl"]]
    if len(folders) != 1:
        raise InputError(f"{path} is an archive, but not one of torch.save: it has no data.pkl.")
    if any(name.startswith(f"{folders[0]}code/") or name == f"{folders[0]}constants.pkl" for name in members):
        raise UnsafeFile(f"{path} is a TorchScript program, which could run code when read; {formats.CONVERT}.")
    record = members[f"{folders[0]}data.pkl"]
    if len(record) > RECORD:
        raise InputError(f"{path} has a record of {len(record)} bytes, more than the {RECORD} that apas reads.")
    try:
        state = _follow(path, record)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError | UnsafeFile):
            raise
        raise InputError(f"{path} has a damaged record, which cannot be followed.") from None
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        must = f"{path} must hold a dictionary of tensors by name, but holds another thing;"
        raise InputError(f"{must} write it with torch.save(module.state_dict(), path).")
    prefix = f"{folders[0]}data/"
    storages = {name.removeprefix(prefix): content for name, content in members.items() if name.startswith(prefix)}
    return state, storages, ">" if members.get(f"{folders[0]}byteorder", b"little").strip() == b"big" else "<"


def _follow(path: Path, record: bytes) -> Any:
    """What the instructions of a record make of tuples, dictionaries and descriptions of tensors."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    steps: Any = pickletools.genops(record)

    def since_mark() -> list[Any]:
        parts = []
        while (value := stack.pop()) is not _MARK:
            parts.append(value)
        return parts[::-1]

    for opcode, argument, _ in steps:
        name = opcode.name
        if name == "STOP":
            (result,) = stack
            return result
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            stack.append(argument)
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            if argument not in KNOWN:
                raise UnsafeFile(
                    f"{path} could run code when read (it names {argument.replace(' ', '.')}), so apas does not; "
                    f"a file of torch.save(module.state_dict(), path) names nothing of the kind; or {formats.CONVERT}."
                )
            stack.append(Global(argument))
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            parts = since_mark() if name == "TUPLE" else [stack.pop() for _ in range(int(name[-1]))][::-1]
            stack.append(tuple(parts))
        elif name in ("SETITEM", "SETITEMS"):
            parts = since_mark() if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1]
            stack[-1].update(zip(parts[::2], parts[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            parts = since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(parts)
        elif name == "BUILD":  # what a module notes about versions of its layers
            stack.pop()
            if type(stack[-1]) is not dict:
                raise ValueError("state of something else")
        elif name == "BINPERSID":
            word, kind, key, _, count = stack.pop()
            if word != "storage" or not isinstance(key, str) or type(count) is not int or not isinstance(kind, Global):
                raise ValueError("not a storage")
            stack.append(Storage(key, kind.removeprefix("torch "), count))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_call_result(function, arguments))
        elif name != "PROTO":
            raise UnsafeFile(
                f"{path} could run code when read (its record has the instruction {name}), so apas does not; a "
                f"file of torch.save(module.state_dict(), path) has nothing of the kind; or {formats.CONVERT}."
            )
    raise ValueError("no end")


def _call_result(name: str, arguments: Any) -> Any:
    if not isinstance(name, Global):
        raise ValueError("not a function")
    if name == DICTIONARY:
        return dict(*arguments)
    if name == PARAMETER and isinstance(arguments[0], Tensor):
        return arguments[0]
    if name != TENSOR:
        raise ValueError("not a call")
    storage, offset, shape, strides = arguments[:4]
    numbers = (offset, *shape, *strides)
    if type(storage) is not Storage or len(shape) != len(strides):
        raise ValueError("not a tensor")
    if any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
        raise ValueError("not a view")
    return Tensor(storage.key, storage.dtype, storage.count, offset, tuple(shape), tuple(strides))


ALONE = "write the state alone, by torch.save(module.state_dict(), path)"
#: Numbers of these storages; bfloat16 is the upper half of a float32.
DTYPES = {"DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "u2"}


def read_state(path: Path, raw: bytes, options: formats.LoadOptions) -> FeedForward:
    """Read a ``.pt`` file that ``torch.save(module.state_dict(), path)`` wrote, without PyTorch and without pickle."""
    # Layers are taken in the order in which the module registered them.
    if raw[:4] != b"PK\x03\x04":
        said = f"{path} is not a file of torch.save (or of a version before 1.6, which could run code when read);"
        raise InputError(f"{said} {ALONE}.")
    state, storages, order = read_record(path, formats.read_archive(path, raw))
    arrays = {name: _array(path, name, value, storages, order) for name, value in state.items()}
    owners: dict[str, str] = {}
    for name, value in state.items():
        if owners.setdefault(value.key, name) != name:
            why = f"{path} holds {owners[value.key]!r} and {name!r} in the same memory:"
            raise Unsupported(f"{why} tied parameters move together, which a dense network cannot do.")
    return options.network(path, *state_layers(path, arrays, ordered=True), dtype=state_dtype(arrays))


def _array(path: Path, name: str, value: Any, storages: Mapping[str, bytes], order: str) -> Array:
    if not isinstance(value, Tensor):
        raise InputError(f"{path} must hold tensors only, but {name!r} is {type(value).__name__}; {ALONE}.")
    if value.dtype not in DTYPES:
        raise InputError(
            f"{path} must hold floating point parameters of dense layers, but {name!r} is a {value.dtype} (batch norms "
            "count in whole numbers, for example): such layers have no place in a dense network."
        )
    if value.key not in storages:
        raise InputError(f"{path} lacks the numbers of {name!r}; it is damaged.")
    content, kind = storages[value.key], np.dtype(f"{order}{DTYPES[value.dtype]}")
    if len(content) != value.count * kind.itemsize:
        must = f"{path} must have {value.count} numbers for {name!r}, but has {len(content)} bytes;"
        raise InputError(f"{must} it is damaged.")
    flat = np.frombuffer(content, dtype=kind)
    if value.dtype == "BFloat16Storage":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    # a view that repeats numbers, or reaches beyond them, is nothing that a trained layer has
    reach = sum((n - 1) * step for n, step in zip(value.shape, value.strides, strict=True))
    if np.prod(value.shape, dtype=object) > flat.size or value.offset + reach >= flat.size or 0 in value.shape:
        must = f"{path} must have different numbers of shape {value.shape} for {name!r}, but has not;"
        raise InputError(f"{must} it is damaged.")
    strides = tuple(step * flat.itemsize for step in value.strides)
    return np.lib.stride_tricks.as_strided(flat[value.offset :], value.shape, strides, writeable=False).copy()


def state_dtype(arrays: Mapping[str, Array]) -> str:
    """In which arithmetic a module with this state computes; narrower numbers are taken to be widened to float32."""
    return "float32" if any(array.dtype.itemsize < 8 for array in arrays.values()) else "float64"


def state_layers(path: Path, arrays: Mapping[str, Array], *, ordered: bool) -> tuple[list[Floats], list[Floats | None]]:
    """Weights (inputs, outputs) and biases of the linear layers whose state this is."""
    layers: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        layer, _, kind = name.rpartition(".")
        if array.ndim != {"weight": 2, "bias": 1}.get(kind):
            must = f"{path} must hold weights and biases of linear layers only, but {name!r} has shape {array.shape};"
            raise InputError(f"{must} other layers have no place in a dense network.")
        layers.setdefault(layer, {})[kind] = array
    if not layers:
        raise InputError(f"{path} holds no parameters; {ALONE}.")
    lonely = [layer for layer, parts in layers.items() if "weight" not in parts]
    if lonely:
        raise InputError(f"{path} must hold the weights of each layer, but {lonely[0]!r} has only biases.")
    names = list(layers) if ordered else sorted(layers, key=lambda name: _number(path, name, list(layers)))
    weights = [np.asarray(layers[name]["weight"], dtype=np.float64).T for name in names]
    biases = [layers[name].get("bias") for name in names]
    for before, after, first, second in zip(names, names[1:], weights, weights[1:], strict=False):
        if first.shape[1] != len(second):
            must = f"{path} must hold layers that follow each other, but {before!r} gives {first.shape[1]} numbers"
            raise InputError(f"{must} and {after!r} takes {len(second)}; are they in the order of the network?")
    return weights, [None if b is None else np.asarray(b, dtype=np.float64) for b in biases]


def _number(path: Path, name: str, names: list[str]) -> int:
    """The place that the name of a layer counts; all names must be alike but for one number."""
    patterns = {re.sub(r"\d+(?=\D*$)", "#", other) for other in names}
    if len(names) > 1 and (len(patterns) > 1 or "#" not in next(iter(patterns))):
        raise InputError(
            f"{path} does not keep the order of layers, so their names must count them, as 0, 2, 4 or fc1, fc2 do, but "
            f"they are {', '.join(map(repr, sorted(names)[:5]))}; write it with apas.save_model."
        )
    found = re.findall(r"\d+", name)
    return int(found[-1]) if found else 0


HEADER = 2**22  # largest header in bytes
KEY = "apas"  # of what the numbers mean, as a ``.json`` file has it; a file without is the state of a PyTorch module


def safetensors_bytes(network: FeedForward) -> bytes:
    """Give a network as the bytes of a ``.safetensors`` file."""
    library = require("safetensors.numpy", feature="a .safetensors file", extra="safetensors")
    tensors = {}
    for i, (weight, bias) in enumerate(zip(network.weights, network.given_biases, strict=True)):
        tensors[f"layer{i}.weight"] = weight
        if bias is not None:
            tensors[f"layer{i}.bias"] = bias
    content: bytes = library.save(tensors, {KEY: json.dumps(formats.describe_network(network), allow_nan=False)})
    size = int.from_bytes(content[:8], "little")
    if size > HEADER:
        why = f"the header of a .safetensors file may have {HEADER} bytes, but classes and feature names need {size};"
        raise InputError(f"{why} write a .json file.")
    return content


def read_safetensors(path: Path, raw: bytes, options: formats.LoadOptions) -> FeedForward:
    """Read the network that `raw`, the bytes of `path`, holds."""
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or not 2 <= size <= len(raw) - 8:
        why = f"{path} is not a whole .safetensors file: its header is said to have {size} bytes,"
        raise InputError(f"{why} but {len(raw)} is all that the file has.")
    if size > HEADER:
        raise InputError(f"{path} has a header of {size} bytes, more than the {HEADER} that apas reads.")
    header = parse_json(path, raw[8 : 8 + size], "the header of ")
    if not isinstance(header, dict):
        raise InputError(f"{path} is not a .safetensors file: its header is not a JSON object.")
    said, arrays = header.get("__metadata__"), _arrays(path, raw)
    if not isinstance(said, dict) or KEY not in said:
        weights, biases = state_layers(path, arrays, ordered=False)
        return options.network(path, weights, biases, dtype=state_dtype(arrays))
    fields = formats.check_description(parse_json(path, str(said[KEY]).encode(), "the metadata of "), path)
    count = sum(name.endswith(".weight") for name in arrays)
    known = [f"layer{i}.{kind}" for i in range(count) for kind in ("weight", "bias")]
    strange = sorted(set(arrays) - set(known))
    missing = [name for name in known[::2] if name not in arrays]
    if strange or missing or not count:
        wrong = f"has {strange[0]!r}" if strange else "has no 'layer0.weight'" if not count else f"lacks {missing[0]!r}"
        raise InputError(f"{path} must have tensors called layer0.weight, layer0.bias and so on, but {wrong}.")
    weights, biases = [arrays[name] for name in known[::2]], [arrays.get(name) for name in known[1::2]]
    return options.confirm(path, formats.build_network(path, {"weights": weights, "biases": biases, **fields}))


def _arrays(path: Path, raw: bytes) -> dict[str, Array]:
    library = require("safetensors.numpy", feature="a .safetensors file", extra="safetensors")
    error_type = require("safetensors", feature="a .safetensors file", extra="safetensors").SafetensorError
    try:
        arrays: dict[str, Array] = library.load(raw)
    except (*formats.BROKEN, error_type) as error:
        raise InputError(f"{path} is not a whole .safetensors file: {formats.first_line(error)}") from None
    for name, array in arrays.items():
        if array.dtype not in (np.float16, np.float32, np.float64):
            raise InputError(f"{path} must hold floating point numbers, but {name!r} holds {array.dtype}.")
    return arrays
