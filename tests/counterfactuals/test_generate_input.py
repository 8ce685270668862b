"""Bad input to `generate`: one sentence each; and what its results look like."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

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
        ({"space": None}, "`space` or `background` must be given"),
        ({"space": "space.toml"}, "`space` must be an apas.FeatureSpace, got str"),
        ({"space": FeatureSpace([Feature("income")])}, "`space` must match the model, which takes 2 columns"),
        ({"space": FeatureSpace([Feature("income"), Feature("debt")])}, "must match|lacks"),
        ({"source": "magic"}, "`source` must be one of 'milp', 'neighbours'"),
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
    with pytest.raises(Unsupported, match="the same models to search and to certify"):
        generate(shifts=apas.ObservedShifts([NET]), delta=1)


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
    assert repr(found).startswith("<Counterfactuals: 4 rows: ")
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
