"""A ledger and a clock that is wrong: nothing expires for good, and what the former version closed comes alive again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import pytest
from killed_writers import certified, dump

import apas

MODEL = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
NAMES = [f"A-{i}" for i in range(5)]
MAY = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATE = datetime(2099, 1, 1, tzinfo=UTC)
#: The tables of version 1, as it made them.
VERSION_1 = """
CREATE TABLE promises (
        id INTEGER PRIMARY KEY, reference TEXT NOT NULL, digest TEXT NOT NULL, model TEXT NOT NULL,
        content TEXT NOT NULL, issued TEXT NOT NULL, expires TEXT,
        state TEXT NOT NULL CHECK (state IN ('open', 'honoured', 'broken', 'expired', 'withdrawn')),
        UNIQUE (reference, digest));
CREATE TABLE history (
        id INTEGER PRIMARY KEY, promise INTEGER NOT NULL REFERENCES promises (id), at TEXT NOT NULL,
        event TEXT NOT NULL, state TEXT NOT NULL, model TEXT, detail TEXT NOT NULL);
CREATE INDEX history_of_promise ON history (promise);
CREATE INDEX promises_by_state ON promises (state);
PRAGMA application_id = 1634754931;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""
#: Opens a ledger, and dies by SIGKILL when SQLite is about to begin statement number argv[2].
#: For every number that it reads: a process of its own, which is killed at the statement of that number; and how it ended.
KILLED = """
import os, signal, sqlite3, sys
import apas
apas.Ledger
real = sqlite3.connect
def open_until(left):
    def said(statement):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    def connect(*args, **options):
        connection = real(*args, **options)
        connection.set_trace_callback(said)
        return connection
    sqlite3.connect = connect
    apas.Ledger(sys.argv[1], create=False).close()
for line in sys.stdin:
    child = os.fork()
    if not child:
        open_until(int(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def at(moment):
    return lambda: moment


def opened(path, moment, **options):
    return apas.Ledger(path, clock=at(moment), **options)


@pytest.fixture
def path(tmp_path):
    """Five promises until June 2027."""
    with opened(tmp_path / "ledger.db", MAY) as book:
        book.add(certified(5), NAMES, expires="2027-06-30")
    return tmp_path / "ledger.db"


def as_version_1(path, state="expired", moment=LATE):
    """The ledger as version 1 left it after an audit at a moment past every date: all promises closed for good."""
    found = dump(path)
    path.unlink()
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    with connection:
        rows = [(*row[:-1], state if row[-1] == "open" else row[-1]) for row in found["promises"]]
        connection.executemany("INSERT INTO promises VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", found["history"])
        if state == "expired":
            stamp = moment.isoformat(timespec="seconds")
            closed = [(row[0], stamp) for row in rows if row[-1] == "expired"]
            query = "INSERT INTO history (promise, at, event, state, detail) VALUES (?, ?, 'expired', 'expired', '')"
            connection.executemany(query, closed)
    connection.close()


def version(path):
    connection = sqlite3.connect(path)
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return found


def test_an_audit_with_the_clock_far_ahead_expires_nothing_for_good(path):
    with opened(path, LATE, trust_clock=True) as book:
        report = book.audit(MODEL)
        assert (len(report), report.expired, report.ok, report.exit_code) == (0, 5, True, 0)
        assert report.summary() == "No promise is owed: 5 expired."
        assert set(book.to_frame()["state"]) == {"expired"}
    with opened(path, MAY) as book:
        assert set(book.to_frame()["state"]) == {"open"}
        assert book.audit(MODEL).summary() == "5 rows: 5 HELD."
        assert set(book.history()["event"]) == {"added", "audited: HELD"}


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (LATE, "the clock says 2099-01-01 00:00 UTC, which is more than ten years after the last entry"),
        (MAY + timedelta(days=3653, minutes=1), "more than ten years after the last entry"),
        (MAY - timedelta(days=1, minutes=1), r"more than a day before the last entry of .* \(2026-05-04 12:00 UTC\)"),
    ],
    ids=["2099", "ten years", "a day"],
)
def test_a_clock_far_from_the_history_is_refused(path, moment, words):
    before = dump(path)
    with opened(path, moment) as book:
        for ask in (
            lambda: book.audit(MODEL),
            lambda: book.audit(MODEL, record=False),
            lambda: book.add(certified(1, 7), ["B-1"]),
            lambda: book.retire("A-1"),
            book.to_frame,
        ):
            with pytest.raises(apas.InputError, match=words) as caught:
                ask()
            assert "--trust-clock" in str(caught.value)
        assert len(book.history()) == 5  # for which no clock is needed
    assert dump(path) == before
    with opened(path, moment, trust_clock=True) as book:
        assert book.add(certified(1, 7), ["B-1"]).added == 1
        # what was told once is the last entry: the clock it has need not be told again
    with opened(path, moment) as book:
        assert len(book.to_frame()) == 6


@pytest.mark.parametrize("days", [-1, 3653], ids=["a day before", "ten years after"])
def test_a_clock_at_the_limit_is_taken(path, days):
    with opened(path, MAY + timedelta(days=days)) as book:
        assert len(book.to_frame()) == 5


def test_an_entry_of_another_time_is_answered_once(path):
    """An entry of 2099 that stayed: whoever says once that today's clock is right need not say so again."""
    with opened(path, LATE, trust_clock=True) as book:
        book.retire("A-0")
    with opened(path, MAY) as book, pytest.raises(apas.InputError, match="more than a day before"):
        book.audit(MODEL)
    with opened(path, MAY, trust_clock=True) as book:
        book.audit(MODEL)
    with opened(path, MAY) as book:
        assert len(book.audit(MODEL)) == 4


def test_strict(path):
    after = datetime(2027, 7, 1, tzinfo=UTC)
    with opened(path, after) as book:
        report = book.audit(MODEL, strict=True)
        assert (report.ok, report.exit_code, report.expired) == (False, 1, 5)
        assert report.to_dict()["expired"] == 5
        assert report.to_markdown().startswith("## No promise is owed: 5 expired\n")
        (suite,) = ET.fromstring(report.to_junit())
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "1", "0")
        assert suite.find("testcase/failure").get("message").startswith("5 expired")
        (suite,) = ET.fromstring(book.audit(MODEL).to_junit())
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "0", "1")
        book.add(certified(1, 7), ["B-1"])
        report = book.audit(MODEL, strict=True)
        assert not report.ok
        assert report.summary() == "1 row: 1 HELD; 5 expired."
        assert report.to_markdown().startswith("## All promises that are owed are kept, 5 expired\n")
        assert report[report.broken].summary() == "No rows."
        assert book.audit(MODEL).ok
        assert book.retire(NAMES, "withdrawn") == 5  # then nothing is left that expired
        assert book.audit(MODEL, strict=True).ok
        book.retire("B-1")
        report = book.audit(MODEL, strict=True)
        assert (report.ok, report.summary()) == (True, "No promise is owed.")
        with pytest.raises(apas.InputError, match="`strict` must be True or False, got 1"):
            book.audit(MODEL, strict=1)


def test_what_version_1_closed_comes_alive_again(path):
    with opened(path, MAY) as book:
        book.retire("A-4")
    new = dump(path)
    as_version_1(path)
    assert version(path) == 1
    with opened(path, MAY + timedelta(days=30)) as book:
        assert book.to_frame()["state"].tolist() == ["open"] * 4 + ["honoured"]
        events = book.history("A-0")
        assert events["event"].tolist() == ["added", "expired"]  # nothing that was written is lost
        assert events["at"].tolist()[1] == "2099-01-01T00:00:00+00:00"
        assert events["state"].tolist() == ["open", "open"]
        report = book.audit(MODEL)
        assert (len(report), report.expired) == (4, 0)
    assert version(path) == 2
    found = dump(path)
    assert found["promises"] == new["promises"]
    assert [row for row in found["history"] if row[0] <= 6] == new["history"]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):  # a file cannot hold it any more
        connection.execute("UPDATE promises SET state = 'expired'")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        connection.execute("DELETE FROM promises WHERE id = 1")
    connection.close()
    # those whose day has passed indeed are expired by their date
    with opened(path, datetime(2027, 7, 1, tzinfo=UTC)) as book:
        assert book.audit(MODEL, strict=True).expired == 4


def test_a_migrated_file_has_the_tables_of_a_new_one(path):
    def tables(place):
        connection = sqlite3.connect(place)
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
        connection.close()
        return [(name, sql.replace('"promises"', "promises")) for name, sql in found]

    fresh = tables(path)
    as_version_1(path, "broken")
    with opened(path, MAY) as book:
        assert set(book.to_frame()["state"]) == {"broken"}
    assert tables(path) == fresh


def test_a_kill_in_the_middle_leaves_the_old_or_the_new(path):
    new = dump(path)
    left = []
    words, pipe = [sys.executable, "-c", KILLED, path], subprocess.PIPE
    killer = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
    for number in range(1, 40):
        as_version_1(path)
        old = dump(path)
        print(number, file=killer.stdin, flush=True)
        code = int(killer.stdout.readline())
        found = dump(path)
        is_new = version(path) == 2
        left.append(is_new)
        assert is_new or found == old
        with opened(path, MAY) as book:
            assert set(book.to_frame()["state"]) == {"open"}
        found = dump(path)
        assert version(path) == 2
        assert found["promises"] == new["promises"]
        assert len(found["history"]) == len(old["history"])
        path.unlink()
        with opened(path, MAY) as book:
            book.add(certified(5), NAMES, expires="2027-06-30")
        if code == 0:
            break
        assert code == -signal.SIGKILL
    killer.communicate()
    assert code == 0  # the last one had no further statement to die at
    assert left.count(False) >= 8  # the kills did come at every statement of the migration
    assert left[-1]
    assert left == sorted(left)


def test_openers_at_the_same_time(path):
    as_version_1(path)
    words = [sys.executable, "-c", "import apas, sys; apas.Ledger(sys.argv[1], create=False).close()", os.fspath(path)]
    openers = [subprocess.Popen(words) for _ in range(4)]
    assert [opener.wait() for opener in openers] == [0] * 4
    with opened(path, MAY) as book:
        assert set(book.to_frame()["state"]) == {"open"}
        assert len(book.history()) == 10


def test_a_history_without_a_time_is_damaged(path):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE history SET at = 'noon'")
    connection.close()
    with opened(path, MAY) as book, pytest.raises(apas.InputError, match="an entry of its history has no time"):
        book.audit(MODEL)
