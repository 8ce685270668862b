"""Going through drawn shifts in blocks of bounded memory, and noting which ones fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.problem import Problem
from apas.display.progress import Progress

__all__ = ["Failures", "first_failures"]

#: How many random numbers are held at a time.
NUMBERS = 1 << 17
#: How many draws and rows are looked at together at most.
DRAWS, ROWS = 2048, 4096
#: With more rows than this, fewer draws at a time keep the intermediate results in the processor's cache.
FEW_ROWS, DRAWS_MANY_ROWS = 8, 256
#: Blocks start at multiples of this, where whole groups of directions are drawn at once.
ALIGN = 128
# glibc gives the memory of a block back to the system as soon as it is freed, and taking it again costs more than the
# arithmetic. It stops doing so for sizes that it has seen freed before: let it see one, of which no page is touched.
np.empty(1 << 20)


@dataclass(frozen=True)
class Failures:
    """The first failing draws of each row.

    Attributes
    ----------
    draws : ndarray of int
        Numbers of the failing draws, sorted by row, then by draw.
    sure : ndarray of bool
        Whether the margin was beyond rounding of 0.
    starts : ndarray of int, shape (rows + 1,)
        Where the entries of each row begin.
    """

    draws: NDArray[np.int64]
    sure: NDArray[np.bool_]
    starts: NDArray[np.intp]

    def any(self, row: int) -> bool:
        """Whether the row has any failing draw."""
        return bool(self.starts[row] < self.starts[row + 1])

    def of(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Failing draws of one row and whether they are sure."""
        part = slice(self.starts[row], self.starts[row + 1])
        return self.draws[part], self.sure[part]


def first_failures(problem: Problem, stream: Stream, samples: int, limit: int, sure_limit: int) -> Failures:
    """The first failing draws of each row among draws number 0 to `samples`.

    At least up to the one that makes `limit` failures, or `sure_limit` beyond rounding of 0, and at most `limit`.

    Block sizes, the other rows and the number of workers do not change the answer: a draw is a pure function of its
    number, and a margin within rounding of 0 counts as failing whatever its sign.
    """
    block = block_size(problem)
    with Progress(samples, "drawing shifted models") as progress:
        if problem.n_jobs == 1 or samples <= block:
            parts = [_scan(problem, stream, 0, samples, (limit, sure_limit), block, progress)]
        else:
            parts = _scan_in_parallel(problem, stream, samples, (limit, sure_limit), block, progress)
    rows, draws, sure = join(parts)
    if not len(rows):
        return Failures(draws, sure, np.zeros(len(problem) + 1, dtype=np.intp))
    order = np.lexsort((draws, rows))
    rows, draws, sure = rows[order], draws[order], sure[order]
    starts = np.searchsorted(rows, np.arange(len(problem) + 1))
    keep = np.arange(len(rows)) - starts[rows] < limit
    return Failures(draws[keep], sure[keep], np.searchsorted(rows[keep], np.arange(len(problem) + 1)))


def block_size(problem: Problem) -> int:
    """How many draws to look at together: few enough to bound the memory, enough to be fast."""
    fits = NUMBERS // max(1, len(problem.coordinates))
    most = DRAWS if len(problem) <= FEW_ROWS else DRAWS_MANY_ROWS
    return min(most, fits // ALIGN * ALIGN) if fits >= ALIGN else max(1, fits)


_Part = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.bool_]]


def _scan(
    problem: Problem,
    stream: Stream,
    start: int,
    stop: int,
    limits: tuple[int, int],
    block: int,
    progress: Progress | None,
) -> _Part:
    failed = np.zeros((2, len(problem)), dtype=np.int64)  # all failures, and those beyond rounding
    active = np.arange(len(problem))
    found: list[_Part] = [_NOTHING]
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        # a whole group of directions costs no more than a part of it, and needs no copy
        whole = -(-end // ALIGN) * ALIGN if block >= ALIGN else end
        directions = problem.directions(stream, begin, whole)
        for chunk in range(0, len(active), ROWS):
            rows = active[chunk : chunk + ROWS]
            column, sample, sure = _failing(problem, rows, directions, end - begin)
            if len(column):
                found.append((rows[column], begin + sample, sure))
                failed[0] += np.bincount(rows[column], minlength=len(problem))
                failed[1] += np.bincount(rows[column[sure]], minlength=len(problem))
        if len(found) > 1:
            active = active[(failed[0, active] < limits[0]) & (failed[1, active] < limits[1])]
            if not len(active):
                break
        if progress is not None:
            progress.advance(end - begin)
    return join(found)


def join(parts: list[_Part]) -> _Part:
    """The entries of several scans, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _failing(problem: Problem, rows: NDArray[np.intp], directions: NDArray[np.float64], count: int) -> _Part:
    """Row and sample of each margin that is not clearly positive, and whether it is clearly not.

    Only the first `count` directions are asked about.
    """
    some = slice(None) if len(rows) == len(problem) else rows
    band, margins = problem.band[some], problem.margins(directions, some)[:count]
    good = margins > band  # written so that a NaN fails
    if good.all():
        return _NOTHING
    sample, column = np.nonzero(~good)
    return column, sample, ~(margins[sample, column] >= -band[column])


_NOTHING: _Part = (np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool))


def _scan_in_parallel(
    problem: Problem, stream: Stream, samples: int, limits: tuple[int, int], block: int, progress: Progress
) -> list[_Part]:
    from joblib import Parallel, delayed, effective_n_jobs

    # a few parts per worker, so that a slow one does not hold up the rest; each part is a whole number of blocks
    parts = min(-(-samples // block), 4 * effective_n_jobs(problem.n_jobs))
    size = -(-samples // (parts * block)) * block
    ranges = [(a, min(a + size, samples)) for a in range(0, samples, size)]
    work = Parallel(n_jobs=problem.n_jobs, return_as="generator")
    results = []
    for (a, b), part in zip(
        ranges,
        work(delayed(_scan)(problem, stream, a, b, limits, block, None) for a, b in ranges),
        strict=True,
    ):
        results.append(part)
        progress.advance(b - a)
    return results
