"""Model files: every bit comes back, nothing is half-written, and nothing in them can run."""

import json
import math
import os
import pickle
import struct
import zipfile
from functools import partial

import joblib
import numpy as np
import pytest
from conftest import resolve
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas

NASTY = [
    0.1,
    -0.0,
    0.0,
    1e-308,
    5e-324,
    -2.2250738585072014e-308,
    math.pi,
    1 / 3,
    1.7976931348623157e308,
    2.0**53 + 2,
    -1e-17,
    123456789.123456789,
]
X = np.random.default_rng(0).normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int)


def bits(array):
    return [struct.pack("<d", v) for v in np.ravel(array)]


NETWORKS = {
    "nasty": apas.FeedForward([np.reshape(NASTY, (3, 4)), [[-0.0]] * 4], [NASTY[:4], [5e-324]], activation="gelu"),
    "linear": apas.FeedForward([[[0.1], [0.2]]], [[0.3]]),
    "threshold": apas.FeedForward([[[0.1]]], [[0.3]], threshold=0.1 + 0.2),
    "identity": apas.FeedForward([[[0.1]]], [[0.3]], output="identity", threshold=-1e300),
    "texts": apas.FeedForward([[[0.1]]], [[0.3]], classes=["näh", "ja\n\"'\\"], feature_names=["größe, m²"]),
    "softmax": apas.FeedForward([np.eye(3)], [np.zeros(3)], output="softmax", classes=[5, 1, 3]),
    "bools": apas.FeedForward([[[0.1]]], [[0.3]], classes=[False, True]),
    "floats": apas.FeedForward([[[0.1]]], [[0.3]], classes=np.array([0.1, 0.7])),
    "deep": apas.FeedForward(
        [np.eye(2)] * 4 + [[[1.0], [1.0]]], [np.zeros(2)] * 4 + [[0.0]], activation=["relu", "tanh", "elu", "softplus"]
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip(name, tmp_path):
    net, path = NETWORKS[name], tmp_path / "net.json"
    apas.save_model(net, path)
    got = apas.load_model(str(path))
    assert bits(got.parameters.values) == bits(net.parameters.values)
    assert got.parameters.shapes == net.parameters.shapes
    assert got.activations == net.activations
    assert (got.output, got.feature_names) == (net.output, net.feature_names)
    assert bits(got.threshold) == bits(net.threshold)
    assert got.classes == net.classes
    assert [type(c) for c in got.classes] == [type(c.item() if isinstance(c, np.generic) else c) for c in net.classes]
    apas.save_model(got, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == "apas-model"


def test_random_bits_come_back(tmp_path):
    words = np.random.default_rng(1).integers(0, 2**64, size=4000, dtype=np.uint64).view(np.float64)
    weights = words[np.isfinite(words)][:3000].reshape(-1, 1)
    apas.save_model(apas.FeedForward([weights], [[0.0]]), tmp_path / "net.json")
    assert bits(apas.load_model(tmp_path / "net.json").weights[0]) == bits(weights)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), MLPClassifier((3,), max_iter=300, tol=0.05, random_state=0)],
    ids=["logistic", "mlp"],
)
def test_estimators_are_saved_as_networks(estimator, tmp_path):
    estimator.fit(X, np.where(Y == 1, "yes", "no"))
    apas.save_model(estimator, tmp_path / "net.json")
    loaded = apas.load_model(tmp_path / "net.json")
    mine = apas.certify(estimator, X, 0.1, target="yes", rng=0)
    theirs = apas.certify(loaded, X, 0.1, target="yes", rng=0)
    assert [c.evidence for c in mine] == [c.evidence for c in theirs]
    assert [c.verdict for c in mine] == [c.verdict for c in theirs]


def test_names_of_the_columns_are_saved(tmp_path):
    import pandas as pd

    apas.save_model(LogisticRegression().fit(pd.DataFrame(X, columns=["b", "a"]), Y), tmp_path / "net.json")
    assert apas.load_model(tmp_path / "net.json").feature_names == ("b", "a")


def test_the_bytes_before_the_text_that_some_editors_write(tmp_path):
    path = tmp_path / "net.json"
    apas.save_model(NETWORKS["texts"], path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert apas.load_model(path).classes == NETWORKS["texts"].classes


# -- saving: all or nothing --------------------------------------------------------------------------------------


def unsaved(net, path, error, message):
    """Saving fails, the file that was there is still there, and there is nothing else."""
    apas.save_model(NETWORKS["linear"], path)
    before = path.read_bytes()
    with pytest.raises(error, match=message) as caught:
        apas.save_model(net, path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    return caught.value


UNSAVEABLE = {
    "bytes": [b"no", b"yes"],
    "complex": [1 + 2j, 2],
    "nan": [float("nan"), 1.0],
    "tuples": [("a", 1), ("b", 2)],  # JSON would turn them into lists, which cannot be classes
}


@pytest.mark.parametrize("classes", UNSAVEABLE.values(), ids=UNSAVEABLE)
def test_classes_that_json_cannot_hold_are_refused_at_the_door(classes):
    with pytest.raises(apas.InputError, match="`classes` of FeedForward must hold texts or numbers"):
        apas.FeedForward([[[1.0]]], [[0.0]], classes=classes)


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupt"]
)
def test_a_failing_disk_leaves_the_old_file(call, failure, tmp_path, monkeypatch):
    path = tmp_path / "net.json"
    apas.save_model(NETWORKS["linear"], path)
    before = path.read_bytes()

    def fail(*_):
        raise failure

    monkeypatch.setattr(os, call, fail)
    error = apas.InputError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(error, match="No space left" if error is apas.InputError else None):
        apas.save_model(NETWORKS["nasty"], path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net.json"]


def test_a_failing_first_save_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(apas.InputError, match="`path` must be a file that can be written.*Input/output error"):
        apas.save_model(NETWORKS["linear"], tmp_path / "net.json")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_saved_file_has_the_permissions_of_any_new_file(tmp_path):
    apas.save_model(NETWORKS["linear"], tmp_path / "net.json")
    (tmp_path / "plain").touch()
    assert (tmp_path / "net.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_pipeline_is_not_saved_without_its_preprocessing(tmp_path):
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    unsaved(pipeline, tmp_path / "net.json", apas.Unsupported, "preprocessing cannot be written .*as_feedforward")


class Own:
    """A model of the user's, which is not a dense network."""

    classes = (0, 1)
    n_features = 1
    parameters = NETWORKS["linear"].parameters

    def margin(self, X, target):
        return X[:, 0]

    def shifted_margins(self, X, target, directions, delta):
        return np.zeros((len(directions), len(X)))


def test_what_is_not_dense_is_not_saved(tmp_path):
    unsaved(Own(), tmp_path / "net.json", apas.Unsupported, "Own is not a dense network")


NOT_WRITTEN = [
    ("no/such/folder/net.json", apas.InputError, "`path` must be a file that can be written.*No such file"),
    ("net.csv", apas.InputError, r"`path` must end in \.json, \.safetensors, \.onnx, \.apas, .* or \.cbm, got"),
    ("net", apas.InputError, r"`path` must end in \.json"),
    ("net.skops", apas.Unsupported, r"is a dense network without a library's file; let `path` end in \.json or \.apas"),
    ("net.pt", apas.InputError, r"written by apas, got .*torch.save\(module.state_dict\(\), path\)"),
    ("net.pkl", apas.UnsafeFile, "save_model"),
    ("folder.json", apas.InputError, "`path` must be a file that can be written"),
]


@pytest.mark.parametrize(("name", "error", "message"), NOT_WRITTEN)
def test_paths_that_cannot_be_written(name, error, message, tmp_path):
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(error, match=message):
        apas.save_model(NETWORKS["linear"], tmp_path / name)
    assert os.listdir(tmp_path) == ["folder.json"]


# -- loading: what is refused ------------------------------------------------------------------------------------


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return (open, (str(self.flag), "w"))


def write_pickle(path, bomb, protocol=4):
    path.write_bytes(pickle.dumps(bomb, protocol=protocol))


def write_zip(path, bomb):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(bomb))


HOSTILE = {
    ".pkl": ("net.pkl", write_pickle, apas.UnsafeFile),
    ".PKL": ("net.PKL", write_pickle, apas.UnsafeFile),
    ".pickle": ("net.pickle", write_pickle, apas.UnsafeFile),
    ".joblib": ("net.joblib", lambda path, bomb: joblib.dump(bomb, path), apas.UnsafeFile),
    ".pt": ("net.pt", write_zip, apas.UnsafeFile),
    ".pth": ("net.pth", write_zip, apas.UnsafeFile),
    "pickle called json": ("net.json", write_pickle, apas.UnsafeFile),
    "pickle 2 called json": ("net.json", lambda path, bomb: write_pickle(path, bomb, 2), apas.UnsafeFile),
    "pickle 0 called json": ("net.json", lambda path, bomb: write_pickle(path, bomb, 0), apas.InputError),
    "zip called json": ("net.json", write_zip, apas.UnsafeFile),
    "gzip called json": ("net.json", lambda path, bomb: joblib.dump(bomb, path, compress=("gzip", 3)), apas.InputError),
}


@pytest.mark.parametrize(("name", "write", "error"), HOSTILE.values(), ids=HOSTILE)
def test_code_in_a_file_never_runs(name, write, error, tmp_path):
    flag, path = tmp_path / "flag", tmp_path / name
    write(path, Bomb(flag))
    with pytest.raises(error) as caught:
        apas.load_model(path)
    assert not flag.exists()
    assert str(path) in str(caught.value)
    if error is apas.UnsafeFile:
        assert "could run code" in str(caught.value)
        assert "apas.save_model(model, 'model.json')" in str(caught.value)
    # the bomb is live: otherwise this test could not fail
    pickle.loads(pickle.dumps(Bomb(flag))).close()
    assert flag.exists()


GOOD = {
    "format": "apas-model", "version": 1, "kind": "feedforward", "weights": [[[1.0], [2.0]]], "biases": [[0.5]],
    "activation": [], "output": "sigmoid", "threshold": 0.5, "classes": [0, 1], "feature_names": None,
}  # fmt: skip


def without(field):
    return json.dumps({k: v for k, v in GOOD.items() if k != field})


def changed(**fields):
    return json.dumps({**GOOD, **fields})


UNUSABLE = "does not hold a usable network: "
REFUSED = {
    "empty": ("", "is not valid JSON"),
    "half": (json.dumps(GOOD)[:-20], "is not valid JSON"),
    "not JSON": ("weights: 1", "is not valid JSON"),
    "Python": (str(GOOD), "is not valid JSON"),
    "two objects": (json.dumps(GOOD) * 2, "is not valid JSON"),
    "not UTF-8": (b'{"format": "\xff"}', "is not valid JSON"),
    "UTF-16": (json.dumps(GOOD).encode("utf-16"), "is not valid JSON"),
    "zero bytes": (b"\0\0\0\0", "is not valid JSON"),
    "deep lists": ("[" * 100_000, "is not valid JSON: it is nested too deeply"),
    "deep objects": ('{"a":' * 100_000, "is not valid JSON: it is nested too deeply"),
    "a number of 5000 digits": ('{"format": "apas-model", "version": ' + "1" * 5000 + "}", "is not valid JSON"),
    "a list": ("[]", 'is not a model file: it must hold an object with "format": "apas-model"'),
    "null": ("null", "is not a model file"),
    "another format": (changed(format="onnx"), "is not a model file"),
    "a field twice": (json.dumps(GOOD)[:-1] + ', "threshold": 0.9}', "the key 'threshold' occurs twice in an object"),
    "a field twice among many": (
        partial(lambda: "{" + "".join(f'"{i}": 0, ' for i in range(300_000)) + '"299999": 1}'),
        "the key '299999' occurs twice in an object",
    ),
    "no format": (without("format"), "is not a model file"),
    "a newer version": (changed(version=2), "version 2 .*reads version 1.*newer apas"),
    "version as text": (changed(version="1"), "version '1'"),
    "no version": (without("version"), "version None"),
    "another kind": (changed(kind="forest"), "kind 'forest'"),
    **{
        f"no {field}": (without(field), f"must have the field '{field}', but has not")
        for field in ("weights", "biases", "activation", "output", "threshold", "classes", "feature_names")
    },
    "NaN": (changed(weights=[[[1.0], [float("nan")]]]), UNUSABLE + r"`weights\[0\]`.*finite numbers, got nan"),
    "Infinity": (changed(biases=[[float("inf")]]), UNUSABLE + r"`biases\[0\]`.*finite numbers, got inf"),
    "too large": (json.dumps(GOOD).replace("2.0", "1e999"), UNUSABLE + r"`weights\[0\]`.*finite numbers, got inf"),
    "a large integer": (changed(weights=[[[1.0], [10**400]]]), UNUSABLE + r"`weights\[0\]`"),
    "texts": (changed(weights=[[["1.0"], ["2.0"]]]), UNUSABLE + r"`weights\[0\]`.*real numbers"),
    "null weight": (changed(weights=[[[1.0], [None]]]), UNUSABLE + r"`weights\[0\]`.*real numbers"),
    "a text for weights": (changed(weights="abc"), UNUSABLE),
    "a number for weights": (changed(weights=3), UNUSABLE),
    "an object for weights": (changed(weights={"0": [[1.0]]}), UNUSABLE),
    "no layers": (changed(weights=[], biases=[]), UNUSABLE + "`weights` and `biases`"),
    "ragged": (changed(weights=[[[1.0], [2.0, 3.0]]]), UNUSABLE + r"`weights\[0\]`"),
    "flat weights": (changed(weights=[[1.0, 2.0]]), UNUSABLE + r"`weights\[0\]`.*2-D"),
    "bias too long": (changed(biases=[[0.5, 0.5]]), UNUSABLE + r"`biases\[0\]`.*1 entries.*got 2"),
    "layers that do not fit": (
        changed(weights=[[[1.0], [2.0]], [[1.0], [2.0]]], biases=[[0.0], [0.0]], activation=["relu"]),
        UNUSABLE + r"`weights\[1\]`.*1 rows",
    ),
    "unknown activation": (
        changed(weights=[[[1.0], [2.0]], [[1.0]]], biases=[[0.0], [0.0]], activation=["swish"]),
        UNUSABLE + "`activation`.*got 'swish'",
    ),
    "too many activations": (changed(activation=["relu"]), UNUSABLE + "`activation`"),
    "null activation": (changed(activation=None), UNUSABLE),
    "nested activation": (
        changed(weights=[[[1.0], [2.0]], [[1.0]]], biases=[[0.0], [0.0]], activation=[["relu"]]),
        UNUSABLE,
    ),
    "unknown output": (changed(output="logit"), UNUSABLE + "`output`.*got 'logit'"),
    "output that does not fit": (changed(output="softmax"), UNUSABLE + "`output`"),
    "threshold 0": (changed(threshold=0), UNUSABLE + "`threshold`"),
    "threshold as text": (changed(threshold="0.5"), UNUSABLE + "`threshold`"),
    "threshold NaN": (changed(threshold=float("nan")), UNUSABLE + "`threshold`"),
    "threshold null": (changed(threshold=None), UNUSABLE + "`threshold`"),
    "threshold too large": (changed(threshold=10**400), UNUSABLE),
    "identity threshold as a list": (changed(output="identity", threshold=[0.5]), UNUSABLE),
    "three classes": (changed(classes=[0, 1, 2]), UNUSABLE + "`classes`"),
    "equal classes": (changed(classes=[0, 0]), UNUSABLE + "`classes`"),
    "lists as classes": (changed(classes=[[0], [1]]), UNUSABLE),
    "a number for classes": (changed(classes=2), UNUSABLE),
    "too few names": (changed(feature_names=["a"]), UNUSABLE + "`feature_names`"),
    "equal names": (changed(feature_names=["a", "a"]), UNUSABLE + "`feature_names`"),
    "a number for names": (changed(feature_names=2), UNUSABLE),
}


def test_the_good_file_is_good(tmp_path):
    (tmp_path / "net.json").write_text(json.dumps(GOOD))
    assert apas.load_model(tmp_path / "net.json").margin(np.array([[1.0, 1.0]]), 1).tolist() == [3.5]


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_files_that_are_not_models(content, message, tmp_path):
    path = tmp_path / "net.json"
    content = resolve(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(apas.InputError, match=message) as caught:
        apas.load_model(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


NOT_READ = [
    ("missing.json", "missing.json cannot be read: No such file"),
    ("folder.json", "folder.json cannot be read: it is not a plain file"),
    ("net.csv", r"`path` must end in \.json, \.safetensors, \.onnx, \.apas, \.skops, .* \.pt or \.pth, got"),
    ("net.onnx", "net.onnx cannot be read: No such file"),
    ("net", r"`path` must end in \.json"),
]


@pytest.mark.parametrize(("name", "message"), NOT_READ)
def test_paths_that_cannot_be_read(name, message, tmp_path):
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(apas.InputError, match=message):
        apas.load_model(tmp_path / name)


@pytest.mark.parametrize("path", [None, 3, b"net.json", ["net.json"]])
def test_what_is_no_path(path):
    with pytest.raises(apas.InputError, match=f"`path` must be the name of a file, got {type(path).__name__}"):
        apas.load_model(path)


def test_a_name_that_no_file_can_have():
    with pytest.raises(apas.InputError):
        apas.load_model("net\0.json")
