"""`MilpSource` as a source: which margins it goes through, what it refuses, what comes out of it."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pytest
from enumerable_problems import enumerated, random_problem

from apas import FeedForward, InputError
from apas.counterfactuals.sources.base import CandidateSource, NoneExists, Search, Task
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace

WEIGHTS = [[1.0, -2.0], [2.0, 0.5], [-1.0, 1.0]], [[1.5], [-1.0]]


def smooth_search(target: int = 1, **options) -> Search:
    net = FeedForward(WEIGHTS, [[0.1, -0.2], [-1.0]])
    space = FeatureSpace([Feature(name, low=0, high=1) for name in "abc"])
    return Search(Task(net, space, **options), 0, np.array([0.1, 0.2, 0.6]), target)


def coarse_search() -> Search:
    net = FeedForward(WEIGHTS, [[0.1, -0.2], [-1.0]])
    space = FeatureSpace([Feature(name, "integer", low=0, high=3) for name in "abc"])
    return Search(Task(net, space), 0, np.array([0.0, 0.0, 3.0]), 1)


def margins_of(search: Search, points: list[np.ndarray]) -> np.ndarray:
    return search.task.margins(np.array(points), search.target)


def driven(source: MilpSource, search: Search, needed: float, taken: bool = True, limit: int = 60) -> tuple[list, list]:
    """Points looked at and points offered, by a search whose test wants a margin of at least `needed`."""
    looked, offered = [], []
    stream = source.candidates(search)
    candidate = next(stream)
    while len(looked) + len(offered) < limit:
        (offered if candidate.final else looked).append(candidate.point)
        slack = search.task.margins(candidate.point[None], search.target)[0] - needed
        if taken and candidate.final and slack >= 0:
            break
        try:
            candidate = stream.send(slack)
        except StopIteration:
            break
    return looked, offered


def test_it_is_a_source_whose_first_is_the_cheapest() -> None:
    assert isinstance(MilpSource(), CandidateSource)
    assert MilpSource().ordered
    assert pickle.loads(pickle.dumps(MilpSource(step=0.2))) == MilpSource(step=0.2)


def test_steps_are_margins() -> None:
    search = smooth_search()
    points = [c.point for c in MilpSource(step=0.2, max_margin=1.5).candidates(search)]
    np.testing.assert_allclose(margins_of(search, points), 0.01 + 0.2 * np.arange(8), atol=1e-6)
    costs = [search.cost(p) for p in points]
    assert costs == sorted(costs)


def test_steps_end_where_no_point_has_the_margin() -> None:
    search = smooth_search()
    points = [c.point for c in MilpSource(step=0.2).candidates(search)]
    corners = np.array(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij")).reshape(3, -1).T.astype(float)
    assert margins_of(search, points).max() <= margins_of(search, list(corners)).max() + 1e-6
    assert margins_of(search, points)[-1] > margins_of(search, list(corners)).max() - 0.2


def test_no_point_comes_twice() -> None:
    search = coarse_search()
    points = [c.point for c in MilpSource(step=0.05).candidates(search)]
    assert len(points) > 3
    assert len({p.tobytes() for p in points}) == len(points)
    assert (np.diff(margins_of(search, points)) > 0).all()
    _, offered = driven(MilpSource(), coarse_search(), needed=0.5, taken=False)
    assert len({p.tobytes() for p in offered}) == len(offered)
    costs = [search.cost(p) for p in offered]
    assert costs == sorted(costs)


@pytest.mark.parametrize("needed", [0.005, 0.3, 1.0, 2.4])
def test_it_closes_in_on_the_least_margin_that_passes(needed: float) -> None:
    search = smooth_search()
    looked, offered = driven(MilpSource(), search, needed)
    assert len(looked) <= 4
    assert len(offered) == 1
    reached = margins_of(search, offered)[0]
    assert max(needed, 0.01) - 1e-6 <= reached <= max(1.01 * needed, 0.0101)


def test_it_closes_in_where_margins_jump() -> None:
    search = coarse_search()
    costs, margins = enumerated(search)
    for needed in np.unique(margins[margins > 0].round(6)):
        for wanted in (needed - 0.002, needed + 0.002):
            looked, offered = driven(MilpSource(), search, wanted)
            if wanted > margins.max():
                assert offered == []
            else:
                assert search.cost(offered[0]) == pytest.approx(costs[margins >= wanted].min())
            assert len(looked) <= 8


def test_a_slack_that_grows_at_another_rate() -> None:
    search = smooth_search()
    stream, looks = MilpSource().candidates(search), 0
    candidate = next(stream)
    while not candidate.final:
        margin = margins_of(search, [candidate.point])[0]
        candidate, looks = stream.send(float(np.cbrt(margin - 1.3))), looks + 1
    assert 1.3 - 1e-6 <= margins_of(search, [candidate.point])[0] <= 1.3 * 1.02
    assert looks <= 16


def test_what_is_not_taken_is_followed_by_larger_margins() -> None:
    search = smooth_search()
    _, offered = driven(MilpSource(), search, 0.8, taken=False)
    margins = margins_of(search, offered)
    assert margins[1] / margins[0] == pytest.approx(1.02, abs=1e-3)
    assert margins[2] / margins[1] == pytest.approx(1.04, abs=1e-3)
    assert (np.diff(margins) > 0).all()
    assert margins[-1] > 2.4


def test_without_any_slack_margins_grow() -> None:
    search = smooth_search()
    stream = MilpSource().candidates(search)
    candidates = [next(stream)]
    while len(candidates) < 100:
        try:
            candidates.append(stream.send(None))
        except StopIteration:
            break
    assert [c.final for c in candidates] == [False] + [True] * (len(candidates) - 1)
    margins = margins_of(search, [c.point for c in candidates[1:]])
    assert (np.diff(margins) > 0).all()
    assert 8 < len(margins) < 40
    assert margins[-1] > 2.4


def test_nothing_passes_within_reach() -> None:
    _, offered = driven(MilpSource(), smooth_search(), needed=50.0)
    assert offered == []


def test_a_margin_that_nothing_has_gives_the_largest_there_is() -> None:
    search = smooth_search()
    (only,) = list(MilpSource(margin=15.0, step=1.0).candidates(search))
    assert search.is_valid(only.point)
    assert margins_of(search, [only.point])[0] == pytest.approx(3.65, abs=1e-6)


def test_that_none_exists_is_proved() -> None:
    search = smooth_search()
    locked = FeatureSpace([Feature(name, low=0, high=1, mutable=name == "c") for name in "abc"])
    with pytest.raises(NoneExists, match="it is proved that no allowed change leads to 1: no margin exceeds -"):
        next(MilpSource().candidates(Search(Task(search.task.model, locked), 0, search.input, 1)))
    still = FeatureSpace([Feature(name, low=0, high=1, mutable=False) for name in "abc"])
    for source in (MilpSource(), MilpSource(step=0.2)):
        with pytest.raises(NoneExists, match="no margin exceeds -"):
            next(source.candidates(Search(Task(search.task.model, still), 0, search.input, 1)))


def test_that_no_different_one_exists_is_proved() -> None:
    search = smooth_search()
    every = Search(search.task, 0, search.input, 1, (frozenset({0}), frozenset({1})))
    with pytest.raises(NoneExists, match="no allowed change that differs from those found leads to 1"):
        next(MilpSource().candidates(every))


def test_a_moment_that_has_passed_ends_the_search() -> None:
    search = smooth_search(deadline=time.monotonic() - 1)
    assert list(MilpSource().candidates(search)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": -1}, "`margin` of MilpSource must be a number of at least 0, got -1."),
        ({"margin": "x"}, "`margin` of MilpSource must be a number of at least 0, got 'x'."),
        ({"step": 0}, "`step` of MilpSource must be a number above 0, got 0."),
        ({"step": True}, "`step` of MilpSource must be a number above 0, got True."),
        ({"time_limit": 0.0}, "`time_limit` of MilpSource must be a number above 0, got 0.0."),
        ({"max_margin": float("inf")}, "`max_margin` of MilpSource must be a number of at least 0, got inf."),
        ({"margin": 3, "max_margin": 2}, "`max_margin` of MilpSource must not be below `margin`, got 2 and 3."),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(InputError) as error:
        MilpSource(**options)
    assert str(error.value) == message


def test_what_it_cannot_do_is_said() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1), Feature("b")])
    net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    assert MilpSource().unsupported(Task(net, space)) == (
        "MilpSource needs a range of feature 'b', got -inf to inf; give it `low` and `high`."
    )
    closed = FeatureSpace([Feature("a", low=0, high=1), Feature("b", mutable=False)])
    assert MilpSource().unsupported(Task(net, closed)) is None
    smooth = FeedForward([np.ones((2, 2)), np.ones((2, 1))], [np.zeros(2), [0.0]], activation="tanh")
    assert MilpSource().unsupported(Task(smooth, closed)) == (
        "MilpSource needs relu, leaky_relu, hard_tanh or identity units, since others have no straight pieces, got tanh; "
        'use source="neighbours", or apas.Given with the rows of another tool.'
    )

    class Other:
        classes, n_features = (0, 1), 2

        def __repr__(self) -> str:
            return "<Other>"

    complaint = MilpSource().unsupported(Task(Other(), closed))
    assert complaint is not None
    assert complaint.startswith("MilpSource needs a dense network, got <Other>; use source=")


@pytest.mark.parametrize("seed", range(25))
def test_random_spaces_and_networks_in_both_ways(seed: int) -> None:
    task, row = random_problem(seed, ("l1", "linf")[seed % 2], continuous=seed % 3)
    for target in task.model.classes:
        search = Search(task, 0, row, target)
        if search.is_valid(row):
            continue
        for source in (MilpSource(), MilpSource(step=0.3)):
            try:
                looked, offered = driven(source, search, needed=0.25, taken=False, limit=30)
            except NoneExists:
                continue
            for point in (*looked, *offered):
                assert task.space.allowed(point[None], row[None]).all()
                assert search.is_valid(point)
            costs = np.array([search.cost(p) for p in offered])
            assert (np.diff(costs) >= -1e-7).all()
            assert len({p.tobytes() for p in offered}) == len(offered)
