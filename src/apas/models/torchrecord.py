"""The record inside a file of `torch.save`, read as data.

The record is a program for Python's unpickler, which could call anything. Here the few instructions that a state of
tensors needs are followed by hand: they make tuples, dictionaries and descriptions of tensors, and call nothing.
"""

from __future__ import annotations

import pickletools  # it takes a pickle apart and never runs it
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apas.errors import InputError, UnsafeFile
from apas.models.description import CONVERT

__all__ = ["Tensor", "read_record"]

#: Most bytes of a record: enough for a thousand layers.
RECORD = 2**18
STORAGES = tuple(
    f"{kind}Storage" for kind in ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
)
DICTIONARY, TENSOR, PARAMETER = (
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
)
KNOWN = {DICTIONARY, TENSOR, PARAMETER, *(f"torch {name}" for name in STORAGES)}
_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK}
_VALUES = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "BINFLOAT", "SHORT_BINUNICODE")


@dataclass(frozen=True)
class Global:
    """A name that the record would import."""

    name: str


@dataclass(frozen=True)
class Storage:
    """Where the numbers of a tensor are."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True)
class Tensor:
    """A tensor as the record describes it: a view of `count` numbers that are kept under `key`."""

    key: str
    dtype: str
    count: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_record(path: Path, members: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes], str]:
    """What a file of `torch.save` holds: the dictionary, the numbers by key, and ``"<"`` or ``">"``."""
    folders = [name.removesuffix("data.pkl") for name in members if name.split("/")[1:] == ["data.pkl"]]
    if len(folders) != 1:
        raise InputError(f"{path} is an archive, but not one of torch.save: it has no data.pkl.")
    if any(name.startswith(f"{folders[0]}code/") or name == f"{folders[0]}constants.pkl" for name in members):
        raise UnsafeFile(f"{path} is a TorchScript program, which could run code when read; {CONVERT}.")
    record = members[f"{folders[0]}data.pkl"]
    if len(record) > RECORD:
        raise InputError(f"{path} has a record of {len(record)} bytes, more than the {RECORD} that apas reads.")
    try:
        state = _Reader(path).follow(record)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError | UnsafeFile):
            raise
        raise InputError(f"{path} has a damaged record, which cannot be followed.") from None
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise InputError(
            f"{path} must hold a dictionary of tensors by name, but holds another thing; write it with "
            "torch.save(module.state_dict(), path)."
        )
    prefix = f"{folders[0]}data/"
    storages = {name.removeprefix(prefix): content for name, content in members.items() if name.startswith(prefix)}
    order = members.get(f"{folders[0]}byteorder", b"little")
    return state, storages, ">" if order.strip() == b"big" else "<"


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def follow(self, record: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(record):
            if opcode.name == "STOP":
                (result,) = self._stack
                return result
            self._step(opcode.name, argument)
        raise ValueError("no end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            stack.append(argument)
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            self._import(argument)
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            parts = self._since_mark() if name == "TUPLE" else [stack.pop() for _ in range(int(name[-1]))][::-1]
            stack.append(tuple(parts))
        elif name in ("SETITEM", "SETITEMS"):
            parts = self._since_mark() if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1]
            stack[-1].update(zip(parts[::2], parts[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            parts = self._since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(parts)
        elif name == "BUILD":  # what a module notes about versions of its layers
            stack.pop()
            if type(stack[-1]) is not dict:
                raise ValueError("state of something else")
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_made(function.name, arguments))
        elif name != "PROTO":
            raise UnsafeFile(
                f"{self._path} could run code when read (its record has the instruction {name}), so apas does not; a "
                f"file of torch.save(module.state_dict(), path) has nothing of the kind; or {CONVERT}."
            )

    def _since_mark(self) -> list[Any]:
        parts = []
        while (value := self._stack.pop()) is not _MARK:
            parts.append(value)
        return parts[::-1]

    def _import(self, name: str) -> None:
        if name not in KNOWN:
            raise UnsafeFile(
                f"{self._path} could run code when read (it names {name.replace(' ', '.')}), so apas does not; a file "
                f"of torch.save(module.state_dict(), path) names nothing of the kind; or {CONVERT}."
            )
        self._stack.append(Global(name))


def _storage(description: Any) -> Storage:
    word, kind, key, _, count = description
    if word != "storage" or not isinstance(key, str) or type(count) is not int or not isinstance(kind, Global):
        raise ValueError("not a storage")
    return Storage(key, kind.name.removeprefix("torch "), count)


def _made(name: str, arguments: Any) -> Any:
    """What the call would give, as data."""
    if name == DICTIONARY:
        return dict(*arguments)
    if name == PARAMETER and isinstance(arguments[0], Tensor):
        return arguments[0]
    if name != TENSOR:
        raise ValueError("not a call")
    storage, offset, shape, strides = arguments[:4]
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or len(shape) != len(strides):
        raise ValueError("not a tensor")
    if any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
        raise ValueError("not a view")
    return Tensor(storage.key, storage.dtype, storage.count, offset, tuple(shape), tuple(strides))
