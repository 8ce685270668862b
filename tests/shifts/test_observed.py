"""Models that exist: each answers for itself, in its own units, and what cannot be compared is refused."""

import json
import pickle
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from conftest import resolve
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

import apas
from apas import FeedForward, GuaranteeWarning, InputError
from apas._random import Stream
from apas.shifts.base import Magnitudes, OnPoints, OtherMoves, ShiftSet, coordinates, drawn_margins
from apas.shifts.observed import ObservedShifts
from apas.shifts.retraining import RetrainedModels

STREAM = Stream(1, "certify")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3)) * [1.0, 10.0, 100.0]
Y = (X[:, 0] + 0.1 * X[:, 1] > 0).astype(int)


def network(seed, sizes=(3, 4, 1), **options):
    rng = np.random.default_rng(seed)
    pairs = list(zip(sizes, sizes[1:], strict=False))
    return FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs], **options)


BASE = network(0)
OTHERS = [network(seed) for seed in range(1, 6)]


def margins(shifts, model, points, target, numbers, delta=1.0):
    encoded = apas.models.base.encoded_rows(model, points)[1]
    directions = np.array(numbers, dtype=float)[:, None]
    return drawn_margins(shifts, model, points, encoded, target, directions, delta)


# -- the models themselves ---------------------------------------------------------------------------------------


def test_margins_are_each_model_s_own():
    shifts = ObservedShifts(OTHERS)
    got = margins(shifts, BASE, X, 1, range(5))
    assert np.array_equal(got, [other.margin(X, 1) for other in OTHERS])
    assert np.array_equal(margins(shifts, BASE, X, 1, [3, 0]), got[[3, 0]])
    assert np.array_equal(shifts.margins(BASE, X, 1, np.arange(5.0)[:, None], 1.0), got)


def test_a_target_per_row():
    target = np.array([0, 1] * 40, dtype=object)
    got = margins(ObservedShifts(OTHERS), BASE, X, target, [2])[0]
    assert np.array_equal(got, np.where(np.arange(80) % 2, 1, -1) * OTHERS[2].margin(X, 1))


def test_any_architecture():
    models = [network(7, (3, 9, 5, 1)), network(8, (3, 1)), LogisticRegression().fit(X, Y), RidgeClassifier().fit(X, Y)]
    got = margins(ObservedShifts(models), BASE, X, 1, range(4))
    for line, model in zip(got, models, strict=True):
        assert np.array_equal(line, apas.as_model(model).margin(X, 1))
    assert np.array_equal(got[2] >= 0, models[2].predict(X) == 1)


def test_pipelines_read_the_rows_with_their_own_preprocessing():
    halves = [(X[:40], Y[:40]), (X[40:], Y[40:])]
    scalers = [StandardScaler(), MinMaxScaler((-1, 2))]
    base = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    models = [make_pipeline(s, LogisticRegression()).fit(*half) for s, half in zip(scalers, halves, strict=True)]
    shifts = ObservedShifts(models)
    model = apas.as_model(base)
    got = margins(shifts, model, X, 1, [0, 1])
    for line, pipeline in zip(got, models, strict=True):
        np.testing.assert_allclose(line, pipeline.decision_function(X), rtol=1e-12)
    with pytest.raises(InputError, match=re.escape("but `models[0]` has another preprocessing")):
        shifts.margins(model, model.encode(X), 1, np.zeros((1, 1)), 1.0)


def test_frames_with_columns_of_texts():
    frame = pd.DataFrame({"income": X[:, 1], "home": np.where(X[:, 0] > 0, "own", "rent"), "debt": X[:, 2]})
    encoder = ColumnTransformer(
        [("numbers", StandardScaler(), ["income", "debt"]), ("home", OneHotEncoder(), ["home"])]
    )
    base = make_pipeline(encoder, LogisticRegression()).fit(frame, Y)
    # another encoding of the same columns: fewer features in model units
    plain = make_pipeline(ColumnTransformer([("n", MinMaxScaler(), ["income"])]), LogisticRegression()).fit(frame, Y)
    model = apas.as_model(base)
    got = margins(ObservedShifts([base, plain]), model, frame[["debt", "home", "income"]], 1, [0, 1])
    for line, pipeline in zip(got, (base, plain), strict=True):
        np.testing.assert_allclose(line, pipeline.decision_function(frame), rtol=1e-9)


def test_draw_number_i_is_model_number_i_and_none_comes_twice():
    shifts = ObservedShifts(OTHERS)
    what = coordinates(shifts, BASE)
    assert shifts.directions(what, STREAM, 0, 5).ravel().tolist() == [0, 1, 2, 3, 4]
    assert shifts.directions(what, Stream(99, "search"), 3, 5).ravel().tolist() == [3, 4]
    assert shifts.directions(what, STREAM, 3, 128).ravel().tolist() == [3, 4]  # as far as there are models
    assert shifts.directions(what, STREAM, 5, 6).shape == (0, 1)


def test_a_class_that_a_model_never_saw_is_never_given():
    base = network(0, (3, 3), output="softmax")
    two = FeedForward([np.ones((3, 2))], [[0.0, 1.0]], output="softmax", classes=[0, 2])
    target = np.array([0, 1, 2, 1], dtype=object)
    got = margins(ObservedShifts([two]), base, X[:4], target, [0])[0]
    assert np.isneginf(got[[1, 3]]).all()
    assert np.array_equal(got[[0, 2]], two.margin(X[[0, 2]], target[[0, 2]]))


def test_models_of_another_question_are_refused():
    other = network(1, classes=["no", "yes"])
    with pytest.raises(
        InputError,
        match=re.escape(
            "`models[0]` of ObservedShifts must know the classes of the base model (0, 1), got ('no', 'yes')"
        ),
    ):
        margins(ObservedShifts([other]), BASE, X, 1, [0])
    with pytest.raises(
        InputError, match=re.escape("`models[0]` of ObservedShifts cannot read the rows: `X` must have 4 columns")
    ):
        margins(ObservedShifts([network(1, (4, 1))]), BASE, X, 1, [0])


# -- another delta -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.25, 0.5, 2.0])
def test_another_delta_scales_the_difference(delta):
    got = margins(ObservedShifts(OTHERS), BASE, X, 1, range(5), delta)
    for line, other in zip(got, OTHERS, strict=True):
        values = BASE.parameters.values + delta * (other.parameters.values - BASE.parameters.values)
        np.testing.assert_allclose(line, BASE.with_parameters(values).margin(X, 1), rtol=1e-9, atol=1e-9)


def test_a_delta_per_row(monkeypatch):
    shifts, deltas = ObservedShifts(OTHERS), np.array([1.0, 0.5, 1.0, 2.0] * 20)
    monkeypatch.setattr("apas.shifts.observed.NUMBERS", 50)  # two differences at a time
    got = margins(shifts, BASE, X, 1, range(5), deltas)
    for delta in (0.5, 1.0, 2.0):
        rows = deltas == delta
        np.testing.assert_allclose(got[:, rows], margins(shifts, BASE, X[rows], 1, range(5), delta), rtol=1e-9)


SCALED = make_pipeline(StandardScaler(), LogisticRegression())
UNLIKE = {
    "layout": (BASE, network(1, (3, 5, 1)), "the shapes of `models[0]` is another"),
    "activation": (BASE, network(1, activation="tanh"), "the activation of `models[0]` is another"),
    "threshold": (BASE, network(1, threshold=0.7), "the threshold of `models[0]` is another"),
    "preprocessing": (partial(SCALED.fit, X, Y), partial(make_pipeline(StandardScaler(), LogisticRegression()).fit, X[:40], Y[:40]), "the preprocessing of `models[0]` is another"),
}  # fmt: skip


@pytest.mark.parametrize(("base", "other", "message"), UNLIKE.values(), ids=UNLIKE)
def test_another_delta_needs_models_alike(base, other, message):
    base, other = resolve(base), resolve(other)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        margins(ObservedShifts([other]), apas.as_model(base), X, 1, [0], 0.5)
    assert str(caught.value).startswith("`delta` must be 1")
    assert np.isfinite(margins(ObservedShifts([other]), apas.as_model(base), X, 1, [0], 1.0)).all()


# -- what else a set of shifts knows -----------------------------------------------------------------------------


def test_parameters_of_a_draw():
    shifts, direction = ObservedShifts(OTHERS), np.array([2.0])
    assert np.array_equal(shifts.shifted_parameters(BASE, direction, 1.0), OTHERS[2].parameters.values)
    half = shifts.shifted_parameters(BASE, direction, 0.5)
    np.testing.assert_allclose(half, (BASE.parameters.values + OTHERS[2].parameters.values) / 2)


def test_magnitudes_are_the_largest_of_all_models():
    large = FeedForward([1e6 * OTHERS[0].weights[0], OTHERS[0].weights[1]], OTHERS[0].biases)
    shifts, still = ObservedShifts([OTHERS[0], large, network(4, (3, 1))]), np.zeros(len(large.parameters))
    np.testing.assert_allclose(shifts.magnitudes(BASE, X, X, 1, 1.0), large.margin_scale(X, still))
    reach = np.abs(OTHERS[0].parameters.values - BASE.parameters.values)
    scaled = ObservedShifts([OTHERS[0]]).magnitudes(BASE, X, X, 1, 3.0)
    np.testing.assert_allclose(scaled, BASE.margin_scale(X, reach, 3.0))

    class Plain:
        classes, n_features, parameters = (0,), 3, BASE.parameters
        margin, shifted_margins = BASE.margin, BASE.shifted_margins

    unknown = ObservedShifts([Plain()]).magnitudes(BASE, X, X, 1, 1.0)
    np.testing.assert_allclose(unknown, BASE.margin_scale(X, np.zeros(len(BASE.parameters))))


def test_contains_the_listed_models_alone():
    shifts = ObservedShifts(OTHERS)
    base = BASE.parameters
    assert all(shifts.contains(base, other.parameters, 1.0) for other in OTHERS)
    assert not shifts.contains(base, network(9).parameters, 1.0)
    assert not shifts.contains(base, network(9, (3, 1)).parameters, 1.0)
    half = BASE.with_parameters(base.values + 0.5 * (OTHERS[1].parameters.values - base.values))
    assert shifts.contains(base, half.parameters, 0.5)
    assert not shifts.contains(base, half.parameters, 1.0)


def test_words():
    what = coordinates(ObservedShifts(OTHERS), BASE)
    assert ObservedShifts(OTHERS).measure(what) == (
        "models of the process that these 5 came from, taken to be independent draws of it"
    )
    assert ObservedShifts(OTHERS).region(what) == "the 5 listed models"
    assert ObservedShifts(OTHERS[:1]).region(what) == "the one listed model"
    made = RetrainedModels(OTHERS, "a network drawn at random", 7)
    known = "models that this process on this data set produces: a network drawn at random"
    assert ObservedShifts(made).measure(what) == known
    assert ObservedShifts(made[:3]).measure(what) == known  # a part by number comes from the same process
    assert ObservedShifts(OTHERS, process="a network drawn at random").measure(what) == known
    assert ObservedShifts(made, process="weekly training").process == "weekly training"
    assert repr(ObservedShifts(made)) == "ObservedShifts(5 models)"


def test_sets_are_values():
    shifts = ObservedShifts(OTHERS)
    for kind in (ShiftSet, OtherMoves, OnPoints, Magnitudes):
        assert isinstance(shifts, kind)
    assert shifts == ObservedShifts(list(OTHERS)) == pickle.loads(pickle.dumps(shifts))
    assert hash(shifts) == hash(ObservedShifts(OTHERS))
    assert shifts != ObservedShifts(OTHERS[:4])
    assert shifts != ObservedShifts(OTHERS, process="weekly training")
    assert json.loads(json.dumps(shifts.to_dict())) == shifts.to_dict()
    assert len(shifts) == len(shifts.to_dict()["models"]) == 5
    assert np.isinf(shifts.radii(coordinates(shifts, BASE))).all()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "`models` of ObservedShifts must be a list of at least one model, got []"),
        (BASE, "`models` of ObservedShifts must be a list of at least one model"),
        ("models.json", "`models` of ObservedShifts must be a list of at least one model, got 'models.json'"),
        ([BASE, "later.json"], "`models[1]` of ObservedShifts cannot be read: `model` must be a model, got the path"),
        ([MLPClassifier()], "`models[0]` of ObservedShifts cannot be read: the model must be fitted"),
    ],
)
def test_bad_models(models, message):
    with pytest.raises(InputError, match=re.escape(message)):
        ObservedShifts(models)


def test_bad_process():
    with pytest.raises(InputError, match="`process` of ObservedShifts must say how the models were made, got ' '"):
        ObservedShifts(OTHERS, process=" ")


def test_the_same_model_twice_is_warned_about():
    with pytest.warns(GuaranteeWarning, match="only 2 of the 3 models of ObservedShifts are different"):
        ObservedShifts([OTHERS[0], OTHERS[1], OTHERS[0]])


def test_a_share_of_the_way_to_another_layout_is_nowhere():
    other = network(9, (3, 1))
    assert ObservedShifts([other]).contains(network(0).parameters, other.parameters, 1.0)
    assert not ObservedShifts([other]).contains(network(0).parameters, other.parameters, 0.5)
