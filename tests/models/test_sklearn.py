"""scikit-learn's classifiers, read without being touched, against what they say themselves."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, RidgeClassifierCV, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

import apas

QUICK = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=200)


def mlp(activation="relu", hidden=(7,), **options):
    return MLPClassifier(hidden, activation=activation, max_iter=80, learning_rate_init=0.03, random_state=0, **options)


ESTIMATORS = {
    "mlp relu": mlp("relu"),
    "mlp logistic": mlp("logistic", (5, 4)),
    "mlp tanh": mlp("tanh", (4, 3, 3)),
    "mlp identity": mlp("identity", (3, 3)),
    "logistic": LogisticRegression(),
    "logistic without intercept": LogisticRegression(fit_intercept=False),
    "svc": LinearSVC(random_state=0),
    "svc without intercept": LinearSVC(random_state=0, fit_intercept=False),
    "sgd hinge": SGDClassifier(random_state=0),
    "sgd log": SGDClassifier(loss="log_loss", random_state=0),
    "sgd without intercept": SGDClassifier(random_state=0, fit_intercept=False),
    "ridge": RidgeClassifier(),
    "ridge cv": RidgeClassifierCV(),
    "ridge without intercept": RidgeClassifier(fit_intercept=False),
    "perceptron": Perceptron(random_state=0),
    "perceptron without intercept": Perceptron(random_state=0, fit_intercept=False),
    "lda svd": LinearDiscriminantAnalysis(),
    "lda lsqr": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
}
LABELS = {"2 numbers": [0, 1], "2 texts": ["denied", "granted"], "3 numbers": [-1, 4, 9], "3 texts": ["a", "b", "c"]}


def data(classes=2, rows=150, features=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    score = X @ rng.normal(size=(features, classes)) + rng.normal(size=(rows, classes))
    return X, score.argmax(axis=1)


def fit(estimator, X, y):
    from sklearn.base import clone

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(X, y)


def class_of(model, X):
    """The class whose margin says so: the only one that is positive, ties apart."""
    encoded = model.encode(X)
    margins = np.array([model.margin(encoded, label) for label in model.classes])
    assert ((margins > 0).sum(axis=0) == 1).all()
    return np.array(model.classes)[margins.argmax(axis=0)]


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_classifier_keeps_its_mind_and_its_state(name, labels):
    X, y = data(len(labels))
    estimator = fit(ESTIMATORS[name], X, np.array(labels)[y])
    state = joblib.hash(estimator)
    rows = 3 * np.random.default_rng(5).normal(size=(1500, 4))
    model = apas.as_model(estimator)
    assert model.classes == tuple(labels)
    assert all(type(c) is type(label) for c, label in zip(model.classes, labels, strict=True))
    said = estimator.predict(rows)
    assert (class_of(model, rows) == said).all()
    assert len(set(said)) == len(labels)
    certificates = apas.certify(estimator, rows[:20], 1e-7, target=said[:20], method=QUICK, rng=1)
    assert certificates.certified.all()
    assert not apas.certify(model, rows[:20], 50.0, target="predicted", method=QUICK, rng=1).certified.any()
    assert joblib.hash(estimator) == state
    for array in vars(estimator).values():
        if isinstance(array, np.ndarray):
            assert not np.shares_memory(array, model.parameters.values)
            assert array.flags.writeable


@pytest.mark.parametrize(
    "name", ["logistic", "lda svd", "lda lsqr", "sgd log", "mlp relu", "mlp logistic", "logistic without intercept"]
)
@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.8])
@pytest.mark.parametrize("labels", [LABELS["2 numbers"], LABELS["2 texts"]], ids=["numbers", "texts"])
def test_thresholds_are_those_of_predict_proba(name, threshold, labels):
    X, y = data()
    estimator = fit(ESTIMATORS[name], X, np.array(labels)[y])
    rows = np.random.default_rng(6).normal(size=(1500, 4))
    model = apas.as_model(estimator, threshold=threshold)
    expected = np.array(labels)[(estimator.predict_proba(rows)[:, 1] >= threshold).astype(int)]
    assert (class_of(model, rows) == expected).all()
    assert (expected != estimator.predict(rows)).any()
    apas.certify(
        model, rows, 0.1, target="predicted", method=QUICK, rng=0
    )  # agrees with predict_proba, so no complaint


def test_parameters_are_the_estimators_own():
    X, y = data(3)
    network = fit(mlp("tanh", (5, 4)), X, y)
    p = apas.as_model(network).parameters
    assert p.names == tuple(f"layer{i}.{kind}" for i in range(3) for kind in ("weight", "bias"))
    for i in range(3):
        assert np.array_equal(p.tensor(2 * i), network.coefs_[i])
        assert np.array_equal(p.tensor(2 * i + 1), network.intercepts_[i])
    linear = fit(LogisticRegression(), X, y)
    p = apas.as_model(linear).parameters
    assert np.array_equal(p.tensor(0), linear.coef_.T)
    assert np.array_equal(p.tensor(1), linear.intercept_)


def test_linear_margins_are_the_decision_function():
    X, y = data()
    for name in ("logistic", "svc", "sgd hinge", "ridge", "perceptron", "lda svd"):
        estimator = fit(ESTIMATORS[name], X, y)
        model = apas.as_model(estimator)
        np.testing.assert_allclose(model.margin(X, 1), estimator.decision_function(X), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.margin(X, 0), -estimator.decision_function(X), rtol=1e-9, atol=1e-12)


# -- pipelines ---------------------------------------------------------------------------------------------------


def people(rows=160, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": 1000 * rng.gamma(4.0, 10.0, rows),
            "housing": rng.choice(["own", "rent", "free"], rows),
            "age": rng.integers(18, 80, rows),
            "job": rng.choice(["none", "skilled"], rows),
        },
        index=[f"p{i}" for i in range(rows)],
    )
    score = frame["income"] / 20000 + (frame["housing"] == "own") - frame["age"] / 60 + 0.5 * rng.normal(size=rows)
    return frame, np.where(score > score.median(), "granted", "denied")


def encoder(sparse_threshold=0.0):
    return ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["income", "age"]),
            ("texts", OneHotEncoder(sparse_output=sparse_threshold > 0), ["housing", "job"]),
        ],
        sparse_threshold=sparse_threshold,
    )


def halved(X):
    return X / 2


FRAMES = {
    "columns": make_pipeline(encoder(), LogisticRegression()),
    "sparse columns": make_pipeline(encoder(1.0), LogisticRegression()),
    "pandas columns": make_pipeline(encoder(), mlp()).set_output(transform="pandas"),
    "two steps": make_pipeline(encoder(), PolynomialFeatures(2, include_bias=False), LinearSVC(random_state=0)),
    "selection": make_pipeline(encoder(), SelectKBest(f_classif, k=3), RidgeClassifier()),
    "passthrough": Pipeline([("encode", encoder()), ("nothing", "passthrough"), ("model", LogisticRegression())]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_pipelines_on_frames_with_texts(name):
    frame, y = people()
    pipeline = fit(FRAMES[name], frame, y)
    state = joblib.hash(pipeline)
    rows, _ = people(400, seed=9)
    kept = rows.copy()
    model = apas.as_model(pipeline)
    assert model.feature_names == ("income", "housing", "age", "job")
    assert (class_of(model, rows) == pipeline.predict(rows)).all()
    certificates = apas.certify(pipeline, rows[:30], 0.02, target="granted", method=QUICK, rng=3)
    assert list(certificates.to_frame().index) == list(rows.index[:30])
    assert 0 < certificates.certified.sum() < 30
    # the same rows, encoded by hand, on the bare network: the same evidence
    encoded = pipeline[:-1].transform(rows[:30])
    encoded = encoded.toarray() if sparse.issparse(encoded) else np.asarray(encoded)
    bare = apas.certify(model.as_feedforward(), encoded, 0.02, target="granted", method=QUICK, rng=3)
    assert [c.evidence for c in certificates] == [c.evidence for c in bare]
    assert joblib.hash(pipeline) == state
    pd.testing.assert_frame_equal(rows, kept)


NUMERIC = {
    "scaler": make_pipeline(StandardScaler(), LogisticRegression()),
    "scaler, frames inside": make_pipeline(StandardScaler(), mlp()).set_output(transform="pandas"),
    "function": make_pipeline(FunctionTransformer(halved), LinearSVC(random_state=0)),
    "classifier alone": make_pipeline(LogisticRegression()),
    "bare classifier": LogisticRegression(),
}


@pytest.mark.parametrize("rows_as", ["array", "frame"])
@pytest.mark.parametrize("fitted_on", ["array", "frame"])
@pytest.mark.parametrize("name", NUMERIC)
def test_arrays_and_frames_may_be_mixed(name, fitted_on, rows_as):
    # a warning of scikit-learn about feature names would fail this test
    X, y = data(2)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = fit(NUMERIC[name], X if fitted_on == "array" else frame, y)
    rows = X[:15] if rows_as == "array" else frame[:15]
    got = apas.certify(model, rows, 0.05, target="predicted", method=QUICK, rng=0)
    expected = apas.certify(fit(NUMERIC[name], X, y), X[:15], 0.05, target="predicted", method=QUICK, rng=0)
    assert [c.evidence for c in got] == [c.evidence for c in expected]
    assert [c.target for c in got] == [c.target for c in expected]


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("order", ["dcba", "bdac"])
def test_frames_are_matched_by_name(name, order):
    X, y = data(2)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = fit(NUMERIC[name], frame, y)
    straight = apas.certify(model, frame[:10], 0.05, target="predicted", method=QUICK, rng=0)
    turned = apas.certify(model, frame[:10][list(order)], 0.05, target="predicted", method=QUICK, rng=0)
    assert turned == straight
    assert turned.points.columns.tolist() == list("abcd")
    assert straight.feature_names == ("a", "b", "c", "d")


@pytest.mark.parametrize("fitted_on", ["array", "frame"])
@pytest.mark.parametrize("name", ["scaler", "classifier alone", "bare classifier"])
def test_names_may_be_given(name, fitted_on):
    X, y = data(2)
    frame = pd.DataFrame(X, columns=list("abcd"))
    estimator = fit(NUMERIC[name], X if fitted_on == "array" else frame, y)
    model = apas.as_model(estimator, feature_names=["w", "x", "y", "z"])
    assert model.feature_names == ("w", "x", "y", "z")
    renamed = frame[:10].set_axis(["w", "x", "y", "z"], axis=1)[["z", "x", "w", "y"]]
    got = apas.certify(model, renamed, 0.05, target="predicted", method=QUICK, rng=0)
    expected = apas.certify(estimator, X[:10], 0.05, target="predicted", method=QUICK, rng=0)
    assert [c.evidence for c in got] == [c.evidence for c in expected]


def test_an_imputer_lets_missing_raw_values_through():
    X, y = data(2)
    pipeline = make_pipeline(SimpleImputer(), LogisticRegression()).fit(X, y)
    rows = X[:3].copy()
    rows[1, 2] = np.nan
    certificates = apas.certify(pipeline, rows, 1e-6, target="predicted", method=QUICK, rng=0)
    assert certificates.certified.all()
    filled = np.where(np.isnan(rows), X.mean(axis=0), rows)
    np.testing.assert_allclose(apas.as_model(pipeline).encode(rows), filled, rtol=1e-12)


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_rows(form):
    X, y = data(2)
    X[X < 0] = 0.0
    model = LogisticRegression().fit(X, y)
    got = apas.certify(model, form(X[:6]), 0.05, target="predicted", method=QUICK, rng=0)
    assert got == apas.certify(model, X[:6], 0.05, target="predicted", method=QUICK, rng=0)


def test_an_unknown_category_is_an_input_error():
    frame, y = people()
    pipeline = fit(FRAMES["columns"], frame, y)
    rows = frame[:2].copy()
    rows.iloc[1, 1] = "castle"
    with pytest.raises(
        apas.InputError, match="`X` could not go through the pipeline's preprocessing: .*castle"
    ) as caught:
        apas.certify(pipeline, rows, 0.1, target="granted", rng=0)
    assert "\n" not in str(caught.value)


def test_what_is_no_number_is_told_with_its_column():
    frame = pd.DataFrame({"income": [1.0, 2.0, 3.0, 4.0], "debt": [1.0, 0.0, 1.0, 0.0]})
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, [0, 0, 1, 1])
    with pytest.raises(apas.InputError, match="but row 2, column 'debt' is nan; fill or drop it"):
        apas.certify(plain, frame.assign(debt=[1.0, 0.0, np.nan, 0.0]), 0.1, target=1)
    filled = make_pipeline(SimpleImputer(), LogisticRegression()).fit(frame, [0, 0, 1, 1])
    with pytest.raises(apas.InputError, match="preprocessing: Cannot use mean strategy.* '6,500'"):
        apas.certify(filled, frame.assign(income=["1", "6,500", "3", "4"]), 0.1, target=1)


# -- agreement ---------------------------------------------------------------------------------------------------


def test_a_model_that_changed_behind_our_back_is_refused():
    X, y = data(2)
    estimator = LogisticRegression().fit(X, y)
    model = apas.as_model(estimator)
    apas.certify(model, X, 0.01, target=1, method=QUICK, rng=0)
    before = estimator.predict(X)
    estimator.coef_[0, 0] += 1.0
    first = int(np.flatnonzero(estimator.predict(X) != before)[0])
    with pytest.raises(
        apas.InputError, match=f"`model` does not agree with its own library on row {first}: .*class {before[first]}"
    ):
        apas.certify(model, X, 0.01, target=1, method=QUICK, rng=0)


def liar(estimator, row, method="predict"):
    """The estimator, which says something else about one row than its coefficients do."""
    honest = getattr(estimator, method)

    def lie(X):
        said = np.array(honest(X))
        said[row] = np.flip(said[row]) if said.ndim > 1 else estimator.classes_[estimator.classes_ != said[row]][0]
        return said

    setattr(estimator, method, lie)
    return estimator


@pytest.mark.parametrize("name", ["mlp relu", "logistic", "svc", "lda svd"])
@pytest.mark.parametrize("labels", [LABELS["2 texts"], LABELS["3 numbers"]], ids=["2", "3"])
@pytest.mark.parametrize("row", [0, 7])
def test_a_classifier_that_is_not_what_it_seems_is_refused(name, labels, row):
    X, y = data(len(labels))
    estimator = liar(fit(ESTIMATORS[name], X, np.array(labels)[y]), row)
    with pytest.raises(
        apas.InputError, match=f"`model` does not agree with its own library on row {row}: apas reads class"
    ):
        apas.certify(estimator, X[:10], 0.01, target="predicted", method=QUICK, rng=0)


def test_agreement_looks_at_probabilities_when_there_is_a_threshold():
    X, y = data(2)
    model = apas.as_model(liar(LogisticRegression().fit(X, y), 4, "predict_proba"), threshold=0.4)
    with pytest.raises(apas.InputError, match="on row 4"):
        apas.certify(model, X[:10], 0.01, target="predicted", method=QUICK, rng=0)
    calm = apas.as_model(liar(LogisticRegression().fit(X, y), 4, "predict_proba"))
    apas.certify(calm, X[:10], 0.01, target="predicted", method=QUICK, rng=0)


def test_agreement_covers_pipelines():
    frame, y = people()
    pipeline = fit(FRAMES["columns"], frame, y)
    liar(pipeline, 2)
    with pytest.raises(apas.InputError, match="on row 2"):
        apas.certify(pipeline, frame[:5], 0.01, target="granted", method=QUICK, rng=0)


@pytest.mark.parametrize(
    ("margin", "refused"), [(5e-10, False), (-5e-10, False), (0.0, False), (5e-9, True), (-5e-9, True)]
)
def test_rows_on_the_boundary_are_left_out_of_the_agreement(margin, refused):
    estimator = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
    estimator.coef_, estimator.intercept_ = np.array([[1.0]]), np.array([0.0])
    liar(estimator, 0)
    if refused:
        with pytest.raises(apas.InputError, match="on row 0"):
            apas.certify(estimator, [[margin]], 0.1, target=1, method=QUICK, rng=0)
    else:
        assert len(apas.certify(estimator, [[margin]], 0.1, target=1, method=QUICK, rng=0)) == 1


def test_a_threshold_needs_a_probability():
    X, y = data(2)
    for name in ("svc", "sgd hinge", "ridge", "perceptron"):
        with pytest.raises(apas.InputError, match="`threshold` applies to probabilities, but .* gives none"):
            apas.as_model(fit(ESTIMATORS[name], X, y), threshold=0.7)
    X, y = data(3)
    with pytest.raises(apas.InputError, match="`threshold` .*only applies to two classes, but there are 3"):
        apas.as_model(fit(ESTIMATORS["logistic"], X, y), threshold=0.7)


def test_repr_says_what_it_is():
    X, y = data(2)
    assert "LogisticRegression" in repr(apas.as_model(LogisticRegression().fit(X, y)))
    assert "1 preprocessing step" in repr(
        apas.as_model(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y))
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_a_pipeline_that_ends_in_another_library(steps):
    class Module:
        """Nothing that scikit-learn knows."""

    scaler = ("scale", StandardScaler().fit(np.eye(2)))
    pipeline = Pipeline([scaler, ("model", Module())][-steps:])
    with pytest.raises(apas.Unsupported, match=r"the last step of the Pipeline is a .*Module, which is not a scikit"):
        apas.as_model(pipeline)
