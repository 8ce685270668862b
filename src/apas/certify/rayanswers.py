"""From first failures along rays to the largest certified shift: the order statistic, in words and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.claims import Most
from apas.certify.gridsearch import crossings, lay_grid
from apas.certify.maxshifts import MaxShift
from apas.certify.problem import Problem
from apas.certify.provable import first_break
from apas.certify.raysearch import RATIO, Found, has_exact_roots, last_rung, rung_value, smallest_failures
from apas.display.progress import Progress
from apas.models.feedforward import FeedForward

__all__ = ["along_rays"]

_Array = NDArray[np.float64]
#: How much a root is taken to be smaller than computed: "valid below D" says nothing about D itself.
BELOW = 1 - 1e-9
#: How many rows of a model that can only be asked for margins are looked at together.
TOGETHER = 64


def along_rays(
    problem: Problem, network: FeedForward | None, claim: Most, entropy: int, plan: tuple[int, int, int], limit: float,
    proved: _Array, broken: _Array,
) -> list[MaxShift]:  # fmt: skip
    """The order statistic of first failures along rays, as an answer per row.

    `plan` holds the number of rays, of failures that certify and of failures that refute.
    """
    stream = Stream(entropy, "max_shift/rays")
    samples, allowed, refuting = plan
    trace: dict[str, Any] = {
        "search": "rays",
        "entropy": hex(entropy),
        "samples": samples,
        "allowed": allowed,
        "refuting": refuting,
    }
    if network is None:
        return _rays_on_grid(problem, claim, entropy, plan, limit, trace)
    start = np.where(proved > 0, proved, limit * 1e-6)
    exact = has_exact_roots(network)
    trace |= {"claim": "pathwise", "exact_roots": exact}
    answers = []
    for i, found in enumerate(_in_parallel(problem, network, stream, samples, refuting, limit, start)):
        grid = {} if exact else {"rungs_from": float(start[i]), "rungs_ratio": RATIO}
        enough = len(found.radii) > allowed
        refuted = len(found.sure) >= refuting
        if exact:
            way = "along the whole way up to delta"
            delta = float(found.radii[allowed]) * BELOW if enough else limit
            upper = float(found.sure[refuting - 1]) / BELOW if refuted else np.inf
        else:
            way = f"at every grid value (ratio {RATIO}) up to delta"
            delta = _rung_before(start[i], float(found.radii[allowed]), limit) if enough else limit
            upper = float(found.sure[refuting - 1]) if refuted else np.inf
        reason = f"{way}{'' if enough else ', which is the limit'}: at most {allowed} of {samples} rays failed before"
        if delta <= proved[i]:
            delta = float(proved[i])
            reason = (
                "proved for every shift" if delta else "within rounding of the boundary, where nothing is certified"
            )
        breaks = float(broken[i])
        if np.isinf(breaks) and found.draw is not None:
            breaks = _confirmed_break(problem, i, stream, found)
        answers.append(
            MaxShift(
                delta,
                max(upper, delta),
                float(proved[i]),
                breaks,
                False,
                delta >= limit,
                claim,
                problem.target[i],
                reason,
                {**trace, **grid},
            )
        )
    return answers


def _rung_before(start: float, value: float, limit: float) -> float:
    """The rung before one that failed; 0 before the first."""
    rung = int(last_rung(np.array([start]), np.array([value]), limit)[0])
    return float(rung_value(start, rung - 1, limit)) if rung else 0.0


def _in_parallel(
    problem: Problem, network: FeedForward, stream: Stream, samples: int, rank: int, limit: float, start: _Array
) -> list[Any]:
    if problem.n_jobs == 1 or len(problem) == 1:
        return smallest_failures(problem, network, stream, samples, rank, limit, start)
    from joblib import Parallel, delayed, effective_n_jobs

    parts = np.array_split(np.arange(len(problem)), min(len(problem), effective_n_jobs(problem.n_jobs)))
    work = (
        delayed(smallest_failures)(problem.take(rows), network, stream, samples, rank, limit, start[rows])
        for rows in parts
    )
    return [found for part in Parallel(n_jobs=problem.n_jobs)(work) for found in part]


def _confirmed_break(problem: Problem, row: int, stream: Stream, found: Found) -> float:
    """Where the first ray clearly fails, if the model itself agrees that it does."""
    draw, delta = int(found.draw or 0), float(found.sure[0])
    direction = problem.shifts.directions(problem.model.parameters, stream, draw, draw + 1)
    one = problem.take(slice(row, row + 1))
    return float(first_break(one, direction, np.array([delta]))[0])


def _rays_on_grid(
    problem: Problem, claim: Most, entropy: int, plan: tuple[int, int, int], limit: float, trace: dict[str, Any]
) -> list[MaxShift]:
    """The same for models that can only be asked for margins, some rows at a time."""
    answers: list[MaxShift] = []
    trace = {**trace, "claim": "pathwise", "exact_roots": False}
    with Progress(len(problem), "looking along rays") as progress:
        for begin in range(0, len(problem), TOGETHER):
            part = problem.take(slice(begin, begin + TOGETHER))
            answers += _grid_answers(part, claim, entropy, plan, limit, trace)
            progress.advance(len(part))
    return answers


def _grid_answers(
    problem: Problem, claim: Most, entropy: int, plan: tuple[int, int, int], limit: float, trace: dict[str, Any]
) -> list[MaxShift]:
    samples, allowed, refuting = plan
    grid = lay_grid(problem, claim, entropy, samples, limit, np.zeros(len(problem)))
    found = crossings(problem, Stream(entropy, "max_shift/rays"), grid, samples, (allowed + 1, refuting))
    rungs = grid.shape[1]
    answers = []
    for i, (certify_at, refute_at) in enumerate(found):
        delta = float(grid[i, certify_at - 1]) if certify_at else 0.0
        upper = float(grid[i, refute_at]) if refute_at < rungs else np.inf
        ended = bool(certify_at == rungs)
        reason = f"at every grid value up to delta{', which is the limit' if ended else ''}"
        reason += f": at most {allowed} of {samples} rays failed before"
        if not delta:
            reason = f"more than {allowed} of {samples} rays failed at the first grid value already"
        answers.append(
            MaxShift(
                delta=delta,
                upper=max(upper, delta),
                provable=0.0,
                broken_at=float("inf"),
                exact=False,
                reached_limit=ended,
                claim=claim,
                target=problem.target[i],
                reason=reason,
                trace={**trace, "rungs": np.unique(grid[i, :certify_at]).tolist()},
            )
        )
    return answers
