"""The worst case as a mixed-integer program, for `apas.optimize.highs`.

A column per activation, a binary where a kink bends the wrong way inside the range of l or u, or an activation under a
magnitude can have either sign. Every big M is a proven bound on what it has to cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apas._typing import Floats, Indices
from apas.models.forward import shape_of, units_of
from apas.optimize.highs import FEASIBILITY, INTEGRALITY
from apas.optimize.program import Program, ProgramBuilder
from apas.worst_case.linear import Objective, Relaxation, Units


@dataclass(frozen=True)
class WorstCaseProgram(Program):
    """The least margin of a row; `activations` holds the columns of each hidden layer's activations."""

    activations: tuple[Indices, ...] = ()


@dataclass(frozen=True)
class _Affine:
    """``values . v[columns] + const``: what a unit's l or u is."""

    columns: Indices
    values: Floats
    const: float


class _Builder:
    """Writes the program of one row, layer by layer."""

    def __init__(self, relaxation: Relaxation, units: list[Units]) -> None:
        self.relaxation, self.units, self.program = relaxation, units, ProgramBuilder()

    def build(self, objective: Objective) -> WorstCaseProgram:
        names, program = self.relaxation.net.activations, self.program
        last, activations = len(names) - 1, []
        for i, name in enumerate(names):
            unit = self.units[i]
            columns = program.columns(unit.low[0], unit.high[0])
            for k, column in enumerate(columns.tolist() if i else []):
                small, large = (True, True) if i < last else _sides(objective, unit, k)
                own = next((inner for inner, part in units_of(name) if part.start <= k < part.stop), name)
                self._unit(i, k, column, own, small=small, large=large)
            activations.append(columns)
            self._magnitudes(i, columns)
        cost = np.zeros(len(program.low))
        goal = self._combine(objective.lin[0], -objective.rho[0], float(objective.const[0]))
        np.add.at(cost, goal.columns, goal.values)
        return WorstCaseProgram(**vars(program.finish(cost, goal.const)), activations=tuple(activations))

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

    def _combine(self, lin: Floats, rho: Floats, const: float) -> _Affine:
        """``lin . a + rho . abs(a) + const`` in terms of the current layer's columns."""
        rho = np.broadcast_to(rho, lin.shape)
        columns = np.concatenate([self.current, self.sizes])
        return _Affine(columns, np.concatenate([lin + rho * self.sign, rho[self.sign == 0]]), const)

    def _unit(self, i: int, k: int, h: int, name: str, *, small: bool, large: bool) -> None:
        """Rows between a unit and its l (`small`: the margin wants it small) and u (`large`)."""
        layer, unit = self.relaxation.layers[i], self.units[i]
        w, r, b, b_reach = layer.middle[:, k], layer.reach[:, k], float(layer.bias[k]), float(layer.bias_reach[k])
        if small:
            form, ends = self._combine(w, -r, b - b_reach), (float(unit.low_l[0, k]), float(unit.high_l[0, k]))
            self._bound(h, 1.0, form, name, *ends)
        if large:
            form, ends = self._combine(w, r, b + b_reach), (float(unit.low_u[0, k]), float(unit.high_u[0, k]))
            self._bound(h, -1.0, form, name, *ends)

    def _bound(self, h: int, sign: float, form: _Affine, name: str, low: float, high: float) -> None:
        """Activation h >= act(form) for sign 1, <= for -1: two rows where a kink bends away, else a binary."""

        def row(slope: float, const: float = 0.0, binary: int | None = None, big: float = 0.0) -> None:
            """Bound h by ``slope * form + const + big * v[binary]``."""
            columns, values = np.concatenate([[h], form.columns]), np.concatenate([[1.0], -slope * form.values])
            if binary is not None:
                columns, values = np.append(columns, binary), np.append(values, -big)
            side = slope * form.const + const
            self.program.row(columns, values, *((side, np.inf) if sign > 0 else (-np.inf, side)))

        kind, numbers = shape_of(name)
        if kind == "clip":  # whose values beyond an end are that end
            near, far = (high, low) if sign > 0 else (low, high)
            end = numbers[1] if sign > 0 else numbers[0]
            if sign * near <= sign * end:
                row(1.0)
            elif sign * far < sign * end:
                free = self.program.binary()  # 1: bounded by the form, 0: by the end
                row(1.0, end - near, free, near - end)
                row(0.0, end, free, far - end)
            else:
                row(0.0, end)
            return
        slope = 1.0 if name == "identity" else numbers[0]
        if sign > 0:
            if high > 0 or name == "identity":
                row(1.0)
            if low < 0 and 0 < slope < 1:
                row(slope)
        elif name == "identity" or low >= 0:
            row(1.0)
        elif high <= 0:
            row(slope)
        else:
            alive = self.program.binary()
            row(1.0, -(1 - slope) * low, alive, (1 - slope) * low)
            row(slope, 0.0, alive, (1 - slope) * high)


def _sides(objective: Objective, unit: Units, k: int) -> tuple[bool, bool]:
    """Whether the margin can want a unit of the last layer small, and whether it can want it large."""
    lin, rho = float(objective.lin[0, k]), float(objective.rho[0, k])
    # where the unit is positive it enters with lin - rho, where it is negative with lin + rho
    enters = [lin - rho] * bool(unit.high[0, k] > 0) + [lin + rho] * bool(unit.low[0, k] < 0)
    return any(c > 0 for c in enters), any(c < 0 for c in enters)


def reduced_program(relaxation: Relaxation, units: list[Units], objective: Objective) -> WorstCaseProgram:
    """The least value of `objective` for one row, over all shifts, as a program."""
    return _Builder(relaxation, units).build(objective)


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
