"""The largest delta at which every shift of the box is proved to keep the class.

The least margin never rises with delta, so the predicate "proved at delta" is bracketed and the bracket closed by the
secant method, with bisection as a safeguard. What is returned is the end that was proved.
"""

from __future__ import annotations

import numpy as np

from apas._typing import Floats
from apas.worst_case.intervals import Boxes

#: Relative width at which a bracket counts as closed, and how many evaluations that may take.
CLOSED, STEPS = 1e-12, 200


def provable_radius(boxes: Boxes, limit: float) -> tuple[Floats, Floats]:
    """Bracket per row the largest delta up to `limit` that interval arithmetic proves."""
    rows = len(boxes.X)
    low, high = np.zeros(rows), np.full(rows, float(limit))
    at_low, at_high = boxes.bound(low), boxes.bound(high)
    proved_all = at_high > 0
    if proved_all.any():
        proved_all = at_high - boxes.error(high) > 0
    refused = ~(at_low - boxes.error(low) > 0)
    open_rows = np.flatnonzero(~refused & ~proved_all)
    if len(open_rows):
        part = boxes if len(open_rows) == rows else boxes.take(open_rows)
        low[open_rows], high[open_rows] = _close(part, float(limit), at_low[open_rows], at_high[open_rows])
    low[proved_all] = limit
    high[proved_all] = np.inf
    high[refused & ~proved_all] = 0.0
    return low, high


def cut_last_bits(deltas: Floats) -> Floats:
    """Deltas cut down to 37 bits: the last ones, which depend on what rows are asked about together, do not show.

    It takes away about what the allowance for rounding does, so that what is left is proved as a rule.
    """
    fraction, exponent = np.frexp(deltas * (1 - 2.0**-40))
    return np.ldexp(np.floor(fraction * 2.0**37) / 2.0**37, exponent)


def _close(boxes: Boxes, limit: float, at_low: Floats, at_high: Floats) -> tuple[Floats, Floats]:
    """Narrow the brackets [0, limit] of all rows around the largest proved delta.

    The root of the bound as computed is found first; then the allowance for rounding, whose effect is tiny, is taken
    into account by stepping down from it.
    """
    low, high = _root(boxes, limit, at_low, at_high)
    proved = cut_last_bits(low)
    start, step = proved.copy(), 2.0**-36
    for _ in range(20):
        failing = ~(boxes.bound(proved) - boxes.error(proved) > 0)
        if not failing.any():
            break
        proved[failing] = start[failing] * (1 - step)
        step = min(8 * step, 1.0)
    else:
        proved[failing] = 0.0
    return proved, high


def _root(boxes: Boxes, limit: float, at_low: Floats, at_high: Floats) -> tuple[Floats, Floats]:
    """Bracket the root of the bound as computed; it is above 0 at the lower end and not at the upper one."""
    low, high = np.zeros(len(at_low)), np.full(len(at_low), limit)
    # an output bias that moves makes the bound fall by at least its reach, wherever the root is
    fall = np.minimum.reduce([terms[3] for terms in boxes.outputs])
    with np.errstate(divide="ignore"):
        high = np.minimum(high, at_low * (1 + 1e-9) / fall)
    at_high = np.where(high < limit, np.minimum(boxes.bound(high), 0.0), at_high)
    before, value_before, point, value = low, at_low, high, at_high
    with np.errstate(divide="ignore", invalid="ignore"):
        for step in range(STEPS):
            if step % 10 < 8:  # the secant through the last two points, or half of the bracket where it leaves that
                following = point - value * (point - before) / (value - value_before)
                following = np.where((following > low) & (following < high), following, 0.5 * (low + high))
            else:  # after so many steps it is next to the root: look on either side, then begin again
                following = point * (1 + (0.4 if step % 10 == 9 else -0.4) * CLOSED)
                following = np.where((following > low) & (following < high), following, 0.5 * (low + high))
            before, value_before, point, value = point, value, following, boxes.bound(following)
            up = value > 0
            wide = high - low > CLOSED * high  # a closed bracket stays as it is, whatever other rows still need
            low, high = np.where(up & wide, point, low), np.where(~up & wide, point, high)
            if step >= 6 and not (high - low > CLOSED * high).any():
                break
    return low, high
