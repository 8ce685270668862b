"""`IntervalBounds` and `LinearBounds`: sound answers about every shift in one pass over the network."""

from __future__ import annotations

from dataclasses import dataclass

from apas._random import Stream
from apas.certify.ball import decided_in_ball
from apas.certify.certificate import Certificate
from apas.certify.claims import Every
from apas.certify.problem import Problem
from apas.certify.worstcase import decided, every, unsupported_dense
from apas.shifts.lp import LpShifts

__all__ = ["IntervalBounds", "LinearBounds"]


@dataclass(frozen=True)
class IntervalBounds:
    """Decide `Every` by interval arithmetic, rounded outwards so that the bound holds in real arithmetic.

    Exact for networks with at most one hidden layer, of any activation: there the row is certified, refuted with a
    shift, or within rounding of the boundary. For deeper networks it certifies or says nothing. In a ball of shifts
    (`LpShifts`) the slopes of the margin are bounded by intervals instead; exact where only the output layer moves.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> apas.certify(net, [[2.0, 0.5]], 0.4, target=1, method=apas.IntervalBounds())[0].verdict.name
    'CERTIFIED'
    """

    def claim(self, problem: Problem) -> Every:
        """What the method will speak about."""
        return every(problem)

    def unsupported(self, problem: Problem) -> str | None:
        """None for dense networks in boxes and balls of shifts, else why not."""
        if problem.network is not None and isinstance(problem.shifts, LpShifts):
            return None
        return unsupported_dense(problem, "IntervalBounds")

    def run(self, problem: Problem, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        if isinstance(problem.shifts, LpShifts):
            return decided_in_ball(problem, "interval")
        return decided(problem, "interval", ("interval",))


@dataclass(frozen=True)
class LinearBounds:
    """Decide `Every` by linear bounds with weights and biases as what moves (in the manner of CROWN).

    At least as tight as interval arithmetic, and tighter with two or more hidden layers. Every activation is covered.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]], [[1.0]], [[1.0]]], [[0.0], [0.0], [0.0]])
    >>> apas.certify(net, [[2.0, 0.5]], 0.1, target=1, method=apas.LinearBounds())[0].verdict.name
    'CERTIFIED'
    """

    def claim(self, problem: Problem) -> Every:
        """What the method will speak about."""
        return every(problem)

    def unsupported(self, problem: Problem) -> str | None:
        """None for dense networks in boxes of shifts, else why not."""
        return unsupported_dense(problem, "LinearBounds")

    def run(self, problem: Problem, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        return decided(problem, "linear", ("interval", "linear"))
