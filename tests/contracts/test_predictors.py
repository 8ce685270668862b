"""Certificates about models that can only predict: saved, verified, audited on a later refit, and reported."""

import re

import numpy as np
import pandas as pd
import pytest
from conftest import library
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import apas
from apas.contracts.audit import Outcome
from apas.models.predictor import Predictor

RNG = np.random.default_rng(0)
LOANS = pd.DataFrame(
    {
        "income": RNG.normal(40, 10, 160).round(1),
        "debt": RNG.normal(10, 5, 160).round(1),
        "job": RNG.choice(["office", "trade", "none"], 160),
    }
)
PAID = np.where(LOANS["income"] - LOANS["debt"] + RNG.normal(0, 3, 160) > 30, 1, 0)
GOOD = LOANS[LOANS["income"] - LOANS["debt"] > 38].head(3)


def columns():
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job"]), (StandardScaler(), ["income", "debt"])
    )


def xgboost(X, y, seed):
    boosting = library("xgboost")
    trees = boosting.XGBClassifier(n_estimators=8, max_depth=2, subsample=0.8, random_state=seed, n_jobs=1)
    return make_pipeline(columns(), trees).fit(X, y)


def calibrated_forest(X, y, seed):
    forest = RandomForestClassifier(5, max_depth=3, random_state=seed)
    return make_pipeline(columns(), CalibratedClassifierCV(forest, cv=2)).fit(X, y)


def thresholded(X, y, seed):
    trees = GradientBoostingClassifier(n_estimators=8, subsample=0.8, random_state=seed)
    return FixedThresholdClassifier(make_pipeline(columns(), trees), threshold=0.6).fit(X, y)


def catboost(X, y, seed):
    boosting = library("catboost")
    silent = {"verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return boosting.CatBoostClassifier(iterations=8, depth=2, random_seed=seed, cat_features=["job"], **silent).fit(
        X, y
    )


def function(X, y, seed):
    least = float(X["income"].mean()) - 10

    def score(rows):
        return rows["income"].to_numpy(float) - rows["debt"].to_numpy(float) - least

    return Predictor(score, output="score", classes=(0, 1), feature_names=list(X.columns))


def linear(X, y, seed):
    """A model with parameters, behind a preprocessing of its own."""
    return make_pipeline(columns(), LogisticRegression()).fit(X, y)


def refits(make, count=14):
    drawn = [np.random.default_rng(seed).integers(0, len(LOANS), len(LOANS)) for seed in range(count)]
    return [make(LOANS.iloc[rows].reset_index(drop=True), PAID[rows], seed) for seed, rows in enumerate(drawn)]


def promised(make, method=None):
    base, models = make(LOANS, PAID, 99), refits(make)
    shifts = apas.ObservedShifts(models[:-1], process="refits to drawn rows")
    method = apas.Sampling(coverage=0.8, confidence=0.9) if method is None else method
    return base, models, apas.certify(base, GOOD, None, target=1, shifts=shifts, method=method)


def page_text(path):
    text = re.sub(r"<(style|script).*?</\1>", "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


@pytest.mark.parametrize("make", [xgboost, calibrated_forest, thresholded, catboost, function])
def test_from_certify_to_the_report(make, tmp_path):
    base, models, found = promised(make)
    assert found.certified.all()
    path = tmp_path / "c.json"
    apas.save_certificates(found, path)
    assert apas.load_certificates(path) == found
    assert apas.verify(path, base, models=models[:-1]).ok
    assert not apas.verify(path, models[-1], models=models[:-1]).ok
    later = models[-1]
    for certificates in (found, path):
        report = apas.audit(certificates, later, base=base)
        assert [row.inside for row in report] == [None] * 3
        assert report.shift is None
        assert "parameters chang" not in report.summary()
        assert sum("no parameters" in note for note in report.notes) == 1
        assert sum("if it comes from that process" in note for note in report.notes) == 1
    known = apas.audit(path, models[3], base=base)  # one of the listed models, which its fingerprint shows
    assert [row.inside for row in known] == [True] * 3
    assert not any("that process" in note for note in known.notes)
    ledger = apas.Ledger(tmp_path / "ledger.db")
    ledger.add(found, ["a", "b", "c"])
    assert [row.valid for row in ledger.audit(later, base=base)] == [row.valid for row in report]
    page = page_text(apas.write_report(path, tmp_path / "report.html", model=base, new_model=later))
    assert set(re.findall(r"\S+ parameters?\b", page)) == {"no parameters"}
    assert "No shift was measured, since the models have no parameters" in page


def test_a_broken_promise_of_a_process_gets_a_repair():
    base, _, found = promised(function)
    strict = Predictor(
        lambda rows: rows["income"].to_numpy(float) - 75.0,
        output="score",
        classes=(0, 1),
        feature_names=list(LOANS.columns),
    )
    report = apas.audit(found, strict, base=base)
    assert {row.outcome for row in report} == {Outcome.BROKEN}
    assert "covers it if it comes from the certified process" in report[0].reason
    for row, promise in zip(report, GOOD.to_dict("records"), strict=True):
        assert row.repair.reason == "found by trying values, one feature at a time; there may be nearer"
        assert 75.0 <= row.repair.values[0] < 75.000001
        assert row.repair.values[1:] == (promise["debt"], promise["job"])


def test_a_proof_about_listed_models_speaks_of_no_other():
    base, models, found = promised(function, "exact")
    report = apas.audit(found, models[-1], base=base)
    assert [row.inside for row in report] == [False] * 3
    assert not any("process" in note for note in report.notes)
    assert [row.inside for row in apas.audit(found, models[0], base=base)] == [True] * 3


def test_refitted_preprocessing_is_covered_by_refits_and_by_no_shift_of_parameters():
    base, models, found = promised(linear)
    report = apas.audit(found, models[-1], base=base)
    assert [row.inside for row in report] == [None] * 3
    assert report.shift.delta > 0  # the same columns, so that there is a distance
    assert any("they cover it, with what differs (preprocessing), if it comes from" in note for note in report.notes)
    boxed = apas.certify(base, GOOD, 0.01, target=1, rng=0)
    report = apas.audit(boxed, models[-1], base=base)
    assert [row.inside for row in report] == [False] * 3
    assert any("these certificates do not cover it" in note for note in report.notes)


def test_noise_does_not_cover_a_refit_of_trees():
    trees = [GradientBoostingClassifier(n_estimators=5, max_depth=2, subsample=0.8, random_state=s) for s in (0, 1)]
    old, new = (model.fit(LOANS[["income", "debt"]], PAID) for model in trees)
    found = apas.certify(old, GOOD[["income", "debt"]], 0.5, target=1, shifts=apas.InputNoise(), rng=0)
    assert [row.inside for row in apas.audit(found, old, base=old)] == [True] * 3
    report = apas.audit(found, new, base=old)
    assert [row.inside for row in report] == [False] * 3
    assert "differs (what it has learned), which this certificate does not cover" in report[0].reason


def test_a_network_replaced_by_trees_and_columns_that_come_and_go(tmp_path):
    base = linear(LOANS, PAID, 0)
    apas.save_certificates(apas.certify(base, GOOD, 0.01, target=1, rng=0), tmp_path / "c.json")
    grown = LOANS.assign(job=np.where(np.arange(160) % 5, LOANS["job"], "student"), age=RNG.integers(20, 60, 160))
    trees = thresholded(LOANS, PAID, 0)
    wider = linear(grown[["income", "debt", "job"]], PAID, 0)
    aged = HistGradientBoostingClassifier(max_iter=3).fit(grown[["income", "age"]], PAID)
    said = {
        "kind (sklearn.FixedThresholdClassifier instead of feedforward)": trees,
        "shapes ([[6, 1]] instead of [[5, 1]])": wider,
        "its features: number 1 is 'age' instead of 'debt'": aged,
    }
    for words, new in said.items():
        for options in ({"base": base}, {"base": base, "validity_only": True}, {}):
            report = apas.audit(tmp_path / "c.json", new, repairs=False, **options)
            rows = GOOD.assign(age=np.nan)[list(new.feature_names_in_)]
            assert [row.valid for row in report] == (new.predict(rows) == 1).tolist()
            assert report.shift is None
            if options == {"base": base}:
                assert any(words in note and "no shift was measured" in note for note in report.notes)
                assert {row.inside for row in report} == {False}
            missing = "The certified rows have no column 'age': passed to the new model as missing."
            assert (missing in report.notes) == (new is aged)
    needy = make_pipeline(StandardScaler(), LogisticRegression()).fit(grown[["income", "age"]], PAID)
    with pytest.raises(apas.InputError, match="they have no column 'age', and it does not take missing values there"):
        apas.audit(tmp_path / "c.json", needy)
