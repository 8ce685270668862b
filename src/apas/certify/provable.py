"""What is proved for every shift, and which shift breaks a row just beyond it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.corner import worst_corners
from apas.bounds.interval import is_exact
from apas.bounds.radius import provable_radius
from apas.certify.claims import Every
from apas.certify.maxshifts import MaxShift
from apas.certify.problem import Problem
from apas.errors import Unsupported
from apas.models.feedforward import FeedForward
from apas.models.margins import class_indices, valid

__all__ = ["proved_deltas", "valid_at", "worst_case"]

_Array = NDArray[np.float64]


def proved_deltas(problem: Problem, network: FeedForward | None, limit: float) -> tuple[_Array, _Array, _Array]:
    """Per row the proved delta, the least one that could not be proved, and the least one known to break."""
    if network is None:
        return np.zeros(len(problem)), np.full(len(problem), np.inf), np.full(len(problem), np.inf)
    wanted = class_indices(network.classes, problem.one_target, len(problem))
    proved, open_end = provable_radius(network, problem.X, wanted, problem.radii, limit)
    broken = np.full(len(problem), np.inf)
    rows = np.flatnonzero(np.isfinite(open_end))
    beyond = np.maximum(open_end[rows] * (1 + 1e-9), 1e-300)
    corners = worst_corners(network, problem.X[rows], wanted[rows], problem.radii, beyond) if len(rows) else None
    if corners is not None:
        fails = ~valid_at(problem.take(rows), corners, beyond)
        broken[rows[fails]] = beyond[fails]
    return proved, open_end, broken


def valid_at(problem: Problem, directions: _Array, delta: _Array) -> NDArray[np.bool_]:
    """Whether each row is valid on a shifted model of its own, evaluated outside the search that found it."""
    margins = np.empty(len(problem))
    for start in range(0, len(problem), 32):
        part = problem.take(slice(start, start + 32))
        moved = directions[start : start + 32] * delta[start : start + 32, None]
        margins[start : start + 32] = np.diag(part.shifts.margins(part.model, part.X, part.target, moved, 1.0))
    return valid(margins, problem.strict)


def worst_case(problem: Problem, network: FeedForward | None, claim: Every, limit: float) -> list[MaxShift]:
    """Algorithm 4: the largest delta at which every shift is proved to keep the class."""
    if network is None:
        raise Unsupported(
            'worst-case methods need a dense network and LinfShifts; use method="sampling", which takes every model.'
        )
    proved, _, broken = proved_deltas(problem, network, limit)
    answers = []
    for i, (low, high) in enumerate(zip(proved, broken, strict=True)):
        ended = bool(low == limit)
        exact = is_exact(network) and (ended or bool(high <= low * (1 + 1e-6) + 1e-12))
        reason = "never fails up to the limit" if ended else "proved by interval arithmetic"
        reason += ", and just beyond it a shift fails" if exact and not ended else ""
        trace = {"method": "interval", "claim": "every shift up to delta"}
        answers.append(
            MaxShift(
                float(low), float(high), float(low), float(high), exact, ended, claim, problem.target[i], reason, trace
            )
        )
    return answers
