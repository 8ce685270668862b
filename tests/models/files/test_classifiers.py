"""Classifiers of all libraries as files: the same digest and the same margins to the bit, and nothing hostile is followed."""

from __future__ import annotations

import importlib
import io
import json
import zipfile
from functools import partial

import numpy as np
import pandas as pd
import pytest
from conftest import absent
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
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

import apas
from apas.models.digest import model_digest
from apas.models.predictor import Predictor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(job=np.where(X[:, 2] > 0, "u", "v"))
LABELS = {
    2: np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "yes", "no"),
    3: np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])],
}
PARTS = [("l", LogisticRegression()), ("t", DecisionTreeClassifier(max_depth=2))]
SKLEARN = [
    DecisionTreeClassifier(max_depth=3), ExtraTreeClassifier(max_depth=3), RandomForestClassifier(3), ExtraTreesClassifier(3),
    GradientBoostingClassifier(n_estimators=3), HistGradientBoostingClassifier(max_iter=3), AdaBoostClassifier(n_estimators=3),
    BaggingClassifier(n_estimators=2), VotingClassifier(PARTS, voting="soft"), StackingClassifier(PARTS, cv=2),
    CalibratedClassifierCV(LogisticRegression(), cv=2), CalibratedClassifierCV(GaussianNB(), cv=2, method="isotonic"),
    KNeighborsClassifier(3), KNeighborsClassifier(3, algorithm="brute"), KNeighborsClassifier(3, algorithm="ball_tree"),
    NearestCentroid(), SVC(), SVC(kernel="linear"), GaussianNB(), BernoulliNB(), QuadraticDiscriminantAnalysis(),
]  # fmt: skip
TWO_CLASSES = [FixedThresholdClassifier(LogisticRegression(), threshold=0.4), TunedThresholdClassifierCV(LogisticRegression(), cv=2)]  # fmt: skip
BOOSTERS = {
    "xgboost": ("XGBClassifier", {"n_estimators": 3, "max_depth": 2}, ".ubj"),
    "lightgbm": ("LGBMClassifier", {"n_estimators": 3, "num_leaves": 4, "verbose": -1}, ".txt"),
    "catboost": (
        "CatBoostClassifier",
        {"iterations": 3, "depth": 2, "verbose": 0, "allow_writing_files": False},
        ".cbm",
    ),
}


def booster(library: str):
    """A classifier of a library, unfitted, or a skip."""
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError:
        absent(library, f"{library} is not installed")
    name, settings, _ = BOOSTERS[library]
    return getattr(module, name)(**settings)


def labels(library: str, count: int):
    """Texts, but for XGBoost, which takes numbers only."""
    return np.unique(LABELS[count], return_inverse=True)[1] if library == "xgboost" else LABELS[count]


def same(model, path, rows) -> apas.models.base.Model:
    """Written and read again, a model has the digest and the margins that it had."""
    apas.save_model(model, path)
    again = apas.load_model(path)
    assert model_digest(again) == model_digest(model)
    assert again.classes == model.classes
    for label in model.classes:
        assert np.array_equal(again.margin(again.encode(rows), label), model.margin(model.encode(rows), label))
    return again


@pytest.mark.parametrize(
    ("classifier", "count"),
    [*((c, n) for c in SKLEARN for n in (2, 3)), *((c, 2) for c in TWO_CLASSES)],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_scikit_learn(classifier, count, tmp_path):
    same(apas.as_model(classifier.fit(X, LABELS[count])), tmp_path / ("model.skops" if count == 2 else "model.apas"), X)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("library", BOOSTERS)
def test_boosted_trees(library, count, tmp_path):
    made, y, suffix = booster(library), labels(library, count), BOOSTERS[library][2]
    model = apas.as_model(made.fit(FRAME[["a", "b"]], y))
    again = same(model, tmp_path / "model.apas", FRAME[["a", "b"]])
    assert again.estimator.get_params() == model.estimator.get_params()
    if library == "lightgbm":  # whose text does not hold labels
        with pytest.raises(apas.Unsupported, match=r"a \.txt file does not hold all of .* end in \.apas"):
            apas.save_model(model, tmp_path / "model.txt")
        model = apas.as_model(booster(library).fit(FRAME[["a", "b"]], np.unique(y, return_inverse=True)[1]))
    same(model, tmp_path / f"model{suffix}", FRAME[["a", "b"]])
    with pytest.raises(apas.InputError, match="must know its settings"):
        apas.retrain(apas.load_model(tmp_path / f"model{suffix}"), FRAME[["a", "b"]], y, n_models=2)


@pytest.mark.parametrize("library", BOOSTERS)
def test_boosted_trees_behind_preprocessing_with_a_threshold(library, tmp_path):
    encoder = make_column_transformer((StandardScaler(), ["a", "b", "c"]), (OneHotEncoder(), ["job"]))
    pipeline = make_pipeline(encoder, booster(library)).fit(FRAME, labels(library, 2))
    same(apas.as_model(pipeline, threshold=0.3), tmp_path / "model.apas", FRAME)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_damaged_boosted_trees(library, tmp_path):
    """CatBoost's own format can be checked only as far as the library tells of it, so it is not tried here."""
    import damaged_files

    suffix = BOOSTERS[library][2]
    path = tmp_path / f"model{suffix}"
    apas.save_model(booster(library).fit(X, np.unique(LABELS[2], return_inverse=True)[1]), path)
    good, refused = path.read_bytes(), 0
    for number in range(60):
        path.write_bytes(damaged_files.changed_bytes(damaged_files.stream(library, number), good))
        try:
            model = apas.load_model(path)
            model.margin(model.encode(X[:3]), model.classes[1])
        except apas.ApasError:
            refused += 1
    assert refused > 30


def test_lightgbm_is_not_led_out_of_its_trees(tmp_path):
    path = tmp_path / "model.txt"
    apas.save_model(booster("lightgbm").fit(X, np.unique(LABELS[2], return_inverse=True)[1]), path)
    good = path.read_text()
    for line, value, message in (
        ("left_child=", "99", "no such child"),
        ("split_feature=", "7", "feature that is not there"),
        ("num_class=", "9", "other classes than trees"),
    ):
        start = good.index(line) + len(line)
        bad = good[:start] + value + good[start + len(value) :]  # of the same length, as the trees' sizes are told
        assert bad != good
        path.write_text(bad)
        with pytest.raises(apas.InputError, match=message):
            apas.load_model(path)


def changed_member(content: bytes, change) -> bytes:
    """A `.skops` file after `change` of its schema and members."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    change(schema, members)
    members["schema.json"] = json.dumps(schema).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return packed.getvalue()


def nodes_of(kind: str, schema) -> list[dict]:
    found, waiting = [], [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            found += [node] if node.get("__class__") == kind else []
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


def replaced(node: dict, member: str, members: dict, change) -> None:
    """An array of an object is another."""
    file = (
        node["content"]["content"][member]["file"] if "content" in node["content"] else node["content"][member]["file"]
    )
    array = np.load(io.BytesIO(members[file]))
    content = io.BytesIO()
    np.save(content, change(array))
    members[file] = content.getvalue()


def field(name: str, value):
    def change(nodes):
        nodes = nodes.copy()
        nodes[name][0] = value
        return nodes

    return change


HOSTILE = {
    "a child beyond": (DecisionTreeClassifier(), "Tree", "nodes", field("left_child", 10**6), "no such child"),
    "a child before": (DecisionTreeClassifier(), "Tree", "nodes", field("right_child", 0), "no such child"),
    "a feature beyond": (RandomForestClassifier(1), "Tree", "nodes", field("feature", 10**6), "feature that is not there"),
    "a node beyond": (HistGradientBoostingClassifier(max_iter=1), "TreePredictor", "nodes", field("left", 10**6), "no such child"),
    "a column beyond": (HistGradientBoostingClassifier(max_iter=1), "TreePredictor", "nodes", field("feature_idx", 10**6), "feature not there"),
    "fewer vectors": (SVC(), "SVC", "support_vectors_", lambda a: a[:-1], "do not fit"),
    "more of a class": (SVC(), "SVC", "_n_support", lambda a: a + 5, "of another kind"),
    "a class beyond": (KNeighborsClassifier(algorithm="brute"), "KNeighborsClassifier", "_y", lambda a: a + 9, "no known class"),
}  # fmt: skip


@pytest.mark.parametrize(("classifier", "kind", "member", "change", "message"), HOSTILE.values(), ids=HOSTILE)
def test_files_that_lead_out_of_memory(classifier, kind, member, change, message, tmp_path):
    path = tmp_path / "model.skops"
    apas.save_model(classifier.fit(X, LABELS[2]), path)
    bad = changed_member(
        path.read_bytes(), lambda schema, members: replaced(nodes_of(kind, schema)[0], member, members, change)
    )
    path.write_bytes(bad)
    with pytest.raises(apas.InputError, match=message):
        apas.load_model(path)


def test_nodes_that_are_not_counted(tmp_path):
    path = tmp_path / "model.skops"
    apas.save_model(DecisionTreeClassifier().fit(X, LABELS[2]), path)

    def change(schema, members):
        state = nodes_of("Tree", schema)[0]["content"]["content"]
        state["node_count"] |= {"content": "2", "__id__": 1}

    path.write_bytes(changed_member(path.read_bytes(), change))
    with pytest.raises(apas.InputError, match="lacks nodes"):
        apas.load_model(path)


def test_a_member_that_hides_a_method(tmp_path):
    path = tmp_path / "model.skops"
    forest = RandomForestClassifier(1).fit(X, LABELS[2])
    forest._validate_X_predict = "nothing"
    with pytest.raises(apas.Unsupported, match="a member hides a method"):
        apas.save_model(forest, path)


WRONG = {
    "another format": ({"format": "else"}, "must say"),
    "another class": ({"class": "Popen"}, "'class'"),
    "an unknown field": ({"more": 1}, "'more'"),
    "other classes": ({"classes": ["a", "b"]}, "classes are others"),
    "a threshold that is none": ({"threshold": "x"}, "'threshold'"),
    "settings of a forest": ({"settings": {}}, "'settings'"),
    "a kind that is none": ({"kind": ["sklearn"]}, "'kind'"),
    "a kind with another member": ({"kind": "xgboost", "class": "XGBClassifier"}, "must hold model.ubj"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_descriptions_that_are_wrong(changes, message, tmp_path):
    path = tmp_path / "model.apas"
    apas.save_model(RandomForestClassifier(1).fit(X, LABELS[2]), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["about.json"] = json.dumps({**json.loads(members["about.json"]), **changes}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    with pytest.raises(apas.InputError, match=message):
        apas.load_model(path)


def test_a_file_on_which_catboost_crashes_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.cbm"
    settings = {"iterations": 20, "depth": 4, "cat_features": ["job"], "one_hot_max_size": 4}
    apas.save_model(booster("catboost").set_params(**settings).fit(FRAME, LABELS[2]), path)
    monkeypatch.setattr("apas.models.files.boosters._SURVIVED", set())  # as in a program that did not write it
    assert apas.load_model(path).classes == ("no", "yes")
    whole, said = path.read_bytes(), ""
    for inserted in (b"\xff" * 4, b"\xff" * 8, b"\x00" * 4):  # on which of them depends on the version
        path.write_bytes(whole[:5000] + inserted + whole[5000:])
        with pytest.raises(apas.InputError, match="cannot be read by catboost") as refusal:
            apas.load_model(path)
        said += str(refusal.value)
        if "did not survive" in said:
            return
    pytest.fail(said)


def test_settings_choose_no_place(tmp_path):
    made = booster("catboost").set_params(train_dir=str(tmp_path / "logs"))
    apas.save_model(made.fit(X, LABELS[2]), tmp_path / "model.apas")
    with zipfile.ZipFile(tmp_path / "model.apas") as archive:
        assert json.loads(archive.read("about.json"))["settings"] is None


def test_functions_cannot_be_written(tmp_path):
    rule = Predictor(lambda rows: rows[:, 0], output="score", classes=(0, 1), n_features=3)
    with pytest.raises(apas.Unsupported, match="cannot be written to a file: it is no classifier of a library"):
        apas.save_model(rule, tmp_path / "model.apas")
    assert not list(tmp_path.iterdir())


def test_networks_and_networks_behind_preprocessing(tmp_path):
    network = apas.FeedForward([[[1.0], [2.0]]], [[0.5]])
    apas.save_model(network, tmp_path / "net.apas")
    assert model_digest(apas.load_model(tmp_path / "net.apas")) == model_digest(network)
    same(apas.as_model(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS[2]), threshold=0.7),
         tmp_path / "line.apas", X)  # fmt: skip


@pytest.mark.parametrize("option", [{"activation": "relu"}, {"classes": ["a", "b"]}])
def test_options_that_do_not_fit(option, tmp_path):
    apas.save_model(RandomForestClassifier(1).fit(X, LABELS[2]), tmp_path / "model.apas")
    load = partial(apas.load_model, tmp_path / "model.apas", **option)
    with pytest.raises(apas.InputError, match="leave it out"):
        load()
