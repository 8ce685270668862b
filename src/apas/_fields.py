"""JSON of files: each field is checked when it is taken, and a kind of object says which class reads it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

from apas.errors import InputError

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_Kind = TypeVar("_Kind")


def parse_json(path: Path, raw: bytes, what: str = "", *, finite: bool = False) -> Any:
    """Decode JSON in which no key occurs twice, or say in one sentence why it is none."""
    try:
        numbers: dict[str, Any] = {"parse_constant": _not_json, "parse_float": _finite} if finite else {}
        content = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_once, **numbers)
        if _HALF.search(raw):  # half a character without its other half can be neither printed nor stored
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except (ValueError, RecursionError) as error:  # ValueError: bad encoding, bad JSON, numbers of too many digits
        first = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{what}{path} is not valid JSON: {first}.") from None


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is beyond floats")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys occur once: readers differ on which of two to believe."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        first = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {first[:40]!r} occurs twice in an object")
    return found


def _typed(kind: type[_Kind], wanted: str, pattern: str = "") -> Callable[[Fields, str], _Kind]:
    def take(self: Fields, key: str) -> _Kind:
        value = self.content.get(key)
        if not isinstance(value, kind) or (isinstance(value, str) and pattern and not re.fullmatch(pattern, value)):
            raise self.wrong(key, wanted)
        return value

    return take


@dataclass(frozen=True)
class Fields:
    """An object of a file and where it stands."""

    content: dict[str, Any]
    where: str = ""

    @classmethod
    def of(cls, value: Any, where: str) -> Self:
        """Refuse what is no object."""
        if not isinstance(value, dict):
            raise InputError(f"{where} must be an object, got {reprlib.repr(value)}.")
        return cls(value, where)

    def name(self, key: str) -> str:
        """Where a field stands."""
        return f"{self.where}.{key}" if self.where else key

    def wrong(self, key: str, wanted: str) -> InputError:
        """The error about a field."""
        if key not in self.content:
            return InputError(f"{self.name(key)} must be {wanted}, but there is no such field.")
        return InputError(f"{self.name(key)} must be {wanted}, got {reprlib.repr(self.content[key])}.")

    def only(self, *known: str) -> Self:
        """Refuse fields that nobody would look at."""
        strange = sorted(set(self.content) - set(known))
        if strange:
            raise InputError(f"{self.name(reprlib.repr(strange[0])[1:-1])} is a field that this version does not know.")
        return self

    def any(self, key: str) -> Any:
        """A field of any kind, which must be there."""
        if key not in self.content:
            raise self.wrong(key, "given")
        return self.content[key]

    def is_null(self, key: str) -> bool:
        """Whether a field is there and null."""
        return self.any(key) is None

    text = _typed(str, "a text")
    flag = _typed(bool, "true or false")
    items = _typed(list, "a list")
    object = _typed(dict, "an object")
    digest = _typed(str, "a SHA-256 in hexadecimal digits", "[0-9a-f]{64}")
    _hexadecimal = _typed(str, "an integer as hexadecimal text", "0x[0-9a-f]{1,1024}")

    def digests(self, key: str) -> tuple[str, ...]:
        """Several of them."""
        return tuple(Fields({key: value}, self.where).digest(key) for value in self.items(key))

    def entropy(self, key: str) -> int:
        """An integer of any size as hexadecimal text, which begins with 0x."""
        return int(self._hexadecimal(key), 16)

    def choice(self, key: str, *known: str) -> str:
        """One of several words."""
        value = self.content.get(key)
        if value not in known or not isinstance(value, str):
            raise self.wrong(key, f"one of {', '.join(map(repr, known))}")
        return value

    def integer(self, key: str, least: int = 0) -> int:
        """An integer of at least `least`."""
        value = self.content.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
            raise self.wrong(key, f"an integer of at least {least}")
        return value

    def number(self, key: str, above: float = -math.inf) -> float:
        """A finite number above `above`."""
        found = as_number(self.content.get(key))
        if found is None or not found > above:
            raise self.wrong(key, "a finite number" if above == -math.inf else f"a finite number above {above:g}")
        return found

    def inner(self, key: str) -> Self:
        """An object."""
        return type(self)(self.object(key), self.name(key))

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        found = [as_number(value) for value in self.items(key)]
        if None in found:
            raise self.wrong(key, "a list of finite numbers")
        return found  # type: ignore[return-value]

    def label(self, key: str) -> Any:
        """A class label: a number, a text or a truth value."""
        value = self.any(key)
        if not isinstance(value, str | bool) and as_number(value) is None:
            raise self.wrong(key, "a class label, a number or a text")
        return value


def as_number(value: Any) -> float | None:
    """A JSON number as a float; None for anything else, and for integers beyond floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def as_json(value: Any) -> Any:
    """A setting as JSON has it: arrays and tuples as lists, keys as texts, an object in its own words."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): as_json(part) for key, part in value.items()}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value.tolist() if hasattr(value, "tolist") else value


class Saved:
    """What files hold as its kind and the fields that it is made of."""

    def to_dict(self: Any) -> dict[str, Any]:
        """Everything needed to build it again, as JSON values: its kind, and its fields in their order."""
        return {"kind": self.kind} | {f.name: as_json(getattr(self, f.name)) for f in fields(self) if f.init}


class EqualByContent(Saved):
    """What is equal to another of its class if it says the same about itself in a file."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return int(hashlib.sha256(repr(self.to_dict()).encode()).hexdigest()[:15], 16)


class Kinds:
    """Classes whose objects files may hold, by the `kind` that their `to_dict` writes; imported when they are met."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def __getitem__(self, kind: str) -> Any:
        module, _, name = self.places[kind].rpartition(".")
        return getattr(import_module(module), name)

    def know(self, value: object) -> bool:
        """Whether a reader of a file would know what such an object is."""
        kind = getattr(value, "kind", None)
        return isinstance(kind, str) and kind in self.places and isinstance(value, self[kind])

    def read(self, about: Fields, *more: Any) -> Any:
        """The object that a file describes, made by `from_dict` of its class."""
        return self[about.choice("kind", *self.places)].from_dict(about, *more)
