"""Worst-case verdicts for many rows at one delta, from the cheapest step to the dearest.

Proved only by bounds that hold in real arithmetic, broken only if whoever asks accepts the shift. A finding does not
depend on the other rows.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from apas._typing import Floats, Indices
from apas.models.feedforward import FeedForward
from apas.models.forward import units_of
from apas.optimize.highs import FEASIBILITY, INTEGRALITY, Form, Program, ProgramBuilder, advise, verified_bound
from apas.worst_case.attack import RivalPushes, UnitPushes, pushed_parameters
from apas.worst_case.branch_and_bound import PhaseSearch
from apas.worst_case.intervals import Boxes, is_exact, rivals
from apas.worst_case.linear import Objective, Relaxation, Relaxed, Units, ascend, carried_back


@dataclass(frozen=True)
class WorstCaseProgram(Program):
    """The least margin of a row; `activations` holds the columns of each hidden layer's activations."""

    activations: tuple[Indices, ...] = ()


class WorstCaseBuilder:
    """Writes the program of one row, layer by layer."""

    def __init__(self, relaxation: Relaxation, units: list[Units]) -> None:
        self.relaxation, self.units, self.program = relaxation, units, ProgramBuilder()

    def build(self, objective: Objective) -> WorstCaseProgram:
        """The least value of `objective` for the row, over all shifts."""
        names, program = self.relaxation.net.activations, self.program
        last, activations = len(names) - 1, []
        for i, name in enumerate(names):
            layer, unit = self.relaxation.layers[i], self.units[i]
            columns = program.columns(unit.low[0], unit.high[0])
            for k, column in enumerate(columns.tolist() if i else []):
                small = large = i < last
                if i == last:  # positive it enters the margin with lin - rho, negative with lin + rho
                    lin, rho = float(objective.lin[0, k]), float(objective.rho[0, k])
                    enters = [lin - rho] * bool(unit.high[0, k] > 0) + [lin + rho] * bool(unit.low[0, k] < 0)
                    small, large = any(c > 0 for c in enters), any(c < 0 for c in enters)
                own = next((inner for inner, part in units_of(name) if part.start <= k < part.stop), name)
                # rows between the unit and its l, where the margin wants it small, and its u, where it wants it large
                least, most = (unit.low_l[0, k], unit.high_l[0, k]), (unit.low_u[0, k], unit.high_u[0, k])
                for sign, ends in [(1.0, least)] * small + [(-1.0, most)] * large:
                    const = float(layer.bias[k] - sign * layer.bias_reach[k])
                    form = self._combine(layer.middle[:, k], -sign * layer.reach[:, k], const)
                    program.bound_activation(column, sign, form, own, float(ends[0]), float(ends[1]))
            activations.append(columns)
            self._magnitudes(i, columns)
        cost = np.zeros(len(program.low))
        goal = self._combine(objective.lin[0], -objective.rho[0], float(objective.const[0]))
        np.add.at(cost, *goal[:2])
        return WorstCaseProgram(**vars(program.finish(cost, goal[2])), activations=tuple(activations))

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

    def _combine(self, lin: Floats, rho: Floats, const: float) -> Form:
        """``lin . a + rho . abs(a) + const`` in terms of the current layer's columns."""
        rho = np.broadcast_to(rho, lin.shape)
        columns = np.concatenate([self.current, self.sizes])
        return columns, np.concatenate([lin + rho * self.sign, rho[self.sign == 0]]), const


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
        # at most 4 rows of a unit, 2 of its magnitude and the ends of both columns, each off by both tolerances; it
        # says when the solver may stop, and no proof rests on it
        total += 8 * (FEASIBILITY + INTEGRALITY) * float((weight * reach).sum())
        if i:
            weight = (np.abs(layer.middle) + layer.reach) @ weight
    # relative to the margin it is never below what a solver can tell apart from 0
    return max(total, 1e-6 * scale)


STEPS = 6  # ascent steps of the linear bounds of rows that are still open


class RivalBounds:
    """A block of rows, each against one of its rivals: interval bound, linear bound, quick attack."""

    def __init__(self, pushes: RivalPushes, rival: Indices, relaxed: Relaxed) -> None:
        units, self.current, allowance = relaxed
        self.pushes, self.rival, self.units, self.allowance = pushes, rival, units, allowance
        self.layers, self.objective = pushes.layers, pushes.objective
        goal = self.objective
        ends = (goal.lin * end - goal.rho * np.abs(end) for end in (units[-1].low, units[-1].high))
        self.interval = np.minimum(*ends).sum(axis=1) + goal.const - allowance
        self.bound = self.interval
        self.least, self.shifts = np.full(len(allowance), np.inf), [np.empty(0)]

    def linear(self) -> Floats:
        """Linear bounds, with the slopes improved where they do not suffice."""
        top = len(self.units) - 1
        carried = carried_back(self.layers, self.current, self.objective, top)
        best = carried.bound
        if not (best > self.allowance).all():
            starts = [np.where(c >= 0, -1.0, 1.0) for c in carried.coefficients]
            self.least, self.shifts = self.pushes.improve(starts, -self.allowance)
        for _ in range(STEPS):
            done = (best > self.allowance) | (self.least <= 0)
            if done.all():
                break
            # a row that is done stays as it is, whatever the others need
            target = np.where(done, -np.inf, np.maximum(0.1 * np.abs(carried.bound), 0.5 * self.least))
            self.current, _ = ascend(self.layers, self.current, carried, target)
            carried = carried_back(self.layers, self.current, self.objective, top)
            best = np.maximum(best, carried.bound)
        self.bound = np.maximum(self.interval, best - self.allowance)
        return np.asarray(self.bound)

    def breaking_pushes(self, k: int) -> list[Floats] | None:
        """Pushes of a row's units that seem to break it, if some are known."""
        return [s[k] for s in self.shifts] if self.least[k] <= 0 else None


ALL_STEPS = ("interval", "linear", "attack", "splitting", "solver")
FIRST_CASES = 2000  # cases of branch and bound before the solver has its first turn
#: How much time the solver gets, of what has passed; and up to how many hidden units, since its matrix is dense.
SOLVER_SHARE, SOLVER_UNITS = 0.25, 800
BLOCK = 64  # rows whose linear bounds are computed together


@dataclass
class Finding:
    """What is known about one row."""

    proved: bool = False
    broken: bool = False
    step: str = "none"
    bound: float = -np.inf
    nodes: int = 0
    exact: bool = False

    @property
    def open(self) -> bool:
        """Whether nothing was decided yet."""
        return not (self.proved or self.broken)

    def prove(self, step: str, bound: float) -> None:
        """Note that every margin is at least `bound`, which is above 0."""
        self.proved, self.step, self.bound = True, step, bound


@dataclass
class WorstCases:
    """Decides for each row whether every shift keeps its margin above 0."""

    net: FeedForward
    X: Floats
    wanted: Indices
    radii: Floats
    delta: float
    accept: Callable[[int, Floats], bool]
    steps: Sequence[str] = ALL_STEPS
    time_limit: float = np.inf
    done: Callable[[int], None] = lambda rows: None

    def __post_init__(self) -> None:
        self.exact, self.rivals = is_exact(self.net), rivals(self.net, self.wanted)
        self.found = [Finding(exact=self.exact) for _ in self.X]

    def run(self) -> list[Finding]:
        """What is found about each row."""
        if self.exact or set(self.steps) <= {"interval", "linear"}:  # whose rounding allowance is the smallest
            self._interval()
        rows = self._open_rows()
        self.done(len(self.X) - len(rows))
        if not self.exact and set(self.steps) != {"interval"}:
            self.relaxation = Relaxation(self.net, self.radii, self.delta)
            for start in range(0, len(rows), BLOCK):
                self._block(rows[start : start + BLOCK])
                self.done(len(rows[start : start + BLOCK]))
        return self.found

    def _open_rows(self) -> Indices:
        return np.array([i for i, f in enumerate(self.found) if f.open], dtype=np.intp)

    def _interval(self) -> None:
        boxes, deltas = Boxes(self.net, self.X, self.wanted, self.radii), np.full(len(self.X), self.delta)
        bound = boxes.bound(deltas) - boxes.error(deltas)
        self._note(np.arange(len(bound)), bound, "interval")
        if self.exact:
            everyone = self._open_rows()
            for rows in (everyone[start : start + BLOCK] for start in range(0, len(everyone), BLOCK)):
                # the shifts at which exact bounds are attained: corners, scaled by the radii, or known in closed form
                corners = boxes.take(rows).worst(deltas[rows])
                pushed = UnitPushes(self.net, self.X[rows], self.wanted[rows], self.radii, deltas[rows])
                for i, row in enumerate(rows.tolist()):
                    unit = pushed.direction(i, np.empty(0)) if corners is None else np.sign(corners[i])
                    self._offer(row, unit, "interval")

    def _offer(self, row: int, direction: Floats, step: str) -> bool:
        """Break a row if the shift in this direction of the unit box is accepted as a witness."""
        if self.accept(row, direction):
            self.found[row].broken, self.found[row].step = True, step
        return self.found[row].broken

    def _block(self, rows: Indices) -> None:
        """Linear bounds for some rows together; then each that is left by itself, if there is more to try."""
        only_bounds = set(self.steps) <= {"interval", "linear"}
        if only_bounds or len(rows) > 1:
            self._bound_rivals(rows)
        if only_bounds:
            return
        for row in [row for row in rows.tolist() if self.found[row].open]:
            # by itself from the start, so that no last bit depends on the others
            deadline = time.monotonic() + self.time_limit
            against = [self._pushes(np.array([row]), rival) for rival in self.rivals[[row]].T]
            if any(self._turn_units(row, k, some) for k, some in enumerate(against)):
                continue
            pairs = self._bound_rivals(np.array([row]), against)
            for pair in pairs:
                pushes = pair.breaking_pushes(0) if self.found[row].open else None
                if pushes is not None:
                    self._offer(row, self._direction(row, pushes, pair.rival[0]), "attack")
            if self.found[row].open:
                self._split_row(row, pairs, deadline)

    def _pushes(self, rows: Indices, rival: Indices) -> RivalPushes:
        return RivalPushes(self.relaxation, self.X[rows], self.relaxation.objective(self.wanted[rows], rival))

    def _turn_units(self, row: int, k: int, pushes: RivalPushes) -> bool:
        """Push every unit against the gradient on the network itself: breaks most rows that break, without bounds."""
        # once: where that does not break it, further turns from here seldom do
        least, turned = pushes.turn()
        direction = self._direction(row, [t[0] for t in turned], self.rivals[row, k]) if least[0] < 0 else None
        if direction is not None and self._offer(row, direction, "attack"):
            self.found[row].bound = -np.inf  # also of a row that was bounded together with others
        return self.found[row].broken

    def _bound_rivals(self, rows: Indices, pushes: list[RivalPushes] | None = None) -> list[RivalBounds]:
        relaxed, against = self.relaxation.relax(self.X[rows]), self.rivals[rows].T
        pushes = pushes or [self._pushes(rows, rival) for rival in against]
        pairs = [RivalBounds(some, rival, relaxed) for some, rival in zip(pushes, against, strict=True)]
        least = reduce(np.minimum, [pair.interval for pair in pairs])
        self._note(rows, least, "interval" if len(relaxed[0]) == 2 else "linear")
        if any(self.found[row].open for row in rows.tolist()):
            linear = reduce(np.minimum, [pair.linear() for pair in pairs])
            self._note(rows, np.maximum(linear, least), "linear")
        return pairs

    def _note(self, rows: Indices, bound: Floats, step: str) -> None:
        for row, value in zip(rows.tolist(), bound.tolist(), strict=True):
            finding = self.found[row]
            if finding.open and value > 0:
                finding.prove(step, value)
            elif finding.open:
                finding.bound = value

    def _direction(self, row: int, pushes: list[Floats], rival: int) -> Floats:
        return pushed_parameters(self.relaxation, self.X[row], pushes, self.wanted[row], rival)

    def _split_row(self, row: int, pairs: list[RivalBounds], deadline: float) -> None:
        """Every rival by branch and bound in turns with the solver; the row is proved if all are."""
        # where numbers overflow, infinity less infinity may stand for a bound: none is known then
        finding, reached = self.found[row], [float(np.fmax(pair.bound[0], -np.inf)) for pair in pairs]
        steps = set()
        for k in np.argsort(reached).tolist():
            if not reached[k] > 0:
                bound, step = self._decide_pair(row, pairs[k], deadline)
                reached[k] = max(reached[k], bound)
                steps.add(step)
                if not finding.open or not reached[k] > 0:
                    finding.bound = max(finding.bound, min(reached)) if finding.open else finding.bound
                    return
        finding.prove("solver" if "solver" in steps else "splitting", min(reached))

    def _decide_pair(self, row: int, pair: RivalBounds, deadline: float) -> tuple[float, str]:
        """A lower bound on the margin against one rival, and what proved it; or the row is broken on the way."""
        # branch and bound mostly ends first: the solver gets a share of the time that it has had, in turns
        allowance, finding, began = float(pair.allowance[0]), self.found[row], time.monotonic()
        search = PhaseSearch(self.relaxation, pair.units, pair.current, pair.pushes, allowance)
        program, before = None, 0
        solver = "solver" in self.steps and sum(len(b) for b in self.net.biases[:-1]) <= SOLVER_UNITS
        cases_ = FIRST_CASES if solver else np.inf
        while True:
            result = search.run(deadline, cases_)
            finding.nodes, before = finding.nodes + result.nodes - before, result.nodes
            if result.proved:
                return result.bound, "splitting"
            pushes = result.pushes if result.least <= 0 else None
            if pushes is not None and self._offer(row, self._direction(row, pushes, pair.rival[0]), "splitting"):
                break
            now = time.monotonic()
            if not solver or now >= deadline:
                break
            until = deadline if search.stuck else min(deadline, now + SOLVER_SHARE * (now - began))
            program = program or WorstCaseBuilder(self.relaxation, pair.units).build(pair.objective)
            bound = self._solver(row, pair, program, until, min(result.least, float(pair.least[0])))
            if bound is not None:
                return bound, "solver"
            if not finding.open or search.stuck:
                break
            cases_ = 4 * search.nodes
        return result.bound, "none"

    def _solver(
        self, row: int, pair: RivalBounds, program: WorstCaseProgram, deadline: float, known: float
    ) -> float | None:
        """A lower bound above 0 from the solver, or None once its point was tried; `known` is the margin of a shift."""
        margin = tolerance(self.relaxation, pair.units, pair.objective)
        left = max(deadline - time.monotonic(), 0.0)
        advice = advise(program, enough=margin, target=-margin, time_limit=left)
        allowance = float(pair.allowance[0])
        if allowance < advice.bound <= known + margin:  # above the margin of a shift that is known, it would be wrong
            bound = verified_bound(program, above=allowance, deadline=deadline)
            return None if bound is None else bound - allowance
        if advice.point is not None:
            start = pair.pushes.towards([advice.point[columns] for columns in program.activations])
            least, pushes = pair.pushes.improve(start)
            if pair.pushes.margins(start)[0][0] <= least[0]:
                pushes = start
            self._offer(row, self._direction(row, [p[0] for p in pushes], pair.rival[0]), "solver")
        return None
