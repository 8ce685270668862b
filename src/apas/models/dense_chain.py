"""Dense networks in which what moves stands beside numbers that do not: how worst-case methods see a model.

A *chain* is a `FeedForward` each of whose parameters is a coordinate of what moves, with its sign, or a fixed number. A
model that is no plain chain of layers becomes one: a residual addition carries its summand through the layers beside it
as units with weight 1, a batch norm is a layer with a diagonal of weights. A row that moves is one more layer, at the
beginning, whose weights are those of the identity and whose biases move. Entries are copied and never computed with, so
that the chain of shifted coordinates is exactly the shifted model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from apas._typing import Floats, Indices
from apas.models.base import Chained, Dense, offers
from apas.models.feedforward import FeedForward


@dataclass(frozen=True, eq=False)
class DenseChain:
    """A dense network, and which coordinate each of its parameters is.

    Parameters
    ----------
    network : FeedForward
    source : ndarray of int, shape (parameters,)
        Number of the coordinate, or -1 for a parameter that does not move.
    sign : ndarray of shape (parameters,)
        1 or -1: the parameter is the coordinate or its negative; 0 for one that does not move.
    tied : str
        What coordinates are used more than once, in words; empty if none is. As a box the chain then has more shifts
        than the model: what is proved of all of them is proved, but they are not all there.
    """

    network: FeedForward
    source: Indices
    sign: Floats
    tied: str = ""

    @classmethod
    def of(cls, network: FeedForward) -> DenseChain:
        """A network whose parameters are the coordinates."""
        return cls(network, np.arange(len(network.parameters)), np.ones(len(network.parameters)))

    @cached_property
    def _moving(self) -> Indices:
        return np.flatnonzero(self.source >= 0)

    def lift(self, moves: Floats) -> Floats:
        """Moves of the coordinates (..., n) as moves of the network's parameters, in the same memory order."""
        rows = moves.shape[:-1]
        fortran = moves.ndim == 2 and moves.flags.f_contiguous and not moves.flags.c_contiguous
        lifted = np.zeros((*rows, len(self.source)), order="F" if fortran else "C")
        where = self._moving
        lifted[..., where] = moves[..., self.source[where]] * self.sign[where]
        return lifted

    def reach(self, radii: Floats) -> Floats:
        """How far each parameter of the network moves if the coordinates move by so much."""
        return np.abs(self.lift(radii))

    def lower(self, lifted: Floats, base: Floats) -> Floats:
        """The coordinates of parameters, or of moves, `lifted` (..., parameters); where it has several, their mean.

        Coordinates that no parameter stands for are those of `base`.
        """
        where, found = self._moving, np.zeros((len(base), *lifted.shape[:-1]))
        count = np.bincount(self.source[where], minlength=len(base))
        np.add.at(found, self.source[where], (lifted[..., where] * self.sign[where]).T)
        found = found.T
        return np.where(count > 0, found / np.maximum(count, 1), base)

    def at(self, values: Floats) -> Floats:
        """The network's parameters where the coordinates have such values."""
        where, found = self._moving, np.array(self.network.parameters.values)
        found[where] = values[self.source[where]] * self.sign[where]
        return found

    def with_moving_row(self, first: int, *, alone: bool) -> DenseChain:
        """The same behind a row whose features are the coordinates from `first` on; `alone` if nothing else moves."""
        net, count = self.network, self.network.n_features
        names = ("output", "threshold", "classes", "feature_names", "dtype")
        said: dict[str, Any] = {name: getattr(net, name) for name in names}
        layers = [np.eye(count), *net.weights], [np.zeros(count), *net.given_biases]
        network = FeedForward(*layers, activation=("identity", *net.activations), **said)
        still, moving = np.full(count * count, -1), np.arange(first, first + count)
        source, sign = (np.full_like(self.source, -1), np.zeros_like(self.sign)) if alone else (self.source, self.sign)
        sources, signs = [still, moving, source], [np.zeros(count * count), np.ones(count), sign]
        return DenseChain(network, np.concatenate(sources), np.concatenate(signs), "" if alone else self.tied)


def dense_chain(model: object) -> DenseChain | None:
    """The chain whose coordinates are the parameters of a model; None if it is no dense network."""
    if offers(model, Chained):
        return model.dense_chain()
    if not offers(model, Dense):
        return None
    network = model.as_feedforward()
    theta = getattr(model, "parameters", network.parameters)
    same = network.parameters.shapes == theta.shapes and np.array_equal(network.parameters.values, theta.values)
    return DenseChain.of(network) if same else None
