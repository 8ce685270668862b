"""`apas demo` runs offline, tells what its files say, repeats itself for the same seed, and overwrites nobody's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from browser_checks import check_report, open_browser
from command_line import run

import apas
from apas.cli import demo
from apas.datasets import LOAN_FEATURES, make_loans
from apas.paper import demo_bank as demofolder
from apas.paper.demo_bank import GRID, LoanBank, space_of

KINDS = ("plain", "robust")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The whole demo in a process of its own, with no way into a network: where it ran, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "apas", "demo"],
        cwd=folder, env={**os.environ, "NO_COLOR": "1", **nowhere}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "apas-demo", done.stdout


@pytest.fixture
def few(monkeypatch, tmp_path):
    """The demo with two applicants, in this process."""
    monkeypatch.setattr(demo, "APPLICANTS", 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "apas-demo"


def test_story_says_what_the_files_say(told):
    folder, story = told
    bank, later = (apas.load_model(folder / f"{year}-year.json") for year in ("this", "next"))
    kept, space = {}, apas.FeatureSpace.from_toml(folder / "space.toml")
    assert space == space_of(make_loans(3000, rng=0))
    for kind in KINDS:
        promised = apas.load_certificates(folder / f"{kind}.json")
        every = apas.load_certificates(folder / f"{kind}-every.json")
        rows = pd.read_csv(folder / f"{kind}.csv", index_col="applicant")
        assert rows.pop("status").tolist() == ["FOUND"] * 20
        pd.testing.assert_frame_equal(rows, promised.points, check_dtype=False, check_names=False)
        assert (bank.margin(space.encode(rows), 1) >= 0).all()  # accepted today, plain or robust
        kept[kind] = int((later.margin(space.encode(rows), 1) >= 0).sum())
        assert len(every) == len(promised) == 20
        assert (0 < every.max_shifts.deltas).all()
        assert (every.max_shifts.deltas < promised.max_shifts.deltas).all()
    assert f"Promises kept: {kept['plain']} of 20 plain, {kept['robust']} of 20 robust." in story
    assert apas.load_certificates(folder / "robust.json").certified.all()
    assert not apas.load_certificates(folder / "plain.json").certified.any()
    assert kept["robust"] > kept["plain"]  # for this seed; the story itself only counts
    moved = float(apas.measure_shift(bank, later))
    assert f"no weight or bias by more than {moved:.6g}"[:-1] in story


def test_offers_keep_to_what_a_bank_may_ask(told):
    folder, _ = told
    before, after = (
        pd.read_csv(folder / name, index_col="applicant")[list(LOAN_FEATURES)]
        for name in ("applicants.csv", "robust.csv")
    )
    assert before[["age", "dependants", "housing"]].equals(after[["age", "dependants", "housing"]])
    assert (after["income"] >= before["income"]).all()
    assert (after["debt_ratio"] <= before["debt_ratio"]).all()


def test_commands_of_the_story_work(told, capsys, monkeypatch):
    folder, story = told
    monkeypatch.chdir(folder.parent)
    lines = [line.split()[1:] for line in story.splitlines() if line.startswith(("apas verify", "apas audit"))]
    assert [line[0] for line in lines] == ["verify", "audit"]
    for words in lines:
        code, out, _ = run(capsys, *words)
        assert code == 0
        assert {"verify": "40 statements: 40 HOLDS", "audit": "20 rows: 20 HELD"}[words[0]] in out


def test_report_is_written_and_listed(told):
    folder, story = told
    pytest.importorskip("plotly")
    assert f"The report: {folder.name}/report.html" in story
    assert "Offers to rejected loan applicants" in (folder / "report.html").read_text(encoding="utf-8")
    listed = (folder / "README.txt").read_text(encoding="utf-8")
    assert all(f"\n{path.name} " in listed for path in folder.iterdir())


@pytest.mark.parametrize("name", ["README.txt", "robust.json", "report.html"])
def test_foreign_files_are_refused_before_the_work(few, capsys, name, monkeypatch):
    monkeypatch.setattr(LoanBank, "calibration", None)
    few.mkdir()
    (few / name).write_text("somebody's own")
    code, _, err = run(capsys, "demo")
    assert code == 2
    assert f"holds '{name}', which `apas demo` did not write; name another folder" in err
    assert [(p.name, p.read_text()) for p in few.iterdir()] == [(name, "somebody's own")]


def test_a_file_is_no_folder(few, capsys):
    few.write_text("a file")
    code, _, err = run(capsys, "demo", "-o", str(few))
    assert code == 2
    assert "`--output` must be a folder that can be written" in err
    assert few.read_text() == "a file"


def test_nothing_found_is_said(few, capsys, monkeypatch):
    monkeypatch.setattr(demo, "APPLICANTS", 1)
    monkeypatch.setattr(sys.modules["apas.paper.demo_bank"], "GRID", (50.0,))
    code, out, _ = run(capsys, "demo")
    assert code == 0
    assert "0 of 0 robust" in out
    assert "(none found)" in out
    assert "No report was written: there are no robust offers." in out


def test_network_is_retrained_after_the_offers_and_all_repeats_itself_without_an_extra(few, capsys, monkeypatch):
    """What is offered, and the delta it is certified at, are on disk before next year's data exist."""
    written = {}
    retrained = LoanBank.retrained

    def spied(bank):
        written.update({p.name: p.read_bytes() for p in few.iterdir()})
        return retrained(bank)

    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr(LoanBank, "retrained", spied)
    few.mkdir()
    (few / "mine.txt").write_text("stays")
    code, out, _ = run(capsys, "demo", "--seed", "1")
    assert code == 0
    assert "No report was written: write_report needs the optional extra" in out
    assert 'pip install "apas[report]"' in out
    assert {p.name for p in few.iterdir()} == {*demofolder.FILES, "mine.txt"} - {"report.html"}
    assert set(demofolder.FILES) - set(written) == {"report.html", "offers.csv", "next-year.json"}
    assert all((few / name).read_bytes() == content for name, content in written.items())
    # once more over files of its own, as JSON
    first = {p.name: p.read_bytes() for p in few.iterdir()}
    content = json.loads(run(capsys, "demo", "--seed", "1", "--json")[1])
    assert {p.name: p.read_bytes() for p in few.iterdir()} == first
    assert content["delta"] in GRID
    assert content["calibration"]
    table = pd.read_csv(few / "offers.csv", index_col=["applicant", "offer"])
    for kind in KINDS:
        assert [row["changes"] for row in content["offers"][kind]] == table.xs(kind, level="offer")["changes"].tolist()
        assert content[kind]["valid_next_year"] == table.xs(kind, level="offer")["valid_next_year"].sum()
    assert 'pip install "apas[report]"' in content["without_report"]


def test_report_in_a_browser(told):
    with open_browser() as browser:
        check_report(browser, told[0] / "report.html", "demo")
