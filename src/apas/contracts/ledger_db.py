"""The book of a ledger: promises and their history, read and changed in transactions on any of the `stores`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from apas.contracts.audit import AuditRow
from apas.contracts.promises import Promise
from apas.contracts.stores import open_store
from apas.errors import InputError

#: What a promise can be; "expired" follows from the date and is never stored.
STATES = ("open", "honoured", "broken", "expired", "withdrawn")
#: How far the clock may be from the last entry of the history: a day forgives a wrong time zone, ten years (with at
#: most three leap days) a ledger that rested.
BEFORE, AFTER = timedelta(days=1), timedelta(days=3653)
#: How many promises are added in one transaction: others wait for its end, and each costs a write to the disk.
TOGETHER = 20
#: What the columns of the tables hold.
_KINDS: dict[str, Any] = {
    "id": int,
    **dict.fromkeys(("reference", "digest", "content", "issued", "state", "at", "event", "detail"), str),
    **dict.fromkeys(("expires", "model"), str | None),
}


class Book:
    """An open ledger."""

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool, clock: Callable[[], datetime], trust_clock: bool
    ) -> None:
        self.store = open_store(path, create=create)
        self.path, self._clock, self._trust_clock = self.store.name, clock, trust_clock

    @property
    def now(self) -> datetime:
        """The time, in UTC; an error if the history makes it unlikely to be right."""
        now = self._clock().astimezone(UTC)
        last = None if self._trust_clock else self._last_entry()
        if last is not None and not -BEFORE <= now - last <= AFTER:
            where = "more than a day before" if now < last else "more than ten years after"
            raise InputError(
                f"the clock says {now:%Y-%m-%d %H:%M} UTC, which is {where} the last entry of {self.path} "
                f"({last:%Y-%m-%d %H:%M} UTC); set the clock, or if it is right pass trust_clock=True (--trust-clock)."
            )
        return now

    @property
    def today(self) -> str:
        """The day, in UTC."""
        return self.now.date().isoformat()

    def _last_entry(self) -> datetime | None:
        """When the history was last written to; what version 1 of the file closed by its clock does not count."""
        found = self.rows("SELECT at FROM history WHERE event != 'expired' ORDER BY id DESC LIMIT 1")
        try:
            return datetime.fromisoformat(found[0][0]).astimezone(UTC) if found else None
        except (TypeError, ValueError, OverflowError):
            what = "an entry of its history has no time"
            raise InputError(f"{self.path} is damaged: {what}; get it from a backup.") from None

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query gives; SQLite keeps any value in any column, so that their kinds are checked."""
        columns, found = self.store.execute(query, values)
        for place, name in enumerate(columns):
            kinds = _KINDS.get(name, object)
            if not all(isinstance(row[place], kinds) for row in found):
                raise InputError(
                    f"{self.path} is damaged (a value of {name!r} is of the wrong kind); get it from a backup."
                )
        return found

    def check(self) -> None:
        """Refuse promises in a state, or with a last day, that no ledger writes: no question would ever find them."""
        _, kinds = self.store.execute("SELECT DISTINCT state, expires FROM promises")
        day = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
        if not all(s in STATES and s != "expired" and (d is None or day.fullmatch(str(d))) for s, d in kinds):
            raise InputError(
                f"{self.path} is damaged (a promise has a state or a last day that there is not); get it from a backup."
            )

    def write_transaction(self) -> AbstractContextManager[None]:
        """Everything in it is written, or nothing."""
        return self.store.transaction()

    def owed_promises(self, today: str) -> list[tuple[int, str, str]]:
        """Number, reference and content of the promises that are owed on a day."""
        self.check()
        query = (
            "SELECT id, reference, content FROM promises WHERE state IN ('open', 'broken') "
            "AND (expires IS NULL OR expires >= ?) ORDER BY id"
        )
        return [(int(number), str(name), str(text)) for number, name, text in self.rows(query, today)]

    def audited(self) -> list[tuple[int, str, bool]]:
        """Number of the promise, model, and whether it kept the promise, of all audits in their order."""
        query = "SELECT promise AS id, model, event FROM history WHERE event LIKE 'audited: %' ORDER BY history.id"
        return [(number, str(model), event.endswith(("HELD", "OPEN"))) for number, model, event in self.rows(query)]

    def count_expired(self, today: str) -> int:
        """How many promises are not owed on a day because their last one was before it."""
        query = "SELECT count(*) FROM promises WHERE state IN ('open', 'broken') AND expires < ?"
        return int(self.rows(query, today)[0][0])

    def insert(self, promises: Sequence[tuple[str, Promise]], expires: str | None) -> int:
        """Add promises to references, unless they are there; how many are new."""
        fresh = 0
        for some in (promises[start : start + TOGETHER] for start in range(0, len(promises), TOGETHER)):
            with self.write_transaction():
                now, day = self._stamp(), self.today
                for reference, part in some:
                    _, made = self.store.execute(
                        "INSERT INTO promises (reference, digest, model, content, issued, expires, state) "
                        "VALUES (?, ?, ?, ?, ?, ?, 'open') ON CONFLICT (reference, digest) DO NOTHING RETURNING id",
                        (reference, part.digest, part.model, part.text(reference), day, expires),
                    )
                    for (number,) in made:
                        self._note(number, now, "added", "open", part.model)
                        fresh += 1
        return fresh

    def record(self, numbers: Sequence[int], rows: Iterable[AuditRow], model: str) -> None:
        """Write down what an audit said about promises, in one transaction."""
        with self.write_transaction():
            now = self._stamp()
            for number, row in zip(numbers, rows, strict=True):
                state = "broken" if row.outcome.is_broken else "open"
                if self._move(number, state):  # else somebody retired it meanwhile
                    repair = "" if row.repair is None else f"; nearest repair: {row.repair}"
                    self._note(number, now, f"audited: {row.outcome.name}", state, model, row.reason + repair)

    def close(self, number: int, outcome: str) -> None:
        """Close a promise, inside a transaction."""
        if self._move(number, outcome):
            self._note(number, self._stamp(), "retired", outcome)

    def _move(self, number: int, state: str) -> bool:
        """Change the state of a promise that is not closed."""
        query = "UPDATE promises SET state = ? WHERE id = ? AND state IN ('open', 'broken') RETURNING id"
        return bool(self.store.execute(query, (state, number))[1])

    def _stamp(self) -> str:
        return self.now.isoformat(timespec="seconds")

    def _note(
        self, number: int | None, at: str, event: str, state: str, model: str | None = None, detail: str = ""
    ) -> None:
        self.store.execute(
            "INSERT INTO history (promise, at, event, state, model, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (number, at, event, state, model, detail),
        )
