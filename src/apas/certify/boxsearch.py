"""Failing shifts in parts of a box, confirmed before they are kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.boxtree import FAILING
from apas.bounds.shiftbox import ShiftBox
from apas.bounds.splitting import Split
from apas.certify.confirm import confirmed_witness
from apas.certify.problem import Problem
from apas.certify.witness import Witness
from apas.models.gradients import parameter_gradients
from apas.shifts.box import inside_box

__all__ = ["FailingShift", "failing_shift"]

_Array = NDArray[np.float64]


class FailingShift:
    """Looks for a failing shift in parts of a box: at their middles, and where the margin falls from there."""

    def __init__(self, problem: Problem, row: int, box: ShiftBox) -> None:
        self.problem, self.row, self.box = problem, row, box
        self.witness: Witness | None = None

    def __call__(self, start: _Array, width: _Array) -> bool:
        """Whether a failing shift was found; it is then kept."""
        middle = start + 0.5 * width
        at_middle, gradients = self._margins(middle)
        corners = middle - 0.5 * width * np.sign(gradients[:, self.box.moving])
        points = np.vstack([middle, corners])
        margins = np.concatenate([at_middle, self._margins(corners)[0]])
        worst = int(np.where(np.isnan(margins), np.inf, margins).argmin())
        if margins[worst] <= 0:
            self.witness = _confirmed(self.problem, self.row, self.box, points[worst])
        return self.witness is not None

    def _margins(self, points: _Array) -> tuple[_Array, _Array]:
        box = self.box
        X = np.repeat(box.x[None, :], len(points), axis=0)
        wanted = np.full(len(points), box.wanted, dtype=np.intp)
        return parameter_gradients(box.net, X, wanted, box.delta * box.radii * box.directions(points))


def failing_shift(problem: Problem, row: int, found: Split) -> Witness | None:
    """A failing shift of a finished run, if one is easily found: in its largest part that fails, or in the whole."""
    nodes = found.tree.having(FAILING)
    if len(nodes):
        start, width = found.tree.coordinates(nodes[[found.tree.depth(nodes).argmin()]])
        return _confirmed(problem, row, found.box, (start + 0.5 * width)[0])
    search = FailingShift(problem, row, found.box)
    if found.upper < 1:
        search(*found.tree.coordinates(np.zeros(1, dtype=np.int64)))
    return search.witness


def _confirmed(problem: Problem, row: int, box: ShiftBox, point: _Array) -> Witness | None:
    direction = box.directions(point[None, :])[0]
    return confirmed_witness(problem, row, inside_box(box.net.parameters.values, box.radii, box.delta, direction))
