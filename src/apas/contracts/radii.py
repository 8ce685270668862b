"""The largest shifts of a file, searched again on the stream that they name."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from apas.bounds.interval import is_exact
from apas.certify.certificate import NEAR_BOUNDARY, NOT_VALID
from apas.certify.claims import Every, Most
from apas.certify.interval import IntervalBounds, LinearBounds
from apas.certify.maxshifts import MaxShift
from apas.certify.problem import Problem
from apas.certify.radius import proved_answers, sampled_answers, within_rounding
from apas.certify.sampling import Sampling
from apas.contracts.fields import Fields
from apas.contracts.redrawn import MOST_DRAWS, too_many_rows
from apas.contracts.report import Checked
from apas.errors import ApasError
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts

__all__ = ["searched_again"]

_Answer = tuple[Checked, str]
#: How much a delta may differ on another machine, as a share of it.
SAME_DELTA = 1e-9
_PROOFS: dict[str, Any] = {"interval": IntervalBounds(), "linear": LinearBounds()}


def searched_again(problem: Problem, items: Sequence[MaxShift]) -> list[_Answer]:
    """Check every largest shift, row by row: a row's answer does not depend on the others."""
    near = problem.doubtful_rows()
    valid = problem.valid_rows() & ~near if len(problem) else near
    shared = [(item.claim, item.trace.get("entropy")) for item in items]
    together = Counter(key for key, ok in zip(shared, valid, strict=True) if ok)
    answers: list[_Answer] = []
    for i, (item, ok) in enumerate(zip(items, valid.tolist(), strict=True)):
        crowded = too_many_rows(item.claim, together[shared[i]]) if isinstance(item.claim, Most) and ok else None
        if near[i]:
            same = replace(item, trace={}, seconds=0.0) == within_rounding(item.target, item.claim)
            answers.append((Checked.HOLDS if same else Checked.FAILS, NEAR_BOUNDARY))
            continue
        answer = _checked(problem.take(slice(i, i + 1)), item, ok) if crowded is None else (Checked.FAILS, crowded)
        answers.append(answer)
    return answers


def _checked(alone: Problem, item: MaxShift, valid: bool) -> _Answer:
    if valid == (item.reason == NOT_VALID):
        return Checked.FAILS, f"on the model itself the row is {'' if valid else 'not '}valid, the file says otherwise"
    if not valid:
        nothing = item.delta == item.upper == item.provable == item.broken_at == 0
        return (
            (Checked.HOLDS, NOT_VALID) if nothing else (Checked.FAILS, "a row that is not valid has no largest shift")
        )
    some = replace(alone, claim_rows=item.claim.rows)
    try:
        now = _searched(some, item)
    except ApasError as error:
        return Checked.FAILS, str(error)
    return now if isinstance(now, tuple) else _compared(item, now)


def _searched(alone: Problem, item: MaxShift) -> MaxShift | _Answer:
    trace, claim = Fields(dict(item.trace), "trace"), item.claim
    limit = trace.number("limit", above=0)
    if isinstance(claim, Every):
        kind = trace.choice("method", "interval", "linear", "exact")
        closed = isinstance(alone.shifts, LpShifts) or (alone.network is not None and is_exact(alone.network))
        if kind == "exact" and not closed:
            return Checked.NOT_CHECKED, "the proofs that led to it are not in the file"
        claimed = Every(alone.region, claim.rows)
        # with closed forms all methods give the same
        found = proved_answers(alone, _PROOFS["interval" if closed else kind], claimed, limit)[0]
        return replace(found, trace={**found.trace, "method": kind, "limit": limit})
    samples = trace.integer("samples", 1)
    if samples > MOST_DRAWS:
        return Checked.NOT_CHECKED, f"{samples} draws are more than are made again ({MOST_DRAWS})"
    network = alone.network if isinstance(alone.shifts, LinfShifts | LpShifts) else None
    search = trace.choice("search", "rays", "confirm", "paper")
    if search == "confirm" and item.trace.get("claim") == "pointwise":  # as it was once written
        return Checked.NOT_CHECKED, "its draws were looked at with delta alone, which says nothing of smaller deltas"
    if search == "rays" and network is None and "rungs" not in item.trace:
        return Checked.NOT_CHECKED, "the file does not tell its grid, which was once laid in another way"
    sampler = Sampling(coverage=claim.coverage, confidence=claim.confidence, n_samples=samples)
    found = sampled_answers(alone, network, sampler, search, trace.entropy("entropy"), limit)[0]
    return replace(found, trace={**found.trace, "limit": limit})


def _compared(item: MaxShift, now: MaxShift) -> _Answer:
    for key in ("delta", "upper", "provable", "broken_at"):
        told, found = getattr(item, key), getattr(now, key)
        if not (told == found or math.isclose(told, found, rel_tol=SAME_DELTA)):
            return Checked.FAILS, f"searched again, {key} is {found!r}, the file says {told!r}"
    for key in ("claim", "exact", "reached_limit", "reason"):
        told, found = getattr(item, key), getattr(now, key)
        if told != found:
            return Checked.FAILS, f"searched again, {key} is {found!r}, the file says {told!r}"
    if not _same_trace(item.trace, now.trace):
        return Checked.FAILS, f"searched again, trace is {dict(now.trace)!r}, the file says {dict(item.trace)!r}"
    return Checked.HOLDS, f"searched again: {now.reason}"


def _same_trace(told: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether two searches did the same; files of rays in dense networks did not always tell their rungs."""
    if found.get("search") == "rays":
        found = {key: value for key, value in found.items() if key in told or not key.startswith("rungs_")}
    return told.keys() == found.keys() and all(_same(told[key], value) for key, value in found.items())


def _same(told: Any, found: Any) -> bool:
    """Whether two values of a trace are equal; rungs are deltas, and as close as those must be."""
    if isinstance(found, list) and isinstance(told, list):
        return len(told) == len(found) and all(map(_same, told, found))
    if isinstance(found, float) and isinstance(told, int | float):
        return math.isclose(told, found, rel_tol=SAME_DELTA)
    return bool(told == found)
