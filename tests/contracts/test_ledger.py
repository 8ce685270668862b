"""`Ledger`: promises by reference, their states and history, and audits over all that are owed."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from certificate_files import network
from conftest import library

import apas
from apas.contracts.audit import Outcome

OLD = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
POINTS = np.array([[2.0, 0.5], [1.0, 0.9], [0.5, 0.9]])
NAMES = ["A-1", "A-2", "A-3"]


def moved(by):
    return apas.FeedForward([[[1.0], [-1.0]]], [[by]], feature_names=("income", "debt"))


class Clock:
    def __init__(self):
        self.now = datetime(2026, 5, 4, 23, 30, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def certificates():
    """Margins 1.5, 0.1 and -0.4: two promises, and a row that is none."""
    return apas.certify(OLD, POINTS, 0.02, target=1, method="interval")


@pytest.fixture
def ledger(tmp_path, clock, certificates):
    with apas.Ledger(tmp_path / "ledger.db", clock=clock) as book:
        assert book.add(certificates, NAMES, expires="2026-06-30") == (2, 0, 1)
        yield book


def states(book):
    return dict(zip(book.to_frame()["reference"], book.to_frame()["state"], strict=True))


def test_added_once(ledger, certificates, tmp_path):
    before, events = ledger.to_frame(), ledger.history()
    assert ledger.add(certificates, NAMES, expires="2026-07-31") == (0, 2, 1)
    apas.save_certificates(certificates, tmp_path / "c.json")
    for again in (tmp_path / "c.json", str(tmp_path / "c.json"), apas.load_certificates(tmp_path / "c.json")):
        assert ledger.add(again, NAMES) == (0, 2, 1)
    pd.testing.assert_frame_equal(ledger.to_frame(), before)
    pd.testing.assert_frame_equal(ledger.history(), events)
    assert before["reference"].tolist() == ["A-1", "A-2"]
    assert before["issued"].tolist() == ["2026-05-04"] * 2
    assert before["expires"].tolist() == ["2026-06-30"] * 2
    assert before["target"].tolist() == [1, 1]
    assert before["delta"].tolist() == [0.02, 0.02]
    assert set(before["claim"]) == {"every shift"}
    # one row of several is the same promise, whatever it is called
    assert ledger.add(certificates[1:2], ["A-2"]) == (0, 1, 0)
    # the same promise to somebody else, and another one to the same person, are new
    assert ledger.add(certificates, ["B-1", "B-2", "B-3"]).added == 2
    assert ledger.add(apas.certify(OLD, POINTS, 0.01, target=1, method="interval"), NAMES).added == 2
    assert len(ledger) == 6


def test_audit_records_what_it_found(ledger):
    report = ledger.audit(moved(-0.2), base=OLD)
    assert report.to_frame()["outcome"].to_dict() == {"A-1": "HELD", "A-2": "BROKEN_OUTSIDE"}
    assert report.exit_code == 1
    assert states(ledger) == {"A-1": "open", "A-2": "broken"}
    events = ledger.history("A-2")
    assert events["event"].tolist() == ["added", "audited: BROKEN_OUTSIDE"]
    assert events["state"].tolist() == ["open", "broken"]
    assert events["model"].tolist()[1] == report.new_digest
    assert "nearest repair: " in events["detail"].tolist()[1]
    assert events["at"].tolist() == ["2026-05-04T23:30:00+00:00"] * 2
    # a broken promise is still owed: a second look at the same model does not pass
    assert not ledger.audit(moved(-0.2), base=OLD).ok
    assert ledger.audit(moved(-0.01), base=OLD).ok
    assert states(ledger) == {"A-1": "open", "A-2": "open"}
    assert ledger.to_frame("open")["reference"].tolist() == ["A-1", "A-2"]
    assert ledger.to_frame("broken").empty


def test_a_dry_run_writes_nothing(ledger, clock):
    clock.now += timedelta(days=1)
    before = ledger.history()
    assert not ledger.audit(moved(-0.2), record=False).ok
    pd.testing.assert_frame_equal(ledger.history(), before)
    assert states(ledger) == {"A-1": "open", "A-2": "open"}


def test_expiry(ledger, clock, certificates):
    ledger.add(certificates[:1], ["never"])
    ledger.audit(moved(-0.2))
    clock.now = datetime(2026, 6, 30, 23, 59, tzinfo=UTC)  # the last day counts
    assert len(ledger.audit(moved(-0.2), repairs=False)) == 3
    clock.now = datetime(2026, 7, 1, 1, 0, tzinfo=UTC)
    assert states(ledger) == {"A-1": "expired", "A-2": "broken", "never": "open"}
    assert ledger.audit(moved(-9.0)).to_frame().index.tolist() == ["never"]
    assert "expired" not in ledger.history("A-1")["state"].tolist()  # it follows from the date
    assert states(ledger) == {"A-1": "expired", "A-2": "broken", "never": "broken"}
    assert ledger.retire("A-1", "withdrawn") == 1  # whoever looks after the ledger closes what has expired
    assert states(ledger)["A-1"] == "withdrawn"
    with pytest.raises(apas.InputError, match="no promise to 'A-1' that is not closed yet"):
        ledger.retire("A-1")
    with pytest.raises(apas.InputError, match="must not lie before today"):
        ledger.add(certificates, NAMES, expires="2026-06-30")
    # in another time zone it may be another day already: the days are those of UTC
    clock.now = datetime.fromisoformat("2026-12-31T23:30:00-02:00")
    ledger.add(certificates, ["C-1", "C-2", "C-3"], expires=date(2027, 1, 1))
    assert ledger.to_frame()["issued"].tolist()[-1] == "2027-01-01"


def test_retire(ledger, certificates):
    ledger.add(apas.certify(OLD, POINTS[:1], 0.01, target=1, method="interval"), ["A-1"])
    digest = ledger.to_frame().query("reference == 'A-1' and delta == 0.01")["digest"].iloc[0]
    with pytest.raises(apas.InputError, match="'nobody'"):
        ledger.retire(["A-2", "nobody"])
    assert set(ledger.to_frame()["state"]) == {"open"}  # all or nothing
    assert ledger.retire("A-1", digest=digest[:10]) == 1
    assert ledger.retire(["A-1", "A-2"], "withdrawn") == 2
    assert sorted(ledger.to_frame()["state"]) == ["honoured", "withdrawn", "withdrawn"]
    assert ledger.history("A-2")["event"].tolist() == ["added", "retired"]
    report = ledger.audit(moved(-9.0))
    assert len(report) == 0
    assert report.ok
    assert ledger.add(certificates, NAMES).known == 2  # what was retired stays so
    assert "open" not in set(ledger.to_frame()["state"])
    with pytest.raises(apas.InputError, match="honoured"):
        ledger.retire("A-1", "broken")


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda book: book.retire(["A-1", 3]), "`references` must be texts that are not empty, got 3"),
        (lambda book: book.retire(7), "`references` must be texts that are not empty, got 7"),
        (
            lambda book: book.retire("A-1", digest=5),
            "`digest` must be a text, how the digest of the promise begins, got 5",
        ),
        (lambda book: book.history(1), "`reference` must be a text or None, got 1"),
        (lambda book: book.audit(OLD, record="no"), "`record` must be True or False, got 'no'"),
        (lambda book: book.audit(OLD, repairs=1), "`repairs` must be True or False, got 1"),
    ],
)
def test_words_of_the_wrong_kind(ledger, ask, words):
    with pytest.raises(apas.InputError, match=words):
        ask(ledger)
    assert set(ledger.to_frame()["state"]) == {"open"}


def test_a_clock_is_a_function(tmp_path):
    with pytest.raises(apas.InputError, match="`clock` must be a function that gives the time, or None, got 3"):
        apas.Ledger(tmp_path / "ledger.db", clock=3)
    assert not (tmp_path / "ledger.db").exists()


def test_promises_about_several_models(ledger, certificates):
    other = apas.FeedForward([[[2.0], [-1.0]]], [[0.5]], feature_names=("income", "debt"))
    ledger.add(apas.certify(other, POINTS, 0.03, target=1, shifts="l2", rng=0), ["B-1", "B-2", "B-3"])
    spaced = apas.FeatureSpace(
        [apas.Feature("income", low=0, high=4), apas.Feature("debt", low=0, high=2)], scale="minmax"
    )
    found = apas.generate(moved(-0.6), np.array([[0.5, 1.9]]), 0.01, space=spaced, method="interval", source="milp")
    assert ledger.add(found, ["C-1"]).added == 1
    new = moved(-0.4)
    report = ledger.audit(new, base=[OLD, other])
    assert report.to_frame().index.tolist() == ["A-1", "A-2", "B-1", "B-2", "B-3", "C-1"]
    by_hand = [
        *apas.audit(certificates, new, base=OLD)[:2],
        *apas.audit(apas.certify(other, POINTS, 0.03, target=1, shifts="l2", rng=0), new, base=other),
        *apas.audit(found, new),
    ]
    told = [row.to_dict() for row in report]
    for ours, theirs in zip(told, (row.to_dict() for row in by_hand), strict=True):
        assert {**ours, "repair": None} == {**theirs, "repair": None}
    assert {row["inside"] for row in told[:5]} == {False}
    assert told[5]["inside"] is None
    assert len(report.shifts) == 2
    assert report.shift is None
    assert any("not among the given bases" in note for note in report.notes)
    assert report[report.broken].to_frame()["outcome"].tolist() == report.to_frame()["outcome"][report.broken].tolist()
    with pytest.raises(apas.InputError, match="promises of the ledger"):
        ledger.audit(new, base=moved(7.0))
    wide = network(0, (2, 4, 1), feature_names=["income", "debt"])
    asked = ledger.audit(wide, base=OLD, record=False)
    assert asked.shifts == {}
    assert any("in more than parameters (" in note and "no shift was measured" in note for note in asked.notes)
    assert len(ledger.audit(wide, validity_only=True, base=OLD)) == 6


def test_a_promise_of_the_ledger_is_a_certificate_file(ledger, tmp_path):
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        text = connection.execute("SELECT content FROM promises WHERE reference = 'A-2'").fetchone()[0]
    connection.close()
    (tmp_path / "one.json").write_text(text)
    assert apas.verify(tmp_path / "one.json", OLD).ok
    found = apas.load_certificates(tmp_path / "one.json")
    assert found.points.tolist() == [[1.0, 0.9]]
    assert found.to_frame().index.tolist() == ["A-2"]


def test_references(tmp_path, certificates):
    with apas.Ledger(tmp_path / "l.db") as book:
        with pytest.raises(apas.InputError, match="rows have no names"):
            book.add(certificates)
        with pytest.raises(apas.InputError, match=r"one text per row \(3\), got 2"):
            book.add(certificates, ["a", "b"])
        with pytest.raises(apas.InputError, match="not empty, got ' '"):
            book.add(certificates, ["a", " ", "c"])
        with pytest.raises(apas.InputError, match="`expires` must be a day"):
            book.add(certificates, NAMES, expires="soon")
        with pytest.raises(apas.InputError, match="`certificates` must be"):
            book.add([1], ["a"])
        assert len(book) == 0
        frame = pd.DataFrame(POINTS, columns=["income", "debt"], index=["x", "y", "z"])
        book.add(apas.certify(OLD, frame, 0.02, target=1, method="interval"))
        assert book.to_frame()["reference"].tolist() == ["x", "y"]
        with pytest.raises(apas.InputError, match="`state` must be one of"):
            book.to_frame("lost")


def test_integers_of_an_index_are_references(tmp_path):
    """As the index of the rejected rows of a larger table is; rows that are only counted are nobody's."""
    frame = pd.DataFrame([[0.5, 0.9], [0.2, 0.7]], columns=["income", "debt"], index=[17, 4])
    spaced = apas.FeatureSpace([apas.Feature("income", low=0, high=4), apas.Feature("debt", low=0, high=2)])
    found = apas.generate(OLD, frame, 0.01, space=spaced, method="interval")
    apas.save_certificates(found, tmp_path / "offers.json")
    with apas.Ledger(tmp_path / "l.db") as book:
        assert book.add(tmp_path / "offers.json") == (2, 0, 0)
        assert book.add(found) == (0, 2, 0)
        assert book.to_frame()["reference"].tolist() == ["17", "4"]
        assert book.audit(OLD).to_frame().index.tolist() == ["17", "4"]
        assert book.retire("17") == 1
        for counted in (frame.reset_index(drop=True), frame.to_numpy()):
            again = apas.generate(OLD, counted, 0.01, space=spaced, method="interval")
            with pytest.raises(apas.InputError, match="no names of their own, but are counted from 0; pass a text"):
                book.add(again)
        with pytest.raises(apas.InputError, match="no names of their own; pass a text"):
            book.add(apas.generate(OLD, frame.set_axis([0.5, 1.5]), 0.01, space=spaced, method="interval"))


def test_settings_of_the_file(ledger, tmp_path):
    connection = ledger._store.connection
    told = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version")
    }
    assert told == {"journal_mode": "wal", "synchronous": 2, "user_version": 2}


def test_an_audit_does_not_reopen_what_was_retired_meanwhile(ledger, tmp_path, clock, monkeypatch):
    import apas.contracts.ledger as module

    asked = module.joint_audit

    def slow(*args, **options):
        with apas.Ledger(tmp_path / "ledger.db", clock=clock) as other:
            other.retire("A-2")
        return asked(*args, **options)

    monkeypatch.setattr(module, "joint_audit", slow)
    report = ledger.audit(moved(-0.2))
    assert [row.outcome for row in report] == [Outcome.HELD, Outcome.BROKEN]
    assert states(ledger) == {"A-1": "open", "A-2": "honoured"}


def test_files_that_are_no_ledgers(tmp_path, certificates):
    def refused(path, words, create=True):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(apas.InputError, match=words) as caught:
            apas.Ledger(path, create=create)
        assert "\n" not in str(caught.value)
        assert (path.read_bytes() if path.is_file() else None) == before

    refused(tmp_path / "none.db", "does not exist", create=False)
    refused(tmp_path, "must be a file in a folder")
    refused(tmp_path / "no" / "folder.db", "must be a file in a folder")
    with pytest.raises(apas.InputError, match="must be the name of a file"):
        apas.Ledger(3)
    text = tmp_path / "text.db"
    text.write_text("promises, promises " * 100)
    refused(text, "no SQLite file")
    (tmp_path / "empty.db").touch()
    refused(tmp_path / "empty.db", "it is empty", create=False)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE things (id)")
    connection.close()
    refused(other, "another SQLite database")
    newer = tmp_path / "newer.db"
    apas.Ledger(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    refused(newer, "version 3, but this apas reads 1 to 2; use a newer apas")


def test_damaged_files(tmp_path, certificates):
    path = tmp_path / "l.db"
    with apas.Ledger(path) as book:
        book.add(certificates, NAMES)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(apas.InputError, match="is damaged"), apas.Ledger(path, create=False) as book:
        book.to_frame()
    path.write_bytes(whole)
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE promises SET content = replace(content, '"delta": 0.02', '"delta": 0.03')""")
    connection.close()
    with apas.Ledger(path) as book, pytest.raises(apas.InputError, match="digest does not match"):
        book.audit(OLD)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE promises SET content = substr(content, 1, 100)")
    connection.close()
    with apas.Ledger(path) as book:
        for asked in (book.to_frame, lambda: book.audit(OLD)):
            with pytest.raises(apas.InputError, match="a promise of the ledger is damaged"):
                asked()


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"certificates": [{"certificate": {}}]}', '{"certificates": [NaN]}', '{"certificates": []}'],
    ids=["deep", "no claim", "NaN", "no row"],
)  # fmt: skip
def test_damaged_promises_are_named(content, tmp_path, certificates):
    path = tmp_path / "l.db"
    with apas.Ledger(path) as book:
        book.add(certificates, NAMES)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE promises SET content = ?", (content,))
    connection.close()
    with apas.Ledger(path, create=False) as book:
        for ask in (book.to_frame, lambda: book.audit(OLD)):
            with pytest.raises(apas.InputError, match="a promise of the ledger is damaged"):
                ask()


@pytest.mark.parametrize(
    "change",
    ["state = 'expired'", "state = 'OPEN'", "state = ''", "expires = ''", "expires = '1'", "expires = 'never'"],
)
def test_no_promise_is_passed_over_because_its_state_or_day_is_none(change, tmp_path, certificates):
    path = tmp_path / "l.db"
    with apas.Ledger(path) as book:
        book.add(certificates, NAMES)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE promises SET {change} WHERE id = 1")
    connection.close()
    with apas.Ledger(path, create=False) as book:
        for ask in (book.to_frame, lambda: book.audit(OLD)):
            with pytest.raises(apas.InputError, match="is damaged .a promise has a state or a last day that there is"):
                ask()


def test_a_promise_without_a_version_is_one_of_the_ledger(tmp_path, certificates):
    path = tmp_path / "l.db"
    with apas.Ledger(path) as book:
        book.add(certificates, NAMES)
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE promises SET content = replace(content, '"version": 2,', '')""")
    connection.close()
    with apas.Ledger(path) as book, pytest.raises(apas.InputError, match="a promise of the ledger cannot be used: "):
        book.audit(OLD)


def test_calibrated_claims_are_followed_over_time(tmp_path, clock):
    updates = [moved(-by) for by in np.linspace(0.01, 0.05, 19)]
    found = apas.calibrate_delta(OLD, updates, POINTS, target=1, confidence=None, rng=0)
    assert found.certified.tolist() == [True, True, False]
    with apas.Ledger(tmp_path / "ledger.db", clock=clock) as ledger:
        ledger.add(found, NAMES)
        told = [ledger.audit(model, repairs=False).notes[-1] for model in (updates[0], OLD, moved(-0.06), moved(-0.06))]
        counts = ["0 of 0 later", "0 of 0 later", "1 of 1 later", "1 of 1 later"]  # those that calibrated do not count
        assert [note[: len(count)] for note, count in zip(told, counts, strict=True)] == counts
        assert ledger.audit(moved(-0.2), repairs=False).notes[-1].startswith("1 of 2 later models")
        assert ledger.audit(moved(-0.3), repairs=False).notes[-1].startswith("1 of 3 later models")
        trial = ledger.audit(moved(-0.4), repairs=False, record=False).notes[-1]
        assert trial.startswith("THE CALIBRATION IS CONTRADICTED: 1 of 4 later models")
        assert ledger.audit(moved(-0.07), repairs=False).notes[-1].startswith("2 of 4 later models")


def test_an_audit_says_what_became_of_rows_together():
    updates = [moved(-by) for by in np.linspace(0.01, 0.05, 19)]
    found = apas.calibrate_delta(OLD, updates, POINTS, target=1, confidence=None, rng=0)
    for by, said in ((-0.06, "keeps all 2 asked"), (-0.2, "breaks 1 of the 2 asked")):
        report = apas.audit(found, moved(by), base=OLD, repairs=False)
        assert report.notes[-1].endswith(f"the new model {said}.")
        assert report.ok == (by == -0.06)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://x:secret@host/name", "got mysql://...; mend it"),
        ("postgresql://x:secret@host:99999/name", "its host or port cannot be read"),
        ("postgresql://x:word@secret@host/name", "its host or port cannot be read"),
        ("postgresql://x:secret%zz@host/name", "write signs such as % and @ in a name or a password as %25 and %40"),
        ("postgresql://host/name?password", "write signs such as % and @ in a name or a password as %25 and %40"),
    ],
)
def test_an_address_of_something_else_is_refused_without_its_password(address, said):
    if "%" in said:  # the driver is asked
        library("psycopg")
    with pytest.raises(
        apas.InputError, match="must be a.* address such as postgresql://user@host:5432/name"
    ) as refused:
        apas.Ledger(address)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
