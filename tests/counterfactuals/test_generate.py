"""`generate` from end to end: real models, mixed tables, and what is returned is what was certified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from conftest import spread
from sklearn.compose import make_column_transformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import apas
from apas import Candidate, Counterfactuals, Feature, FeatureSpace, FeedForward, InputError, Status, Unsupported
from apas._random import Stream
from apas.datasets import CATEGORICAL, LOAN_FEATURES, NUMERIC, make_loans
from apas.models.base import encoded_rows

LOANS = make_loans(600)
FEATURES = list(LOAN_FEATURES)
SPACE = FeatureSpace.from_frame(
    LOANS, label="approved", immutable=["age"], increase=["income"], decrease=["existing_loans"],
    steps={"income": 10, "loan_amount": 100, "duration_months": 6},
)  # fmt: skip


@pytest.fixture(scope="module")
def pipeline():
    encoder = make_column_transformer((StandardScaler(), list(NUMERIC)), (OneHotEncoder(), list(CATEGORICAL)))
    network = MLPClassifier((6,), max_iter=400, tol=1e-2, random_state=0)
    return make_pipeline(encoder, network).fit(LOANS[FEATURES], LOANS["approved"])


@pytest.fixture(scope="module")
def rejected(pipeline):
    return LOANS.loc[pipeline.predict(LOANS[FEATURES]) == 0, FEATURES].head(6)


def check(found: Counterfactuals, delta: float, X=None) -> None:
    """What every result must keep: constraints, validity, and certificates of the very rows that are returned."""
    space, there = found.space, found.found
    assert space.allowed(found.numbers[there], found.origins[there]).all()
    again = space.numbers(found.points[there] if not hasattr(found.points, "iloc") else found.points.loc[there])
    np.testing.assert_array_equal(again, found.numbers[there])
    certificates = found.certificates
    assert len(certificates) == there.sum()
    assert certificates.certified.all()
    for i, item in enumerate(found):
        assert (item.status is Status.FOUND) == (item.certificate is not None)
        if item.certificate is None:
            assert np.isnan(found.numbers[i]).all()
            continue
        assert item.certificate.delta == delta
        assert not np.array_equal(found.numbers[i], found.origins[i])
        evidence = item.certificate.evidence
        if evidence.to_dict()["kind"] != "sampling":
            continue
        # the draws that certified it, gone through again on the row as it is returned
        _, encoded = encoded_rows(found.model, space.table(found.numbers[i : i + 1]))
        stream = Stream(evidence.entropy, evidence.purpose)
        directions = found.shifts.directions(found.model.parameters, stream, 0, evidence.draws)
        margins = found.model.shifted_margins(encoded, item.target, directions, delta)[:, 0]
        assert np.count_nonzero(margins < 0) <= evidence.failures
        claim = item.certificate.claim
        level = {"coverage": claim.coverage, "confidence": claim.row_confidence}
        assert evidence.draws == apas.stats.anytime_sample_size(evidence.failures, **level)
        rank, test = map(int, evidence.purpose.split("/")[1:])  # test 0 is the one test of a path
        price = max(1, rank * (rank + 1))
        assert (rank, test) == (item.rank, 0 if claim.tries == price else item.tests)
        assert claim.tries == price * max(1, test * (test + 1))
        assert 1 - claim.row_confidence == (1 - Fraction(repr(claim.confidence))) / claim.tries


@pytest.mark.parametrize("source", ["milp", "neighbours"])
def test_pipelines_with_categories(pipeline, rejected, source):
    found = apas.generate(pipeline, rejected, 0.02, space=SPACE, background=LOANS, source=source, rng=0)
    check(found, 0.02)
    assert found.found.all()
    assert (pipeline.predict(found.points) == 1).all()
    assert (found.points.index == rejected.index).all()
    assert (found.points["age"] == rejected["age"]).all()
    assert (found.points["income"] >= rejected["income"]).all()
    assert (found.points["existing_loans"] <= rejected["existing_loans"]).all()
    assert list(found.points.columns) == FEATURES
    changed = found.points["income"] != rejected["income"]
    assert (found.points.loc[changed, "income"] % 10 == 0).all()


def test_the_program_is_not_farther_than_the_neighbours(pipeline, rejected):
    costs = {
        source: np.array([i.cost for i in apas.generate(
            pipeline, rejected, 0.02, space=SPACE, background=LOANS, source=source, method="interval")])
        for source in ("milp", "neighbours")
    }  # fmt: skip
    assert (costs["milp"] <= costs["neighbours"] + 1e-9).all()


def test_a_space_is_read_off_the_background(pipeline, rejected):
    found = apas.generate(pipeline, rejected.head(2), 0.02, background=LOANS, rng=0)
    check(found, 0.02)
    assert found.space["income"].kind == "integer"
    assert found.space["housing"].values == ("family", "own", "rent")


def test_arrays_and_bare_networks():
    net = FeedForward([[[1.0, -0.5], [0.5, 1.0]], [[2.0], [-1.0]]], [[0.0, 0.1], [-1.5]])
    rng = np.random.default_rng(0)
    background = rng.uniform(size=(50, 2))
    X = background[net.margin(background, 1) < 0][:4]
    found = apas.generate(net, X, 0.03, background=background, rng=1)
    check(found, 0.03)
    assert isinstance(found.points, np.ndarray)
    assert found.points.shape == (4, 2)


def test_several_classes_need_a_target():
    X, y = LOANS[list(NUMERIC)] / LOANS[list(NUMERIC)].max(), LOANS["credit_history"]
    net = MLPClassifier((8,), max_iter=500, tol=1e-3, random_state=0).fit(X, y)
    table = X.astype(float)
    start = table[net.predict(table) == "fair"].head(3)
    with pytest.raises(InputError, match="a model with more than two classes has no other one"):
        apas.generate(net, start, 0.01, background=table)
    found = apas.generate(net, start, 0.01, background=table, target="good", rng=0)
    check(found, 0.01)
    assert found.found.all()
    assert (net.predict(found.points) == "good").all()


def test_torch_modules():
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test TORCH=1")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1), torch.nn.Sigmoid())
    module = module.double().eval()
    rows = np.random.default_rng(1).uniform(-2, 2, size=(300, 3))
    model = apas.as_model(module)
    start = rows[model.margin(rows, 1) < -0.05][:3]
    for source in ("milp", "neighbours"):
        found = apas.generate(module, start, 0.005, background=rows, source=source, rng=0)
        check(found, 0.005)
        assert found.found.all()


class Branched:
    """What a dense network is not: the program cannot take it, neighbours can."""

    classes = (0, 1)
    n_features = 2
    parameters = apas.Parameters.from_arrays([[1.0, 1.0]], names=["w"], kinds=["weight"], layers=["w"])

    def margin(self, X, target):
        return (1 if target == 1 else -1) * (X[:, 0] * X[:, 1] - 1)

    def shifted_margins(self, X, target, directions, delta):
        w = self.parameters.values + delta * directions
        return (1 if target == 1 else -1) * (w[:, :1] * w[:, 1:] * X[:, 0] * X[:, 1] - 1)


def test_models_that_are_no_networks():
    rows = np.random.default_rng(0).uniform(0, 3, size=(200, 2))
    start = rows[rows.prod(axis=1) < 1][:3]
    found = apas.generate(Branched(), start, 0.05, background=rows, source="neighbours", rng=0)
    assert found.found.all()
    with pytest.raises(Unsupported, match="neighbours"):
        apas.generate(Branched(), start, 0.05, background=rows, source="milp")


@pytest.mark.parametrize("method", spread(["interval", "linear", "exact", "cascade"], 3))
def test_every_shift(pipeline, rejected, method):
    found = apas.generate(pipeline, rejected[1:3], 0.01, space=SPACE, method=method)
    check(found, 0.01)
    assert found.found.all()
    assert {str(i.certificate.claim) for i in found} == {"every shift"}
    again = apas.certify(pipeline, found.points, 0.01, target=1, method=method)
    assert again.certified.all()


def test_the_answer_does_not_depend_on_processes_or_on_other_rows(pipeline, rejected):
    rejected = rejected.head(3)
    whole = apas.generate(pipeline, rejected, 0.02, space=SPACE, k=2, rng=3)
    assert apas.generate(pipeline, rejected, 0.02, space=SPACE, k=2, rng=3, n_jobs=2) == whole
    assert [i.cost for i in apas.generate(pipeline, rejected[1:3], 0.02, space=SPACE, k=2, rng=3)] == [
        i.cost for i in whole[2:6]
    ]
    first = apas.generate(pipeline, rejected, 0.02, space=SPACE, rng=3)
    assert [a.certificate for a in first] == [a.certificate for a in whole[whole.rank == 0]]


def test_several_per_row_leave_different_features_alone(pipeline, rejected):
    for source in ("milp", "neighbours"):
        found = apas.generate(
            pipeline, rejected.head(3), 0.02, space=SPACE, background=LOANS, source=source, k=3, rng=0
        )
        check(found, 0.02)
        assert found.row.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert found.rank.tolist() == [0, 1, 2] * 3
        for row in range(3):
            changed = [
                set(np.flatnonzero(found.numbers[i] != found.origins[i]))
                for i in range(3 * row, 3 * row + 3)
                if found[i].is_found
            ]
            assert len(changed) >= 2
            assert all(not a <= b for i, a in enumerate(changed) for b in changed[i + 1 :])


def test_statuses(pipeline, rejected):
    one = rejected.head(1)
    stepping = apas.MilpSource(step=0.01)
    ended = apas.generate(pipeline, one, 0.02, space=SPACE, source=stepping, max_candidates=2, rng=0)[0]
    assert ended.status is Status.BUDGET
    assert ended.candidates == 2
    assert apas.generate(pipeline, one, 5.0, space=SPACE, background=LOANS, source="neighbours", rng=0)[0].status in (
        Status.EXHAUSTED,
        Status.BUDGET,
    )
    stuck = FeatureSpace([replace(f, mutable=f.name == "dependants", direction=None) for f in SPACE])
    gone = apas.generate(pipeline, one, 0.02, space=stuck, rng=0)
    assert gone[0].status is Status.INFEASIBLE
    assert np.isnan(gone.numbers).all()
    assert gone.points.isna().all(axis=None)
    assert gone.changes().tolist() == ["(none found)"]
    assert "INFEASIBLE" in gone.summary()
    assert gone.certificates.certified.tolist() == []


def test_time_limit(pipeline, rejected):
    many = pd.concat([rejected] * 30)
    found = apas.generate(pipeline, many, 0.02, space=SPACE, time_limit=0.05, rng=0)
    assert {i.status for i in found} <= {Status.FOUND, Status.BUDGET}
    assert any(i.status is Status.BUDGET and "time is up" in i.reason for i in found)


@dataclass(frozen=True)
class Shouting:
    """A source that yields things it should not: forbidden, doubled, dear before cheap."""

    ordered: bool = False

    def unsupported(self, task):
        return None

    def candidates(self, search):
        yield Candidate(np.array([9.0, 0.0]))  # out of range
        yield Candidate(np.array([2.0, 2.0]))
        yield Candidate(np.array([2.0, 2.0]))
        yield Candidate(np.array([1.0, 1.0]))
        yield Candidate(np.array([1.9, 2.0]))


def test_constraints_hold_whatever_a_source_says_and_the_cheapest_wins():
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    space = FeatureSpace([Feature("a", low=0, high=2), Feature("b", low=0, high=2)])
    found = apas.generate(net, [[0.0, 0.0]], 0.05, space=space, source=Shouting(), rng=0)
    check(found, 0.05)
    assert found.numbers.tolist() == [[1.0, 1.0]]
    first = apas.generate(net, [[0.0, 0.0]], 0.05, space=space, source=Shouting(ordered=True), rng=0)
    assert first.numbers.tolist() == [[2.0, 2.0]]
    assert found[0].tests == 2
    assert found.certificates[0].claim.tries == 6
    assert found.certificates[0].evidence.purpose == "generate/0/2"


def test_few_draws_leave_no_confidence_for_many_tests():
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    space = FeatureSpace([Feature("a", low=0, high=2), Feature("b", low=0, high=2)])
    sampling = apas.Sampling(n_samples=1379)
    with pytest.raises(InputError, match="1379 draws cannot certify a row of MilpSource, since the first of several"):
        apas.generate(net, [[0.0, 0.0]], 0.05, space=space, source="milp", method=sampling)
    path = apas.generate(net, [[0.0, 0.0]], 0.05, space=space, method=sampling, rng=0)  # one test, with the whole risk
    assert path.found.all()
    assert (path.certificates[0].claim.tries, path.certificates[0].evidence.draws) == (1, 1379)
    enough = apas.Sampling(n_samples=apas.sample_size(coverage=0.995, confidence=0.9995))
    assert apas.generate(net, [[0.0, 0.0]], 0.05, space=space, source="milp", method=enough, rng=0).found.all()


@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.validity)])
@pytest.mark.parametrize("distance", ["l1", "linf"])
def test_no_digit_depends_on_the_other_rows(pipeline, distance, count):
    # slacks differ in their last bits when other rows are looked at with them, and so would the margins asked for next
    free = FeatureSpace.from_frame(LOANS, label="approved", immutable=["age"])
    rows = LOANS.loc[pipeline.predict(LOANS[FEATURES]) == 0, FEATURES].head(count)
    options = {"space": free, "distance": distance, "rng": 3}
    whole = apas.generate(pipeline, rows, 0.02, **options)
    part = apas.generate(pipeline, rows.iloc[::-3], 0.02, **options)
    np.testing.assert_array_equal(part.numbers, whole.numbers[::-3])
