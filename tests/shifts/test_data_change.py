"""The set of refits on changed data: what it reads, what it refuses, what it measures."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import DataChange
from apas.certification.methods import refit
from apas.certification.question import Question

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = np.where(X[:, 0] + RNG.normal(size=200) > 0, "yes", "no")
TIGHT = {"solver": "newton-cholesky", "tol": 1e-10}


def test_minimiser_is_that_of_scikit_learn():
    weights = RNG.uniform(0.5, 2.0, 200)
    by_class = {"no": 1.0, "yes": 3.0}
    for C in (0.1, 1.0, 10.0):
        model = LogisticRegression(C=C, class_weight=by_class, **TIGHT).fit(X, Y, sample_weight=weights)
        change = DataChange("removed", X, Y, C=C, class_weight=by_class, sample_weight=weights)
        theta = change.bind(model).problem.minimiser()
        assert theta == pytest.approx([*model.coef_[0], *model.intercept_], abs=1e-7)
        assert change.gradient(model) < 1e-6
    for alpha in (0.5, 4.0):
        model = RidgeClassifier(alpha=alpha, class_weight=by_class).fit(X, Y, sample_weight=weights)
        change = DataChange("removed", X, Y, loss="squared", C=1 / alpha, class_weight=by_class, sample_weight=weights)
        theta = change.bind(model).problem.minimiser()
        assert theta == pytest.approx(np.append(model.coef_, model.intercept_), abs=1e-8)


def test_the_defaults_of_the_library_are_measured():
    change = DataChange("removed", X, Y)
    loose, tight = LogisticRegression(tol=0.1).fit(X, Y), LogisticRegression(**TIGHT).fit(X, Y)
    assert change.gradient(tight) < 1e-6 < change.gradient(loose)


def test_networks_keep_their_hidden_layers():
    model = MLPClassifier((4,), max_iter=300, random_state=0, tol=1e-3).fit(X, Y)
    change = DataChange("removed", X, Y, C=2.0)
    layer = change.bind(model)
    hidden = np.maximum(X @ model.coefs_[0] + model.intercepts_[0], 0)
    assert np.allclose(layer.problem.Z[:, :-1], hidden)
    refit = LogisticRegression(C=2.0, **TIGHT).fit(hidden, Y)
    assert layer.problem.minimiser() == pytest.approx([*refit.coef_[0], *refit.intercept_], abs=1e-6)


def test_reports_count_the_change():
    base = LogisticRegression(**TIGHT).fit(X, Y)
    kept = np.delete(np.arange(200), [3, 7])
    new = LogisticRegression(**TIGHT).fit(X[kept], Y[kept])
    report = DataChange("removed", X, Y).refit_report(base, new, X[kept], Y[kept])
    assert report.changes == 2
    assert report.applies(2)
    assert not report.applies(1)
    assert report.gradient < 1e-6
    other = Y.copy()
    other[[3, 7, 9]] = np.where(other[[3, 7, 9]] == "yes", "no", "yes")
    turned = LogisticRegression(**TIGHT).fit(X, other)
    assert DataChange("relabelled", X, Y).refit_report(base, turned, X, other).changes == 3
    assert DataChange("removed", X, Y).refit_report(base, turned, X, other).changes is None
    assert DataChange("added", X, Y).refit_report(base, new, X[kept], Y[kept]).changes is None
    more, labels = np.vstack([X, X[:1] * 0.5, X[1:2]]), np.append(Y, ["yes", "no"])
    grown = LogisticRegression(**TIGHT).fit(more, labels)
    assert DataChange("added", X, Y).refit_report(base, grown, more, labels).changes == 2
    outside = DataChange("added", X, Y, high=X.max(axis=0) * 0.01, low=X.min(axis=0))
    assert "outside" in outside.refit_report(base, grown, more, labels).why
    copy = np.vstack([X, X[X[:, 0].argmax()]]), np.append(Y, Y[X[:, 0].argmax()])  # of a row that may not be added
    assert "outside" in outside.refit_report(base, base, *copy).why
    swapped, marks = np.vstack([X[kept], X[:2] * 0.5]), np.append(Y[kept], ["yes", "no"])
    assert DataChange("replaced", X, Y).refit_report(base, base, swapped, marks).changes == 2
    loose = LogisticRegression(tol=0.1).fit(X[kept], Y[kept])
    measured = DataChange("removed", X, Y, tolerance=1e-5).refit_report(base, loose, X[kept], Y[kept])
    assert not measured.applies(2)
    assert "beyond the tolerance" in measured.sentence()


def test_rows_that_occur_twice_are_counted_twice():
    twice, labels = np.vstack([X, X]), np.append(Y, Y)
    base = LogisticRegression(**TIGHT).fit(twice, labels)
    report = DataChange("removed", twice, labels).refit_report(base, base, X, Y)
    assert report.changes == 200


def test_bind_once_per_model(monkeypatch):
    change, read = DataChange("removed", X, Y), []
    inner = DataChange._read
    monkeypatch.setattr(DataChange, "_read", lambda *a: read.append(1) or inner(*a))
    model = LogisticRegression(**TIGHT).fit(X, Y)
    for _ in range(3):
        apas.certify(model, X[:2], 2, target="predicted", shifts=change, method="refit")
    assert len(read) == 1


def test_words_and_files():
    change = DataChange("replaced", X, Y, C=0.5)
    model = apas.as_model(LogisticRegression(C=0.5, **TIGHT).fit(X, Y))
    words = change.region(model.parameters)
    for part in ("0.001", "inverse Hessian", "C = 0.5", "200 training rows", "preprocessing"):
        assert part in words
    assert change == DataChange("replaced", X.copy(), Y.copy(), C=0.5)
    assert change != DataChange("replaced", X + 1e-12, Y, C=0.5)
    assert repr(change) == "DataChange('replaced', 200 rows, logistic, C=0.5)"


MESSAGES = [
    (lambda: DataChange("gone", X, Y), "`kind`"),
    (lambda: DataChange("removed", X, Y, loss="hinge"), "`loss`"),
    (lambda: DataChange("removed", X, Y, C=0), "`C`"),
    (lambda: DataChange("removed", X, Y, tolerance=0), "`tolerance`"),
    (lambda: DataChange("removed", X, Y[:-1]), "`y`"),
    (lambda: DataChange("removed", X[:1], Y[:1]), "2 rows or more"),
    (lambda: DataChange("removed", X, Y, class_weight="balanced"), "`class_weight`"),
    (lambda: DataChange("removed", X, Y, sample_weight=np.zeros(200)), "`sample_weight` .* got 0 among 200; drop"),
    (lambda: DataChange("removed", X, Y, sample_weight=["a"] * 200), "`sample_weight` .* numbers"),
    (lambda: DataChange("added", X, Y, low=["a", "b", "c"]), "`low` .* numbers"),
    (lambda: DataChange("removed", X, Y, class_weight={"no": 1.0, "yes": "a"}), "`class_weight` .* numbers"),
    (lambda: DataChange("added", X, Y, categories="ab"), "`categories` .* such as"),
    (lambda: DataChange("added", X, Y, categories=[0, 1]), "`categories` .* such as"),
]


@pytest.mark.parametrize(("make", "message"), MESSAGES)
def test_arguments(make, message):
    with pytest.raises(apas.InputError, match=message):
        make()


def asked(model, change, **more):
    options = {"delta": 2, "target": "yes", "shifts": change, "method": "refit"} | more
    return apas.certify(model, [[3.0, 0.0, 0.0]], **options)


def test_models_and_settings_that_do_not_fit():
    change = DataChange("removed", X, Y)
    for model, message in [
        (LogisticRegression(C=2.0), "`C`"),
        (LogisticRegression(class_weight="balanced"), "`class_weight`"),
        (LogisticRegression(fit_intercept=False), "intercept"),
        (LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=20), "l1_ratio"),
        (RidgeClassifier(), "`loss`"),
        (LogisticRegression(solver="liblinear"), "liblinear, which penalises"),
    ]:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = model.fit(X, Y)
        with pytest.raises(apas.ApasError, match=message):
            asked(fitted, change)
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    for model in (LinearSVC(), DecisionTreeClassifier()):
        with pytest.raises(apas.ApasError, match="DataChange"):
            asked(model.fit(X, Y), change)
    three = LogisticRegression().fit(X, RNG.integers(0, 3, 200))
    with pytest.raises(apas.Unsupported, match="two classes"):
        apas.certify(three, X[:1], 2, target=0, shifts=change, method="refit")
    model = LogisticRegression(**TIGHT).fit(X, Y)
    with pytest.raises(apas.Unsupported, match="whole number"):
        asked(model, change, delta=1.5)
    for bad in ({"low": [0.0]}, {"categories": [[0, 9]]}, {"categories": [[0, 1], [1, 2]]}):
        with pytest.raises(apas.InputError, match="columns"):
            asked(model, DataChange("added", X, Y, **bad))
    with pytest.raises(apas.InputError, match="classes"):
        asked(model, DataChange("removed", X, np.where(Y == "yes", "maybe", Y)))


def test_other_verbs_refuse_in_a_sentence():
    change, model = DataChange("removed", X, Y), LogisticRegression(**TIGHT).fit(X, Y)
    for method in ("sampling", "interval", "linear", "exact", "attack", "enumeration", "cascade"):
        with pytest.raises(apas.Unsupported, match='use method="refit"'):
            asked(model, change, method=method)
    with pytest.raises(apas.Unsupported, match="share of the shifts"):
        apas.robust_fraction(model, X[:1], [1.0], target="yes", shifts=change)
    with pytest.raises(apas.Unsupported, match="DataChange"):
        apas.certify(model, X[:1], 0.1, target="predicted", method="refit")
    with pytest.raises(apas.Unsupported, match="its table"):
        change.contains(apas.as_model(model).parameters, apas.as_model(model).parameters, 2)


def test_pipelines_encode_the_table():
    model = make_pipeline(StandardScaler(), LogisticRegression(**TIGHT)).fit(5 + 3 * X, Y)
    change = DataChange("removed", 5 + 3 * X, Y)
    assert change.gradient(model) < 1e-6
    found = apas.certify(model, [[12.0, 5.0, 5.0]], 3, target="yes", shifts=change, method="refit")
    assert found[0].is_certified


def exact_norm(rows, y, theta):
    """sqrt(g' H^-1 g) of the ridge classifier with C = 1, in rational numbers but for the root."""
    Z = [[*map(Fraction, row), Fraction(1)] for row in rows.tolist()]
    t, size = list(map(Fraction, theta)), len(theta)
    left = [sum(a * b for a, b in zip(z, t, strict=True)) - (2 * int(label) - 1) for z, label in zip(Z, y, strict=True)]
    g = [sum(r * z[j] for r, z in zip(left, Z, strict=True)) + (t[j] if j < size - 1 else 0) for j in range(size)]
    H = [[sum(z[i] * z[j] for z in Z) + (i == j < size - 1) for j in range(size)] for i in range(size)]
    system = [[*row, value] for row, value in zip(H, g, strict=True)]
    for i in range(size):
        system[i] = [v / system[i][i] for v in system[i]]
        for k in set(range(size)) - {i}:
            system[k] = [a - system[k][i] * b for a, b in zip(system[k], system[i], strict=True)]
    return math.sqrt(sum(a * row[-1] for a, row in zip(g, system, strict=True)))


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e7])
def test_measured_gradients_are_rounded_up_on_ill_conditioned_tables(scale):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, y = rng.normal(size=40), rng.integers(0, 2, 40)
        rows = np.column_stack([scale * a, scale * a + rng.normal(size=40) / scale])
        theta = [1e-3 / scale, 2e-3 / scale, 0.1]
        net = apas.FeedForward([[[theta[0]], [theta[1]]]], [[theta[2]]])
        exact = exact_norm(rows, y, theta)
        measured = DataChange("removed", rows, y, loss="squared").gradient(net)
        assert exact <= measured <= exact * (3 if scale > 1e3 else 1 + 1e-7)


@pytest.mark.parametrize("kind", ["removed", "relabelled", "added", "replaced"])
def test_tables_that_hold_no_model_are_answered(kind):
    for rows, labels, options in [
        (X, np.ones(200, dtype=int), {}),  # one class alone
        (X, (X[:, 0] > 0).astype(int), {"C": 1e8}),  # separable, hardly penalised
        (X * 1e150, (Y == "yes").astype(int), {}),
        (np.zeros((200, 3)), (Y == "yes").astype(int), {}),  # an intercept alone
        (X[:2], np.array([0, 1]), {}),
    ]:
        net = apas.FeedForward([[[1.0], [1.0], [0.0]]], [[0.5]])
        asked = {"target": 1, "shifts": DataChange(kind, rows, labels, **options), "method": "refit"}
        found = apas.max_shift(net, [[1.0, 0.0, 0.0]], **asked)[0]
        assert 0 <= found.delta < found.broken_at
        assert apas.certify(net, [[1.0, 0.0, 0.0]], 2, **asked)[0].verdict.name in ("CERTIFIED", "REFUTED", "UNKNOWN")
    with pytest.raises(apas.Unsupported, match="singular"):
        apas.certify(
            net, [[1.0, 0.0, 0.0]], 2, target=1, shifts=DataChange(kind, X * 1e160, Y == "yes"), method="refit"
        )


def test_what_rounding_can_take_from_refits_is_charged():
    """Weights of refits may be far larger than those of the model, and so the rounding of their scores."""
    y = (Y == "yes").astype(int)
    net = apas.FeedForward([[[1e-300], [0.0], [0.0]]], [[1e-300]])
    change = DataChange("removed", X * 1e-9, y, C=1e16)  # whose weights are about 1e9
    question = Question.ask(net, [[1.0, 0.0, 0.0]], target=1, delta=1.0, shifts=change, method="refit")
    asked, theta = refit._Asked(question, 0), change.bind(net).problem.minimiser()
    rounding = 1e-12 * float(np.abs(theta[0]))
    assert asked.against(1)[1] >= rounding
    assert asked.against(-1)[1] <= -rounding
