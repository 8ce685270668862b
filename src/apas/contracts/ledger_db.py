"""The SQLite file of a ledger: opened, migrated, read and changed in transactions with a history."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apas.contracts.audit import AuditRow
from apas.contracts.promises import Promise
from apas.errors import InputError

#: Written into the header of the file: "apas" in ASCII, and the version of the tables.
APPLICATION, VERSION = 0x61706173, 2
PATIENCE = 60.0  # seconds to wait for other writers
#: What a promise can be. No file holds "expired": it follows from the date, so that a wrong clock leaves no trace.
STATES = ("open", "honoured", "broken", "expired", "withdrawn")
_PROMISES = """CREATE TABLE promises (
        id INTEGER PRIMARY KEY, reference TEXT NOT NULL, digest TEXT NOT NULL, model TEXT NOT NULL,
        content TEXT NOT NULL, issued TEXT NOT NULL, expires TEXT,
        state TEXT NOT NULL CHECK (state IN ('open', 'honoured', 'broken', 'withdrawn')),
        UNIQUE (reference, digest))"""
_BY_STATE = "CREATE INDEX promises_by_state ON promises (state)"
_TABLES = (
    _PROMISES,
    """CREATE TABLE history (
        id INTEGER PRIMARY KEY, promise INTEGER NOT NULL REFERENCES promises (id), at TEXT NOT NULL,
        event TEXT NOT NULL, state TEXT NOT NULL, model TEXT, detail TEXT NOT NULL)""",
    "CREATE INDEX history_of_promise ON history (promise)",
    _BY_STATE,
)
#: Version 1 closed a promise for good as soon as the clock was past its last day. SQLite cannot change what a
#: column may hold, so the table is made again; what the history said stays, but for the state, which is open.
_FROM_VERSION_1 = (
    _PROMISES.replace("promises", "promises_of_version_2", 1),
    """INSERT INTO promises_of_version_2 (id, reference, digest, model, content, issued, expires, state)
        SELECT id, reference, digest, model, content, issued, expires,
        CASE state WHEN 'expired' THEN 'open' ELSE state END FROM promises ORDER BY id""",
    "DROP TABLE promises",
    "ALTER TABLE promises_of_version_2 RENAME TO promises",
    _BY_STATE,
    """UPDATE history SET state = 'open', detail = 'closed by the clock of that moment; since version 2 of the file '
        || 'the date alone decides whether a promise has expired' WHERE event = 'expired'""",
)


def open_file(path: str | os.PathLike[str], *, create: bool) -> sqlite3.Connection:
    """Open a ledger, or make one; every commit is on the disk before it returns."""
    try:
        file = Path(path)
    except TypeError:
        raise InputError(f"`path` of a ledger must be the name of a file, got {type(path).__name__}.") from None
    if not file.exists() and not create:
        raise InputError(f"{file} does not exist; `apas ledger add` makes a ledger.")
    if file.is_dir() or not file.parent.is_dir():
        raise InputError(f"`path` of a ledger must be a file in a folder that exists, got {str(file)!r}.")
    with readable_errors(file):
        connection = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None)
        try:
            _prepare(connection, file, create)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, file: Path, create: bool) -> None:
    version = _version(connection, file)
    if not version and not create:
        raise InputError(f"{file} is not a ledger of apas: it is empty; `apas ledger add` makes a ledger.")
    connection.execute("PRAGMA trusted_schema = OFF")
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")
    if version != VERSION:
        connection.execute("PRAGMA foreign_keys = OFF")  # else the old table could not be dropped
        with transaction(connection):
            version = _version(connection, file)  # another process may have made or renewed the tables meanwhile
            if version != VERSION:
                for statement in _FROM_VERSION_1 if version else _TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("PRAGMA foreign_keys = ON")


def _version(connection: sqlite3.Connection, file: Path) -> int:
    """The version of a ledger, 0 for an empty file; others are refused before anything is written to them."""
    # in this order: tables and identity are committed together, so that whoever sees a table sees whose it is
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    application, version = (_number(connection, f"PRAGMA {name}") for name in ("application_id", "user_version"))
    if application == APPLICATION:
        # whose answers could be anything, or take forever; a ledger has neither
        made = "SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%'"
        if _number(connection, made):
            raise InputError(f"{file} is not a ledger of apas: it holds views or triggers; get it from a backup.")
        if not 1 <= version <= VERSION:
            raise InputError(
                f"{file} is a ledger of version {version}, but this apas reads 1 to {VERSION}; use a newer apas."
            )
        return version
    if application or tables:
        raise InputError(f"{file} is not a ledger of apas but another SQLite database; name another file.")
    return 0


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait for other processes here, so this does."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                return
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
        else:
            raise InputError("the ledger must be on a disk that takes write-ahead logging; this one does not.")
        time.sleep(0.01)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; other writers wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """What SQLite says about a file, as a sentence."""
    try:
        yield
    except UnicodeDecodeError:  # SQLite quotes the damaged bytes, and Python cannot read its complaint
        raise InputError(f"{path} is damaged (it holds texts that are not UTF-8); get it from a backup.") from None
    except sqlite3.Error as error:
        said = str(error)
        if "not a database" in said:
            raise InputError(f"{path} is not a ledger of apas: it is no SQLite file.") from None
        if "malformed" in said or "corrupt" in said or "no such" in said:
            raise InputError(f"{path} is damaged ({said}); get it from a backup.") from None
        if "locked" in said or "busy" in said:
            raise InputError(f"{path} was in use by others for {PATIENCE:g} s; try again.") from None
        raise InputError(f"{path} cannot be used: {said}.") from None


#: How far the clock may be from the last entry of the history: a day forgives a wrong time zone, ten years (with at
#: most three leap days) a ledger that rested.
BEFORE, AFTER = timedelta(days=1), timedelta(days=3653)
#: What the columns of the tables hold.
_KINDS: dict[str, Any] = {
    "id": int,
    **dict.fromkeys(("reference", "digest", "content", "issued", "state", "at", "event", "detail"), str),
    **dict.fromkeys(("expires", "model"), str | None),
}


class Book:
    """An open ledger file."""

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool, clock: Callable[[], datetime], trust_clock: bool
    ) -> None:
        self.connection = open_file(path, create=create)
        self.path, self._clock, self._trust_clock = Path(path), clock, trust_clock

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

    def check(self) -> None:
        """Refuse promises in a state, or with a last day, that no ledger writes: no question would ever find them."""
        query = (
            "SELECT count(*) FROM promises WHERE state IS NULL OR state NOT IN ('open', 'honoured', 'broken', "
            "'withdrawn') OR expires NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'"
        )
        if self.rows(query)[0][0]:
            raise InputError(
                f"{self.path} is damaged (a promise has a state or a last day that there is not); get it from a backup."
            )

    @contextmanager
    def write_transaction(self) -> Iterator[None]:
        """Everything in it is written, or nothing."""
        with readable_errors(self.path), transaction(self.connection):
            yield

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
        query = "SELECT promise AS id, model, event FROM history WHERE event GLOB 'audited: *' ORDER BY history.id"
        return [(number, str(model), event.endswith(("HELD", "OPEN"))) for number, model, event in self.rows(query)]

    def count_expired(self, today: str) -> int:
        """How many promises are not owed on a day because their last one was before it."""
        query = "SELECT count(*) FROM promises WHERE state IN ('open', 'broken') AND expires < ?"
        return int(self.rows(query, today)[0][0])

    def insert(self, reference: str, part: Promise, expires: str | None) -> bool:
        """Add a promise in a transaction of its own, unless it is there; whether it was new."""
        with self.write_transaction():
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

    def _move(self, number: int, state: str) -> bool:
        """Change the state of a promise that is not closed."""
        query = "UPDATE promises SET state = ? WHERE id = ? AND state IN ('open', 'broken')"
        return bool(self.connection.execute(query, (state, number)).rowcount)

    def _note(self, number: int | None, event: str, state: str, model: str | None = None, detail: str = "") -> None:
        self.connection.execute(
            "INSERT INTO history (promise, at, event, state, model, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (number, self.now.isoformat(timespec="seconds"), event, state, model, detail),
        )
