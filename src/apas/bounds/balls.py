"""Least margins while all parameters together move by at most delta in an L_p norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.ballslopes import BallSlopes
from apas.models.feedforward import FeedForward

_Array = NDArray[np.float64]
COARSE, FINE = 16, 64

def integral_radius(balls: BallSlopes, limit: float) -> _Array:
    start, slope = balls.at(np.zeros(len(balls.X)))
    top = np.where(start > 0, np.minimum(limit, start / slope * (1 + 1e-9)), 0.0)
    proved = walk(balls, start, top, COARSE)
    top = np.minimum(top, 1.25 * proved)
    return np.maximum(proved, walk(balls, start, top, FINE))

def walk(balls, start, top, steps):
    bound, before = start, np.zeros(len(start))
    proved = np.zeros(len(start)); alive = (start > 0) & (top > 0)
    for i in range(1, steps + 1):
        radius = top * (i / steps)
        least, slope = balls.at(radius)
        after = np.fmax(np.nextafter(bound - (radius - before) * slope * (1 + 2.0**-50), -np.inf), least)
        ends = alive & ~(after > 0)
        proved[ends] = np.minimum((before + bound / slope) * (1 - 2.0**-50), radius)[ends]
        alive &= ~ends
        proved[alive] = radius[alive]
        bound, before = after, radius
        if not alive.any(): break
    return proved
