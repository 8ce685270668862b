"""Rows in the user's units as JSON: cells of every kind, and what is needed to make the same table of them again."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

from apas._validation import is_frame
from apas.contracts.fields import Fields
from apas.display.values import plain
from apas.errors import InputError

__all__ = ["described_table", "read_table", "table_cells", "table_digest"]

#: Kinds of columns that a file may ask for; others are written as texts and read back as such.
KINDS = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
    "object", "str", "string", "category", "datetime64[ns]", "datetime64[us]", "datetime64[s]", "Int64", "Int32",
    "Float64", "boolean",
)  # fmt: skip
#: Wider tables are not read, also where there is no row to show how wide they are.
MOST_COLUMNS = 1 << 24
_STRANGE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def described_table(rows: Any) -> dict[str, Any]:
    """What a table is besides its cells.

    Examples
    --------
    >>> described_table(np.array([[1.0, 2.0]]))
    {'kind': 'array', 'columns': 2, 'dtype': 'float64'}
    """
    if not is_frame(rows):
        array = np.asarray(rows)
        return {"kind": "array", "columns": int(array.shape[1]), "dtype": _kind(array.dtype)}
    columns = [c if isinstance(c, str) else plain(c) for c in rows.columns]
    return {"kind": "frame", "columns": columns, "dtypes": [_kind(dtype) for dtype in rows.dtypes]}


def table_cells(rows: Any) -> list[list[Any]]:
    """The cells row by row as JSON values; a number that JSON lacks as an object, a missing one as null.

    Examples
    --------
    >>> table_cells(np.array([[0.1, float("nan")]]))
    [[0.1, {'number': 'nan'}]]
    """
    values = rows.to_numpy(dtype=object) if is_frame(rows) else np.asarray(rows)
    return [[_cell(cell) for cell in row] for row in values.tolist()]


def table_digest(rows: Any) -> str:
    """SHA-256 of the cells, by which two tables can be told apart.

    Examples
    --------
    >>> table_digest(np.array([[0.1]])) == table_digest(np.array([[0.2]]))
    False
    """
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
