"""Failing draws: the shifted models on which rows are not valid, found block by block.

Which draws fail for a row depends neither on the size of blocks nor on the other rows, nor on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from apas._parallel import in_parallel, ranges, workers
from apas._random import Stream
from apas._typing import Bools, Floats, Indices, Integers
from apas.certification.question import Question
from apas.display.progress import Progress
from apas.errors import InputError
from apas.models.base import ROUNDING
from apas.models.feedforward import FeedForward
from apas.shifts.base import Box, in_training_order
from apas.stats.sequential import Boundary
from apas.worst_case.intervals import Boxes, rounding_share

#: How many random numbers are held at a time.
NUMBERS = 1 << 17
#: How many draws and rows are looked at together at most.
DRAWS, ROWS = 2048, 4096
#: With more rows than this, fewer draws at a time keep the intermediate results in the processor's cache.
FEW_ROWS, DRAWS_MANY_ROWS = 8, 256
#: Blocks start at multiples of this, where whole groups of directions are drawn at once.
ALIGN = 128
#: How many draws the anytime test, and at least how many workers together, look at first; a number that no draw has.
FIRST, NEVER = 256, 1 << 62
# glibc gives the memory of a block back to the system as soon as it is freed, and taking it again costs more than the
# arithmetic. It stops doing so for sizes that it has seen freed before: let it see one, of which no page is touched.
np.empty(1 << 20)


_Block: TypeAlias = tuple[int, int, Floats]


@dataclass(frozen=True)
class Failures:
    """The first failing draws of each row."""

    draws: Integers
    sure: Bools
    starts: Indices

    def of(self, row: int) -> tuple[Integers, Bools]:
        """Failing draws of one row and whether they are sure."""
        part = slice(self.starts[row], self.starts[row + 1])
        return self.draws[part], self.sure[part]


def first_failures(question: Question, stream: Stream, samples: int, limit: int, sure_limit: int) -> Failures:
    """The first failing draws of each row, up to `limit` of them or `sure_limit` beyond rounding of 0."""
    return _failures(question, stream, _AtCounts(len(question), limit, sure_limit), 0, samples, limit)


def failures_until_decided(
    question: Question, stream: Stream, test: Boundary, begin: int, cap: int, before: Sequence[tuple[int, int]]
) -> Failures:
    """Failing draws of each row from number `begin` up to the draw that decides; `before` are earlier counts."""
    if in_training_order(question.shifts) and (question.delta != 1).any():
        raise InputError("`delta` must be 1, or None, with models that are trained until they suffice.")
    return _failures(question, stream, _WhenDecided(test, cap, before), begin, cap)


def _failures(question: Question, stream: Stream, stop: _Stop, begin: int, end: int, limit: int = NEVER) -> Failures:
    """Failing draws from number `begin` to `end`, of each row at least until it needs no more, and at most `limit`."""
    grows, found, rows = in_training_order(question.shifts), [_NOTHING], _unproved(question)
    block = 1 if grows else block_size(question)  # models that are trained one after another, as many as it takes
    # workers do not know what others see, so that rows leave between rounds: a few, each at least as long as all before
    round_size = 0 if grows or question.n_jobs == 1 else max(FIRST, workers(question.n_jobs) * block)
    growth = 2 if limit == NEVER else 8  # a test that nothing but failures ends early loses few rows after the first
    with Progress(end - begin, "training models" if grows else "drawing shifted models") as progress:
        while len(rows) and begin < end:
            if grows and not question.grow(begin + 1):
                wanted = f"until every row is decided, or up to {end}"
                raise InputError(f"`models` must go on {wanted}, but there are {begin}; list all.")
            # a whole group of directions costs no more than a part of it
            needed = -(-max(stop.until(rows, begin or round_size), begin + 1) // ALIGN) * ALIGN
            until = max(growth * begin, min(needed, begin + round_size)) if round_size else min(needed, begin + block)
            until = min(end, until)
            if round_size:
                cuts = ranges(until - begin, block, question.n_jobs)
                jobs = ((question, rows, stream, begin + a, begin + b, block) for a, b in cuts)
                here = _join(list(in_parallel(_failing_pairs, jobs, question.n_jobs)))
            else:
                here = _failing_pairs(question, rows, stream, begin, until, block)
            found.append(here)
            rows = stop.open(rows, here, until)
            told = f"training models: {until} so far, {len(rows)} of {len(question)} rows open" if grows else None
            progress.advance(until - begin, told)
            begin = until
    rows, draws, sure = _join(found)
    if not len(rows):
        return Failures(draws, sure, np.zeros(len(question) + 1, dtype=np.intp))
    order, everyone = np.lexsort((draws, rows)), np.arange(len(question) + 1)  # row by row, each in its order of draws
    rows, draws, sure = rows[order], draws[order], sure[order]
    starts = np.searchsorted(rows, everyone)
    if limit == NEVER:
        return Failures(draws, sure, starts)
    keep = np.arange(len(rows)) - starts[rows] < limit
    return Failures(draws[keep], sure[keep], np.searchsorted(rows[keep], everyone))


def drawn_blocks(question: Question, stream: Stream, stop: int, start: int = 0, block: int = 0) -> Iterator[_Block]:
    """Draws number `start` to `stop`, as many at a time as fit: the first and last of a block, and their directions."""
    block = block or block_size(question)
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        yield begin, end, question.directions(stream, begin, end)


def drawn_margins(
    asked: Sequence[tuple[Question, Indices]], stream: Stream, start: int, stop: int, block: int = 0
) -> Iterator[tuple[int, int, Indices, Floats, Floats]]:
    """Margins of rows of questions on the same draws, block by block.

    Each block comes with the number of the question, of its first draw and of its rows, and the rows' bands.
    """
    for begin, _, directions in drawn_blocks(asked[0][0], stream, stop, start, block):
        for number, (question, rows) in enumerate(asked):
            for first in range(0, len(rows), ROWS):
                some = rows[first : first + ROWS]
                place = slice(None) if len(some) == len(question.X) else some
                yield number, begin, some, question.margins(directions, place), question.band[place]


def block_size(question: Question) -> int:
    """How many draws to look at together: few enough to bound the memory, enough to be fast."""
    fits: int = NUMBERS // max(1, question.coordinates.values.size)
    most = DRAWS if len(question.X) <= FEW_ROWS or question.regions is not None else DRAWS_MANY_ROWS
    return min(most, fits // ALIGN * ALIGN) if fits >= ALIGN else max(1, fits)


#: Row and number of failing draws, and whether they are sure.
_Part = tuple[Indices, Integers, Bools]
_NOTHING: _Part = (np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool))


class _AtCounts:
    """Rows need no more draws after a number of failures, or of such beyond rounding."""

    def __init__(self, rows: int, limit: int, sure_limit: int) -> None:
        self.most, self.failed = (limit, sure_limit), np.zeros((2, rows), dtype=np.int64)

    def until(self, rows: Indices, begin: int) -> int:
        """No draw from this number on can be needed by rows, unless one from `begin` on fails."""
        return NEVER

    def open(self, rows: Indices, found: _Part, end: int) -> Indices:
        """Those of the rows that are still drawn for, after what was found among the last draws up to `end`."""
        if not len(found[0]):
            return rows
        for failed, part in zip(self.failed, (found[0], found[0][found[2]]), strict=True):
            failed += np.bincount(part, minlength=len(failed))
        few = (self.failed[0] < self.most[0]) & (self.failed[1] < self.most[1])
        return np.asarray(rows[few[rows]])


class _WhenDecided:
    """Rows need no more draws once the anytime test has decided; it needs no more of the past than two counts."""

    def __init__(self, test: Boundary, cap: int, before: Sequence[tuple[int, int]]) -> None:
        self.test, self.cap, self.counts = test, cap, list(before)
        self.needed = np.array([min(cap, test.needed(count)) for count, _ in before], dtype=np.int64)

    def until(self, rows: Indices, begin: int) -> int:
        # a short first block lets rows go that fail at once
        return FIRST if begin == 0 else int(self.needed[rows].max())

    def open(self, rows: Indices, found: _Part, end: int) -> Indices:
        still = self.needed > end
        failing, draws, sure = (column[np.lexsort((found[1], found[0]))] for column in found)
        numbers, first, many = np.unique(failing, return_index=True, return_counts=True)
        certain = np.append(0, np.cumsum(sure))
        certain = certain[first + many] - certain[first]
        each = zip(*(a.tolist() for a in (numbers, first, many, certain, draws[first])), strict=True)
        for row, begin, failures, clearly, at in each:
            count, clear = self.counts[row]
            if self.test.may_decide(at, end, (count, clear), (failures, clearly)):
                mine = slice(begin, begin + failures)
                seen = zip(draws[mine].tolist(), sure[mine].tolist(), strict=True)
                verdict, decided, _ = self.test.decide(seen, end, (count, clear))
                still[row] = verdict == "UNKNOWN" and decided == end < self.cap
            else:
                still[row] = end < self.cap
            self.counts[row] = count, _ = count + failures, clear + clearly
            # N_k that lie beyond the cap need not be known exactly
            self.needed[row] = self.test.needed(count) if self.test.certify.crosses(self.cap, count) else self.cap
        return np.asarray(rows[still[rows]])


_Stop: TypeAlias = _AtCounts | _WhenDecided


def _join(parts: list[_Part]) -> _Part:
    """The entries of several scans, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _failing_pairs(question: Question, rows: Indices, stream: Stream, start: int, stop: int, block: int) -> _Part:
    """Row and number of each draw whose margin is not clearly positive, and whether it is sure to fail."""
    found = [_NOTHING]
    for _, begin, some, margins, band in drawn_margins([(question, rows)], stream, start, stop, block):
        good = margins > band  # written so that a NaN fails
        if not good.all():
            sample, column = np.nonzero(~good)
            found.append((some[column], begin + sample, ~(margins[sample, column] >= -band[column])))
    return _join(found)


def count_failures(question: Question, deltas: Floats, stream: Stream, samples: int) -> tuple[Integers, Integers]:
    """How many draws fail at each delta for each row: all of them, and those beyond rounding."""
    questions = [replace(question, delta=np.full(len(question), delta)) for delta in deltas]
    cuts = ranges(samples, block_size(question), question.n_jobs)
    parts = in_parallel(_count, ((questions, stream, a, b) for a, b in cuts), question.n_jobs)
    total = np.zeros((2, len(deltas), len(question)), dtype=np.int64)
    with Progress(samples, "drawing shifted models") as progress:
        for (a, b), part in zip(cuts, parts, strict=True):
            total += part
            progress.advance(b - a)
    return total[0], total[1]


def _count(questions: list[Question], stream: Stream, start: int, stop: int) -> Integers:
    asked = [(question, _unproved(question)) for question in questions]
    counts = np.zeros((2, len(questions), len(questions[0])), dtype=np.int64)
    for number, _, rows, margins, band in drawn_margins(asked, stream, start, stop):
        # written so that a NaN fails beyond doubt
        counts[0, number, rows] += np.count_nonzero(~(margins > band), axis=0)
        counts[1, number, rows] += np.count_nonzero(~(margins >= -band), axis=0)
    return counts


def _unproved(question: Question) -> Indices:
    """Rows that some shift of a box might break; on the others no draw fails, and nobody need compute their margins."""
    everyone, network = np.arange(len(question)), question.network
    if question.regions is not None and question.with_region.all():
        from apas.certification.region_claims import kept_without_draws  # which makes certificates

        return everyone[~kept_without_draws(question)]
    if question.regions is not None or type(network) is not FeedForward or not isinstance(question.geometry, Box):
        return everyone  # a subclass may compute otherwise
    # so many at a time that the ends of the pre-activations of all rows are never held together
    step = max(1, NUMBERS // max(weight.size // len(weight) for weight in network.weights))
    found = [everyone[:0]]
    for rows in (everyone[a : a + step] for a in range(0, len(everyone), step)):
        boxes, delta = Boxes(network, question.X[rows], question.wanted[rows], question.radii), question.delta[rows]
        bound = boxes.bound(delta)
        if not (bound > 0).any():
            found.append(rows)
            continue
        error = question.rounding[rows]
        # beyond the band that makes a draw a failure, and once more what rounding can take off a margin; the magnitudes
        # behind the error are at least those behind the band, which takes longer, but for what float32 adds to it
        band = question.band[rows] if question.single else ROUNDING / rounding_share(network) * error
        found.append(rows[~(bound - error > 2 * band)])
    return np.concatenate(found)
