"""The cheapest allowed change of one input that reaches a margin, whatever the margin."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.solver import advise, verified_bound
from apas.counterfactuals.cheapest.attempt import MISS, Attempt
from apas.counterfactuals.cheapest.branching import Best
from apas.counterfactuals.cheapest.effect import DUST, Effect
from apas.counterfactuals.cheapest.guess import Guess
from apas.counterfactuals.cheapest.moves import moves_from
from apas.counterfactuals.cheapest.program import widest_program
from apas.counterfactuals.cheapest.ranges import Reach, unit_ranges
from apas.counterfactuals.cheapest.relaxed import Relaxed
from apas.counterfactuals.cheapest.units import Contrast
from apas.counterfactuals.pieces import INSTEAD, Piece
from apas.counterfactuals.source import NoneExists, Search
from apas.display.numbers import at_most
from apas.errors import Unsupported
from apas.models.feedforward import FeedForward
from apas.models.margins import class_indices, needs_strict

__all__ = ["Found", "Nearest"]

_Array = NDArray[np.float64]
#: How far the model may be from what the program makes of it, in units of what the margin is a sum of.
AGREEMENT = 1e-4
#: What a proof allows for: the parts of features are known to so many digits, and everything else to more.
ALLOWANCE = 1e-8


@dataclass(frozen=True)
class Found:
    """An allowed point of the wanted class.

    Attributes
    ----------
    point : ndarray of shape (features,)
    margin : float
        What the model gives it.
    reach : float
        It is also a point for all margins up to this one, which includes what rounding may do.
    cost : float
        Sum or maximum of the differences.
    """

    point: _Array
    margin: float
    reach: float
    cost: float


class Nearest:
    """Cheapest changes of the input of a search.

    Parameters
    ----------
    search : Search
    net : FeedForward
        What the model does with encoded rows.
    parts : sequence of Piece or None
        What each feature adds to what reaches the first layer of `net`.
    time_limit : float
        Seconds per point.

    Examples
    --------
    >>> from apas.counterfactuals.feature import Feature
    >>> from apas.counterfactuals.pieces import pieces_of
    >>> from apas.counterfactuals.source import Task
    >>> from apas.counterfactuals.space import FeatureSpace
    >>> net = FeedForward([[[1.0, -1.0], [0.5, 1.0]], [[1.0], [1.0]]], [[0.0, 0.0], [-2.0]])
    >>> task = Task(net, FeatureSpace([Feature("a", low=0, high=4), Feature("b", "integer", low=0, high=4)]))
    >>> parts = [piece.through(net.weights[0]) for piece in pieces_of(task).parts]
    >>> nearest = Nearest(Search(task, 0, np.array([0.0, 1.0]), 1), net, parts, time_limit=10.0)
    >>> [nearest.at(margin).point.round(6).tolist() for margin in (0.0, 1.5)]
    [[0.0, 2.0], [0.0, 3.0]]
    """

    def __init__(self, search: Search, net: FeedForward, parts: Sequence[Piece | None], time_limit: float) -> None:
        self.search, self.net, self.time_limit = search, net, time_limit
        self.moves = moves_from(search, parts, net.weights[0], net.biases[0])
        self.goal = Contrast.of(net, int(class_indices(net.classes, search.target, 1)[0]))
        self.effect = Effect(net, self.moves, self.goal, search.task.distance, search.avoid)
        self.strict = bool(needs_strict(search.task.model.classes, np.array([search.target], dtype=object))[0])
        self.full = float((self.moves.cost * self.moves.top).sum())
        self.guess = Guess(self.effect)
        self.solver = Relaxed()

    def at(self, margin: float) -> Found | None:
        """The cheapest point with at least this margin (give or take rounding), or None if none was found."""
        for _ in range(4 if len(self.moves) else 0):
            best = self._solved(margin)
            if best.values is None:
                return None
            found = self._proper(best.values)
            if found is not None:
                self.guess.known.append((margin, found.cost))
                return found
            # whoever is valid by a hair is not after rounding
            margin += 4 * MISS * self.effect.margin(best.values)[1]
        return None

    def widest(self) -> Found | None:
        """A point with as large a margin as there is, if that is valid; `NoneExists` if it is proved that none is."""
        reach = Reach(self.moves, np.inf, self.search.task.distance)
        program = widest_program(self.net, reach, self.goal, self.search.avoid)
        deadline, allowance = self._deadline(), ALLOWANCE * self.goal.size(self.net, unit_ranges(self.net, reach))
        left = deadline - time.monotonic()
        advice = advise(program.as_program(counts=True), enough=allowance, target=-np.inf, time_limit=left)
        if advice.point is not None:
            amounts = self.effect.rounded(advice.point)
            found = None if amounts is None else self._proper(amounts)
            if found is not None:
                return found
        for counts in (False, True) if advice.bound > allowance or np.isneginf(advice.bound) else ():
            # what is proved of more points holds of fewer, and most proofs need not tell counts apart
            bound = verified_bound(program.as_program(counts=counts), above=allowance, deadline=deadline)
            if bound is not None:
                raise NoneExists(_none(allowance - bound, self.search))
        return None

    def _deadline(self) -> float:
        return min(time.monotonic() + self.time_limit, self.search.task.deadline)

    def _solved(self, margin: float) -> Best:
        """The search is limited to a cost that is likely to do, and that is raised if it does not."""
        deadline, budget = self._deadline(), self.guess.cost(margin)
        while True:
            budget = budget if budget < self.full else np.inf
            attempt = Attempt(self.effect, margin, budget, self.solver, deadline)
            best = attempt.run()
            if best.values is not None or not np.isfinite(budget):
                return best
            if time.monotonic() > deadline:
                return attempt.beyond
            budget = min(2 * budget, max(attempt.beyond.cost, budget) * (1 + DUST) + DUST)

    def _proper(self, amounts: _Array) -> Found | None:
        """The point that amounts lead to, as the space has it and the model sees it; None if that is not valid."""
        search, task = self.search, self.search.task
        wish, point = self.moves.numbers(search.input, amounts), search.input.copy()
        for i in np.flatnonzero(wish != point).tolist():
            feature, own = task.space.features[i], search.input[i : i + 1]
            point[i : i + 1] = feature.snapped(wish[i : i + 1], own)
            if not feature.allows(point[i : i + 1], own).all():
                return None
        margin = float(task.margins(point[None], search.target)[0])
        expected, size = self.effect.margin(amounts)
        if not abs(margin - expected) <= AGREEMENT * size:
            raise Unsupported(
                "MilpSource needs every feature to enter the model by itself and along straight lines, but the model "
                f"gives row {search.row} of `X`, changed, a margin of {margin:g} instead of {expected:g}; {INSTEAD}"
            )
        fine = margin > 0 if self.strict else margin >= 0
        if not fine or not search.is_different(point):
            return None
        return Found(point, margin, max(margin, expected) + 2 * MISS * size, self.effect.cost(amounts)[0])


def _none(most: float, search: Search) -> str:
    beside = " that differs from those found" if search.avoid else ""
    return f"it is proved that no allowed change{beside} leads to {search.target!r}: no margin exceeds {at_most(most)}"
