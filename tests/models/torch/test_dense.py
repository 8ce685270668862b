"""Sequences of linear layers are dense networks: the same evidence as scikit-learn's and as our own."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier
from torch_modules import nn, state, torch

import apas
from apas import FeedForward, Sampling
from apas.models.base import Dense, Differentiable, LibraryBacked, Scaled, offers
from apas.models.digest import model_digest
from apas.models.torch.adapter import DenseTorchModel

METHOD = Sampling(coverage=0.95, confidence=0.95, n_samples=2000)
ACTIVATIONS = {
    "relu": nn.ReLU(), "leaky_relu": nn.LeakyReLU(), "hard_tanh": nn.Hardtanh(), "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(), "identity": nn.Identity(), "elu": nn.ELU(), "gelu": nn.GELU(),
}  # fmt: skip


def as_sequence(weights, biases, activation, *ending, dtype=torch.float64):
    layers = []
    for w, b in zip(weights, biases, strict=True):
        layer = nn.Linear(*np.shape(w), dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(np.asarray(w).T))
            layer.bias.copy_(torch.tensor(np.asarray(b)))
        layers += [layer, copy.deepcopy(activation)]
    return nn.Sequential(*layers[:-1], *ending).eval()


@pytest.mark.parametrize(("labels", "threshold"), [([0, 1], 0.5), (["no", "yes"], 0.3), ([3, 5, 9], 0.5)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_three_ways_to_the_same_evidence(activation, labels, threshold):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = np.array(labels)[(X @ rng.normal(size=(4, len(labels)))).argmax(axis=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = MLPClassifier(
            (6, 5), activation=activation, max_iter=60, learning_rate_init=0.02, random_state=0
        ).fit(X, y)
    name = {"logistic": "sigmoid"}.get(activation, activation)
    single = len(labels) == 2
    own = FeedForward(
        estimator.coefs_, estimator.intercepts_, activation=name, output="sigmoid" if single else "softmax",
        threshold=threshold, classes=labels,
    )  # fmt: skip
    ending = [nn.Sigmoid()] if single else [nn.Softmax(dim=1)]
    sequences = [
        (as_sequence(estimator.coefs_, estimator.intercepts_, ACTIVATIONS[name]), "logit" if single else "logits"),
        (as_sequence(estimator.coefs_, estimator.intercepts_, ACTIVATIONS[name], *ending), None),
    ]
    models = [own, apas.as_model(estimator, threshold=threshold)]
    models += [apas.as_model(m, output=o, classes=labels, threshold=threshold) for m, o in sequences]
    assert len({model_digest(m) for m in models}) == 1
    rows = rng.normal(size=(12, 4))
    deltas = np.geomspace(0.02, 2.0, len(rows))
    answers = [apas.certify(m, rows, deltas, target="predicted", method=METHOD, rng=4) for m in models]
    assert all(list(a) == list(answers[0]) for a in answers)
    assert len({c.evidence.failures for c in answers[0]}) > 1
    for method in ("interval", "cascade"):
        proofs = [apas.certify(m, rows, 0.01, target="predicted", method=method, rng=4) for m in models]
        assert all(list(p) == list(proofs[0]) for p in proofs)
    widest = [apas.max_shift(m, rows[:2], target="predicted", method=METHOD, rng=4) for m in models]
    assert all([(w.delta, w.upper) for w in ws] == [(w.delta, w.upper) for w in widest[0]] for ws in widest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_the_modules(name, dtype):
    torch.manual_seed(0)
    activation = ACTIVATIONS[name]
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), activation, nn.Dropout(0.2), nn.Sequential(nn.Linear(5, 4), activation),
        nn.Identity(), nn.Linear(4, 3),
    ).to(dtype).eval()  # fmt: skip
    before = state(module)
    model = apas.as_model(module, output="logits", input_shape=(2, 3))
    assert isinstance(model, DenseTorchModel)
    network = model.as_feedforward()
    assert network.activations == (name, name)
    X = 4 * np.random.default_rng(0).normal(size=(50, 6))
    with torch.no_grad():
        raw = module(torch.tensor(X, dtype=dtype).reshape(-1, 2, 3)).double().numpy()
    tolerance = 1e-5 if dtype is torch.float32 else 1e-9
    np.testing.assert_allclose(
        model.margin(X, 1), raw[:, 1] - raw[:, [0, 2]].max(axis=1), rtol=tolerance, atol=tolerance
    )
    assert model.library_classes(X).tolist() == raw.argmax(axis=1).tolist()
    # a shift by hand, in the layout of FeedForward
    direction = np.random.default_rng(1).uniform(-1, 1, len(model.parameters))
    shifted, start = copy.deepcopy(module), 0
    with torch.no_grad():
        for layer in [m for m in shifted.modules() if isinstance(m, nn.Linear)]:
            size = layer.weight.numel()
            step = torch.tensor(direction[start : start + size].reshape(layer.weight.T.shape)).T
            layer.weight.copy_(layer.weight.double() + 0.1 * step)
            layer.bias.copy_(layer.bias.double() + 0.1 * torch.tensor(direction[start + size :][: len(layer.bias)]))
            start += size + len(layer.bias)
        raw = shifted(torch.tensor(X, dtype=dtype).reshape(-1, 2, 3)).double().numpy()
    got = model.shifted_margins(X, 2, direction[None], 0.1)[0]
    np.testing.assert_allclose(got, raw[:, 2] - raw[:, :2].max(axis=1), rtol=tolerance, atol=tolerance)
    assert state(module) == before


def linears(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers).eval()


def shared():
    layer = nn.Linear(3, 3)
    return linears(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(3, 1))


def hooked():
    module = linears(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    module[1].register_forward_hook(lambda m, x, y: 2 * y)
    return module


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


OTHERS = {
    "another slope": lambda: linears(nn.Linear(3, 3), nn.LeakyReLU(0.2), nn.Linear(3, 1)),
    "another range": lambda: linears(nn.Linear(3, 3), nn.Hardtanh(0, 1), nn.Linear(3, 1)),
    "linear from 20 on": lambda: linears(nn.Linear(3, 3), nn.Softplus(), nn.Linear(3, 1)),
    "another softness": lambda: linears(nn.Linear(3, 3), nn.Softplus(beta=2), nn.Linear(3, 1)),
    "another elu": lambda: linears(nn.Linear(3, 3), nn.ELU(0.5), nn.Linear(3, 1)),
    "rough gelu": lambda: linears(nn.Linear(3, 3), nn.GELU(approximate="tanh"), nn.Linear(3, 1)),
    "unknown activation": lambda: linears(nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 1)),
    "batch norm": lambda: linears(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)),
    "activation first": lambda: linears(nn.Tanh(), nn.Linear(3, 1)),
    "two activations": lambda: linears(nn.Linear(3, 3), nn.Tanh(), nn.ReLU(), nn.Linear(3, 1)),
    "activation last": lambda: linears(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1), nn.Tanh()),
    "the same layer twice": shared,
    "a hook": hooked,
    "a layer of one's own": lambda: linears(nn.Linear(3, 3), nn.ReLU(), Doubled(3, 1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_dense_network_is_not_taken_for_one(name):
    module = OTHERS[name]()
    model = apas.as_model(module, output="logit", input_shape=(3,))
    assert not offers(model, Dense)
    X = np.random.default_rng(0).normal(size=(7, 3))
    with torch.no_grad():
        want = module(torch.tensor(X, dtype=torch.float32)).double().numpy()[:, 0]
    np.testing.assert_allclose(model.margin(X, 1), want, rtol=1e-5, atol=1e-6)


def test_linear_layers_on_the_last_of_several_dimensions_are_no_dense_network():
    module = linears(nn.Linear(3, 1), nn.Flatten(), nn.Linear(2, 1))
    model = apas.as_model(module, output="logit", input_shape=(2, 3))
    assert not offers(model, Dense)
    assert len(model.parameters) == 7


def test_capabilities_and_names():
    module = linears(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1), nn.Sigmoid())
    model = apas.as_model(module, feature_names=["a", "b"], threshold=0.7)
    assert all(offers(model, c) for c in (Dense, Differentiable, LibraryBacked, Scaled))
    assert model.feature_names == ("a", "b")
    assert model.n_features == 2
    assert model.parameters.names == ("layer0.weight", "layer0.bias", "layer1.weight", "layer1.bias")
    assert np.array_equal(model.parameters.tensor(0), module[0].weight.detach().double().numpy().T)
    assert repr(model).startswith("<Sequential as <FeedForward 2-3-1, relu, sigmoid output")
    X = np.random.default_rng(0).normal(size=(5, 2))
    for gradient in (model.input_gradient, model.parameter_gradient):
        assert np.array_equal(gradient(X, 1)[0], model.margin(X, 1))
    assert apas.as_model(nn.Linear(3, 2).eval(), output="logits").n_features == 3


def test_a_layer_without_biases_has_none_to_move():
    model = apas.as_model(linears(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1)), output="logit")
    assert model.parameters.kinds == ("weight", "absent", "weight", "bias")
    assert np.array_equal(model.parameters.tensor(1), np.zeros(3))
    assert np.count_nonzero(apas.LinfShifts().radii(model.parameters)) == 6 + 3 + 1


def test_as_many_parameters_move_as_in_the_same_module_behind_a_class():
    class Wrapped(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    module = linears(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    dense = apas.as_model(module, output="logit")
    general = apas.as_model(Wrapped(module).eval(), output="logit", input_shape=(2,))
    assert offers(dense, Dense)
    assert not offers(general, Dense)
    box = "the box in which each of 6 weights moves by at most delta"
    for shifts in (apas.LinfShifts(), apas.LpShifts(2), apas.GaussianShifts()):
        assert np.count_nonzero(shifts.radii(dense.parameters)) == np.count_nonzero(shifts.radii(general.parameters))
        assert shifts.measure(dense.parameters) == shifts.measure(general.parameters)
    certificate = apas.certify(dense, [[0.0, 0.0]], 0.1, target=1, method="exact")[0]
    assert certificate.claim.measure == f"{box}; computed in float32, within its rounding"
    assert certificate.verdict.name != "REFUTED"


def test_single_precision_rows_at_the_boundary_agree_with_the_module():
    """In float32 the module gives some of these rows the other class; that is no reason to refuse it."""
    torch.manual_seed(0)
    module = linears(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 1), nn.Sigmoid())
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300, 20))
    model = apas.as_model(module)
    for _ in range(60):  # bisect towards the boundary
        middle = (a + b) / 2
        same = (model.margin(middle, 1) >= 0) == (model.margin(a, 1) >= 0)
        a, b = np.where(same[:, None], middle, a), np.where(same[:, None], b, middle)
    nudged = a + 1e-8 * rng.normal(size=a.shape)
    with torch.no_grad():
        said = module(torch.tensor(nudged, dtype=torch.float32)).numpy()[:, 0] >= 0.5
    assert (said != (model.margin(nudged, 1) >= 0)).any()
    apas.certify(model, nudged, 0.1, target="predicted", method="interval")


def test_written_to_a_file(tmp_path):
    module = linears(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1), nn.Sigmoid())
    apas.save_model(module, tmp_path / "net.json")
    assert model_digest(apas.load_model(tmp_path / "net.json")) == model_digest(apas.as_model(module))
