"""Given counterfactuals: offered as they are, and repaired along the way to a robust point. The driver is played by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from random_spaces import random_network, random_rows, random_space

import apas
from apas.counterfactuals.sources.base import Candidate, CandidateSource, Search, Task
from apas.counterfactuals.sources.given import Given
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace

SPACE = FeatureSpace(
    [
        Feature("income", "integer", low=0, high=100, step=5),
        Feature("savings", low=0, high=10),
        Feature("home", "categorical", values=("free", "own", "rent")),
        Feature("age", "integer", low=18, high=99, direction="increase"),
    ]
)
#: income / 10 + savings + 3 [own] >= 8
NET = apas.FeedForward([[[0.1], [1.0], [0.0], [3.0], [0.0], [0.0]]], [[-8.0]])
INPUT = np.array([20.0, 1.0, 2.0, 40.0])
Slack = Callable[[np.ndarray], float | None]


def margin(point: np.ndarray) -> float:
    return 0.1 * point[0] + point[1] + 3 * (point[2] == 1) - 8


def search_of(background=None, row: int = 0, **options) -> Search:
    task = Task(SPACE.bind(NET), SPACE, background=background)
    return Search(task, row, INPUT, 1, **options)


def drive(
    source: Given, search: Search, slack: Slack = lambda _: None, limit: int = 300
) -> tuple[list[Candidate], str | None]:
    """What a generator offers if nothing is ever certified, and what it returns."""
    stream, found, answer = source.candidates(search), [], None
    try:
        for _ in range(limit):
            found.append(stream.send(answer))
            answer = slack(found[-1].point)
    except StopIteration as end:
        return found, end.value
    return found, None


def frame(*rows: list) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(SPACE.names))


GOOD = [60, 2.5, "rent", 45]


def test_the_given_point_comes_first_and_as_it_is() -> None:
    points = frame(GOOD)[["age", "home", "savings", "income"]]  # in any order
    for table in (points, np.array([GOOD], dtype=object), [GOOD], points.astype(object)):
        found, why = drive(Given(table, repair=False), search_of())
        assert [(c.point.tolist(), c.final) for c in found] == [([60.0, 2.5, 2.0, 45.0], True)]
        assert why is None


def test_not_a_bit_of_it_is_changed() -> None:
    """What lies on the grid but for binary dust is allowed, and certified with its dust."""
    space = FeatureSpace([Feature("rate", low=0, high=1, step=0.1)])
    task = Task(apas.FeedForward([[[1.0]]], [[-0.2]]), space)
    found, _ = drive(Given([[0.1 + 0.2]]), Search(task, 0, np.array([0.1]), 1))
    assert found[0].point.tolist() == [0.1 + 0.2] != [0.3]


def test_every_input_has_its_own_row() -> None:
    source = Given(frame(GOOD, [80, 0.1, "own", 40], [None, None, None, None], [np.nan] * 4, GOOD), repair=False)
    source.check_rows(5)
    assert drive(source, search_of(row=1))[0][0].point.tolist() == [80.0, 0.1, 1.0, 40.0]
    for row in (2, 3):
        assert drive(source, search_of(row=row)) == ([], "`points` has no counterfactual for this input")
    assert source.numbers(search_of().task)[4].tolist() == [60.0, 2.5, 2.0, 45.0]
    assert np.isnan(source.numbers(search_of().task)[2:4]).all()


def test_a_point_that_breaks_constraints_is_never_offered() -> None:
    broken = frame([62, 2.5, "rent", 39])
    assert drive(Given(broken, repair=False), search_of()) == (
        [],
        "the given point breaks the constraints of income, age",
    )
    found, _ = drive(Given(broken), search_of())
    assert found[0].point.tolist() == [60.0, 2.5, 2.0, 40.0]
    assert found[0].final


def test_a_point_of_another_class_is_not_offered() -> None:
    found, why = drive(Given(frame([30, 2.5, "rent", 40]), repair=False), search_of())
    assert not found
    assert why == "the given point is not of class 1, or not different from what there is already"
    known = search_of(avoid=(frozenset({0, 1}),))
    assert drive(Given(frame(GOOD), repair=False), known)[0] == []
    assert drive(Given(frame([20, 1.0, "rent", 40])), search_of()) == ([], why)  # the input itself: no way leads on


# --- repair ---

BACKGROUND = frame([90, 9.0, "rent", 50], [75, 4.0, "own", 70], [70, 1.5, "rent", 30], [10, 1.0, "rent", 20])


def robust(point: np.ndarray) -> float:
    """Robust from a margin of 2 on."""
    return margin(point) - 2


def test_repair_stops_at_the_first_robust_point_on_the_way() -> None:
    search = search_of(SPACE.numbers(BACKGROUND))
    found, _ = drive(Given(frame(GOOD)), search, robust)
    probes = [c.point for c in found if not c.final]
    finals = [c.point for c in found if c.final]
    assert finals[0].tolist() == [60.0, 2.5, 2.0, 45.0]
    # the nearest rows of the class come first; the first one is too close to the border
    assert probes[0].tolist() == [70.0, 1.5, 2.0, 40.0]
    assert robust(probes[0]) < 0
    anchor = probes[1]
    assert robust(anchor) >= 0
    # finals are robust, and nearly the first that are
    best = finals[1]
    assert 0 <= robust(best) < 0.6  # a step of income is worth 0.5
    start = finals[0]
    way = [SPACE.costs(p[None], start[None])[0] for p in finals[1:9]]
    assert way == sorted(way)
    assert len({p.tobytes() for p in finals}) == len(finals)
    for c in found:
        assert search.is_valid(c.point)
        assert SPACE.allowed(c.point[None], INPUT[None]).all()


def test_the_anchor_itself_is_among_the_last() -> None:
    background = SPACE.numbers(frame([90, 9.0, "own", 50]))
    found, _ = drive(Given(frame(GOOD)), search_of(background), robust)
    finals = [c.point.tolist() for c in found if c.final]
    assert [90.0, 9.0, 1.0, 50.0] in finals
    homes = [p[2] for p in finals[: finals.index([90.0, 9.0, 1.0, 50.0]) + 1]]
    assert homes == sorted(homes, reverse=True)  # from rent to own, once


def test_without_slack_parts_of_both_ways_are_offered_by_cost() -> None:
    background = SPACE.numbers(frame([100, 10.0, "own", 45]))
    search = search_of(background)
    finals = [c.point for c in drive(Given(frame(GOOD)), search)[0] if c.final]
    known = [[5 * np.rint((60 + 5 * i) / 5), 2.5 + 7.5 * i / 8, 2.0 if i < 4 else 1.0, 45.0] for i in range(1, 9)]
    offered = [p.tolist() for p in finals]
    assert offered[0] == [60.0, 2.5, 2.0, 45.0]
    assert [p for p in offered if p in known] == known  # to the known row, in order
    assert offered[1] not in known  # the way on from the input is shorter
    first = [search.cost(p) for p in finals[1 : offered.index(known[-1]) + 1]]
    assert first == sorted(first)


def test_a_look_that_passed_without_a_certificate_is_no_reason_to_search() -> None:
    """The start looks robust: points further along follow, not ones just beside it."""
    background = SPACE.numbers(frame([100, 10.0, "own", 45]))
    found, _ = drive(Given(frame(GOOD)), search_of(background), lambda _: 1.0)
    assert [c.final for c in found[:10]] == [
        True,
        False,
        False,
        *[True] * 7,
    ]  # a robust point of each kind is asked for
    assert 2.5 + 7.5 / 8 in [c.point[1] for c in found[3:6]]


@pytest.mark.parametrize("method", [apas.Sampling(coverage=0.95, confidence=0.95), "interval"])
def test_a_background_never_makes_a_repair_dearer(method) -> None:
    """A known row that is robust but lies beside the way: a detour costs many times what it takes to go on."""
    net = apas.FeedForward([[[10.0], [1.0]]], [[-5.5]])
    space = FeatureSpace([Feature("income", low=0, high=2), Feature("savings", low=0, high=2)])
    options = {"space": space, "target": 1, "source": Given([[0.6, 0.0]]), "method": method, "rng": 0}
    known = [[0.66, 1.8]]
    alone, both = (apas.generate(net, [[0.0, 0.0]], 0.5, background=b, **options)[0] for b in (None, known))
    assert alone.is_found
    assert both.cost <= alone.cost


@pytest.mark.parametrize("background", [None, SPACE.numbers(frame([10, 1.0, "rent", 20]))])
def test_without_rows_of_the_class_the_ray_goes_on(background) -> None:
    search = search_of(background)
    found, _ = drive(Given(frame(GOOD)), search, robust)
    finals = [c.point for c in found if c.final]
    assert 0 <= robust(finals[1]) < 0.6
    assert finals[1][2] == 2.0  # what has no order stays
    for c in found:
        assert SPACE.allowed(c.point[None], INPUT[None]).all()
    # to the end of the ranges, and not beyond
    assert max(c.point[1] for c in found) == 10.0
    assert max(c.point[0] for c in found) == 100.0
    guessed, _ = drive(Given(frame(GOOD)), search)
    assert [c.point[1] for c in guessed if c.final][:3] == [2.5, 2.5 + 1.5 / 8, 2.5 + 1.5 / 4]


def test_nothing_robust_anywhere() -> None:
    rng = np.random.default_rng(0)
    background = random_rows(rng, SPACE, 400, allowed=True)
    found, why = drive(Given(frame(GOOD)), search_of(background), lambda _: -1.0)
    assert why is None
    assert [c.final for c in found] == [True] + [False] * (len(found) - 1)
    assert 16 < len(found) < 40  # the rank grows, so that a large background does not use up all that may be asked


def test_a_point_of_another_class_is_repaired() -> None:
    found, _ = drive(Given(frame([30, 2.0, "rent", 40])), search_of(SPACE.numbers(BACKGROUND)), robust)
    assert not found[0].final
    first = next(c for c in found if c.final)
    assert 0 <= robust(first.point) < 0.6


@pytest.mark.parametrize("seeds", [21, pytest.param(60, marks=pytest.mark.validity)])
def test_whatever_slack_says_what_is_offered_is_allowed(seeds: int) -> None:
    offered = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        space = random_space(rng, int(rng.integers(2, 6)))
        net = random_network(rng, space.coding.n_columns, int(rng.choice([1, 3])))
        rows, inputs = random_rows(rng, space, 40), random_rows(rng, space, 3)
        task = Task(space.bind(net), space, str(rng.choice(["l1", "linf"])), rows if seed % 3 else None)
        source = Given(space.table(random_rows(rng, space, 3)))
        target = task.model.classes[int(rng.integers(len(task.model.classes)))]
        slack = [
            lambda _: None,
            lambda _, r=rng: float(r.normal()),
            lambda p, t=task, c=target: float(t.margins(p[None], c)[0]) - 0.5,
        ]
        for i, row in enumerate(inputs):
            search = Search(task, i, row, target, (frozenset({1}),) if i == 2 else ())
            found, _ = drive(source, search, slack[seed % 3])
            finals = [c.point for c in found if c.final]
            offered += len(finals)
            assert len({p.tobytes() for p in finals}) == len(finals)
            for c in found:
                assert space.allowed(c.point[None], row[None]).all()
                assert search.is_valid(c.point)
                assert search.is_different(c.point)
                assert (c.point != row).any()
    assert offered > 8 * seeds


# --- what does not fit ---


def test_what_a_source_has_to_offer() -> None:
    source = Given(frame(GOOD))
    assert isinstance(source, CandidateSource)
    assert source.ordered
    assert source.unsupported(search_of().task) is None
    assert source == source
    assert source != Given(frame(GOOD))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (frame(GOOD).drop(columns="age"), "`points` must have exactly the space's columns, but it lacks 'age'"),
        (frame(GOOD).rename(columns={"age": "years"}), "it lacks 'age' and has 'years' besides"),
        (np.zeros((1, 5)), "`points` must have 4 columns, as the space has features, got 5"),
        (np.zeros(4), r"`points` must be 2-D \(rows, features\)"),
        (frame(GOOD, [60, 2.5, "castle", 45]), "`points` has 'castle' in row 1 of column 'home', whose levels are"),
        (frame([None] * 4, [60, 2.5, "castle", 45]), "`points` has 'castle' in row 1 of column 'home'"),
        (frame(GOOD, [60, None, "own", 45]), "`points` must hold finite numbers in column 'savings', .* row 1 is nan"),
        (frame([60, 2.5, None, 45]), "`points` has .* in row 0 of column 'home'"),
        ("points.csv", "`points` must hold rows, got the path 'points.csv'"),
    ],
)
def test_points_that_do_not_fit(points, message: str) -> None:
    with pytest.raises(apas.InputError, match=message):
        Given(points).unsupported(search_of().task)


def test_numbers_of_rows_and_flags() -> None:
    source = Given(frame(GOOD))
    source.check_rows(1)
    with pytest.raises(
        apas.InputError, match=r"`points` of Given must have one row per input \(3\), got 1; leave a row"
    ):
        source.check_rows(3)
    with pytest.raises(apas.InputError, match=r"one row per input \(3\), got 1"):
        source.candidates(search_of(row=2))
    with pytest.raises(apas.InputError, match="`repair` must be True or False, got 'yes'"):
        Given(frame(GOOD), repair="yes")
