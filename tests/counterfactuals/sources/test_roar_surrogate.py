"""Worst cases against every corner of the ball, fits against scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from apas.counterfactuals.sources.roar import BALLS, Surrogate, fit_logistic


def corners(size: int, ball: str) -> np.ndarray:
    """Corners of the unit ball: a line's score is lowest at one of them."""
    if ball == "linf":
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    return np.concatenate([np.eye(size), -np.eye(size)])


def score(slopes: np.ndarray, intercept: float, point: np.ndarray) -> float:
    return float(sum(s * p for s, p in zip(slopes, point, strict=True)) + intercept)


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(10))
def test_worst_score_is_that_of_the_worst_corner(seed: int, ball: str) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 6))
    line = Surrogate(rng.normal(size=size), float(rng.normal()))
    points = rng.normal(scale=1.5, size=(7, size))
    points[0] *= 0.2  # of the l1 ball the intercept is the worst direction then
    radii = rng.uniform(0.0, 2.0, 7)
    found, slopes = line.worst(points, radii, ball)
    for i, (point, radius) in enumerate(zip(points, radii, strict=True)):
        moves = radius * corners(size + 1, ball)
        lowest = min(score(line.slopes + m[:-1], line.intercept + m[-1], point) for m in moves)
        assert found[i] == pytest.approx(lowest, abs=1e-12)
        inner = rng.dirichlet(np.ones(len(moves)), 50) @ moves
        assert all(score(line.slopes + m[:-1], line.intercept + m[-1], point) >= found[i] - 1e-12 for m in inner)
        for j in range(size):  # piecewise linear, so that a small difference is exact
            step = 1e-6 * np.eye(size)[j]
            pair = line.worst(np.array([point + step, point - step]), np.full(2, radius), ball)[0]
            assert slopes[i, j] == pytest.approx((pair[0] - pair[1]) / 2e-6, abs=1e-6)


def test_no_radius_is_the_line_itself() -> None:
    line = Surrogate(np.array([1.0, -2.0]), 0.5)
    for ball in BALLS:
        scores, slopes = line.worst(np.array([[3.0, 1.0]]), np.zeros(1), ball)
        assert scores.tolist() == [1.5]
        assert slopes.tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize("seed", range(8))
def test_fit_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(400, int(rng.integers(1, 9))))
    hit = points @ rng.normal(size=points.shape[1]) + rng.normal(scale=rng.choice([0.0, 0.5]), size=400) > rng.normal()
    hit[:2] = True, False
    weights = rng.exponential(size=400) * rng.choice([1.0, 1e-3])
    expected = LogisticRegression(tol=1e-10, max_iter=5000).fit(points, hit, sample_weight=weights)
    found = fit_logistic(points, hit, weights)
    assert found is not None
    assert found.slopes == pytest.approx(expected.coef_[0], abs=1e-5)
    assert found.intercept == pytest.approx(expected.intercept_[0], abs=1e-5)


def test_one_class_has_no_line() -> None:
    points = np.arange(4.0)[:, None]
    assert fit_logistic(points, np.ones(4, dtype=bool), np.ones(4)) is None
    assert fit_logistic(points, np.zeros(4, dtype=bool), np.ones(4)) is None


def test_weights_that_vanish_leave_finite_numbers() -> None:
    points = np.array([[0.0], [50.0], [60.0]])
    found = fit_logistic(points, np.array([False, True, True]), np.array([1.0, 0.0, 1e-300]))
    assert found is not None
    assert np.isfinite([*found.slopes, found.intercept]).all()


def test_units_change_the_numbers_not_the_scores() -> None:
    rng = np.random.default_rng(0)
    line, origin, units = Surrogate(rng.normal(size=3), 0.3), rng.normal(size=3), rng.uniform(0.1, 3, 3)
    points = rng.normal(size=(5, 3))
    moved = line.in_units(origin, units)
    scaled = (points - origin) / units
    assert points @ moved.slopes + moved.intercept == pytest.approx(scaled @ line.slopes + line.intercept)


def test_four_decimals_are_kept() -> None:
    line = Surrogate(np.array([0.123456]), -1.00004).round_off()
    assert line.slopes.tolist() == [0.1235]
    assert line.intercept == -1.0
