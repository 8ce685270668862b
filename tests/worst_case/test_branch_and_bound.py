"""Branch and bound on phases: sound bounds, shifts that are what they say, and exact answers with two hidden layers."""

from __future__ import annotations

import time

import numpy as np
import pytest
from activation_patterns import least_margin
from problems import network

from apas import FeedForward
from apas.worst_case import branch_and_bound as phases
from apas.worst_case.attack import RivalPushes, pushed_parameters
from apas.worst_case.branch_and_bound import PhaseSearch
from apas.worst_case.decide import RivalBounds
from apas.worst_case.intervals import rivals
from apas.worst_case.linear import Relaxation

SHAPES = [
    ((3, 6, 6, 1), "relu"), ((3, 5, 5, 1), "leaky_relu"), ((2, 3, 3, 1), "hard_tanh"), ((3, 4, 4, 1), "identity"),
    ((3, 4, 4, 4, 1), "relu"), ((2, 3, 3, 2, 1), "leaky_relu"), ((3, 5, 4, 3), "relu"),
]  # fmt: skip


def question(sizes, activation, seed):
    rng = np.random.default_rng([seed, 9])
    net = network(sizes, "identity" if sizes[-1] == 1 else "softmax", activation, seed)
    x = rng.normal(size=sizes[0])
    radii = np.ones(len(net.parameters)) if seed % 2 else rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
    return net, x, int(rng.integers(len(net.classes))), radii, float(rng.choice([0.05, 0.15]))


def lifted(net, wanted, by):
    biases = [b.copy() for b in net.biases]
    if len(biases[-1]) == 1:
        biases[-1][0] += by if wanted == 1 else -by
    else:
        biases[-1][wanted] += by
    return FeedForward(net.weights, biases, activation=net.activations, output=net.output, threshold=net.threshold)


def decided(net, x, wanted, rival, radii, delta, seconds=10.0):
    relaxation = Relaxation(net, radii, delta)
    relaxed = relaxation.relax(x[None, :])
    objective = relaxation.objective(np.array([wanted]), np.array([rival]))
    pair = RivalBounds(RivalPushes(relaxation, x[None, :], objective), np.array([rival]), relaxed)
    pair.linear()
    allowance = float(pair.allowance[0])
    search = PhaseSearch(relaxation, pair.units, pair.current, pair.pushes, allowance)
    return search.run(time.monotonic() + seconds), relaxation


@pytest.mark.parametrize(("sizes", "activation"), SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_against_all_activation_patterns(sizes, activation, seed):
    net, x, wanted, radii, delta = question(sizes, activation, seed)
    rival = int(rivals(net, np.array([wanted]))[0, 0])
    least = least_margin(net, x, wanted, rival, radii, delta).value
    for step in (1e-3, -1e-3):
        wish = step * (1 + abs(least))
        moved = lifted(net, wanted, wish - least)
        outcome, relaxation = decided(moved, x, wanted, rival, radii, delta)
        # the bound is below the truth whatever happened, and what was found is above it
        assert outcome.bound <= wish + 1e-9 * (1 + abs(least))
        assert outcome.least >= wish - 1e-9 * (1 + abs(least))
        assert outcome.nodes >= 1
        if wish < 0:
            assert not outcome.proved
        if len(sizes) == 4 and activation != "hard_tanh":  # exact with two hidden layers
            assert outcome.proved == (wish > 0)
        if outcome.pushes is not None:
            direction = pushed_parameters(relaxation, x, outcome.pushes, wanted, rival)
            assert (np.abs(direction) <= 1).all()
            if sizes[-1] == 1:
                margin = moved.shifted_margins(x[None, :], moved.classes[wanted], direction[None, :] * radii, delta)[
                    0, 0
                ]
                assert margin == pytest.approx(outcome.least, abs=1e-9 * (1 + abs(least)))


def deep_question(seed):
    """Lifted so far that the shift found first no longer breaks it, and the first bound does not yet prove it."""
    net, x, wanted, radii, delta = question((3, 8, 8, 8, 1), "relu", seed)
    root, _ = decided(net, x, wanted, 0, radii, delta, 0.0)
    return lifted(net, wanted, 0.2 * (root.least - root.bound) - root.least), x, wanted, 0, radii, delta


def test_no_time_ends_without_an_answer_but_with_a_bound():
    open_ends = 0
    for seed in range(6):
        ended, _ = decided(*deep_question(seed), seconds=0.0)
        whole, _ = decided(*deep_question(seed))
        assert ended.nodes == 1
        assert -np.inf < ended.bound <= min(ended.least, whole.least)
        assert not ended.proved or whole.proved
        open_ends += not ended.proved and whole.proved
    assert open_ends


@pytest.mark.parametrize(("chunk", "store"), [(1, 1 << 26), (5, 0)])
def test_the_number_of_cases_at_a_time_changes_no_answer(monkeypatch, chunk, store):
    most = 0
    for seed in range(8):
        whole, _ = decided(*deep_question(seed))
        with monkeypatch.context() as patch:
            patch.setattr(phases, "CHUNK", chunk)
            patch.setattr(phases, "FEW", min(chunk, phases.FEW))
            patch.setattr(phases, "STORE", store)
            part, _ = decided(*deep_question(seed))
        assert part.proved == whole.proved
        assert part.bound <= whole.least
        most = max(most, part.nodes)
    assert most > 3 * chunk


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh", "identity"])
def test_bounds_below_drawn_margins(activation):
    for seed in range(6):
        net, x, wanted, radii, delta = question((3, 6, 6, 5, 1), activation, seed)
        outcome, _ = decided(net, x, wanted, 0, radii, delta, 1.0)
        rng = np.random.default_rng(seed)
        directions = np.vstack(
            [rng.uniform(-1, 1, size=(500, len(radii))), rng.choice([-1.0, 1.0], size=(500, len(radii)))]
        )
        margins = net.shifted_margins(x[None, :], net.classes[wanted], directions * radii, delta)
        assert margins.min() >= outcome.bound
        assert not outcome.proved or margins.min() > 0


def test_knowing_the_side_of_a_fixed_phase_saves_cases(monkeypatch):
    known, unknown = 0, 0
    for seed in range(8):
        asked = deep_question(seed)
        with_side, _ = decided(*asked)
        with monkeypatch.context() as patch:
            patch.setattr(phases, "KINKED", ())
            without, _ = decided(*asked)
        assert with_side.proved >= without.proved
        known, unknown = known + with_side.nodes, unknown + without.nodes
    assert 1.5 * known < unknown
