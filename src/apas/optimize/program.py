"""Mixed-integer programs as arrays: a builder that collects rows and columns, and scaling by powers of two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Bools, Floats, Indices
from apas.models.forward import shape_of


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


#: Columns, values and const of ``values . v[columns] + const``.
Form = tuple[Indices, Floats, float]


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
        self.low.append(low)
        self.high.append(high)
        self.integer.append(integer)
        return len(self.low) - 1

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
