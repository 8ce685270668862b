"""Branch and bound on the phases of units: exact worst-case answers without a solver.

A kink that bends down is the least of two pieces, so that fixing its *phase* needs no constraint; the sign that a phase
tells of its argument enters with a Lagrange multiplier. Slopes of kinks that bend up are optimised with these.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from apas._typing import Bools, Floats, Indices
from apas.worst_case import linear
from apas.worst_case.attack import RivalPushes
from apas.worst_case.linear import CarriedBound, LayerLines, Objective, Pencil, Relaxation, Units

_Phases = NDArray[np.int8]
_Arrays = list[Floats]
_Slopes = tuple[Floats, Floats, Floats]  # per layer the slopes down and up, and the multipliers
KINKED = ("relu", "leaky_relu")  # activations whose phases are the two sides of 0
#: Ascent steps per round: of cases that are split, where another step costs more than the cases it saves, and of those
#: in which nothing is left to split, whose bounds are as good as their slopes.
STEPS, STUCK_STEPS = 2, 8
PATIENCE = 6  # rounds without a split, in which only the slopes of a case are improved, before giving up
#: Cases that are bounded together: at most so many, with at most so many products (some hundredths of a second, so that
#: a deadline is kept), and few of them once those that wait hold so many bytes.
CHUNK, WORK, FEW, STORE = 512, 10**8, 4, 1 << 26


class PhaseResult(NamedTuple):
    """Whether a row is proved, a lower bound, the pushes per hidden layer with the least margin found, and that."""

    proved: bool
    bound: float
    pushes: list[Floats] | None
    least: float
    nodes: int


class _PhaseTree:
    """Tables of the lines of each phase, for one row; phase 0 is open."""

    def __init__(self, relaxation: Relaxation, units: list[Units], lines: list[LayerLines]) -> None:
        self.layers, self.base, names = relaxation.layers, lines, relaxation.net.activations
        # a fixed phase says on which side of 0 u is, which is a sum of terms where no activation before it is below 0
        self.sided = [i > 0 and names[i] in KINKED and lines[i - 1].positive for i in range(len(names))]
        # what can be split: layer, "up", "down" or "sign", the tables, and for which units
        self.splits: list[tuple[int, str, tuple[Floats, ...], Bools]] = []
        for i, (name, unit, line) in enumerate(zip(names, units, lines, strict=True)):
            if i:
                self._add(i, "up", line.up, linear.cases(name, -unit.high_u, -unit.low_u, mirrored=True))
                self._add(i, "down", line.down, linear.cases(name, unit.low_l, unit.high_l, mirrored=False))
            crossing = (unit.low < 0) & (unit.high > 0)
            if crossing.any():
                tilt = np.vstack([line.tilt, np.where(crossing, 1.0, line.tilt), np.where(crossing, -1.0, line.tilt)])
                lift = np.vstack([line.lift, *[np.where(crossing, 0.0, line.lift)] * 2])
                self.splits.append((i, "sign", (tilt, lift), crossing[0]))

    def _add(self, i: int, side: str, whole: Pencil, pieces: tuple[Pencil, Pencil]) -> None:
        stacked = tuple(np.vstack([getattr(p, name) for p in (whole, *pieces)]) for name in vars(whole))
        bends = (stacked[0][1] != stacked[0][2]) | (stacked[3][1] != stacked[3][2])
        if bends.any():
            self.splits.append((i, side, stacked, bends))

    def lines(self, phases: list[_Phases], slopes: list[_Slopes]) -> list[LayerLines]:
        """The lines of each case."""
        fields = [{k: v for k, v in vars(line).items() if k != "heights"} for line in self.base]
        for i, (down, up, beta) in enumerate(slopes, start=1):
            fields[i].update(down_slope=down, up_slope=up, beta=beta)
        for (i, side, table, _), phase in zip(self.splits, phases, strict=True):
            columns = np.arange(phase.shape[1])
            picked = [t[phase, columns] for t in table]
            if side == "sign":
                fields[i]["tilt"], fields[i]["lift"] = picked
            else:
                fields[i][side] = Pencil(*picked)
                if side == "up" and self.sided[i]:
                    fields[i]["side"] = np.array([0.0, -1.0, 1.0])[phase]
                fields[i][f"{side}_slope"] = np.clip(fields[i][f"{side}_slope"], picked[0], picked[1])
        return [LayerLines(**f) for f in fields]

    def gaps(
        self, phases: list[_Phases], lines: list[LayerLines], carried: CarriedBound, arguments: _Arrays, points: _Arrays
    ) -> _Arrays:
        """How much each split could lift the bound: at the points given, and a little for what it could anywhere."""
        found = []
        for (i, side, table, can), phase in zip(self.splits, phases, strict=True):
            if side == "sign":
                line, a, size = lines[i], points[i], carried.moved[i]
                here = size * (line.tilt * a + line.lift - np.abs(a))
                anywhere = size * line.lift
            else:
                y, c = arguments[i - 1], carried.coefficients[i]
                used = np.where((c < 0) == (side == "up"), np.abs(c), 0.0)
                one, two = (table[1][p] * (y - table[2][p]) + table[3][p] for p in (1, 2))
                pencil, slope = getattr(lines[i], side), getattr(lines[i], f"{side}_slope")
                here = used * (np.minimum(one, two) - slope * y - pencil.height(slope))
                anywhere = used * (np.abs(table[3][0] - table[0][0] * table[2][0]))
            # what a split gains here counts, elsewhere a little; the last term lets any split win over none
            found.append(np.where((phase == 0) & can, np.maximum(here, 0.0) + 1e-3 * anywhere + 1e-30, 0.0))
        return found


@dataclass
class _Cases:
    """Open cases: phases per kind of split, slopes per layer but one, what was proved, rounds without a split."""

    phases: list[_Phases]
    slopes: list[_Slopes]
    bound: Floats
    stuck: Indices

    def __len__(self) -> int:
        return len(self.bound)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.phases) + sum(part.nbytes for parts in self.slopes for part in parts)

    def take(self, items: Indices | slice) -> Self:
        slopes = [(down[items], up[items], beta[items]) for down, up, beta in self.slopes]
        return type(self)([p[items] for p in self.phases], slopes, self.bound[items], self.stuck[items])


class PhaseSearch:
    """Depth-first branch and bound of one row against one rival, a chunk of cases at a time; it can be run on."""

    # the newest cases come next: memory grows with the depth of the tree, not with the number of cases

    def __init__(
        self, relaxation: Relaxation, units: list[Units], lines: list[LayerLines], pushes: RivalPushes, allowance: float
    ) -> None:
        self.tree, self.pushes, self.allowance = _PhaseTree(relaxation, units, lines), pushes, allowance
        self.nodes, self.floor, self.deadline, self.least = 1, np.inf, np.inf, np.inf
        self.best: list[Floats] | None = None
        phases = [np.zeros((1, len(can)), dtype=np.int8) for *_, can in self.tree.splits]
        slopes = [(line.down_slope, line.up_slope, np.zeros_like(line.low)) for line in lines[1:]]
        self.waiting = [_Cases(phases, slopes, np.full(1, -np.inf), np.zeros(1, dtype=np.intp))]
        self.stuck = False  # whether some case can neither be closed nor split: no more time would help
        work = sum(layer.middle.size for layer in relaxation.layers[1:])
        self.chunk = int(np.clip(WORK // max(work, 1), FEW, CHUNK))

    def run(self, deadline: float, cases: float = np.inf) -> PhaseResult:
        """Go on until the row is decided, the deadline, or so many cases in all."""
        self.deadline = deadline
        while self.waiting and not self.stuck and self.nodes < cases:
            cases_, size = self.waiting.pop(), self.chunk
            if sum(c.nbytes for c in self.waiting) > STORE:
                size = FEW
            if len(cases_) > size:  # the worst last, to be looked at first
                cases_ = cases_.take(np.argsort(-cases_.bound, kind="stable"))
                self.waiting.append(cases_.take(slice(0, -size)))
                cases_ = cases_.take(slice(-size, None))
            left = self._round(cases_)
            if len(left):
                self.waiting.append(left)
            self.stuck = bool((left.stuck > PATIENCE).any())
            if self.least < -self.allowance or time.monotonic() > deadline:
                break
        bound = min([self.floor, *(float(c.bound.min()) for c in self.waiting)])
        return PhaseResult(not self.waiting, bound - self.allowance, self.best, self.least, self.nodes)

    def _round(self, cases_: _Cases) -> _Cases:
        """Bound some cases, attack where they point to, and split those that stay open."""
        tree, pushes, goal = self.tree, self.pushes, self.pushes.objective
        goal = Objective(*(np.repeat(v, len(cases_), axis=0) for v in (goal.lin, goal.rho, goal.const)))
        current, top = tree.lines(cases_.phases, cases_.slopes), len(tree.base) - 1
        carried = linear.carried_back(tree.layers, current, goal, top)
        # push every unit against its coefficient, and improve the shifts whose margins are least
        starts = [np.where(c >= 0, -1.0, 1.0) for c in carried.coefficients]
        several = pushes.take(np.zeros(len(starts[0]), dtype=np.intp))
        order = np.argsort(several.margins(starts)[0])[:4]
        self._note(*several.take(order).improve([s[order] for s in starts]))
        highest = np.maximum(cases_.bound, carried.bound)  # a part of a case is bounded by what the whole was
        means: list[Floats] = []
        for step in range(STUCK_STEPS if cases_.stuck.any() else STEPS):
            done = (highest > self.allowance).all() or self.least < -self.allowance
            if done or time.monotonic() > self.deadline:
                break
            # the least margin lies between the bound and what the attack found
            target = np.maximum(0.1 * np.abs(carried.bound), 0.5 * self.least)
            current, points = linear.ascend(tree.layers, current, carried, target)
            means = [m + (p - m) / (step + 1) for m, p in zip(means, points, strict=True)] if means else points
            carried = linear.carried_back(tree.layers, current, goal, top)
            highest = np.maximum(highest, carried.bound)
        closed = highest > self.allowance
        self.floor = min(self.floor, float(highest[closed].min(initial=np.inf)))
        slopes = [(x.down_slope, x.up_slope, beta) for x in current[1:] if (beta := x.beta) is not None]
        open_cases = np.flatnonzero(~closed)
        left = _Cases(cases_.phases, slopes, highest, cases_.stuck).take(open_cases)
        if not len(left) or not means or time.monotonic() > self.deadline:
            return left
        # the points at which the bound was least, on average: where the least margin is not at a corner
        several = pushes.take(np.zeros(len(open_cases), dtype=np.intp))
        starts = several.towards([m[open_cases] for m in means])
        margins, _ = several.margins(starts)
        self._note(margins, starts)
        if self.least < -self.allowance:
            return left
        _, _, arguments, points = linear.gradients(tree.layers, current, carried)
        gaps = tree.gaps(cases_.phases, current, carried, arguments, points)
        left = _branch(left, [g[open_cases] for g in gaps])
        self.nodes += len(left)
        return left

    def _note(self, margins: Floats, shifts: list[Floats]) -> None:
        """Keep the shift with the least margin."""
        i = int(np.argmin(margins))
        if margins[i] < self.least:
            self.least, self.best = float(margins[i]), [s[i] for s in shifts]


def _branch(open_cases: _Cases, gaps: list[Floats]) -> _Cases:
    """Split each case where that promises most; few cases are split several times, to bound many at once."""
    total = np.hstack(gaps) if gaps else np.zeros((len(open_cases), 0))
    stays = np.ones(len(open_cases), dtype=bool) if not total.size else ~total.any(axis=1)
    open_cases.stuck[stays] += 1
    if stays.all():
        return open_cases
    offsets = np.cumsum([0, *(g.shape[1] for g in gaps)])
    for _ in range(3 if len(open_cases) <= 4 else 2 if len(open_cases) <= 32 else 1):
        where = total.argmax(axis=1)
        can = total[np.arange(len(where)), where] > 0
        items = np.concatenate([np.arange(len(where)), np.flatnonzero(can)])
        where, phase = where[items], np.concatenate([np.where(can, 1, 0), np.full(int(can.sum()), 2)])
        open_cases, total = open_cases.take(items), total[items]
        for kind, begin in enumerate(offsets[:-1]):
            mine = np.flatnonzero((where >= begin) & (where < offsets[kind + 1]) & (phase > 0))
            open_cases.phases[kind][mine, where[mine] - begin] = phase[mine]
        total[np.arange(len(where)), where] = 0.0
    return open_cases
