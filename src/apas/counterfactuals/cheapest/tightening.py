"""What makes a program with many units small: a good point early, and ranges that take its cost into account.

Within the cost of a good point, and with the margin that is asked for, most units can only be on one side of their
kinks. How far each can go is a linear program; where that settles a unit, the others are settled more easily.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.cheapest.branching import Accept, Best, least_cost
from apas.counterfactuals.cheapest.effect import Effect
from apas.counterfactuals.cheapest.relaxed import Relaxed
from apas.counterfactuals.cheapest.sheet import Mixed

__all__ = ["climbed", "improved", "tightened"]

_Array = NDArray[np.float64]
_Ranges = list[tuple[_Array, _Array]]
#: Units that may change sides in one step of an improvement, linear programs for it, and steps.
FREE, NODES, STEPS = 8, 60, 12
#: Ranges are wider than what was proved by this part.
OUTWARD = 1e-9
#: How much of what is left of a column is tried in one step of a climb, and how many steps there are.
PARTS, CLIMB = (0.1, 0.3, 1.0), 200


def climbed(effect: Effect, margin: float, deadline: float) -> _Array | None:
    """Amounts with a margin, not cheap: one column after the other, always the one that brings most for its cost.

    None if no single step brings anything before the margin is reached.
    """
    moves = effect.moves
    amounts, paid = np.zeros(len(moves)), 0.0
    reached = effect.margin(amounts)[0]
    for _ in range(CLIMB):
        if reached >= margin or time.monotonic() > deadline:
            break
        steps = _steps(effect, amounts)
        gains = effect.margins(steps)[0] - reached
        costs = np.array([effect.cost(step)[0] for step in steps]) - paid
        far = np.flatnonzero(gains >= margin - reached)
        if len(far):
            amounts = steps[far[costs[far].argmin()]]
        else:
            worth = np.where(gains > 0, gains / np.maximum(costs, 1e-9), 0.0)
            if not worth.max(initial=0.0) > 0:
                return None
            amounts = steps[worth.argmax()]
        reached, paid = effect.margin(amounts)[0], effect.cost(amounts)[0]
    return amounts if reached >= margin else None


def _steps(effect: Effect, amounts: _Array) -> _Array:
    """Rows of amounts that differ from some in one column, and in what it excludes or needs."""
    moves, found = effect.moves, []
    for column in range(len(moves)):
        for part in PARTS:
            step = amounts.copy()
            rest = part * (moves.top[column] - amounts[column])
            step[(moves.feature == moves.feature[column]) & (np.arange(len(moves)) != column)] = 0.0
            step[column] += np.ceil(rest) if moves.integer[column] else rest
            if moves.parent[column] >= 0:
                step[moves.parent[column]] = 1.0
            kept = effect.rounded(step)
            if kept is not None and (kept != amounts).any():
                found.append(kept)
    return np.array(found).reshape(-1, len(moves))


def improved(
    program: Mixed, effect: Effect, accept: Accept, best: Best, relaxed: Relaxed, deadline: float
) -> Best:  # fmt: skip
    """Walk from a point to cheaper ones, while only the units that are closest to their kinks may change sides."""
    switches = program.switches
    if switches is None or best.values is None:
        return best
    for _ in range(STEPS):
        layers = effect.arguments(best.values)
        beyond = switches.sign * (
            np.array([layers[i][k] for i, k in zip(switches.layer, switches.unit, strict=True)]) - switches.kink
        )
        fixed = np.argsort(np.abs(beyond) / switches.width)[FREE:]
        low, high = program.low.copy(), program.high.copy()
        low[switches.column[fixed]] = high[switches.column[fixed]] = (beyond[fixed] >= 0).astype(float)
        part = replace(program, low=low, high=high)
        further = least_cost(part, accept, start=best, nodes=NODES, deadline=deadline, relaxed=relaxed)
        if not further.cost < best.cost * (1 - 1e-6):
            break
        best = further
    return best


def tightened(program: Mixed, ranges: _Ranges, relaxed: Relaxed, deadline: float) -> _Ranges | None:
    """Ranges of the units that could be on either side, as narrow as the program proves; None if it has no point."""
    switches = program.switches
    found = [(low.copy(), high.copy()) for low, high in ranges]
    if switches is None:
        return found
    relaxed.read(program)
    for i, k, form, const in zip(switches.layer, switches.unit, switches.form, switches.const, strict=True):
        if time.monotonic() > deadline:
            break
        low, high = relaxed.least(form) + const, const - relaxed.least(-form)
        if low > high:
            return None
        spread = OUTWARD * (abs(low) + abs(high))
        found[i][0][k], found[i][1][k] = max(found[i][0][k], low - spread), min(found[i][1][k], high + spread)
    return found
