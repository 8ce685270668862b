"""`generate`: counterfactuals that are certified to survive, from any source, under any claim."""

from __future__ import annotations

import time
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from apas._parallel import in_parallel, workers
from apas._random import entropy_of
from apas._typing import Floats
from apas._validation import check_integer
from apas.certification.question import SHIFTS, Draws, Method, OnlyRefutes, Question, pick
from apas.counterfactuals.defaults import default_space, own_columns, wanted_classes, with_gaps
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.search.loop import Limits, Outcome, run_rows
from apas.counterfactuals.search.observed_split import bound_models, parted
from apas.counterfactuals.search.source import CandidateSource, Search, Task
from apas.counterfactuals.search.tests import Judge
from apas.counterfactuals.sources.given import Given
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.sources.neighbours import NearestNeighbours
from apas.counterfactuals.sources.prototype import Prototype
from apas.counterfactuals.sources.roar import Roar
from apas.counterfactuals.sources.robust_optimum import RobustOptimum
from apas.counterfactuals.sources.wachter import Wachter
from apas.counterfactuals.space.space import DISTANCES, FeatureSpace
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.base import offers
from apas.models.convert import as_model
from apas.shifts.base import Listed, ShiftSet

SOURCES: dict[str, Any] = {
    "robust": RobustOptimum,
    "milp": MilpSource,
    "neighbours": NearestNeighbours,
    "roar": Roar,
    "wachter": Wachter,
    "prototype": Prototype,
}
#: Rows that advance together: enough to share draws, few enough to see progress.
BATCH = 64


def generate(
    model: Any,
    X: Any,
    delta: Any,
    *,
    target: Any = None,
    space: FeatureSpace | None = None,
    background: Any = None,
    source: CandidateSource | str = "robust",
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    distance: str = "l1",
    k: int = 1,
    max_candidates: int = 200,
    time_limit: float | None = None,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> Counterfactuals:
    """Find counterfactual explanations that are certified to survive shifts of the model by up to `delta`.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The inputs to explain, in raw units.
    delta : float or array_like of shape (rows,)
        How far the parameters may move: see `certify`.
    target : label or array_like of labels, optional
        The class wanted for each row. None for the other class of a model with two, if it gives all rows the same.
    space : FeatureSpace, optional
        What the features may be and how they may change. Read off `background` unless given.
    background : array_like or data frame, optional
        Rows that are known, such as the training table; neighbours are looked for among them.
    source : CandidateSource or str, default "robust"
        Where candidates come from: `RobustOptimum` ("robust"), `MilpSource` ("milp"), `NearestNeighbours`
        ("neighbours"), `Wachter` ("wachter"), `Prototype` ("prototype"), `Roar` ("roar"), or `Given`.
    shifts, method
        What has to be survived, and how that is shown: see `certify`.
    distance : {"l1", "linf"}, default "l1"
        What a change costs: mean or largest change, each in units of the feature's range.
    k : int, default 1
        Counterfactuals per row. Each further one leaves at least one feature alone that an earlier one changes.
    max_candidates : int, default 200
        How many candidates a source may offer for each of them.
    time_limit : float, optional
        Seconds for the whole call; what is not found by then has status BUDGET.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The result does not depend on it.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the certificates.

    Returns
    -------
    Counterfactuals
        ``len(X) * k`` of them, in the order of the rows, each with a status.

    Notes
    -----
    Constraints are hard: what is returned is allowed by the space, and is the very row that was certified. A search
    that tests several candidates pays for it: test number j of a row has a part 1 / (j (j + 1)) of the risk and draws
    of its own, so that the claim on what is returned has the confidence it states; `RobustOptimum` has one test, with
    all of it. Of that a further counterfactual of a row, of rank r, has a part 1 / (r (r + 1)). The search uses other
    draws. With `ObservedShifts` and `Sampling` the last models, as many as the claim needs, certify each row once, and
    only the others are searched; `k` is then 1.

    References
    ----------
    Marzari, Leofante, Cicalese and Farinelli (2024), "Rigorous Probabilistic Guarantees for Robust Counterfactual
    Explanations", ECAI, Algorithm 2.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> found = apas.generate(net, [[0.2, 0.3]], 0.05, space=space, method="interval")
    >>> found.status.tolist()[0].name, bool(found.numbers.sum() > 1.1)
    ('FOUND', True)
    """
    began = time.monotonic()
    net = as_model(model)
    origin = pick(source, SOURCES, CandidateSource, "source")
    if distance not in DISTANCES:
        raise InputError(f'`distance` must be "l1" or "linf", got {distance!r}.')
    limits = Limits(
        check_integer(k, "k", "generate", least=1),
        check_integer(max_candidates, "max_candidates", "generate", least=1),
        began + _seconds(time_limit),
    )
    space = default_space(net, space, background, X)
    bound = space.bind(net)
    inputs = space.numbers(X)
    known = None if background is None else space.numbers(own_columns(background, space), "background")
    if isinstance(origin, Given):
        origin.check_rows(len(inputs))
    entropy = entropy_of(rng)
    task = Task(bound, space, distance, known, entropy, limits.deadline)
    question = Question.ask(
        bound,
        space.table(inputs),
        target=target,
        delta=delta,
        shifts=bound_models(pick(shifts, SHIFTS, ShiftSet, "shifts"), space, bound),
        method=method,
        n_jobs=n_jobs,
        labels=partial(wanted_classes, one_way=True),
    )
    _check_method(question)
    targets, deltas = question.target, question.delta
    complaint = origin.unsupported(task)
    if complaint is not None:
        raise Unsupported(complaint)
    judge = _judge(task, question.shifts, question.method)
    _check_tests(judge, origin, limits.k)
    searches = [
        Search(task, i, x, t, trial=judge.trial(t, float(d)))
        for i, (x, t, d) in enumerate(zip(inputs, targets, deltas, strict=True))
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        outcomes = _run(searches, deltas, origin, judge, limits, question.n_jobs)
    return _collected(outcomes, X, inputs, judge, limits.k, (time.monotonic() - began) / max(1, len(outcomes)))


def _seconds(time_limit: float | None) -> float:
    if time_limit is None:
        return np.inf
    if isinstance(time_limit, bool) or not isinstance(time_limit, Real) or not time_limit > 0:
        raise InputError(f"`time_limit` must be a positive number of seconds or None, got {time_limit!r}.")
    return float(time_limit)


def _check_method(question: Question) -> None:
    method = question.method
    if offers(method, OnlyRefutes):
        raise Unsupported(
            f"{type(method).__name__} can only refute, so nothing would ever be found; use Exact, IntervalBounds or "
            "Sampling."
        )
    claim = method.claim(question)
    if getattr(claim, "confidence", 1.0) < 1 and not offers(method, Draws):
        raise Unsupported(
            f"generate gives each test its own draws and part of the risk, which it can do for Sampling alone, but "
            f"{type(method).__name__} claims {str(claim)!r}; use Sampling itself, or a method that proves its claim."
        )


def _judge(task: Task, shifts: ShiftSet, method: Method) -> Judge:
    if not offers(shifts, Listed) or not offers(method, Draws):
        return Judge(task, shifts, method, task.entropy)
    searched, certifying = parted(shifts, method)  # type: ignore[arg-type]
    return Judge(task, certifying, method, task.entropy, searched)


def _check_tests(judge: Judge, source: CandidateSource, k: int) -> None:
    """Whether there are draws enough for the tests of a row, and models enough for the tests of all its ranks."""
    if judge.searched is not None and k > 1:
        raise InputError(
            f"`k` must be 1 with ObservedShifts, got {k}: which counterfactual of a row comes first depends on the "
            "models that certify, so that they cannot certify a second; call generate again with other models."
        )
    path = isinstance(source, RobustOptimum)
    cannot = next((rank for rank in (0, k - 1) if not judge.can_test(rank, 0 if path else 1)), None)
    if cannot is not None:
        why = "that takes more" if path else "the first of several tests has half the risk"
        why = f"counterfactual number {k} of a row pays for the ones before it" if cannot else why
        raise InputError(
            f"`n_samples` of Sampling must be larger: {judge.method.n_samples} draws cannot certify a row of "  # type: ignore[attr-defined]
            f"{type(source).__name__}, since {why}; leave it out."
        )


def _run(
    searches: list[Search], deltas: Floats, source: CandidateSource, judge: Judge, limits: Limits, n_jobs: int
) -> list[Outcome]:
    with Progress(len(searches) * limits.k, "looking for counterfactuals") as progress:
        if n_jobs == 1 or len(searches) < 2:
            parts = [slice(a, a + BATCH) for a in range(0, len(searches), BATCH)]
            return [o for p in parts for o in run_rows(searches[p], deltas[p], source, judge, limits, progress.advance)]
        size = max(1, min(BATCH, -(-len(searches) // (2 * workers(n_jobs)))))
        parts = [slice(a, a + size) for a in range(0, len(searches), size)]
        jobs = ((searches[p], deltas[p], source, judge, limits, _silent) for p in parts)
        found: list[Outcome] = []
        for part in in_parallel(run_rows, jobs, n_jobs):
            found += part
            progress.advance(len(part))
        return found


def _silent(_: int) -> None:
    """Workers do not report: their parts are counted when they come back."""


def _collected(
    outcomes: list[Outcome], X: Any, inputs: Floats, judge: Judge, k: int, seconds: float
) -> Counterfactuals:
    items = [outcome.answer for outcome in outcomes]
    for item in items:  # made a moment ago and seen by nobody yet
        object.__setattr__(item, "seconds", seconds)
    rows = np.repeat(np.arange(len(inputs)), k)
    numbers = np.stack([o.point for o in outcomes]) if outcomes else np.empty((0, len(judge.task.space)))
    space = judge.task.space
    return Counterfactuals(
        items,
        points=with_gaps(space, numbers, X, rows),
        inputs=space.like(inputs[rows], X, rows),
        numbers=numbers,
        origins=inputs[rows],
        model=judge.task.model,
        space=space,
        shifts=judge.shifts,
        distance=judge.task.distance,
    )
