"""Certificates recomputed: draws made again, bounds proved again, witnesses replayed, largest shifts searched again."""

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, cast

import numpy as np

from apas._fields import Fields
from apas._random import DERIVED, Stream
from apas.certification import certificate
from apas.certification.certificate import NEAR_BOUNDARY, NOT_VALID, BoundEvidence, Certificate
from apas.certification.claims import CLAIMS, Claim, Most, Verdict, search_tries
from apas.certification.failing_draws import first_failures
from apas.certification.max_shift.result import ENDS, MaxShift, without_search
from apas.certification.methods.bounds import Exact, IntervalBounds, LinearBounds, decide_rows
from apas.certification.methods.enumeration import Enumeration, EnumerationEvidence
from apas.certification.methods.refit import RefitBounds
from apas.certification.methods.sampling import DOUBT, Sampling, SamplingEvidence
from apas.certification.question import Question, decide
from apas.certification.region import names_of
from apas.certification.region_claims import OPEN_TODAY
from apas.display.numbers import at_least, at_most
from apas.errors import ApasError, InputError
from apas.models.base import encoded_rows, offers
from apas.shifts.base import Ball, Ellipsoid, Embedded, Listed, Region, Sparse
from apas.stats import allowed_failures, coverage_lower, refuting_failures, sample_size, simultaneous
from apas.stats.sequential import ANYTIME
from apas.worst_case.intervals import is_exact


class Checked(StrEnum):
    """What became of one line; the value is how it is printed."""

    HOLDS = "HOLDS"
    FAILS = "FAILS"
    NOT_CHECKED = "NOT CHECKED"


MOST_DRAWS = 10_000_000  # no more draws than this are made again for one row; a file can ask for any number
#: Fresh draws refute no true claim of a call, but with a probability of `MISTAKEN`; and they refute a claim that leaves
#: out a `WORSE` times smaller share than fails with the probability `POWER`.
MISTAKEN, WORSE, POWER = Fraction(1, 1000), Fraction(3, 2), Fraction(99, 100)
Answer = tuple[Checked, str]
#: Numbers as `generate` writes them: another spelling of the same test would name other draws, to be chosen from.
_TEST = re.compile(r"generate/(0|[1-9][0-9]{0,8})/(0|[1-9][0-9]{0,8})")


def draw_again(question: Question, items: Sequence[Certificate], rows: Sequence[int]) -> dict[int, Answer]:
    """Check the certificates number `rows`, all of which have evidence of sampling."""
    answers: dict[int, Answer] = {}
    groups: dict[Any, list[int]] = {}
    evidences: dict[int, Any] = {i: items[i].evidence for i in rows}
    together = Counter((items[i].claim, evidence.entropy) for i, evidence in evidences.items())
    for i, evidence in evidences.items():
        claim = items[i].claim
        complaint = _accounts(items[i], evidence, question, together[claim, evidence.entropy])
        # what the anytime test has decided stays so, however many draws there might have been
        ended = evidence.anytime and items[i].verdict is not Verdict.UNKNOWN and evidence.samples > MOST_DRAWS
        samples = evidence.draws if ended and evidence.draws else evidence.samples
        if complaint is not None:
            answers[i] = Checked.FAILS, complaint
        elif samples > MOST_DRAWS:
            answers[i] = Checked.NOT_CHECKED, f"{samples} draws are more than are made again ({MOST_DRAWS})"
        else:
            stream = (samples, evidence.entropy, evidence.purpose, evidence.anytime)
            groups.setdefault((claim, *stream), []).append(i)
    for (claim, samples, entropy, purpose, anytime), part in groups.items():
        # how many ranks from 0 on have a row that was tested on draws of this seed
        ranks = {_test_of(evidence)[0] for evidence in evidences.values() if evidence.entropy == entropy}
        known = next(rank for rank in range(len(rows) + 1) if rank not in ranks)
        some = question.take(np.array(part, dtype=np.intp)).for_claim(claim)
        found: Sequence[Certificate | str]
        try:
            test = {"n_samples": samples, "test": "anytime" if anytime else "fixed"}
            method = Sampling(coverage=claim.coverage, confidence=claim.confidence, **test)
            found = decide(some, method, Stream(entropy, purpose))
        except InputError as error:
            found = [str(error)] * len(part)
        for i, now in zip(part, found, strict=True):
            answers[i] = _charge_rank(question, claim, evidences[i], _compared_draws(items[i], now), known)
    return answers


@dataclass(frozen=True)
class Fresh:
    """What the verifier draws anew."""

    entropy: int
    samples: int | None
    notes: list[str] = field(default_factory=list)


def confirmed_anew(
    question: Question, items: Sequence[Certificate], rows: Sequence[int], answers: dict[int, Answer], fresh: Fresh
) -> dict[int, Answer]:
    """Put certified rows, whose `answers` say that they hold, to a test on draws that nobody could have known."""
    if offers(question.shifts, Listed):
        said = "there are no other models of these to draw"
        return {i: (answers[i][0], f"{answers[i][1]}; {said}") for i in rows}
    found: dict[int, Answer] = {}
    groups: dict[Any, list[int]] = {}  # of rows that share a claim
    for i in rows:
        groups.setdefault(items[i].claim, []).append(i)
    level = simultaneous(1 - MISTAKEN, len(rows))
    for claim, part in groups.items():
        n = fresh.samples or min(MOST_DRAWS, _detecting_draws(claim.coverage, level))
        allowed = allowed_failures(n, coverage=claim.coverage, confidence=claim.row_confidence)
        refuting = refuting_failures(n, coverage=claim.coverage, confidence=level)
        some, most = question.take(np.array(part, dtype=np.intp)), max(DOUBT * refuting, allowed + 1)
        drawn = first_failures(some, Stream(fresh.entropy, "verify"), n, most, refuting)
        note = _power(claim, n, refuting, fresh.entropy)
        fresh.notes.extend([] if note in fresh.notes else [note])
        for row, i in enumerate(part):
            where, sure = drawn.of(row)
            if int(np.count_nonzero(sure)) >= refuting:
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
def _detecting_draws(coverage: float, level: Fraction) -> int:
    """The smallest number of draws that refutes with probability `POWER` where `WORSE` times what may fail does."""
    # So many failures r refute that a true claim has as many with a probability of at most ``1 - level``. For each r
    # there is a least number of draws that finds r failures with the wanted probability; the first r at which so many
    # draws are not too many for the level gives the answer, since what is too many for it at n is so at any larger n.
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


def _accounts(item: Certificate, evidence: SamplingEvidence, question: Question, together: int) -> str | None:
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
    if item.is_certified and evidence.draws != evidence.samples and not evidence.anytime:
        return f"{evidence.samples} draws were planned, and a certified row has seen {evidence.draws}"
    # what tests cost when ranks had no price yet; there was no anytime test then
    priced = evidence.anytime or not item.is_certified or offers(question.shifts, Listed)
    before = None if priced else search_tries(0, test)
    # a search with derived seeds tests each candidate on draws that follow from it, and pays what it likes
    if evidence.siblings is None and claim.tries not in (before, _tries(question, evidence)):
        return _rank_complaint(question, evidence, claim)
    return too_many_rows(claim, together)


def _test_of(evidence: SamplingEvidence) -> tuple[int, int]:
    """Rank and number of the test that a stream is for; (0, 0) for that of `certify`, a rank of -1 if for none."""
    found = _TEST.fullmatch(evidence.purpose)
    known = evidence.purpose in ("certify", f"{DERIVED}certify")
    return (int(found[1]), int(found[2])) if found else (0 if known else -1, 0)


def _tries(question: Question, evidence: SamplingEvidence) -> int:
    """By what the risk of the test that a stream is for has to be divided."""
    # of models that exist there is one test, and its stream is a name only
    return 1 if offers(question.shifts, Listed) else search_tries(*_test_of(evidence))


def _rank_complaint(question: Question, evidence: SamplingEvidence, claim: Most) -> str:
    tries = _tries(question, evidence)
    return f"a test on the stream {evidence.purpose!r} divides its risk by {tries}, the file says {claim.tries}"


def _charge_rank(question: Question, claim: Most, evidence: SamplingEvidence, answer: Answer, known: int) -> Answer:
    """What is left of an answer if the row has not paid for its rank, as in files from before a rank had a price."""
    # Its draws may do for the price as well. If not, it may have been chosen among as many ranks as one likes, unless
    # the file holds all lower ones; then nobody can tell.
    tries, rank = _tries(question, evidence), _test_of(evidence)[0]
    if answer[0] is not Checked.HOLDS or claim.tries == tries or evidence.siblings is not None:
        return answer
    confidence = replace(claim, tries=tries).row_confidence
    allowed = allowed_failures(evidence.samples, coverage=claim.coverage, confidence=confidence)
    if evidence.failures <= allowed:
        return Checked.HOLDS, f"{answer[1]}; for its rank of {rank} at most {allowed} may"
    if rank > known:
        return Checked.FAILS, _rank_complaint(question, evidence, claim)
    return Checked.NOT_CHECKED, f"{answer[1]}, but {_rank_complaint(question, evidence, claim)}: generate it again"


def too_many_rows(claim: Claim, together: int) -> str | None:
    """What is wrong if so many rows of a file share a claim and its draws, or None."""
    if 1 < claim.rows < together:
        return f"the claim is about {claim.rows} rows together, but {together} rows of the file share it"
    return None


def _differing(
    done: str, told: Mapping[str, Any], found: Mapping[str, Any], same: Callable[[Any, Any], bool] = operator.eq
) -> Answer | None:
    """What of a certificate another run of what made it finds otherwise; None if nothing."""
    for key, value in found.items():
        if not same(told.get(key), value):
            return Checked.FAILS, f"{done} again, {key} is {value!r}, the file says {told.get(key)!r}"
    return None


def _compared_draws(item: Certificate, now: Certificate | str) -> Answer:
    if isinstance(now, str):
        return Checked.FAILS, now
    whole, keys = (item.to_dict(), now.to_dict()), ("verdict", "claim", "reason", "witness")
    told, found = ({**c["evidence"], **{key: c[key] for key in keys}} for c in whole)
    if told["test"] == ANYTIME and now.verdict is not Verdict.UNKNOWN:
        found["samples"] = max(told["samples"], told["draws"])
    return _differing("drawn", told, found) or (Checked.HOLDS, f"drawn again: {now.reason}")


#: Methods whose answer depends on nothing but the question, so that all of it can be computed again.
_AGAIN: dict[str, Any] = {"interval": IntervalBounds(), "linear": LinearBounds(), "refit": RefitBounds()}
#: Steps that prove without distinguishing cases; a time limit of 0 stops before those that do.
_DIRECT = ("interval", "linear", "ball", "ellipsoid", "models")
#: Branch and bound is repeated without a solver, and for no longer than this per row.
_WITHOUT_SOLVER, SECONDS = ("interval", "linear", "attack", "splitting"), 10.0
MOST_BOXES = 1_000_000  # no more boxes than this are looked at again for one row
SAME_SHARE = 1e-9  # how much a share of the box may differ on another machine


def prove_again(question: Question, items: Sequence[Certificate], rows: Sequence[int]) -> dict[int, Answer]:
    """Check the certificates number `rows`, all of which have evidence of bounds."""
    answers: dict[int, Answer] = {}
    groups: dict[str, list[int]] = {}
    for i in rows:
        item, evidence = items[i], cast(BoundEvidence, items[i].evidence)
        complaint, how = _contradiction(question, item, evidence), item.method.removeprefix("cascade: ")
        if complaint is not None:
            answers[i] = Checked.FAILS, complaint
        elif how not in ("interval", "linear", "exact", "attack"):
            answers[i] = Checked.NOT_CHECKED, f"there is no method {how!r} whose bounds could be computed again"
        elif how in _AGAIN or (how == "exact" and evidence.step in _DIRECT):
            groups.setdefault(how, []).append(i)
        elif how == "exact" and evidence.step == "splitting" and item.is_certified:
            answers[i] = _split_again(question, i, item, evidence)
        elif item.verdict is Verdict.REFUTED:
            answers[i] = replay_witness(question, i, item)
        elif item.verdict is Verdict.UNKNOWN:
            answers[i] = Checked.HOLDS, "nothing is claimed, so there is nothing to check"
        elif how == "attack":
            answers[i] = Checked.FAILS, "an attack proves nothing, so it cannot certify"
        else:
            said = f"proved by the step {evidence.step!r}, whose proof the file does not hold"
            answers[i] = Checked.NOT_CHECKED, said
    for how, part in groups.items():
        method = _AGAIN.get(how, Exact(time_limit=0.0))
        for i, now in zip(part, _prove_again(question, part, items, method), strict=True):
            answers[i] = _compared_proof(question, i, items[i], now)
    return answers


def enumerated_again(question: Question, items: Sequence[Certificate], rows: Sequence[int]) -> dict[int, Answer]:
    """Check the certificates number `rows`, all of which have evidence of enumeration."""
    answers: dict[int, Answer] = {}
    for i in rows:
        item, evidence, claim = items[i], cast(EnumerationEvidence, items[i].evidence), items[i].claim
        if item.method.removeprefix("cascade: ") != "enumeration":
            answers[i] = Checked.FAILS, f"its evidence is that of an enumeration, not of {item.method!r}"
        elif evidence.evaluated > MOST_BOXES:
            answers[i] = Checked.NOT_CHECKED, f"{evidence.evaluated} boxes are more than are looked at again"
        elif claim.risk:
            answers[i] = Checked.FAILS, "a share that is computed has confidence 1"
        else:
            # the gap at which the run ended is not in the file; the number of boxes ends it at the same place
            method = Enumeration(coverage=claim.coverage, gap=1e-300, max_boxes=evidence.evaluated)
            method = method if evidence.volumes is None else replace(method, precision=1e-300)
            now = _prove_again(question, [i], items, method)[0]
            answers[i] = now if isinstance(now, tuple) else _same_share(question, i, item, now)
    return answers


def replay_witness(question: Question, row: int, item: Certificate) -> Answer:
    """Whether the shift that a certificate keeps lies in the set, and breaks the row."""
    witness, outside = item.witness, "its witness does not lie in the set or does not break the row"
    if witness is None:
        return Checked.FAILS, "it says that a shift breaks the row, but keeps none"
    if isinstance(witness, certificate.RowWitness) and question.regions is not None and item.region is not None:
        try:
            asked, table = question.regions[row], witness.table(question.regions[row].table)
            encoded = encoded_rows(question.model, table)[1]
        except (ApasError, ValueError):
            return Checked.FAILS, "its witness is not a row of the model"
        if not asked.region.holds(table, asked.table, names_of(question.model, table)):
            return Checked.FAILS, "its witness is not a row of the region"
        alone = replace(question.take(slice(row, row + 1)), X=encoded, regions=None, points=table)
        if witness.shift is None:
            return (Checked.FAILS, outside) if alone.valid_rows()[0] else (Checked.HOLDS, "the model itself breaks it")
        return replay_witness(alone, 0, replace(item, witness=witness.shift, region=None))
    if isinstance(witness, certificate.DrawnShift):
        try:
            drawn = question.directions(Stream(witness.entropy, witness.purpose), witness.index, witness.index + 1)
            margin = question.margins(drawn, np.array([row]))[0, 0]
        except (ApasError, IndexError):
            return Checked.FAILS, "its witness is a draw that does not exist"
        fails = bool(margin < -question.band[row])
        return (Checked.HOLDS, f"draw number {witness.index} breaks it again") if fails else (Checked.FAILS, outside)
    try:
        values = witness.moved(question.model)  # type: ignore[attr-defined]
    except InputError:  # signs of another number of parameters
        values = np.empty(0)
    if witness.delta != item.delta or values.shape != (len(question.coordinates),):
        return Checked.FAILS, "its witness has another delta or another number of parameters than the certificate"
    embedded = question.embedded
    values = embedded.shifts.chain.at(values) if offers(embedded.shifts, Embedded) else values
    if certificate.confirmed_witness(embedded, row, values) is None:
        return Checked.FAILS, outside
    return Checked.HOLDS, "its witness lies in the set and breaks the row"


def region_today(question: Question, row: int, item: Certificate) -> Answer:
    """Whether the model itself breaks a region, or leaves it open, as a certificate says."""
    look = question.regions[row].on_model(question.model, item.target)  # type: ignore[index]
    if look.margins[0] > 0:
        return Checked.FAILS, "on the model itself every row of the region is valid, the file says otherwise"
    told = (item.verdict, item.reason, item.witness is None)
    if look.margins[0] == 0:
        same = told == (Verdict.UNKNOWN, OPEN_TODAY, True)
        return (Checked.HOLDS, OPEN_TODAY) if same else (Checked.FAILS, f"{OPEN_TODAY}, the file says otherwise")
    if told != (Verdict.REFUTED, NOT_VALID, False):
        return Checked.FAILS, "the model itself breaks a row of the region, the file says otherwise"
    return replay_witness(question, row, item)


def _split_again(question: Question, row: int, item: Certificate, evidence: BoundEvidence) -> Answer:
    """Prove a row by distinguishing cases once more, without a solver; cases may come out differently elsewhere."""
    now = decide_rows(question.take(slice(row, row + 1)), "exact", _WITHOUT_SOLVER, SECONDS)[0]
    same = isinstance(now.evidence, BoundEvidence) and now.evidence.nodes == evidence.nodes
    if now.verdict is Verdict.REFUTED:
        return Checked.FAILS, f"computed again, {now.reason}"
    if now.verdict is Verdict.UNKNOWN or not same:
        said = "was not found again" if now.verdict is Verdict.UNKNOWN else f"is another one here: {now.reason}"
        return Checked.NOT_CHECKED, f"the proof by {evidence.nodes} cases {said}"
    return _compared_proof(question, row, item, now)


def _contradiction(question: Question, item: Certificate, evidence: BoundEvidence) -> str | None:
    """What in a certificate contradicts itself or the model, whatever the bounds are; None if nothing."""
    if item.claim.coverage < 1:
        return "bounds on the margin speak of every shift, which is not what is claimed"
    region = question.region
    if item.claim.measure != region:
        return f"the set is {region!r}, the file says {item.claim.measure!r}"
    if (evidence.bound is not None and evidence.bound > 0) != (item.verdict is Verdict.CERTIFIED):
        return f"a bound of {evidence.bound} does not go with the verdict {item.verdict}"
    if (item.witness is not None) != (item.verdict is Verdict.REFUTED):
        return f"the verdict {item.verdict} and the witness contradict each other"
    if evidence.bound is not None and float(at_least(evidence.bound)) != evidence.bound:
        return f"a bound has six digits, the file says {evidence.bound!r}"
    return None


def _prove_again(
    question: Question, rows: list[int], items: Sequence[Certificate], method: Any
) -> Sequence[Certificate | Answer]:
    some = replace(question.take(np.array(rows, dtype=np.intp)), claim_rows=1)
    complaint = method.unsupported(some)
    if complaint is not None:
        return [(Checked.FAILS, complaint)] * len(rows)
    found = decide(some, method, Stream(0, "verify"))
    # `Every` or `Most` of the package's own methods, with as many rows as the certificate says
    claims = [replace(c.claim, rows=items[i].claim.rows) for c, i in zip(found, rows, strict=True)]  # type: ignore[type-var]
    return [replace(c, claim=claim) for c, claim in zip(found, claims, strict=True)]


def _compared_proof(question: Question, row: int, item: Certificate, now: Certificate | Answer) -> Answer:
    if isinstance(now, tuple):
        return now
    if now.verdict is not item.verdict:
        return Checked.FAILS, f"computed again, the verdict is {now.verdict}: {now.reason}"
    if not isinstance(now.evidence, BoundEvidence) or not isinstance(item.evidence, BoundEvidence):
        return Checked.FAILS, f"computed again, {now.reason}"
    keys = ("step", "bound", "nodes", "exact")
    told, found = ({key: getattr(c.evidence, key) for key in keys} | {"the reason": c.reason} for c in (item, now))
    if differing := _differing("computed", told, found):
        return differing
    if item.verdict is Verdict.REFUTED:
        return replay_witness(question, row, item)
    return Checked.HOLDS, f"computed again: {now.reason}"


def _same_share(question: Question, row: int, item: Certificate, now: Certificate) -> Answer:
    told, found = (vars(c.evidence) for c in (item, now))
    if now.verdict is not item.verdict or now.claim != item.claim:
        return Checked.FAILS, f"computed again, {now.verdict}: {now.reason}"
    if found["volumes"] != told["volumes"]:
        return Checked.FAILS, f"computed again, the volumes are others: {now.reason}"
    ends = {key: found[key] for key in ("lower", "upper")}
    if differing := _differing("computed", told, ends, lambda ours, theirs: abs(ours - theirs) <= SAME_SHARE):
        return differing
    stopped = "limit" if told["stopped"] in ("gap", "precision", "time") else told["stopped"]
    if (told["open"], told["evaluated"], stopped) != (found["open"], found["evaluated"], found["stopped"]):
        return Checked.FAILS, f"computed again, the boxes are others: {now.reason}"
    if item.witness is not None or (item.verdict is Verdict.REFUTED and item.claim.coverage == 1):
        return replay_witness(question, row, item)
    return Checked.HOLDS, f"computed again: {now.reason}"


SAME_DELTA = 1e-9  # how much a delta may differ on another machine, as a share of it
#: Proofs and searches that lead to a largest shift and can be repeated.
_PROOFS, _SEARCHES = ("interval", "linear", "exact", "refit"), ("rays", "confirm", "paper")


def searched_again(
    question: Question, items: Sequence[MaxShift], own: Callable[[Question, MaxShift], Answer] | None
) -> list[Answer]:
    """Check every largest shift, row by row: a row's answer does not depend on the others."""
    # `own` checks what no search of the package has found; None where that cannot be, as in a file.
    near = question.doubtful_rows()
    valid = question.valid_rows() & ~near if len(question) else near
    shared = [(item.claim, item.trace.get("entropy")) for item in items]
    together = Counter(key for key, ok in zip(shared, valid, strict=True) if ok)
    answers: list[Answer] = []
    for i, (item, ok) in enumerate(zip(items, valid.tolist(), strict=True)):
        crowded = too_many_rows(item.claim, together[shared[i]]) if item.claim.coverage < 1 and ok else None
        if near[i]:
            same = replace(item, trace={}, seconds=0.0) == without_search(item.target, item.claim, near=True)
            answers.append((Checked.HOLDS if same else Checked.FAILS, NEAR_BOUNDARY))
        elif crowded is not None:
            answers.append((Checked.FAILS, crowded))
        else:
            answers.append(_check_radius(question.take(slice(i, i + 1)), item, ok, own))
    return answers


def _check_radius(
    alone: Question, item: MaxShift, valid: bool, own: Callable[[Question, MaxShift], Answer] | None
) -> Answer:
    if valid == (item.reason == NOT_VALID):
        return Checked.FAILS, f"on the model itself the row is {'' if valid else 'not '}valid, the file says otherwise"
    if not valid:
        if item.delta == item.upper == item.provable == item.broken_at == 0:
            return Checked.HOLDS, NOT_VALID
        return Checked.FAILS, "a row that is not valid has no largest shift"
    told = item.trace.get("method") in _PROOFS if item.claim.coverage == 1 else item.trace.get("search") in _SEARCHES
    if own is not None and not (told and CLAIMS.know(item.claim)):
        return own(alone, item)
    some = alone.for_claim(item.claim)
    try:
        now = _search_again(some, item)
    except ApasError as error:
        return Checked.FAILS, str(error)
    return now if isinstance(now, tuple) else _compared_largest(item, now)


def _search_again(alone: Question, item: MaxShift) -> MaxShift | Answer:
    trace, claim = Fields(dict(item.trace), "trace"), item.claim
    limit = trace.number("limit", above=0)
    if claim.coverage == 1:
        kind = trace.choice("method", *_PROOFS)
        seen = alone.embedded
        closed = isinstance(seen.geometry, Ball | Sparse | Ellipsoid) or (
            seen.network is not None and is_exact(seen.network)
        )
        if kind == "exact" and not closed:
            return Checked.NOT_CHECKED, "the proofs that led to it are not in the file"
        # with closed forms all methods give the same
        method, nowhere = _AGAIN["interval" if closed and kind != "refit" else kind], Stream(0, "max_shift")
        complaint = method.unsupported(alone) if kind == "refit" else None
        if complaint is not None:
            return Checked.FAILS, complaint
        found: MaxShift = method.largest_shift(alone, nowhere, limit=limit)[0]
        return replace(found, trace={**found.trace, "method": kind, "limit": limit})
    samples = trace.integer("samples", 1)
    if samples > MOST_DRAWS:
        return Checked.NOT_CHECKED, f"{samples} draws are more than are made again ({MOST_DRAWS})"
    network = alone.network if isinstance(alone.geometry, Region) else None
    search = trace.choice("search", *_SEARCHES)
    if search == "confirm" and item.trace.get("claim") == "pointwise":  # as it was once written
        return Checked.NOT_CHECKED, "its draws were looked at with delta alone, which says nothing of smaller deltas"
    if search == "rays" and network is None and "rungs" not in item.trace:
        return Checked.NOT_CHECKED, "the file does not tell its grid, which was once laid in another way"
    how: dict[str, Any] = {"test": "fixed"}
    if "test" in trace.content:
        how = {"test": trace.choice("test", ANYTIME).partition("/")[0], "tolerance": trace.number("tolerance", above=0)}
    sampler = Sampling(coverage=claim.coverage, confidence=claim.confidence, n_samples=samples, **how)
    return item.found_again(sampler.largest_shift(alone, item.stream, limit=limit, search=search)[0])


def _compared_largest(item: MaxShift, now: MaxShift) -> Answer:
    keys = (*ENDS, "claim", "exact", "reached_limit", "reason")
    told, found = ({key: getattr(each, key) for key in keys} for each in (item, now))
    if differing := _differing("searched", told, found, _same):
        return differing
    trace = now.trace
    if trace.get("search") == "rays":  # files of rays in dense networks did not always tell their rungs
        trace = {key: value for key, value in trace.items() if key in item.trace or not key.startswith("rungs_")}
    if item.trace.keys() != trace.keys() or not all(_same(item.trace[key], value) for key, value in trace.items()):
        return Checked.FAILS, f"searched again, trace is {dict(now.trace)!r}, the file says {dict(item.trace)!r}"
    return Checked.HOLDS, f"searched again: {now.reason}"


def _same(told: Any, found: Any) -> bool:
    """Whether two answers are equal; deltas, and the rungs of a trace, as far as another machine computes them."""
    if isinstance(found, list) and isinstance(told, list):
        return len(told) == len(found) and all(map(_same, told, found))
    if isinstance(found, float) and isinstance(told, int | float):
        return math.isclose(told, found, rel_tol=SAME_DELTA)
    return bool(told == found)
