"""`retrain`: one recipe, independent rows and seeds, the same models whatever the number of workers, none left out."""

from __future__ import annotations

import copy
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import apas
from apas import FeedForward, GuaranteeWarning, InputError
from apas._random import Stream
from apas.datasets import CATEGORICAL, NUMERIC, make_loans
from apas.models.digest import canonical, model_digest
from apas.shifts.distance import data_digest, drawn_rows, drawn_seeds
from apas.shifts.retraining import RetrainedModels, retrain

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = (X[:, 0] + 0.3 * RNG.normal(size=120) > 0).astype(int)
QUICK = MLPClassifier((3,), max_iter=60, tol=1e-1, n_iter_no_change=2, batch_size=20)


def digests(models):
    return [model_digest(model) for model in models]


class Noted:
    """A training that only notes what it got: a model whose weights are the row numbers it saw, and the seed."""

    def __init__(self, rows):
        self.rows = rows

    def __call__(self, X, y, seed):
        assert len(X) == len(y) == self.rows
        assert np.array_equal(np.asarray(X)[:, 0] % 2, np.asarray(y))  # labels go with their rows
        return FeedForward([np.append(np.asarray(X)[:, 0], seed)[:, None]], [[0.0]])


def noted(models):
    """Row numbers (models, rows) and seeds of models from `Noted`."""
    weights = np.array([model.weights[0][:, 0] for model in models])
    return weights[:, :-1].astype(int), weights[:, -1].astype(int)


NUMBERS = np.arange(50.0)[:, None]
ODD = np.arange(50) % 2


# -- rows and seeds ----------------------------------------------------------------------------------------------


def test_rows_are_drawn_with_replacement_and_seeds_differ():
    rows, seeds = noted(retrain(Noted(50), NUMBERS, ODD, n_models=400, rng=1))
    assert stats.chisquare(np.bincount(rows.ravel(), minlength=50)).pvalue > 1e-4
    assert stats.kstest(seeds / 2**32, "uniform").pvalue > 1e-4
    assert len(set(seeds.tolist())) == 400
    assert len({tuple(r) for r in rows.tolist()}) == 400
    # a bootstrap sample leaves out (1 - 1/50)**50 = 36.4 % of the rows
    missing = np.mean([50 - len(set(r)) for r in rows.tolist()]) / 50
    assert abs(missing - 0.98**50) < 5 * 0.05 / np.sqrt(400)
    # neighbours are independent, and rows have nothing to do with seeds
    assert abs(np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]) < 5 / 20
    assert abs(np.corrcoef(rows[:, 0], seeds)[0, 1]) < 5 / 20


def test_without_bootstrap_all_rows_are_seen_and_seeds_differ():
    rows, seeds = noted(retrain(Noted(50), NUMBERS, ODD, n_models=5, bootstrap=False, rng=1))
    assert (rows == np.arange(50)).all()
    assert len(set(seeds.tolist())) == 5


def test_model_number_i_is_a_pure_function_of_the_entropy():
    few, many = (noted(retrain(Noted(50), NUMBERS, ODD, n_models=n, rng=7)) for n in (3, 6))
    assert np.array_equal(few[0], many[0][:3])
    assert np.array_equal(few[1], many[1][:3])
    assert np.array_equal(few[0][2], drawn_rows(Stream(7, "retrain/rows"), 100, 50, 50))
    assert few[1][2] == drawn_seeds(Stream(7, "retrain/seeds"), 2, 1)[0]
    other = noted(retrain(Noted(50), NUMBERS, ODD, n_models=3, rng=8))
    assert not np.array_equal(few[0], other[0])


def test_data_frames_series_and_lists_are_rows_too():
    expected = noted(retrain(Noted(50), NUMBERS, ODD, n_models=2, rng=3))
    frame, series = pd.DataFrame(NUMBERS, index=range(50, 100)), pd.Series(ODD, index=range(7, 57))
    for rows, labels in [(frame, series), (NUMBERS.tolist(), ODD.tolist())]:
        got = noted(retrain(Noted(50), rows, labels, n_models=2, rng=3))
        assert np.array_equal(got[0], expected[0])


def test_entropy_from_the_operating_system_is_kept():
    models = retrain(Noted(50), NUMBERS, ODD, n_models=2)
    assert digests(retrain(Noted(50), NUMBERS, ODD, n_models=2, rng=models.entropy)) == digests(models)
    generator = np.random.default_rng(5)
    one, two = (retrain(Noted(50), NUMBERS, ODD, n_models=2, rng=generator) for _ in range(2))
    assert digests(one) != digests(two)


# -- scikit-learn ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    return retrain(QUICK, X, Y, n_models=4, rng=2)


def test_models_are_those_of_scikit_learn(models):
    for i, model in enumerate(models):
        rows = drawn_rows(Stream(2, "retrain/rows"), 120 * i, 120, 120)
        seed = drawn_seeds(Stream(2, "retrain/seeds"), i, 1)[0]
        by_hand = MLPClassifier(**{**QUICK.get_params(), "random_state": seed}).fit(X[rows], Y[rows])
        np.testing.assert_allclose(model.parameters.values, apas.as_model(by_hand).parameters.values, rtol=1e-9)
    assert len(set(digests(models))) == 4


def test_the_models_do_not_depend_on_the_number_of_workers(models):
    assert digests(retrain(QUICK, X, Y, n_models=4, rng=2, n_jobs=2)) == digests(models)


def test_a_seed_of_the_estimator_s_own_is_replaced(models):
    fixed = MLPClassifier(**{**QUICK.get_params(), "random_state": 0})
    assert digests(retrain(fixed, X, Y, n_models=4, rng=2)) == digests(models)
    assert fixed.random_state == 0


def test_every_seed_in_a_pipeline_is_set():
    pipeline = make_pipeline(StandardScaler(), QUICK)
    same = retrain(pipeline, X, Y, n_models=3, bootstrap=False, rng=4)
    assert len(set(digests(same))) == 3
    assert same[0].encode(X[:2]).tolist() == same[1].encode(X[:2]).tolist()  # the same rows, hence the same scaler
    drawn = retrain(pipeline, X, Y, n_models=3, rng=4)
    assert drawn[0].encode(X[:2]).tolist() != drawn[1].encode(X[:2]).tolist()


def test_pipelines_with_columns_of_texts():
    loans = make_loans(200)
    rows = loans.drop(columns="approved")
    texts = OneHotEncoder(handle_unknown="ignore")
    encoder = ColumnTransformer([("numbers", StandardScaler(), list(NUMERIC)), ("texts", texts, list(CATEGORICAL))])
    drawn = retrain(make_pipeline(encoder, LogisticRegression()), rows, loans["approved"], n_models=3, rng=0)
    assert len(set(digests(drawn))) == 3
    assert drawn.process.startswith("a pipeline that ends in LogisticRegression fitted to a bootstrap sample")


@pytest.mark.parametrize("bootstrap", [True, False])
def test_the_estimator_is_never_changed(bootstrap):
    fitted = MLPClassifier(**{**QUICK.get_params(), "random_state": 1}).fit(X, Y)
    before = copy.deepcopy(canonical(fitted))
    for warm_start in (False, True):
        retrain(fitted, X, Y, n_models=2, bootstrap=bootstrap, warm_start=warm_start, rng=0)
    assert canonical(fitted) == before


def test_warm_start_goes_on_from_the_fitted_model():
    fitted = MLPClassifier(**{**QUICK.get_params(), "random_state": 1}).fit(X, Y)
    base = apas.as_model(fitted).parameters.values
    cold, warm = (retrain(fitted, X, Y, n_models=3, warm_start=w, rng=0) for w in (False, True))
    far, near = ([np.abs(m.parameters.values - base).max() for m in models] for models in (cold, warm))
    assert max(near) < min(far)
    assert "trained further from the fitted model on a bootstrap sample" in warm.process
    assert len(set(digests(warm))) == 3


def test_warm_start_of_a_pipeline_keeps_its_preprocessing():
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(**{**QUICK.get_params(), "random_state": 1})).fit(X, Y)
    warm = retrain(pipeline, X, Y, n_models=2, warm_start=True, rng=0)
    for model in warm:
        assert np.array_equal(model.encode(X), pipeline[0].transform(X))
    assert len(set(digests(warm))) == 2
    bare = make_pipeline(SGDClassifier(random_state=0)).fit(X, Y)
    assert len(set(digests(retrain(bare, X, Y, n_models=2, warm_start=True, rng=0)))) == 2


# -- what a list of models knows ---------------------------------------------------------------------------------


def test_process_in_words(models):
    data = data_digest(X, Y)
    assert (
        models.process
        == f"MLPClassifier fitted to a bootstrap sample of the same 120 rows (data {data}), with a new seed"
    )
    plain = retrain(QUICK, X, Y, n_models=2, bootstrap=False, rng=0)
    assert plain.process == f"MLPClassifier fitted to the same 120 rows (data {data}), with a new seed"

    def train(X, y, seed):
        return FeedForward([[[float(seed)]]], [[0.0]])

    by_function = retrain(train, X, Y, n_models=2, rng=0)
    assert by_function.process.startswith("the function train fitted to a bootstrap sample of the same 120 rows")


def test_a_list_that_knows_how_it_was_made(models):
    assert isinstance(models, list)
    assert isinstance(models, RetrainedModels)
    assert isinstance(models[1:], RetrainedModels)
    assert models[1:].process == models.process
    assert not isinstance([m for m in models if m], RetrainedModels)  # what may have been chosen does not know
    again = pickle.loads(pickle.dumps(models))
    assert (again.process, again.entropy, digests(again)) == (models.process, models.entropy, digests(models))


def test_data_can_be_told_apart():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    tables = [
        X,
        X[:60],
        -X,
        X.astype(np.float32),
        frame,
        frame.rename(columns={"a": "c"}),
        frame[["a"]],
        frame.assign(b="x"),
    ]
    assert len({data_digest(t) for t in tables}) == len(tables)
    assert data_digest(frame) == data_digest(frame.copy())
    assert data_digest(X) == data_digest(np.asfortranarray(X))
    from scipy.sparse import csr_matrix

    assert data_digest(csr_matrix(X)) != data_digest(csr_matrix(-X))
    assert len(data_digest(X, Y)) == 12


# -- warnings and failures ---------------------------------------------------------------------------------------


def test_trainings_that_do_not_converge_are_reported_once():
    with pytest.warns(ConvergenceWarning) as caught:
        models = retrain(MLPClassifier((3,), max_iter=2), X, Y, n_models=5, rng=0)
    assert [str(w.message) for w in caught] == [
        "5 of 5 trainings of retrain ended before they had converged; they are kept, since a process that leaves some "
        "out is another process."
    ]
    assert len(models) == 5
    assert caught[0].filename == __file__


def test_other_warnings_are_passed_on_once():
    def train(X, y, seed):
        warnings.warn("the data are odd", UserWarning, stacklevel=2)
        return FeedForward([[[float(seed)]]], [[0.0]])

    with pytest.warns(UserWarning, match="odd") as caught:
        retrain(train, X, Y, n_models=5, rng=0)
    assert [str(w.message).split(";")[0] for w in caught] == ["5 of 5 trainings of retrain warned: the data are odd"]


def test_what_joblib_says_of_another_run_is_no_warning_of_a_training():
    def train(X, y, seed):
        # as when the garbage collector meets a run that was given up, which may be at any moment
        warnings.warn(
            "1 tasks have been successfully executed  but not used. Additionally, 0", UserWarning, stacklevel=2
        )
        return FeedForward([[[float(seed)]]], [[0.0]])

    assert len(retrain(train, X, Y, n_models=2, rng=0)) == 2


def test_a_process_without_chance_is_warned_about():
    with pytest.warns(GuaranteeWarning, match="all 3 models of retrain are the same, since nothing in this process"):
        retrain(RidgeClassifier(), X, Y, n_models=3, bootstrap=False, rng=0)
    assert len(set(digests(retrain(RidgeClassifier(), X, Y, n_models=3, rng=0)))) == 3


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_failed_training_is_an_error(n_jobs):
    def train(X, y, seed):
        if X[0, 0] > 10:
            raise ValueError("this sample\ncannot be learned")
        return FeedForward([[[float(seed)]]], [[0.0]])

    assert len(retrain(train, NUMBERS / 100, ODD, n_models=6, rng=1)) == 6
    with pytest.raises(
        InputError, match=r"`estimator` of retrain failed on model number \d: this sample; no model may be left out"
    ):
        retrain(train, NUMBERS, ODD, n_models=6, n_jobs=n_jobs, rng=1)


@pytest.mark.parametrize(("error", "message"), [(KeyError("age"), "KeyError 'age';"), (IndexError(), "IndexError;")])
def test_whatever_a_training_raises_is_told_in_one_sentence(error, message):
    def train(X, y, seed):
        raise error

    with pytest.raises(InputError, match=f"failed on model number 0: {message} no model may be left out"):
        retrain(train, NUMBERS, ODD, n_models=2, rng=1)


def test_a_sample_without_a_class_is_an_error():
    labels = np.zeros(120, dtype=int)
    labels[0] = 1
    with pytest.raises(InputError, match="failed on model number .*no model may be left out"):
        retrain(LogisticRegression(), X, labels, n_models=30, rng=0)


def test_a_training_that_gives_no_model_is_an_error():
    with pytest.raises(apas.Unsupported, match="model number 0 of retrain cannot be read: `model` is a builtins.dict"):
        retrain(lambda X, y, seed: {}, X, Y, n_models=2, rng=0)
    with pytest.raises(apas.Unsupported, match="LinearRegression is a regressor"):
        retrain(LinearRegression(), X, Y, n_models=2, rng=0)


class OwnEstimator:
    def fit(self, X, y):
        return self


REFUSED = {
    "no models": ({"n_models": 0}, "`n_models` of retrain must be an integer of at least 1, got 0"),
    "half a model": ({"n_models": 2.5}, "`n_models` of retrain must be an integer of at least 1, got 2.5"),
    "bootstrap": ({"bootstrap": "yes"}, "`bootstrap` must be True or False, got 'yes'"),
    "warm_start": ({"warm_start": 1}, "`warm_start` must be True or False, got 1"),
    "n_jobs": ({"n_jobs": 0}, "`n_jobs` must be a positive number of workers"),
    "rng": ({"rng": -1}, "`rng` must not be negative"),
    "class": ({"estimator": MLPClassifier}, "`estimator` of retrain must be a scikit-learn classifier or a function (X, y, seed) -> model, got the class MLPClassifier itself"),
    "text": ({"estimator": "mlp"}, "`estimator` of retrain must be a scikit-learn classifier or a function"),
    "own": ({"estimator": OwnEstimator()}, "`estimator` of retrain must be one that scikit-learn can clone, but OwnEstimator is not"),
    "no rows": ({"X": np.empty((0, 3)), "y": []}, "`X` of retrain must hold rows to train on, got shape (0, 3)"),
    "number": ({"X": 3.0}, "`X` of retrain must hold rows to train on, got shape ()"),
    "ragged": ({"X": [[1.0], [1.0, 2.0]]}, "`X` of retrain must hold rows of equal length"),
    "labels": ({"y": Y[:50]}, "`y` of retrain must hold one label per row of `X` (120), got 50"),
    "table of labels": ({"y": X}, "`y` of retrain must be 1-D, one label per row, got 2 dimensions"),
    "warm function": ({"estimator": Noted(120), "warm_start": True}, "`warm_start` of retrain goes with an estimator"),
    "warm ridge": ({"estimator": RidgeClassifier(), "warm_start": True}, "`warm_start` of retrain needs an estimator with that option, but RidgeClassifier has none"),
    "warm unfitted": ({"warm_start": True}, "`estimator` of retrain, from which to go on, cannot be read: the model must be fitted"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input(options, message):
    asked = {"estimator": QUICK, "X": X, "y": Y, "n_models": 2, "rng": 0, **options}
    with pytest.raises(InputError, match=re.escape(message)):
        retrain(asked.pop("estimator"), asked.pop("X"), asked.pop("y"), **asked)
