"""`apas calibrate`: rows, offers, files, and what is refused."""

from __future__ import annotations

import json

import pytest
from command_line import run
from sklearn.linear_model import LogisticRegression

import apas
from apas.datasets import NUMERIC, make_loans


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, names = tmp_path_factory.mktemp("calibrate"), list(NUMERIC)[:3]
    loans = make_loans(300, rng=0)
    rows = (loans[names] - loans[names].mean()) / loans[names].std()
    model = LogisticRegression().fit(rows, loans["approved"])
    apas.save_model(model, folder / "model.apas")
    apas.retrain(model, rows, loans["approved"], n_models=9, rng=0, folder=folder / "refits")
    apas.retrain(model, rows, loans["approved"], n_models=5, rng=1, folder=folder / "others")
    accepted = model.predict(rows) == 1
    rows[accepted].head(6).to_csv(folder / "accepted.csv", index=False)
    rows[~accepted].head(2).to_csv(folder / "rejected.csv", index=False)
    rows.to_csv(folder / "train.csv", index=False)
    return folder


@pytest.fixture
def asked(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return (
        "calibrate",
        "model.apas",
        "accepted.csv",
        "--target",
        "1",
        "--updates",
        "refits",
        "--marginal",
        "--seed",
        "0",
    )


def test_rows(asked, capsys, tmp_path):
    path = tmp_path / "c.json"
    code, out, _ = run(capsys, *asked, "--save", str(path))
    assert code == 0
    assert "of the next update, exchangeable with the 9 listed: with probability 0.9" in out
    assert "delta " in out
    code, out, _ = run(capsys, "verify", str(path), "model.apas", "--models", "refits")
    assert code == 0, out
    code, out, _ = run(capsys, *asked, "--json")
    content = json.loads(out)
    assert content["format"] == "apas-calibration"
    assert len(content["certificates"]) == 6
    code, out, _ = run(capsys, *asked, "--others", "others")
    assert code == 0
    assert "margin over its standard" in out


def test_offers(asked, capsys):
    some = [word if word != "accepted.csv" else "rejected.csv" for word in asked]
    code, out, _ = run(capsys, *some, "--grid", "0.05,0.3", "--background", "train.csv")
    assert code == 0
    assert "changes" in out
    assert (
        "offers at the least delta of the grid above" in out or "offers of the list" in out or "rows of the list" in out
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--coverage", "0.99"), "`updates` must be at least 99"),
        (("--space", "space.toml"), "go with `--grid`"),
        (("--grid", "many"), "`--grid` must be deltas"),
        (("--grid", "0.1", "--others", "others"), "goes without `--grid`"),
        (("--updates", "nowhere"), "nowhere"),
    ],
)
def test_bad_input(asked, capsys, more, said):
    code, _, err = run(capsys, *asked, *more)
    assert code == 2
    assert said in err
