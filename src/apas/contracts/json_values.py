"""JSON of certificate files: limits, fields that are checked when taken, and tables of any cells."""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apas._validation import is_frame
from apas.display.numbers import plain
from apas.errors import InputError, UnsafeFile
from apas.models.files.json import parse_json

#: Larger files are refused before they are read; a thousand certificates take one or two million bytes.
MOST_BYTES = 1 << 28


def read_object(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """The object that a file holds."""
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
    """The content as JSON, one certificate per line: strict, and every float with all the digits that it needs."""
    parts = []
    for key, value in content.items():
        if key == "certificates" and value:
            lines = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
            parts.append(f' "{key}": [\n  {lines}\n ]')
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def content_digest(content: dict[str, Any]) -> str:
    """SHA-256 of all but the field `digest`: keys sorted, no spaces, ASCII."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


_SHA256 = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Fields:
    """An object of a file and where it stands."""

    content: dict[str, Any]
    where: str = ""

    @classmethod
    def of(cls, value: Any, where: str) -> Fields:
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

    def only(self, *known: str) -> Fields:
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

    def text(self, key: str) -> str:
        """A text."""
        value = self.content.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def digest(self, key: str) -> str:
        """A SHA-256 in lower-case hexadecimal digits."""
        value = self.content.get(key)
        if not isinstance(value, str) or len(value) != 64 or not _SHA256.issuperset(value):
            raise self.wrong(key, "a SHA-256 in hexadecimal digits")
        return value

    def entropy(self, key: str) -> int:
        """An integer of any size as hexadecimal text, which begins with 0x."""
        value = self.content.get(key)
        good = isinstance(value, str) and 2 < len(value) <= 1026 and value.startswith("0x")
        if not good or not _SHA256.issuperset(str(value)[2:]):
            raise self.wrong(key, "an integer as hexadecimal text")
        return int(str(value), 16)

    def choice(self, key: str, *known: str) -> str:
        """One of several words."""
        value = self.content.get(key)
        if value not in known or not isinstance(value, str):
            raise self.wrong(key, f"one of {', '.join(map(repr, known))}")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.content.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
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

    def items(self, key: str) -> list[Any]:
        """A list."""
        value = self.content.get(key)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def inner(self, key: str) -> Fields:
        """An object."""
        if not isinstance(self.content.get(key), dict):
            raise self.wrong(key, "an object")
        return Fields(self.content[key], self.name(key))


def as_number(value: Any) -> float | None:
    """A JSON number as a float; None for anything else, and for integers beyond floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


#: Kinds of columns that a file may ask for; others are written as texts and read back as such.
KINDS = (
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
    "object",
    "str",
    "string",
    "category",
    "datetime64[ns]",
    "datetime64[us]",
    "datetime64[s]",
    "Int64",
    "Int32",
    "Float64",
    "boolean",
)
#: Wider tables are not read, also where there is no row to show how wide they are.
MOST_COLUMNS = 1 << 24
_STRANGE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def described_table(rows: Any) -> dict[str, Any]:
    """What a table is besides its cells."""
    if not is_frame(rows):
        array = np.asarray(rows)
        return {"kind": "array", "columns": int(array.shape[1]), "dtype": _kind(array.dtype)}
    columns = [c if isinstance(c, str) else plain(c) for c in rows.columns]
    return {"kind": "frame", "columns": columns, "dtypes": [_kind(dtype) for dtype in rows.dtypes]}


def table_cells(rows: Any) -> list[list[Any]]:
    """The cells row by row as JSON values; a number that JSON lacks as an object, a missing one as null."""
    values = rows.to_numpy(dtype=object) if is_frame(rows) else np.asarray(rows)
    return [[_cell(cell) for cell in row] for row in values.tolist()]


def table_digest(rows: Any) -> str:
    """SHA-256 of the cells, by which two tables can be told apart."""
    return hashlib.sha256(json.dumps(table_cells(rows), allow_nan=False).encode()).hexdigest()


def read_table(about: Fields, cells: list[list[Any]], where: str) -> Any:
    """The table that was described, as an array or a data frame."""
    if about.choice("kind", "array", "frame") == "array":
        width = about.only("kind", "columns", "dtype").integer("columns")
        dtype = about.choice("dtype", *KINDS)
        if width > MOST_COLUMNS:
            raise about.wrong("columns", f"an integer up to {MOST_COLUMNS}")
        rows = [_read_row(row, width, where.format(i)) for i, row in enumerate(cells)]
        table = np.empty((len(rows), width), dtype=object)  # now that the rows are known to be as wide as they say
        for i, row in enumerate(rows):
            table[i] = row
        numpy_kind = dtype if dtype not in ("string", "category") else "object"
        return _cast(lambda: table.astype(numpy_kind), where.format(0))
    import pandas as pd

    names = about.only("kind", "columns", "dtypes").items("columns")
    kinds = [Fields({"dtype": d}, about.name("dtypes")).choice("dtype", *KINDS) for d in about.items("dtypes")]
    if len(kinds) != len(names) or not all(isinstance(n, str | int | float) for n in names):
        raise InputError(f"{about.where} must have a name and a dtype per column.")
    rows = [_read_row(row, len(names), where.format(i)) for i, row in enumerate(cells)]
    columns = [
        _cast(lambda c=c, d=d: pd.Series([row[c] for row in rows], dtype=d), f"column {names[c]!r}")
        for c, d in enumerate(kinds)
    ]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(len(rows)))
    return frame.set_axis(names, axis=1)


def _kind(dtype: Any) -> str:
    name = str(dtype)
    return name if name in KINDS else "object"


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    found = plain(value)
    return _cell(found) if isinstance(found, float) and not math.isfinite(found) else found


def _read_row(row: Any, width: int, where: str) -> list[Any]:
    if not isinstance(row, list) or len(row) != width:
        raise InputError(f"{where} must be a list of {width} cells.")
    return [_read_cell(cell, where) for cell in row]


def _read_cell(cell: Any, where: str) -> Any:
    if isinstance(cell, dict) and cell.keys() == {"number"} and str(cell["number"]) in _STRANGE:
        return _STRANGE[str(cell["number"])]
    if isinstance(cell, dict | list):
        raise InputError(f"{where} must hold numbers, texts, truth values or null.")
    return cell


def _cast(make: Any, where: str) -> Any:
    try:
        return make()
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where} must hold cells of the dtype that the file states ({error}).") from None
