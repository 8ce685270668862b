"""Published rivals on models whose answers are known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

import apas
from apas.counterfactuals.search.smooth_problem import SmoothProblem
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.betarce import BetaRce
from apas.counterfactuals.sources.consensus import Consensus
from apas.counterfactuals.sources.ellice import Ellice
from apas.counterfactuals.sources.proplace import Proplace
from apas.counterfactuals.sources.rbr import Rbr, _grid_of_distances
from apas.counterfactuals.sources.rnce import Rnce
from apas.counterfactuals.sources.spread_path import RUNGS, SpreadPath
from apas.counterfactuals.sources.trex import TRex, stability
from apas.errors import InputError

NAMES = ("a", "b")
SPACE = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in NAMES])
INPUT = np.array([0.2, 0.3])


def linear(slopes: tuple[float, float] = (1.0, 1.0), bias: float = -1.0) -> apas.FeedForward:
    return apas.FeedForward([[[s] for s in slopes]], [[bias]], feature_names=NAMES)


def found(source: Any, model: Any = None, known: Any = None, space: Any = SPACE) -> np.ndarray:
    known = [[2.0, 2.0], [0.3, 1.4], [1.5, 0.2]] if known is None else known
    answer = apas.generate(model or linear(), INPUT[None], 0, space=space, background=known, source=source, rng=0)
    assert answer.found.all(), answer[0].reason
    return np.asarray(answer.numbers[0])


def search_of(model: Any, known: Any = None) -> Search:
    background = None if known is None else np.asarray(known, dtype=float)
    return Search(Task(SPACE.bind(model), SPACE, background=background), 0, INPUT, 1)


def sources() -> list[Any]:
    more = [BetaRce(refits=[linear(bias=b) for b in np.linspace(-1.1, -0.9, 32)]), Consensus(refits=[linear()])]
    return [Rnce(), Proplace(), TRex(), Rbr(), Ellice(), *more]


@pytest.mark.parametrize("source", sources(), ids=lambda s: type(s).__name__)
def test_each_is_a_source_and_its_row_has_the_class(source: Any) -> None:
    assert isinstance(source, CandidateSource)
    assert found(source).sum() >= 1


@pytest.mark.parametrize("source", sources(), ids=lambda s: type(s).__name__)
def test_rows_respect_the_space(source: Any) -> None:
    features = [apas.Feature("a", low=0, high=2, mutable=False), apas.Feature("b", low=0, high=2, step=0.5)]
    row = found(source, space=apas.FeatureSpace(features))
    assert row[0] == INPUT[0]
    assert row[1] in (1.0, 1.5, 2.0)


def worst(points: np.ndarray, delta: float) -> np.ndarray:
    """Least margin of the linear model while both slopes and the bias move: each loses delta times its input."""
    return points.sum(axis=-1) - 1 - delta * (np.abs(points).sum(axis=-1) + 1)


@pytest.mark.parametrize("delta", [0.005, 0.1, 0.2])
def test_rnce_gives_the_nearest_known_row_that_is_robust(delta: float) -> None:
    known = np.random.default_rng(0).uniform(0, 2, (60, 2))
    robust = known[worst(known, delta) >= 0]
    nearest = robust[np.abs(robust - INPUT).sum(axis=1).argmin()]
    assert (found(Rnce(delta=delta, line_search=False), known=known) == nearest).all()
    drawn_back = found(Rnce(delta=delta), known=known)
    assert worst(drawn_back, delta) >= 0
    part = (drawn_back - INPUT) / (nearest - INPUT)
    assert np.ptp(part) < 1e-9
    before = INPUT + (part[0] - 0.05) * (nearest - INPUT)
    assert worst(before, delta) < 0  # the first of 20 steps that is robust


@pytest.mark.parametrize("delta", [0.005, 0.1, 0.2])
def test_proplace_of_a_linear_model_is_the_optimum_of_a_linear_program(delta: float) -> None:
    """Rows are positive, so that the worst case is linear: sum(x) >= (1 + delta) / (1 - delta)."""
    from scipy.optimize import linprog

    known = np.array([[0.9, 0.9], [0.1, 1.9], [1.9, 0.4], [2.0, 2.0]])
    parts = [np.hstack([s * known.T, -np.eye(2)]) for s in (1.0, -1.0)]
    robust = np.concatenate([-known.sum(axis=1), np.zeros(2)])
    best = linprog(
        [0, 0, 0, 0, 1, 1],
        A_ub=np.vstack([*parts, robust]),
        b_ub=np.concatenate([INPUT, -INPUT, [-(1 + delta) / (1 - delta)]]),
        A_eq=[[1, 1, 1, 1, 0, 0]],
        b_eq=[1],
    )
    row = found(Proplace(delta=delta), known=known)
    assert worst(row, delta) >= 0
    assert np.abs(row - INPUT).sum() == pytest.approx(best.fun, rel=1e-3)


def test_proplace_keeps_to_the_hull() -> None:
    known = np.array([[1.5, 1.5], [1.9, 1.5], [1.5, 1.9]])
    row = found(Proplace(delta=0.01), known=known)
    assert (row >= 1.5 - 1e-9).all()


@pytest.mark.parametrize("source", [Rnce(), Proplace(), Ellice()], ids=lambda s: type(s).__name__)
def test_what_moves_parameters_refuses_trees(source: Any) -> None:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier().fit([[0.0, 0.0], [2.0, 2.0]], [0, 1])
    with pytest.raises(apas.Unsupported, match="parameters of a dense network"):
        found(source, tree)


@pytest.mark.parametrize("source", [Rnce(), TRex(), Rbr(), Ellice()], ids=lambda s: type(s).__name__)
def test_known_rows_are_needed(source: Any) -> None:
    with pytest.raises(apas.Unsupported, match="starts from known rows"):
        apas.generate(linear(), INPUT[None], 0, space=SPACE, source=source)


def test_stability_is_the_mean_of_what_the_paper_defines() -> None:
    model, noise = linear((4.0, 4.0), -4.0), np.random.default_rng(0).normal(0, 0.1, (500, 2))
    problem = SmoothProblem(search_of(model))
    at = np.array([[0.7, 0.6]])
    chance = lambda z: 1 / (1 + np.exp(-(8 * z.sum(axis=1) - 4)))  # noqa: E731 - coordinates are halves of numbers
    there = chance(np.clip(at + noise, 0, 1))
    assert stability(problem, at, noise)[0] == pytest.approx((there - np.abs(there - chance(at))).mean())


def test_trex_stops_where_the_stability_reaches_the_threshold() -> None:
    model = linear((8.0, 8.0), -8.0)
    sums = [found(TRex(threshold=t), model).sum() for t in (0.6, 0.7, 0.8, 0.9)]
    assert sums == sorted(sums)
    assert sums[0] < sums[-1]
    problem = SmoothProblem(search_of(model))
    noise = 0.1 * np.random.default_rng(1).normal(size=(20_000, 2))
    row = problem.at.of(found(TRex(threshold=0.8), model)[None])
    assert stability(problem, row, noise)[0] == pytest.approx(0.8, abs=0.06)  # a step beyond it at most


def test_robx_walks_to_stable_rows_of_trees() -> None:
    from sklearn.ensemble import RandomForestClassifier

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (300, 2))
    forest = RandomForestClassifier(30, max_depth=4, random_state=0).fit(X, X.sum(axis=1) > 2)
    low, high = (
        apas.generate(
            forest, INPUT[None], 0, space=SPACE, background=X, source=TRex(threshold=t), rng=0, target=True
        ).numbers[0]
        for t in (0.5, 0.9)
    )
    assert np.abs(high - INPUT).sum() > np.abs(low - INPUT).sum()


def test_ellice_of_a_linear_model_is_at_the_edge_of_the_ellipsoid() -> None:
    known = np.random.default_rng(0).uniform(0, 2, (200, 2))
    model, epsilon, ridge = linear((3.0, 1.0), -3.0), 0.02, 1e-3
    Z = np.column_stack([known, np.ones(len(known))])
    chance = 1 / (1 + np.exp(-(Z @ [3.0, 1.0, -3.0])))
    H = (Z.T * (chance * (1 - chance))) @ Z / len(Z) + ridge * np.eye(3)

    def least(rows: np.ndarray) -> np.ndarray:
        rows = np.column_stack([rows, np.ones(len(rows))])
        return rows @ [3.0, 1.0, -3.0] - np.sqrt(2 * epsilon * (rows @ np.linalg.inv(H) * rows).sum(axis=1))

    row = found(Ellice(epsilon=epsilon, ridge=ridge), model, known)
    assert 0 <= least(row[None])[0] < 0.02
    # the grid of all rows has none that is robust and much cheaper
    grid = np.stack(np.meshgrid(np.linspace(0, 2, 201), np.linspace(0, 2, 201)), axis=-1).reshape(-1, 2)
    costs = np.abs(grid - INPUT).sum(axis=1)
    assert np.abs(row - INPUT).sum() <= costs[least(grid) >= 0].min() + 0.01


def test_ellice_with_no_loss_to_spare_is_the_nearest_row() -> None:
    assert found(Ellice(epsilon=0.0)).sum() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("robustness", "confidence"), [(0.7, 0.9), (0.9, 0.9), (0.9, 0.95)])
def test_beta_counts_as_many_acceptances_as_the_posterior_needs(robustness: float, confidence: float) -> None:
    nets = [linear(bias=b) for b in np.linspace(-1.4, -1.0, 32)]
    source = BetaRce(refits=nets, robustness=robustness, confidence=confidence)
    least = source.least_accepted()
    enough = [beta.cdf(robustness, 0.5 + n, 0.5 + 32 - n) <= 1 - confidence for n in range(33)]
    assert least == enough.index(True)
    row = found(source)
    assert sum(row.sum() + net.biases[0][0] >= 0 for net in nets) >= least
    assert row.sum() < 1.6  # the first shell in which rows pass, not any


def test_beta_says_when_no_count_is_enough() -> None:
    with pytest.raises(InputError, match="that all accept a row does not show it"):
        BetaRce(refits=[linear()] * 5, robustness=0.95)


def test_consensus_is_the_nearest_row_of_the_strictest_model() -> None:
    assert found(Consensus(refits=[linear(bias=b) for b in (-1.0, -1.7, -1.3)])).sum() == pytest.approx(1.7, abs=1e-3)


def test_consensus_of_trees_is_accepted_by_all() -> None:
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (300, 2))
    y = X.sum(axis=1) + rng.normal(0, 0.3, 300) > 2
    trees = [DecisionTreeClassifier(max_depth=4).fit(X[rows], y[rows]) for rows in rng.integers(0, 300, (12, 300))]
    source = Consensus(refits=trees)
    answer = apas.generate(trees[0], INPUT[None], 0, target=True, space=SPACE, background=X, source=source)
    assert answer.found.all()
    assert all(tree.predict(answer.numbers)[0] for tree in trees)


def test_distances_of_rbr_are_solved_as_by_a_fine_search() -> None:
    size, sigma, epsilon = 5, 1.0, 1.0
    for pessimistic in (False, True):
        apart, logs, slopes = _grid_of_distances(3.0, size, sigma, epsilon, pessimistic=pessimistic)
        root = np.sqrt(size) if pessimistic else 1.0
        turn, length = np.meshgrid(np.linspace(0, np.pi / 2, 801), np.linspace(0, 1, 801))
        moved, wider = epsilon / root * length * np.cos(turn), epsilon / root * length * np.sin(turn)
        for c, log in list(zip(apart, logs, strict=True))[::80]:
            reach = c + root * moved if pessimistic else c - moved
            left = np.sqrt((1e-6 + epsilon**2 - size * moved**2 - wider**2) / (size - 1)) if pessimistic else 0.0
            other = -np.log(sigma + wider) - reach**2 / 2 / (sigma + wider) ** 2 - (size - 1) * np.log(left + sigma)
            assert log == pytest.approx(other.min() if pessimistic else other.max(), abs=2e-3)
        apart_from = np.abs(np.gradient(logs, apart) - slopes)[2:-2]
        assert np.quantile(apart_from, 0.97) < 0.02  # where the best move jumps, so does the derivative


def test_rbr_goes_as_far_as_its_ball_allows() -> None:
    near, far = (np.abs(found(Rbr(epsilon=0.0, extra=e)) - INPUT).sum() for e in (0.1, 0.4))
    assert far - near == pytest.approx(2 * 0.3, abs=1e-6)  # coordinates are halves of numbers


def test_rbr_of_gaussians_that_move_stays_among_the_accepted_points() -> None:
    """Within the distance that refused Gaussians may move they are as likely as can be: only the accepted ones pull."""
    row = found(Rbr(epsilon=1.0, extra=1.0))
    assert 1 < row.sum() < 1 + 2 * 2 * 0.2 * np.sqrt(2)


def test_the_path_of_spreads_is_that_of_a_closed_form() -> None:
    """Of models that differ in their biases alone, a row is k standard deviations safe if its sum is mean + k sd."""
    biases = np.random.default_rng(0).normal(-1.0, 0.1, 100)
    nets = [linear(bias=b) for b in biases]
    seen: list[np.ndarray] = []

    class Watched(SpreadPath):
        def candidates(self, search: Search) -> Any:
            for candidate in super().candidates(search):
                seen.append(candidate.path)
                yield candidate

    shifts, claim = apas.ObservedShifts(nets), apas.Sampling(coverage=0.95, confidence=0.95, n_samples=59)
    told = {"space": SPACE, "background": [[2.0, 2.0]], "shifts": shifts, "method": claim, "rng": 0}
    answer = apas.generate(linear(), INPUT[None], 1.0, source=Watched(), **told)
    searched = biases[:-59]
    wanted = [-searched.mean() + k * searched.std() for k in reversed(RUNGS)]
    assert seen[0].sum(axis=1) == pytest.approx(wanted, abs=2e-3)
    # what is returned is the cheapest before the first that one of the 59 others refuses
    least = max(-biases[-59:])
    assert answer.numbers[0].sum() == pytest.approx(min(w for w in wanted if w >= least), abs=2e-3)


def test_a_path_of_spreads_needs_refits() -> None:
    with pytest.raises(apas.Unsupported, match="SpreadPath searches on refits"):
        apas.generate(linear(), INPUT[None], 0.1, space=SPACE, background=[[2.0, 2.0]], source=SpreadPath(), rng=0)


def test_the_safest_row_that_can_be_had_begins_the_path() -> None:
    """Slopes differ so much that no row is 3 standard deviations safe: sum / sd of it is at most that of the corner."""
    rng = np.random.default_rng(1)
    nets = [linear((1 + a, 1 + b), -1 + c) for a, b, c in rng.normal(0, [0.6, 0.6, 0.1], (160, 3))]
    shifts, claim = apas.ObservedShifts(nets), apas.Sampling(coverage=0.9, confidence=0.9, n_samples=38)
    told = {"space": SPACE, "background": [[2.0, 2.0]], "shifts": shifts, "method": claim, "rng": 0}
    answer = apas.generate(linear(), INPUT[None], 1.0, source=SpreadPath(), **told)
    margins = np.array([net.margin(np.array([[2.0, 2.0]]), 1)[0] for net in nets[:-38]])
    assert margins.mean() / margins.std() < 6  # so that the ladder ends early
    assert answer[0].tests == 1
