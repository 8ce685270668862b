"""Models behind a space: pipelines as they are, all others behind the coding, with the same certificates."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import spread
from random_spaces import random_network, random_rows, random_space
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

import apas
from apas.counterfactuals.sources.base import Task
from apas.counterfactuals.space.encoder import CodedModel
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.models.base import Dense, Differentiable, LibraryBacked, Raw, Scaled, offers
from apas.models.digest import model_digest


@pytest.fixture(scope="module")
def loans() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "income": rng.uniform(900, 4000, 200).round(0),
            "home": rng.choice(["own", "rent", "free"], 200),
            "age": rng.integers(18, 80, 200),
            "grade": rng.choice(["C", "B", "A"], 200),
        }
    )
    score = table["income"] / 1000 + (table["home"] == "own") + (table["grade"] == "A") - 0.01 * table["age"]
    return table, np.where(score > 2.5, "yes", "no")


@pytest.fixture(scope="module")
def space(loans) -> FeatureSpace:
    return FeatureSpace.from_frame(
        loans[0],
        kinds={"grade": "ordinal", "income": "integer"},
        values={"grade": ["C", "B", "A"]},
        codes={"grade": "thermometer"},
    )


def encoder() -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("home", OneHotEncoder(), ["home"]),
            ("grade", OrdinalEncoder(categories=[["C", "B", "A"]]), ["grade"]),
            ("rest", StandardScaler(), ["income", "age"]),
        ]
    )


def test_a_pipeline_takes_raw_rows_already(loans, space) -> None:
    table, y = loans
    pipeline = make_pipeline(encoder(), LogisticRegression()).fit(table, y)
    net = apas.as_model(pipeline)
    assert space.bind(net) is net
    turned = FeatureSpace(space.features[::-1])  # columns are matched by name
    assert turned.bind(net) is net
    numbers, other = space.numbers(table), turned.numbers(table)
    np.testing.assert_array_equal(Task(net, space).encoded(numbers), net.encode(table))
    np.testing.assert_array_equal(Task(net, turned).encoded(other), net.encode(table))
    assert (Task(net, space).valid(numbers, "yes") == (pipeline.predict(table) == "yes")).all()


def test_a_pipeline_scales_by_itself(loans) -> None:
    table, y = loans
    numeric = table[["income", "age"]]
    net = apas.as_model(make_pipeline(MinMaxScaler(), LogisticRegression()).fit(numeric, y))
    scaled = FeatureSpace.from_frame(numeric, scale="minmax")
    assert scaled.bind(net) is net  # or the numbers would be scaled twice
    np.testing.assert_allclose(Task(net, scaled).encoded(scaled.numbers(numeric)), net.encode(numeric))


def test_an_estimator_on_coded_columns(loans, space) -> None:
    table, y = loans
    columns = pd.DataFrame(space.encode(table), columns=space.coding.names)
    for names in (True, False):
        fitted = LogisticRegression(max_iter=5000).fit(columns if names else columns.to_numpy(), y)
        model = space.bind(fitted)
        assert isinstance(model, CodedModel)
        assert (model.n_raw_features, model.n_features, model.feature_names) == (4, 8, space.names)
        assert model.classes == ("no", "yes")
        np.testing.assert_array_equal(model.encode(table), columns)
        np.testing.assert_array_equal(model.encode(table[list(reversed(space.names))]), columns)
        assert (model.library_classes(table) == fitted.predict(columns if names else columns.to_numpy())).all()
        assert "behind a space of 4 features" in repr(model)


def test_a_pipeline_on_coded_columns(loans, space) -> None:
    """Its preprocessing knows nothing of categories: they are coded first."""
    table, y = loans
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(space.encode(table), y)
    model = space.bind(fitted)
    assert isinstance(model, CodedModel)
    assert (
        Task(model, space).valid(space.numbers(table), "yes") == (fitted.predict(space.encode(table)) == "yes")
    ).all()
    certificates = apas.certify(model, table[:20], 0.01, target="predicted", method="interval")
    assert [c.target for c in certificates] == fitted.predict(space.encode(table[:20])).tolist()


def test_scaled_numbers_and_plain_ones() -> None:
    net = apas.FeedForward([[[1.0], [2.0]]], [[0.0]])
    plain = FeatureSpace([Feature("a", low=0, high=4), Feature("b", "ordinal", values=(1, 2, 5))])
    assert plain.bind(net) is net
    assert Task(net, plain).encoded(np.array([[3.0, 2.0]])).tolist() == [[3.0, 5.0]]
    scaled = FeatureSpace(plain.features, "minmax").bind(net)
    assert isinstance(scaled, CodedModel)
    assert scaled.encode([[3.0, 5]]).tolist() == [[0.75, 1.0]]


def test_texts_that_stand_for_numbers_are_coded() -> None:
    net = apas.FeedForward([[[1.0], [2.0]]], [[0.0]])
    model = FeatureSpace([Feature("a"), Feature("sex", "binary", values=("f", "m"))]).bind(net)
    assert isinstance(model, CodedModel)
    assert model.encode(np.array([[3.0, "m"]], dtype=object)).tolist() == [[3.0, 1.0]]


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("seed", spread(range(4), 2))
def test_certificates_are_those_of_the_coded_rows(outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng, 4)
    net = random_network(rng, space.coding.n_columns, outputs)
    table = space.table(random_rows(rng, space, 10))
    model, matrix = space.bind(net), space.encode(table)
    assert isinstance(model, CodedModel) or space.coding.is_plain
    for method in ("interval", apas.Sampling(n_samples=1379), "exact"):
        ours = apas.certify(model, table, 0.02, target="predicted", method=method, rng=9)
        bare = apas.certify(net, matrix, 0.02, target="predicted", method=method, rng=9)
        assert [(c.verdict, c.evidence, c.target) for c in ours] == [(c.verdict, c.evidence, c.target) for c in bare]
    ours, bare = (apas.max_shift(m, x, target="predicted", rng=9) for m, x in ((model, table), (net, matrix)))
    assert [(m.delta, m.upper, m.provable) for m in ours] == [(m.delta, m.upper, m.provable) for m in bare]


def test_it_offers_what_the_model_offers(loans, space) -> None:
    table, y = loans
    coded = space.encode(table)
    network = space.bind(random_network(np.random.default_rng(0), 8))
    estimator = space.bind(LogisticRegression(max_iter=5000).fit(coded, y))
    for model in (network, estimator):
        for capability in (Raw, Dense, Differentiable, Scaled):
            assert offers(model, capability)
        assert model.as_feedforward().n_features == 8
    assert offers(estimator, LibraryBacked)
    assert not offers(network, LibraryBacked)
    again = pickle.loads(pickle.dumps(network))
    np.testing.assert_array_equal(again.margin(again.encode(table), 1), network.margin(network.encode(table), 1))


def test_the_digest_knows_the_coding_but_not_the_constraints(space) -> None:
    net = random_network(np.random.default_rng(0), 8)
    digest = model_digest(space.bind(net))
    assert digest == model_digest(space.bind(net))
    assert digest != model_digest(net)
    freer = FeatureSpace([*space.features[:2], Feature("age", "integer", mutable=False), space.features[3]])
    assert model_digest(freer.bind(net)) == digest
    scaled = FeatureSpace(space.features, "minmax")
    assert model_digest(scaled.bind(net)) != digest


def test_a_torch_module_behind_a_space(loans, space) -> None:
    from torch_modules import nn, torch  # without PyTorch this skips

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 1), nn.Sigmoid())
    net = apas.as_model(module.double().eval())
    scaled = FeatureSpace(space.features, "minmax")
    model = scaled.bind(net)
    assert isinstance(model, CodedModel)
    table = loans[0][:12]
    with torch.no_grad():
        ones = module(torch.from_numpy(scaled.encode(table))).numpy()[:, 0] >= 0.5
    assert (Task(model, scaled).valid(scaled.numbers(table), 1) == ones).all()
    ours = apas.certify(model, table, 0.01, target="predicted", rng=1)
    bare = apas.certify(net, scaled.encode(table), 0.01, target="predicted", rng=1)
    assert [(c.verdict, c.evidence) for c in ours] == [(c.verdict, c.evidence) for c in bare]


# --- what does not match ---


def named(*names: str) -> apas.FeedForward:
    return apas.FeedForward([np.ones((len(names), 1))], [[0.0]], feature_names=names)


def test_a_space_that_does_not_match(loans, space) -> None:
    with pytest.raises(
        apas.InputError, match="which takes 3 columns, but it has 4 features in 8 columns; describe exactly"
    ):
        space.bind(apas.FeedForward([np.ones((3, 1))], [[0.0]]))
    with pytest.raises(apas.InputError, match="`space` must have the model's columns, but it lacks 'b'; add it"):
        FeatureSpace([Feature("a"), Feature("c")]).bind(named("a", "b"))
    with pytest.raises(
        apas.InputError, match="in the order of the model's columns, but column 0 is 'a' for the model and 'b'"
    ):
        FeatureSpace([Feature("b"), Feature("a")]).bind(named("a", "b"))
    with pytest.raises(apas.InputError, match="column 2 is 'b' for the model and 'a' for the space"):
        home = Feature("home", "categorical", values=("own", "rent"))
        FeatureSpace([home, Feature("a"), Feature("b")]).bind(named("home_own", "home_rent", "b", "a"))
    with pytest.raises(apas.Unsupported, match="which apas cannot read"):
        space.bind(object())


def test_levels_that_a_pipeline_does_not_know_are_an_error(loans) -> None:
    table, y = loans
    pipeline = make_pipeline(encoder(), LogisticRegression()).fit(table, y)
    wider = FeatureSpace.from_frame(table, values={"home": ["free", "own", "rent", "tent"]})
    with pytest.raises(apas.InputError, match="levels that the model knows, but .* unknown categories .'tent'"):
        wider.bind(pipeline)
    with pytest.raises(apas.InputError, match="kinds and levels that the model knows, but its preprocessing says: "):
        FeatureSpace.from_frame(table.assign(age="old")).bind(pipeline)


def test_a_pipeline_with_its_own_function_is_left_alone(loans) -> None:
    table, y = loans
    pipeline = make_pipeline(FunctionTransformer(lambda f: f[["income"]] / 1000), LogisticRegression()).fit(table, y)
    space = FeatureSpace.from_frame(table)
    assert space.bind(pipeline).n_features == 1


def test_to_bind_twice_codes_once():
    space = FeatureSpace([Feature("a", low=0.0, high=10.0), Feature("b", low=5.0, high=6.0)], scale="minmax")
    once = space.bind(apas.FeedForward([[[1.0], [2.0]]], [[0.5]]))
    twice = space.bind(once)
    assert twice is once
    assert twice.encode([[5.0, 5.5]]).tolist() == [[0.5, 0.5]]
