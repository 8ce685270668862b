"""The published loops: ever larger margins of the mixed-integer program, until a test is passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.certify.entry import certify
from apas.certify.problem import Method
from apas.counterfactuals.milp import MilpSource
from apas.counterfactuals.source import Search, Task
from apas.experiments.networks import Preparation

__all__ = ["Loops", "published_loops"]

_Array = NDArray[np.float64]
#: By how much the margin grows from one try to the next, and to how many decimals a point is rounded for its test.
STEP, DECIMALS = 0.2, 6


@dataclass(frozen=True, eq=False)
class Loops:
    """What the loops found for the inputs that differ.

    Attributes
    ----------
    inputs : ndarray of shape (m, inputs)
        Inputs that differ, as the network sees them.
    times : ndarray of int, shape (m,)
        How often each is among the 50.
    points : dict of str to ndarray of shape (m, inputs)
        What each loop found; NaN where the program has no point of a margin that passes.
    """

    inputs: _Array
    times: NDArray[np.int64]
    points: Mapping[str, _Array]

    def l1(self, name: str) -> float:
        """Mean distance over all inputs that have a point, as often as they occur."""
        apart = np.abs(self.points[name] - self.inputs).mean(axis=1)
        there = ~np.isnan(apart)
        return float(np.average(apart[there], weights=self.times[there]))


def published_loops(preparation: Preparation, tests: Mapping[str, Method | str | None]) -> Loops:
    """Explain the inputs with one loop per test; all share the mixed-integer programs they solve.

    Parameters
    ----------
    preparation : Preparation
    tests : mapping of str to Method, str or None
        Method by which `certify` tests a point at `preparation.delta`; None takes the first point.
    """
    network, space = preparation.network, preparation.tables.space
    task = Task(space.bind(network), space)
    source = MilpSource(step=STEP)
    rows, times = np.unique(space.numbers(preparation.raw_inputs), axis=0, return_counts=True)
    streams = [source.candidates(Search(task, i, row, 1)) for i, row in enumerate(rows)]
    found = {name: np.full((len(rows), network.n_features), np.nan) for name in tests}
    ended = np.zeros(len(rows), dtype=bool)
    while (waiting := np.flatnonzero(~ended & np.any([np.isnan(f[:, 0]) for f in found.values()], axis=0))).size:
        offered = [next(streams[i], None) for i in waiting]
        ended[waiting] = [candidate is None for candidate in offered]
        waiting = waiting[~ended[waiting]]
        if not waiting.size:
            break
        points = task.encoded(np.array([candidate.point for candidate in offered if candidate is not None]))
        for name, method in tests.items():
            passed = np.ones(len(waiting), dtype=bool)
            if method is not None:
                asked = points.round(DECIMALS)
                passed = certify(network, asked, preparation.delta, target=1, method=method).certified
            now = passed & np.isnan(found[name][waiting, 0])
            found[name][waiting[now]] = points[now]
    return Loops(task.encoded(rows), times, found)
