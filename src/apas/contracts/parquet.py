"""Lines of a file in JSON Lines as a Parquet file: a column with each line, and columns with what is most asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from apas._optional import require
from apas.errors import InputError

#: How many lines are written together.
GROUP = 4096
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
    texts = ("row", "answer", "reason", "line")
    kinds = {"row": "string", "answer": "string", "delta": "float64", "reason": "string"}
    kinds |= {"draws": "int64", "failures": "int64", "line": "string"}
    fields = [(name, arrow.string() if name in texts else getattr(arrow, kind)()) for name, kind in kinds.items()]
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
            while some := [_facts(line) for line in islice(rest, GROUP)]:
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
        for batch in file.iter_batches(GROUP, columns=["line"]):
            yield from (f"{line}\n".encode() for line in batch.column(0).to_pylist())
        yield about[_SEAL] + b"\n"
    except arrow.ArrowException as error:
        raise InputError(f"it is not a Parquet file ({error}).") from None
