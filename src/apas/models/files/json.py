"""Dense networks as JSON: one object of what `describe_network` says and the numbers, which come back bit by bit."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from apas.errors import InputError, UnsafeFile
from apas.models.feedforward import FeedForward
from apas.models.files.formats import CONVERT, LoadOptions, build_network, check_description, describe_network

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def json_bytes(network: FeedForward) -> bytes:
    """Give a network as the bytes of a ``.json`` file."""
    described = describe_network(network)
    content = {
        **{key: described.pop(key) for key in ("format", "version", "kind")},
        "weights": [w.tolist() for w in network.weights],
        "biases": [None if b is None else b.tolist() for b in network.given_biases],
        **described,
    }
    return (json.dumps(content, allow_nan=False) + "\n").encode()


def read_json(path: Path, raw: bytes, options: LoadOptions) -> FeedForward:
    """Read the network that `raw`, the bytes of `path`, holds."""
    if raw[:1] == b"\x80" or raw[:2] == b"PK":
        why = f"{path} is not JSON but looks like a pickle or an archive, which could run code when read;"
        raise UnsafeFile(f"{why} {CONVERT}.")
    fields = check_description(parse_json(path, raw), path, arrays=("weights", "biases"))
    return options.confirm(path, build_network(path, fields))


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
