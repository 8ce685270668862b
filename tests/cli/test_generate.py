"""`apas generate` as a user meets it: tables, JSON, files, exit codes, one-sentence errors."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from command_line import run

import apas
from apas import Feature, FeatureSpace

TABLE = pd.DataFrame({"income": [0, 4, 2, 1], "savings": [0.0, 4.0, 1.5, 0.25], "approved": [0, 1, 1, 0]})
NAMES = ["income", "savings"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    net = apas.FeedForward([[[1.0], [1.0]]], [[-1.5]], feature_names=NAMES)
    apas.save_model(net, tmp_path / "model.json")
    TABLE.to_csv(tmp_path / "train.csv", index=False)
    TABLE.loc[[0, 3], NAMES].to_csv(tmp_path / "rows.csv")
    space = FeatureSpace([Feature("income", "integer", low=0, high=9), Feature("savings", low=0, high=9, step=0.05)])
    space.to_toml(tmp_path / "space.toml")
    monkeypatch.chdir(tmp_path)
    return net


ASK = ("generate", "model.json", "rows.csv", "--delta", "0.05", "--seed", "1")


def test_table_and_file_show_what_the_library_finds(files, capsys):
    code, out, _ = run(capsys, *ASK, "--space", "space.toml", "--out", "found.csv")
    assert code == 0
    rows = pd.read_csv("rows.csv", index_col=0)
    found = apas.generate(files, rows, 0.05, space=FeatureSpace.from_toml("space.toml"), rng=1)
    assert found.summary() in out
    assert found.changes().iloc[0] in out
    written = pd.read_csv("found.csv", index_col=0)
    assert written.pop("status").tolist() == ["FOUND", "FOUND"]
    pd.testing.assert_frame_equal(written, found.points)


def test_rows_of_both_classes_need_a_target(files, capsys):
    TABLE[NAMES].to_csv("rows.csv")
    code, out, err = run(capsys, *ASK, "--space", "space.toml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the model gives 2 of the rows class 0 and 2 of the rows class 1" in err
    assert "--target" in err
    code, out, err = run(capsys, *ASK, "--space", "space.toml", "--target", "1")
    assert (code, out) == (2, "")
    assert "already gives row 1 class 1; leave it out" in err
    TABLE.loc[[1, 2], NAMES].to_csv("rows.csv")
    code, out, _ = run(capsys, *ASK, "--space", "space.toml")
    assert code == 0
    assert "2 rows from class 1 to class 0: 2 FOUND" in out


def test_a_column_that_the_space_does_not_know_names_the_rows(files, capsys):
    net = apas.FeedForward(files.weights, files.biases)  # without names: those of the space count
    apas.save_model(net, "model.json")
    pd.read_csv("rows.csv", index_col=0).rename_axis("applicant").rename(index=lambda i: f"A-{i}").to_csv("rows.csv")
    code, out, err = run(capsys, *ASK, "--space", "space.toml", "--json")
    assert (code, err) == (0, "")
    assert [c["row"] for c in json.loads(out)["counterfactuals"]] == ["A-0", "A-3"]


def test_json_holds_certificates_and_values(files, capsys):
    code, out, _ = run(capsys, *ASK, "--space", "space.toml", "--json", "--k", "2")
    content = json.loads(out)
    assert code == 0
    assert [(c["row"], c["rank"]) for c in content["counterfactuals"]] == [("0", 0), ("0", 1), ("3", 0), ("3", 1)]
    assert content["counterfactuals"][0]["certificate"]["verdict"] == "CERTIFIED"
    assert FeatureSpace.from_dict(content["space"]) == FeatureSpace.from_toml("space.toml")


def test_whole_numbers_of_the_background_stay_whole(files, capsys):
    code, out, _ = run(capsys, *ASK, "--background", "train.csv", "--json", "--method", "interval")
    kinds = {name: said["kind"] for name, said in json.loads(out)["space"]["features"].items()}
    assert code == 0
    assert kinds == {"income": "integer", "savings": "continuous"}


def test_a_feature_may_be_called_status(files, capsys):
    net = apas.FeedForward([[[1.0], [1.0]]], [[-1.5]], feature_names=["status", "savings"])
    apas.save_model(net, "model.json")
    for name in ("rows.csv", "train.csv"):
        pd.read_csv(name, index_col=0 if name == "rows.csv" else None).rename(columns={"income": "status"}).to_csv(
            name, index=name == "rows.csv"
        )
    code, _, err = run(capsys, *ASK, "--background", "train.csv", "--out", "found.csv")
    assert (code, err) == (0, "")
    assert pd.read_csv("found.csv", index_col=0).columns.tolist() == ["search_status", "status", "savings"]


def test_delta_0_gives_the_nearest_rows(files, capsys):
    code, out, err = run(capsys, *ASK, "--space", "space.toml", "--delta", "0", "--out", "found.csv")
    assert (code, err) == (0, "")
    assert "the nearest, proved up to" in out
    assert "nothing is claimed about other models." in out
    assert set(pd.read_csv("found.csv")["status"]) == {"FOUND"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "`space` or `background` must be given"),
        (("--space", "none.toml"), "the space 'none.toml' cannot be read"),
        (("--space", "rows.csv"), "the space 'rows.csv' is not TOML"),
        (("--space", "space.toml", "--out", "none/found.csv"), "`--out` must be a file .* there is no folder 'none'"),
        (("--space", "space.toml", "--out", "."), "`--out` must be a file .* it is a folder"),
        (("--space", "space.toml", "--source", "neighbours"), "NearestNeighbours looks among known rows"),
        (("--space", "space.toml", "--target", "0"), "the model already gives row 0 class 0"),
        (("--space", "space.toml", "--target", "7"), "`--target` must be one of"),
        (("--space", "space.toml", "--method", "exact", "--coverage", "0.9"), "`--coverage` goes with"),
        (("--space", "space.toml", "--samples", "10"), "`n_samples` of Sampling must be larger"),
        (("--background", "none.csv"), "none.csv cannot be read"),
        (("--space", "space.toml", "--delta", "0", "--save", "found.json"), "`--save` goes with a delta above 0"),
        (("--space", "space.toml", "--seed", "-1"), "'--seed': Input should be greater than or equal to 0"),
    ],
)
def test_one_sentence(files, capsys, options, message):
    code, out, err = run(capsys, *ASK, *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert pd.Series([err]).str.contains(message).all()
