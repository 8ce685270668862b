"""`Exact`: no contradictions, equal to brute force and to closed forms, right where public encodings are wrong."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from activation_patterns import least_margin
from contradiction_sweep import Question, Tally, broken_by_draws, inside_exactly, is_strict, rational_margin, swept
from problems import CASES, network

import apas
from apas import (
    Attack,
    Cascade,
    Exact,
    FeedForward,
    InputError,
    IntervalBounds,
    LinearBounds,
    LinfShifts,
    Unsupported,
    Verdict,
)
from apas.worst_case.intervals import rivals

CERTIFIED, REFUTED, UNKNOWN = Verdict.CERTIFIED, Verdict.REFUTED, Verdict.UNKNOWN
WORST_CASE = [IntervalBounds(), LinearBounds(), Exact(), Cascade()]


def ask(net, x, delta, target=1, method=None, **options):
    return apas.certify(net, np.atleast_2d(x), delta, target=target, method=method or Exact(), rng=0, **options)[0]


def check_witness(net, x, wanted, delta, shifts, witness):
    """Inside the box and failing, in fractions."""
    values = witness.parameters(net)
    assert inside_exactly(net.parameters.values, shifts.radii(net.parameters), delta, values)
    margin = rational_margin(net, values, np.asarray(x, dtype=float), wanted)
    assert margin < 0 or (margin == 0 and is_strict(net, wanted))


# --- no contradiction -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(3))
def test_no_contradiction(part):
    """The short form of the sweep in `tests/validity`."""
    tally = Tally()
    for seed in range(1000 + part, 1012, 3):
        tally.add(swept(seed, rows=8, draws=2_000, corners=500, time_limit=0.5, attack=Attack(restarts=8, steps=50)))
    assert not tally.contradictions
    assert tally.verdicts == 4 * 8 * 5
    assert tally.unknown_share <= 0.1
    assert min(tally.counts["CERTIFIED"], tally.counts["REFUTED"]) > 0.2 * tally.verdicts


def test_the_sweep_would_notice():
    """Draws, corners and the attack do break what is not robust."""
    net = network((3, 4, 4, 1), "sigmoid", "relu", 0)
    X = np.random.default_rng(0).normal(size=(6, 3))
    labels = [int(m >= 0) for m in net.margin(X, 1)]
    question = Question(net, X, labels, LinfShifts())
    for draws, corners in ((500, 0), (0, 500)):
        found = broken_by_draws(question, np.arange(6), np.full(6, 2.0), draws, corners, np.random.default_rng(1))
        assert len(found) == 6
    assert not broken_by_draws(question, np.arange(6), np.full(6, 1e-6), 500, 500, np.random.default_rng(1))
    assert all(c.verdict is REFUTED for c in apas.certify(net, X, 2.0, target=labels, method="attack", rng=0))


# --- brute force ------------------------------------------------------------------------------------------------------

SHAPES = [
    ((3, 6, 6, 1), "relu", "identity"), ((3, 4, 4, 4, 1), "relu", "identity"), ((2, 3, 3, 3, 1), "relu", "identity"),
    ((2, 4, 3, 3), "relu", "softmax"), ((2, 3, 3, 1), "leaky_relu", "identity"), ((2, 2, 2, 2, 1), "leaky_relu", "identity"),
    ((2, 2, 3, 1), "hard_tanh", "identity"), ((2, 2, 2, 2, 1), "hard_tanh", "identity"), ((2, 3, 3, 1), "identity", "identity"),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "activation", "output"), SHAPES, ids=str)
def test_verdicts_on_both_sides_of_the_brute_force_minimum(sizes, activation, output):
    """The output bias is moved so that the least margin over all activation patterns is a thousandth above or below 0."""
    for seed in range(4):
        net = network(sizes, output, activation, seed)
        rng = np.random.default_rng([seed, 5])
        x = rng.normal(size=sizes[0]) * 2
        radii = np.ones(len(net.parameters)) if seed % 2 else rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
        wanted, delta = int(rng.integers(len(net.classes))), float(rng.choice([0.05, 0.15, 0.3]))
        against = rivals(net, np.array([wanted]))[0].tolist()
        least = min(least_margin(net, x, wanted, rival, radii, delta).value for rival in against)
        base = net.margin(x[None, :], net.classes[wanted])[0]
        step = 1e-3 * max(1.0, abs(base))
        if base - least < 2 * step:
            continue
        for wish, verdict in ((step, CERTIFIED), (-step, REFUTED)):
            moved = _lifted(net, wanted, wish - least)
            shifts = LinfShifts(scale=radii)
            certificate = ask(moved, x, delta, moved.classes[wanted], Exact(time_limit=20.0), shifts=shifts)
            assert certificate.verdict is verdict
            if verdict is REFUTED:
                check_witness(moved, x, wanted, delta, shifts, certificate.witness)
            else:
                assert certificate.evidence.bound <= step * (1 + 1e-3)


def _lifted(net, wanted, by):
    """The same network with the margin towards one class raised."""
    biases = [b.copy() for b in net.biases]
    if len(biases[-1]) == 1:
        biases[-1][0] += by if wanted == 1 else -by
    else:
        biases[-1][wanted] += by
    return FeedForward(net.weights, biases, activation=net.activations, output=net.output, threshold=net.threshold)


# --- closed forms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh", "identity", "tanh", "sigmoid", "elu"])
@pytest.mark.parametrize(
    ("sizes", "output"), [((4, 6, 1), "sigmoid"), ((4, 5, 3), "softmax"), ((4, 1), "sigmoid")], ids=str
)
def test_equal_to_intervals_on_one_hidden_layer(sizes, output, activation):
    net = network(sizes, output, activation, 2)
    X = np.random.default_rng(0).normal(size=(10, sizes[0]))
    radius = {m: apas.max_shift(net, X, target="predicted", method=m).deltas for m in ("interval", "exact")}
    assert np.array_equal(radius["interval"], radius["exact"])
    for factor in (0.5, 1 - 1e-7, 1 + 1e-7, 2.0):
        some = radius["exact"] > 0
        deltas = factor * radius["exact"][some]
        found = [
            [(c.verdict, c.evidence) for c in apas.certify(net, X[some], deltas, target="predicted", method=m)]
            for m in ("interval", "exact")
        ]
        assert found[0] == found[1]
        assert {v for v, _ in found[0]} == {CERTIFIED if factor < 1 else REFUTED}


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_known_problems(known):
    for method in (Exact(), Cascade()):
        for factor, verdict in ((1 - 1e-9, CERTIFIED), (1 + 1e-9, REFUTED)):
            certificate = ask(
                known.model, known.x, known.worst_case * factor, known.target, method, shifts=known.shifts
            )
            assert certificate.verdict is verdict


def test_all_worst_case_deltas_of_the_authors(oracle, oracle_network):
    rows = np.array([row["x"] for row in oracle["counterfactuals"]])
    theirs = np.array([row["delta_worst_case"] for row in oracle["counterfactuals"]])
    assert len(rows) == 50
    found = apas.max_shift(oracle_network, rows, target=1, method="exact")
    assert np.abs(found.deltas - theirs).max() <= 1.0e-4
    below = apas.certify(oracle_network, rows, theirs - 1.0e-4, target=1, method=Exact())
    above = apas.certify(oracle_network, rows, theirs + 1.0e-4, target=1, method=Exact())
    assert {c.verdict for c in below} == {CERTIFIED}
    assert {c.verdict for c in above} == {REFUTED}


def test_all_worst_case_deltas_through_one_more_layer(oracle, oracle_network):
    """Relu again on what relu gave changes nothing if the added layer stays as it is: the deep methods must agree."""
    hidden = oracle_network.weights[0].shape[1]
    weights = [oracle_network.weights[0], np.eye(hidden), oracle_network.weights[1]]
    deep = FeedForward(weights, [oracle_network.biases[0], np.zeros(hidden), oracle_network.biases[1]])
    shifts = LinfShifts(layers=[0, 2])
    rows = np.array([row["x"] for row in oracle["counterfactuals"]])
    theirs = np.array([row["delta_worst_case"] for row in oracle["counterfactuals"]])
    below = apas.certify(deep, rows, theirs - 1.0e-4, target=1, shifts=shifts, method=Exact())
    above = apas.certify(deep, rows, theirs + 1.0e-4, target=1, shifts=shifts, method=Exact())
    assert {c.verdict for c in below} == {CERTIFIED}
    assert {c.verdict for c in above} == {REFUTED}


# --- where public encodings are wrong ---------------------------------------------------------------------------------


def layered(net, extra):
    """The same network behind `extra` layers that hand on what is not negative."""
    width = net.weights[0].shape[1]
    weights = [net.weights[0], *[np.eye(width)] * extra, *net.weights[1:]]
    biases = [net.biases[0], *[np.zeros(width)] * extra, *net.biases[1:]]
    return FeedForward(weights, biases, output=net.output, threshold=net.threshold)


@pytest.mark.parametrize("extra", [0, 1, 2])
@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_negative_inputs(method, extra):
    # x = (1, -0.9), w = (1, 0) +- 0.5: the unit falls to 0.05, an encoding for inputs of one sign says 0.95
    net = FeedForward([[[1.0], [0.0]], [[1.0]]], [[0.0], [0.0]], output="identity", threshold=0.5)
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    certificate = ask(layered(net, extra), [1.0, -0.9], 0.5, 1, method, shifts=shifts)
    assert certificate.verdict is (REFUTED if extra == 0 or isinstance(method, Exact | Cascade) else UNKNOWN)
    assert ask(layered(net, extra), [1.0, -0.9], 0.5 / 1.9 * (1 - 1e-6), 1, method, shifts=shifts).verdict is CERTIFIED


@pytest.mark.parametrize("extra", [0, 1, 2])
@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_unscaled_inputs(method, extra):
    # x = 5000, w in [0, 1], output 3000 - h: a big M of 1000 says +2000, the truth is -2000
    net = FeedForward([[[0.5]], [[-1.0]]], [[0.0], [3000.0]], output="identity", threshold=0.0)
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    certificate = ask(layered(net, extra), [5000.0], 0.5, 1, method, shifts=shifts)
    assert certificate.verdict is (REFUTED if extra == 0 or isinstance(method, Exact | Cascade) else UNKNOWN)
    assert ask(layered(net, extra), [5000.0], 0.1 * (1 - 1e-9), 1, method, shifts=shifts).verdict is CERTIFIED
    for method_beyond in (Exact(), Cascade()):
        assert ask(layered(net, extra), [5000.0], 0.1 * (1 + 1e-9), 1, method_beyond, shifts=shifts).verdict is REFUTED


@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_signed_inputs_of_a_linear_model(method):
    # w = (1, 1), x = (2, -1), delta 0.4: the least score is -0.2, not 0.6
    net, shifts = FeedForward([[[1.0], [1.0]]], [[0.0]]), LinfShifts(kinds=("weight",))
    assert ask(net, [2.0, -1.0], 0.4, 1, method, shifts=shifts).verdict is REFUTED
    assert ask(net, [2.0, -1.0], 0.333, 1, method, shifts=shifts).verdict is CERTIFIED


# --- extreme numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_products_that_underflow(method):
    # in float64 the score is 1e-323, in real arithmetic it is -1e-323: the row is not robust
    net = FeedForward([np.full((10, 1), -1e-162)], [[1e-323]])
    x = np.full((1, 10), 2e-162)
    assert net.margin(x, 1)[0] >= 0
    assert sum(Fraction(2e-162) * Fraction(-1e-162) for _ in range(10)) + Fraction(1e-323) < 0
    for delta in (5e-324, 1e-320):
        assert ask(net, x, delta, 1, method).verdict is not CERTIFIED


@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_hidden_products_that_underflow(method):
    # the hidden value 2e-323 underflows to 0 in each product; the large weight behind it makes it count
    net = FeedForward([np.full((10, 1), 1e-162), [[-1e300]]], [[0.0], [5e-24]])
    x = np.full((1, 10), 2e-162)
    true = Fraction(5e-24) - Fraction(1e300) * 10 * Fraction(1e-162) * Fraction(2e-162)
    for delta in (5e-324, 1e-320):
        assert true > 0 or ask(net, x, delta, 1, method).verdict is not CERTIFIED


@cache
def _radius(sizes):
    net, X = network(sizes, "identity", "relu", 3), np.random.default_rng(1).normal(size=(6, 3))
    return apas.max_shift(net, X, target="predicted", method="exact").deltas


@pytest.mark.parametrize("size", [1e-8, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("sizes", [(3, 5, 4, 1), (3, 4, 4, 3, 1)], ids=str)
def test_weights_of_every_size(size, sizes):
    """All weights times a number, and the biases so that all layers scale alike: the relative verdicts stay the same."""
    plain = network(sizes, "identity", "relu", 3)
    weights = [w * size for w in plain.weights]
    biases = [b * size ** (i + 1) for i, b in enumerate(plain.biases)]
    scale = [np.full(s, size ** (i // 2 + 1 if i % 2 else 1)) for i, s in enumerate(plain.parameters.shapes)]
    threshold = plain.threshold * size ** len(weights)
    net = FeedForward(weights, biases, output="identity", threshold=threshold)
    X = np.random.default_rng(1).normal(size=(6, 3))
    labels = [int(m >= 0) for m in plain.margin(X, 1)]
    radius = _radius(sizes)
    assert (radius > 0).all()
    shifts = LinfShifts(scale=scale)
    for factor, verdict in ((0.99, CERTIFIED), (1.01, REFUTED)):
        found = apas.certify(net, X, factor * radius, target=labels, shifts=shifts, method=Exact())
        assert [c.verdict for c in found] == [verdict] * 6
        for x, wanted, delta, c in zip(X, labels, factor * radius, found, strict=True):
            if verdict is REFUTED:
                check_witness(net, x, wanted, float(delta), shifts, c.witness)


def test_mixed_sizes_never_give_a_wrong_verdict():
    """Weights from 1e-8 to 1e8 and some zeros: certified rows survive corners, refuted ones fail in fractions."""
    rng, counts = np.random.default_rng(9), {CERTIFIED: 0, REFUTED: 0, UNKNOWN: 0}
    for _ in range(7):
        sizes = [(3, 4), (4, 4), (4, 1)]
        weights = [rng.normal(size=s) * 10.0 ** rng.integers(-8, 9, size=s) * (rng.random(s) < 0.8) for s in sizes]
        net = FeedForward(weights, [rng.normal(size=s[1]) for s in sizes])
        X = rng.normal(size=(4, 3))
        labels = [int(m >= 0) for m in net.margin(X, 1)]
        for shifts, delta in ((LinfShifts(relative=True), 0.05), (LinfShifts(), 1e-3), (LinfShifts(), 1e-9)):
            for i, c in enumerate(
                apas.certify(net, X, delta, target=labels, shifts=shifts, method=Exact(time_limit=2.0))
            ):
                counts[c.verdict] += 1
                if c.verdict is REFUTED:
                    check_witness(net, X[i], labels[i], delta, shifts, c.witness)
                elif c.verdict is CERTIFIED:
                    question = Question(net, X, labels, shifts)
                    assert not broken_by_draws(question, np.array([i]), np.array([delta]), 200, 200, rng)
                    attack = apas.certify(
                        net, X[i : i + 1], delta, target=labels[i], shifts=shifts, method="attack", rng=0
                    )
                    assert attack[0].verdict is not REFUTED
    assert counts[CERTIFIED] > 25
    assert counts[REFUTED] > 3
    assert counts[UNKNOWN] < 42  # of 84: sums of magnitudes up to 1e21 leave little that rounding could not do


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh", "identity"])
def test_boxes_without_width(activation):
    """Only one parameter moves: the least margin is that of a function of one number, looked at point by point."""
    net = network((3, 4, 4, 1), "identity", activation, 4)
    x = np.array([0.5, -1.0, 2.0])
    target = int(net.margin(x[None, :], 1)[0] >= 0)
    for parameter in range(0, len(net.parameters), 5):
        scale = np.zeros(len(net.parameters))
        scale[parameter] = 1.0
        for delta in (0.1, 1.0, 5.0):
            moves = np.linspace(-delta, delta, 4001)[:, None] * scale
            least = net.shifted_margins(x[None, :], target, moves, 1.0).min()
            certificate = ask(net, x, delta, target, shifts=LinfShifts(scale=scale))
            if least > 1e-3:
                assert certificate.verdict is CERTIFIED
            elif least < -1e-3:
                assert certificate.verdict is REFUTED


@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_nothing_that_counts_moves(method):
    net = network((3, 4, 4, 1), "sigmoid", "relu", 5)
    x = np.array([0.5, -1.0, 2.0])
    target = int(net.margin(x[None, :], 1)[0] >= 0)
    assert ask(net, x, 5e-324, target, method).verdict is CERTIFIED
    # the weight of an input that is 0 may move as it likes
    unused = LinfShifts(
        scale=[np.array([[0.0] * 4, [1.0] * 4, [0.0] * 4]), *[np.zeros(s) for s in net.parameters.shapes[1:]]]
    )
    assert (
        ask(
            net, x * [1, 0, 1], 1e6, int(net.margin((x * [1, 0, 1])[None, :], 1)[0] >= 0), method, shifts=unused
        ).verdict
        is CERTIFIED
    )


# --- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*WORST_CASE, Attack()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_ties_of_dead_units(method, hidden):
    """All units stay dead and only they move: the score is 0 on every shift, valid for class 1 and for no other."""
    weights = [np.ones((2, 3)), *[np.ones((3, 3))] * (hidden - 1), np.ones((3, 1))]
    net = FeedForward(weights, [np.full(3, -10.0)] * hidden + [np.zeros(1)])
    shifts = LinfShifts(scale={hidden: 0.0})
    assert ask(net, [1.0, 1.0], 0.1, 1, method, shifts=shifts).verdict is not REFUTED  # it is in fact robust
    tie = ask(net, [1.0, 1.0], 0.1, 0, method, shifts=shifts)
    assert tie.verdict is REFUTED
    assert tie.reason == "not valid on the model itself"
    three = FeedForward(
        [*weights[:-1], np.ones((3, 3))], [np.full(3, -10.0)] * hidden + [np.zeros(3)], output="softmax"
    )
    for label in (0, 1, 2):
        assert ask(three, [1.0, 1.0], 0.1, label, method, shifts=shifts).verdict is REFUTED


@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
def test_a_least_margin_of_exactly_zero(method):
    """relu(relu(w x)) - 1/2 with w = 1, delta = 1/2, all numbers whole powers of two: the least margin is 0."""
    for hidden in (0, 1, 2):
        weights = [[[1.0]]] * (hidden + 1)
        net = FeedForward(weights, [[0.0]] * hidden + [[-0.5]], output="identity", threshold=0.0)
        shifts = LinfShifts(layers=[0], kinds=("weight",))
        assert ask(net, [1.0], 0.5, 1, method, shifts=shifts).verdict is not REFUTED  # 0 is valid for class 1
        flipped = FeedForward([*weights[:-1], [[-1.0]]] if hidden else [[[-1.0]]], [[0.0]] * hidden + [[0.5]], output="identity", threshold=0.0)  # fmt: skip
        at_zero = ask(flipped, [1.0], 0.5, 0, method, shifts=shifts)
        assert at_zero.verdict is not CERTIFIED  # 0 is not valid for class 0


def test_a_row_that_ties_on_some_shift_is_refuted_where_ties_do_not_count():
    # class 0, score -relu(w): dead for w <= 0, where the score is 0, which is class 1
    net = FeedForward([[[0.25]], [[1.0]], [[-1.0]]], [[0.0], [0.0], [0.0]], output="identity", threshold=0.0)
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    certificate = ask(net, [1.0], 0.5, 0, shifts=shifts)
    assert certificate.verdict is REFUTED
    check_witness(net, [1.0], 0, 0.5, shifts, certificate.witness)
    assert ask(net, [1.0], 0.125, 0, shifts=shifts).verdict is CERTIFIED


# --- the method itself ------------------------------------------------------------------------------------------------


def test_no_time_is_never_a_wrong_answer():
    certified = refuted = 0
    for seed in range(6):
        net = network((4, 10, 8, 6, 1), "sigmoid", "relu", seed)
        X = np.random.default_rng(seed).normal(size=(8, 4))
        labels = [int(m >= 0) for m in net.margin(X, 1)]
        for delta in (0.005, 0.02, 0.08):
            hasty = apas.certify(net, X, delta, target=labels, method=Exact(time_limit=0))
            slow = apas.certify(net, X, delta, target=labels, method=Exact(time_limit=20))
            for a, b in zip(hasty, slow, strict=True):
                assert a.verdict in (b.verdict, UNKNOWN)
                if a.verdict is UNKNOWN:
                    assert "0 s" in a.reason
                certified += a.verdict is CERTIFIED
                refuted += a.verdict is REFUTED
    assert certified
    assert refuted


@pytest.mark.parametrize("limit", [-1.0, np.nan, "1", None, True])
def test_time_limit_is_checked(limit):
    with pytest.raises(InputError, match="`time_limit` of Exact must be a number of at least 0"):
        Exact(time_limit=limit)


def test_smooth_units_beyond_one_hidden_layer_are_refused():
    net = network((3, 4, 4, 1), "sigmoid", "tanh", 0)
    with pytest.raises(Unsupported, match="Exact needs relu, leaky_relu, hard_tanh or identity units.*got tanh"):
        ask(net, [1.0, 2.0, 3.0], 0.1)


def test_evidence_is_plain_and_in_words():
    net = network((4, 8, 6, 5, 1), "sigmoid", "relu", 1)
    X = np.random.default_rng(0).normal(size=(20, 4))
    deltas = np.random.default_rng(1).choice([0.001, 0.01, 0.05, 0.2], size=20)
    steps = set()
    for c in apas.certify(net, X, deltas, target="predicted", method=Exact()):
        again = json.loads(json.dumps(c.to_dict()))
        assert again["evidence"]["step"] == c.evidence.step
        assert c.sentence().startswith(c.verdict.name)
        assert ("every one of the shifts keeps class" in c.sentence()) or c.verdict is not CERTIFIED
        assert (c.witness is None) == (c.verdict is not REFUTED)
        if c.verdict is CERTIFIED:
            assert c.evidence.bound > 0
            assert f"{c.evidence.bound:g}"[:4] in c.reason
        steps.add(c.evidence.step)
    assert len(steps) > 1


@pytest.mark.parametrize("method", WORST_CASE, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("sizes", [(4, 8, 6, 1), (4, 7, 6, 5, 1), (4, 8, 6, 3)], ids=str)
def test_rows_do_not_know_of_each_other(sizes, method):
    net = network(sizes, "sigmoid" if sizes[-1] == 1 else "softmax", "relu", 1)
    rng = np.random.default_rng(2)
    X, deltas = rng.normal(size=(40, 4)), rng.choice([0.003, 0.01, 0.03, 0.1], size=40)

    def answers(rows, **options):
        found = apas.certify(net, X[rows], deltas[rows], target="predicted", method=method, rng=0, **options)
        return [(c.verdict, c.evidence, c.witness, c.reason) for c in found]

    whole = answers(np.arange(40))
    for i in range(0, 40, 5):
        assert answers(np.array([i])) == [whole[i]]
    order = rng.permutation(40)
    assert answers(order) == [whole[i] for i in order]
    some = np.sort(order[:13])
    assert answers(some) == [whole[i] for i in some]


def test_processes_do_not_change_the_answers():
    net = network((4, 8, 6, 5, 1), "sigmoid", "relu", 1)
    rng = np.random.default_rng(2)
    X, deltas = rng.normal(size=(24, 4)), rng.choice([0.003, 0.01, 0.03, 0.1], size=24)
    for method in (Exact(), Cascade(), LinearBounds()):
        one, two = (
            apas.certify(net, X, deltas, target="predicted", method=method, rng=0, n_jobs=jobs) for jobs in (1, 2)
        )
        assert [c.to_dict() for c in one] == [c.to_dict() for c in two]
