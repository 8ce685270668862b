"""The worst case as a mixed-integer program with few binaries (the reduced encoding).

Given the activations a before it, a unit reaches exactly the values between ``act(l(a))`` and ``act(u(a))``,
independently of the others. So there is a variable per activation and none for its argument or for a weight, no
binary in the first hidden layer, and elsewhere one only where a kink that bends the wrong way lies inside the range of
l or u. Magnitudes of activations that can have either sign get a variable and a binary each, shared by all units above.
Every big M is a proven bound on what it has to cover.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apas.bounds.backward import Objective
from apas.bounds.relaxation import Relaxation, Units
from apas.models.activations import LEAKY_SLOPE

__all__ = ["Program", "reduced_program"]

_Array = NDArray[np.float64]


@dataclass
class Program:
    """Minimise ``cost . v + const`` with ``row_low <= matrix @ v <= row_high`` and ``low <= v <= high``."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[_Array, float, float]] = field(default_factory=list)
    """Per constraint its columns and values as two lines of an array, and its ends."""
    cost: _Array = field(default_factory=lambda: np.empty(0))
    const: float = 0.0
    activations: list[NDArray[np.intp]] = field(default_factory=list)
    """Columns of each hidden layer's activations."""

    def columns(self, low: _Array, high: _Array, *, integer: bool = False) -> NDArray[np.intp]:
        """Add variables; returns their numbers."""
        start = len(self.low)
        self.low += low.tolist()
        self.high += high.tolist()
        self.integer += [integer] * len(low)
        return np.arange(start, len(self.low))

    def row(self, columns: NDArray[np.intp], values: _Array, low: float, high: float) -> None:
        """Add one constraint."""
        self.rows.append((np.vstack([columns, values]), low, high))

    def binary(self) -> int:
        """Add one variable that is 0 or 1; returns its number."""
        return int(self.columns(np.zeros(1), np.ones(1), integer=True)[0])

    @property
    def binaries(self) -> int:
        """How many binaries there are."""
        return sum(self.integer)


@dataclass(frozen=True)
class _Affine:
    """``values . v[columns] + const``: what a unit's l or u is."""

    columns: NDArray[np.intp]
    values: _Array
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

    def _magnitudes(self, i: int, columns: NDArray[np.intp]) -> None:
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

    def _combined(self, lin: _Array, rho: _Array, const: float) -> _Affine:
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
    """The least value of `objective` for one row, over all shifts, as a program.

    Parameters
    ----------
    relaxation : Relaxation
        Of a network with relu, leaky relu, hard tanh or identity units.
    units : list of Units
        Of one row.
    objective : Objective
        Of one row, in terms of the last hidden layer.
    """
    return _Builder(relaxation, units).build(objective)
