"""`estimate_delta`: the published figures, repeatability, an untouched estimator, and what is refused."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from conftest import resolve, shared_folder
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

import apas
from apas.datasets import CATEGORICAL, NUMERIC, make_loans
from apas.models.digest import canonical
from apas.shifts.distance import estimate_delta

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
Y = (X[:, 0] + 0.3 * RNG.normal(size=300) > 0).astype(int)
X_NEW, Y_NEW = X[200:] + 0.2, Y[200:]


def network(**options):
    return MLPClassifier((4,), **{"random_state": 0, "max_iter": 400, "tol": 1e-2, **options}).fit(X[:200], Y[:200])


@pytest.fixture(scope="module")
def mlp():
    return network()


# -- the paper's figures ---------------------------------------------------------------------------------------------


def halves(features, labels, seed):
    """Rows drawn with replacement, half as many as there are, sorted; and the rows never drawn."""
    size = len(labels)
    drawn = np.sort(np.random.RandomState(seed).choice(size, size // 2))
    never = np.setdiff1d(np.arange(size), drawn)
    return features[drawn], labels[drawn], features[never], labels[never]


def diabetes():
    table = pd.read_csv(shared_folder("datasets") / "diabetes" / "diabetes.csv")
    features = MinMaxScaler().fit_transform(table.drop(columns="Outcome"))
    return halves(features, table["Outcome"].to_numpy(), seed=1)


def no2():
    table = pd.read_csv(shared_folder("datasets") / "no2" / "no2.csv")
    features = MinMaxScaler().fit_transform(table.drop(columns="binaryClass"))
    return halves(features, (table["binaryClass"] == "P").to_numpy().astype(int), seed=4)


def sba():
    table = pd.read_csv(shared_folder("datasets") / "sba" / "SBAcase.11.13.17.csv", encoding="utf-8-sig")
    columns = ["Term", "NoEmp", "CreateJob", "RetainedJob", "DisbursementGross", "ChgOffPrinGr", "GrAppv", "SBA_Appv"]
    columns += ["daysterm"]
    features, labels = MinMaxScaler().fit_transform(table[columns]), 1 - table["Default"].to_numpy()
    old = (table["ApprovalFY"] < 2006).to_numpy()
    return features[old], labels[old], features[~old], labels[~old]


@pytest.mark.parametrize(
    ("data", "hidden", "rate", "split", "fraction", "drawn", "published"),
    [
        (diabetes, 8, 0.01, 0, 0.25, 116, 0.105840),
        (no2, 16, 0.005, 0, 0.15, 45, 0.020924),
        (sba, 18, 0.005, 5, 0.25, 235, 0.108212),
    ],
    ids=["diabetes", "no2", "sba"],
)
def test_published_deltas(data, hidden, rate, split, fraction, drawn, published):
    X1, y1, X2, y2 = data()
    X_train, _, y_train, _ = train_test_split(X1, y1, test_size=0.2, stratify=y1, random_state=split)
    base = MLPClassifier((hidden,), learning_rate_init=rate, batch_size=8, max_iter=9000, random_state=0)
    base.fit(X_train, y_train)
    report = estimate_delta(base, X2, y2, fraction=fraction, rng=range(5))
    assert report.delta == pytest.approx(published, abs=1e-6)
    sizes = []

    def update(model, X, y):
        sizes.append((len(X), len(y)))
        model.partial_fit(X, y)

    assert estimate_delta(base, X2, y2, update=update, fraction=fraction, rng=[0, 1, 2, 3, 4]) == report
    assert sizes == [(drawn, drawn)] * 5


# -- what is measured ------------------------------------------------------------------------------------------------


def test_one_pass_over_the_drawn_rows(mlp):
    report = estimate_delta(mlp, X_NEW, Y_NEW, rounds=2, fraction=0.5, rng=[3, 9])
    for column, seed in (("round 1", 3), ("round 2", 9)):
        rows = np.random.RandomState(seed).choice(100, 50)
        other = copy.deepcopy(mlp).partial_fit(X_NEW[rows], Y_NEW[rows])
        pairs = zip([*mlp.coefs_, *mlp.intercepts_], [*other.coefs_, *other.intercepts_], strict=True)
        assert report.overall.loc[math.inf, column] == max(np.abs(b - a).max() for a, b in pairs)
    assert report.delta == report.overall.loc[math.inf].max()
    assert report.entropy is None


def test_biases_count(mlp):
    def update(model, X, y):
        model.intercepts_[-1] += 7.0

    report = estimate_delta(mlp, X_NEW, Y_NEW, update=update, rounds=1)
    assert report.delta == pytest.approx(7.0)
    assert str(report).endswith("the largest change is a bias of layer1.")


def test_report_of_rounds(mlp):
    report = estimate_delta(mlp, X_NEW, Y_NEW, rounds=3, rng=0)
    assert report.models == ("round 1", "round 2", "round 3")
    assert report.per_layer.columns.tolist() == ["layer", "kind", "size", "p", "round 1", "round 2", "round 3"]
    assert " over 3 models; the largest change is a " in str(report)
    assert (report.p, report.entropy) == (math.inf, 0)


SHARES = (0.29, np.float32(0.57), 0.999, 1, 0.01, Fraction(1, 3))


def test_draws_are_repeatable_with_replacement_and_a_prefix(mlp):
    seen = []

    def update(model, X, y):
        seen.append(X[:, 0])

    def rows(**options):
        seen.clear()
        estimate_delta(mlp, np.arange(300.0).reshape(100, 3), Y_NEW, update=update, **options)
        return [part.astype(int) // 3 for part in seen]

    five, two = rows(rng=1, fraction=0.5), rows(rng=1, fraction=0.5, rounds=2)
    assert [len(part) for part in five] == [50] * 5
    assert all((a == b).all() for a, b in zip(five[:2], two, strict=True))
    assert len({tuple(part) for part in five}) == 5
    assert all(len(set(part)) < 50 for part in five)
    assert (rows(rng=2, fraction=0.5)[0] != five[0]).any()
    many = np.concatenate(rows(rng=3, fraction=1.0, rounds=200))
    counts = np.bincount(many, minlength=100)
    assert ((counts - 200) ** 2 / 200).sum() < 160  # chi-square with 99 degrees of freedom: 4 standard deviations
    assert [len(rows(rng=0, fraction=f, rounds=1)[0]) for f in SHARES] == [29, 57, 99, 100, 1, 33]


@pytest.mark.parametrize("random_state", [0, None])
def test_a_seed_repeats_everything(random_state):
    sgd = SGDClassifier(loss="log_loss", random_state=random_state).fit(X[:200], Y[:200])
    first = estimate_delta(sgd, X_NEW, Y_NEW, rng=5)
    np.random.seed(1)  # noqa: NPY002
    assert estimate_delta(sgd, X_NEW, Y_NEW, rng=5) == first
    assert estimate_delta(sgd, X_NEW, Y_NEW, rng=6) != first
    unseeded = estimate_delta(sgd, X_NEW, Y_NEW)
    assert estimate_delta(sgd, X_NEW, Y_NEW, rng=unseeded.entropy) == unseeded
    a, b = (estimate_delta(sgd, X_NEW, Y_NEW, rng=np.random.default_rng(4)) for _ in range(2))
    assert a == b


@pytest.mark.parametrize(
    "update", [None, lambda model, X, y: model.fit(X, y), lambda model, X, y: model.coefs_.clear()]
)
def test_the_estimator_is_never_changed(mlp, update):
    before = canonical(mlp)
    try:
        estimate_delta(mlp, X_NEW, Y_NEW, update=update, rng=0)
    except (apas.InputError, IndexError):
        assert update is not None
    assert canonical(mlp) == before
    assert mlp.random_state == 0


def test_what_update_may_return(mlp):
    def moved(model, X, y):
        other = copy.deepcopy(model)
        other.coefs_[0] = other.coefs_[0] + 0.5
        return other

    in_place = estimate_delta(mlp, X_NEW, Y_NEW, update=lambda model, X, y: model.partial_fit(X, y) and None, rng=0)
    assert in_place == estimate_delta(mlp, X_NEW, Y_NEW, rng=0)
    assert estimate_delta(mlp, X_NEW, Y_NEW, update=moved, rng=0).delta == pytest.approx(0.5)
    as_model = estimate_delta(mlp, X_NEW, Y_NEW, update=lambda *a: apas.as_model(moved(*a)), rng=0)
    assert as_model.delta == pytest.approx(0.5)
    with pytest.raises(
        apas.Unsupported, match=r"the model of round 1 of estimate_delta cannot be read: .*dict, which apas"
    ):
        estimate_delta(mlp, X_NEW, Y_NEW, update=lambda model, X, y: {"not": "a model"})
    wide = MLPClassifier((6,), random_state=0, max_iter=400, tol=1e-2).fit(X, Y)
    with pytest.raises(apas.InputError, match=r"the model of round 1 .*same shapes .*\(3, 4\), but .*\(3, 6\)"):
        estimate_delta(mlp, X_NEW, Y_NEW, update=lambda model, X, y: wide)
    with pytest.raises(ZeroDivisionError):
        estimate_delta(mlp, X_NEW, Y_NEW, update=lambda model, X, y: 1 / 0)


def test_networks_without_a_library_need_update():
    net = apas.FeedForward([[[1.0], [2.0], [3.0]]], [[0.0]])

    def update(model, X, y):
        assert model is not net
        return apas.FeedForward([model.weights[0] + y.mean()], model.biases)

    report = estimate_delta(net, X_NEW, np.ones(100), update=update, rounds=1, rng=0)
    assert report.delta == 1.0


# -- frames and pipelines --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loans():
    table = make_loans(600, rng=0)
    encoder = ColumnTransformer(
        [("numbers", StandardScaler(), list(NUMERIC)), ("words", OneHotEncoder(), list(CATEGORICAL))]
    )
    bank = Pipeline([("encode", encoder), ("network", MLPClassifier((4,), random_state=0, max_iter=500, tol=1e-2))])
    return bank.fit(table.drop(columns="approved"), table["approved"])


def test_pipelines_train_their_last_step(loans):
    new = make_loans(400, drift=1.0, rng=1)
    rows, labels = new.drop(columns="approved"), new["approved"]
    before = canonical(loans)
    report = estimate_delta(loans, rows, labels, fraction=0.25, rng=range(5))
    encoded = loans[:-1].transform(rows)
    assert report == estimate_delta(loans[-1], encoded, labels, fraction=0.25, rng=range(5))
    assert report.delta > 0
    assert canonical(loans) == before
    # columns in another order are put right, and the index does not matter
    turned = rows[rows.columns[::-1]].set_axis(range(1000, 1400))
    assert estimate_delta(loans, turned, labels.to_list(), fraction=0.25, rng=range(5)) == report


def test_update_gets_raw_frames(loans):
    new = make_loans(100, rng=1)
    rows, labels = new.drop(columns="approved"), new["approved"]

    def update(model, X, y):
        assert isinstance(X, pd.DataFrame)
        assert X.columns.tolist() == rows.columns.tolist()
        assert isinstance(y, pd.Series)
        assert y.equals(labels.loc[X.index])
        model[-1].partial_fit(model[:-1].transform(X), y)

    report = estimate_delta(loans, rows, labels, update=update, rng=0)
    assert report == estimate_delta(loans, rows, labels, rng=0)


def test_refitted_preprocessing_is_warned_of():
    bank = make_pipeline(StandardScaler(), SGDClassifier(random_state=0)).fit(X[:200], Y[:200])
    with pytest.warns(apas.GuaranteeWarning, match=r"the model of round 1 of estimate_delta .*\(preprocessing\)"):
        estimate_delta(bank, X_NEW, Y_NEW, update=lambda model, X, y: model.fit(X, y), rounds=1, fraction=1.0)


def test_column_names_bring_no_warnings():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = SGDClassifier(random_state=0).fit(frame[:200], Y[:200])
    plain = SGDClassifier(random_state=0).fit(X[:200], Y[:200])
    reports = [
        estimate_delta(model, rows, Y[200:], rng=0)
        for model in (named, plain)
        for rows in (frame[200:], X[200:], X[200:].tolist())
    ]
    assert all(report == reports[0] for report in reports)
    scaled = make_pipeline(StandardScaler(), SGDClassifier(random_state=0)).set_output(transform="pandas")
    assert estimate_delta(scaled.fit(frame[:200], Y[:200]), frame[200:], Y[200:], rng=0).delta > 0


def test_text_labels_and_three_classes():
    labels = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = MLPClassifier((4,), random_state=0, max_iter=400, tol=1e-2).fit(X[:200], labels[:200])
    only_low = labels[200:] == "low"  # a part need not have every class
    assert estimate_delta(model, X[200:][only_low], labels[200:][only_low], fraction=0.5, rng=0).delta > 0


def test_parts_smaller_than_a_batch_bring_no_warning(recwarn):
    assert estimate_delta(network(batch_size=32), X_NEW, Y_NEW, fraction=0.05, rng=0).delta > 0
    assert not recwarn.list


# -- refusals --------------------------------------------------------------------------------------------------------


def call(estimator=None, rows=X_NEW, labels=Y_NEW, **options):
    return lambda mlp: estimate_delta(mlp if estimator is None else resolve(estimator), rows, labels, **options)


def fitted(estimator):
    return partial(estimator.fit, X, Y)


SCALED = fitted(make_pipeline(StandardScaler(), LogisticRegression()))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (call(fraction=0), r"`fraction` of estimate_delta must lie in \(0, 1\], got 0; it is a share"),
        (call(fraction=1.5), r"`fraction` .*got 1.5"),
        (call(fraction=-0.1), r"`fraction` .*got -0.1"),
        (call(fraction=math.nan), r"`fraction` .*got nan"),
        (call(fraction="half"), r"`fraction` .*got 'half'"),
        (call(fraction=True), r"`fraction` .*got True"),
        (call(fraction=0.005), r"`X_new` .*0.005 of 100 rows is less than one; pass more rows, or a fraction of at least 1/100"),
        (call(rows=X_NEW[:4], labels=Y_NEW[:4]), r"`X_new` .*0.1 of 4 rows is less than one"),
        (call(rows=X_NEW[:0], labels=[]), r"`X_new` .*0.1 of 0 rows is less than one; pass more rows\."),
        (call(rounds=0), "`rounds` of estimate_delta must be an integer of at least 1, got 0"),
        (call(rounds=2.5), "`rounds` .*got 2.5"),
        (call(labels=Y_NEW[:-1]), r"`y_new` of estimate_delta must hold one label per row of `X_new` \(100\), got 99"),
        (call(labels=Y_NEW[:, None]), "`y_new` of estimate_delta must be 1-D, one label per row, got 2 dimensions"),
        (call(labels=pd.DataFrame({"y": Y_NEW})), "`y_new` of estimate_delta must be 1-D"),
        (call(labels=None), "`y_new` of estimate_delta must be 1-D, .*got 0 dimensions"),
        (call(labels=np.where(Y_NEW, 2, 0)), r"`y_new` of estimate_delta must hold classes of the model \(0, 1\), got 2"),
        (call(labels=np.where(Y_NEW, np.nan, 0)), r"`y_new` .*got nan"),
        (call(rows=X_NEW[:, :2]), "`X_new` must have 3 columns, as the model has features, got 2"),
        (call(rows=X_NEW[0]), r"`X_new` must be 2-D .*x\[None, :\]"),
        (call(rows=np.where(X_NEW > 1, np.nan, X_NEW)), "`X_new` must hold finite numbers"),
        (call(fitted(LogisticRegression())), r"`estimator` of estimate_delta must have partial_fit, but LogisticRegression has none; say how to train it further, e.g. def update\(model, X, y\): model.set_params\(warm_start=True\).fit\(X, y\)"),
        (call(fitted(RidgeClassifier())), r"def update\(model, X, y\): model.fit\(X, y\)"),
        (call(SCALED), r"LogisticRegression has none; .*model\[-1\].set_params\(warm_start=True\).fit\(model\[:-1\].transform\(X\), y\)"),
        (call(fitted(MLPClassifier((2,), solver="lbfgs", random_state=0, max_iter=5000))), r"MLPClassifier has none with solver='lbfgs' \(scikit-learn offers it for 'adam' and 'sgd'\)"),
        (call(partial(lambda: apas.as_model(resolve(SCALED)))), r"SklearnModel has none \(pass the estimator itself, not what as_model made of it\)"),
        (call(partial(network, early_stopping=True)), "must not have early_stopping=True, with which scikit-learn refuses partial_fit; say how"),
        (call(MLPClassifier()), "`estimator` of estimate_delta cannot be read: the model must be fitted"),
        (call("model.json"), "`estimator` of estimate_delta cannot be read: .*path 'model.json'"),
        (call(update=3), r"`update` of estimate_delta must be a function \(model, X, y\), got 3"),
        (call(rng=[1, 2]), r"`rng` of estimate_delta must be one seed, or one per round \(5\), got 2"),
        (call(rng=[1, 2, 3, 4, -5]), r"`rng` of estimate_delta must hold integers in \[0, 2\*\*32\) as seeds, got -5"),
        (call(rng=np.linspace(0, 1, 5)), r"`rng` .*integers"),
        (call(rng=-1), "`rng` must not be negative"),
        (call(rng="seed"), "`rng` must be None"),
    ],
)  # fmt: skip
def test_bad_input(mlp, ask, message):
    with pytest.raises(apas.InputError, match=message):
        ask(mlp)


def test_the_advice_works():
    def update(model, X, y):
        model[-1].set_params(warm_start=True).fit(model[:-1].transform(X), y)

    assert estimate_delta(resolve(SCALED), X_NEW, Y_NEW, update=update, fraction=0.9, rng=0).delta > 0


def test_what_partial_fit_refuses_is_passed_on():
    class Picky(SGDClassifier):
        def partial_fit(self, X, y):
            raise ValueError("no more\nof this")

    Picky.__module__, Picky.__name__ = "sklearn.linear_model", "SGDClassifier"
    with pytest.raises(
        apas.InputError, match="must take partial_fit on the new rows, but SGDClassifier says: no more; say"
    ):
        estimate_delta(Picky().fit(X, Y), X_NEW, Y_NEW, rng=0)


def test_regressors_are_not_supported():
    with pytest.raises(
        apas.Unsupported, match="`estimator` of estimate_delta cannot be read: LinearRegression is a regressor"
    ):
        estimate_delta(LinearRegression().fit(X, Y), X_NEW, Y_NEW)
