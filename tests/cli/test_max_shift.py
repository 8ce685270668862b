"""`apas max-shift` as a user meets it: a table, JSON, exit codes, one-sentence errors."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from command_line import run
from conftest import spread

import apas
from apas.display.numbers import at_least, at_most

ASK = ("max-shift", "model.json", "rows.csv", "--target", "1", "--seed", "1")


@pytest.fixture
def files(tmp_path, small_network, monkeypatch):
    names = ["income", "debt", "age", "years"]
    net = apas.FeedForward(small_network.weights, small_network.biases, feature_names=names)
    apas.save_model(net, tmp_path / "model.json")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 4)), columns=names, index=list("abcde"))
    X.to_csv(tmp_path / "rows.csv")
    monkeypatch.chdir(tmp_path)
    return net, X


def library(files, **options):
    net, X = files
    return apas.max_shift(net, X, target=1, rng=1, **options)


def test_table(files, capsys):
    code, out, err = run(capsys, *ASK)
    assert (code, err) == (0, "")
    found = library(files)
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0].split() == ["row", "delta", "way_refuted_at", "provable", "broken_at", "reason"]
    for line, row, answer in zip(lines[1:6], "abcde", found, strict=True):
        shown = [at_least(answer.delta), at_most(answer.upper), at_least(answer.provable), at_most(answer.broken_at)]
        assert line.split(maxsplit=5) == [row, *shown, answer.reason]
    assert lines[-1] == found.summary()


def test_table_is_true_as_printed(files, capsys):
    _, out, _ = run(capsys, *ASK)
    for line, answer in zip(out.splitlines()[1:6], library(files), strict=True):
        delta, upper, provable, broken_at = map(float, line.split()[1:5])
        assert delta <= answer.delta
        assert upper >= answer.upper
        assert provable <= answer.provable
        assert broken_at >= answer.broken_at


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, 2 / 3, 0.1, 1e-9, 123456789.0, float("inf")])
def test_rounding_down(value):
    written = float(at_least(value))
    assert written <= value
    assert written == value or written > value * (1 - 1e-5)


@pytest.mark.parametrize("search", ["rays", "confirm", "paper"])
def test_json_is_what_the_library_gives(files, capsys, search):
    code, out, _ = run(capsys, *ASK, "--json", "--search", search)
    assert code == 0
    content = json.loads(out)
    assert content == library(files, search=search).to_dict()
    assert {line["trace"]["search"] for line in content["rows"] if line["delta"]} == {search}
    assert [line["row"] for line in content["rows"]] == list("abcde")


@pytest.mark.parametrize("method", ["interval", "linear", "exact", "cascade"])
def test_proofs(files, capsys, method):
    code, out, _ = run(capsys, *ASK, "--method", method, "--json")
    assert code == 0
    content = json.loads(out)
    assert content == library(files, method=method).to_dict()
    assert {line["claim"]["kind"] for line in content["rows"]} == {"every"}
    assert {line["exact"] for line in content["rows"]} == {True}
    _, table, _ = run(capsys, *ASK, "--method", method)
    assert "every shift" in table


@pytest.fixture
def deep(files, tmp_path):
    """The same rows, and a network with two hidden layers."""
    _, X = files
    rng = np.random.default_rng(5)
    sizes = [(4, 6), (6, 5), (5, 1)]
    weights, biases = [rng.normal(size=size) for size in sizes], [rng.normal(size=size[1]) for size in sizes]
    net = apas.FeedForward(weights, biases, feature_names=list(X.columns))
    apas.save_model(net, tmp_path / "deep.json")
    return net, X


def deltas(text):
    return [line["delta"] for line in json.loads(text)["rows"]]


def test_proofs_for_a_deep_network(deep, capsys):
    net, X = deep
    found = {}
    for method in ("interval", "linear", "exact", "cascade"):
        words = ("max-shift", "deep.json", "rows.csv", "--target", "predicted", "--json", "--method", method)
        code, out, err = run(capsys, *words)
        assert code == 0, err
        assert json.loads(out) == apas.max_shift(net, X, target="predicted", method=method).to_dict()
        found[method] = np.array(deltas(out))
    assert (found["interval"] <= found["linear"]).all()
    assert (found["linear"] <= found["exact"]).all()
    assert (found["interval"] < found["exact"]).any()
    assert (found["exact"] == found["cascade"]).all()


@pytest.mark.parametrize("method", ["exact", "cascade"])
def test_time_limit(deep, capsys, method):
    net, X = deep
    words = ("max-shift", "deep.json", "rows.csv", "--target", "predicted", "--json", "--method", method)
    code, out, _ = run(capsys, *words, "--time-limit", "30")
    assert code == 0
    assert json.loads(out) == apas.max_shift(net, X, target="predicted", method=apas.Exact(time_limit=30)).to_dict()


def test_sparse_shifts(files, capsys):
    net, X = files
    words = ("max-shift", "model.json", "rows.csv", "--target", "predicted", "--method", "exact")
    code, out, err = run(capsys, *words, "--shifts", "sparse:2", "--relative", "--json")
    assert code == 0, err
    shifts = apas.SparseShifts(2, relative=True)
    assert json.loads(out) == apas.max_shift(net, X, target="predicted", shifts=shifts, method="exact").to_dict()
    assert "at most 2 of" in run(capsys, *words, "--shifts", "sparse:2")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shifts", "sparse:0"), "`count` of SparseShifts must be an integer of at least 1, got 0"),
        (("--shifts", "sparse"), "`--shifts` must be linf, l1, l2, lp:P or sparse:N, such as lp:0.5 or sparse:5, got"),
        (("--shifts", "lp:-1"), "`--shifts` must be linf, l1, l2, lp:P or sparse:N"),
        (("--shifts", "lp:0"), "`p` of LpShifts must be at least 0.001, got 0.0"),
        (
            ("--shifts", "lp:0.5", "--relative"),
            "`--relative` goes with `--shifts linf` or `sparse:N`, got `--shifts lp:0.5`",
        ),
    ],
)
def test_shifts_that_there_are_not(files, capsys, words, said):
    code, out, err = run(capsys, "max-shift", "model.json", "rows.csv", "--target", "predicted", *words)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("asked", spread([("l1", 1), ("l2", 2), ("lp:1.5", 1.5)], 2), ids=str)
def test_balls(files, capsys, asked):
    name, p = asked
    net, X = files
    words = ("max-shift", "model.json", "rows.csv", "--target", "predicted", "--method", "interval")
    code, out, err = run(capsys, *words, "--shifts", name, "--only", "weight", "--json")
    assert code == 0, err
    shifts = apas.LpShifts(p, kinds=("weight",))
    assert json.loads(out) == apas.max_shift(net, X, target="predicted", shifts=shifts, method="interval").to_dict()
    assert f"in the L{p} norm" in run(capsys, *words, "--shifts", name)[1]


def test_options_reach_the_library(files, capsys):
    options = ("--coverage", "0.9", "--confidence", "0.95", "--samples", "500", "--simultaneous", "--relative")
    code, out, _ = run(capsys, *ASK, "--json", "--only", "weight", "--limit", "3", "--jobs", "1", *options)
    assert code == 0
    content = json.loads(out)
    assert content["shifts"]["kinds"] == ["weight"]
    assert content["shifts"]["relative"] is True
    claim = content["rows"][0]["claim"]
    assert (claim["coverage"], claim["confidence"], claim["rows"]) == (0.9, 0.95, 5)
    assert (
        content
        == library(
            files,
            shifts=apas.LinfShifts(relative=True, kinds=("weight",)),
            method=apas.Sampling(coverage=0.9, confidence=0.95, n_samples=500),
            limit=3.0,
            simultaneous=True,
        ).to_dict()
    )


def test_limit_ends_the_search(files, capsys):
    code, out, _ = run(capsys, *ASK, "--json", "--limit", "1e-6")
    assert code == 0
    valid = [line for line in json.loads(out)["rows"] if line["delta"]]
    assert valid
    assert {(line["delta"], line["reached_limit"], line["upper"]) for line in valid} == {(1e-6, True, None)}


def test_unknown_bounds_are_shown_as_infinite(files, capsys):
    _, out, _ = run(capsys, *ASK, "--limit", "1e-6")
    assert " inf " in out


def test_predicted_target(files, capsys):
    code, out, _ = run(capsys, "max-shift", "model.json", "rows.csv", "--target", "predicted", "--json")
    assert code == 0
    assert all(line["delta"] > 0 for line in json.loads(out)["rows"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("max-shift", "missing.json", *ASK[2:]), "missing.json cannot be read: No such file or directory"),
        (("max-shift", "model.json", "missing.csv", *ASK[3:]), "missing.csv cannot be read"),
        (("max-shift", "model.pkl", *ASK[2:]), "could run code when read"),
        ((*ASK[:3], "--target", "7"), "must be one of the model's classes (0, 1)"),
        ((*ASK, "--limit", "-1"), "`limit` of max_shift must be a positive finite number, got -1.0"),
        ((*ASK, "--limit", "inf"), "`limit` of max_shift must be a positive finite number, got inf"),
        ((*ASK, "--coverage", "1.5"), "`coverage` of Sampling must be a number strictly between 0 and 1, got 1.5"),
        ((*ASK, "--samples", "10"), "`n_samples` of Sampling must be at least 1379"),
        ((*ASK, "--jobs", "0"), "`n_jobs` must be"),
        ((*ASK, "--method", "exact", "--search", "confirm"), "`search` goes with"),
        ((*ASK, "--method", "exact", "--coverage", "0.9"), "`--coverage` goes with `--method sampling`, got `--method exact`; leave it out."),
        ((*ASK, "--method", "interval", "--confidence", "0.9"), "`--confidence` goes with"),
        ((*ASK, "--method", "interval", "--samples", "2000"), "`--samples` goes with"),
        ((*ASK, "--method", "cascade", "--samples", "2000"), "`--samples` goes with"),
        ((*ASK, "--time-limit", "5"), "`--time-limit` goes with `--method exact` or `--method cascade`, got `--method sampling`; leave it out."),
        ((*ASK, "--method", "linear", "--time-limit", "5"), "`--time-limit` goes with"),
        ((*ASK, "--method", "exact", "--time-limit", "-5"), "`time_limit` of Exact must be a number of at least 0, got -5.0"),
        ((*ASK, "--relative", "--shifts", "l1"), "`--relative` goes with `--shifts linf` or `sparse:N`, got `--shifts l1`; leave it out."),
        ((*ASK, "--method", "linear", "--shifts", "l2"), "LinearBounds needs shifts in a box (LinfShifts)"),
    ],
)  # fmt: skip
def test_bad_words(files, capsys, words, message):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("max-shift", "model.json", "rows.csv"), "--target"),
        ((*ASK, "--search", "bisection"), "confirm"),
        ((*ASK, "--method", "attack"), "interval"),
        ((*ASK, "--method", "enumeration"), "cascade"),
        ((*ASK, "--shifts", "l3"), "linf"),
    ],
)
def test_usage_errors(files, capsys, words, named):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert named in err


def test_help_has_an_example(capsys):
    code, out, _ = run(capsys, "max-shift", "--help")
    assert code == 0
    assert "apas max-shift model.json rows.csv --target 1" in out
    assert "apas max-shift model.json rows.csv --target 1 --method cascade" in out
