"""Bounds of margins and of their slopes over boxes: they contain every point, every difference, and are exact where they can be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from problems import network

from apas import FeedForward
from apas.models.forward import ACTIVATIONS, activate, activation_range, steepest
from apas.worst_case.enumeration import box_bounds as sensitivity
from apas.worst_case.enumeration.box_bounds import BoxPass, margin_ranges, margin_slopes
from apas.worst_case.intervals import Boxes, derivative_range

SHAPES = [((4, 1), "sigmoid"), ((4, 5, 1), "sigmoid"), ((4, 5, 3), "softmax"), ((4, 6, 5, 1), "identity"), ((3, 4, 4, 4, 3), "softmax"), ((3, 4, 2), "softmax")]  # fmt: skip


def boxes(net, rng, items, size=0.3):
    """Random rows, wanted classes and boxes, some of them flat along some parameters."""
    k = len(net.parameters)
    X = rng.normal(size=(items, net.n_features)) * rng.choice([1.0, 5.0], size=(items, 1))
    wanted = rng.integers(0, len(net.classes), size=items)
    middle = net.parameters.values + size * rng.normal(size=(items, k))
    reach = size * rng.uniform(size=(items, k)) * rng.choice([0.0, 1.0, 1.0], size=(items, k))
    return X, wanted, middle - reach, middle + reach


def margins_at(net, x, wanted, parameters):
    return net.shifted_margins(x[None, :], net.classes[wanted], parameters - net.parameters.values, 1.0)[:, 0]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_bounds_contain_points_and_corners(sizes, output, activation):
    rng = np.random.default_rng(7)
    net = network(sizes, output, activation, 2)
    X, wanted, low, high = boxes(net, rng, 5)
    least, most, error = margin_ranges(net, X, wanted, low, high)
    scale = 1.0 + np.abs(least) + np.abs(most)
    assert (error < 1e-9 * scale).all()
    for i in range(5):
        inside = rng.uniform(low[i], high[i], size=(10_000, low.shape[1]))
        corners = np.where(rng.integers(0, 2, size=(10_000, low.shape[1])) == 1, low[i], high[i])
        margins = margins_at(net, X[i], wanted[i], np.vstack([inside, corners]))
        # what is evaluated here rounds as well
        assert margins.min() >= least[i] - 2 * error[i]
        assert margins.max() <= most[i] + 2 * error[i]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_slopes_bound_finite_differences(sizes, output, activation):
    rng = np.random.default_rng(3)
    net = network(sizes, output, activation, 4)
    X, wanted, low, high = boxes(net, rng, 4)
    least, most, slopes, error = margin_slopes(net, X, wanted, low, high)
    plain = margin_ranges(net, X, wanted, low, high)
    assert all(np.array_equal(a, b) for a, b in zip((least, most, error), plain, strict=True))
    assert (slopes >= 0).all()
    for i in range(4):
        for j in np.flatnonzero(high[i] > low[i]):
            start = rng.uniform(low[i], high[i], size=(50, low.shape[1]))
            end = start.copy()
            end[:, j] = rng.uniform(low[i, j], high[i, j], size=50)  # moves of every size inside the box
            change = margins_at(net, X[i], wanted[i], end) - margins_at(net, X[i], wanted[i], start)
            assert (np.abs(change) <= slopes[i, j] * np.abs(end - start)[:, j] + 1e-10).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_slopes_of_a_point_are_the_gradient(activation):
    """On a box without extent nothing is lost: the slopes are the magnitudes of the derivatives."""
    net = network((3, 4, 3, 2), "softmax", activation, 1)
    rng = np.random.default_rng(0)
    X, wanted = rng.normal(size=(6, 3)), rng.integers(0, 2, size=6)
    here = np.repeat(net.parameters.values[None, :], 6, axis=0)
    least, most, slopes, _ = margin_slopes(net, X, wanted, here, here)
    gradient = net.parameter_gradient(X, [net.classes[w] for w in wanted])[1]
    assert slopes == pytest.approx(np.abs(gradient), abs=1e-9)
    assert least == pytest.approx(most, abs=1e-9)


@pytest.mark.parametrize(("sizes", "output"), [s for s in SHAPES if len(s[0]) <= 3], ids=str)
def test_exact_with_at_most_one_hidden_layer(sizes, output):
    """The same least margin as `least_margins`, which is exact there and shares no code."""
    rng = np.random.default_rng(5)
    net = network(sizes, output, "relu", 0)
    X, wanted = rng.normal(size=(7, sizes[0])), rng.integers(0, len(net.classes), size=7)
    radii, delta = rng.choice([0.0, 0.5, 1.0], size=len(net.parameters)), rng.uniform(0.1, 0.5, size=7)
    known, _ = Boxes(net, X, wanted, radii).least(delta)
    reach = delta[:, None] * radii
    least, _, _ = margin_ranges(net, X, wanted, net.parameters.values - reach, net.parameters.values + reach)
    assert least == pytest.approx(known, rel=1e-9, abs=1e-9)


def test_rounding_is_allowed_for():
    """Sums that cancel: in exact arithmetic the range is wider than computed, but not beyond the error."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(400, 1)) * 10.0 ** rng.integers(-3, 9, size=(400, 1))
    x = rng.normal(size=400)
    net = FeedForward([w], [[0.1]], output="identity", threshold=0.0)
    low, high = (np.concatenate([w[:, 0] + s * 1e-6, [0.1]])[None, :] for s in (-1, 1))
    least, most, error = margin_ranges(net, x[None, :], np.array([1]), low, high)
    pairs = [[Fraction(a) * Fraction(v) for v in (p, q)] for a, p, q in zip(x, low[0], high[0], strict=False)]
    exact_least = sum(min(pair) for pair in pairs) + Fraction(low[0, -1])
    exact_most = sum(max(pair) for pair in pairs) + Fraction(high[0, -1])
    assert Fraction(least[0]) != exact_least  # else this test could not fail
    assert Fraction(least[0]) - Fraction(error[0]) <= exact_least
    assert Fraction(most[0]) + Fraction(error[0]) >= exact_most


def test_a_unit_within_rounding_of_its_kink_is_not_taken_for_dead():
    """What enters the unit is below 0 as computed, but above 0 for the float64 numbers themselves."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        w, x = rng.normal(size=(60, 1)), rng.normal(size=60)
        b = -np.nextafter((x[None, :] @ w)[0, 0], np.inf)
        exact = sum(Fraction(a) * Fraction(v) for a, v in zip(x, w[:, 0], strict=True)) + Fraction(b)
        straight = FeedForward([w, [[1.0]]], [[b], [0.0]], activation="identity")
        here = straight.parameters.values[None, :]
        if exact > 0 > BoxPass.through(straight, x[None, :], here, here).values[1][1][0, 0]:
            break
    else:
        pytest.fail("no such unit was found")
    net = FeedForward([w, [[1.0]]], [[b], [0.0]])
    here = net.parameters.values[None, :]
    slopes = margin_slopes(net, x[None, :], np.array([1]), here, here)[2]
    assert slopes[0, :61] == pytest.approx(np.append(np.abs(x), 1.0))


def test_a_rival_that_never_wins_has_no_slope():
    net = FeedForward([[[0.0, 0.0, 0.0]]], [[2.0, 3.0, -6.0]], output="softmax")
    low, high = net.parameters.values[None, :] - 0.5, net.parameters.values[None, :] + 0.5
    slopes = margin_slopes(net, np.array([[1.0]]), np.array([1]), low, high)[2]
    assert slopes[0] == pytest.approx([1.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    # below a ceiling of -1 nothing happens at all: the margin is at least -1 against every rival
    nothing = margin_slopes(net, np.array([[1.0]]), np.array([1]), low, high, ceiling=-1.5)[2]
    assert not nothing.any()
    wide = margin_slopes(net, np.array([[1.0]]), np.array([1]), low - 9.0, high + 9.0)[2]
    assert wide[0] == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])


def test_blocks_do_not_change_the_answer(monkeypatch):
    net = network((4, 6, 5, 3), "softmax", "elu", 0)
    X, wanted, low, high = boxes(net, np.random.default_rng(0), 40)
    whole = margin_slopes(net, X, wanted, low, high)
    monkeypatch.setattr(sensitivity, "NUMBERS", 100)
    parts = margin_slopes(net, X, wanted, low, high)
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_numbers_that_are_too_large_bound_nothing():
    net = FeedForward([[[1e200]], [[1e200]]], [[0.0], [0.0]])
    here = net.parameters.values[None, :]
    with np.errstate(all="ignore"):
        least, most, _, error = margin_slopes(net, np.array([[1.0]]), np.array([1]), here, here)
        assert not (least - error > 0).any()
        assert not (most + error < 0).any()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ranges_of_activations_and_derivatives(name):
    rng = np.random.default_rng(0)
    ends = np.sort(rng.normal(size=(2000, 2)) * rng.choice([0.1, 1.0, 4.0], size=(2000, 1)), axis=1)
    ends[:20] = np.sort(rng.choice([-1.0, 0.0, 1.0], size=(20, 2)), axis=1)  # kinks at the ends
    low, high = ends.T
    least, most = activation_range(name, low, high)
    flattest, sharpest = derivative_range(name, low, high)
    assert (flattest <= sharpest).all()
    assert (np.abs(sharpest) <= steepest(name)).all()
    steps = np.linspace(0.0, 1.0, 41)[:, None]
    points = low + steps * (high - low)
    values = activate(name, points.copy())
    assert (values >= least - 1e-12).all()
    assert (values <= most + 1e-12).all()
    apart = high - low > 1e-3
    slopes = np.diff(values[:, apart], axis=0) / np.diff(points[:, apart], axis=0)
    assert (slopes >= flattest[apart] - 1e-7).all()
    assert (slopes <= sharpest[apart] + 1e-7).all()
    # and no more than that: the ends of the range are reached, up to the width of a step
    assert (values.min(axis=0) <= least + 0.02 * (high - low) ** 2 + 1e-12).all()
    smooth = name not in ("relu", "leaky_relu", "hard_tanh")
    tolerance = 0.1 * (high - low)[apart] + 1e-6 if smooth else 1.0
    assert (slopes.max(axis=0) >= sharpest[apart] - tolerance).all()
