"""`apas menu`, `apas letter` and regions on the command line, as a user meets them."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from command_line import fill, run

import apas

ASK = ("model.json", "rejected.csv", "--space", "space.toml", "--delta", "0.01", "--seed", "0")


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(fill(tmp_path))
    return tmp_path


def test_a_menu_is_the_librarys_and_its_offers_become_letters(desk, capsys):
    code, out, err = run(capsys, "menu", *ASK, "--out", "menu.html", "--save", "offers.json", "--beyond")
    assert (code, err) == (0, "")
    rows = pd.read_csv("rejected.csv", index_col=0)
    space = apas.FeatureSpace.from_toml("space.toml")
    found = apas.menu(apas.load_model("model.json"), rows, 0.01, space=space, beyond=True, rng=0)
    assert found.summary() in out
    assert found[0].changes in out
    assert found.to_html() == (desk / "menu.html").read_text()
    code, out, err = run(capsys, "letter", "offers.json", "--answer", "approved", "--name", "debt=all debts", "-o", "l")
    assert (code, err) == (0, "")
    assert "2 letters." in out
    pages = [page.read_text() for page in sorted((desk / "l").iterdir())]
    assert any("all debts" in page for page in pages)
    run(capsys, "ledger", "add", "other.db", "offers.json")
    code_on_page = pages[0].split('class="code">')[1][:14]
    code, out, _ = run(capsys, "ledger", "list", "other.db", "--digest", code_on_page, "--json")
    assert code == 0
    assert len(json.loads(out)["rows"]) == 1


def test_tolerances_are_shares_or_numbers_by_feature(desk, capsys):
    for words in (("--tolerance", "0.01"), ("--tolerance", "income=0.02", "--tolerance", "debt=0.01")):
        code, _, err = run(capsys, "generate", *ASK, *words, "--save", "offers.json")
        assert (code, err) == (0, "")
        assert {s.feature for s in apas.load_certificates("offers.json")[0].region.spans} == {"income", "debt"}


def test_regions_are_certified_as_the_library_does(desk, capsys):
    asked = ("certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.01", "--seed", "0")
    words = ("--space", "space.toml", "--region", "income=at least", "--region", "debt=..0.32", "--region", "age=0.05")
    code, out, err = run(capsys, *asked, *words, "--json")
    assert (code, err) == (0, "")
    spans = json.loads(out)["certificates"][0]["region"]["spans"]
    assert [(s["feature"], s["side"]) for s in spans] == [
        ("income", "at least"),
        ("debt", "at most"),
        ("age", "between"),
    ]
    space = apas.FeatureSpace.from_toml("space.toml")
    region = apas.Region({"income": "at least", "debt": (None, 0.32), "age": 0.05}, space=space)
    rows = pd.read_csv("rows.csv", index_col=0)
    found = apas.certify(apas.load_model("model.json"), rows, 0.01, target=1, region=region, rng=0)
    assert json.loads(out)["certificates"][0]["evidence"] == found[0].evidence.to_dict()
    asked = ("certify", "model.json", "offers.csv", "--target", "1", "--delta", "0.01", "--seed", "0")
    code, out, err = run(capsys, *asked, "--space", "space.toml", "--beyond", "rejected.csv", "--sizes", "4")
    assert (code, err) == (0, "")
    assert "2 rows: 2 CERTIFIED" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.01", "--sizes", "3"), "`--sizes` and"),
        (
            ("certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.01", "--region", "income"),
            "FEATURE=VALUE",
        ),
        (
            ("certify", "model.json", "--continue", "promises.json", "--samples", "9", "--region", "a=1"),
            "`--region` goes",
        ),
        (("generate", *ASK, "--tolerance", "income=wide"), "`--tolerance` must be a share"),
        (("menu", *ASK, "--features", "wealth"), "`features` must list"),
        (("letter", "promises.json", "--name", "income=a", "--name", "income=b"), "twice for 'income'"),
        (("ledger", "list", "ledger.db", "--digest", "aa", "--history", "A-17"), "`--digest` goes without"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(desk, capsys, words, error):
    code, out, err = run(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert error in err
