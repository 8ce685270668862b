"""`as_model`: what it takes, what it leaves alone, what it refuses."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import resolve
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas.models.base import Dense, Described, LibraryBacked, Model, Named, Raw, Scaled, offers, predicted_classes

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
NET = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])


class Threshold:
    """The smallest object that is a model: says class 1 where x * w >= 0. Nothing of ours is inherited."""

    classes = ("low", "high")
    n_features = 1

    def __init__(self, weight=1.0, shifted=None):
        self.parameters = apas.Parameters.from_arrays([[weight]], names=["w"], kinds=["weight"], layers=["only"])
        self._shifted = shifted

    def _sign(self, target, rows):
        labels = [target] * rows if isinstance(target, str) else list(target)
        return np.array([1.0 if label == "high" else -1.0 for label in labels])

    def margin(self, X, target):
        return X[:, 0] * self.parameters.values[0] * self._sign(target, len(X))

    def shifted_margins(self, X, target, directions, delta):
        if self._shifted is not None:
            return np.full((len(directions), len(X)), self._shifted)
        weights = self.parameters.values[0] + delta * directions[:, :1]
        return weights * X[:, 0] * self._sign(target, len(X))


def test_a_feedforward_is_itself():
    assert apas.as_model(NET) is NET


def test_a_read_estimator_is_itself():
    model = apas.as_model(LogisticRegression().fit(X, Y))
    assert apas.as_model(model) is model


def test_any_object_with_the_five_members_will_do():
    model = Threshold()
    assert apas.as_model(model) is model
    assert offers(model, Model)
    assert isinstance(model, Model)
    certificates = apas.certify(model, [[2.0], [-2.0], [2.0]], [0.5, 0.5, 1.5], target="high", rng=0)
    assert [c.verdict.name for c in certificates] == ["CERTIFIED", "REFUTED", "REFUTED"]
    assert certificates[1].evidence.draws == 0
    assert certificates[2].evidence.draws > 0
    assert certificates.feature_names is None
    assert len(certificates.model_digest) == 64


def test_a_model_whose_shifts_give_nan_is_never_certified():
    certificate = apas.certify(Threshold(shifted=float("nan")), [[2.0]], 0.1, target="high", rng=0)[0]
    assert not certificate.is_certified
    assert certificate.evidence.failures == certificate.evidence.draws == 2  # the anytime test refutes after two of two


def test_a_model_that_says_nan_is_refuted_without_drawing():
    class Broken(Threshold):
        def margin(self, X, target):
            return np.full(len(X), np.nan)

    certificate = apas.certify(Broken(), [[2.0]], 0.1, target="high", rng=0)[0]
    assert certificate.verdict is apas.Verdict.REFUTED
    assert certificate.evidence.draws == 0


CAPABILITIES = [
    (NET, {Model, Named, Dense, Scaled, Described}),
    (
        partial(lambda: apas.as_model(LogisticRegression().fit(X, Y))),
        {Model, Named, Dense, Scaled, Described, Raw, LibraryBacked},
    ),
    (Threshold(), {Model}),
    (object(), set()),
]


@pytest.mark.parametrize(("model", "capabilities"), CAPABILITIES, ids=["feedforward", "sklearn", "own", "none"])
def test_capabilities(model, capabilities):
    model = resolve(model)
    for capability in (Model, Named, Dense, Scaled, Described, Raw, LibraryBacked):
        assert offers(model, capability) == (capability in capabilities) == isinstance(model, capability)


def test_predicted_classes_and_distances():
    labels, distance = predicted_classes(NET, np.array([[2.0, 0.5], [0.0, 3.0], [1.0, 1.0]]))
    assert labels.tolist() == [1, 0, 1]
    assert distance.tolist() == [1.5, 3.0, 0.0]
    three = apas.FeedForward([np.eye(3)], [np.zeros(3)], output="softmax", classes=["a", "b", "c"])
    labels, distance = predicted_classes(three, np.array([[1.0, 5.0, 2.0], [1.0, 0.0, 4.0], [3.0, 3.0, 0.0]]))
    assert labels.tolist()[:2] == ["b", "c"]
    assert distance.tolist() == [3.0, 3.0, 0.0]


def fitted(estimator, y=Y):
    return partial(estimator.fit, X, y)


MANY = np.column_stack([Y, X[:, 1] > 0]).astype(int)
REFUSED = {
    "a path": ("model.json", apas.InputError, r"`model` must be a model, got the path 'model.json'; .*load_model"),
    "a path object": (Path("m.pkl"), apas.InputError, r"`model` .*'m.pkl'.*load_model"),
    "a path in bytes": (b"m.json", apas.InputError, "`model` .*path.*load_model"),
    "a class": (
        LogisticRegression,
        apas.InputError,
        "`model` must be a fitted model, got the class LogisticRegression itself",
    ),
    "our own class": (apas.FeedForward, apas.InputError, "`model` .*got the class FeedForward itself"),
    "None": (None, apas.Unsupported, "`model` is a .*NoneType"),
    "an array": (X, apas.Unsupported, "`model` is a numpy.ndarray, which apas cannot read; .*classes, n_features"),
    "a function": (len, apas.Unsupported, "`model` is a .*builtin_function"),
    "unfitted": (
        LogisticRegression(),
        apas.InputError,
        r"must be fitted, but this LogisticRegression is not; call \.fit",
    ),
    "unfitted network": (MLPClassifier(), apas.InputError, "must be fitted, but this MLPClassifier is not"),
    "unfitted pipeline": (
        make_pipeline(StandardScaler(), LogisticRegression()),
        apas.InputError,
        "must be fitted, .*Pipeline",
    ),
    "pipeline with unfitted end": (
        partial(lambda: Pipeline([("s", StandardScaler().fit(X)), ("l", LogisticRegression())])),
        apas.InputError,
        "must be fitted",
    ),
    "a regressor": (
        fitted(LinearRegression()),
        apas.Unsupported,
        "LinearRegression is a regressor: .*pass a classifier",
    ),
    "an unfitted regressor": (MLPRegressor(), apas.Unsupported, "MLPRegressor is a regressor"),
    "a pipeline of a regressor": (
        fitted(make_pipeline(StandardScaler(), LinearRegression())),
        apas.Unsupported,
        "LinearRegression is a regressor",
    ),
    "several labels, network": (
        fitted(MLPClassifier((3,), max_iter=200, tol=0.5, random_state=0), MANY),
        apas.Unsupported,
        "this MLPClassifier was fitted for several labels at once; certify one classifier per label",
    ),
    "several labels, ridge": (
        fitted(RidgeClassifier(), MANY),
        apas.Unsupported,
        "this RidgeClassifier .*several labels at once",
    ),
    "a transformer": (fitted(StandardScaler()), apas.Unsupported, "StandardScaler is not a classifier"),
    "a clustering": (fitted(KMeans(2, n_init=1)), apas.Unsupported, "KMeans is not a classifier"),
    "a pipeline without an end": (
        fitted(Pipeline([("s", StandardScaler()), ("end", "passthrough")])),
        apas.Unsupported,
        "not a classifier",
    ),
    "a search": (
        fitted(GridSearchCV(LogisticRegression(), {"C": [1.0]})),
        apas.Unsupported,
        r"GridSearchCV is a search over models; pass its \.best_estimator_",
    ),
    "a pipeline in a pipeline": (
        fitted(make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression()))),
        apas.Unsupported,
        "last step of the Pipeline is itself a Pipeline",
    ),
    "one class only": (
        fitted(RidgeClassifier(), np.zeros(60, dtype=int)),
        apas.InputError,
        "`classes`.*2 different labels",
    ),
}


@pytest.mark.parametrize(("obj", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(obj, error, message):
    obj = resolve(obj)
    with pytest.raises(error, match=message) as caught:
        apas.as_model(obj)
    assert "\n" not in str(caught.value)
    with pytest.raises(error, match=message):
        apas.certify(obj, X, 0.1, target=1)


OPTIONS = [
    (NET, {"output": "logit"}, "`output` of as_model does not apply"),
    (NET, {"classes": ["a", "b"]}, "`classes` of as_model does not apply"),
    (NET, {"input_shape": (3,)}, "`input_shape` of as_model does not apply"),
    (NET, {"threshold": 0.7}, "`threshold` of as_model does not apply"),
    (NET, {"feature_names": ["a", "b"]}, "`feature_names` of as_model does not apply"),
    (fitted(LogisticRegression()), {"output": "logit"}, "`output` of as_model does not apply"),
    (fitted(LogisticRegression()), {"classes": [0, 1]}, "`classes` of as_model does not apply"),
    (fitted(LogisticRegression()), {"input_shape": [3]}, "`input_shape` of as_model does not apply"),
    (fitted(LogisticRegression()), {"threshold": 1.0}, "`threshold` .*strictly between 0 and 1, got 1.0"),
    (fitted(LogisticRegression()), {"threshold": "0.5"}, "`threshold` .*strictly between 0 and 1, got '0.5'"),
    (fitted(LogisticRegression()), {"threshold": None}, "`threshold` .*strictly between 0 and 1, got None"),
    (fitted(LogisticRegression()), {"feature_names": ["a"]}, "`feature_names` must hold 3 .*got 1"),
    (fitted(LogisticRegression()), {"feature_names": ["a", "a", "b"]}, "`feature_names` must hold 3 different names"),
    (fitted(LogisticRegression()), {"feature_names": "abc"}, "`feature_names` must hold different names.*'abc'"),
    (fitted(LogisticRegression()), {"feature_names": 5}, "`feature_names` must"),
    (
        fitted(make_pipeline(StandardScaler(), LogisticRegression())),
        {"feature_names": ["a"]},
        "`feature_names` must hold 3 .*got 1",
    ),
]


@pytest.mark.parametrize(("obj", "options", "message"), OPTIONS)
def test_options_that_do_not_apply(obj, options, message):
    obj = resolve(obj)
    with pytest.raises(apas.InputError, match=message) as caught:
        apas.as_model(obj, **options)
    assert "\n" not in str(caught.value)
