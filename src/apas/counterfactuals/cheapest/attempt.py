"""One attempt at the cheapest point that has a margin, within a limit of the cost."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.cheapest.branching import Best, by_solver, least_cost
from apas.counterfactuals.cheapest.effect import DUST, Effect
from apas.counterfactuals.cheapest.program import TIE, cheapest_program
from apas.counterfactuals.cheapest.ranges import Reach, unit_ranges
from apas.counterfactuals.cheapest.relaxed import Relaxed
from apas.counterfactuals.cheapest.sheet import Mixed
from apas.counterfactuals.cheapest.tightening import climbed, improved, tightened

__all__ = ["MISS", "Attempt"]

_Array = NDArray[np.float64]
_Ranges = list[tuple[_Array, _Array]]
#: How far a point may miss its margin, in units of what the margin is a sum of.
MISS = 1e-7
#: By what a change is stretched that does not go far enough.
STRETCHES = np.array([1.01, 1.03, 1.07, 1.15, 1.3, 1.6, 2.0, 3.0, 5.0])
#: Linear programs for a program as it is, and after its ranges were tightened.
EASY, HARD = 60, 2000
#: How often ranges are tightened at most, and what part of the units must settle to do it once more.
ROUNDS, WORTHWHILE = 5, 0.1


@dataclass
class Attempt:
    """The search for the cheapest point with a margin, within a limit of the cost.

    Attributes
    ----------
    effect : Effect
    margin : float
    budget : float
        The limit; it falls to the cost of what is found.
    relaxed : Relaxed
    deadline : float
    beyond : Best
        The cheapest point that was come across beyond the limit.
    """

    effect: Effect
    margin: float
    budget: float
    relaxed: Relaxed
    deadline: float
    beyond: Best = field(default_factory=Best)

    def run(self) -> Best:
        """The cheapest point within the limit; beyond it, if one was met there and is no worse than any other."""
        best = self._least(self._program(), EASY, Best())
        if best.complete:
            return best
        if best.values is None:
            best = self._started()
        if best.values is not None:
            best = self._improved(best)
        program = self._tightened()
        if program is None:
            return best
        best = self._least(program, HARD, best)
        return best if best.complete else by_solver(program, self.accept, best, self.deadline)

    def _least(self, program: Mixed, nodes: int, start: Best) -> Best:
        return least_cost(program, self.accept, start=start, nodes=nodes, deadline=self.deadline, relaxed=self.relaxed)

    def accept(self, values: _Array) -> tuple[_Array, float] | None:
        """The point that values stand for, or one beyond it, if it has the margin and is within the limit."""
        amounts = self.effect.rounded(values)
        if amounts is None:
            return None
        reached, size = self.effect.margin(amounts)
        if not reached >= self.margin - MISS * size:
            stretched = self._stretched(amounts)
            if stretched is None:
                return None
            amounts = stretched
        cost = self._cost(amounts)
        if cost <= self._limit:
            return amounts, cost
        if cost < self.beyond.cost:  # there may be cheaper ones that are beyond the limit as well
            self.beyond = Best(amounts, cost)
        return None

    @property
    def _limit(self) -> float:
        slack = 0.0 if self.effect.distance == "l1" else TIE * len(self.effect.moves)
        return self.budget * (1 + DUST) + DUST + slack

    def _stretched(self, amounts: _Array) -> _Array | None:
        moves = self.effect.moves
        longer = np.where(moves.integer, amounts, np.minimum(STRETCHES[:, None] * amounts, moves.top))
        far = np.flatnonzero(self.effect.margins(longer)[0] >= self.margin)
        return longer[far[0]] if len(far) else None

    def _program(self, ranges: _Ranges | None = None) -> Mixed:
        effect = self.effect
        return cheapest_program(effect.net, self._reach, effect.goal, self.margin, tuple(effect.avoid), ranges)

    @property
    def _reach(self) -> Reach:
        return Reach(self.effect.moves, self.budget, self.effect.distance)

    def _started(self) -> Best:
        """Some point, within the limit or not."""
        amounts = None if self.beyond.values is not None else climbed(self.effect, self.margin, self.deadline)
        return self.beyond if amounts is None else Best(amounts, self._cost(amounts))

    def _cost(self, amounts: _Array) -> float:
        """What the program says that amounts cost."""
        cost, total = self.effect.cost(amounts)
        return cost if self.effect.distance == "l1" else cost + TIE * total

    def _improved(self, best: Best) -> Best:
        """A cheaper point near a point, which also becomes the limit."""
        self.budget = best.cost
        best = improved(self._program(), self.effect, self.accept, best, self.relaxed, self.deadline)
        self.budget = best.cost
        return best

    def _tightened(self) -> Mixed | None:
        """The program with ranges that take it into account; None if that leaves nothing."""
        ranges = unit_ranges(self.effect.net, self._reach)
        program = self._program(ranges)
        for _ in range(ROUNDS):
            narrower = tightened(program, ranges, self.relaxed, self.deadline)
            if narrower is None:
                return None
            ranges, before = narrower, program.integer.sum()
            program = self._program(ranges)
            if program.integer.sum() > (1 - WORTHWHILE) * before:
                break
        return program
