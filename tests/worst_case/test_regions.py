"""Bounds over regions of rows against brute force on grids, for networks that were drawn, boxes of shifts and trees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import apas
from apas.models.forward import ACTIVATIONS
from apas.worst_case.regions import (
    AffineBox,
    DrawnNetworks,
    least_margin_every,
    least_margin_trees,
    least_margins_drawn,
    rounding_band,
)

DELTA = 0.1


def problem(seed: int, activation: str, hidden: tuple[int, ...], outputs: int, p: int):
    rng = np.random.default_rng(seed)
    sizes = [5, *hidden, outputs]
    weights = [rng.normal(size=pair) for pair in itertools.pairwise(sizes)]
    biases = [0.3 * rng.normal(size=n) for n in sizes[1:]]
    output = "sigmoid" if outputs == 1 else "softmax"
    net = apas.FeedForward(weights, biases, activation=activation, output=output)
    steps = np.where(rng.random(p) < 0.3, 0.25, 0.0)
    box = AffineBox(rng.normal(size=5), rng.choice([0.1, 1.0]) * rng.normal(size=(p, 5)), steps)
    return net, box, rng.uniform(-1, 1, (40, len(net.parameters))), int(rng.integers(len(net.classes)))


def grid(box: AffineBox) -> np.ndarray:
    count = 13 if len(box.ways) < 3 else 7
    axes = [np.arange(0, 1.01, step) if step else np.linspace(0, 1, count) for step in box.steps]
    return np.array(list(itertools.product(*axes)))


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [(), (5,), (6, 4), (5, 4, 3)])
def test_drawn_networks_agree_with_brute_force_over_a_grid(activation, hidden):
    for seed, outputs in enumerate((1, 3)):
        net, box, drawn, wanted = problem(
            10 * len(hidden) + seed, activation, hidden, outputs, 1 + seed + len(hidden) % 2
        )
        radii = np.ones(len(net.parameters))
        found = least_margins_drawn(
            DrawnNetworks.of(net, box, drawn, DELTA), box, wanted, rounding_band(net, box, radii, DELTA)
        )
        least = net.shifted_margins(box.rows(grid(box)), net.classes[wanted], drawn, DELTA).min(axis=1)
        kept, failing = found.margins > 0, found.margins < 0
        assert (least[kept] >= found.margins[kept] - 1e-9).all()
        assert not (least[~failing & ~kept] < -1e-6).any()  # what fails clearly on the grid is not left open
        assert not (least[kept] < 0).any()
        for i in np.flatnonzero(failing):
            row = box.rows(found.t[i : i + 1])
            assert net.shifted_margins(row, net.classes[wanted], drawn[i : i + 1], DELTA)[0, 0] < 0
            assert (found.t[i] >= 0).all()
            assert (found.t[i] <= 1).all()
            on_steps = found.t[i][box.steps > 0] / 0.25
            np.testing.assert_allclose(on_steps, np.rint(on_steps), atol=1e-9)
        bound, _, _ = least_margin_every(net, box, wanted, radii, DELTA)
        assert bound <= least.min() + 1e-9


@pytest.mark.parametrize("order", ["C", "F"])
def test_margins_do_not_depend_on_memory_order_or_on_other_draws(order):
    net, box, drawn, wanted = problem(3, "relu", (6, 4), 1, 2)
    band = rounding_band(net, box, np.ones(len(net.parameters)), DELTA)
    whole = least_margins_drawn(DrawnNetworks.of(net, box, np.asarray(drawn, order=order), DELTA), box, wanted, band)
    alone = [
        least_margins_drawn(DrawnNetworks.of(net, box, drawn[i : i + 1], DELTA), box, wanted, band) for i in range(40)
    ]
    np.testing.assert_allclose(whole.margins, [a.margins[0] for a in alone], rtol=1e-9)


def test_every_shift_of_a_linear_model_is_exact_at_the_corners():
    rng = np.random.default_rng(0)
    for _ in range(20):
        w, b, x = rng.normal(size=4), float(rng.normal()), rng.normal(size=4)
        net = apas.FeedForward([w[:, None]], [[b]])
        ways = np.zeros((2, 4))
        ways[0, 1], ways[1, 3] = rng.normal(size=2)
        bound, _, _ = least_margin_every(net, AffineBox(x, ways, np.zeros(2)), 1, np.ones(5), DELTA)
        corners = [
            float((w + DELTA * np.array(signs[:4])) @ (x + np.array(ends) @ ways) + b + DELTA * signs[4])
            for signs in itertools.product((-1, 1), repeat=5)
            for ends in itertools.product((0, 1), repeat=2)
        ]
        assert bound == pytest.approx(min(corners), abs=1e-9)


@pytest.mark.parametrize("kind", [GradientBoostingClassifier, RandomForestClassifier])
def test_trees_agree_with_brute_force_over_all_cells(kind):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)).round(1)
    y = (X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=300) > 0).astype(int)
    model = apas.as_model(kind(n_estimators=12, max_depth=3, random_state=0).fit(X, y))
    verdicts = set()
    for row in X[:25]:
        ways = np.zeros((2, 3))
        ways[0, 0], ways[1, 1] = rng.uniform(-1.5, 1.5, 2)
        box = AffineBox(row, ways, np.zeros(2))
        found, t = least_margin_trees(model.trees(), box, 1, lambda rows: model.margin(rows, 1))
        t_grid = np.array(list(itertools.product(np.linspace(0, 1, 60), repeat=2)))
        least = model.margin(box.rows(t_grid), 1).min()
        verdicts.add(np.sign(found))
        assert not (found > 0 and least < 0)
        if found < 0:
            assert model.margin(box.rows(t)[None], 1)[0] < 0
        assert not (least < -1e-3 and found == 0)
    assert {1.0, -1.0} <= verdicts


def test_regions_of_linear_models_equal_their_worst_corners():
    rng = np.random.default_rng(4)
    net = apas.FeedForward([rng.normal(size=(5, 1))], [[0.3]], threshold=0.4)
    drawn = rng.uniform(-1, 1, (60, 6))
    for wanted, delta, count in ((1, 0.1, 1), (0, 0.3, 2), (1, 0.05, 1)):
        ways = rng.normal(size=(int(rng.integers(0, 4)), 5))
        boxes = tuple(AffineBox(rng.normal(size=5), ways, np.zeros(len(ways))) for _ in range(count))
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=len(ways)))).reshape(2 ** len(ways), len(ways))
        rows = np.vstack([box.rows(corners) for box in boxes])
        met = [DrawnNetworks.of(net, box, drawn, delta) for box in boxes]
        found = [least_margins_drawn(*about, wanted, 1e-12).margins for about in zip(met, boxes, strict=True)]
        expected = net.shifted_margins(rows, wanted, drawn, delta).min(axis=1)
        np.testing.assert_allclose(np.minimum.reduce(found), expected, atol=1e-12)
        # within what rounding could do, nothing is known
        assert not any(least_margins_drawn(*a, wanted, 1e9).margins.any() for a in zip(met, boxes, strict=True))


def test_regions_of_linear_models_that_every_shift_keeps_are_known_without_a_cut():
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(200):
        net = apas.FeedForward([rng.normal(size=(3, 1))], [[float(rng.normal()) + 1.0]])
        ways, wanted = np.diag(rng.normal(size=3))[:2], int(rng.integers(0, 2))
        box, radii = AffineBox(rng.normal(size=3), ways, np.zeros(2)), np.array([1.0, 0.5, 0.0, 1.0])
        kept = least_margin_every(net, box, wanted, radii, DELTA, splits=1)[0] > 0
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=4))) * radii
        rows = box.rows(np.array(list(itertools.product((0.0, 1.0), repeat=2))))
        least = net.shifted_margins(rows, wanted, corners, DELTA).min()
        assert least > 0 or not kept
        seen.add((bool(kept), bool(least > 0)))
    assert {(True, True), (False, False)} <= seen
