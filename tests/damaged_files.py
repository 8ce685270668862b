"""Files changed at random, the same ones for the same seed: by bytes, and by what the format means.

`variant(reader, i)` is input number `i` of a reader; whoever finds one that is not refused politely can make it again.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import random
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apas.contracts.certificate_file import content_digest

SEED = 20
#: Written in place of a value, these become what JSON libraries do not write.
RAW = {
    "@NaN": "NaN", "@Infinity": "-Infinity", "@huge": "1e999", "@digits": "9" * 400, "@many": "7" * 5000,
    "@deep": "[" * 3000 + "]" * 3000, "@objects": '{"a":' * 3000 + "1" + "}" * 3000, "@half": '"\\ud800"',
    "@twice": '{"kind": 1, "kind": 2}', "@list": "[" + "0," * 3000 + "0]", "@tiny": "-5e-324",
}  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 0.0, -0.0, 0.5, 1.5, -2.5, 1e308, -1e308, 5e-324, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**40,
    "", "0", "1", "a", "relu", "linf", "lp", "gaussian", "observed", "noise", "every", "most", "sampling", "bound", "model",
    "\x1b[31m", "\u202e", "\n", "\x00", "é" * 50, "x" * 5000, "=1+1", "<b>", "a|b", "0x0", "0x" + "f" * 64, "f" * 64, "inf",
    [], {}, [[]], [None], [1, "a"], [0.5, 0.5], {"a": 1}, {"": None}, {"number": "nan"}, [[1.0], [2.0]], [[[]]], *RAW,
]  # fmt: skip
BYTES = [
    b"\x00",
    b"\xff",
    b"\x80",
    b"PK\x03\x04",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\n",
    b'"',
    b"{",
    b"[" * 50,
    b"-",
    b"9" * 30,
    b"NaN",
    b"e999",
    b",",
    b"'",
    b"\x1b",
]


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """A few changes at random places."""
    found = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice([1, 1, 2, 4, 8, 64]))
        kind = rng.randrange(7)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            found[at:end] = rng.randbytes(end - at)
        elif kind == 2:
            found[at:end] = b""
        elif kind == 3:
            found[at:at] = found[at:end] * rng.choice([1, 2, 50])
        elif kind == 4:
            found[at:at] = rng.choice(BYTES)
        elif kind == 5:
            value = rng.choice(BYTES)
            found[at : at + len(value)] = value
        else:
            del found[at:]
    return bytes(found)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in nested lists and objects something stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed_values(rng: random.Random, content: Any) -> Any:
    """A copy in which some values are others, some are gone, and some are there twice."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        *path, key = rng.choice(places(content)[1:] or [(None,)])
        inner = content
        for step in path:
            inner = inner[step]
        kind = rng.randrange(8)
        if key is None:
            return rng.choice(VALUES)
        if kind == 0:
            del inner[key]
        elif kind == 1 and isinstance(inner, dict):
            inner[rng.choice(["", "extra", "kind", "\x1b", str(key) * 2, "number"])] = rng.choice(VALUES)
        elif kind == 1:
            inner.insert(rng.randrange(len(inner) + 1), rng.choice(VALUES))
        elif kind == 2 and isinstance(inner[key], int | float) and not isinstance(inner[key], bool):
            inner[key] = rng.choice(
                [-inner[key], inner[key] * 1e6, inner[key] + 1, float(inner[key]), int(inner[key]), str(inner[key])]
            )
        elif kind == 3 and isinstance(inner[key], list):
            inner[key] = inner[key] * 2 if rng.random() < 0.5 else inner[key][:-1]
        else:
            inner[key] = copy.deepcopy(rng.choice(VALUES))
    return content


def as_text(content: Any) -> str:
    """JSON, with what JSON libraries do not write."""
    text = json.dumps(content)
    for mark, raw in RAW.items():
        text = text.replace(json.dumps(mark), raw)
    return text


def changed_json(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.2:
        return changed_bytes(rng, content)
    return as_text(changed_values(rng, json.loads(content))).encode()


def changed_certificates(rng: random.Random, content: bytes) -> bytes:
    """A changed certificate file, mostly with a digest that fits: what is behind the digest is read, too."""
    if rng.random() < 0.1:
        return changed_bytes(rng, content)
    told = changed_values(rng, json.loads(content))
    if isinstance(told, dict) and rng.random() < 0.95:
        with contextlib.suppress(ValueError, RecursionError):
            told["digest"] = content_digest(json.loads(as_text(told)))
    return as_text(told).encode()


def changed_certificate_lines(rng: random.Random, content: bytes) -> bytes:
    """A changed certificate file in JSON Lines, mostly with a seal that fits."""
    if rng.random() < 0.1:
        return changed_bytes(rng, content)
    lines = content.decode().splitlines()[:-1]
    place = rng.randrange(len(lines))
    lines[place] = as_text(changed_values(rng, json.loads(lines[place]))).replace("\n", " ")
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines)), rng.choice(["", "{}", "[1]", "null", lines[0], lines[-1], "\x00"]))
    above = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    seal = {"rows": len(lines) - 1, "digest": hashlib.sha256(above).hexdigest()}
    return above + json.dumps(seal).encode() + b"\n"


def changed_archive(rng: random.Random, content: bytes) -> bytes:
    """A zip archive of which one member is another, gone, or called otherwise."""
    if rng.random() < 0.2:
        return changed_bytes(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    kind = rng.randrange(10)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[rng.choice(["../x", "schema.json", "net/data.pkl", "é" * 9, "a\x1bb"])] = members.pop(name)
    elif name.endswith(".json") and kind < 8:
        members[name] = as_text(changed_values(rng, json.loads(members[name]))).encode()
    elif name.endswith(".npy") and kind < 6:
        members[name] = _changed_array(rng, members[name])
    else:
        members[name] = changed_bytes(rng, members[name])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for member, part in members.items():
            archive.writestr(member, part)
    return packed.getvalue()


def _changed_array(rng: random.Random, content: bytes) -> bytes:
    """An .npy file whose header says something else, in the length that it had or another."""
    size = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + size]
    words = [
        b"'<f8'",
        b"'|O'",
        b"'<c16'",
        b"'<U4'",
        b"(9999999999,)",
        b"(-1,)",
        b"()",
        b"(",
        b"{",
        b"'''",
        b"\\",
        b"[('a', '<f8')]",
        b"1" * 300,
        b"lambda: 0",
        b"\xff",
    ]
    at = rng.randrange(len(header))
    word = rng.choice(words)
    header = header[:at] + word + header[at + rng.choice([0, len(word)]) :]
    return content[:8] + len(header).to_bytes(2, "little") + header + content[10 + size :]


def changed_safetensors(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.3:
        return changed_bytes(rng, content)
    size = int.from_bytes(content[:8], "little")
    told = json.loads(content[8 : 8 + size])
    if rng.random() < 0.5 and isinstance(told.get("__metadata__"), dict) and "apas" in told["__metadata__"]:
        told["__metadata__"]["apas"] = as_text(changed_values(rng, json.loads(told["__metadata__"]["apas"])))
    else:
        told = changed_values(rng, told)
    header = as_text(told).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def changed_onnx(rng: random.Random, content: bytes) -> bytes:
    """A graph some of whose fields are others; texts that are not UTF-8 are put in by hand."""
    import onnx

    if rng.random() < 0.3:
        return changed_bytes(rng, content)
    model = onnx.load_model_from_string(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        message, descriptor = rng.choice(_protobuf_fields(model))
        with contextlib.suppress(TypeError, ValueError):  # a value that protobuf does not take changes nothing
            _change_field(rng, message, descriptor)
    found = model.SerializeToString()
    if rng.random() < 0.2:
        text = rng.choice([b"apas", b"layer0", b"Gemm", b"input", b"output", b"feedforward", b"sigmoid", b"alpha"])
        found = found.replace(text, b"\xff" * len(text), rng.choice([1, -1]))
    return found


def _protobuf_fields(message: Any) -> list[tuple[Any, Any]]:
    found = []
    for descriptor, value in message.ListFields():
        found.append((message, descriptor))
        inner = [] if descriptor.message_type is None else value if hasattr(value, "add") else [value]
        for part in inner:
            found += _protobuf_fields(part)
    return found


def _change_field(rng: random.Random, message: Any, descriptor: Any) -> None:
    name, repeated = descriptor.name, hasattr(getattr(message, descriptor.name), "extend")
    if descriptor.message_type is not None:
        values = getattr(message, name)
        kind = rng.randrange(3)
        if not repeated or not len(values) or kind == 0:
            message.ClearField(name)
        elif kind == 1:
            del values[rng.randrange(len(values))]
        else:
            values.add().CopyFrom(rng.choice(list(values)))
        return
    kinds: dict[str, list[Any]] = {
        "str": ["", "x", "Relu", "Gemm", "MatMul", "Add", "Clip", "Softmax", "Reshape", "Constant", "ZipMap", "Concat", "input", "output", "layer0", "\x1b[2J", "9" * 5000, "{}"],
        "bytes": [b"", b"\xff", bytes(8), bytes(1000)],
        "int": [0, 1, 2, -1, 7, 11, 2**31 - 1, -(2**31), 100],
        "float": [0.0, -1.0, 1e38, float("nan"), float("inf")],
    }  # fmt: skip
    present = getattr(message, name)
    sample = present[0] if repeated and len(present) else "" if repeated else present
    choice = rng.choice(kinds.get(type(sample).__name__, [0, 1]))
    if repeated:
        kind = rng.randrange(3)
        if kind == 0 or not len(present):
            message.ClearField(name)
        elif kind == 1:
            present.append(choice)
        else:
            present[rng.randrange(len(present))] = choice
    else:
        setattr(message, name, choice)


def changed_lines(words: list[str]) -> Callable[[random.Random, bytes], bytes]:
    """Changes of a text whose meaning hangs on words: some become others."""

    def change(rng: random.Random, content: bytes) -> bytes:
        if rng.random() < 0.4:
            return changed_bytes(rng, content)
        lines = content.decode().split("\n")
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(lines))
            kind = rng.randrange(5)
            if kind == 0:
                del lines[at]
                lines = lines or [""]
            elif kind == 1:
                lines.insert(at, lines[at])
            else:
                marks = [i for i, c in enumerate(lines[at]) if c in ",= []\"'"] or [0]
                start = rng.choice(marks) + rng.choice([0, 1])
                end = min([i for i in marks if i > start] or [len(lines[at])])
                lines[at] = lines[at][:start] + rng.choice(words) + lines[at][end:]
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    return change


CSV_WORDS = [
    "",
    "nan",
    "inf",
    "-1e999",
    "1e-400",
    "x",
    '"',
    '"a',
    "=1+1",
    "\x1b[31m",
    "\x00",
    "1_0",
    "٣",
    "9" * 500,
    "é",
    "a" * 200_000,
    "income",
    "\r",
    ";",
    " ",
    "0x10",
]
TOML_WORDS = [
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "9" * 5000,
    "true",
    '""',
    "''",
    "[]",
    "[1, 2, 3]",
    "[[]]",
    "{}",
    "{a = 1}",
    '"\\u001b[31m"',
    '"binary"',
    '"categorical"',
    '"integer"',
    "1979-05-27",
    "07:32:00",
    "0x" + "f" * 300,
    "0x" + "f" * 5000,
    "[" * 2000,
    "'" + "a" * 9000 + "'",
    "x.y",
    '"é"',
]
DIMACS_WORDS = ["0", "-0", "p", "c", "%", "p cnf 3 2", "99999999999999", "9" * 5000, "-", "x", "\x00", "٣"]


def changed_database(rng: random.Random, content: bytes, folder: Path) -> bytes:
    """A SQLite file some of whose cells, tables or bytes are others."""
    if rng.random() < 0.35:
        return changed_bytes(rng, content)
    path = folder / "changing.db"
    path.write_bytes(content)
    base = sqlite3.connect(path, isolation_level=None)
    try:
        base.execute("PRAGMA journal_mode = DELETE")
        base.execute("PRAGMA ignore_check_constraints = ON")
        tables = {
            name: [row[1] for row in base.execute(f"PRAGMA table_info({name})")]
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        }
        for _ in range(rng.choice([1, 1, 2])):
            _change_database(rng, base, tables)
    except sqlite3.Error:
        pass  # a change that SQLite refuses is none
    finally:
        base.close()
    found = path.read_bytes()
    path.unlink()
    return found


def _change_database(rng: random.Random, base: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
    table = rng.choice(list(tables))
    column = rng.choice(tables[table])
    kind = rng.randrange(9)
    if kind == 0:
        base.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    elif kind == 1:
        base.execute(f"ALTER TABLE {table} RENAME TO {rng.choice(['other', 'x'])}")
    elif kind == 2:
        base.execute(f"PRAGMA {rng.choice(['user_version', 'application_id'])} = {rng.choice([0, 2, -1, 99])}")
    elif kind == 3:
        base.execute(f"CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN DELETE FROM {table}; END")
    elif kind == 4:
        base.execute(f"ALTER TABLE {table} RENAME TO kept")
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT kept.* FROM kept, c"
        base.execute(f"CREATE VIEW {table} AS {rng.choice(['SELECT * FROM kept', endless])}")
    elif column in ("content", "result") and kind < 7:
        text = base.execute(f"SELECT {column} FROM {table}").fetchone()[0]
        base.execute(
            f"UPDATE {table} SET {column} = ?", (changed_certificates(rng, text.encode()).decode("utf-8", "replace"),)
        )
    else:
        value = rng.choice(
            [
                None,
                b"",
                b"\xff\xfe",
                0,
                -1,
                2**62,
                0.5,
                float("inf"),
                "",
                "x" * 10**5,
                "\x1b[31m",
                "2027-13-45",
                "open",
                "broken",
                "{}",
                "[]",
                "[" * 3000,
                "null",
            ]
        )
        if rng.random() < 0.1:  # a text that is not UTF-8
            base.execute(f"UPDATE {table} SET {column} = CAST(X'FFFE41' AS TEXT)")
        else:
            base.execute(f"UPDATE {table} SET {column} = ?", (value,))


def stream(reader: str, number: int) -> random.Random:
    """The random numbers of one input."""
    return random.Random(f"{SEED}/{zlib.crc32(reader.encode())}/{number}")
