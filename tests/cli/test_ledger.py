"""`apas ledger add | list | audit | retire`."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pandas as pd
import pytest
from command_line import run

import apas


def linear(bias):
    return apas.FeedForward([[[1.0], [-1.0]]], [[bias]], feature_names=("income", "debt"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, bias in (("old", 0.0), ("good", -0.01), ("bad", -0.2)):
        apas.save_model(linear(bias), f"{name}.json")
    table = pd.DataFrame([[2.0, 0.5], [1.0, 0.9], [0.5, 0.9]], columns=["income", "debt"])
    apas.save_certificates(apas.certify(linear(0.0), table, 0.02, target=1, method="interval"), "certs.json")
    named = table.set_axis(["x", "y", "z"])
    apas.save_certificates(apas.certify(linear(0.0), named, 0.02, target=1, method="interval"), "named.json")
    (tmp_path / "names.txt").write_text("A-1\nA-2\nA-3\n")
    return tmp_path


def test_the_life_of_promises(folder, capsys):
    add = ("ledger", "add", "ledger.db", "certs.json", "--references", "names.txt", "--expires", "2999-12-31")
    never = "1 not certified (1 not valid on the certified model itself).\n"
    assert run(capsys, *add)[:2] == (0, f"2 added, 0 known already, {never}")
    assert run(capsys, *add)[:2] == (0, f"0 added, 2 known already, {never}")
    code, out, _ = run(capsys, *add, "--json")
    assert json.loads(out) == {"added": 0, "known": 2, "not_certified": 1, "not_valid_today": 1}
    code, out, _ = run(capsys, "ledger", "list", "ledger.db")
    assert code == 0
    assert "2999-12-31" in out
    assert out.rstrip().endswith("2 promises: 2 open.")
    assert run(capsys, "ledger", "audit", "ledger.db", "good.json", "--base", "old.json")[0] == 0
    words = ("--base", "old.json", "--markdown", "r.md", "--junit", "r.xml")
    code, out, _ = run(capsys, "ledger", "audit", "ledger.db", "bad.json", "--dry-run", *words)
    assert code == 1
    assert "A-2" in out
    assert "BROKEN_OUTSIDE" in (folder / "r.md").read_text()
    assert 'name="row A-2"' in (folder / "r.xml").read_text()
    assert "2 open" in run(capsys, "ledger", "list", "ledger.db")[1]
    for _ in range(2):  # it does not pass the second time
        code, out, _ = run(capsys, "ledger", "audit", "ledger.db", "bad.json", "--json")
        assert code == 1
        assert [row["row"] for row in json.loads(out)["rows"]] == ["A-1", "A-2"]
    code, out, _ = run(capsys, "ledger", "list", "ledger.db", "--state", "broken", "--json")
    assert [row["reference"] for row in json.loads(out)["rows"]] == ["A-2"]
    code, out, _ = run(capsys, "ledger", "list", "ledger.db", "--history", "A-2")
    assert out.count("audited: ") == 3
    assert out.rstrip().endswith("4 events.")
    assert run(capsys, "ledger", "retire", "ledger.db", "A-2", "--as", "withdrawn")[:2] == (0, "1 withdrawn.\n")
    assert run(capsys, "ledger", "audit", "ledger.db", "bad.json")[0] == 0
    assert run(capsys, "ledger", "retire", "ledger.db", "A-1")[:2] == (0, "1 honoured.\n")
    code, out, _ = run(capsys, "ledger", "audit", "ledger.db", "bad.json")
    assert (code, out.splitlines()[-1]) == (0, "No promise is owed.")


@pytest.fixture
def of_2001(folder):
    """Promises of 2001 for half a year, in a ledger that has rested since."""
    with apas.Ledger("rested.db", clock=lambda: datetime(2001, 1, 1, tzinfo=UTC)) as book:
        assert book.add("named.json", expires="2001-06-30").added == 2
    return "rested.db"


def test_expired_promises_are_named(of_2001, capsys):
    code, out, _ = run(capsys, "ledger", "audit", of_2001, "bad.json", "--trust-clock")
    assert (code, out.splitlines()[-1]) == (0, "No promise is owed: 2 expired.")
    for words in (("--dry-run",), ()):
        code, out, _ = run(capsys, "ledger", "audit", of_2001, "bad.json", "--trust-clock", "--strict", *words)
        assert (code, out.splitlines()[-1]) == (1, "No promise is owed: 2 expired.")
    code, out, _ = run(capsys, "ledger", "audit", of_2001, "bad.json", "--trust-clock", "--json")
    told = json.loads(out)
    assert (code, told["ok"], told["expired"], told["rows"]) == (0, True, 2, [])
    assert run(capsys, "ledger", "list", of_2001, "--trust-clock")[1].rstrip().endswith("2 promises: 2 expired.")
    words = ("x", "y", "--as", "withdrawn", "--trust-clock")
    assert run(capsys, "ledger", "retire", of_2001, *words)[:2] == (0, "2 withdrawn.\n")
    # the clock was told to be right, and is that of the last entry now
    code, out, _ = run(capsys, "ledger", "audit", of_2001, "bad.json", "--strict")
    assert (code, out.splitlines()[-1]) == (0, "No promise is owed.")


@pytest.mark.parametrize(
    "words", [("audit", "good.json"), ("audit", "good.json", "--dry-run"), ("list",), ("retire", "x"), ("add", "named.json")],
    ids=["audit", "dry run", "list", "retire", "add"],
)  # fmt: skip
def test_a_clock_far_from_the_last_entry_is_refused(of_2001, capsys, words):
    name, *rest = words
    code, out, err = run(capsys, "ledger", name, of_2001, *rest)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "more than ten years after the last entry of rested.db (2001-01-01 00:00 UTC)" in err
    assert "--trust-clock" in err
    assert run(capsys, "ledger", name, of_2001, *rest, "--trust-clock")[0] == 0


def test_references(folder, capsys):
    assert run(capsys, "ledger", "add", "l.db", "named.json")[0] == 0
    code, out, _ = run(capsys, "ledger", "list", "l.db", "--json")
    told = json.loads(out)
    assert told["format"] == "apas-ledger"
    assert [row["reference"] for row in told["rows"]] == ["x", "y"]
    assert [row["expires"] for row in told["rows"]] == [None, None]
    (folder / "applicants.csv").write_text("id,branch\nA-1,north\nA-2,south\nA-3,west\n")
    words = ("--references", "applicants.csv", "--reference-column")
    assert run(capsys, "ledger", "add", "l.db", "certs.json", *words, "id")[1].startswith("2 added")
    code, _, err = run(capsys, "ledger", "add", "l.db", "certs.json", *words, "name")
    assert code == 2
    assert "'id', 'branch'" in err


def test_bad_input(folder, capsys):
    (folder / "short.txt").write_text("A-1\n")
    (folder / "blank.txt").write_text("A-1\n\nA-3\n")
    (folder / "text.db").write_text("nothing " * 1000)
    apas.Ledger("good.db").close()
    for words in (
        ("add", "l.db", "certs.json"),
        ("add", "l.db", "certs.json", "--references", "short.txt"),
        ("add", "l.db", "certs.json", "--references", "blank.txt"),
        ("add", "l.db", "certs.json", "--references", "none.txt"),
        ("add", "l.db", "certs.json", "--reference-column", "id"),
        ("add", "l.db", "named.json", "--expires", "tomorrow"),
        ("add", "l.db", "named.json", "--expires", "2001-01-01"),
        ("add", "l.db", "old.json"),
        ("add", "text.db", "named.json"),
        ("list", "none.db"),
        ("list", "text.db"),
        ("audit", "none.db", "good.json"),
        ("audit", "good.db", "none.json"),
        ("retire", "good.db", "A-1"),
    ):
        code, out, err = run(capsys, "ledger", *words)
        assert (code, out) == (2, ""), words
        assert err.startswith("error: ")
        assert err.count("\n") == 1
    assert not (folder / "none.db").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("certs.json",),
        ("named.json", "--expires", "2001-01-01"),
        ("named.json", "--references", "two.txt"),
        ("old.json",),
    ],
    ids=["no names", "past", "too few", "no certificates"],
)
def test_refused_promises_leave_no_ledger(folder, capsys, words):
    (folder / "two.txt").write_text("A-1\nA-2\n")
    before = sorted(folder.iterdir())
    code, out, err = run(capsys, "ledger", "add", "ledger.db", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert sorted(folder.iterdir()) == before
