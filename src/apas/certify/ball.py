"""Worst-case answers for shifts in an L_p ball of the whole parameter vector."""

from __future__ import annotations

import numpy as np

from apas.bounds.balls import ball_radius, is_exact_ball, least_margins_ball, worst_points_ball
from apas.bounds.worstcase import Finding
from apas.certify.attack import broken_deltas
from apas.certify.certificate import Certificate
from apas.certify.claims import Every
from apas.certify.confirm import confirmed_witness
from apas.certify.maxshifts import MaxShift
from apas.certify.problem import Problem
from apas.certify.provable import proved_answer
from apas.certify.witness import Witness
from apas.certify.worstcase import certificate, every
from apas.shifts.lp import LpShifts

__all__ = ["decided_in_ball", "is_exact_in_ball", "worst_case_in_ball"]


def is_exact_in_ball(problem: Problem) -> bool:
    """Whether the least margin over the ball is known in closed form."""
    return problem.network is not None and is_exact_ball(problem.network, problem.radii)


def decided_in_ball(problem: Problem, method: str) -> list[Certificate]:
    """One certificate per row: proved by a bound, or broken where the worst shift is known in closed form."""
    network, shifts = problem.network, problem.shifts
    assert network is not None
    assert isinstance(shifts, LpShifts)
    bound, error = least_margins_ball(network, problem.X, problem.wanted, problem.radii, shifts.p, problem.delta)
    found = [Finding(bound=value) for value in (bound - error).tolist()]
    witnesses: list[Witness | None] = [None] * len(problem)
    rows = [i for i, finding in enumerate(found) if not finding.bound > 0]
    for finding in found:
        if finding.bound > 0:
            finding.prove("ball", finding.bound)
    some = problem.take(np.array(rows, dtype=np.intp))
    points = worst_points_ball(network, some.X, some.wanted, problem.radii, shifts.p, some.delta) if rows else None
    for row, point in zip(rows, [] if points is None else points, strict=False):
        delta, base = float(problem.delta[row]), problem.model.parameters
        values = shifts.pull_inside(base, base.values + delta * point, delta)
        witnesses[row] = confirmed_witness(problem, row, values)
        if witnesses[row] is not None:
            found[row].broken, found[row].step = True, "ball"
    claim = every(problem)
    return [
        certificate(problem, i, claim, method, finding, witness, np.inf)
        for i, (finding, witness) in enumerate(zip(found, witnesses, strict=True))
    ]


def worst_case_in_ball(problem: Problem, claim: Every, limit: float, kind: str) -> list[MaxShift]:
    """The largest delta at which every shift of the ball is proved to keep the class."""
    network, shifts = problem.network, problem.shifts
    assert network is not None
    assert isinstance(shifts, LpShifts)
    proved = ball_radius(network, problem.X, problem.wanted, problem.radii, shifts.p, limit)
    broken, _ = broken_deltas(problem, proved, limit)
    return [
        proved_answer(low, high, limit, claim, target, kind, "proved for every shift of the ball")
        for low, high, target in zip(proved.tolist(), broken.tolist(), problem.target, strict=True)
    ]
