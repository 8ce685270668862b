"""`max_shift`: the largest shift at which each row is certified.

Proof for draws: let D be the first delta at which a random direction breaks the row, and q the largest number with
P(D >= q) >= coverage. D_(c+1) > q needs at most c of n draws <= q: P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence.
"""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._random import Stream
from apas._typing import Indices
from apas._validation import check_integer
from apas.certification.claims import Most
from apas.certification.derived_seed import DerivedSeed
from apas.certification.max_shift.grid import along_grid, confirm_rows, published_search
from apas.certification.max_shift.proved import proved_deltas
from apas.certification.max_shift.rays import along_rays
from apas.certification.max_shift.result import MaxShift, MaxShifts, Plan, Trace, not_valid, within_rounding
from apas.certification.question import Draws, FindsLargestShift, Method, Question
from apas.errors import InputError, Unsupported
from apas.models.base import Named, offers
from apas.shifts.base import Listed, OtherMoves, Refitted, Region, ShiftSet
from apas.stats import sample_size
from apas.stats.sequential import ANYTIME, boundary

if TYPE_CHECKING:
    from apas.certification.methods.sampling import Sampling

SEARCHES = ("rays", "confirm", "paper")


def max_shift(
    model: Any,
    X: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    search: str | None = None,
    limit: float | None = None,
    simultaneous: bool = False,
    n_jobs: int = 1,
    rng: int | np.random.Generator | DerivedSeed | str | None = None,
) -> MaxShifts:
    """Find the largest shift of the model at which each row is certified to keep its class.

    Parameters
    ----------
    model, X, target, shifts, simultaneous, n_jobs, rng
        As in `certify`.
    method : Method or str, default "sampling"
        ``"sampling"`` certifies `Most` (Algorithm 1 of the paper, made selection-safe). The others prove `Every`
        (Algorithm 4): ``"interval"`` and ``"linear"`` by bounds, ``"exact"`` by bisection over exact verdicts,
        ``"cascade"`` by the strongest of them that applies.
    search : {"rays", "confirm", "paper"}, optional
        How to search with `Sampling`. ``"rays"`` (default): one sample of directions, the right order statistic of
        their first failures. ``"confirm"`` (default above 100,000 parameters): search on one stream, confirm on fresh
        ones, at rungs up to delta. ``"paper"``: Algorithm 1 as published, whose confidence holds per test only.
    limit : float, optional
        Where to stop looking; 10 times the largest parameter unless given (10 for relative shifts and `InputNoise`).

    Returns
    -------
    MaxShifts
        One `MaxShift` per row; a row that is not valid on the model itself, or within its rounding, has delta 0.

    Notes
    -----
    Along rays with exact roots (linear models, one hidden layer of piecewise linear units) the claim holds along the
    whole way up to delta; on a grid, and by ``"confirm"``, it holds at every rung up to delta, and everywhere up to the
    proved delta. So ``found.deltas >= x`` certifies the claim at x for every x where `MaxShift.rungs` is None, and else
    for an x that is one of the rungs. What voids it: choosing the rows by looking at the same draws (the same `rng`).

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> found = apas.max_shift(net, [[2.0, 0.5]], target=1, rng=0)[0]
    >>> found.provable < found.delta < found.upper
    True
    """
    began = time.perf_counter()
    if offers(shifts, Listed):
        raise Unsupported(
            f"max_shift cannot use {type(shifts).__name__}: the models that choose a delta cannot also certify it; use "
            "certify(..., delta=1), or robust_fraction with deltas chosen beforehand."
        )
    question = Question.ask(
        model, X, target=target, delta=1.0, shifts=shifts, method=method, simultaneous=simultaneous, n_jobs=n_jobs
    )
    net, chosen = question.model, question.method
    if not offers(chosen, FindsLargestShift):
        told = f"must be Sampling, IntervalBounds, LinearBounds, Exact or Cascade, got {type(chosen).__name__}"
        raise InputError(f"`method` of max_shift {told}; it has no largest shift to offer.")
    if search is not None and (not isinstance(search, str) or search not in SEARCHES):
        raise InputError(f"`search` must be one of {', '.join(map(repr, SEARCHES))}, got {search!r}.")
    if search not in (None, "rays") and not offers(chosen, Draws):  # the name of the default does no harm
        raise InputError('`search` goes with method="sampling"; leave it out.')
    farthest, derived, ways = _limit(limit, question), DerivedSeed.wanted(rng), None
    if derived is None:
        stream = Stream.seeded(rng, "max_shift")
    else:
        question, search = derived.ask(question), search or default_search(question, chosen)
        if search == "paper":
            why = "whose tests have a confidence, but not the delta that they lead to"
            raise InputError(f'`rng="derived"` cannot be used with search="paper", {why}; leave `search` out.')
        stream, found = derived.derive(question, "max_shift", f"{search}/1", farthest)
        ways = iter(found)
    claim, near = question.method.claim(question), question.doubtful_rows()
    ok = question.valid_rows() & ~near if len(question) else near
    answers: list[MaxShift] = []
    if ok.any():
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            answers = chosen.largest_shift(question.take(ok), stream, limit=farthest, search=search)
    waiting = iter(answers)
    items = [
        next(waiting) if good else (within_rounding if doubt else not_valid)(target, claim)
        for good, doubt, target in zip(ok.tolist(), near.tolist(), question.target, strict=True)
    ]
    seconds = (time.perf_counter() - began) / max(1, len(items))
    for item in items:  # made a moment ago and seen by nobody yet
        object.__setattr__(item, "seconds", seconds)
        way = {} if ways is None else {"siblings": " ".join(next(ways))}
        object.__setattr__(item, "trace", {**item.trace, **(way if item.trace else {}), "limit": farthest})
    names = net.feature_names if offers(net, Named) else None
    return MaxShifts(items, **question.context, feature_names=names, model=net)


def _limit(limit: float | None, question: Question) -> float:
    if limit is None:
        if offers(question.shifts, Refitted):  # as many changes as there are rows
            return float(len(question.shifts.bind(question.model).table))
        if getattr(question.shifts, "relative", False) or offers(question.shifts, OtherMoves):
            return 10.0
        return 10.0 * float(np.abs(question.model.parameters.values).max(initial=0.0)) or 10.0
    number = isinstance(limit, Real) and not isinstance(limit, bool | np.bool_)
    if not number or not 0 < limit < 1e300:
        raise InputError(f"`limit` of max_shift must be a positive finite number, got {reprlib.repr(limit)}.")
    return float(limit)


#: Above this many parameters the search on fresh draws is the default.
MANY = 100_000


def default_search(question: Question, sampler: Any) -> str:
    """How the largest shift is looked for by draws, unless somebody says it."""
    return "rays" if len(question.model.parameters) <= MANY or sampler.test == "anytime" else "confirm"


def sampled_answers(
    question: Question, sampler: Sampling, stream: Stream, limit: float, search: str | None = None
) -> list[MaxShift]:
    """The largest deltas that draws certify, for rows that are valid on the model itself."""
    search = search or default_search(question, sampler)
    if search != "rays" and sampler.test == "anytime":
        raise InputError(f'`search` must be "rays" with the anytime test, which ends by itself, got {search!r}.')
    claim = sampler.claim(question)
    # first failures along rays, and proved deltas, are those of a dense network in a bounded set
    network = question.network if isinstance(question.geometry, Region) else None
    proved, broken = proved_deltas(question, network, limit)

    def look(rows: Indices, plan: Plan, told: Trace) -> list[MaxShift]:
        """What a number of rays says about some rows."""
        trace = {"search": "rays", "entropy": hex(stream.entropy), "samples": plan[0]}
        trace |= {"allowed": plan[1], "refuting": plan[2], "claim": "pathwise"} | told
        some = question if len(rows) == len(question) else question.take(rows)
        if network is None:
            return along_grid(some, claim, stream, plan, limit, trace | {"exact_roots": False})
        return along_rays(some, claim, stream, plan, limit, proved[rows], broken[rows], trace)

    if sampler.test == "anytime":
        return _until_tight(question, sampler, claim, look)
    plan = sampler.plan(question, claim)
    samples = plan[0]
    if search == "rays":
        return look(np.arange(len(question)), plan, {})
    if search == "confirm":
        found = confirm_rows(question, claim, stream, samples, limit, proved)
    else:
        if sampler.n_samples is None:  # as published: no more draws than the claim needs
            samples = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
        found = published_search(question, stream, samples, limit)
    answers = []
    for i, target in enumerate(question.target):
        delta = max(float(found.delta[i]), float(proved[i]))
        reason = found.reason[i] if delta > proved[i] or not delta else "proved for every shift"
        ends = (delta, np.inf, float(proved[i]), float(broken[i]), False, delta >= limit)
        answers.append(MaxShift(*ends, claim, target, reason, found.trace[i]))
    return answers


def _until_tight(
    question: Question, sampler: Sampling, claim: Most, look: Callable[[Indices, Plan, Trace], list[MaxShift]]
) -> list[MaxShift]:
    """Twice as many rays again and again, until `upper` is close to `delta` or the cap is reached."""
    # with Y = [D <= q] of the proof above, "D_(c+1) > q with c = max{k: N_k <= n}" says that so few of n draws have Y
    # that the anytime test certifies: with the stated confidence all these deltas are valid together, and so is the
    # largest of them; likewise all upper ends, from the failures that refute
    test, cap = boundary(claim.coverage, claim.row_confidence), sampler.cap(question, claim)
    draws, rows = test.needed(0), np.arange(len(question))
    if cap < draws:
        raise InputError(
            f"`n_samples` of Sampling must be at least {draws} for the anytime test along rays, got {cap}."
        )
    told = {"samples": cap, "test": ANYTIME, "tolerance": sampler.tolerance}
    best: dict[int, MaxShift] = {}
    while len(rows):
        found = look(rows, (draws, test.most(draws), test.least(draws)), {**told, "draws": draws})
        for row, now in zip(rows.tolist(), found, strict=True):
            old = best.get(row, now)
            larger = now if now.delta >= old.delta else old
            upper, broken = max(min(old.upper, now.upper), larger.delta), min(old.broken_at, now.broken_at)
            best[row] = replace(larger, upper=upper, broken_at=broken, trace={**larger.trace, "draws": draws})
        wide = [best[row].upper > (1 + sampler.tolerance) * best[row].delta for row in rows.tolist()]
        rows = rows[np.array(wide, dtype=bool) & (draws < cap)]
        draws = min(2 * draws, cap)
    return [best[row] for row in range(len(question))]


def continue_shifts(question: Question, items: Sequence[MaxShift], n_samples: Any) -> list[MaxShift]:
    """Largest shifts that the anytime test left wide, looked at with more rays of the same stream."""
    cap = check_integer(n_samples, "n_samples", "continued", least=1)
    from apas.certification.methods.sampling import Sampling as sampler  # which imports this module

    found = list(items)
    groups: dict[Any, list[int]] = {}
    for i, item in enumerate(items):
        if item.trace.get("test") == ANYTIME:
            settings = (item.trace[key] for key in ("entropy", "limit", "tolerance"))
            groups.setdefault((item.claim, *settings), []).append(i)
    if not groups:
        raise InputError('only the anytime test can be continued; use Sampling(test="anytime") in max_shift.')
    made = max(items[i].trace["samples"] for rows in groups.values() for i in rows)
    if cap < made:
        raise InputError(f"`n_samples` of continued must be at least {made}, as before, got {cap}; draw more.")
    for (claim, _, limit, tolerance), rows in groups.items():
        told = {"coverage": claim.coverage, "confidence": claim.confidence, "n_samples": cap, "tolerance": tolerance}
        some = question.take(np.array(rows, dtype=np.intp)).at(1.0).for_claim(claim)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            answers = sampled_answers(some, sampler(test="anytime", **told), items[rows[0]].stream, limit, "rays")
        for i, answer in zip(rows, answers, strict=True):
            found[i] = items[i].found_again(answer)
    return found
