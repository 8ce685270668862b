"""Networks with one small hidden failure: the bad region has volume below 1e-6 of the box, and a point of it is known.

*Corners*: a unit wakes up only where a sum of pushes is close to its largest value. *Needles*: it wakes up only close to
one point in the middle of the box. *Gadgets*: formulas with exactly one solution as networks in which every parameter
moves (the hardness construction); of formulas without a solution nothing can fail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from apas import FeedForward, LinfShifts


@dataclass(frozen=True)
class Planted:
    """A row that is valid on the network itself; `failing` are parameters inside the box on which it is not."""

    kind: str
    net: FeedForward
    x: np.ndarray
    target: int
    delta: float
    shifts: LinfShifts
    failing: np.ndarray | None
    volume: float


def first_weights(net):
    """Only the weights of the first layer move."""
    return LinfShifts(scale=[np.full(s, float(i == 0)) for i, s in enumerate(net.parameters.shapes)])


def corner(seed):
    """One input of 1 and n units 1 + delta u_i; a second-layer unit wakes up where s . u > n - eps."""
    rng = np.random.default_rng([seed, 11])
    n, delta, eps = int(rng.integers(7, 11)), 2.0 ** -float(rng.integers(2, 6)), 0.5
    decoys = int(rng.integers(2, 6))
    signs = rng.choice([-1.0, 1.0], size=n)
    second = np.column_stack([signs, rng.normal(size=(n, decoys))])
    bias = np.concatenate([[-signs.sum() - delta * (n - eps)], rng.normal(size=decoys)])
    # the decoys keep the margin away from 0 and pull the gradient elsewhere
    steep = 4.0 / (delta * eps)
    pull = rng.uniform(-0.5, 0.5, size=decoys)
    reach = np.abs(second[:, 1:]).sum(axis=0) * delta
    base = np.maximum(second[:, 1:].sum(axis=0) + bias[1:], 0)
    lead = 1.0 + float(np.abs(pull) @ reach) - float(pull @ base)
    # margin 1 + decoys - steep relu(...), which is 4 too much in the corner
    steep *= 1.0 + float(np.abs(pull) @ reach)
    net = FeedForward([np.ones((1, n)), second, np.concatenate([[-steep], pull])[:, None]], [np.zeros(n), bias, [lead]])
    failing = net.parameters.values.copy()
    failing[:n] += delta * signs
    return Planted("corner", net, np.ones(1), 1, delta, first_weights(net), failing, (eps / 2) ** n / math.factorial(n))


def needle(seed):
    """n units 1 + delta u_i; a third-layer unit wakes up where the sum of abs(u_i - t_i) is below eps."""
    rng = np.random.default_rng([seed, 12])
    n, delta, eps = int(rng.integers(6, 9)), 2.0 ** -float(rng.integers(1, 5)), 0.2
    point = rng.integers(-12, 13, size=n) / 16.0
    places = 1.0 + delta * point
    second, second_bias = np.hstack([np.eye(n), -np.eye(n)]), np.concatenate([-places, places])
    third, third_bias = np.full((2 * n, 1), -1.0), np.array([eps * delta])
    steep = 4.0 / (eps * delta)
    net = FeedForward([np.ones((1, n)), second, third, [[-steep]]], [np.zeros(n), second_bias, third_bias, [1.0]])
    failing = net.parameters.values.copy()
    failing[:n] += delta * point
    return Planted("needle", net, np.ones(1), 1, delta, first_weights(net), failing, eps**n / math.factorial(n))


def solutions(n, clauses):
    """Which of the 2**n assignments satisfy all clauses; a literal is +-(variable + 1)."""
    table = np.array(list(product((False, True), repeat=n)))
    good = np.ones(len(table), dtype=bool)
    for clause in clauses:
        good &= np.any([table[:, abs(v) - 1] == (v > 0) for v in clause], axis=0)
    return table[good]


def formula(seed, n, *, satisfiable):
    """Random clauses of three literals until one solution is left, or none."""
    rng, clauses = np.random.default_rng([seed, 13]), []
    while len(left := solutions(n, clauses)) > satisfiable:
        variables = rng.choice(n, size=3, replace=False) + 1
        clause = tuple(int(v) for v in variables * rng.choice([-1, 1], size=3))
        after = len(solutions(n, [*clauses, clause]))
        if int(satisfiable) <= after < len(left):
            clauses.append(clause)
    return clauses


def gadget(seed, *, satisfiable=True, n=7):
    """Fully connected 1 - n - (2n + m) - 1; all parameters move by the same delta."""
    clauses = formula(seed, n, satisfiable=satisfiable)
    delta = 1 / (8 * (n + 1) ** 2)
    eta = delta * (n + 1)
    gap = 1 - (n * delta + n * eta * (1 + delta) + eta + 2 * delta)
    second, bias = np.zeros((n, 2 * n + len(clauses))), np.zeros(2 * n + len(clauses))
    second[:, :n], bias[:n] = -2 * np.eye(n), 1.0
    second[:, n : 2 * n], bias[n : 2 * n] = 2 * np.eye(n), -1.0
    for j, clause in enumerate(clauses, start=2 * n):
        bias[j] = 1.0 - sum(v < 0 for v in clause)
        for v in clause:
            second[abs(v) - 1, j] = -1.0 if v > 0 else 1.0
    out = np.concatenate([np.ones(2 * n), -np.ones(len(clauses))])[:, None]
    net = FeedForward([np.zeros((1, n)), second, out], [np.full(n, 0.5), bias, [gap / 2 - n]])
    x = np.array([1 / (2 * delta) - 1])
    failing = None
    if satisfiable:
        failing, up = net.parameters.values.copy(), np.where(solutions(n, clauses)[0], 1.0, -1.0)
        failing[:n] = up * delta
        failing[n : 2 * n] = np.nextafter(0.5 + up * delta, 0.5)  # the sum may be rounded out of the box
    # a failing shift has all d_i = min(chi_i, 1 - chi_i) on the side of the solution and their sum at most `room`
    room = ((1 + delta) * n * (1 + eta) - n + gap / 2 + delta) / (2 * (1 + delta))
    assert room < (1 - eta) / 2
    volume = (room / (1 - 2 * delta)) ** n / math.factorial(n)
    return Planted("gadget", net, x, 0, delta, LinfShifts(), failing, volume)
