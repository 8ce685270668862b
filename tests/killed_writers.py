"""Processes that write certificates to a ledger and to files, and are killed while they do.

Run as a program it writes certificates to a folder, each to a file and to the ledger there; or all of them to the
ledger in one call; or some of them to a ledger that others write to as well.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import apas

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


@functools.cache
def certified(count: int, first: int = 0) -> apas.Certificates:
    """So many certified rows, different for another `first`."""
    net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
    points = np.array([[10.0 + i, 0.5] for i in range(first, first + count)])
    return apas.certify(net, points, 0.01, target=1, method="interval")


def write_all(folder: Path, certificates: apas.Certificates) -> None:
    """Each certificate to a file, unless that is there, and to the ledger."""
    with apas.Ledger(folder / "ledger.db", clock=lambda: NOON) as ledger:
        for i in range(len(certificates)):
            place = folder / f"certificate-{i:03}.json"
            if not place.exists():
                apas.save_certificates(certificates[i : i + 1], place)
            ledger.add(certificates[i : i + 1], [f"A-{i}"], expires="2027-06-30")


def start(*words: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, *map(str, words)])


def killed_after(folder: Path, rows: int, pause: float, *, together: bool) -> None:
    """Start a writer, and kill it once so many rows are in the ledger and a moment has passed.

    One that writes files, too, begins the file of a row when the row before it is in the ledger. One that adds all
    rows `together`, in one call, writes no files. With 0 rows the kill comes when the ledger's own file is there,
    before or after its tables.
    """
    process = start("together" if together else "write", folder)
    ledger, file = folder / "ledger.db", folder / f"certificate-{rows:03}.json"
    while process.poll() is None:
        if ledger.exists() if not rows else rows_in(ledger) >= rows if together else file.exists():
            break
        time.sleep(0.0005 if not together else 0.002 if not rows else 0)
    # what is added in one call may be there a millisecond later
    time.sleep(pause if not (together and rows) else 0)
    process.send_signal(signal.SIGKILL)
    process.wait()


def rows_in(ledger: Path) -> int:
    """How many promises another connection sees."""
    if not ledger.exists():
        return 0
    with contextlib.closing(sqlite3.connect(ledger, timeout=60)) as connection, contextlib.suppress(sqlite3.Error):
        return int(connection.execute("SELECT count(*) FROM promises").fetchone()[0])
    return 0


def dump(ledger: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a ledger holds, after SQLite has checked the file."""
    with contextlib.closing(sqlite3.connect(ledger, timeout=60)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
            for table in ("promises", "history")
        }


def files(folder: Path) -> dict[str, bytes]:
    """The certificate files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "write":
        write_all(Path(where), certified(200))
    elif what == "together":
        with apas.Ledger(Path(where) / "ledger.db", clock=lambda: NOON) as book:
            book.add(certified(200), [f"A-{i}" for i in range(200)], expires="2027-06-30")
    else:
        count, first = map(int, rest)
        with apas.Ledger(where) as book:
            book.add(certified(count, first), [f"A-{first + i}" for i in range(count)])
