"""The theorem itself: how often a certificate is false, over many seeds, on models whose share is known exactly.

A procedure at nominal failure 10 % may fail at most 252 times in 2,000 repetitions, at 5 % at most 138 times: the exact
binomial test rejects beyond that at 1e-4. The short form, 300 repetitions at 10 %, may fail 51 times.
"""

from __future__ import annotations

import numpy as np
import pytest
from problems import linear, product

import apas
from apas import Cascade, FeedForward, LinfShifts, Sampling, Unsupported, Verdict

LIMITS = {(300, 0.9): 51, (2000, 0.9): 252, (2000, 0.95): 138}
SHORT = [(300, 0.9)]
LONG = [(2000, 0.9), (2000, 0.95)]
BIAS = LinfShifts(kinds=("bias",))


def levels(settings):
    return pytest.mark.parametrize(("repetitions", "confidence"), settings, ids=str)


def with_share(share):
    """A linear model with one moving bias, valid on exactly this share of the shifts by delta = 1."""
    return linear([0.0], 2 * share - 1)


def false_claims(
    model, x, delta, shifts, share, *, repetitions, confidence, verdict, coverage=0.9, samples=None, start=0
):
    """How many of the repetitions give `verdict` (which the caller knows to be false)."""
    method = Sampling(coverage=coverage, confidence=confidence, n_samples=samples)
    verdicts = [
        apas.certify(model, [x], delta, target=1, shifts=shifts, method=method, rng=start + i)[0].verdict
        for i in range(repetitions)
    ]
    return sum(v is verdict for v in verdicts)


def check_certified(repetitions, confidence):
    """A share a hair below the coverage: every CERTIFIED is false."""
    limit = LIMITS[repetitions, confidence]
    needed = apas.sample_size(coverage=0.9, confidence=confidence)
    for samples in (needed, 3 * needed, 500):
        share = 0.9 - 1e-9
        wrong = false_claims(
            with_share(share), [1.0], 1.0, BIAS, share,
            repetitions=repetitions, confidence=confidence, samples=samples, verdict=Verdict.CERTIFIED,
        )  # fmt: skip
        assert wrong <= limit, samples
        assert wrong > 0  # the test has the power to see a failure


def check_refuted(repetitions, confidence):
    """A share a hair above the coverage: every REFUTED is false."""
    wrong = false_claims(
        with_share(0.9 + 1e-9), [1.0], 1.0, BIAS, 0.9,
        repetitions=repetitions, confidence=confidence, samples=500, verdict=Verdict.REFUTED,
    )  # fmt: skip
    assert 0 < wrong <= LIMITS[repetitions, confidence]


def check_product(repetitions, confidence):
    """One hidden layer, product of two uniforms: coverage a hair above its share of valid shifts."""
    known = product(0.2, 0.7)
    wrong = false_claims(
        known.model, known.x, known.delta, known.shifts, known.share, coverage=known.share + 1e-9,
        repetitions=repetitions, confidence=confidence, samples=500, verdict=Verdict.CERTIFIED,
    )  # fmt: skip
    assert 0 < wrong <= LIMITS[repetitions, confidence]


def check_bounds(repetitions, confidence):
    """One-sided bounds, each at its confidence, on runs that stop at the deciding failure and on runs that do not."""
    low = high = 0
    for i in range(repetitions):
        share = (0.9, 0.85, 0.95)[i % 3]
        evidence = apas.certify(
            with_share(share), [[1.0]], 1.0, target=1, shifts=BIAS, rng=i,
            method=Sampling(coverage=0.9, confidence=0.9, n_samples=300),
        )[0].evidence  # fmt: skip
        low += evidence.coverage_lower(confidence) > share
        high += evidence.coverage_upper(confidence) < share
    assert 0 < low <= LIMITS[repetitions, confidence]
    assert 0 < high <= LIMITS[repetitions, confidence]


def check_simultaneous(repetitions, confidence):
    """Eight rows that fail on different shifts: some false certificate in at most the nominal share of calls."""
    # only the diagonal of the first layer moves: the margin of row e_i is 0.8 + u_i, valid on a share of 0.9
    rows = 8
    net = FeedForward(
        [np.zeros((rows, rows)), np.ones((rows, 1))], [np.zeros(rows), [0.8 - 1e-9]], activation="identity"
    )
    scale = [np.eye(rows), np.zeros(rows), np.zeros((rows, 1)), np.zeros(1)]
    shifts = LinfShifts(scale=scale)
    method = Sampling(coverage=0.9, confidence=confidence, n_samples=100)
    single = joint = 0
    for i in range(repetitions):
        joint += apas.certify(
            net, np.eye(rows), 1.0, target=1, shifts=shifts, method=method, simultaneous=True, rng=i
        ).certified.any()
        single += apas.certify(net, np.eye(rows), 1.0, target=1, shifts=shifts, method=method, rng=i).certified.any()
    assert joint <= LIMITS[repetitions, confidence]
    assert single > LIMITS[repetitions, confidence]  # without the correction the joint claim is false far too often


def check_cascade(repetitions, confidence):
    """A share just below the coverage: sample after sample until one certifies is refused, one sample is sound."""
    sizes = (1, 1.7, 2.4, 3, 3.5, 4.1, 4.7, 5.3, 5.8, 6.4, 6.9, 7.5)
    needed = apas.sample_size(coverage=0.9, confidence=confidence)
    methods = [Sampling(coverage=0.9, confidence=confidence, n_samples=int(needed * size)) for size in sizes]
    model, wrong, until = with_share(0.899), 0, 0
    for i in range(repetitions):
        question = {"target": 1, "shifts": BIAS, "rng": i}
        with pytest.raises(Unsupported, match="use one Sampling with more n_samples"):
            apas.certify(model, [[1.0]], 1.0, method=Cascade(*methods), **question)
        one = Cascade(methods[-1])
        wrong += apas.certify(model, [[1.0]], 1.0, method=one, **question)[0].is_certified
        until += any(apas.certify(model, [[1.0]], 1.0, method=m, **question)[0].is_certified for m in methods)
    assert 0 < wrong <= LIMITS[repetitions, confidence]
    assert until > LIMITS[repetitions, confidence]  # what the refusal prevents


CHECKS = [check_certified, check_refuted, check_product, check_bounds, check_simultaneous, check_cascade]


@levels(SHORT)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_short(check, repetitions, confidence):
    check(repetitions, confidence)


@pytest.mark.validity
@levels(LONG)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_long(check, repetitions, confidence):
    check(repetitions, confidence)
