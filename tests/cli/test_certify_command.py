"""`apas certify` as a user meets it: tables, JSON, exit codes, one-sentence errors."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command import run

import apas


@pytest.fixture
def files(tmp_path, small_network, monkeypatch):
    names = ["income", "debt", "age", "years"]
    net = apas.FeedForward(small_network.weights, small_network.biases, feature_names=names)
    apas.save_model(net, tmp_path / "model.json")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 4)), columns=names)
    X.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return net, X


ASK = ("certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.05", "--seed", "1")


def test_table(files, capsys):
    code, out, err = run(capsys, *ASK)
    assert (code, err) == (0, "")
    assert out.count("CERTIFIED") + out.count("REFUTED") + out.count("UNKNOWN") >= 5
    assert "at least 99.5 % of the shifts, confidence 0.999" in out.replace("\n", " ")


def test_json_is_what_the_library_gives(files, capsys):
    net, X = files
    code, out, _ = run(capsys, *ASK, "--json")
    assert code == 0
    assert json.loads(out) == apas.certify(net, X, 0.05, target=1, rng=1).to_dict()


def test_options_reach_the_method(files, capsys):
    options = ("--coverage", "0.9", "--confidence", "0.95", "--samples", "500", "--simultaneous", "--relative")
    _, out, _ = run(capsys, *ASK, "--json", "--only", "weight", *options)
    content = json.loads(out)
    assert content["shifts"]["kinds"] == ["weight"]
    assert content["shifts"]["relative"] is True
    claim = content["certificates"][0]["claim"]
    assert (claim["coverage"], claim["confidence"], claim["rows"]) == (0.9, 0.95, 5)
    assert {c["evidence"].get("samples", 500) for c in content["certificates"]} == {500}


def test_runs_as_a_module_and_as_a_command(files):
    for start in ([sys.executable, "-m", "apas"],):
        done = subprocess.run([*start, *ASK, "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["certificates"]) == 5


def test_saved_index_and_byte_order_mark(files, capsys):
    _, X = files
    X.set_axis(list("abcde")).to_csv("indexed.csv", encoding="utf-8-sig")
    code, out, err = run(capsys, "certify", "model.json", "indexed.csv", *ASK[3:], "--json")
    assert code == 0, err
    assert [c["row"] for c in json.loads(out)["certificates"]] == list("abcde")


def test_predicted_target(files, capsys):
    code, out, _ = run(
        capsys, "certify", "model.json", "rows.csv", "--target", "predicted", "--delta", "1e-9", "--json"
    )
    assert code == 0
    assert {c["verdict"] for c in json.loads(out)["certificates"]} == {"CERTIFIED"}


def write(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return name


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,2,3,4\n5,6,7,8\n", "must begin with a header line that names the columns, but its first line is 1,2,3,4"),
        ("income,debt,age\n1,2,3\n", "lacks 'years'"),
        ("income,debt,age,years,label\n1,2,3,4,5\n", "has 'label' besides"),
        ("income,debt,age,years\n1,2,x,4\n", "row 0, column 'age' is 'x'"),
        ("income,debt,age,years\n1,2,,4\n", "row 0, column 'age' is nan"),
        ("income,debt,age,years\n1,2,3,4,5,6\n1,2\n", "."),
        ("", "is empty"),
    ],
)
def test_bad_rows(files, capsys, rows, message):
    code, out, err = run(capsys, "certify", "model.json", write("bad.csv", rows), *ASK[3:])
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("certify", "missing.json", *ASK[2:]), "missing.json cannot be read: No such file or directory"),
        (("certify", "model.json", "missing.csv", *ASK[3:]), "missing.csv cannot be read"),
        (("certify", "model.pkl", *ASK[2:]), "could run code when read"),
        (("certify", "model.joblib", *ASK[2:]), "could run code when read"),
        (("certify", "model.pt", *ASK[2:]), "apas.save_model(model, 'model.json')"),
        ((*ASK[:3], "--target", "7", "--delta", "0.1"), "must be one of the model's classes (0, 1)"),
        ((*ASK[:3], "--target", "1", "--delta", "-1"), "`delta` must be positive and finite, got -1.0"),
        ((*ASK, "--coverage", "1.5"), "`coverage` of Sampling must be a number strictly between 0 and 1, got 1.5"),
        ((*ASK, "--samples", "10"), "`n_samples` of Sampling must be at least 1379"),
        ((*ASK, "--jobs", "0"), "`n_jobs` must be"),
    ],
)
def test_bad_words(files, capsys, words, message):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_missing_options_are_usage_errors(files, capsys):
    code, _, err = run(capsys, "certify", "model.json", "rows.csv", "--delta", "0.1")
    assert code == 2
    assert "--target" in err


def test_a_renamed_pickle_is_not_opened(files, capsys, tmp_path):
    import pickle

    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "evil.json").write_bytes(pickle.dumps(Hostile()))
    code, _, err = run(capsys, "certify", "evil.json", *ASK[2:])
    assert code == 2
    assert "could run code" in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("words", [("--help",), ("certify", "--help"), ("demo", "--help")])
def test_help_has_an_example(capsys, words):
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "apas demo" in out or "apas certify model.json" in out


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert (code, out.strip()) == (0, apas.__version__)
