"""The paper's competitors run as published: Wachter's descents and prototypes, plain and with their robust loops.

`apas.generate` returns certified rows or none. The published loops return a row in any case: the plain ones the first,
the robust ones ("-R") the one with the best certified bound, certified or not. So they are driven here by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np

from apas._typing import Bools, Floats, Integers
from apas.certification.api import certify
from apas.certification.certificate import BoundEvidence
from apas.certification.question import Method
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.search.smooth import Level
from apas.counterfactuals.search.source import CandidateSource, Search, Task
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.sources.prototype import Prototype
from apas.counterfactuals.sources.roar import Roar
from apas.counterfactuals.sources.wachter import Wachter
from apas.errors import InputError, Unsupported
from apas.metrics.api import Evaluation, evaluate
from apas.models.feedforward import FeedForward
from apas.paper.networks import Preparation

if TYPE_CHECKING:
    from pandas import DataFrame, Series


#: By how much the margin grows from one try to the next, and to how many decimals a point is rounded for its test.
STEP, DECIMALS = 0.2, 6


@dataclass(frozen=True, eq=False)
class Loops:
    """What the loops found for the inputs that differ."""

    inputs: Floats
    times: Integers
    points: Mapping[str, Floats]

    def l1(self, name: str) -> float:
        """Mean distance over all inputs that have a point, as often as they occur."""
        apart = np.abs(self.points[name] - self.inputs).mean(axis=1)
        there = ~np.isnan(apart)
        return float(np.average(apart[there], weights=self.times[there]))


def published_loops(preparation: Preparation, tests: Mapping[str, Method | str | None]) -> Loops:
    """Explain the inputs with one loop per test; all share the mixed-integer programs they solve."""
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


METRICS = ("validity", "l1", "l0", "lof", "delta_validity")
#: The class that is wanted in all experiments.
WANTED = 1
#: Wachter's descents as published. On credit they were not run: all derivatives are 0 at its inputs.
WACHTERS: Final[Mapping[str, Wachter]] = MappingProxyType(
    {
        "diabetes": Wachter(last=0.95),
        "no2": Wachter(target_probability=0.56, last=0.96),
        "sba": Wachter(target_probability=0.95, penalty=0.01, last=0.95),
    }
)
#: Prototypes as published: only on credit do they attract.
PROTOTYPES: Final[Mapping[str, Prototype]] = MappingProxyType(
    {
        "diabetes": Prototype(attraction=0.0, confidence=0.05, last=0.85),
        "no2": Prototype(attraction=0.0, confidence=0.0, last=1.0),
        "sba": Prototype(attraction=0.0, confidence=0.1, last=0.9),
        "credit": Prototype(attraction=10.0, confidence=0.1, last=0.9),
    }
)


@runtime_checkable
class Levelled(CandidateSource, Protocol):
    """A source that offers rows in levels, each of which asks for more than the one before."""

    def levels(self, search: Search) -> Iterator[Level]:
        """Rows in levels."""
        ...


@dataclass(frozen=True, eq=False)
class BaselineRun:
    """What a method gave for the inputs of a dataset.

    Attributes
    ----------
    name, method : str
        Of the dataset, and of the method: "-R" stands for a robust loop.
    counterfactuals : Counterfactuals
        One per input, missing where nothing was found; nothing in it is certified.
    certified : ndarray of bool, shape (inputs,)
        Which of them keep the class under every shift up to the experiment's delta, as interval bounds prove it.
    evaluation : Evaluation
        VM1, VM2, l1, l0, lof and delta-validity.
    seconds : float
        Processor time of the search. Inputs that occur several times are searched for once.
    """

    name: str
    method: str
    counterfactuals: Counterfactuals
    certified: Bools
    evaluation: Evaluation
    seconds: float

    def summary(self) -> Series[float]:
        """Shares and means as in the paper's table, and the seconds."""
        found = self.evaluation.summary()
        found["seconds"] = self.seconds
        return found


def later_network(preparation: Preparation) -> FeedForward:
    """The network that VM2 of the published baselines is measured on: M2 for diabetes, else the most shifted one."""
    return preparation.retrained if preparation.name == "diabetes" else preparation.most_shifted


def run_baseline(
    preparation: Preparation,
    source: CandidateSource,
    *,
    robust: bool = False,
    retrained: Sequence[FeedForward] | None = None,
    method: str | None = None,
) -> BaselineRun:
    """Run a source on the inputs of an experiment as published.

    Parameters
    ----------
    preparation : Preparation
        From `prepare`.
    source : CandidateSource
        Such as ``WACHTERS[name]`` or ``PROTOTYPES[name]``.
    robust : bool, default False
        False takes the first row that the source offers. True goes through its levels, keeps the row with the best
        certified bound, and stops at the first level that has a certified one.
    retrained : sequence of models, optional
        The networks that VM2 is measured on; `later_network` unless given.
    method : str, optional
        What to call it; the name of the source unless given.

    Returns
    -------
    BaselineRun

    Examples
    --------
    >>> run_baseline(None, WACHTERS["diabetes"])
    Traceback (most recent call last):
        ...
    apas.errors.InputError: `preparation` must be what apas.experiments.prepare gives, got NoneType.
    """
    if not isinstance(preparation, Preparation):
        raise InputError(
            f"`preparation` must be what apas.experiments.prepare gives, got {type(preparation).__name__}."
        )
    if robust and not isinstance(source, Levelled):
        raise InputError(f"`source` must have levels for a robust loop, as Wachter and Prototype have, got {source!r}.")
    space = preparation.tables.space
    task = Task(space.bind(preparation.network), space, background=space.numbers(preparation.d1.raw))
    complaint = source.unsupported(task)
    if complaint is not None:
        raise Unsupported(complaint)
    rows, places = np.unique(space.numbers(preparation.raw_inputs), axis=0, return_inverse=True)
    searches = [Search(task, i, row, WANTED) for i, row in enumerate(rows)]
    began = time.process_time()
    if robust and isinstance(source, Levelled):
        found = np.stack([_best(preparation, source, search) for search in searches])
    else:
        found = np.stack([_first(source, search) for search in searches])
    seconds = time.process_time() - began
    name = type(source).__name__ if method is None else method
    later = [later_network(preparation)] if retrained is None else list(retrained)
    return _measured(preparation, name, found[places.ravel()], later, seconds)


def _measured(
    preparation: Preparation, method: str, numbers: Floats, retrained: Sequence[FeedForward], seconds: float
) -> BaselineRun:
    X, space = preparation.raw_inputs, preparation.tables.space
    points = space.like_with_gaps(numbers, X, np.arange(len(numbers)))
    given = Counterfactuals.from_frame(preparation.network, X, points, target=WANTED, space=space)
    evaluation = evaluate(
        given, background=preparation.d1.raw, retrained=retrained, metrics=METRICS, delta=preparation.delta
    )
    certified = np.asarray(evaluation.rows["delta_validity"].to_numpy(dtype=bool, na_value=False))
    return BaselineRun(preparation.name, method, given, certified, evaluation, seconds)


def _first(source: CandidateSource, search: Search) -> Floats:
    """The first row that could be returned, missing if there is none."""
    point = next((c.point for c in source.candidates(search) if c.final), None)
    return np.full_like(search.input, np.nan) if point is None else point


def _best(preparation: Preparation, source: Levelled, search: Search) -> Floats:
    """The row with the best certified bound, over the levels up to the first that has a certified one."""
    best, found = -np.inf, np.full_like(search.input, np.nan)
    for level in source.levels(search):
        if not len(level.points):
            continue
        proved = certify(
            preparation.network, search.task.encoded(level.points), preparation.delta, target=WANTED, method="interval"
        )
        for point, answer in zip(level.points, proved, strict=True):
            bound = answer.evidence.bound if isinstance(answer.evidence, BoundEvidence) else None
            if np.isnan(found).any() or (bound is not None and bound > best):
                best, found = -np.inf if bound is None else bound, point
        if proved.certified.any():
            break
    return found


def run_recourse(preparation: Preparation, source: Roar, *, seed: int = 0) -> Floats:
    """The rows of robust recourse for all inputs, as the network sees them, valid or not."""
    space = preparation.tables.space
    rows, background = space.numbers(preparation.raw_inputs), space.numbers(preparation.d1.raw)
    task = Task(space.bind(preparation.network), space, background=background, entropy=seed)
    return np.array([source.recourse(Search(task, i, row, WANTED)) for i, row in enumerate(rows)])


def baseline_table(runs: Sequence[BaselineRun]) -> DataFrame:
    """One line per run: dataset, method, and the summary."""
    import pandas as pd

    table = pd.DataFrame([run.summary() for run in runs])
    table.insert(0, "method", [run.method for run in runs])
    table.insert(0, "dataset", [run.name for run in runs])
    return table
