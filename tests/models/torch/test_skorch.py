"""skorch classifiers: their module is read, with their classes and their threshold."""

import numpy as np
import pytest
from conftest import library
from torch_modules import torch

import apas

X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
TWO = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
THREE = np.digitize(X[:, 0], [-0.5, 0.5]).astype(np.int64)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def sequence(outputs, *end):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, outputs), *end)


CASES = {
    "logits": ("NeuralNetClassifier", {"criterion": "CrossEntropyLoss"}, (3,), THREE),
    "two logits": ("NeuralNetClassifier", {"criterion": "CrossEntropyLoss"}, (2,), TWO),
    "probabilities": ("NeuralNetClassifier", {}, (3, "softmax"), THREE),
    "one logit, a threshold": ("NeuralNetBinaryClassifier", {"threshold": 0.4}, (1, "flat"), TWO),
}


@pytest.mark.parametrize(("kind", "settings", "layers", "labels"), CASES.values(), ids=CASES)
def test_decisions_are_those_of_skorch(kind, settings, layers, labels):
    skorch = library("skorch")
    ends = {"softmax": torch.nn.Softmax(dim=-1), "flat": torch.nn.Flatten(0)}
    settings = {**settings, "max_epochs": 3, "verbose": 0}
    if "criterion" in settings:
        settings["criterion"] = getattr(torch.nn, settings["criterion"])
    module = sequence(layers[0], *(ends[name] for name in layers[1:]))
    binary = kind == "NeuralNetBinaryClassifier"
    net = getattr(skorch, kind)(module, **settings).fit(X, labels.astype(np.float32) if binary else labels)
    model = apas.as_model(net, input_shape=(4,))
    rows = X.astype(np.float64)
    margins = np.stack([model.margin(rows, label) for label in model.classes], axis=1)
    said = net.predict(X)
    assert margins.argmax(axis=1).tolist() == [list(model.classes).index(label) for label in said.tolist()]
    probabilities = net.predict_proba(X).astype(np.float64)
    if len(model.classes) == 2:
        level = settings.get("threshold", 0.5)
        expected = np.log(probabilities[:, 1] / probabilities[:, 0]) - np.log(level / (1 - level))
        assert margins[:, 1] == pytest.approx(expected, abs=1e-5)
    assert len(model.parameters) > 0  # they can be shifted
    assert apas.certify(net if not binary else model, X[:2], 1e-4, target="predicted", rng=0).certified.dtype == bool


def test_what_cannot_be_read_is_refused():
    skorch = library("skorch")
    with pytest.raises(apas.InputError, match="must be fitted, but this NeuralNetClassifier is not"):
        apas.as_model(skorch.NeuralNetClassifier(sequence(3)))
    own = skorch.NeuralNetClassifier(sequence(3), predict_nonlinearity=torch.exp, max_epochs=1, verbose=0).fit(X, THREE)
    with pytest.raises(apas.Unsupported, match=r"in a way of its own; pass its module: apas.as_model\(net.module_"):
        apas.as_model(own)
