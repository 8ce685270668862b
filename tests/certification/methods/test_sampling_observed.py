"""Certificates over models that exist: counts, claims, witnesses, and what is refused."""

from __future__ import annotations

import re
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import apas
from apas import Every, FeedForward, GuaranteeWarning, InputError, Most, Sampling, Unsupported, Verdict
from apas.certification.api import output_range
from apas.certification.methods.sampling import too_few_models
from apas.shifts.observed import ObservedShifts
from apas.shifts.retraining import retrain

TARGET = Sampling(coverage=0.95, confidence=0.95)
BASE = FeedForward([[[1.0]]], [[0.0]])


def shifted(*biases):
    """Models of margin x + bias."""
    return ObservedShifts([FeedForward([[[1.0]]], [[float(b)]]) for b in biases])


def spread(count, failing, at=2.0):
    """`count` different models, of which those numbered in `failing` do not keep x = 1."""
    return shifted(*(-at - i / 1000 if i in failing else i / 1000 + 1e-4 for i in range(count)))


def ask(shifts, X=((1.0,),), delta=1, *, model=BASE, target=1, method=TARGET, **options):
    return apas.certify(model, X, delta, target=target, shifts=shifts, method=method, **options)


# -- most models of a process ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "failing", "verdict"),
    [
        (59, [], Verdict.CERTIFIED),
        (59, [58], Verdict.UNKNOWN),
        (93, [0], Verdict.CERTIFIED),
        (93, [0, 92], Verdict.UNKNOWN),
        (59, range(0, 14, 2), Verdict.REFUTED),
    ],
)
def test_failures_are_counted(count, failing, verdict):
    got = ask(spread(count, list(failing)))[0]
    assert got.verdict is verdict
    assert got.evidence.samples == count
    if verdict is Verdict.REFUTED:
        assert (got.evidence.draws, got.evidence.failures) == (13, 7)  # it ends at the deciding failure
    else:
        assert (got.evidence.draws, got.evidence.failures) == (count, len(failing))
    assert got.evidence.first_failure == (min(failing) if failing else None)


def test_delta_may_be_left_out_and_draws_do_not_depend_on_rng():
    shifts = spread(59, [7])
    answers = [ask(shifts, delta=d, rng=rng)[0] for d, rng in [(1, 0), (1.0, 1), (None, 2)]]
    for got in answers:
        assert got.delta == 1.0
        assert (got.verdict, got.evidence.failures, got.witness.index) == (Verdict.UNKNOWN, 1, 7)
    with pytest.raises(InputError, match="`delta` must be a positive number, or one per row, got None"):
        apas.certify(BASE, [[1.0]], None, target=1)


def test_the_claim_names_the_process():
    got = ask(spread(59, []))[0]
    assert isinstance(got.claim, Most)
    assert got.claim.measure == "models of the process that these 59 came from, taken to be independent draws of it"
    X = np.random.default_rng(0).normal(size=(60, 2))
    made = retrain(LogisticRegression(), X, (X[:, 0] > 0).astype(int), n_models=59, rng=0)
    got = ask(ObservedShifts(made), [[2.0, 0.0]], model=made[0])[0]
    assert got.claim.measure == f"models that this process on this data set produces: {made.process}"
    assert got.is_certified
    assert got.sentence().startswith(
        "CERTIFIED: with confidence 0.95, at least 95 % of the shifts keep class 1 under shifts by delta = 1 (models "
        "that this process on this data set produces: LogisticRegression fitted to a bootstrap sample of the same 60 "
        "rows (data "
    )
    scaled = ask(ObservedShifts(made), [[2.0, 0.0]], 0.5, model=made[0])[0]
    assert scaled.claim.measure.startswith(
        "delta times the change of the parameters from this model to one of the models that this process"
    )


def test_rows_that_the_model_itself_does_not_keep_are_refuted():
    got = ask(spread(59, []), [[1.0], [-1.0]])
    assert [c.verdict for c in got] == [Verdict.CERTIFIED, Verdict.REFUTED]
    assert got[1].reason == "not valid on the model itself"


def test_too_few_models_name_the_confidence_within_reach():
    with pytest.raises(InputError) as caught:
        ask(spread(30, []))
    assert str(caught.value) == (
        "`models` of ObservedShifts must number at least 59 for coverage 0.95 with confidence 0.95, got 30; 30 reach a "
        "confidence of 0.7853, so retrain more or ask Sampling for less."
    )
    assert ask(spread(30, []), method=Sampling(coverage=0.95, confidence=0.7853))[0].is_certified
    with pytest.raises(InputError, match=r"for 2 rows together, got 59; 59 reach a confidence of 0.903 for 2 rows"):
        ask(spread(59, []), [[1.0], [2.0]], simultaneous=True)
    with pytest.raises(InputError, match="at least 1379 for coverage 0.995 with confidence 0.999, got 59"):
        ask(spread(59, []), method="sampling")


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95, 0.995])
@pytest.mark.parametrize("models", [1, 2, 10, 58, 200])
def test_the_confidence_within_reach_is_reached_and_not_much_more(models, coverage, rows):
    text = too_few_models(Most(coverage, 0.9999999, "models", rows), models)
    found = re.search(r"reach a confidence of ([\d.]+)", text)
    if found is None:
        assert "they reach none" in text
        assert 1 - rows * coverage**models < 1e-4
        return
    reached = float(found[1])
    for level, enough in ((reached, True), (reached + 1.1e-4, False)):
        if level < 1:
            row = Most(coverage, level, "models", rows).row_confidence
            assert (apas.allowed_failures(models, coverage=coverage, confidence=row) >= 0) is enough


def test_fewer_models_than_there_are_can_be_asked_for_but_not_more():
    shifts = spread(70, [65])
    assert ask(shifts)[0].verdict is Verdict.UNKNOWN
    first = ask(shifts, method=Sampling(coverage=0.95, confidence=0.95, n_samples=59))[0]
    assert first.is_certified
    assert first.evidence.draws == 59
    with pytest.raises(
        InputError, match="`n_samples` of Sampling must be at most 70, as ObservedShifts has models, got 71"
    ):
        ask(shifts, method=Sampling(coverage=0.95, confidence=0.95, n_samples=71))
    with pytest.raises(InputError, match="`n_samples` of Sampling must be at least 59 .* got 40"):
        ask(shifts, method=Sampling(coverage=0.95, confidence=0.95, n_samples=40))


def test_simultaneous():
    X = [[1.0], [2.0], [3.0]]
    got = ask(spread(80, []), X, simultaneous=True)
    assert [c.claim.rows for c in got] == [3, 3, 3]
    assert got.certified.all()
    assert got[0].evidence.allowed == apas.allowed_failures(80, coverage=0.95, confidence=got[0].claim.row_confidence)
    assert "for all 3 rows together" in got[0].sentence()


def test_a_witness_is_a_model():
    shifts = spread(59, [3, 9])
    got = ask(shifts)[0]
    witness = got.witness
    assert witness.index == 3
    assert witness.to_dict() == {"kind": "draw", "index": 3}
    assert np.array_equal(witness.parameters(BASE), shifts.models[3].parameters.values)
    assert witness.margin(BASE, [[1.0]], 1) == shifts.models[3].margin(np.array([[1.0]]), 1)[0] < 0
    half = ask(spread(59, [3], at=20.0), delta=0.5)[0]
    assert half.witness.index == 3
    assert half.witness.parameters(BASE).tolist() == [1.0, -10.0015]
    assert half.witness.margin(BASE, [[1.0]], 1) == pytest.approx(-9.0015)


def test_evidence_does_not_depend_on_rows_or_jobs():
    rng = np.random.default_rng(0)
    models = [
        FeedForward([rng.normal(size=(2, 3)), rng.normal(size=(3, 1))], [rng.normal(size=3), [1.0]]) for _ in range(300)
    ]
    shifts, X = ObservedShifts(models), rng.normal(size=(40, 2))
    asked = {"model": models[0], "target": "predicted", "method": Sampling(coverage=0.6, confidence=0.9), "rng": 0}
    whole = ask(shifts, X, **asked)
    assert len({c.verdict for c in whole}) > 1
    assert whole == ask(shifts, X, n_jobs=2, **asked)
    assert [c.evidence for c in ask(shifts, X[5:8], **asked)] == [c.evidence for c in whole[5:8]]
    assert whole.to_dict()["shifts"]["kind"] == "observed"
    for row, certificate in zip(X, whole, strict=True):
        if certificate.evidence.draws == 300:
            failing = sum(m.margin(row[None, :], certificate.target)[0] < 0 for m in models)
            assert certificate.evidence.failures == failing


# -- preprocessing -----------------------------------------------------------------------------------------------

RNG = np.random.default_rng(1)
ROWS = pd.DataFrame({"income": RNG.normal(50, 10, size=120), "debt": RNG.normal(500, 300, size=120)})
PAID = (ROWS["income"] - ROWS["debt"] / 30 + RNG.normal(0, 3, size=120) > 33).astype(int).to_numpy()


def test_each_pipeline_reads_the_rows_itself():
    base = make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, PAID)
    others = []
    for i in range(59):
        rows = RNG.integers(0, 120, size=120)
        scaler = StandardScaler() if i % 2 else MinMaxScaler()
        others.append(make_pipeline(scaler, LogisticRegression()).fit(ROWS.iloc[rows], PAID[rows]))
    shown = ROWS.iloc[::3][["debt", "income"]]
    predicted = np.array([m.predict(ROWS.iloc[::3]) for m in others])
    for method in (TARGET, "exact", "cascade"):
        got = ask(ObservedShifts(others), shown, model=base, target="predicted", method=method)
        assert len({c.verdict for c in got}) > 1
        for i, certificate in enumerate(got):
            row = ROWS.iloc[[3 * i]]
            keeps = predicted[:, i] == certificate.target
            if certificate.witness is not None:
                assert certificate.witness.index == int(np.argmin(keeps))
                assert certificate.witness.margin(base, row[["debt", "income"]], certificate.target) < 0
            assert certificate.is_certified == bool(keeps.all())
    asked = {"model": base, "target": "predicted", "rng": 0}
    frame, array = (ask(ObservedShifts(others), rows, **asked) for rows in (shown, shown.to_numpy()[:, ::-1]))
    assert [c.evidence for c in frame] == [c.evidence for c in array]


def test_a_model_that_is_not_what_its_library_says_is_refused():
    base = LogisticRegression().fit(ROWS.to_numpy(), PAID)

    class Odd:
        def __init__(self):
            self.net = apas.as_model(base)
            self.classes, self.n_features, self.parameters = (0, 1), 2, self.net.parameters
            self.margin, self.shifted_margins = self.net.margin, self.net.shifted_margins

        def library_classes(self, X):
            return 1 - base.predict(X)

    with pytest.raises(
        InputError, match=re.escape("`models[0]` of ObservedShifts does not agree with its own library on row 0")
    ):
        ask(ObservedShifts([Odd()]), ROWS.to_numpy()[:3], model=base, target="predicted", method="exact")


def test_another_threshold_is_warned_about():
    models = [apas.as_model(LogisticRegression(C=c).fit(ROWS.to_numpy(), PAID)) for c in (1.0, 0.5)]
    base = apas.as_model(LogisticRegression().fit(ROWS.to_numpy(), PAID), threshold=0.7)
    for listed in (models, [base, *models]):
        with pytest.warns(
            GuaranteeWarning, match="gives its second class from 0.5 on, but the model itself from 0.7 on"
        ) as caught:
            ask(ObservedShifts(listed), ROWS.to_numpy()[:2], model=base, target="predicted", method="exact")
        assert len(caught) == 1


@pytest.mark.parametrize("method", ["interval", "linear"])
def test_bounds_point_to_the_methods_for_models_that_exist(method):
    with pytest.raises(Unsupported, match="use Exact, which asks every model, or Sampling"):
        ask(shifted(0.5), [[1.0]], method=method)


# -- every listed model ------------------------------------------------------------------------------------------


def test_every_listed_model_is_asked():
    shifts = shifted(0.5, -0.25, 0.75)
    got = ask(shifts, [[1.0], [0.2], [0.25]], method="exact")
    assert [c.verdict for c in got] == [Verdict.CERTIFIED, Verdict.REFUTED, Verdict.UNKNOWN]
    assert got[0].claim == Every("the 3 listed models")
    assert got[0].evidence.to_dict() == {
        "kind": "bound",
        "step": "models",
        "bound": 0.749999,
        "nodes": 3,
        "exact": True,
    }
    assert got[0].sentence() == (
        "CERTIFIED: for certain, every one of the shifts keeps class 1 under shifts by delta = 1 (the 3 listed models); "
        "each of the 3 was asked, and the least margin is 0.749999."
    )
    assert got[1].reason == "model number 1 does not keep it"
    assert got[1].witness.index == 1
    assert got[1].witness.margin(BASE, [[0.2]], 1) == pytest.approx(-0.05)
    assert "within rounding of the boundary" in got[2].reason
    assert ask(shifts, [[0.2]], 0.5, method="exact")[0].is_certified  # half of the way


def test_the_cascade_asks_them_too():
    got = ask(shifted(0.5, -0.25), [[1.0], [0.2]], method="cascade")
    assert [c.verdict for c in got] == [Verdict.CERTIFIED, Verdict.REFUTED]
    assert got[0].method == "cascade: exact"


def test_many_models_are_asked_in_blocks(monkeypatch):
    monkeypatch.setattr(sys.modules["apas.certification.failing_draws"], "DRAWS", 128)
    shifts = spread(300, [200, 250])
    got = ask(shifts, [[1.0], [9.0]], method="exact")
    assert [c.verdict for c in got] == [Verdict.REFUTED, Verdict.CERTIFIED]
    assert got[0].witness.index == 200
    assert float(got[1].evidence.bound) == pytest.approx(9 - 2.25, rel=1e-5)


def test_a_model_that_never_saw_the_class_is_a_witness():
    base = FeedForward([[[0.0, 1.0, 2.0]]], [[0.0, 0.0, 0.0]], output="softmax")
    lacking = FeedForward([[[0.0, 1.0]]], [[0.0, 0.0]], output="softmax")
    for method in ("exact", Sampling(coverage=0.4, confidence=0.5)):
        got = ask(ObservedShifts([lacking]), model=base, target=2, method=method)[0]
        assert got.witness.index == 0
        assert np.isneginf(got.witness.margin(base, [[1.0]], 2))


@pytest.mark.parametrize("method", ["interval", "linear", "attack", "enumeration"])
def test_methods_for_boxes_refuse(method):
    with pytest.raises(Unsupported, match="ObservedShifts"):
        ask(shifted(0.5, 0.25), method=method)


# -- other questions ---------------------------------------------------------------------------------------------


def test_max_shift_refuses():
    for method in ("sampling", "exact"):
        with pytest.raises(
            Unsupported, match="max_shift cannot use ObservedShifts: the models that choose a delta cannot"
        ):
            apas.max_shift(BASE, [[1.0]], target=1, shifts=spread(59, []), method=method)


def test_robust_fraction_counts_models():
    shifts = spread(100, range(0, 100, 10), at=4.0)
    curve = apas.robust_fraction(BASE, [[1.0]], [1.0], target=1, shifts=shifts, method=Sampling(confidence=0.95))[0]
    assert curve.draws == 100
    assert curve.estimate.tolist() == [0.9]
    assert curve.lower[0] < 0.9 < curve.upper[0]
    assert curve.measure.startswith("models of the process that these 100 came from")
    scaled = apas.robust_fraction(BASE, [[1.0]], [0.1, 1.0], target=1, shifts=shifts)[0]
    assert scaled.estimate.tolist() == [1.0, 0.9]
    assert scaled.measure.startswith("delta times the change of the parameters from this model to one of the models")
    with pytest.raises(InputError, match="at most 100, as ObservedShifts has models, got 101"):
        apas.robust_fraction(BASE, [[1.0]], [1.0], target=1, shifts=shifts, method=Sampling(n_samples=101))


def test_output_range_of_models():
    found = output_range(BASE, [[1.0]], None, target=1, shifts=spread(59, [5]), method=TARGET)[0]
    assert found.low == pytest.approx(1 - 2.005)
    assert found.high == pytest.approx(1.0581)
    with pytest.raises(Unsupported, match="ObservedShifts"):
        output_range(BASE, [[1.0]], 1, target=1, shifts=spread(59, [5]), method="exact")
