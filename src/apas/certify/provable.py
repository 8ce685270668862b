"""What is proved for every shift, and which shift breaks a row just beyond it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.corner import worst_corners
from apas.bounds.interval import Boxes, is_exact
from apas.bounds.radius import provable_radius
from apas.certify.claims import Every
from apas.certify.maxshifts import MaxShift
from apas.certify.problem import Problem
from apas.errors import Unsupported
from apas.models.feedforward import FeedForward
from apas.models.margins import class_indices, valid

__all__ = ["proved_deltas", "valid_at", "worst_case"]

_Array = NDArray[np.float64]
#: How many rows are evaluated on their own shifted models together: each sees all of them, and one counts.
TOGETHER = 64


def proved_deltas(problem: Problem, network: FeedForward | None, limit: float) -> tuple[_Array, _Array, _Array]:
    """Per row the proved delta, the least one that could not be proved, and the least one known to break."""
    if network is None:
        return np.zeros(len(problem)), np.full(len(problem), np.inf), np.full(len(problem), np.inf)
    wanted = class_indices(network.classes, problem.one_target, len(problem))
    boxes = Boxes(network, problem.X, wanted, problem.radii)
    proved, open_end = provable_radius(boxes, limit)
    broken = np.full(len(problem), np.inf)
    rows = np.flatnonzero(np.isfinite(open_end))
    beyond = np.maximum(open_end[rows] * (1 + 1e-9), 1e-300)
    every = len(rows) == len(problem)
    corners = worst_corners(boxes if every else boxes.take(rows), beyond) if len(rows) else None
    if corners is not None:
        fails = ~valid_at(problem if every else problem.take(rows), corners, beyond)
        broken[rows[fails]] = beyond[fails]
    return proved, open_end, broken


def valid_at(problem: Problem, directions: _Array, delta: _Array) -> NDArray[np.bool_]:
    """Whether each row is valid on a shifted model of its own, evaluated outside the search that found it."""
    margins = np.empty(len(problem))
    for start in range(0, len(problem), TOGETHER):
        part = problem if len(problem) <= TOGETHER else problem.take(slice(start, start + TOGETHER))
        moved = directions[start : start + TOGETHER] * delta[start : start + TOGETHER, None]
        margins[start : start + TOGETHER] = np.diag(
            part.shifts.margins(part.model, part.X, part.one_target, moved, 1.0)
        )
    return valid(margins, problem.strict)


def worst_case(problem: Problem, network: FeedForward | None, claim: Every, limit: float) -> list[MaxShift]:
    """Algorithm 4: the largest delta at which every shift is proved to keep the class."""
    if network is None:
        raise Unsupported(
            'worst-case methods need a dense network and LinfShifts; use method="sampling", which takes every model.'
        )
    proved, _, broken = proved_deltas(problem, network, limit)
    ended = proved == limit
    exact = is_exact(network) & (ended | (broken <= proved * (1 + 1e-6) + 1e-12))
    trace = {"method": "interval", "claim": "every shift up to delta"}
    reasons = {
        (True, True): "never fails up to the limit",
        (True, False): "never fails up to the limit",
        (False, True): "proved by interval arithmetic, and just beyond it a shift fails",
        (False, False): "proved by interval arithmetic",
    }
    columns = (v.tolist() for v in (proved, broken, exact, ended))
    return [
        MaxShift(low, high, low, high, sharp, all_way, claim, target, reasons[all_way, sharp], trace)
        for low, high, sharp, all_way, target in zip(*columns, problem.target, strict=True)
    ]
