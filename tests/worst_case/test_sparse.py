"""Bounds over sparse shifts, against every support and every corner; and those of balls below p = 1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import apas
from apas import LpShifts, SparseShifts, Verdict
from apas._random import Stream
from apas.shifts.base import Ball, Sparse
from apas.worst_case.geometry import SHARED, SparseBoxes
from apas.worst_case.intervals import Boxes

ACTIVATIONS = ["relu", "leaky_relu", "hard_tanh", "identity", "tanh", "sigmoid", "softplus", "elu", "gelu"]
#: Sizes of networks, and whether their bounds are exact.
SHAPES = {
    "linear": ((3, 1), True),
    "two scores": ((3, 2), True),
    "classes": ((2, 3), True),
    "one layer": ((2, 3, 1), True),
    "one layer, classes": ((2, 2, 3), True),
    "two layers": ((1, 2, 2, 1), False),
    "three layers, classes": ((1, 2, 1, 1, 3), False),
}


def network(rng, sizes, activation):
    pairs = list(itertools.pairwise(sizes))
    weights, biases = [rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs]
    options = {} if sizes[-1] == 1 else {"output": "softmax", "classes": tuple(range(sizes[-1]))}
    return apas.FeedForward(weights, biases, activation=activation, **options)


def every_corner(net, x, target, sparse, delta, between=()):
    """Least margin over all supports, all of their corners, and given shares of the reach in between."""
    movers, least = np.flatnonzero(sparse.radii), np.inf
    for support in itertools.combinations(movers.tolist(), min(sparse.count, len(movers))):
        shares = np.array(list(itertools.product((-1.0, 0.0, 1.0, *between), repeat=len(support))))
        moves = np.zeros((len(shares), len(sparse.radii)))
        moves[:, support] = shares * sparse.radii[list(support)]
        least = min(least, float(net.shifted_margins(x, target, moves, delta).min()))
    return least


def sweep(seed, shape, exact):
    """One random network, row and set: the bound is the truth, or below it, and attained where it is exact."""
    rng = np.random.default_rng(seed)
    activation = ACTIVATIONS[seed % len(ACTIVATIONS)]
    net = network(rng, shape, activation)
    x, delta = rng.normal(size=(1, shape[0])), float(rng.choice([0.05, 0.3, 1.0]))
    target = net.classes[int(rng.integers(len(net.classes)))]
    radii = np.ones(len(net.parameters)) if seed % 2 else rng.choice([0.0, 0.5, 1.0, 2.0], size=len(net.parameters))
    radii[0] = 1.0
    sparse, wanted, deltas = (
        Sparse(int(rng.integers(1, 4)), radii),
        np.array([net.classes.index(target)]),
        np.array([delta]),
    )
    boxes = SparseBoxes(net, x, wanted, sparse)
    bound, error = float(boxes.bound(deltas)[0]), float(boxes.error(deltas)[0])
    between = tuple(np.linspace(-0.9, 0.9, 13)) if activation == "gelu" and len(radii) < 14 else ()
    truth = every_corner(net, x, target, sparse, delta, between)
    assert bound - error <= truth
    assert bound + error >= float(Boxes(net, x, wanted, radii).bound(deltas)[0])
    drawn = rng.uniform(-1, 1, size=(200, len(radii))) * radii
    drawn[rng.random(drawn.shape).argsort(axis=1).argsort(axis=1) >= sparse.count] = 0.0
    assert (net.shifted_margins(x, target, drawn, delta) >= bound - error).all()
    worst = boxes.worst(deltas)
    assert (worst is None) == (not exact or (activation == "gelu" and len(shape) > 2))
    if worst is not None:
        assert np.count_nonzero(worst) <= sparse.count
        assert (np.abs(worst) <= radii).all()
        assert float(net.shifted_margins(x, target, worst, delta)[0, 0]) == pytest.approx(bound, abs=1e-9)
        assert truth == pytest.approx(bound, abs=1e-9)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(9))
def test_bounds_against_every_corner(name, seed):
    sweep(seed, *SHAPES[name])


@pytest.mark.validity
@pytest.mark.parametrize("name", SHAPES)
def test_bounds_against_every_corner_at_length(name):
    for seed in range(1000, 1600):
        sweep(seed, *SHAPES[name])


def test_a_linear_model_by_hand():
    net, x = apas.FeedForward([[[1.0], [-2.0], [0.5]]], [[0.5]]), np.array([[3.0, 0.5, -4.0]])
    effects = [4.0, 3.0, 1.0, 0.5]  # |x| and the 1 of the bias, the largest first
    margin = float(net.margin(x, 1)[0])
    for count in range(1, 6):
        found = apas.max_shift(net, x, target=1, shifts=SparseShifts(count), method="exact")[0]
        assert found.exact
        assert found.delta == pytest.approx(margin / sum(effects[:count]), rel=1e-9)
    whole = apas.max_shift(net, x, target=1, method="exact")[0]
    assert found.delta == pytest.approx(whole.delta, rel=1e-9)


def test_all_parameters_are_the_box():
    rng = np.random.default_rng(7)
    for sizes in ((3, 4, 1), (3, 4, 3, 1), (3, 4, 3)):
        net, X = network(rng, sizes, "relu"), rng.normal(size=(5, 3))
        wanted, radii, delta = (
            np.zeros(5, dtype=np.intp),
            rng.choice([0.0, 1.0], size=len(network(rng, sizes, "relu").parameters)),
            np.full(5, 0.2),
        )
        box = Boxes(net, X, wanted, radii).bound(delta)
        np.testing.assert_allclose(SparseBoxes(net, X, wanted, Sparse(10**6, radii)).bound(delta), box, rtol=1e-9)


def test_more_parameters_never_help_and_rows_do_not_matter():
    rng = np.random.default_rng(8)
    net, X = network(rng, (3, 5, 4, 1), "tanh"), rng.normal(size=(40, 3))
    wanted, radii, delta = np.zeros(40, dtype=np.intp), np.ones(len(net.parameters)), rng.uniform(0.01, 0.5, size=40)
    bounds = []
    for count in (1, 2, 3, SHARED, SHARED + 1, 30, len(radii)):
        boxes = SparseBoxes(net, X, wanted, Sparse(count, radii))
        bounds.append(boxes.bound(delta))
        some = np.array([3, 17])
        np.testing.assert_allclose(boxes.take(some).bound(delta[some]), bounds[-1][some], rtol=1e-12)
    assert (np.diff(bounds, axis=0) <= 1e-12).all()
    assert (bounds[0] > bounds[-1]).all()


def test_the_provable_radius_is_where_the_bound_ends():
    rng = np.random.default_rng(9)
    net, X = network(rng, (3, 4, 3), "relu"), rng.normal(size=(6, 3))
    wanted = np.array([int(np.argmax([net.margin(x[None], c)[0] for c in net.classes])) for x in X])
    for count in (1, 2, 5):
        boxes = SparseBoxes(net, X, wanted, Sparse(count, np.ones(len(net.parameters))))
        proved, open_end = boxes.radius(10.0)
        assert (boxes.bound(proved) - boxes.error(proved) > 0).all()
        assert (boxes.bound(open_end * (1 + 1e-9)) - boxes.error(open_end) <= 0).all()
        assert (open_end <= proved * (1 + 1e-9)).all()


@pytest.mark.parametrize("shifts", [SparseShifts(2), LpShifts(0.5), LpShifts(0.9)], ids=repr)
@pytest.mark.parametrize("sizes", [(3, 1), (3, 4, 1), (3, 4, 3)], ids=str)
def test_no_draw_contradicts_a_proof_and_every_witness_lies_inside(shifts, sizes):
    rng = np.random.default_rng(11)
    net, X = network(rng, sizes, "relu"), rng.normal(size=(30, 3))
    found = apas.certify(net, X, 0.15, target="predicted", shifts=shifts, method="cascade", rng=0)
    verdicts = [c.verdict for c in found]
    assert {Verdict.CERTIFIED, Verdict.REFUTED} <= set(verdicts)
    drawn = shifts.directions(net.parameters, Stream(5, "certify"), 0, 2000)
    for x, certificate in zip(X, found, strict=True):
        margins = net.shifted_margins(x[None], certificate.target, drawn, 0.15)[:, 0]
        if certificate.is_certified:
            assert (margins > 0).all()
            assert margins.min() >= certificate.evidence.bound - 1e-9
        elif certificate.witness is not None:
            broken = net.with_parameters(certificate.witness.parameters(net))
            assert shifts.contains(net.parameters, broken.parameters, 0.15)
            assert broken.margin(x[None], certificate.target)[0] <= 0


def test_a_ball_below_1_has_the_proofs_of_its_hull():
    """The worst corner is shared; and what L_1 proves of a network holds for the smaller ball."""
    rng = np.random.default_rng(12)
    linear, deep, X = network(rng, (3, 1), "relu"), network(rng, (3, 4, 1), "relu"), rng.normal(size=(8, 3))
    for net in (linear, deep):
        half, one = (apas.max_shift(net, X, target="predicted", shifts=LpShifts(p), method="cascade") for p in (0.5, 1))
        assert half.deltas.tolist() == one.deltas.tolist()
        assert [item.exact for item in half] == [net is linear] * 8 if net is linear else True
    assert Ball(0.5, np.ones(3)).hull == 1.0
    assert Ball(2.0, np.ones(3)).hull == 2.0


def test_numbers_that_overflow_prove_nothing():
    net = apas.FeedForward([np.full((2, 2), 1e200), np.full((2, 1), 1e200)], [np.zeros(2), np.zeros(1)])
    for shifts in (SparseShifts(1), LpShifts(0.5)):
        found = apas.certify(net, [[1.0, 1.0]], 1e200, target=1, shifts=shifts, method="interval")[0]
        assert found.verdict is Verdict.UNKNOWN or found.verdict is Verdict.REFUTED
