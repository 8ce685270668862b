"""`measure_shift`: distances against plain arithmetic, what reports look like, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import apas
from apas.shifts.distance import ShiftReport, at_most, measure_shift

NORMS = [0.0, 1.0, 2.0, math.inf]


def shifted(net, move):
    """A copy of `net` whose flat parameters are moved by `move`."""
    values = net.parameters.values + move
    parts = [values[s].reshape(h) for s, h in zip(net.parameters.slices, net.parameters.shapes, strict=True)]
    return apas.FeedForward(parts[0::2], parts[1::2], activation="relu")


@pytest.fixture
def pair(small_network):
    move = np.random.default_rng(5).normal(size=len(small_network.parameters))
    move[[0, 7, 30]] = 0.0
    return small_network, shifted(small_network, move)


def test_overall_distances_are_the_textbook_ones(pair):
    old, new = pair
    moved = new.parameters.values - old.parameters.values
    report = measure_shift(old, new)
    assert report.overall.index.tolist() == NORMS
    assert report.overall.index.name == "p"
    assert report.overall.columns.tolist() == ["model 1"]
    expected = [np.linalg.norm(moved, ord) for ord in NORMS]
    np.testing.assert_allclose(report.overall["model 1"], expected, rtol=1e-14)
    assert report.overall.loc[0.0, "model 1"] == len(moved) - 3


def test_largest_change_is_the_least_float_not_below_it():
    rng = np.random.default_rng(8)
    for _ in range(200):
        a, b = (rng.normal(size=40) * 10.0 ** rng.integers(-12, 12, size=40) for _ in range(2))
        old, new = (apas.FeedForward([v[:, None]], [[0.0]]) for v in (a, b))
        delta, changes = float(measure_shift(old, new)), zip(a.tolist(), b.tolist(), strict=True)
        assert delta >= max(abs(Fraction(y) - Fraction(x)) for x, y in changes) > float(np.nextafter(delta, 0))
        assert apas.LinfShifts().contains(old.parameters, new.parameters, delta)


def test_the_box_of_that_size_contains_the_model(pair):
    old, new = pair
    delta = float(measure_shift(old, new))
    assert apas.LinfShifts().contains(old.parameters, new.parameters, delta)
    assert not apas.LinfShifts().contains(old.parameters, new.parameters, np.nextafter(delta, 0))
    # a number copied from the sentence still covers the change
    assert apas.LinfShifts().contains(old.parameters, new.parameters, float(at_most(delta)))


def test_rounding_goes_up():
    for value in np.random.default_rng(0).lognormal(sigma=20, size=500):
        assert value <= float(at_most(value)) <= value * 1.00001
    assert [at_most(v) for v in (0.0, 0.1, 12.0, 1e-300)] == ["0", "0.1", "12", "1e-300"]


def test_per_layer_is_tidy(pair):
    old, new = pair
    report = measure_shift(old, new, old)
    frame = report.per_layer
    assert frame.columns.tolist() == ["layer", "kind", "size", "p", "model 1", "model 2"]
    assert len(frame) == 4 * 4
    keys = [("layer0", "weight", 24), ("layer0", "bias", 6), ("layer1", "weight", 6), ("layer1", "bias", 1)]
    assert list(frame[["layer", "kind", "size"]].drop_duplicates().itertuples(index=False, name=None)) == keys
    assert (frame["model 2"] == 0).all()
    for tensor, name in enumerate(keys):
        part = np.abs(new.parameters.tensor(tensor) - old.parameters.tensor(tensor)).ravel()
        lines = frame[(frame["layer"] == name[0]) & (frame["kind"] == name[1])].set_index("p")["model 1"]
        np.testing.assert_allclose([lines[p] for p in NORMS], [np.linalg.norm(part, p) for p in NORMS], rtol=1e-14)
    largest = frame[frame["p"] == math.inf]["model 1"].max()
    assert largest == report.delta


def test_frame_holds_everything(pair):
    report = measure_shift(*pair)
    frame = report.to_frame()
    pd.testing.assert_frame_equal(frame.iloc[4:].reset_index(drop=True), report.per_layer)
    assert frame["layer"].head(4).tolist() == frame["kind"].head(4).tolist() == ["all"] * 4
    assert frame["size"].iloc[0] == len(pair[0].parameters)
    # frames are copies: changing one does not change the report
    overall = report.overall
    overall.iloc[:] = 0.0
    assert report.delta > 0


def test_tensors_of_one_layer_and_kind_count_together():
    class Twice:
        classes, n_features, margin, shifted_margins = (0, 1), 1, None, None

        def __init__(self, a, b):
            names, kinds, layers = ("out.first", "out.second"), ("weight", "weight"), ("out", "out")
            self.parameters = apas.Parameters.from_arrays([[a], [b]], names=names, kinds=kinds, layers=layers)

    report = measure_shift(Twice(0.0, 0.0), Twice(3.0, 4.0))
    assert report.per_layer["size"].tolist() == [2] * 4
    assert report.per_layer["model 1"].tolist() == [2.0, 7.0, 5.0, 4.0]


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, 17.0, np.float32(2), np.int64(1), math.inf])
def test_delta_is_the_distance_asked_for(pair, p):
    old, new = pair
    near = shifted(old, 1e-3)
    expected = max(np.linalg.norm(other.parameters.values - old.parameters.values, p) for other in (near, new))
    report = measure_shift(old, near, new, p=p)
    assert report.delta == float(report) == report.overall.loc[float(p)].max()
    assert report.delta == pytest.approx(expected, rel=1e-13)
    assert report.p == p
    assert set(NORMS) <= set(report.norms)


def test_nothing_under_or_overflows():
    for size in (1e-200, 1e200, 5e-324):
        old, new = apas.FeedForward([[[0.0], [0.0]]], [[0.0]]), apas.FeedForward([[[3 * size], [4 * size]]], [[0.0]])
        assert measure_shift(old, new, p=2).delta == pytest.approx(5 * size, rel=1e-15)
    far = measure_shift(apas.FeedForward([[[-1.7e308]]], [[0.0]]), apas.FeedForward([[[1.7e308]]], [[0.0]]))
    assert far.delta == math.inf
    assert json.loads(json.dumps(far.to_dict(), allow_nan=False))["delta"] == "inf"


def test_sentences(pair):
    old, new = pair
    near = shifted(old, 1e-3)
    one = measure_shift(old, near)
    assert str(one).startswith("Each of 37 parameters changes by at most 0.00100001; the largest change is a ")
    assert repr(one) == f"<ShiftReport: {one}>"
    many = measure_shift(old, near, new)
    assert str(many).startswith("Each of 37 parameters changes by at most ")
    assert " over 2 models; the largest change is a " in str(many)
    assert str(many).endswith(" in model 2.")
    assert str(measure_shift(old, new, p=0)) == (
        "The distance of 37 parameters (number of changed parameters) is at most 34."
    )
    assert "(sum of the changes)" in str(measure_shift(old, new, p=1))
    assert str(measure_shift(old, new, near, p=2)).endswith(" over 2 models; the farthest is model 1.")
    assert "(p = 1.5)" in str(measure_shift(old, new, p=1.5))
    assert str(measure_shift(old, old)) == "None of 37 parameters changes."


def test_html_is_a_table_with_the_sentence(pair):
    report = measure_shift(*pair)
    shown = report._repr_html_()
    assert f"<caption>{report.summary()}</caption>" in shown
    assert shown.count("<tr>") == 1 + 1 + 4


def test_json_and_equality(pair):
    old, new = pair
    report = measure_shift(old, new)
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (content["format"], content["p"], content["entropy"]) == ("apas-shift-report", "inf", None)
    assert content["delta"] == content["overall"]["inf"][0] == report.delta
    assert [entry["size"] for entry in content["per_layer"]] == [24, 6, 6, 1]
    assert set(content["per_layer"][0]["distance"]) == {"0", "1", "2", "inf"}
    assert report == measure_shift(old, new)
    assert report != measure_shift(old, new, p=2)
    assert isinstance(report, ShiftReport)


def test_published_networks(oracle):
    base, retrained = (apas.FeedForward(oracle[k]["weights"], oracle[k]["biases"]) for k in ("base", "retrained"))
    assert measure_shift(base, retrained).delta == pytest.approx(0.279838, abs=1e-6)


def test_estimators_are_read_and_not_changed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    old, new = (LogisticRegression().fit(X, X[:, 0] + 0.1 * k * X[:, 1] > 0) for k in (0, 1))
    before = old.coef_.copy(), new.coef_.copy()
    moved = max(np.abs(new.coef_ - old.coef_).max(), np.abs(new.intercept_ - old.intercept_).max())
    assert float(measure_shift(old, apas.as_model(new))) == moved
    assert (before[0] == old.coef_).all()
    assert (before[1] == new.coef_).all()


def test_other_differences_are_warned_of(pair):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = X[:, 0] > 0
    old, new = (make_pipeline(StandardScaler(), LogisticRegression()).fit(X[a:], y[a:]) for a in (0, 20))
    with pytest.warns(apas.GuaranteeWarning, match=r"`others\[0\]` of measure_shift .*\(preprocessing\)"):
        measure_shift(old, new)
    measure_shift(old, old)  # the same preprocessing: no warning
    with pytest.warns(apas.GuaranteeWarning, match=r"\(preprocessing\)"):
        measure_shift(old, new[-1])
    with pytest.warns(apas.GuaranteeWarning, match=r"\(output\)"):
        measure_shift(LogisticRegression().fit(X, y), LinearSVC().fit(X, y))
    net = pair[0]
    tanh = apas.FeedForward(net.weights, net.biases, activation="tanh")
    with pytest.warns(apas.GuaranteeWarning, match=r"`others\[1\]`.*\(activation\)"):
        measure_shift(net, net, tanh)
    names = [apas.FeedForward([[[1.0], [2.0]]], [[0.0]], feature_names=n) for n in (["a", "b"], ["b", "a"], None)]
    with pytest.warns(apas.GuaranteeWarning, match=r"\(feature names\)"):
        measure_shift(names[0], names[1])
    measure_shift(names[0], names[2])


NET = apas.FeedForward([[[1.0], [2.0]]], [[0.5]])
WIDER = apas.FeedForward([np.ones((3, 1))], [[0.5]])
DEEPER = apas.FeedForward([np.ones((2, 1)), [[1.0]]], [[0.5], [0.0]])


class Diverged:
    classes, n_features, margin, shifted_margins = (0, 1), 2, None, None
    parameters = apas.Parameters.from_arrays(
        [[[1.0], [np.nan]], [0.0]], names=["w", "b"], kinds=["weight", "bias"], layers=["out", "out"]
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure_shift(NET), "`others` of measure_shift must hold at least one model to compare, got none"),
        (lambda: measure_shift(NET, NET, WIDER), r"`others\[1\]` .*layer0.weight of shape \(2, 1\), but it has layer0.weight of shape \(3, 1\); compare models of the same architecture"),
        (lambda: measure_shift(NET, DEEPER), r"which has no further tensor, but it has layer1.weight of shape \(1, 1\)"),
        (lambda: measure_shift(DEEPER, NET), r"layer1.weight of shape \(1, 1\), but it has no such tensor"),
        (lambda: measure_shift("old.json", NET), r"`base` of measure_shift cannot be read: .*path 'old.json'; read it with apas.load_model"),
        (lambda: measure_shift(NET, LogisticRegression()), r"`others\[0\]` of measure_shift cannot be read: .*must be fitted"),
        (lambda: measure_shift(NET, [NET, NET]), r"`others` of measure_shift must be models, got a list; pass measure_shift\(base, \*models\)"),
        (lambda: measure_shift(NET, Diverged()), r"`others\[0\]` of measure_shift must have finite parameters"),
        (lambda: measure_shift(Diverged(), NET), "the base model must have finite parameters"),
        (lambda: measure_shift(NET, NET, p=-1), "`p` of measure_shift must be a number of at least 0, or math.inf, got -1"),
        (lambda: measure_shift(NET, NET, p=math.nan), "`p` .*got nan"),
        (lambda: measure_shift(NET, NET, p="inf"), "`p` .*got 'inf'"),
        (lambda: measure_shift(NET, NET, p=True), "`p` .*got True"),
        (lambda: measure_shift(NET, NET, p=None), "`p` .*got None"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(apas.InputError, match=message):
        call()


def test_unsupported_models_say_which_one():
    with pytest.raises(
        apas.Unsupported, match=r"`others\[0\]` of measure_shift cannot be read: .*which apas cannot read"
    ):
        measure_shift(NET, object())


def test_measuring_needs_no_frames():
    code = (
        "import sys\n"
        "from apas import FeedForward\n"
        "from apas.shifts.distance import measure_shift\n"
        "print(measure_shift(FeedForward([[[1.0]]], [[0.5]]), FeedForward([[[1.5]]], [[0.5]])))\n"
        "print([m for m in ('sklearn', 'pandas', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
