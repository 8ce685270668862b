"""How far rounding may move the margins of a PyTorch module, and a second look at those near 0.

What happens inside a module is unknown, so it is measured: all parameters are moved by a thousandth of themselves, up
or down at random. Rounding moves them, and what is computed from them, by a few units of roundoff; the margin follows
in proportion. With float32 that is about a millionth, far more than the 1e-12 of numbers computed in float64.

The last bits of float32 margins depend on the shape of a batch. So margins near the edge of what counts as failing are
computed again in float64, where they hardly do: the evidence is then the same for any blocks, workers and rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from apas._random import Stream
from apas._typing import Floats, Indices
from apas.errors import InputError
from apas.models.base import ROUNDING
from apas.models.torch.head import Head
from apas.models.torch.passes import LARGE, Passes

ROUNDOFFS = 32  # how many units of roundoff a margin may be off, in units of how it follows its parameters
STEP, TRIES = 1e-3, 4  # by which share parameters are moved, and how often, to see how the margins follow
#: Margins below this many times what rounding may do are looked at again: more than the largest normal number is
#: beyond the largest of a block of them, so that the edge of what counts as failing is always looked at.
AGAIN = 8
FAR = 0.05  # margins beyond this are taken to be beyond rounding without asking how large the numbers behind them are
#: Shifts that make everything larger make rounding larger too: nor are margins below this share of the largest.
SHARE = 1e-3
REMEMBERED = 1 << 16  # how many rows' magnitudes are remembered


@dataclass
class Rounding:
    """Magnitudes behind the margins of rows, remembered by row."""

    passes: Passes
    head: Head
    _known: dict[int, list[float]] = field(default_factory=dict, repr=False)
    _precise: Passes | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": {}, "_precise": None}

    @property
    def coarse(self) -> bool:
        """Whether the module computes in less than float64."""
        return bool(self.passes.stage.dtype != torch.float64)

    def scale(self, X: Floats, wanted: Indices, delta: float | Floats, radius: float) -> Floats:
        """Magnitudes per row while parameters move by at most ``delta * radius``, in units of `ROUNDING`."""
        still, moving = self._magnitudes(X, wanted)
        roundoff = float(torch.finfo(self.passes.stage.dtype).eps) / 2
        return np.asarray(max(1.0, ROUNDOFFS * roundoff / ROUNDING) * (still + delta * radius * moving))

    def settle(self, margins: Floats, X: Floats, wanted: Indices, directions: Floats | None, delta: float) -> None:
        """Compute the margins (copies, rows) near 0 again, in float64; without directions on the module itself."""
        if not self.coarse:
            return
        sizes = np.abs(margins)
        if sizes.min() > max(FAR, SHARE * sizes.max()):  # most often; NaN goes on
            return
        far = SHARE * np.max(sizes, axis=0, initial=0.0, where=np.isfinite(sizes))
        some = np.flatnonzero((sizes <= np.maximum(far, FAR)).any(axis=0))
        if not len(some):
            return
        # how far the parameters move: one layer may move much farther than all others
        radius = 0.0 if directions is None else max(1.0, float(directions.max()), -float(directions.min()))
        limit = np.maximum(AGAIN * ROUNDING * self.scale(X[some], wanted[some], delta, radius), far[some])
        for sample, place in np.argwhere(sizes[:, some] <= limit):
            row, direction = some[place], None if directions is None else directions[sample]
            x = X[row : row + 1]
            x = x if self.passes.integers else x.astype(np.float32).astype(np.float64)  # as the module gets it
            raw = self._precise_passes(x).raw(x, direction, delta)
            margins[sample, row] = self.head.margins(raw, wanted[row : row + 1])[0]

    def _precise_passes(self, x: Floats) -> Passes:
        if self._precise is None:
            passes = self.passes
            doubled = Passes(passes.stage.in_float64(), passes.shape, passes.integers, passes.widest)
            try:
                doubled.raw(x)
            except InputError:  # it makes float32 numbers itself: the row alone, in float32, is all there is
                doubled = passes
            self._precise = doubled
        return self._precise

    def _magnitudes(self, X: Floats, wanted: Indices) -> tuple[Floats, Floats]:
        """Per row the magnitudes behind the margin of the module itself, and their growth with the parameters."""
        if len(self.head.classes) == 2:  # the same towards either class
            wanted = np.ones_like(wanted)
        keys = [hash((row.tobytes(), place)) for row, place in zip(X, wanted.tolist(), strict=True)]
        new = np.array([i for i, key in enumerate(keys) if key not in self._known], dtype=np.intp)
        if len(self._known) + len(new) > REMEMBERED:
            self._known.clear()
            new = np.arange(len(keys))
        if len(new):
            for i, sizes in zip(new.tolist(), self._measure(X[new], wanted[new]).tolist(), strict=True):
                self._known[keys[i]] = sizes
        known = np.array([self._known[key] for key in keys]).reshape(-1, 2)
        return known[:, 0], known[:, 1]

    def _measure(self, X: Floats, wanted: Indices) -> Floats:
        """Magnitudes (rows, 2): of the margins as they are, and per size of the moves."""
        margins = self.head.margins(self.passes.raw(X), wanted)
        # how far the logit of a probability at the threshold moves when the probability is rounded
        steep = 1 / (1 - self.head.threshold) if self.head.kind == "probability" else 0.0
        sizes = np.zeros((2, len(X)))
        sizes[0] = np.maximum(1.0, np.nan_to_num(np.abs(margins), posinf=0.0)) + steep
        base = self.passes.stage.base
        together = 2 * TRIES if len(base) <= LARGE else 1
        changes = np.zeros((2 * TRIES, len(X)))
        for start in range(0, 2 * TRIES, together):
            # moves up or down at random: of every parameter in proportion to itself, and, every other one, by 1
            words = Stream(0, "rounding").integers(start * len(base), together * len(base))
            directions = np.where(words < 0, -1.0, 1.0).reshape(together, -1)
            directions[start % 2 :: 2] *= base
            for some, raw in self.passes.shifted(X, directions, STEP):
                moved = self.head.margins(raw, wanted)
                changes[start : start + together][some] = np.nan_to_num(np.abs(moved - margins), posinf=0.0) / STEP
        sizes[0] += changes[::2].max(axis=0)
        sizes[1] += changes[1::2].max(axis=0)
        return sizes.T
