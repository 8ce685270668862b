"""Nearest neighbours against a look at every background row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import spread
from random_spaces import random_network, random_rows, random_space

import apas
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.neighbours import NearestNeighbours, _known_rows, rows_of_class
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.models.base import predicted_classes


def question(seed: int, distance: str, rows: int = 90) -> tuple[Task, np.ndarray]:
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 7)))
    net = random_network(rng, space.coding.n_columns, int(rng.choice([1, 3])))
    allowed = bool(rng.random() < 0.5)  # the others leave ranges and steps
    background = random_rows(rng, space, rows, allowed)
    task = Task(space.bind(net), space, distance, np.concatenate([background, background[:20]]))
    return task, random_rows(rng, space, 3)


def by_brute_force(search: Search) -> dict[bytes, float]:
    """All candidates and their costs, row by row, without batches or bounds."""
    task, space = search.task, search.task.space
    lows, highs = np.transpose([f.ends for f in space])
    found = {}
    for row, label in zip(
        task.background, predicted_classes(task.model, task.encoded(task.background))[0], strict=True
    ):
        if label != search.target:
            continue
        point = search.snapped(np.clip(row, lows, highs) + 0.0)
        if (point == search.input).all() or not search.is_valid(point) or not search.is_different(point):
            continue
        found[point.tobytes()] = search.cost(point)
    return found


@pytest.mark.parametrize("distance", ["l1", "linf"])
@pytest.mark.parametrize("seed", spread(range(20), 3))
def test_all_candidates_in_the_order_of_their_costs(seed: int, distance: str, monkeypatch) -> None:
    monkeypatch.setattr("apas.counterfactuals.sources.neighbours.FIRST", 1)  # as many bounds as there can be
    task, inputs = question(seed, distance)
    for i, row in enumerate(inputs):
        for target in set(task.background_classes.tolist()):
            avoid = (frozenset({0}),) if i == 2 else ()
            search = Search(task, i, row, target, avoid)
            wanted = by_brute_force(search)
            points = [c.point for c in NearestNeighbours().candidates(search)]
            assert len({p.tobytes() for p in points}) == len(points)
            assert {p.tobytes(): search.cost(p) for p in points} == wanted
            costs = [search.cost(p) for p in points]
            assert costs == sorted(costs)
            if points:
                assert task.space.allowed(np.stack(points), np.broadcast_to(row, (len(points), len(row)))).all()
                assert task.valid(np.stack(points), target).all()


def test_what_every_input_may_take_is_taken_as_it_is() -> None:
    """Where everything may change and rows are allowed, no feature has to be asked for the nearest allowed value."""
    space = FeatureSpace(
        [
            Feature("a", low=0, high=8),
            Feature("b", "integer", low=0, high=20),
            Feature("c", "ordinal", values=tuple("xyz")),
            Feature("d", "categorical", values=tuple("pqrs")),
            Feature("e", "binary", values=(0, 1)),
        ]
    )
    rng = np.random.default_rng(0)
    rows = random_rows(rng, space, 60, allowed=True)
    task = Task(space.bind(random_network(rng, space.coding.n_columns)), space, background=rows)
    label = task.background_classes[0]
    known, snapped = _known_rows(task, label)
    np.testing.assert_array_equal(known, rows_of_class(task, label))
    assert snapped == []
    steps = FeatureSpace([*space.features[:1], Feature("b", "integer", low=0, high=20, step=7), *space.features[2:]])
    assert _known_rows(Task(task.model, steps, background=rows), label)[1] == [1]
    for point in random_rows(rng, space, 5, allowed=True):
        np.testing.assert_array_equal(space.snapped(known, np.broadcast_to(point, known.shape)), known)


def test_only_what_may_change_decides() -> None:
    """The nearest row overall has a sex and an age that the input cannot have."""
    space = FeatureSpace(
        [
            Feature("income", low=0, high=10),
            Feature("age", "integer", low=0, high=99, direction="increase"),
            Feature("sex", "binary", values=("f", "m"), mutable=False),
        ]
    )
    net = apas.FeedForward([[[1.0], [0.0], [0.0]]], [[-5.0]], feature_names=space.names)
    background = np.array([[6.0, 20.0, 1.0], [5.5, 50.0, 0.0], [9.0, 44.0, 0.0], [1.0, 40.0, 0.0]])
    search = Search(Task(space.bind(net), space, background=background), 0, np.array([4.0, 40.0, 0.0]), 1)
    points = [c.point.tolist() for c in NearestNeighbours().candidates(search)]
    assert points == [[6.0, 40.0, 0.0], [5.5, 50.0, 0.0], [9.0, 44.0, 0.0]]


def test_a_step_may_bring_a_row_nearer(monkeypatch) -> None:
    monkeypatch.setattr("apas.counterfactuals.sources.neighbours.FIRST", 1)
    space = FeatureSpace([Feature("a", low=0, high=8, step=4), Feature("b", low=0, high=8)])
    net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]])
    task = Task(net, space, background=np.array([[5.9, 0.0], [0.0, 5.0], [0.0, 5.5]]))
    points = [c.point.tolist() for c in NearestNeighbours().candidates(Search(task, 0, np.array([0.0, 0.0]), 1))]
    assert points == [[4.0, 0.0], [0.0, 5.0], [0.0, 5.5]]


def test_nothing_that_may_change() -> None:
    space = FeatureSpace([Feature("a", mutable=False), Feature("b", direction="increase", low=0, high=1)])
    net = apas.FeedForward([[[0.0], [1.0]]], [[-0.5]])
    task = Task(net, space, background=np.array([[1.0, 0.9], [2.0, 0.6], [3.0, 0.8], [1.0, 0.1]]))
    points = [c.point.tolist() for c in NearestNeighbours().candidates(Search(task, 0, np.array([7.0, 0.2]), 1))]
    assert points == [[7.0, 0.6], [7.0, 0.8], [7.0, 0.9]]


def test_known_rows_are_looked_for_once_per_class(monkeypatch) -> None:
    task, inputs = question(0, "l1")
    made = []
    monkeypatch.setattr(
        "apas.counterfactuals.sources.neighbours._known_rows", lambda *a: (made.append(a), _known_rows(*a))[1]
    )
    labels = set(task.background_classes.tolist())
    for i, row in enumerate(inputs):
        for label in labels:
            next(NearestNeighbours().candidates(Search(task, i, row, label)), None)
    assert len(made) == len(labels)


def test_many_rows_are_not_all_looked_at(monkeypatch) -> None:
    rng = np.random.default_rng(1)
    space = FeatureSpace([Feature(n, low=0, high=1) for n in "abc"])
    task = Task(random_network(rng, 3), space, background=rng.random((20_000, 3)))
    label = task.background_classes[0]
    rows = []
    monkeypatch.setattr(Task, "valid", lambda self, x, t, old=Task.valid: (rows.append(len(x)), old(self, x, t))[1])
    stream = NearestNeighbours().candidates(Search(task, 0, rng.random(3), label))
    costs = [Search(task, 0, c.point, label) for _, c in zip(range(50), stream, strict=False)]
    assert len(costs) == 50
    assert sum(rows) <= 64


def test_the_order_of_the_background_does_not_matter() -> None:
    task, inputs = question(3, "l1")
    turned = Task(task.model, task.space, "l1", task.background[::-1])
    label = task.background_classes[0]
    one, two = (
        [c.point.tolist() for c in NearestNeighbours().candidates(Search(t, 0, inputs[0], label))]
        for t in (task, turned)
    )
    assert one == two


def test_a_pipeline_with_categories() -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(2)
    table = pd.DataFrame({"home": rng.choice(["own", "rent"], 80), "income": rng.uniform(0, 5, 80)})
    y = (table["income"] + (table["home"] == "own") > 3).astype(int)
    encoder = make_column_transformer((OneHotEncoder(), ["home"]), remainder="passthrough")
    space = FeatureSpace.from_frame(table)
    model = space.bind(make_pipeline(encoder, LogisticRegression()).fit(table, y))
    task = Task(model, space, background=space.numbers(table))
    search = Search(task, 0, space.numbers(pd.DataFrame({"home": ["rent"], "income": [0.5]}))[0], 1)
    wanted = by_brute_force(search)
    points = [c.point for c in NearestNeighbours().candidates(search)]
    assert {p.tobytes(): search.cost(p) for p in points} == wanted
    # nothing to do with an empty batch either
    same = Task(model, space, background=space.numbers(table)[y.to_numpy() == 1][:1])
    assert list(NearestNeighbours().candidates(Search(same, 0, same.background[0], 1))) == []


def test_what_a_source_has_to_offer() -> None:
    source = NearestNeighbours()
    assert isinstance(source, CandidateSource)
    assert source.ordered
    task, _ = question(0, "l1")
    assert source.unsupported(task) is None
    assert source == NearestNeighbours()


def test_errors() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1)])
    net = apas.FeedForward([[[1.0]]], [[-2.0]], classes=("no", "yes"))
    for background in (None, np.empty((0, 1))):
        complaint = NearestNeighbours().unsupported(Task(net, space, background=background))
        assert complaint is not None
        assert "pass some, such as the training table, as `background`" in complaint
    task = Task(net, space, background=np.array([[0.5], [0.7]]))
    with pytest.raises(apas.InputError, match="`background` must hold a row .* into the wanted class 'yes', got none"):
        NearestNeighbours().candidates(Search(task, 0, np.array([0.2]), "yes"))
    assert rows_of_class(Task(net, space), "no").shape == (0, 1)
