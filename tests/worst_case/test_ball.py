"""Least margins over L_p balls of parameters: sound everywhere, exact where they say so, and tight."""

import itertools
import math
import tracemalloc
from functools import cache

import numpy as np
import pytest
from conftest import spread
from problems import network

import apas
from apas._random import Stream, unit_ball
from apas.shifts.balls import LpShifts
from apas.shifts.geometry import lp_norm, steepest_point
from apas.worst_case import ball as balls
from apas.worst_case.ball import (
    PIECES,
    BallDual,
    Balls,
    BallSlopes,
    MatrixNorms,
    conjugate,
    is_exact_ball,
    joint_norm,
    margins_against,
    row_reach,
    unit_reach,
)
from apas.worst_case.intervals import Boxes

ACTIVATIONS = ["relu", "leaky_relu", "hard_tanh", "tanh", "sigmoid", "identity", "softplus", "elu", "gelu"]


def rows_of(net, count, seed, scale=1.0):
    """Random rows and the class that each has."""
    X = scale * np.random.default_rng(seed).normal(size=(count, net.n_features))
    scores = np.stack([net.margin(X, c) for c in net.classes], axis=1)
    return X, scores.argmax(axis=1)


def least_margins_ball(net, X, wanted, mask, p, delta):
    return Balls(net, X, wanted, mask, p).least(delta)


def ball_radius(net, X, wanted, mask, p, limit):
    return Balls(net, X, wanted, mask, p).radius(limit)[0]


def worst_points_ball(net, X, wanted, mask, p, delta):
    return Balls(net, X, wanted, mask, p).worst(delta)


def gradients(net, X, wanted, moves):
    return net.parameter_gradient(X, np.array([net.classes[w] for w in wanted], dtype=object), moves)


def least_found(net, x, wanted, mask, p, delta, seed=0, restarts=16, steps=40, enough=-np.inf):
    """Least margin that an attack finds in the ball: Frank-Wolfe steps from random points of the surface.

    It stops at a margin that is small `enough`.
    """
    X, target = np.repeat(x[None, :], restarts, axis=0), np.full(restarts, wanted)
    moves = unit_ball(len(mask), p, Stream(seed, "attack"), 0, restarts) * mask
    moves *= (delta / np.maximum(lp_norm(moves, p), 1e-300))[:, None]
    moves[0] = 0.0
    least = np.inf
    for step in range(steps):
        margins, slopes = gradients(net, X, target, moves)
        least = min(least, margins.min())
        if least <= enough:
            break
        pace = 1.0 if step % 4 == 0 else 2 / (step + 2)
        moves += pace * (delta * steepest_point(slopes * mask, p) - moves)
    return least


def attack_radius(net, x, wanted, mask, p, high):
    """Smallest delta at which the attack succeeds, to a thousandth."""
    low = 0.0
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        broken = least_found(net, x, wanted, mask, p, middle, enough=0.0) <= 0
        low, high = (low, middle) if broken else (middle, high)
    return high


def masks_of(net, seed):
    """All parameters; the weights; one layer; some parameters."""
    parameters = net.parameters
    masks = [LpShifts(2).radii(parameters), LpShifts(2, kinds="weight").radii(parameters)]
    masks.append(LpShifts(2, layers=[seed % len(net.weights)]).radii(parameters))
    some = (np.random.default_rng(seed).random(len(parameters)) < 0.6).astype(float)
    some[0] = 1.0
    return [*masks, some]


# -- linear models: exact ----------------------------------------------------------------------------------------

ORDERS = [1.0, 1.5, 2.0, 5.0]


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("biases", [True, False], ids=["biases-move", "biases-fixed"])
def test_linear_models_have_the_closed_form(p, outputs, biases):
    net = network((5, outputs), "sigmoid" if outputs == 1 else "softmax", "relu", seed=outputs)
    X, wanted = rows_of(net, 7, seed=1)
    mask = LpShifts(p, kinds=("weight", "bias") if biases else ("weight",)).radii(net.parameters)
    assert is_exact_ball(net, mask)
    q = math.inf if p == 1 else p / (p - 1)
    extended = np.hstack([X, np.ones((7, 1))]) if biases else X
    steepness = lp_norm(extended, q) * (1.0 if outputs == 1 else 2.0 ** (1 / q))
    margins = np.array([net.margin(X[i : i + 1], net.classes[w])[0] for i, w in enumerate(wanted)])
    np.testing.assert_allclose(ball_radius(net, X, wanted, mask, p, 1e6), margins / steepness, rtol=1e-10)
    for delta in (0.1, 1.0, 30.0):
        bound, error = least_margins_ball(net, X, wanted, mask, p, np.full(7, delta))
        assert (error < 1e-10).all()
        if outputs < 4:  # the same steepness for every rival makes the nearest one the worst, whatever delta
            np.testing.assert_allclose(bound, margins - delta * steepness, rtol=1e-10, atol=1e-10)
        worst = worst_points_ball(net, X, wanted, mask, p, np.full(7, delta))
        assert (lp_norm(worst, p) <= 1 + 1e-12).all()
        assert (worst[:, mask == 0] == 0).all()
        np.testing.assert_allclose(gradients(net, X, wanted, delta * worst)[0], bound, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_linear_models_with_some_fixed_parameters(p, seed):
    # rivals now differ in steepness, so that the worst one depends on delta
    net = network((3, 4), "softmax", "relu", seed)
    X, wanted = rows_of(net, 5, seed)
    mask = masks_of(net, seed)[3]
    for delta in (0.01, 0.3, 3.0):
        bound, _ = least_margins_ball(net, X, wanted, mask, p, np.full(5, delta))
        worst = worst_points_ball(net, X, wanted, mask, p, np.full(5, delta))
        np.testing.assert_allclose(gradients(net, X, wanted, delta * worst)[0], bound, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_network_of_which_only_the_output_moves_is_linear(p, activation):
    net = network((4, 6, 5, 3), "softmax", activation, seed=2)
    X, wanted = rows_of(net, 5, seed=3)
    mask = LpShifts(p, layers=[-1]).radii(net.parameters)
    assert is_exact_ball(net, mask)
    delta = np.full(5, 0.2)
    bound, _ = least_margins_ball(net, X, wanted, mask, p, delta)
    worst = worst_points_ball(net, X, wanted, mask, p, delta)
    np.testing.assert_allclose(gradients(net, X, wanted, 0.2 * worst)[0], bound, rtol=1e-9, atol=1e-9)


def test_other_networks_are_not_called_exact():
    net = network((4, 6, 1), "sigmoid", "relu", seed=2)
    X, wanted = rows_of(net, 2, seed=3)
    for mask in masks_of(net, 0)[:2]:
        assert not is_exact_ball(net, mask)
        assert worst_points_ball(net, X, wanted, mask, 2.0, np.ones(2)) is None


# -- never above what is found -----------------------------------------------------------------------------------


def random_network(seed):
    rng = np.random.default_rng(seed)
    outputs = int(rng.choice([1, 1, 2, 3]))
    sizes = [int(rng.integers(1, 7)), *(int(rng.integers(1, 9)) for _ in range(seed % 4)), outputs]
    activation = [str(name) for name in rng.choice(ACTIVATIONS, size=seed % 4)]
    return network(sizes, "sigmoid" if outputs == 1 else "softmax", activation or "relu", seed)


@pytest.mark.parametrize("seed", spread(range(32), 3))
def test_bounds_lie_below_every_margin_found(seed):
    net = random_network(seed)
    X, wanted = rows_of(net, 2, seed)
    if seed % 5 == 0:
        wanted = np.random.default_rng(seed).integers(len(net.classes), size=2)  # rows that are not valid as well
    p = [1.0, 2.0, 1.3, 3.0][(seed // 4 + seed // 16) % 4]
    mask = masks_of(net, seed)[seed // 2 % 4]
    proved = ball_radius(net, X, wanted, mask, p, 100.0)
    for factor in (0.5, 1.0, 1.5, 6.0):
        delta = np.where(proved > 0, factor * proved, 0.1 * factor)
        bound, error = least_margins_ball(net, X, wanted, mask, p, delta)
        room = 1e-13 * net.margin_scale(X, mask, delta)  # rounding of the margins that are found
        for i in range(2):
            found = least_found(net, X[i], wanted[i], mask, p, delta[i], seed)
            assert bound[i] - error[i] <= found + room[i]
            if factor == 1.0 and proved[i] > 0:
                assert found > -room[i]


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_slopes_and_margins_of_random_shifts_lie_within_their_bounds(p, activation):
    net = network((4, 7, 5, 3), "softmax", activation, seed=7)
    X, wanted = rows_of(net, 3, seed=8)
    mask = masks_of(net, 3)[3]
    shifts = unit_ball(len(mask), p, Stream(0, "points"), 0, 200) * mask
    shifts /= lp_norm(shifts, p)[:, None]
    for radius in (0.0, 0.05, 0.5):
        known = [BallSlopes(margin, p).at(np.full(3, radius)) for margin in margins_against(net, X, wanted, mask)]
        least = np.minimum.reduce([k[0] for k in known])
        steepest = np.maximum.reduce([k[1] for k in known])
        for i in range(3):
            margins, slopes = gradients(net, np.repeat(X[i : i + 1], 200, 0), np.full(200, wanted[i]), radius * shifts)
            assert (margins >= least[i] - 1e-12).all()
            assert (lp_norm(slopes * mask, conjugate(p)) <= steepest[i] * (1 + 1e-12)).all()
    assert known[0][1].max() < 100 * lp_norm(slopes * mask, conjugate(p)).max()


def pushes(parameters, p):
    """Unit moves that make the weights of a positive network larger: one parameter, or one or several tensors alike."""
    size, parts = len(parameters), parameters.slices
    groups = [np.array([i]) for i in range(size)] + [np.arange(size)[part] for part in parts] + [np.arange(size)]
    groups += [
        np.concatenate([np.arange(size)[part] for part in pair]) for pair in zip(parts[::2], parts[2::2], strict=False)
    ]
    moves = np.zeros((len(groups), size))
    for move, group in zip(moves, groups, strict=True):
        move[group] = len(group) ** (-1 / p)
    return moves


@pytest.mark.parametrize("p", spread([1.0, 1.3, 2.0, 4.0], 2))
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 4, 4, 1), (3, 1, 5, 1), (2, 5, 1, 1), (1, 4, 3), (2, 3, 4, 3)])
def test_slopes_grow_with_the_radius_as_much_as_they_can(sizes, p):
    # with positive weights and inputs every push makes all slopes larger: here the bounds are nearly attained
    rng = np.random.default_rng(sum(sizes))
    pairs = list(zip(sizes, sizes[1:], strict=False))
    wanted = np.array([1 if sizes[-1] == 1 else 0])
    for levels in itertools.product((0.1, 1.0, 10.0), repeat=len(pairs)):
        weights = [level * rng.uniform(0.5, 1.5, size=pair) for level, pair in zip(levels, pairs, strict=True)]
        weights[-1][:, 1:] *= -1  # rivals' scores fall where the wanted one rises
        output = "sigmoid" if sizes[-1] == 1 else "softmax"
        net = apas.FeedForward(weights, [0.1 * rng.random(b) for _, b in pairs], output=output)
        x = rng.uniform(0.5, 1.5, size=(1, sizes[0]))
        for mask in (
            np.ones(len(net.parameters)),
            *(LpShifts(2, layers=pair).radii(net.parameters) for pair in ([0, 1], [0, -1])),
        ):
            moves = pushes(net.parameters, p) * np.where(net.parameters.values < 0, -1.0, 1.0) * mask
            _, start = gradients(net, x, wanted, None)
            assert (start * mask != 0).any()
            for radius in (0.1, 1.0, 3.0):
                _, slopes = gradients(net, np.repeat(x, len(moves), 0), np.repeat(wanted, len(moves)), radius * moves)
                found = lp_norm(slopes * mask, conjugate(p)).max()
                margins = margins_against(net, x, wanted, mask)
                known = max(BallSlopes(margin, p).at(np.array([radius]))[1][0] for margin in margins)
                assert found <= known * (1 + 1e-12)


# -- how tight ---------------------------------------------------------------------------------------------------


def scaled_network(sizes, activation, seed, output="sigmoid"):
    """Weights as after the usual initialisation."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in zip(sizes, sizes[1:], strict=False)]
    biases = [0.3 * rng.normal(size=b) for b in sizes[1:]]
    return apas.FeedForward(weights, biases, activation=activation, output=output)


@cache
def attacked(sizes, activation, p, seed, output):
    """A network, two of its rows, and the radii at which the attack breaks them."""
    net = scaled_network(sizes, activation, seed, output)
    X, wanted = rows_of(net, 2, seed + 100)
    mask = np.ones(len(net.parameters))
    margins = np.array([net.margin(X[i : i + 1], net.classes[w])[0] for i, w in enumerate(wanted)])
    broken = [attack_radius(net, X[i], wanted[i], mask, p, 1.2 * margins[i]) for i in range(2)]
    return net, X, wanted, mask, broken


def shares_of_attack(sizes, activation, p, seeds, radius, output="sigmoid"):
    shares = []
    for seed in seeds:
        net, X, wanted, mask, broken = attacked(sizes, activation, p, seed, output)
        shares += list(radius(net, X, wanted, mask, p) / broken)
    return np.array(shares)


def best(net, X, wanted, mask, p):
    return ball_radius(net, X, wanted, mask, p, 100.0)


def by_walking(net, X, wanted, mask, p):
    """The integral bound alone."""
    [margin] = margins_against(net, X, wanted, mask)
    slopes = BallSlopes(margin, p)
    start, slope = slopes.at(np.zeros(len(X)))
    return balls._walk(slopes, start, start / slope, 200)[1]


def by_box(net, X, wanted, mask, p):
    return Boxes(net, X, wanted, mask).radius(100.0)[0]


KINDS = [((8, 20, 1), "sigmoid"), ((20, 50, 1), "sigmoid"), ((8, 20, 3), "softmax")]


@pytest.mark.parametrize("kind", spread(itertools.product(KINDS, ["relu", "leaky_relu", "identity"]), 2), ids=str)
def test_the_dual_bound_is_within_three_percent_of_the_attack(kind):
    (sizes, output), activation = kind
    shares = shares_of_attack(sizes, activation, 2.0, range(3), best, output)
    assert (shares <= 1.0).all()
    assert shares.min() >= 0.97
    assert np.median(shares) >= 0.99


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_the_integral_bound_is_far_better_than_the_box(p):
    walked = shares_of_attack((8, 20, 1), "relu", p, range(4), by_walking)
    assert (walked <= 1.0).all()
    assert walked.min() >= 0.71
    boxed = shares_of_attack((8, 20, 1), "relu", p, range(4), by_box)
    assert boxed.max() < 0.35
    assert (walked > 2 * boxed).all()
    deep = shares_of_attack((20, 64, 32, 1), "relu", p, range(1), best)
    assert (deep <= 1.0).all()
    assert np.median(deep) >= 0.6


# -- the dual bound ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", PIECES)
def test_pieces_are_the_activation(activation):
    from apas.models.forward import activate

    z = np.linspace(-3, 3, 601)
    values = np.empty_like(z)
    for slope, level, left, right in PIECES[activation]:
        here = (z >= left) & (z <= right)
        values[here] = slope * z[here] + level
    np.testing.assert_array_equal(values, activate(activation, z.copy()))


@pytest.mark.parametrize("activation", PIECES)
@pytest.mark.parametrize("seed", range(5))
def test_units_are_bounded_by_their_least_value_on_a_grid(activation, seed):
    # for any multiplier: least of (v + y) h(z + X t) + m (t**2 + y**2 / n), over a fine grid of t with y at its best
    net = network((3, 6, 3), "softmax", activation, seed)
    X, wanted = rows_of(net, 2, seed)
    mask = masks_of(net, seed)[3]
    mask[net.parameters.slices[1]] = 1.0
    from apas.models.forward import activate

    for margin in margins_against(net, X, wanted, mask):
        assert BallDual.fits(margin, 2.0).all()
        dual = BallDual(margin)
        for factor in (1.0001, 1.5, 10.0):
            multiplier = np.maximum(dual._least_multiplier(), 0.05) * factor
            found = np.minimum.reduce([dual._on_piece(multiplier[:, None], *piece) for piece in dual.pieces])
            reach = np.broadcast_to(dual.reach, found.shape)
            grid = np.linspace(-60, 60, 30_001)
            for i in range(2):
                for k in range(6):
                    ends = [end for piece in PIECES[activation] for end in piece[2:] if math.isfinite(end)]
                    t = np.append(grid, (np.array(ends) - dual.z[i, k]) / reach[i, k])
                    h = activate(activation, dual.z[i, k] + reach[i, k] * t)
                    n, m, v = margin.weight_moves[i, k], multiplier[i], margin.weights[i, k]
                    values = v * h - n * h**2 / (4 * m) + m * t**2
                    assert found[i, k] <= values.min() + 1e-12 * (1 + abs(values.min()))
                    if -50 < t[values.argmin()] < 50:
                        np.testing.assert_allclose(found[i, k], values.min(), rtol=1e-4, atol=1e-3)


def test_the_dual_radius_is_the_formula_of_one_relu_layer():
    # as written down for plain binary networks: for every m > X / 2,
    # delta**2 >= (e - 1 / (4 m) + sum of phi_k(m)) / m
    net = scaled_network((8, 20, 1), "relu", seed=1)
    X, wanted = rows_of(net, 3, seed=101)
    [margin] = margins_against(net, X, wanted, np.ones(len(net.parameters)))
    for i, found in enumerate(BallDual(margin).radius()):
        sign = 1.0 if wanted[i] == 1 else -1.0
        z, v, e = X[i] @ net.weights[0] + net.biases[0], sign * net.weights[1][:, 0], sign * net.biases[1][0]
        size, best = math.sqrt(X[i] @ X[i] + 1), 0.0
        for m in np.geomspace(size / 2 * 1.001, 20 * size, 4000):
            t, y = size * (z - 2 * m * v) / (4 * m**2 - size**2), (size**2 * v - 2 * m * z) / (4 * m**2 - size**2)
            dead = np.where(z <= 0, 0.0, m * z**2 / size**2)
            alive = (v + y) * (z + size * t) + m * (t**2 + y**2)
            phi = np.where(z + size * t >= 0, np.minimum(dead, alive), dead)
            best = max(best, (e - 1 / (4 * m) + phi.sum()) / m)
        np.testing.assert_allclose(found, math.sqrt(best), rtol=1e-5)


def test_the_dual_bound_is_only_for_what_it_is_proved_for():
    X = np.array([[1.0, 2.0], [0.0, 0.0]])
    wanted = np.array([1, 1])
    one = network((2, 3, 1), "sigmoid", "relu", 0)
    [margin] = margins_against(one, X, wanted, LpShifts(2, kinds="weight").radii(one.parameters))
    assert BallDual.fits(margin, 2.0).tolist() == [True, False]  # a unit of the second row cannot move
    assert not BallDual.fits(margin, 1.0).any()
    for net in (network((2, 3, 3, 1), "sigmoid", "relu", 0), network((2, 3, 1), "sigmoid", "tanh", 0)):
        [margin] = margins_against(net, X, wanted, np.ones(len(net.parameters)))
        assert not BallDual.fits(margin, 2.0).any()


# -- what must not matter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_class_0_is_the_mirror_image_of_class_1(p):
    net = network((4, 6, 1), "identity", "relu", seed=5)
    mirrored = apas.FeedForward(
        [net.weights[0], -net.weights[1]],
        [net.biases[0], 2 * net.threshold - net.biases[1]],
        output="identity",
        threshold=0.4,
    )
    X, wanted = rows_of(net, 6, seed=6)
    mask, delta = np.ones(len(net.parameters)), np.full(6, 0.05)
    ours, theirs = (least_margins_ball(n, X, w, mask, p, delta)[0] for n, w in ((net, wanted), (mirrored, 1 - wanted)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_rows_do_not_depend_on_each_other(p, monkeypatch):
    net = network((4, 6, 3, 3), "softmax", "relu", seed=5)
    X, wanted = rows_of(net, 5, seed=6)
    mask = np.ones(len(net.parameters))
    together = ball_radius(net, X, wanted, mask, p, 10.0)
    alone = [ball_radius(net, X[i : i + 1], wanted[i : i + 1], mask, p, 10.0)[0] for i in range(5)]
    assert together.tolist() == alone
    monkeypatch.setattr(balls, "NUMBERS", 18)  # three rows at a time
    assert ball_radius(net, X, wanted, mask, p, 10.0).tolist() == alone


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_radius_and_the_bounds_agree(p):
    net = network((4, 6, 4, 1), "sigmoid", "tanh", seed=9)
    X, wanted = rows_of(net, 8, seed=9)
    mask = np.ones(len(net.parameters))
    radius = ball_radius(net, X, wanted, mask, p, 10.0)
    assert (radius > 0).all()
    for factor in (0.5, 0.97):
        bound, error = least_margins_ball(net, X, wanted, mask, p, factor * radius)
        assert (bound - error > 0).all()
    # the least margin never rises, and so does what is known of it
    deltas = np.linspace(0.0, 3.0, 9)
    known = np.array([least_margins_ball(net, X, wanted, mask, p, np.full(8, d))[0] for d in deltas])
    assert (np.diff(known, axis=0) <= 1e-9).all()


def test_scales_of_weights_and_inputs():
    for scale in (1e-8, 1e-3, 1e3, 1e8):
        net = network((4, 6, 1), "identity", "relu", seed=4)
        # margins, output weights and radii of the output layer all scale alike where nothing else moves
        scaled = apas.FeedForward(
            [net.weights[0], scale * net.weights[1]],
            [net.biases[0], scale * net.biases[1]],
            output="identity",
            threshold=0.4 * scale,
        )
        X, wanted = rows_of(net, 5, seed=4)
        mask = LpShifts(2, layers=[-1]).radii(net.parameters)
        np.testing.assert_allclose(
            ball_radius(scaled, X, wanted, mask, 2.0, 1e12),
            scale * ball_radius(net, X, wanted, mask, 2.0, 1e12),
            rtol=1e-9,
        )
        everything = np.ones(len(mask))
        large = 5000.0 * X
        _, wanted = rows_of(scaled, 5, seed=4, scale=5000.0)
        for p in (1.0, 2.0):
            radius = ball_radius(scaled, large, wanted, everything, p, 1e12)
            assert (radius > 0).all()
            for i in range(5):
                found = least_found(scaled, large[i], wanted[i], everything, p, radius[i])
                assert found > -1e-13 * scaled.margin_scale(large[i : i + 1], everything, radius[i])[0]


def test_no_radius_leaves_the_margin():
    net = network((4, 6, 3, 1), "sigmoid", "gelu", seed=4)
    X, wanted = rows_of(net, 5, seed=4)
    bound, error = least_margins_ball(net, X, wanted, np.ones(len(net.parameters)), 2.0, np.zeros(5))
    margins = np.array([net.margin(X[i : i + 1], net.classes[w])[0] for i, w in enumerate(wanted)])
    np.testing.assert_allclose(bound, margins, rtol=1e-9, atol=1e-9)
    assert (error < 1e-9).all()


def test_rows_that_are_not_valid_have_no_radius():
    net = network((4, 6, 1), "sigmoid", "relu", seed=4)
    X, wanted = rows_of(net, 5, seed=4)
    assert (ball_radius(net, X, 1 - wanted, np.ones(len(net.parameters)), 2.0, 10.0) == 0).all()
    empty = ball_radius(net, X[:0], wanted[:0], np.ones(len(net.parameters)), 2.0, 10.0)
    assert empty.shape == (0,)


def test_what_never_fails_is_proved_up_to_the_limit():
    # two saturating units cannot outweigh the output's bias, which does not move
    net = apas.FeedForward([np.ones((2, 2)), [[1.0], [-1.0]]], [[0.0, 0.0], [3.0]], activation="sigmoid")
    mask = LpShifts(2, layers=[0]).radii(net.parameters)
    assert ball_radius(net, np.array([[1.0, -2.0]]), np.array([1]), mask, 2.0, 1e3).tolist() == [1e3]
    linear = apas.FeedForward([[[1.0]]], [[0.5]])
    fixed = LpShifts(2, kinds="weight").radii(linear.parameters)
    assert ball_radius(linear, np.array([[0.0]]), np.array([1]), fixed, 2.0, 7.0).tolist() == [7.0]


def test_overflow_proves_nothing():
    net = apas.FeedForward([[[1e200]], [[1e200]], [[1.0]]], [[0.0], [0.0], [0.0]])
    with np.errstate(over="ignore", invalid="ignore"):
        bound, _ = least_margins_ball(net, np.array([[1.0]]), np.array([1]), np.ones(6), 2.0, np.array([1.0]))
        radius = ball_radius(net, np.array([[1.0]]), np.array([1]), np.ones(6), 2.0, 1.0)
    assert not np.isnan(bound[0])
    assert bound[0] == -np.inf
    assert radius.tolist() == [0.0]


# -- norms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 7.0, math.inf])
def test_reaches_are_norms_over_what_moves(q):
    rng = np.random.default_rng(0)
    sizes = np.abs(rng.normal(size=(4, 5))) * 10.0 ** rng.integers(-3, 4, size=(4, 5))
    moves, bias_moves = (rng.random((5, 3)) < 0.6).astype(float), np.array([1.0, 0.0, 1.0])
    expected = np.empty((4, 3))
    for i in range(4):
        for j in range(3):
            expected[i, j] = np.linalg.norm(np.append(sizes[i] * moves[:, j], bias_moves[j]), q)
    for some, wanted in ((slice(None), expected), (slice(1), expected[:, :1])):
        reach = unit_reach(sizes, moves[:, some], bias_moves[some], q)
        np.testing.assert_allclose(reach, wanted, rtol=1e-10)
        assert (reach >= wanted * (1 - 1e-15)).all()
    counts = rng.integers(0, 3, size=(4, 5)).astype(float)
    doubled = [np.linalg.norm(np.append(np.repeat(sizes[i], counts[i].astype(int)), [1.0, 1.0]), q) for i in range(4)]
    np.testing.assert_allclose(row_reach(sizes, counts, np.full(4, 2.0), q), doubled, rtol=1e-10)
    np.testing.assert_allclose(joint_norm(q, *sizes), np.linalg.norm(sizes, q, axis=0), rtol=1e-10)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_matrices_pass_on_no_more_than_their_norms(p):
    rng = np.random.default_rng(1)
    w, slopes = rng.normal(size=(6, 4)), rng.random((3, 6))
    norms = MatrixNorms(w, p)
    units, everything = np.broadcast_to(norms.of_units(slopes), (3, 4)), norms.of_all(slopes)
    best = np.zeros((3, 4)), np.zeros(3)
    for d in unit_ball(6, p, Stream(2, "d"), 0, 4000):
        d = d / lp_norm(d, p)
        out = (slopes * d) @ w
        assert (np.abs(out) <= units).all()
        assert (lp_norm(out, p) <= everything).all()
        best = np.maximum(best[0], np.abs(out)), np.maximum(best[1], lp_norm(out, p))
    assert (best[0] > 0.5 * units).all()
    assert (best[1] > 0.3 * everything).all()
    low, high = norms.range_of((slopes - 1, slopes + 1))
    back = norms.range_of((slopes[:, :4] - 1, slopes[:, :4] + 1), back=True)
    for _ in range(100):
        a = slopes + rng.uniform(-1, 1, size=slopes.shape)
        assert ((a @ w >= low - 1e-12) & (a @ w <= high + 1e-12)).all()
        assert ((a[:, :4] @ w.T >= back[0] - 1e-12) & (a[:, :4] @ w.T <= back[1] + 1e-12)).all()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_norms_of_matrices_of_ones_are_attained(p):
    for shape, exponent in (((6, 1), 1 - 1 / p), ((1, 6), 1 / p), ((6, 6), 1.0)):
        found = MatrixNorms(np.ones(shape), p).of_all(np.ones((1, shape[0])))[0]
        np.testing.assert_allclose(found, 6**exponent, rtol=1e-8)
        assert found >= 6**exponent * (1 - 1e-15)


def test_powers_that_underflow_are_not_lost():
    # to the power 1001 both numbers vanish; the norm must not
    assert (
        unit_reach(np.array([[0.3, 0.1, 5.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.zeros(2), 1001.0)[
            0, 0
        ]
        >= 0.3
    )
    net = network((4, 6, 1), "sigmoid", "relu", seed=4)
    X, wanted = rows_of(net, 3, seed=4)
    mask = np.ones(len(net.parameters))
    almost, one = (ball_radius(net, X, wanted, mask, p, 10.0) for p in (1.001, 1.0))
    np.testing.assert_allclose(almost, one, rtol=0.05)


def test_the_worst_points_against_many_rivals_take_no_more_memory():
    rng, classes, rows = np.random.default_rng(0), 12, 200
    net = apas.FeedForward([rng.normal(size=(40, classes))], [rng.normal(size=classes)], output="softmax")
    X, wanted, delta = rng.normal(size=(rows, 40)), rng.integers(classes, size=rows), np.full(rows, 0.1)
    balls = Balls(net, X, wanted, np.ones(len(net.parameters)), 2.0)
    balls.worst(delta)
    tracemalloc.start()
    points = balls.worst(delta)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 14 * points.nbytes, peak / points.nbytes
    alone = [Balls(net, X[i : i + 1], wanted[i : i + 1], balls.mask, 2.0).worst(delta[:1])[0] for i in range(20)]
    np.testing.assert_array_equal(points[:20], alone)
