"""The anytime test: published boundaries to the unit, exact levels by recursion, and whoever stops as it suits."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest

from apas.errors import InputError
from apas.stats import (
    anytime_coverage_lower,
    anytime_coverage_upper,
    anytime_refuting_draw,
    anytime_sample_size,
    sample_size,
)
from apas.stats.sequential import MOST_DOUBTFUL, boundary

PAPER, REFITS, DERIVED = (0.995, 0.999), (0.95, 0.95), (0.995, 1 - Fraction(1, 2**64))
COUNTS = (0, 1, 2, 3, 5, 10, 20, 40, 70, 80)
CERTIFYING = [
    (Fraction(g), Fraction(w, 20)) for g, w in {"0": 6, "1/8": 3, "1/4": 3, "1/2": 3, "3/4": 3, "7/8": 2}.items()
]
REFUTING = [(Fraction(h), Fraction(v, 10)) for h, v in {"5/4": 2, "3/2": 2, "2": 2, "4": 2, "16": 1, "256": 1}.items()]


def mixture(prior, n, k, q):
    """The process itself, in fractions."""
    return sum(w * g**k / (1 + (g - 1) * q) ** n for g, w in prior)


@pytest.mark.parametrize(
    ("claim", "table"),
    [
        (PAPER, dict(zip(COUNTS, (1572, 2391, 2828, 3253, 4063, 5893, 9011, 14542, 22605, 25161), strict=True))),
        (REFITS, dict(zip(COUNTS, (73, 139, 179, 218, 290, 450, 729, 1254, 1978, 2208), strict=True))),
        (DERIVED, {0: 9090, 1: 11025, 2: 11499, 10: 15278, 23: 20785}),
    ],
)
def test_draws_that_certify(claim, table):
    found = {k: anytime_sample_size(k, coverage=claim[0], confidence=claim[1]) for k in table}
    assert found == table
    assert found[0] > sample_size(coverage=claim[0], confidence=claim[1])


@pytest.mark.parametrize(
    ("claim", "table"),
    [(PAPER, [0, 2, 9, 26, 65, 105, 147, 196, 269, 361]), (REFITS, [0, 2, 6, 12, 19, 28, 38, 49, 59, 70])],
)
def test_draws_that_refute(claim, table):
    found = [anytime_refuting_draw(r, coverage=claim[0], confidence=claim[1]) for r in range(1, 11)]
    assert found == table


def test_what_is_remembered_of_crossings_is_what_is_computed():
    rng = np.random.default_rng(6)
    test = boundary(Fraction(9, 10), Fraction(8, 10))
    for mix in (test.certify, test.refute):
        for n, k in zip(rng.integers(1, 400, 600).tolist(), rng.integers(0, 30, 600).tolist(), strict=True):
            assert mix.crosses(n, k) == mix._decided(n, k)


def test_a_block_that_may_not_decide_does_not():
    rng = np.random.default_rng(7)
    test, quiet = boundary(0.9, 0.8), 0
    for _ in range(400):
        begin, end = sorted(rng.integers(0, 200, 2).tolist())
        failing = np.flatnonzero(rng.random(end - begin) < rng.uniform(0, 0.3)) + begin
        before = int(rng.integers(0, 1 + begin // 4)), 0
        before = before[0], int(rng.integers(0, before[0] + 1))
        sure = rng.random(len(failing)) < 0.9
        if len(failing) and not test.may_decide(failing[0], end, before, (len(failing), int(sure.sum()))):
            quiet += 1
            found = test.decide(zip(failing.tolist(), sure.tolist(), strict=True), end, before)
            assert found == ("UNKNOWN", end, len(failing))
    assert quiet > 50


def test_boundaries_are_those_of_the_process_in_fractions():
    rng = np.random.default_rng(5)
    for _ in range(60):
        coverage, confidence = (Fraction(int(v), 1000) for v in rng.integers([500, 100], [990, 999]))
        k, test = int(rng.integers(0, 12)), boundary(coverage, confidence)
        q, level = 1 - coverage, 1 / (1 - confidence)
        n = anytime_sample_size(k, coverage=coverage, confidence=confidence)
        assert mixture(CERTIFYING, n, k, q) >= level > (mixture(CERTIFYING, n - 1, k, q) if n > k else 0)
        assert (test.most(n), test.most(n - 1)) == (k, k - 1)
        last = anytime_refuting_draw(k + 1, coverage=coverage, confidence=confidence)
        if last:
            assert mixture(REFUTING, last, k + 1, q) >= level > mixture(REFUTING, last + 1, k + 1, q)
            assert test.least(last) <= k + 1 < test.least(last + 1)
        else:
            assert mixture(REFUTING, k + 1, k + 1, q) < level


def test_a_tie_is_settled_in_fractions():
    # the risk is the very value of the process, which no number of digits tells from its neighbours
    q, value = Fraction(1, 10), mixture(CERTIFYING, 40, 1, Fraction(1, 10))
    assert boundary(1 - q, 1 - 1 / value).certify.crosses(40, 1)
    assert not boundary(1 - q, 1 - 1 / (value + Fraction(1, 10**90))).certify.crosses(40, 1)
    assert not boundary(1 - q, 1 - 1 / value).certify.crosses(39, 1)


def spent(claim, cap, side):
    """The exact probability that a side is ever reached by `cap` where a share q fails: the recursion over (n, k)."""
    test, q = boundary(*claim), 1 - float(claim[0])
    most = test.most(cap) + 1 if side == "certify" else test.least(cap)
    chance, total = np.zeros(most + 2), 0.0
    chance[0] = 1.0
    ends = {}
    if side == "certify":
        for k in range(most):
            ends.setdefault(test.needed(k), []).append(k)
    reached = 1  # the least number of failures that refutes now
    for n in range(1, cap + 1):
        chance[1:] = (1 - q) * chance[1:] + q * chance[:-1]
        chance[0] *= 1 - q
        if side == "certify":
            for k in ends.get(n, ()):
                total += chance[k]
                chance[k] = 0.0
        else:
            while reached <= most and test.last(reached) < n:
                reached += 1
            total += chance[reached:].sum()
            chance[reached:] = 0.0
    return total


@pytest.mark.parametrize(
    ("claim", "cap", "certified", "refuted"), [(REFITS, 2000, 0.0406, 0.0312), (PAPER, 5000, 0.000583, None)]
)
def test_the_exact_level_is_kept(claim, cap, certified, refuted):
    risk = 1 - claim[1]
    assert spent(claim, cap, "certify") == pytest.approx(certified, rel=0.005)
    assert spent(claim, cap, "certify") <= risk
    if refuted is not None:
        assert spent(claim, cap, "refute") == pytest.approx(refuted, rel=0.005)
        assert spent(claim, cap, "refute") <= risk


@pytest.mark.validity
def test_exact_levels_as_published():
    assert spent(PAPER, 100_000, "certify") == pytest.approx(0.000904, abs=5e-7)
    assert spent(PAPER, 100_000, "refute") == pytest.approx(0.000704, abs=5e-7)
    assert spent(REFITS, 20_000, "certify") == pytest.approx(0.0483, abs=5e-5)
    assert spent(REFITS, 20_000, "refute") == pytest.approx(0.0369, abs=5e-5)


def stop_as_it_suits(rng, share, test, cap):
    """The verdict of somebody who looks after every draw, stops and goes on, and shows the first that is decided."""
    count, drawn = 0, 0
    while drawn < cap:
        block = rng.integers(1, 200)
        for fails in rng.random(block) < share:
            drawn, count = drawn + 1, count + bool(fails)
            if test.certify.crosses(drawn, count):
                return "CERTIFIED"
            if fails and test.refute.crosses(drawn, count):
                return "REFUTED"
        if rng.random() < 0.01:  # tired of it
            return "UNKNOWN"
    return "UNKNOWN"


@pytest.mark.parametrize(
    ("runs", "most", "cap"), [(300, 51, 600), pytest.param(2000, 252, 3000, marks=pytest.mark.validity)]
)
def test_an_adversarial_stopper_makes_few_false_claims(runs, most, cap):
    # with a share of exactly q both verdicts would be false if q were a hair beside it: each side has its own level
    test, rng = boundary(0.9, 0.9), np.random.default_rng(17)
    found = [stop_as_it_suits(rng, 0.1, test, cap) for _ in range(runs)]
    for verdict in ("CERTIFIED", "REFUTED"):
        assert 0 < found.count(verdict) <= most, verdict


def decided(failing, sure, cap, q, risk):
    """The test by its definition: draw after draw, in fractions."""
    count = clear = 0
    for n in range(1, cap + 1):
        if n - 1 in failing:
            count, clear = count + 1, clear + (n - 1 in sure)
        if mixture(CERTIFYING, n, count, q) * risk >= 1:
            return "CERTIFIED", n, count
        if mixture(REFUTING, n, clear, q) * risk >= 1:
            return "REFUTED", n, count
    return "UNKNOWN", cap, count


def test_decisions_are_those_of_the_definition_also_when_resumed():
    rng, seen = np.random.default_rng(3), set()
    for _ in range(150):
        coverage, confidence = Fraction(int(rng.integers(80, 96)), 100), Fraction(int(rng.integers(60, 99)), 100)
        cap, test = int(rng.integers(1, 120)), boundary(coverage, confidence)
        failing = np.flatnonzero(rng.random(cap + 20) < rng.choice([0.0, 0.05, 0.15, 0.6])).tolist()
        sure = [at for at in failing if rng.random() < 0.8]
        pairs = [(at, at in sure) for at in failing]
        expected = decided(set(failing), set(sure), cap, 1 - coverage, 1 - confidence)
        assert test.decide(pairs, cap) == expected
        seen.add(expected[0])
        middle = int(rng.integers(0, cap + 1))
        verdict, at, count = test.decide(pairs, middle)
        if verdict == "UNKNOWN":
            before = count, sum(s for a, s in pairs if a < middle)
            verdict, at, more = test.decide([p for p in pairs if p[0] >= middle], cap, before)
            count += more
        assert (verdict, at, count) == expected
    assert seen == {"CERTIFIED", "REFUTED", "UNKNOWN"}


def test_a_row_of_doubtful_draws_is_given_up():
    verdict, at, taken = boundary(*PAPER).decide(((i, False) for i in range(10**6)), 10**6)
    assert (verdict, at, taken) == ("UNKNOWN", MOST_DOUBTFUL, MOST_DOUBTFUL)
    # so few in doubt are no reason to give up: they count as failing, and what is sure refutes
    mixed = ((i, i % 2 == 0) for i in range(100))
    assert boundary(*PAPER).decide(mixed, 100)[0] == "REFUTED"


@pytest.mark.parametrize("confidence", [0.95, 0.999, 1 - Fraction(1, 2**64)])
def test_bounds_agree_with_the_test(confidence):
    for k in (10, 17, 40):
        n = anytime_sample_size(k, coverage=0.97, confidence=confidence)
        assert anytime_coverage_lower(n, k, confidence=confidence) >= 0.97 - 1e-15
        assert anytime_coverage_lower(n - 1, k, confidence=confidence) < 0.97
        last = anytime_refuting_draw(k + 4, coverage=0.97, confidence=confidence)
        assert anytime_coverage_upper(last, k + 4, confidence=confidence) <= 0.97 + 1e-15
        assert anytime_coverage_upper(last + 1, k + 4, confidence=confidence) > 0.97


def test_bounds_where_nothing_is_known():
    assert anytime_coverage_lower(0, 0, confidence=0.9) == 0
    assert anytime_coverage_upper(0, 0, confidence=0.9) == 1
    assert anytime_coverage_lower(5, 5, confidence=0.9) == 0
    assert anytime_coverage_upper(5, 0, confidence=0.9) == 1
    assert 0 <= anytime_coverage_upper(10**6, 10**6, confidence=0.9) < 1e-3


def test_bounds_hold_at_every_draw_together():
    rng, share, misses = np.random.default_rng(8), 0.06, np.zeros(2, dtype=int)
    for _ in range(30):
        failed = np.cumsum(rng.random(400) < share)
        looks = [(n, int(failed[n - 1])) for n in (20, 60, 200)]
        misses[0] += any(anytime_coverage_lower(n, k, confidence=0.9) > 1 - share for n, k in looks)
        misses[1] += any(anytime_coverage_upper(n, k, confidence=0.9) < 1 - share for n, k in looks)
    assert (misses <= 9).all()  # 3 are expected at most; more than 9 have a probability of 0.0005


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: anytime_sample_size(-1, coverage=0.9, confidence=0.9),
            "failures must be a whole number of at least 0",
        ),
        (
            lambda: anytime_refuting_draw(0, coverage=0.9, confidence=0.9),
            "failures must be a whole number of at least 1",
        ),
        (lambda: anytime_sample_size(0, coverage=1, confidence=0.9), "coverage must lie strictly between 0 and 1"),
        (lambda: anytime_sample_size(0, coverage=0.9, confidence=1.0), "no number of draws gives certainty"),
        (lambda: anytime_coverage_lower(3, 4, confidence=0.9), "failures must be at most draws, got 4 of 3"),
        (lambda: anytime_coverage_upper(3.5, 1, confidence=0.9), "draws must be a whole number"),
    ],
)
def test_misuse(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_boundaries_are_quick():
    boundary.cache_clear()
    began = time.process_time()
    anytime_sample_size(80, coverage=0.995, confidence=0.999)
    assert time.process_time() - began < 0.005
    test = boundary(0.995, Fraction(9987, 10_000))
    failing = [(int(at), True) for at in np.cumsum(np.full(100, 260))]
    began = time.process_time()
    assert test.decide(failing, 30_000)[2] > 50
    assert time.process_time() - began < 0.05
