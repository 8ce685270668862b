"""The published search: where it starts, doubles, bisects and ends, and the deltas its authors got from it."""

from __future__ import annotations

import numpy as np
import pytest

import apas
from apas import FeedForward, LinfShifts
from apas.certification.max_shift.api import double_and_bisect
from apas.paper.published import PublishedSampling, published_delta


def largest_passing(passes, rows):
    return double_and_bisect(passes, rows, 1e6, 1e-4)


def test_steps():
    asked: list[float] = []

    def passes(rows, delta):
        asked.extend(delta)
        return delta <= 0.00055

    assert largest_passing(passes, 1) == pytest.approx([0.00055])
    # 0.0004 passes and 0.0008 fails; a bracket of 1e-4 is not yet narrower than 1e-4
    assert asked == pytest.approx([0.0001, 0.0002, 0.0004, 0.0008, 0.0006, 0.0005, 0.00055])


def test_rows_are_searched_by_themselves():
    largest = np.array([0.0, 0.00005, 0.0001, 0.3, 0.0217])
    together = largest_passing(lambda rows, delta: delta <= largest[rows], 5)
    assert together[:3].tolist() == [0.0, 0.0, 0.0001]
    assert ((largest - together)[3:] < 1e-4).all()
    assert (together <= largest).all()
    for i, limit in enumerate(largest):
        assert largest_passing(lambda rows, delta, limit=limit: delta <= limit, 1)[0] == together[i]


def test_what_always_passes_ends():
    assert largest_passing(lambda rows, delta: np.ones(len(rows), dtype=bool), 2).min() >= 1e6


def test_authors_deltas(oracle, oracle_network):
    """Both columns that the authors computed with Gurobi and Keras, for all 50 counterfactuals."""
    X = np.array([c["x"] for c in oracle["counterfactuals"]])
    for method, column in (("interval", "delta_worst_case"), (PublishedSampling(n_samples=1378), "delta_sampling")):
        theirs = np.array([c[column] for c in oracle["counterfactuals"]])
        ours = published_delta(oracle_network, X, method)
        # one step of the last bisection
        assert np.abs(ours - theirs).max() <= 1.01e-4
        assert np.median(np.abs(ours - theirs)) < 1e-9


def test_below_the_worst_case_and_within_a_step():
    network = FeedForward([[[1.0], [-1.0]]], [[0.0]])
    X = np.array([[2.0, 0.5], [1.0, 0.9]])
    exact = apas.max_shift(network, X, target=1, method="exact").deltas
    found = published_delta(network, X, "interval")
    assert (found <= exact).all()
    assert (exact - found < 1e-4).all()


def test_shifts_and_target_are_passed_on():
    network = FeedForward([[[1.0], [-1.0]]], [[-3.0]])
    X, shifts = np.array([[2.0, 0.5]]), LinfShifts(kinds=("weight",))
    exact = apas.max_shift(network, X, target=0, shifts=shifts, method="exact").deltas
    assert published_delta(network, X, "interval", shifts, target=0) == pytest.approx(exact, abs=1e-4)
    assert published_delta(network, X, "interval", target=0) < exact - 1e-2
