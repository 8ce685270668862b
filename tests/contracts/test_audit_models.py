"""Which new models `audit` takes: pipelines, spaces, networks behind a preprocessing; what it refuses; repairs."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from certificate_files import network, rows
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import apas
from apas.contracts import repairs
from apas.contracts.audit import Outcome
from apas.contracts.repairs import assumed_space

LOANS = apas.datasets.make_loans(800, rng=0)
NUMERIC = list(apas.datasets.NUMERIC)
FEATURES = list(apas.datasets.LOAN_FEATURES)
SPACE = apas.FeatureSpace.from_frame(
    LOANS[FEATURES], immutable=["age", "years_employed"], increase=["income"], steps={"income": 10}, scale="minmax"
)


def pipeline(count):
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(LOANS[NUMERIC][:count], LOANS["approved"][:count])


def mlp(sizes, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPClassifier(sizes, max_iter=300, random_state=seed).fit(
            SPACE.encode(LOANS[FEATURES]), LOANS["approved"]
        )


@pytest.fixture(scope="module")
def spaced():
    """Counterfactuals of a network behind a space, and networks that could follow it."""
    old = mlp((6,), 0)
    rejected = LOANS.loc[old.predict(SPACE.encode(LOANS[FEATURES])) == 0, FEATURES].head(10)
    found = apas.generate(old, rejected, 0.02, space=SPACE, source="milp", rng=0)
    return found, old, mlp((6,), 1), mlp((9,), 1)


def test_repairs_keep_to_the_space(spaced, tmp_path):
    found, old, new, _ = spaced
    apas.save_certificates(found, tmp_path / "c.json")
    report = apas.audit(tmp_path / "c.json", new, base=old)
    assert report.broken.any()
    assert report.notes == ()
    again = apas.audit(found, new, base=old)
    assert [row.to_dict() for row in again] == [row.to_dict() for row in report]
    promised = SPACE.numbers(found.certificates.points)
    repaired = 0
    for start, row in zip(promised, report, strict=True):
        if not row.outcome.is_broken:
            assert row.repair is None
            continue
        if row.repair.values is None:
            continue
        repaired += 1
        values = np.array([row.repair.values], dtype=object)
        point = SPACE.numbers(values)
        assert SPACE.allowed(point, start[None]).all()
        assert apas.metrics.validity(SPACE.bind(new), values, row.target).all()
        assert point[0, FEATURES.index("age")] == start[FEATURES.index("age")]
        assert point[0, FEATURES.index("income")] >= start[FEATURES.index("income")]
        assert row.repair.cost == pytest.approx(SPACE.costs(point, start[None])[0])
        assert row.repair.changes not in ("", "(no change)")
    assert repaired == int(report.broken.sum())


def test_the_repair_is_the_nearest():
    # income + 2 savings >= 4 is asked, the promised row has 1 + 2: half a unit of savings is the cheapest
    old = apas.FeedForward([[[1.0], [2.0]]], [[-2.5]], feature_names=("income", "savings"))
    new = apas.FeedForward([[[1.0], [2.0]]], [[-4.0]], feature_names=("income", "savings"))
    space = apas.FeatureSpace([apas.Feature(name, low=0, high=10) for name in ("income", "savings")])
    certificates = apas.certify(old, [[1.0, 1.0]], 0.01, target=1, method="interval")
    repair = apas.audit(certificates, new, base=old, space=space)[0].repair
    assert repair.values == pytest.approx((1.0, 1.5), abs=1e-6)
    assert repair.changes == "savings 1 -> 1.5"
    assert repair.cost == pytest.approx(0.025, abs=1e-6)
    fixed = apas.FeatureSpace(
        [apas.Feature("income", low=0, high=1.5), apas.Feature("savings", low=0, high=10, mutable=False)]
    )
    repair = apas.audit(certificates, new, base=old, space=fixed)[0].repair
    assert repair.values is None
    assert "no allowed row" in str(repair)
    assert apas.audit(certificates, new, base=old, repairs=False)[0].repair is None
    other = apas.FeatureSpace([apas.Feature("cars", low=0, high=1)])
    assert "does not fit" in str(apas.audit(certificates, new, base=old, space=other)[0].repair)


def test_repairs_by_descent():
    old = network(2, activation="tanh", feature_names=list("abcd"))
    certificates = apas.certify(old, rows(40), 0.01, target=1, rng=0)
    new = old.with_parameters(old.parameters.values - 0.25)
    report = apas.audit(certificates, new, base=old)
    broken = [row for row in report if row.outcome.is_broken]
    assert broken
    found = [row.repair for row in broken if row.repair.values is not None]
    assert found
    for repair in found:
        assert "descent" in repair.reason
        assert apas.metrics.validity(new, np.array([repair.values], dtype=float), 1).all()
        assert new.margin(np.array([repair.values], dtype=float), 1)[0] < 1e-6  # just inside


def test_repairs_of_trees_where_cells_are_missing():
    frame = LOANS[NUMERIC].astype(float)
    frame["income"] = frame["income"].where(frame.index % 3 > 0)
    trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    new = make_pipeline(SimpleImputer(), StandardScaler(), trees).fit(frame, LOANS["approved"])
    rejected = frame[(new.predict(frame) == 0) & frame["income"].isna()].head(40)
    space = apas.FeatureSpace.from_frame(frame)
    found = repairs.repair_rows(apas.as_model(new), space, rejected, [1] * len(rejected))
    assert [repair.reason for repair in found if repair.values is None] == []


def test_a_slow_search_leaves_time_for_other_rows(monkeypatch):
    def slow(search):
        time.sleep(max(0.0, search.task.deadline - time.monotonic()) + 0.01)

    monkeypatch.setattr(repairs, "nearest_row", slow)
    monkeypatch.setattr(repairs, "PER_ROW", 0.02)
    told = {"output": "probability", "classes": (0, 1), "feature_names": ("a", "b")}
    model = apas.Predictor(lambda X: np.asarray(X, dtype=float).mean(axis=1), **told)
    space = apas.FeatureSpace([apas.Feature(name, low=0, high=1) for name in "ab"])
    began = time.monotonic()
    found = repairs.repair_rows(model, space, np.full((3, 2), 0.2), [1] * 3)
    assert [repair.reason for repair in found] == ["not found before its time was up"] * 3
    assert time.monotonic() - began < repairs.ALTOGETHER / 2


def test_what_is_assumed_without_a_space(tmp_path):
    points, inputs = np.array([[2.0, 5.0, 1.0], [3.0, 5.0, 0.0]]), np.array([[1.0, 5.0, 1.0], [1.0, 5.0, 0.0]])
    space = assumed_space(points, inputs, ("a", "b", "c"))
    assert [f.mutable for f in space] == [True, False, False]
    rounded = np.array([[2.0, np.nextafter(5.0, 9), 1.0], [3.0, 5.0, 0.0]])  # what rounding moved is not changed
    assert [f.mutable for f in assumed_space(rounded, inputs, ("a", "b", "c"))] == [True, False, False]
    assert space["c"].kind == "binary"
    assert (space["a"].low, space["a"].high) == (-2.0, 6.0)
    assert all(f.mutable for f in assumed_space(points, None, None))
    assert assumed_space(points, None, None).names == ("x0", "x1", "x2")
    old = apas.FeedForward([[[1.0], [2.0]]], [[-2.5]])
    report = apas.audit(
        apas.certify(old, [[1.0, 1.0]], 0.01, target=1, rng=0), old.with_parameters(np.array([1.0, 2.0, -4.0]))
    )
    assert "repairs change any feature" in report.notes[0]
    assert report[0].repair.values is not None


def test_pipelines(tmp_path):
    old, new = pipeline(800), pipeline(300)
    rejected = LOANS.loc[old.predict(LOANS[NUMERIC]) == 0, NUMERIC].head(6)
    space = apas.FeatureSpace.from_frame(LOANS[NUMERIC], increase=["income"])
    found = apas.generate(old, rejected, 0.02, space=space, source="milp", rng=0)
    apas.save_certificates(found, tmp_path / "c.json")
    report = apas.audit(tmp_path / "c.json", new, base=old)
    kept = new.predict(found.certificates.points) == 1
    assert [row.valid for row in report] == kept.tolist()
    assert not kept.all()
    assert all(row.inside is False for row in report)
    assert "(preprocessing)" in report[int(np.flatnonzero(~kept)[0])].reason
    assert "in more than parameters (preprocessing)" in report.notes[0]
    assert "features that promises of these certificates changed" in report.notes[1]
    assert report.to_frame().index.tolist() == rejected.index.tolist()
    # the networks alone, in model units
    networks = [apas.as_model(model).as_feedforward() for model in (old, new)]
    report = apas.audit(tmp_path / "c.json", networks[1], base=networks[0])
    encoded = old[:-1].transform(found.certificates.points)
    assert [row.valid for row in report] == (networks[1].margin(encoded, 1) >= 0).tolist()
    assert "taken in model units" in report.notes[0]
    assert {str(row.repair) for row in report if row.outcome.is_broken} <= {"none: the preprocessing is not at hand"}
    with pytest.raises(apas.InputError, match="both come with their preprocessing"):
        apas.audit(tmp_path / "c.json", new, base=networks[0])
    with pytest.raises(apas.InputError, match="pass the whole pipeline"):
        apas.audit(tmp_path / "c.json", network())


def test_other_architectures_are_asked_about_validity(spaced, tmp_path):
    found, old, _, other = spaced
    apas.save_certificates(found, tmp_path / "c.json")
    valid = other.predict(SPACE.encode(found.certificates.points)) == [c.target for c in found.certificates]
    for certificates, options in ((found, {}), (tmp_path / "c.json", {"base": old})):
        report = apas.audit(certificates, other, repairs=False, **options)
        assert report.shift is None
        assert [row.valid for row in report] == valid.tolist()
        said = (
            "in more than parameters (shapes ([[21, 9], [9, 1]] instead of [[21, 6], [6, 1]])): no shift was measured"
        )
        assert said in report.notes[0]
        assert {row.inside for row in report} == ({False} if options else {None})
    for options in ({}, {"base": old}):
        report = apas.audit(tmp_path / "c.json", other, validity_only=True, **options)
        assert (report.shift, report.notes[:1]) == (None, ())
        assert [row.valid for row in report] == valid.tolist()
        assert {row.outcome for row in report} <= {Outcome.HELD, Outcome.BROKEN}
    net = network(feature_names=list("abcd"))
    certificates = apas.certify(net, rows(3), 0.01, target="predicted", rng=0)
    tanh = apas.FeedForward(net.weights, net.biases, activation="tanh", feature_names=list("abcd"))
    assert "(activation (['tanh'] instead of ['relu'])): no shift" in apas.audit(certificates, tanh).notes[0]
    with pytest.raises(apas.InputError, match="`new_model` cannot read the rows"):
        apas.audit(certificates, network(0, (5, 6, 1)), validity_only=True)


def test_feature_orders(tmp_path):
    net = network(feature_names=list("abcd"))
    certificates = apas.certify(net, rows(20), 0.01, target="predicted", rng=0)
    apas.save_certificates(certificates, tmp_path / "c.json")
    order = [1, 0, 3, 2]
    same = apas.FeedForward([net.weights[0][order], *net.weights[1:]], net.biases, feature_names=list("badc"))
    for found in (certificates, tmp_path / "c.json"):
        for options in ({}, {"base": net}, {"validity_only": True}):
            report = apas.audit(found, same, **options)
            assert all(row.valid for row in report)  # columns are matched by name
            assert report.shift is None  # the first weights would be compared with those of another feature
            said = "(the order of its features: number 0 is 'b' instead of 'a'): no shift was measured"
            assert [said in note for note in report.notes] == ([] if "validity_only" in options else [True])
    renamed = apas.FeedForward(net.weights, net.biases, feature_names=list("abce"))
    for options in ({}, {"base": net}, {"validity_only": True}):
        with pytest.raises(
            apas.InputError, match="cannot read the rows .* no column 'e', and it does not take missing"
        ):
            apas.audit(tmp_path / "c.json", renamed, **options)
    # a model of fewer features takes those it knows, by name
    small = network(3, (2, 5, 1), feature_names=list("db"))
    margins = [
        small.margin(row[None, [3, 1]], c.target)[0] for row, c in zip(certificates.points, certificates, strict=True)
    ]
    for options in ({}, {"base": net}, {"validity_only": True}):
        report = apas.audit(tmp_path / "c.json", small, repairs=False, **options)
        assert [row.valid for row in report] == [
            m >= 0 if c.target else m > 0 for m, c in zip(margins, certificates, strict=True)
        ]
        assert ["its features: number 0 is 'd' instead of 'a'" in note for note in report.notes] == (
            [] if "validity_only" in options else [True]
        )
    unnamed = apas.FeedForward(net.weights, net.biases)
    assert "does not name its features" in apas.audit(tmp_path / "c.json", unnamed).notes[0]


def closed_over(scale):
    return lambda X: X * scale


def hidden(scale):
    """The same behind something that does not show what it does."""

    def times(x):
        return x * scale

    function = np.frompyfunc(times, 1, 1)
    return lambda X: function(X).astype(float)


def scaled_first(make, scale, bias=0.0):
    """The class is that of the sign of ``scale * (x0 + x1) + bias``; the parameters do not know about the scale."""
    final = LogisticRegression().fit([[0.0, 0.0], [1.0, 1.0]], [0, 1])
    final.coef_, final.intercept_ = np.array([[1.0, 1.0]]), np.array([bias])
    return Pipeline([("scale", FunctionTransformer(make(scale)).fit([[0.0, 0.0]])), ("model", final)])


RIGHT = np.array([[1.0, 1.0], [2.0, 0.5]])


@pytest.mark.parametrize("method", ["interval", "sampling"])
def test_functions_that_differ_in_a_closed_over_value_are_another_preprocessing(method):
    old, new = scaled_first(closed_over, 1.0), scaled_first(closed_over, -1.0)
    certificates = apas.certify(old, RIGHT, 0.01, target=1, method=method, rng=0)
    assert all(item.is_certified for item in certificates)
    report = apas.audit(certificates, new, base=old, repairs=False)
    assert float(report.shift) == 0
    assert {row.outcome for row in report} == {Outcome.BROKEN_OUTSIDE}
    assert report.wrong_certificates == 0
    assert "in more than parameters (preprocessing)" in report.notes[0]
    assert not report.comparable
    # the same function made once more is the same preprocessing
    again = apas.audit(certificates, scaled_first(closed_over, 1.0, bias=0.005), base=old, repairs=False)
    assert [row.inside for row in again] == [True, True]
    assert again.comparable


def test_of_a_preprocessing_without_a_fingerprint_nobody_knows_whether_it_is_the_same(tmp_path):
    old = scaled_first(hidden, 1.0)
    certificates = apas.certify(old, RIGHT, 0.01, target=1, method="interval")
    apas.save_certificates(certificates, tmp_path / "c.json")
    for found in (certificates, tmp_path / "c.json"):
        report = apas.audit(found, scaled_first(hidden, -1.0), base=old, repairs=False)
        assert {(row.outcome, row.inside) for row in report} == {(Outcome.BROKEN, None)}
        assert (
            "is not known, since not all of the models is identified (preprocessing (the ufunc times (vectorized)))"
            in report[0].reason
        )
        assert "Not all of the models is identified (preprocessing (the ufunc times (vectorized)))" in report.notes[0]
        assert not report.comparable
        assert "not known" in Outcome.BROKEN.value
    held = apas.audit(certificates, scaled_first(hidden, 1.0), base=old)
    assert {(row.outcome, row.inside) for row in held} == {(Outcome.HELD, None)}
    # what is known to differ, or lies too far off, is outside all the same
    far = apas.audit(certificates, scaled_first(hidden, -1.0, bias=0.5), base=old, repairs=False)
    assert {row.outcome for row in far} == {Outcome.BROKEN_OUTSIDE}
    other = apas.audit(certificates, scaled_first(closed_over, -1.0), base=old, repairs=False)
    assert {row.outcome for row in other} == {Outcome.BROKEN_OUTSIDE}


def test_verify_says_what_of_the_model_has_no_fingerprint(tmp_path):
    old = scaled_first(hidden, 1.0)
    apas.save_certificates(apas.certify(old, RIGHT, 0.01, target=1, method="interval"), tmp_path / "c.json")
    report = apas.verify(tmp_path / "c.json", scaled_first(hidden, 1.0))
    assert report.ok
    assert all("preprocessing (the ufunc times (vectorized)) has no fingerprint" in row.reason for row in report)
    known = scaled_first(closed_over, 1.0)
    report = apas.verify(apas.certify(known, RIGHT, 0.01, target=1, method="interval"), known)
    assert not any("fingerprint" in row.reason for row in report)


def test_listed_models_without_a_fingerprint():
    old, listed = scaled_first(hidden, 1.0), scaled_first(hidden, 1.5)
    shifts = apas.ObservedShifts([listed])
    certificates = apas.certify(old, RIGHT, 1, target=1, shifts=shifts, method="exact")
    assert all(item.is_certified for item in certificates)
    report = apas.audit(certificates, scaled_first(hidden, -1.5), base=old, repairs=False)
    assert {row.outcome for row in report} == {Outcome.BROKEN}
    report = apas.audit(certificates, scaled_first(hidden, -1.5, bias=0.1), base=old, repairs=False)
    assert {row.outcome for row in report} == {Outcome.BROKEN_OUTSIDE}
    with pytest.raises(apas.InputError, match="is not identified"):
        shifts.margins(apas.as_model(old), RIGHT, 1, np.array([[0.0]]), 1.0)


@pytest.mark.parametrize("shift", [1e-3, -1e-3])
def test_what_float32_rounding_decides_is_not_said_to_be_known(shift):
    """At inputs of 1e4 a margin of 0.001 is what float32 makes of it, and its sign may be the other one."""
    old, new = (apas.FeedForward([[[1.0], [-1.0]]], [[b]], dtype="float32") for b in (50.0, shift))
    found = apas.certify(old, [[1e4, 1e4], [1e4, 9e3]], 1e-6, target=1, method="interval")
    assert found.certified.all()
    report = apas.audit(found, new, base=old, repairs=False)
    near, clear = (row.reason for row in report)
    assert "within float32 rounding of the boundary, where the model itself may decide otherwise" in near
    assert report[0].valid == (shift > 0)
    assert "float32" not in clear
    assert [note for note in report.notes if "float32" in note]
    exact = apas.audit(found, new.with_dtype("float64"), base=old, repairs=False)
    assert not [row for row in exact if "float32 rounding" in row.reason]
