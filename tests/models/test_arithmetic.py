"""What float32 does to a dense network is bounded, and a file, a fingerprint and a claim say that it is meant."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import apas
from apas import FeedForward
from apas.models.digest import model_digest
from apas.models.feedforward import LARGEST

SINGLE = {
    "relu": lambda z: np.maximum(z, np.float32(0)),
    "leaky_relu": lambda z: np.maximum(z, np.float32(0.01) * z),
    "hard_tanh": lambda z: np.clip(z, np.float32(-1), np.float32(1)),
    "tanh": np.tanh,
    "sigmoid": lambda z: np.float32(1) / (np.float32(1) + np.exp(-np.maximum(z, np.float32(-80)))),
    "elu": lambda z: np.maximum(z, np.exp(np.minimum(z, np.float32(0))) - np.float32(1)),  # the coarser way
    "softplus": lambda z: np.logaddexp(z, np.float32(0)),
    "identity": lambda z: z,
}


def in_single(net, X, order):
    """Scores in float32, every sum taken term by term in an order of its own: the least exact way there is."""
    a = X.astype(np.float32)
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        terms = np.concatenate([a[:, :, None] * w.astype(np.float32), np.broadcast_to(b, (len(a), 1, len(b)))], axis=1)
        terms = terms.astype(np.float32)[:, order.permutation(terms.shape[1])]
        a = np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1]
        a = SINGLE[net.activations[i]](a) if i < len(net.activations) else a
        assert a.dtype == np.float32
    return a.astype(np.float64)


@pytest.mark.parametrize("activation", SINGLE)
def test_no_order_of_float32_sums_is_farther_off_than_the_bound(activation):
    largest = 0.0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sizes = [int(n) for n in rng.integers(2, 30, size=rng.integers(1, 4))]
        outputs = int(rng.integers(1, 4))
        shapes = list(zip(sizes, [*sizes[1:], outputs], strict=True))
        net = FeedForward(
            [rng.normal(size=s) * 10.0 ** rng.uniform(-2, 1) for s in shapes],
            [rng.normal(size=s[1]) * 10.0 ** rng.uniform(-2, 1) for s in shapes],
            activation=activation, output="sigmoid" if outputs == 1 else "softmax", dtype="float32",
        )  # fmt: skip
        X = rng.normal(size=(20, sizes[0])) * 10.0 ** rng.uniform(-6, 5)
        delta = float(rng.choice([0.0, 0.01, 0.5]))
        theta = net.parameters.values
        shifted = net.with_parameters(theta + delta * rng.choice([-1.0, 1.0], size=len(theta)))
        scores = in_single(shifted, X, rng)
        found = scores[:, 0] if outputs == 1 else scores[:, 1] - np.delete(scores, 1, axis=1).max(axis=1)
        off = np.abs(found - shifted.margin(X, 1))
        bound = net.rounding(X, np.ones(len(theta)), delta)
        assert (off <= bound).all()
        largest = max(largest, float((off / bound).max()))
    assert largest > 1e-3  # it is no bound on something else


def test_float64_has_nothing_to_add_and_overflow_everything():
    double = FeedForward([[[1.0], [-2.0]]], [[0.5]])
    single, X, radii = double.with_dtype("float32"), np.array([[1.0, 1.0], [LARGEST, 1.0]]), np.ones(3)
    assert (double.rounding(X, radii) == 0).all()
    assert np.isfinite(single.rounding(X[:1], radii)).all()
    assert np.isinf(single.rounding(X, radii)[1])
    assert np.isinf(single.rounding(X[:1], radii, 2e38)[0])
    assert 1e-12 * single.margin_scale(X[:1], radii)[0] > single.rounding(X[:1], radii)[0]
    assert single.with_parameters(np.ones(3)).dtype == single.with_names(["a", "b"]).dtype == "float32"


def test_what_no_arithmetic_is_called_is_refused():
    with pytest.raises(apas.InputError, match='`dtype` of FeedForward must be "float64" or "float32", got \'half\''):
        FeedForward([[[1.0]]], [[0.0]], dtype="half")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "model.onnx"])
def test_files_keep_the_arithmetic(tmp_path, name):
    pytest.importorskip(name.split(".")[1]) if not name.endswith("json") else None
    net = FeedForward([[[1.0], [-1.0]]], [[0.1]], dtype="float32")
    apas.save_model(net, tmp_path / name)
    read = apas.load_model(tmp_path / name)
    assert read.dtype == "float32"
    assert model_digest(read) == model_digest(net) != model_digest(net.with_dtype("float64"))
    apas.save_model(net.with_dtype("float64"), tmp_path / name)
    assert apas.load_model(tmp_path / name).dtype == "float64"


def test_a_file_of_float64_says_nothing_of_it(tmp_path):
    net = FeedForward([[[1.0]]], [[0.0]])
    apas.save_model(net, tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert "dtype" not in content
    assert "dtype" not in net.describe()
    (tmp_path / "odd.json").write_text(json.dumps({**content, "dtype": "float16"}))
    with pytest.raises(apas.InputError, match='must be "float64" or "float32", got \'float16\''):
        apas.load_model(tmp_path / "odd.json")


def test_half_precision_graphs_are_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    make, kinds = onnx.helper, onnx.TensorProto
    for kind, numpy_kind, expected in ((kinds.FLOAT, np.float32, "float32"), (kinds.DOUBLE, np.float64, "float64"), (kinds.FLOAT16, np.float16, None)):  # fmt: skip
        ends = [make.make_tensor_value_info(name, kind, ["rows", width]) for name, width in (("x", 2), ("y", 1))]
        weight = onnx.numpy_helper.from_array(np.ones((2, 1), dtype=numpy_kind), "w")
        nodes = [make.make_node("MatMul", ["x", "w"], ["z"]), make.make_node("Sigmoid", ["z"], ["y"])]
        graph = make.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)
        (tmp_path / "g.onnx").write_bytes(model.SerializeToString())
        if expected is not None:
            assert apas.load_model(tmp_path / "g.onnx").dtype == expected
            continue
        with pytest.raises(apas.Unsupported, match="computes in half precision, whose rounding no claim allows for"):
            apas.load_model(tmp_path / "g.onnx")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scikit_learn_models_fitted_on_float32_are_computed_in_it(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)).astype(kind)
    y = (X[:, 0] > 0).astype(int)
    for estimator in (LogisticRegression(), MLPClassifier((4,), max_iter=2000, random_state=0)):
        model = apas.as_model(estimator.fit(X, y))
        assert model.dtype == np.dtype(kind).name
        claim = apas.certify(model, X[:2], 0.01, target="predicted", method="interval")[0].claim
        assert ("computed in float32, within its rounding" in claim.measure) == (kind is np.float32)
