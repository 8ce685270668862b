"""Rows that interval arithmetic proves are not drawn for: the evidence must be that of draws all the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import apas
from apas import FeedForward, LinfShifts, Sampling
from apas.certification import failing_draws


def random_network(rng, hidden, outputs):
    sizes = (3, *hidden, outputs)
    weights = [rng.normal(size=s) for s in pairwise(sizes)]
    output = "softmax" if outputs > 1 else "sigmoid"
    return FeedForward(weights, [0.3 * rng.normal(size=s) for s in sizes[1:]], output=output)


@pytest.mark.parametrize("method", [Sampling(n_samples=1379), Sampling(test="anytime")], ids=["fixed", "anytime"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_evidence_is_that_of_all_draws(method, dtype, monkeypatch):
    rng, proved = np.random.default_rng(5), 0
    for hidden, outputs in (((4,), 1), ((4,), 3), ((4, 3), 1), ((3, 3), 2)):
        net = random_network(rng, hidden, outputs).with_dtype(dtype)
        X, delta = rng.normal(size=(12, 3)), 0.1
        shifts = LinfShifts(relative=bool(outputs == 1))
        screened = apas.certify(net, X, delta, target="predicted", shifts=shifts, method=method, rng=3)
        with monkeypatch.context() as patch:
            patch.setattr(failing_draws, "_unproved", lambda question: np.arange(len(question)))
            drawn = apas.certify(net, X, delta, target="predicted", shifts=shifts, method=method, rng=3)
        assert [c.to_dict()["evidence"] for c in screened] == [c.to_dict()["evidence"] for c in drawn]
        assert [c.verdict for c in screened] == [c.verdict for c in drawn]
        bounds = apas.certify(net, X, delta, target="predicted", shifts=shifts, method="interval")
        proved += int(bounds.certified.sum())
    assert 5 < proved < 43  # both kinds of rows were asked about


def test_proved_rows_are_not_drawn_for():
    net = FeedForward([[[1.0], [-1.0]], [[1.0]]], [[0.0], [0.5]])
    asked = []

    class Watched(LinfShifts):
        def directions(self, parameters, stream, start, stop):
            asked.append((start, stop))
            return super().directions(parameters, stream, start, stop)

    for delta, fails in ((0.3, False), (0.6, True)):
        asked.clear()
        answer = apas.certify(
            net, [[0.0, 0.0]], delta, target=1, shifts=Watched(), method=Sampling(n_samples=1379), rng=0
        )[0]
        assert bool(answer.evidence.failures) is bool(asked) is fails
        assert answer.evidence.draws == 1379 or fails


def test_a_network_that_computes_otherwise_is_drawn_for():
    class Brittle(FeedForward):
        def shifted_margins(self, X, target, directions, delta):
            return super().shifted_margins(X, target, directions, delta) - 100.0

    net = Brittle([[[1.0], [-1.0]]], [[0.5]])
    answer = apas.certify(net, [[5.0, 0.0]], 0.01, target=1, method=Sampling(n_samples=1379), rng=0)[0]
    assert answer.verdict is apas.Verdict.REFUTED


def test_workers_meet_a_few_times(monkeypatch):
    # rows that fail a little less often than they may stay open for long; each round takes as much as all before it
    rounds, count = [], 40_000

    def here(function, jobs, n_jobs):
        jobs = list(jobs)
        rounds.append((jobs[0][3], jobs[-1][4]))
        return (function(*job) for job in jobs)

    monkeypatch.setattr(failing_draws, "in_parallel", here)
    net, X = FeedForward([[[1.0]]], [[0.993]]), np.zeros((9, 1))  # a share of 0.0035 fails
    for method in (Sampling(n_samples=count), Sampling(n_samples=count, test="anytime")):
        ask = {"target": 1, "method": method, "rng": 1}
        alone = apas.certify(net, X, 1.0, **ask)
        rounds.clear()
        together = apas.certify(net, X, 1.0, **ask, n_jobs=2)
        assert [c.to_dict()["evidence"] for c in together] == [c.to_dict()["evidence"] for c in alone]
        assert len(rounds) > 2
        assert all(end >= min(2 * begin, count) for begin, end in rounds), rounds
    # nor does a large model, of which few draws fit into a block, make them meet after every one
    monkeypatch.setattr(failing_draws, "NUMBERS", 4)
    rounds.clear()
    apas.certify(net, X, 1.0, target=1, method=Sampling(n_samples=1379), rng=1, n_jobs=2)
    assert len(rounds) <= 4
