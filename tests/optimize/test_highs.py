"""HiGHS as an adviser: known problems, bounds that need no trust, and advice that is nonsense."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from apas.optimize.highs import ProgramBuilder, advise, dual_bound, verified_bound


def program_of(cost, low, high, rows, integer, const=0.0):
    program = ProgramBuilder()
    for a, b, whole in zip(low, high, integer, strict=True):
        program.columns(np.array([float(a)]), np.array([float(b)]), integer=bool(whole))
    for values, row_low, row_high in rows:
        program.row(np.arange(len(values)), np.asarray(values, dtype=float), row_low, row_high)
    return program.finish(np.asarray(cost, dtype=float), const)


def optimum(program):
    return advise(program, enough=np.inf, target=-np.inf, time_limit=10.0)


def proved(program, above):
    return verified_bound(program, above=above, deadline=time.monotonic() + 10.0)


def test_two_variables_that_an_older_version_got_wrong():
    # HiGHS #2957: min 2x + 3z, x + z >= 4.5, z whole; 1.14.0 says 15
    program = program_of([2, 3], [0, 0], [10, 10], [([1, 1], 4.5, np.inf)], [False, True])
    advice = optimum(program)
    assert advice.bound == pytest.approx(9.0, abs=1e-6)
    assert advice.point == pytest.approx([4.5, 0.0], abs=1e-6)
    assert 8.9 < proved(program, 8.9) <= 9.0
    assert proved(program, 9.0) is None


@pytest.mark.parametrize("value", [1.0, 1e-8, 1.1e-9, 1e-9, 5e-10, 1e-14])
def test_entries_that_the_solver_would_drop(value):
    # min x - 1.5 v y with x >= v y, y in [5e9, 1e10]: -0.5 v y at y = 1e10
    truth, row = -0.5 * value * 1e10, ([1.0, -value], 0.0, np.inf)
    program = program_of([1.0, -1.5 * value], [0, 5e9], [2e10 * value, 1e10], [row], [False] * 2)
    assert optimum(program).bound == pytest.approx(truth, rel=1e-5)
    assert truth * (1 + 1e-6) < proved(program, truth * (1 + 1e-6)) <= truth * (1 - 1e-12)
    # a range that is far too wide makes the entry vanish even so: the advice may be wrong, but nothing false is proved
    program = program_of([1.0, -1.5 * value], [0, 5e9], [1e10, 1e10], [row], [False] * 2)
    assert proved(program, truth * (1 - 1e-9)) is None


@pytest.mark.parametrize("entry", [2.0**30, 2.0**60])
def test_a_column_that_is_always_zero_does_not_spoil_its_row(entry):
    # x + y + entry z >= 1 with z fixed at 0
    program = program_of([1, 2, 0], [0, 0, 0], [3, 3, 0], [([1, 1, entry], 1.0, np.inf)], [False] * 3)
    assert optimum(program).bound == pytest.approx(1.0, abs=1e-6)
    assert proved(program, 0.999) is not None


def random_program(rng, *, whole):
    """At most 6 columns and 6 rows; a point that satisfies the rows is known."""
    n, m = int(rng.integers(2, 7)), int(rng.integers(1, 7))
    integer = np.ones(n, dtype=bool) if whole else rng.random(n) < 0.6
    low = np.where(integer, 0.0, rng.integers(-4, 1, size=n))
    high = np.where(integer, 1.0, low + rng.integers(0, 6, size=n))
    matrix = rng.integers(-5, 6, size=(m, n)).astype(float)
    point = np.where(integer, rng.integers(0, 2, size=n), rng.uniform(low, high))
    at = matrix @ point
    rows = []
    for values, here in zip(matrix, at, strict=True):
        kind = rng.integers(3)
        slack = float(rng.integers(0, 3))
        rows.append((values, -np.inf if kind == 0 else here - slack, np.inf if kind == 1 else here + slack))
    return program_of(rng.integers(-6, 7, size=n), low, high, rows, integer, const=float(rng.integers(-3, 4)))


def all_whole(program):
    """The least objective over all 0-1 points; all numbers are small and whole, so nothing is rounded."""
    points = np.array(list(product((0.0, 1.0), repeat=len(program.low))))
    values = points @ program.matrix.T
    fits = ((values >= program.row_low) & (values <= program.row_high)).all(axis=1)
    return (points @ program.cost)[fits].min() + program.const


def by_branches(program):
    """The least objective by one linear program per choice of the binaries."""
    integer = np.flatnonzero(program.integer)
    matrix, low, high = program.matrix, program.row_low, program.row_high
    upper, lower = np.isfinite(high), np.isfinite(low)
    A, b = np.vstack([matrix[upper], -matrix[lower]]), np.concatenate([high[upper], -low[lower]])
    best = np.inf
    for choice in product((0.0, 1.0), repeat=len(integer)):
        bounds = [list(pair) for pair in zip(program.low, program.high, strict=True)]
        for column, value in zip(integer, choice, strict=True):
            bounds[column] = [value, value]
        found = linprog(program.cost, A_ub=A, b_ub=b, bounds=bounds)
        if found.status == 0:
            best = min(best, found.fun)
    return best + program.const


def test_random_binary_programs_against_all_points():
    rng, decided = np.random.default_rng(0), 0
    for _ in range(150):
        program = random_program(rng, whole=True)
        truth = all_whole(program)
        assert optimum(program).bound <= truth + 1e-6
        assert proved(program, truth) is None  # nothing exceeds the optimum
        assert proved(program, truth + 1e-9) is None
        bound = proved(program, truth - 1e-6)
        if bound is not None:
            decided += 1
            assert truth - 1e-6 < bound <= truth
    assert decided >= 145


def test_random_mixed_programs_against_one_linear_program_per_choice():
    rng, decided = np.random.default_rng(1), 0
    for _ in range(40):
        program = random_program(rng, whole=False)
        truth = by_branches(program)
        assert proved(program, truth + 1e-5) is None
        bound = proved(program, truth - 1e-4)
        decided += bound is not None
        assert bound is None or bound <= truth + 1e-6
    assert decided >= 38


def test_programs_that_no_point_satisfies():
    # x + y >= 3 for two binaries; 2x + 2y = 1 for two binaries, which only the tree sees
    for rows in ([([1, 1], 3.0, np.inf)], [([2, 2], 1.0, 1.0)]):
        program = program_of([1, 1], [0, 0], [1, 1], rows, [True, True])
        bound = proved(program, 1e6)
        assert bound is None or bound > 1e6


def test_any_multipliers_give_a_bound():
    """Weak duality in rational arithmetic: no multipliers prove more than the objective at a known point."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        program = random_program(rng, whole=True)
        (scaled, _, unit), truth = program.scale(), Fraction(all_whole(program))
        for size in (1e-3, 1.0, 1e6, 1e15):
            y = rng.normal(size=len(program.matrix)) * size
            for counted in (True, False):
                bound = dual_bound(scaled, y, scaled.cost, scaled.low, scaled.high, counted=counted)
                assert Fraction(bound) * Fraction(unit) + Fraction(program.const) <= truth
            # feasible programs are never shown to be infeasible
            assert not dual_bound(scaled, y, np.zeros_like(scaled.cost), scaled.low, scaled.high) > 0


def test_the_multipliers_of_the_optimum_are_tight():
    """Cost = matrix' y with y >= 0 and all rows met with equality: the optimum is y . b, without rounding."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        n, m = 5, 3
        matrix, y = rng.integers(-4, 5, size=(m, n)).astype(float), rng.integers(0, 5, size=m).astype(float)
        point = rng.integers(-3, 4, size=n).astype(float)
        b = matrix @ point
        rows = [(values, end, np.inf) for values, end in zip(matrix, b, strict=True)]
        program = program_of(matrix.T @ y, point - 2, point + 3, rows, [False] * n)
        truth = float(y @ b)
        assert proved(program, truth) is None
        bound = proved(program, truth - 1e-9 * (1 + abs(truth)))
        assert bound is not None
        assert bound <= truth


@pytest.mark.parametrize("y", [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, 5e-324])
def test_multipliers_that_are_not_numbers_prove_nothing_false(y):
    program = program_of([1, 2], [0, 0], [3, 3], [([1, 1], 1.0, np.inf), ([1, -1], -1.0, 1.0)], [False] * 2)
    scaled, _, unit = program.scale()
    with np.errstate(all="ignore"):
        for vector in (np.array([y, y]), np.array([y, 0.0]), np.array([0.0, y])):
            bound = dual_bound(scaled, vector, scaled.cost, scaled.low, scaled.high)
            assert not bound * unit > 1.0
            assert not dual_bound(scaled, vector, np.zeros(2), scaled.low, scaled.high) > 0


def test_scaling_by_powers_of_two_rounds_nothing():
    rng = np.random.default_rng(4)
    for _ in range(50):
        program = random_program(rng, whole=False)
        columns = 2.0 ** rng.integers(-60, 61, size=len(program.low))
        columns[program.integer] = 1.0
        factors = 2.0 ** rng.integers(-60, 61, size=len(program.matrix)).astype(float)
        other = replace(
            program,
            low=program.low / columns,
            high=program.high / columns,
            cost=program.cost * columns,
            matrix=program.matrix * columns * factors[:, None],
            row_low=program.row_low * factors,
            row_high=program.row_high * factors,
        )
        (one, _, unit), (two, _, other_unit) = program.scale(), other.scale()
        moving = program.low != program.high
        assert np.array_equal(one.low, two.low)
        assert np.array_equal(one.high, two.high)
        if moving.all():
            assert np.array_equal(one.matrix, two.matrix)
            assert np.array_equal(one.cost * unit, two.cost * other_unit)
        assert optimum(other).bound == pytest.approx(optimum(program).bound, abs=1e-5)


def test_no_time():
    program = random_program(np.random.default_rng(5), whole=True)
    assert verified_bound(program, above=-1e9, deadline=time.monotonic() - 1.0) is None
    advice = advise(program, enough=np.inf, target=-np.inf, time_limit=0.0)
    assert advice.bound <= all_whole(program) + 1e-6


def test_nothing_to_choose():
    program = program_of([0.0], [2.0], [2.0], [], [False], const=-1.5)
    assert optimum(program).bound == pytest.approx(-1.5)
    assert proved(program, -1.6) is not None
    assert proved(program, -1.5) is None
