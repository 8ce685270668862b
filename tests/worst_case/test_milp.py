"""The reduced encoding: equal to a search through all activation patterns, and few binaries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from activation_patterns import least_margin
from problems import network

from apas import FeedForward
from apas.optimize.highs import ProgramBuilder, advise
from apas.worst_case.decide import WorstCaseBuilder
from apas.worst_case.intervals import rivals
from apas.worst_case.linear import Relaxation

SHAPES = [
    ((3, 6, 6, 1), "relu", "sigmoid"), ((3, 4, 4, 4, 1), "relu", "sigmoid"), ((2, 5, 4, 3), "relu", "softmax"),
    ((3, 4, 4, 2), "relu", "softmax"), ((2, 3, 3, 1), "leaky_relu", "sigmoid"), ((2, 3, 2, 3), "leaky_relu", "softmax"),
    ((2, 2, 3, 1), "hard_tanh", "identity"), ((2, 2, 2, 2, 1), "hard_tanh", "identity"), ((2, 3, 3, 1), "identity", "sigmoid"),
    ((2, 3, 2, 2, 1), ["leaky_relu", "relu", "hard_tanh"], "sigmoid"), ((2, 3, 3, 1), ["hard_tanh", "leaky_relu"], "identity"),
]  # fmt: skip


def program_of(net, x, wanted, rival, radii, delta):
    relaxation = Relaxation(net, radii, delta)
    units, _, _ = relaxation.relax(x[None, :])
    return WorstCaseBuilder(relaxation, units).build(relaxation.objective(np.array([wanted]), np.array([rival])))


def optimum(program):
    return advise(program, enough=np.inf, target=-np.inf, time_limit=60.0).bound


@pytest.mark.parametrize(("sizes", "activation", "output"), SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_equal_to_all_activation_patterns(sizes, activation, output, seed):
    net = network(sizes, output, activation, seed)
    rng = np.random.default_rng([seed, len(sizes)])
    x = rng.normal(size=sizes[0]) * 2
    radii = np.ones(len(net.parameters)) if seed == 0 else rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
    wanted, delta = int(rng.integers(len(net.classes))), float(rng.choice([0.02, 0.1, 0.3]))
    for rival in rivals(net, np.array([wanted]))[0].tolist():
        brute = least_margin(net, x, wanted, rival, radii, delta)
        scale = 1 + abs(brute.value)
        assert optimum(program_of(net, x, wanted, rival, radii, delta)) == pytest.approx(brute.value, abs=2e-5 * scale)
        # and it is the margin of a network in the box
        assert (np.abs(brute.parameters - net.parameters.values) <= delta * radii * (1 + 1e-9) + 1e-12).all()
        if len(net.classes) == 2:
            margin = net.with_parameters(brute.parameters).margin(x[None, :], net.classes[wanted])[0]
            assert margin == pytest.approx(brute.value, abs=1e-6 * scale)


def test_the_optimum_is_below_every_drawn_margin():
    for seed in range(10):
        net = network((4, 8, 8, 6, 1), "sigmoid", "relu", seed)
        rng = np.random.default_rng(seed)
        x = rng.normal(size=4)
        least = optimum(program_of(net, x, 1, 0, np.ones(len(net.parameters)), 0.05))
        directions = np.vstack([rng.uniform(-1, 1, size=(500, len(net.parameters))), rng.choice([-1.0, 1.0], size=(500, len(net.parameters)))])  # fmt: skip
        assert net.shifted_margins(x[None, :], 1, directions, 0.05).min() >= least - 1e-5


@pytest.mark.parametrize("power", [-40, -27, -12, 12, 27, 40])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_rescaling_by_powers_of_two_changes_nothing(power, layer):
    """A layer times 2**p and the next one times 2**-p is the same function, exactly."""
    for seed in range(3):
        sizes = (3, 5, 4, 4, 1)
        rng = np.random.default_rng(seed)
        weights, biases = [rng.normal(size=s) for s in pairwise(sizes)], [rng.normal(size=s) for s in sizes[1:]]
        reach = [rng.choice([0.0, 0.5, 1.0], size=s) for t in zip(weights, biases, strict=True) for s in (t[0].shape, t[1].shape)]  # fmt: skip
        x = rng.normal(size=3)
        plain = optimum(
            program_of(FeedForward(weights, biases), x, 1, 0, np.concatenate([r.ravel() for r in reach]), 0.1)
        )
        factor = 2.0**power
        weights[layer], biases[layer] = weights[layer] * factor, biases[layer] * factor
        weights[layer + 1] = weights[layer + 1] / factor
        reach[2 * layer], reach[2 * layer + 1] = reach[2 * layer] * factor, reach[2 * layer + 1] * factor
        reach[2 * layer + 2] = reach[2 * layer + 2] / factor
        radii = np.concatenate([r.ravel() for r in reach])
        scaled = optimum(program_of(FeedForward(weights, biases), x, 1, 0, radii, 0.1))
        assert scaled == pytest.approx(plain, abs=1e-5 * (1 + abs(plain)))


def test_no_binary_in_the_first_hidden_layer_of_relu():
    net = network((4, 30, 2, 1), "sigmoid", "relu", 0)
    program = program_of(net, np.ones(4), 1, 0, np.ones(len(net.parameters)), 0.3)
    assert program.binaries <= 2
    assert [len(columns) for columns in program.activations] == [30, 2]


def test_fixed_units_need_no_binary():
    # all weights and inputs positive: no unit can change its sign, and the program is linear
    rng = np.random.default_rng(0)
    net = FeedForward(
        [rng.uniform(1, 2, size=s) for s in ((3, 4), (4, 4), (4, 4), (4, 1))], [np.ones(4)] * 3 + [np.ones(1)]
    )
    assert program_of(net, np.ones(3), 0, 0, np.ones(len(net.parameters)), 0.1).binaries == 0


def test_identity_networks_with_fixed_weights_are_linear():
    net = network((3, 4, 4, 1), "sigmoid", "identity", 0)
    radii = np.concatenate([np.full(s, float(i == 0)).ravel() for i, s in enumerate(net.parameters.shapes)])
    x = np.array([0.5, -1.0, 2.0])
    program = program_of(net, x, 1, 0, radii, 0.1)
    # only the first weights move: the margin is linear in them
    through = net.weights[1] @ net.weights[2]
    expected = net.margin(x[None, :], 1)[0] - 0.1 * np.abs(np.outer(x, through[:, 0])).sum()
    assert optimum(program) == pytest.approx(expected, abs=1e-6)


def test_nothing_moves():
    for activation in ("relu", "leaky_relu", "hard_tanh", "identity"):
        net = network((3, 4, 4, 1), "sigmoid", activation, 1)
        x = np.array([0.5, -1.0, 2.0])
        for radii, delta in ((np.zeros(len(net.parameters)), 0.5), (np.ones(len(net.parameters)), 0.0)):
            program = program_of(net, x, 1, 0, radii, delta)
            assert optimum(program) == pytest.approx(net.margin(x[None, :], 1)[0], abs=1e-6)


def test_program_collects_columns_and_rows():
    builder = ProgramBuilder()
    assert builder.columns(np.zeros(2), np.ones(2)).tolist() == [0, 1]
    assert builder.binary() == 2
    builder.row(np.array([0, 2]), np.array([1.0, -1.0]), -np.inf, 0.0)
    program = builder.finish(np.zeros(3))
    assert (program.binaries, program.low.tolist(), program.high.tolist()) == (1, [0.0] * 3, [1.0] * 3)
    assert program.matrix.tolist() == [[1.0, 0.0, -1.0]]
