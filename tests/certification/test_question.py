"""What a question keeps between calls, and that a changed model is noticed all the same."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import apas
from apas import FeedForward, LinfShifts
from apas.certification import question as questions
from apas.certification.question import Question

ROW = np.array([[2.0, 0.5]])


def network(sign=1.0):
    return FeedForward([[[1.0, 0.5], [-1.0, 0.25]], [[sign], [0.5 * sign]]], [[0.1, 0.2], [0.3 * sign]])


def overwrite(net, other):
    """Change the numbers of a network in place, which nobody should."""
    pairs = zip((*net.weights, *net.biases), (*other.weights, *other.biases), strict=True)
    for mine, theirs in (*pairs, (net.parameters.values, other.parameters.values)):
        mine.flags.writeable = True
        mine[...] = theirs


@pytest.mark.parametrize("method", ["sampling", "exact", "linear"])
def test_a_changed_network_is_noticed(method):
    net = network()
    before = apas.certify(net, ROW, 0.01, target=1, method=method, rng=0)
    assert before[0].is_certified
    overwrite(net, network(-1.0))
    after = apas.certify(net, ROW, 0.01, target=1, method=method, rng=0)
    fresh = apas.certify(network(-1.0), ROW, 0.01, target=1, method=method, rng=0)
    assert after.model_digest == fresh.model_digest != before.model_digest
    assert after[0].verdict is fresh[0].verdict is apas.Verdict.REFUTED


def test_a_plan_is_kept_for_the_same_numbers_alone():
    net = network()
    first, second = (Question.ask(net, ROW, target=1, delta=0.1, shifts="linf", method="exact") for _ in range(2))
    assert first.radii is second.radii
    overwrite(net, network(-1.0))
    third = Question.ask(net, ROW, target=1, delta=0.1, shifts="linf", method="exact")
    assert third.radii is not second.radii
    assert third.digest != second.digest


def test_sets_that_are_passed_are_asked_again():
    net, shifts = network(), LinfShifts(relative=True)
    first, second = (Question.ask(net, ROW, target=1, delta=0.1, shifts=shifts, method="exact") for _ in range(2))
    assert first.radii is not second.radii
    assert first.take(slice(0, 1)).radii is first.radii


def test_a_plan_belongs_to_its_model_and_set():
    asked = Question.ask(network(), ROW, target=1, delta=0.1, shifts="linf", method="exact")
    assert (asked.radii == 1).all()
    other = replace(asked, shifts=LinfShifts(layers=[0]))
    assert other.radii.tolist() == [1.0] * 6 + [0.0] * 3
    assert isinstance(other.reach, np.ndarray)
    assert asked.reach == 1.0


def test_a_plan_does_not_keep_its_model_alive():
    net = network()
    apas.certify(net, ROW, 0.01, target=1, method="exact")
    seen = weakref.ref(net)
    assert net in questions._PLANS
    del net
    gc.collect()
    assert seen() is None


def test_an_estimator_that_was_fitted_again_is_noticed():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.5], [0.5, 2.0]])
    model = LogisticRegression().fit(X, [0, 1, 1, 0])
    before = apas.certify(model, ROW, 0.01, target=1)
    model.fit(X, [1, 0, 0, 1])
    after = apas.certify(model, ROW, 0.01, target=1)
    assert before[0].is_certified
    assert after[0].verdict is apas.Verdict.REFUTED
    assert before.model_digest != after.model_digest
