"""The published sampling test: the same draws as the authors', and no more claimed than they show."""

from __future__ import annotations

import math

import numpy as np
import pytest

import apas
from apas import FeedForward, InputError, LinfShifts, LpShifts, Unsupported, Verdict
from apas.experiments import PublishedSampling
from apas.paper import published


def verdicts(network, X, delta, *, method=None, target=1, **options):
    return apas.certify(network, X, delta, target=target, method=method or PublishedSampling(), **options)


def test_authors_search_stops_where_ours_would(oracle, oracle_network):
    # their delta passed with n = 1378, and one less than 1e-4 above it failed
    X = np.array([c["x"] for c in oracle["counterfactuals"]])
    delta = np.array([c["delta_sampling"] for c in oracle["counterfactuals"]])
    method = PublishedSampling(n_samples=1378)
    assert verdicts(oracle_network, X, delta, method=method).certified.all()
    assert not verdicts(oracle_network, X, delta + 1e-4, method=method).certified.any()


def test_draws_go_through_the_parameters_layer_by_layer(small_network):
    X = np.random.default_rng(0).random((30, 4))
    target = np.where(small_network.margin(X, 1) >= 0, 1, 0)
    source, first = np.random.RandomState(1), {}
    for draw in range(300):
        w, b = [], []
        for weights, biases in zip(small_network.weights, small_network.biases, strict=True):
            w.append(weights + source.uniform(-0.2, 0.2, weights.shape))
            b.append(biases + source.uniform(-0.2, 0.2, biases.shape))
        f = FeedForward(w, b).margin(X, target)
        for row in np.flatnonzero(f < 0):
            first.setdefault(int(row), draw)
    found = verdicts(small_network, X, 0.2, target=target, method=PublishedSampling(n_samples=300))
    assert 0 < len(first) < 30
    assert {i: c.evidence.draws - 1 for i, c in enumerate(found) if c.evidence.failures} == first
    for i, certificate in enumerate(found):
        assert certificate.is_certified == (i not in first)
        if i in first:
            assert certificate.verdict is Verdict.UNKNOWN
            assert certificate.reason == f"draw number {first[i] + 1} of 300 failed"
            assert certificate.witness.margin(small_network, X[i : i + 1], target[i]) <= 0
            moved = small_network.with_parameters(certificate.witness.parameters(small_network))
            assert LinfShifts().contains(small_network.parameters, moved.parameters, 0.2)


def test_what_is_kept_between_calls_changes_nothing(small_network, monkeypatch):
    X = np.random.default_rng(0).random((30, 4))
    kept = verdicts(small_network, X, 0.1, target="predicted", method=PublishedSampling(n_samples=2500))
    monkeypatch.setattr(published, "KEPT", 10)
    drawn = verdicts(small_network, X, 0.1, target="predicted", method=PublishedSampling(n_samples=2500), rng=5)
    assert list(kept) == list(drawn)
    alone = verdicts(small_network, X[3:4], 0.1, target="predicted", method=PublishedSampling(n_samples=2500))
    assert alone[0] == kept[3]


def test_parameters_that_do_not_move_take_no_draw():
    network = FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    source = np.random.RandomState(1)
    factors = 1 + 0.5 * source.uniform(-1, 1, (200, 2))
    shifts = LinfShifts(kinds=("weight",), scale={0: 1.0, 1: 1.0})
    found = verdicts(network, [[1.0]], 0.5, shifts=shifts, method=PublishedSampling(n_samples=200))
    assert found.certified.all()
    assert (factors > 0).all()
    wide = LinfShifts(kinds=("weight",), scale={0: 3.0})
    failing = verdicts(network, [[1.0]], 0.5, shifts=wide, method=PublishedSampling(n_samples=200))[0]
    first = int(np.argmax(1 + 1.5 * np.random.RandomState(1).uniform(-1, 1, (200, 2))[:, 0] <= 0))
    assert failing.evidence.draws == first + 1


@pytest.mark.parametrize(("samples", "coverage"), [(1378, 0.994999), (1379, 0.995003), (10_000, 0.999309)])
def test_claim_is_what_draws_without_failure_show(small_network, samples, coverage):
    claim = verdicts(
        small_network, np.ones((1, 4)), 1e-6, target="predicted", method=PublishedSampling(n_samples=samples)
    )[0].claim
    assert claim.coverage == coverage <= math.exp(math.log(0.001) / samples)
    assert claim.confidence == 0.999
    assert claim.measure.endswith("the confidence is per test only, as published, with no allowance for a search")


def test_several_rows_together_claim_less(small_network):
    X = np.ones((10, 4))
    found = verdicts(small_network, X, 1e-6, target="predicted", simultaneous=True)
    assert found[0].claim.rows == 10
    assert found[0].claim.coverage == math.floor(1e6 * 0.0001 ** (1 / 10_000)) / 1e6


def test_sentence_says_that_the_search_is_not_accounted_for(small_network):
    sentence = verdicts(small_network, np.ones((1, 4)), 1e-6, target="predicted")[0].sentence()
    assert "with no allowance for a search" in sentence
    assert "not for a row that such tests have chosen" in sentence


def test_bad_input(small_network):
    for options in ({"n_samples": 0}, {"n_samples": 1.5}, {"confidence": 1.0}, {"seed": -1}):
        with pytest.raises(InputError, match=f"{next(iter(options))}.*PublishedSampling"):
            PublishedSampling(**options)
    with pytest.raises(Unsupported, match="boxes of shifts only, as the paper did; use Sampling for LpShifts"):
        verdicts(small_network, np.ones((1, 4)), 0.1, target="predicted", shifts=LpShifts(2))
