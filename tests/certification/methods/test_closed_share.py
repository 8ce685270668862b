"""Shares of linear models without draws: against draws, each kind of set, files, forgeries and the checker."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from certificate_files import changed, content_of, run_checker, write

import apas
from apas import Sampling, Verdict
from apas.certification.methods.enumeration import ShareEvidence
from apas.stats import coverage_lower, coverage_upper

SETS = {
    "linf": apas.LinfShifts(),
    "relative": apas.LinfShifts(relative=True),
    "weights": apas.LinfShifts(kinds=("weight",)),
    "scaled": apas.LinfShifts(scale={0: 0.3}),
    "gaussian": apas.GaussianShifts(),
    "ball": apas.LpShifts(2),
}


def linear(outputs: int = 1, width: int = 5, seed: int = 0, **options) -> apas.FeedForward:
    rng = np.random.default_rng(seed)
    output = "sigmoid" if outputs == 1 else "softmax"
    return apas.FeedForward([rng.normal(size=(width, outputs))], [rng.normal(size=outputs)], output=output, **options)


def rows(count: int = 12, width: int = 5) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, width))


@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("name", list(SETS))
def test_draws_lie_where_they_should(name, outputs):
    net, X, shifts = linear(outputs), rows(), SETS[name]
    decided = 0
    for delta in (0.1, 0.5):
        found = apas.certify(net, X, delta, target="predicted", shifts=shifts, method=Sampling(coverage=0.9), rng=0)
        fixed = Sampling(coverage=0.9, n_samples=4000, test="fixed")
        counted = apas.robust_fraction(net, X, [delta], target="predicted", shifts=shifts, method=fixed, rng=1)
        for certificate, curve in zip(found, counted, strict=True):
            if not isinstance(certificate.evidence, ShareEvidence):
                continue
            decided += 1
            failures = round(4000 * (1 - float(curve.estimate[0])))
            assert coverage_lower(4000, failures, confidence=1 - 1e-9) <= certificate.evidence.upper
            assert coverage_upper(4000, failures, confidence=1 - 1e-9) >= certificate.evidence.lower
            assert (certificate.claim.confidence, certificate.evidence.draws) == (1.0, 0)
    assert decided >= (24 if outputs < 4 else 18)


def test_the_output_layer_of_a_network_alone():
    rng = np.random.default_rng(5)
    net = apas.FeedForward([rng.normal(size=(5, 6)), rng.normal(size=(6, 1))], [rng.normal(size=6), np.zeros(1)])
    certificate = apas.certify(net, rows(1), 0.2, target="predicted", shifts=apas.LinfShifts(layers=[-1]), rng=0)[0]
    assert certificate.evidence.kind == "share"
    assert apas.certify(net, rows(1), 0.2, target="predicted", rng=0)[0].evidence.kind == "sampling"


@pytest.mark.parametrize("asked", [{"n_samples": 2000}, {"test": "anytime"}, {"test": "fixed"}])
def test_who_asks_for_draws_gets_draws(asked):
    found = apas.certify(linear(), rows(3), 0.1, target="predicted", method=Sampling(**asked), rng=0)
    assert {certificate.evidence.kind for certificate in found} == {"sampling"}
    derived = apas.certify(linear(), rows(3), 0.1, target="predicted", rng="derived")
    assert {certificate.evidence.kind for certificate in derived} == {"sampling"}


def test_a_subclass_with_draws_of_its_own_is_drawn_from():
    class Corners(apas.LinfShifts):
        def directions(self, parameters, stream, start, stop):
            return np.sign(super().directions(parameters, stream, start, stop))

    class Renamed(apas.LinfShifts):
        def measure(self, parameters):
            return "a box by another name"

    for shifts, kind in ((Corners(), "sampling"), (Renamed(), "share")):
        found = apas.certify(linear(), rows(3), 0.1, target="predicted", shifts=shifts, rng=0)
        assert {certificate.evidence.kind for certificate in found} == {kind}


def test_balls_of_other_norms_are_drawn_from():
    found = apas.certify(linear(), rows(3), 0.1, target="predicted", shifts="l1", rng=0)
    assert {certificate.evidence.kind for certificate in found} == {"sampling"}


def test_neither_seed_nor_other_rows_show():
    net, X = linear(), rows(40)
    together = apas.certify(net, X, 0.4, target="predicted", rng=0)
    for i in (0, 7, 39):
        assert apas.certify(net, X[i : i + 1], 0.4, target="predicted", rng=i)[0] == together[i]
    assert apas.certify(net, X, 0.4, target="predicted", n_jobs=2) == together


def test_a_refuted_row_keeps_the_worst_corner():
    for outputs in (1, 2, 4):
        net, X = linear(outputs), rows(30)
        refuted = [c for c in apas.certify(net, X, 1.0, target="predicted", rng=0) if c.verdict is Verdict.REFUTED]
        assert len(refuted) > 5
        for i, certificate in enumerate(apas.certify(net, X, 1.0, target="predicted", rng=0)):
            if certificate.verdict is Verdict.REFUTED:
                assert certificate.witness.margin(net, X[i : i + 1], certificate.target) < 0


def test_parameters_changed_in_place_are_noticed():
    from sklearn.linear_model import LogisticRegression

    X = rows(60)
    clf = LogisticRegression().fit(X, X[:, 0] > 0)
    x = X[X[:, 0] > 0.5][:1]
    before = apas.certify(clf, x, 0.1, target=True)
    clf.coef_ *= -1.0
    after = apas.certify(clf, x, 0.1, target=True)
    assert (before[0].verdict, after[0].verdict) == (Verdict.CERTIFIED, Verdict.REFUTED)
    assert before.model_digest != after.model_digest
    assert after[0].reason == "not valid on the model itself"


def test_float32_counts_what_its_rounding_leaves():
    net, X = linear(), rows(1)
    double, single = (
        apas.certify(n, X, 0.4, target="predicted", rng=0)[0].evidence for n in (net, net.with_dtype("float32"))
    )
    assert single.lower < double.lower <= double.upper < single.upper


def test_curves_are_exact_and_fall():
    net, X = linear(), rows(4)
    curves = apas.robust_fraction(net, X, [0.1, 0.4, 1.0, 4.0], target="predicted")
    for curve in curves:
        assert (curve.draws, curve.confidence) == (0, 1.0)
        assert (np.diff(curve.upper) <= 1e-9).all()
        assert (curve.upper - curve.lower < 1e-8).all()
    assert "for certain" in curves[0].sentence()


def test_files_verify_checker(tmp_path):
    net = linear()
    apas.save_model(net, tmp_path / "model.json")
    for name, shifts in SETS.items():
        found = apas.certify(net, rows(), 0.4, target="predicted", shifts=shifts, rng=0)
        path = tmp_path / f"{name}.json"
        apas.save_certificates(found, path)
        assert apas.load_certificates(path) == found
        assert apas.verify(path, net).ok
        code, lines, _ = run_checker(path, tmp_path / "model.json")
        assert code == 0, lines
        assert any("computed again" in line[2] for line in lines)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("evidence",), lambda old: {"kind": "share", "lower": old["lower"] + 1e-6, "upper": old["upper"] + 1e-6}),
        (("evidence",), lambda old: {"kind": "share", "lower": old["lower"] - 1e-6, "upper": old["upper"] - 1e-6}),
        (("claim", "coverage"), 0.9999),
        (("claim", "confidence"), 0.999),
        (("verdict",), "REFUTED"),
        (("delta",), 0.9),
        (("method",), "enumeration"),
    ],
)
def test_forgeries_fail(tmp_path, place, value):
    net = linear()
    apas.save_model(net, tmp_path / "model.json")
    X = rows(60)
    found = apas.certify(net, X, 0.35, target="predicted", method=Sampling(coverage=0.99), rng=0)
    number = next(i for i, c in enumerate(found) if c.is_certified and c.evidence.lower < 0.9995)
    apas.save_certificates(found[number : number + 1], tmp_path / "right.json")
    assert apas.verify(tmp_path / "right.json", net).ok
    content = content_of(tmp_path / "right.json")
    write(tmp_path / "wrong.json", changed(content, ("certificates", 0, "certificate", *place), value))
    assert apas.verify(tmp_path / "wrong.json", net).exit_code == 1
    code, lines, _ = run_checker(tmp_path / "wrong.json", tmp_path / "model.json")
    assert code == 1, lines


def test_a_forged_witness_fails():
    net, X = linear(), rows(30)
    found = apas.certify(net, X, 1.0, target="predicted", rng=0)
    number = next(i for i, c in enumerate(found) if c.witness is not None)
    other = replace(found[number].witness, signs=-found[number].witness.signs)
    question = found[number : number + 1]
    question._items = (replace(found[number], witness=other),)
    assert "its witness does not" in apas.verify(question, net)[0].reason


def test_bad_evidence_is_refused(tmp_path):
    net = linear()
    apas.save_certificates(apas.certify(net, rows(1), 0.1, target="predicted"), tmp_path / "c.json")
    content = json.loads((tmp_path / "c.json").read_text())
    write(tmp_path / "c.json", changed(content, ("certificates", 0, "certificate", "evidence", "lower"), 1.5))
    with pytest.raises(apas.InputError, match="bounds on a share"):
        apas.load_certificates(tmp_path / "c.json")
