"""Keras models of dense layers; those of Keras itself need `pip install keras` and a backend, such as PyTorch."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest
from conftest import absent

import apas
from apas.models.digest import model_digest

X = np.random.default_rng(0).normal(size=(40, 3))
# Keras's own get_weights; as_model does not call it
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture(scope="module")
def keras():
    os.environ.setdefault("KERAS_BACKEND", "torch")
    try:
        library = importlib.import_module("keras")
    except ModuleNotFoundError as missing:
        absent("keras", f"{missing.name} is not installed, which Keras needs: pip install 'apas[keras,torch]'")
    library.utils.set_random_seed(0)
    return library


def scores(model, rows=X):
    raw = model(rows.astype(np.float32), training=False)
    return np.asarray(raw.detach() if hasattr(raw, "detach") else raw, dtype=float)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "elu", "gelu", "linear"])
def test_binary_models(keras, activation):
    dense = keras.layers.Dense
    inside = keras.Sequential(
        [keras.Input((3,)), dense(5, activation=activation), keras.layers.Dropout(0.5), dense(1, activation="sigmoid")]
    )
    outside = keras.Sequential(
        [keras.Input((3,)), dense(5), keras.layers.Activation(activation), dense(1), keras.layers.Activation("sigmoid")]
    )
    outside.set_weights(inside.get_weights())
    for model in (inside, outside):
        net = apas.as_model(model)
        p = scores(model)[:, 0]
        assert np.allclose(net.margin(X, 1), np.log(p) - np.log1p(-p), atol=1e-4)
        assert list(net.library_classes(X)) == list((net.margin(X, 1) >= 0).astype(int))
    assert model_digest(apas.as_model(inside)) == model_digest(apas.as_model(outside))
    kernel, bias = inside.get_weights()[:2]
    assert np.array_equal(net.as_feedforward().weights[0], kernel.astype(float))
    assert np.array_equal(net.as_feedforward().biases[0], bias.astype(float))
    assert apas.certify(inside, X[:3], 1e-3, target="predicted", method="exact").certified.any()


def test_several_classes_and_layers_as_activations(keras):
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((3,)), layers.Dense(4, use_bias=False), layers.LeakyReLU(negative_slope=0.01), layers.Dense(4),
        layers.ReLU(), layers.Dense(4), layers.ELU(), layers.Dense(3), layers.Softmax(),
    ])  # fmt: skip
    net = apas.as_model(model, classes=["a", "b", "c"])
    assert net.as_feedforward().activations == ("leaky_relu", "relu", "elu")
    assert net.parameters.kinds[1] == "absent"
    found = np.stack([net.margin(X, c) for c in net.classes], axis=1)
    assert np.array_equal(found.argmax(axis=1), scores(model).argmax(axis=1))
    assert list(net.library_classes(X)) == [net.classes[i] for i in scores(model).argmax(axis=1)]


def test_functional_models_and_options(keras):
    given = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation="tanh")(given)
    model = keras.Model(given, keras.layers.Dense(1)(hidden))
    with pytest.raises(apas.InputError, match="`output` of as_model must say what the model's numbers are"):
        apas.as_model(model)
    with pytest.raises(apas.InputError, match="got 'probability'"):
        apas.as_model(model, output="probability")
    net = apas.as_model(model, output="logit", threshold=0.3, classes=["n", "y"], feature_names=["a", "b", "c"])
    assert np.allclose(net.margin(X, "y"), scores(model)[:, 0] - np.log(0.3 / 0.7), atol=1e-5)
    assert (net.feature_names, net.classes) == (("a", "b", "c"), ("n", "y"))
    assert list(net.library_classes(X)) == ["y" if s >= np.log(0.3 / 0.7) else "n" for s in scores(model)[:, 0]]
    two = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    net = apas.as_model(two, output="logits", threshold=0.3)
    assert list(net.library_classes(X)) == list((net.margin(X, 1) >= 0).astype(int))


def test_flat_inputs(keras):
    model = keras.Sequential([keras.Input((3, 1)), keras.layers.Flatten(), keras.layers.Dense(1, activation="sigmoid")])
    net = apas.as_model(model)
    assert net.n_features == 3
    assert list(net.library_classes(X)) == list((net.margin(X, 1) >= 0).astype(int))


def test_a_model_that_is_not_what_it_seems(keras):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
    net = apas.as_model(model)
    model.set_weights([-w for w in model.get_weights()])
    with pytest.raises(apas.InputError, match="does not agree with its own library on row 0"):
        apas.certify(net, X, 0.01, target="predicted", rng=0)


def test_models_become_files(keras, tmp_path):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1, activation="sigmoid")]
    )
    for suffix in (".json", ".safetensors", ".onnx"):
        apas.save_model(model, tmp_path / f"net{suffix}")
        assert model_digest(apas.load_model(tmp_path / f"net{suffix}")) == model_digest(apas.as_model(model))


def test_what_is_refused(keras):
    layers, given = keras.layers, keras.Input((3,))
    sequence = keras.Sequential

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layers.Dense(1)

        def call(self, x):
            return self.layer(x)

    own = Own()
    own(X[:1].astype(np.float32))
    hidden = layers.Dense(3)(given)
    tied = layers.Dense(3)
    cases = [
        (sequence([given, layers.Dense(4, activation="swish"), layers.Dense(1)]), "the activation 'silu'"),
        (sequence([given, layers.Dense(4, activation="softplus"), layers.Dense(1)]), "the activation 'softplus'"),
        (sequence([given, layers.Dense(4), layers.LeakyReLU(), layers.Dense(1)]), "LeakyReLU with other settings"),
        (sequence([given, layers.Dense(4), layers.ReLU(max_value=6), layers.Dense(1)]), "ReLU with other settings"),
        (sequence([given, layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)]), "a layer BatchNormalization"),
        (sequence([given, layers.Dense(4, activation="relu"), layers.ReLU(), layers.Dense(1)]), "relu elsewhere than behind"),
        (sequence([given, layers.Dense(1, activation="tanh")]), "ends in the activation tanh"),
        (sequence([given, tied, tied, layers.Dense(1)]), "uses a Dense layer twice"),
        (sequence([given, layers.Dense(4, activation="softmax"), layers.Dense(1)]), "softmax between its layers"),
        (keras.Model(given, layers.Dense(1)(layers.Add()([layers.Dense(3)(hidden), hidden]))), "no plain chain of layers"),
        (keras.Model(given, [layers.Dense(1)(hidden), hidden]), "it has 2 outputs"),
        (sequence([keras.Input((1, 3)), layers.Dense(1)]), "does not begin with a Flatten"),
        (own, "Own is a Keras model of its own class"),
    ]  # fmt: skip
    for model, message in cases:
        with pytest.raises(apas.Unsupported, match=message):
            apas.as_model(model, output="logit")
    with pytest.raises(apas.InputError, match="the Keras model must be built"):
        apas.as_model(sequence([layers.Dense(1)]), output="logit")
    with pytest.raises(apas.InputError, match='`output` of as_model is "logit", but the model ends in a sigmoid'):
        apas.as_model(sequence([given, layers.Dense(1, activation="sigmoid")]), output="logit")
    with pytest.raises(apas.InputError, match='is "probability", but the model gives 2 numbers per row'):
        apas.as_model(sequence([given, layers.Dense(2, activation="sigmoid")]))


def test_a_normalization_layer_is_the_preprocessing(keras):
    scaling = keras.layers.Normalization()
    scaling.adapt((X * [1.0, 50.0, 0.02] + [0.0, 9.0, -1.0]).astype(np.float32))
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((3,)), scaling, dense(4, activation="relu"), dense(1, activation="sigmoid")])
    raw = X * [1.0, 50.0, 0.02] + [0.0, 9.0, -1.0]
    read = apas.as_model(model)
    margins = read.margin(read.encode(raw), 1)
    assert 1 / (1 + np.exp(-margins)) == pytest.approx(scores(model, raw)[:, 0], abs=1e-6)
    assert read.describe()["preprocessing"] is not None
    assert len(apas.certify(model, raw[:3], 0.01, target="predicted", rng=0)) == 3
    late = keras.Sequential([keras.Input((3,)), dense(3), scaling, dense(1, activation="sigmoid")])
    with pytest.raises(apas.Unsupported, match="a Normalization layer elsewhere than at its beginning"):
        apas.as_model(late)
