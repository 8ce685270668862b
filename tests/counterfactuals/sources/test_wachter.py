"""`Wachter` as a source: what it offers, on what models and spaces, and what it says if there is nothing."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
from conftest import spread
from opaque_models import BlackBox, loans, pipeline
from random_spaces import random_network, random_rows, random_space

import apas
from apas import Feature, FeatureSpace, FeedForward, InputError
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.wachter import Wachter

QUICK = {"iterations": 150, "patience": 20}


def smooth_search(**options) -> Search:
    net = FeedForward([[[1.0, -2.0], [2.0, 0.5], [-1.0, 1.0]], [[3.0], [-2.0]]], [[0.1, -0.2], [-2.0]])
    space = FeatureSpace([Feature(name, low=0, high=1) for name in "abc"])
    return Search(Task(space.bind(net), space, **options), 0, np.array([0.1, 0.2, 0.6]), 1)


def test_it_is_a_source() -> None:
    assert isinstance(Wachter(), CandidateSource)
    assert pickle.loads(pickle.dumps(Wachter(step=0.2))) == Wachter(step=0.2)
    assert Wachter(penalties=[0.1]).penalties == (0.1,)
    assert hash(Wachter(penalties=[0.1])) == hash(Wachter(penalties=(0.1,)))


@pytest.mark.parametrize("seed", spread(range(12), 2))
def test_candidates_are_different_allowed_and_valid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 7)))
    net = random_network(rng, space.coding.n_columns, int(rng.choice([1, 3])))
    task = Task(space.bind(net), space, background=random_rows(rng, space, 40))
    avoid = (frozenset({0}),) if seed % 3 == 0 else ()
    for i, row in enumerate(random_rows(rng, space, 3)):
        target = int(rng.integers(2))
        if task.valid(row[None], target)[0]:
            continue
        search = Search(task, i, row, target, avoid)
        points = [c.point for c in Wachter(**QUICK).candidates(search)]
        assert len({p.tobytes() for p in points}) == len(points)
        for point in points:
            assert space.allowed(point[None], row[None]).all()
            assert (point != row).any()
            assert search.is_valid(point)
            assert search.is_different(point)
        costs = [search.cost(p) for p in points[1:]]  # the first is what the first descents found
        assert costs == sorted(costs)


def test_it_finds_rows_where_there_are_some() -> None:
    """Of the searches for which a known row shows that there is something to be found, nearly all succeed."""
    known = found = 0
    for seed in range(40):
        rng = np.random.default_rng(1000 + seed)
        space = random_space(rng, 4)
        row, others = random_rows(rng, space, 1)[0], random_rows(rng, space, 100)
        others = space.snapped(others, np.tile(row, (100, 1)))
        task = Task(space.bind(random_network(rng, space.coding.n_columns)), space, background=others)
        if not task.valid(row[None], 1)[0] and task.valid(others, 1).mean() > 0.05:
            known += 1
            found += any(True for _ in Wachter(penalties=(), **QUICK).candidates(Search(task, 0, row, 1)))
    assert known >= 8
    assert found >= 0.8 * known


def test_the_first_is_near_the_optimum_of_a_straight_problem() -> None:
    space = FeatureSpace([Feature(name, low=0, high=1) for name in "abc"])
    net = FeedForward([[[6.0], [2.0], [-3.0]]], [[-4.0]])
    search = Search(Task(space.bind(net), space), 0, np.array([0.2, 0.3, 0.5]), 1)
    first = next(Wachter().candidates(search)).point
    nearest = 3.7 / 6.0  # only the steepest feature moves, until the margin is 0
    assert nearest <= np.abs(first - search.input).sum() < 1.1 * nearest


def test_levels_have_the_probability_they_ask_for() -> None:
    search = smooth_search()
    levels = list(Wachter(step=0.15, last=0.9, tolerance=0.02).levels(search))
    assert [level.asked for level in levels] == pytest.approx([0.55, 0.55, 0.7, 0.85, 0.9])
    for level in levels:
        assert len(level.points)
        probability = 1 / (1 + np.exp(-search.task.margins(level.points, 1)))
        assert (probability >= level.asked - 0.02 - 1e-9).all()
        costs = [search.cost(p) for p in level.points]
        assert costs == sorted(costs)
    cheapest = [search.cost(level.points[0]) for level in levels[1:]]
    assert cheapest == sorted(cheapest)


def test_a_small_tolerance_costs_distance() -> None:
    search = smooth_search()
    loose, strict = (next(Wachter(tolerance=t).candidates(search)).point for t in (0.05, 0.0))
    assert search.cost(loose) < search.cost(strict)


def test_a_black_box_by_finite_differences() -> None:
    search = smooth_search()
    hidden = Search(Task(BlackBox(search.task.model), search.task.space), 0, search.input, 1)
    own, by_differences = (next(Wachter().candidates(s)).point for s in (search, hidden))
    assert hidden.is_valid(by_differences)
    assert search.cost(by_differences) == pytest.approx(search.cost(own), rel=0.05)
    for model, said in ((search.task.model, False), (BlackBox(search.task.model), True)):
        found = apas.generate(
            model, search.input[None], 0.001, target=1, space=search.task.space, source="wachter", rng=0
        )
        assert found.found.all()
        assert found[0].reason.endswith("found by finite differences, since the model has no derivatives") == said
    never = Search(Task(BlackBox(FeedForward([[[1.0]]], [[-9.0]])), FeatureSpace([Feature("a", low=0, high=1)])), 0,
                   np.array([0.2]), 1)  # fmt: skip
    stream = Wachter(**QUICK).candidates(never)
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert "finite differences" in end.value.value


def test_it_says_that_it_found_nothing() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1)])
    net = FeedForward([[[1.0]]], [[-9.0]], feature_names=("a",))
    found = apas.generate(net, [[0.2]], 0.01, space=space, source=Wachter(**QUICK), method="interval")
    assert found[0].status.name == "EXHAUSTED"
    assert found[0].reason.startswith("no descent of Wachter reached an allowed row of class 1")


def test_it_keeps_to_the_deadline() -> None:
    search = smooth_search(deadline=time.monotonic() - 1)
    box = BlackBox(search.task.model)
    late = replace(search, task=replace(search.task, model=box))
    assert list(Wachter().candidates(late)) == []
    assert box.asked < 10  # a descent would ask a thousand times


def test_it_says_that_the_model_is_flat() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1)])
    net = FeedForward([[[1.0]], [[4.0]]], [[-0.5], [-1.0]], feature_names=("a",))  # the unit is off below 0.5
    found = apas.generate(net, [[0.2]], 0.01, space=space, source=Wachter(**QUICK), method="interval")
    assert "at the input all derivatives by what may change are 0" in found[0].reason


def test_it_says_that_nothing_was_certified() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1)])
    net = FeedForward([[[2.0]]], [[-1.0]], feature_names=("a",))
    found = apas.generate(net, [[0.2]], 2.0, space=space, source=Wachter(**QUICK), method="interval")
    assert found[0].status.name == "EXHAUSTED"
    assert "last level of Wachter" in found[0].reason
    assert found[0].candidates > 0


def test_pipelines_that_bend_and_code() -> None:
    table = loans()
    model = pipeline(table)
    space = FeatureSpace.from_frame(table, kinds={"income": "integer"}, steps={"income": 100}, immutable=["home"])
    rejected = table[~model.predict(table)][:6]
    found = apas.generate(model, rejected, 0.01, space=space, background=table, source=Wachter(**QUICK),
                          method="interval")  # fmt: skip
    assert found.found.all()
    assert model.predict(found.points).all()
    assert (found.points["home"] == rejected["home"]).all()
    income = found.points["income"]
    assert ((income % 100 == table["income"].min() % 100) | (income == rejected["income"])).all()


def test_several_per_row_and_several_processes() -> None:
    space = FeatureSpace([*(Feature(name, low=0, high=1) for name in "abcd"), Feature("n", "integer", low=0, high=5)])
    net = FeedForward([[[2.0], [1.0], [-1.0], [1.5], [0.3]]], [[-2.5]], feature_names=space.names)
    rows = random_rows(np.random.default_rng(2), space, 40, allowed=True)
    rows = rows[net.margin(rows, 1) < 0][:4]
    one, two = (
        apas.generate(
            net, rows, 0.01, target=1, space=space, source=Wachter(**QUICK), method="interval", k=2, n_jobs=jobs
        )
        for jobs in (1, 2)
    )
    assert one == two
    assert one.found.sum() > 4
    for first, second in zip(one.numbers[::2], one.numbers[1::2], strict=True):
        if np.isfinite(second).all():
            start = one.origins[2 * int(np.flatnonzero((one.numbers[::2] == first).all(axis=1))[0])]
            assert not set(np.flatnonzero(first != start)) <= set(np.flatnonzero(second != start))


def test_torch_modules() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test TORCH=1")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1)).double().eval()
    model = apas.as_model(module, output="logit")
    rows = np.random.default_rng(0).uniform(-3, 3, size=(60, 3))
    away = rows[model.margin(rows, 1) < -0.02][:1]
    space = FeatureSpace([Feature(f"x{i}", low=-3, high=3) for i in range(3)])
    found = apas.generate(model, away, 0.001, target=1, space=space, rng=0,
                          source=Wachter(iterations=30, patience=10))  # fmt: skip
    assert found.found.tolist() == [True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target_probability": 0.4}, "`target_probability` of Wachter must be a number of at least 0.5 and at most 1"),
        ({"last": 0.5}, "`last` of Wachter must be a number of at least 0.55 and at most 1, got 0.5"),
        ({"tolerance": -0.1}, "`tolerance` of Wachter must be a number of at least 0 and at most 0.5"),
        ({"penalty": 0}, "`penalty` of Wachter must be a number above 0, got 0"),
        ({"penalty": True}, "`penalty` of Wachter must be a number above 0, got True"),
        ({"penalties": "0.1"}, "`penalties` of Wachter must be numbers above 0, got '0.1'"),
        ({"penalties": (0.1, -1)}, "`penalties` of Wachter must be a number above 0, got -1"),
        ({"iterations": 0}, "`iterations` of Wachter must be an integer of at least 1, got 0"),
        ({"learning_rate": float("nan")}, "`learning_rate` of Wachter must be a number above 0, got nan"),
    ],
)
def test_bad_settings(options: dict, said: str) -> None:
    with pytest.raises(InputError) as error:
        Wachter(**options)
    assert said in str(error.value)
