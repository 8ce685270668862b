"""Where to look for failing shifts of a problem, and how a point found there becomes parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.bounds.attack import Ball, Box, Draw, Found, search
from apas.bounds.moves import ParameterMoves
from apas.bounds.unitpushes import UnitPushes
from apas.certify.confirm import confirmed_witness
from apas.certify.problem import Problem
from apas.certify.witness import Witness
from apas.models.protocol import Differentiable, offers
from apas.shifts.box import inside_box
from apas.shifts.cube import unit_cube
from apas.shifts.linf import LinfShifts

__all__ = ["Hunt", "differentiable"]

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hunt:
    """The ground, the ball it is searched in, and the random starts.

    Attributes
    ----------
    problem : Problem
    landscape : UnitPushes or ParameterMoves
    ball : Ball
        In the coordinates of the landscape, of size 1.
    draw : callable
    """

    problem: Problem
    landscape: UnitPushes | ParameterMoves
    ball: Ball
    draw: Draw

    @classmethod
    def of(cls, problem: Problem, stream: Stream) -> Hunt:
        """Pushes of units for dense networks in a box; else the parameters themselves."""
        network, shifts, parameters = problem.network, problem.shifts, problem.model.parameters
        if network is not None and isinstance(shifts, LinfShifts):
            units = UnitPushes(network, problem.X, problem.wanted, problem.radii, problem.delta)
            size = units.size
            return cls(problem, units, Box(np.ones(size)), lambda a, b: unit_cube(size, stream, a, b))
        # that there are gradients and a ball has been asked before: `Attack.unsupported`
        model = cast(Differentiable, problem.model if network is None else network)
        ball = Box(problem.radii) if isinstance(shifts, LinfShifts) else cast(Ball, shifts)
        moves = ParameterMoves(model, problem.X, problem.target, problem.radii > 0, problem.delta)
        return cls(problem, moves, ball, lambda a, b: shifts.directions(parameters, stream, a, b))

    @property
    def closed_form(self) -> bool:
        """Whether the worst shift is known without a search."""
        return self.landscape.size == 0

    def take(self, rows: NDArray[np.intp]) -> Hunt:
        """The same for some of the rows."""
        return replace(self, problem=self.problem.take(rows), landscape=self.landscape.take(rows))

    def at(self, delta: _Array) -> Hunt:
        """The same with shifts of other sizes."""
        return replace(self, problem=replace(self.problem, delta=delta), landscape=self.landscape.at(delta))

    @property
    def goal(self) -> _Array:
        """Margins below this fail beyond rounding.

        A power of two at least twice the band, so that its last bits, which depend on the batch, do not count.
        """
        band = self.problem.band
        return np.where(np.isfinite(band), -np.ldexp(2.0, np.frexp(band)[1]), -np.inf)

    def search(self, *, restarts: int, steps: int, goal: _Array | None = None, warm: _Array | None = None) -> Found:
        """Look for the least margins, or for ones below `goal`."""
        least = np.full(len(self.problem), -np.inf) if goal is None else goal
        return search(self.landscape, self.ball, self.draw, least, restarts=restarts, steps=steps, warm=warm)

    def witness(self, row: int, point: _Array) -> Witness | None:
        """The shift of a row that a point stands for, if it lies in the set and fails."""
        base, delta = self.problem.model.parameters, float(self.problem.delta[row])
        if isinstance(self.landscape, UnitPushes):
            direction = self.landscape.direction(row, point)
            values = inside_box(base.values, self.problem.radii, delta, direction)
        else:
            values = self.ball.pull_inside(base, base.values + delta * point, delta)
        return confirmed_witness(self.problem, row, values)


def differentiable(problem: Problem) -> bool:
    """Whether there are gradients to follow."""
    return problem.network is not None or offers(problem.model, Differentiable)
