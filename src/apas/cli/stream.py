"""Runs over any number of rows: block by block into one file, and on from there when they were stopped.

While a run goes on its lines stand in FILE.part, and what was asked in FILE.run. A line that is whole is never computed
again; one that was cut off is. At the end a last line seals the file, and it gets its name in one step. So whatever
ends a run at whatever moment, `--resume` gives the file that an unbroken run gives.
"""

import hashlib
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apas._atomic import append_bytes, refusing, write_bytes, write_text
from apas.cli.output import STREAMED, print_line, print_note
from apas.contracts.certificate_file import checked_seal, line_parts, load_certificates, raw_lines, stored_blocks
from apas.display.progress import Progress
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.cli.options import BlockOptions


class StoredRows:
    """The rows of a certificate file; one in JSON is read as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.certificates = None if path.suffix.lower() in STREAMED else load_certificates(path)

    def __len__(self) -> int:
        return len(self.certificates) if self.certificates is not None else int(checked_seal(self.path)["rows"])

    def blocks(self, size: int, start: int) -> Iterator[Any]:
        """The certificates of the rows from number `start` on, so many at a time."""
        if self.certificates is not None:
            yield from (self.certificates[a : a + size] for a in range(start, len(self.certificates), size))
            return
        for stored in stored_blocks(self.path, size, start):
            if stored.certificates is None:
                raise InputError(f"{self.path} holds the largest shifts of rows but no certificates to audit.")
            yield stored.certificates


@dataclass(frozen=True)
class BlockJob:
    """What is asked about every block; it travels to each worker once."""

    ask: Callable[..., Any]
    write: Callable[[Any, int], tuple[str, bytes]]
    given: dict[str, Any]

    def __call__(self, start: int, block: Any) -> tuple[str, bytes, list[str]]:
        """The file's first line, those about the rows of a block, whose first is number `start`, and notes besides."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                found = self.ask(block, **self.given)
            except InputError as error:  # what it says of a row counts from the first of the block
                text = re.sub(r"(?<= row )\d+", lambda row: str(int(row[0]) + start), str(error))
                raise InputError(text) from error
        told = [str(warning.message) for warning in heard if type(warning.message).__module__.startswith("apas")]
        return *self.write(found, start), [*told, *getattr(found, "notes", ())]


def write_certificates(found: Any, start: int) -> tuple[str, bytes]:
    """Certificates, or largest shifts, as a certificate file has them."""
    top, *lines = line_parts(found)
    return top.decode().removesuffix("\n"), b"".join(lines)


def write_rows(found: Any, start: int) -> tuple[str, bytes]:
    """What `to_dict` says of each row; above what it says of all, whichever rows there are."""
    told = found.to_dict()
    entries = told.pop(found.ROWS)
    for entry in entries:
        if isinstance(entry.get("input"), int):  # counted from the first row of the block
            entry["input"] += start
    top = {key: value for key, value in told.items() if key not in ("ok", "summary", "notes", "points_digest")}
    return json.dumps(top), "".join(f"{json.dumps(entry, allow_nan=False)}\n" for entry in entries).encode()


class Journal:
    """The lines of a run that goes on, and what was asked."""

    def __init__(self, out: Path, question: dict[str, Any], *, resume: bool) -> None:
        self.out, self.question = out, question
        self.part, self.run = (out.with_name(out.name + end) for end in (".part", ".run"))
        self.digest, self.count, self.is_done, self.counts = hashlib.sha256(), -1, False, Counter[str]()
        self.seed: int = question["seed"]
        self._word = re.compile(rf'"{question["counts"]}": "(\w+)"'.encode())  # no text of a row has bare quotes
        if resume and self.run.exists():
            self._resume()
        else:  # in this order: where there is a question, there are lines, unless the run has ended
            self.run.unlink(missing_ok=True)
            write_bytes(self.part, b"")
            write_text(self.run, json.dumps(question))

    def _resume(self) -> None:
        known = json.loads(self.run.read_text())
        other = [key for key in self.question if key != "seed" and known.get(key) != self.question[key]]
        if other:
            raise InputError(
                f"`--resume` must go on with the question that was asked, but {other[0]} is not what it was; leave "
                "`--resume` out to begin anew."
            )
        self.seed = known["seed"]
        self.is_done = not self.part.exists()
        if self.is_done:  # it was stopped when the file had its name
            for line in islice(raw_lines(self.out), 1 + self.question["rows"]):
                self._note(line)
            return
        whole, each = 0, self.question["lines"]
        with self.part.open("rb") as file:
            lines = file.readline()
            # up to what was cut off, be it some of the lines about a row, or up to the seal
            while lines.endswith(b"\n") and self.count < self.question["rows"]:
                self._note(lines)
                whole += len(lines)
                some = list(islice(file, each))
                lines = b"".join(some) if len(some) == each else b""
        os.truncate(self.part, whole)

    def _note(self, lines: bytes) -> None:
        self.digest.update(lines)
        self.count += lines.count(b"\n")
        self.counts.update(word.decode() for word in self._word.findall(lines))

    def add(self, top: str, lines: bytes) -> None:
        """Put the lines of a block on the disk; those of the first one below the first line of the file."""
        if self.count < 0:
            lines = f"{top}\n".encode() + lines
        append_bytes(self.part, lines)
        self._note(lines)

    def finish(self) -> None:
        """Seal the file, and give it its name."""
        if not self.is_done:
            seal = {"rows": self.count, "digest": self.digest.hexdigest()}
            append_bytes(self.part, f"{json.dumps(seal)}\n".encode())
            if self.out.suffix.lower() == ".parquet":
                from apas.contracts.certificate_lines import write_parquet

                write_parquet(self.part, self.out)
                self.part.unlink()
            else:
                os.replace(self.part, self.out)
        self.run.unlink()


def digest_of(path: Path | None) -> str | None:
    """SHA-256 of the bytes of a file."""
    if path is None:
        return None
    with refusing(f"{path} cannot be read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stream(
    where: "BlockOptions",
    ask: Callable[..., Any],
    source: Any,
    files: Mapping[str, Path | None],
    asked: Mapping[str, Any],
    *,
    counts: str,
    size: int,
    lines: int = 1,
    write: Callable[[Any, int], tuple[str, bytes]] = write_certificates,
) -> Counter[str]:
    """Ask about all blocks of a source, write the file, and count what was said of its rows in the field `counts`.

    `files` and what is `asked` must be the same on ``--resume``.
    """
    from apas import __version__
    from apas._random import entropy_of
    from apas.cli.workers import answers_in_order

    told = {key: value.to_dict() if hasattr(value, "to_dict") else repr(value) for key, value in asked.items()}
    question = {"counts": counts, "lines": lines, "seed": entropy_of(asked.get("rng"))}
    question |= {"version of apas": __version__, **{name: digest_of(path) for name, path in files.items()}}
    question |= {f"`{key}`": json.dumps(value, default=repr) for key, value in told.items() if key != "rng"}
    total = len(source)
    question |= {"`rng`": repr(asked.get("rng")), "rows": total * lines}
    if not total:
        raise InputError("there are no rows to ask about; the file must hold some.")
    assert where.out is not None
    with refusing("`--out` cannot be written"):
        journal = Journal(where.out, question, resume=where.resume)
    start = max(0, journal.count) // lines
    if start:
        print_note(f"{start} of {total} rows were there already.")
    job = BlockJob(ask, write, {**asked, "rng": journal.seed} if "rng" in asked else {**asked})
    said = set[str]()
    if not journal.is_done:
        with Progress(total - start, "rows") as progress:
            numbered = ((start + i * size, block) for i, block in enumerate(source.blocks(size, start)))
            for top, written, notes in answers_in_order(BlockJob.__call__, job, numbered, where.jobs, where.dask):
                before = max(0, journal.count)
                journal.add(top, written)
                progress.advance((journal.count - before) // lines)
                for note in notes:
                    if note not in said:
                        print_note(f"note: {note}")
                    said.add(note)
    journal.finish()
    counted = ", ".join(f"{n} {word}" for word, n in sorted(journal.counts.items()))
    print_line(f"{total} rows{f': {counted}' if counted else ''}; written to {where.out}.")
    return journal.counts
