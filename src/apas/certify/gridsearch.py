"""First failures along rays on a grid, for models that can only be asked for margins.

The grid of a row is laid by a pilot on a stream of its own: coarse below the pilot's answer, fine around it, coarse
again up to the limit. It is fixed before the certifying rays are drawn; a finer grid where *these* draws look promising
would be a selection.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.claims import Most
from apas.certify.problem import Problem
from apas.certify.scan import block_size
from apas.certify.searches import LEAST, candidates

__all__ = ["crossings", "lay_grid"]

_Array = NDArray[np.float64]
#: Shares of the pilot's answer below and around it, and how fast the grid grows beyond.
COARSE, FINE, BEYOND = (0.05, 0.1, 0.2, 0.4, 0.6, 0.7), 1.02, 1.3


def lay_grid(problem: Problem, claim: Most, entropy: int, samples: int, limit: float, floor: _Array) -> _Array:
    """Grid of each row, ascending and ending at `limit`, shape (rows, rungs)."""
    centre = candidates(problem, claim, Stream(entropy, "max_shift/pilot"), samples, limit, floor)
    centre = np.maximum(centre, limit * LEAST)
    fine = 0.8 * FINE ** np.arange(int(np.ceil(np.log(2.0) / np.log(FINE))) + 1)
    far = fine[-1] * BEYOND ** np.arange(1, 40)
    grid = np.minimum(centre[:, None] * np.concatenate([COARSE, fine, far]), limit)
    grid[:, -1] = limit
    return np.asarray(np.maximum(grid, floor[:, None]))


def crossings(problem: Problem, stream: Stream, grid: _Array, samples: int, ranks: tuple[int, int]) -> NDArray[np.intp]:
    """Number of the first rung at which as many rays have failed, there or before, as each rank says.

    Shape (rows, 2); the grid's length if there is no such rung. The first rank counts rays that are not clearly valid,
    the second those that clearly fail.
    """
    rungs = grid.shape[1]
    found = np.full((len(problem), 2), rungs)
    failed = np.zeros((2, len(problem), samples), dtype=bool)  # not clearly valid, and clearly failing
    rows = np.arange(len(problem))
    for rung in range(rungs):
        part = replace(problem.take(rows), delta=grid[rows, rung])
        failed[:, rows] |= _failing(part, stream, samples)
        counts = failed[:, rows].sum(axis=2)
        for k, rank in enumerate(ranks):
            hit = rows[(counts[k] >= rank) & (found[rows, k] == rungs)]
            found[hit, k] = rung
        rows = rows[(counts[0] < ranks[0]) | (counts[1] < ranks[1])]
        if not len(rows):
            break
    return found


def _failing(problem: Problem, stream: Stream, samples: int) -> NDArray[np.bool_]:
    """Which draws are not clearly valid, and which clearly fail, at each row's delta; shape (2, rows, samples)."""
    failing = np.empty((2, len(problem), samples), dtype=bool)
    block = block_size(problem)
    for begin in range(0, samples, block):
        end = min(begin + block, samples)
        margins = problem.margins(problem.directions(stream, begin, end))
        failing[0, :, begin:end] = ~(margins > problem.band).T
        failing[1, :, begin:end] = ~(margins >= -problem.band).T
    return failing
