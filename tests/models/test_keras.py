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
    layers, given, sequence = keras.layers, keras.Input((3,)), keras.Sequential
    with pytest.raises(apas.Unsupported, match="ends in the activation tanh"):
        apas.as_model(sequence([given, layers.Dense(1, activation="tanh")]), output="logit")
    with pytest.raises(apas.InputError, match="the Keras model must be built"):
        apas.as_model(sequence([layers.Dense(1)]), output="logit")
    with pytest.raises(apas.InputError, match='`output` of as_model is "logit", but the model ends in a sigmoid'):
        apas.as_model(sequence([given, layers.Dense(1, activation="sigmoid")]), output="logit")
    with pytest.raises(apas.InputError, match='is "probability", but the model gives 2 numbers per row'):
        apas.as_model(sequence([given, layers.Dense(2, activation="sigmoid")]))
    with pytest.raises(apas.InputError, match="`input_shape` of as_model is .5,., but the first layer takes 3"):
        apas.as_model(sequence([given, layers.Dense(1)]), output="logit", input_shape=(5,))
    with pytest.raises(apas.InputError, match="must give one tensor of shape"):
        apas.as_model(sequence([keras.Input((2, 3)), layers.Dense(1)]), output="logit")
    mixed = sequence([given, layers.Dense(4, dtype="mixed_float16"), layers.Dense(1)])
    with pytest.raises(apas.Unsupported, match="computes in float16 and float32"):
        apas.as_model(mixed, output="logit")


UNITS = {
    "relu": {}, "leaky_relu": {}, "relu6": {}, "tanh": {}, "sigmoid": {}, "elu": {}, "gelu": {}, "silu": {},
    "swish": {}, "softplus": {}, "hard_tanh": {}, "LeakyReLU": {"negative_slope": 0.2}, "ELU": {"alpha": 0.5},
    "ReLU": {"max_value": 6.0}, "PReLU": {"alpha_initializer": "random_uniform"}, "Identity": {},
}  # fmt: skip


@pytest.fixture
def precise(keras, monkeypatch):
    """Keras in float64 throughout, which it is not by itself: its rules turn products of float64 matrices into float32."""
    from keras.src.backend.common import dtypes

    monkeypatch.delitem(dtypes.BIT64_TO_BIT32_DTYPE, "float64")
    keras.config.set_dtype_policy("float64")
    yield keras
    keras.config.set_dtype_policy("float32")


def test_float64_of_keras_is_float32(keras):
    policy, dense = keras.config.dtype_policy(), keras.layers.Dense
    keras.config.set_dtype_policy("float64")
    try:
        model = keras.Sequential([keras.Input((3,), dtype="float64"), dense(4, activation="relu"), dense(1)])
    finally:
        keras.config.set_dtype_policy(policy)
    read = apas.as_model(model, output="logit")
    computed = np.asarray(model(X, training=False).detach())[:, 0]
    off = np.abs(computed - read.margin(X, 1)).max()
    assert off > 1e-10  # so that a claim about float64 arithmetic would not be one about this model
    assert read.dtype == "float32"
    assert off <= 1e-12 * read.margin_scale(X, np.zeros(len(read.parameters))).max()


def residual(keras, unit):
    """x + Dense(unit(BatchNorm(Dense(x)))), with statistics and learned numbers that are none of the usual ones."""
    keras.utils.set_random_seed(3)
    layers, given = keras.layers, keras.Input((3,), dtype=keras.config.dtype_policy().compute_dtype)
    between = getattr(layers, unit)(**UNITS[unit]) if unit[0].isupper() else layers.Activation(unit)
    inner = layers.Dense(3)(between(layers.BatchNormalization()(layers.Dense(4)(given))))
    model = keras.Model(given, layers.Dense(1)(layers.Add()([given, layers.Dropout(0.5)(inner)])))
    rng = np.random.default_rng(4)
    model.set_weights([rng.uniform(0.3, 1.0, w.shape) * rng.choice([-1, 1], w.shape) ** ("var" not in v.name)
                       for w, v in zip(model.get_weights(), model.weights, strict=True)])  # fmt: skip
    return model


def by_hand(model, read, move, rows=X):
    """Scores of a Keras model whose variables are put where a move of the parameters puts them."""
    kept = [v.numpy() if hasattr(v, "numpy") else v for v in model.get_weights()]
    parts = dict(zip(read.parameters.names, read.parameters.split(read.parameters.values + move), strict=True))
    for layer in model.layers:
        for variable in layer.weights:
            if (key := f"{layer.name}.{variable.name}") in parts:
                variable.assign(parts[key])
    raw = model(rows, training=False)
    found = np.asarray(raw.detach() if hasattr(raw, "detach") else raw, dtype=float)
    model.set_weights(kept)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_residual_models_with_batch_norm_and_every_activation(precise, unit):
    keras = precise
    model = residual(keras, unit)
    read, rng = apas.as_model(model, output="logit"), np.random.default_rng(0)
    assert not hasattr(read, "as_feedforward")
    assert "used" not in read.dense_chain().tied
    moves = np.vstack([np.zeros(len(read.parameters)), rng.uniform(-1, 1, (6, len(read.parameters)))])
    ours = read.shifted_margins(X, 1, moves, 0.1)
    theirs = np.stack([by_hand(model, read, 0.1 * move)[:, 0] for move in moves])
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
    margins, slopes = read.parameter_gradient(X[:2], 1, None)
    step = 1e-6 * np.eye(len(read.parameters))[::5]
    found = read.shifted_margins(X[:2], 1, step, 1.0) - margins
    assert np.allclose(found.T, 1e-6 * slopes[:, ::5], atol=1e-10)
    rows = X[np.abs(theirs[0]) > 0.2][:4]
    least = np.abs(read.shifted_margins(rows, 1, np.sign(rng.normal(size=(300, moves.shape[1]))), 0.01)).min(axis=0)
    for method in ("interval", "linear", "attack", "exact"):
        try:
            found = apas.certify(read, rows, 0.01, target="predicted", method=method, rng=0)
        except apas.Unsupported:
            assert (method, unit) == ("exact", unit)
            assert unit in ("tanh", "sigmoid", "elu", "gelu", "silu", "swish", "softplus", "ELU")
            continue
        assert all(
            c.evidence.bound is None or c.evidence.bound <= low + 1e-12 for c, low in zip(found, least, strict=True)
        )
        assert all(c.witness is None for c in found if c.is_certified)
    assert list(read.library_classes(X)) == list((read.margin(X, 1) >= 0).astype(int))
    assert model_digest(read) == model_digest(apas.as_model(model, output="logit"))
    other = residual(keras, unit)
    other.layers[2].moving_mean.assign(other.layers[2].moving_mean + 1.0)
    assert model_digest(read) != model_digest(apas.as_model(other, output="logit"))


def test_a_float32_residual_model_is_proved_within_its_rounding(keras):
    model = residual(keras, "relu")
    found = apas.certify(apas.as_model(model, output="logit"), X[:4], 1e-3, target="predicted", method="exact")
    assert any(c.is_certified for c in found)
    assert "computed in float32" in str(found[0])


def test_sums_of_layers_of_one_value_and_shared_layers(precise):
    keras, layers, given = precise, precise.layers, precise.Input((3,), dtype="float64")
    shared, one, two = layers.Dense(3), layers.Dense(3)(given), layers.Dense(3, use_bias=False)(given)
    model = keras.Model(given, layers.Dense(1)(keras.ops.relu(one + two) + one))
    tied = keras.Model(given, layers.Dense(1)(shared(keras.ops.relu(shared(given)))))
    for net in (model, tied):
        read = apas.as_model(net, output="logit")
        moves = np.random.default_rng(1).uniform(-0.1, 0.1, (5, len(read.parameters)))
        theirs = np.stack([by_hand(net, read, move)[:, 0] for move in moves])
        np.testing.assert_allclose(read.shifted_margins(X, 1, moves, 1.0), theirs, rtol=1e-10, atol=1e-10)
    assert "is used more than once" in read.dense_chain().tied or "are used more than once" in read.dense_chain().tied
    with pytest.raises(apas.Unsupported, match="used more than once"):
        apas.certify(read, X[:2], 1e-3, target="predicted", method="exact")


def test_a_keras_that_does_not_tell_how_layers_are_connected(keras, monkeypatch):
    given = keras.Input((3,))
    model = keras.Model(given, keras.layers.Dense(1)(keras.layers.Dense(4)(given)))
    config = model.get_config()  # which Keras would make by other names, if these were gone
    monkeypatch.setattr(model, "get_config", lambda: config)
    del model.outputs[0]._keras_history
    with pytest.raises(apas.Unsupported, match="this version of Keras does not tell how layers are connected"):
        apas.certify(apas.as_model(model, output="logit"), X[:2], 1e-3, target="predicted", method="exact")


def test_what_is_not_dense_is_refused_by_name_and_sampled(keras):
    layers, given, sequence = keras.layers, keras.Input((3,)), keras.Sequential

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layers.Dense(1)

        def call(self, x):
            return self.layer(x)

    own = Own()
    own(X[:1].astype(np.float32))
    hidden = layers.Dense(3)(given)
    cases = [
        (sequence([given, layers.Dense(4), layers.LayerNormalization(name="odd"), layers.Dense(1)]), "odd is a LayerNormalization"),
        (sequence([given, layers.Dense(4, activation="mish", name="odd"), layers.Dense(1)]), "odd has the activation 'mish'"),
        (sequence([given, layers.Dense(4, activation="softmax"), layers.Dense(1)]), "a softmax stands between layers"),
        (keras.Model(given, layers.Dense(1)(layers.Multiply(name="odd")([hidden, hidden]))), "odd is a Multiply"),
        (sequence([given, layers.Dense(4), layers.BatchNormalization(), layers.UnitNormalization(), layers.Dense(1)]), "a UnitNormalization"),
        (own, "Own is a Keras model of its own class"),
    ]  # fmt: skip
    for model, message in cases:
        read = apas.as_model(model, output="logit", input_shape=(3,))
        assert len(read.parameters) == sum(int(np.prod(v.shape)) for v in model.trainable_variables)
        assert np.allclose(read.margin(X, 1), scores(model)[:, 0], atol=1e-5)
        for method in ("interval", "linear", "exact"):
            with pytest.raises(apas.Unsupported, match=message):
                apas.certify(read, X[:2], 1e-4, target="predicted", method=method)
        rows = X[np.abs(scores(model)[:, 0]) > 0.1][:2]
        assert apas.certify(read, rows, 1e-4, target="predicted", rng=0).certified.all()
        apas.certify(read, rows, 0.5, target="predicted", method="attack", rng=0)
    assert "bias" in read.parameters.kinds


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
    read = apas.as_model(late)  # elsewhere it is a layer that does not move
    assert not hasattr(read, "encode")
    assert 1 / (1 + np.exp(-read.margin(X, 1))) == pytest.approx(scores(late)[:, 0], abs=1e-5)
