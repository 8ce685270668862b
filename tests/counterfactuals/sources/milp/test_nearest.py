"""The cheapest change with a margin, against a look at every allowed point."""

from __future__ import annotations

import numpy as np
import pytest
from enumerable_problems import enumerated, random_problem

from apas import FeedForward
from apas.counterfactuals.sources.base import NoneExists, Search, Task
from apas.counterfactuals.sources.milp import source as attempt
from apas.counterfactuals.sources.milp.program import ChangeBudget, change_program, network_of, unit_ranges
from apas.counterfactuals.sources.milp.source import Nearest, NearestPoint
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.models.forward import activate


def searches(task: Task, row: np.ndarray) -> list[Search]:
    found = [Search(task, 0, row, target) for target in task.model.classes]
    return [search for search in found if not search.is_valid(row)]


def nearest(search: Search) -> Nearest:
    return Nearest(search, network_of(search.task), 10.0)


def checked(search: Search, found: NearestPoint, margin: float) -> float:
    """The cost of a point that is what it should be."""
    point, own = found.point, search.input
    assert search.task.space.allowed(point[None], own[None]).all()
    assert search.is_valid(point)
    assert search.is_different(point)
    assert found.margin == search.task.margins(point[None], search.target)[0] >= margin - 1e-6
    return search.cost(point)


def compared(search: Search, margin: float, exact: bool) -> NearestPoint | None:
    """The cheapest point for a margin, and whether enumeration says the same."""
    found = nearest(search).at(margin)
    costs, margins = enumerated(search)
    fine = margins >= margin
    if found is None:
        assert not fine.any()
        return None
    cost = checked(search, found, margin)
    if exact:
        assert cost == pytest.approx(costs[fine].min(), abs=1e-7)
    else:
        assert cost <= costs[fine].min(initial=np.inf) + 1e-7
    return found


@pytest.mark.parametrize("distance", ["l1", "linf"])
@pytest.mark.parametrize("seed", range(60))
def test_costs_as_little_as_the_cheapest_of_all_points(seed: int, distance: str) -> None:
    task, row = random_problem(seed, distance)
    for search in searches(task, row):
        for margin in (0.01, 0.4):
            compared(search, margin, exact=True)


@pytest.mark.validity
@pytest.mark.parametrize("start", range(1000, 5000, 500))
def test_costs_as_little_as_the_cheapest_of_all_points_in_many_problems(start: int) -> None:
    for seed in range(start, start + 500):
        task, row = random_problem(seed, ("l1", "linf")[seed % 2], continuous=seed % 3)
        for search in searches(task, row):
            compared(search, 0.1, exact=seed % 3 == 0)


@pytest.mark.parametrize("distance", ["l1", "linf"])
@pytest.mark.parametrize("seed", range(30))
def test_costs_no_more_than_the_cheapest_of_a_grid(seed: int, distance: str) -> None:
    task, row = random_problem(seed, distance, continuous=1 + seed % 2)
    for search in searches(task, row):
        compared(search, 0.2, exact=False)


@pytest.mark.parametrize("seed", range(40))
def test_a_further_one_leaves_a_feature_alone_that_others_change(seed: int) -> None:
    task, row = random_problem(seed, "l1", continuous=seed % 2)
    for search in searches(task, row):
        avoid: tuple[frozenset[int], ...] = ()
        for _ in range(3):
            search = Search(task, 0, row, search.target, avoid)
            found = compared(search, 0.05, exact=seed % 2 == 0)
            if found is None:
                break
            avoid = (*avoid, frozenset(np.flatnonzero(found.point != row).tolist()))


@pytest.mark.parametrize(("easy", "hard"), [(0, 2000), (0, 0), (1, 1)])
@pytest.mark.parametrize("seed", range(15))
def test_what_is_done_for_hard_programs_gives_the_same(seed: int, easy: int, hard: int, monkeypatch) -> None:
    monkeypatch.setattr(attempt, "EASY", easy)
    monkeypatch.setattr(attempt, "HARD", hard)
    task, row = random_problem(seed, ("l1", "linf")[seed % 2])
    for search in searches(task, row):
        compared(search, 0.1, exact=True)


@pytest.mark.parametrize("seed", range(60))
def test_the_largest_margin_is_found_or_proved_to_be_too_small(seed: int) -> None:
    task, row = random_problem(seed, "l1")
    for search in searches(task, row):
        most = enumerated(search)[1].max()
        if most > 1e-4:
            found = nearest(search).widest()
            assert found is not None
            assert found.margin == pytest.approx(most, abs=1e-6)
        elif most < -1e-4:
            with pytest.raises(NoneExists, match="it is proved that no allowed change leads to") as error:
                nearest(search).widest()
            assert most <= float(str(error.value).split()[-1]) < 0


@pytest.mark.parametrize("distance", ["l1", "linf"])
@pytest.mark.parametrize("budget", [0.2, 0.6, 2.0, np.inf])
@pytest.mark.parametrize("seed", range(12))
def test_ranges_hold_for_every_point_within_the_budget(seed: int, budget: float, distance: str) -> None:
    task, row = random_problem(seed, distance, continuous=1)
    effect = nearest(Search(task, 0, row, task.model.classes[0])).effect
    net, ranges = effect.net, unit_ranges(ChangeBudget(effect, budget), scores=True)
    rng = np.random.default_rng(seed)
    points = task.space.snapped(row + rng.normal(size=(400, len(row))), np.broadcast_to(row, (400, len(row))))
    differences = task.space.differences(points, np.broadcast_to(row, points.shape))
    paid = differences.sum(axis=1) if distance == "l1" else differences.max(axis=1)
    z = task.encoded(points[paid <= budget]) @ net.weights[0] + net.biases[0]
    for i, (low, high) in enumerate(ranges):
        assert (z >= low).all()
        assert (z <= high).all()
        if i < len(net.activations):
            z = activate(net.activations[i], z) @ net.weights[i + 1] + net.biases[i + 1]


def test_relu_units_need_a_column_only_where_they_should_be_large() -> None:
    net = FeedForward([[[1.0, 1.0], [1.0, -1.0]], [[1.0], [-1.0]]], [[-0.5, 0.1], [0.0]])
    task = Task(net, FeatureSpace([Feature("a", low=0, high=1), Feature("b", low=0, high=1)]))
    search = Search(task, 0, np.array([0.2, 0.2]), 1)
    near = nearest(search)
    for budget, binaries in ((np.inf, 1), (0.05, 0)):
        program = change_program(ChangeBudget(near.effect, budget), 0.1)
        assert program.integer.sum() == binaries
    assert change_program(ChangeBudget(near.effect), None).integer.sum() == 1


@pytest.mark.parametrize("sizes", [(6, 24, 1), (6, 12, 12, 1), (5, 8, 8, 8, 3)])
def test_deep_networks_against_many_random_points(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = [1.4 * rng.normal(size=(a, b)) / np.sqrt(a) for a, b in zip(sizes, sizes[1:], strict=False)]
    kind = {"output": "softmax"} if sizes[-1] > 1 else {}
    net = FeedForward(weights, [0.1 * rng.normal(size=b) for b in sizes[1:]], **kind)
    task = Task(net, FeatureSpace([Feature(f"f{i}", low=0, high=1) for i in range(sizes[0])]))
    cloud = rng.random((20_000, sizes[0]))
    for row in rng.random((4, sizes[0])):
        target = net.classes[0] if net.margin(row[None], net.classes[0])[0] < 0 else net.classes[1]
        start, margins = net.margin(row[None], target)[0], net.margin(cloud, target)
        margin = start + 0.5 * (margins.max() - start)
        search = Search(task, 0, row, target)
        found = nearest(search).at(margin)
        if margin > 0:
            assert found is not None
            cost = checked(search, found, margin)
            assert cost <= np.abs(cloud[margins >= margin] - row).mean(axis=1).min()


def test_numbers_of_any_size() -> None:
    """Raw units, large and small, in one table."""
    space = FeatureSpace(
        [
            Feature("income", low=0, high=2e6),
            Feature("rate", low=0, high=1e-4),
            Feature("cents", "integer", low=0, high=10**8),
            Feature("year", "integer", low=1900, high=2100),
        ]
    )
    scales = np.array([1e6, 1e-4, 1e8, 100.0])
    net = FeedForward([np.array([[1.0], [-2.0], [0.5], [0.3]]) / scales[:, None]], [[-7.0]])
    task = Task(net, space)
    search = Search(task, 0, np.array([500_000.0, 5e-5, 10_000_000.0, 2000.0]), 1)
    # per range, income and rate bring 2 each, cents 0.5 and the year 0.6
    assert net.margin(search.input[None], 1)[0] == pytest.approx(-1.45)
    for margin, needed in (
        (0.5, 1.95 / 2),
        (1.0, 2.45 / 2),
        (1.3, 2.5 / 2 + 0.25 / 0.6),
        (1.7, 2.5 / 2 + 0.5 + 0.35 / 0.5),
    ):
        found = nearest(search).at(margin)
        assert checked(search, found, margin - 1e-5) == pytest.approx(needed / 4, abs=1e-3)
