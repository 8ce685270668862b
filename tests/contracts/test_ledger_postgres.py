"""The ledger on a real PostgreSQL server: the same answers as on SQLite, several writers, and kills of writers and server."""

from __future__ import annotations

import signal
import time

import pytest
from command_line import run
from conftest import library
from killed_writers import NOON, certified, start
from postgres_server import running_server

import apas
from apas.contracts.stores import VERSION
from apas.report import mlflow_gate

psycopg = library("psycopg")
KEEPS_MOST = apas.FeedForward([[[1.0], [-1.0]]], [[-30.0]], feature_names=("income", "debt"))


@pytest.fixture(scope="module")
def server():
    with running_server() as found:
        yield found


@pytest.fixture
def url(server):
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS apas CASCADE")
    return server.url


def lived(place):
    """What a ledger says after a life with everything in it."""
    names = [f"A-{i}" for i in range(30)]
    with apas.Ledger(place, clock=lambda: NOON) as book:
        said = [book.add(certified(30), names, expires="2027-06-30"), book.add(certified(30), names)]
        said += [book.add(certified(2), ["B-1", "B-2"])]
        reports = [book.audit(model).to_frame().to_csv() for model in (KEEPS_MOST, KEEPS_MOST)]
        said += [book.retire("A-29"), book.retire(["A-3", "A-4"], "withdrawn"), len(book)]
        with pytest.raises(apas.InputError, match="holds no promise to 'A-3' that is not closed yet"):
            book.retire(["A-5", "A-3"])
        frames = [book.to_frame(), book.to_frame("broken"), book.history(), book.history("A-3")]
        return said, reports, [frame.to_csv() for frame in frames]


def test_the_same_answers_as_on_sqlite(url, tmp_path):
    ours, theirs = lived(url), lived(tmp_path / "ledger.db")
    assert ours == theirs
    assert "withdrawn" in ours[2][0]
    assert "BROKEN" in ours[1][0]


def test_the_command_line_takes_an_address(url, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    apas.save_certificates(certified(3), "promises.json")
    (tmp_path / "names.txt").write_text("A-0\nA-1\nA-2\n")
    code, out, _ = run(capsys, "ledger", "add", url, "promises.json", "--references", "names.txt")
    assert (code, out) == (0, "3 added, 0 known already, 0 not certified.\n")
    code, out, _ = run(capsys, "ledger", "list", url, "--state", "open")
    assert (code, out.count("A-")) == (0, 3)
    apas.save_model(KEEPS_MOST, "new.json")
    code, out, _ = run(capsys, "ledger", "audit", url, "new.json", "--no-repairs")
    assert (code, out.count("BROKEN")) == (1, 4)  # a line each, and the summary
    assert run(capsys, "ledger", "retire", url, "A-1")[0] == 0


def test_the_gate_of_mlflow_takes_an_address_and_shows_no_password(url):
    with apas.Ledger(url) as book:
        book.add(certified(3), ["A-0", "A-1", "A-2"])
        report, _ = mlflow_gate._audited({"promises": url}, KEEPS_MOST)
        assert (len(report), report.broken.sum()) == (3, 3)
        assert set(book.to_frame()["state"]) == {"open"}  # a candidate leaves no trace
    with pytest.raises(apas.InputError, match=r"got mysql://\.\.\.") as refused:
        mlflow_gate._audited({"promises": "mysql://apas:secret-word@host/name"}, KEEPS_MOST)
    assert "secret-word" not in str(refused.value)


def test_no_password_is_shown(url, server):
    with apas.Ledger(url) as book:
        assert "secret-word" not in repr(book)
    wrong = url.replace("/postgres", "/nothing")
    with pytest.raises(apas.InputError, match="cannot be reached or was lost") as refused:
        apas.Ledger(wrong)
    assert "secret-word" not in str(refused.value)


def test_what_is_not_a_ledger_is_refused_in_a_sentence(url):
    with pytest.raises(apas.InputError, match="holds no ledger of apas; `apas ledger add` makes one"):
        apas.Ledger(url, create=False)
    with pytest.raises(apas.InputError, match="cannot be reached or was lost: .*; check the address and try again"):
        apas.Ledger("postgresql://apas@127.0.0.1:1/postgres")
    apas.Ledger(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"UPDATE apas.ledger SET version = {VERSION + 1}")
    with pytest.raises(apas.InputError, match=f"of version {VERSION + 1}, but this apas reads up to {VERSION}"):
        apas.Ledger(url)


def test_an_auditor_who_may_only_read(url):
    with apas.Ledger(url) as book:
        book.add(certified(3), ["A-0", "A-1", "A-2"])
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'auditor'").fetchone():
            connection.execute("CREATE ROLE auditor LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA apas TO auditor")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA apas TO auditor")
    with apas.Ledger(url.replace("apas:secret-word", "auditor"), create=False) as book:
        assert len(book.audit(KEEPS_MOST, repairs=False, record=False)) == 3
        with pytest.raises(apas.InputError, match="refuses: permission denied"):
            book.retire("A-0")
        assert set(book.to_frame()["state"]) == {"open"}


def check_four_writers(url, server, count, kills):
    """Four writers with promises of their own, killed and started again; nothing is lost, and nothing is there twice."""
    firsts = [i * count for i in range(4)]
    writers = {first: start("add", url, count, first) for first in firsts}
    killed = 0
    while killed < kills and any(writer.poll() is None for writer in writers.values()):
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT to_regclass('apas.promises')").fetchone()[0]
            rows = 0 if found is None else connection.execute("SELECT count(*) FROM apas.promises").fetchone()[0]
        if rows < (killed + 1) * 4 * count // (kills + 2):
            time.sleep(0.005)
            continue
        first = firsts[killed % 4]
        writers[first].send_signal(signal.SIGKILL)
        writers[first].wait()
        writers[first] = start("add", url, count, first)  # whoever was interrupted adds the same again
        killed += 1
    assert [writer.wait(timeout=600) for writer in writers.values()] == [0] * 4
    assert killed == kills
    check_whole(url, 4 * count)


def check_whole(url, count):
    with apas.Ledger(url, create=False) as book:
        frame = book.to_frame()
        assert sorted(frame["reference"]) == sorted(f"A-{i}" for i in range(count))
        history = book.history()
        assert len(history) == count
        assert set(history["event"]) == {"added"}
        assert int(book.audit(KEEPS_MOST, repairs=False, record=False).broken.sum()) == 21


def test_four_writers_of_which_some_are_killed(url, server):
    check_four_writers(url, server, 400, 2)


@pytest.mark.validity
def test_four_writers_with_2500_promises_each(url, server):
    check_four_writers(url, server, 2500, 12)


def check_killed_server(url, server, count, kills):
    """The server loses its power while a writer adds; the writer says so, and what it had committed is there."""
    kept = 0
    for kill in range(kills):
        writer = start("add", url, count, 0)
        goal = (kill + 1) * count // (kills + 1)
        while kept < goal:
            with psycopg.connect(url) as connection:
                found = connection.execute("SELECT to_regclass('apas.promises')").fetchone()[0]
                kept = 0 if found is None else connection.execute("SELECT count(*) FROM apas.promises").fetchone()[0]
        server.kill()
        assert writer.wait(timeout=60) != 0
        server.start()
        with apas.Ledger(url) as book:
            names = book.to_frame()["reference"].tolist()
        assert names == [f"A-{i}" for i in range(len(names))]  # in their order, without a gap
        assert kept <= len(names) < count
    assert start("add", url, count, 0).wait(timeout=600) == 0
    check_whole(url, count)


def test_a_killed_server_loses_nothing(url, server):
    check_killed_server(url, server, 4000, 1)  # so many that some are still to come when the server is gone


@pytest.mark.validity
def test_a_server_killed_ten_times_loses_nothing(url, server):
    check_killed_server(url, server, 1500, 10)


def test_auditors_and_writers_at_once(url):
    with apas.Ledger(url) as book:
        book.add(certified(40), [f"A-{i}" for i in range(40)])
        writer = start("add", url, 100, 100)
        reports = [book.audit(KEEPS_MOST, repairs=False) for _ in range(3)]
        assert writer.wait(timeout=60) == 0
        assert len(book) == 140
        events = book.history()["event"].value_counts()
        assert events["added"] == 140
        assert sum(len(report) for report in reports) == len(book.history()) - 140
