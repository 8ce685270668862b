"""Tables in files: what a table is besides its cells, its cells as JSON values, and back."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

from apas._fields import Fields
from apas._validation import is_frame
from apas.display.numbers import plain
from apas.errors import InputError

#: Kinds of columns that a file may ask for; others are written as texts and read back as such.
KINDS = (
    *("float64", "float32", "float16"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (64, 32, 16, 8)),
    *("bool", "object", "str", "string", "category"),
    *(f"datetime64[{unit}]" for unit in ("ns", "us", "s")),
    *("Int64", "Int32", "Float64", "boolean"),
)
MOST_COLUMNS = 1 << 24  # wider tables are not read, also where there is no row to show how wide they are
_STRANGE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def finite_numbers(rows: Any) -> bool:
    """Whether a table holds finite numbers alone, so that its cells are what JSON has."""
    kinds = [*rows.dtypes] if is_frame(rows) else [rows.dtype]
    if not all(isinstance(kind, np.dtype) and kind.kind in "fiu" for kind in kinds):
        return False
    return bool(rows.shape[1] and np.isfinite(rows.to_numpy() if is_frame(rows) else rows).all())


def described_table(rows: Any) -> dict[str, Any]:
    """What a table is besides its cells."""
    if not is_frame(rows):
        array = np.asarray(rows)
        return {"kind": "array", "columns": int(array.shape[1]), "dtype": _kind(array.dtype)}
    columns = [c if isinstance(c, str) else plain(c) for c in rows.columns]
    return {"kind": "frame", "columns": columns, "dtypes": [_kind(dtype) for dtype in rows.dtypes]}


def table_cells(rows: Any) -> list[list[Any]]:
    """The cells row by row as JSON values; a number that JSON lacks as an object, a missing one as null."""
    rows = rows if is_frame(rows) else np.asarray(rows)
    if finite_numbers(rows):
        cells: list[list[Any]] = (rows.to_numpy(dtype=object) if is_frame(rows) else rows).tolist()
        return cells
    values = rows.to_numpy(dtype=object) if is_frame(rows) else np.asarray(rows)
    return [[_cell(cell) for cell in row] for row in values.tolist()]


def table_digest(rows: Any) -> str:
    """SHA-256 of the cells, by which two tables can be told apart."""
    return hashlib.sha256(json.dumps(table_cells(rows), allow_nan=False).encode()).hexdigest()


class CellBlocks:
    """The cells of a table as blocks of them are read; `about` says what the table is, None that there is none."""

    def __init__(self, about: Fields | None, where: str) -> None:
        self.about, self.where, self.parts = about, where, list[Any]()
        kinds = [] if about is None else [about.content.get("dtype"), *(about.content.get("dtypes") or ())]
        self.floats = {str(kind) for kind in kinds} <= {"float64", "None"}

    def add(self, rows: list[Any]) -> None:
        """Take the cells of more rows."""
        if self.about is None:
            if any(cells is not None for cells in rows):
                raise InputError("inputs must describe the table of the original rows, since there are some.")
            return
        try:  # numbers take a third of the memory as an array
            array = np.array(rows) if self.floats else np.empty(0)
        except ValueError:
            array = np.empty(0)
        self.parts.append(array.astype(np.float64) if array.ndim == 2 and array.dtype.kind in "fi" else rows)

    def table(self) -> Any:
        """The table, as an array or a data frame."""
        if self.about is None:
            return None
        columns = self.about.content.get("columns")
        width = len(columns) if isinstance(columns, list) else columns
        if self.parts and all(isinstance(part, np.ndarray) and part.shape[1] == width for part in self.parts):
            empty = read_table(self.about, [], self.where)
            values = np.concatenate(self.parts)
            return type(empty)(values, columns=empty.columns) if is_frame(empty) else values
        rows = [row for part in self.parts for row in (part.tolist() if isinstance(part, np.ndarray) else part)]
        return read_table(self.about, rows, self.where)


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
    cells = list(row)
    for i, cell in enumerate(row):
        if isinstance(cell, dict) and cell.keys() == {"number"} and str(cell["number"]) in _STRANGE:
            cells[i] = _STRANGE[str(cell["number"])]
        elif isinstance(cell, dict | list):
            raise InputError(f"{where} must hold numbers, texts, truth values or null.")
    return cells


def _cast(make: Any, where: str) -> Any:
    try:
        return make()
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where} must hold cells of the dtype that the file states ({error}).") from None
