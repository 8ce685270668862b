"""What a search may ask of shifted models, as often as it likes: nothing it hears certifies anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.problem import Problem
from apas.certify.scan import block_size
from apas.models.protocol import offers
from apas.shifts.linf import LinfShifts
from apas.shifts.protocol import OnPoints

if TYPE_CHECKING:
    from apas.counterfactuals.judge import Judge
    from apas.counterfactuals.readmodels import ReadModels
    from apas.counterfactuals.source import Trial

__all__ = ["Demanding", "ProvedTrial", "SampledTrial", "least_margins"]

_Array = NDArray[np.float64]
#: How many of the draws that do worst at a point are kept to look at points near it.
KEPT = 800
#: So many numbers of draws are kept for all rows of a call; more are drawn again each time.
HELD = 5_000_000
#: Fewer draws than this leave the worst shift of all much worse than the worst that was drawn.
FEW = 1000
#: Points that are looked at together.
TOGETHER = 256


@dataclass(frozen=True)
class ProvedTrial:
    """Bounds over every shift, by the method itself."""

    judge: Judge
    target: Any
    delta: float

    @property
    def few(self) -> bool:
        """No: a bound holds for all."""
        return False

    def slacks(self, points: _Array) -> _Array:
        """Proved bounds on the margin, 0 or more where the claim is certified."""
        looks = self.judge.looked(points, *_repeated(self.target, self.delta, len(points)))
        return np.array([np.nan if look.slack is None else look.slack for look in looks])

    def slopes(self, point: _Array, others: _Array) -> _Array:
        """Differences of the bounds."""
        found = self.slacks(np.vstack([point[None], others]))
        return np.asarray(np.nan_to_num(found[1:] - found[0]))

    def near(self, point: _Array) -> ProvedTrial:
        """Itself: a bound costs the same everywhere."""
        return self


@dataclass(frozen=True)
class Demanding:
    """Another trial that asks for some slack more."""

    trial: Trial
    more: float

    @property
    def few(self) -> bool:
        """As for the other."""
        return self.trial.few

    def slacks(self, points: _Array) -> _Array:
        """What is left of the slack."""
        return self.trial.slacks(points) - self.more

    def slopes(self, point: _Array, others: _Array) -> _Array:
        """As for the other."""
        return self.trial.slopes(point, others)

    def near(self, point: _Array) -> Demanding:
        """The same near a point."""
        return Demanding(self.trial.near(point), self.more)


@dataclass(frozen=True)
class SampledTrial:
    """Draws of the search: the slack is the margin that all but a number of them exceed.

    Attributes
    ----------
    judge : Judge
    target : object
    delta : float
    samples : int
        How many draws there are.
    rank : int
        How many of them may fail.
    directions : ndarray of shape (kept, k) or None
        Some of the draws, those that do worst near a point; None for all.
    fixed : bool
        Whether the directions are the changes of the parameters themselves, of models that exist.
    read : ReadModels or None
        Models that exist, each with a preprocessing of its own, if they can be read faster than one by one.
    """

    judge: Judge
    target: Any
    delta: float
    samples: int
    rank: int
    directions: _Array | None = None
    fixed: bool = False
    read: ReadModels | None = None

    @property
    def few(self) -> bool:
        """Whether there are fewer draws than tell the share that fails to within a third of a percent."""
        return self.samples < FEW

    def slacks(self, points: _Array) -> _Array:
        """The margin that all but `rank` draws exceed."""
        parts = [points[a : a + TOGETHER] for a in range(0, len(points), TOGETHER)]
        return np.concatenate([self._least(part) for part in parts]) if parts else np.empty(0)

    def _least(self, points: _Array) -> _Array:
        margins, band = self._seen(points)
        return np.asarray(least_margins(margins, self.rank + 1).max(axis=0) - band)

    def _seen(self, points: _Array) -> tuple[Iterator[_Array], _Array]:
        """Margins on all draws, block by block, and below which margin a sign may be owed to rounding."""
        if self.read is not None:
            return iter([self.read.margins(points, self.target)]), np.zeros(len(points))
        problem = self._problem(points)
        return (self._margins(problem, directions) for directions in self._blocks(problem)), problem.band

    def slopes(self, point: _Array, others: _Array) -> _Array:
        """Mean over the draws whose margins are next to the slack: one draw alone would lead astray."""
        margins = np.concatenate(list(self._seen(np.vstack([point[None], others]))[0]))
        order = np.argsort(margins[:, 0])
        width = max(3, self.rank // 2)
        ranks = order[max(0, self.rank - width) : self.rank + width + 1]
        return np.asarray(np.nan_to_num(margins[ranks, 1:] - margins[ranks, :1]).mean(axis=0))

    def near(self, point: _Array) -> SampledTrial:
        """The draws that do worst at `point`."""
        keep = max(KEPT, 8 * (self.rank + 1))
        if self.samples <= keep or self.read is not None:
            return self
        problem = self._problem(point[None])
        blocks = [(block, self._margins(problem, block)[:, 0]) for block in self._blocks(problem)]
        margins = np.nan_to_num(np.concatenate([m for _, m in blocks]), nan=-np.inf)
        worst = np.zeros(len(margins), dtype=bool)
        worst[np.argpartition(margins, keep)[:keep]] = True
        ends = np.cumsum([0, *(len(m) for _, m in blocks)])
        kept = [block[worst[a : a + len(block)]] for (block, _), a in zip(blocks, ends[:-1], strict=True)]
        return replace(self, directions=np.concatenate(kept))

    def _margins(self, problem: Problem, directions: _Array) -> _Array:
        if self.fixed:
            return problem.model.shifted_margins(problem.X, self.target, directions, 1.0)
        return problem.margins(directions)

    def _problem(self, points: _Array) -> Problem:
        labels, deltas = _repeated(self.target, self.delta, len(points))
        if self.judge.searched is not None and not self.fixed:
            return self.judge.problem(points, labels, deltas, shifts=self.judge.searched)
        if not self.fixed and offers(self.judge.shifts, OnPoints):
            return self.judge.problem(points, labels, deltas)
        task = self.judge.task  # without a detour through data frames, which costs more than the margins
        shifts = LinfShifts() if self.fixed else self.judge.shifts
        return Problem(task.model, task.encoded(points), labels, deltas, shifts)

    def _blocks(self, problem: Problem) -> Iterable[_Array]:
        if self.directions is not None:
            return [self.directions]
        if self.judge.searched is None and self.samples * len(problem.coordinates) <= HELD:
            return self.judge.task.once("search draws", lambda: list(self._drawn(problem)))
        return self._drawn(problem)

    def _drawn(self, problem: Problem) -> Iterator[_Array]:
        stream, block = Stream(self.judge.entropy, "generate/search"), block_size(problem)
        for start in range(0, self.samples, block):
            yield problem.directions(stream, start, min(start + block, self.samples)).copy()


def least_margins(blocks: Iterable[_Array], count: int) -> _Array:
    """The least margins of each row over all blocks of draws, shape (count, rows); what is no number is least of all.

    Examples
    --------
    >>> np.sort(least_margins([np.array([[3.0], [1.0]]), np.array([[2.0]])], 2), axis=0).tolist()
    [[1.0], [2.0]]
    """
    least: _Array | None = None
    for margins in blocks:
        margins = np.nan_to_num(margins, nan=-np.inf)
        least = np.full((count, margins.shape[1]), np.inf) if least is None else least
        least = np.partition(np.concatenate([least, margins]), count - 1, axis=0)[:count]
    return np.empty((count, 0)) if least is None else least


def _repeated(target: Any, delta: float, count: int) -> tuple[NDArray[Any], _Array]:
    labels = np.empty(count, dtype=object)
    labels[:] = [target] * count
    return labels, np.full(count, delta)
