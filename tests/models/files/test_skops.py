"""`.skops` files: pipelines come back with their preprocessing, and only known types are made."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import LinearSVC

import apas
from apas.models.digest import LEFTOVERS, model_digest
from apas.models.files.archives import module_of


def dump(estimator, path, **options):
    import skops.io  # here: it imports all of scikit-learn

    skops.io.dump(estimator, path, **options)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 2] > 0, "u", "v")})
TWO = np.where(X[:, 0] > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
MLP = {"hidden_layer_sizes": (3,), "max_iter": 300, "tol": 0.05}
# versions that have these settings warn of what will change if they are not given
NEW_RATIOS = (
    {"l1_ratios": (0,), "use_legacy_attributes": False}
    if hasattr(LogisticRegressionCV(), "use_legacy_attributes")
    else {}
)
NEW_BINS = {"quantile_method": "averaged_inverted_cdf"} if hasattr(KBinsDiscretizer(), "quantile_method") else {}
CLASSIFIERS = [
    LogisticRegression(), LogisticRegressionCV(cv=2, scoring="accuracy", **NEW_RATIOS),
    SGDClassifier(random_state=0), SGDClassifier(loss="log_loss", random_state=0), RidgeClassifier(),
    RidgeClassifierCV(), Perceptron(), LinearSVC(), LinearDiscriminantAnalysis(), MLPClassifier(**MLP, random_state=0),
    MLPClassifier(**MLP, solver="sgd", early_stopping=True, random_state=0), LogisticRegression(fit_intercept=False),
]  # fmt: skip
STEPS = [
    StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler(), QuantileTransformer(n_quantiles=10),
    PowerTransformer(), PolynomialFeatures(), KBinsDiscretizer(**NEW_BINS), Normalizer(),
    Binarizer(), SimpleImputer(), PCA(2), FunctionTransformer(np.tanh), FunctionTransformer(),
    StandardScaler().set_output(transform="pandas"), FeatureUnion([("p", PCA(1)), ("s", StandardScaler())]),
    TargetEncoder(cv=2),
]  # fmt: skip
TABLES = [
    ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]), ("c", OneHotEncoder(), ["c"])]
    ),
    ColumnTransformer(
        [
            ("n", StandardScaler(), make_column_selector(dtype_include=float)),
            ("c", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["c"]),
        ]
    ),
    ColumnTransformer([("c", OrdinalEncoder(), ["c"]), ("b", "drop", ["b"])], remainder="passthrough"),
]


def same_from_file(estimator, rows, tmp_path, **said):
    dump(estimator, tmp_path / "net.skops")
    loaded = apas.load_model(tmp_path / "net.skops", **said)
    plain = apas.as_model(estimator, **said)
    assert model_digest(loaded) == model_digest(plain)
    assert loaded.feature_names == plain.feature_names
    target = plain.classes[0]
    ours, theirs = (apas.certify(m, rows, 0.01, target=target, rng=0) for m in (loaded, plain))
    assert [c.evidence for c in ours] == [c.evidence for c in theirs]
    assert len(ours) == len(rows)
    return loaded


def name(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'loss', '')}"


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=name)
def test_classifiers(classifier, labels, tmp_path):
    if getattr(classifier, "early_stopping", False):
        labels = np.unique(labels, return_inverse=True)[1]  # scikit-learn 1.7 and 1.8 cannot stop early on texts
    same_from_file(classifier.fit(X, labels), X[:5], tmp_path)


@pytest.mark.parametrize("step", STEPS, ids=name)
def test_preprocessing(step, tmp_path):
    same_from_file(make_pipeline(step, LogisticRegression()).fit(X, TWO), X[:5], tmp_path)


@pytest.mark.parametrize("encoder", TABLES, ids=["nested", "selected", "rest"])
def test_tables(encoder, tmp_path):
    pipeline = make_pipeline(encoder, MLPClassifier(**MLP, random_state=0)).fit(FRAME, TWO)
    model = same_from_file(pipeline, FRAME.head(), tmp_path)
    assert model.feature_names == ("a", "b", "c")


def test_what_may_be_said(tmp_path):
    classifier = LogisticRegression().fit(X, TWO)
    model = same_from_file(classifier, X[:5], tmp_path, threshold=0.3, feature_names=["p", "q", "r"])
    assert model.as_feedforward().threshold == 0.3
    apas.load_model(tmp_path / "net.skops", output="sigmoid", classes=["no", "yes"])
    with pytest.raises(apas.InputError, match="`output` of load_model is 'softmax', but .* says 'sigmoid'"):
        apas.load_model(tmp_path / "net.skops", output="softmax")
    with pytest.raises(apas.InputError, match="`classes` of load_model"):
        apas.load_model(tmp_path / "net.skops", classes=["a", "b"])


def test_compressed_files(tmp_path):
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(**MLP, random_state=0)).fit(X, TWO)
    dump(pipeline, tmp_path / "net.skops", compression=zipfile.ZIP_DEFLATED)
    assert model_digest(apas.load_model(tmp_path / "net.skops")) == model_digest(apas.as_model(pipeline))


def test_leftovers_of_training_are_not_made(tmp_path):
    classifier = MLPClassifier(**MLP, random_state=0).fit(X, TWO)
    assert {"_optimizer", "_random_state"} <= LEFTOVERS & set(vars(classifier))
    dump(classifier, tmp_path / "net.skops")
    with zipfile.ZipFile(tmp_path / "net.skops") as archive:
        assert "RandomStateNode" in json.dumps(json.loads(archive.read("schema.json")))
    loaded = apas.load_model(tmp_path / "net.skops")
    assert not LEFTOVERS & set(vars(loaded.estimator))


REFUSED = {
    "a function of NumPy that is not listed": (FunctionTransformer(np.sin), "sin .by FunctionNode"),
    "a random state": (QuantileTransformer(n_quantiles=5, random_state=np.random.RandomState(0)), "RandomState"),
}


@pytest.mark.parametrize(("step", "message"), REFUSED.values(), ids=REFUSED)
def test_unknown_types(step, message, tmp_path):
    dump(make_pipeline(step, LogisticRegression()).fit(X, TWO), tmp_path / "net.skops")
    with pytest.raises(apas.UnsafeFile, match=message):
        apas.load_model(tmp_path / "net.skops")


def test_models_that_are_no_classifiers(tmp_path):
    dump(StandardScaler().fit(X), tmp_path / "net.skops")
    with pytest.raises(apas.InputError, match="does not hold a usable classifier: StandardScaler is not a classifier"):
        apas.load_model(tmp_path / "net.skops")


def test_files_of_another_version(tmp_path):
    path = tmp_path / "net.skops"
    dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, TWO), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    version = json.dumps(json.dumps(sklearn.__version__)).encode()
    assert version in members["schema.json"]
    members["schema.json"] = members["schema.json"].replace(version, json.dumps(json.dumps("1.2.3")).encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.warns(apas.GuaranteeWarning, match=r"was written by scikit-learn 1\.2\.3, but this is") as caught:
        apas.load_model(path)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_preprocessing_that_lacks_a_part(tmp_path):
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, TWO)
    del pipeline[0].scale_
    dump(pipeline, tmp_path / "net.skops")
    with pytest.raises(apas.InputError, match="`X` could not go through the pipeline's preprocessing"):
        apas.certify(apas.load_model(tmp_path / "net.skops"), X[:3], 0.01, target="yes")


def test_functions_of_older_versions_of_numpy_are_taken_from_numpy_itself():
    inside = "numpy._core._multiarray_umath"
    assert module_of("FunctionNode", inside, "tanh") == "numpy"
    assert module_of("FunctionNode", inside, "sin") is None
    assert module_of("FunctionNode", "numpy._core._multiarray_tests", "tanh") is None
