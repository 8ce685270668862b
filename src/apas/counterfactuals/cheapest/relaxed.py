"""A mixed-integer program without its whole numbers, as HiGHS solves it, with the ends of columns changing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.cheapest.sheet import Mixed

__all__ = ["Relaxed", "solver_model", "solver_with_options"]

_Array = NDArray[np.float64]
#: Tolerances of the solver, in scaled rows; of whole numbers; and of costs.
TOLERANCE, WHOLE, GAP = 1e-9, 1e-6, 1e-9


class Relaxed:
    """A solver that takes one program after the other.

    Examples
    --------
    >>> from apas.counterfactuals.cheapest.sheet import Sheet
    >>> sheet = Sheet(2)
    >>> _ = sheet.columns(np.zeros(2), np.full(2, 3.0), np.array([True, True]))
    >>> sheet.sparse({0: 2.0, 1: 2.0}, 3.0, np.inf)
    >>> relaxed = Relaxed()
    >>> relaxed.read(sheet.finished(np.array([1.0, 2.0])))
    >>> cost, values = relaxed.solved(np.zeros(2), np.full(2, 3.0))
    >>> cost, values.tolist(), round(relaxed.least(np.array([1.0, 1.0])), 6)
    (1.5, [1.5, 0.0], 1.5)
    """

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

    def solved(self, low: _Array, high: _Array) -> tuple[float, _Array] | None:
        """Least cost between some ends, and where; None if there is nothing, or the solver gives up."""
        self.solver.changeColsBounds(len(self.every), self.every, low, high)
        self.solver.run()
        status, statuses = self.solver.getModelStatus(), self.highspy.HighsModelStatus
        self.gave_up = status not in (statuses.kOptimal, statuses.kInfeasible)
        if status != statuses.kOptimal:
            return None
        return self.solver.getObjectiveValue(), np.array(self.solver.getSolution().col_value)

    def least(self, form: _Array) -> float:
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
        "output_flag": False, "threads": 1, "random_seed": 0, "mip_rel_gap": 0.0, "mip_abs_gap": GAP,
        "primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE,
        "mip_feasibility_tolerance": WHOLE,
    }  # fmt: skip
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
