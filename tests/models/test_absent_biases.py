"""Biases that do not exist: zeros that nothing moves, so that all answers are those about the weights alone."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.svm import LinearSVC

import apas
from apas import FeedForward, GaussianShifts, InputError, LinfShifts, LpShifts, ObservedShifts, Sampling
from apas._random import Stream
from apas.models.digest import model_digest

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=(3, 4)), RNG.normal(size=(4, 1))]
BIASES = [np.zeros(4), np.zeros(1)]
LATER = RNG.normal(size=1)
#: The network without biases, the same one with zeros, and the factors that hold the zeros still.
CASES = {
    "no biases": (FeedForward(WEIGHTS, [None, None]), FeedForward(WEIGHTS, BIASES), [1.0, 0.0, 1.0, 0.0]),
    "none in the first layer": (
        FeedForward(WEIGHTS, [None, LATER]), FeedForward(WEIGHTS, [BIASES[0], LATER]), [1.0, 0.0, 1.0, 1.0],
    ),
    "none in the last layer": (
        FeedForward(WEIGHTS, [LATER.repeat(4), None]), FeedForward(WEIGHTS, [LATER.repeat(4), BIASES[1]]),
        [1.0, 1.0, 1.0, 0.0],
    ),
}  # fmt: skip
ROWS = 2.0 * np.random.default_rng(1).normal(size=(8, 3))


def held(net: FeedForward, factors: list[float]) -> LinfShifts:
    return LinfShifts(scale=[np.full(s, f) for s, f in zip(net.parameters.shapes, factors, strict=True)])


def without_words(answer) -> dict:
    """What was found, but not how it is told."""
    drop = {"measure", "model_digest", "shifts", "seconds", "version", "python"}

    def cleared(value):
        if isinstance(value, dict):
            return {key: cleared(item) for key, item in value.items() if key not in drop}
        return [cleared(item) for item in value] if isinstance(value, list) else value

    return cleared(json.loads(json.dumps(answer.to_dict(), default=str)))


@pytest.mark.parametrize(
    "method",
    [Sampling(n_samples=500, coverage=0.95, confidence=0.9), "interval", "linear", "attack", "exact", "cascade",
     apas.Enumeration(max_boxes=200)],
    ids=lambda m: m if isinstance(m, str) else type(m).__name__,
)  # fmt: skip
@pytest.mark.parametrize("case", CASES)
def test_every_method_answers_as_if_the_zeros_were_held(case, method):
    net, plain, factors = CASES[case]
    for delta in (0.02, 0.2):
        ask = {"target": "predicted", "method": method, "rng": 0}
        bare = apas.certify(net, ROWS, delta, **ask)
        still = apas.certify(plain, ROWS, delta, shifts=held(plain, factors), **ask)
        assert without_words(bare) == without_words(still)


@pytest.mark.parametrize("method", ["sampling", "exact", "interval", "cascade"])
@pytest.mark.parametrize("case", CASES)
def test_largest_shifts_as_if_the_zeros_were_held(case, method):
    net, plain, factors = CASES[case]
    method = Sampling(n_samples=300, coverage=0.95, confidence=0.9) if method == "sampling" else method
    ask = {"target": "predicted", "method": method, "rng": 0}
    bare = apas.max_shift(net, ROWS[:4], **ask)
    still = apas.max_shift(plain, ROWS[:4], shifts=held(plain, factors), **ask)
    assert without_words(bare) == without_words(still)


@pytest.mark.parametrize("case", CASES)
def test_curves_and_ranges_as_if_the_zeros_were_held(case):
    net, plain, factors = CASES[case]
    few = Sampling(n_samples=300, coverage=0.95, confidence=0.9)
    for method in (few, "interval", "exact"):
        ask = {"target": 1, "method": method, "rng": 0}
        bare = apas.output_range(net, ROWS[:3], 0.1, **ask)
        still = apas.output_range(plain, ROWS[:3], 0.1, shifts=held(plain, factors), **ask)
        for ours, theirs in zip(bare, still, strict=True):
            assert (ours.low, ours.high, ours.attained) == (theirs.low, theirs.high, theirs.attained)
    for method in (few, apas.Enumeration(max_boxes=100)):
        ask = {"target": 1, "method": method, "rng": 0}
        bare = apas.robust_fraction(net, ROWS[:3], [0.05, 0.2], **ask)
        still = apas.robust_fraction(plain, ROWS[:3], [0.05, 0.2], shifts=held(plain, factors), **ask)
        assert without_words(bare) == without_words(still)


@pytest.mark.parametrize("shifts", [LpShifts(1), LpShifts(2), GaussianShifts()], ids=repr)
def test_balls_and_normal_shifts_leave_them_alone(shifts):
    net, plain, _ = CASES["no biases"]
    weights = type(shifts)(*([shifts.p] if isinstance(shifts, LpShifts) else []), kinds=("weight",))
    assert np.array_equal(shifts.radii(net.parameters), weights.radii(plain.parameters))
    draws = [s.directions(n.parameters, Stream(0, "x"), 0, 9) for s, n in ((shifts, net), (weights, plain))]
    assert np.array_equal(*draws)
    for method in ("sampling",) if isinstance(shifts, GaussianShifts) else ("sampling", "interval", "attack"):
        ask = {"target": "predicted", "method": method, "rng": 0}
        bare = apas.certify(net, ROWS, 0.3, shifts=shifts, **ask)
        assert without_words(bare) == without_words(apas.certify(plain, ROWS, 0.3, shifts=weights, **ask))


@pytest.mark.parametrize(
    ("shifts", "case", "words"),
    [
        (LinfShifts(), "no biases", "uniform on the box in which each of 16 weights moves by at most delta"),
        (
            LinfShifts(), "none in the first layer",
            "uniform on the box in which each of 17 weights and biases moves by at most delta",
        ),
        (
            LinfShifts(layers=[0]), "none in the first layer",
            "uniform on the box in which each of 12 weights of layer0 moves by at most delta, 5 fixed",
        ),
        (
            LinfShifts(kinds=("weight",)), "no biases",
            "uniform on the box in which each of 16 weights moves by at most delta",
        ),
        (
            LinfShifts(relative=True), "no biases",
            "uniform on the box in which each of 16 weights moves by at most delta times its magnitude",
        ),
        (
            LinfShifts(relative=True, floor=0.5), "no biases",
            "uniform on the box in which each of 16 weights moves by at most delta times its magnitude (taken as at "
            "least 0.5)",
        ),
        (
            LpShifts(2), "no biases",
            "uniform in the ball in which 16 weights together move by at most delta in the L2 norm",
        ),
        (
            GaussianShifts(), "no biases",
            "each of 16 weights moves by an independent normal number of standard deviation delta",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_they_are_not_counted(shifts, case, words):
    assert shifts.measure(CASES[case][0].parameters) == words


def test_only_absent_biases_to_move_are_none():
    for shifts in (LinfShifts(kinds=("bias",)), LpShifts(2, kinds=("bias",))):
        with pytest.raises(InputError, match="must move at least one parameter"):
            apas.certify(CASES["no biases"][0], ROWS, 0.1, target=1, shifts=shifts)


def test_layout():
    net = CASES["none in the first layer"][0]
    assert net.parameters.kinds == ("weight", "absent", "weight", "bias")
    assert net.parameters.names[1] == "layer0.bias"
    assert len(net.parameters) == 21
    assert np.array_equal(net.biases[0], np.zeros(4))
    for same in (net.with_names(["a", "b", "c"]), net.with_parameters(2 * net.parameters.values), net.as_feedforward()):
        assert same.parameters.kinds == net.parameters.kinds
    moved = net.parameters.values.copy()
    moved[net.parameters.slices[1]] = 0.1
    with pytest.raises(
        InputError, match=r"`values` of with_parameters must be 0 for layer0.bias, which does not exist"
    ):
        net.with_parameters(moved)


def test_contains_refuses_a_bias_that_moved():
    net, plain, _ = CASES["no biases"]
    other = FeedForward(WEIGHTS, [np.full(4, 0.01), np.zeros(1)])
    for shifts in (LinfShifts(), LpShifts(2), GaussianShifts()):
        assert shifts.contains(plain.parameters, other.parameters, 0.5)
        assert not shifts.contains(net.parameters, other.parameters, 0.5)


def test_digest_and_file(tmp_path):
    net, plain, _ = CASES["none in the first layer"]
    assert model_digest(net) != model_digest(plain)
    apas.save_model(net, tmp_path / "net.json")
    content = json.loads((tmp_path / "net.json").read_text())
    assert content["biases"] == [None, LATER.tolist()]
    again = apas.load_model(tmp_path / "net.json")
    assert again.parameters.kinds == net.parameters.kinds
    assert model_digest(again) == model_digest(net)


def test_measured_without_them():
    net, plain, _ = CASES["none in the first layer"]
    later = FeedForward([WEIGHTS[0] + 0.25, WEIGHTS[1]], [None, LATER])
    report = apas.measure_shift(net, later)
    assert [part[:2] for part in report.parts] == [("layer0", "weight"), ("layer1", "weight"), ("layer1", "bias")]
    assert report.summary().startswith("Each of 17 parameters changes by at most 0.25")
    for ours, theirs, found in ((net, plain, "has it"), (plain, net, "has none")):
        with pytest.raises(InputError, match=f"layer0.bias.*{found}"):
            apas.measure_shift(ours, theirs)


def test_listed_models_with_biases_are_no_scaled_change():
    net, plain, _ = CASES["no biases"]
    assert apas.certify(net, ROWS, 1, target="predicted", shifts=ObservedShifts([plain]), method="exact")
    with pytest.raises(InputError, match="`delta` must be 1 for ObservedShifts"):
        apas.certify(net, ROWS, 0.5, target="predicted", shifts=ObservedShifts([plain]), method="exact")


LINEAR = [LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron]


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2]], ids=len)
@pytest.mark.parametrize("kind", LINEAR)
def test_estimators_without_intercept(kind, labels):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.digitize(X[:, 0], [0.0] if len(labels) == 2 else [-0.5, 0.5])
    bare = apas.as_model(kind(fit_intercept=False).fit(X, y))
    outputs = 1 if len(labels) == 2 else 3
    assert bare.parameters.kinds == ("weight", "absent")
    assert (
        LinfShifts().measure(bare.parameters).startswith(f"uniform on the box in which each of {2 * outputs} weights")
    )
    assert apas.as_model(kind().fit(X, y)).parameters.kinds == ("weight", "bias")


def test_an_intercept_that_happens_to_be_0_moves():
    estimator = LogisticRegression().fit([[-1.0], [1.0], [-2.0], [2.0]], [0, 1, 0, 1])
    estimator.intercept_[:] = 0.0
    assert apas.as_model(estimator).parameters.kinds == ("weight", "bias")
    # and one that is not 0 exists, whatever the settings have become
    estimator.intercept_[:] = 0.5
    estimator.set_params(fit_intercept=False)
    assert apas.as_model(estimator).parameters.kinds == ("weight", "bias")


def test_a_row_that_no_weight_can_move():
    net = FeedForward(WEIGHTS, [None, None], output="identity", threshold=-math.ulp(1.0))
    assert apas.certify(net, [[0.0] * 3], 10.0, target=1, method="exact")[0].verdict.name == "CERTIFIED"
    assert apas.certify(net, [[0.0] * 3], 10.0, target=1, rng=0)[0].verdict.name == "CERTIFIED"
    for method in ("exact", "attack"):
        found = apas.certify(FeedForward(WEIGHTS, [None, None]), [[0.0] * 3], 0.1, target=1, method=method)
        assert found[0].verdict.name != "REFUTED"
