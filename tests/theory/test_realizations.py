"""The Distinct-Realizations Problem: yes with two models, no with a proof, unknown otherwise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from formulas import random_formula
from problems import network
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import InputError, Unsupported
from apas.theory import Answer, distinct_realizations, reduction

LINE = apas.FeedForward([[[1.0]]], [[0.0]], output="identity")


@pytest.mark.parametrize(
    ("tau", "answer"),
    # with x = 2 and delta = 1/8 the outputs are those of [1.625, 2.375]
    [(1.5, "no"), (1.62, "no"), (1.63, "yes"), (2.0, "yes"), (2.01, "yes"), (2.375, "yes"), (2.38, "no"), (3.0, "no")],
)
def test_a_line_whose_range_is_known(tau, answer):
    x = np.array([2.0])
    found = distinct_realizations(LINE, x, 0.125, tau)
    assert found.answer == answer
    assert found.answer in Answer
    assert found.sentence().startswith(f"{answer}: ")
    known = [found.below is not None, found.above is not None]
    assert known == ([True, True] if answer == "yes" else [tau > 2, tau <= 2])
    if answer == "yes":
        outputs = [float(side.margin(x[None, :], 1)[0]) for side in (found.below, found.above)]
        assert outputs[0] < 0 <= outputs[1]


@pytest.mark.parametrize(
    ("shifts", "low", "high"),
    # with x = 2 and delta = 1/8: the weight alone moves, or both in proportion 2 to 1, or both as far as they go
    [
        ("l1", 1.75, 2.25),
        ("l2", 2 - 5**0.5 / 8, 2 + 5**0.5 / 8),
        (apas.LpShifts(0.5), 1.75, 2.25),
        (apas.SparseShifts(1), 1.75, 2.25),
        (apas.SparseShifts(2), 1.625, 2.375),
    ],
    ids=str,
)
def test_the_default_method_answers_for_every_set(shifts, low, high):
    for tau, answer in ((low - 1e-6, "no"), (low + 1e-6, "yes"), (high - 1e-6, "yes"), (high + 1e-6, "no")):
        found = distinct_realizations(LINE, [2.0], 0.125, tau, shifts=shifts)
        assert found.answer == answer
        if answer == "yes":
            outputs = [float(side.margin(np.array([[2.0]]), 1)[0]) for side in (found.below, found.above)]
            assert outputs[0] < 0 <= outputs[1]
    deep = network((3, 4, 3, 1), "sigmoid", "relu", 0)  # whose bounds do not decide everything
    assert distinct_realizations(deep, [1.0, 0.5, -1.0], 1e-6, 0.5, shifts=shifts).answer == "no"
    assert distinct_realizations(deep, [1.0, 0.5, -1.0], 50.0, 0.5, shifts=shifts).answer == "yes"


def test_a_network_in_single_precision_stays_one():
    line = apas.FeedForward([[[1.0]]], [[0.0]], output="identity", dtype="float32")
    found = distinct_realizations(line, [2.0], 0.125, 1.75)
    assert (found.above.dtype, found.below.dtype) == ("float32", "float32")


def test_an_output_at_the_threshold_counts_as_above():
    """M1 < tau <= M2: the largest output may be tau itself, the least may not."""
    assert distinct_realizations(LINE, [2.0], 0.125, 2.375).answer == "yes"
    assert distinct_realizations(LINE, [2.0], 0.125, 1.625).answer != "yes"


@pytest.mark.parametrize("seed", range(3))
def test_it_asks_the_question_of_theorem_1(seed):
    rng = np.random.default_rng(seed)
    answers = set()
    for _ in range(20):
        formula = random_formula(rng, 3, int(rng.integers(1, 9)))
        hard = reduction(formula)
        found = distinct_realizations(hard.model, hard.X, hard.delta, 0.5)
        assert found.answer == ("no" if formula.solution() is None else "yes")
        answers.add(found.answer)
        if found.answer == "yes":
            shifts = apas.LinfShifts()
            for side, valid in ((found.below, [False]), (found.above, [True])):
                assert shifts.contains(hard.model.parameters, side.parameters, hard.delta)
                assert (side.margin(hard.X, 1) >= 0).tolist() == valid
            assert formula.holds(hard.assignment(found.above.parameters.values))
    assert answers == {"yes", "no"}


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh"])
@pytest.mark.parametrize("output", ["sigmoid", "softmax"])
def test_the_answer_agrees_with_the_range(activation, output):
    net = network((3, 5, 4, 1 if output == "sigmoid" else 2), output, activation, 2)
    X = np.random.default_rng(0).normal(size=(4, 3))
    for x, span in zip(X, apas.output_range(net, X, 0.05, target=1, method="exact"), strict=True):
        for share in (-0.2, 0.1, 0.5, 0.9, 1.2):
            tau = 1 / (1 + np.exp(-(net.offset + span.low + share * (span.high - span.low))))
            found = distinct_realizations(net, x, 0.05, tau)
            assert found.answer == ("yes" if 0 < share < 1 else "no")


def test_pipelines_and_frames_and_other_shifts():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 2.0, 1.0]})
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, [0, 0, 1, 1])
    p = float(model.predict_proba(frame.iloc[[3]])[0, 1])
    for shifts in ("linf", "l2", apas.LinfShifts(kinds=("bias",))):
        assert distinct_realizations(model, frame.iloc[[3]], 0.1, p - 0.005, shifts=shifts).answer == "yes"
        assert distinct_realizations(model, frame.iloc[[3]], 0.01, 0.5, shifts=shifts).answer == "no"


def test_what_cannot_be_decided_is_unknown():
    net = network((3, 5, 4, 1), "sigmoid", "relu", 2)
    x = np.array([0.3, -0.2, 0.5])
    span = apas.output_range(net, x[None, :], 0.05, target=1, method="exact")[0]
    loose = apas.output_range(net, x[None, :], 0.05, target=1, method="interval")[0]
    tau = 1 / (1 + np.exp(-(net.offset + 0.5 * (span.low + loose.low))))
    assert distinct_realizations(net, x, 0.05, tau, method="interval").answer == "unknown"
    found = distinct_realizations(net, x, 0.05, tau, method="attack")
    assert found.answer == "unknown"
    assert found.sentence().startswith("unknown: it is not settled whether at delta = 0.05")
    assert distinct_realizations(net, x, 0.05, tau).answer == "no"


def test_an_output_that_is_the_threshold_up_to_rounding_is_unknown():
    # 1 - 1e-30 - 1 is 0 in float64, so at the threshold, and below it in real arithmetic
    line = apas.FeedForward([[[1.0], [-1e-30]]], [[-1.0]], output="identity", threshold=0.0)
    assert distinct_realizations(line, [1.0, 1.0], 1e-3, 0.0).answer == "unknown"
    assert distinct_realizations(line, [1.0, 1.0], 1e-3, 1e-9).answer == "yes"
    tanh = apas.FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]], activation="tanh", output="identity", threshold=0.0)
    found = distinct_realizations(tanh, [0.0], 0.1, 0.0)
    assert found.answer == "unknown"
    assert (found.below, found.above) == (None, None)
    assert "up to rounding" in found.reason


def test_what_makes_no_sense_is_refused():
    three = apas.FeedForward([np.eye(3)], [np.zeros(3)], output="softmax")
    with pytest.raises(Unsupported, match="must be a dense network with two classes"):
        distinct_realizations(three, [1.0, 2.0, 3.0], 0.1, 0.5)
    with pytest.raises(Unsupported, match="`shifts` of distinct_realizations must be a LinfShifts or an LpShifts"):
        distinct_realizations(LINE, [1.0], 0.1, 0.5, shifts="gaussian")
    with pytest.raises(InputError, match="must be one row, got 2"):
        distinct_realizations(LINE, [[1.0], [2.0]], 0.1, 0.5)
    with pytest.raises(InputError, match="`method` of distinct_realizations must speak of every shift"):
        distinct_realizations(LINE, [1.0], 0.1, 0.5, method="sampling")
    for tau in (0.0, 1.0, 1.5, np.nan, "0.5"):
        with pytest.raises(
            InputError, match="`tau` of distinct_realizations must be a number strictly between 0 and 1"
        ):
            distinct_realizations(apas.FeedForward([[[1.0]]], [[0.0]]), [1.0], 0.1, tau)
    for tau in (np.inf, np.nan, None, True):
        with pytest.raises(InputError, match="`tau` of distinct_realizations must be a finite number"):
            distinct_realizations(LINE, [1.0], 0.1, tau)
    with pytest.raises(TypeError, match='may be "unknown"'):
        bool(distinct_realizations(LINE, [2.0], 0.125, 2.0))
