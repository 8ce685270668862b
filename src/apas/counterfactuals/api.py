"""`generate`: counterfactuals that are certified to survive, from any source, under any claim; and their calibration.

Offers lie where the search stops, so that `calibrate_offers` takes them as a family: a list for each delta of a grid.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from apas._parallel import in_parallel, workers
from apas._random import entropy_of
from apas._typing import Floats
from apas._validation import check_integer
from apas.certification.calibration import Calibration, broken_rows, certified_by, read_updates, refuse_seen
from apas.certification.derived_seed import DerivedSeed
from apas.certification.methods import METHODS
from apas.certification.question import SHIFTS, Draws, Method, OnlyRefutes, Question, pick
from apas.counterfactuals.result import Counterfactuals, wanted_classes
from apas.counterfactuals.search.leaf_table import leaf_probes
from apas.counterfactuals.search.loop import Answer, Plan, run_rows
from apas.counterfactuals.search.stacked import relisted, split_models
from apas.counterfactuals.search.tests import CertifyingTest, OfferRegion, UnshiftedTest
from apas.counterfactuals.sources import base as offered
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.cutting_planes import CuttingPlanes
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.sources.neighbours import NearestNeighbours
from apas.counterfactuals.sources.prototype import Prototype
from apas.counterfactuals.sources.roar import Roar
from apas.counterfactuals.sources.robust_optimum import RobustOptimum
from apas.counterfactuals.sources.wachter import Wachter
from apas.counterfactuals.space.encoder import CodedModel, probe_rows
from apas.counterfactuals.space.space import DISTANCES, FeatureSpace, default_space, own_columns
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.base import Dense, Differentiable, Leaves, ReadsOnce, as_model, offers
from apas.models.digest import model_digest
from apas.shifts.base import Fingerprinted, Listed, ShiftSet
from apas.shifts.observed import ObservedShifts

SOURCES: dict[str, Any] = {
    "robust": RobustOptimum,
    "milp": MilpSource,
    "neighbours": NearestNeighbours,
    "roar": Roar,
    "wachter": Wachter,
    "prototype": Prototype,
    "cuts": CuttingPlanes,
}
MODELS, NUMBERS = 500, 20_000_000  # of so many listed models, and numbers, at most it is kept what they make of rows
BATCH = 64  # rows that advance together: enough to share draws, few enough to see progress


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
    simultaneous: bool = False,
    tolerance: float | Mapping[str, float] | None = None,
    beyond: bool = False,
    n_jobs: int = 1,
    rng: int | np.random.Generator | DerivedSeed | str | None = None,
) -> Counterfactuals:
    """Find counterfactual explanations that are certified to survive shifts of the model by up to `delta`.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The inputs to explain, in raw units.
    delta : float or array_like of shape (rows,)
        See `certify`. With 0 the nearest row that is valid on the model itself is wanted: nothing is claimed about
        other models then, and `shifts` and `method` are not used.
    target : label or array_like of labels, optional
        The class wanted for each row. None for the other class of a model with two, if it gives all rows the same.
    space : FeatureSpace, optional
        What the features may be and how they may change. Read off `background` unless given.
    background : array_like or data frame, optional
        Rows that are known, such as the training table; neighbours are looked for among them.
    source : CandidateSource or str, default "robust"
        Where candidates come from: `RobustOptimum` ("robust"), `MilpSource` ("milp"), `NearestNeighbours`
        ("neighbours"), `Wachter` ("wachter"), `Prototype` ("prototype"), `Roar` ("roar"), `CuttingPlanes` ("cuts"), or
        `Given`.
    shifts, method
        See `certify`.
    distance : {"l1", "linf"}, default "l1"
        What a change costs: mean or largest change, each in units of the feature's range.
    k : int, default 1
        Counterfactuals per row. Each further one leaves at least one feature alone that an earlier one changes.
    max_candidates : int, default 200
        How many candidates a source may offer for each of them.
    time_limit : float, optional
        Seconds for the searches of all rows, which begin when the models have been read and checked; what is not found
        by then has status BUDGET.
    simultaneous : bool, default False
        Let the confidence hold for all ``len(X) * k`` counterfactuals together rather than for each by itself.
    tolerance : float or mapping, optional
        By how much numbers may be off: one share of the range of each number that may change, or by feature in raw
        units. What is returned is certified for all rows within it, as a region.
    beyond : bool, default False
        Certify that going further is fine as well: every changed number may go on in the direction of the change, to
        the end of its range. Where that cannot be had, the offer is a window, and says so.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The result does not depend on it.
    rng : None, int, numpy.random.Generator, "derived" or DerivedSeed
        Seed of the draws; recorded in the certificates. A `DerivedSeed` ("derived") cannot be chosen by anybody: each
        candidate is tested on draws that follow from it.

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

    At delta 0, which is the paper's Definition 1, `RobustOptimum` and `MilpSource` give the nearest row of a piecewise
    linear network, with a proved `lower_bound` on the cost of all others; anything else is the best that was found.

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
    >>> found[0].status.name, found.certificates.certified.tolist(), bool(found.numbers.sum() > 1.1)
    ('FOUND', [True], True)
    >>> apas.generate(net, [[0.2, 0.3]], 0, space=space)[0].gap < 1e-7
    True
    """
    began, net = time.monotonic(), as_model(model)
    shift_set: ShiftSet = pick(shifts, SHIFTS, ShiftSet, "shifts")
    origin = pick(source, SOURCES, CandidateSource, "source")
    if distance not in DISTANCES:
        raise InputError(f'`distance` must be "l1" or "linf", got {distance!r}.')
    counts = [check_integer(n, name, "generate", least=1) for n, name in ((k, "k"), (max_candidates, "max_candidates"))]
    seconds = seconds_of(time_limit)
    space = default_space(net, space, background, X)
    bound = space.bind(net)
    if offers(shift_set, Listed) and isinstance(bound, CodedModel):  # so are the listed models, then
        shift_set = relisted(shift_set, [space.bind(other) for other in shift_set.models])
    inputs = space.numbers_for(bound, X)
    known = None if background is None else space.numbers_for(bound, own_columns(background, space), "background")
    if not (offers(origin, offered.TakesMissing) and origin.takes_missing):
        offered.refuse_missing(inputs, origin)
    if offers(origin, offered.ForRows):
        origin.check_rows(len(inputs))
    derived = DerivedSeed.wanted(rng)
    entropy = entropy_of(rng) if derived is None else 0  # what a search draws decides nothing
    sizes = np.asarray(delta, dtype=object).ravel().tolist()
    unshifted = bool(sizes) and all(isinstance(d, Real) and not isinstance(d, bool) and d == 0 for d in sizes)
    if unshifted:  # what is asked of the model itself is asked of a list of one model
        pick(method, METHODS, Method, "method")
        shift_set, method, delta = ObservedShifts([bound]), "exact", 1.0 + np.asarray(delta)
    region = None if tolerance is None and beyond is False else OfferRegion.wanted(space, tolerance, beyond)
    if region is not None and (unshifted or derived is not None):
        raise InputError("`tolerance` and `beyond` need a delta above 0 and a chosen seed; leave them out.")
    task = Task(bound, space, distance, known, entropy, np.inf, unshifted, inputs)
    options: dict[str, Any] = {"delta": delta, "shifts": shift_set, "method": method, "n_jobs": n_jobs}
    options["simultaneous"] = simultaneous
    labels = partial(wanted_classes, one_way=True)
    purpose, probes = _read_along(task, inputs, shift_set)
    beside = None if probes is None else space.table(probes)
    question = Question.ask(bound, space.table(inputs), target=target, labels=labels, beside=beside, **options)
    if derived is not None:
        if unshifted:
            raise InputError('`rng="derived"` goes with a delta above 0: at 0 nothing is drawn; leave `rng` out.')
        derived.ask(question)
    chosen, targets, deltas = question.method, question.target, question.delta
    _check_method(chosen, question)
    if (complaint := origin.unsupported(task)) is not None:
        raise Unsupported(complaint)
    # further counterfactuals of a row are claims of their own
    searched, alone, together = None, None, max(1, len(inputs) * counts[0]) if simultaneous else 1
    if offers(shift_set, Listed) and offers(chosen, Draws):
        alone = bound if offers(origin, offered.OnModelAlone) and origin.on_model_alone else None
        searched, shift_set = split_models(shift_set, chosen, together, alone)
    kind = UnshiftedTest if unshifted else CertifyingTest
    test = kind(task, shift_set, chosen, entropy, searched, len(np.unique(deltas)), together, derived, region)
    _check_tests(test, origin, counts[0])
    task.once(purpose, lambda: question.read if alone is None else ())
    if searched is not None and (deltas == 1).any() and any(offers(m, Differentiable) for m in searched.models):
        _ = test.listed_models
    searches = [
        Search(task, i, x, t, test=test.for_search(t, float(d), origin=x))
        for i, (x, t, d) in enumerate(zip(inputs, targets, deltas, strict=True))
    ]
    if searches and offers(origin, offered.SetsUp):
        with np.errstate(over="ignore", invalid="ignore"):
            origin.set_up(searches[0])
    # the models have been read and compared with their libraries: what takes long from here on is searching
    object.__setattr__(task, "deadline", time.monotonic() + seconds)
    plan = Plan(origin, test, counts[0], counts[1], question.n_jobs)
    with np.errstate(over="ignore", invalid="ignore"):
        answers = _run(searches, deltas, plan)
        if region is not None and region.beyond:
            answers = _windows(answers, searches, deltas, plan)
    seconds = (time.monotonic() - began) / max(1, len(answers))
    for item, _ in answers:  # made a moment ago and seen by nobody yet
        object.__setattr__(item, "seconds", seconds)
    rows = np.repeat(np.arange(len(inputs)), plan.k)
    numbers = np.stack([point for _, point in answers]) if answers else np.empty((0, len(space)))
    about: dict[str, Any] = {"model": bound, "space": space, "shifts": shift_set, "distance": distance}
    tables = {"points": space.like(numbers, X, rows), "inputs": space.like(inputs[rows], X, rows)}
    return Counterfactuals([item for item, _ in answers], numbers=numbers, origins=inputs[rows], **tables, **about)


def seconds_of(time_limit: float | None) -> float:
    """A limit in seconds, infinite for None."""
    seconds = np.inf if time_limit is None else time_limit
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not seconds > 0:
        raise InputError(f"`time_limit` must be a positive number of seconds or None, got {time_limit!r}.")
    return float(seconds)


def _read_along(task: Task, inputs: Floats, shifts: ShiftSet) -> tuple[str, Floats | None]:
    """Rows, the inputs first, that listed models behind preprocessings read in one go, and for which kind of search."""
    models = shifts.models if offers(shifts, Listed) else ()
    once = all(offers(m, ReadsOnce) for m in models)
    if not once or not 0 < len(models) <= MODELS or np.isnan(inputs).any():
        return "refits/read", None
    if all(offers(m, Dense) for m in models):
        return "refits/read", probe_rows(task)
    first = models[0]
    trees = offers(first, Leaves) and first.trees() is not None and all(offers(m, Leaves) for m in models)
    rows = leaf_probes(task, inputs) if trees else np.empty(0)
    return "refits/leaves", rows if 0 < rows.size * len(models) <= NUMBERS else None


def _check_method(method: Method, question: Question) -> None:
    name = type(method).__name__
    if offers(method, OnlyRefutes) and method.only_refutes:
        instead = "use Exact, IntervalBounds or Sampling"
        raise Unsupported(f"{name} can only refute, so nothing would ever be found; {instead}.")
    claim = method.claim(replace(question, tries=2))
    if not claim.risk:  # proved: there is no risk to divide
        return
    if not offers(method, Draws):
        raise Unsupported(
            f"generate gives each test its own draws and part of the risk, which only methods that plan "
            f"their draws can take, but {name} claims {str(claim)!r} and plans none; use Sampling itself, or a method "
            "that proves its claim."
        )
    if getattr(claim, "tries", 1) != 2:
        raise Unsupported(
            f"generate gives each test a part of the risk, but the claim of {name} does not say so; pass `tries` of "
            "the question on to it."
        )


def _check_tests(test: CertifyingTest, source: CandidateSource, k: int) -> None:
    """Whether there are draws enough for the tests of a row, and models enough for the tests of all its ranks."""
    if test.searched is not None and k > 1:
        raise InputError(
            f"`k` must be 1 with {type(test.shifts).__name__}, got {k}: which counterfactual of a row comes first "
            "depends on the models that certify, so that they cannot certify a second; call generate again with other "
            "models."
        )
    path = offers(source, offered.OnePath) and source.one_path
    cannot = next((rank for rank in (0, k - 1) if not test.can_test(rank, 0 if path else 1)), None)
    if cannot is not None and test.draws is not None:
        why = "that takes more" if path else "the first of several tests has half the risk"
        why = f"counterfactual number {k} of a row pays for the ones before it" if cannot else why
        raise InputError(
            f"`n_samples` of {type(test.method).__name__} must be larger: {test.draws.n_samples} draws cannot certify "
            f"a row of {type(source).__name__}, since {why}; leave it out."
        )


def _windows(answers: list[Answer], searches: list[Search], deltas: Floats, plan: Plan) -> list[Answer]:
    """Windows for rows that have no offer beyond which all is well, and whose search has tested none."""
    k, own = plan.k, [answers[i : i + plan.k] for i in range(0, len(answers), plan.k)]
    # a search that tested something has used its confidence
    rows = [i for i, of_row in enumerate(own) if not any(item.tests for item, _ in of_row)]
    rows = [i for i in rows if own[i][0][0].status.name in ("EXHAUSTED", "BUDGET")]
    region: Any = plan.test.region
    test = replace(plan.test, region=replace(region, window=True))
    again = [replace(s, test=test.for_search(s.target, float(deltas[s.row]), origin=s.input)) for s in searches]
    found = iter(_run([again[i] for i in rows], deltas[rows], replace(plan, test=test)))
    for i in rows:
        for rank in range(k):
            item, point = next(found)
            said = f"{item.reason}; no offer was found that may be exceeded without end, so this one is a window"
            answers[i * k + rank] = (replace(item, reason=said) if item.is_found else item), point
    return answers


def _run(searches: list[Search], deltas: Floats, plan: Plan) -> list[Answer]:
    with Progress(len(searches) * plan.k, "looking for counterfactuals") as progress:
        alone = plan.n_jobs == 1 or len(searches) < 2
        size = BATCH if alone else max(1, min(BATCH, -(-len(searches) // (2 * workers(plan.n_jobs)))))
        parts = (slice(a, a + size) for a in range(0, len(searches), size))
        # workers do not report: their parts are counted when they come back
        jobs = ((searches[p], deltas[p], plan, progress.advance if alone else None) for p in parts)
        found: list[Answer] = []
        for part in in_parallel(run_rows, jobs, plan.n_jobs):
            found += part
            progress.advance(0 if alone else len(part))
        return found


def calibrate_offers(
    model: Any,
    X: Any,
    updates: Sequence[Any],
    grid: Sequence[float],
    *,
    coverage: float = 0.9,
    confidence: float | None = 0.95,
    rng: int | np.random.Generator | None = None,
    **search: Any,
) -> Calibration:
    """Find the least delta of a grid at which the next update keeps every offer that is made for the rows.

    Parameters
    ----------
    model : object
        The model of today: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The inputs to explain.
    updates : sequence of object
        Past or rehearsed updates of this model: see `calibrate_delta`.
    grid : sequence of float
        Deltas, fixed before anyone looked at the updates.
    coverage, confidence
        See `calibrate_delta`.
    rng : None, int or numpy.random.Generator
        Seed of the searches, one after another for each delta.
    **search
        Options of `generate`: target, space, background, source, shifts, method and so on.

    Returns
    -------
    Calibration
        About the offers at `delta`, which are in its attribute `offers`; where no delta of the grid will do, about
        those at the largest, none of which is certified.

    Examples
    --------
    >>> import apas
    >>> base, *updates = (apas.FeedForward([[[1.0], [1.0]]], [[-1.0 - b / 200]]) for b in range(10))
    >>> space = apas.FeatureSpace([apas.Feature(name, low=0, high=2) for name in ("income", "savings")])
    >>> found = calibrate_offers(
    ...     base, [[0.2, 0.3]], updates, [0.001, 0.05], confidence=None, space=space, method="interval", rng=0
    ... )
    >>> found.delta, found.certified.tolist()
    (0.05, [True])
    """
    listed, steps, coverage, confidence = read_updates(updates, coverage, confidence, "calibrate_offers")
    if steps is not None:
        told = "must be models, since each base of a pair would have offers of its own; calibrate_delta takes pairs"
        raise InputError(f"`updates` of calibrate_offers {told}.")
    deltas = np.sort(np.asarray(grid, dtype=np.float64)) if np.ndim(grid) == 1 else np.empty(0)
    if not len(deltas) or not (np.isfinite(deltas) & (deltas >= 0)).all() or (np.diff(deltas) == 0).any():
        raise InputError(f"`grid` must list different deltas of at least 0, got {grid!r}.")
    seen, known = {model_digest(as_model(model)): "the model itself"}, search.get("shifts")
    seen |= dict.fromkeys(known.digests if offers(known, Fingerprinted) else (), "used to make the offers")
    refuse_seen(listed, None, seen)
    seed, worst, own = entropy_of(rng), np.full(len(listed.models), -np.inf), []
    for i, delta in enumerate(deltas.tolist()):
        found = generate(model, X, delta, rng=seed + i, **search)
        made, others = found[found.found], listed
        if isinstance(found.model, CodedModel):  # so are the updates, then
            others = listed.with_models([found.space.bind(other) for other in listed.models])
        asked: dict[str, Any] = {"target": made.target, "delta": 1.0, "shifts": others, "method": "exact"}
        question = Question.ask(found.model, made.points, **asked)
        fails = broken_rows(question, None)
        worst[fails.any(axis=1)] = delta
        own.append((delta, found, question, fails))
    rest = ({"kind": "offers", "grid": deltas.tolist()}, worst, None, tuple(seen))
    for delta, found, question, fails in own:
        result = certified_by(question, np.full(len(question), delta), fails, coverage, confidence, *rest)
        result.offers, result.inputs = found, found[found.found].inputs
        if delta > result.claim.threshold:
            break
    return result
