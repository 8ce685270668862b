"""Worst-case answers for many rows at one delta, from the cheapest step to the dearest.

Intervals, linear bounds and a quick attack see all rows together; what they leave open is decided row by row, by
branch and bound on phases and, where that does not end, by a mixed-integer program. A row is *proved* by a bound that
holds in real arithmetic, or by the solver's bound with a margin above its tolerances; it is *broken* only if whoever
asks accepts the shift that is offered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.corner import worst_corners
from apas.bounds.interval import Boxes, is_exact, rivals
from apas.bounds.milp import reduced_program
from apas.bounds.pairs import Pair
from apas.bounds.phases import split_phases
from apas.bounds.pushes import output_push, pushed_parameters, pushes_towards
from apas.bounds.relaxation import Relaxation, Units
from apas.bounds.solver import advise, tolerance
from apas.models.feedforward import FeedForward

__all__ = ["ALL_STEPS", "Finding", "worst_cases"]

_Array = NDArray[np.float64]
ALL_STEPS = ("interval", "linear", "attack", "splitting", "solver")
#: Rows whose linear bounds are computed together; with more than this, intervals alone have a look first.
BLOCK = 64


@dataclass
class Finding:
    """What is known about one row.

    Attributes
    ----------
    proved, broken : bool
    step : str
        What decided; "none" so far.
    bound : float
        On every shifted model the margin is at least this; minus infinity if nothing is known.
    nodes : int
        Cases distinguished.
    """

    proved: bool = False
    broken: bool = False
    step: str = "none"
    bound: float = -np.inf
    nodes: int = 0

    @property
    def open(self) -> bool:
        """Whether nothing was decided yet."""
        return not (self.proved or self.broken)

    def prove(self, step: str, bound: float) -> None:
        """Note that every margin is at least `bound`, which is above 0."""
        self.proved, self.step, self.bound = True, step, bound


class _Search:
    def __init__(
        self,
        net: FeedForward,
        X: _Array,
        wanted: NDArray[np.intp],
        radii: _Array,
        delta: float,
        steps: Sequence[str],
        time_limit: float,
        accept: Callable[[int, _Array], bool],
        done: Callable[[int], None],
    ) -> None:
        self.net, self.X, self.wanted, self.radii, self.delta = net, X, wanted, radii, delta
        self.steps, self.time_limit, self.accept, self.done = steps, time_limit, accept, done
        self.rivals = rivals(net, wanted)
        self.found = [Finding() for _ in X]

    def run(self) -> list[Finding]:
        exact = is_exact(self.net)
        if exact or len(self.X) > BLOCK or set(self.steps) == {"interval"}:
            self._interval(exact=exact)
        rows = self._open()
        self.done(len(self.X) - len(rows))
        if not exact and set(self.steps) != {"interval"}:
            self.relaxation = Relaxation(self.net, self.radii, self.delta)
            for start in range(0, len(rows), BLOCK):
                self._block(rows[start : start + BLOCK])
                self.done(len(rows[start : start + BLOCK]))
        return self.found

    def _open(self) -> NDArray[np.intp]:
        return np.array([i for i, f in enumerate(self.found) if f.open], dtype=np.intp)

    def _interval(self, *, exact: bool) -> None:
        boxes, deltas = Boxes(self.net, self.X, self.wanted, self.radii), np.full(len(self.X), self.delta)
        bound = boxes.bound(deltas) - boxes.error(deltas)
        for i, value in enumerate(bound.tolist()):
            if value > 0:
                self.found[i].prove("interval", value)
            else:
                self.found[i].bound = value
        rows = self._open()
        if exact and len(rows):  # the bound is attained, so a corner that attains it can be shown
            corners = worst_corners(boxes.take(rows), deltas[rows])
            for i, corner in zip(rows.tolist(), corners if corners is not None else [], strict=False):
                # the corner comes scaled by the radii
                unit = np.divide(corner, self.radii, out=np.zeros_like(corner), where=self.radii > 0)
                self._offer(i, unit, "interval")

    def _offer(self, row: int, direction: _Array, step: str) -> bool:
        """Break a row if the shift in this direction of the unit box is accepted as a witness."""
        if self.accept(row, direction):
            self.found[row].broken, self.found[row].step = True, step
        return self.found[row].broken

    def _block(self, rows: NDArray[np.intp]) -> None:
        """Linear bounds and attack for some rows together; then each that is left by itself."""
        X, relaxation = self.X[rows], self.relaxation
        units, lines, allowance = relaxation.relaxed(X)
        pairs = [
            Pair(relaxation, X, self.wanted[rows], rival, units, lines, allowance) for rival in self.rivals[rows].T
        ]
        least = np.minimum.reduce([pair.interval for pair in pairs])
        self._note(rows, least, "interval" if len(units) == 2 else "linear")
        if "linear" in self.steps:
            linear = np.minimum.reduce([pair.linear() for pair in pairs])
            self._note(rows, np.maximum(linear, least), "linear")
        for step in ("attack", "splitting"):
            for k, row in enumerate(rows.tolist()):
                if step in self.steps and self.found[row].open:
                    getattr(self, f"_{step}")(row, k, pairs)

    def _note(self, rows: NDArray[np.intp], bound: _Array, step: str) -> None:
        for row, value in zip(rows.tolist(), bound.tolist(), strict=True):
            finding = self.found[row]
            if finding.open and value > 0:
                finding.prove(step, value)
            elif finding.open and value > finding.bound:
                finding.bound = value

    def _attack(self, row: int, k: int, pairs: list[Pair]) -> None:
        for pair in pairs:
            pushes = pair.attacked(k)
            if pushes is not None and self._offer(row, self._direction(row, pushes, pair.rival[k]), "attack"):
                return

    def _direction(self, row: int, pushes: list[_Array], rival: int) -> _Array:
        output = output_push(self.net, int(self.wanted[row]), int(rival))
        return pushed_parameters(self.relaxation, self.X[row], pushes, output)

    def _splitting(self, row: int, k: int, pairs: list[Pair]) -> None:
        """Every rival by branch and bound, those it leaves open by the solver; the row is proved if all are."""
        finding, deadline = self.found[row], time.monotonic() + self.time_limit
        proved, step = [], "splitting"
        for pair in sorted(pairs, key=lambda p: float(p.bound[k])):
            if pair.bound[k] > 0:
                proved.append(float(pair.bound[k]))
                continue
            one = np.array([k])
            units, lines = [u.take(one) for u in pair.units], [line.take(one) for line in pair.current]
            outcome = split_phases(
                self.relaxation, units, lines, pair.pushes.take(one), float(pair.allowance[k]), deadline
            )
            finding.nodes += outcome.nodes
            if outcome.proved:
                proved.append(outcome.bound)
                continue
            pushes = outcome.pushes if outcome.least <= 0 else None
            if pushes is not None and self._offer(row, self._direction(row, pushes, pair.rival[k]), "splitting"):
                return
            if "solver" not in self.steps:
                return
            bound = self._solver(row, k, pair, units, deadline, min(outcome.least, float(pair.least[k])))
            if bound is None:
                return
            step = "solver"
            proved.append(bound)
        finding.prove(step, min(proved))

    def _solver(self, row: int, k: int, pair: Pair, units: list[Units], deadline: float, known: float) -> float | None:
        """A lower bound above 0 from the solver, or None; its point is tried as a shift that breaks the row.

        `known` is the margin of some shift.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        objective = pair.objective.take(np.array([k]))
        program = reduced_program(self.relaxation, units, objective)
        margin = tolerance(self.relaxation, units, objective)
        advice = advise(program, enough=margin, target=-margin, time_limit=left)
        if margin < advice.bound <= known + margin:  # above the margin of a shift that is known, it would be wrong
            return advice.bound - margin
        if advice.point is not None:
            wish = [advice.point[columns] for columns in program.activations]
            start = pushes_towards(self.relaxation, self.X[row : row + 1], wish)
            several = pair.pushes.take(np.array([k]))
            least, pushes = several.improved(start)
            if several.margins(start)[0][0] <= least[0]:
                pushes = start
            self._offer(row, self._direction(row, [p[0] for p in pushes], pair.rival[k]), "solver")
        return None


def worst_cases(
    net: FeedForward,
    X: _Array,
    wanted: NDArray[np.intp],
    radii: _Array,
    delta: float,
    *,
    steps: Sequence[str] = ALL_STEPS,
    time_limit: float = np.inf,
    accept: Callable[[int, _Array], bool],
    done: Callable[[int], None] = lambda rows: None,
) -> list[Finding]:
    """Decide for each row whether every shift keeps its margin above 0.

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
    radii : ndarray of shape (k,)
    delta : float
    steps : sequence of str
        Which of `ALL_STEPS` to take.
    time_limit : float
        Seconds per row for the last two.
    accept : callable
        ``accept(row, direction)`` says whether a direction of the unit box, shape (k,), breaks a row.
    done : callable, optional
        Told now and then how many more rows are done.
    """
    return _Search(net, X, wanted, radii, delta, steps, time_limit, accept, done).run()
