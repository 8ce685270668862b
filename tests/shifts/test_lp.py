"""Balls of shifts: that draws are uniform in them, fixed and independent, and what lies inside without tolerance."""

import json
import math
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from conftest import spread
from scipy import stats

import apas
from apas._random import SMALL, TILE, Stream, unit_ball
from apas.shifts.balls import LpShifts
from apas.shifts.base import Ball, ShiftSet
from apas.shifts.geometry import EXACT, inside_ball, lp_norm, steepest_point, within_ball

STREAM = Stream(1, "certify")
ORDERS = [0.5, 1.0, 1.5, 2.0, 3.0, 20.0]


def network(sizes=(3, 4, 2, 1), seed=0):
    rng = np.random.default_rng(seed)
    pairs = list(zip(sizes, sizes[1:], strict=False))
    return apas.FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs])


NET = network()
P = NET.parameters
WEIGHT0, BIAS0, WEIGHT1, BIAS1, WEIGHT2, BIAS2 = P.slices


def with_values(parameters, values):
    """The same tensors with other numbers."""
    names, kinds, layers = parameters.names, parameters.kinds, parameters.layers
    return apas.Parameters(np.asarray(values, dtype=float), names, kinds, layers, parameters.shapes, parameters.slices)


# -- the distribution --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("size", [1, 2, 7, SMALL + 1])
def test_radii_and_marginals_are_those_of_the_uniform_ball(p, size):
    n = 20_000 if size < 100 else 400
    points = unit_ball(size, p, Stream(2024, "certify"), 0, n)
    assert points.shape == (n, size)
    radius = np.sum(np.abs(points) ** p, axis=1) ** (1 / p)
    assert (radius <= 1).all()
    # the share of the ball within radius r is r**size
    assert stats.kstest(radius**size, "uniform").pvalue > 1e-4
    # a coordinate has density proportional to (1 - |t|**p)**((size - 1) / p)
    for j in sorted({0, size // 2, size - 1}):
        coordinate = points[:, j]
        assert stats.kstest(np.abs(coordinate) ** p, stats.beta(1 / p, (size - 1) / p + 1).cdf).pvalue > 1e-4
        assert stats.binomtest(int((coordinate > 0).sum()), n).pvalue > 1e-4


@pytest.mark.parametrize("size", [3, SMALL + 1])
def test_a_small_p_has_the_same_law(size):
    """Its sizes are tiny, and g itself would overflow; each test is wrong once in 10**4."""
    p, n = 0.05, 20_000 if size < 100 else 400
    points = unit_ball(size, p, Stream(2024, "certify"), 0, n)
    powers = np.abs(points) ** p
    assert stats.kstest(powers.sum(axis=1) ** (size / p), "uniform").pvalue > 1e-4
    assert stats.kstest(powers[:, 1], stats.beta(1 / p, (size - 1) / p + 1).cdf).pvalue > 1e-4
    assert stats.binomtest(int((points[:, 1] > 0).sum()), n).pvalue > 1e-4


def test_the_smallest_p_draws_what_numbers_can_hold():
    alone, some = (unit_ball(size, 0.001, Stream(3, "certify"), 0, 2000) for size in (1, 5))
    assert stats.kstest(alone[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-4
    assert (np.abs(some) <= 1).all()
    assert np.count_nonzero(some) < 0.2 * some.size  # a fifth to the power 1000 is none


def test_what_the_page_says_about_draws_of_a_small_p():
    tiny, smaller = (unit_ball(9, p, Stream(3, "certify"), 0, 2000) for p in (0.02, 0.002))
    assert (tiny != 0).all()
    assert (1.0 + tiny == 1.0).all()
    assert (smaller == 0).all()
    assert (unit_ball(3, 0.001, Stream(3, "certify"), 0, 2000) == 0).all()


def test_closed_forms_of_the_marginals():
    # the disc of p = 1/2 within |x| <= t: 4 (t - 4/3 t**1.5 + t**2 / 2) of 2/3
    first = np.abs(unit_ball(2, 0.5, Stream(4, "certify"), 0, 20_000)[:, 0])
    assert stats.kstest(first, lambda t: 6 * (t - 4 / 3 * t**1.5 + t**2 / 2)).pvalue > 1e-4
    n, size = 20_000, 5
    sizes = np.abs(unit_ball(size, 1.0, Stream(5, "certify"), 0, n)[:, 2])
    assert stats.kstest(sizes, lambda t: 1 - (1 - t) ** size).pvalue > 1e-4
    disc = unit_ball(2, 2.0, Stream(6, "certify"), 0, n)
    assert stats.kstest(disc[:, 0], lambda t: 0.5 + (t * np.sqrt(1 - t * t) + np.arcsin(t)) / np.pi).pvalue > 1e-4
    assert stats.kstest(np.arctan2(disc[:, 1], disc[:, 0]), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-4


@pytest.mark.parametrize("p", ORDERS)
def test_coordinates_and_draws_are_uncorrelated(p):
    n = 20_000
    points = unit_ball(4, p, Stream(2025, "certify"), 0, n)
    columns = np.column_stack([points[:-1], points[1:], np.sum(points[1:] ** 2, axis=1)])
    correlations = np.corrcoef(columns, rowvar=False)[np.triu_indices(9, 1)]
    # all but those of the squared norm with itself
    assert np.abs(correlations).max() < 5.5 / np.sqrt(n)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_share_of_a_half_space_is_the_geometric_one(p):
    # by symmetry of the ball under permutations: P(u_0 is the largest of 4 in size) = 1/4
    points = unit_ball(4, p, Stream(7, "certify"), 0, 40_000)
    largest = np.abs(points).argmax(axis=1)
    assert stats.chisquare(np.bincount(largest, minlength=4)).pvalue > 1e-4


def test_a_very_large_p_is_nearly_the_cube():
    points = unit_ball(5, 1e6, Stream(8, "certify"), 0, 20_000)
    assert np.isfinite(points).all()
    assert stats.kstest(points[:, 1], stats.uniform(-1, 2).cdf).pvalue > 1e-4


# -- a pure function of stream and index -------------------------------------------------------------------------


@pytest.mark.parametrize("p", spread(ORDERS, 3))
@pytest.mark.parametrize("size", [1, 5, SMALL, SMALL + 1])
def test_any_block_gives_the_same_points(p, size):
    n = 300 if size < 100 else 140
    whole = unit_ball(size, p, STREAM, 0, n)
    for cuts in ([0, 1, n], [0, TILE - 1, TILE, TILE + 1, n], [0, n // 3, n]):
        parts = [unit_ball(size, p, STREAM, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
        assert np.array_equal(np.vstack(parts), whole)
    for i in (0, 7, n - 1):
        assert np.array_equal(unit_ball(size, p, STREAM, i, i + 1)[0], whole[i])
    assert len(unit_ball(size, p, STREAM, 3, 3)) == 0


def test_streams_give_different_points():
    one, other = (unit_ball(3, 2.0, Stream(1, purpose), 0, 5) for purpose in ("certify", "search"))
    assert not np.isclose(one, other).any()


def test_large_points_are_made_in_parts():
    size = (1 << 15) + 5
    point = unit_ball(size, 2.0, STREAM, 3, 4)[0]
    words = STREAM.words(3 * (size + 1), size + 1)
    share = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    normals = stats.norm.isf(share[:-1] / 2) / np.sqrt(2) * np.where(words[:-1] & np.uint64(1), -1.0, 1.0)
    expected = normals / np.sqrt(np.sum(normals**2) - np.log(share[-1]))
    np.testing.assert_allclose(point, expected, rtol=1e-9)


PINNED = {
    1.0: [-0.19903965940961857, -0.32417278186567244, -0.13872082491615967],
    2.0: [-0.3101502528414857, -0.4632365752728642, -0.22697467597801757],
    3.0: [-0.3852904135954252, -0.22395264224124042, -0.3783287553217477],
}


@pytest.mark.parametrize(("p", "expected"), PINNED.items())
def test_the_first_points_never_change(p, expected):
    # A certificate keeps its draws as a seed and indices only; beyond the last digits, which logarithms and powers may
    # give differently on another machine, they must stay what they are.
    point = unit_ball(3, p, Stream(1, "certify"), 5, 6)[0]
    np.testing.assert_allclose(point, expected, rtol=1e-12)


# -- selections --------------------------------------------------------------------------------------------------

SELECTIONS = {
    "all": ({}, list(P.slices)),
    "weights": ({"kinds": ("weight",)}, [WEIGHT0, WEIGHT1, WEIGHT2]),
    "biases as text": ({"kinds": "bias"}, [BIAS0, BIAS1, BIAS2]),
    "layer by index": ({"layers": [1]}, [WEIGHT1, BIAS1]),
    "layer by name": ({"layers": "layer1"}, [WEIGHT1, BIAS1]),
    "last layer": ({"layers": [-1]}, [WEIGHT2, BIAS2]),
    "one bias": ({"kinds": ("bias",), "layers": [-1]}, [BIAS2]),
}


@pytest.mark.parametrize(("options", "parts"), SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_only_what_is_selected_moves(options, parts, p):
    expected = np.zeros(len(P))
    for part in parts:
        expected[part] = 1.0
    shifts = LpShifts(p, **options)
    assert np.array_equal(shifts.radii(P), expected)
    directions = shifts.directions(P, STREAM, 0, 200)
    assert directions.shape == (200, len(P))
    assert (directions[:, expected == 0] == 0).all()
    assert (directions[:, expected > 0] != 0).all()
    moving = int(expected.sum())
    assert np.array_equal(directions[:, expected > 0], unit_ball(moving, float(p), STREAM, 0, 200))


def test_margins_are_those_of_the_model():
    shifts = LpShifts(2)
    directions = shifts.directions(P, STREAM, 0, 20)
    X = np.random.default_rng(0).normal(size=(4, 3))
    assert np.array_equal(shifts.margins(NET, X, 1, directions, 0.2), NET.shifted_margins(X, 1, directions, 0.2))


# -- membership --------------------------------------------------------------------------------------------------


def up(number):
    return np.nextafter(number, np.inf)


INSIDE = {
    "itself": (2, [0.0, 0.0], [0.0, 0.0], 0.0, True),
    "no radius": (2, [0.0, 0.0], [0.0, 5e-324], 0.0, False),
    "3-4-5": (2, [0.0, 0.0], [3.0, -4.0], 5.0, True),
    "3-4-5, a bit more": (2, [0.0, 0.0], [3.0, -up(4.0)], 5.0, False),
    "3-4-5, a bit less radius": (2, [0.0, 0.0], [3.0, 4.0], np.nextafter(5.0, 0), False),
    "3-4-5 tiny": (2, [0.0, 0.0], [3e-200 / 3 * 3, 0.0], 3e-200 / 3 * 3, True),
    "3-4-5 huge": (2, [0.0, 0.0], [3 * 2.0**1000, 4 * 2.0**1000], 5 * 2.0**1000, True),
    "3-4-5 small": (2, [0.0, 0.0], [3 * 2.0**-1060, 4 * 2.0**-1060], 5 * 2.0**-1060, True),
    "3-4-5 small, a bit more": (2, [0.0, 0.0], [up(3 * 2.0**-1060), 4 * 2.0**-1060], 5 * 2.0**-1060, False),
    "the difference rounds down": (2, [1.0, 0.0], [-(2.0**-60), 0.0], 1.0, False),
    "the difference rounds up": (2, [1.0, 0.0], [2.0**-60, 0.0], 1.0, True),
    "sum": (1, [0.0, 0.0, 0.0], [0.25, -0.5, 0.25], 1.0, True),
    "sum, a bit more": (1, [0.0, 0.0, 0.0], [0.25, -0.5, up(0.25)], 1.0, False),
    "ten tenths are more than 1": (1, [0.0] * 10, [0.1] * 10, 1.0, False),
    "ten tenths": (1, [0.0] * 10, [0.1] * 10, up(1.0), True),
    "tenths that cancel nothing": (1, [1.0] * 10, [1.1] * 10, 1.0, False),
    "cubes": (3, [0.0, 0.0, 0.0], [3.0, 4.0, 5.0], 6.0, True),
    "cubes, a bit more": (3, [0.0, 0.0, 0.0], [3.0, 4.0, up(5.0)], 6.0, False),
    "one coordinate, any p": (2.5, [1.0, 1.0], [1.5, 1.0], 0.5, True),
    "one coordinate, any p, a bit more": (2.5, [1.0, 1.0], [up(1.5), 1.0], 0.5, False),
    "p = 1.5 inside": (1.5, [0.0, 0.0], [1.0, 1.0], 2.0 ** (1 / 1.5) * (1 + 1e-12), True),
    "p = 1.5 outside": (1.5, [0.0, 0.0], [1.0, 1.0], 2.0 ** (1 / 1.5) * (1 - 1e-12), False),
    "within every norm": (2.5, [0.0, 0.0], [0.5, 0.5], 1.0, True),
    "roots": (0.5, [0.0, 0.0], [0.25, -0.25], 1 + 1e-12, True),
    "roots, a bit more": (0.5, [0.0, 0.0], [0.25, -0.25], 1 - 1e-12, False),
    "a sum within is not enough": (0.5, [0.0, 0.0], [0.5, 0.5], 1.0, False),
    "a corner": (0.5, [1.0, 1.0], [1.0, 1.5], 0.5, True),
    "a corner, a bit more": (0.5, [1.0, 1.0], [1.0, up(1.5)], 0.5, False),
    "a share that underflows": (0.01, [0.0, 0.0], [0.99999e300, 1e-300], 1e300, False),
    "without it": (0.01, [0.0, 0.0], [0.99999e300, 0.0], 1e300, True),
    "subnormal": (0.9, [0.0, 0.0], [1e-320, 1e-320], 1e-318, True),
    "subnormal, outside": (0.9, [0.0, 0.0], [1e-320, 1e-320], 2.1e-320, False),
    "not a number": (2, [0.0, 0.0], [np.nan, 0.0], 1e300, False),
    "infinite": (1, [0.0, 0.0], [np.inf, 0.0], 1e300, False),
    "overflow of the difference": (2, [1e308, 0.0], [-1e308, 0.0], 1e308, False),
    "overflow of the sum": (1, [0.0] * 3, [1e308] * 3, 1e308, False),
    "negative radius": (2, [0.0, 0.0], [0.0, 0.0], -1.0, False),
}


@pytest.mark.parametrize(("p", "base", "other", "delta", "inside"), INSIDE.values(), ids=INSIDE)
def test_contains(p, base, other, delta, inside):
    parameters = apas.FeedForward([np.array(base[:-1])[:, None]], [[base[-1]]]).parameters
    answer = LpShifts(p).contains(parameters, with_values(parameters, other), delta)
    assert answer is inside


def in_rationals(base, values, p, delta):
    total = sum(abs(Fraction(v) - Fraction(b)) ** p for v, b in zip(values.tolist(), base.tolist(), strict=True))
    return total <= Fraction(delta) ** p


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_contains_agrees_with_rationals_next_to_the_surface(p):
    rng = np.random.default_rng(p)
    answers = []
    for _ in range(300):
        size = int(rng.integers(1, 30))
        base = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4)
        values = base + rng.normal(size=size) * 10.0 ** rng.integers(-12, 3)
        delta = float(lp_norm(values - base, p))
        for step in (-2, -1, 0, 1, 2):
            radius = delta * (1 + step * 2.0**-52)
            answers.append(in_rationals(base, values, p, radius))
            assert within_ball(base, values, float(p), radius) is answers[-1]
    assert 0.2 < np.mean(answers) < 0.8


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.99, 1.25, 2.5, 7.3, 100.0, 1e6])
def test_contains_is_never_wrongly_true(p):
    import mpmath

    rng = np.random.default_rng(1)
    accepted = 0
    with mpmath.workdps(60):
        for _ in range(200):
            size = int(rng.integers(2, 10))
            base = rng.normal(size=size)
            values = base + rng.normal(size=size) * 10.0 ** rng.integers(-12, 1)
            delta = float(lp_norm(values - base, p)) * (1 + rng.choice([-1e-15, 0.0, 1e-15, 1e-12, 1e-8]))
            total = mpmath.fsum(abs(mpmath.mpf(v) - mpmath.mpf(b)) ** p for v, b in zip(values, base, strict=True))
            if within_ball(base, values, p, delta):
                accepted += 1
                assert total <= mpmath.mpf(delta) ** p
    assert accepted > 20


def test_what_does_not_move_must_be_equal():
    shifts = LpShifts(2, kinds=("bias",))
    values = P.values.copy()
    values[BIAS0] += 0.01
    assert shifts.contains(P, with_values(P, values), 0.1)
    values[WEIGHT0.start] = up(values[WEIGHT0.start])
    assert not shifts.contains(P, with_values(P, values), 0.1)


def test_models_of_other_shapes_are_refused():
    with pytest.raises(apas.InputError, match="same shapes"):
        LpShifts(2).contains(P, network((3, 1)).parameters, 0.5)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, EXACT + 1.0])
@pytest.mark.parametrize("scale", [1e-14, 1e-3, 1.0, 1e9])
def test_drawn_and_far_shifts_are_pulled_inside(p, scale):
    shifts = LpShifts(p)
    for factor in (1.0, 1 + 1e-15, 3.0):
        moves = shifts.directions(P, Stream(4, "certify"), 0, 20)
        moves *= (scale * factor / lp_norm(moves, p))[:, None]  # on the surface, just beyond it, and far away
        pulled = shifts.geometry(P).pull_inside(P, P.values + moves, scale)
        assert pulled.shape == moves.shape
        for row, move in zip(pulled, moves, strict=True):
            assert shifts.contains(P, with_values(P, row), scale)
            # not farther from what was asked for than rounding: of the parameters, and of the size of the move
            np.testing.assert_allclose(row - P.values, move / factor, atol=1e-15 * 4, rtol=1e-11)
    assert np.array_equal(shifts.geometry(P).pull_inside(P, pulled[0], scale), pulled[0])


def test_pulling_leaves_fixed_parameters_alone_and_takes_a_radius_per_row():
    shifts = LpShifts(2, layers=[0])
    rows = P.values + np.ones((2, len(P)))
    pulled = shifts.geometry(P).pull_inside(P, rows, np.array([0.1, 100.0]))
    assert np.array_equal(pulled[:, BIAS2], np.broadcast_to(P.values[BIAS2], (2, 1)))
    assert np.isclose(np.linalg.norm(pulled[0] - P.values), 0.1)
    assert np.array_equal(pulled[1, WEIGHT0], rows[1, WEIGHT0])
    assert np.array_equal(shifts.geometry(P).pull_inside(P, rows[0], 0.1), pulled[0])


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [1e308, -1e308]])
def test_even_nonsense_is_pulled_inside(bad):
    base = np.array([1.0, -1e308])
    pulled = inside_ball(base, np.array(bad), 2.0, 0.5)
    assert within_ball(base, pulled, 2.0, 0.5)


# -- nearest and steepest points ---------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_projections_are_the_nearest_points(p):
    rng = np.random.default_rng(3)
    moves = rng.normal(size=(50, 6)) * rng.choice([0.1, 1.0, 5.0], size=(50, 1))
    radius = rng.uniform(0.1, 2.0, size=50)
    nearest = Ball(p, np.ones(moves.shape[1])).project(moves, radius)
    assert (lp_norm(nearest, p) <= radius * (1 + 1e-12)).all()
    inside = lp_norm(moves, p) <= radius
    assert inside.any()
    assert np.array_equal(nearest[inside], moves[inside])
    # a point of a convex set is nearest iff no point of the set lies on the other side: (y - x)(z - x) <= 0
    for z in unit_ball(6, p, STREAM, 0, 300):
        z = z / lp_norm(z, p)
        assert (((moves - nearest) * (radius[:, None] * z - nearest)).sum(axis=1) <= 1e-9).all()


def test_below_1_the_steepest_point_is_a_corner():
    gradients = np.random.default_rng(5).normal(size=(30, 6))
    corner = steepest_point(gradients, 0.5)
    assert np.array_equal(corner, steepest_point(gradients, 1.0))
    least = (gradients * corner).sum(axis=1)
    for z in unit_ball(6, 0.5, STREAM, 0, 300):  # no point of the ball goes farther
        assert (gradients @ z >= least).all()


def test_other_projections_go_towards_the_centre():
    moves = np.array([[3.0, -4.0], [0.1, 0.0]])
    pulled = Ball(3.0, np.ones(moves.shape[1])).project(moves, 1.0)
    np.testing.assert_allclose(pulled[0], moves[0] / 91 ** (1 / 3))
    assert np.array_equal(pulled[1], moves[1])
    assert np.array_equal(Ball(1.0, np.ones(moves.shape[1])).project(moves, 0.0), np.zeros((2, 2)))


@pytest.mark.parametrize("p", [1.0, 1.001, 1.5, 2.0, 3.0, 50.0])
def test_the_steepest_point_attains_the_dual_norm(p):
    rng = np.random.default_rng(5)
    gradients = rng.normal(size=(30, 7)) * 10.0 ** rng.integers(-200, 200, size=(30, 1))
    gradients[:, 3] = 0.0
    points = Ball(p, np.ones(gradients.shape[1])).steepest(gradients)
    q = math.inf if p == 1 else p / (p - 1)
    assert (points[:, 3] == 0).all()
    assert (lp_norm(points, p) <= 1 + 1e-12).all()
    np.testing.assert_allclose((gradients * points).sum(axis=1), -lp_norm(gradients, q), rtol=1e-9)
    assert np.array_equal(steepest_point(np.zeros((2, 3)), p), np.zeros((2, 3)))


# -- certificates ------------------------------------------------------------------------------------------------


def share(p, size, height):
    """Share of the ball with u_0 >= -height."""
    beyond = 0.5 * stats.beta(1 / p, (size - 1) / p + 1).sf(height**p)
    return 1 - beyond


def linear_cases():
    # margin 0.3 + delta x~.u: for p = 2 the projection on any direction is distributed like a coordinate
    yield 2, [[1.0], [1.0]], [0.0], [0.7, -0.4], 0.3, math.sqrt(0.49 + 0.16 + 1)
    # for p = 1 and 3 with x = 0 only the bias counts, which is one of three coordinates
    yield 1, [[1.0], [1.0]], [0.3], [0.0, 0.0], 0.3, 1.0
    yield 3, [[1.0], [1.0]], [0.3], [0.0, 0.0], 0.3, 1.0


@pytest.mark.parametrize("case", list(linear_cases()), ids=["l2", "l1", "l3"])
def test_sampling_certifies_what_geometry_says(case):
    p, weights, bias, x, margin, slope = case
    net = apas.FeedForward([weights], [bias])
    for wanted, verdict in ((0.9995, "CERTIFIED"), (0.98, "REFUTED")):
        # the delta at which exactly this share of the ball is valid
        beyond = stats.beta(1 / p, 2 / p + 1).isf(2 * (1 - wanted)) ** (1 / p)
        delta = margin / (slope * beyond)
        assert share(p, 3, margin / (slope * delta)) == pytest.approx(wanted, abs=1e-12)
        ask = {"target": 1, "shifts": LpShifts(p), "rng": 0}
        assert apas.certify(net, [x], delta, **ask)[0].verdict.name == verdict  # in closed form where there is one
        found = apas.certify(net, [x], delta, method=apas.Sampling(test="anytime"), **ask)[0]
        assert found.verdict.name == verdict
        evidence = found.evidence
        assert stats.binomtest(evidence.failures, evidence.draws, 1 - wanted).pvalue > 1e-4 or verdict == "REFUTED"


def test_a_certificate_names_the_ball():
    found = apas.certify(NET, [[0.0, 1.0, 0.0]], 0.01, target="predicted", shifts=LpShifts(2), rng=0)[0]
    assert "L2 norm" in found.sentence()


# -- words, equality, files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "options", "text"),
    [
        (
            2,
            {},
            rf"^uniform in the ball in which {len(P)} weights and biases together move by at most delta in the L2 norm$",
        ),
        (1, {"kinds": ("weight",)}, r"22 weights together move by at most delta in the L1 norm, 7 fixed$"),
        (1.5, {"layers": [0]}, r"of layer0 together move .* L1.5 norm"),
        (2, {"kinds": "bias", "layers": -1}, r"the one parameter chosen from the biases of layer2 moves by"),
    ],
)
def test_the_measure_says_what_moves(p, options, text):
    measure = LpShifts(p, **options).measure(P)
    assert re.search(text, measure), measure


OPTIONS = [
    (1, {}),
    (2, {}),
    (1.5, {}),
    (2, {"kinds": ("weight",)}),
    (2, {"layers": [0]}),
    (2, {"layers": [0, "layer2"]}),
]


def test_equality_hash_and_files():
    sets = [LpShifts(p, **options) for p, options in OPTIONS]
    for i, one in enumerate(sets):
        content = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert content.pop("kind") == "lp"
        again = LpShifts(**content)
        assert again == one
        assert hash(again) == hash(one)
        assert all(one != other for j, other in enumerate(sets) if j != i)
    assert len(set(sets)) == len(sets)
    assert LpShifts(2) == LpShifts(np.int64(2)) == LpShifts(2.0)
    assert LpShifts(2) != apas.LinfShifts()


def test_repr():
    assert [repr(LpShifts(p)) for p in (1, 2.0, 1.5)] == ["LpShifts(1)", "LpShifts(2)", "LpShifts(1.5)"]
    assert repr(LpShifts(2, kinds="bias", layers=0)) == "LpShifts(2, kinds=('bias',), layers=(0,))"


def test_it_is_a_frozen_shift_set_with_named_options():
    shifts = LpShifts(2)
    assert isinstance(shifts, ShiftSet)
    with pytest.raises(AttributeError):
        shifts.p = 1
    with pytest.raises(TypeError):
        LpShifts(2, ("weight",))


def test_importing_it_is_light():
    code = "import sys, apas.shifts.balls; print([m for m in ('scipy', 'pandas', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- refusals ----------------------------------------------------------------------------------------------------

BAD = {
    "p tiny": (0.0005, {}, "`p` of LpShifts must be at least 0.001, got 0.0005; "),
    "p = 0": (
        0,
        {},
        r"`p` of LpShifts must be at least 0.001, got 0; to bound the number .* use SparseShifts\(count\)",
    ),
    "p negative": (-2, {}, "`p` of LpShifts must be at least 0.001, got -2"),
    "p infinite": (math.inf, {}, r"`p` of LpShifts must be finite.*use LinfShifts\(\)"),
    "p immense": (10**400, {}, r"`p` of LpShifts must be finite"),
    "p not a number": (math.nan, {}, "`p` of LpShifts must be a number of at least 0.001, such as 1 or 2, got nan"),
    "p a text": ("2", {}, "`p` of LpShifts must be a number of at least 0.001, such as 1 or 2, got '2'"),
    "p true": (True, {}, "`p` of LpShifts must be a number of at least 0.001, such as 1 or 2, got True"),
    "p None": (None, {}, "`p` of LpShifts must be a number.*got None"),
    "unknown kind": (2, {"kinds": ("weights",)}, '`kinds` of LpShifts must hold "weight", "bias" or both'),
    "no kind": (2, {"kinds": ()}, "`kinds` of LpShifts must hold"),
    "unknown layer": (2, {"layers": ["output"]}, r"`layers` of LpShifts must name layers of the model .*got 'output'"),
    "layer 3": (2, {"layers": [3]}, r"`layers` of LpShifts.*\(0 to 2\), got 3"),
    "no layers": (
        2,
        {"layers": []},
        r"`shifts` must move at least one parameter, but LpShifts\(2, layers=\(\)\) moves none",
    ),
}


@pytest.mark.parametrize(("p", "options", "message"), BAD.values(), ids=BAD)
def test_bad_input(p, options, message):
    with pytest.raises(apas.InputError, match=message) as caught:
        apas.certify(NET, [[0.0, 0.0, 0.0]], 0.1, target="predicted", shifts=LpShifts(p, **options), rng=0)
    assert "\n" not in str(caught.value)
