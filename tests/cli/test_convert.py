"""`apas convert` as a user meets it, and model files of all formats in the other commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import run
from hostile_files import GOOD_STATE
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas.models.digest import model_digest

NET = apas.FeedForward(
    [np.arange(6.0).reshape(2, 3) - 2, np.ones((3, 1))], [np.zeros(3), None], activation="tanh", classes=["no", "yes"],
    feature_names=["a", "b"],
)  # fmt: skip
X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.where(X[:, 0] > 0, "yes", "no")
SAID = ("--activation", "relu", "--output", "sigmoid")


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    import skops.io  # here: it imports all of scikit-learn

    monkeypatch.chdir(tmp_path)
    for suffix in (".json", ".safetensors", ".onnx"):
        apas.save_model(NET, f"net{suffix}")
    (tmp_path / "net.pt").write_bytes(GOOD_STATE)
    skops.io.dump(LogisticRegression().fit(X, Y), "plain.skops")
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y), "pipeline.skops")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n-1,3\n")


@pytest.mark.parametrize("target", ["out.json", "out.safetensors", "out.onnx"])
@pytest.mark.parametrize("source", ["net.json", "net.safetensors", "net.onnx"])
def test_every_format_becomes_every_other(source, target, capsys):
    code, out, err = run(capsys, "convert", source, target)
    assert (code, err) == (0, "")
    assert out == f"{target}: {NET!r}, SHA-256 of the model {model_digest(NET)}\n"
    assert model_digest(apas.load_model(target)) == model_digest(NET)


def test_from_scikit_learn(capsys):
    code, _, _ = run(capsys, "convert", "plain.skops", "out.json")
    assert code == 0
    assert model_digest(apas.load_model("out.json")) == model_digest(apas.load_model("plain.skops"))


def test_from_a_state(capsys):
    more = ("--threshold", "0.25", "--classes", "no, yes", "--feature-names", "x,y")
    code, out, _ = run(capsys, "convert", "net.pt", "out.json", *SAID, *more)
    assert (code, out[:11]) == (0, "out.json: <")
    net = apas.load_model("out.json")
    assert (net.threshold, net.classes, net.feature_names) == (0.25, ("no", "yes"), ("x", "y"))
    run(capsys, "convert", "net.pt", "numbers.json", *SAID, "--classes", "-1,1")
    assert apas.load_model("numbers.json").classes == (-1, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("net.pt", "out.json"), "`activation` of load_model must say what is computed between the 2 layers"),
        (("net.pt", "out.json", "--activation", "relu"), "`output` of load_model must say"),
        (("net.pt", "out.json", "--activation", "relu,tanh", "--output", "sigmoid"), "one per hidden layer (1), got 2"),
        (("net.json", "out.json", "--activation", "relu"), "`activation` of load_model is 'relu', but net.json says ['tanh']; leave it out"),
        (("pipeline.skops", "out.json"), "a Pipeline's preprocessing cannot be written to a .json file"),
        (("net.json", "out.skops"), "is a dense network without a library's file; let `path` end in .json or .apas"),
        (("net.json", "out.pkl"), "could run code"),
        (("net.pkl", "out.json"), "net.pkl could run code when read, so apas does not; in the program that trained the model, write it with"),
        (("missing.onnx", "out.json"), "missing.onnx cannot be read: No such file"),
    ],
)  # fmt: skip
def test_bad_input(words, message, capsys, tmp_path):
    code, out, err = run(capsys, "convert", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("source", ["net.json", "net.safetensors", "net.onnx", "pipeline.skops", "plain.skops"])
def test_other_commands_read_every_format(source, capsys):
    words = (source, "rows.csv", "--target", "predicted", "--seed", "0", "--json")
    code, out, err = run(capsys, "max-shift", *words, "--samples", "1500")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["rows"]) == 2
    code, out, _ = run(capsys, "shift", source, source)
    assert code == 0
    assert out.splitlines()[-1].startswith("None of ")


def test_other_commands_take_what_a_state_does_not_tell(capsys):
    code, out, _ = run(
        capsys, "max-shift", "net.pt", "rows.csv", "--target", "1", "--seed", "0", "--samples", "1500", *SAID
    )
    assert (code, out[:3]) == (0, "row")
    run(capsys, "convert", "net.pt", "state.json", *SAID)
    code, out, _ = run(capsys, "shift", "net.pt", "state.json", *SAID)
    assert (code, out.splitlines()[-1]) == (0, "None of 13 parameters changes.")


def test_help_has_examples(capsys):
    code, out, _ = run(capsys, "convert", "--help")
    assert code == 0
    assert "apas convert model.onnx model.json" in out
