"""`Prototype` as a source: prototypes, sparse changes, confidence, and what it offers on spaces of all kinds."""

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
from apas import Feature, FeatureSpace, FeedForward, InputError, Unsupported
from apas.counterfactuals.search.smooth_problem import SmoothProblem
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.prototype import Prototype, _prototype
from apas.counterfactuals.sources.wachter import Wachter

QUICK = {"iterations": 120, "neighbours": 5}


def smooth_search(black: bool = False) -> Search:
    rng = np.random.default_rng(4)
    space = FeatureSpace([Feature(name, low=0, high=1) for name in "abcde"])
    net = FeedForward([rng.normal(size=(5, 6)), 2 * rng.normal(size=(6, 1))], [rng.normal(size=6), [-1.0]])
    rows = rng.uniform(size=(80, 5))
    start = rows[net.margin(rows, 1).argmin()]
    return Search(Task(BlackBox(net) if black else space.bind(net), space, background=rows), 0, start, 1)


def test_it_is_a_source() -> None:
    assert isinstance(Prototype(), CandidateSource)
    assert pickle.loads(pickle.dumps(Prototype(attraction=3.0))) == Prototype(attraction=3.0)


@pytest.mark.parametrize("seed", spread(range(12), 2))
def test_candidates_are_different_allowed_and_valid(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    space = random_space(rng, int(rng.integers(2, 7)))
    net = random_network(rng, space.coding.n_columns, int(rng.choice([1, 3])))
    task = Task(space.bind(net), space, background=random_rows(rng, space, 60))
    source = Prototype(**QUICK, attraction=float(rng.choice([0.0, 1.0, 10.0])))
    avoid = (frozenset({0}),) if seed % 3 == 0 else ()
    for i, row in enumerate(random_rows(rng, space, 3)):
        target = int(rng.integers(2))
        if task.valid(row[None], target)[0] or target not in task.background_classes:
            continue
        search = Search(task, i, row, target, avoid)
        points = [c.point for c in source.candidates(search)]
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
            source = Prototype(**QUICK, attraction=float(rng.choice([0.0, 1.0, 10.0])), last=0.05)
            found += any(True for _ in source.candidates(Search(task, 0, row, 1)))
    assert known >= 8
    assert found >= 0.8 * known


def test_the_prototype_is_the_mean_of_the_nearest_rows_of_the_class() -> None:
    search = smooth_search()
    relaxed, background = SmoothProblem(search), search.task.background
    rows = background[search.task.margins(background, 1) >= 0]
    apart = np.square(rows - search.input).sum(axis=1)
    wanted = rows[np.argsort(apart)[:7]].mean(axis=0)
    np.testing.assert_allclose(_prototype(relaxed, 7), wanted)
    np.testing.assert_allclose(_prototype(relaxed, 1000), rows.mean(axis=0))


def test_attraction_attracts() -> None:
    search = smooth_search()
    goal = _prototype(SmoothProblem(search), 20)
    firsts = [next(Prototype(attraction=a).candidates(search)).point for a in (0.0, 50.0)]
    weak, strong = (float(np.square(point - goal).sum()) for point in firsts)
    assert strong < 0.8 * weak


def test_changes_are_sparse() -> None:
    search = smooth_search()
    sparse = next(Prototype(attraction=0.0).candidates(search)).point
    dense = next(Wachter().candidates(search)).point
    assert (sparse != search.input).sum() < (dense != search.input).sum()


def test_levels_have_the_confidence_they_ask_for() -> None:
    search = smooth_search()
    levels = list(Prototype(attraction=1.0).levels(search))
    assert [level.asked for level in levels] == pytest.approx([0.05, 0.25, 0.45, 0.65, 0.85, 0.99])
    assert all(len(level.points) == 1 for level in levels[:5])
    for level in levels:
        excess = np.tanh(search.task.margins(level.points, 1) / 2) if len(level.points) else np.empty(0)
        assert (excess >= level.asked - 1e-9).all()
    # what was found is drawn back until it is confident enough and no more
    assert np.tanh(search.task.margins(levels[0].points, 1) / 2)[0] < 0.06


def test_a_black_box_by_finite_differences() -> None:
    search, hidden = smooth_search(), smooth_search(black=True)
    own, by_differences = (next(Prototype(attraction=1.0).candidates(s)).point for s in (search, hidden))
    assert hidden.is_valid(by_differences)
    assert search.cost(by_differences) == pytest.approx(search.cost(own), rel=0.3)


def test_it_keeps_to_the_deadline() -> None:
    search = smooth_search(black=True)
    late = replace(search, task=replace(search.task, deadline=time.monotonic() - 1))
    assert list(Prototype().candidates(late)) == []
    assert search.task.model.asked < 60  # a descent would ask five hundred times


def test_pipelines_that_bend_and_code() -> None:
    table = loans()
    model = pipeline(table)
    space = FeatureSpace.from_frame(table, kinds={"income": "integer"}, increase=["income"])
    rejected = table[~model.predict(table)][:6]
    found = apas.generate(model, rejected, 0.01, space=space, background=table, source=Prototype(**QUICK),
                          method="interval")  # fmt: skip
    assert found.found.all()
    assert model.predict(found.points).all()
    assert (found.points["income"].to_numpy() >= rejected["income"].to_numpy()).all()


def test_without_known_rows() -> None:
    net = FeedForward([[[1.0]]], [[-0.5]], feature_names=("a",))
    space = FeatureSpace([Feature("a", low=0, high=1)])
    with pytest.raises(Unsupported, match="pass some, such as the training table, as `background`"):
        apas.generate(net, [[0.2]], 0.01, space=space, source="prototype")
    found = apas.generate(net, [[0.2]], 0.01, space=space, background=[[0.1], [0.3]], source="prototype")
    assert found[0].status is apas.Status.EXHAUSTED
    assert "`background` holds no row that the model puts into class 1" in found[0].reason
    found = apas.generate(net, [[0.2]], 0.01, space=space, source=Prototype(attraction=0.0), method="interval")
    assert found.found.all()


def test_a_class_without_known_rows_costs_the_others_nothing() -> None:
    net = FeedForward([[[-4.0, 0.0, 4.0]]], [[2.0, 0.0, -6.0]], output="softmax", feature_names=("a",))
    space = FeatureSpace([Feature("a", low=0, high=2)])
    known = [[0.1], [0.8], [1.0], [1.2]]
    found = apas.generate(net, [[0.2], [0.2]], 0.01, target=[1, 2], space=space, background=known, source="prototype",
                          method="interval")  # fmt: skip
    assert [item.status.name for item in found] == ["FOUND", "EXHAUSTED"]


def test_it_says_that_it_found_nothing() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1), Feature("b", low=0, high=1, mutable=False)])
    net = FeedForward([[[1.0], [9.0]]], [[-5.0]], feature_names=("a", "b"))
    found = apas.generate(net, [[0.2, 0.0]], 0.01, space=space, background=[[0.5, 0.9]], source=Prototype(**QUICK),
                          method="interval")  # fmt: skip
    assert found[0].status.name == "EXHAUSTED"
    assert found[0].reason.startswith("no descent of Prototype reached an allowed row of class 1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"confidence": -0.1}, "`confidence` of Prototype must be a number of at least 0 and at most 1, got -0.1"),
        ({"last": 0.01}, "`last` of Prototype must be a number of at least 0.05 and at most 1, got 0.01"),
        ({"attraction": -1}, "`attraction` of Prototype must be a number of at least 0, got -1"),
        ({"weight": "10"}, "`weight` of Prototype must be a number above 0, got '10'"),
        ({"neighbours": 2.5}, "`neighbours` of Prototype must be an integer of at least 1, got 2.5"),
    ],
)
def test_bad_settings(options: dict, said: str) -> None:
    with pytest.raises(InputError) as error:
        Prototype(**options)
    assert said in str(error.value)
