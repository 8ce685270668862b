"""Certificates by sampling, drawn again from the stream that they name and counted anew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from apas._random import Stream
from apas.certify.certificate import Certificate
from apas.certify.claims import Most, Verdict
from apas.certify.entry import decide
from apas.certify.problem import Problem
from apas.certify.sampling import Sampling, SamplingEvidence
from apas.contracts.report import Checked
from apas.errors import InputError
from apas.shifts.observed import ObservedShifts

__all__ = ["MOST_DRAWS", "confirmed_anew", "redrawn", "too_many_rows"]

#: No more draws than this are made again for one row; a file can ask for any number.
MOST_DRAWS = 10_000_000
_Answer = tuple[Checked, str]
_TEST = re.compile(r"generate/(\d{1,9})/(\d{1,9})")


def redrawn(problem: Problem, items: Sequence[Certificate], rows: Sequence[int]) -> dict[int, _Answer]:
    """Check the certificates number `rows`, all of which have evidence of sampling."""
    answers: dict[int, _Answer] = {}
    groups: dict[Any, list[int]] = {}
    together = Counter((items[i].claim, items[i].evidence.to_dict()["entropy"]) for i in rows)
    for i in rows:
        evidence, claim = items[i].evidence, items[i].claim
        assert isinstance(evidence, SamplingEvidence)
        complaint = _accounts(items[i], evidence, problem, together[claim, hex(evidence.entropy)])
        if complaint is not None:
            answers[i] = Checked.FAILS, complaint
        elif evidence.samples > MOST_DRAWS:
            answers[i] = Checked.NOT_CHECKED, f"{evidence.samples} draws are more than are made again ({MOST_DRAWS})"
        else:
            groups.setdefault((claim, evidence.samples, evidence.entropy, evidence.purpose), []).append(i)
    for (claim, samples, entropy, purpose), part in groups.items():
        found = _run(problem, part, claim, samples, Stream(entropy, purpose))
        for i, now in zip(part, found, strict=True):
            answers[i] = _compared(items[i], now)
    return answers


def confirmed_anew(
    problem: Problem, items: Sequence[Certificate], rows: Sequence[int], entropy: int
) -> dict[int, _Answer]:
    """Put certified rows to the same test on draws that nobody could have known before."""
    answers: dict[int, _Answer] = {}
    groups: dict[Any, list[int]] = {}
    for i in rows:
        groups.setdefault((items[i].claim, items[i].evidence.to_dict()["samples"]), []).append(i)
    for (claim, samples), part in groups.items():
        for i, now in zip(part, _run(problem, part, claim, samples, Stream(entropy, "verify")), strict=True):
            said = f"on fresh draws (entropy {entropy:#x}): {now if isinstance(now, str) else now.reason}"
            verdict = Verdict.UNKNOWN if isinstance(now, str) else now.verdict
            answers[i] = {
                Verdict.CERTIFIED: (Checked.HOLDS, f"recomputed; certified again {said}"),
                Verdict.REFUTED: (Checked.FAILS, f"refuted {said}"),
                Verdict.UNKNOWN: (Checked.NOT_CHECKED, f"neither certified nor refuted {said}"),
            }[verdict]
    return answers


def _accounts(item: Certificate, evidence: SamplingEvidence, problem: Problem, together: int) -> str | None:
    """What is wrong with how the claim accounts for the draws, or None."""
    claim = item.claim
    if not isinstance(claim, Most) or claim.confidence == 1.0:
        return "draws cannot show what is claimed: they speak of most shifts, with a confidence below 1"
    if item.method == "cascade: sampling":
        return "a cascade may have drawn sample after sample until one passed, which its confidence does not count"
    if item.method != "sampling":
        return f"its evidence is that of sampling, not of {item.method!r}"
    test = _TEST.fullmatch(evidence.purpose)
    if evidence.purpose != "certify" and test is None:
        return f"nothing is certified on the stream {evidence.purpose!r}"
    number = int(test[2]) if test else 0
    tries = 1 if isinstance(problem.shifts, ObservedShifts) else max(1, number * (number + 1))
    if item.is_certified and evidence.draws != evidence.samples:
        return f"{evidence.samples} draws were planned, and a certified row has seen {evidence.draws}"
    if claim.tries != tries:
        return f"a test on the stream {evidence.purpose!r} divides its risk by {tries}, the file says {claim.tries}"
    return too_many_rows(claim, together)


def too_many_rows(claim: Most, together: int) -> str | None:
    """What is wrong if so many rows of a file share a claim and its draws, or None."""
    if 1 < claim.rows < together:
        return f"the claim is about {claim.rows} rows together, but {together} rows of the file share it"
    return None


def _run(
    problem: Problem, rows: list[int], claim: Most, samples: int, stream: Stream
) -> Sequence[Certificate | str]:  # fmt: skip
    """The certificates that the draws give, or why they give none."""
    some = replace(problem.take(np.array(rows, dtype=np.intp)), claim_rows=claim.rows, tries=claim.tries)
    try:
        method = Sampling(coverage=claim.coverage, confidence=claim.confidence, n_samples=samples)
        return decide(some, method, stream)
    except InputError as error:
        return [str(error)] * len(rows)


def _compared(item: Certificate, now: Certificate | str) -> _Answer:
    if isinstance(now, str):
        return Checked.FAILS, now
    told, found = (
        {**c.to_dict()["evidence"], "verdict": c.verdict.name, "claim": c.claim.to_dict(), "reason": c.reason,
         "witness": None if c.witness is None else c.witness.to_dict()}
        for c in (item, now)
    )  # fmt: skip
    for key, value in found.items():
        if told.get(key) != value:
            return Checked.FAILS, f"drawn again, {key} is {value!r}, the file says {told.get(key)!r}"
    return Checked.HOLDS, f"drawn again: {now.reason}"
