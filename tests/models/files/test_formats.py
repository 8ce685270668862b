"""Formats of model files: every bit comes back from each, and what a file does not tell has to be said."""

from __future__ import annotations

import itertools
import json
import struct
import sys

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors, save as save_tensors

import apas
from apas.models.digest import model_digest
from apas.models.forward import ACTIVATIONS

SUFFIXES = [".json", ".safetensors", ".onnx"]


def random_network(rng: np.random.Generator, activation: str, output: str) -> apas.FeedForward:
    """A network of random size with all that a file has to keep."""
    outputs = int(rng.integers(2, 5)) if output == "softmax" else 1
    sizes = [*rng.integers(1, 6, size=rng.integers(2, 5)), outputs]
    weights = [rng.normal(size=(a, b)) * 10.0 ** rng.integers(-300, 100) for a, b in itertools.pairwise(sizes)]
    biases = [None if rng.random() < 0.3 else rng.normal(size=b) for b in sizes[1:]]
    others = [str(name) for name in rng.choice(list(ACTIVATIONS), size=len(weights) - 1)]
    several = max(2, outputs)
    labels = [
        range(several),
        [f"grün {i}" for i in range(several)],
        [0.1 * i for i in range(several)],
        [7, "b", 2.5, -1],
    ]
    thresholds = {"sigmoid": rng.uniform(), "identity": rng.normal(), "softmax": rng.uniform() if outputs == 2 else 0.5}
    return apas.FeedForward(
        weights, biases, activation=[activation, *others[1:]], output=output, threshold=float(thresholds[output]),
        classes=list(labels[rng.integers(4)])[:several],
        feature_names=None if rng.random() < 0.5 else [f"größe, {i}" for i in range(sizes[0])],
    )  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("output", ["sigmoid", "softmax", "identity"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_bit_comes_back(activation, output, suffix, tmp_path):
    rng = np.random.default_rng([len(activation), len(output), len(suffix), *map(ord, activation)])
    for _ in range(5):
        net = random_network(rng, activation, output)
        apas.save_model(net, tmp_path / f"net{suffix}")
        same = apas.load_model(tmp_path / f"net{suffix}")
        assert model_digest(same) == model_digest(net)
        assert same.parameters.values.tobytes() == net.parameters.values.tobytes()
        assert same.parameters.kinds == net.parameters.kinds
        assert [type(c) for c in same.classes] == [type(c) for c in net.classes]
        X = rng.normal(size=(7, net.n_features))
        for label in net.classes:
            with np.errstate(all="ignore"):  # the weights span hundreds of powers of ten
                assert same.margin(X, label).tobytes() == net.margin(X, label).tobytes()
        apas.save_model(same, tmp_path / f"again{suffix}")
        assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"net{suffix}").read_bytes()


def test_formats_turn_into_each_other(tmp_path):
    net = random_network(np.random.default_rng(1), "gelu", "sigmoid")
    apas.save_model(net, tmp_path / "0.json")
    for i, suffix in enumerate([".onnx", ".safetensors", ".onnx", ".json"]):
        before = next(tmp_path.glob(f"{i}.*"))
        apas.save_model(apas.load_model(before), tmp_path / f"{i + 1}{suffix}")
    assert (tmp_path / "4.json").read_bytes() == (tmp_path / "0.json").read_bytes()


def test_upper_case(tmp_path):
    net = random_network(np.random.default_rng(2), "relu", "sigmoid")
    apas.save_model(net, tmp_path / "NET.ONNX")
    assert model_digest(apas.load_model(tmp_path / "NET.ONNX")) == model_digest(net)


# -- safetensors -------------------------------------------------------------------------------------------------

NET = apas.FeedForward(
    [np.arange(6.0).reshape(2, 3), np.ones((3, 1))], [np.zeros(3), None], activation="tanh", classes=["no", "yes"],
    feature_names=["a", "b"],
)  # fmt: skip


def test_safetensors_is_what_the_library_reads(tmp_path):
    apas.save_model(NET, tmp_path / "net.safetensors")
    raw = (tmp_path / "net.safetensors").read_bytes()
    tensors = load_tensors(raw)
    assert sorted(tensors) == ["layer0.bias", "layer0.weight", "layer1.weight"]
    assert tensors["layer0.weight"].tobytes() == NET.weights[0].tobytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    said = json.loads(header["__metadata__"]["apas"])
    assert said == {
        "format": "apas-model", "version": 1, "kind": "feedforward", "activation": ["tanh"], "output": "sigmoid",
        "threshold": 0.5, "classes": ["no", "yes"], "feature_names": ["a", "b"],
    }  # fmt: skip


def state(**arrays):
    return {name.replace("_", "."): np.asarray(array, dtype=np.float32) for name, array in arrays.items()}


def test_safetensors_of_a_torch_state(tmp_path):
    path = tmp_path / "net.safetensors"
    rng = np.random.default_rng(0)
    # ten layers, whose names the library sorts as texts
    shapes = [(3, 2), *[(3, 3)] * 11, (1, 3)]
    arrays = {f"net.{2 * i}.weight": rng.normal(size=s).astype(np.float32) for i, s in enumerate(shapes)}
    path.write_bytes(save_tensors(arrays))
    assert list(load_tensors(path.read_bytes())) != list(arrays)
    net = apas.load_model(path, activation="relu", output="sigmoid")
    assert [w.shape for w in net.weights] == [s[::-1] for s in shapes]
    for weight, array in zip(net.weights, arrays.values(), strict=True):
        assert np.array_equal(weight, array.T.astype(float))


UNSURE = {
    "names that count nothing": (state(fc_weight=np.ones((2, 2)), out_weight=np.ones((1, 2))), "their names must count them.*'fc', 'out'"),
    "an unknown tensor": (state(weight=np.ones((1, 2)), scale=np.ones(2)), "'scale' has shape \\(2,\\)"),
    "a convolution": (state(weight=np.ones((1, 2, 2))), "'weight' has shape \\(1, 2, 2\\)"),
    "a bias alone": (state(bias=[1.0]), "must hold the weights of each layer, but '' has only biases"),
    "layers that do not fit": (
        state(a0_weight=np.ones((3, 2)), a1_weight=np.ones((1, 4))), "'a0' gives 3 numbers and 'a1' takes 4"),
    "nothing": ({}, "holds no parameters"),
}  # fmt: skip


@pytest.mark.parametrize(("arrays", "message"), UNSURE.values(), ids=UNSURE)
def test_states_that_cannot_be_read(arrays, message, tmp_path):
    (tmp_path / "net.safetensors").write_bytes(save_tensors(arrays))
    with pytest.raises(apas.InputError, match=message):
        apas.load_model(tmp_path / "net.safetensors", activation="relu", output="sigmoid")


# -- what is said about a file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_agrees_with_the_file_may_be_said(suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    apas.save_model(NET, path)
    said = {
        "activation": ["tanh"],
        "output": "sigmoid",
        "threshold": 0.5,
        "classes": ["no", "yes"],
        "feature_names": ["a", "b"],
    }
    assert model_digest(apas.load_model(path, **said)) == model_digest(NET)
    assert model_digest(apas.load_model(path, activation="tanh")) == model_digest(NET)
    wrong = {
        "activation": "relu", "output": "identity", "threshold": 0.3, "classes": ["yes", "no"], "feature_names": ["b", "a"],
    }  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(apas.InputError, match=f"`{name}` of load_model is .*, but .* says .*; leave it out"):
            apas.load_model(path, **{name: value})


def test_what_the_file_does_not_tell_must_be_said(tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(save_tensors({"0.weight": np.ones((3, 2)), "2.weight": np.ones((1, 3))}))
    with pytest.raises(
        apas.InputError, match="`activation` of load_model must say .* between the 2 layers.*--activation"
    ):
        apas.load_model(path, output="sigmoid")
    with pytest.raises(apas.InputError, match='`output` of load_model must say .*"identity".*--output'):
        apas.load_model(path, activation="relu")
    with pytest.raises(apas.InputError, match="`output` of load_model must be one of 'sigmoid'.*got 'logit'"):
        apas.load_model(path, activation="relu", output="logit")
    with pytest.raises(apas.InputError, match='`threshold` of load_model must be given with output="identity"'):
        apas.load_model(path, activation="relu", output="identity")
    with pytest.raises(apas.InputError, match="does not hold a usable network: `activation`.*got 'swish'"):
        apas.load_model(path, activation="swish", output="sigmoid")
    with pytest.raises(apas.InputError, match="does not hold a usable network: `output`.*softmax"):
        apas.load_model(path, activation="relu", output="softmax")
    net = apas.load_model(
        path, activation="relu", output="identity", threshold=2.0, classes=["n", "y"], feature_names=["a", "b"]
    )
    assert (net.threshold, net.classes, net.feature_names) == (2.0, ("n", "y"), ("a", "b"))


@pytest.mark.parametrize(
    ("suffix", "module"), [(".safetensors", "safetensors"), (".onnx", "onnx"), (".skops", "skops")]
)
def test_a_missing_library_is_named(suffix, module, tmp_path, monkeypatch):
    import skops.io
    from sklearn.linear_model import LogisticRegression

    path = tmp_path / f"net{suffix}"
    if suffix == ".skops":
        skops.io.dump(LogisticRegression().fit([[0.0], [1.0]], [0, 1]), path)
    else:
        apas.save_model(NET, path)
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(apas.MissingExtra, match=rf'an? {suffix} file needs .* pip install "apas\[{module}\]"'):
        apas.load_model(path)
    if suffix != ".skops":
        with pytest.raises(apas.MissingExtra, match=rf'pip install "apas\[{module}\]"'):
            apas.save_model(NET, tmp_path / f"other{suffix}")
        assert not (tmp_path / f"other{suffix}").exists()


def test_metadata_too_large_for_a_header(tmp_path):
    net = apas.FeedForward([np.ones((50_000, 1))], [None], feature_names=[f"{i:0100d}" for i in range(50_000)])
    with pytest.raises(apas.InputError, match="the header of a .safetensors file may have 4194304 bytes"):
        apas.save_model(net, tmp_path / "net.safetensors")
    assert list(tmp_path.iterdir()) == []
