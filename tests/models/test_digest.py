"""The fingerprint of a model: it changes with everything that decides an answer, and with nothing else."""

import copy
import functools
import math
import sys
import threading
import types
from collections import defaultdict
from functools import partial

import numpy as np
import pandas as pd
import pytest
from conftest import resolve
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)

import apas
from apas.models.digest import canonical, model_digest, unidentified

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = (X[:, 0] + 0.5 * RNG.normal(size=80) > 0).astype(int)
WEIGHTS = [RNG.normal(size=(3, 4)), RNG.normal(size=(4, 1))]
BIASES = [RNG.normal(size=4), RNG.normal(size=1)]
SAME = {"weights": WEIGHTS, "biases": BIASES, "feature_names": ["a", "b", "c"], "classes": ["no", "yes"]}


def digest(**changes):
    arguments = {**SAME, **changes}
    return model_digest(apas.FeedForward(arguments.pop("weights"), arguments.pop("biases"), **arguments))


def test_it_is_a_sha256():
    assert len(digest()) == 64
    assert int(digest(), 16) >= 0


def test_the_same_content_is_the_same_model():
    copied = copy.deepcopy(SAME)
    copied["weights"] = [np.asfortranarray(w) for w in copied["weights"]]
    assert digest(**copied) == digest()
    assert digest(weights=[w.tolist() for w in WEIGHTS], biases=[b.tolist() for b in BIASES]) == digest()
    assert digest(activation="relu") == digest(activation=["relu"])


@pytest.mark.parametrize("step", [1e-12, -1e-12, 1e-15])
def test_it_changes_with_any_parameter(step):
    seen = {digest()}
    for name, arrays in (("weights", WEIGHTS), ("biases", BIASES)):
        for i, array in enumerate(arrays):
            for place in np.ndindex(array.shape):
                moved = [a.copy() for a in arrays]
                moved[i][place] += step
                assert moved[i][place] != array[place]
                seen.add(digest(**{name: moved}))
    assert len(seen) == 1 + 3 * 4 + 4 + 4 + 1


CHANGES = [
    {"threshold": 0.5 + 1e-15},
    {"threshold": 0.4},
    {"classes": ["yes", "no"]},
    {"classes": ["no", "YES"]},
    {"classes": [0, 1]},
    {"classes": ["0", "1"]},
    {"classes": [False, True]},
    {"activation": "tanh"},
    {"activation": "leaky_relu"},
    {"output": "identity"},
    {"feature_names": ["a", "c", "b"]},
    {"feature_names": None},
    {"weights": [WEIGHTS[0][:, ::-1], WEIGHTS[1]]},
    {"weights": [np.vstack([WEIGHTS[0], np.zeros(4)]), WEIGHTS[1]], "feature_names": None},
]


def test_it_changes_with_everything_else_that_matters():
    digests = [digest(), *(digest(**change) for change in CHANGES)]
    assert len(set(digests)) == len(digests)


def test_shapes_count_although_the_numbers_are_the_same():
    flat = np.arange(1.0, 13.0)
    one = apas.FeedForward([flat[:6].reshape(3, 2), flat[6:8].reshape(2, 1)], [[0.0, 0.0], [0.0]])
    two = apas.FeedForward([flat[:6].reshape(2, 3), np.r_[flat[6:8], 0.0].reshape(3, 1)], [[0.0, 0.0, 0.0], [0.0]])
    assert model_digest(one) != model_digest(two)


# -- scikit-learn ------------------------------------------------------------------------------------------------


def scaled(**options):
    return make_pipeline(StandardScaler(**options), LogisticRegression()).fit(X, Y)


def sk(estimator, **options):
    return model_digest(apas.as_model(estimator, **options))


def test_a_refit_on_the_same_data_is_the_same_model():
    assert sk(scaled()) == sk(scaled()) == sk(copy.deepcopy(scaled()))
    networks = [MLPClassifier((4,), max_iter=500, tol=1e-2, random_state=7).fit(X, Y) for _ in range(2)]
    assert sk(networks[0]) == sk(networks[1])
    assert sk(networks[0]) != sk(MLPClassifier((4,), max_iter=500, tol=1e-2, random_state=8).fit(X, Y))


def mixed_pipeline(frame, y):
    encoder = ColumnTransformer([("n", StandardScaler(), ["x"]), ("t", OneHotEncoder(), ["home"])])
    return make_pipeline(encoder, LogisticRegression()).fit(frame, y)


def test_a_refit_of_a_column_transformer_is_the_same_model():
    frame = pd.DataFrame({"x": X[:, 0], "home": np.where(X[:, 1] > 0, "own", "rent")})
    assert sk(mixed_pipeline(frame, Y)) == sk(mixed_pipeline(frame.copy(), Y.copy()))
    other = frame.assign(home=np.where(X[:, 1] > 0, "own", "hire"))
    assert sk(mixed_pipeline(frame, Y)) != sk(mixed_pipeline(other, Y))


def test_using_a_model_does_not_change_its_digest():
    pipeline = scaled()
    before = sk(pipeline)
    certificates = apas.certify(pipeline, X, 0.1, target="predicted", rng=0)
    pipeline.predict_proba(X)
    assert sk(pipeline) == before == certificates.model_digest


def tampered(change):
    pipeline = scaled()
    change(pipeline)
    return pipeline


def test_preprocessing_is_part_of_the_model():
    digests = [
        sk(scaled()),
        sk(tampered(lambda p: p[0].mean_.__iadd__(1e-12))),
        sk(tampered(lambda p: p[0].scale_.__imul__(1 + 1e-12))),
        sk(tampered(lambda p: p[0].set_params(with_mean=False))),
        sk(tampered(lambda p: p[1].coef_.__iadd__(1e-12))),
        sk(tampered(lambda p: p[1].intercept_.__iadd__(1e-12))),
        sk(scaled(with_std=False)),
        sk(LogisticRegression().fit(X, Y)),
    ]
    assert len(set(digests)) == len(digests)


def test_threshold_names_and_classes_of_an_estimator():
    estimator = LogisticRegression().fit(X, Y)
    texts = LogisticRegression().fit(X, np.where(Y == 1, "yes", "no"))
    assert np.array_equal(texts.coef_, estimator.coef_)
    digests = [
        sk(estimator),
        sk(estimator, threshold=0.6),
        sk(estimator, feature_names=["a", "b", "c"]),
        sk(estimator, feature_names=["a", "c", "b"]),
        sk(texts),
    ]
    assert len(set(digests)) == len(digests)


def half(X):
    return X / 2


def third(X):
    return X / 3


def behind(step):
    """A fixed classifier behind a fitted step, so that only the step can make a difference."""
    return Pipeline([("step", step), ("model", LogisticRegression().fit(X, Y))])


PRIVATE = {
    "imputer": lambda seed: KNNImputer(n_neighbors=1).fit(np.random.default_rng(seed).normal(size=(80, 3))),
    "power": lambda seed: _moved_power(seed),
}


def _moved_power(seed):
    step = PowerTransformer().fit(X)
    step._scaler.mean_ = step._scaler.mean_ + seed  # what the step has learned lives in a private member
    return step


@pytest.mark.parametrize("name", PRIVATE)
def test_state_that_scikit_learn_keeps_in_private_counts(name):
    rows = np.array([[1.0, np.nan if name == "imputer" else 0.5, 2.0]])
    one, other, again = (apas.as_model(behind(PRIVATE[name](seed))) for seed in (1, 2, 1))
    assert not np.array_equal(one.encode(rows), other.encode(rows))
    assert model_digest(one) != model_digest(other)
    assert model_digest(one) == model_digest(again)


def test_functions_of_libraries_and_modules_count():
    assert sk(behind(FunctionTransformer(half).fit(X))) == sk(behind(FunctionTransformer(half).fit(X)))
    assert sk(behind(FunctionTransformer(half).fit(X))) != sk(behind(FunctionTransformer(third).fit(X)))
    assert sk(behind(FunctionTransformer(np.exp).fit(X))) != sk(behind(FunctionTransformer(np.expm1).fit(X)))


SCALE = 2.0


def by_global(X):
    return X * SCALE


def calls_another(X):
    return by_global(X) + 1


def closed_over(scale):
    def scaled(X):
        return X * scale

    return scaled


def defaulted(scale):
    def scaled(X, by=scale):
        return X * by

    return scaled


def keyworded(scale):
    def scaled(X, *, by=scale):
        return X * by

    return scaled


def decorated(scale):
    def wrap(function):
        @functools.wraps(function)
        def wrapped(X):
            return function(X) * scale

        return wrapped

    return wrap(half)


class Scaler:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, X):
        return X * self.scale

    def method(self, X):
        return X * self.scale


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, X):
        return X * self.scale


def class_with(scale):
    class Inner:
        factor = scale

        def __call__(self, X):
            return X * self.factor

    return Inner()


def compiled(text):
    names = {}
    exec(text, names)
    return names["f"]


def of_module(scale):
    helper = types.ModuleType("helper")
    helper.scale = scale
    names = {"helper": helper}
    exec("def f(X):\n    return X * helper.scale", names)
    return names["f"]


def recursive(scale):
    def scaled(X, left=1):
        return scaled(X * scale, left - 1) if left else X

    return scaled


def mapping_with(scale):
    class Mapping(dict):
        def __missing__(self, key):
            return scale

    return Mapping(a=1.0)


def number_with(scale):
    class Number(float):
        def __rmul__(self, other):
            return other * scale

    return Number(1.0)


def made_by(scale):
    class Meta(type):
        def __call__(cls, *values):
            return scale

    class Made(metaclass=Meta):
        pass

    return Made


def called_by(scale):
    class Called:
        __call__ = functools.lru_cache(lambda self, X: X * scale)

    return Called()


#: Functions that differ in one number alone, which they are given here.
MADE = {
    "closure": closed_over,
    "default": defaulted,
    "keyword default": keyworded,
    "lambda's constant": lambda scale: compiled(f"f = lambda X: X * {scale}"),
    "lambda's closure": lambda scale: lambda X: X * scale,
    "lambda's default": lambda scale: lambda X, by=scale: X * by,
    "constant without a source text": lambda scale: compiled(f"def f(X):\n    return X * {scale}"),
    "array": lambda scale: closed_over(np.array([1.0, 1.0, scale])),
    "container": lambda scale: closed_over({"a": [scale]}),
    "function in a closure": lambda scale: decorated(scale),
    "partial": lambda scale: partial(np.multiply, scale),
    "partial of a closure": lambda scale: partial(closed_over(scale)),
    "callable object": Scaler,
    "callable object with slots": Slotted,
    "bound method": lambda scale: Scaler(scale).method,
    "class attribute": class_with,
    "global of a module": of_module,
    "recursion": recursive,
    "method of a dict": lambda scale: {1.0: scale}.get,
    "cached": lambda scale: functools.lru_cache(closed_over(scale)),
    "vectorized": lambda scale: np.vectorize(closed_over(scale)),
    "polynomial": lambda scale: np.poly1d([scale, 0.0]),
    "what a dict gives for keys it has not": lambda scale: closed_over(defaultdict(lambda: scale, {"a": 1.0})),
    "index of a series": lambda scale: closed_over(pd.Series([1.0, 2.0], index=[scale, 7.0])),
    "index of a table": lambda scale: closed_over(pd.DataFrame({"x": [1.0, 2.0]}, index=[scale, 7.0])),
    "dict of an own class": lambda scale: closed_over(mapping_with(scale)),
    "number of an own class": lambda scale: closed_over(number_with(scale)),
    "metaclass": lambda scale: closed_over(made_by(scale)),
    "call that is no function": called_by,
    "width of texts": lambda scale: closed_over(np.dtype(f"U{scale:.0f}")),
    "unit of times": lambda scale: closed_over(np.array([1], dtype=f"M8[{scale:.0f}D]")),
    "mask": lambda scale: closed_over(np.ma.array([1.0, 2.0], mask=[False, scale > 2])),
    "long double": lambda scale: closed_over(np.array([scale], dtype=np.longdouble)[0]),
    "global with two underscores": lambda scale: compiled(f"__by = {scale}\ndef f(X):\n    return X * __by"),
}


def of_step(function):
    return apas.as_model(behind(FunctionTransformer(function).fit(X)))


@pytest.mark.parametrize("name", MADE)
def test_functions_that_differ_in_one_number_are_different(name):
    one, again, other = (of_step(MADE[name](scale)) for scale in (2.0, 2.0, 3.0))
    assert model_digest(one) == model_digest(again)
    assert model_digest(one) != model_digest(other)
    assert unidentified(one) == unidentified(other) == ""


def test_a_set_has_no_order_in_which_its_functions_are_met():
    class Ordered(frozenset):  # a set in the order that it is told, as another process may have it
        def __iter__(self):
            return iter(sorted(frozenset.__iter__(self), key=lambda f: f.__name__, reverse=Ordered.turned))

    found = []
    for Ordered.turned in (False, True):
        forms = canonical(Ordered([by_global, calls_another, half]))
        found.append(forms["set"])
    assert found[0] == found[1]


def test_addresses_in_memory_do_not_count():
    one, other = (np.array([(1, "a" * n)], dtype=[("n", "i4"), ("text", "O")]) for n in (30, 30))
    assert canonical(resolve(one)) == canonical(resolve(other))
    size = np.dtype(np.longdouble).itemsize
    pads = [np.full(size, fill, dtype=np.uint8).view(np.longdouble) for fill in (0, 255)]
    for pad in pads:
        pad[0] = 2.0
    assert canonical(pads[0]) == canonical(pads[1])


@pytest.mark.parametrize("function", [by_global, calls_another])
def test_global_values_that_a_function_reads_count(function, monkeypatch):
    before = model_digest(of_step(function))
    assert model_digest(of_step(function)) == before
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert model_digest(of_step(function)) != before


def test_a_function_is_what_was_compiled_and_not_what_its_file_says_now(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    digests = []
    for name, first in (("was_two", 2), ("was_three", 3)):
        path = tmp_path / f"{name}.py"
        path.write_text(f"def scaled(X):\n    return X * {first}\n")
        module = __import__(name)
        path.write_text("def scaled(X):\n    return X * 3\n")
        digests.append(model_digest(of_step(module.scaled)))
    assert digests[0] != digests[1]


def test_a_function_has_the_same_fingerprint_wherever_its_text_stands(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    text = "def scaled(X):\n    return X * 2\n"
    (tmp_path / "flat_text.py").write_text(text)
    (tmp_path / "moved_text.py").write_text("import math\n\n\n" + text.replace("2\n", "2   \n\n"))
    flat, moved = (__import__(name).scaled for name in ("flat_text", "moved_text"))
    assert canonical(flat)["text"] == "def scaled(X):\n    return X * 2"
    assert canonical(flat) == canonical(moved)


class Custom(TransformerMixin, BaseEstimator):
    factor = 2.0

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X * self.factor


def test_the_code_of_a_transformer_counts(monkeypatch):
    before = sk(behind(Custom().fit(X)))
    assert sk(behind(Custom().fit(X))) == before
    assert unidentified(apas.as_model(behind(Custom().fit(X)))) == ""
    with monkeypatch.context() as patched:
        patched.setattr(Custom, "factor", 3.0)
        assert sk(behind(Custom().fit(X))) != before
    monkeypatch.setattr(Custom, "transform", lambda self, X: X * 3)
    assert sk(behind(Custom().fit(X))) != before


def test_what_a_spline_has_learned_counts():
    one, other = (SplineTransformer().fit(X * scale) for scale in (1.0, 2.0))
    final = LogisticRegression().fit(one.transform(X), Y)
    digests = [sk(Pipeline([("step", step), ("model", final)])) for step in (one, copy.deepcopy(one), other)]
    assert digests[0] == digests[1] != digests[2]


def counting():
    count = 0

    def counted(X):
        nonlocal count
        count += 1
        return X * count

    return counted


def locked(scale):
    lock = threading.Lock()

    def scaled(X):
        with lock:
            return X * scale

    return scaled


UNKNOWN = {
    "a lock": (lambda: locked(2.0), "_thread.lock"),
    "a function of C's that shows nothing": (lambda: np.frompyfunc(half, 1, 1), "the ufunc half"),
    "what it changes itself": (counting, "count, which the function that reads it changes"),
    "an open file": (lambda: closed_over(sys.__stdout__), "TextIOWrapper"),
    "a module": (lambda: closed_over(sys.modules[__name__]), "the module"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_fingerprint_is_said(name):
    make, what = UNKNOWN[name]
    model = of_step(make())
    assert unidentified(model).startswith("preprocessing (")
    assert what in unidentified(model)
    assert model_digest(model) == model_digest(model)


def test_a_model_that_does_not_describe_itself_is_not_identified():
    net = apas.FeedForward([[[1.0]]], [[0.0]])
    names = ("classes", "n_features", "parameters", "margin", "shifted_margins")
    plain = types.SimpleNamespace(**{name: getattr(net, name) for name in names})
    assert "describe()" in unidentified(plain)
    assert unidentified(net) == ""


def test_a_container_that_holds_itself_has_a_form():
    round_about = [1]
    round_about.append(round_about)
    assert canonical(round_about) == [1, {"around": 0}]


def test_a_dense_estimator_is_the_network_it_holds(tmp_path):
    # an auditor who got model.json must find the digest that the engineer's certificate names
    estimator = LogisticRegression().fit(X, Y)
    network = apas.FeedForward([estimator.coef_.T], [estimator.intercept_])
    apas.save_model(estimator, tmp_path / "model.json")
    loaded = apas.load_model(tmp_path / "model.json")
    assert sk(estimator) == model_digest(network) == model_digest(loaded)


@pytest.mark.parametrize(
    "classes", [[b"no", b"yes"], [("a", 1), ("b", 2)], [1 + 2j, 2]], ids=["bytes", "tuples", "complex"]
)
def test_unusual_classes_are_refused_at_the_door_or_work_to_the_end(classes):
    try:
        net = apas.FeedForward([[[1.0]]], [[0.0]], classes=classes)
    except apas.InputError:
        return
    assert len(model_digest(net)) == 64
    assert model_digest(net) != model_digest(apas.FeedForward([[[1.0]]], [[0.0]], classes=classes[::-1]))


# -- canonical values --------------------------------------------------------------------------------------------

DISTINCT = [
    None, True, False, b"a", b"b", 1j, 2j, np.exp, np.expm1, math.exp, str.upper, str.lower, 0, 1, -1, 0.5, "0.5", "", "a", "1", [], [1], [[1]], [1, 2], [2, 1], {"a": 1}, {"a": 2}, {"b": 1}, {1, 2}, {1, 3},
    np.array([1.0, 2.0]), np.array([2.0, 1.0]), np.array([[1.0, 2.0]]), np.array([1, 2]), np.array(["a", "b"]),
    np.array(["a", None], dtype=object), StandardScaler(), StandardScaler(with_mean=False), half, third,
    partial(half, 1), partial(half, 2), partial(third, 1), partial(half, X=1), slice(0, 1), slice(1, 2), pd.Series([1.0]), pd.Series([2.0]), pd.DataFrame({"a": [1.0]}), pd.DataFrame({"a": [2.0]}),
]  # fmt: skip


def test_different_values_stay_different():
    seen, collisions = {}, []
    for value in DISTINCT:
        form = repr(canonical(value))
        if form in seen:
            collisions.append((seen[form], value, form))
        seen[form] = value
    assert collisions == []


EQUAL = [
    (np.float64(0.1), 0.1),
    (np.int64(3), 3),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
    (np.array([1.0, 2.0]), np.array([1.0, 2.0], dtype=">f8")),
    (np.array([[1.0, 2.0]]), np.asfortranarray([[1.0, 2.0]])),
    (np.array([1.0, 9.0, 2.0])[::2], np.array([1.0, 2.0])),
    ((1, 2), [1, 2]),
    ({1, 2, 3}, {3, 2, 1}),
    (sparse.csr_matrix(np.eye(2)), np.eye(2)),
    (partial(StandardScaler().fit, X), partial(StandardScaler().fit, X.copy())),
]


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=[str(i) for i in range(len(EQUAL))])
def test_equal_values_have_one_form(one, other):
    assert canonical(resolve(one)) == canonical(resolve(other))
