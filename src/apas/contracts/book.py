"""The rows of a ledger: read, changed in transactions, and every change written into the history."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apas.contracts.auditreport import AuditRow
from apas.contracts.ledgerfile import open_file, readable_errors, transaction
from apas.contracts.promises import Part
from apas.errors import InputError

__all__ = ["Book"]

#: What the columns of the tables hold.
_KINDS: dict[str, Any] = {
    "id": int, **dict.fromkeys(("reference", "digest", "content", "issued", "state", "at", "event", "detail"), str),
    **dict.fromkeys(("expires", "model"), str | None),
}  # fmt: skip


class Book:
    """An open ledger file.

    Parameters
    ----------
    path : path
    create : bool
        Whether to make a ledger where there is none.
    clock : callable
        Gives the present time in UTC.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool, clock: Callable[[], datetime]) -> None:
        self.connection = open_file(path, create=create)
        self.path, self._clock = Path(path), clock

    @property
    def today(self) -> str:
        """The day, in UTC."""
        return self._clock().astimezone(UTC).date().isoformat()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query gives; SQLite keeps any value in any column, so that their kinds are checked."""
        with readable_errors(self.path):
            cursor = self.connection.execute(query, values)
            found = cursor.fetchall()
        for place, (name, *_) in enumerate(cursor.description or ()):
            kinds = _KINDS.get(name, object)
            if not all(isinstance(row[place], kinds) for row in found):
                raise InputError(
                    f"{self.path} is damaged (a value of {name!r} is of the wrong kind); get it from a backup."
                )
        return found

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction."""
        with readable_errors(self.path), transaction(self.connection):
            yield

    def owed(self) -> list[tuple[int, str, str]]:
        """Number, reference and content of the promises that are owed today."""
        query = (
            "SELECT id, reference, content FROM promises WHERE state IN ('open', 'broken') "
            "AND (expires IS NULL OR expires >= ?) ORDER BY id"
        )
        return [(int(number), str(name), str(text)) for number, name, text in self.rows(query, self.today)]

    def insert(self, reference: str, part: Part, expires: str | None) -> bool:
        """Add a promise in a transaction of its own, unless it is there; whether it was new."""
        with self.changing():
            done = self.connection.execute(
                "INSERT INTO promises (reference, digest, model, content, issued, expires, state) "
                "VALUES (?, ?, ?, ?, ?, ?, 'open') ON CONFLICT (reference, digest) DO NOTHING",
                (reference, part.digest, part.model, part.text(reference), self.today, expires),
            )
            if done.rowcount:
                self._note(done.lastrowid, "added", "open", part.model)
        return bool(done.rowcount)

    def record(self, number: int, row: AuditRow, model: str) -> None:
        """Write down what an audit said about a promise, inside a transaction."""
        state = "broken" if row.outcome.is_broken else "open"
        if self._move(number, state):  # else somebody retired it meanwhile
            repair = "" if row.repair is None else f"; nearest repair: {row.repair}"
            self._note(number, f"audited: {row.outcome.name}", state, model, row.reason + repair)

    def close(self, number: int, outcome: str) -> None:
        """Close a promise, inside a transaction."""
        if self._move(number, outcome):
            self._note(number, "retired", outcome)

    def expire(self) -> None:
        """Close the open promises whose last day has passed."""
        query = "SELECT id FROM promises WHERE state = 'open' AND expires < ?"
        if not self.rows(query, self.today):
            return
        with self.changing():
            for (number,) in self.rows(query, self.today):
                self._move(number, "expired")
                self._note(number, "expired", "expired")

    def _move(self, number: int, state: str) -> bool:
        """Change the state of a promise that is owed."""
        query = "UPDATE promises SET state = ? WHERE id = ? AND state IN ('open', 'broken')"
        return bool(self.connection.execute(query, (state, number)).rowcount)

    def _note(self, number: int | None, event: str, state: str, model: str | None = None, detail: str = "") -> None:
        at = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        self.connection.execute(
            "INSERT INTO history (promise, at, event, state, model, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (number, at, event, state, model, detail),
        )
