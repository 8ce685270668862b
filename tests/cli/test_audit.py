"""`apas audit`: exit codes, reports, and what it refuses."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from certificate_files import network
from command_line import run

import apas


def linear(bias):
    return apas.FeedForward([[[1.0], [-1.0]]], [[bias]], feature_names=("income", "debt"))


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, bias in (("old", 0.0), ("good", -0.01), ("bad", -0.2)):
        apas.save_model(linear(bias), f"{name}.json")
    table = pd.DataFrame([[2.0, 0.5], [1.0, 0.9], [0.5, 0.9]], columns=["income", "debt"], index=["A1", "A2", "A3"])
    table.to_csv("rows.csv")
    words = ("--target", "1", "--delta", "0.02", "--method", "interval", "--save", "certs.json")
    assert run(capsys, "certify", "old.json", "rows.csv", *words)[0] == 0
    return tmp_path


def test_kept_and_broken(folder, capsys):
    code, out, err = run(capsys, "audit", "certs.json", "good.json", "--base", "old.json")
    assert (code, err) == (0, "")
    assert "3 rows: 2 HELD, 1 NOT_PROMISED (1 not valid on the certified model itself)." in out
    assert "at most 0.01" in out
    code, out, _ = run(capsys, "audit", "certs.json", "bad.json", "--base", "old.json")
    assert code == 1
    assert "1 HELD, 1 BROKEN_OUTSIDE, 1 NOT_PROMISED" in out
    assert "nearest repair: " in out
    code, out, _ = run(capsys, "audit", "certs.json", "bad.json", "--no-repairs")
    assert code == 1
    assert "BROKEN " in out
    assert "nearest repair" not in out


def test_reports(folder, capsys):
    words = ("--base", "old.json", "--json", "--markdown", "report.md", "--junit", "report.xml")
    code, out, _ = run(capsys, "audit", "certs.json", "bad.json", *words)
    assert code == 1
    told = json.loads(out)
    report = apas.audit("certs.json", linear(-0.2), base=linear(0.0))
    assert told == json.loads(json.dumps(report.to_dict()))
    assert (folder / "report.md").read_text() == report.to_markdown()
    assert (folder / "report.xml").read_text() == report.to_junit()
    assert ElementTree.parse(folder / "report.xml").getroot()[0].get("failures") == "1"


def test_space(folder, capsys):
    space = apas.FeatureSpace(
        [apas.Feature("income", low=0, high=4, step=0.5), apas.Feature("debt", low=0, high=2, mutable=False)]
    )
    space.to_toml("space.toml")
    code, out, _ = run(capsys, "audit", "certs.json", "bad.json", "--space", "space.toml")
    assert code == 1
    assert "nearest repair: income 1 -> 1.5" in out
    assert "What the features may be was not said" not in out


def test_other_models(folder, capsys):
    other = network(0, (2, 4, 1), feature_names=["income", "debt"])
    apas.save_model(other, "other.json")
    code, out, err = run(capsys, "audit", "certs.json", "other.json", "--base", "old.json")
    kept = other.margin(np.array([[2.0, 0.5], [1.0, 0.9]]), 1) >= 0
    assert (code, err) == (0 if kept.all() else 1, "")
    assert "no shift was measured" in out
    code, out, _ = run(capsys, "audit", "certs.json", "other.json", "--base", "old.json", "--validity-only")
    assert code == (0 if kept.all() else 1)
    apas.save_model(apas.FeedForward([[[-1.0], [1.0]]], [[0.0]], feature_names=("debt", "income")), "turned.json")
    code, out, _ = run(capsys, "audit", "certs.json", "turned.json")
    assert code == 0
    assert "the order of its features: number 0 is 'debt' instead of 'income'" in " ".join(out.split())
    apas.save_model(apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "age")), "strange.json")
    code, out, err = run(capsys, "audit", "certs.json", "strange.json")
    assert (code, out) == (2, "")
    assert "no column 'age'" in err


def test_bad_input(folder, capsys):
    (folder / "broken.json").write_text("{")
    for words in (
        ("broken.json", "good.json"),
        ("certs.json", "broken.json"),
        ("certs.json", "none.json"),
        ("certs.json", "good.json", "--base", "bad.json"),
        ("certs.json", "good.json", "--space", "none.toml"),
        ("certs.json", "good.json", "--junit", "none/report.xml"),
        ("certs.json", "good.json", "--markdown", str(folder)),
    ):
        code, out, err = run(capsys, "audit", *words)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
