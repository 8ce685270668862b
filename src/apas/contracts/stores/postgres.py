"""A ledger in a PostgreSQL database, in a schema of its own that is called apas."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from apas._lazy import require
from apas.contracts.stores import PATIENCE, TABLES, VERSION
from apas.errors import InputError

_KEY = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
#: Writers take turns by this lock, which ends with their transaction, whatever becomes of them: "apas" in ASCII.
_LOCK = 0x61706173
#: What brings the tables from a version to the next; those of SQLite had another history.
_MIGRATIONS: dict[int, Sequence[str]] = {0: (*TABLES, "CREATE TABLE ledger (version INTEGER NOT NULL)")}


class PostgresStore:
    """A connection; every commit is on the server's disk before it returns."""

    def __init__(self, url: str, *, create: bool) -> None:
        self._driver = require("psycopg", feature="a ledger in PostgreSQL", extra="postgres")
        self.name = _without_password(url)
        with self._readable_errors():
            # transactions are begun by hand; what a killed writer left open ends with its connection
            self.connection = self._driver.connect(url, autocommit=True, connect_timeout=10, application_name="apas")
            try:
                self._prepare(create)
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

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
            self.connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
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
            run(f"SELECT pg_advisory_lock({_LOCK})")
            with self.transaction():
                version = self._version()
                if not version:
                    run("CREATE SCHEMA IF NOT EXISTS apas")
                    for statement in _MIGRATIONS[0]:
                        run(statement.format(key=_KEY, number="BIGINT"))
                    run("INSERT INTO ledger (version) VALUES (%s)", (VERSION,))
            run(f"SELECT pg_advisory_unlock({_LOCK})")

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
            raise InputError(f"{self.name} cannot be reached or was lost: {_first_line(error)}; try again.") from None
        except self._driver.Error as error:
            raise InputError(f"{self.name} cannot be used as a ledger: {_first_line(error)}.") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason was given"])[0].rstrip(".")


def _without_password(url: str) -> str:
    """The address as people may read it: user, host, port and database."""
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or 'localhost'}{'' if parts.port is None else f':{parts.port}'}"
    except ValueError:
        raise InputError("`path` of a ledger must be an address such as postgresql://user@host:5432/name.") from None
    return f"postgresql://{'' if parts.username is None else parts.username + '@'}{place}{parts.path}"
