"""Answers about every shift, and shares that were computed: bounds are proved again, witnesses replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from apas._random import Stream
from apas.certify.certificate import BoundEvidence, Certificate
from apas.certify.claims import Every, Most, Verdict
from apas.certify.confirm import confirmed_witness
from apas.certify.entry import decide
from apas.certify.enumeration import Enumeration, EnumerationEvidence
from apas.certify.exact import Exact
from apas.certify.interval import IntervalBounds, LinearBounds
from apas.certify.problem import Problem
from apas.certify.witness import CornerShift, DrawnShift, KeptShift
from apas.certify.worstcase import decided
from apas.contracts.report import Checked
from apas.display.numbers import at_least
from apas.errors import ApasError

__all__ = ["enumerated_again", "replayed", "reproved"]

_Answer = tuple[Checked, str]
#: Methods whose answer depends on nothing but the question, so that all of it can be computed again.
_AGAIN: dict[str, Any] = {"interval": IntervalBounds(), "linear": LinearBounds()}
#: Steps that prove without distinguishing cases; a time limit of 0 stops before those that do.
_DIRECT = ("interval", "linear", "ball", "models")
#: Branch and bound is repeated without a solver, and for no longer than this per row.
_WITHOUT_SOLVER, SECONDS = ("interval", "linear", "attack", "splitting"), 10.0
#: No more boxes than this are looked at again for one row.
MOST_BOXES = 1_000_000
#: How much a share of the box may differ on another machine.
SAME_SHARE = 1e-9


def reproved(problem: Problem, items: Sequence[Certificate], rows: Sequence[int]) -> dict[int, _Answer]:
    """Check the certificates number `rows`, all of which have evidence of bounds."""
    answers: dict[int, _Answer] = {}
    groups: dict[str, list[int]] = {}
    for i in rows:
        item, evidence = items[i], items[i].evidence
        assert isinstance(evidence, BoundEvidence)
        complaint = _consistent(problem, item, evidence)
        how = item.method.removeprefix("cascade: ")
        if complaint is not None:
            answers[i] = Checked.FAILS, complaint
        elif how not in ("interval", "linear", "exact", "attack"):
            answers[i] = Checked.NOT_CHECKED, f"there is no method {how!r} whose bounds could be computed again"
        elif how in _AGAIN or (how == "exact" and evidence.step in _DIRECT):
            groups.setdefault(how, []).append(i)
        elif how == "exact" and evidence.step == "splitting" and item.is_certified:
            answers[i] = _split_again(problem, i, item, evidence)
        elif item.verdict is Verdict.REFUTED:
            answers[i] = replayed(problem, i, item)
        elif item.verdict is Verdict.UNKNOWN:
            answers[i] = Checked.HOLDS, "nothing is claimed, so there is nothing to check"
        elif how == "attack":
            answers[i] = Checked.FAILS, "an attack proves nothing, so it cannot certify"
        else:
            why = f"proved by the step {evidence.step!r}, whose proof the file does not hold"
            answers[i] = Checked.NOT_CHECKED, why
    for how, part in groups.items():
        method = _AGAIN.get(how, Exact(time_limit=0.0))
        for i, now in zip(part, _run(problem, part, items, method), strict=True):
            answers[i] = _compared(problem, i, items[i], now)
    return answers


def enumerated_again(problem: Problem, items: Sequence[Certificate], rows: Sequence[int]) -> dict[int, _Answer]:
    """Check the certificates number `rows`, all of which have evidence of enumeration."""
    answers: dict[int, _Answer] = {}
    for i in rows:
        item, evidence, claim = items[i], items[i].evidence, items[i].claim
        assert isinstance(evidence, EnumerationEvidence)
        if item.method.removeprefix("cascade: ") != "enumeration":
            answers[i] = Checked.FAILS, f"its evidence is that of an enumeration, not of {item.method!r}"
            continue
        if evidence.evaluated > MOST_BOXES:
            answers[i] = Checked.NOT_CHECKED, f"{evidence.evaluated} boxes are more than are looked at again"
            continue
        if isinstance(claim, Most) and claim.confidence != 1.0:
            answers[i] = Checked.FAILS, "a share that is computed has confidence 1"
            continue
        coverage = claim.coverage if isinstance(claim, Most) else 1.0
        # the gap at which the run ended is not in the file; the number of boxes ends it at the same place
        method = Enumeration(coverage=coverage, gap=1e-300, max_boxes=evidence.evaluated)
        now = _run(problem, [i], items, method)[0]
        answers[i] = now if isinstance(now, tuple) else _same_share(problem, i, item, evidence, now)
    return answers


def replayed(problem: Problem, row: int, item: Certificate) -> _Answer:
    """Whether the shift that a certificate keeps lies in the set, and breaks the row."""
    witness, outside = item.witness, "its witness does not lie in the set or does not break the row"
    if witness is None:
        return Checked.FAILS, "it says that a shift breaks the row, but keeps none"
    if isinstance(witness, DrawnShift):
        try:
            drawn = problem.directions(Stream(witness.entropy, witness.purpose), witness.index, witness.index + 1)
            margin = problem.margins(drawn, np.array([row]))[0, 0]
        except (ApasError, IndexError):
            return Checked.FAILS, "its witness is a draw that does not exist"
        fails = bool(margin < -problem.band[row])
        return (Checked.HOLDS, f"draw number {witness.index} breaks it again") if fails else (Checked.FAILS, outside)
    assert isinstance(witness, CornerShift | KeptShift)
    size = len(problem.model.parameters)
    given = witness.signs if isinstance(witness, CornerShift) else witness.values
    if witness.delta != item.delta or given.shape != (size,):
        return Checked.FAILS, "its witness has another delta or another number of parameters than the certificate"
    if confirmed_witness(problem, row, witness.parameters(problem.model)) is None:
        return Checked.FAILS, outside
    return Checked.HOLDS, "its witness lies in the set and breaks the row"


def _split_again(problem: Problem, row: int, item: Certificate, evidence: BoundEvidence) -> _Answer:
    """Prove a row by distinguishing cases once more, without a solver; cases may come out differently elsewhere."""
    alone = problem.take(slice(row, row + 1))
    now = decided(alone, "exact", _WITHOUT_SOLVER, SECONDS)[0]
    same = isinstance(now.evidence, BoundEvidence) and now.evidence.nodes == evidence.nodes
    if now.verdict is Verdict.REFUTED:
        return Checked.FAILS, f"computed again, {now.reason}"
    if now.verdict is Verdict.UNKNOWN or not same:
        said = "was not found again" if now.verdict is Verdict.UNKNOWN else f"is another one here: {now.reason}"
        return Checked.NOT_CHECKED, f"the proof by {evidence.nodes} cases {said}"
    return _compared(problem, row, item, now)


def _consistent(problem: Problem, item: Certificate, evidence: BoundEvidence) -> str | None:
    """What in a certificate contradicts itself or the model, whatever the bounds are; None if nothing."""
    if not isinstance(item.claim, Every):
        return "bounds on the margin speak of every shift, which is not what is claimed"
    region = problem.region
    if item.claim.measure != region:
        return f"the set is {region!r}, the file says {item.claim.measure!r}"
    proved = evidence.bound is not None and evidence.bound > 0
    if proved != (item.verdict is Verdict.CERTIFIED):
        return f"a bound of {evidence.bound} does not go with the verdict {item.verdict}"
    if (item.witness is not None) != (item.verdict is Verdict.REFUTED):
        return f"the verdict {item.verdict} and the witness contradict each other"
    if evidence.bound is not None and float(at_least(evidence.bound)) != evidence.bound:
        return f"a bound has six digits, the file says {evidence.bound!r}"
    return None


def _run(
    problem: Problem, rows: list[int], items: Sequence[Certificate], method: Any
) -> Sequence[Certificate | _Answer]:
    some = replace(problem.take(np.array(rows, dtype=np.intp)), claim_rows=1)
    complaint = method.unsupported(some)
    if complaint is not None:
        return [(Checked.FAILS, complaint)] * len(rows)
    claims = [items[i].claim.rows for i in rows]
    found = decide(some, method, Stream(0, "verify"))
    return [replace(c, claim=replace(c.claim, rows=n)) for c, n in zip(found, claims, strict=True)]


def _compared(problem: Problem, row: int, item: Certificate, now: Certificate | _Answer) -> _Answer:
    if isinstance(now, tuple):
        return now
    if now.verdict is not item.verdict:
        return Checked.FAILS, f"computed again, the verdict is {now.verdict}: {now.reason}"
    if not isinstance(now.evidence, BoundEvidence) or not isinstance(item.evidence, BoundEvidence):
        return Checked.FAILS, f"computed again, {now.reason}"
    for key in ("step", "bound", "nodes", "exact"):
        told, found = getattr(item.evidence, key), getattr(now.evidence, key)
        if told != found:
            return Checked.FAILS, f"computed again, {key} is {found!r}, the file says {told!r}"
    if now.reason != item.reason:
        return Checked.FAILS, f"computed again, the reason is {now.reason!r}, the file says {item.reason!r}"
    if item.verdict is Verdict.REFUTED:
        return replayed(problem, row, item)
    return Checked.HOLDS, f"computed again: {now.reason}"


def _same_share(
    problem: Problem, row: int, item: Certificate, evidence: EnumerationEvidence, now: Certificate
) -> _Answer:
    found: Callable[[str], Any] = lambda key: getattr(now.evidence, key)  # noqa: E731
    if now.verdict is not item.verdict or now.claim != item.claim:
        return Checked.FAILS, f"computed again, {now.verdict}: {now.reason}"
    for key in ("lower", "upper"):
        if abs(found(key) - getattr(evidence, key)) > SAME_SHARE:
            return Checked.FAILS, f"computed again, {key} is {found(key)!r}, the file says {getattr(evidence, key)!r}"
    stopped = evidence.stopped if evidence.stopped != "gap" else "limit"
    if (evidence.open, evidence.evaluated, stopped) != (found("open"), found("evaluated"), found("stopped")):
        return Checked.FAILS, f"computed again, the boxes are others: {now.reason}"
    if item.witness is not None or (item.verdict is Verdict.REFUTED and isinstance(item.claim, Every)):
        return replayed(problem, row, item)
    return Checked.HOLDS, f"computed again: {now.reason}"
