from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from problems import network

from apas import FeedForward, LinfShifts
from apas._random import Stream, unit_cube
from apas.models.forward import ACTIVATIONS
from apas.shifts.base import Box
from apas.shifts.geometry import inside_box
from apas.worst_case.attack import ParameterMoves, UnitPushes, search
from apas.worst_case.intervals import Boxes

SIZES = [(4, 1), (4, 3), (4, 6, 1), (4, 6, 2), (4, 6, 5, 1), (3, 6, 5, 3), (4, 5, 6, 5, 2)]


def output(sizes):
    return "sigmoid" if sizes[-1] == 1 else "softmax"


def landscape(sizes, activation, *, rows=5, uneven=False, seed=0):
    net = network(sizes, output(sizes), activation, seed)
    rng = np.random.default_rng(seed + 1)
    k = len(net.parameters)
    radii = rng.uniform(0, 1, k) * (rng.random(k) < 0.8) if uneven else np.ones(k)
    wanted = rng.integers(max(2, sizes[-1]), size=rows)
    return UnitPushes(net, rng.normal(size=(rows, sizes[0])), wanted, radii, rng.uniform(0, 0.3, rows))


def draws(size, seed=0):
    return lambda a, b: unit_cube(size, Stream(seed, "test"), a, b)


class TestUnitPushes:
    @pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    @pytest.mark.parametrize("uneven", [False, True])
    def test_margins_are_those_of_the_shifted_network(self, activation, sizes, uneven):
        units = landscape(sizes, activation, uneven=uneven)
        points = np.random.default_rng(2).uniform(-1, 1, (5, 2, units.size))
        margins = units.margins(points)
        assert margins.shape == (5, 2)
        for i, row in enumerate(points):
            for point, margin in zip(row, margins[i], strict=True):
                direction = units.direction(i, point)
                values = inside_box(units.net.parameters.values, units.radii, units.delta[i], direction)
                shifted = units.net.with_parameters(values).margin(units.X[i : i + 1], int(units.wanted[i]))
                assert shifted[0] == pytest.approx(margin, rel=1e-9, abs=1e-9)

    @pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
    @pytest.mark.parametrize("sizes", [s for s in SIZES if len(s) > 3], ids=str)
    def test_gradients_against_differences(self, activation, sizes):
        units = landscape(sizes, activation, uneven=sizes[-1] == 3)
        points = np.random.default_rng(3).uniform(-1, 1, (5, 2, units.size))
        margins, gradients = units.gradients(points)
        np.testing.assert_allclose(margins, units.margins(points), rtol=1e-12, atol=1e-12)
        for j, step in enumerate(1e-6 * np.eye(units.size)):
            slopes = (units.margins(points + step) - units.margins(points - step)) / 2e-6
            np.testing.assert_allclose(gradients[..., j], slopes, rtol=1e-5, atol=1e-6)

    def test_the_last_hidden_layer_is_pushed_worst(self):
        # no push of any unit, and no shift of the outputs, is worse than those that were chosen
        units = landscape((3, 4, 3, 3), "leaky_relu")
        net, rng = units.net, np.random.default_rng(4)
        point = rng.uniform(-1, 1, units.size)
        least = units.margins(np.broadcast_to(point, (5, 1, units.size)))[:, 0]
        chosen = [units.direction(i, point) for i in range(5)]
        first = len(net.parameters) - sum(t.size for t in (*net.weights[1:], *net.biases[1:]))
        for i, direction in enumerate(chosen):
            others = np.tile(direction, (400, 1))
            others[:, first:] = rng.choice([-1.0, 1.0], others[:, first:].shape)
            shifted = net.shifted_margins(units.X[i : i + 1], int(units.wanted[i]), others, float(units.delta[i]))
            assert (shifted >= least[i] - 1e-12).all()

    @pytest.mark.parametrize("sizes", [(4, 1), (4, 3), (4, 6, 1), (4, 6, 3)], ids=str)
    @pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
    def test_closed_form_equals_interval_arithmetic(self, sizes, activation):
        units = landscape(sizes, activation, uneven=True)
        assert units.size == 0
        bounds, _ = Boxes(units.net, units.X, units.wanted, units.radii).least(units.delta)
        np.testing.assert_allclose(units.margins(np.zeros((5, 1, 0)))[:, 0], bounds, rtol=1e-9, atol=1e-12)
        corners = Boxes(units.net, units.X, units.wanted, units.radii).worst(units.delta)
        if corners is None:
            assert activation == "gelu"
            return
        for i, corner in enumerate(corners):  # two ways to the same least margin
            found = units.direction(i, np.empty(0)) * units.radii
            ends = units.net.shifted_margins(
                units.X[i : i + 1], int(units.wanted[i]), np.stack([found, corner]), float(units.delta[i])
            )
            assert ends[0] == pytest.approx(ends[1], rel=1e-9, abs=1e-12)

    def test_softness_gives_dead_units_a_slope(self):
        # the second unit is switched off and would have to be pushed on
        net = FeedForward([[[1.0]], [[-1.0]], [[-1.0]]], [[0.0], [0.5], [0.1]])
        units = UnitPushes(net, np.ones((1, 1)), np.array([1]), np.ones(6), np.array([0.01]))
        point = np.zeros((1, 1, 1))
        assert units.gradients(point)[1] == 0.0
        assert units.gradients(point, np.array([0.1]))[1] > 0.0

    def test_rows_and_sizes(self):
        units = landscape((4, 6, 5, 3), "relu", uneven=True)
        points = np.random.default_rng(5).uniform(-1, 1, (5, 3, units.size))
        margins, gradients = units.gradients(points)
        rows = np.array([3, 1])
        some = units.take(rows)
        np.testing.assert_array_equal(some.gradients(points[rows])[0], margins[rows])
        np.testing.assert_array_equal(some.gradients(points[rows])[1], gradients[rows])
        other = np.full(5, 0.05)
        fresh = UnitPushes(units.net, units.X, units.wanted, units.radii, other)
        np.testing.assert_array_equal(units.at(other).margins(points), fresh.margins(points))
        np.testing.assert_array_equal(units.margins(points), margins)  # untouched


class TestBox:
    def test_projects_and_descends(self):
        box = Box(np.array([1.0, 0.0, 2.0]))
        moves = np.array([[3.0, 1.0, -9.0], [0.5, 0.0, 1.0]])
        assert box.project(moves, 0.5).tolist() == [[0.5, 0.0, -1.0], [0.5, 0.0, 1.0]]
        assert box.project(moves, np.array([0.5, 0.1])).tolist() == [[0.5, 0.0, -1.0], [0.1, 0.0, 0.2]]
        assert box.steepest(np.array([[2.0, 3.0, -1.0]])).tolist() == [[-1.0, 0.0, 2.0]]

    def test_pulls_inside_without_tolerance(self):
        rng = np.random.default_rng(6)
        net = network((3, 4, 1), "sigmoid", "relu", 0)
        base, radii = net.parameters, rng.uniform(0, 1, len(net.parameters))
        values = Box(radii).pull_inside(base, base.values + 0.1 * radii * rng.choice([-1, 1], len(radii)), 0.1)
        for v, b, r in zip(values.tolist(), base.values.tolist(), radii.tolist(), strict=True):
            assert abs(Fraction(v) - Fraction(b)) <= Fraction(0.1) * Fraction(r)
        np.testing.assert_allclose(np.abs(values - base.values), 0.1 * radii, rtol=1e-9)


class TestSearch:
    def test_beats_random_search(self):
        ours, theirs = [], []
        for seed, sizes in enumerate([(5, 12, 8, 1), (4, 10, 8, 3), (4, 8, 8, 6, 1), (6, 20, 10, 2)]):
            for activation in ("relu", "tanh"):
                units = landscape(sizes, activation, seed=seed)
                goal = np.full(5, -np.inf)
                found = search(units, Box(np.ones(units.size)), draws(units.size), goal, restarts=10, steps=40)
                k = len(units.net.parameters)
                directions = LinfShifts().directions(units.net.parameters, Stream(seed, "draws"), 0, 4000)
                directions[2000:] = np.sign(directions[2000:])
                assert directions.shape == (4000, k)
                target = np.array(units.wanted.tolist(), dtype=object)
                drawn = units.net.shifted_margins(units.X, target, directions, units.delta).min(axis=0)
                ours, theirs = [*ours, *found.margins], [*theirs, *drawn]
        ours, theirs = np.array(ours), np.array(theirs)
        assert (ours <= theirs + 1e-9).mean() > 0.99
        assert (ours < theirs - 0.1).mean() > 0.9

    def test_close_to_a_much_longer_search(self):
        gaps = []
        for seed in range(3):
            units = landscape((5, 10, 8, 1), "relu", seed=seed)
            goal, box = np.full(5, -np.inf), Box(np.ones(units.size))
            usual = search(units, box, draws(units.size), goal, restarts=20, steps=100)
            longer = search(units, box, draws(units.size, 1), goal, restarts=300, steps=100)
            gaps += list(usual.margins - longer.margins)
        assert np.mean(gaps) < 0.002
        assert max(gaps) < 0.05

    def test_rows_do_not_depend_on_each_other(self):
        units = landscape((5, 12, 8, 3), "relu", rows=9)
        box, goal = Box(np.ones(units.size)), np.linspace(-3, 0, 9)
        whole = search(units, box, draws(units.size), goal, restarts=6, steps=15)
        for rows in (np.array([4]), np.array([8, 0, 3])):
            some = search(units.take(rows), box, draws(units.size), goal[rows], restarts=6, steps=15)
            for name in ("margins", "points", "used"):
                np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[rows])

    def test_blocks_do_not_change_the_answer(self, monkeypatch):
        from apas.worst_case import attack as module

        units = landscape((4, 8, 6, 1), "tanh", rows=7)
        monkeypatch.setattr(module, "BLOCK", 6 * units.size)  # all starts of a row together, rows one by one
        box, goal = Box(np.ones(units.size)), np.full(7, -np.inf)
        whole = search(units, box, draws(units.size), goal, restarts=6, steps=15)
        monkeypatch.setattr(module, "BLOCK", 1 << 20)
        blocks = search(units, box, draws(units.size), goal, restarts=6, steps=15)
        np.testing.assert_array_equal(whole.points, blocks.points)
        monkeypatch.setattr(module, "BLOCK", 1)  # starts one after the other as well
        single = search(units, box, draws(units.size), goal, restarts=6, steps=15)
        np.testing.assert_allclose(single.margins, whole.margins, rtol=0.05)

    def test_broken_rows_stop(self):
        units = landscape((4, 8, 6, 1), "relu")
        box = Box(np.ones(units.size))
        easy = search(units, box, draws(units.size), np.full(5, np.inf), restarts=10, steps=20)
        assert (easy.used == 1).all()
        hard = search(units, box, draws(units.size), np.full(5, -np.inf), restarts=10, steps=20)
        assert (hard.used > 10 * 20).all()

    def test_warm_start_is_never_lost(self):
        units = landscape((4, 8, 6, 1), "relu")
        box, goal = Box(np.ones(units.size)), np.full(5, -np.inf)
        best = search(units, box, draws(units.size), goal, restarts=20, steps=50)
        again = search(units, box, draws(units.size, 9), goal, restarts=1, steps=1, warm=best.points)
        assert (again.margins <= best.margins).all()

    def test_points_stay_in_the_ball(self):
        units = landscape((4, 8, 6, 1), "relu")
        found = search(units, Box(np.ones(units.size)), draws(units.size), np.full(5, -np.inf), restarts=5, steps=20)
        assert (np.abs(found.points) <= 1).all()


class TestParameterMoves:
    def test_only_moving_parameters_have_gradients(self):
        net = network((3, 5, 4, 1), "sigmoid", "tanh", 0)
        rng = np.random.default_rng(7)
        moving = rng.random(len(net.parameters)) < 0.5
        target = np.array([0, 1], dtype=object)
        moves = ParameterMoves(net, rng.normal(size=(2, 3)), target, moving, np.array([0.1, 0.3]))
        points = rng.uniform(-1, 1, (2, 4, len(net.parameters)))
        margins, gradients = moves.gradients(points)
        assert (gradients[..., ~moving] == 0).all()
        for i in range(2):
            expected = net.shifted_margins(moves.X[i : i + 1], int(target[i]), points[i], float(moves.delta[i]))
            np.testing.assert_allclose(margins[i], expected[:, 0], rtol=1e-10)

    def test_finds_what_the_search_over_units_finds(self):
        units = landscape((4, 8, 6, 2), "tanh")
        k, goal = len(units.net.parameters), np.full(5, -np.inf)
        target = np.array(units.wanted.tolist(), dtype=object)
        moves = ParameterMoves(units.net, units.X, target, np.ones(k, dtype=bool), units.delta)
        ours = search(units, Box(np.ones(units.size)), draws(units.size), goal, restarts=10, steps=50)
        plain = search(moves, Box(np.ones(k)), draws(k), goal, restarts=10, steps=50)
        np.testing.assert_allclose(plain.margins, ours.margins, rtol=0.01)
