"""No certificate contradicts what a float32 module itself computes, be it as it is or shifted inside the set."""

from __future__ import annotations

import copy
import importlib.util

import numpy as np
import pytest
from contradiction_sweep import on_the_boundary
from torch_modules import nn, torch

import apas
from apas import Enumeration, FeedForward, LinfShifts, LpShifts, Sampling, Verdict
from apas.certification.certificate import NEAR_BOUNDARY

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.LeakyReLU, nn.GELU, nn.Sigmoid, nn.ELU, nn.Hardtanh)
METHODS = ("sampling", "interval", "linear", "exact", "cascade", Enumeration(max_boxes=64))
QUICK = Sampling(coverage=0.9, confidence=0.9, n_samples=100)
#: Three networks of the first 21 give one class alone.
SEEDS = [seed for seed in range(21) if seed not in (8, 11, 14)]


def sequence(seed, *, outputs=1, ending=()):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    sizes = [int(n) for n in rng.integers(3, 12, size=1 + seed % 3)]
    layers = []
    for inputs, units in zip(sizes, [*sizes[1:], outputs], strict=True):
        layers += [nn.Linear(inputs, units), ACTIVATIONS[seed % len(ACTIVATIONS)]()]
    return nn.Sequential(*layers[:-1], *ending).eval()


def own_classes(module, X):
    """Classes that the module itself gives, one row at a time and all together: the last bits may differ."""
    rows = torch.tensor(X, dtype=torch.float32)
    found = []
    with torch.no_grad():
        for batches in ([rows], rows.split(1)):
            raw = torch.cat([module(batch) for batch in batches]).numpy()
            level = np.float32(0.5) if isinstance(module[-1], nn.Sigmoid) else 0.0
            found.append(raw[:, 0] >= level if raw.shape[1] == 1 else raw.argmax(axis=1))
    return np.stack(found).astype(int)


def moved(module, values, network):
    """A copy with other parameters, given in the order of the network, rounded to float32."""
    shifted = network.with_parameters(values)
    other, parts = copy.deepcopy(module), iter(zip(shifted.weights, shifted.biases, strict=True))
    with torch.no_grad():
        for layer in other:
            if isinstance(layer, nn.Linear):
                weight, bias = next(parts)
                layer.weight.copy_(torch.tensor(weight.T))
                layer.bias.copy_(torch.tensor(bias))
    return other


def test_rows_at_the_boundary_of_large_inputs_are_not_certified():
    """24 rows with inputs around 10,000 and a margin near 0; some get the other class from the module itself."""
    module = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    with torch.no_grad():
        rng = np.random.default_rng(0)
        for p in module.parameters():
            p.copy_(torch.tensor(rng.normal(size=p.shape) / 4))
    model = apas.as_model(module, output="logit")
    X = on_the_boundary(model.as_feedforward(), rng, 24, 1e4)
    network = model.as_feedforward().with_dtype("float64")
    contradicted = (own_classes(module, X) != 1).any(axis=0)
    assert contradicted.sum() >= 4  # of rows that float64 puts above 0
    assert all(c.is_certified for c in apas.certify(network, X, 1e-13, target=1, method="interval"))
    for method in METHODS:
        for certificate in apas.certify(model, X, 1e-13, target=1, method=method, rng=0):
            assert certificate.verdict is Verdict.UNKNOWN
            assert certificate.reason == NEAR_BOUNDARY
            assert "computed in float32, within its rounding" in certificate.sentence()
    for method in ("sampling", "cascade"):
        for found in apas.max_shift(model, X, target=1, method=method, rng=0):
            assert found.delta == found.provable == 0
            assert np.isinf(found.upper)
            assert found.reason == NEAR_BOUNDARY
    assert all(curve.valid for curve in apas.robust_fraction(model, X, [1e-13], target=1, rng=0))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_module_contradicts_a_certificate(seed):
    """Rows near the boundary at several distances and scales; modules as they are, at corners, and between."""
    outputs, ending = ((1, ()), (1, (nn.Sigmoid(),)), (3, ()), (2, (nn.Softmax(dim=1),)))[seed % 4]
    module = sequence(seed, outputs=outputs, ending=ending)
    output = None if ending else "logit" if outputs == 1 else "logits"
    model, rng = apas.as_model(module, output=output), np.random.default_rng(seed)
    network = model.as_feedforward()
    scale = 10.0 ** rng.integers(-3, 6)
    X = on_the_boundary(network, rng, 10, scale)
    assert len(X)
    X = np.concatenate([X * (1 + step * rng.normal(size=X.shape)) for step in (0.0, 1e-7, 1e-5, 1e-3, 0.1)])
    target = (network.margin(X, 1) > 0).astype(int)
    own = own_classes(module, X)
    certified = 0
    for delta in (1e-9, 1e-6, 1e-3):
        bases = [network.parameters.values + delta * rng.choice([-1.0, 1.0], size=len(network.parameters)) for _ in range(4)]  # fmt: skip
        bases += [network.parameters.values + delta * rng.uniform(-1, 1, size=len(network.parameters)) for _ in range(4)]  # fmt: skip
        shifted = np.concatenate([own_classes(moved(module, values, network), X) for values in bases])
        for method in METHODS:
            if method == "exact" and len(network.activations) > 1 and "relu" not in str(network.activations):
                continue
            every = method not in ("sampling",)
            found = apas.certify(model, X, delta, target=target, method=QUICK if not every else method, rng=seed)
            for i, certificate in enumerate(found):
                if certificate.is_certified:
                    certified += 1
                    assert (own[:, i] == target[i]).all()
                    assert not every or (shifted[:, i] == target[i]).all()
                elif certificate.reason == "not valid on the model itself":
                    assert (own[:, i] != target[i]).all()
                elif certificate.verdict is Verdict.REFUTED and every and certificate.witness is not None:
                    values = certificate.witness.parameters(model)
                    assert (own_classes(moved(module, values, network), X[i : i + 1]) != target[i]).all()
    assert certified  # it is not everything that is left open


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shifts", [LinfShifts(), LpShifts(2)], ids=["box", "ball"])
def test_no_module_contradicts_a_proved_delta(seed, shifts):
    module = sequence(seed)
    model, rng = apas.as_model(module, output="logit"), np.random.default_rng(seed)
    network = model.as_feedforward()
    X = on_the_boundary(network, rng, 3, 100.0)
    X = np.concatenate([X, X * (1 + 1e-4 * rng.normal(size=X.shape)), X * (1 + 0.1 * rng.normal(size=X.shape))])
    target = (network.margin(X, 1) >= 0).astype(int)
    proved = np.zeros(len(X))
    for method in ("interval", "cascade", QUICK):
        found = apas.max_shift(model, X, target=target, shifts=shifts, method=method, rng=seed)
        proved = np.maximum(proved, [item.provable for item in found])
        unproved = apas.max_shift(network.with_dtype("float64"), X, target=target, shifts=shifts, method=method, rng=seed)  # fmt: skip
        assert all(one.provable <= other.provable for one, other in zip(found, unproved, strict=True))
    assert proved.any()
    size = len(network.parameters)
    for _ in range(20):
        unit = rng.choice([-1.0, 1.0], size=size)
        unit = unit if isinstance(shifts, LinfShifts) else unit / np.linalg.norm(unit)
        for i in np.flatnonzero(proved):
            other = moved(module, network.parameters.values + proved[i] * (1 - 1e-12) * unit, network)
            assert (own_classes(other, X[i : i + 1]) == target[i]).all()


def test_a_share_that_draws_certify_is_that_of_the_module_itself():
    """A small share would be certified by half of the draws, were it not for the model itself."""
    module = nn.Sequential(nn.Linear(3, 1)).eval()
    model, rng = apas.as_model(module, output="logit"), np.random.default_rng(0)
    X = on_the_boundary(model.as_feedforward(), rng, 8, 1e4)
    lenient = Sampling(coverage=0.1, confidence=0.9)
    assert all(c.is_certified for c in apas.certify(model.as_feedforward().with_dtype("float64"), X, 0.01, target=1, method=lenient, rng=0))  # fmt: skip
    assert [c.reason for c in apas.certify(model, X, 0.01, target=1, method=lenient, rng=0)] == [NEAR_BOUNDARY] * 8


def test_a_module_whose_arithmetic_is_coarser_than_float32_is_found_out():
    """The module is asked in its own arithmetic; beyond the rounding of float32 it must agree."""

    class Coarse(apas.models.torch.adapter.DenseTorchModel):
        def library_classes(self, X):
            return super().library_classes(np.round(np.asarray(X), 1))

    module = nn.Sequential(nn.Linear(1, 1)).eval()
    with torch.no_grad():
        module[0].weight.fill_(1.0)
        module[0].bias.fill_(-0.04)
    model = apas.as_model(module, output="logit")
    other = Coarse(model._module, model._kind, model.as_feedforward(), model._shape)
    with pytest.raises(apas.InputError, match="does not agree with its own library on row 0"):
        apas.certify(other, [[0.0401]], 0.001, target=1)


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")
def test_keras_models_are_computed_in_float32():
    import keras

    layers = [keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    module = keras.Sequential(layers)
    model, rng = apas.as_model(module, output="logit"), np.random.default_rng(0)
    X = on_the_boundary(model.as_feedforward(), rng, 12, 1e4)
    assert model.dtype == "float32"
    assert not any(c.is_certified for c in apas.certify(model, X, 1e-13, target=1, method="interval"))


def test_a_float64_module_is_as_before():
    module = nn.Sequential(nn.Linear(2, 3, dtype=torch.float64), nn.ReLU(), nn.Linear(3, 1, dtype=torch.float64)).eval()
    model = apas.as_model(module, output="logit")
    network = model.as_feedforward()
    same = FeedForward(network.weights, network.biases)
    assert model.dtype == "float64"
    X = np.random.default_rng(0).normal(size=(5, 2))
    for method in ("sampling", "cascade"):
        ours, theirs = (apas.certify(m, X, 0.1, target="predicted", method=method, rng=0) for m in (model, same))
        assert [c.to_dict() for c in ours] == [c.to_dict() for c in theirs]
        assert "float32" not in ours[0].sentence()
