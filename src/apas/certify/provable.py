"""What is proved for every shift, and which shift breaks a row just beyond it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.corner import worst_corner
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
    for i in np.flatnonzero(np.isfinite(open_end) & is_exact(network)):
        delta = float(open_end[i]) * (1 + 1e-9) if open_end[i] else 1e-12
        corner = worst_corner(network, problem.X[i], int(wanted[i]), problem.radii, delta)
        if corner is not None and not valid_at(problem, int(i), corner, delta):
            broken[i] = delta
    return proved, open_end, broken


def valid_at(problem: Problem, row: int, direction: _Array, delta: float) -> bool:
    """Whether a row is valid on one shifted model, evaluated outside the search that found it."""
    one = problem.take(slice(row, row + 1))
    margin = problem.shifts.margins(problem.model, one.X, one.target, direction[None, :], delta)
    return bool(valid(margin[0], one.strict)[0])


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
        trace = {"method": "interval"}
        answers.append(
            MaxShift(
                float(low), float(high), float(low), float(high), exact, ended, claim, problem.target[i], reason, trace
            )
        )
    return answers
