"""Rows that refits accept: near the optimum, by trees or by predictions, certified on refits that nobody searched."""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from conftest import absent, library
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from tree_refits import Problem, behind_encoder, loans

import apas
from apas.counterfactuals.search.leaf_table import EDGE, Grid, LeafTable, RowGrid
from apas.counterfactuals.search.refit_search import (
    SAVES,
    Demand,
    RefitSearch,
    _known_states,
    refit_path,
    rows_of_class,
    spread,
)
from apas.counterfactuals.sources import robust_optimum
from apas.counterfactuals.sources.base import Search, Task
from apas.models.base import ModelWrapper

CLAIM = apas.Sampling(coverage=0.8, confidence=0.8)  # 8 refits, none of which may fail


class Watched(ModelWrapper):
    """A model without readable trees that notes how many rows it is asked about."""

    def trees(self):
        return None

    def __init__(self, inner):
        super().__init__(inner)
        self.calls = []

    def margin(self, X, target):
        self.calls.append(len(X))
        return self._inner.margin(X, target)


def boosted(refits, rows=4):
    return Problem(behind_encoder(GradientBoostingClassifier(n_estimators=12, subsample=0.8)), *loans(), refits, rows)


def offers_of(problem, **options):
    options = {"shifts": apas.ObservedShifts(problem.refits), "method": CLAIM, "rng": 0} | options
    model = options.pop("model", problem.estimator)
    return apas.generate(model, problem.rejected, None, space=problem.space, background=problem.frame, **options)


@cache
def offered():
    """A problem with 20 refits, and its offers."""
    problem = boosted(20)
    return problem, offers_of(problem)


def test_offers_are_found_and_accepted_by_the_refits_that_certify():
    problem, found = offered()
    assert [c.is_found for c in found] == [True] * len(found)
    rows = found.points
    accept = np.array([m.library_classes(rows) == 1 for m in list(problem.refits)[-8:]])
    assert accept.all()
    assert (rows["age"].to_numpy() == problem.rejected["age"].to_numpy()).all()
    assert (rows["income"].to_numpy() >= problem.rejected["income"].to_numpy()).all()


def test_a_row_has_the_same_offer_alone():
    problem, found = offered()
    alone = copy.copy(problem)
    alone.rejected = problem.rejected.iloc[2:3]
    np.testing.assert_array_equal(offers_of(alone).numbers[0], found.numbers[2])


def test_black_boxes_are_asked_about_500_rows_at_a_time():
    problem = boosted(12, rows=1)
    watched = [Watched(m) for m in problem.refits]
    found = offers_of(problem, model=Watched(apas.as_model(problem.estimator)), shifts=apas.ObservedShifts(watched))
    assert found[0].tests == 1
    searched, certifying = watched[:4], watched[4:]
    asked = [n for m in searched for n in m.calls if n > 8]  # others are checks that the models can read the rows
    assert asked
    assert min(asked) >= 500
    assert max(n for m in certifying for n in m.calls) <= 64  # these see the path alone


TRANSFORMED = []  # a line per table that went through a preprocessing


def noted(X):
    TRANSFORMED.append(len(X))
    return X


def test_preprocessings_of_black_boxes_are_asked_once_per_call():
    columns = make_column_transformer((OneHotEncoder(sparse_output=False), ["home"]), remainder="passthrough")
    estimator = make_pipeline(columns, FunctionTransformer(noted), GradientBoostingClassifier(n_estimators=8))
    problem = Problem(estimator, *loans(), 12, rows=3)
    shifts = apas.ObservedShifts([Watched(m) for m in problem.refits])
    TRANSFORMED.clear()
    found = offers_of(problem, model=Watched(apas.as_model(problem.estimator)), shifts=shifts)
    assert any(c.is_found for c in found)
    # 12 refits read the inputs, with their libraries, the 4 of the search what features add, the others the paths; asked
    # anew for each sweep, the 4 alone would read more tables than that
    assert len(TRANSFORMED) <= 2 * 12 + 4 + 8 + 20


def test_preprocessings_of_trees_are_asked_once_per_call_and_path():
    columns = make_column_transformer((OneHotEncoder(sparse_output=False), ["home"]), remainder="passthrough")
    estimator = make_pipeline(columns, FunctionTransformer(noted), GradientBoostingClassifier(n_estimators=8))
    problem = Problem(estimator, *loans(), 12, rows=3)
    TRANSFORMED.clear()
    found = offers_of(problem)
    assert any(c.is_found for c in found)
    # 12 refits read the inputs and what the table of leaves takes, the 8 that certify the paths; the model a few tables
    assert len(TRANSFORMED) <= 12 + 8 + 12


def test_every_row_of_a_path_saves_something(monkeypatch):
    problem, paths = boosted(20), []

    def noting(search, refits, *rest):
        paths.append(refit_path(search, refits, *rest))
        return paths[-1]

    monkeypatch.setattr(robust_optimum, "refit_path", noting)
    offers_of(problem)
    assert len(paths) == len(problem.inputs)
    assert max(map(len, paths)) > 2
    for path, x in zip(paths, problem.inputs, strict=True):
        costs = problem.space.costs(path, np.tile(x, (len(path), 1)))
        assert (costs[1:] <= (1 - SAVES) * costs[:-1] + 1e-12).all()


def test_a_path_begins_with_the_safest_row_where_the_first_rung_is_out_of_reach():
    task = Task(apas.FeedForward([[[1.0]]], [[-4.0]]), apas.FeatureSpace([apas.Feature("income", low=0, high=9)]))
    values = np.arange(10.0)
    grid = RowGrid(Search(task, 0, np.array([0.0]), 1), Grid((values,), (np.ones(10, dtype=bool),), (np.arange(10),)))
    # the safest value is 8: mean 2.9 and standard deviation 1, while 6, 7 and 9 reach less
    means = np.array([-9.0, -9, -9, -9, -9, 1.2, 2.6, 2.7, 2.9, 2.65])
    search = RefitSearch(grid, lambda states: [np.stack([means, np.ones(10), means - 2]) for _ in states])
    search.look([grid.start])
    rungs = [Demand(k, 0.0) for k in (4.0, 3.0, 2.5, 1.0)]
    assert search._cheapest_met(rungs, 0.05).ravel().tolist() == [8.0, 6.0, 5.0]
    assert search._cheapest_met(rungs[2:], 0.05).ravel().tolist() == [6.0, 5.0]  # within reach: the cheapest
    assert search._cheapest_met(rungs[:2], 0.05).shape == (0, 1)


def test_catboost_with_categories_is_asked():
    catboost = library("catboost")
    settings = {"iterations": 10, "depth": 3, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    problem = Problem(catboost.CatBoostClassifier(**settings, cat_features=["home"]), *loans(), 14, rows=3)
    assert problem.table() is None
    found = offers_of(problem)
    assert any(c.is_found for c in found)
    rows = found.points[[c.is_found for c in found]]
    accept = np.array([m.library_classes(rows) == 1 for m in list(problem.refits)[-8:]])
    assert accept.all()
    assert set(rows["home"]) <= {"own", "rent", "other"}


def test_trees_are_read_before_the_time_of_the_searches_begins(monkeypatch):
    read, deadlines = LeafTable.of, []
    monkeypatch.setattr(LeafTable, "of", lambda task, *rest: deadlines.append(task.deadline) or read(task, *rest))
    found = offers_of(boosted(12, rows=1), time_limit=600.0)
    assert found[0].tests == 1
    assert deadlines == [np.inf]  # once, and before there is a deadline


def test_the_model_alone_leaves_all_refits_to_certify():
    problem = boosted(8)
    with pytest.raises(apas.InputError, match=r"more than 8 .*got 8.*RobustOptimum\(alone=True\)"):
        offers_of(problem)
    found = offers_of(problem, source=apas.RobustOptimum(alone=True))
    assert sum(c.is_found for c in found) >= len(found) - 1
    assert all(c.certificate.evidence.draws == 8 for c in found if c.is_found)
    problem.refits = list(problem.refits)[:7]
    with pytest.raises(apas.InputError, match=r"at least 8 .*got 7"):
        offers_of(problem, source=apas.RobustOptimum(alone=True))


def test_rows_with_missing_cells_have_offers():
    frame, y = loans()
    frame = frame.assign(home=(frame["home"] == "own").astype(int), cards=frame["cards"].astype(float))
    frame.loc[::3, "debt"] = np.nan
    problem = Problem(HistGradientBoostingClassifier(max_iter=12), frame, y, 16, rows=6)
    assert np.isnan(problem.inputs).any()
    found = offers_of(problem)
    assert sum(c.is_found for c in found) >= 4


def test_every_listed_refit_can_be_asked_for():
    problem = boosted(5)
    found = offers_of(problem, method="exact")
    assert [c.is_found for c in found] == [True] * len(found)
    for model in problem.refits:
        assert (model.library_classes(found.points) == 1).all()


def test_models_that_are_no_trees_are_searched_by_their_answers():
    found = offers_of(Problem(behind_encoder(KNeighborsClassifier(15)), *loans(), 14, rows=2))
    assert any(c.is_found for c in found)


#: CP-SAT by itself: its library does not load beside that of HiGHS.
SOLVER = """
import json, sys
from ortools.sat.python import cp_model as cp
problem = json.load(sys.stdin)
model = cp.CpModel()
at = [[model.new_bool_var("") for _ in range(n)] for n in problem["sizes"]]
for values in at:
    model.add_exactly_one(values)
margins = [[] for _ in problem["needs"]]
for refit, value, bounds in problem["boxes"]:
    holds, outside = model.new_bool_var(""), []
    for f, low, high in bounds:
        model.add_bool_or(at[f][low : high + 1]).only_enforce_if(holds)
        outside += at[f][:low] + at[f][high + 1 :]
    model.add_bool_or([holds, *outside])
    margins[refit].append(value * holds)
for need, terms in zip(problem["needs"], margins):
    model.add(sum(terms) >= need)
model.minimize(sum(c * v for c, v in zip(problem["costs"], (v for values in at for v in values))))
solver = cp.CpSolver()
solver.parameters.num_workers = 1
assert solver.solve(model) == cp.OPTIMAL
print(solver.objective_value)
"""


def optimum(grid, passes, need):
    """The least cost on the grid at which every refit has a margin of `need`, by CP-SAT, in millionths."""
    unit = 10**6
    ends = [passes.feature[a : a + n].tolist() for a, n in zip(passes.starts, passes.counts, strict=True)]
    problem = {
        "sizes": grid.sizes.tolist(),
        "needs": [round((need - base) * unit) for base in passes.base[:, 0]],
        "costs": [round(c * unit) for c in grid.cost],
        "boxes": [
            (int(passes.refit[b]), round(passes.value[b, 0] * unit), [(f, int(passes.low[f, b]), int(passes.high[f, b])) for f in fs])
            for b, fs in enumerate(ends)
        ],
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", SOLVER], input=json.dumps(problem), capture_output=True, text=True, check=True)  # fmt: skip
    return float(done.stdout) / unit


@pytest.mark.parametrize("refits", [1, pytest.param(3, marks=pytest.mark.validity)])
def test_against_an_exact_solver(refits):
    if importlib.util.find_spec("ortools") is None:
        absent("ortools", "ortools is not installed: make test LIBRARIES=1")
    problem = boosted(3, rows=6)
    table = problem.table(refits)
    optimal = 0
    for row in range(6):
        grid, passes = problem.sweeps(table, row)
        looking = RefitSearch(grid, lambda states, passes=passes: [spread(passes.margins(s), 1.0) for s in states])
        known = rows_of_class(problem.task, 1)
        rows = looking.path(
            [Demand(None)], _known_states(grid, known, grid.search.task.margins(known, grid.search.target))
        )
        least = optimum(grid, passes, EDGE)
        assert grid.search.cost(rows[0]) >= least - 1e-5  # in millionths, of which each feature may round one
        optimal += grid.search.cost(rows[0]) <= least + 1e-5
    assert optimal >= 5


def test_agreement_beyond_the_usual_is_no_uncertainty():
    sure = np.array([2.0] * 30 + [40.0] * 10)  # accepted by all, by ten far more than usual
    doubtful = np.array([2.0] * 39 + [0.1])
    mean, sd, least = spread(np.stack([sure, doubtful], axis=1), scale=2.0)
    assert (mean / sd)[0] > (mean / sd)[1]
    assert sure.mean() / sure.std(ddof=1) < doubtful.mean() / doubtful.std(
        ddof=1
    )  # as margins are, the other way round
    assert least.tolist() == [2.0, 0.1]
