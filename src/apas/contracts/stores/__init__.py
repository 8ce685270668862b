"""Databases that keep a ledger, one file each: what they must do, and which of them a name means."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apas.contracts.stores.postgres import PostgresStore
    from apas.contracts.stores.sqlite import SqliteStore

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


def open_store(place: str | os.PathLike[str], *, create: bool) -> "SqliteStore | PostgresStore":
    """The database that a name means: an address that begins with ``postgresql://``, or a file."""
    if isinstance(place, str) and place.partition("://")[0] in ("postgresql", "postgres") and "://" in place:
        from apas.contracts.stores.postgres import PostgresStore

        return PostgresStore(place, create=create)
    from apas.contracts.stores.sqlite import SqliteStore

    return SqliteStore(place, create=create)
