"""`apas certify` as a user meets it: tables, JSON, exit codes, one-sentence errors."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command_line import run

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


@pytest.fixture
def deep_files(files, tmp_path):
    """The same rows, and a network with two hidden layers."""
    _, X = files
    rng = np.random.default_rng(5)
    sizes = [(4, 6), (6, 5), (5, 1)]
    weights, biases = [rng.normal(size=size) for size in sizes], [rng.normal(size=size[1]) for size in sizes]
    net = apas.FeedForward(weights, biases, feature_names=list(X.columns))
    apas.save_model(net, tmp_path / "deep.json")
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


def test_derived_seeds(files, capsys):
    net, X = files
    asked = (*ASK[:-2], "--derived")
    code, out, _ = run(capsys, *asked, "--bits", "80", "--json")
    assert code == 0
    assert json.loads(out) == apas.certify(net, X, 0.05, target=1, rng=apas.DerivedSeed(80)).to_dict()
    run(capsys, *asked, "--save", "derived.json")
    code, out, _ = run(capsys, "verify", "derived.json", "model.json", "--require-derived")
    assert (code, "Seed: derived (" in out) == (0, True)
    run(capsys, *ASK, "--save", "chosen.json")
    code, out, _ = run(capsys, "verify", "chosen.json", "model.json", "--require-derived")
    assert (code, "Seed: chosen by the issuer (" in out) == (1, True)
    refused = {
        ("--seed", "1"): "`--seed` goes without `--derived`",
        ("--confidence", "0.999"): "`--confidence` goes without `--derived`, which has a risk of 2^-64",
        ("--bits", "20"): "`bits` of DerivedSeed must be an integer of at least 64, got 20",
        ("--method", "exact"): 'goes with method="sampling", got Exact',
    }
    for words, message in refused.items():
        code, _, err = run(capsys, *asked, *words)
        assert (code, message in " ".join(err.split())) == (2, True), err
    assert run(capsys, *ASK, "--bits", "70")[0] == 2


def test_options_reach_the_method(files, capsys):
    options = ("--coverage", "0.9", "--confidence", "0.95", "--samples", "500", "--simultaneous", "--relative")
    _, out, _ = run(capsys, *ASK, "--json", "--only", "weight", *options)
    content = json.loads(out)
    assert content["shifts"]["kinds"] == ["weight"]
    assert content["shifts"]["relative"] is True
    claim = content["certificates"][0]["claim"]
    assert (claim["coverage"], claim["confidence"], claim["rows"]) == (0.9, 0.95, 5)
    assert {c["evidence"].get("samples", 500) for c in content["certificates"]} == {500}


WORST = ("certify", "model.json", "rows.csv", "--target", "predicted", "--delta", "0.02", "--seed", "1")


def headings(table):
    return table.splitlines()[0].split()


@pytest.mark.parametrize("method", ["sampling", "interval", "linear", "attack", "exact", "enumeration", "cascade"])
@pytest.mark.parametrize("shape", ["shallow", "deep"])
def test_every_method_is_what_the_library_gives(files, capsys, deep_files, method, shape):
    net, X = files if shape == "shallow" else deep_files
    ask = (*WORST, "--json", "--method", method)
    code, out, err = run(capsys, ask[0], "model.json" if shape == "shallow" else "deep.json", *ask[2:])
    assert code == 0, err
    assert json.loads(out) == apas.certify(net, X, 0.02, target="predicted", method=method, rng=1).to_dict()


@pytest.mark.parametrize("method", ["interval", "linear", "exact", "cascade"])
def test_table_of_a_proof(deep_files, capsys, method):
    net, X = deep_files
    code, out, err = run(capsys, "certify", "deep.json", *WORST[2:], "--method", method)
    assert (code, err) == (0, "")
    assert headings(out) == ["row", "verdict", "target", "delta", "step", "bound", "reason"]
    found = apas.certify(net, X, 0.02, target="predicted", method=method, rng=1)
    assert found.certified.any()
    for line, c in zip(out.splitlines()[1:6], found, strict=True):
        bound = "-" if c.evidence.bound is None else f"{c.evidence.bound:g}"
        assert line.split(maxsplit=6)[1:6] == [str(c.verdict), str(c.target), "0.02", c.evidence.step, bound]
    assert "(every shift; delta 0.02; the box in which" in out.splitlines()[-1]


def test_table_of_refutations(deep_files, capsys):
    code, out, _ = run(capsys, "certify", "deep.json", *WORST[2:-4], "--delta", "5", "--method", "attack")
    assert code == 0
    lines = [line.split() for line in out.splitlines()[1:6]]
    assert {(verdict, step, bound) for _, verdict, _, _, step, bound, *_ in lines} == {("REFUTED", "attack", "-")}


def test_table_of_boxes(files, capsys):
    net, X = files
    words = (*WORST, "--method", "enumeration", "--coverage", "0.9", "--only", "bias")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert headings(out) == ["row", "verdict", "target", "delta", "lower", "upper", "boxes", "reason"]
    method, shifts = apas.Enumeration(coverage=0.9), apas.LinfShifts(kinds=("bias",))
    found = apas.certify(net, X, 0.02, target="predicted", method=method, shifts=shifts)
    for line, c in zip(out.splitlines()[1:6], found, strict=True):
        lower, upper, boxes = line.split()[4:7]
        assert float(lower) <= c.evidence.lower <= c.evidence.upper <= float(upper)
        assert int(boxes) == c.evidence.evaluated
    assert "at least 90 % of the shifts, for certain" in out


def test_a_row_that_is_not_valid_has_neither_step_nor_bound(files, capsys):
    net, X = files
    wrong = int(net.margin(X.to_numpy(), 1)[0] < 0)
    code, out, _ = run(capsys, *WORST[:3], "--target", str(wrong), "--delta", "0.02", "--method", "interval")
    assert code == 0
    assert out.splitlines()[1].rstrip().split(maxsplit=6)[1:] == [
        "REFUTED", str(wrong), "0.02", "-", "-", "not valid on the model itself",
    ]  # fmt: skip


def test_time_limit_of_enumeration(files, capsys):
    net, X = files
    words = (
        *WORST[:5],
        "--delta",
        "0.3",
        "--method",
        "enumeration",
        "--coverage",
        "0.9",
        "--time-limit",
        "0",
        "--json",
    )
    code, out, _ = run(capsys, *words)
    assert code == 0
    method = apas.Enumeration(coverage=0.9, time_limit=0)
    assert json.loads(out) == apas.certify(net, X, 0.3, target="predicted", method=method).to_dict()
    assert "the time limit of 0 s ended it" in out


@pytest.mark.parametrize("method", ["exact", "cascade"])
def test_time_limit(deep_files, capsys, method):
    net, X = deep_files
    code, out, _ = run(capsys, "certify", "deep.json", *WORST[2:], "--method", method, "--time-limit", "30", "--json")
    assert code == 0
    exact = apas.Exact(time_limit=30)
    cascade = apas.Cascade(apas.IntervalBounds(), apas.LinearBounds(), apas.Attack(), exact)
    how = exact if method == "exact" else cascade
    assert json.loads(out) == apas.certify(net, X, 0.02, target="predicted", method=how, rng=1).to_dict()


@pytest.mark.parametrize(("name", "p"), [("l1", 1), ("l2", 2)])
@pytest.mark.parametrize("method", ["sampling", "interval", "cascade"])
def test_balls(files, capsys, name, p, method):
    net, X = files
    words = (*WORST, "--shifts", name, "--only", "weight", "--method", method)
    code, out, err = run(capsys, *words, "--json")
    assert code == 0, err
    shifts = apas.LpShifts(p, kinds=("weight",))
    expected = apas.certify(net, X, 0.02, target="predicted", shifts=shifts, method=method, rng=1)
    assert json.loads(out) == expected.to_dict()
    assert f"in the L{p} norm" in run(capsys, *words)[1]


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


def test_a_named_index(files, capsys):
    """Only if the other columns are those of the model: a feature is never taken for the names of the rows."""
    X = pd.read_csv("rows.csv").set_axis(pd.Index(list("abcde"), name="applicant"))
    X.to_csv("named.csv")
    code, out, _ = run(capsys, "certify", "model.json", "named.csv", *ASK[3:], "--json")
    assert code == 0
    assert [c["row"] for c in json.loads(out)["certificates"]] == list("abcde")
    X.iloc[:, 1:].to_csv("named.csv")
    code, out, err = run(capsys, "certify", "model.json", "named.csv", *ASK[3:], "--json")
    assert (code, out) == (2, "")
    assert "columns" in err


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
        (("certify", "model.pt", *ASK[2:]), "model.pt cannot be read: No such file or directory"),
        ((*ASK[:3], "--target", "7", "--delta", "0.1"), "must be one of the model's classes (0, 1)"),
        ((*ASK[:3], "--target", "1", "--delta", "-1"), "`delta` must be positive and finite, got -1.0"),
        ((*ASK, "--coverage", "1.5"), "`coverage` of Sampling must be a number strictly between 0 and 1, got 1.5"),
        ((*ASK, "--samples", "10"), "`n_samples` of Sampling must be at least 1379"),
        ((*ASK, "--jobs", "0"), "`n_jobs` must be"),
        ((*ASK, "--method", "exact", "--coverage", "0.9"), "`--coverage` goes with `--method sampling` or `--method enumeration`, got `--method exact`; leave it out."),
        ((*ASK, "--method", "cascade", "--confidence", "0.9"), "`--confidence` goes with `--method sampling`, got `--method cascade`; leave it out."),
        ((*ASK, "--method", "enumeration", "--confidence", "0.9"), "`--confidence` goes with `--method sampling`, got"),
        ((*ASK, "--method", "enumeration", "--samples", "2000"), "`--samples` goes with `--method sampling`, got"),
        ((*ASK, "--method", "attack", "--samples", "2000"), "`--samples` goes with `--method sampling`, got"),
        ((*ASK, "--time-limit", "5"), "`--time-limit` goes with `--method exact` or `--method cascade` or `--method enumeration`, got `--method sampling`; leave it out."),
        ((*ASK, "--method", "interval", "--time-limit", "5"), "`--time-limit` goes with"),
        ((*ASK, "--method", "linear", "--time-limit", "5"), "`--time-limit` goes with"),
        ((*ASK, "--method", "attack", "--time-limit", "5"), "`--time-limit` goes with"),
        ((*ASK, "--method", "enumeration", "--time-limit", "-5"), "`time_limit` of Enumeration must be a number of at least 0, got -5.0"),
        ((*ASK, "--method", "exact", "--time-limit", "-1"), "`time_limit` of Exact must be a number of at least 0, got -1.0"),
        ((*ASK, "--method", "cascade", "--time-limit", "nan"), "`time_limit` of Exact must be a number of at least 0, got nan"),
        ((*ASK, "--method", "enumeration", "--coverage", "1.5"), "`coverage` of Enumeration must be a number above 0 and at most 1, got 1.5"),
        ((*ASK, "--relative", "--shifts", "l2"), "`--relative` goes with `--shifts linf` or `sparse:N`, got `--shifts l2`; leave it out."),
        ((*ASK, "--relative", "--shifts", "l1", "--method", "interval"), "`--relative` goes with `--shifts linf` or `sparse:N`, got `--shifts l1`"),
        ((*ASK, "--shifts", "l2", "--method", "linear"), "LinearBounds needs shifts in a box (LinfShifts)"),
        ((*ASK, "--shifts", "l2", "--method", "exact"), "Exact needs shifts in a box (LinfShifts)"),
        ((*ASK, "--shifts", "l1", "--method", "enumeration"), "Enumeration cuts up boxes"),
    ],
)  # fmt: skip
def test_bad_words(files, capsys, words, message):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [(("--method", "milp"), "cascade"), (("--shifts", "l3"), "linf"), (("--time-limit", "soon"), "--time-limit")],
)
def test_unknown_words_are_usage_errors(files, capsys, words, named):
    code, out, err = run(capsys, *ASK, *words)
    assert (code, out) == (2, "")
    assert named in err


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


def test_help_names_the_worst_case(capsys):
    _, out, _ = run(capsys, "certify", "--help")
    assert "apas certify model.json rows.csv --target 1 --delta 0.01 --method cascade" in out
    assert "--time-limit" in out


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert (code, out.strip()) == (0, apas.__version__)


def test_open_rows_are_continued(files, capsys):
    net, X = files
    ask = ("certify", "model.json", "rows.csv", "--target", "predicted", "--delta", "0.2", "--seed", "1")
    assert run(capsys, *ask, "--samples", "1000", "--test", "anytime", "--save", "few.json")[0] == 0
    assert "UNKNOWN" in {c.verdict.name for c in apas.load_certificates("few.json")}
    further = ("certify", "model.json", "--continue", "few.json")
    code, out, _ = run(capsys, *further, "--samples", "40000", "--save", "more.json")
    assert code == 0
    assert "so few certify at any time (anytime test)" in out
    method = apas.Sampling(test="anytime", n_samples=40_000)
    assert apas.load_certificates("more.json") == apas.certify(net, X, 0.2, target="predicted", method=method, rng=1)
    for words, message in [
        (further, "Missing option '--samples'"),
        ((*further, "--samples", "10"), "must be at least 1000"),
        ((*further, "--samples", "9000", "--target", "1"), "`--target` goes without `--continue`"),
        ((*further, "--samples", "9000", "--relative"), "`--relative` goes without `--continue`"),
        ((*further, "--samples", "9000", "--save", "few.json"), "must be another file"),
        (("certify", "model.json"), "Missing argument 'ROWS'"),
        (("certify", "model.json", "rows.csv"), "Missing option '--target'"),
        ((*ask, "--method", "exact", "--test", "fixed"), "`--test` goes with `--method sampling`"),
    ]:
        code, _, error = run(capsys, *words)
        assert code == 2
        assert message in error
