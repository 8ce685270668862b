"""Products of intervals against all four products of ends, term by term."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from apas import FeedForward
from apas.worst_case import intervals
from apas.worst_case.intervals import Boxes, MovingLayer


def ends(rng, rows, inputs, *, positive):
    pair = np.sort(rng.normal(size=(2, rows, inputs)) * 3, axis=0)
    pair[1, :, 0] = pair[0, :, 0]  # a point
    if positive:
        pair = np.maximum(pair, 0.0)
    return pair[0], pair[1]


def weights(rng, inputs, outputs):
    middle, still = rng.normal(size=(inputs, outputs)), np.zeros(outputs)
    return MovingLayer(middle, rng.choice([0.0, 0.3, 2.0], size=(inputs, outputs)), still, still)


def terms(moving, low, high):
    """Least and largest of a (middle -+ reach): at the ends, and at 0 where the box holds it."""
    zero = np.clip(0.0, low, high)
    points = np.stack([low, high, zero])[..., None]
    l = points * moving.middle - np.abs(points) * moving.reach  # noqa: E741
    u = points * moving.middle + np.abs(points) * moving.reach
    return l.min(0).sum(1), l.max(0).sum(1), u.min(0).sum(1), u.max(0).sum(1)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_outer_is_the_least_and_largest_of_four_products(seed, positive):
    rng = np.random.default_rng(seed)
    moving = weights(rng, 5, 4)
    low, high = ends(rng, 7, 5, positive=positive)
    four = np.stack([a[:, :, None] * w for a in (low, high) for w in moving.ends])
    least, most = moving.outer(low, high, positive=positive)
    assert least == pytest.approx(four.min(axis=0).sum(axis=1), abs=1e-12)
    assert most == pytest.approx(four.max(axis=0).sum(axis=1), abs=1e-12)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_both_contains_and_where_it_must_equals_the_ranges_of_l_and_u(seed, positive):
    rng = np.random.default_rng(seed)
    moving = weights(rng, 5, 4)
    low, high = ends(rng, 7, 5, positive=positive)
    truth = terms(moving, low, high)
    found = moving.both(low, high, positive=positive)
    for i, outwards in enumerate((-1, 1, -1, 1)):
        assert (outwards * (found[i] - truth[i]) >= -1e-12).all()
    for i in (0, 3):
        assert found[i] == pytest.approx(truth[i], abs=1e-12)
    if positive:
        for i in (1, 2):
            assert found[i] == pytest.approx(truth[i], abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_drawn_products_lie_inside(seed):
    rng = np.random.default_rng(seed)
    moving = weights(rng, 5, 4)
    low, high = ends(rng, 1, 5, positive=False)
    least_l, most_l, least_u, most_u = (v[0] for v in moving.both(low, high))
    for _ in range(300):
        a = rng.uniform(low[0], high[0])
        l, u = a @ moving.middle - np.abs(a) @ moving.reach, a @ moving.middle + np.abs(a) @ moving.reach  # noqa: E741
        w = rng.uniform(*moving.ends)
        assert ((l >= least_l - 1e-12) & (l <= most_l + 1e-12)).all()
        assert ((u >= least_u - 1e-12) & (u <= most_u + 1e-12)).all()
        assert ((a @ w >= l - 1e-12) & (a @ w <= u + 1e-12)).all()


def test_zeros_and_points():
    moving = MovingLayer(np.array([[0.0], [2.0]]), np.array([[0.0], [0.5]]), np.zeros(1), np.zeros(1))
    zero = np.zeros((1, 2))
    assert all(float(v[0, 0]) == 0.0 for v in moving.both(zero, zero))
    point = np.array([[3.0, -1.0]])
    assert [float(v[0, 0]) for v in moving.both(point, point)] == [-2.5, -2.5, -1.5, -1.5]


@pytest.mark.parametrize(("times", "block"), [(1, 1), (1, 40), (1, 1 << 14), (20, 40)])
@pytest.mark.parametrize("seed", range(4))
def test_a_delta_per_row_gives_what_each_row_gets_by_itself(monkeypatch, seed, times, block):
    # term by term in blocks; delta by delta where many rows share each
    monkeypatch.setattr(intervals, "PRODUCTS", block)
    rng = np.random.default_rng(seed)
    sizes = (5, 6, 4, 3) if seed % 2 else (5, 6, 4, 1)
    weights_, biases = zip(*((rng.normal(size=s), rng.normal(size=s[1])) for s in pairwise(sizes)), strict=True)
    net = FeedForward(weights_, biases, output="softmax" if seed % 2 else "sigmoid")
    X, wanted, delta = rng.normal(size=(7, 5)), rng.integers(0, 2, 7), rng.choice([0.0, 0.1, 3.0], size=7)
    radii = rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
    found = Boxes(net, np.tile(X, (times, 1)), np.tile(wanted, times), radii).bound(np.tile(delta, times))
    for i in range(7):
        alone = Boxes(net, X[i : i + 1], wanted[i : i + 1], radii).bound(delta[i : i + 1])
        assert found[i] == pytest.approx(alone[0], abs=1e-12)
