"""A set of shifts as worst-case methods see it: as moves of the parameters of a dense chain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Floats
from apas.models.base import Model, Parameters
from apas.models.dense_chain import DenseChain
from apas.models.forward import ACTIVATIONS
from apas.shifts.base import Ball, Box, Ellipsoid, Finite, Region, ShiftSet


@dataclass(frozen=True, eq=False)
class EmbeddedShifts:
    """A shift set whose coordinates, `base`, stand in a dense chain; its words are those of the set itself."""

    shifts: ShiftSet
    chain: DenseChain
    base: Parameters

    @cached_property
    def region_itself(self) -> Region | None:
        """The geometry of the set around its own coordinates; None if it has none, or one that a chain has not."""
        found = self.shifts.geometry(self.base)  # type: ignore[attr-defined]
        # bounds over balls know the activations of plain networks only
        plain = ACTIVATIONS.keys() >= set(self.chain.network.activations)
        if isinstance(found, Finite) or (isinstance(found, Ball | Ellipsoid) and not plain):
            return None
        if self.chain.tied and not isinstance(found, Box):
            return None
        return found  # type: ignore[no-any-return]

    def geometry(self, parameters: Parameters) -> Region | None:
        """The same around the parameters of the chain; of tied ones the box that holds the set."""
        found = self.region_itself
        if isinstance(found, Ellipsoid):
            return Ellipsoid(self.chain.lift(found.root.T).T)
        return found if found is None else replace(found, radii=self.chain.reach(found.radii))

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter of the chain moves when delta is 1."""
        found = self.geometry(parameters)
        return self.chain.reach(self.shifts.radii(self.base)) if found is None else found.radii

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Draws of the set, as moves of the chain."""
        return self.chain.lift(self.shifts.directions(self.base, stream, start, stop))

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the shifted chains; of tied parameters the mean counts, so that they stay one."""
        if self.chain.tied:
            directions = self.chain.lift(self.chain.lower(directions, np.zeros(len(self.base))))
        return model.shifted_margins(X, target, directions, delta)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether the coordinates that stand for parameters of the chain lie in the set, and nothing else moved."""
        values = self.chain.lower(other.values, self.base.values)
        same = np.array_equal(self.chain.at(values), other.values)
        return same and self.shifts.contains(self.base, replace(self.base, values=values), delta)

    def measure(self, parameters: Parameters) -> str:
        """What the set says."""
        return self.shifts.measure(self.base)

    def region(self, parameters: Parameters) -> str:
        """What the set says."""
        return self.shifts.region(self.base)

    def to_dict(self) -> dict[str, Any]:
        """That of the set."""
        return self.shifts.to_dict()

    def __repr__(self) -> str:
        return repr(self.shifts)
