"""The smooth problem behind a search: its coordinates, its limits, its derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from opaque_models import BlackBox
from random_spaces import random_network, random_rows, random_space

from apas import Feature, FeatureSpace, FeedForward
from apas.counterfactuals.search.smooth_problem import PiecewiseLinear, SmoothProblem, on_simplex
from apas.counterfactuals.sources.base import Search, Task


def question(seed: int) -> tuple[SmoothProblem, np.random.Generator]:
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 7)))
    net = random_network(rng, space.coding.n_columns, activation="tanh")
    task = Task(space.bind(net), space, background=random_rows(rng, space, 30, allowed=True))
    return SmoothProblem(Search(task, 0, random_rows(rng, space, 1)[0], 1)), rng


def wandered(relaxed: SmoothProblem, rng: np.random.Generator, rows: int = 40) -> np.ndarray:
    return relaxed.inside(relaxed.start + rng.normal(size=(rows, len(relaxed.start))))


@pytest.mark.parametrize("seed", range(30))
def test_rounded_points_are_allowed_rows_and_the_model_sees_them_as_such(seed: int) -> None:
    relaxed, rng = question(seed)
    search = relaxed.search
    points = relaxed.round_points(wandered(relaxed, rng))
    numbers = relaxed.numbers(points)
    assert search.task.space.allowed(numbers, np.tile(search.input, (len(numbers), 1))).all()
    np.testing.assert_allclose(relaxed.margins(points), search.task.margins(numbers, 1), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(relaxed.numbers(relaxed.start[None])[0], search.input)
    assert relaxed.costs(relaxed.start[None])[0] == 0


@pytest.mark.parametrize("seed", range(30))
def test_derivatives_are_those_of_the_margin(seed: int) -> None:
    relaxed, rng = question(seed)
    points = wandered(relaxed, rng, 5)
    margins, slopes = relaxed.gradients(points)
    np.testing.assert_array_equal(margins, relaxed.margins(points))
    width = 1e-6
    for j in np.flatnonzero(relaxed.low < relaxed.high):
        step = np.zeros(len(relaxed.start))
        step[j] = width
        quotient = (relaxed.margins(points + step) - relaxed.margins(points - step)) / (2 * width)
        np.testing.assert_allclose(slopes[:, j], quotient, rtol=1e-4, atol=1e-5)


def test_finite_differences_where_the_model_has_no_derivatives() -> None:
    rng = np.random.default_rng(3)
    home = Feature("home", "categorical", values=("own", "rent", "free"))
    space = FeatureSpace([*(Feature(n, low=0, high=1) for n in "abc"), Feature("age", mutable=False), home])
    net = random_network(rng, 7, activation="tanh")
    known, hidden = (
        SmoothProblem(Search(Task(model, space), 0, np.array([0.2, 0.5, 1.0, 0.3, 1.0]), 1))
        for model in (space.bind(net), BlackBox(space.bind(net)))
    )
    assert hidden.differences
    assert not known.differences
    points = wandered(known, rng, 5)
    moving = known.low < known.high
    slopes = known.gradients(points)[1][:, moving]
    np.testing.assert_allclose(hidden.gradients(points)[1][:, moving], slopes, rtol=0.02, atol=0.02)


def test_limits_hold_what_may_not_change() -> None:
    space = FeatureSpace(
        [
            Feature("age", low=0, high=100, mutable=False),
            Feature("income", low=0, high=10, direction="increase"),
            Feature("debt", low=0, high=5),
            Feature("home", "categorical", values=("own", "rent"), mutable=False),
        ]
    )
    net = FeedForward([[[1.0], [1.0], [-1.0], [0.5], [0.0]]], [[-30.0]])
    task = Task(space.bind(net), space)
    relaxed = SmoothProblem(Search(task, 0, np.array([20.0, 3.0, 7.0, 1.0]), 1))
    assert relaxed.low.tolist() == pytest.approx([0.2, 0.3, 0.0, 0.0, 1.0])
    assert relaxed.high.tolist() == pytest.approx([0.2, 1.0, 1.4, 0.0, 1.0])
    # the debt is outside its range: it may stay there or go inside, not in between
    assert relaxed.numbers(np.array([[0.2, 0.5, 1.3, 0.0, 1.0], [0.2, 0.5, 1.05, 0.0, 1.0]]))[:, 2].tolist() == [7, 5]


def test_another_counterfactual_leaves_the_least_important_feature_alone() -> None:
    space = FeatureSpace([Feature(name, low=0, high=1) for name in "abc"])
    task = Task(space.bind(FeedForward([[[3.0], [1.0], [2.0]]], [[-4.0]])), space)
    avoid = (frozenset({0, 1, 2}), frozenset({0, 2}))
    relaxed = SmoothProblem(Search(task, 0, np.zeros(3), 1, avoid))
    assert (relaxed.low == relaxed.high).tolist() == [False, False, True]


def test_far_from_the_boundary_slopes_do_not_vanish() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1)])
    task = Task(space.bind(FeedForward([[[2000.0]]], [[-1000.0]])), space)
    near, far = (SmoothProblem(Search(task, 0, np.array([x]), 1)) for x in (0.499, 0.0))
    assert near.slopes(np.array([0.0]))[0] == 0.25
    assert far.slopes(np.array([-1000.0]))[0] > 1e-11
    assert far.slopes(np.array([-1000.0]))[0] < far.slopes(np.array([-500.0]))[0] < far.slopes(np.array([0.0]))[0]


def test_nearest_weights() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 4))
    found = on_simplex(points)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    others = rng.dirichlet(np.ones(4), size=5000)
    for point, near in zip(points, found, strict=True):
        assert np.square(near - point).sum() <= np.square(others - point).sum(axis=1).min() + 1e-12


def test_polygons_of_different_lengths() -> None:
    rng = np.random.default_rng(1)
    knots = [np.sort(rng.normal(size=k)) for k in (2, 5, 9)]
    values = [rng.normal(size=(len(k), 3)) for k in knots]
    bent = PiecewiseLinear([4, 0, 2], knots, values)
    points = rng.uniform(-0.3, 0.3, size=(20, 5))
    wanted = np.zeros((20, 3))
    for place, k, v in zip([4, 0, 2], knots, values, strict=True):
        at = points[:, place]
        piece = np.array([min(max(int((k <= a).sum()) - 1, 0), len(k) - 2) for a in at])
        part = (at - k[piece]) / (k[piece + 1] - k[piece])
        wanted += (1 - part)[:, None] * v[piece] + part[:, None] * v[piece + 1]
    np.testing.assert_allclose(bent.sums(points), wanted)
    ends = np.zeros((1, 5))
    ends[0, [4, 0, 2]] = [k[-1] for k in knots]
    np.testing.assert_allclose(bent.sums(ends)[0], sum(v[-1] for v in values))
    last = [(v[-1] - v[-2]) / (k[-1] - k[-2]) for k, v in zip(knots, values, strict=True)]
    np.testing.assert_allclose(bent.slopes(ends)[0], last)
