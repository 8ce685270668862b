"""Certificates by sampling, drawn again from the stream that they name and counted anew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from apas._random import Stream
from apas.certify.certificate import Certificate
from apas.certify.claims import Most, search_tries
from apas.certify.entry import decide
from apas.certify.problem import Problem
from apas.certify.sampling import DOUBT, Sampling, SamplingEvidence
from apas.certify.scan import first_failures
from apas.contracts.report import Checked
from apas.display.numbers import at_most
from apas.errors import InputError
from apas.shifts.observed import ObservedShifts
from apas.stats import allowed_failures, coverage_lower, refuting_failures, sample_size, simultaneous

__all__ = ["MOST_DRAWS", "Fresh", "confirmed_anew", "redrawn", "too_many_rows"]

#: No more draws than this are made again for one row; a file can ask for any number.
MOST_DRAWS = 10_000_000
#: Fresh draws refute no true claim of a call, but with a probability of `MISTAKEN`; and they refute a claim that leaves
#: out a `WORSE` times smaller share than fails with the probability `POWER`.
MISTAKEN, WORSE, POWER = Fraction(1, 1000), Fraction(3, 2), Fraction(99, 100)
_Answer = tuple[Checked, str]
#: Numbers as `generate` writes them: another spelling of the same test would name other draws, to be chosen from.
_TEST = re.compile(r"generate/(0|[1-9][0-9]{0,8})/(0|[1-9][0-9]{0,8})")


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
            answers[i] = _charged(problem, items[i], _compared(items[i], now), _lower_ranks(items, rows, entropy))
    return answers


@dataclass(frozen=True)
class Fresh:
    """What the verifier draws anew.

    Attributes
    ----------
    entropy : int
    samples : int or None
        Draws per row, whatever the issuer drew; None for as many as it takes, see `WORSE`.
    notes : list of str
        What the draws could show, written down as they are made.
    """

    entropy: int
    samples: int | None
    notes: list[str] = field(default_factory=list)


def confirmed_anew(
    problem: Problem, items: Sequence[Certificate], rows: Sequence[int], answers: dict[int, _Answer], fresh: Fresh
) -> dict[int, _Answer]:
    """Put certified rows, whose `answers` say that they hold, to a test on draws that nobody could have known."""
    if _listed(problem):
        said = "there are no other models of these to draw"
        return {i: (answers[i][0], f"{answers[i][1]}; {said}") for i in rows}
    found: dict[int, _Answer] = {}
    groups: dict[Most, list[int]] = {}
    for i in rows:
        claim = items[i].claim
        assert isinstance(claim, Most)
        groups.setdefault(claim, []).append(i)
    level = simultaneous(1 - MISTAKEN, len(rows))
    for claim, part in groups.items():
        found |= _confirmed_anew(problem.take(np.array(part, dtype=np.intp)), claim, part, answers, fresh, level)
    return found


def _confirmed_anew(
    some: Problem, claim: Most, part: list[int], answers: dict[int, _Answer], fresh: Fresh, level: Fraction
) -> dict[int, _Answer]:  # fmt: skip
    """The answers about rows that share a claim."""
    n = fresh.samples or min(MOST_DRAWS, _detecting(claim.coverage, level))
    allowed = allowed_failures(n, coverage=claim.coverage, confidence=claim.row_confidence)
    refuting = refuting_failures(n, coverage=claim.coverage, confidence=level)
    drawn = first_failures(some, Stream(fresh.entropy, "verify"), n, max(DOUBT * refuting, allowed + 1), refuting)
    note = _power(claim, n, refuting, fresh.entropy)
    fresh.notes.extend([] if note in fresh.notes else [note])
    found: dict[int, _Answer] = {}
    for row, i in enumerate(part):
        where, sure = drawn.of(row)
        count = int(np.count_nonzero(sure))
        if count >= refuting:
            last = int(np.flatnonzero(sure)[refuting - 1])
            said = f"{last + 1} of {where[last] + 1} failed, {refuting} are too many"
            found[i] = Checked.FAILS, f"refuted on fresh draws: {said}"
        elif len(where) <= allowed:
            said = f"{len(where)} of {n} failed, at most {allowed} may"
            found[i] = Checked.HOLDS, f"{answers[i][1]}; certified again on fresh draws: {said}"
        else:
            needed = f"at most {allowed} certify" if allowed >= 0 else "so few draws certify nothing"
            said = f"{len(where)} of {n} failed, {needed}, {refuting} would refute"
            found[i] = Checked.NOT_CHECKED, f"neither certified nor refuted on fresh draws: {said}"
    return found


@cache
def _detecting(coverage: float, level: Fraction) -> int:
    """The smallest number of draws that refutes with probability `POWER` where `WORSE` times what may fail does.

    So many failures r refute that a true claim has as many with a probability of at most ``1 - level``. For each r
    there is a least number of draws that finds r failures with the wanted probability; the first r at which so many
    draws are not too many for the level gives the answer, since what is too many for it at n is so at any larger n.
    """
    fails = 1 - Fraction(repr(coverage))
    if WORSE * fails >= 1:  # then the worst that can be detected is that all draws fail
        return sample_size(coverage=fails, confidence=level)
    refuting = 1
    while True:
        n = sample_size(coverage=1 - WORSE * fails, confidence=POWER, failures=refuting - 1)
        if refuting_failures(n, coverage=coverage, confidence=level) <= refuting:
            return n
        refuting += 1


def _power(claim: Most, n: int, refuting: int, entropy: int) -> str:
    """What so many draws could show, in a sentence."""
    drawn = f"{n} models were drawn afresh for each certified row (entropy {entropy:#x})"
    if refuting > n:
        return f"{drawn}: too few to refute a coverage of {claim.coverage}."
    # the failing share with which `refuting` failures have the probability `POWER`: a double, so a little more is said
    share = (1 - coverage_lower(n, refuting - 1, confidence=POWER)) * (1 + 1e-9)
    times = share / float(1 - Fraction(repr(claim.coverage)))
    return (
        f"{drawn}: {refuting} failures refute a coverage of {claim.coverage}. That any true claim is refuted has a "
        f"probability of at most {float(MISTAKEN)}; a row that a share of {at_most(share)} of the shifts or "
        f"more breaks beyond rounding, {at_most(times)} times what the claim leaves out, is refuted with a probability "
        f"of at least {float(POWER)}."
    )


def _accounts(item: Certificate, evidence: SamplingEvidence, problem: Problem, together: int) -> str | None:
    """What is wrong with how the claim accounts for the draws, or None."""
    claim = item.claim
    if not isinstance(claim, Most) or claim.confidence == 1.0:
        return "draws cannot show what is claimed: they speak of most shifts, with a confidence below 1"
    if item.method == "cascade: sampling":
        return "a cascade may have drawn sample after sample until one passed, which its confidence does not count"
    if item.method != "sampling":
        return f"its evidence is that of sampling, not of {item.method!r}"
    rank, test = _test_of(evidence)
    if rank < 0:
        return f"nothing is certified on the stream {evidence.purpose!r}"
    if item.is_certified and evidence.draws != evidence.samples:
        return f"{evidence.samples} draws were planned, and a certified row has seen {evidence.draws}"
    before = search_tries(0, test) if item.is_certified and not _listed(problem) else None
    if claim.tries not in (before, _tries(problem, evidence)):
        return _undercharged(problem, evidence, claim)
    return too_many_rows(claim, together)


def _test_of(evidence: SamplingEvidence) -> tuple[int, int]:
    """Rank and number of the test that a stream is for; (0, 0) for that of `certify`, a rank of -1 if for none."""
    found = _TEST.fullmatch(evidence.purpose)
    return (int(found[1]), int(found[2])) if found else (0 if evidence.purpose == "certify" else -1, 0)


def _listed(problem: Problem) -> bool:
    """Whether nothing is drawn: of models that exist there is one test, and its stream is a name only."""
    return isinstance(problem.shifts, ObservedShifts)


def _tries(problem: Problem, evidence: SamplingEvidence) -> int:
    """By what the risk of the test that a stream is for has to be divided."""
    return 1 if _listed(problem) else search_tries(*_test_of(evidence))


def _undercharged(problem: Problem, evidence: SamplingEvidence, claim: Most) -> str:
    tries = _tries(problem, evidence)
    return f"a test on the stream {evidence.purpose!r} divides its risk by {tries}, the file says {claim.tries}"


def _lower_ranks(items: Sequence[Certificate], rows: Sequence[int], entropy: int) -> int:
    """How many ranks from 0 on have a row that was tested on draws of this seed."""
    found = [items[i].evidence for i in rows]
    ranks = {_test_of(e)[0] for e in found if isinstance(e, SamplingEvidence) and e.entropy == entropy}
    return next(rank for rank in range(len(rows) + 1) if rank not in ranks)


def _charged(problem: Problem, item: Certificate, answer: _Answer, known: int) -> _Answer:
    """What is left of an answer if the row has not paid for its rank, as in files from before a rank had a price.

    Its draws may do for the price as well. If not, it may have been chosen among as many ranks as one likes, unless the
    file holds all lower ones; then nobody can tell.
    """
    evidence, claim = item.evidence, item.claim
    assert isinstance(evidence, SamplingEvidence)
    assert isinstance(claim, Most)
    tries, rank = _tries(problem, evidence), _test_of(evidence)[0]
    if answer[0] is not Checked.HOLDS or claim.tries == tries:
        return answer
    confidence = replace(claim, tries=tries).row_confidence
    allowed = allowed_failures(evidence.samples, coverage=claim.coverage, confidence=confidence)
    if evidence.failures <= allowed:
        return Checked.HOLDS, f"{answer[1]}; for its rank of {rank} at most {allowed} may"
    if rank > known:
        return Checked.FAILS, _undercharged(problem, evidence, claim)
    return Checked.NOT_CHECKED, f"{answer[1]}, but {_undercharged(problem, evidence, claim)}: generate it again"


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
