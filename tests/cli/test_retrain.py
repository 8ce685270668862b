"""`apas retrain`, and what asks the refits that it keeps."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from command_line import run
from conftest import library
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import apas


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A tree behind its preprocessing, its table, and rows to ask about."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.integers(10, 90, 120), "job": rng.choice(["a", "b"], 120)})
    table["approved"] = np.where(table["income"] + rng.normal(size=120) > 50, "yes", "no")
    table["month"] = rng.integers(1, 7, 120)
    table.to_csv(tmp_path / "train.csv", index=False)
    encoder = make_column_transformer((StandardScaler(), ["income"]), (OneHotEncoder(), ["job"]))
    rows = table[["income", "job"]]
    apas.save_model(
        make_pipeline(encoder, DecisionTreeClassifier(max_depth=2)).fit(rows, table["approved"]),
        tmp_path / "model.apas",
    )
    rows[table["income"] > 70].head(3).to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASKED = ("retrain", "model.apas", "train.csv", "--target", "approved", "--folder", "refits")


def test_refits_are_made_asked_and_verified(desk, capsys):
    code, out, err = run(capsys, *ASKED, "--models", "14", "--seed", "1", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["models"] == 14
    made = apas.RetrainedModels.load("refits")
    assert made.process == json.loads(out)["process"]
    ask = (
        "certify",
        "model.apas",
        "rows.csv",
        "--target",
        "yes",
        "--refits",
        "refits",
        "--coverage",
        "0.8",
        "--confidence",
        "0.9",
    )
    code, out, _ = run(capsys, *ask, "--save", "kept.json")
    assert (code, out.count("CERTIFIED  yes")) == (0, 3), out
    assert run(capsys, "verify", "kept.json", "model.apas", "--models", "refits")[0] == 0
    code, out, _ = run(capsys, *ASKED, "--models", "14")
    assert code == 0
    assert "14 models" in out


def test_texts_of_a_table_are_the_categories_of_boosted_trees(desk, capsys):
    table = pd.read_csv("train.csv")
    trees = library("lightgbm").LGBMClassifier(n_estimators=3, min_child_samples=5, n_jobs=1, verbose=-1)
    apas.save_model(trees.fit(table[["income", "job"]].astype({"job": "category"}), table["approved"]), "model.apas")
    assert run(capsys, *ASKED, "--models", "3", "--seed", "1")[0] == 0
    asked = ("certify", "model.apas", "rows.csv", "--target", "yes", "--refits", "refits", "--method", "exact")
    assert run(capsys, *asked, "--save", "promises.json")[0] == 0
    assert run(capsys, "verify", "promises.json", "model.apas", "--models", "refits")[0] == 0
    assert run(capsys, "audit", "promises.json", "refits/refit-0002.apas", "--base", "model.apas")[0] == 0


def test_windows_behind_the_same_preprocessing(desk, capsys):
    code, out, _ = run(
        capsys,
        *ASKED,
        "--models",
        "2",
        "--when",
        "month",
        "--window",
        "3",
        "--keep",
        "preprocessing",
        "--no-bootstrap",
        "--fraction",
        "0.9",
    )
    assert code == 0
    assert "behind the same preprocessing" in out
    assert "a window of 3 of 6 periods" in out


WRONG = {
    "no such column": (("--target", "bought"), "must have the column 'bought'"),
    "no classes": (("--target", "income"), "must hold classes of the model"),
    "no such period": (("--when", "week", "--window", "2"), "must have the column 'week'"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG)
def test_wrong_columns(words, message, desk, capsys):
    code, out, err = run(capsys, *ASKED, "--models", "1", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_network_without_settings(desk, capsys):
    apas.save_model(apas.FeedForward([[[1.0]]], [[0.0]], feature_names=["income"]), "net.json")
    code, _, err = run(capsys, "retrain", "net.json", *ASKED[2:])
    assert code == 2
    assert "holds numbers alone" in err


def test_refits_go_without_shifts(desk, capsys):
    ask = ("certify", "model.apas", "rows.csv", "--target", "yes")
    assert "Missing option '--delta'" in run(capsys, *ask)[2]
    assert "is not a folder of refits" in run(capsys, *ask, "--refits", "none")[2]
    assert "goes without" in run(capsys, *ask, "--refits", "none", "--relative")[2]
