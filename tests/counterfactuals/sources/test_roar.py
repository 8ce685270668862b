"""`Roar`: descents against another Adam, and what it offers on random spaces."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from random_spaces import random_network, random_rows, random_space
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import apas
from apas import Feature, FeatureSpace, FeedForward, InputError, Roar, Unsupported
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.roar import PRICES, Columns, InSpace, Surrogate

KINDS = ("local", "gradient", "published")


def plain_task(**options) -> Task:
    """A network of two layers on numbers of 0 to 1."""
    rng = np.random.default_rng(3)
    space = FeatureSpace([Feature(f"f{i}", low=0, high=1) for i in range(4)])
    net = FeedForward([2 * rng.normal(size=(4, 6)), rng.normal(size=(6, 1))], [rng.normal(size=6), [-1.0]])
    return Task(net, space, background=rng.random((200, 4)), **options)


def refused(task: Task, count: int) -> np.ndarray:
    rows = np.random.default_rng(1).random((500, len(task.space)))
    return rows[~task.valid(rows, 1)][:count]


@pytest.mark.parametrize("ball", ["linf", "l1"])
def test_descent_is_adam_on_the_worst_loss(ball: str) -> None:
    torch = pytest.importorskip("torch")
    task = plain_task()
    place = Columns(Search(task, 0, np.array([0.2, 0.7, 0.4, 0.6]), 1))
    line, prices = Surrogate(np.array([2.5, -1.0, 1.5, 0.4]), -1.7), PRICES[[5, 9, 24]]
    found = Roar(ball=ball)._descend(place, line, 0.2, prices)
    slopes, start = torch.tensor(line.slopes), torch.tensor(place.start)
    for row, price in zip(found, prices, strict=True):
        x = start.clone().requires_grad_(True)
        adam, last = torch.optim.Adam([x]), float("inf")
        while True:
            size = x.abs().sum() + 1 if ball == "linf" else torch.cat([x.abs(), torch.ones(1)]).max()
            worst = slopes @ x + line.intercept - 0.2 * size
            loss = torch.nn.functional.softplus(-worst) + price * (x - start).abs().sum()
            if abs(last - loss.item()) < 1e-4:
                break
            last = loss.item()
            adam.zero_grad()
            loss.backward()
            adam.step()
        assert row == pytest.approx(x.detach().numpy(), abs=1e-6)
    assert np.abs(found[0] - place.start).max() > 0.3  # it went somewhere


@pytest.mark.parametrize("surrogate", KINDS)
def test_first_candidate_is_the_row_of_the_last_valid_price(surrogate: str) -> None:
    task = plain_task()
    source = Roar(surrogate=surrogate, samples=3000)
    for i, row in enumerate(refused(task, 3)):
        search = Search(task, i, row, 1)
        place = InSpace(search)
        choosing, last = source._lines(search, place)
        assert (choosing is last) == (surrogate != "published")
        valid = [search.is_valid(p) for p in place.numbers(source._descend(place, choosing, 0.1, PRICES))]
        price = next((p for p in range(24) if valid[p] and not valid[p + 1]), 24)
        expected = place.numbers(source._descend(place, last, 0.1, PRICES[[price]]))[0]
        first = next(source.candidates(search), None)
        if search.is_valid(expected):
            assert first is not None
            assert first.point == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seeds", [4, pytest.param(8, marks=pytest.mark.validity)])
@pytest.mark.parametrize("surrogate", KINDS)
def test_offers_on_random_spaces(surrogate: str, seeds: int) -> None:
    offered = rows = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        space = random_space(rng, int(rng.integers(2, 7)))
        net = random_network(rng, space.coding.n_columns, int(rng.choice([1, 3])))
        background = random_rows(rng, space, 60, allowed=bool(rng.random() < 0.5))
        task = Task(space.bind(net), space, ("l1", "linf")[seed % 2], background, entropy=seed)
        source = Roar(surrogate=surrogate, samples=400, ball=str(rng.choice(["linf", "l1"])))
        assert source.unsupported(task) is None
        for i, row in enumerate(random_rows(rng, space, 2)):
            target = task.model.classes[int(rng.integers(len(task.model.classes)))]
            search = Search(task, i, row, target, (frozenset({0}),) if i else ())
            if search.is_valid(row):
                continue
            points = np.array([c.point for c in source.candidates(search)]).reshape(-1, len(space))
            rows, offered = rows + 1, offered + len(points)
            assert len({p.tobytes() for p in points}) == len(points)
            assert space.allowed(points, np.broadcast_to(row, points.shape)).all()
            assert all(search.is_valid(p) and (p != row).any() and search.is_different(p) for p in points)
            costs = [search.cost(p) for p in points[1:]]  # the first is that of the chosen price
            assert costs == sorted(costs)
    assert rows >= 3 * seeds / 4
    assert offered >= rows  # else little would have been tested


def test_numbers_do_not_depend_on_workers_and_other_rows() -> None:
    task = plain_task()
    rows = refused(task, 6)
    options = {"space": task.space, "background": task.background, "source": Roar(samples=1000), "rng": 5}
    alone = apas.generate(task.model, rows, 0.02, **options)
    assert alone.found.any()
    shared = apas.generate(task.model, rows, 0.02, n_jobs=2, **options)
    np.testing.assert_array_equal(alone.numbers, shared.numbers)
    again = apas.generate(task.model, rows[:1], 0.02, **options)
    np.testing.assert_array_equal(alone.numbers[:1], again.numbers)
    other = apas.generate(task.model, rows, 0.02, **{**options, "rng": 6})
    assert (alone.numbers != other.numbers).any()


def test_it_keeps_to_the_deadline() -> None:
    task = plain_task(deadline=time.monotonic() - 1)
    search = Search(task, 0, refused(task, 1)[0], 1)
    assert list(Roar(samples=500).candidates(search)) == []  # no descent has left the row


def test_alias_and_protocol() -> None:
    task = plain_task()
    assert isinstance(Roar(), CandidateSource)
    assert Roar().ordered
    found = apas.generate(
        task.model, refused(task, 3), 0.05, space=task.space, background=task.background, source="roar", rng=0
    )
    assert found.found.all()
    assert found.certificates.certified.all()


def test_larger_radii_and_lower_prices_follow_until_a_row_survives() -> None:
    task = plain_task()
    found = apas.generate(
        task.model, refused(task, 5), 0.1, space=task.space, background=task.background, source="roar", rng=0
    )
    assert found.found.sum() >= 4
    assert max(item.candidates for item in found) > 1


def test_pipelines_with_levels() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(3000, 800, 300), "home": rng.choice(["own", "rent", "free"], 300)})
    y = (table["income"] + 900 * (table["home"] == "own") > 3300).astype(int)
    encoder = make_column_transformer((StandardScaler(), ["income"]), (OneHotEncoder(), ["home"]))
    model = make_pipeline(encoder, LogisticRegression()).fit(table, y)
    space = FeatureSpace.from_frame(table, increase=["income"])
    rejected = table[model.predict(table) == 0].iloc[:2]
    for surrogate in KINDS:
        source = Roar(surrogate=surrogate, samples=2000)
        found = apas.generate(model, rejected, 0.01, space=space, background=table, source=source, rng=0)
        assert found.found.all()
        assert (found.points["income"] >= rejected["income"].to_numpy()).all()
        assert (model.predict(found.points) == 1).all()


def test_nothing_found_is_said() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1), Feature("b", low=0, high=1, mutable=False)])
    never = FeedForward([[[0.1], [0.1]]], [[-50.0]], feature_names=space.names)
    held = FeedForward([[[0.0], [4.0]]], [[-2.0]], feature_names=space.names)
    known = np.random.default_rng(0).random((50, 2))
    for net, reason in ((never, "all 200 neighbours are of one class"), (held, "at no price and radius")):
        source = Roar(samples=200)
        found = apas.generate(net, [[0.2, 0.2]], 0.01, space=space, background=known, source=source, rng=0)
        assert found[0].status is apas.Status.EXHAUSTED
        assert reason in found[0].reason
    search = Search(Task(never, space, background=known), 0, np.array([0.2, 0.2]), 1)
    assert Roar(samples=200).recourse(search).tolist() == [0.2, 0.2]


class Silent:
    """A model of a line without derivatives."""

    classes, n_features, parameters = (0, 1), 1, FeedForward([[[1.0]]], [[0.0]]).parameters

    def margin(self, X, target):
        return (X[:, 0] - 0.5) * (1 if target == 1 else -1)

    def shifted_margins(self, X, target, directions, delta):
        raise NotImplementedError


def test_what_is_missing_is_named() -> None:
    space = FeatureSpace([Feature("a", low=0, high=1)])
    task = Task(Silent(), space)
    assert "pass some, such as the training table" in Roar().unsupported(task)
    assert "needs a model that knows its derivatives" in Roar(surrogate="gradient").unsupported(task)
    with pytest.raises(Unsupported, match="`background`"):
        Roar().recourse(Search(task, 0, np.array([0.2]), 1))
    known = Task(Silent(), space, background=np.random.default_rng(0).random((40, 1)))
    search = Search(known, 0, np.array([0.2]), 1)
    assert search.is_valid(next(Roar(samples=500).candidates(search)).point)  # classes are all it asks for


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"surrogate": "lime"}, '`surrogate` of Roar must be "local", "gradient" or "published", got \'lime\'.'),
        ({"ball": "l2"}, '`ball` of Roar must be "linf" or "l1", got \'l2\'.'),
        ({"radius": -0.1}, "`radius` of Roar must be a number of at least 0, got -0.1."),
        ({"radius": np.nan}, "`radius` of Roar must be a number of at least 0, got nan."),
        ({"radius": True}, "`radius` of Roar must be a number of at least 0, got True."),
        ({"samples": 1}, "`samples` of Roar must be an integer of at least 2, got 1."),
    ],
)
def test_bad_settings(options: dict, text: str) -> None:
    with pytest.raises(InputError) as error:
        Roar(**options)
    assert str(error.value) == text
