"""Menus: every proof is compared with all allowed rows of small spaces, every offer with what it may change."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from enumerable_problems import allowed_numbers, random_problem
from sklearn.ensemble import GradientBoostingClassifier

import apas
from apas import InputError, MenuStatus
from apas.models.base import predicted_classes

NAMES = ("income", "debt")


def linear(weights=((1.0,), (-0.2,))) -> apas.FeedForward:
    return apas.FeedForward([list(map(list, weights))], [[-1.0]], feature_names=NAMES)


def space(**more) -> apas.FeatureSpace:
    return apas.FeatureSpace([apas.Feature(n, low=0, high=2, **more) for n in NAMES])


def reachable(task, x, target, some) -> bool:
    """Whether some allowed row that differs in these features at most has the class; all of them are looked at."""
    each = [allowed_numbers(f, v) if f.name in some else [v] for f, v in zip(task.space, x, strict=True)]
    return bool(task.valid(np.array(list(itertools.product(*each))), target).any())


def test_proofs_and_offers_agree_with_all_allowed_rows_of_200_small_spaces():
    spaces = proved = offered = left_open = 0
    for seed in itertools.count():
        task, x = random_problem(seed, "l1")
        given = predicted_classes(task.model, task.encoded(x[None]))[0][0]
        others = [c for c in task.model.classes if c != given]
        if not any(f.mutable for f in task.space):
            continue
        spaces += 1
        target, table = others[seed % len(others)], task.space.table(x[None])
        found = apas.menu(task.model, table, 0, target=target, space=task.space)
        listed = {item.features: item for item in found}
        mutable = [f.name for f in task.space if f.mutable]
        for some in [s for n in (1, 2) for s in itertools.combinations(mutable, n)]:
            truth = reachable(task, x, target, some)
            if some not in listed:  # a part of it does as well
                assert len(some) == 2
                assert any(listed[part].status is MenuStatus.OFFER for part in itertools.combinations(some, 1))
                continue
            item = listed[some]
            if item.status is MenuStatus.UNREACHABLE:
                assert not truth, f"space {seed}: {item.sentence()}"
                proved += 1
            elif item.status is MenuStatus.OFFER:
                offered += 1
                assert truth
                assert {n for n, a, b in zip(task.space.names, item.numbers, x, strict=True) if a != b} <= set(some)
                assert task.valid(item.numbers[None], target).all()
            else:
                left_open += 1
        if spaces == 200:
            break
    print(spaces, proved, offered, left_open)
    assert proved > 150
    assert offered > 80
    assert left_open <= 4  # rows on the boundary itself, which neither side can have


def trees(seed: int):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"income": rng.integers(0, 9, 120), "years": rng.integers(0, 6, 120), "debt": rng.integers(0, 7, 120)}
    )
    wanted = frame.income + 2 * (frame.years > 2) - frame.debt + rng.normal(0, 0.5, 120) > 2
    return GradientBoostingClassifier(n_estimators=5, max_depth=2, random_state=seed).fit(
        frame, wanted.astype(int)
    ), frame


def test_leaf_cells_of_trees_prove_what_all_rows_say():
    proved = 0
    for seed in range(6):
        model, frame = trees(seed)
        table = apas.FeatureSpace.from_frame(frame, increase=["income"])
        X = frame[model.predict(frame) == 0].iloc[:3]
        refits = apas.ObservedShifts([model])
        found = apas.menu(model, X, None, target=1, space=table, shifts=refits, method="exact", background=frame)
        for item in found:
            own = X.iloc[item.row]
            each = [
                np.arange(own[n] if n == "income" else frame[n].min(), frame[n].max() + 1)
                if n in item.features
                else [own[n]]
                for n in frame
            ]
            rows = pd.DataFrame(list(itertools.product(*each)), columns=list(frame))
            truth = bool((model.predict(rows) == 1).any())
            if item.status is MenuStatus.UNREACHABLE:
                proved += 1
                assert not truth
            elif item.status is MenuStatus.OFFER:
                assert truth
    assert proved >= 10


def test_what_cannot_be_made_robust_fails_everywhere_on_fresh_draws():
    # debt alone gets the margin up to 0.05 at most, and shifts by 0.1 take more than that away often enough
    net, X = linear(((1.0,), (-0.1,))), [[1.05, 1.0]]
    net = apas.FeedForward([[[1.0], [-0.1]]], [[-1.0]], feature_names=NAMES)
    found = apas.menu(net, X, 0.1, space=space(), rng=0)
    assert [(i.features, i.status.name) for i in found] == [(("income",), "OFFER"), (("debt",), "FRAGILE")]
    item = found[1]
    assert "so that with confidence 0.999 at least 0.505 % do, and none is kept by 99.5 %" in item.reason
    assert item.sentence().startswith("Cannot be made robust by changing debt alone: ")
    rows = np.column_stack([np.full(41, 1.05), np.linspace(0, 2, 41)])
    drawn = np.random.default_rng(3).uniform(-1, 1, (20_000, 3))
    assert (net.shifted_margins(rows, 1, drawn, 0.1) >= 0).mean(axis=0).max() < 0.995
    proved = apas.menu(net, X, 0.1, space=space(), method="interval", rng=0)[1]
    assert proved.status is MenuStatus.FRAGILE
    assert "and one is enough" in proved.reason


def test_an_offer_is_not_called_fragile_where_one_exists():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=(2, 1))
        net = apas.FeedForward([weights], [[float(rng.normal())]], feature_names=NAMES)
        x = rng.uniform(0, 2, 2)
        target = int(net.margin(x[None], 1)[0] < 0)
        found = apas.menu(net, [x], 0.05, target=target, space=space(), rng=seed)
        wide = np.linspace(0, 2, 201)
        drawn = np.random.default_rng(1000 + seed).uniform(-1, 1, (4000, 3))
        for item in found:
            rows = np.tile(x, (201, 1))
            if len(item.features) == 2:
                rows = np.array(list(itertools.product(wide[::10], wide[::10])))
            else:
                rows[:, NAMES.index(item.features[0])] = wide
            kept = (net.shifted_margins(rows, target, drawn, 0.05) >= 0).mean(axis=0).max()
            if item.status in (MenuStatus.FRAGILE, MenuStatus.UNREACHABLE):
                assert kept < 0.999
            elif item.status is MenuStatus.OFFER:
                assert kept > 0.99


def test_results_are_tables_pages_files_and_offers(tmp_path):
    frame = pd.DataFrame([[0.5, 0.6], [0.9, 0.1]], columns=NAMES, index=["A-17", "<b>A-18</b>"])
    found = apas.menu(linear(), frame, 0.02, space=space(), rng=0, beyond=True, tolerance=0.01)
    assert found.to_frame().index.tolist() == ["A-17", "A-17", "<b>A-18</b>", "<b>A-18</b>"]
    assert found.to_frame()["features"].tolist() == ["income", "debt", "income", "debt"]
    assert (
        "2 rows, 4 sets of features: 2 OFFER, 2 UNREACHABLE; each offer by itself: at least 99.5 %" in found.summary()
    )
    page = found.to_html()
    assert "<b>A-18" not in page
    assert "&lt;b&gt;A-18" in page
    assert found.to_dict()["items"][1]["status"] == "UNREACHABLE"
    assert len(found[:2]) == 2
    apas.save_certificates(found.offers, tmp_path / "menu.json")
    assert apas.verify(tmp_path / "menu.json", linear()).ok
    assert found.offers.certificates[0].region.spans[0].side == "at least"
    assert found.offers.rank.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"features": "income"}, "`features` must list features that may change"),
        ({"features": ["wealth"]}, "'wealth'"),
        ({"features": 3}, "got 3"),
        ({"size": 0}, "`size`"),
        ({"time_limit": "1"}, "`time_limit` must be a positive number of seconds or None, got '1'"),
        ({"time_limit": 0}, "`time_limit` must be"),
    ],
)
def test_what_makes_no_sense_is_refused(more, error):
    with pytest.raises(InputError, match=error):
        apas.menu(linear(), [[0.5, 0.6]], 0.02, space=space(), rng=0, **more)


def test_features_sizes_and_time_are_limited():
    found = apas.menu(linear(), [[0.5, 0.6]], 0.02, space=space(), rng=0, features=["debt"], size=1)
    assert [item.features for item in found] == [("debt",)]
    late = apas.menu(linear(), [[0.5, 0.6]], 0.02, space=space(), rng=0, time_limit=1e-9)
    assert {item.status for item in late} == {MenuStatus.OPEN, MenuStatus.UNREACHABLE}
    assert "time was up" in late.to_frame()["reason"].tolist()
    assert (
        apas.menu(linear(), np.empty((0, 2)), 0.02, space=space(), target=1).summary()
        == "No sets of features, no menu."
    )
    # there are rows, but nothing that may change
    still = apas.menu(linear(), [[0.5, 0.6]], 0.02, space=space(mutable=False), rng=0)
    assert (len(still), still.summary()) == (0, "No sets of features, no menu.")


def test_a_set_that_time_did_not_reach_points_to_a_larger_one_whose_offer_changes_no_more(monkeypatch):
    found = apas.menu(linear(), [[0.5, 0.6]], 0.02, space=space(), rng=0)
    assert found[0].features == ("income",)
    assert "changes no more" not in "".join(item.reason for item in found)
    clock = itertools.count(0, 600)
    monkeypatch.setattr("apas.counterfactuals.menu.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    hurried = apas.menu(linear(), [[0.5, 0.6]], 0.02, space=space(), rng=0, time_limit=1000)
    assert [(item.features, item.status.name) for item in hurried] == [
        (("income", "debt"), "OFFER"),
        (("debt",), "UNREACHABLE"),
        (("income",), "OPEN"),
    ]
    assert hurried[0].changes.startswith("income 0.5 -> ")
    assert hurried[2].reason == "time was up; the offer for income and debt changes no more"
    assert len(hurried.offers) == 1  # each offer has one test of its own


def test_a_page_has_every_line_however_long_the_menu():
    names = [f"x{i}" for i in range(8)]
    net = apas.FeedForward([[[1.0]] * 8], [[-20.0]], feature_names=names)
    wide = apas.FeatureSpace([apas.Feature(n, low=0, high=1) for n in names])
    found = apas.menu(net, [[0.1] * 8], 0.01, space=wide, rng=0)
    assert len(found) == 36
    assert found.to_html().count("<tr>") == 37
