"""`evaluate` against the protocol written out naively, with gaps, several retrained models, and bad input."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

import apas
from apas import FeedForward, InputError, Unsupported
from apas.counterfactuals.result import Counterfactual, Counterfactuals, Status
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.metrics import evaluate
from apas.metrics.api import METRICS

ALL = tuple(METRICS)
GRADES, PURPOSES = ("low", "middle", "high"), ("car", "house", "other", "none")
SPACE = FeatureSpace(
    [
        Feature("income", low=1000, high=5000),
        Feature("grade", "ordinal", values=GRADES, code="thermometer"),
        Feature("purpose", "categorical", values=PURPOSES),
        Feature("age", "integer", low=20, high=70, direction="increase"),
    ],
    scale="minmax",
)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    columns = {
        "income": rng.uniform(1000, 5000, rows),
        "grade": rng.choice(GRADES, rows),
        "purpose": rng.choice(PURPOSES, rows),
        "age": rng.integers(20, 71, rows),
    }
    return pd.DataFrame(columns, index=[f"p{i}" for i in range(rows)])


def encoded(frame):
    """The nine columns by hand."""
    lines = []
    for _, row in frame.iterrows():
        level = GRADES.index(row["grade"])
        lines.append(
            [(row["income"] - 1000) / 4000, *(float(level >= i) for i in range(3))]
            + [float(row["purpose"] == p) for p in PURPOSES]
            + [(row["age"] - 20) / 50]
        )
    return np.array(lines)


#: Puts about half of the rows into each class.
BIAS = -2.5


def network(seed, base=None, size=0.0):
    rng = np.random.default_rng(seed)
    if base is None:
        return FeedForward([rng.normal(size=(9, 5)), rng.normal(size=(5, 1))], [rng.normal(size=5), [BIAS]])
    moved = [[a + size * rng.normal(size=a.shape) for a in arrays] for arrays in (base.weights, base.biases)]
    return FeedForward(*moved)


NET = network(3)
LATER = [network(i, NET, 0.5) for i in (10, 11)]
KNOWN = table(80, 1)


def question():
    """Inputs and what some tool says about them: rows of both classes, changes of nearly nothing, and gaps."""
    X = table(60, 2)
    points = table(60, 4).set_axis(X.index)
    points.loc[X.index[:20], ["grade", "age"]] = X.loc[X.index[:20], ["grade", "age"]]
    points.loc[X.index[5:10], "income"] = X["income"] + 0.3  # below 1e-4 of the range
    points = points.astype({"age": object})
    points.loc[X.index[50:55]] = None
    return X, points


@pytest.fixture(scope="module")
def given():
    X, points = question()
    return Counterfactuals.from_frame(NET, X, points, space=SPACE)


def test_the_protocol_naively(given):
    X, points = question()
    there = [i for i in range(60) if not 50 <= i < 55]
    a, b = encoded(X), encoded(points.iloc[there])
    wanted = [0 if NET.margin(row[None], 1)[0] >= 0 else 1 for row in a]
    gives = {i: [int(m.margin(z[None], 1)[0] >= 0) for m in (NET, *LATER)] for i, z in zip(there, b, strict=True)}
    outlier = LocalOutlierFactor(n_neighbors=20, novelty=True).fit(encoded(KNOWN)).predict(b)

    vm1 = vm2_0 = vm2_1 = 0
    l1, l0, linf, lof = [], [], [], []
    for k, i in enumerate(there):
        ok = [g == wanted[i] for g in gives[i]]
        vm1 += ok[0]
        vm2_0 += ok[0] and ok[1]
        vm2_1 += ok[0] and ok[2]
        if not ok[0]:
            continue
        apart = np.abs(a[i] - b[k])
        l1.append(sum(apart) / 9)
        linf.append(max(apart))
        changed = [apart[0] >= 1e-4, apart[1:4].any(), apart[4:8].any(), apart[8] >= 1e-4]
        l0.append(round(sum(changed) / 4, 3))
        lof.append(outlier[k])
    assert 0 < vm2_0 < vm1 < 55
    assert vm2_0 != vm2_1

    found = evaluate(given, background=KNOWN, retrained=LATER, metrics=("validity", "l1", "l0", "linf", "lof"))
    assert found.summary().to_dict() == pytest.approx(
        {
            "found": 55 / 60, "vm1": vm1 / 60, "vm2_0": vm2_0 / 60, "vm2_1": vm2_1 / 60,
            "vm2": (vm2_0 + vm2_1) / 120, "l1": np.mean(l1), "l0": np.mean(l0), "linf": np.mean(linf),
            "lof": np.mean(lof),
        }
    )  # fmt: skip
    assert found.rows["lof"].dropna().tolist() == outlier.tolist()


def test_rows(given):
    found = evaluate(given, background=KNOWN, retrained=LATER[:1], metrics=ALL, delta=0.05, rng=0)
    assert list(found.rows.columns) == [
        "row", "rank", "found", "valid", "valid_retrained", *(m for m in ALL if m != "validity")
    ]  # fmt: skip
    assert found.rows.index.tolist() == [f"p{i}" for i in range(60)]
    gaps = ~found.rows["found"].to_numpy()
    assert np.flatnonzero(gaps).tolist() == list(range(50, 55))
    measured = found.rows.drop(columns=["row", "rank", "found"])
    assert measured[gaps].isna().all(axis=None)
    assert measured[~gaps].notna().all(axis=None)
    assert set(found.summary().index) == {"found", "vm1", "vm2", *ALL} - {"validity"}
    assert found.valid.tolist() == found.rows["valid"].fillna(False).tolist()
    assert (found.rows[found.rows["valid"]].index == found.rows.index[found.valid]).all()  # gaps are not chosen


def test_what_others_compute(given):
    """Costs, violations and all about shifts are those of the functions themselves, on the rows that are there."""
    found = evaluate(
        given, metrics=("cost", "violations", "delta_validity", "robust_fraction", "max_shift"), delta=0.02, rng=7
    )
    there = given.found
    target = given.target[there]
    rows = pd.DataFrame(given.points)[there].astype({"age": int, "income": float})
    ask = {"target": target, "rng": 7}
    proved = apas.certify(given.model, rows, 0.02, target=target, method="interval").certified
    curves = apas.robust_fraction(given.model, rows, 0.02, **ask)
    radii = apas.max_shift(given.model, rows, **ask)
    lines = found.rows[there]
    assert lines["cost"].tolist() == [item.cost for item in given if item.is_found]
    assert (
        lines["violations"].tolist()
        == (question()[1]["age"][there] < question()[0]["age"][there]).astype(float).tolist()
    )
    assert lines["delta_validity"].tolist() == proved.tolist()
    assert lines["robust_fraction"].tolist() == [float(c.estimate[0]) for c in curves]
    assert lines["max_shift"].tolist() == [r.delta for r in radii]
    assert 0 < proved.sum() < there.sum()
    assert found.summary()["delta_validity"] == proved.sum() / 60
    assert found.summary()["max_shift"] == pytest.approx(np.mean([r.delta for r in radii if r.delta > 0]))
    assert (found.entropy, found.delta) == (7, 0.02)


def test_arrays_and_frames_agree(given):
    X, points = question()
    arrays = Counterfactuals.from_frame(NET, X.to_numpy(), points.to_numpy(), space=SPACE)
    options = {"background": KNOWN, "metrics": ALL, "delta": 0.05, "retrained": LATER, "rng": 0}
    one, other = evaluate(arrays, **{**options, "background": KNOWN.to_numpy()}), evaluate(given, **options)
    assert one.rows.index.tolist() == list(range(60))
    pd.testing.assert_frame_equal(one.rows, other.rows.reset_index(drop=True))
    assert one != other  # the rows are called something else
    assert other == evaluate(given, **options, n_jobs=2)


def test_parts_have_the_rows_of_the_whole(given):
    """Also rows beside which others are missing, all missing ones, and none."""
    options = {"background": KNOWN, "metrics": ALL, "delta": 0.05, "retrained": LATER, "rng": 0}
    whole = evaluate(given, **options).rows
    for part in (slice(48, 57), slice(50, 55), slice(0, 0)):
        found = evaluate(given[part], **options)
        pd.testing.assert_frame_equal(found.rows, whole[part])
        assert list(found.summary().index) == ["found", "vm1", "vm2_0", "vm2_1", "vm2", *ALL[1:]]
    nothing = evaluate(given[50:55], **options).summary()
    assert nothing[["found", "vm1", "vm2_0", "vm2_1", "vm2", "delta_validity"]].tolist() == [0.0] * 6
    assert nothing[["l1", "l0", "lof", "max_shift", "violations"]].isna().all()
    empty = evaluate(given[:0], **options)
    assert empty.summary().isna().all()
    assert repr(empty) == "<Evaluation: No counterfactuals.>"
    assert empty.to_dict()["counterfactuals"] == []


def test_several_per_input():
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    space = FeatureSpace([Feature("a", low=0, high=2), Feature("b", low=0, high=2)])
    numbers = np.array([[1.0, 0.25], [0.2, 1.0], [0.9, 0.5], [np.nan, np.nan]])
    origins = np.array([[0.2, 0.25], [0.2, 0.25], [0.1, 0.5], [0.1, 0.5]])
    items = [
        Counterfactual(i // 2, i % 2, 1, Status.FOUND if i < 3 else Status.EXHAUSTED, 0.0, 1, 1, None, "")
        for i in range(4)
    ]
    k2 = Counterfactuals(
        items, points=numbers, inputs=origins, numbers=numbers, origins=origins, model=net, space=space,
        shifts=apas.LinfShifts(), distance="linf",
    )  # fmt: skip
    found = evaluate(k2, metrics=("validity", "l1", "cost"))
    assert found.rows[["row", "rank"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert found.summary().to_dict() == pytest.approx(
        {"found": 0.75, "vm1": 0.75, "l1": (0.4 + 0.375 + 0.4) / 3, "cost": (0.4 + 0.375 + 0.4) / 3}
    )


def test_the_model_units_of_a_pipeline():
    """Encoded variables are those of the model's own preprocessing; retrained pipelines have theirs."""
    rows = table(200, 8)
    y = np.where(rows["income"] + 20 * rows["age"] > 3900, "yes", "no")

    def fit(part):
        coder = make_column_transformer((MinMaxScaler(), ["income", "age"]), (OneHotEncoder(), ["grade", "purpose"]))
        return make_pipeline(coder, LogisticRegression(C=100)).fit(rows[part], y[part])

    model, later = fit(slice(None)), fit(slice(0, 90))
    space = FeatureSpace.from_frame(rows, kinds={"grade": "ordinal"}, values={"grade": GRADES})
    X = table(30, 9)
    X = X[model.predict(X) == "no"]
    points = X.assign(income=X["income"] + 900, purpose="car")
    given = Counterfactuals.from_frame(model, X, points, target="yes", space=space)
    found = evaluate(given, background=rows, retrained=[later], metrics=("validity", "l1", "l0", "linf", "lof"))
    assert found.rows["valid"].tolist() == (model.predict(points) == "yes").tolist()
    assert found.rows["valid_retrained"].tolist() == (later.predict(points) == "yes").tolist()
    apart = np.abs(np.asarray(model[0].transform(points)) - np.asarray(model[0].transform(X)))
    assert apart.shape[1] == 9
    assert found.rows["l1"].to_numpy() == pytest.approx(apart.sum(axis=1) / 9)
    assert found.rows["linf"].to_numpy() == pytest.approx(apart.max(axis=1))
    assert found.rows["l0"].tolist() == np.where(X["purpose"] == "car", 0.25, 0.5).tolist()
    fitted = LocalOutlierFactor(n_neighbors=20, novelty=True).fit(np.asarray(model[0].transform(rows)))
    assert found.rows["lof"].tolist() == fitted.predict(np.asarray(model[0].transform(points))).tolist()


def test_more_classes():
    rng = np.random.default_rng(1)
    net, later = (FeedForward([rng.normal(size=(2, 3))], [rng.normal(size=3)], output="softmax") for _ in range(2))
    X, points = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    margins = np.stack([net.margin(X, c) for c in range(3)])
    X, points = X[margins[2] < 0], points[margins[2] < 0]
    given = Counterfactuals.from_frame(net, X, points, target=2)
    found = evaluate(given, retrained=[later], metrics=("validity",))
    ok, ok2 = (m.margin(points, 2) > 0 for m in (net, later))
    assert found.rows["valid"].tolist() == ok.tolist()
    assert found.summary()["vm2"] == pytest.approx((ok & ok2).mean())


def test_written_and_shown(given):
    found = evaluate(given, background=KNOWN, retrained=LATER[:1], delta=0.05, metrics=ALL, rng=3)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["format"] == "apas-evaluation"
    assert (content["entropy"], content["delta"], content["retrained"]) == ("0x3", 0.05, 1)
    assert content["summary"] == pytest.approx(found.summary().to_dict())
    assert evaluate(given[50:55], metrics=("l1",)).to_dict()["summary"] == {"found": 0.0, "l1": None}
    assert content["counterfactuals"][0]["index"] == "p0"
    assert content["counterfactuals"][51]["l1"] is None
    assert content["counterfactuals"][51]["valid"] is None
    pd.testing.assert_frame_equal(found.to_frame(), found.rows)
    assert found.to_frame() is not found.rows
    assert str(found).startswith("60 counterfactuals: found 0.9167, vm1 0.")
    assert "<table><caption>60 counterfactuals: found" in found._repr_html_()
    with pytest.raises(TypeError):
        hash(found)


def test_seed(given):
    ask = {"metrics": ("robust_fraction",), "delta": 0.5}
    first = evaluate(given, **ask)
    assert first == evaluate(given, **ask, rng=first.entropy)
    assert evaluate(given, metrics=("l1",), rng=1).entropy is None


def test_metrics_by_name(given):
    known = ", ".join(repr(name) for name in ALL)
    with pytest.raises(InputError, match=rf"^`metrics` must be out of {known}, got 'l2'\.$"):
        evaluate(given, metrics=("l1", "l2"))
    for wrong in ("l1", 3, None):
        with pytest.raises(
            InputError, match=r"`metrics` must be a list of names out of 'validity', .*; pass \[name\] for one"
        ):
            evaluate(given, metrics=wrong)
    assert list(evaluate(given, metrics=["l1", "l1"]).rows.columns) == ["row", "rank", "found", "l1"]
    assert list(evaluate(given, metrics=()).summary().index) == ["found"]


@pytest.mark.parametrize(
    ("metric", "missing", "what"),
    [
        ("lof", "background", "the known rows, such as the training table"),
        ("distance_to_data", "background", "the known rows, such as the training table"),
        ("delta_validity", "delta", "how far the model may move"),
        ("robust_fraction", "delta", "how far the model may move"),
    ],
)
def test_what_is_missing(given, metric, missing, what):
    with pytest.raises(
        InputError, match=rf"^`{missing}` must be given for the metric '{metric}': {what}; or leave the metric out\.$"
    ):
        evaluate(given, metrics=(metric,))


def test_bad_input(given):
    with pytest.raises(
        InputError,
        match=r"`counterfactuals` must be what apas.generate gives, got DataFrame; take those of other tools with Counterfactuals.from_frame",
    ):
        evaluate(KNOWN)
    ask = {"metrics": ("delta_validity",)}
    with pytest.raises(InputError, match=r"`delta` must be positive and finite, got -1.0"):
        evaluate(given, **ask, delta=-1)
    with pytest.raises(InputError, match=r"`delta` of evaluate must be one number for all rows, got \[0.1, 0.2\]"):
        evaluate(given, **ask, delta=[0.1, 0.2])
    with pytest.raises(InputError, match=r"`n_jobs` must be a positive number of workers"):
        evaluate(given, metrics=(), n_jobs=0)
    with pytest.raises(InputError, match=r"`background` must have exactly the space's columns, but it lacks 'age'"):
        evaluate(given, background=KNOWN.drop(columns="age"))
    with pytest.raises(InputError, match=r"`background` has 'boat' in row 0 of column 'purpose'"):
        evaluate(given, background=KNOWN.assign(purpose="boat"))
    with pytest.raises(InputError, match=r"`background` must have more rows than the 20 neighbours"):
        evaluate(given, background=KNOWN[:20])


def test_bad_retrained(given):
    with pytest.raises(
        InputError, match=r"`retrained` must be a list of models, got FeedForward; pass \[model\] for one"
    ):
        evaluate(given, metrics=("validity",), retrained=LATER[0])
    with pytest.raises(Unsupported, match=r"`retrained\[1\]` cannot be read: `model` is a builtins.int"):
        evaluate(given, metrics=("validity",), retrained=[LATER[0], 3])
    with pytest.raises(
        InputError, match=r"`retrained\[0\]` cannot be read: `space` must match the model, which takes 2 columns"
    ):
        evaluate(given, metrics=("validity",), retrained=[FeedForward([np.ones((2, 1))], [[0.0]])])
    other = FeedForward(NET.weights, NET.biases, classes=("no", "yes"))
    with pytest.raises(
        InputError, match=r"`retrained\[0\]` must have the classes \[0, 1\] of the model .* got \['no', 'yes'\]"
    ):
        evaluate(given, metrics=("validity",), retrained=[other])


def test_a_model_that_is_not_what_its_library_says_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    base, other = (LogisticRegression(C=c).fit(X, X[:, 0] > 0) for c in (1.0, 0.1))
    X = X[~base.predict(X)]
    given = Counterfactuals.from_frame(base, X, -X)
    model = apas.as_model(other)
    assert evaluate(given, metrics=("validity",), retrained=[base, model]).retrained == 2
    other.coef_ *= -1.0  # behind our back
    with pytest.raises(InputError, match=r"`retrained\[1\]` does not agree with its own library on row 0"):
        evaluate(given, metrics=("validity",), retrained=[base, model])


def test_the_shift_set_of_the_counterfactuals_decides(given):
    vars(bias := given[:]).update(shifts=apas.LinfShifts(kinds=("bias",)))
    ask = {"metrics": ("delta_validity",), "delta": 0.05}
    assert evaluate(bias, **ask).summary()["delta_validity"] > evaluate(given, **ask).summary()["delta_validity"]
    vars(normal := given[:]).update(shifts=apas.GaussianShifts())
    with pytest.raises(Unsupported, match="IntervalBounds"):
        evaluate(normal, **ask)


def test_importing_is_light():
    code = "import sys, apas.metrics\nprint([m for m in ('torch', 'sklearn', 'pandas', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
