"""Mixed-integer programs as arrays, and HiGHS: LP relaxations, dual bounds, branch and bound, the mixed-integer solver.

Whatever it says is advice: a point counts if who asked accepts it, a bound if it follows from dual variables here.
"""

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Bools, Floats, Indices
from apas.models.forward import shape_of

#: Silent, reproducible, and no gap but one of the size of rounding, as a tree that stops early proves nothing.
OPTIONS = {"output_flag": False, "threads": 1, "random_seed": 0, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-9}
#: How far the solver may violate a row and integrality: its own defaults, set so that they stay what they are.
FEASIBILITY, INTEGRALITY = 1e-7, 1e-6
#: The least tolerances it takes, for points that are to be evaluated outside: a violation is multiplied by big Ms.
ACCURATE = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
#: Costs that differ by less are the same, and columns of nodes that are nearer to a whole number are whole.
GAP, WHOLE = 1e-9, 1e-9
#: Scaled entries up to this size are left out of what is proved, as the solver would do; the proof counts them.
SMALL = 1e-9
NODES = 20_000  # nodes of the tree that proves a bound


def power_above(values: ArrayLike) -> Floats:
    """The least power of two above each value; 1 for 0."""
    return np.where(np.asarray(values) > 0, np.ldexp(1.0, np.frexp(values)[1]), 1.0)


@dataclass(frozen=True)
class Program:
    """Minimise ``cost @ v + const`` with ``row_low <= matrix @ v <= row_high``, ``low <= v <= high``, some v whole."""

    cost: Floats
    low: Floats
    high: Floats
    integer: Bools
    matrix: Floats
    row_low: Floats
    row_high: Floats
    const: float = 0.0

    @property
    def binaries(self) -> int:
        """How many columns must be whole."""
        return int(self.integer.sum())

    def scaled_rows(self) -> Self:
        """The same with rows whose largest entry lies in [1/2, 1): the tolerances of a solver are absolute."""
        # dividing by a power of two changes exponents only, so that the rows say exactly what they said before
        rows = power_above(np.abs(self.matrix).max(axis=1, initial=0.0))
        matrix = self.matrix / rows[:, None]
        return replace(self, matrix=matrix, row_low=self.row_low / rows, row_high=self.row_high / rows)

    def scale(self) -> tuple[Self, Floats, float]:
        """The same with columns, rows and costs within [-1, 1]; factors of the columns, and the unit of the cost."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        # what is always 0 has no entries, which might be large; whole numbers must stay what they are
        factors = np.where(self.integer, 1.0, np.where(size > 0, power_above(size), 0.0))
        divisor = np.where(factors > 0, factors, 1.0)
        cost = self.cost * factors
        unit = float(power_above(np.abs(cost).max(initial=0.0)))
        low, high = self.low / divisor, self.high / divisor
        scaled = replace(self, cost=cost / unit, low=low, high=high, matrix=self.matrix * factors)
        return scaled.scaled_rows(), factors, unit


Form = tuple[Indices, Floats, float]  # columns, values and const of ``values . v[columns] + const``


class ProgramBuilder:
    """Rows and columns while a program is written."""

    def __init__(self) -> None:
        self.low: list[float] = []
        self.high: list[float] = []
        self.integer: list[bool] = []
        #: Per row its columns (None: all, in order), its entries, and its ends.
        self.rows: list[tuple[Indices | None, Floats, float, float]] = []

    def columns(self, low: Floats, high: Floats, *, integer: Bools | bool = False) -> Indices:
        """Add columns; returns their numbers."""
        start = len(self.low)
        self.low += low.tolist()
        self.high += high.tolist()
        self.integer += np.broadcast_to(integer, len(low)).tolist()
        return np.arange(start, len(self.low))

    def column(self, low: float, high: float, *, integer: bool = False) -> int:
        """Add one column; returns its number."""
        return int(self.columns(np.array([low]), np.array([high]), integer=integer)[0])

    def binary(self) -> int:
        """Add a column that is 0 or 1; returns its number."""
        return self.column(0.0, 1.0, integer=True)

    def row(self, columns: Indices | None, values: Floats, low: float, high: float) -> None:
        """Add a row with entries in some columns, or (None) one in each column that there will be."""
        self.rows.append((columns, values, low, high))

    def sparse(self, entries: Mapping[int, float], low: float, high: float) -> None:
        """Add a row with few entries."""
        self.row(np.array(list(entries), dtype=np.intp), np.array(list(entries.values())), low, high)

    def bound_activation(
        self, h: int, sign: float, form: Form, name: str, low: float, high: float, *, scale: float = 1.0
    ) -> int | None:
        """Activation ``scale * v[h]`` >= act(form) for sign 1, <= for -1; the binary where a kink bends away, if any.

        Else two rows do. The form lies between `low` and `high`.
        """

        def row(slope: float, const: float = 0.0, binary: int | None = None, big: float = 0.0) -> None:
            """Bound it by ``slope * form + const + big * v[binary]``."""
            columns, values = np.concatenate([[h], form[0]]), np.concatenate([[scale], -slope * form[1]])
            if binary is not None:
                columns, values = np.append(columns, binary), np.append(values, -big)
            side = slope * form[2] + const
            self.row(columns, values, *((side, np.inf) if sign > 0 else (-np.inf, side)))

        (kind, numbers), binary = shape_of(name), None
        slope = 1.0 if name == "identity" else numbers[0]
        if kind == "clip":  # whose values beyond an end are that end
            near, far = (high, low) if sign > 0 else (low, high)
            end = numbers[1] if sign > 0 else numbers[0]
            if sign * near <= sign * end:
                row(1.0)
            elif sign * far < sign * end:
                binary = self.binary()  # 1: bounded by the form, 0: by the end
                row(1.0, end - near, binary, near - end)
                row(0.0, end, binary, far - end)
            else:
                row(0.0, end)
        elif sign > 0:
            if high > 0 or name == "identity":
                row(1.0)
            if low < 0 and 0 < slope < 1:
                row(slope)
        elif name == "identity" or low >= 0:
            row(1.0)
        elif high <= 0:
            row(slope)
        else:
            binary = self.binary()
            row(1.0, -(1 - slope) * low, binary, (1 - slope) * low)
            row(slope, 0.0, binary, (1 - slope) * high)
        return binary

    def finish(self, cost: Floats, const: float = 0.0) -> Program:
        """What was written."""
        matrix = np.zeros((len(self.rows), len(self.low)))
        for into, (columns, values, _, _) in zip(matrix, self.rows, strict=True):
            if columns is None:
                into[:] = values
            else:
                np.add.at(into, columns, values)
        ends = np.array([row[2:] for row in self.rows], dtype=float).reshape(-1, 2)
        low, high = np.array(self.low, dtype=float), np.array(self.high, dtype=float)
        return Program(cost, low, high, np.array(self.integer, dtype=bool), matrix, ends[:, 0], ends[:, 1], const)


#: Makes a proper point of the values of all columns and gives it with its cost; None if it will not do.
Accept = Callable[[Floats], tuple[Floats, float] | None]


def new_solver(**options: Any) -> tuple[Any, Any]:
    """HiGHS and a solver of it with options besides the common ones."""
    import highspy

    solver = highspy.Highs()
    for name, value in {**OPTIONS, "mip_feasibility_tolerance": INTEGRALITY, **options}.items():
        solver.setOptionValue(name, value)
    return highspy, solver


def solver_model(highspy: Any, program: Program, *, relaxed: bool, above: float = 0.0) -> Any:
    """A program, or its LP relaxation, as HiGHS takes it; entries whose size is not `above` are left out."""
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = program.matrix.shape
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.low, program.high
    lp.row_lower_, lp.row_upper_ = program.row_low, program.row_high
    rows, columns = np.nonzero(np.abs(program.matrix) > above)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(rows, np.arange(len(program.matrix) + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = columns.astype(np.int32), program.matrix[rows, columns]
    if not relaxed and program.integer.any():
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if flag else kinds.kContinuous for flag in program.integer]
    return lp


def dual_bound(program: Program, y: Floats, cost: Floats, low: Floats, high: Floats, *, counted: bool = True) -> float:
    """A lower bound in real arithmetic on ``cost @ v`` between `low` and `high`, from dual variables of the rows."""
    # With a cost of 0 it is above 0 only if no point satisfies the rows. Rounding is `counted` operation by operation,
    # or allowed for by 1e-12 of all magnitudes, which is enough for up to two thousand rows and columns.
    ends = np.where(y > 0, program.row_low, program.row_high)
    y = np.where(np.isfinite(ends), y, 0.0)  # a side that does not exist proves nothing
    sides = np.where(y == 0, 0.0, ends)
    reduced, sizes = cost - y @ program.matrix, np.abs(cost) + np.abs(y) @ np.abs(program.matrix)
    # the two orders of summation differ in the last bit: one is in saved certificates, the other in candidates
    if counted:
        bound = float(y @ sides) + float(np.minimum(reduced * low, reduced * high).sum())
        scale = float(np.abs(y) @ np.abs(sides)) + float((sizes * np.maximum(np.abs(low), np.abs(high))).sum())
        # each sum has at most as many terms as there are rows and columns, each off by 2**-53 of what was added up
        return bound - 4 * (sum(program.matrix.shape) + 8) * 2.0**-53 * scale
    at = np.where(reduced > 0, low, high)
    return float(y @ sides + reduced @ at - 1e-12 * (np.abs(y) @ np.abs(sides) + sizes @ np.abs(at)))


class LpRelaxation:
    """A solver that takes the LP relaxation of one program after the other."""

    def __init__(self, **options: Any) -> None:
        # whoever gives options sets the tolerances too: bounds from dual variables hold whatever these are;
        # without presolve the next node starts from the basis of the last one
        self.highspy, self.solver = new_solver(**(options or ACCURATE), presolve="off")
        self.statuses = self.highspy.HighsModelStatus

    def load(self, program: Program, *, above: float = 0.0) -> bool:
        """Take on another program; whether the solver does."""
        self.program, self.every = program, np.arange(len(program.low), dtype=np.int32)
        status = self.solver.passModel(solver_model(self.highspy, program, relaxed=True, above=above))
        return bool(status == self.highspy.HighsStatus.kOk)

    def solve(self, low: Floats, high: Floats) -> Any:
        """Minimise the cost between some ends; the status."""
        self.solver.changeColsBounds(len(self.every), self.every, low, high)
        self.solver.run()
        return self.solver.getModelStatus()

    @property
    def values(self) -> Floats:
        """The point found last."""
        return np.array(self.solver.getSolution().col_value)

    @property
    def duals(self) -> Floats:
        """Its dual variables, one per row."""
        return np.array(self.solver.getSolution().row_dual)

    def least(self, form: Floats) -> float:
        """A dual bound on ``form @ v``, infinite if the solver says that there is no v."""
        program = self.program
        self.solver.changeColsCost(len(self.every), self.every, form)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == self.statuses.kOptimal:
            return dual_bound(program, self.duals, form, program.low, program.high, counted=False)
        return np.inf if status == self.statuses.kInfeasible else -np.inf


class _OpenNodes:
    """Open nodes of branch and bound, by the ends of their columns: the least bound first or (`deep`) the newest."""

    def __init__(
        self, program: Program, *, nodes: int, deadline: float, enough: float = np.inf, deep: bool = False
    ) -> None:
        self.left, self.deadline, self.enough, self.deep, self.order = nodes, deadline, enough, deep, 0
        self.waiting = [(-np.inf, 0, program.low, program.high)]
        #: What was proved of the node that comes next, and whether no limit has ended it.
        self.bound, self.complete = -np.inf, True

    def __iter__(self) -> Iterator[tuple[Floats, Floats]]:
        """Node after node, while the bound of the next one is not `enough`, which may be changed on the way."""
        while self.waiting and self.waiting[0][0] < self.enough:
            self.bound = self.waiting[0][0]
            self.complete = self.left > 0 and time.monotonic() <= self.deadline
            if not self.complete:
                return
            self.left -= 1
            yield heapq.heappop(self.waiting)[2:]

    def split(self, low: Floats, high: Floats, bound: float, column: int, value: float) -> None:
        """Cut a node in two between a whole number and the next one."""
        down, up = high.copy(), low.copy()
        down[column], up[column] = value, value + 1
        for ends in ((low, down), (up, high)):
            self.order += 1
            heapq.heappush(self.waiting, (-self.order if self.deep else bound, self.order, *ends))


@dataclass(frozen=True)
class Incumbent:
    """The best point known, and whether it is known that there is no better one."""

    values: Floats | None = None
    cost: float = np.inf
    complete: bool = False


class Violations(Protocol):
    """What columns stand for beyond being whole."""

    column: Indices

    def gaps(self, v: Floats) -> Floats:
        """Per such column how far what it stands for is violated."""


def least_cost(
    program: Program, accept: Accept, start: Incumbent, violations: Violations | None, lp: LpRelaxation, **how: Any
) -> Incumbent:
    """Find the cheapest accepted point of a program by best-first branch and bound; `how` limits the nodes."""
    lp.load(program)
    best, sure, open_nodes = start, True, _OpenNodes(program, enough=start.cost - GAP, **how)
    for low, high in open_nodes:
        status = lp.solve(low, high)
        if status != lp.statuses.kOptimal:
            sure = sure and status == lp.statuses.kInfeasible
            continue
        bound, values = lp.solver.getObjectiveValue(), lp.values
        if bound > open_nodes.enough:
            continue
        point = accept(values)
        if point is not None and point[1] < best.cost:
            best, open_nodes.enough = Incumbent(*point), point[1] - GAP
        if point is not None and point[1] <= bound + GAP:
            continue  # the best of its case
        column = _split_column(program, violations, values, low, high)
        if column is not None:  # a unit may be off where its column is whole
            value = np.clip(np.floor(values[column]), low[column], high[column] - 1)
            open_nodes.split(low, high, bound, column, value)
    return replace(best, complete=open_nodes.complete and sure)


def _split_column(program: Program, violations: Violations | None, v: Floats, low: Floats, high: Floats) -> int | None:
    """The column to branch on: that of the unit that is farthest off, or else the one farthest from whole."""
    free = program.integer & (low < high)
    if violations is not None:
        gaps = np.where(free[violations.column], violations.gaps(v), 0.0)
        unit = int(gaps.argmax())
        if gaps[unit] > WHOLE:
            return int(violations.column[unit])
    away = np.where(free, np.abs(v - np.rint(v)), 0.0)
    column = int(away.argmax())
    return column if away[column] > WHOLE else None


def verified_bound(program: Program, *, above: float, deadline: float) -> float | None:
    """A lower bound on the objective above `above`, proved in real arithmetic; None if none was found in time."""
    scaled, _, unit = program.scale()
    left = max(deadline - time.monotonic(), 0.0)
    relaxation = LpRelaxation(time_limit=left, primal_feasibility_tolerance=FEASIBILITY)
    if not relaxation.load(scaled, above=SMALL):
        return None
    least, goal = np.inf, (above - program.const) / unit
    open_nodes = _OpenNodes(scaled, nodes=NODES, deadline=deadline, deep=True)
    for low, high in open_nodes:
        bound, values = _prove_node(relaxation, low, high)
        if bound > goal:
            least = min(least, bound)
            continue
        free = np.flatnonzero(scaled.integer & (low < high))
        if not len(free):
            return None
        # the binary that is farthest from decided; any will do if the solver has no point. A count whose
        # value exceeds 1 comes after all binaries (its number here is below 0), and its range is halved
        nearest = 0 if values is None else int(np.argmax(np.minimum(values[free], 1 - values[free])))
        column = int(free[nearest])
        open_nodes.split(low, high, bound, column, np.floor(0.5 * (low[column] + high[column])))
    return least * unit + program.const if open_nodes.complete else None


def proved_minimum(program: Program, violations: Violations | None, enough: float, nodes: int, until: float) -> float:
    """A lower bound on the objective, proved in real arithmetic: at most `enough`, as high as the limits allow."""
    scaled, factors, unit = program.scale()
    relaxation = LpRelaxation(**ACCURATE, time_limit=max(until - time.monotonic(), 0.0))
    relaxation.load(scaled, above=SMALL)
    open_nodes = _OpenNodes(scaled, nodes=nodes, deadline=until, enough=(enough - program.const) / unit)
    for low, high in open_nodes:
        bound, values = _prove_node(relaxation, low, high)
        bound = max(bound, open_nodes.bound)  # what was proved of its parent
        v = 0.5 * (low + high) if values is None else values
        column = None if bound >= open_nodes.enough else _split_column(scaled, violations, v * factors, low, high)
        if column is None:  # enough, or the optimum of the node is a point of the program: no further node is better
            open_nodes.enough = min(open_nodes.enough, bound)
            continue
        open_nodes.split(low, high, bound, column, np.clip(np.floor(v[column]), low[column], high[column] - 1))
    # of what is still open nothing is below the bound of the node that would have come next
    least = open_nodes.enough if open_nodes.complete else min(open_nodes.enough, open_nodes.bound)
    return least * unit + program.const


def _prove_node(relaxation: LpRelaxation, low: Floats, high: Floats) -> tuple[float, Floats | None]:
    """What the dual variables at a node prove (infinite if no point is left), and the solver's point."""
    program, status = relaxation.program, relaxation.solve(low, high)
    if status == relaxation.statuses.kInfeasible:
        _, known, ray = relaxation.solver.getDualRay()
        nothing = np.zeros_like(program.cost)
        # the sign of a ray is a convention of the solver, which need not be known: only one of them can prove something
        for sign in (1.0, -1.0) if known else ():
            if dual_bound(program, sign * np.array(ray), nothing, low, high) > 0:
                return np.inf, None
    if status != relaxation.statuses.kOptimal:
        return -np.inf, None
    return dual_bound(program, relaxation.duals, program.cost, low, high), relaxation.values


class Advice(NamedTuple):
    """What the mixed-integer solver says: a lower bound on the objective, and a point."""

    bound: float
    point: Floats | None


def advise(program: Program, *, enough: float, target: float, time_limit: float) -> Advice:
    """Run HiGHS until its bound exceeds `enough`, its objective falls below `target`, or time is up."""
    scaled, factors, unit = program.scale()
    highspy, solver = new_solver(
        time_limit=max(time_limit, 0.0),
        primal_feasibility_tolerance=FEASIBILITY,
        objective_target=(target - program.const) / unit,
    )
    if solver.passModel(solver_model(highspy, scaled, relaxed=False, above=SMALL)) != highspy.HighsStatus.kOk:
        return Advice(-np.inf, None)
    if program.binaries:

        def stop(event: Any) -> None:
            if event.data_out.mip_dual_bound * unit + program.const > enough:
                event.interrupt()

        solver.cbMipInterrupt.subscribe(stop)
    solver.run()
    info = solver.getInfo()
    if program.binaries:
        bound = float(info.mip_dual_bound)
    else:
        optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        bound = float(info.objective_function_value) if optimal else -np.inf
    bound = bound * unit + program.const if np.isfinite(bound) else -np.inf
    point = _point(highspy, solver)
    return Advice(bound, None if point is None else point * factors)


def solve_mixed(program: Program, accept: Accept, start: Incumbent, deadline: float) -> Incumbent:
    """What the mixed-integer solver of HiGHS finds in the time that is left, from an incumbent."""
    left = float(np.clip(deadline - time.monotonic(), 0.0, 1e9))
    highspy, solver = new_solver(**ACCURATE, time_limit=left)
    solver.passModel(solver_model(highspy, program, relaxed=False))
    if start.values is not None:
        columns = np.arange(len(start.values), dtype=np.int32)
        solver.setSolution(len(columns), columns, start.values)
    solver.run()
    status, statuses = solver.getModelStatus(), highspy.HighsModelStatus
    best = replace(start, complete=status in (statuses.kOptimal, statuses.kInfeasible))
    values = _point(highspy, solver)
    point = None if values is None else accept(values)
    if point is not None and point[1] < best.cost:
        return replace(best, values=point[0], cost=point[1])
    return best


def _point(highspy: Any, solver: Any) -> Floats | None:
    """The point of a solver that has one."""
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.array(solver.getSolution().col_value)
