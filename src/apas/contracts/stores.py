"""Databases that keep a ledger: a file of SQLite, or a schema of its own, called apas, in a PostgreSQL database."""

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from apas._lazy import require
from apas.errors import InputError

#: Tables of a ledger; databases differ in `{key}`, a number that counts itself, and `{number}`.
PROMISES = """CREATE TABLE promises (
        id {key}, reference TEXT NOT NULL, digest TEXT NOT NULL, model TEXT NOT NULL,
        content TEXT NOT NULL, issued TEXT NOT NULL, expires TEXT,
        state TEXT NOT NULL CHECK (state IN ('open', 'honoured', 'broken', 'withdrawn')),
        UNIQUE (reference, digest))"""
BY_STATE = "CREATE INDEX promises_by_state ON promises (state)"
TABLES = (
    PROMISES,
    """CREATE TABLE history (
        id {key}, promise {number} NOT NULL REFERENCES promises (id), at TEXT NOT NULL,
        event TEXT NOT NULL, state TEXT NOT NULL, model TEXT, detail TEXT NOT NULL)""",
    "CREATE INDEX history_of_promise ON history (promise)",
    BY_STATE,
)
#: Of the tables. Since 2 none holds "expired": it follows from the date, so that a wrong clock leaves no trace.
VERSION = 2
PATIENCE = 60.0  # seconds to wait for other writers
#: "apas" in ASCII: in the header of a file beside the version of its tables; and the lock of a PostgreSQL database, by
#: which writers take turns, and which ends with their transaction, whatever becomes of them.
APPLICATION = 0x61706173
#: Version 1 closed a promise for good as soon as the clock was past its last day. SQLite cannot change what a
#: column may hold, so the table is made again; what the history said stays, but for the state, which is open.
_FROM_VERSION_1 = (
    PROMISES.replace("promises", "promises_of_version_2", 1),
    """INSERT INTO promises_of_version_2 (id, reference, digest, model, content, issued, expires, state)
        SELECT id, reference, digest, model, content, issued, expires,
        CASE state WHEN 'expired' THEN 'open' ELSE state END FROM promises ORDER BY id""",
    "DROP TABLE promises",
    "ALTER TABLE promises_of_version_2 RENAME TO promises",
    BY_STATE,
    """UPDATE history SET state = 'open', detail = 'closed by the clock of that moment; since version 2 of the file '
        || 'the date alone decides whether a promise has expired' WHERE event = 'expired'""",
)


class _Store(ABC):
    """A connection to tables that are made, or brought to the newest version, before anything else."""

    connection: Any

    @abstractmethod
    def _prepare(self, create: bool) -> None: ...

    def _prepare_or_close(self, create: bool) -> None:
        try:
            self._prepare(create)
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class SqliteStore(_Store):
    """An open file; every commit is on the disk before it returns."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        try:
            self.path = Path(path)
            self.name = str(self.path)
        except TypeError:
            raise InputError(f"`path` of a ledger must be the name of a file, got {type(path).__name__}.") from None
        if not self.path.exists() and not create:
            raise InputError(f"{self.path} does not exist; `apas ledger add` makes a ledger.")
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise InputError(f"`path` of a ledger must be a file in a folder that exists, got {str(self.path)!r}.")
        with self._readable_errors():
            self.connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            self._prepare_or_close(create)

    def execute(self, query: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns and rows of a query."""
        with self._readable_errors():
            cursor = self.connection.execute(query, values)
            return [name for name, *_ in cursor.description or ()], cursor.fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing; other writers wait."""
        with self._readable_errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def _prepare(self, create: bool) -> None:
        version = self._version()
        if not version and not create:
            raise InputError(f"{self.path} is not a ledger of apas: it is empty; `apas ledger add` makes a ledger.")
        self.connection.execute("PRAGMA trusted_schema = OFF")
        self._write_ahead()
        self.connection.execute("PRAGMA synchronous = FULL")
        if version != VERSION:
            self.connection.execute("PRAGMA foreign_keys = OFF")  # else the old table could not be dropped
            with self.transaction():
                version = self._version()  # another process may have made or renewed the tables meanwhile
                if version != VERSION:
                    for statement in _FROM_VERSION_1 if version else TABLES:
                        self.connection.execute(statement.format(key="INTEGER PRIMARY KEY", number="INTEGER"))
                    self.connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    self.connection.execute(f"PRAGMA user_version = {VERSION}")
        self.connection.execute("PRAGMA foreign_keys = ON")

    def _version(self) -> int:
        """The version of a ledger, 0 for an empty file; others are refused before anything is written to them."""
        # in this order: tables and identity are committed together, so that whoever sees a table sees whose it is
        tables = self._number("SELECT count(*) FROM sqlite_master")
        application, version = (self._number(f"PRAGMA {name}") for name in ("application_id", "user_version"))
        if application == APPLICATION:
            # whose answers could be anything, or take forever; a ledger has neither
            made = "SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%'"
            if self._number(made):
                raise InputError(
                    f"{self.path} is not a ledger of apas: it holds views or triggers; get it from a backup."
                )
            if not 1 <= version <= VERSION:
                read = f"this apas reads 1 to {VERSION}"
                raise InputError(f"{self.path} is a ledger of version {version}, but {read}; use a newer apas.")
            return version
        if application or tables:
            raise InputError(f"{self.path} is not a ledger of apas but another SQLite database; name another file.")
        return 0

    def _number(self, query: str) -> int:
        return int(self.connection.execute(query).fetchone()[0])

    def _write_ahead(self) -> None:
        """Switch to write-ahead logging; SQLite does not wait for other processes here, so this does."""
        end, mode = time.monotonic() + PATIENCE, ""
        while not mode:
            try:
                mode = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise InputError("the ledger must be on a disk that takes write-ahead logging; this one does not.")

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError:  # SQLite quotes the damaged bytes, and Python cannot read its complaint
            raise InputError(
                f"{self.path} is damaged (it holds texts that are not UTF-8); get it from a backup."
            ) from None
        except sqlite3.Error as error:
            said = str(error)
            if "not a database" in said:
                raise InputError(f"{self.path} is not a ledger of apas: it is no SQLite file.") from None
            if "malformed" in said or "corrupt" in said or "no such" in said:
                raise InputError(f"{self.path} is damaged ({said}); get it from a backup.") from None
            if "locked" in said or "busy" in said:
                raise InputError(f"{self.path} was in use by others for {PATIENCE:g} s; try again.") from None
            raise InputError(f"{self.path} cannot be used: {said}.") from None


class PostgresStore(_Store):
    """A connection; every commit is on the server's disk before it returns."""

    def __init__(self, url: str, *, create: bool) -> None:
        self.name = _without_password(url)
        self._driver = require("psycopg", feature="a ledger in PostgreSQL", extra="postgres")
        with self._readable_errors():
            # transactions are begun by hand; what a killed writer left open ends with its connection
            how: dict[str, Any] = {"autocommit": True, "connect_timeout": 10, "application_name": "apas"}
            try:
                self.connection = self._driver.connect(url, **how)
            except self._driver.ProgrammingError:  # it quotes the part of the address that it cannot read
                mend = "write signs such as % and @ in a name or a password as %25 and %40"
                raise InputError(f"{_UNREADABLE}; {mend}.") from None
            self._prepare_or_close(create)

    def execute(self, query: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns and rows of a query."""
        # psycopg's placeholders; queries of ours hold question marks for values alone, and per cents in patterns
        with self._readable_errors(), self.connection.cursor() as cursor:
            cursor.execute(query.replace("%", "%%").replace("?", "%s") if values else query, values or None)
            described = cursor.description
            return [column.name for column in described or ()], cursor.fetchall() if described else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing; other writers wait, so that the history is in the order of its numbers."""
        with self._readable_errors(), self.connection.transaction():
            self.connection.execute(f"SELECT pg_advisory_xact_lock({APPLICATION})")
            yield

    def _prepare(self, create: bool) -> None:
        run = self.connection.execute
        run(f"SET lock_timeout = {int(1000 * PATIENCE)}")
        run("SET synchronous_commit = on")
        run("SET search_path = apas")
        version = self._version()
        if not version and not create:
            raise InputError(f"{self.name} holds no ledger of apas; `apas ledger add` makes one.")
        if version != VERSION:
            # before the transaction begins: only then does the server forget what it remembers about tables, and what
            # another process made while this one waited would else not be seen
            run(f"SELECT pg_advisory_lock({APPLICATION})")
            with self.transaction():
                version = self._version()
                if not version:
                    run("CREATE SCHEMA IF NOT EXISTS apas")
                    for statement in (*TABLES, "CREATE TABLE ledger (version INTEGER NOT NULL)"):
                        run(statement.format(key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", number="BIGINT"))
                    run("INSERT INTO ledger (version) VALUES (%s)", (VERSION,))
            run(f"SELECT pg_advisory_unlock({APPLICATION})")

    def _version(self) -> int:
        """The version of the tables, 0 if there are none; those of a later apas are refused."""
        if self.connection.execute("SELECT to_regclass('apas.ledger')").fetchone()[0] is None:
            return 0
        version = int(self.connection.execute("SELECT max(version) FROM ledger").fetchone()[0] or 0)
        if version > VERSION:
            read = f"this apas reads up to {VERSION}"
            raise InputError(f"{self.name} holds a ledger of version {version}, but {read}; use a newer apas.")
        return version

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """What the server or the driver says, as a sentence without the password."""
        try:
            yield
        except self._driver.errors.LockNotAvailable:
            raise InputError(f"{self.name} was in use by others for {PATIENCE:g} s; try again.") from None
        except self._driver.errors.InsufficientPrivilege as error:
            raise InputError(
                f"{self.name} refuses: {_first_line(error)}; give the user the right to create and use the schema apas."
            ) from None
        except self._driver.OperationalError as error:
            raise InputError(
                f"{self.name} cannot be reached or was lost: {_first_line(error)}; check the address and try again."
            ) from None
        except self._driver.Error as error:
            raise InputError(f"{self.name} cannot be used as a ledger: {_first_line(error)}.") from None


_UNREADABLE = "`path` of a ledger must be an address such as postgresql://user@host:5432/name"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason was given"])[0].rstrip(".")


def _without_password(url: str) -> str:
    """The address as people may read it: user, host, port and database."""
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or 'localhost'}{'' if parts.port is None else f':{parts.port}'}"
        if parts.netloc.count("@") > 1:  # the driver would take the rest of a password for the host
            raise ValueError
    except ValueError:
        raise InputError(f"{_UNREADABLE}; its host or port cannot be read.") from None
    return f"postgresql://{'' if parts.username is None else parts.username + '@'}{place}{parts.path}"


def open_store(place: str | os.PathLike[str], *, create: bool) -> SqliteStore | PostgresStore:
    """The database that a name means: an address that begins with ``postgresql://``, or a file."""
    scheme, separator, _ = str(place).partition("://")
    if separator and scheme not in ("postgresql", "postgres"):  # the rest of it may hold a password
        example = "postgresql://user@host:5432/name"
        raise InputError(
            f"`path` of a ledger must be a file or an address such as {example}, got {scheme}://...; mend it."
        )
    if separator:
        return PostgresStore(str(place), create=create)
    return SqliteStore(place, create=create)
