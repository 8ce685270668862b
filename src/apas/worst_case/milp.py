"""The worst case as a mixed-integer program, and its dual bound checked outside of the solver.

Given the activations a before it, a unit reaches exactly the values between ``act(l(a))`` and ``act(u(a))``,
independently of the others. So there is a variable per activation and none for its argument or for a weight, no
binary in the first hidden layer, and elsewhere one only where a kink that bends the wrong way lies inside the range of
l or u. Magnitudes of activations that can have either sign get a variable and a binary each, shared by all units above.
Every big M is a proven bound on what it has to cover.

Whatever multipliers y a solver returns, ``cost . v >= y . (matrix v) + (cost - matrix^T y) . v``, and both sums are
bounded by the ends of the rows and columns; so any y gives a lower bound that needs no trust, only the multipliers of
an optimum make it tight. A tree over the binaries, with a linear program at each node to suggest multipliers, proves a
bound without believing the solver anywhere.

Columns are scaled by powers of two to ranges within [-1, 1], rows to a largest entry of 1: the tolerances of the solver
are absolute, and it drops entries that look small.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._typing import Floats, Indices
from apas.models.activations import LEAKY_SLOPE
from apas.optimize.program import Program
from apas.worst_case.linear import Objective
from apas.worst_case.relaxation import Relaxation, Units


@dataclass(frozen=True)
class _Affine:
    """``values . v[columns] + const``: what a unit's l or u is."""

    columns: Indices
    values: Floats
    const: float


class _Builder:
    def __init__(self, relaxation: Relaxation, units: list[Units]) -> None:
        self.relaxation, self.units, self.program = relaxation, units, Program()

    def build(self, objective: Objective) -> Program:
        names, program = self.relaxation.net.activations, self.program
        last = len(names) - 1
        for i, name in enumerate(names):
            unit = self.units[i]
            columns = program.columns(unit.low[0], unit.high[0])
            for k, column in enumerate(columns.tolist() if i else []):
                small, large = (True, True) if i < last else _sides(objective, unit, k)
                self._unit(i, k, column, name, small=small, large=large)
            program.activations.append(columns)
            self._magnitudes(i, columns)
        program.cost = np.zeros(len(program.low))
        goal = self._combined(objective.lin[0], -objective.rho[0], float(objective.const[0]))
        np.add.at(program.cost, goal.columns, goal.values)
        program.const = goal.const
        return program

    def _magnitudes(self, i: int, columns: Indices) -> None:
        """Per activation the column of its magnitude and the sign it stands for: +-1, or 0 for a column of its own."""
        unit, program = self.units[i], self.program
        low, high = unit.low[0], unit.high[0]
        self.current = columns
        self.sign = np.where(low >= 0, 1.0, np.where(high <= 0, -1.0, 0.0))
        crossing = np.flatnonzero(self.sign == 0)
        self.sizes = program.columns(np.zeros(len(crossing)), np.maximum(-low, high)[crossing])
        for k, size in zip(crossing.tolist(), self.sizes.tolist(), strict=True):
            # size <= abs(a): a larger one would only help the adversary, so nothing else is needed
            s, a = program.binary(), int(columns[k])
            program.row(np.array([size, a, s]), np.array([1.0, -1.0, -2 * low[k]]), -np.inf, -2 * low[k])
            program.row(np.array([size, a, s]), np.array([1.0, 1.0, -2 * high[k]]), -np.inf, 0.0)

    def _combined(self, lin: Floats, rho: Floats, const: float) -> _Affine:
        """``lin . a + rho . abs(a) + const`` in terms of the current layer's columns."""
        rho = np.broadcast_to(rho, lin.shape)
        columns = np.concatenate([self.current, self.sizes])
        return _Affine(columns, np.concatenate([lin + rho * self.sign, rho[self.sign == 0]]), const)

    def _unit(self, i: int, k: int, h: int, name: str, *, small: bool, large: bool) -> None:
        """Constraints between a unit and its l (`small`: the margin wants it small) and u (`large`)."""
        layer, unit = self.relaxation.layers[i], self.units[i]
        w, r, b, b_reach = layer.middle[:, k], layer.reach[:, k], float(layer.bias[k]), float(layer.bias_reach[k])
        if small:
            ends = float(unit.low_l[0, k]), float(unit.high_l[0, k])
            self._above(h, self._combined(w, -r, b - b_reach), name, *ends)
        if large:
            ends = float(unit.low_u[0, k]), float(unit.high_u[0, k])
            self._below(h, self._combined(w, r, b + b_reach), name, *ends)

    def _at_least(self, h: int, form: _Affine, slope: float, extra: tuple[int, float] | None, const: float) -> None:
        """H >= slope * form + extra[1] * v[extra[0]] + const."""
        columns, values = np.concatenate([[h], form.columns]), np.concatenate([[1.0], -slope * form.values])
        if extra is not None:
            columns, values = np.append(columns, extra[0]), np.append(values, -extra[1])
        self.program.row(columns, values, slope * form.const + const, np.inf)

    def _at_most(self, h: int, form: _Affine, slope: float, extra: tuple[int, float] | None, const: float) -> None:
        """H <= slope * form + extra[1] * v[extra[0]] + const."""
        columns, values = np.concatenate([[h], form.columns]), np.concatenate([[1.0], -slope * form.values])
        if extra is not None:
            columns, values = np.append(columns, extra[0]), np.append(values, -extra[1])
        self.program.row(columns, values, -np.inf, slope * form.const + const)

    def _above(self, h: int, form: _Affine, name: str, low: float, high: float) -> None:
        """H >= act(l): kinks that bend up are two constraints, one that bends down needs a binary."""
        if name == "hard_tanh":
            if high <= 1:
                self._at_least(h, form, 1.0, None, 0.0)
            elif low < 1:
                free = self.program.binary()  # 1: h >= l, 0: h >= 1
                self._at_least(h, form, 1.0, (free, high - 1), 1 - high)
                self._at_least(h, form, 0.0, (free, low - 1), 1.0)
            else:
                self._at_least(h, form, 0.0, None, 1.0)
            return
        slope = {"relu": 0.0, "leaky_relu": LEAKY_SLOPE, "identity": 1.0}[name]
        if high > 0 or name == "identity":
            self._at_least(h, form, 1.0, None, 0.0)
        if low < 0 and 0 < slope < 1:
            self._at_least(h, form, slope, None, 0.0)

    def _below(self, h: int, form: _Affine, name: str, low: float, high: float) -> None:
        """H <= act(u)."""
        if name == "hard_tanh":
            if low >= -1:
                self._at_most(h, form, 1.0, None, 0.0)
            elif high > -1:
                free = self.program.binary()  # 1: h <= u, 0: h <= -1
                self._at_most(h, form, 1.0, (free, low + 1), -1 - low)
                self._at_most(h, form, 0.0, (free, high + 1), -1.0)
            else:
                self._at_most(h, form, 0.0, None, -1.0)
            return
        slope = {"relu": 0.0, "leaky_relu": LEAKY_SLOPE, "identity": 1.0}[name]
        if name == "identity" or low >= 0:
            self._at_most(h, form, 1.0, None, 0.0)
        elif high <= 0:
            self._at_most(h, form, slope, None, 0.0)
        else:
            alive = self.program.binary()
            self._at_most(h, form, 1.0, (alive, (1 - slope) * low), -(1 - slope) * low)
            self._at_most(h, form, slope, (alive, (1 - slope) * high), 0.0)


def _sides(objective: Objective, unit: Units, k: int) -> tuple[bool, bool]:
    """Whether the margin can want a unit of the last layer small, and whether it can want it large."""
    lin, rho = float(objective.lin[0, k]), float(objective.rho[0, k])
    # where the unit is positive it enters with lin - rho, where it is negative with lin + rho
    enters = [lin - rho] * bool(unit.high[0, k] > 0) + [lin + rho] * bool(unit.low[0, k] < 0)
    return any(c > 0 for c in enters), any(c < 0 for c in enters)


def reduced_program(relaxation: Relaxation, units: list[Units], objective: Objective) -> Program:
    """The least value of `objective` for one row, over all shifts, as a program."""
    return _Builder(relaxation, units).build(objective)


#: How far the solver may violate a constraint and integrality: its own defaults, set so that they stay what they are.
FEASIBILITY, INTEGRALITY = 1e-7, 1e-6
#: Scaled entries up to this size are left out, as the solver would do.
SMALL = 1e-9
#: Nodes of the tree that checks a bound.
NODES = 20_000


@dataclass(frozen=True)
class Advice:
    """What the solver says."""

    bound: float
    point: Floats | None


class _Scaled:
    """A program in numbers that suit a solver; scaling by powers of two rounds nothing."""

    def __init__(self, program: Program) -> None:
        low, high = np.array(program.low), np.array(program.high)
        integer = np.array(program.integer, dtype=bool)
        size = np.maximum(np.abs(low), np.abs(high))
        # what is always 0 has no entries, which might be large; binaries stay as they are
        self.columns = np.where(integer, 1.0, np.where(size > 0, _power(size), 0.0))
        divisor = np.where(self.columns > 0, self.columns, 1.0)
        self.low, self.high, self.integer = low / divisor, high / divisor, integer
        self.matrix = np.zeros((len(program.rows), len(low)))
        self.row_low, self.row_high = np.empty(len(program.rows)), np.empty(len(program.rows))
        for i, (entries, row_low, row_high) in enumerate(program.rows):
            np.add.at(self.matrix[i], entries[0].astype(int), entries[1])
            self.row_low[i], self.row_high[i] = row_low, row_high
        self.matrix *= self.columns
        rows = _power(np.abs(self.matrix).max(axis=1, initial=0.0))
        self.matrix /= rows[:, None]
        self.row_low, self.row_high = self.row_low / rows, self.row_high / rows
        cost = program.cost * self.columns
        self.unit = float(_power(np.abs(cost).max(initial=0.0)))
        self.cost, self.const = cost / self.unit, program.const

    def model(self, highspy: Any, *, relaxed: bool) -> Any:
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = self.matrix.shape
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.cost, self.low, self.high
        lp.row_lower_, lp.row_upper_ = self.row_low, self.row_high
        rows, columns = np.nonzero(np.abs(self.matrix) > SMALL)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.searchsorted(rows, np.arange(len(self.matrix) + 1)).astype(np.int32)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = columns.astype(np.int32), self.matrix[rows, columns]
        if not relaxed and self.integer.any():
            kinds = highspy.HighsVarType
            lp.integrality_ = [kinds.kInteger if flag else kinds.kContinuous for flag in self.integer]
        return lp

    def dual_bound(self, y: Floats, low: Floats, high: Floats, *, cost: bool = True) -> float:
        """A lower bound in real arithmetic on the objective between `low` and `high`, from multipliers of the rows.

        Without cost: above 0 only if no point satisfies the constraints.
        """
        y = np.where(np.isfinite(np.where(y > 0, self.row_low, self.row_high)), y, 0.0)
        sides = np.where(y > 0, self.row_low, np.where(y < 0, self.row_high, 0.0))
        reduced = (self.cost if cost else 0.0) - y @ self.matrix
        bound = float(y @ sides) + float(np.minimum(reduced * low, reduced * high).sum())
        sizes = (np.abs(self.cost) if cost else 0.0) + np.abs(y) @ np.abs(self.matrix)
        scale = float(np.abs(y) @ np.abs(sides)) + float((sizes * np.maximum(np.abs(low), np.abs(high))).sum())
        return bound - 4 * (sum(self.matrix.shape) + 8) * 2.0**-53 * scale


def _power(values: Floats) -> Floats:
    """The least power of two above each value; 1 for 0."""
    return np.where(values > 0, np.ldexp(1.0, np.frexp(values)[1]), 1.0)


def advise(program: Program, *, enough: float, target: float, time_limit: float) -> Advice:
    """Run HiGHS until its bound exceeds `enough`, its objective falls below `target`, or time is up."""
    import highspy

    scaled = _Scaled(program)
    solver = _solver(highspy, time_limit)
    solver.setOptionValue("objective_target", (target - program.const) / scaled.unit)
    if solver.passModel(scaled.model(highspy, relaxed=False)) != highspy.HighsStatus.kOk:
        return Advice(-np.inf, None)
    if program.binaries:

        def stop(event: Any) -> None:
            if event.data_out.mip_dual_bound * scaled.unit + program.const > enough:
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
        point = np.array(solver.getSolution().col_value) * scaled.columns
    return Advice(bound * scaled.unit + program.const if np.isfinite(bound) else -np.inf, point)


def _solver(highspy: Any, time_limit: float) -> Any:
    solver = highspy.Highs()
    options = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "time_limit": max(time_limit, 0.0),
        "primal_feasibility_tolerance": FEASIBILITY,
        "mip_feasibility_tolerance": INTEGRALITY,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 1e-9,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    return solver


def verified_bound(program: Program, *, above: float, deadline: float) -> float | None:
    """A lower bound on the objective above `above`, proved in real arithmetic; None if none was found in time."""
    import highspy

    scaled = _Scaled(program)
    solver = _solver(highspy, deadline - time.monotonic())
    solver.setOptionValue("presolve", "off")
    if solver.passModel(scaled.model(highspy, relaxed=True)) != highspy.HighsStatus.kOk:
        return None
    least, nodes, waiting = np.inf, 0, [(scaled.low, scaled.high)]
    goal = (above - program.const) / scaled.unit
    every = np.arange(len(scaled.low), dtype=np.int32)
    while waiting:
        low, high = waiting.pop()
        nodes += 1
        if nodes > NODES or time.monotonic() > deadline:
            return None
        solver.changeColsBounds(len(every), every, low, high)
        solver.run()
        bound, values = _node(solver, scaled, low, high, highspy)
        if bound > goal:
            least = min(least, bound)
            continue
        free = np.flatnonzero(scaled.integer & (low < high))
        if not len(free):
            return None
        # the binary that is farthest from decided; any will do if the solver has no point
        column = (
            int(free[np.argmax(np.minimum(values[free], 1 - values[free]))]) if values is not None else int(free[0])
        )
        up, down = low.copy(), high.copy()
        middle = np.floor(0.5 * (low[column] + high[column]))
        down[column], up[column] = middle, middle + 1
        waiting += [(low, down), (up, high)]
    return least * scaled.unit + program.const


def _node(solver: Any, scaled: _Scaled, low: Floats, high: Floats, highspy: Any) -> tuple[float, Floats | None]:
    """What the multipliers at a node prove (infinite if no point is left), and the solver's point."""
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        _, known, ray = solver.getDualRay()
        if known:
            for sign in (1.0, -1.0):
                if scaled.dual_bound(sign * np.array(ray), low, high, cost=False) > 0:
                    return np.inf, None
    if status != highspy.HighsModelStatus.kOptimal:
        return -np.inf, None
    solution = solver.getSolution()
    return scaled.dual_bound(np.array(solution.row_dual), low, high), np.array(solution.col_value)


def tolerance(relaxation: Relaxation, units: list[Units], objective: Objective) -> float:
    """More than the solver's tolerances, added up over all constraints, can change in the objective of one row."""
    sizes = [np.maximum(-unit.low, unit.high)[0] for unit in units]
    weight = np.abs(objective.lin[0]) + objective.rho[0]
    scale = float((weight * sizes[-1]).sum() + abs(objective.const[0]))
    total = FEASIBILITY * scale
    for i in range(len(units) - 1, -1, -1):
        unit, layer = units[i], relaxation.layers[i]
        reach = np.maximum(np.abs(unit.low_l), np.abs(unit.high_u))[0] + sizes[i]
        if i:  # a row is as large as its largest term
            terms = (np.abs(layer.middle) + layer.reach) * sizes[i - 1][:, None]
            reach = np.maximum(reach, terms.max(axis=0))
        total += 8 * (FEASIBILITY + INTEGRALITY) * float((weight * reach).sum())
        if i:
            weight = (np.abs(layer.middle) + layer.reach) @ weight
    return max(total, 1e-6 * scale)
