"""Bounds over every refit on changed data: against brute force, real refits, rational arithmetic and 50 digits."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from conftest import shared_folder
from data_change import TrainingTable, library_solver, library_tolerance, refits_against_bounds

from apas.shifts.data_change import AddedRows
from apas.shifts.fit_problem import FitProblem, least_eigenvalue
from apas.worst_case.data_change import RefitScores, breaking_change, least_breaking, secant

KINDS = ("removed", "relabelled", "added", "replaced")


def made_problem(n=40, d=2, seed=0, *, logistic=True, unequal=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(float)
    weights = rng.uniform(0.5, 1.5, n) * np.where(y == 1, 3.0 if unequal else 1.0, 1.0)
    turned = weights * (np.where(y == 1, 1 / 3, 3.0) if unequal else 1.0)
    labels = y if logistic else 2 * y - 1
    return FitProblem(np.column_stack([X, np.ones(n)]), labels, weights, turned, logistic)


def made_scores(kind, **options):
    problem = made_problem(**options)
    X = problem.Z[:, :-1]
    return RefitScores(problem, kind, 1e-6, AddedRows(X.min(axis=0), X.max(axis=0), (), 1.5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("logistic", "unequal"), [(True, False), (True, True), (False, False), (False, True)])
def test_every_small_change_is_above_the_bound(kind, logistic, unequal):
    scores = made_scores(kind, n=120, logistic=logistic, unequal=unequal)
    rng = np.random.default_rng(1)
    rows = [np.array([x, 0.3, 1.0]) for x in (-1.0, 0.2, 1.5)]
    most = max((ball.changes for ball in scores.balls), default=0)
    assert most >= 1, "nothing would be tested"
    for changes in range(1, min(most, 3) + 1):
        ball = next(ball for ball in scores.balls if ball.changes >= changes)
        bounds = [[float(scores.curve(s * u, ball)[changes]) for u in rows] for s in (1, -1)]
        chosen = list(itertools.combinations(range(120), changes))
        for number in rng.permutation(len(chosen))[:25]:
            rows_changed = np.array(chosen[number])
            problem = scores.problem
            if kind == "relabelled":
                problem = problem.relabelled(rows_changed)
            elif kind != "added":
                problem = problem.without(rows_changed)
            if kind in ("added", "replaced"):
                corner = np.append(np.where(rng.random(2) < 0.5, scores.added.low, scores.added.high), 1.0)
                label = float(rng.choice([0.0, 1.0] if logistic else [-1.0, 1.0]))
                problem = problem.with_copies(corner, label, 1.5, changes)
            theta = problem.minimiser(start=scores.theta)
            assert np.linalg.norm(np.linalg.solve(scores.W.T, theta - scores.theta)) < ball.radius
            for sign, bound in zip((1, -1), bounds, strict=True):
                assert all(sign * (u @ theta) >= b for u, b in zip(rows, bound, strict=True))


def test_unequal_class_weights_make_a_difference():
    """With weights 1 and 10 the formula for equal ones is false: some true refit lies below it."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 0.8).astype(float)
    Z, by_class = np.column_stack([X, np.ones(300)]), np.array([1.0, 10.0])
    weights, turned = by_class[y.astype(int)], by_class[1 - y.astype(int)]
    added, u = AddedRows(X.min(axis=0), X.max(axis=0), (), 1.0), np.array([2.0, 0.0, -1.0])
    right, wrong = (
        RefitScores(FitProblem(Z, y, weights, t, True), "relabelled", 1e-6, added) for t in (turned, weights)
    )
    least = min(float(u @ right.problem.relabelled(np.array([i])).minimiser(right.theta)) for i in range(300))
    assert right.curve(u, right.balls[0])[1] <= least < wrong.curve(u, wrong.balls[0])[1]


@pytest.mark.parametrize("logistic", [True, False])
def test_attack_and_bound_agree(logistic):
    for kind in KINDS:
        scores = made_scores(kind, n=150, logistic=logistic)
        u = np.array([0.35, 0.1, 1.0])
        proved, _, _ = scores.largest(u, 0.0)
        broken = least_breaking(scores, u, 0.0, 0, 150)
        assert broken is None or broken[0] > proved
        assert breaking_change(scores, u, 0.0, max(1, proved)) is None or not proved
        if broken is not None:
            count, change = broken
            assert change.breaks(scores, u, 0.0, count)
            assert not change.breaks(scores, -u, 0.0, count)
            again = change.applied(scores, count).minimiser()
            assert float(u @ again) < 0


def test_a_wider_tolerance_proves_no_more():
    problem = made_problem(n=200)
    X, u = problem.Z[:, :-1], np.array([0.8, 0.0, 1.0])
    added = AddedRows(X.min(axis=0), X.max(axis=0), (), 1.0)
    found = [RefitScores(problem, "removed", t, added).largest(u, 0.0)[0] for t in (1e-6, 0.1, 0.5)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_cuts_lie_above_the_bound():
    rng = np.random.default_rng(5)
    for kind in KINDS:
        scores = made_scores(kind, n=300, seed=2)
        ball = scores.balls[0]
        for _ in range(5):
            u = np.append(rng.normal(size=2), 1.0)
            cut = scores.cut(u, 1, ball)
            assert cut @ u == pytest.approx(float(scores.curve(u, ball)[1]), abs=0.005 * (1 + abs(cut @ u)))
            for _ in range(20):
                x = np.append(rng.normal(size=2), 1.0)
                assert cut @ x >= float(scores.curve(x, ball)[1]) - 1e-3


def positive_definite(matrix):
    """Whether a matrix of fractions is positive definite, exactly."""
    matrix = [list(row) for row in matrix]
    for i in range(len(matrix)):
        if matrix[i][i] <= 0:
            return False
        for j in range(i + 1, len(matrix)):
            factor = matrix[j][i] / matrix[i][i]
            matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
    return True


@pytest.mark.parametrize("seed", range(6))
def test_eigenvalues_are_bounded_in_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(5, 3 if seed % 2 else 5)) * 10.0 ** rng.integers(-3, 3)
    matrix = factor @ factor.T
    matrix = 0.5 * (matrix + matrix.T)
    low = least_eigenvalue(matrix, 0.0)
    assert abs(low - np.linalg.eigvalsh(matrix)[0]) <= 1e-11 * np.trace(matrix)
    exact = [[Fraction(v) for v in row] for row in matrix.tolist()]
    shifted = [[v - (Fraction(low) if i == j else 0) for j, v in enumerate(row)] for i, row in enumerate(exact)]
    assert positive_definite(shifted)
    assert least_eigenvalue(np.full((2, 2), np.nan), 0.0) == -np.inf


def logistic_function(m):
    return 1 / (1 + (-m).exp())


def test_secants_in_fifty_digits():
    rng = np.random.default_rng(0)
    with localcontext() as context:
        context.prec = 60
        for _ in range(300):
            m, t = rng.normal() * 10 ** rng.uniform(-2, 1.5), 10 ** rng.uniform(-9, 1.5)
            a, b = Decimal(float(m)), Decimal(float(t))
            exact = (logistic_function(a + b) - logistic_function(a)) / b
            got = Decimal(float(secant(np.array([m]), np.array([t]))[0]))
            assert abs(got / exact - 1) < Decimal(2) ** -44 + 32 * Decimal(2) ** -53 * (abs(a) + b)


@pytest.mark.parametrize("kind", ["removed", "relabelled"])
def test_effects_bound_what_moves_within_a_radius(kind):
    for logistic in (True, False):
        scores = made_scores(kind, logistic=logistic, unequal=True)
        for radius in (0.01, 0.3, 3.0):
            effects, problem, flat = scores.effects(radius), scores.problem, scores._flattest(radius)
            for part in np.linspace(-1, 1, 41):
                m = scores.m + part * radius * scores.norms
                p = 1 / (1 + np.exp(-m)) if logistic else m
                change = -problem.weights * (p - problem.y)
                if kind == "relabelled":
                    change = problem.turned * (p - problem.other) + change
                assert (change <= effects.up).all()
                assert (-change <= effects.down).all()
                if logistic:
                    bend = problem.weights * p * (1 - p) * (1 - 2 * p)
                    assert (bend <= effects.convex).all()
                    assert (-bend <= effects.concave).all()
                    if part:
                        base = 1 / (1 + np.exp(-scores.m))
                        slope = problem.weights * (p - base) / (part * radius * scores.norms)
                        assert (slope >= flat * (1 - 1e-9) - 1e-13).all()


@pytest.mark.parametrize("kind", ["removed", "relabelled"])
def test_the_ball_holds_in_sixty_digits(kind):
    """Lemma 1 itself, for many directions, with whitened rows and losses in 60 digits."""
    scores = made_scores(kind, n=30, seed=4)
    problem, rng = scores.problem, np.random.default_rng(0)
    assert scores.balls
    with localcontext() as context:
        context.prec = 60
        decimals = lambda values: [Decimal(float(v)) for v in values]  # noqa: E731
        theta, Z = decimals(scores.theta), [decimals(z) for z in problem.Z]
        W = [decimals(row) for row in scores.W]
        white = [[sum(w * v for w, v in zip(row, z, strict=True)) for row in W] for z in Z]
        m = [sum(a * b for a, b in zip(z, theta, strict=True)) for z in Z]
        weights = decimals(problem.weights)
        for ball in scores.balls:
            r = Decimal(ball.radius)
            for _ in range(30):
                d = decimals(rng.normal(size=3))
                size = sum(v * v for v in d).sqrt()
                d = [v / size for v in d]
                d_i = [sum(a * b for a, b in zip(z, d, strict=True)) for z in white]
                back = [sum(W[i][j] * d[i] for i in range(3)) for j in range(3)]  # the direction in parameters
                grown = r * (back[0] ** 2 + back[1] ** 2)
                grown += sum(theta[j] * back[j] for j in range(2))
                residual = [logistic_function(a + r * b) for a, b in zip(m, d_i, strict=True)]
                terms = [c * (q - int(y)) * b for c, q, y, b in zip(weights, residual, problem.y, d_i, strict=True)]
                if kind == "removed":
                    losses = sorted(terms, reverse=True)[: ball.changes]
                else:
                    turned = [
                        c * (q - int(1 - y)) * b for c, q, y, b in zip(weights, residual, problem.y, d_i, strict=True)
                    ]
                    losses = sorted((a - b for a, b in zip(terms, turned, strict=True)), reverse=True)[: ball.changes]
                assert grown + sum(terms) - sum(loss for loss in losses if loss > 0) > Decimal("1e-6")


def against_bounds(name, rows, refits, losses=(True, False)):
    shared_folder("datasets")
    table = TrainingTable.read(name, rows)
    for kind in KINDS:
        for logistic in losses:
            scores = table.scores(kind, logistic=logistic)
            explanations = list(table.explanations(scores.theta, 0.5, 12))
            found = refits_against_bounds(scores, explanations, refits, np.random.default_rng(0))
            assert found.violations == found.outside == 0, (kind, logistic)
            assert found.refits == refits or not scores.balls


def test_few_real_refits():
    against_bounds("no2", 300, 15, losses=(True,))


@pytest.mark.validity
@pytest.mark.parametrize("name", ["no2", "diabetes", "compas", "heloc"])
def test_many_real_refits(name):
    against_bounds(name, None, {"no2": 700, "diabetes": 400, "compas": 120, "heloc": 60}[name])


def default_refits(names, refits):
    shared_folder("datasets")
    for name in names:
        table = TrainingTable.read(name)
        scores = table.scores("removed", library_tolerance(table.problem))
        rows = list(table.explanations(scores.theta, 1.0, 10))
        found = refits_against_bounds(scores, rows, refits, np.random.default_rng(0), library_solver)
        assert found.refits == refits
        assert found.violations == found.outside == 0


def test_few_refits_at_the_library_defaults():
    default_refits(["no2"], 10)


@pytest.mark.validity
def test_many_refits_at_the_library_defaults():
    default_refits(["no2", "diabetes", "compas"], 150)
