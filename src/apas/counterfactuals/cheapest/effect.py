"""What changes of an input do to the margin and what they cost, evaluated rather than modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.cheapest.moves import Moves
from apas.counterfactuals.cheapest.units import Contrast
from apas.models.activations import activate
from apas.models.feedforward import FeedForward

__all__ = ["Effect"]

_Array = NDArray[np.float64]
#: Amounts below this are none.
DUST = 1e-9


@dataclass(frozen=True)
class Effect:
    """Moves of one input, and the network that they act on.

    Attributes
    ----------
    net : FeedForward
    moves : Moves
    goal : Contrast
    distance : {"l1", "linf"}
    avoid : sequence of frozenset of int
        Sets of features that must not change together.

    Examples
    --------
    >>> one = np.ones(1)
    >>> moves = Moves(-one, np.array([0]), 2 * one, one, np.array([[3.0]]), one, one < 0, np.array([-1]))
    >>> net = FeedForward([[[1.5]]], [[0.0]])
    >>> effect = Effect(net, moves, Contrast.of(net, 1), "l1")
    >>> effect.margins(np.array([[0.0], [1.0]]))[0].tolist(), effect.cost(0.5 * one)
    ([-1.0, 2.0], (0.5, 0.5))
    """

    net: FeedForward
    moves: Moves
    goal: Contrast
    distance: str
    avoid: Sequence[frozenset[int]] = ()

    def rounded(self, values: _Array) -> _Array | None:
        """Amounts that can be taken, near the values of the first columns; None if they would change too much."""
        moves = self.moves
        amounts = np.clip(values[: len(moves)], 0.0, moves.top)
        amounts = np.where(moves.integer, np.rint(amounts), np.where(amounts > DUST, amounts, 0.0))
        amounts[moves.children[amounts[moves.parent[moves.children]] == 0]] = 0.0
        if self.avoid:
            changed = frozenset(moves.feature[(amounts > 0) & (moves.shift != 0)].tolist())
            if any(known <= changed for known in self.avoid):
                return None
        return amounts

    def cost(self, amounts: _Array) -> tuple[float, float]:
        """What amounts cost, and the sum of all differences."""
        differences = np.bincount(self.moves.feature, weights=self.moves.cost * amounts)
        total = float(differences.sum())
        return (total if self.distance == "l1" else float(differences.max(initial=0.0))), total

    def margins(self, amounts: _Array) -> tuple[_Array, _Array]:
        """Margins of rows of amounts, and the size of what they are sums of."""
        a = self.moves.base + amounts @ self.moves.gain
        size = np.abs(a).max(axis=-1)
        for name, w, b in zip(self.net.activations, self.net.weights[1:], self.net.biases[1:], strict=True):
            a = activate(name, a)
            size = np.abs(a) @ np.abs(w).max(axis=1) + np.abs(b).max()
            a = a @ w + b
        return self.goal.margins(a), 1.0 + size

    def margin(self, amounts: _Array) -> tuple[float, float]:
        """The same for one row."""
        margins, sizes = self.margins(amounts[None])
        return float(margins[0]), float(sizes[0])

    def arguments(self, amounts: _Array) -> list[_Array]:
        """What reaches the hidden units, layer by layer."""
        z = self.moves.base + amounts @ self.moves.gain
        found = [z]
        for name, w, b in zip(self.net.activations, self.net.weights[1:], self.net.biases[1:], strict=True):
            z = activate(name, z.copy()) @ w + b
            found.append(z)
        return found[:-1]
