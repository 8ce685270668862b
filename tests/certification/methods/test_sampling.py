"""Sampling certificates: right verdicts on problems with known answers, exact counts, replayable witnesses."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from problems import CASES, case

import apas
from apas import FeedForward, InputError, LinfShifts, Most, Sampling, Verdict
from apas._random import Stream
from apas.stats import anytime_refuting_draw
from apas.stats.sequential import MOST_DOUBTFUL


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_verdict_of_known_problems(known):
    for coverage in (0.5, 0.8, 0.9, 0.95, 0.99, 0.995):
        if abs(coverage - known.share) < 0.006 and known.share < 1:
            continue  # too close to be decided by 20,000 draws
        method = Sampling(coverage=coverage)
        certificate = apas.certify(
            known.model, known.X, known.delta, target=known.target, shifts=known.shifts, method=method, rng=11
        )[0]
        expected = Verdict.CERTIFIED if known.share >= coverage else Verdict.REFUTED
        assert certificate.verdict is expected, (coverage, certificate)


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_bounds_enclose_the_known_share(known):
    # at coverage 0.01 nothing is refuted, so that all 20,000 draws are made
    certificate = apas.certify(
        known.model, known.X, known.delta, target=known.target, shifts=known.shifts,
        method=Sampling(coverage=0.01, n_samples=20_000), rng=5,
    )[0]  # fmt: skip
    evidence = certificate.evidence
    assert evidence.draws == 20_000
    assert evidence.coverage_lower(0.9999) <= known.share <= evidence.coverage_upper(0.9999)


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_shares_of_cases_are_right(known):
    """The bank itself is checked by brute force with NumPy's own generator."""
    rng = np.random.default_rng(1)
    parameters = known.model.parameters
    directions = rng.uniform(-1, 1, size=(200_000, len(parameters))) * known.shifts.radii(parameters)
    margins = known.model.shifted_margins(known.X, known.target, directions, known.delta)[:, 0]
    assert abs((margins >= 0).mean() - known.share) < 0.005
    assert known.every == (known.share == 1.0)


def test_counts_are_those_of_a_plain_loop():
    known = case("two-weights")
    certificate = apas.certify(
        known.model, known.X, known.delta, target=1, shifts=known.shifts,
        method=Sampling(coverage=0.9, n_samples=3000), rng=4,
    )[0]  # fmt: skip
    stream = Stream(4, "certify")
    failing = []
    for i in range(3000):
        direction = known.shifts.directions(known.model.parameters, stream, i, i + 1)[0]
        theta = known.model.parameters.values + known.delta * direction
        if theta[0] * known.x[0] + theta[1] * known.x[1] + theta[2] < 0:
            failing.append(i)
    evidence = certificate.evidence
    assert (evidence.draws, evidence.failures, evidence.first_failure) == (3000, len(failing), failing[0])
    assert evidence.doubtful == 0


def test_a_refuted_run_ends_at_its_deciding_failure():
    known = case("bias-some")
    for seed in range(20):
        certificate = apas.certify(
            known.model, known.X, known.delta, target=1, shifts=known.shifts, method=Sampling(n_samples=1379), rng=seed
        )[0]
        evidence = certificate.evidence
        assert certificate.verdict is Verdict.REFUTED
        assert evidence.failures == evidence.refuting == 17
        stream = Stream(seed, "certify")
        bias = known.shifts.directions(known.model.parameters, stream, 0, evidence.draws)[:, -1]
        fails = 0.3 + known.delta * bias < 0
        assert fails[-1]
        assert fails.sum() == 17


@pytest.mark.parametrize(("samples", "allowed", "refuting"), [(1379, 0, 17), (20_000, 70, 133)])
def test_thresholds_of_the_default_claim(samples, allowed, refuting):
    known = case("bias-all")
    evidence = apas.certify(
        known.model, known.X, known.delta, target=1, shifts=known.shifts, method=Sampling(n_samples=samples), rng=0
    )[0].evidence
    assert (evidence.samples, evidence.allowed, evidence.refuting) == (samples, allowed, refuting)


def test_unknown_lies_between():
    # share 0.998 against coverage 0.995 with 1379 draws: about 3 failures, too many for c = 0, too few for r = 17
    known = case("bias-almost")
    certificates = [
        apas.certify(
            known.model, known.X, known.delta, target=1, shifts=known.shifts, method=Sampling(n_samples=1379), rng=seed
        )[0]
        for seed in range(20)
    ]
    unknown = [c for c in certificates if c.verdict is Verdict.UNKNOWN]
    assert len(unknown) > 10
    for certificate in unknown:
        assert 0 < certificate.evidence.failures < 17
        assert certificate.evidence.draws == 1379
        assert "more than the 0 that certify, fewer than the 17 that refute" in certificate.sentence()


def test_default_number_of_samples():
    assert _samples(Sampling(test="fixed"), parameters=4) == 20_000
    assert _samples(Sampling(test="fixed"), parameters=10_001) == 10**8 // 10_001
    fine = Sampling(coverage=0.9999, test="fixed")
    assert _samples(fine, parameters=4) == apas.sample_size(coverage=0.9999, confidence=0.999)
    assert _samples(Sampling(test="anytime"), parameters=4) == 50_000
    assert _samples(Sampling(test="anytime"), parameters=10_001) == 10**8 // 10_001
    needed = apas.stats.anytime_sample_size(0, coverage=0.9999, confidence=0.999)
    assert _samples(Sampling(coverage=0.9999, test="anytime"), parameters=4) == needed


def _samples(method, parameters):
    net = FeedForward([np.zeros((parameters - 1, 1))], [[1.0]])
    certificate = apas.certify(net, np.zeros((1, parameters - 1)), 0.1, target=1, method=method, rng=0)[0]
    return certificate.evidence.samples


def test_row_not_valid_on_the_model_is_refuted_without_draws():
    known = case("bias-some")
    certificates = apas.certify(known.model, [[0.5], [0.1]], 1e-6, target=1, shifts=known.shifts, rng=0)
    assert certificates[0].is_certified
    refuted = certificates[1]
    assert refuted.verdict is Verdict.REFUTED
    assert refuted.reason == "not valid on the model itself"
    assert refuted.evidence.draws == refuted.evidence.failures == 0
    assert refuted.witness is None
    assert isinstance(refuted.claim, Most)


def test_ties_are_valid_for_class_1_only_and_never_refuted_by_rounding():
    # a dead hidden unit: the margin is exactly 0 on the model and on every shift of the first layer
    dead = FeedForward([[[1.0]], [[1.0]]], [[-5.0], [0.0]])
    shifts = LinfShifts(layers=[0])
    for test in ("fixed", "anytime"):
        ask = partial(apas.certify, dead, [[1.0]], 0.1, shifts=shifts, method=Sampling(test=test), rng=0)
        first, second = (ask(target=target)[0] for target in (1, 0))
        assert first.verdict is Verdict.UNKNOWN  # the truth is "all valid", but 0 is within rounding of the boundary
        most = 10 * first.evidence.refuting if test == "fixed" else MOST_DOUBTFUL
        assert first.evidence.doubtful == first.evidence.failures == first.evidence.draws == most
        assert first.witness is None
        assert first.evidence.coverage_lower(0.9) == 0.0
        assert first.evidence.coverage_upper(0.9) == 1.0
        assert "within rounding" in first.reason
        assert second.reason == "not valid on the model itself"


def test_doubtful_draws_do_not_hide_sure_failures():
    # a quarter of the shifts make the unit dead (margin exactly 0), others are clearly negative: the claim is refuted
    net = FeedForward([[[0.05]], [[1.0]]], [[0.0], [0.0]])
    shifts = LinfShifts(kinds=("weight",), scale=[[[1.0]], [0.0], [[20.0]], [0.0]])
    for test in ("fixed", "anytime"):
        how = {"shifts": shifts, "method": Sampling(test=test)}
        certificate = apas.certify(net, [[1.0]], 0.1, target=1, rng=0, **how)[0]
        evidence = certificate.evidence
        assert certificate.verdict is Verdict.REFUTED
        sure = evidence.failures - evidence.doubtful
        last = evidence.draws if test == "fixed" else anytime_refuting_draw(sure, coverage=0.995, confidence=0.999)
        assert (sure == evidence.refuting) if test == "fixed" else (evidence.draws <= last)
        assert evidence.doubtful > 0
        assert certificate.witness.margin(net, [[1.0]], 1) < 0


def test_witness_can_be_replayed():
    known = case("negative-input")
    method = Sampling(coverage=0.9, test="anytime")
    certificate = apas.certify(known.model, known.X, known.delta, target=1, shifts=known.shifts, rng=2, method=method)[
        0
    ]
    assert certificate.is_certified  # Most holds, and yet one shift fails
    witness = certificate.witness
    theta = witness.parameters(known.model)
    assert np.all(np.abs(theta - known.model.parameters.values) <= known.delta)
    assert theta[0] * known.x[0] + theta[1] * known.x[1] + theta[2] < 0
    assert witness.margin(known.model, known.X, 1) < 0
    assert witness.index == certificate.evidence.first_failure


def test_simultaneous_tests_each_row_at_a_stricter_level():
    known = case("bias-all")
    X = np.repeat(known.X, 10, axis=0)
    method = Sampling(coverage=0.9, confidence=0.9, n_samples=44)
    together = apas.certify(
        known.model, X, known.delta, target=1, shifts=known.shifts, method=method, simultaneous=True, rng=0
    )
    assert together[0].claim.rows == 10
    assert together[0].evidence.allowed == 0
    assert "for all 10 rows together" in together[0].sentence()
    alone = apas.certify(known.model, X, known.delta, target=1, shifts=known.shifts, method=method, rng=0)
    assert alone[0].evidence.allowed > 0
    with pytest.raises(
        InputError, match="at least 44 for coverage 0.9 with confidence 0.9 for 10 rows together, got 43"
    ):
        apas.certify(
            known.model, X, known.delta, target=1, shifts=known.shifts,
            method=dataclasses.replace(method, n_samples=43), simultaneous=True, rng=0,
        )  # fmt: skip


def test_simultaneous_counts_the_rows_asked_for_not_the_valid_ones():
    known = case("bias-all")
    certificates = apas.certify(
        known.model, [[0.5], [0.0], [0.0]], known.delta, target=1, shifts=known.shifts, simultaneous=True, rng=0
    )
    assert [c.claim.rows for c in certificates] == [3, 3, 3]


def test_low_confidence_never_both_certifies_and_refutes():
    known = case("bias-some")
    for seed in range(30):
        evidence = apas.certify(
            known.model, known.X, known.delta, target=1, shifts=known.shifts,
            method=Sampling(coverage=0.875, confidence=0.2, n_samples=200), rng=seed,
        )[0].evidence  # fmt: skip
        assert evidence.refuting > evidence.allowed


@pytest.mark.parametrize("share", [0.6, 6.0])
def test_authors_counterfactuals(oracle, oracle_network, share):
    rows = oracle["counterfactuals"]
    X = np.array([row["x"] for row in rows])
    deltas = share * np.array([row["delta_sampling"] for row in rows])
    certificates = apas.certify(oracle_network, X, deltas, target=1, rng=0)
    assert certificates.certified.all() if share < 1 else not certificates.certified.any()
