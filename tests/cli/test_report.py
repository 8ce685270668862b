"""`apas report`: a page from files, and what it lacks."""

from __future__ import annotations

import json
import sys

import pytest
from command_line import run
from small_reports import bank, data_of, later, offers, radii

import apas


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    apas.save_model(bank(), "bank.json")
    apas.save_model(later(), "later.json")
    apas.save_certificates(offers(), "offers.json")
    apas.save_certificates(radii(), "radii.json")
    return tmp_path


def test_everything_from_files(folder, capsys):
    code, out, _ = run(capsys, "audit", "offers.json", "later.json", "--base", "bank.json", "--json")
    (folder / "audit.json").write_text(out)
    assert code == 1
    words = ("--model", "bank.json", "--audit", "audit.json", "--new-model", "later.json", "--max-shifts", "radii.json")
    code, out, err = run(capsys, "report", "offers.json", *words, "-o", "page.html", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told == {
        "format": "apas-report", "path": "page.html", "rows": 3, "bytes": (folder / "page.html").stat().st_size,
        "left_out": {},
    }  # fmt: skip
    outcomes = [row["outcome"] for row in json.loads((folder / "audit.json").read_text())["rows"]]
    assert data_of(folder / "page.html")["outcomes"] == outcomes


def test_what_is_left_out_is_printed(folder, capsys):
    code, out, err = run(
        capsys, "report", "offers.json", "--model", "bank.json", "--seed", "4", "--title", "Offers <1>"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "report.html: 3 explanations."
    assert [line.split(":")[0] for line in out.splitlines()[1:]] == [
        f"Left out, {part}" for part in ("radii", "outcomes", "layers", "margins")
    ]
    assert "<h1>Offers &lt;1&gt;</h1>" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.json",), "none.json cannot be read"),
        (("offers.json", "-o", "page.pdf"), "must end in .html"),
        (("offers.json", "--model", "later.json"), "`model` must be the model that the certificates are about"),
        (("offers.json", "--max-shifts", "offers.json"), "holds no largest shifts"),
        (("bank.json",), "is not a certificate file"),
        (("offers.json", "--output", "mine.html"), "the page to write is named by -o"),
    ],
)
def test_bad_input(words, message, folder, capsys):
    code, out, err = run(capsys, "report", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "report.html").exists()


def test_missing_extra(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, _, err = run(capsys, "report", "offers.json")
    assert code == 2
    assert 'pip install "apas[report]"' in err
    assert len(err.strip().splitlines()) == 1
