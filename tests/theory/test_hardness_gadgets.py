"""Each gadget does what its description says, at the worst shift, in rational arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import apas
from apas.theory.hardness import clause_unit, discretizer_units, gap, generating_unit, input_value, shift_size

SIZES = (1, 2, 3, 4, 8, 50)
GRID = [Fraction(i, 12) for i in range(13)]


def relu(z):
    return max(z, Fraction(0))


def reach(unit, chi, delta):
    """Least and largest value of a unit whose parameters all move by up to delta, those that are 0 as well."""
    z = sum((unit.weights.get(i, 0) * c for i, c in enumerate(chi)), unit.bias)
    noise = delta * (sum(chi) + 1)  # the values are never negative
    return relu(z - noise), relu(z + noise)


def rounded(chi):
    return [c > Fraction(1, 2) for c in chi]


def distances(chi):
    return [min(c, 1 - c) for c in chi]


@pytest.mark.parametrize("n", SIZES)
def test_numbers_of_the_construction(n):
    delta, eta = shift_size(n), shift_size(n) * (n + 1)
    assert delta == Fraction(1, 8 * (n + 1) ** 2)
    assert input_value(n) == 1 / (2 * delta) - 1
    assert gap(n) == 1 - (n * delta + n * eta * (1 + delta) + eta + 2 * delta) > Fraction(77, 100)
    # the last step of the proof: with every clause noise and all else at its worst, a violated clause costs the gap
    assert n * (1 + delta) * (1 + eta) - (1 - delta) * (1 - eta) + delta - n + gap(n) / 2 <= -gap(n) / 2


@pytest.mark.parametrize("n", SIZES)
def test_generating_gadget_reaches_all_of_the_unit_interval_and_nothing_else(n):
    unit, delta, x = generating_unit(), shift_size(n), input_value(n)
    assert unit.weights[0] * x + unit.bias == Fraction(1, 2)
    ends = [(unit.weights[0] + s * delta) * x + unit.bias + s * delta for s in (-1, 1)]
    assert ends == [0, 1]  # the sum is continuous in the shift, so everything between is reached
    # and so says the library
    net = apas.FeedForward([[[0.0]], [[1.0]]], [[0.5], None], output="identity", threshold=0.0)
    found = apas.output_range(net, [[float(x)]], float(delta), target=1, shifts=apas.LinfShifts(layers=[0]), method="exact")  # fmt: skip
    assert (found[0].low, found[0].high) == pytest.approx((0, 1), abs=1e-9)
    assert found[0].attained == (True, True)


@pytest.mark.parametrize("n", SIZES)
def test_discretizer_gadget(n):
    p, q = discretizer_units(0)
    delta, eta = shift_size(n), shift_size(n) * (n + 1)
    for c in GRID:
        values = [relu(u.weights[0] * c + u.bias) for u in (p, q)]
        assert sum(values) == abs(1 - 2 * c)
        assert (sum(values) == 1) == (c in (0, 1))
        # with noise, the other variables at their largest
        chi = [c, *[Fraction(1)] * (n - 1)]
        largest = sum(reach(u, chi, delta)[1] for u in (p, q))
        assert largest <= max(1 - 2 * min(c, 1 - c) + eta, 2 * eta)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_negation_gadget(n):
    """A negated literal counts as 1 - chi: the clause of its own is broken by chi, that of the variable by 1 - chi."""
    delta, eta = shift_size(n), shift_size(n) * (n + 1)
    for c in GRID:
        chi = [c, *[Fraction(1)] * (n - 1)]
        for literal, truth in ((1, c), (-1, 1 - c)):
            unit = clause_unit([literal])
            assert relu(unit.weights[0] * c + unit.bias) == 1 - truth
            least, largest = reach(unit, chi, delta)
            assert 1 - truth - eta <= least <= largest <= 1 - truth + eta


CLAUSES = [c for k in (0, 1, 2, 3) for v in itertools.combinations((1, 2, 3), k) for c in itertools.product(*((i, -i) for i in v))]  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES, ids=str)
def test_clause_gadget(clause):
    unit, delta, eta = clause_unit(clause), shift_size(3), shift_size(3) * 4
    for truth in itertools.product((False, True), repeat=3):
        t = relu(sum(unit.weights.get(i, 0) for i in range(3) if truth[i]) + unit.bias)
        assert t == int(not any(truth[abs(literal) - 1] == (literal > 0) for literal in clause))
    for chi in itertools.product(GRID[::2], repeat=3):
        near = rounded(chi)
        if not any(near[abs(literal) - 1] == (literal > 0) for literal in clause):
            d = distances(chi)
            assert reach(unit, chi, delta)[0] >= 1 - eta - sum(d[abs(literal) - 1] for literal in clause)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_conjunction_and_end_gadget(n):
    """Whatever the shift, the logit is at most -gap/2 where the rounded values break a clause; at the truth it is gap/2."""
    delta = shift_size(n)
    rng = np.random.default_rng(n)
    bias = -n + gap(n) / 2
    broken = 0
    for _ in range(60):
        clauses = [
            [int(v + 1) * int(rng.choice([-1, 1])) for v in rng.permutation(n)[: rng.integers(1, n + 1)]]
            for _ in range(rng.integers(1, 9))
        ]
        units = [clause_unit(c) for c in clauses]
        for chi in [[GRID[i] for i in rng.integers(0, 13, n)] for _ in range(8)] + [[GRID[-1]] * n, [GRID[0]] * n]:
            # p and q enter with 1 + delta at their largest, clauses with delta - 1 at their least
            logit = bias + delta
            for i in range(n):
                logit += (1 + delta) * sum(reach(u, chi, delta)[1] for u in discretizer_units(i))
            logit += sum((delta - 1) * reach(u, chi, delta)[0] for u in units)
            near = rounded(chi)
            holds = all(any(near[abs(k) - 1] == (k > 0) for k in c) for c in clauses)
            broken += not holds
            if not holds:
                assert logit <= -gap(n) / 2
            elif all(c in (0, 1) for c in chi):
                exact = bias + sum(abs(1 - 2 * c) for c in chi) - sum(
                    relu(sum(u.weights.get(i, 0) * c for i, c in enumerate(chi)) + u.bias) for u in units
                )  # fmt: skip
                assert exact == gap(n) / 2
    assert broken > 100
