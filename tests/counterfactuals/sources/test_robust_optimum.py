"""`RobustOptimum`: closer than the cheapest row of any margin, under the same claim, whatever the model and the space."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from conftest import shared_folder, spread
from random_spaces import random_network

import apas
from apas import Candidate, Feature, FeatureSpace, FeedForward, InputError, RobustOptimum, Sampling, Status, Unsupported
from apas.counterfactuals.search.tests import Candidates, CertifyingTest
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.sources.robust_optimum import cheapest_near
from apas.paper.published import PublishedSampling, published_loops

SAMPLING = Sampling(coverage=0.95, confidence=0.95, n_samples=1000)


def unit_space(net, **changes):
    return FeatureSpace([replace(Feature(f"x{i}", low=0.0, high=1.0), **changes) for i in range(net.n_features)])


def rejected(net, count, seed=0):
    rows = np.random.default_rng(seed).uniform(size=(2000, net.n_features))
    return rows[net.margin(rows, 1) < -0.2][:count]


def balanced(seed, inputs=4, **options):
    """A random network whose classes are both common on the unit cube."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, inputs, **options)
    rows = rng.uniform(size=(500, inputs))
    values = net.parameters.values.copy()
    values[-1] -= np.median(net.margin(rows, 1))
    return net.with_parameters(values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distance", ["l1", "linf"])
def test_not_farther_than_the_program_under_the_same_claim(seed, distance):
    net = balanced(seed)
    X, space = rejected(net, 6), unit_space(net)
    options = {"space": space, "method": SAMPLING, "distance": distance, "rng": 0}
    program = apas.generate(net, X, 0.03, source="milp", **options)
    optimum = apas.generate(net, X, 0.03, source="robust", **options)
    both = program.found & optimum.found
    assert both.sum() >= 4
    assert optimum.found.sum() >= program.found.sum()
    costs = np.array([[a.cost, b.cost] for a, b in zip(program, optimum, strict=True)])[both]
    assert costs[:, 1].mean() <= costs[:, 0].mean()
    assert (costs[:, 1] <= 1.03 * costs[:, 0]).all()
    assert {c.claim.tries for c in optimum.certificates} == {1}


def test_the_optimum_of_a_linear_model_is_known():
    """One weight moves, so the cheapest x that fails on at most 5 % of the draws solves a linear equation."""
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    space = FeatureSpace([Feature("a", low=0.0, high=5.0), Feature("b", low=0.0, high=5.0, mutable=False)])
    shifts = apas.LinfShifts(scale=[np.array([[1.0], [0.0]]), np.zeros(1)])
    task = Task(net, space)
    test = CertifyingTest(task, shifts, Sampling(coverage=0.95, confidence=0.95, n_samples=4000), 0)
    search = Search(task, 0, np.array([0.1, 0.2]), 1, test=test.for_search(1, 0.4))
    best, _ = cheapest_near(search, search.test, np.array([3.0, 0.2]))
    rank = test.allowance[1]
    question = test.question(Candidates.of_row(np.array([[1.0, 0.2]]), 1, 0.4))
    u = np.sort(question.directions(apas._random.Stream(0, "generate/search"), 0, 4000)[:, 0])[rank]
    assert best[0] == pytest.approx(0.8 / (1 + 0.4 * u), rel=2e-3)
    assert best[1] == 0.2


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "gelu", "softplus"])
def test_smooth_networks_start_from_known_rows_or_from_the_input(activation):
    net = balanced(3, activation=activation)
    X, space = rejected(net, 3), unit_space(net)
    background = np.random.default_rng(5).uniform(size=(300, 4))
    for known in (background, None):
        found = apas.generate(net, X, 0.02, space=space, background=known, method=SAMPLING, rng=0)
        assert found.found.any()
        assert (net.margin(found.numbers[found.found], 1) >= 0).all()
        neighbours = apas.generate(
            net, X, 0.02, space=space, background=background, source="neighbours", method=SAMPLING, rng=0
        )
        both = found.found & neighbours.found
        assert all(a.cost <= b.cost + 1e-9 for a, b, ok in zip(found, neighbours, both, strict=True) if ok)


def test_steps_levels_and_categories():
    space = FeatureSpace(
        [
            Feature("a", low=0.0, high=1.0),
            Feature("b", "integer", low=0, high=20, step=2),
            Feature("c", "categorical", values=("x", "y", "z")),
            Feature("d", "ordinal", values=(1, 2, 3, 4), direction="increase"),
            Feature("e", low=0.0, high=1.0, mutable=False),
        ],
        scale="minmax",
    )
    for seed in range(4):
        net = balanced(seed, inputs=space.coding.n_columns)
        rng = np.random.default_rng(seed)
        rows = np.column_stack([rng.uniform(size=60), 2 * rng.integers(0, 11, 60), rng.integers(0, 3, 60),
                                rng.integers(0, 4, 60), rng.uniform(size=60)])  # fmt: skip
        X = space.table(rows[net.margin(space.coding.encode(rows), 1) < -0.1][:5])
        robust = apas.generate(net, X, 0.02, space=space, target=1, method=SAMPLING, rng=1)
        program = apas.generate(net, X, 0.02, space=space, target=1, method=SAMPLING, source="milp", rng=1)
        there = robust.found
        assert space.allowed(robust.numbers[there], robust.origins[there]).all()
        both = there & program.found
        assert there.sum() >= program.found.sum()
        assert np.mean([i.cost for i in robust[both]]) <= np.mean([i.cost for i in program[both]]) + 1e-9


@pytest.mark.parametrize("shifts", ["l2", "gaussian", apas.InputNoise(), apas.LinfShifts(relative=True)])
def test_every_set_of_shifts(shifts):
    net = balanced(1)
    X = rejected(net, 3)
    found = apas.generate(net, X, 0.05, space=unit_space(net), shifts=shifts, method=SAMPLING, rng=0)
    assert found.found.all()
    assert found.certificates.certified.all()


def test_every_shift_by_bounds():
    net = balanced(2)
    X = rejected(net, 4)
    options = {"space": unit_space(net), "method": "interval"}
    robust = apas.generate(net, X, 0.01, **options)
    program = apas.generate(net, X, 0.01, source="milp", **options)
    both = robust.found & program.found
    assert both.any()
    assert np.mean([i.cost for i in robust[both]]) <= np.mean([i.cost for i in program[both]]) + 1e-9


def test_plausible_rows_are_no_outliers():
    net = balanced(0)
    rng = np.random.default_rng(0)
    background = np.clip(0.5 + 0.12 * rng.normal(size=(400, 4)), 0, 1)
    X = background[net.margin(background, 1) < -0.02][:5]
    options = {"space": unit_space(net), "background": background, "method": SAMPLING, "rng": 0}
    found = apas.generate(net, X, 0.01, source=RobustOptimum(plausible=True), **options)
    assert found.found.any()
    assert (apas.metrics.lof(background, found.numbers[found.found]) == 1).all()
    with pytest.raises(Unsupported, match="compares with known rows"):
        apas.generate(net, X, 0.01, space=unit_space(net), source=RobustOptimum(plausible=True))
    with pytest.raises(Unsupported, match="more than 20, got 20"):
        few = {**options, "background": background[:20]}
        apas.generate(net, X, 0.01, source=RobustOptimum(plausible=True), **few)
    with pytest.raises(InputError, match="`plausible` must be True or False, got 'yes'"):
        RobustOptimum(plausible="yes")


def retrained(net, count, seed, size=0.05):
    rng = np.random.default_rng(seed)
    values = net.parameters.values
    return [net.with_parameters(values + size * rng.normal(size=len(values))) for _ in range(count)]


def test_models_that_exist_are_searched_and_certified_apart():
    net = balanced(1)
    X = rejected(net, 4)
    models = retrained(net, 40 + 59, 0)
    shifts = apas.ObservedShifts(models)
    method = Sampling(coverage=0.95, confidence=0.95)
    found = apas.generate(net, X, None, space=unit_space(net), shifts=shifts, method=method, rng=0)
    assert found.found.any()
    assert len(found.shifts) == 59
    assert set(found.shifts.digests) == {
        apas.certify(m, X[:1], 0.1, target="predicted").model_digest for m in models[40:]
    }
    for x, item in zip(found.numbers, found, strict=True):
        if item.is_found:
            assert item.certificate.claim.tries == 1
            assert item.tests == 1
            assert all(m.margin(x[None], 1)[0] >= 0 for m in models[40:])
    once = apas.generate(net, X, None, space=unit_space(net), shifts=shifts, method=method, source="milp", rng=0)
    assert all(item.tests <= 1 for item in once)
    with pytest.raises(InputError, match="must number more than 59 .* got 59: that many certify"):
        apas.generate(net, X, None, space=unit_space(net), shifts=apas.ObservedShifts(models[:59]), method=method)


def test_a_row_that_fails_its_one_test_is_not_tried_again():
    net = balanced(1)
    models = [
        *retrained(net, 30, 0, size=0.01),
        *retrained(net, 59, 1, size=3.0),
    ]  # the search is told nothing of these
    found = apas.generate(
        net, rejected(net, 3), None, space=unit_space(net), shifts=apas.ObservedShifts(models),
        method=Sampling(coverage=0.95, confidence=0.95), rng=0,
    )  # fmt: skip
    assert {item.status for item in found} == {Status.BUDGET}
    assert all("confidence that is used up" in item.reason for item in found)


def test_models_that_certify_cannot_certify_a_second():
    net = balanced(1)
    shifts = apas.ObservedShifts(retrained(net, 40 + 59, 0))
    with pytest.raises(InputError, match="`k` must be 1 with ObservedShifts, got 2: .* call generate again with other"):
        apas.generate(
            net, rejected(net, 2), None, space=unit_space(net), shifts=shifts, k=2,
            method=Sampling(coverage=0.95, confidence=0.95),
        )  # fmt: skip


@dataclass(frozen=True)
class TestThenPath:
    """Spends a test, and then asks for one at full confidence."""

    __test__ = False
    first: float
    ordered: bool = True

    def unsupported(self, task):
        return None

    def candidates(self, search):
        yield Candidate(np.full(2, self.first))
        yield Candidate(np.array([4.0, 4.0]), path=np.array([[4.0, 4.0], [3.0, 3.0]]))


def test_a_path_after_a_test_is_refused():
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    space = FeatureSpace([Feature("a", low=0.0, high=5.0), Feature("b", low=0.0, high=5.0)])
    sampling = Sampling(coverage=0.9, confidence=0.9, n_samples=60)
    source = TestThenPath(0.54)  # whose first row passes a test now and then, as it happens to look in the search
    found = [
        apas.generate(net, [[0.1, 0.1]], 0.08, space=space, source=source, method=sampling, rng=seed)[0]
        for seed in range(60)
    ]
    tested = [item for item in found if item.tests == 1 and not item.is_found]
    assert tested
    assert {item.status for item in tested} == {Status.BUDGET}
    assert all(item.reason.startswith("a path needs the whole confidence") for item in tested)
    walked = [item for item in found if item.cost > 0.5]  # the first row did not even look well, which costs nothing
    assert walked
    assert {item.tests for item in walked} == {1}


def test_too_few_draws_are_refused():
    net = balanced(1)
    with pytest.raises(InputError, match="10 draws cannot certify a row of RobustOptimum"):
        apas.generate(net, rejected(net, 2), 0.01, space=unit_space(net), method=Sampling(n_samples=10))


def test_known_rows_of_the_other_class_do_no_harm():
    net = balanced(3, activation="tanh")
    X = rejected(net, 3)
    options = {"space": unit_space(net), "method": SAMPLING, "rng": 0}
    assert apas.generate(net, X, 0.01, background=rejected(net, 50, 1), **options).found.all()


def test_draws_that_tie():
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    space = FeatureSpace([Feature("a", low=0.0, high=5.0), Feature("b", low=0.0, high=5.0, mutable=False)])
    shifts = apas.LinfShifts(scale=[np.array([[0.0], [1.0]]), np.zeros(1)])  # what moves meets a zero
    found = apas.generate(net, [[0.2, 0.0]], 0.5, space=space, shifts=shifts, rng=0)
    assert found.numbers[0] == pytest.approx([1.0, 0.0], abs=0.05)


def deep(seed):
    rng = np.random.default_rng(seed)
    sizes = (4, 5, 5, 1)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a / 2) for a, b in itertools.pairwise(sizes)]
    net = FeedForward(weights, [0.3 * rng.normal(size=b) for b in sizes[1:]])
    values = net.parameters.values.copy()
    values[-1] -= np.median(net.margin(rng.uniform(size=(500, 4)), 1)) + 0.3
    return net.with_parameters(values)


@pytest.mark.parametrize("seed", spread([0, 2], 2))
@pytest.mark.parametrize("method", ["interval", "cascade"])
def test_proofs_come_as_close_as_the_program(method, seed):
    net = deep(seed)
    X, space = rejected(net, 2), unit_space(net)
    program, optimum = (
        apas.generate(net, X, 0.005, space=space, method=method, source=source, rng=0) for source in ("milp", "robust")
    )
    assert optimum.found.sum() >= program.found.sum() > 0
    for a, b in zip(program, optimum, strict=True):
        assert not a.is_found or b.cost <= a.cost * (1 + 1e-9)


def test_second_counterfactuals_of_smooth_networks():
    net = balanced(3, activation="tanh")
    found = apas.generate(net, rejected(net, 4), 0.01, space=unit_space(net), method=SAMPLING, k=2, rng=0)
    assert found.found.sum() >= 7


def test_time_is_kept_while_it_descends():
    net = balanced(3, activation="tanh")
    options = {"space": unit_space(net), "method": Sampling(n_samples=20_000), "rng": 0}
    X = rejected(net, 3)
    hurried, rested = (apas.generate(net, X, 0.01, time_limit=t, **options) for t in (1e-9, None))
    assert {item.status for item in hurried} == {Status.BUDGET}
    assert rested.found.all()
    task = Task(net, unit_space(net), deadline=0.0)
    search = Search(task, 0, X[0], 1, test=CertifyingTest(task, apas.LinfShifts(), SAMPLING, 0).for_search(1, 0.01))
    assert cheapest_near(search, search.test, X[0])[0] is None  # no step is taken after the end


@pytest.mark.parametrize(
    ("name", "most"),
    [("diabetes", 0.0662), pytest.param("no2", 0.0380, marks=pytest.mark.validity), pytest.param("sba", 0.0083, marks=pytest.mark.validity),
     pytest.param("credit", 0.0262, marks=pytest.mark.validity)],
)  # fmt: skip
def test_closer_than_the_paper_at_the_same_claim(name, most):
    shared_folder("datasets")
    prepared = apas.experiments.prepare(name)
    loops = published_loops(prepared, {"APΔS": PublishedSampling()})
    published = np.average(apas.metrics.lof(prepared.d1.X, loops.points["APΔS"]), weights=loops.times)
    found = apas.generate(
        prepared.network, prepared.raw_inputs, prepared.delta, space=prepared.tables.space,
        method=Sampling(coverage=0.995, confidence=0.999, n_samples=20_000), rng=0,
    )  # fmt: skip
    figures = apas.evaluate(found, background=prepared.d1.raw, retrained=[prepared.retrained]).summary()
    assert figures["vm1"] == 1
    assert figures["l1"] <= most
    assert figures["lof"] >= published
    assert figures["vm2"] == 1 or name == "credit"
