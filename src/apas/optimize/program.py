"""A mixed-integer program as arrays, and what it is written on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.models.activations import activate


def power_above(value: float) -> float:
    """The least power of two above a value; 1 for 0."""
    return float(np.ldexp(1.0, int(np.frexp(value)[1]))) if value > 0 else 1.0


@dataclass
class Program:
    """Minimise ``cost . v + const`` with ``row_low <= matrix @ v <= row_high`` and ``low <= v <= high``."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[Floats, float, float]] = field(default_factory=list)
    """Per constraint its columns and values as two lines of an array, and its ends."""
    cost: Floats = field(default_factory=lambda: np.empty(0))
    const: float = 0.0
    activations: list[Indices] = field(default_factory=list)
    """Columns of each hidden layer's activations."""

    def columns(self, low: Floats, high: Floats, *, integer: bool = False) -> Indices:
        """Add variables; returns their numbers."""
        start = len(self.low)
        self.low += low.tolist()
        self.high += high.tolist()
        self.integer += [integer] * len(low)
        return np.arange(start, len(self.low))

    def row(self, columns: Indices, values: Floats, low: float, high: float) -> None:
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
class Switch:
    """A 0-1 column that says on which side of a kink a unit is."""

    column: int
    layer: int
    unit: int
    value: Floats
    form: Floats
    const: float
    width: float
    kink: float
    sign: float
    weight: float


class Switches:
    """All switches of a program, as arrays with one entry or row each."""

    def __init__(self, switches: Sequence[Switch], activations: Sequence[str]) -> None:
        self.column = np.array([s.column for s in switches])
        self.layer = np.array([s.layer for s in switches])
        self.unit = np.array([s.unit for s in switches])
        self.value = np.array([s.value for s in switches])
        self.form = np.array([s.form for s in switches])
        self.const, self.width, self.kink, self.sign, self.weight = np.transpose(
            [(s.const, s.width, s.kink, s.sign, s.weight) for s in switches]
        )
        self.groups = [(name, np.flatnonzero(self.layer == i)) for i, name in enumerate(activations)]

    def gaps(self, v: Floats) -> Floats:
        """How far each unit is from what it would be, in terms of the margin."""
        z = self.form @ v + self.const
        for name, own in self.groups:
            z[own] = activate(name, z[own])
        return np.asarray(np.abs(self.value @ v - z) * self.weight)


@dataclass(frozen=True)
class Mixed:
    """Minimise ``cost @ v`` with ``row_low <= matrix @ v <= row_high``, ``low <= v <= high`` and some v whole."""

    cost: Floats
    low: Floats
    high: Floats
    integer: Bools
    matrix: Floats
    row_low: Floats
    row_high: Floats
    switches: Switches | None = None

    def as_program(self, *, counts: bool) -> Program:
        """The same for `apas.worst_case.milp`; without `counts`, whole numbers other than 0 and 1 need not be whole."""
        whole = self.integer & (counts | (self.high - self.low <= 1))
        program = Program(self.low.tolist(), self.high.tolist(), whole.tolist(), cost=self.cost)
        for values, low, high in zip(self.matrix, self.row_low.tolist(), self.row_high.tolist(), strict=True):
            columns = np.flatnonzero(values)
            program.row(columns, values[columns], low, high)
        return program


class Sheet:
    """Rows and columns while a program is written."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self.low, self.high = np.zeros(total), np.zeros(total)
        self.integer = np.zeros(total, dtype=bool)
        self.rows: list[Floats] = []
        self.ends: list[tuple[float, float]] = []
        self.switches: list[Switch] = []

    def columns(self, low: Floats, high: Floats, integer: Bools) -> int:
        """Add columns; returns the number of the first."""
        first, self.used = self.used, self.used + len(low)
        part = slice(first, self.used)
        self.low[part], self.high[part], self.integer[part] = low, high, integer
        return first

    def column(self, low: float, high: float) -> int:
        """Add a column for a number; returns its number."""
        return self.columns(np.array([low]), np.array([high]), np.array([False]))

    def binary(self) -> int:
        """Add a column that is 0 or 1; returns its number."""
        return self.columns(np.zeros(1), np.ones(1), np.array([True]))

    def row(self, values: Floats, low: float, high: float) -> None:
        """Add a row with a coefficient per column; it is scaled, since a solver's tolerances are absolute."""
        scale = power_above(float(np.abs(values).max(initial=0.0)))
        self.rows.append(values / scale)
        self.ends.append((low / scale, high / scale))

    def sparse(self, entries: Mapping[int, float], low: float, high: float) -> None:
        """Add a row with few coefficients."""
        values = np.zeros(self.total)
        values[list(entries)] = list(entries.values())
        self.row(values, low, high)

    def finished(self, cost: Floats, activations: Sequence[str] = ()) -> Mixed:
        """What was written, for a network with such activations."""
        ends = np.array(self.ends).reshape(-1, 2)
        matrix = np.array(self.rows).reshape(len(self.rows), self.total)
        switches = Switches(self.switches, activations) if self.switches else None
        return Mixed(cost, self.low, self.high, self.integer, matrix, ends[:, 0], ends[:, 1], switches)
