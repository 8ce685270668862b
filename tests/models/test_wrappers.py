"""Wrappers offer what the model behind them offers, and a model that can only predict is one where no more is needed."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import apas
from apas.certification.question import Question
from apas.metrics.api import validity
from apas.models.base import (
    CAPABILITIES,
    Dense,
    Differentiable,
    Model,
    ModelWrapper,
    Predicts,
    Scaled,
    encoded_rows,
    offers,
    predicted_classes,
)
from apas.shifts.base import coordinates

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
FOREST = RandomForestClassifier(n_estimators=5, random_state=0).fit(X, Y)
NET = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
RULE = apas.Predictor(
    lambda X: FOREST.predict(X.to_numpy()), output="class", classes=("no", "yes"), feature_names=["a", "b"]
)


class Smallest:
    """The least that is a model."""

    classes, n_features = (0, 1), 2
    parameters = NET.parameters

    def margin(self, X, target):
        return NET.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return NET.shifted_margins(X, target, directions, delta)


@pytest.mark.parametrize("inner", [NET, Smallest(), RULE], ids=["network", "smallest", "predicts"])
def test_a_wrapper_offers_what_the_inner_model_offers(inner):
    wrapper = ModelWrapper(inner)
    for capability in (Predicts, *CAPABILITIES):
        assert offers(wrapper, capability) == offers(inner, capability)
    assert np.array_equal(wrapper.margin(X, wrapper.classes[1]), inner.margin(X, inner.classes[1]))
    again = pickle.loads(pickle.dumps(ModelWrapper(NET)))
    assert np.array_equal(again.margin(X, 1), NET.margin(X, 1))


def test_a_wrapper_follows_parameters_that_are_exchanged():
    inner = Smallest()
    wrapper = ModelWrapper(inner)
    inner.parameters = apas.FeedForward([[[2.0], [0.0]]], [[1.0]]).parameters
    assert wrapper.parameters is inner.parameters


def test_a_model_that_only_predicts_gives_margins_by_decision():
    assert offers(RULE, Predicts)
    assert not any(offers(RULE, capability) for capability in (Model, Dense, Differentiable, Scaled))
    margins = RULE.margin(X, "yes")
    assert set(margins.tolist()) == {1.0, -1.0}
    assert np.array_equal(margins > 0, FOREST.predict(X) == "yes")
    assert np.array_equal(margins, -RULE.margin(X, "no"))
    assert np.array_equal(RULE.margin(X, FOREST.predict(X)), np.ones(len(X)))
    assert np.array_equal(predicted_classes(RULE, X)[0], FOREST.predict(X))
    assert np.array_equal(encoded_rows(RULE, X)[1], X)


def test_it_is_enough_where_only_decisions_count():
    assert apas.as_model(RULE) is RULE
    points = np.vstack([X[:5], [[np.nan, np.nan]]])
    assert validity(RULE, points, "yes").tolist() == [*(FOREST.predict(X[:5]) == "yes"), False]


def test_classes_that_it_does_not_have_are_refused():
    strange = apas.Predictor(lambda X: ["maybe"] * len(X), output="class", classes=("no", "yes"), n_features=2)
    with pytest.raises(apas.InputError, match=r"must predict one of \['no', 'yes'\] per row \(60\), got 'maybe'"):
        strange.margin(X, "yes")
    short = apas.Predictor(lambda X: ["no"], output="class", classes=("no", "yes"), n_features=2)
    with pytest.raises(apas.InputError, match=r"per row \(60\), got \(1,\)"):
        short.margin(X, "yes")


METHODS = ["sampling", "interval", "linear", "attack", "exact", "enumeration", "cascade"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shifts", ["linf", "l2", "gaussian"])
def test_what_moves_parameters_refuses_it_in_a_sentence(method, shifts):
    with pytest.raises(apas.Unsupported) as caught:
        apas.certify(RULE, X[:2], 0.1, target="yes", shifts=shifts, method=method)
    said = "Shifts moves the parameters of a model, but <Predictor of classes ['no', 'yes']> has none that could move; "
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "apas.retrain(" in str(caught.value)
    assert "apas.ObservedShifts(refits)" in str(caught.value)


VERBS = {
    "max_shift": lambda: apas.max_shift(RULE, X[:2], target="yes"),
    "robust_fraction": lambda: apas.robust_fraction(RULE, X[:2], 0.1, target="yes"),
    "output_range": lambda: apas.output_range(RULE, X[:2], 0.1, target="yes"),
    "measure_shift": lambda: apas.measure_shift(RULE, NET),
}


@pytest.mark.parametrize("verb", VERBS)
def test_so_do_all_that_ask_for_parameters(verb):
    with pytest.raises(apas.Unsupported, match="Predictor of .* has no(ne| parameters) that could move"):
        VERBS[verb]()


def question(shifts):
    target = np.array(["yes", "yes"], dtype=object)
    return Question(model=RULE, X=X[:2], target=target, delta=np.full(2, 0.1), shifts=shifts)


@pytest.mark.parametrize("shifts", [apas.LinfShifts(), apas.LpShifts(2), apas.GaussianShifts()])
def test_a_set_says_which_model_lacks_the_parameters(shifts):
    said = f"{type(shifts).__name__} moves the parameters of a model, but <Predictor of .*> has none that could move"
    with pytest.raises(apas.Unsupported, match=said):
        coordinates(shifts, RULE)
    with pytest.raises(apas.Unsupported, match=said):
        question(shifts).radii.any()


def test_attack_says_what_the_model_lacks():
    assert apas.Attack().unsupported(question(apas.LinfShifts())).startswith("Attack needs a model with gradients")


@pytest.mark.parametrize(
    "method", [apas.IntervalBounds(), apas.LinearBounds(), apas.Exact(), apas.Enumeration()], ids=lambda m: m.name
)
def test_what_has_no_parameters_has_no_geometry(method):
    with pytest.raises(
        apas.Unsupported, match="LinfShifts moves the parameters of a model, but <Predictor of .*> has none"
    ):
        method.unsupported(question(apas.LinfShifts()))
