"""Refits in a folder: kept one by one, read again as they were, and never mixed with others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import apas
from apas.models.digest import model_digest
from apas.models.predictor import Predictor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = np.where(X[:, 0] + 0.2 * RNG.normal(size=80) > 0, "yes", "no")
TREE = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)).fit(X, Y)


def digests(models) -> list[str]:
    return [model_digest(model) for model in models]


class Stopped(BaseException):
    """The process ends in the midst of it."""


def test_the_folder_holds_what_was_returned(tmp_path):
    made = apas.retrain(TREE, X, Y, n_models=4, rng=5, folder=tmp_path / "refits")
    assert digests(made) == digests(apas.retrain(TREE, X, Y, n_models=4, rng=5))
    read = apas.RetrainedModels.load(tmp_path / "refits")
    assert digests(read) == digests(made)
    assert (read.process, read.entropy) == (made.process, 5)
    for model, again in zip(made, read, strict=True):
        assert np.array_equal(model.margin(model.encode(X), "yes"), again.margin(again.encode(X), "yes"))


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    """A kill is a process that ends between two models; what is finished is not trained again."""
    from apas.shifts import retraining

    def stop_after(count):
        train, calls = retraining._Recipe.train, []

        def counted(self, i):
            calls.append(i)
            if len(calls) > count:
                raise Stopped
            return train(self, i)

        monkeypatch.setattr(retraining._Recipe, "train", counted)
        return calls

    with monkeypatch.context():
        calls = stop_after(3)
        with pytest.raises(Stopped):
            apas.retrain(TREE, X, Y, n_models=5, rng=5, folder=tmp_path)
        assert calls == [0, 1, 2, 3]
    with pytest.raises(apas.InputError, match="holds 3 of 5 refits; run the same retrain again"):
        apas.RetrainedModels.load(tmp_path)
    monkeypatch.undo()
    calls = stop_after(9)
    made = apas.retrain(TREE, X, Y, n_models=5, folder=tmp_path)  # the seed is the folder's
    assert calls == [3, 4]
    monkeypatch.undo()
    assert digests(made) == digests(apas.retrain(TREE, X, Y, n_models=5, rng=5))
    assert len(apas.retrain(TREE, X, Y, n_models=6, folder=tmp_path)) == 6
    assert len(apas.RetrainedModels.load(tmp_path)) == 6


OTHERS = {
    "seed": ({"rng": 6}, TREE, Y, "seed is another"),
    "data": ({}, TREE, np.where(X[:, 1] > 0, "yes", "no"), "process is another"),
    "process": ({"bootstrap": False}, TREE, Y, "process is another"),
    "settings": ({}, make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3)), Y, "settings are another"),
}


@pytest.mark.parametrize(("options", "estimator", "y", "message"), OTHERS.values(), ids=OTHERS)
def test_a_folder_of_others_is_refused(options, estimator, y, message, tmp_path):
    apas.retrain(TREE, X, Y, n_models=2, rng=5, folder=tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(apas.InputError, match=message):
        apas.retrain(estimator, X, y, n_models=2, folder=tmp_path, **{"rng": 5, **options})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_another_model_in_a_file_is_noticed(tmp_path):
    apas.retrain(TREE, X, Y, n_models=2, rng=5, folder=tmp_path)
    (tmp_path / "refit-0001.apas").write_bytes((tmp_path / "refit-0000.apas").read_bytes())
    for read in (
        lambda: apas.RetrainedModels.load(tmp_path),
        lambda: apas.retrain(TREE, X, Y, n_models=2, folder=tmp_path),
    ):
        with pytest.raises(apas.InputError, match="refit-0001.apas is not the model that refits.json tells of"):
            read()


def test_files_that_the_list_may_not_name(tmp_path):
    apas.retrain(TREE, X, Y, n_models=1, rng=5, folder=tmp_path)
    told = json.loads((tmp_path / "refits.json").read_text())
    told["refits"]["../other.apas"] = "0" * 64
    (tmp_path / "refits.json").write_text(json.dumps(told))
    with pytest.raises(apas.InputError, match="is a field that this version does not know"):
        apas.RetrainedModels.load(tmp_path)


def test_folders_without_refits(tmp_path):
    with pytest.raises(apas.InputError, match="is not a folder of refits: it has no refits.json"):
        apas.RetrainedModels.load(tmp_path)
    with pytest.raises(apas.InputError, match="`folder` must be the name of a folder, got int"):
        apas.retrain(TREE, X, Y, n_models=1, folder=3)


def test_functions_are_not_kept(tmp_path):
    def train(X, y, seed):
        return Predictor(lambda rows: rows[:, 0], output="score", classes=("no", "yes"), n_features=3)

    with pytest.raises(apas.Unsupported, match="`folder` of retrain cannot keep model number 0; leave it out"):
        apas.retrain(train, X, Y, n_models=1, folder=tmp_path)


def test_a_model_from_a_file_is_trained_anew(tmp_path):
    line = apas.as_model(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y), threshold=0.3)
    apas.save_model(line, tmp_path / "model.apas")
    made = apas.retrain(apas.load_model(tmp_path / "model.apas"), X, Y, n_models=2, rng=1, folder=tmp_path / "refits")
    assert made.process.endswith("which says class 1 from probability 0.3 on")
    assert all(model.read_options["threshold"] == 0.3 for model in made)
    assert digests(apas.RetrainedModels.load(tmp_path / "refits")) == digests(made)


def test_certify_save_and_verify_with_refits_from_the_folder(tmp_path):
    made = apas.retrain(TREE, X, Y, n_models=12, rng=5, folder=tmp_path / "refits")
    rows = X[(X[:, 0] > 1)][:3]
    method = apas.Sampling(coverage=0.7, confidence=0.9)
    found = apas.certify(TREE, rows, None, target="yes", shifts=apas.ObservedShifts(made), method=method, rng=0)
    apas.save_certificates(found, tmp_path / "promises.json")
    read = apas.RetrainedModels.load(tmp_path / "refits")
    again = apas.certify(TREE, rows, None, target="yes", shifts=apas.ObservedShifts(read), method=method, rng=0)
    assert [c.verdict for c in again] == [c.verdict for c in found]
    assert any(c.verdict.name == "CERTIFIED" for c in found)
    apas.save_model(TREE, tmp_path / "model.apas")
    report = apas.verify(tmp_path / "promises.json", apas.load_model(tmp_path / "model.apas"), models=read)
    assert report.exit_code == 0, report.summary()
    other = apas.retrain(TREE, X, Y, n_models=12, rng=6)
    with pytest.raises(apas.InputError, match="fingerprints differ"):
        apas.verify(tmp_path / "promises.json", TREE, models=other)
