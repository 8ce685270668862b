"""Bad input: one table of calls, each answered by one sentence that says which argument, and what to do."""

import json
import re
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import resolve
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import apas

NET = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
NAMED = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=["income", "debt"])
TEXTS = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], classes=["denied", "granted"])
THREE = apas.FeedForward([np.ones((2, 3))], [np.arange(3.0)], output="softmax")
X = [[2.0, 0.5], [1.0, 0.2]]
FRAME = pd.DataFrame(X, columns=["income", "debt"])
DATA = np.random.default_rng(0).normal(size=(60, 2))
LABELS = (DATA[:, 0] > 0).astype(int)
PIPELINE = partial(make_pipeline(StandardScaler(), LogisticRegression()).fit, DATA, LABELS)
NAMED_PIPELINE = partial(
    make_pipeline(StandardScaler(), LogisticRegression()).fit, pd.DataFrame(DATA, columns=["income", "debt"]), LABELS
)
NAN, INF = float("nan"), float("inf")


def certify(model=NET, X=X, delta=0.1, *, target=1, **options):
    return lambda: apas.certify(resolve(model), X, delta, target=target, **{"rng": 0, **options})


def sampling(**options):
    return lambda: apas.Sampling(**options)


def shifted(**options):
    return lambda: apas.certify(NET, X, 0.1, target=1, rng=0, shifts=apas.LinfShifts(**options))


def fitted(estimator, y=LABELS):
    return partial(estimator.fit, DATA, y)


MANY = np.column_stack([LABELS, DATA[:, 1] > 0]).astype(int)
Bad, No = apas.InputError, apas.Unsupported

CASES = {
    # -- rows
    "NaN row": (certify(X=[[1.0, 2.0], [1.0, NAN]]), Bad, "`X` must hold finite numbers, but row 1, column 1 is nan"),
    "infinite row": (certify(X=[[1.0, -INF]]), Bad, "`X` must hold finite numbers, but row 0, column 1 is -inf"),
    "NaN in a frame": (certify(NAMED, FRAME.assign(debt=[0.1, NAN])), Bad, "`X` .*row 1, column 'debt' is nan"),
    "NaN in a turned frame": (certify(NAMED, FRAME.assign(income=[NAN, 1.0])[["debt", "income"]]), Bad, "`X` .*row 0, column 'income' is nan"),
    "NaN behind a scaler": (certify(PIPELINE, [[1.0, NAN]]), Bad, "`X` "),
    "infinite behind a scaler": (certify(PIPELINE, [[1.0, INF]]), Bad, "`X` "),
    "None cell": (certify(X=[[1.0, None]]), Bad, "`X` .*row 0, column 1"),
    "NA cell": (certify(X=pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1.0, 2.0]})), Bad, "`X` .*row 1, column 'a'"),
    "too few features": (certify(X=[[1.0]]), Bad, "`X` must have 2 columns, as the model has features, got 1"),
    "too many features": (certify(X=[[1.0, 2.0, 3.0]]), Bad, "`X` must have 2 columns, .*got 3"),
    "no features": (certify(X=[[]]), Bad, "`X` must have 2 columns, .*got 0"),
    "too few features, pipeline": (certify(PIPELINE, [[1.0]]), Bad, "`X` must have 2 columns, .*got 1"),
    "too many columns": (certify(X=FRAME.assign(age=1.0)), Bad, "`X` must have 2 columns, .*got 3"),
    "1-D": (certify(X=[2.0, 0.5]), Bad, r"`X` must be 2-D .*1-D array of 2 values; .*x\[None, :\]"),
    "1-D array": (certify(X=np.array([2.0, 0.5])), Bad, r"`X` must be 2-D .*x\[None, :\]"),
    "1-D, pipeline": (certify(PIPELINE, np.array([2.0, 0.5])), Bad, r"`X` must be 2-D .*x\[None, :\]"),
    "a row of a frame": (certify(X=FRAME.iloc[0]), Bad, r"`X` must be 2-D"),
    "3-D": (certify(X=np.zeros((1, 1, 2))), Bad, "`X` must be 2-D .*got 3 dimensions"),
    "empty 3-D": (certify(X=np.zeros((0, 1, 2))), Bad, "`X` must be 2-D .*got 3 dimensions"),
    "a number": (certify(X=3.0), Bad, "`X` must be 2-D"),
    "None": (certify(X=None), Bad, "`X` must be 2-D"),
    "a dictionary": (certify(X={"income": [1.0]}), Bad, "`X` must be 2-D"),
    "ragged": (certify(X=[[1.0, 2.0], [3.0]]), Bad, "`X` must be a 2-D array with rows of equal length"),
    "a path": (certify(X="rows.csv"), Bad, "`X` must hold rows, got the path 'rows.csv'; read it first"),
    "a path object": (certify(X=Path("rows.csv")), Bad, "`X` must hold rows, got the path"),
    "texts": (certify(X=[["a", "b"]]), Bad, "`X` must hold numbers, but row 0, column 0 is 'a'"),
    "text among numbers": (certify(X=[[1.0, "b"]]), Bad, "`X` must hold numbers, but row 0, column 1 is 'b'"),
    "text in a frame": (certify(NAMED, FRAME.assign(debt=["low", "high"])), Bad, "`X` must hold numbers, but row 0, column 'debt' is 'low'; encode it"),
    "a date": (certify(X=pd.DataFrame({"a": [1.0], "b": pd.to_datetime(["2024-01-01"])})), Bad, "`X` must hold numbers, .*column 'b'"),
    "nothing but dates": (certify(X=pd.DataFrame({c: pd.to_datetime(["2024-01-01"]) for c in "ab"})), Bad, "`X` must hold numbers"),
    "dates in nanoseconds": (certify(X=np.array([["2024-01-01", "2023-01-01"]], dtype="M8[ns]")), Bad, "`X` must hold numbers"),
    "durations": (certify(X=np.array([[1, 2]], dtype="m8[ns]")), Bad, "`X` must hold numbers"),
    "numbers as texts": (certify(X=[["1.0", "2.0"]]), Bad, "`X` must hold numbers, but row 0, column 0 is '1.0'"),
    "a masked cell": (certify(X=np.ma.masked_array([[2.0, 0.5]], mask=[[False, True]])), Bad, "`X` must hold .*row 0, column 1"),
    "an object": (certify(X=[[1.0, object()]]), Bad, "`X` must hold numbers, but row 0, column 1"),
    "a list in a cell": (certify(X=pd.DataFrame({"a": [1.0], "b": [[1.0]]})), Bad, "`X` must hold numbers, .*column 'b'"),
    "complex": (certify(X=np.array([[1j, 2.0]])), Bad, "`X` must hold real numbers, got complex"),
    "complex list": (certify(X=[[1j, 2.0]]), Bad, "`X` must hold real numbers, got complex"),
    "complex frame": (certify(NAMED, FRAME.astype(complex)), Bad, "`X` must hold real numbers, got complex"),
    "an integer beyond floats": (certify(X=[[10**400, 1.0]]), Bad, "`X` must hold .*numbers, but row 0, column 0"),
    # -- columns
    "missing column": (certify(NAMED, FRAME[["income"]]), Bad, "`X` must have exactly the model's columns, but it lacks 'debt'"),
    "extra column": (certify(NAMED, FRAME.assign(age=3.0)), Bad, "`X` .*columns, but it has 'age' besides; give exactly these columns: 'income', 'debt'.*index_col"),
    "unknown column": (certify(NAMED, FRAME.rename(columns={"debt": "Debt"})), Bad, "lacks 'debt' and has 'Debt' besides"),
    "no columns": (certify(NAMED, pd.DataFrame()), Bad, "lacks 'income', 'debt'"),
    "saved index": (certify(NAMED, FRAME.assign(**{"Unnamed: 0": [0, 1]})), Bad, "'Unnamed: 0'.*saved index.*index_col=0"),
    "doubled column": (certify(NAMED, FRAME[["income", "debt", "debt"]]), Bad, "`X` must have each column once, got 'debt' more than once"),
    "doubled column, no names": (certify(X=FRAME[["debt", "debt"]]), Bad, "`X` must have each column once, got 'debt'"),
    "missing column, pipeline": (certify(NAMED_PIPELINE, FRAME[["debt"]]), Bad, "lacks 'income'"),
    "extra column, pipeline": (certify(NAMED_PIPELINE, FRAME.assign(age=3.0)), Bad, "has 'age' besides"),
    "text, pipeline": (certify(NAMED_PIPELINE, FRAME.assign(debt=["low", "high"])), Bad, "`X` .*low"),
    "hundred unknown columns": (certify(NAMED, pd.DataFrame(np.zeros((1, 100)))), Bad, "and 95 more besides"),
    # -- target
    "target None": (certify(target=None), Bad, r"`target` must be the class to keep, one of \[0, 1\], or \"predicted\", got None"),
    "target unknown": (certify(target=2), Bad, r"`target` must be one of the model's classes \(0, 1\), got 2"),
    "target as text": (certify(target="1"), Bad, "`target` .*got '1' .*a text"),
    "target misspelt": (certify(TEXTS, target="Granted"), Bad, "`target` .*'denied', 'granted'.*got 'Granted'"),
    "target of a third class": (certify(THREE, target=3), Bad, r"`target` .*\(0, 1, 2\), got 3"),
    "target too short": (certify(target=[1]), Bad, r"`target` must be one class or one per row \(2\), got 1"),
    "target too long": (certify(target=[1, 1, 1]), Bad, r"`target` .*one per row \(2\), got 3"),
    "target one unknown": (certify(target=[1, 7]), Bad, "`target` .*got 7"),
    "target 2-D": (certify(target=[[1], [1]]), Bad, r"`target` .*got an array of shape \(2, 1\)"),
    "target NaN": (certify(target=NAN), Bad, "`target` .*got nan"),
    "target a set": (certify(target={1}), Bad, r"`target` .*got \{1\}"),
    "target predicted in a list": (certify(target=["predicted", 1]), Bad, "`target` .*got 'predicted'"),
    "target unknown, no rows": (certify(X=[], target=5), Bad, "`target` .*got 5"),
    # -- delta
    "delta 0": (certify(delta=0), Bad, "`delta` must be positive and finite, got 0"),
    "delta negative": (certify(delta=-0.1), Bad, "`delta` must be positive and finite, got -0.1"),
    "delta NaN": (certify(delta=NAN), Bad, "`delta` must be positive and finite, got nan"),
    "delta infinite": (certify(delta=INF), Bad, "`delta` must be positive and finite, got inf"),
    "delta None": (certify(delta=None), Bad, "`delta` must be a positive number.*got None"),
    "delta text": (certify(delta="a bit"), Bad, "`delta` must be a positive number.*got 'a bit'"),
    "delta a number as text": (certify(delta="0.1"), Bad, "`delta` must be a positive number.*got '0.1'"),
    "delta True": (certify(delta=True), Bad, "`delta` must be a positive number.*got True"),
    "delta NumPy True": (certify(delta=np.True_), Bad, "`delta` must be a positive number"),
    "delta of bools": (certify(delta=[True, True]), Bad, "`delta` must be a positive number"),
    "delta too short": (certify(delta=[0.1]), Bad, r"`delta` must be one number or one per row \(2\), got 1"),
    "delta too long": (certify(delta=np.ones(3)), Bad, r"`delta` .*one per row \(2\), got 3"),
    "delta one zero": (certify(delta=[0.1, 0.0]), Bad, "`delta` must be positive and finite, got 0.0"),
    "delta 2-D": (certify(delta=[[0.1], [0.1]]), Bad, r"`delta` .*got an array of shape \(2, 1\)"),
    "delta ragged": (certify(delta=[[0.1], 0.1]), Bad, "`delta` must be a positive number, or one per row"),
    "delta complex": (certify(delta=0.1 + 0j), Bad, "`delta` must be a positive number"),
    "delta of complex numbers": (certify(delta=np.array([0.1 + 1j, 0.1])), Bad, "`delta` must be a positive number"),
    "delta of no use, no rows": (certify(X=[], delta=-1.0), Bad, "`delta` must be positive"),
    # -- sampling
    **{
        f"{name} {value!r}": (
            sampling(**{name: value}),
            Bad,
            f"`{name}` of Sampling must be a number strictly between 0 and 1, got {re.escape(repr(value))}",
        )
        for name in ("coverage", "confidence")
        for value in (0, 1, 0.0, 1.0, -0.5, 1.5, NAN, INF, "0.9", "high", b"0.9", None, True, False, [0.9], 0.5j)
    },
    "coverage beyond floats": (sampling(coverage=10**400), Bad, "`coverage` of Sampling must be a number strictly between 0 and 1"),
    "n_samples 0": (sampling(n_samples=0), Bad, "`n_samples` of Sampling must be an integer of at least 1, got 0"),
    "n_samples negative": (sampling(n_samples=-5), Bad, "`n_samples` of Sampling .*got -5"),
    "n_samples float": (sampling(n_samples=2000.0), Bad, "`n_samples` of Sampling must be an integer.*got 2000.0"),
    "n_samples text": (sampling(n_samples="2000"), Bad, "`n_samples` of Sampling must be an integer.*got '2000'"),
    "n_samples True": (sampling(n_samples=True), Bad, "`n_samples` of Sampling must be an integer.*got True"),
    "too few samples": (certify(method=apas.Sampling(n_samples=1378)), Bad, "`n_samples` of Sampling must be at least 1379 for coverage 0.995 with confidence 0.999, got 1378"),
    "far too few samples": (
        certify(method=apas.Sampling(coverage=0.9, confidence=0.9, n_samples=21)),
        Bad,
        "`n_samples` of Sampling must be at least 22 .*got 21",
    ),
    "too few samples for all": (
        certify(X=X * 5, method=apas.Sampling(coverage=0.9, confidence=0.9, n_samples=43), simultaneous=True),
        Bad,
        "`n_samples` of Sampling must be at least 44 for .* for 10 rows together, got 43",
    ),
    "enough for one, not for all": (
        certify(X=X, method=apas.Sampling(n_samples=1379), simultaneous=True),
        Bad,
        "`n_samples` of Sampling must be at least 1517 .* for 2 rows together, got 1379",
    ),
    # -- shifts
    "shifts move nothing": (shifted(scale={0: 0.0}), Bad, "`shifts` must move at least one parameter"),
    "shifts without layers": (shifted(layers=[]), Bad, "`shifts` must move at least one parameter"),
    "shifts of an unknown layer": (shifted(layers=["head"]), Bad, r"`layers` of LinfShifts must name layers .*\(layer0\).*got 'head'"),
    "shifts of a layer that looks like a number": (shifted(layers=["--1"]), Bad, "`layers` of LinfShifts must name layers .*got '--1'"),
    "shifts of an unknown kind": (shifted(kinds=["gain"]), Bad, "`kinds` of LinfShifts must hold"),
    "shifts scaled below 0": (shifted(scale={0: -1.0}), Bad, "`scale` of LinfShifts must hold finite numbers"),
    "shifts unknown": (certify(shifts="l7"), Bad, "`shifts` must be one of 'linf'.*got 'l7'"),
    "shifts a class": (certify(shifts=apas.LinfShifts), Bad, r"`shifts` must be .*LinfShifts\(\), got the class LinfShifts itself; call it"),
    "shifts None": (certify(shifts=None), Bad, "`shifts` must be one of 'linf'.*got None"),
    "shifts a method": (certify(shifts=apas.Sampling()), Bad, "`shifts` must be one of 'linf'"),
    # -- method and the rest
    "method unknown": (certify(method="guess"), Bad, "`method` must be one of 'sampling'.*got 'guess'"),
    "method a class": (certify(method=apas.Sampling), Bad, r"`method` must be .*Sampling\(\), got the class Sampling itself; call it"),
    "method None": (certify(method=None), Bad, "`method` must be one of 'sampling'.*got None"),
    "method a shift set": (certify(method=apas.LinfShifts()), Bad, "`method` must be one of 'sampling'"),
    "n_jobs 0": (certify(n_jobs=0), Bad, "`n_jobs` must be a positive number of workers, or -1 for all cores, got 0"),
    "n_jobs float": (certify(n_jobs=2.0), Bad, "`n_jobs` must be .*got 2.0"),
    "n_jobs text": (certify(n_jobs="all"), Bad, "`n_jobs` must be .*got 'all'"),
    "n_jobs True": (certify(n_jobs=True), Bad, "`n_jobs` must be .*got True"),
    "n_jobs None": (certify(n_jobs=None), Bad, "`n_jobs` must be .*got None"),
    "simultaneous 1": (certify(simultaneous=1), Bad, "`simultaneous` must be True or False, got 1"),
    "simultaneous text": (certify(simultaneous="yes"), Bad, "`simultaneous` must be True or False, got 'yes'"),
    "rng negative": (certify(rng=-1), Bad, "`rng` must not be negative, got -1"),
    "rng text": (certify(rng="seed"), Bad, "`rng` must be None, .*\"derived\".*got 'seed'"),
    "rng float": (certify(rng=1.0), Bad, "`rng` must be None, .*got float"),
    "rng True": (certify(rng=True), Bad, "`rng` must be None, .*got bool"),
    "rng RandomState": (certify(rng=np.random.RandomState(0)), Bad, "`rng` must be None, .*got RandomState"),
    # -- models
    "model a path": (certify("model.json"), Bad, r"`model` must be a model, got the path 'model.json'; .*apas.load_model"),
    "model a path object": (certify(Path("model.pkl")), Bad, "`model` .*path 'model.pkl'.*apas.load_model"),
    "model a class": (certify(LogisticRegression), Bad, "`model` .*got the class LogisticRegression itself"),
    "model None": (certify(None), No, "`model` is a .*NoneType, which apas cannot read"),
    "model an array": (certify(np.ones(3)), No, "`model` is a numpy.ndarray, which apas cannot read"),
    "model unfitted": (certify(LogisticRegression()), Bad, "model must be fitted, but this LogisticRegression is not"),
    "model half fitted": (
        certify(partial(lambda: Pipeline([("scale", StandardScaler()), ("model", LogisticRegression().fit(DATA, LABELS))]))),
        Bad,
        "`X` could not go through .* not fitted",
    ),
    "model a regressor": (certify(fitted(LinearRegression())), No, "LinearRegression is a regressor"),
    "model of several labels": (
        certify(fitted(MLPClassifier((3,), max_iter=200, tol=0.5, random_state=0), MANY)),
        No,
        "MLPClassifier was fitted for several labels at once",
    ),
    "ridge of several labels": (certify(fitted(RidgeClassifier(), MANY)), No, "RidgeClassifier was fitted for several labels at once"),
    "NaN weights": (lambda: apas.FeedForward([[[NAN]]], [[0.0]]), Bad, r"`weights\[0\]` .*finite numbers, got nan"),
    "infinite weights": (lambda: apas.FeedForward([[[1.0]]], [[INF]]), Bad, r"`biases\[0\]` .*finite numbers, got inf"),
    # -- files
    "load a pickle": (lambda: apas.load_model("model.pkl"), apas.UnsafeFile, "model.pkl could run code when read.*save_model"),
    "load a joblib": (lambda: apas.load_model("model.joblib"), apas.UnsafeFile, "model.joblib could run code when read.*save_model"),
    "load a checkpoint": (lambda: apas.load_model(Path("model.ckpt")), apas.UnsafeFile, "model.ckpt could run code when read.*save_model"),
    "load a torch file": (lambda: apas.load_model(Path("/no/such/model.pt")), Bad, "model.pt cannot be read: No such file"),
    "load nothing": (lambda: apas.load_model("/no/such/model.json"), Bad, "/no/such/model.json cannot be read: No such file"),
    "load a table": (lambda: apas.load_model("rows.csv"), Bad, r"`path` must end in \.json, \.safetensors, .* or \.pth, got 'rows.csv'"),
    "load None": (lambda: apas.load_model(None), Bad, "`path` must be the name of a file, got NoneType"),
    "load a model": (lambda: apas.load_model(NET), Bad, "`path` must be the name of a file, got FeedForward"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), CASES.values(), ids=CASES)
def test_one_clear_sentence(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    text = str(caught.value)
    assert isinstance(caught.value, apas.ApasError)
    assert "\n" not in text
    assert text.endswith((".", ")", "?")) or "preprocessing: " in text
    assert "np." not in text.replace("np.nan", "")
    assert len(text) < 450


def test_nan_weights_of_an_estimator():
    estimator = LogisticRegression().fit(DATA, LABELS)
    estimator.coef_[0, 1] = NAN
    with pytest.raises(apas.InputError, match=r"`weights\[0\]` .*must hold finite numbers, got nan"):
        apas.certify(estimator, DATA, 0.1, target=1)


def test_target_is_required():
    with pytest.raises(TypeError, match="target"):
        apas.certify(NET, X, 0.1)


def test_options_are_named():
    with pytest.raises(TypeError, match="positional"):
        apas.certify(NET, X, 0.1, 1)
    with pytest.raises(TypeError, match="positional"):
        apas.Sampling(0.9)
    with pytest.raises(TypeError, match="coverag"):
        apas.Sampling(coverag=0.9)


def test_errors_are_what_python_programs_catch():
    assert issubclass(apas.InputError, ValueError)
    assert issubclass(apas.UnsafeFile, ValueError)
    assert issubclass(apas.Unsupported, NotImplementedError)
    assert issubclass(apas.MissingExtra, ImportError)


def test_bad_input_is_found_before_anything_is_drawn():
    generator, twin = np.random.default_rng(5), np.random.default_rng(5)
    with pytest.raises(apas.InputError):
        apas.certify(NET, [1.0, 2.0], 0.1, target=1, rng=generator)
    assert generator.bytes(8) == twin.bytes(8)


# -- nothing asked, nothing answered -----------------------------------------------------------------------------

EMPTY = {
    "list": (NET, []),
    "array": (NET, np.empty((0, 2))),
    "1-D array": (NET, np.array([])),
    "frame": (NAMED, FRAME[:0]),
    "frame for a model without names": (NET, FRAME[:0]),
    "pipeline, array": (PIPELINE, np.empty((0, 2))),
    "pipeline, frame": (NAMED_PIPELINE, FRAME[:0]),
    "estimator": (fitted(LogisticRegression()), []),
}


@pytest.mark.parametrize("target", [1, "predicted", []], ids=["one", "predicted", "none"])
@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize(("model", "rows"), EMPTY.values(), ids=EMPTY)
def test_no_rows_give_an_empty_result(model, rows, simultaneous, target):
    certificates = apas.certify(resolve(model), rows, 0.1, target=target, simultaneous=simultaneous, rng=0)
    assert len(certificates) == 0
    assert list(certificates) == []
    assert certificates.certified.shape == (0,)
    assert certificates.to_frame().empty
    assert certificates.to_frame().columns[0] == "verdict"
    assert json.loads(json.dumps(certificates.to_dict()))["certificates"] == []
    assert "No rows" in certificates.summary()


def test_no_rows_and_no_deltas():
    assert len(apas.certify(NET, [], [], target=[], rng=0)) == 0


# -- unusual, but good -------------------------------------------------------------------------------------------

GOOD = {
    "float32 rows": {"X": np.array(X, dtype=np.float32)},
    "integer rows": {"X": [[2, 1], [1, 0]]},
    "bool rows": {"X": np.array([[True, False]])},
    "object rows": {"X": np.array(X, dtype=object)},
    "rows of a tuple": {"X": tuple(map(tuple, X))},
    "strided rows": {"X": np.repeat(np.array(X), 2, axis=0)[::2]},
    "read-only rows": {"X": np.broadcast_to(np.array([2.0, 0.5]), (3, 2))},
    "nullable integers": {"X": pd.DataFrame({"a": pd.array([2, 1], dtype="Int64"), "b": [0.5, 0.2]})},
    "delta NumPy": {"delta": np.float64(0.1)},
    "delta float32": {"delta": np.float32(0.1)},
    "delta integer": {"delta": 1},
    "delta 0-D": {"delta": np.array(0.1)},
    "delta decimal": {"delta": Decimal("0.1")},
    "delta series": {"delta": pd.Series([0.1, 0.2])},
    "target NumPy": {"target": np.int64(1)},
    "target series": {"target": pd.Series([1, 0], index=[7, 3])},
    "target categorical": {"target": pd.Categorical([1, 0])},
    "simultaneous NumPy": {"simultaneous": np.True_},
    "n_jobs NumPy": {"n_jobs": np.int64(1)},
    "coverage NumPy": {"method": apas.Sampling(coverage=np.float64(0.9), confidence=np.float64(0.9))},
    "coverage float32": {"method": apas.Sampling(coverage=np.float32(0.5), confidence=np.float32(0.5))},
    "n_samples NumPy": {"method": apas.Sampling(n_samples=np.int64(3000))},
    "rng NumPy": {"rng": np.uint32(7)},
    "rng huge": {"rng": 2**200},
}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_unusual_but_good_input_works_to_the_end(changes):
    arguments = {"X": X, "delta": 0.1, "target": 1, "rng": 0, **changes}
    certificates = apas.certify(NET, arguments.pop("X"), arguments.pop("delta"), **arguments)
    assert len(certificates)
    assert "np." not in certificates.summary()
    assert len(certificates.to_frame()) == len(certificates)
    assert all("np." not in c.sentence() for c in certificates)
    content = json.loads(json.dumps(certificates.to_dict(), allow_nan=False))
    assert len(content["certificates"]) == len(certificates)
    assert "<table" in certificates._repr_html_()
