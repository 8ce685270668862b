"""HiGHS as an adviser: its point is only a suggestion, its bound counts only with a margin above its tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.bounds.backward import Objective
from apas.bounds.milp import Program
from apas.bounds.relaxation import Relaxation, Units

__all__ = ["Advice", "advise", "tolerance"]

_Array = NDArray[np.float64]
#: How far the solver may violate a constraint and integrality: its own defaults, set so that they stay what they are.
FEASIBILITY, INTEGRALITY = 1e-7, 1e-6


@dataclass(frozen=True)
class Advice:
    """What the solver says.

    Attributes
    ----------
    bound : float
        Its lower bound on the objective; minus infinity if it gave none.
    point : ndarray or None
        Its best point, to be checked.
    """

    bound: float
    point: _Array | None


def advise(program: Program, *, enough: float, target: float, time_limit: float) -> Advice:
    """Run HiGHS until its bound exceeds `enough`, its objective falls below `target`, or time is up.

    Examples
    --------
    >>> program = Program()
    >>> _ = program.columns(np.zeros(2), np.full(2, 3.0))
    >>> program.row(np.array([0, 1]), np.array([1.0, 1.0]), 1.0, np.inf)
    >>> program.cost = np.array([1.0, 2.0])
    >>> round(advise(program, enough=np.inf, target=-np.inf, time_limit=1.0).bound, 6)
    1.0
    """
    import highspy

    solver = highspy.Highs()
    options = {
        "output_flag": False, "threads": 1, "random_seed": 0, "time_limit": max(time_limit, 0.0),
        "primal_feasibility_tolerance": FEASIBILITY, "mip_feasibility_tolerance": INTEGRALITY,
        "mip_rel_gap": 0.0, "mip_abs_gap": 1e-9, "objective_target": target - program.const,
    }  # fmt: skip
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(program, highspy))
    if program.binaries:

        def stop(event: Any) -> None:
            if event.data_out.mip_dual_bound + program.const > enough:
                event.interrupt()

        solver.cbMipInterrupt.subscribe(stop)
    solver.run()
    info = solver.getInfo()
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    if program.binaries:
        bound = float(info.mip_dual_bound)
    else:
        bound = float(info.objective_function_value) if optimal else -np.inf
    point = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        point = np.array(solver.getSolution().col_value)
    return Advice(bound + program.const if np.isfinite(bound) else -np.inf, point)


def _model(program: Program, highspy: Any) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.low), len(program.rows)
    lp.col_cost_ = program.cost
    lp.col_lower_, lp.col_upper_ = np.array(program.low), np.array(program.high)
    lp.row_lower_ = np.array([low for _, low, _ in program.rows])
    lp.row_upper_ = np.array([high for _, _, high in program.rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    entries = [e[:, e[1] != 0] for e, _, _ in program.rows]
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([e.shape[1] for e in entries])]).astype(np.int32)
    if entries:
        joined = np.hstack(entries)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = joined[0].astype(np.int32), joined[1]
    kinds = highspy.HighsVarType
    if program.binaries:
        lp.integrality_ = [kinds.kInteger if flag else kinds.kContinuous for flag in program.integer]
    return lp


def tolerance(relaxation: Relaxation, units: list[Units], objective: Objective) -> float:
    """More than the solver's tolerances, added up over all constraints, can change in the objective of one row."""
    weight = np.abs(objective.lin[0]) + objective.rho[0]
    scale = float((weight * np.maximum(-units[-1].low, units[-1].high)[0]).sum() + abs(objective.const[0]))
    total = 0.0
    for i in range(len(units) - 1, -1, -1):
        unit = units[i]
        reach = np.maximum(np.abs(unit.low_l), np.abs(unit.high_u))[0] + np.maximum(-unit.low, unit.high)[0] + 1.0
        total += float((weight * (4 * FEASIBILITY + 4 * INTEGRALITY * reach)).sum())
        if i:
            weight = (np.abs(relaxation.layers[i].middle) + relaxation.layers[i].reach) @ weight
    return max(total, 1e-6 * scale)
