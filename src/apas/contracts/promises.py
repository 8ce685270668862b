"""Promises one by one: each certified row of a certificate file as a file of its own, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from apas._validation import check_texts, is_path
from apas.certification.results import Certificates
from apas.contracts.audit import certificates_of
from apas.contracts.certificate_file import content_digest, read_content, read_object, read_stored, stored_content
from apas.counterfactuals.result import Counterfactuals
from apas.errors import InputError
from apas.models.files.json import parse_json

#: What differs between two promises of one table, and what a later version of apas writes differently.
_OWN, _WRITER = ("certificates", "digest"), "versions"


@dataclass(frozen=True)
class Promise:
    """One certified row."""

    label: Any  # what the row is called
    digest: str  # SHA-256 of what is promised, whatever the row is called and whichever version of apas wrote it
    model: str  # SHA-256 of the model that was certified
    content: dict[str, Any]  # what a certificate file with this row alone holds, but for the digest

    def text(self, reference: str) -> str:
        """A certificate file whose row is called by the reference."""
        content = {**self.content, "certificates": [{**self.content["certificates"][0], "row": reference}]}
        return json.dumps({**content, "digest": content_digest(content)}, allow_nan=False)


def _parts(certificates: Any) -> list[Promise | None]:
    """The certified rows one by one; None for a row that is not certified."""
    if not is_path(certificates):
        content = stored_content(certificates_of(certificates))
    elif read_stored(path := Path(os.fsdecode(certificates))).certificates is None:
        raise InputError(f"{path} holds the largest shifts of rows but no certificates, so that nothing is promised.")
    else:
        content = read_object(path, "certificate file")
    about = {key: value for key, value in content.items() if key not in _OWN}
    parts: list[Promise | None] = []
    for entry in content["certificates"]:
        parts.append(None)
        if entry["certificate"]["verdict"] == "CERTIFIED":
            alone = {**about, "certificates": [{**entry, "row": None}]}
            digest = content_digest({key: value for key, value in alone.items() if key != _WRITER})
            parts[-1] = Promise(entry["row"], digest, about["model"]["digest"], alone)
    return parts


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


def join_promises(texts: Sequence[str], labels: Iterable[Any]) -> list[tuple[list[int], Certificates]]:
    """Promises as certificates again, those of one table together, each with the numbers of its rows."""
    groups: dict[str, tuple[list[int], dict[str, Any], list[Any]]] = {}
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        content = read_part(text)
        try:
            read_content(content)  # a damaged one is an error, whatever its digest will be among others
        except InputError as error:
            raise InputError(f"a promise of the ledger cannot be used: {error}") from None
        about = {key: value for key, value in content.items() if key not in _OWN}
        key = content_digest({**about, _WRITER: None})
        rows, _, entries = groups.setdefault(key, ([], about, []))
        rows.append(number)
        entries.append({**content["certificates"][0], "row": label})
    found = []
    for rows, about, entries in groups.values():
        # without largest shifts, which of one table some rows may have and others not
        whole = {**about, "certificates": [{**entry, "max_shift": None} for entry in entries]}
        certificates = read_content({**whole, "digest": content_digest(whole)}).certificates
        assert certificates is not None
        found.append((rows, certificates))
    return found


def checked_promises(
    certificates: Certificates | Counterfactuals | str | os.PathLike[str],
    references: Sequence[str] | None,
    expires: date | str | None,
    today: str,
) -> tuple[list[Promise | None], list[str], str | None]:
    """The rows that a ledger is asked to take: one by one, whom each belongs to, and the last day of the promises."""
    parts = _parts(certificates)
    return parts, _checked_references(references, parts), _checked_expiry(expires, today)


def _checked_references(references: Sequence[str] | None, parts: Sequence[Promise | None]) -> list[str]:
    """Whom each row belongs to, as texts."""
    if references is None:
        there = [(place, part) for place, part in enumerate(parts) if part is not None]
        counted = bool(there) and all(part.label == place for place, part in there)
        # a name is a text, or a number of a data frame's own; those of an array are places
        framed = any(part.content["points"]["kind"] == "frame" for _, part in there)
        if counted or not all(isinstance(p.label, str) or (framed and type(p.label) is int) for _, p in there):
            raise InputError(
                "`references` must say whom each row belongs to, since the rows have no names of their own"
                f"{', but are counted from 0' if counted else ''}; pass a text per row (--references FILE)."
            )
        return ["" if part is None else str(part.label) for part in parts]
    names = check_texts(references, "references")
    if len(names) != len(parts):
        raise InputError(f"`references` must have one text per row ({len(parts)}), got {len(names)}.")
    return names


def _checked_expiry(expires: date | str | None, today: str) -> str | None:
    if expires is None:
        return None
    try:
        day = (
            date.fromisoformat(expires) if isinstance(expires, str) else date(expires.year, expires.month, expires.day)
        )
    except (ValueError, AttributeError):
        raise InputError(f"`expires` must be a day such as 2027-06-30, got {expires!r}.") from None
    if day.isoformat() < today:
        raise InputError(f"`expires` must not lie before today ({today}), got {day}.")
    return day.isoformat()
