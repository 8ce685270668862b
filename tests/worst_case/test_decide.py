"""Worst-case findings: nonsense from the solver, rescaled networks, rows that do not know of each other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import apas
from apas import Exact, FeedForward, LinfShifts, Verdict
from apas.optimize.highs import Advice, advise
from apas.worst_case import decide as worstcase
from apas.worst_case.attack import broken_radius
from apas.worst_case.branch_and_bound import PhaseResult, PhaseSearch
from apas.worst_case.decide import ALL_STEPS, RivalBounds, WorstCases

STEPS = [("interval",), ("interval", "linear"), ("interval", "linear", "attack", "splitting"), ALL_STEPS]


def worst_cases(*question, **asked):
    return WorstCases(*question, **asked).run()


def deep(seed, sizes=None, activation="relu"):
    """A random network, rows with their classes, and the deltas that are known to break them."""
    rng = np.random.default_rng(seed)
    sizes = sizes or (int(rng.integers(2, 9)), *rng.integers(4, 13, size=3).tolist(), 1)
    weights = [rng.normal(size=s) * np.sqrt(2 / s[0]) for s in pairwise(sizes)]
    biases = [0.3 * rng.normal(size=s) for s in sizes[1:]]
    net = FeedForward(weights, biases, activation=activation)
    X = rng.normal(size=(12, sizes[0]))
    wanted = (net.margin(X, 1) >= 0).astype(int)
    broken, _ = broken_radius(net, X, wanted, np.ones(len(net.parameters)), np.zeros(12), 10.0)
    return net, X, wanted, np.minimum(broken, 10.0)


def rescaled(net, layer, power, activation="relu"):
    """A layer times 2**power and the next one divided by it: the same function of the same shifts, exactly."""
    factor = 2.0**power
    weights, biases = list(net.weights), list(net.biases)
    scale = [np.ones(s) for s in net.parameters.shapes]
    weights[layer], biases[layer] = weights[layer] * factor, biases[layer] * factor
    weights[layer + 1] = weights[layer + 1] / factor
    scale[2 * layer], scale[2 * layer + 1] = scale[2 * layer] * factor, scale[2 * layer + 1] * factor
    scale[2 * layer + 2] = scale[2 * layer + 2] / factor
    return FeedForward(weights, biases, activation=activation), LinfShifts(scale=scale)


def verdicts(net, X, delta, wanted, shifts=None, time_limit=30.0):
    method = Exact(time_limit=time_limit)
    return [c.verdict for c in apas.certify(net, X, delta, target=wanted, shifts=shifts or LinfShifts(), method=method)]


@pytest.fixture
def only_solver(monkeypatch):
    """Leave everything that bounds do not prove to the mixed-integer program."""

    def undecided(search, *arguments):
        search.stuck = True  # so that the solver has all of the time
        return PhaseResult(False, -np.inf, None, np.inf, 1)

    monkeypatch.setattr(PhaseSearch, "run", undecided)
    monkeypatch.setattr(RivalBounds, "breaking_pushes", lambda self, k: None)
    monkeypatch.setattr(WorstCases, "_turn_units", lambda *_: False)


@pytest.mark.parametrize("power", [-30, -27, -12, 12, 27, 30])
@pytest.mark.parametrize("seed", range(4))
def test_rescaling_by_powers_of_two_keeps_the_verdicts(seed, power):
    net, X, wanted, broken = deep(seed)
    delta = broken * np.array([0.6, 0.93, 0.98, 1.02] * 3)
    plain = verdicts(net, X, delta, wanted)
    assert Verdict.CERTIFIED in plain
    assert Verdict.REFUTED in plain
    for layer in range(3):
        other, shifts = rescaled(net, layer, power)
        assert verdicts(other, X, delta, wanted, shifts) == plain


@pytest.mark.parametrize("power", [-27, 0, 27])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_the_solver_alone_agrees(only_solver, power, activation):
    decided = 0
    for seed in range(3):
        net, X, wanted, broken = deep(seed, (4, 7, 6, 5, 1), activation)
        delta = broken * np.array([0.7, 0.9, 1.01, 1.3] * 3)
        other, shifts = rescaled(net, 1, power, activation)
        found = verdicts(other, X, delta, wanted, shifts)
        assert Verdict.CERTIFIED not in [v for v, d, b in zip(found, delta, broken, strict=True) if d > b * 1.001]
        decided += sum(v is not Verdict.UNKNOWN for v in found)
    assert decided >= 30  # of 36


@pytest.mark.parametrize("attacked", [True, False])
def test_bounds_that_overflow_prove_nothing(monkeypatch, attacked):
    if not attacked:
        monkeypatch.setattr(WorstCases, "_turn_units", lambda *_: False)
    rng, asked = np.random.default_rng(0), 0
    for _ in range(60):
        sizes, powers = (2, 3, 3, 1), rng.uniform(60, 105, size=3)
        weights = [rng.normal(size=s) * 10**p for s, p in zip(pairwise(sizes), powers, strict=True)]
        net = FeedForward(weights, [np.zeros(b) for b in sizes[1:]])
        x, delta = rng.normal(size=(1, 2)), 10.0 ** rng.uniform(50, 130)
        with np.errstate(over="ignore", invalid="ignore"):
            margin = net.margin(x, 1)[0]
        if np.isfinite(margin):
            answer = apas.certify(net, x, delta, target=int(margin > 0), method=Exact(time_limit=0.1))[0]
            assert answer.verdict is not Verdict.CERTIFIED or answer.evidence.bound > 0
            asked += 1
    assert asked > 20


def _nonsense(kind):
    """A solver gone wrong; its point has the right length and nothing else."""
    rng = np.random.default_rng(0)

    def advice(program, *, enough, target, time_limit):
        n = len(program.low)
        points = {
            "nan": np.full(n, np.nan), "inf": np.full(n, np.inf), "random": rng.normal(size=n) * 100, "zero": np.zeros(n),
            "low": np.array(program.low), "high": np.array(program.high), "none": None,
        }  # fmt: skip
        bound, point = kind
        known = {"true": lambda: advise(program, enough=np.inf, target=-np.inf, time_limit=time_limit).bound}
        return Advice(known[bound]() if bound in known else float(bound), points[point])

    return advice


BOUNDS = ["nan", "inf", "-inf", "1e300", "1.0", "1e-3", "1e-9", "true"]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("point", ["nan", "inf", "random", "zero", "low", "high", "none"])
def test_nonsense_from_the_solver_is_never_believed(only_solver, monkeypatch, bound, point):
    net, X, wanted, broken = deep(1, (4, 6, 5, 5, 1))
    delta = broken * np.array([0.9, 1.001, 1.05, 1.2] * 3)
    monkeypatch.setattr(worstcase, "advise", _nonsense((bound, point)))
    certificates = apas.certify(net, X, delta, target=wanted, method=Exact(time_limit=2.0))
    for row, c in enumerate(certificates):
        if delta[row] > broken[row] * 1.0005:  # a failing shift is known
            assert c.verdict is not Verdict.CERTIFIED
        assert (c.verdict is Verdict.REFUTED) == (c.witness is not None)
        if c.witness is not None:
            assert c.witness.margin(net, X[row : row + 1], int(wanted[row])) <= 0


def test_nonsense_from_every_step_before_the_solver_is_never_believed(monkeypatch):
    """A search that offers shifts which break nothing refutes nothing."""
    net, X, wanted, broken = deep(2, (4, 6, 5, 5, 1))
    sizes = [w.shape[1] for w in net.weights[:-1]]
    rng = np.random.default_rng(0)

    def wrong(search, *arguments):
        search.stuck = True
        return PhaseResult(False, -np.inf, [rng.uniform(-1, 1, size=n) for n in sizes], -1.0, 1)

    monkeypatch.setattr(PhaseSearch, "run", wrong)
    truth = [v is Verdict.CERTIFIED for v in verdicts(net, X, 0.3 * broken, wanted)]
    for c, known in zip(apas.certify(net, X, 0.3 * broken, target=wanted, method=Exact()), truth, strict=True):
        assert c.verdict is not Verdict.REFUTED
        assert not known or c.verdict is Verdict.CERTIFIED


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_findings_do_not_depend_on_other_rows(steps):
    net, X, wanted, broken = deep(3, (4, 8, 6, 5, 1))
    delta, radii = float(np.median(broken)) * 0.9, np.ones(len(net.parameters))
    offered = []

    def accept(row, direction):
        offered.append(direction)
        return net.shifted_margins(X[row : row + 1], int(wanted[row]), direction[None, :], delta)[0, 0] < 0

    together = worst_cases(net, X, wanted, radii, delta, steps=steps, accept=accept)
    for i in range(len(X)):
        here = slice(i, i + 1)
        alone = worst_cases(
            net, X[here], wanted[here], radii, delta, steps=steps, accept=lambda _, u, i=i: accept(i, u)
        )[0]
        assert (alone.proved, alone.broken) == (together[i].proved, together[i].broken)
        assert alone.bound == pytest.approx(together[i].bound, rel=1e-9)  # last bits; the evidence shows six digits
        if "splitting" in steps and (not together[i].proved or together[i].step in ("splitting", "solver")):
            assert alone == together[i]
    assert all((np.abs(u) <= 1).all() for u in offered)


def test_a_finding_is_open_until_something_decides():
    net, X, wanted, broken = deep(4, (4, 8, 6, 5, 1))
    radii = np.ones(len(net.parameters))
    found = worst_cases(
        net, X, wanted, radii, float(broken.max()) * 2, accept=lambda row, direction: False, time_limit=0.1
    )
    # nobody accepts a witness, so nothing may be broken, and what is broken cannot be proved
    assert not any(f.broken for f in found)
    assert all(f.open for f, b in zip(found, broken, strict=True) if np.isfinite(b))
    tiny = worst_cases(net, X, wanted, radii, 1e-9, accept=lambda row, direction: False)
    assert all(f.proved and f.bound > 0 for f in tiny)


def test_progress_is_told_every_row_once():
    net, X, wanted, broken = deep(5)
    done = []
    worst_cases(
        net, X, wanted, np.ones(len(net.parameters)), float(broken.min()), accept=lambda row, direction: False,
        done=done.append, time_limit=0.1,
    )  # fmt: skip
    assert sum(done) == len(X)
