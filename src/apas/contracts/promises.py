"""Promises one by one: each certified row of a certificate file as a file of its own, and back."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self

from apas._fields import parse_json
from apas._validation import check_texts, is_path
from apas.certification.results import Certificates
from apas.contracts.audit import certificates_of
from apas.contracts.certificate_file import read_content, read_object, read_rows_of, read_stored, stored_content
from apas.contracts.certificate_lines import write_line, write_sorted
from apas.counterfactuals.result import Counterfactuals
from apas.errors import InputError

#: What differs between two promises of one table, and what a later version of apas writes differently.
_OWN, _WRITER = ("certificates", "digest"), "versions"
#: A promise as a ledger keeps it: what is said of the whole table, the row, and the digest.
_PART = re.compile(r'(\{.*), "certificates": \[(\{.*\})\], "digest": "([0-9a-f]{64})"\}')


@dataclass(frozen=True)
class Table:
    """What the promises of one table have in common, as texts: for a file, and for the digests of it and a promise."""

    written: str
    in_file: str
    in_promise: str
    model: str
    is_frame: bool

    @classmethod
    def of(cls, about: dict[str, Any]) -> Self:
        """The table that a certificate file is about."""
        promised = {key: value for key, value in about.items() if key != _WRITER}
        texts = write_line(about)[:-1], write_sorted(about), write_sorted(promised)
        return cls(*texts, about["model"]["digest"], about["points"]["kind"] == "frame")


def _digest(row: str, about: str) -> str:
    """`content_digest` of a file with one row: of all keys "certificates" is the first."""
    return hashlib.sha256(f'{{"certificates":[{row}],{about[1:]}'.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Promise:
    """One certified row."""

    label: Any  # what the row is called
    digest: str  # SHA-256 of what is promised, whatever the row is called and whichever version of apas wrote it
    table: Table
    entry: dict[str, Any]  # what a certificate file says of the row

    @classmethod
    def of(cls, entry: dict[str, Any], table: Table) -> Self:
        """The promise that an entry of a certificate file is."""
        return cls(entry["row"], _digest(write_sorted({**entry, "row": None}), table.in_promise), table, entry)

    def text(self, reference: str) -> str:
        """A certificate file whose row is called by the reference."""
        entry, table = {**self.entry, "row": reference}, self.table
        digest = _digest(write_sorted(entry), table.in_file)
        return f'{table.written}, "certificates": [{write_line(entry)}], "digest": "{digest}"}}'


def _parts(certificates: Any) -> list[Promise | None]:
    """The certified rows one by one; None for a row that is not certified."""
    if not is_path(certificates):
        content = stored_content(certificates_of(certificates))
    else:
        stored = read_stored(path := Path(os.fsdecode(certificates)))
        if stored.certificates is None:
            raise InputError(
                f"{path} holds the largest shifts of rows but no certificates, so that nothing is promised."
            )
        is_json = path.suffix.lower() not in (".jsonl", ".parquet")
        content = read_object(path, "certificate file") if is_json else stored_content(stored.certificates)
    table = Table.of({key: value for key, value in content.items() if key not in _OWN})
    entries = content["certificates"]
    return [Promise.of(e, table) if e["certificate"]["verdict"] == "CERTIFIED" else None for e in entries]


def read_part(text: str) -> dict[str, Any]:
    """The content that a part's text holds; its row and its certificate are there."""
    try:
        content = parse_json(Path("ledger"), text.encode(), finite=True)
        (entry,) = content["certificates"]
        if not {"claim", "target", "delta"} <= set(entry["certificate"]):
            raise TypeError
    except (ValueError, KeyError, TypeError):  # what is no JSON among them
        raise InputError("a promise of the ledger is damaged: it holds no certificate; get it from a backup.") from None
    return dict(content)


def _checked_part(text: str) -> dict[str, Any]:
    """The content of a promise; a damaged one is an error, whatever its digest will be among others."""
    content = read_part(text)
    try:
        read_content(content)
    except InputError as error:
        raise InputError(f"a promise of the ledger cannot be used: {error}") from None
    return content


def _taken_apart(text: str) -> tuple[str, str, str]:
    match = _PART.fullmatch(text)
    if match is None:  # it is written in other words, which need not be wrong
        content = _checked_part(text)
        table = Table.of({key: value for key, value in content.items() if key not in _OWN})
        match = _PART.fullmatch(Promise.of(content["certificates"][0], table).text(content["certificates"][0]["row"]))
        assert match is not None
    return match[1], match[2], match[3]


def join_promises(texts: Sequence[str], labels: Iterable[Any]) -> list[tuple[list[int], Certificates]]:
    """Promises as certificates again, those of one table together, each with the numbers of its rows."""
    groups: dict[str, list[tuple[int, Any, str, str, str]]] = {}
    tables: dict[str, tuple[dict[str, Any], Table]] = {}
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        about, row, digest = _taken_apart(text)
        if about not in tables:
            try:
                told = parse_json(Path("ledger"), f"{about}}}".encode(), finite=True)
                tables[about] = told, Table.of(told)
            except (InputError, KeyError, TypeError, ValueError):
                _checked_part(text)
                raise
        groups.setdefault(tables[about][1].in_promise, []).append((number, label, row, digest, about))
    found = []
    for rows in groups.values():
        numbers, names, lines, digests, own = (list(column) for column in zip(*rows, strict=True))
        try:
            certificates, read = read_rows_of(tables[own[0]][0], lines, names)
            each = zip(read, own, digests, strict=True)
            if any(_digest(row, tables[about][1].in_file) != digest for row, about, digest in each):
                raise InputError("a promise of the ledger is damaged: its digest does not match; get it from a backup.")
        except InputError:  # which of them is damaged
            for number in numbers:
                _checked_part(texts[number])
            raise
        found.append((numbers, certificates))
    return found


def checked_promises(
    certificates: Certificates | Counterfactuals | str | os.PathLike[str],
    references: Sequence[str] | None,
    expires: date | str | None,
    today: str,
) -> tuple[list[Promise | None], list[str], str | None]:
    """The rows that a ledger is asked to take: one by one, whom each belongs to, and the last day of the promises."""
    parts = _parts(certificates)
    if references is None:
        there = [(place, part) for place, part in enumerate(parts) if part is not None]
        counted = bool(there) and all(part.label == place for place, part in there)
        # a name is a text, or a number of a data frame's own; those of an array are places
        framed = any(part.table.is_frame for _, part in there)
        if counted or not all(isinstance(p.label, str) or (framed and type(p.label) is int) for _, p in there):
            raise InputError(
                "`references` must say whom each row belongs to, since the rows have no names of their own"
                f"{', but are counted from 0' if counted else ''}; pass a text per row (--references FILE)."
            )
        names = ["" if part is None else str(part.label) for part in parts]
    else:
        names = check_texts(references, "references")
        if len(names) != len(parts):
            raise InputError(f"`references` must have one text per row ({len(parts)}), got {len(names)}.")
    if expires is None:
        return parts, names, None
    try:
        told = date.fromisoformat(expires) if isinstance(expires, str) else expires
        day = date(told.year, told.month, told.day).isoformat()
    except (ValueError, AttributeError):
        raise InputError(f"`expires` must be a day such as 2027-06-30, got {expires!r}.") from None
    if day < today:
        raise InputError(f"`expires` must not lie before today ({today}), got {day}.")
    return parts, names, day
