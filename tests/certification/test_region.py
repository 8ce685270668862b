"""Claims about regions: what users say, what is certified and refuted, files, verify, audit, and the separate checker."""

from __future__ import annotations

import subprocess
import sys

import certificate_files as made
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder, StandardScaler

import apas
from apas import InputError, Unsupported, Verdict
from apas.certification import failing_draws

NAMES = ("income", "debt")


def linear(bias: float = 0.0) -> apas.FeedForward:
    return apas.FeedForward([[[1.0], [-1.0]]], [[bias]], feature_names=NAMES)


def space(**more) -> apas.FeatureSpace:
    return apas.FeatureSpace([apas.Feature(n, low=0, high=5, **more) for n in NAMES])


def dip() -> apas.FeedForward:
    """Accepts an income of about 1 to 2 and from 4 on, and rejects the rest: going further breaks it on the way."""
    # income / 1 - ramps: the margin is 0.6 at 1, falls below 0 around 3, and rises again after that
    weights = [[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], [[1.0], [-2.2], [3.0]]]
    return apas.FeedForward(weights, [[0.0, -1.2, -3.0], [-0.5]], feature_names=NAMES)


def test_spans_are_said_per_feature():
    X = [[2.0, 0.5]]
    said = {
        "at least": "income at least 2, up to 5",
        "at most": "income at most 2, down to 0",
        (1.5, 3.0): "income between 1.5 and 3",
        (None, 3.0): "income at most 3, down to 0",
        (1.0, None): "income at least 1, up to 5",
        0.25: "income between 1.75 and 2.25",
    }
    for what, words in said.items():
        region = apas.Region({"income": what}, space=space())
        found = apas.certify(linear(), X, 0.1, target=1, region=region, rng=0)[0]
        assert found.region.words() == words
        assert words in found.sentence()
    table = apas.certify(linear(), X, 0.1, target=1, region={"income": (1.5, 3.0)}, rng=0).to_frame()
    assert table["region"].tolist() == ["income between 1.5 and 3"]
    assert "region" not in apas.certify(linear(), X, 0.1, target=1, rng=0).to_frame()


@pytest.mark.parametrize(
    ("region", "error"),
    [
        ({"wealth": "at least"}, "names the feature 'wealth', which the rows do not have; they have income, debt"),
        ({"income": "at least"}, "where its range ends"),
        ({"income": "more"}, '"at least", "at most"'),
        ({"income": (3.0, 4.0)}, "holds the row's own number 2, got 3 to 4"),
        ("around", 'or "beyond", got'),
        ("beyond", "pass what `generate` returned as `X`"),
        ({"income": ["a"]}, None),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(region, error):
    if error is None:  # a list of levels of a number: its own is added
        with pytest.raises((InputError, ValueError)):
            apas.certify(linear(), [[2.0, 0.5]], 0.1, target=1, region=region)
        return
    with pytest.raises(InputError, match=error):
        apas.certify(linear(), [[2.0, 0.5]], 0.1, target=1, region=region)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"beyond": "yes"}, "`beyond` must be True or False, got 'yes'"),
        ({"space": "space.toml"}, "`space` of Region must be an apas.FeatureSpace, got 'space.toml'"),
        ({"sizes": 0}, "`sizes` of Region"),
        ({"spans": ["income"]}, "`spans` of Region must map features"),
    ],
)
def test_regions_that_make_no_sense_are_refused_when_they_are_made(more, error):
    with pytest.raises(InputError, match=error):
        apas.Region(**{"spans": {"income": "at least"}, **more})


def test_models_and_methods_without_bounds_are_refused():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.tile([0, 1], 20)
    region = {"x0": 0.1}
    with pytest.raises(Unsupported, match="needs a model with bounds over rows"):
        apas.certify(KNeighborsClassifier().fit(X, y), X[:1], None, target="predicted", region=region,
                     shifts=apas.ObservedShifts([KNeighborsClassifier().fit(X, y)] * 1), method="exact")  # fmt: skip
    with pytest.raises(Unsupported, match='LinearBounds cannot speak of regions here; use method="interval"'):
        apas.certify(linear(), [[2.0, 0.5]], 0.1, target=1, region={"income": 0.1}, method="linear")
    with pytest.raises(Unsupported, match="moves? parameters, and with lists of models, got InputNoise"):
        apas.certify(linear(), [[2.0, 0.5]], 0.1, target=1, region={"income": 0.1}, shifts=apas.InputNoise())
    with pytest.raises(InputError, match="does not go with `region`"):
        apas.certify(linear(), [[2.0, 0.5]], 0.1, target=1, region={"income": 0.1}, rng="derived")


@pytest.mark.parametrize("step", [FunctionTransformer(np.log1p), KBinsDiscretizer(3)])
def test_preprocessing_that_bends_numbers_is_refused(step):
    X, y = np.random.default_rng(0).uniform(0, 5, (60, 2)), np.tile([0, 1], 30)
    model = make_pipeline(step, MLPClassifier((3,), max_iter=20, random_state=0))
    with pytest.warns(match="converged"):
        model.fit(X, y)
    with pytest.raises(Unsupported, match=f"of {type(step).__name__} nobody knows"):
        apas.certify(model, X[:1], 0.01, target="predicted", region={"x0": 0.1})


def test_linear_claims_are_those_of_the_worst_corner():
    X, region = [[2.0, 0.5]], {"income": (1.5, 4.0), "debt": (0.0, 0.6)}
    corner = [[1.5, 0.6]]
    for delta in (0.1, 0.2, 0.24, 0.3):
        drawn = apas.Sampling(test="anytime")
        whole = apas.certify(linear(), X, delta, target=1, region=region, method=drawn, rng=0)[0]
        point = apas.certify(linear(), corner, delta, target=1, method=drawn, rng=0)[0]
        assert whole.verdict is point.verdict
        assert (whole.evidence.draws, whole.evidence.failures) == (point.evidence.draws, point.evidence.failures)
        every = apas.certify(linear(), X, delta, target=1, region=region, method="interval")[0]
        assert every.verdict is apas.certify(linear(), corner, delta, target=1, method="interval")[0].verdict
        for answer in (whole, every):
            if answer.verdict is Verdict.REFUTED:
                assert answer.witness.margin(linear(), np.array(X), 1) < 0


def test_an_income_that_breaks_higher_up_is_refuted_by_a_row_and_a_window_is_found():
    net, X = dip(), [[1.0, 0.0]]
    assert apas.certify(net, X, 0.02, target=1, rng=0)[0].is_certified
    further = apas.certify(net, X, 0.02, target=1, rng=0, region=apas.Region({"income": "at least"}, space=space()))[0]
    assert further.verdict is Verdict.REFUTED
    assert not further.valid_today
    cells = further.witness.cells
    assert 1.0 < cells[0] <= 5.0
    assert net.margin(np.array([cells]), 1)[0] < 0
    assert str(cells[0]) in further.sentence()
    sizes = apas.Region({"income": "at least"}, space=space(), sizes=20)
    window = apas.certify(net, X, 0.02, target=1, rng=0, region=sizes)[0]
    assert window.is_certified
    assert window.region.is_window
    assert 1.0 < window.region.spans[0].high < cells[0] + 1
    assert "size" in window.region.words()
    high = window.region.spans[0].high
    assert (net.margin(np.stack([np.linspace(1, high, 50), np.zeros(50)], axis=1), 1) > 0).all()
    # one size more is not certified
    more = apas.certify(net, X, 0.02, target=1, rng=0, region={"income": (1.0, high + 0.2 + 1e-9)})[0]
    assert not more.is_certified


def test_one_or_several_workers_and_blocks_give_the_same_certificates():
    net, X = made.network(seed=3, sizes=(4, 6, 3, 1)), made.rows(6)
    labels = [int(m > 0) for m in net.margin(X, 1)]
    how = {"target": labels, "region": {"x0": 0.6, "x2": 0.9}, "method": apas.Sampling(n_samples=3000), "rng": 1}
    one = apas.certify(net, X, 0.05, **how)
    assert one == apas.certify(net, X, 0.05, n_jobs=2, **how)
    assert one[2:3] == apas.certify(net, X[2:3], 0.05, **{**how, "target": labels[2:3]})
    assert {c.verdict for c in one} >= {Verdict.CERTIFIED, Verdict.REFUTED}


def test_files_verify_and_the_separate_checker_know_regions(tmp_path):
    net, X = made.network(seed=3), made.rows(60)
    X = X[net.margin(X, 1) > 0.5][:12]
    apas.save_model(net, tmp_path / "m.json")
    for number, method in enumerate(("sampling", apas.Sampling(n_samples=3000), "interval")):
        delta, path = (0.03, 0.004)[number == 2], tmp_path / f"{number}.json"
        found = apas.certify(net, X, delta, target=1, region={"x0": 0.1, "x1": 0.2}, method=method, rng=2)
        assert found.certified.any()
        assert not found.certified.all()
        apas.save_certificates(found, path)
        assert apas.load_certificates(path) == found
        assert apas.verify(path, net).ok
        ran = subprocess.run(
            [sys.executable, str(made.CHECKER), str(path), str(tmp_path / "m.json")], capture_output=True, text=True
        )
        said = [line.split("\t")[1] for line in ran.stdout.splitlines()]
        assert said == ["HOLDS" if ok else "NOT CHECKED" for ok in found.certified]
        content = made.content_of(path)
        place = int(np.flatnonzero(found.certified)[0])
        wide = [{"feature": f"x{j}", "side": "between", "low": -90.0, "high": 90.0} for j in range(4)]
        made.write(path, made.changed(content, ("certificates", place, "certificate", "region", "spans"), wide))
        assert not apas.verify(path, net).ok
        ran = subprocess.run(
            [sys.executable, str(made.CHECKER), str(path), str(tmp_path / "m.json")], capture_output=True, text=True
        )
        assert ran.stdout.splitlines()[place].split("\t")[1] != "HOLDS"


def test_witnesses_of_files_must_be_rows_of_the_region_that_fail(tmp_path):
    net, path = dip(), tmp_path / "c.json"
    found = apas.certify(net, [[1.0, 0.0]], 0.02, target=1, rng=0, region={"income": (1.0, 5.0)})
    apas.save_certificates(found, path)
    content = made.content_of(path)
    assert apas.verify(path, net).ok
    for cells in ([1.1, 0.0], [9.0, 0.0], [3.0, 0.5]):  # fails nowhere, lies outside, changes another feature
        made.write(path, made.changed(content, ("certificates", 0, "certificate", "witness", "cells"), cells))
        assert not apas.verify(path, net).ok


def loans(rows: int = 300):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "income": rng.uniform(1000, 9000, rows).round(),
            "years": rng.integers(0, 20, rows),
            "home": rng.choice(["own", "rent", "other"], rows),
        }
    )
    y = ((frame.income + 100 * frame.years + 800 * (frame.home == "own")) > 6000).astype(int)
    columns = make_column_transformer((StandardScaler(), ["income", "years"]), (OneHotEncoder(), ["home"]))
    return frame, y, columns


def test_pipelines_with_categories_refits_of_trees_and_audits():
    frame, y, columns = loans()
    net = make_pipeline(columns, MLPClassifier((6,), max_iter=1200, learning_rate_init=0.02, random_state=0)).fit(
        frame, y
    )
    table = apas.FeatureSpace.from_frame(frame)
    X = frame[net.predict(frame) == 1].iloc[:4]
    region = apas.Region({"income": "at least", "years": 2, "home": ["own", "rent"]}, space=table)
    found = apas.certify(net, X, 0.02, target=1, region=region, rng=0)
    assert found.certified.any()
    spans = {s.feature: s for s in found[0].region.spans}
    assert spans["years"].step == 1
    assert set(spans["home"].levels) >= {"own", "rent", X["home"].iloc[0]} - {"other"}
    assert apas.audit(found, net, base=net).ok
    assert {row.outcome.name for row in apas.audit(found[found.certified], net, base=net)} == {"HELD"}
    # a model that rejects high incomes breaks the promise by a row of the region
    odd = make_pipeline(columns, GradientBoostingClassifier(n_estimators=20)).fit(frame, (frame.income < 8500) * y)
    report = apas.audit(found, odd, repairs=False)
    broken = [row for row in report if row.outcome.is_broken]
    assert broken
    assert all("the nearest row that was found of the region and is rejected: income" in row.reason for row in broken)
    knn = make_pipeline(columns, KNeighborsClassifier(3)).fit(frame, y)
    outcomes = {row.outcome.name for row in apas.audit(found, knn, repairs=False)}
    assert "HELD" not in outcomes  # nothing proves it
    trees = make_pipeline(columns, GradientBoostingClassifier(n_estimators=15)).fit(frame, y)
    refits = apas.ObservedShifts(apas.retrain(trees, frame, y, n_models=8, rng=0))
    X = frame[trees.predict(frame) == 1].iloc[:3]
    how = apas.Sampling(coverage=0.7, confidence=0.8)
    listed = apas.certify(trees, X, None, target=1, shifts=refits, method=how, region=region)
    every = apas.certify(trees, X, None, target=1, shifts=refits, method="exact", region=region)
    for single, whole, row in zip(listed, every, range(3), strict=True):
        assert whole.is_certified <= single.is_certified
        if single.is_certified and not single.evidence.failures:
            assert whole.is_certified
        if whole.verdict is Verdict.REFUTED and whole.valid_today:
            assert whole.witness.margin(trees, X.iloc[row : row + 1], 1) < 0


def test_a_ledger_keeps_regions_and_an_audit_breaks_them(tmp_path):
    found = apas.certify(linear(), [[2.0, 0.5]], 0.05, target=1, region={"income": (1.0, 4.0)}, rng=0)
    ledger = apas.Ledger(tmp_path / "l.db")
    ledger.add(found, ["A-1"])
    assert ledger.audit(linear(-0.1)).ok
    report = ledger.audit(linear(-0.6))  # the row itself holds, the lower end of the region does not
    assert not report.ok
    assert "income 1" in report[0].reason


def test_reports_show_the_region(tmp_path):
    found = apas.certify(linear(), [[2.0, 0.5]], 0.05, target=1, region={"income": (1.0, 4.0)}, rng=0)
    apas.write_report(found, tmp_path / "r.html")
    assert "income between 1 and 4" in (tmp_path / "r.html").read_text()


def test_regions_that_need_no_draws_have_the_evidence_of_draws(monkeypatch):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0.2, 5, 60), rng.uniform(0, 2, 60)])
    region = apas.Region({"income": "at least", "debt": 0.1}, space=space())
    options = {"target": 1, "region": region, "rng": 0, "method": apas.Sampling(n_samples=2000)}
    unproved, counts = failing_draws._unproved, []
    monkeypatch.setattr(
        failing_draws, "_unproved", lambda question: (counts.append(len(unproved(question))), unproved(question))[1]
    )
    quick = apas.certify(linear(), X, 0.08, **options)
    monkeypatch.setattr(failing_draws, "_unproved", lambda question: np.arange(len(question)))
    assert quick.to_dict() == apas.certify(linear(), X, 0.08, **options).to_dict()
    assert {c.verdict for c in quick} >= {Verdict.CERTIFIED, Verdict.REFUTED}
    assert 0 < counts[0] < quick.certified.sum()  # most rows that hold are proved, and some are drawn for
