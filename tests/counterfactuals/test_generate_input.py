"""Bad input to `generate`: one sentence each; and what its results look like."""

from __future__ import annotations

import json
import pickle
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import Counterfactuals, Feature, FeatureSpace, FeedForward, InputError, Unsupported

NET = FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
SPACE = FeatureSpace([Feature("income", "integer", low=0, high=5), Feature("savings", low=0, high=5)])
ROWS = pd.DataFrame({"income": [0, 0], "savings": [0.25, 0.5]}, index=["A", "B"])


def generate(X=ROWS, delta=0.05, **options):
    return apas.generate(NET, X, delta, **{"space": SPACE, "rng": 0, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"X": [[3.0, 3.0]], "target": 1}, "the model already gives row 0 class 1"),
        ({"X": [[0.0, 0.0]], "target": 0}, "the model already gives row 0 class 0"),
        ({"target": 7}, "`target` must be"),
        ({"X": [[3.0, 3.0], [0.0, 0.0], [0.0, 0.5]]}, "`target` must be the wanted class, since the model gives 2 of the rows class 0 and 1 of the rows class 1"),
        ({"space": None}, "`space` or `background` must be given"),
        ({"space": "space.toml"}, "`space` must be an apas.FeatureSpace, got str"),
        ({"space": FeatureSpace([Feature("income")])}, "`space` must match the model, which takes 2 columns"),
        ({"space": FeatureSpace([Feature("income"), Feature("debt")])}, "must match|lacks"),
        ({"source": "magic"}, "`source` must be one of 'robust', 'milp', 'neighbours'"),
        ({"source": apas.MilpSource}, "the class MilpSource itself"),
        ({"distance": "l7"}, '`distance` must be "l1" or "linf", got \'l7\''),
        ({"k": 0}, "`k` of generate must be an integer of at least 1, got 0"),
        ({"max_candidates": 0}, "`max_candidates` of generate must be an integer of at least 1"),
        ({"time_limit": 0}, "`time_limit` must be a positive number of seconds or None, got 0"),
        ({"source": apas.Given(ROWS.head(1))}, "1|2"),
        ({"n_jobs": 0}, "`n_jobs` must be"),
        ({"delta": -1}, "`delta` must be positive"),
        ({"source": "neighbours", "background": [[0.0, 0.0]]}, "`background` must hold a row .* wanted class 1, got none"),
        ({"X": ROWS.rename(columns={"income": "wage"})}, "lacks 'income'"),
        ({"X": pd.concat([ROWS, ROWS[["income"]]], axis=1)}, "`X` must have each column once, got 'income' more than"),
        ({"X": ROWS.assign(income=pd.Timestamp("2020-01-01"))}, "`X` must hold finite numbers in column 'income'"),
        ({"space": None, "background": []}, "`background` must have rows to read ranges and levels from, got none"),
        ({"space": None, "background": ROWS.assign(income=[None, 1])}, "`background` must hold finite numbers in column 'income', .* but row 0 is nan"),
        ({"space": None, "background": pd.concat([ROWS, ROWS], axis=1)}, "`background` must have each column once"),
        ({"space": None, "background": ROWS.drop(columns="income")}, "`background` must have .*, but it lacks 'income'"),
        ({"space": None, "background": ROWS.assign(income=pd.Timestamp("2020-01-01"))}, "must be texts, numbers or boo"),
        ({"space": None, "background": ROWS.assign(income="much"), "X": ROWS}, "`X` has 0 in row 0|must match"),
        ({"X": ROWS.assign(savings="much")}, "column 'savings', which is continuous, but row 0 is 'much'"),
    ],
)  # fmt: skip
def test_one_sentence(options, message):
    with pytest.raises(InputError, match=message) as caught:
        generate(**options)
    assert "\n" not in str(caught.value)


def test_unknown_categories():
    net = FeedForward([[[1.0], [2.0]]], [[-1.5]])
    space = FeatureSpace([Feature("housing", "categorical", values=("rent", "own"))])
    with pytest.raises(InputError, match="has 'boat' in row 1 of column 'housing', whose levels are 'rent', 'own'"):
        apas.generate(net, pd.DataFrame({"housing": ["rent", "boat"]}), 0.01, space=space)
    with pytest.raises(InputError, match="`background` has 'boat'"):
        apas.generate(
            net, pd.DataFrame({"housing": ["rent"]}), 0.01, space=space, background=pd.DataFrame({"housing": ["boat"]})
        )


def test_what_cannot_work_is_refused():
    with pytest.raises(Unsupported, match="Attack can only refute"):
        generate(method="attack")
    with pytest.raises(Unsupported, match="NearestNeighbours looks among known rows"):
        generate(source="neighbours")
    with pytest.raises(InputError, match="must number more than 1379 .* got 1: that many certify"):
        generate(shifts=apas.ObservedShifts([NET]), delta=1)
    # its looks and its tests would be on the same draws
    with pytest.raises(
        Unsupported, match="only methods that plan their draws can take, but Cascade claims 'at least 99.5 % of the"
    ):
        generate(method=apas.Cascade(apas.Sampling()))


def test_no_rows():
    found = generate(ROWS.head(0))
    assert len(found) == 0
    assert found.summary() == "No rows, no counterfactuals."
    assert found.to_frame().empty


def test_what_a_result_shows(tmp_path):
    found = generate(k=2)
    frame = found.to_frame()
    assert frame.index.tolist() == ["A", "A", "B", "B"]
    assert found.changes().tolist()[0] == frame["changes"].iloc[0]
    assert "income 0 -> " in " ".join(found.changes())
    assert "<table>" in found._repr_html_()
    assert repr(found).startswith("<Counterfactuals: 4 counterfactuals of 2 rows from class 0 to class 1: ")
    content = json.loads(json.dumps(found.to_dict()))
    assert content["format"] == "apas-counterfactuals"
    assert content["counterfactuals"][0]["values"] == [float(v) for v in found.points.iloc[0]]
    assert FeatureSpace.from_dict(content["space"]) == SPACE
    assert found.inputs.loc["B", "savings"].tolist() == [0.5, 0.5]
    assert found.points["income"].dtype.kind == "i"
    assert len(found[found.rank == 0]) == 2
    assert found[1:3].row.tolist() == [0, 1]
    assert found.certificates.inputs.equals(found.inputs[found.found])


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    axes = generate(k=2).plot()
    axes.figure.savefig(tmp_path / "changes.png")
    assert (tmp_path / "changes.png").stat().st_size > 5000
    assert "income" in [label.get_text() for label in axes.get_xticklabels()]


def test_counterfactuals_of_other_tools():
    points = pd.DataFrame({"savings": [2.0, np.nan], "income": [1.0, np.nan]}, index=["A", "B"])
    taken = Counterfactuals.from_frame(NET, ROWS, points, space=SPACE)
    assert taken.found.tolist() == [True, False]
    assert len(taken.certificates) == 0
    assert taken.changes().tolist() == ["income 0 -> 1, savings 0.25 -> 2", "(none found)"]
    with pytest.raises(InputError, match="a row for each of the 2 inputs, got 1"):
        Counterfactuals.from_frame(NET, ROWS, points.head(1), space=SPACE)
    free = Counterfactuals.from_frame(NET, ROWS, points)
    assert free.space.names == ("income", "savings")


TABLE = pd.DataFrame({"income": [0, 5, 3], "savings": [0.0, 5.0, 2.5]})


@pytest.mark.parametrize("table", [TABLE, TABLE.astype(object), TABLE.assign(paid="yes"), TABLE.to_numpy(dtype=object)])
def test_what_is_read_off_the_background_does_not_depend_on_the_rows(table):
    rows = pd.DataFrame({"income": [0, 0], "savings": [0.25, -7.0]})
    found = apas.generate(NET, rows, 0.05, background=table, rng=0)
    assert [(f.kind, f.low, f.high) for f in found.space] == [("integer", 0.0, 5.0), ("continuous", 0.0, 5.0)]
    alone = apas.generate(NET, rows.head(1), 0.05, background=table, rng=0)
    assert alone.space == found.space
    assert alone[0] == found[0]


def test_a_background_of_texts_without_names():
    net = FeedForward([[[1.0], [0.0], [2.0]]], [[-2.5]])
    table = np.array([[0.0, "own"], [2.0, "rent"]], dtype=object)
    found = apas.generate(
        net, [[0.5, "own"]], 0.01, space=FeatureSpace.from_frame(pd.DataFrame(table), codes={1: "onehot"}), rng=0
    )
    assert found.points.tolist()[0][1] == "rent"
    taken = Counterfactuals.from_frame(
        FeedForward([[[1.0], [1.0]]], [[-1.0]]), [[0.0, 0.5]], np.array([[0.0, 3.0]], dtype=object)
    )
    assert taken.space["x1"].high == 3.0


def test_columns_are_called_what_they_were():
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    rows = pd.DataFrame([[0.0, 0.25]])
    found = apas.generate(net, rows, 0.05, background=pd.DataFrame([[0.0, 0.0], [2.0, 2.0]]), rng=0)
    assert found.points.columns.tolist() == [0, 1]
    assert apas.certify(net, found.points, 0.05, target=1, rng=1).certified.all()


def test_values_of_certificates_are_in_the_order_of_their_names():
    space = FeatureSpace([SPACE["savings"], SPACE["income"]])
    named = FeedForward([[[1.0], [10.0]]], [[-1.0]], feature_names=("income", "savings"))
    pipeline = make_pipeline(StandardScaler(with_mean=False, with_std=False), LogisticRegression())
    table = pd.DataFrame({"income": [0, 5, 1, 4], "savings": [0.0, 5.0, 1.0, 4.0]})
    pipeline.fit(table, [0, 1, 0, 1])
    found = apas.generate(pipeline, table.head(1), 0.01, space=space, rng=0)
    content = found.certificates.to_dict()
    point = dict(zip(content["feature_names"], content["certificates"][0]["values"], strict=True))
    assert point == found.points.iloc[0].to_dict()
    with pytest.raises(InputError, match="in the order of the model's columns"):
        apas.generate(named, table.head(1), 0.01, space=space, rng=0)


@pytest.mark.parametrize("points", [None, 3, "points.csv", [1.0, 2.0], [[1.0], [1.0, 2.0]]])
def test_points_of_other_tools_that_are_no_table(points):
    with pytest.raises(InputError, match="`points` must") as caught:
        Counterfactuals.from_frame(NET, ROWS, points)
    assert "\n" not in str(caught.value)


def test_points_of_other_tools_with_the_outcome_besides():
    points = pd.DataFrame({"outcome": ["yes", "no"], "savings": [2.0, np.nan], "income": [1.0, np.nan]})
    points.loc[1, "outcome"] = None
    taken = Counterfactuals.from_frame(NET, ROWS, points, space=SPACE)
    assert taken.found.tolist() == [True, False]
    kept = generate(source=apas.Given(points, repair=False))
    assert kept.found.tolist() == [True, False]
    with pytest.raises(InputError, match="row 1 is 'many'"):
        Counterfactuals.from_frame(NET, ROWS, points.assign(income=[None, "many"], savings=[None, 1.0]), space=SPACE)


def test_a_time_limit_may_be_any_number():
    assert generate(time_limit=np.int64(60)).found.all()


class Late:
    """A source that gives up when time is up."""

    ordered = True

    def unsupported(self, task):
        return None

    def candidates(self, search):
        while time.monotonic() <= search.task.deadline:
            pass
        yield from ()


def test_what_was_given_up_for_lack_of_time_is_not_exhausted():
    ended = generate(ROWS[:1], source=Late(), time_limit=0.2)[0]
    assert ended.status is apas.Status.BUDGET
    assert ended.reason.startswith("time is up")


def test_a_summary_tells_rows_from_counterfactuals():
    assert generate(k=2).summary().startswith("4 counterfactuals of 2 rows from class 0 to class 1: ")
    assert generate().summary().startswith("2 rows from class 0 to class 1: ")


def test_the_plot_shows_no_direction_where_there_is_none():
    pytest.importorskip("matplotlib")
    net = FeedForward([[[1.0], [0.0], [3.0], [2.0]]], [[-2.5]])
    space = FeatureSpace([Feature("pay", low=0, high=1), Feature("home", "categorical", values=("a", "b", "c"))])
    found = apas.generate(net, pd.DataFrame({"pay": [0.1, 0.1], "home": ["a", "a"]}, index=["A", "B"]), 0.01,
                          space=space, k=2, rng=0)  # fmt: skip
    axes = found.plot()
    shown = axes.images[0].get_array()
    moved = found.numbers[:, 1] != found.origins[:, 1]
    assert moved[found.found].all()
    column = [label.get_text() for label in axes.get_xticklabels()].index("home")
    assert np.ma.getmaskarray(np.ma.masked_invalid(shown))[:, column].tolist() == (moved & found.found).tolist()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "A, rank 0"
    assert [name.endswith("(none found)") for name in names] == (~found.found).tolist()


def test_the_direction_is_named():
    assert generate().summary().startswith("2 rows from class 0 to class 1: 2 FOUND; ")
    assert generate([[3.0, 3.0]]).summary().startswith("1 row from class 1 to class 0: 1 FOUND; ")
    # both ways at once, if that is asked for
    both = generate([[3.0, 3.0], [0.0, 0.0], [0.0, 0.5]], target=[0, 1, 1])
    assert both.summary().startswith("3 rows (1 from class 1 to class 0, 2 from class 0 to class 1): 3 FOUND; ")
    # what another tool has found is taken both ways, too
    taken = Counterfactuals.from_frame(NET, [[3.0, 3.0], [0.0, 0.0]], [[0.0, 0.0], [3.0, 3.0]], space=SPACE)
    assert taken.summary().startswith("2 rows (1 from class 1 to class 0, 1 from class 0 to class 1): 2 FOUND; ")
    net = FeedForward([[[1.0, 0.0, -1.0]]], [[0.0, 0.1, 0.0]], output="softmax", classes=("low", "middle", "high"))
    wide = FeatureSpace([Feature("x", low=-1, high=1)])
    found = apas.generate(net, [[0.5], [0.0]], 0.01, space=wide, target="high", rng=0)
    words = "2 rows (1 from class low to class high, 1 from class middle to class high): 2 FOUND; "
    assert found.summary().startswith(words)


DUSTY = FeatureSpace(
    [Feature("income", low=0, high=9), Feature("savings", low=0, high=5), Feature("age", mutable=False)]
)
OF_AGE = FeedForward([[[1.0], [1.0], [0.0]]], [[-1.0]], feature_names=DUSTY.names)
BEFORE = np.array([[0.1, 0.3, 40.1]])
DUST = np.array([[3.0, np.nextafter(0.3, 1), np.nextafter(40.1, 0)]])


def test_a_change_of_the_last_place_is_none():
    """Neither where another tool makes it, nor where an immutable feature was scaled there and back."""
    found = apas.generate(OF_AGE, BEFORE, 0.05, space=DUSTY, source=apas.Given(DUST), method="interval")
    assert found.points.tolist() == [[3.0, 0.3, 40.1]]  # the very numbers that came in, and that was certified
    assert found.certificates.points.tolist() == found.points.tolist()
    again = apas.certify(OF_AGE, found.points, 0.05, target=1, method="interval")
    assert again[0].evidence == found.certificates[0].evidence
    assert found.changes().tolist() == ["income 0.1 -> 3"]
    taken = Counterfactuals.from_frame(OF_AGE, BEFORE, DUST, space=DUSTY)
    assert taken.points.tolist() == DUST.tolist()  # what others offer is taken as it is
    assert taken.changes().tolist() == ["income 0.1 -> 3"]
    assert apas.metrics.violations(DUSTY, BEFORE, DUST).tolist() == [0.0]
    told = apas.evaluate(taken, metrics=("l0",)).rows["l0"].tolist()
    assert told == [0.333]
    # a larger one is a change, and forbidden where nothing may change
    assert not DUSTY.allowed(np.array([[3.0, 0.3, 40.1 + 1e-12]]), BEFORE).all()
    more = np.array([[3.0, 0.3 + 1e-12, 40.1]])
    assert "savings" in Counterfactuals.from_frame(OF_AGE, BEFORE, more, space=DUSTY).changes().iloc[0]


def test_scaling_there_and_back_is_no_change():
    """Whatever the range: rounding is that of the largest number that takes part."""
    rng = np.random.default_rng(0)
    lows, widths = rng.normal(size=500) * 10.0 ** rng.integers(-6, 7, 500), 10.0 ** rng.integers(-6, 7, 500)
    space = FeatureSpace(
        [Feature(f"x{i}", low=a, high=a + b) for i, (a, b) in enumerate(zip(lows, widths, strict=True))]
    )
    part = rng.random((200, 500))
    start = (1 - part) * lows + part * (lows + widths)
    middle, spread, scale = lows + widths / 3, widths / 7, 1 / widths
    ways = (  # as Coding, StandardScaler and MinMaxScaler do it
        lows + widths * ((start - lows) / widths),
        (start - middle) / spread * spread + middle,
        ((start * scale - lows * scale) + lows * scale) / scale,
    )
    for back in ways:
        assert (back != start).sum() > 100
        assert (space.settled(back, start) == start).all()
        assert (space.snapped(back, start) == start).all()
    moved = start + 1e-12 * np.maximum(np.abs(lows) + widths, np.abs(start))
    assert (space.settled(moved, start) == moved).all()


def test_changes_are_printed_in_full():
    names = [f"a_feature_with_a_long_name_{i}" for i in range(6)]
    net = FeedForward([[[1.0]] * 6], [[-3.0]], feature_names=names)
    points = pd.DataFrame([np.linspace(1.0, 2.0, 6)], columns=names, index=["A-1"])
    found = Counterfactuals.from_frame(net, points * 0, points, target=1)
    (text,) = found.changes()
    assert len(text) > 200
    for shown in (str(found.changes()), found.changes().to_string(), repr(found.changes().head())):
        assert text in shown
    assert pickle.loads(pickle.dumps(found.changes())).equals(found.changes())
