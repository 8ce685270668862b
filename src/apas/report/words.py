"""The top of the page in plain words: how many explanations are certified, for what, and what became of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from apas.certify.certificate import NOT_TODAY
from apas.certify.certificates import Certificates
from apas.certify.claims import Every, Most
from apas.certify.maxshifts import MaxShift, MaxShifts
from apas.contracts.shiftsets import AbsentModels
from apas.display.numbers import at_least, at_most, exactly
from apas.report.later import Later
from apas.report.subject import Subject
from apas.shifts.noise import InputNoise
from apas.shifts.observed import ObservedShifts

__all__ = ["Figure", "capital", "claims_in_words", "figures", "headline", "measured_in_words", "shift_in_words"]

_DISTANCE = {
    1.0: "the changes of all parameters add up to at most {}",
    2.0: "the parameters moved by at most {} (Euclidean distance)",
}
#: So many different claims are spelled out.
SPELLED = 4


@dataclass(frozen=True)
class Figure:
    """A number to begin with, and what it counts."""

    value: str
    label: str
    tone: str = ""


def headline(subject: Subject, later: Later | None) -> list[str]:
    """What a reader should know after ten seconds, a sentence or two per entry."""
    found = _certified(subject) if subject.certificates is not None else _reached(subject)
    if subject.searches is not None and subject.searches > len(subject.rows):
        missing = subject.searches - len(subject.rows)
        found.append(
            f"For {missing} of the {subject.searches} that were asked for nothing was found; they have no line."
        )
    return [*found, *_kept(later)]


def _certified(subject: Subject) -> list[str]:
    certificates = subject.certificates
    assert certificates is not None
    counts = Counter(c.verdict.name for c in certificates if c.valid_today)
    total, good = len(certificates), counts["CERTIFIED"]
    who = "The explanation is" if total == 1 else f"All {total} explanations are"
    if good == total:
        first = f"{who} certified to survive {_asked(subject)}."
    else:
        first = f"{good} of {total} explanations {_are(good)} certified to survive {_asked(subject)}"
        rest = []
        if counts["REFUTED"]:
            rest.append(f"{counts['REFUTED']} {_are(counts['REFUTED'])} refuted: there is evidence against the claim")
        if counts["UNKNOWN"]:
            rest.append(f"{counts['UNKNOWN']} {_are(counts['UNKNOWN'])} undecided, which is no promise")
        rest += _not_today(certificates)
        first = "; ".join([first, *rest]) + "."
    means = claims_in_words(subject)
    more = f" And {len(means) - SPELLED} more claims, see the table." if len(means) > SPELLED else ""
    return [first, f"Certified means: {' '.join(means[:SPELLED])}{more}"]


def _not_today(items: Certificates | MaxShifts) -> list[str]:
    """How many explanations the model itself refuses; nothing if none."""
    count = sum(not item.valid_today for item in items)
    return [f"{count} {_are(count)} {NOT_TODAY}"] if count else []


def _asked(subject: Subject) -> str:
    """What certified explanations survive, in a few words that do not say too much."""
    kinds = {type(c.claim) for c in subject.certificates or ()}
    many = {frozenset({Every}): "every one", frozenset({Most}): "most"}.get(frozenset(kinds), "a share")
    if any(isinstance(c.claim, Most) and c.claim.coverage <= 0.5 for c in subject.certificates or ()):
        many = "a share"
    what = "imprecisions" if isinstance(subject.rows.shifts, InputNoise) else "changes of the model"
    return f"{many} of the {what} that were asked about"


def shift_in_words(subject: Subject) -> str:
    """What a shift is on this page, without a full stop."""
    if isinstance(subject.rows.shifts, InputNoise):
        return "one imprecise way of carrying an explanation out, and delta the size of the imprecision"
    if isinstance(subject.rows.shifts, ObservedShifts | AbsentModels):
        return "one of the models that were listed"
    return "one changed version of the model, and delta the size of the change"


def claims_in_words(subject: Subject) -> list[str]:
    """What "certified" means for each claim, as a sentence; of largest shifts, what holds at each row's own delta."""
    items = subject.certificates if subject.certificates is not None else subject.radii
    assert items is not None
    said: dict[str, None] = {}
    for item in [item for item in items if item.valid_today] or items:
        size = f"delta = {exactly(item.delta)}" if subject.certificates is not None else "the delta of its line"
        said[_claim(item.claim, size, isinstance(item, MaxShift) and item.per_test)] = None
    return [capital(sentence) if len(said) > 1 else sentence for sentence in said]


def _claim(claim: Every | Most, size: str, searched: bool) -> str:
    """What a claim says; a delta that tests `searched` for has no confidence of its own."""
    shifts = f"({claim.measure}; {size})"
    if isinstance(claim, Every):
        return f"it is proved that every shift of the set {shifts} keeps the promised class."
    share = f"of all shifts {shifts}, at least {claim.share} keep the promised class"
    if claim.confidence == 1.0:
        return f"{share}, which is computed, not estimated."
    whom = f"for all {claim.rows} rows together" if claim.rows > 1 else "for each explanation by itself"
    if searched:
        asked = f"each test of the published search asks whether {share}"
        return f"{asked}. The confidence of {claim.confidence!r} holds for each test of the search, not for its result."
    return f"{share}, with confidence {claim.confidence!r} {whom}."


def _reached(subject: Subject) -> list[str]:
    radii = subject.radii
    assert radii is not None
    deltas = radii.deltas
    some = int(np.count_nonzero(deltas))
    rest = _not_today(radii)
    if not some:
        return ["; ".join([f"For none of {len(radii)} explanations is any shift of the model certified", *rest]) + "."]
    searched = any(item.per_test for item in radii)
    whole_way = searched or all(item.rungs is None for item in radii if item.delta)
    # between rungs nothing is certified, so a delta that is one must not be rounded
    write = at_least if whole_way else exactly
    low, middle, high = (write(float(v)) for v in np.percentile(deltas[deltas > 0], [0, 50, 100]))
    first = f"{some} of {len(radii)} explanations {_are(some)} certified up to a largest shift of the model"
    if searched:  # where the search passed no test, a delta may still be proved
        first = f"For {some} of {len(radii)} explanations the published search ended at, or a proof reaches, a shift"
    elif not whole_way:
        first = (
            f"{some} of {len(radii)} explanations {_are(some)} certified at a largest shift of the model, not at every "
            "smaller one: between the sizes that were tested (rungs), nothing is claimed beyond what is proved"
        )
    first = "; ".join([first, *rest]) + "."
    spread = f"That shift is delta = {low} to {high}, in the middle {middle}." if some > 1 else f"It is delta = {low}."
    means = claims_in_words(subject)
    return [first, f"{spread} {'Of that search:' if searched else 'Certified means:'} {' '.join(means[:SPELLED])}"]


def _kept(later: Later | None) -> list[str]:
    if later is None:
        return []
    said = []
    counts = later.counts
    promised = sum(counts.values()) - counts["NOT_PROMISED"]
    if later.outcomes is not None:
        kept = counts["HELD"]
        said.append(
            f"A later model keeps {kept} of {promised} promises."
            if promised
            else "A later model had no promise to keep."
        )
        if later.wrong_certificates:
            said.append(
                f"CERTIFICATES THAT CANNOT BE RIGHT: {later.wrong_certificates}. They speak of every shift, but the "
                "later model lies in their set and breaks them. Check them with apas verify."
            )
        unlucky = counts["BROKEN_INSIDE"] - later.wrong_certificates
        reasons = [
            (unlucky, "broken inside of the certified set: certificates about most shifts leave out a share"),
            (counts["BROKEN_OUTSIDE"], "broken by a model outside of what was certified"),
            (counts["BROKEN"], "broken; it is not known whether the later model lies in the certified set"),
        ]  # fmt: skip
        said += [f"{n} {_are(n)} {why}." for n, why in reasons if n]
        rest = [ok for ok, outcome in zip(later.valid or (), later.outcomes, strict=True) if outcome == "NOT_PROMISED"]
        if rest:
            said.append(f"Of {len(rest)} without a promise, {sum(rest)} {_have(sum(rest))} the class on it.")
    if later.measured is not None:
        said.append(f"From the certified to the later model, {measured_in_words(later)}.")
    if later.beyond:
        said.append(later.beyond)
    return [" ".join(said)] if said else []


def measured_in_words(later: Later) -> str:
    """How far the model moved, without a full stop."""
    measured = later.measured
    assert measured is not None
    size = at_most(measured.delta)
    if measured.p == np.inf:
        return f"each parameter changed by at most {size}"
    return _DISTANCE.get(measured.p, f"the parameters moved by at most {{}} (p = {measured.p:g})").format(size)


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def figures(subject: Subject, later: Later | None) -> list[Figure]:
    """The large numbers at the top."""
    found = []
    total = len(subject.rows)
    if subject.certificates is not None:
        good = int(subject.certificates.certified.sum())
        deltas = sorted({c.delta for c in subject.certificates})
        found.append(Figure(f"{good} of {total}", "explanations certified", "good" if good == total else ""))
        never = int((~subject.certificates.valid_today).sum())
        if never:
            found.append(Figure(f"{never} of {total}", "not valid today: the model itself refuses them", "bad"))
        spread = exactly(deltas[0]) if len(deltas) == 1 else f"{exactly(deltas[0])} to {exactly(deltas[-1])}"
        found.append(Figure(spread, "delta asked about: size of the shifts"))
    if subject.radii is not None and (subject.radii.deltas > 0).any():
        middle = float(np.median(subject.radii.deltas[subject.radii.deltas > 0]))
        what = (
            "delta that the published search led to"
            if any(r.per_test for r in subject.radii)
            else "largest certified delta"
        )
        found.append(Figure(at_least(middle), f"median of the {what}, where there is one"))
    if later is not None and later.measured is not None:
        found.append(Figure(at_most(later.measured.delta), "measured shift to the later model, at most"))
    if later is not None and later.outcomes is not None and later.counts["NOT_PROMISED"] < total:
        promised = total - later.counts["NOT_PROMISED"]
        tone = "good" if later.counts["HELD"] == promised else "bad"
        found.append(Figure(f"{later.counts['HELD']} of {promised}", "promises kept by the later model", tone))
    return found
