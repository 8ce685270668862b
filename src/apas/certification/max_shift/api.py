"""`max_shift`: the largest shift at which each row is certified.

For one direction u let D be the first delta at which ``theta + delta u`` breaks the row. Draw n directions once and
let c be the number of failures that `allowed_failures` grants n draws. Then with the stated confidence at least a share
`coverage` of all directions has ``D >= D_(c+1)``, the (c+1)-th smallest of the n.

*Proof.* Let q be the largest number with P(D >= q) >= coverage, so that P(D <= q) >= 1 - coverage. The claim fails
only if D_(c+1) > q, that is, if at most c of the n draws are <= q; this has probability at most
P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence. One sample, no search, hence no selection.

On a grid the same holds with "first rung that fails" in place of D, and speaks of the rungs alone.
"""

from __future__ import annotations

import reprlib
import time
from numbers import Real
from typing import Any

import numpy as np

from apas._random import entropy_of
from apas._validation import check_flag, check_jobs
from apas.certification.api import METHODS, SHIFTS, check_agreement, check_target, pick
from apas.certification.certificate import NEAR_BOUNDARY, NOT_VALID
from apas.certification.claims import Every, Most
from apas.certification.max_shift.proved import proved_deltas, worst_case, worst_case_in_ball
from apas.certification.max_shift.rays import along_rays
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.max_shift.searches import confirmed, published
from apas.certification.methods.bounds import IntervalBounds, LinearBounds
from apas.certification.methods.cascade import Cascade
from apas.certification.methods.exact import Exact
from apas.certification.methods.sampling import Sampling
from apas.certification.question import Method, Question
from apas.errors import InputError, Unsupported
from apas.models.base import Model, Named, offers
from apas.models.convert import as_model, encoded_rows
from apas.models.digest import model_digest
from apas.models.feedforward import FeedForward
from apas.shifts.base import OtherMoves, ShiftSet
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts
from apas.stats import sample_size

SEARCHES = ("rays", "confirm", "paper")
#: Above this many parameters the search on fresh draws is the default.
MANY = 100_000


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
    rng: int | np.random.Generator | None = None,
) -> MaxShifts:
    """Find the largest shift of the model at which each row is certified to keep its class.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The counterfactual explanations.
    target : label, array_like of labels or "predicted"
        The class each row must keep.
    shifts : ShiftSet or str, default "linf"
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
    simultaneous : bool, default False
        Let the confidence hold for all rows together.
    n_jobs : int, default 1
        Number of processes; the answer does not depend on it.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the result.

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
    net = as_model(model)
    shift_set = pick(shifts, SHIFTS, ShiftSet, "shifts")
    sampler, proof = _method(method)
    kind = _search(search, sampler, net)
    check_flag(simultaneous, "simultaneous")
    points, encoded = encoded_rows(net, X)
    entropy = entropy_of(rng)
    question = Question(
        model=net,
        X=encoded,
        target=check_target(net, encoded, target),
        delta=np.ones(len(encoded)),
        shifts=shift_set,
        claim_rows=max(1, len(encoded)) if simultaneous else 1,
        n_jobs=check_jobs(n_jobs),
    )
    if isinstance(shift_set, ObservedShifts):
        raise Unsupported(
            "max_shift cannot use ObservedShifts: the models that choose a delta cannot also certify it; use "
            "certify(..., delta=1), or robust_fraction with deltas chosen beforehand."
        )
    check_agreement(net, points, encoded)
    farthest = _limit(limit, question)
    # only a method that speaks of every shift may ask what they are: not every set has an answer
    if sampler is None:
        _check_proof(question, proof)
    claim = sampler.claim(question) if sampler else Every(question.region, question.claim_rows)
    near = question.doubtful_rows()
    ok = question.valid_rows() & ~near if len(question) else near
    answers: list[MaxShift] = []
    if ok.any():
        asked = question.take(ok)
        network = asked.network if isinstance(shift_set, LinfShifts | LpShifts) else None
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            if isinstance(claim, Every):
                answers = proved_answers(asked, proof, claim, farthest)
            elif sampler is not None:
                answers = sampled_answers(asked, network, sampler, kind, entropy, farthest)
    waiting = iter(answers)
    others = (within_rounding if doubt else _not_valid for doubt in near.tolist())
    items = [
        next(waiting) if good else other(target, claim)
        for good, other, target in zip(ok.tolist(), others, question.target, strict=True)
    ]
    seconds = (time.perf_counter() - began) / max(1, len(items))
    for item in items:  # made a moment ago and seen by nobody yet
        object.__setattr__(item, "seconds", seconds)
        object.__setattr__(item, "trace", {**item.trace, "limit": farthest})
    names = net.feature_names if offers(net, Named) else None
    return MaxShifts(
        items, points=points, model_digest=model_digest(net), shifts=shift_set, feature_names=names, model=net
    )


def _method(method: Any) -> tuple[Sampling | None, Method]:
    """The sampler, if draws are asked for, and the method itself."""
    chosen: Method = pick(method, METHODS, Method, "method")
    if isinstance(chosen, Sampling):
        return chosen, chosen
    if not isinstance(chosen, IntervalBounds | LinearBounds | Exact | Cascade):
        raise InputError(
            "`method` of max_shift must be Sampling, IntervalBounds, LinearBounds, Exact or Cascade, "
            f"got {type(chosen).__name__}; it has no largest shift to offer."
        )
    return None, chosen


def _check_proof(question: Question, method: Method) -> list[Method]:
    """The methods that can prove something about this question; without one, or with a complaint, an error."""
    complaint = method.unsupported(question)
    if complaint is not None:
        raise Unsupported(complaint)
    usable = [m for m in (method.methods if isinstance(method, Cascade) else [method]) if not m.unsupported(question)]
    if not any(isinstance(m, IntervalBounds | LinearBounds | Exact) for m in usable):
        raise Unsupported(
            "max_shift needs a method that proves, IntervalBounds, LinearBounds or Exact, in the Cascade; pass a "
            "Sampling by itself."
        )
    return usable


def proved_answers(question: Question, method: Method, claim: Every, limit: float) -> list[MaxShift]:
    """The largest delta that a method which speaks of every shift proves."""
    usable = _check_proof(question, method)
    exact = next((m for m in usable if isinstance(m, Exact)), None)
    kind = "exact" if exact else "linear" if any(isinstance(m, LinearBounds) for m in usable) else "interval"
    if isinstance(question.shifts, LpShifts):
        return worst_case_in_ball(question, claim, limit, kind)
    network = question.network
    assert network is not None
    return worst_case(question, network, claim, limit, kind, exact.time_limit if exact else np.inf)


def _search(search: str | None, sampler: Sampling | None, net: Model) -> str:
    if search is None:
        return "rays" if len(net.parameters) <= MANY else "confirm"
    if not isinstance(search, str) or search not in SEARCHES:
        raise InputError(f"`search` must be one of {', '.join(map(repr, SEARCHES))}, got {search!r}.")
    if sampler is None and search != "rays":  # the name of the default does no harm
        raise InputError('`search` goes with method="sampling"; leave it out.')
    return search


def _limit(limit: float | None, question: Question) -> float:
    if limit is None:
        if getattr(question.shifts, "relative", False) or offers(question.shifts, OtherMoves):
            return 10.0
        return 10.0 * float(np.abs(question.model.parameters.values).max(initial=0.0)) or 10.0
    number = isinstance(limit, Real) and not isinstance(limit, bool | np.bool_)
    if not number or not 0 < limit < 1e300:
        raise InputError(f"`limit` of max_shift must be a positive finite number, got {reprlib.repr(limit)}.")
    return float(limit)


def _not_valid(target: Any, claim: Every | Most) -> MaxShift:
    return MaxShift(0.0, 0.0, 0.0, 0.0, True, False, claim, target, NOT_VALID, {})


def within_rounding(target: Any, claim: Every | Most) -> MaxShift:
    """What is known of a row whose class on the model itself is owed to rounding: nothing."""
    return MaxShift(0.0, float("inf"), 0.0, float("inf"), False, False, claim, target, NEAR_BOUNDARY, {})


def sampled_answers(
    question: Question, network: FeedForward | None, sampler: Sampling, search: str, entropy: int, limit: float
) -> list[MaxShift]:
    """The largest deltas that draws certify, for rows that are valid on the model itself."""
    claim = sampler.claim(question)
    proved, _, broken = proved_deltas(question, network, limit)
    samples, allowed, refuting = sampler.plan(question, claim)
    if search == "rays":
        return along_rays(question, network, claim, entropy, (samples, allowed, refuting), limit, proved, broken)
    if search == "confirm":
        found = confirmed(question, claim, entropy, samples, limit, proved)
    else:
        if sampler.n_samples is None:  # as published: no more draws than the claim needs
            samples = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
        found = published(question, entropy, samples, limit)
    answers = []
    for i in range(len(question)):
        delta = max(float(found.delta[i]), float(proved[i]))
        reason = found.reason[i] if delta > proved[i] or not delta else "proved for every shift"
        upper = float("inf")
        answers.append(
            MaxShift(
                delta,
                upper,
                float(proved[i]),
                float(broken[i]),
                False,
                delta >= limit,
                claim,
                question.target[i],
                reason,
                found.trace[i],
            )
        )
    return answers
