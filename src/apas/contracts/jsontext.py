"""The JSON of certificate files: read within limits, written so that numbers come back bit by bit."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from apas.errors import InputError, UnsafeFile
from apas.models.jsonfile import parse_json

__all__ = ["content_digest", "read_object", "written"]

#: Larger files are refused before they are read; a thousand certificates take one or two million bytes.
MOST_BYTES = 1 << 28


def read_object(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """The object that a file holds.

    Parameters
    ----------
    path : path
    what : str
        What the file should be, as printed in errors: "certificate file".
    """
    try:
        file = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a {what}, got {type(path).__name__}.") from None
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # before it is opened, as a pipe would keep us waiting
            raise InputError(f"{file} cannot be read: it is not a plain file.")
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # a zero byte in the name
        if isinstance(error, InputError):
            raise
        raise InputError(f"`path` must be the name of a {what}, got {str(file)!r}: {error}.") from None
    if len(raw) > MOST_BYTES:
        raise InputError(f"{file} is larger than a {what} may be ({MOST_BYTES} bytes); keep fewer rows in a file.")
    if raw[:1] == b"\x80" or raw[:2] == b"PK":
        raise UnsafeFile(f"{file} is not JSON but looks like a pickle or an archive, which could run code when read.")
    try:
        content = parse_json(file, raw, finite=True)
    except MemoryError:
        raise InputError(f"{file} needs more memory than there is; keep fewer rows in a file.") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} is not a {what}: it must hold an object, got {type(content).__name__}.")
    return content


def written(content: Any) -> str:
    """The content as JSON, one certificate per line: strict, and every float with all the digits that it needs.

    Examples
    --------
    >>> print(written({"a": 1, "certificates": [{"b": 0.1}, {"b": None}]}), end="")
    {
     "a": 1,
     "certificates": [
      {"b": 0.1},
      {"b": null}
     ]
    }
    """
    parts = []
    for key, value in content.items():
        if key == "certificates" and value:
            lines = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
            parts.append(f' "{key}": [\n  {lines}\n ]')
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def content_digest(content: dict[str, Any]) -> str:
    """SHA-256 of all but the field `digest`: keys sorted, no spaces, ASCII.

    Examples
    --------
    >>> content_digest({"b": 1, "a": 0.5, "digest": "x"}) == content_digest({"a": 0.5, "b": 1})
    True
    """
    rest = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
