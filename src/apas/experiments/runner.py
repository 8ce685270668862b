"""Units of work, done once each: those that a store has are taken from it, the others are run and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from apas.datasets.registry import data_folder, data_from
from apas.display.progress import Progress
from apas.experiments.store import Store, data_version, made_with, unit_key

__all__ = ["Unit", "run_units"]


@dataclass(frozen=True)
class Unit:
    """A piece of an experiment that is done as a whole or not at all.

    Attributes
    ----------
    experiment : str
    work : callable
        A function of a module, called with the settings; what it returns is a dictionary of JSON values.
    settings : mapping
        JSON values, by the names of the function's arguments.
    data : tuple of str
        Names of the datasets that are read.
    """

    experiment: str
    work: Callable[..., dict[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What the unit is known by in a store."""
        name = f"{self.experiment}/{self.work.__module__}.{self.work.__qualname__}"
        return unit_key(name, self.settings, data_version(self.data), made_with())


def run_units(units: Iterable[Unit], store: Store, *, n_jobs: int = 1, label: str = "working") -> list[dict[str, Any]]:
    """Results of units in their order; `n_jobs` processes do what is not there yet, and each result is kept at once.

    Parameters
    ----------
    units : iterable of Unit
        Those with the same key are done once.
    store : Store
    n_jobs : int, default 1
        Number of processes, -1 for all cores. All of them read the data that this one finds.
    label : str
        Beside the progress bar.

    Examples
    --------
    >>> import math, tempfile
    >>> def root(x):
    ...     return {"root": math.sqrt(x)}
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     run_units([Unit("roots", root, {"x": 4}), Unit("roots", root, {"x": 9})], store)
    [{'root': 2.0}, {'root': 3.0}]
    """
    asked = [(unit.key, unit) for unit in units]
    open_ = {key: unit for key, unit in asked if store.get(key) is None}
    with Progress(len(asked), label) as progress:
        progress.advance(sum(key not in open_ for key, _ in asked))
        # here and not below: joblib asks for most jobs in threads of its own, which know nothing of `data_from`
        folder = data_folder() if any(unit.data for unit in open_.values()) else None
        jobs = (delayed(_done)(key, unit, folder) for key, unit in open_.items())
        # short units are not bundled: a kill would lose the finished ones of a bundle
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        for key, result, seconds in parallel(jobs):
            unit = open_[key]
            store.put(key, unit.experiment, unit.settings, result, seconds=seconds)
            progress.advance(sum(key == other for other, _ in asked))
    found = [store.get(key) for key, _ in asked]
    assert all(result is not None for result in found)
    return [result for result in found if result is not None]


def _done(key: str, unit: Unit, folder: Path | None) -> tuple[str, dict[str, Any], float]:
    began = time.perf_counter()
    with data_from(folder), threadpool_limits(1):  # the processes share the cores
        result = unit.work(**unit.settings)
    return key, result, time.perf_counter() - began
