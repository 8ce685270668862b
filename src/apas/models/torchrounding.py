"""How far rounding may move the margins of a PyTorch module, and a second look at those near 0.

What happens inside a module is unknown, but the products that a margin is made of have, to first order, the magnitudes
of ``gradient * parameter``: rounding moves it by a small multiple of their sum times the unit roundoff. With float32
that is about a millionth, far more than the 1e-12 of numbers computed in float64.

The last bits of float32 margins depend on the shape of a batch. So margins near the edge of what counts as failing are
computed again in float64, where they hardly do: the evidence is then the same for any blocks, workers and rows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apas.errors import InputError, Unsupported
from apas.models.margins import margins_from_scores
from apas.models.torchgradients import gradients
from apas.models.torchhead import Head
from apas.models.torchpasses import Passes

__all__ = ["Rounding"]

_Array = NDArray[np.float64]
#: A scale of 1 stands for margins that rounding may move by this much: see `apas.certify.problem`.
UNIT = 1e-12
#: How many units of roundoff of the sum of magnitudes a margin may be off.
ROUNDOFFS = 8
#: Margins below this many times what rounding may do are looked at again.
AGAIN = 4
#: Margins beyond this are taken to be beyond rounding without asking how large the numbers behind them are.
FAR = 0.05
#: Shifts that make everything larger make rounding larger too: nor are margins below this share of the largest.
SHARE = 1e-3
#: How many rows' magnitudes are remembered.
REMEMBERED = 1 << 16


@dataclass
class Rounding:
    """Magnitudes behind the margins of rows, remembered by row.

    Attributes
    ----------
    passes : Passes
    head : Head
    """

    passes: Passes
    head: Head
    _known: dict[int, tuple[float, float]] = field(default_factory=dict, repr=False)
    _precise: Passes | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": {}, "_precise": None}

    @property
    def coarse(self) -> bool:
        """Whether the module computes in less than float64."""
        return bool(self.passes.stage.dtype != torch.float64)

    def scale(self, X: _Array, wanted: NDArray[np.intp], delta: float | _Array, radius: float) -> _Array:
        """Magnitudes per row while parameters move by at most ``delta * radius``, in units of `UNIT`."""
        still, moving = self._magnitudes(X, wanted)
        roundoff = float(torch.finfo(self.passes.stage.dtype).eps) / 2
        return np.asarray(max(1.0, ROUNDOFFS * roundoff / UNIT) * (still + delta * radius * moving))

    def settle(
        self, margins: _Array, X: _Array, wanted: NDArray[np.intp], directions: _Array | None, delta: float
    ) -> None:
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
        radius = 0.0 if directions is None else _radius(directions)
        limit = np.maximum(AGAIN * UNIT * self.scale(X[some], wanted[some], delta, radius), far[some])
        for sample, place in np.argwhere(sizes[:, some] <= limit):
            row, direction = some[place], None if directions is None else directions[sample]
            x = X[row : row + 1].astype(np.float32).astype(np.float64)  # as the module gets it
            scores = self.head.scores(self._precise_passes(x).raw(x, direction, delta)).cpu().numpy()
            margins[sample, row] = margins_from_scores(scores, wanted[row : row + 1], self.head.offset)[0]

    def _precise_passes(self, x: _Array) -> Passes:
        if self._precise is None:
            passes = self.passes
            doubled = Passes(passes.stage.doubled(), passes.shape, passes.integers, passes.widest)
            try:
                doubled.raw(x)
            except InputError:  # it makes float32 numbers itself: the row alone, in float32, is all there is
                doubled = passes
            self._precise = doubled
        return self._precise

    def _magnitudes(self, X: _Array, wanted: NDArray[np.intp]) -> tuple[_Array, _Array]:
        """Per row the magnitudes behind the margin of the module itself, and their growth with the parameters."""
        if len(self.head.classes) == 2:  # the same towards either class
            wanted = np.ones_like(wanted)
        keys = [hash((row.tobytes(), place)) for row, place in zip(X, wanted.tolist(), strict=True)]
        new = np.array([i for i, key in enumerate(keys) if key not in self._known], dtype=np.intp)
        if len(self._known) + len(new) > REMEMBERED:
            self._known.clear()
            new = np.arange(len(keys))
        if len(new):
            for i, *sizes in zip(new.tolist(), *self._measured(X[new], wanted[new]), strict=True):
                self._known[keys[i]] = (sizes[0], sizes[1])
        known = np.array([self._known[key] for key in keys]).reshape(-1, 2)
        return known[:, 0], known[:, 1]

    def _measured(self, X: _Array, wanted: NDArray[np.intp]) -> tuple[list[float], list[float]]:
        still, moving = np.ones(len(X)), np.zeros(len(X))
        base = np.abs(self.passes.stage.base)
        # how far the logit of a probability at the threshold moves when the probability is rounded
        steep = 1 / (1 - self.head.threshold) if self.head.kind == "probability" else 0.0

        def note(rows: slice, margins: _Array, slopes: _Array) -> None:
            np.abs(slopes, out=slopes)
            known = np.isfinite(slopes).all(axis=1)
            still[rows] = steep + np.maximum(1.0, np.abs(margins)) + np.where(known, slopes @ base, 0.0)
            moving[rows] = np.where(known, slopes.sum(axis=1), 0.0)

        # without gradients no more is known than the size of the margins themselves
        with suppress(Unsupported):
            gradients(self.passes, self.head, X, wanted, None, by_input=False, out=note)
        return still.tolist(), moving.tolist()


def _radius(directions: _Array) -> float:
    """About how far the parameters move, from a few of them: all would take as long as drawing them."""
    some = directions[0, :: 1 + directions.shape[1] // 1000]
    return max(1.0, float(np.abs(some).max()))
