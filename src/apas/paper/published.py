"""The paper's own procedures as its programs ran them: the search for delta, the sampling test, and its competitors.

The published loops return a row in any case: the plain ones the first, the robust ones ("-R") the one with the best
certified bound, certified or not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd

import apas
from apas._random import Stream
from apas._typing import Bools, Floats, Indices, Integers
from apas._validation import check_integer, check_probability
from apas.certification.certificate import BoundEvidence, KeptShift
from apas.certification.max_shift.api import PUBLISHED, double_and_bisect
from apas.certification.question import Method, Question
from apas.counterfactuals.search.smooth_problem import Level
from apas.counterfactuals.sources.base import Search, Task
from apas.paper.networks import Preparation
from apas.shifts.geometry import inside_box
from apas.shifts.selection import placed
from apas.stats import coverage_lower

LAST = 1e6  # nothing passes for ever: the search ends here


def published_delta(
    network: apas.FeedForward, X: Floats, method: Method | str, shifts: apas.ShiftSet | str = "linf", *, target: Any = 1
) -> Floats:
    """The largest delta of each row that the search finds with a method of `certify` as its test."""
    # With `PublishedSampling` it is Algorithm 1 with the published draws, with ``"interval"`` Algorithm 4. Neither
    # makes the delta itself a certificate at the claim's confidence: draws chose it.

    def passes(rows: Indices, delta: Floats) -> Bools:
        return apas.certify(network, X[rows], delta, target=target, shifts=shifts, method=method).certified

    return double_and_bisect(passes, len(X), LAST, PUBLISHED)


BLOCK, KEPT = 1024, 1 << 24  # draws looked at together; how many numbers are kept for the next call at most (128 MiB)
DECIMALS = 6  # decimals of the coverage that a test without failures shows, rounded down
_PER_TEST = "as published, the confidence holds for this test by itself, not for a row that such tests have chosen"


@dataclass(frozen=True)
class PublishedEvidence:
    """What the test saw of a row."""

    seed: int
    samples: int
    draws: int
    failures: int

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return {"kind": "published sampling", **vars(self)}


@dataclass(frozen=True, kw_only=True)
class PublishedSampling:
    """Decide by drawing shifts until one fails, with the same draws in every test.

    For comparison with the paper; to certify, use `apas.Sampling`. The draws come from NumPy's `RandomState`, seeded
    anew for each test: model by model, each parameter in the order of `Model.parameters`, uniform on the box.

    Parameters
    ----------
    n_samples : int, default 10_000
        How many shifts to draw. The paper states 1378, its program took 10,000 to generate.
    confidence : float, default 0.999
        The paper's alpha. The claim's coverage is what as many draws without a failure show at this confidence.
    seed : int, default 1

    Notes
    -----
    No allowance is made for the search: the confidence holds for a row that was chosen without looking at these draws.
    For one that came out of a loop which tries candidates until one passes no confidence is known; claims and reasons
    say so. A row that fails is `UNKNOWN`, since one failing shift does not refute a claim about most of them.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> found = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, method=PublishedSampling(n_samples=1378))
    >>> found.certified.tolist(), found[0].claim.coverage
    ([True, False], 0.994999)
    """

    n_samples: int = 10_000
    confidence: float = 0.999
    seed: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", check_probability(self.confidence, "confidence", type(self).__name__))
        for name, least in (("n_samples", 1), ("seed", 0)):
            value = check_integer(getattr(self, name), name, type(self).__name__, least=least)
            object.__setattr__(self, name, value)

    def claim(self, question: Question) -> apas.Most:
        """What the method will speak about: each test by itself, whatever the number of tries."""
        measure = f"{question.measure}; the confidence is per test only, as published, with no allowance for a search"
        per_row = apas.Most(0.5, self.confidence, measure, question.claim_rows).row_confidence
        shown = coverage_lower(self.n_samples, 0, confidence=per_row)
        return apas.Most(np.floor(shown * 10**DECIMALS) / 10**DECIMALS, self.confidence, measure, question.claim_rows)

    def unsupported(self, question: Question) -> str | None:
        """None in boxes of shifts, else why not."""
        if question.shifts.to_dict().get("kind") == "linf":  # whose draws these are
            return None
        name = type(question.shifts).__name__
        return f"PublishedSampling draws from boxes of shifts only, as the paper did; use Sampling for {name}."

    def run(self, question: Question, stream: Stream) -> list[apas.Certificate]:
        """Test all rows on the same draws; the stream is not used."""
        first = np.full(len(question), self.n_samples)
        witnesses: dict[int, KeptShift] = {}
        active, movers = np.arange(len(question)), np.flatnonzero(question.radii)
        for start, unit in _unit_blocks(self.seed, self.n_samples, len(movers)):
            if len(movers) < len(question.radii):  # those that do not move are drawn no numbers
                unit = placed(unit, movers, len(question.radii))
            margins = question.margins(unit * question.reach, active)
            failed = ~(margins > question.band[active])  # written so that a NaN fails
            for column in np.flatnonzero(failed.any(axis=0)):
                row, place = int(active[column]), int(failed[:, column].argmax())
                first[row] = start + place
                if not margins[place, column] >= -question.band[row]:  # else its sign may be owed to rounding
                    delta = float(question.delta[row])
                    shift = inside_box(question.model.parameters.values, question.radii, delta, unit[place])
                    witnesses[row] = KeptShift(delta, shift)
            active = active[~failed.any(axis=0)]
            if not len(active):
                break
        claim, name, found = self.claim(question), type(self).__name__.lower(), []
        for i, place in enumerate(first.tolist()):
            failed = place < self.n_samples
            verdict, reason = apas.Verdict.UNKNOWN, f"draw number {place + 1} of {self.n_samples} failed"
            if not failed:
                verdict, reason = apas.Verdict.CERTIFIED, f"none of {self.n_samples} draws failed; {_PER_TEST}"
            evidence = PublishedEvidence(self.seed, self.n_samples, place + failed, int(failed))
            about = float(question.delta[i]), question.target[i], name, evidence, reason, witnesses.get(i)
            found.append(apas.Certificate(claim, verdict, *about))
        return found


def _unit_blocks(seed: int, samples: int, numbers: int) -> Iterator[tuple[int, Floats]]:
    """Points of the cube [-1, 1), in the order in which the published program drew them."""
    if samples * numbers <= KEPT:
        unit = _draws_of_seed(seed, samples, numbers)
        yield from ((start, unit[start : start + BLOCK]) for start in range(0, samples, BLOCK))
        return
    source = np.random.RandomState(seed)
    for start in range(0, samples, BLOCK):
        yield start, source.uniform(-1.0, 1.0, (min(BLOCK, samples - start), numbers))


@lru_cache(maxsize=2)
def _draws_of_seed(seed: int, samples: int, numbers: int) -> Floats:
    unit = np.random.RandomState(seed).uniform(-1.0, 1.0, (samples, numbers))
    unit.flags.writeable = False
    return unit


#: By how much the margin grows from one try to the next, and to how many decimals a point is rounded for its test.
STEP, TESTED_DECIMALS = 0.2, 6


@dataclass(frozen=True, eq=False)
class Loops:
    """What the loops found for the inputs that differ."""

    inputs: Floats
    places: Integers  # where each input is among them
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
    task, source = Task(space.bind(network), space), apas.MilpSource(step=STEP)
    rows, places = np.unique(space.numbers(preparation.raw_inputs), axis=0, return_inverse=True)
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
                asked = points.round(TESTED_DECIMALS)
                passed = apas.certify(network, asked, preparation.delta, target=1, method=method).certified
            now = passed & np.isnan(found[name][waiting, 0])
            found[name][waiting[now]] = points[now]
    return Loops(task.encoded(rows), places.ravel(), np.bincount(places.ravel()), found)


METRICS = ("validity", "l1", "l0", "lof", "delta_validity")
WANTED = 1  # the class that is wanted in all experiments
#: Wachter's descents as published. On credit they were not run: all derivatives are 0 at its inputs.
WACHTERS: Final[Mapping[str, apas.Wachter]] = {
    "diabetes": apas.Wachter(last=0.95),
    "no2": apas.Wachter(target_probability=0.56, last=0.96),
    "sba": apas.Wachter(target_probability=0.95, penalty=0.01, last=0.95),
}
#: Prototypes as published: only on credit do they attract.
PROTOTYPES: Final[Mapping[str, apas.Prototype]] = {
    "diabetes": apas.Prototype(attraction=0.0, confidence=0.05, last=0.85),
    "no2": apas.Prototype(attraction=0.0, confidence=0.0, last=1.0),
    "sba": apas.Prototype(attraction=0.0, confidence=0.1, last=0.9),
    "credit": apas.Prototype(attraction=10.0, confidence=0.1, last=0.9),
}


@dataclass(frozen=True, eq=False)
class BaselineRun:
    """What a method gave for the inputs of a dataset."""

    name: str  # of the dataset
    method: str  # "-R" stands for a robust loop
    counterfactuals: apas.Counterfactuals  # one per input, missing where nothing was found; nothing in it is certified
    certified: Bools  # which keep the class under every shift up to the experiment's delta, as interval bounds prove it
    evaluation: apas.Evaluation  # VM1, VM2, l1, l0, lof and delta-validity
    seconds: float  # processor time of the search; inputs that occur several times are searched for once

    def summary(self) -> pd.Series[float]:
        """Shares and means as in the paper's table, and the seconds."""
        found = self.evaluation.summary()
        found["seconds"] = self.seconds
        return found


def later_network(preparation: Preparation) -> apas.FeedForward:
    """The network that VM2 of the published baselines is measured on: M2 for diabetes, else the most shifted one."""
    return preparation.retrained if preparation.name == "diabetes" else preparation.most_shifted


def run_baseline(
    preparation: Preparation,
    source: apas.CandidateSource,
    *,
    robust: bool = False,
    retrained: Sequence[apas.FeedForward] | None = None,
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
        What to call it.

    Examples
    --------
    >>> run_baseline(None, WACHTERS["diabetes"])
    Traceback (most recent call last):
        ...
    apas.errors.InputError: `preparation` must be what apas.experiments.prepare gives, got NoneType.
    """
    if not isinstance(preparation, Preparation):
        got = type(preparation).__name__
        raise apas.InputError(f"`preparation` must be what apas.experiments.prepare gives, got {got}.")
    levels: Any = getattr(source, "levels", None)  # each of which asks for more than the one before
    if robust and levels is None:
        raise apas.InputError(
            f"`source` must have levels for a robust loop, as Wachter and Prototype have, got {source!r}."
        )
    X, space = preparation.raw_inputs, preparation.tables.space
    task = Task(space.bind(preparation.network), space, background=space.numbers(preparation.d1.raw))
    if (complaint := source.unsupported(task)) is not None:
        raise apas.Unsupported(complaint)
    rows, places = np.unique(space.numbers(X), axis=0, return_inverse=True)
    searches = [Search(task, i, row, WANTED) for i, row in enumerate(rows)]
    began = time.process_time()
    found = np.stack([_best(preparation, levels(s), s) if robust else _first(source, s) for s in searches])
    seconds = time.process_time() - began
    name = type(source).__name__ if method is None else method
    later = [later_network(preparation)] if retrained is None else list(retrained)
    points = space.like(found[places.ravel()], X, np.arange(len(X)))
    given = apas.Counterfactuals.from_frame(preparation.network, X, points, target=WANTED, space=space)
    background, delta = preparation.d1.raw, preparation.delta
    evaluation = apas.evaluate(given, background=background, retrained=later, metrics=METRICS, delta=delta)
    certified = np.asarray(evaluation.rows["delta_validity"].to_numpy(dtype=bool, na_value=False))
    return BaselineRun(preparation.name, name, given, certified, evaluation, seconds)


def _first(source: apas.CandidateSource, search: Search) -> Floats:
    """The first row that could be returned, missing if there is none."""
    point = next((c.point for c in source.candidates(search) if c.final), None)
    return np.full_like(search.input, np.nan) if point is None else point


def _best(preparation: Preparation, levels: Iterator[Level], search: Search) -> Floats:
    """The row with the best certified bound, over the levels up to the first that has a certified one."""
    best, found = -np.inf, np.full_like(search.input, np.nan)
    for level in levels:
        if not len(level.points):
            continue
        X = search.task.encoded(level.points)
        proved = apas.certify(preparation.network, X, preparation.delta, target=WANTED, method="interval")
        for point, answer in zip(level.points, proved, strict=True):
            bound = answer.evidence.bound if isinstance(answer.evidence, BoundEvidence) else None
            if np.isnan(found).any() or (bound is not None and bound > best):
                best, found = -np.inf if bound is None else bound, point
        if proved.certified.any():
            break
    return found


def run_recourse(preparation: Preparation, source: apas.Roar, *, seed: int = 0) -> Floats:
    """The rows of robust recourse for all inputs, as the network sees them, valid or not."""
    space = preparation.tables.space
    rows, background = space.numbers(preparation.raw_inputs), space.numbers(preparation.d1.raw)
    task = Task(space.bind(preparation.network), space, background=background, entropy=seed)
    return np.array([source.recourse(Search(task, i, row, WANTED)) for i, row in enumerate(rows)])


def baseline_table(runs: Sequence[BaselineRun]) -> pd.DataFrame:
    """One line per run: dataset, method, and the summary."""
    return pd.DataFrame([{"dataset": run.name, "method": run.method, **run.summary()} for run in runs])
