"""Noise on rows: uniform on its box, whole steps equally likely, the model untouched, and what is refused."""

import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import FeedForward, InputError, Sampling, Unsupported, Verdict
from apas._random import Stream
from apas.certification.api import output_range
from apas.shifts.base import OtherMoves, ShiftSet
from apas.shifts.noise import InputNoise

STREAM = Stream(1, "certify")
NET = FeedForward([[[1.0], [-2.0], [0.5]]], [[0.0]], feature_names=["income", "children", "age"])
X = np.array([[4.0, 1.0, 2.0], [3.0, 0.0, 1.0]])


def draws(noise, count, net=NET, seed=1):
    return noise.directions(noise.coordinates(net), Stream(seed, "certify"), 0, count)


def moves(noise, count, delta, net=NET, seed=1):
    """What the noise adds to a row of zeros, shape (count, features)."""
    return noise.moved(net, np.zeros((1, net.n_features)), draws(noise, count, net, seed), delta)[:, 0]


# -- the distribution --------------------------------------------------------------------------------------------


def test_noise_is_uniform_on_the_box():
    noise = InputNoise(scale=[1.0, 0.5, 2.0])
    added = moves(noise, 20_000, 0.3)
    for column, reach in zip(added.T, (0.3, 0.15, 0.6), strict=True):
        assert stats.kstest(column, stats.uniform(-reach, 2 * reach).cdf).pvalue > 1e-4
    assert np.abs(np.corrcoef(added, rowvar=False)[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(20_000)


@pytest.mark.parametrize(("delta", "most"), [(0.9, 0), (1.0, 1), (2.7, 2), (3.0, 3)])
def test_whole_steps_are_equally_likely(delta, most):
    added = moves(InputNoise(integers=["children"]), 20_000, delta)
    steps, counts = np.unique(added[:, 1], return_counts=True)
    assert steps.tolist() == list(range(-most, most + 1))
    if most:
        assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.kstest(added[:, 0], stats.uniform(-delta, 2 * delta).cdf).pvalue > 1e-4


def test_steps_of_another_size():
    noise = InputNoise(integers={"age": 0.1}, scale={"age": 3.0})
    added = moves(noise, 5000, 0.1)[:, 2]
    np.testing.assert_allclose(np.unique(added), np.arange(-3, 4) * 0.1, atol=1e-15)  # 0.3 is three steps of 0.1
    assert stats.chisquare(np.unique(added, return_counts=True)[1]).pvalue > 1e-4


def test_the_largest_and_the_least_number_stay_within_reach():
    noise = InputNoise(integers=[0, 1, 2])
    ends = np.array([[-1.0] * 3, [1 - 2.0**-31] * 3])
    for delta in (1.0, 5.0, 1e6):
        assert noise.moved(NET, np.zeros((1, 3)), ends, delta)[:, 0, 0].tolist() == [-delta, delta]


# -- a pure function of stream and index -------------------------------------------------------------------------


def test_any_block_gives_the_same_draws():
    noise = InputNoise(features=["income", "age"])
    what = noise.coordinates(NET)
    whole = noise.directions(what, STREAM, 0, 300)
    parts = [noise.directions(what, STREAM, a, b) for a, b in [(0, 1), (1, 128), (128, 131), (131, 300)]]
    assert np.array_equal(np.vstack(parts), whole)
    assert (whole[:, 1] == 0).all()
    assert (whole[:, [0, 2]] != 0).all()


def test_margins_are_those_of_the_moved_rows():
    noise = InputNoise(scale=[1.0, 2.0, 0.0], integers=[1])
    u = draws(noise, 50)
    got = noise.margins(NET, X, 1, u, 0.7)
    for i, direction in enumerate(u):
        step = np.floor((direction[1] + 1) / 2 * 3) - 1  # reach 1.4 holds one whole step each way
        moved = np.add(X, [0.7 * direction[0], step, 0.0])
        np.testing.assert_allclose(got[i], NET.margin(moved, 1), rtol=1e-12)


def test_margins_with_a_delta_and_a_target_per_row():
    noise = InputNoise(integers=[1])
    u, deltas, target = draws(noise, 300), np.array([0.2, 3.0]), np.array([1, 0], dtype=object)
    got = noise.margins(NET, X, target, u, deltas)
    for row in range(2):
        alone = noise.margins(NET, X[row : row + 1], target[row], u, float(deltas[row]))
        np.testing.assert_allclose(got[:, row], alone[:, 0], rtol=1e-12)


def test_many_rows_are_moved_in_parts(monkeypatch):
    noise = InputNoise()
    u, rows = draws(noise, 64), np.random.default_rng(0).normal(size=(30, 3))
    whole = noise.margins(NET, rows, 1, u, 0.5)
    monkeypatch.setattr("apas.shifts.noise.NUMBERS", 100)
    np.testing.assert_allclose(noise.margins(NET, rows, 1, u, 0.5), whole, rtol=1e-12)


# -- features ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "radii"),
    [
        ({}, [1, 1, 1]),
        ({"features": ["age"]}, [0, 0, 1]),
        ({"features": [0, -1]}, [1, 0, 1]),
        ({"features": np.array([1])}, [0, 1, 0]),
        ({"scale": 0.5}, [0.5, 0.5, 0.5]),
        ({"scale": {"income": 2.0, 2: 0.0}}, [2, 1, 0]),
        ({"scale": {"1": 3.0}}, [1, 3, 1]),
        ({"scale": [1.0, 2.0, 3.0], "features": ["children"]}, [0, 2, 0]),
    ],
)
def test_which_features_move_and_how_far(options, radii):
    noise = InputNoise(**options)
    assert noise.radii(noise.coordinates(NET)).tolist() == radii


def test_features_without_names_are_numbered():
    net = FeedForward([np.ones((3, 1))], [[0.0]])
    noise = InputNoise(features=[1])
    assert noise.coordinates(net).names == ("feature 0", "feature 1", "feature 2")
    assert "one feature (feature 1) of the row" in noise.measure(noise.coordinates(net))


def test_features_of_a_pipeline_are_those_behind_its_preprocessing():
    frame = pd.DataFrame({"income": [10.0, 20.0, 30.0, 40.0], "age": [20.0, 30.0, 40.0, 50.0]})
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, [0, 0, 1, 1])
    noise = InputNoise(features=["income"])
    certificate = apas.certify(pipeline, frame[3:], 0.1, target=1, shifts=noise, rng=0)[0]
    net = apas.as_model(pipeline)
    assert noise.coordinates(net).names == ("income", "age")
    assert "one feature (income) of the row moves by at most delta in model units;" in certificate.claim.measure
    # model units: a step of 1 is a standard deviation
    assert noise.moved(net, net.encode(frame[3:]), [[1.0, 0.0]], 1.0)[0, 0, 0] == pytest.approx(
        (40 - 25) / np.std(frame["income"]) + 1
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -1.0}, "`scale` of InputNoise must hold finite numbers of at least 0"),
        ({"scale": {"age": np.nan}}, "`scale` of InputNoise must hold finite numbers of at least 0"),
        ({"scale": "much"}, "`scale` of InputNoise must hold finite numbers of at least 0"),
        ({"scale": np.ones((2, 2))}, "`scale` of InputNoise must hold finite numbers of at least 0"),
        ({"features": "age"}, "`features` of InputNoise must list features by name or index, got 'age'"),
        ({"features": []}, "`features` of InputNoise must list features by name or index, got []"),
        ({"integers": {"age": 0.0}}, "`integers` of InputNoise must give steps that are positive and finite, got 0.0"),
        ({"integers": {"age": "year"}}, "`integers` of InputNoise must give steps that are positive"),
        ({"integers": 3}, "`integers` of InputNoise must list features by name or index, got 3"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        InputNoise(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["wealth"]}, "`features` of InputNoise must name features of the model (income, children, age)"),
        ({"features": [3]}, "or index them (0 to 2), got 3"),
        ({"features": [True]}, "or index them (0 to 2), got True"),
        ({"integers": ["wealth"]}, "`integers` of InputNoise must name features"),
        ({"scale": {"wealth": 1.0}}, "`scale` of InputNoise must name features"),
        ({"scale": [1.0, 2.0]}, "`scale` of InputNoise must be one factor or one per feature (3), got 2"),
        ({"scale": {0: 0.0}, "features": [0]}, "`shifts` must move at least one feature"),
    ],
)
def test_options_that_the_model_cannot_meet(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        apas.certify(NET, X, 0.1, target=1, shifts=InputNoise(**options), rng=0)


def test_sets_are_values():
    options = {"scale": {"age": 2.0}, "features": ["age", "income"], "integers": {"age": 0.5}}
    noise = InputNoise(**options)
    assert isinstance(noise, ShiftSet)
    assert isinstance(noise, OtherMoves)
    assert noise == InputNoise(**options) == pickle.loads(pickle.dumps(noise))
    assert hash(noise) == hash(InputNoise(**options))
    assert noise != InputNoise()
    read = json.loads(json.dumps(noise.to_dict()))
    assert read.pop("kind") == "noise"
    assert InputNoise(**read) == noise
    assert repr(noise) == "InputNoise(scale=..., features=('age', 'income'), integers={'age': 0.5})"
    vector = np.ones(3)
    kept = InputNoise(scale=vector)
    vector[0] = 7.0
    assert kept.radii(kept.coordinates(NET)).tolist() == [1, 1, 1]


def test_only_the_same_model_is_contained():
    noise, other = InputNoise(), FeedForward([[[1.0], [-2.0], [0.5 + 1e-12]]], [[0.0]])
    assert noise.contains(NET.parameters, NET.parameters, 1.0)
    assert not noise.contains(NET.parameters, other.parameters, 1e6)


# -- certificates ------------------------------------------------------------------------------------------------


def test_certificates_decide_as_geometry_says():
    # margin 1 + delta (u - v) fails where u - v < -1 / delta: a triangle of legs 2 - 1 / delta in a square of area 4
    net = FeedForward([[[1.0], [-1.0]]], [[0.0]])
    for delta in (0.4, 0.6, 0.8, 1.0, 2.0):
        share = 1 - max(0.0, 2 - 1 / delta) ** 2 / 8
        for coverage in (0.7, 0.9, 0.95, 0.99):
            got = apas.certify(
                net, [[2.0, 1.0]], delta, target=1, shifts=InputNoise(), method=Sampling(coverage=coverage), rng=2
            )[0]
            assert got.verdict is (Verdict.CERTIFIED if share >= coverage else Verdict.REFUTED), (delta, coverage)


def test_integers_decide_too():
    # 1.5 - step with steps -2..2: fails for one step in five
    net = FeedForward([[[-1.0]]], [[2.5]])
    for coverage, verdict in ((0.78, Verdict.CERTIFIED), (0.82, Verdict.REFUTED)):
        got = apas.certify(
            net, [[1.0]], 2.0, target=1, shifts=InputNoise(integers=[0]), method=Sampling(coverage=coverage), rng=0
        )[0]
        assert got.verdict is verdict
    assert "feature 0 in whole steps" in got.sentence()
    assert "the model does not move" in got.sentence()


def test_evidence_does_not_depend_on_rows_or_jobs():
    rng = np.random.default_rng(0)
    net = FeedForward([rng.normal(size=(3, 5)), rng.normal(size=(5, 1))], [rng.normal(size=5), [0.2]])
    rows = rng.normal(size=(30, 3))
    asked = {"target": "predicted", "shifts": InputNoise(integers=[1]), "rng": 5}
    whole = apas.certify(net, rows, 0.4, **asked)
    assert whole == apas.certify(net, rows, 0.4, n_jobs=2, **asked)
    assert [c.evidence for c in apas.certify(net, rows[7:9], 0.4, **asked)] == [c.evidence for c in whole[7:9]]
    assert {c.verdict for c in whole} == {Verdict.CERTIFIED, Verdict.REFUTED}


def test_a_witness_can_be_replayed():
    noise = InputNoise(integers=["children"])
    got = apas.certify(NET, X[:1], 2.5, target=1, shifts=noise, rng=0)[0]
    assert got.verdict is Verdict.REFUTED
    direction = got.witness.direction(NET)
    moved = noise.moved(NET, X[:1], direction[None, :], 2.5)[0]
    assert got.witness.margin(NET, X[:1], 1) == NET.margin(moved, 1)[0] < 0
    assert np.array_equal(got.witness.parameters(NET), NET.parameters.values)


def test_the_largest_noise():
    # margin 1 + delta (u - v): P >= 0.95 up to 2 - 1 / delta = sqrt(0.4)
    net = FeedForward([[[1.0], [-1.0]]], [[0.0]])
    truth = 1 / (2 - np.sqrt(0.4))
    method = Sampling(coverage=0.95, confidence=0.99, n_samples=4000)
    found = apas.max_shift(net, [[2.0, 1.0]], target=1, shifts=InputNoise(), method=method, rng=1)[0]
    assert 0.9 * truth < found.delta <= truth <= found.upper < 1.1 * truth
    assert apas.max_shift(net, [[2e9, 1.0]], target=1, shifts=InputNoise(), rng=1)[0].delta == 10.0


def test_robust_fraction_and_output_range():
    net = FeedForward([[[1.0], [-1.0]]], [[0.0]])
    deltas = np.array([0.5, 1.0, 2.0])
    curve = apas.robust_fraction(net, [[2.0, 1.0]], deltas, target=1, shifts=InputNoise(), rng=0)[0]
    truth = 1 - (2 - 1 / deltas) ** 2 / 8
    assert (curve.lower <= truth).all()
    assert (truth <= curve.upper).all()
    assert "of the row" in curve.sentence()
    found = output_range(net, [[2.0, 1.0]], 0.5, target=1, shifts=InputNoise(), rng=0)[0]
    assert 0.0 <= found.low < 0.1 < 1.9 < found.high <= 2.0


def test_any_model_that_gives_margins():
    class Plain:
        classes, n_features, parameters = (0, 1), 3, NET.parameters

        def margin(self, X, target):
            return NET.margin(X, target)

        def shifted_margins(self, X, target, directions, delta):
            raise AssertionError("the model does not move")

    ours, theirs = (apas.certify(net, X, 0.5, target=1, shifts=InputNoise(), rng=0) for net in (Plain(), NET))
    assert [c.evidence for c in ours] == [c.evidence for c in theirs]


@pytest.mark.parametrize("method", ["interval", "linear", "attack", "exact", "enumeration"])
def test_nothing_speaks_of_every_noise_in_whole_steps(method):
    with pytest.raises(Unsupported, match="InputNoise"):
        apas.certify(NET, X, 0.1, target=1, shifts=InputNoise(integers=[0]), method=method)


def test_the_band_grows_with_the_noise():
    far = InputNoise(scale=[0.0, 1e6, 0.0]).magnitudes(NET, None, X, 1, 1.0)
    np.testing.assert_allclose(far, NET.margin_scale(np.add(np.abs(X), [0.0, 1e6, 0.0]), np.zeros(4)))


def test_a_trained_network():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 3))
    net = MLPClassifier((4,), max_iter=300, tol=1e-2, random_state=0).fit(data, (data[:, 0] > 0).astype(int))
    rows = data[net.predict(data) == 1][:10]
    certificates = apas.certify(net, rows, 0.05, target=1, shifts=InputNoise(), rng=0)
    for row, certificate in zip(rows, certificates, strict=True):
        if certificate.is_certified:
            moved = row + rng.uniform(-0.05, 0.05, size=(2000, 3))
            assert (net.predict(moved) == 1).mean() > 0.98
