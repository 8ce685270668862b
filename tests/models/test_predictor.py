"""Classifiers that can only predict: each against its own library, ties and thresholds included."""

import copy
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from conftest import library, resolve, spread
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import apas
from apas.models.base import Model, offers
from apas.models.digest import model_digest, unidentified
from apas.models.predictor import CODES, Cells

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
ROWS = RNG.normal(size=(200, 4))
LABELS = {2: (X[:, 0] + X[:, 1] > 0).astype(int), 3: np.digitize(X[:, 0], [-0.5, 0.5])}
TEXTS = np.array(["no", "perhaps", "yes"])


def made(name, **settings):
    """A classifier of a library that need not be there."""
    module, kind = name.split(".")
    return getattr(library(module), kind)(**settings)


PAIR = [("a", GaussianNB()), ("b", LogisticRegression())]
BOOSTERS = {
    "xgboost": partial(made, "xgboost.XGBClassifier", n_estimators=5, n_jobs=1),
    "lightgbm": partial(made, "lightgbm.LGBMClassifier", n_estimators=5, n_jobs=1, verbose=-1),
    "catboost": partial(
        made, "catboost.CatBoostClassifier", iterations=5, thread_count=1, verbose=0, allow_writing_files=False
    ),
}
MODELS = {
    **BOOSTERS,
    "forest": partial(RandomForestClassifier, 10, random_state=0),  # ten votes are split evenly now and then
    "extra trees": partial(ExtraTreesClassifier, 4, random_state=0),
    "boosting": partial(GradientBoostingClassifier, n_estimators=5),
    "histograms": partial(HistGradientBoostingClassifier, max_iter=5),
    "ada": partial(AdaBoostClassifier, n_estimators=4, random_state=0),
    "bagging": partial(BaggingClassifier, n_estimators=4, random_state=0),
    "neighbours": partial(KNeighborsClassifier, 4),
    "kernel": partial(SVC),
    "centroids": partial(NearestCentroid),  # which go by another distance than their scores
    "bayes": partial(GaussianNB),
    "quadratic": partial(QuadraticDiscriminantAnalysis),
    "process": partial(GaussianProcessClassifier),
    "calibrated": partial(CalibratedClassifierCV, RandomForestClassifier(4, random_state=0), cv=2),
    "stacking": partial(StackingClassifier, PAIR, cv=2),
    "votes": partial(VotingClassifier, PAIR),
    "soft votes": partial(VotingClassifier, PAIR, voting="soft"),
    "pipeline": partial(make_pipeline, StandardScaler(), RandomForestClassifier(4, random_state=0)),
}
WITH_THRESHOLD = {
    "fixed": partial(FixedThresholdClassifier, GaussianNB(), threshold=0.3),
    "fixed, of class 0": partial(FixedThresholdClassifier, GaussianNB(), threshold=0.3, pos_label=0),
    "fixed score": partial(FixedThresholdClassifier, SVC(), threshold=0.2),
    "tuned": partial(TunedThresholdClassifierCV, GradientBoostingClassifier(n_estimators=5), cv=2),
}


def fit(name, classes, texts=False):
    labels = TEXTS[LABELS[classes]] if texts else LABELS[classes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a library says about itself is its own
        return copy.deepcopy(resolve({**MODELS, **WITH_THRESHOLD}[name])).fit(X, labels)


CASES = [(name, classes) for name in MODELS for classes in (2, 3)] + [(name, 2) for name in WITH_THRESHOLD]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("name", "classes"), CASES)
def test_margins_decide_as_the_library_does(name, classes):
    estimator = fit(name, classes, texts=name not in ("xgboost", "fixed, of class 0"))
    model = apas.as_model(estimator)
    rows = model.encode(ROWS)
    margins = np.stack([model.margin(rows, label) for label in model.classes], axis=1)
    said = np.asarray(estimator.predict(ROWS)).reshape(-1).tolist()
    assert np.isfinite(margins).all()
    for row, label in zip(margins, said, strict=True):
        given = model.classes.index(label)
        # exactly one class has a margin above 0, and it is the library's; on a tie, too
        assert [place for place, margin in enumerate(row) if margin > 0] == [given]
    assert model.library_classes(ROWS).tolist() == said
    assert not offers(model, Model)
    assert not unidentified(model)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", spread([*MODELS, *WITH_THRESHOLD], 3))
def test_a_copy_has_the_same_fingerprint_and_another_fit_has_not(name):
    one = fit(name, 2)
    assert model_digest(apas.as_model(copy.deepcopy(one))) == model_digest(apas.as_model(one))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = copy.deepcopy(resolve({**MODELS, **WITH_THRESHOLD}[name])).fit(X[:-20], LABELS[2][:-20])
    assert model_digest(apas.as_model(other)) != model_digest(apas.as_model(one))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", spread([*MODELS, *WITH_THRESHOLD], 3))
def test_an_estimator_that_is_fitted_again_is_not_the_model_any_more(name):
    estimator = fit(name, 2)
    model = apas.as_model(estimator)
    model.margin(model.encode(ROWS), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X[:-20], LABELS[2][:-20])
    with pytest.raises(apas.InputError, match=r"was changed since apas read it; fit a copy, or call apas.as_model ag"):
        model.margin(model.encode(ROWS), 1)


def logit(p):
    return np.log(p) - np.log1p(-p)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", [*BOOSTERS, "boosting", "histograms"])
def test_raw_scores_are_the_logits_of_the_library(name):
    estimator = fit(name, 2)
    model = apas.as_model(estimator)
    margins = model.margin(model.encode(ROWS), 1)
    probability = np.asarray(estimator.predict_proba(ROWS), dtype=np.float64)[:, 1]
    assert margins == pytest.approx(logit(probability), abs=1e-6 if name == "xgboost" else 1e-12)
    scores = apas.as_model(fit(name, 3))
    rows = scores.encode(ROWS)
    told = np.log(np.asarray(fit(name, 3).predict_proba(ROWS), dtype=np.float64))
    for place, label in enumerate(scores.classes):
        others = np.delete(told, place, axis=1).max(axis=1)
        expected = told[:, place] - others
        assert scores.margin(rows, label) == pytest.approx(expected, abs=1e-5 if name == "xgboost" else 1e-9)


@pytest.mark.parametrize("level", [0.3, 0.5, 0.7])
def test_a_threshold_of_the_users(level):
    forest = fit("forest", 2)
    model = apas.as_model(forest, threshold=level)
    probability = forest.predict_proba(ROWS)[:, 1]
    assert (probability == level).any()  # ten trees give tenths
    expected = probability >= level if level != 0.5 else forest.predict(ROWS) == 1
    assert np.array_equal(model.margin(model.encode(ROWS), 1) >= 0, expected)


def test_probabilities_of_0_and_1_have_finite_margins():
    model = apas.Predictor(lambda rows: rows[:, 0], output="probability", classes=(0, 1))
    margins = model.margin(np.array([[0.0], [1e-30], [0.5], [1.0]]), 1)
    assert np.isfinite(margins).all()
    assert (np.diff(margins) >= 0).all()
    assert margins[2] == 0.0


def mixed(rows=60):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"income": rng.integers(1, 99, rows), "debt": rng.normal(size=rows)})
    frame["housing"] = np.array(["rent", "own", "free"])[rng.integers(0, 3, rows)]
    frame["age"] = pd.Categorical(np.array(["young", "old"])[rng.integers(0, 2, rows)])
    return frame, (frame["income"] > 40).to_numpy().astype(int)


def test_cells_come_back_as_they_were():
    frame, _ = mixed()
    frame.loc[3, "debt"] = np.nan
    frame.loc[4, "housing"] = None
    cells = Cells()
    codes = cells.encode(frame)
    assert np.isfinite(codes).all()
    assert (codes[:, 2] <= CODES).all()
    again = cells.decode(codes, list(frame.columns))
    assert again["income"].tolist() == frame["income"].tolist()
    assert again["age"].dtype == frame["age"].dtype
    assert again["age"].tolist() == frame["age"].tolist()
    assert np.array_equal(again["debt"], frame["debt"], equal_nan=True)
    assert again["housing"].isna().tolist() == frame["housing"].isna().tolist()
    known = frame["housing"].notna()
    assert again["housing"][known].tolist() == frame["housing"][known].tolist()
    # the code of a cell is that of any process, and in any order
    assert np.array_equal(Cells().encode(frame.iloc[::-1])[::-1], codes)


@pytest.mark.parametrize("cell", [np.inf, -np.inf, -(2.0**601)])
def test_numbers_beyond_all_data_are_refused(cell):
    with pytest.raises(apas.InputError, match="`X` must hold finite numbers or missing ones"):
        Cells().encode(np.array([[1.0, cell]]))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", BOOSTERS)
def test_tables_with_categories_and_missing_values(name):
    frame, labels = mixed()
    frame["housing"] = frame["housing"].astype("category") if name != "catboost" else frame["housing"]
    frame.loc[::7, "debt"] = np.nan
    estimator = resolve(BOOSTERS[name])
    if name == "xgboost":
        estimator.set_params(enable_categorical=True)
    if name == "catboost":
        frame["age"] = frame["age"].astype(str)
        estimator.set_params(cat_features=["housing", "age"])
    estimator.fit(frame, labels)
    model = apas.as_model(estimator)
    assert model.feature_names == tuple(frame.columns)
    margins = model.margin(model.encode(frame), 1)
    assert np.array_equal(margins >= 0, np.asarray(estimator.predict(frame)) == 1)
    # from a file, categories come as texts, and a part of the rows has a part of them
    bare = frame.iloc[:9].astype({"housing": object})
    again = apas.as_model(estimator)
    assert np.array_equal(again.margin(again.encode(bare), 1), margins[:9])
    refits = apas.retrain(estimator, frame, labels, n_models=2, rng=0)
    sampled = {"shifts": apas.ObservedShifts(refits), "method": "exact", "source": "neighbours"}
    found = apas.generate(estimator, frame[margins < 0].head(2), None, background=frame, target=1, **sampled)
    assert found.points["housing"].dtype == frame["housing"].dtype
    assert set(estimator.predict(found.points[found.found])) <= {1}


def test_a_forest_behind_an_encoder_reads_raw_rows():
    frame, labels = mixed()
    encoder = make_column_transformer((OneHotEncoder(), ["housing", "age"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, RandomForestClassifier(5, random_state=0)).fit(frame, labels)
    model = apas.as_model(pipeline)
    assert model.n_raw_features == 4
    assert model.n_features == 7
    margins = model.margin(model.encode(frame), 1)
    assert np.array_equal(margins >= 0, pipeline.predict(frame) == 1)


def refits(count, process=None):
    made = apas.retrain(RandomForestClassifier(5), X, LABELS[2], n_models=count, rng=0)
    return made, apas.ObservedShifts(made, process=process)


def test_refits_are_certified():
    forest = fit("forest", 2)
    made, shifts = refits(20)
    rows = ROWS[forest.predict(ROWS) == 1][:12]
    exact = apas.certify(forest, rows, None, target=1, shifts=shifts, method="exact")
    kept = np.array([[refit.library_classes(rows[i : i + 1])[0] == 1 for refit in made] for i in range(len(rows))])
    assert [c.is_certified for c in exact] == kept.all(axis=1).tolist()
    assert not kept.all()  # else nothing was tried
    some = apas.robust_fraction(forest, rows, [1.0], target=1, shifts=shifts)
    for curve, share in zip(some, kept.mean(axis=1), strict=True):
        assert curve.lower[0] <= share <= curve.upper[0]


def test_workers_give_the_same_answers():
    forest = fit("forest", 2)
    made, _ = refits(3)
    shifts = apas.ObservedShifts(made)
    method = apas.Sampling(coverage=0.5, confidence=0.5)
    settings = {"target": "predicted", "shifts": shifts, "method": method, "rng": 0}
    alone, together = (apas.certify(forest, ROWS[:8], 1, n_jobs=jobs, **settings) for jobs in (1, 2))
    assert list(alone) == list(together)


def test_rows_that_the_library_cannot_take_are_refused_in_one_sentence():
    forest = fit("forest", 2)
    settings = {"target": 1, "shifts": apas.ObservedShifts([forest]), "method": "exact"}
    with pytest.raises(apas.InputError, match="^`X` could not be read by RandomForestClassifier: could not convert"):
        apas.certify(forest, [["a", "b", "c", "d"]], None, **settings)
    with pytest.raises(apas.InputError, match="^`X` must hold finite numbers or missing ones, got an infinite one"):
        apas.certify(forest, [[1.0, 2.0, 3.0, np.inf]], None, **settings)


SEVERAL = {
    "forest": partial(RandomForestClassifier, 2),
    "xgboost": partial(made, "xgboost.XGBClassifier", n_estimators=2),
    "catboost": partial(
        made,
        "catboost.CatBoostClassifier",
        iterations=2,
        loss_function="MultiLogloss",
        verbose=0,
        allow_writing_files=False,
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_labels_at_once_are_refused(name):
    estimator = resolve(SEVERAL[name]).fit(X, np.stack([LABELS[2], 1 - LABELS[2]], axis=1))
    with pytest.raises(apas.Unsupported, match="fitted for several labels at once; certify one classifier per label"):
        apas.as_model(estimator)


def test_one_class_is_refused():
    with pytest.raises(apas.InputError, match="must tell classes apart, but this DecisionTreeClassifier was fitted to"):
        apas.as_model(DecisionTreeClassifier().fit(X, np.zeros(len(X), dtype=int)))


def test_part_of_the_way_to_a_refit_is_refused():
    _, shifts = refits(2)
    with pytest.raises(apas.InputError, match="`delta` must be 1 for ObservedShifts of models that can only predict"):
        apas.certify(fit("forest", 2), ROWS[:2], 0.5, target="predicted", shifts=shifts, method="exact")


BAD = {
    "no function": ((3,), {"output": "score", "classes": (0, 1)}, "`function` of Predictor must be a function"),
    "no such output": ((len,), {"output": "logit", "classes": (0, 1)}, "`output` of Predictor must say"),
    "one class": ((len,), {"output": "score", "classes": (0,)}, "`classes` of Predictor must hold two"),
    "a text": ((len,), {"output": "score", "classes": "ab"}, "`classes` of Predictor must hold two"),
    "twice": ((len,), {"output": "score", "classes": (1, 1)}, "`classes` of Predictor must hold two"),
    "a level of classes": (
        (len,),
        {"output": "class", "classes": (0, 1), "threshold": 0.5},
        "`threshold` of Predictor",
    ),
}


@pytest.mark.parametrize(("given", "named", "said"), BAD.values(), ids=BAD)
def test_misuse_of_a_function(given, named, said):
    with pytest.raises(apas.InputError, match=said):
        apas.Predictor(*given, **named)


@pytest.mark.parametrize(
    ("numbers", "output", "said"),
    [
        (np.zeros(3), "score", "must give one number per row"),
        (np.zeros((2, 5)), "score", "must give one number per row"),
        (np.array([0.5, 1.5]), "probability", r"must give numbers in \[0, 1\]"),
        (np.array([0.5, np.nan]), "probability", r"must give numbers in \[0, 1\]"),
    ],
)
def test_what_a_function_must_give(numbers, output, said):
    model = apas.Predictor(lambda rows: numbers, output=output, classes=(0, 1))
    with pytest.raises(apas.InputError, match=said):
        model.margin(np.zeros((2, 1)), 1)


class TestParametric:
    """A parameter vector and a function of it."""

    CARD = apas.ParametricModel([2.0, -1.0], lambda w, rows: rows @ w, output="score", classes=("no", "yes"))
    NET = apas.FeedForward([[[2.0], [-1.0]]], [None], output="identity", threshold=0.0, classes=("no", "yes"))

    @pytest.mark.parametrize("shifts", ["linf", "l1", "l2", "gaussian"])
    def test_it_is_moved_like_the_network_that_it_is(self, shifts):
        rows = np.random.default_rng(2).normal(size=(6, 2))
        settings = {
            "target": "predicted",
            "shifts": shifts,
            "rng": 0,
            "method": apas.Sampling(n_samples=300, coverage=0.9),
        }
        card = apas.certify(self.CARD, rows, 0.5, **settings)
        net = apas.certify(self.NET, rows, 0.5, **settings)
        assert [c.verdict for c in card] == [c.verdict for c in net]
        assert [c.evidence.failures for c in card] == [c.evidence.failures for c in net]

    def test_named_arrays(self):
        card = apas.ParametricModel(
            {"w": [2.0, -1.0], "b": 0.5}, lambda q, rows: rows @ q["w"] + q["b"], output="score", classes=(0, 1)
        )
        assert card.parameters.names == ("w", "b")
        moved = card.shifted_margins(np.array([[1.0, 1.0]]), 1, np.array([[0.0, 0.0, 1.0]]), 2.0)
        assert moved.tolist() == [[3.5]]

    def test_misuse(self):
        with pytest.raises(apas.InputError, match="`parameters` of ParametricModel must be finite numbers"):
            apas.ParametricModel([np.nan], len, output="score", classes=(0, 1))
        with pytest.raises(apas.InputError, match="`score` of ParametricModel must be a function"):
            apas.ParametricModel([1.0], 3, output="score", classes=(0, 1))
