"""Tables in files, their rows as lines of text, written and read in blocks; and such lines as a Parquet file.

What makes it fast: the numbers of a block are written and read in one call, and what many rows say alike (nearly always
their certificate) once. Read lines count only if writing their numbers again gives the same text, so that the digest of
a file can be taken of the text. Whatever is unusual in a line takes the way that looks at each field.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apas._fields import Fields, parse_json
from apas._lazy import require
from apas._typing import Floats
from apas._validation import is_frame
from apas.contracts.certified_model import Readings
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
    array = rows.to_numpy(dtype=object) if is_frame(rows) else np.asarray(rows)
    cells: list[list[Any]] = array.tolist()
    alike = finite_numbers(rows if is_frame(rows) else array)
    return cells if alike else [[_cell(cell) for cell in row] for row in cells]


def table_digest(rows: Any) -> str:
    """SHA-256 of the cells, by which two tables can be told apart."""
    return hashlib.sha256(json.dumps(table_cells(rows), allow_nan=False).encode()).hexdigest()


def as_floats(about: Fields | None, rows: list[Any]) -> Any:
    """The cells of some rows; of a table of floats as an array, which takes a third of the memory."""
    kinds = [] if about is None else about.content.get("dtypes", [about.content.get("dtype")])
    with suppress(TypeError, ValueError):  # what is no table, whoever reads it says so
        array = np.array(rows) if {*map(str, kinds)} == {"float64"} else np.empty(0)
        return array.astype(np.float64) if array.ndim == 2 and array.dtype.kind in "fi" else rows
    return rows


def read_table(about: Fields | None, blocks: list[Any], where: str) -> Any:
    """The table that was described, as an array or a data frame, of its cells in blocks; None if there is none."""
    if about is None:
        if any(cells is not None for rows in blocks for cells in rows):
            raise InputError("inputs must describe the table of the original rows, since there are some.")
        return None
    framed = about.choice("kind", "array", "frame") == "frame"
    if framed:
        names = about.only("kind", "columns", "dtypes").items("columns")
        kinds = [Fields({"dtype": d}, about.name("dtypes")).choice("dtype", *KINDS) for d in about.items("dtypes")]
        width = len(names)
        if len(kinds) != width or not all(isinstance(n, str | int | float) for n in names):
            raise InputError(f"{about.where} must have a name and a dtype per column.")
    else:
        width = about.only("kind", "columns", "dtype").integer("columns")
        kinds = [about.choice("dtype", *KINDS)]
        if width > MOST_COLUMNS:
            raise about.wrong("columns", f"an integer up to {MOST_COLUMNS}")
    if blocks and all(isinstance(rows, np.ndarray) and rows.shape[1] == width for rows in blocks):
        table = np.concatenate(blocks)
    else:
        cells = [row for rows in blocks for row in (rows.tolist() if isinstance(rows, np.ndarray) else rows)]
        cells = [_read_row(row, width, where.format(i)) for i, row in enumerate(cells)]
        table = np.array(cells, dtype=object).reshape(len(cells), width)
    if not framed:
        numpy_kind = kinds[0] if kinds[0] not in ("string", "category") else "object"
        return _cast(lambda: table.astype(numpy_kind), where.format(0))
    import pandas as pd

    if table.dtype == np.float64:
        return pd.DataFrame(table, columns=names)
    columns = [
        _cast(lambda c=c, d=d: pd.Series(table[:, c].tolist(), dtype=d), f"column {names[c]!r}")
        for c, d in enumerate(kinds)
    ]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(len(table)))
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


#: How many rows are written or read together.
BLOCK = 4096
_ENTRY = ("row", "values", "encoded", "input", "margins", "certificate", "max_shift")
#: The line of an entry as `json.dumps` writes it, and as its digest has it: keys sorted, no spaces.
_LINE = (
    '{{"row": {}, "values": {}, "encoded": {}, "input": {}, "margins": {{"model": {}, "first_draw": {}}}, '
    '"certificate": {}, "max_shift": {}}}'
)
_SORTED = (
    '{{"certificate":{6},"encoded":{2},"input":{3},"margins":{{"first_draw":{5},"model":{4}}},"max_shift":{7},'
    '"row":{0},"values":{1}}}'
)
_NUMBERS, _NUMBER, _OBJECT = r"\[[-+.\deE, ]+\]", r"[-+.\deE]+|null", r"null|\{.*\}"
_PATTERN = re.compile(
    rf'\{{"row": (-?\d+|"[^"\\]*"), "values": ({_NUMBERS}), "encoded": ({_NUMBERS}), "input": '
    rf'(null|{_NUMBERS}), "margins": \{{"model": ({_NUMBER}), "first_draw": ({_NUMBER})\}}, "certificate": '
    rf'({_OBJECT}), "max_shift": ({_OBJECT})\}}'
)
write_line = json.JSONEncoder(allow_nan=False).encode
write_sorted = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def _answer_texts(items: Sequence[Any] | None, rows: slice) -> list[tuple[str, str]]:
    """The answers of some rows, for a line and for the digest; what rows share is written once."""
    if items is None:
        return [("null", "null")] * (rows.stop - rows.start)
    some, known = list(items[rows]), dict[int, tuple[str, str]]()
    for item in some:
        if id(item) not in known:
            said = item.to_dict()
            known[id(item)] = write_line(said), write_sorted(said)
    return [known[id(item)] for item in some]


def _row_texts(table: Any) -> tuple[list[str], list[str]]:
    """The cells of each row as a list in a line, and in the digest."""
    if not finite_numbers(table):
        rows = table_cells(table)
        return [write_line(row) for row in rows], [write_sorted(row) for row in rows]
    texts = [f"[{row}]" for row in write_line(table_cells(table))[2:-2].split("], [")]
    return texts, [text.replace(", ", ",") for text in texts]


def entry_lines(found: Any, certificates: Any, radii: Any, readings: Readings) -> Iterator[tuple[list[str], list[str]]]:
    """The entries of a file block by block: as lines, and as the texts that the digest is of."""
    labels = found._labels()
    for start in range(0, len(found), BLOCK):
        rows = slice(start, min(start + BLOCK, len(found)))
        some, told = found[rows], readings[rows]
        names = [plain(label) for label in labels[rows]]
        values = _row_texts(some.points)
        # an array of a model without preprocessing is already in the model's units
        same = not is_frame(some.points) and np.array_equal(some.points, told.encoded)
        encoded = values if same else _row_texts(np.asarray(told.encoded))
        none = ["null"] * len(names)
        inputs = (none, none) if some.inputs is None else _row_texts(some.inputs)
        margins = [
            "null" if text == "NaN" else text for text in json.dumps(told.margins.ravel().tolist())[1:-1].split(", ")
        ]
        answers = [_answer_texts(items, rows) for items in (certificates, radii)]
        # the encoder takes a call per name, numbers are written faster
        called = list(map(str if all(type(name) is int for name in names) else write_line, names))
        blocks = []
        for layout, which in ((_LINE, 0), (_SORTED, 1)):
            said = [[both[which] for both in answer] for answer in answers]
            columns = (called, values[which], encoded[which], inputs[which], margins[::2], margins[1::2], *said)
            blocks.append(list(map(layout.format, *columns)))
        yield blocks[0], blocks[1]


class Distinct:
    """Answers of a file, each that is another read once."""

    def __init__(self, read: Callable[[Fields], Any]) -> None:
        self.read, self.codes, self.items = read, dict[str, tuple[int, str]](), list[Any]()
        self.by_digest: dict[str, int] = {}

    def of_text(self, text: str, where: str) -> tuple[int, str]:
        """The number of the answer that a text holds, -1 for null, and its text in the digest."""
        if text not in self.codes:
            self.codes[text] = self.of(parse_json(Path(where), text.encode(), finite=True), where)
        return self.codes[text]

    def of(self, content: Any, where: str) -> tuple[int, str]:
        """The same for what was parsed."""
        if content is None:
            return -1, "null"
        said = write_sorted(content)
        if said not in self.by_digest:
            # numbered only once it can be read
            item = self.read(Fields.of(content, where))
            self.by_digest[said] = len(self.items)
            self.items.append(item)
        return self.by_digest[said], said


class Block(NamedTuple):
    """Entries in columns; `certificates` and `radii` number those of `Distinct`, `texts` are for the digest."""

    labels: list[Any]
    values: list[Any]
    encoded: Any
    inputs: list[Any]
    margins: Floats
    certificates: list[int]
    radii: list[int]
    texts: list[str]


def read_entries(entries: Sequence[Any], start: int, known: tuple[Distinct, Distinct]) -> Block:
    """Entries that were parsed, the first of them number `start`; each field is looked at."""
    found = Block([], [], [], [], np.empty((len(entries), 2)), [], [], [])
    for i, content in enumerate(entries):
        entry = Fields.of(content, f"certificates[{start + i}]").only(*_ENTRY)
        margins = entry.inner("margins").only("model", "first_draw")
        found.margins[i] = [math.nan if margins.is_null(k) else margins.number(k) for k in ("model", "first_draw")]
        for column, key in ((found.labels, "row"), (found.values, "values"), (found.inputs, "input")):
            column.append(entry.any(key))
        found.encoded.append(entry.numbers("encoded"))
        for column, key, read in zip(found[5:7], _ENTRY[5:], known, strict=True):
            column.append(-1 if entry.is_null(key) else read.of(entry.inner(key).content, entry.name(key))[0])
    return found


def read_lines(lines: Sequence[str], start: int, known: tuple[Distinct, Distinct]) -> Block:
    """Entries that stand in lines, the first of them number `start`."""
    matches = [_PATTERN.fullmatch(line) for line in lines]
    try:
        parts = list(zip(*(match.groups() for match in matches), strict=True))  # type: ignore[union-attr]
        return _read_numbers(parts, start, known)
    except (AttributeError, ArithmeticError, ValueError, InputError):  # a line that is unusual, which need not be wrong
        entries = [parse_json(Path(f"line {start + i}"), line.encode(), finite=True) for i, line in enumerate(lines)]
        return read_entries(entries, start, known)._replace(texts=[write_sorted(entry) for entry in entries])


def _read_numbers(parts: list[tuple[str, ...]], start: int, known: tuple[Distinct, Distinct]) -> Block:
    """Entries whose cells are numbers; ValueError if these would be written in other words."""
    columns = list[Any]()
    for texts in parts[:6]:
        if len(columns) == 2 and texts == parts[1]:  # rows that are already in the model's units
            columns.append(columns[1])
            continue
        text = f"[{', '.join(texts)}]"
        columns.append(json.loads(text))
        if write_line(columns[-1]) != text:
            raise ValueError(text[:20])
    labels, values, encoded, inputs, *ends = columns
    margins = np.array([[math.nan if end is None else float(end) for end in some] for some in ends]).T
    answers = [
        [read.of_text(text, f"certificates[{start + i}].{key}") for i, text in enumerate(texts)]
        for texts, key, read in zip(parts[6:], _ENTRY[5:], known, strict=True)
    ]
    short = [[text.replace(", ", ",") for text in texts] for texts in (parts[1], parts[3])]
    short.insert(1, short[0] if encoded is values else [text.replace(", ", ",") for text in parts[2]])
    said = [[text for _, text in answer] for answer in answers]
    whole = list(map(_SORTED.format, parts[0], *short, *parts[4:6], *said))
    codes = [[code for code, _ in answer] for answer in answers]
    return Block(labels, values, np.array(encoded, dtype=np.float64), inputs, margins, codes[0], codes[1], whole)


_TOP, _SEAL = b"apas.top", b"apas.seal"


def _arrow() -> tuple[Any, Any]:
    arrow = require("pyarrow", feature=".parquet", extra="parquet")
    return arrow, require("pyarrow.parquet", feature=".parquet", extra="parquet")


def _facts(line: str) -> dict[str, Any]:
    """What the columns say of a row."""
    entry = json.loads(line)
    said = {**entry, **(entry.get("max_shift") or {}), **(entry.get("certificate") or {})}
    evidence = said.get("evidence") or {}
    answer = next((entry[key] for key in ("outcome", "status") if key in entry), said.get("verdict"))
    told = {"row": str(entry["row"]), "answer": answer, "delta": said.get("delta"), "reason": said.get("reason")}
    return {**told, "draws": evidence.get("draws"), "failures": evidence.get("failures"), "line": line}


def write_parquet(lines: Path, out: Path) -> None:
    """Write the lines of a sealed file to a Parquet file, in one step."""
    arrow, parquet = _arrow()
    kinds = {"row": "string", "answer": "string", "delta": "float64", "reason": "string"}
    kinds |= {"draws": "int64", "failures": "int64", "line": "string"}
    fields = [(name, getattr(arrow, kind)()) for name, kind in kinds.items()]
    temporary = out.with_name(f".{out.name}.tmp")
    with lines.open(encoding="utf-8") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 1024))
        seal = file.read().splitlines()[-1]
        file.seek(0)
        top = file.readline().removesuffix("\n")
        schema = arrow.schema(fields, metadata={_TOP: top.encode(), _SEAL: seal.encode()})
        rest = (line.removesuffix("\n") for line in islice(file, json.loads(seal)["rows"]))
        with parquet.ParquetWriter(temporary, schema) as writer:
            while some := [_facts(line) for line in islice(rest, BLOCK)]:
                writer.write_table(arrow.Table.from_pylist(some, schema=schema))
    os.replace(temporary, out)


def parquet_lines(path: Path) -> Iterator[bytes]:
    """The lines that a Parquet file was written from."""
    arrow, parquet = _arrow()
    try:
        file = parquet.ParquetFile(path)
        about = file.schema_arrow.metadata or {}
        if _TOP not in about or _SEAL not in about or "line" not in file.schema_arrow.names:
            raise InputError("it was not written by apas: it has no column of lines.")
        yield about[_TOP] + b"\n"
        for batch in file.iter_batches(BLOCK, columns=["line"]):
            yield from (f"{line}\n".encode() for line in batch.column(0).to_pylist())
        yield about[_SEAL] + b"\n"
    except arrow.ArrowException as error:
        raise InputError(f"it is not a Parquet file ({error}).") from None
