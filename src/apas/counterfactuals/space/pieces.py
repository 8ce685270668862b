"""Additive encoders: what each feature adds to the columns a model sees, found by probing.

Scaling, one-hot, ordinal and thermometer columns have this in common: every column is a constant plus a part from each
feature, and the part of a number is a straight line. What is not so (a logarithm, a product of two features) shows up
when rows are encoded whose sum is known in advance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.search.source import Task
from apas.counterfactuals.space.feature import ON_GRID, Feature

#: How far a column may be from the sum of its parts, in units of its largest entry.
ACCURACY = 1e-9
#: Where between the ends of its range a number is tried.
FRACTIONS = (0.0, 0.003, 0.05, 0.17, 0.31, 0.5, 0.62, 0.77, 0.9, 0.994, 1.0)
#: A feature in steps that has at most so many values may depend on them in any way.
FEW = 64
#: Pairs of rows on which the sums are checked.
PAIRS = 12
INSTEAD = 'use source="neighbours", or apas.Given with the rows of another tool.'


@dataclass(frozen=True)
class Piece:
    """The part of one feature."""

    numbers: Floats
    added: Floats
    line: Floats | None

    def covers(self, number: float) -> bool:
        """Whether the part of a number is known."""
        if self.line is not None:
            return bool(self.numbers[0] <= number <= self.numbers[-1])
        return bool((self.numbers == number).any())

    def part(self, numbers: Floats) -> Floats:
        """What numbers that are covered add, shape (len(numbers), columns)."""
        if self.line is not None:
            return np.outer(numbers - self.numbers[0], self.line)
        return self.added[np.searchsorted(self.numbers, numbers)]

    def through(self, weights: Floats) -> Piece:
        """The same for the columns after a linear map."""
        line = None if self.line is None else self.line @ weights
        return Piece(self.numbers, self.added @ weights, line)


@dataclass(frozen=True)
class Pieces:
    """The parts of all features, None for those that never change; or what is wrong with them."""

    parts: tuple[Piece | None, ...]
    complaint: str | None = None


def pieces_of(task: Task) -> Pieces:
    """Find what each feature adds."""
    space = task.space
    tried = [_tried(task, i) if f.mutable else np.empty(0) for i, f in enumerate(space)]
    middle = np.array([_middle(task, i) for i in range(len(space))])
    owner = np.repeat(np.arange(len(space)), [len(numbers) for numbers in tried])
    rows = np.tile(middle, (len(owner), 1))
    rows[np.arange(len(owner)), owner] = np.concatenate(tried)
    pairs = _pairs(task, tried, middle)
    encoded = task.encoded(np.concatenate([rows, *pairs]))
    scale = ACCURACY * np.maximum(np.abs(encoded).max(axis=0, initial=0.0), np.finfo(float).tiny)
    parts: list[Piece | None] = []
    for i, feature in enumerate(space):
        if not feature.mutable:
            parts.append(None)
            continue
        piece = _piece(feature, tried[i], encoded[: len(rows)][owner == i], scale)
        if piece is None:
            return Pieces((), _bends(feature))
        parts.append(piece)
    one, two = encoded[len(rows) :].reshape(2, PAIRS, -1)
    culprit = _culprit(task, parts, pairs, one, two, scale)
    return Pieces(tuple(parts), None if culprit is None else _mixes(culprit))


def _tried(task: Task, i: int) -> Floats:
    """Numbers of a feature to look at: all of them if they are few or stand for levels."""
    feature = task.space.features[i]
    if feature.listed is not None:
        return feature.listed
    low, high = _ends(task, i)
    if feature.step is None:
        return np.unique(low + np.array(FRACTIONS) * (high - low))
    first = np.ceil((low - feature.anchor) / feature.step - ON_GRID)
    last = np.floor((high - feature.anchor) / feature.step + ON_GRID)
    if last < first:
        return np.array([low])
    steps = np.arange(first, last + 1) if last - first < FEW else first + np.rint(np.array(FRACTIONS) * (last - first))
    return np.unique(feature.on_grid(steps))


def _ends(task: Task, i: int) -> tuple[float, float]:
    """Ends of a feature's range; where it has none, of what is known of it."""
    low, high = task.space.features[i].ends
    if task.background is not None and len(task.background):
        known = task.background[:, i]
        low = low if np.isfinite(low) else min(float(known.min()), high)
        high = high if np.isfinite(high) else max(float(known.max()), low)
    if not np.isfinite(low):
        low = high - max(1.0, abs(high)) if np.isfinite(high) else 0.0
    return low, high if np.isfinite(high) else low + max(1.0, abs(low))


def _middle(task: Task, i: int) -> float:
    feature = task.space.features[i]
    if feature.listed is not None:
        return float(feature.listed[len(feature.listed) // 2])
    numbers = _tried(task, i)
    return float(numbers[len(numbers) // 2])


def _pairs(task: Task, tried: list[Floats], middle: Floats) -> tuple[Floats, Floats]:
    """Rows that agree in what never changes and in nothing else."""
    draws = np.random.default_rng(0)
    one, two = np.tile(middle, (PAIRS, 1)), np.tile(middle, (PAIRS, 1))
    for i, feature in enumerate(task.space):
        if feature.mutable:
            one[:, i], two[:, i] = draws.choice(tried[i], (2, PAIRS))
        elif task.background is not None and len(task.background):
            one[:, i] = two[:, i] = draws.choice(task.background[:, i], PAIRS)
        elif feature.listed is not None or np.isfinite(np.subtract(*feature.ends)):
            one[:, i] = two[:, i] = draws.choice(_tried(task, i), PAIRS)
    return one, two


def _piece(feature: Feature, numbers: Floats, encoded: Floats, scale: Floats) -> Piece | None:
    """What was seen, as a line where it is one; None if it cannot be told in between."""
    added = encoded - encoded[0]
    if feature.kind != "categorical":
        width = numbers[-1] - numbers[0]
        line = added[-1] / width if width > 0 else np.zeros(encoded.shape[1])
        if (np.abs(added - np.outer(numbers - numbers[0], line)) <= scale).all():
            return Piece(numbers, added, line)
    known = feature.listed is not None or (feature.step is not None and _is_whole(feature, numbers))
    return Piece(numbers, added, None) if known else None


def _is_whole(feature: Feature, numbers: Floats) -> bool:
    """Whether all steps of a feature were tried."""
    width = (feature.ends[1] - feature.ends[0]) / (feature.step or 1.0)
    return bool(np.isfinite(width)) and len(numbers) >= np.floor(width + ON_GRID) + 1


def _culprit(
    task: Task, parts: list[Piece | None], pairs: tuple[Floats, Floats], one: Floats, two: Floats, scale: Floats
) -> Feature | None:
    """The first feature that does not add what it should, if some pair of rows differs by more than its parts."""
    gap = two - one
    for i, piece in enumerate(parts):
        if piece is not None:
            gap = gap - (piece.part(pairs[1][:, i]) - piece.part(pairs[0][:, i]))
    wrong = np.flatnonzero(~(np.abs(gap) <= scale).all(axis=1))
    if not len(wrong):
        return None
    row, last = pairs[0][wrong[0]].copy(), one[wrong[0]]
    for i, piece in enumerate(parts):
        if piece is None:
            continue
        row[i] = pairs[1][wrong[0], i]
        here = task.encoded(row[None])[0]
        step = piece.part(pairs[1][wrong[:1], i]) - piece.part(pairs[0][wrong[:1], i])
        if (np.abs(here - last - step[0]) > scale).any():
            return task.space.features[i]
        last = here
    return task.space.features[0]


def _bends(feature: Feature) -> str:
    return (
        "MilpSource needs numbers to enter the model along straight lines, but the preprocessing bends "
        f"{feature.name!r}; {INSTEAD}"
    )


def _mixes(feature: Feature) -> str:
    return (
        "MilpSource needs every feature to enter the model by itself, but what the preprocessing makes of "
        f"{feature.name!r} depends on other features; {INSTEAD}"
    )
