"""Linear programs solved by HiGHS, and branch and bound on them.

The programs here are small, and most are settled after a handful of linear programs, which take a tenth of what it
takes to start a mixed-integer solver; so that comes last. Whatever HiGHS says is advice: a point counts only if it is
accepted by whoever asked, who evaluates the network itself. A point may be accepted although some column that should be
whole is not, since what such a column of a unit stands for is decided by evaluating the unit.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.optimize.program import Mixed

#: Tolerances of the solver, in scaled rows; of whole numbers; and of costs.
TOLERANCE, WHOLE, GAP = 1e-9, 1e-6, 1e-9


class Relaxed:
    """A solver that takes one program after the other."""

    def __init__(self) -> None:
        import highspy

        self.highspy, self.solver = highspy, solver_with_options(highspy)
        self.solver.setOptionValue("presolve", "off")
        #: Whether the last program was neither solved nor found to have no point.
        self.gave_up = False

    def read(self, program: Mixed) -> None:
        """Take on another program."""
        self.program = program
        self.solver.passModel(solver_model(self.highspy, program, whole=False))
        self.every = np.arange(len(program.low), dtype=np.int32)

    def solved(self, low: Floats, high: Floats) -> tuple[float, Floats] | None:
        """Least cost between some ends, and where; None if there is nothing, or the solver gives up."""
        self.solver.changeColsBounds(len(self.every), self.every, low, high)
        self.solver.run()
        status, statuses = self.solver.getModelStatus(), self.highspy.HighsModelStatus
        self.gave_up = status not in (statuses.kOptimal, statuses.kInfeasible)
        if status != statuses.kOptimal:
            return None
        return self.solver.getObjectiveValue(), np.array(self.solver.getSolution().col_value)

    def least(self, form: Floats) -> float:
        """A lower bound on ``form @ v``, infinite if there is no v; it follows from multipliers, whoever gave them."""
        program = self.program
        self.solver.changeColsCost(len(self.every), self.every, form)
        self.solver.run()
        status, statuses = self.solver.getModelStatus(), self.highspy.HighsModelStatus
        if status == statuses.kInfeasible:
            return np.inf
        if status != statuses.kOptimal:
            return -np.inf
        y = np.array(self.solver.getSolution().row_dual)
        sides = np.where(y > 0, program.row_low, program.row_high)
        y, sides = np.where(np.isfinite(sides), y, 0.0), np.where(np.isfinite(sides), sides, 0.0)
        rest = form - y @ program.matrix
        ends = np.where(rest > 0, program.low, program.high)
        size = np.abs(y) @ np.abs(sides) + (np.abs(form) + np.abs(y) @ np.abs(program.matrix)) @ np.abs(ends)
        return float(y @ sides + rest @ ends - 1e-12 * size)


def solver_with_options(highspy: Any) -> Any:
    """HiGHS, silent, on one thread and as accurate as it can be."""
    solver = highspy.Highs()
    options = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": GAP,
        "primal_feasibility_tolerance": TOLERANCE,
        "dual_feasibility_tolerance": TOLERANCE,
        "mip_feasibility_tolerance": WHOLE,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    return solver


def solver_model(highspy: Any, program: Mixed, *, whole: bool) -> Any:
    """A program as HiGHS takes it."""
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = program.matrix.shape
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.low, program.high
    lp.row_lower_, lp.row_upper_ = program.row_low, program.row_high
    rows, columns = np.nonzero(program.matrix)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(rows, np.arange(len(program.matrix) + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = columns.astype(np.int32), program.matrix[rows, columns]
    if whole and program.integer.any():
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if flag else kinds.kContinuous for flag in program.integer]
    return lp


#: Makes a proper point of the values of all columns and gives it with its cost; None if it will not do.
Accept = Callable[[Floats], tuple[Floats, float] | None]
#: What counts as whole: little, since dust is multiplied by big Ms.
DUST = 1e-9


@dataclass(frozen=True)
class Best:
    """The best point known."""

    values: Floats | None = None
    cost: float = np.inf
    complete: bool = False


def least_cost(
    program: Mixed,
    accept: Accept,
    *,
    start: Best | None = None,
    nodes: int = 1000,
    deadline: float = np.inf,
    relaxed: Relaxed | None = None,
) -> Best:
    """Find the cheapest accepted point of a program."""
    solver = Relaxed() if relaxed is None else relaxed
    solver.read(program)
    best = Best() if start is None else start
    solved, order, sure = 0, 0, True
    waiting = [(-np.inf, order, program.low, program.high)]
    while waiting and waiting[0][0] < best.cost - GAP:  # the first is the one that promises most
        if solved >= nodes or time.monotonic() > deadline:
            return replace(best, complete=False)
        bound, _, low, high = heapq.heappop(waiting)
        found = solver.solved(low, high)
        solved, sure = solved + 1, sure and not solver.gave_up
        if found is None or found[0] > best.cost - GAP:
            continue
        bound, values = found
        point = accept(values)
        if point is not None and point[1] < best.cost:
            best = Best(*point)
        if point is not None and point[1] <= bound + GAP:
            continue  # the best of its case
        column = _undecided(program, values, low, high)
        for child in [] if column is None else _halves(low, high, column, values[column]):
            order += 1
            heapq.heappush(waiting, (bound, order, *child))
    return replace(best, complete=sure)


def _undecided(program: Mixed, values: Floats, low: Floats, high: Floats) -> int | None:
    """The column to decide next: that of the unit that is farthest off, or else the one farthest from whole."""
    free, switches = program.integer & (low < high), program.switches
    if switches is not None:
        gaps = np.where(free[switches.column], switches.gaps(values), 0.0)
        unit = int(gaps.argmax())
        if gaps[unit] > DUST:
            return int(switches.column[unit])
    away = np.where(free, np.abs(values - np.rint(values)), 0.0)
    column = int(away.argmax())
    return column if away[column] > DUST else None


def _halves(low: Floats, high: Floats, column: int, value: float) -> list[tuple[Floats, Floats]]:
    down, up = high.copy(), low.copy()
    middle = np.clip(np.floor(value), low[column], high[column] - 1)  # a unit may be off where its column is whole
    down[column], up[column] = middle, middle + 1
    return [(low, down), (up, high)]


def by_solver(program: Mixed, accept: Accept, start: Best, deadline: float) -> Best:
    """What the mixed-integer solver of HiGHS finds in the time that is left."""
    import highspy

    solver = solver_with_options(highspy)
    solver.setOptionValue("time_limit", float(np.clip(deadline - time.monotonic(), 0.0, 1e9)))
    solver.passModel(solver_model(highspy, program, whole=True))
    if start.values is not None:
        columns = np.arange(len(start.values), dtype=np.int32)
        solver.setSolution(len(columns), columns, start.values)
    solver.run()
    status, statuses = solver.getModelStatus(), highspy.HighsModelStatus
    best = replace(start, complete=status in (statuses.kOptimal, statuses.kInfeasible))
    if solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        point = accept(np.array(solver.getSolution().col_value))
        if point is not None and point[1] < best.cost:
            return replace(best, values=point[0], cost=point[1])
    return best
