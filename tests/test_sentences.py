"""Every number in every sentence: each must be accounted for, and rounded to the side that promises less."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conftest import spread

import apas
from apas import Enumeration, Every, FeedForward, Most, Sampling, Verdict
from apas.certification.api import FractionCurve, FractionCurves, OutputRange, OutputRanges
from apas.certification.certificate import NOT_VALID, BaseEvidence, BoundEvidence, Certificate
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.methods.enumeration import EnumerationEvidence
from apas.certification.methods.sampling import SamplingEvidence, _said
from apas.certification.results import Certificates
from apas.contracts.ledger import _claim as claim_of_ledger
from apas.report.headline import claims_in_words, figures, headline, methods
from apas.report.subject import Subject
from apas.shifts.linf import LinfShifts

NUMBER = r"[-+]?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)"
ANY_NUMBER = re.compile(rf"(?<![\w.])({NUMBER})(?![\w])(?!\.\d)")
MEASURE = "uniform on a set"
#: Shares and confidences that a rounding would turn into 1, 0 or something that was never claimed.
EXTREME = (0.9999999999999999, 0.99999999999, 0.9999995, 0.995, 0.5, 1 / 3, 1e-7, 1.2345678901234567e-16)
DELTAS = (0.1, 0.30000000000000004, 1e-300, 123456.789, 0.1 + 1e-12)

Check = Callable[[Fraction], bool]


def exact(value: float) -> Fraction:
    """A number as it is typed."""
    return Fraction(repr(float(value)))


def is_(value: float) -> Check:
    return lambda said: said == exact(value)


def near(value: float, digits: int) -> Check:
    """Rounded to the nearest number of so many digits, but never to all or nothing."""
    return lambda said: (
        abs(said - exact(value)) <= abs(exact(value)) * Fraction(1, 10 ** (digits - 1)) and (said < 1 or value >= 1)
    )


def no_more(value: float) -> Check:
    """Rounded down by less than one of six digits."""
    return lambda said: 0 <= exact(value) - said <= abs(exact(value)) * Fraction(1, 10**5)


def no_less(value: float) -> Check:
    return lambda said: 0 <= said - exact(value) <= abs(exact(value)) * Fraction(1, 10**5)


def any_of(values: Iterable[float], rule: Callable[[float], Check]) -> Check:
    checks = [rule(value) for value in values]
    return lambda said: any(check(said) for check in checks)


def account(text: str, facts: dict[str, Check | tuple[Check, ...]], loose: Iterable[float] = ()) -> str:
    """Check all numbers of a text.

    Parameters
    ----------
    text : str
    facts : dict of str to Check, or to one per group
        Patterns in which # stands for a number that is checked.
    loose : iterable of float
        Numbers that may stand anywhere, with six digits.
    """
    told = text.replace(MEASURE, "(measure)")
    covered = set()
    for pattern, checks in facts.items():
        for match in re.finditer(pattern.replace("#", f"({NUMBER})"), told):
            each = checks if isinstance(checks, tuple) else (checks,) * len(match.groups())
            for group, check in enumerate(each, start=1):
                if match[group] is not None:
                    assert math.isfinite(float(match[group].replace(",", ""))), f"{match[0]!r} in {text!r}"
                    assert check(Fraction(match[group].replace(",", ""))), f"{match[0]!r} in {text!r}"
                    covered.add(match.start(group))
    values = [exact(v) for v in loose if math.isfinite(v)]
    for match in ANY_NUMBER.finditer(told):
        if match.start() not in covered:
            assert math.isfinite(float(match[1].replace(",", ""))), f"{match[1]} in {text!r}"
            said = Fraction(match[1].replace(",", ""))
            assert any(abs(said - v) <= abs(v) / 10**5 for v in values), f"nobody accounts for {match[1]} in {text!r}"
    return text


def percent(check: Check) -> Check:
    return lambda said: check(said / 100)


def claim_facts(*claims: Every | Most) -> dict[str, Check | tuple[Check, ...]]:
    most = [c for c in claims if isinstance(c, Most)]
    return {
        r"at least # %": percent(any_of([c.coverage for c in most], no_more)),
        r"fewer than # %": percent(any_of([c.coverage for c in most], no_less)),
        r"confidence(?: of)? #": any_of([c.confidence for c in most if c.confidence < 1], is_),
        r"for all # rows together": any_of([c.rows for c in most if c.rows > 1], is_),
    }


def says_for_whom(text: str, claims: Iterable[Every | Most], count: int) -> None:
    """A summary of several rows says whether a confidence is for each by itself or for all together."""
    estimated = [c for c in claims if isinstance(c, Most) and c.confidence < 1]
    if count > 1:
        assert ("by itself" in text) == any(c.rows == 1 for c in estimated), text
        assert ("rows together" in text) == any(c.rows > 1 for c in estimated), text


# certificates


def evidence_of(verdict: Verdict, claim: Every | Most, method: str) -> tuple[Any, str]:
    """What a method of that name could have found, and its words."""
    if method == "enumeration":
        lower, upper = {"CERTIFIED": (0.99999999, 1.0), "REFUTED": (1 / 7, 2 / 7)}.get(verdict.name, (1e-9, 0.9999999))
        from apas.display.numbers import at_least, at_most

        said = f"the valid share is at least {at_least(lower)} and at most {at_most(upper)}, from looking at 7 boxes"
        return EnumerationEvidence(lower, upper, 7, 1, "settled", None), said
    if method == "exact":
        return BoundEvidence("solver", None), "a shift of the set is known on which it is not kept"
    failures = {"CERTIFIED": 3, "REFUTED": 133, "UNKNOWN": 90}[verdict.name]
    evidence = SamplingEvidence(5, "certify", 20000, 70, 133, 14450 if failures == 133 else 20000, failures, 0, 2)
    found, said = _said(evidence, claim, None)
    assert found is verdict
    return evidence, said


def evidence_facts(evidence: Any) -> dict[str, Check | tuple[Check, ...]]:
    if isinstance(evidence, SamplingEvidence):
        return {
            r"# of # draws failed": (is_(evidence.failures), is_(evidence.draws)),
            r"at most # may": is_(evidence.allowed),
            r"# are too many": is_(evidence.refuting),
            r"more than the # that certify, fewer than the # that refute": (
                is_(evidence.allowed),
                is_(evidence.refuting),
            ),
        }
    if isinstance(evidence, EnumerationEvidence):
        return {
            r"share is at least # and at most #,": (no_more(evidence.lower), no_less(evidence.upper)),
            r"looking at # box": is_(evidence.evaluated),
        }
    return {}


def all_claims() -> list[tuple[Every | Most, str]]:
    """Claims and the method that makes them."""
    pairs = [*zip(EXTREME, EXTREME, strict=True), *zip(EXTREME, reversed(EXTREME), strict=True), (0.995, 0.999)]
    most = [(Most(*pair, MEASURE, rows), "sampling") for pair, rows in itertools.product(pairs, (1, 17))]
    certain = [(Most(share, 1.0, MEASURE), "enumeration") for share in EXTREME]
    return [*most, *certain, (Every(MEASURE), "exact"), (Every(MEASURE, 17), "exact")]


def certificate(verdict: Verdict, claim: Every | Most, method: str, delta: float, target: Any) -> Certificate:
    evidence, reason = evidence_of(verdict, claim, method)
    return Certificate(claim, verdict, delta, target, method, evidence, reason)


def refused(claim: Every | Most, delta: float = 0.1) -> Certificate:
    return Certificate(claim, Verdict.REFUTED, delta, 1, "sampling", BaseEvidence(), NOT_VALID)


def certificates(items: list[Certificate]) -> Certificates:
    return Certificates(items, points=np.zeros((len(items), 1)), model_digest="", shifts=LinfShifts())


@pytest.mark.parametrize(("claim", "method"), all_claims(), ids=str)
def test_certificates(claim, method):
    for verdict, delta, target in itertools.product(Verdict, DELTAS, (1, "accept")):
        item = certificate(verdict, claim, method, delta, target)
        facts = {**claim_facts(claim), **evidence_facts(item.evidence), r"delta = #": is_(delta), r"class #": is_(1)}
        text = account(item.sentence(), facts)
        assert text.startswith(f"{verdict.name}: ")
        assert "not valid today" not in text
        if verdict is Verdict.UNKNOWN:
            assert "confidence" not in text
        elif isinstance(claim, Most) and claim.confidence < 1:
            assert f"with confidence {claim.confidence!r}" in text
        if isinstance(claim, Most):
            least = "fewer than" if verdict is Verdict.REFUTED else "at least"
            assert f"{least} {claim.share} of the shifts keep" in text
    assert account(str(claim), claim_facts(claim)) == claim_of_ledger(claim.to_dict())


@pytest.mark.parametrize(("claim", "method"), all_claims(), ids=str)
def test_rows_that_are_not_valid_today_have_words_of_their_own(claim, method):
    never = refused(claim)
    text = account(never.sentence(), {r"class #": is_(1)})
    assert text.startswith("REFUTED, not valid today: the model itself does not give class 1 here")
    assert not re.search("%|confidence|fewer|does not hold", text)
    assert "not valid today" in Verdict.REFUTED.value
    assert "does not hold" not in Verdict.REFUTED.value


@pytest.mark.parametrize("asked", spread(all_claims(), 6), ids=str)
def test_summaries_and_reports_of_certificates(asked):
    claim, method = asked
    kinds = [*(certificate(v, claim, method, d, 1) for v, d in zip(Verdict, DELTAS, strict=False)), refused(claim)]
    for chosen in itertools.product(range(3), repeat=4):
        items = [item for item, times in zip(kinds, chosen, strict=True) for _ in range(times)]
        if not items:
            continue
        found = certificates(items)
        counts = {v.name: sum(i.verdict is v for i in items) for v in Verdict}
        never, small = chosen[3], chosen[1]
        assert counts["REFUTED"] == never + small
        deltas = [i.delta for i in items]
        facts = {
            **claim_facts(claim),
            **{rf"# {name}": is_(n) for name, n in counts.items()},
            r"^# rows?:": is_(len(items)),
            r"# not valid today": is_(never),
            r"# with (?:too small a share|a failing shift)": is_(small),
            r"; delta #(?: to #)?;": (is_(min(deltas)), is_(max(deltas))),
        }
        text = account(found.summary(), facts)
        assert ("not valid today" in text) == (never > 0)
        says_for_whom(text, [claim], len(items))
        frame = found.to_frame()
        assert (~frame["valid_today"]).sum() == (~found.valid_today).sum() == never
        assert set(frame.loc[~frame["valid_today"], "verdict"]) <= {"REFUTED"}
        _check_report(found, claim, counts, never)


def _check_report(found: Certificates, claim: Every | Most, counts: dict[str, int], never: int) -> None:
    subject = Subject(found, None, "", {})
    total, good, small = len(found), counts["CERTIFIED"], counts["REFUTED"] - never
    facts = {
        **claim_facts(claim),
        r"^# of # explanations? (?:is|are) certified": (is_(good), is_(total)),
        r"All # explanations are certified": is_(total),
        r"# (?:is|are) refuted": is_(small),
        r"# (?:is|are) undecided": is_(counts["UNKNOWN"]),
        r"# (?:is|are) not valid today": is_(never),
        r"delta = #": any_of([c.delta for c in found], is_),
        r"(?:above|below) #": is_(0),
    }
    head = " ".join(account(said, facts) for said in headline(subject, None))
    assert ("refuted" in head) == (small > 0)
    assert ("not valid today" in head) == (never > 0)
    for said in claims_in_words(subject):
        account(said, facts)
    words = {f.label: f.value for f in figures(subject, None)}
    assert words["explanations certified"] == f"{good} of {total}"
    assert [v for k, v in words.items() if k.startswith("not valid today")] == (
        [f"{never} of {total}"] if never else []
    )
    told = [said for part in methods(subject, None, {}).values() for said in part]
    for said in told:
        account(said, facts)
    assert any("Of rows that are not valid today" in said for said in told) == (never > 0)
    assert any("evidence against the claim, but for rows that are not valid" in said for said in told) == (never > 0)


def test_a_plot_shows_no_bounds_that_nobody_computed():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    net = FeedForward([[[1.0]]], [[0.0]])
    found = apas.certify(net, [[1.0], [-0.001], [0.001]], 0.2, target=1, rng=0)
    assert found.valid_today.tolist() == [True, False, True]
    shares = apas.robust_fraction(net, [[-0.001]], [0.2], target=1, rng=0)[0]
    assert shares.lower[0] > 0.4  # a bar at 0 would be false
    axes = found.plot()
    bars = {int(line.get_xdata()[0]) for line in axes.lines if line.get_linestyle() == "-"}
    assert bars == {0, 2}
    assert [set(line.get_xdata()) for line in axes.lines if line.get_linestyle() == ":"] == [{1}]
    plt.close("all")
    for share in EXTREME:
        items = [certificate(Verdict.CERTIFIED, Most(share, 0.9, MEASURE), "sampling", 0.1, 1), refused(found[0].claim)]
        legend = [text.get_text() for text in certificates(items).plot().get_legend().get_texts()]
        said = {Fraction(text.removeprefix("asked for: ")) for text in legend if text.startswith("asked for")}
        assert said == {exact(share), exact(0.995)}
        assert any(text.startswith("not valid today") for text in legend)
        plt.close("all")


# largest shifts


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.validity)])
def test_largest_shifts(every):
    claims = [claim for claim, _ in all_claims()[::every]]
    for claim, delta, search in itertools.product(claims, (0.0, *DELTAS), ("rays", "confirm", "paper")):
        searched = isinstance(claim, Most) and claim.confidence < 1
        per_test = searched and search == "paper"
        trace = {"search": search, "claim": "per test" if search == "paper" else "pathwise", "samples": 1379}
        item = MaxShift(delta, math.inf, 0.0, math.inf, False, False, claim, 1, "said so", trace if searched else {})
        bound = is_(delta) if searched else no_more(delta)
        facts = {**claim_facts(claim), r"delta = #": bound, r"class #": is_(1)}
        known = (item.upper, item.provable, item.broken_at, 1379)
        text = account(item.sentence(), facts, known)
        assert ("no confidence of its own" in text) == per_test
        assert item.per_test == per_test
        if per_test:  # a test asks; nothing is asserted that would have to be withdrawn
            assert "asks, with confidence" in text
            assert "whether at least" in text
        never = replace(item, delta=0.0, upper=0.0, broken_at=0.0, reason=NOT_VALID, trace={})
        account(never.sentence(), {r"class #": is_(1)})
        for items in ([item], [item, item, never]):
            found = MaxShifts(items, points=np.zeros((len(items), 1)), model_digest="", shifts=LinfShifts())
            few = {r"^# rows?:": is_(len(items)), r"# not valid today": is_(sum(not i.valid_today for i in items))}
            middle = {r"delta # to #, median #": tuple(map(no_more, np.percentile(found.deltas, [0, 100, 50])))}
            told = account(found.summary(), {**claim_facts(claim), **few, **middle})
            says_for_whom(told, [claim], len(items))
            assert ("per test only" in told) == per_test
            assert ("not valid today" in told) == (never in items)
            assert found.to_frame()["valid_today"].tolist() == [i.valid_today for i in items]
            words = found.to_frame()["claim"].iloc[0]
            assert ("per test only" in words) == per_test
            subject = Subject(None, found, "", {})
            some = int(np.count_nonzero(found.deltas))
            facts = {
                **claim_facts(claim),
                **few,
                r"# of # explanations": (is_(some), is_(len(items))),
                r"none of # explanations": is_(len(items)),
                r"# (?:is|are) not valid today": is_(len(items) - (len(items) + 1) // 2 if never in items else 0),
                r"delta = #(?: to #)?": no_more(delta),
                r"in the middle #": no_more(delta),
            }
            for said in (*headline(subject, None), *claims_in_words(subject)):
                account(said, facts)
                assert not (per_test and re.search(r"^of all shifts|with confidence", said)), said


@pytest.mark.parametrize("search", ["rays", "confirm", "paper"])
def test_searched_shifts(search):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    net = FeedForward([[[1.0]]], [[0.0]])
    method = Sampling(coverage=0.9, confidence=0.9)
    for together in (False, True):
        asked = {"target": 1, "method": method, "search": search, "simultaneous": together, "rng": 0}
        found = apas.max_shift(net, [[1.0], [0.3], [-1.0]], **asked)
        for item in found:
            numbers = (item.upper, item.provable, item.broken_at)
            text = item.sentence().replace(item.reason, "(reason)").replace(item.claim.measure, MEASURE)
            said = {r"at delta = #": no_more(item.delta), r"whole way up to delta = #": no_less(item.upper)}
            account(text, {**claim_facts(item.claim), **said, r"class #": is_(1)}, numbers)
        text = found.summary().replace(found[0].claim.measure, MEASURE)
        middle = tuple(map(no_more, np.percentile(found.deltas, [0, 100, 50])))
        facts = {r"^# rows:": is_(3), r"# not valid today": is_(1), r"delta # to #, median #": middle}
        account(text, {**claim_facts(found[0].claim), **facts})
        says_for_whom(text, [found[0].claim], 3)
        axes = found.plot()
        told = [text.get_text() for text in axes.get_legend().get_texts()]
        assert ("certified" in told, "where the published search ended" in told) == (
            search != "paper",
            search == "paper",
        )
        plt.close(axes.figure)
        for row in apas.verify(found, net):
            account(row.claimed, {r"^delta #$": any_of(found.deltas.tolist(), no_more)})


# curves and ranges


def curve(lower: float, upper: float, count: int, confidence: float, draws: int, valid: bool) -> FractionCurve:
    deltas = np.array((*DELTAS, *np.linspace(1, 2, 9))[:count])
    ends = np.full(count, lower), np.full(count, upper)
    return FractionCurve(deltas, (ends[0] + ends[1]) / 2, *ends, draws, confidence, 1, MEASURE, valid)


@pytest.mark.parametrize("confidence", [*EXTREME, 1.0])
@pytest.mark.parametrize(("lower", "upper"), [*itertools.pairwise(sorted(EXTREME)), *((s, s) for s in EXTREME)])
def test_curves(lower, upper, confidence):
    for count, rows in itertools.product((1, 4, 12), (1, 3)):
        draws = 0 if confidence == 1.0 else 20000
        items = [curve(lower, upper, count, confidence, draws, valid=i != 1) for i in range(rows)]
        ends = (no_more(lower), no_less(upper), any_of(items[0].deltas.tolist(), is_))
        facts = {
            r"# to # at delta = #": ends,
            r"(?:class is|class 1 is|class|,) # at delta = #": (is_(lower), ends[2]),
            r"confidence #": is_(confidence),
            r"for all # deltas together": is_(count),
            r"by # draws": is_(draws),
            r"of # deltas\)": is_(count),
            r"class #": is_(1),
        }
        assert lower < upper or facts.pop(r"# to # at delta = #")
        text = account(items[0].sentence(), facts)
        assert ("for certain" in text) == (not draws)
        assert all(("itself does not give that class" in c.sentence()) != c.valid for c in items)
        found = FractionCurves(items, points=np.zeros((rows, 1)), model_digest="", shifts=LinfShifts(), entropy=0)
        del facts[r"class #"]
        facts |= {r"^# rows?:": is_(rows), r"# not valid today": is_(int(rows > 1))}
        told = account(found.summary(), facts)
        assert ("not valid today" in told) == (rows > 1)
        assert ("each row by itself" in told) == (rows > 1 and draws > 0)
        assert found.to_frame()["valid_today"].sum() == count * sum(c.valid for c in items)
        shown = found._shown_frame()
        for name, check in (("lower", no_more(lower)), ("upper", no_less(upper)), ("confidence", is_(confidence))):
            assert all(check(Fraction(cell)) for cell in shown[name]), (name, shown[name].iloc[0])


@pytest.mark.parametrize(
    "claim", [Every(MEASURE), *(Most(*pair, MEASURE) for pair in zip(EXTREME, reversed(EXTREME), strict=True))], ids=str
)
def test_ranges(claim):
    finite = (-1 / 3, 2 / 3, 1e-9, 123456.7891)
    ends = [(a, b) for a in (-math.inf, *finite) for b in (*finite, math.inf) if a <= b]
    items = [OutputRange(a, b, claim, claim, (False, False), 0.1, 0.1, 1, "sampling") for a, b in ends]
    if isinstance(claim, Most):
        items += [replace(items[4], undefined=n) for n in (1, 12)]
        assert items[-1].low == -items[-1].high == -math.inf
    for item in items:
        facts = {
            **claim_facts(claim),
            r"# of the drawn models": is_(item.undefined),
            r"delta = #": is_(0.1),
            r"class #": is_(1),
        }
        # an end that is not finite has no number that could be checked, and so none that may be printed
        if math.isfinite(item.low):
            facts |= {r"# or more": no_more(item.low), r"between #": no_more(item.low)}
        if math.isfinite(item.high):
            facts |= {r"# or less": no_less(item.high), r"between \S+ and #": no_less(item.high)}
        text = account(item.sentence(), facts)
        assert not re.search(r"\binf\b|\bnan\b", text)
        missing = sum(not math.isfinite(end) for end in (item.low, item.high))
        assert ("range is known" in text, "end is known" in text) == (missing == 2, missing == 1)
        assert ("confidence" in text) == (isinstance(claim, Most) and missing < 2)
    found = OutputRanges(items, points=np.zeros((len(items), 1)), model_digest="", shifts=LinfShifts())
    sides = {rf"# {s}": is_(sum(i.side == s for i in items)) for s in ("above", "across", "below")}
    endless = sum(not math.isfinite(i.high - i.low) for i in items)
    facts = {**claim_facts(claim), **sides, r"^# rows:": is_(len(items)), r"# without a known end": is_(endless)}
    text = account(found.summary(), facts)
    says_for_whom(text, [claim], len(items))
    for cell, item in zip(found._shown_frame()["low"], items, strict=True):
        assert not math.isfinite(item.low) or no_more(item.low)(Fraction(cell))


# what is made of them


@pytest.mark.parametrize("k", [1, 2])
def test_counterfactuals(k):
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    for rows, share in ((1, 0.9), (2, 0.123456789)):
        method = Sampling(coverage=share, confidence=0.98765432109)
        found = apas.generate(net, [[0.2, 0.3], [0.1, 0.1]][:rows], 0.05, space=space, method=method, k=k, rng=0)
        claims = [item.certificate.claim for item in found]
        facts = {
            **claim_facts(*claims),
            r"^# (?:rows?|counterfactuals)\b": is_(rows * k),
            r"from class # to class #": (is_(0), is_(1)),
            r"# FOUND": is_(found.found.sum()),
            r"distance #": near(np.mean([item.cost for item in found]), 4),
        }
        facts[r"of # rows?\b"] = is_(rows)
        text = account(found.summary(), facts)
        assert not re.search(r"\b1 rows|\b2 row\b", text)
        says_for_whom(text, claims, rows * k)


def test_audits_and_checks():
    old, new = (FeedForward([[[1.0], [-1.0]]], [[b]]) for b in (0.0, -0.123456789))
    X = [[2.0, 0.5], [1.0, 0.95], [0.5, 0.9]]
    found = apas.certify(old, X, 0.01, target=1, method="interval")
    report = apas.audit(found, new, base=old)
    facts = {
        r"^# rows:": is_(3), r"# HELD": is_(1), r"# BROKEN_OUTSIDE": is_(1), r"# NOT_PROMISED": is_(1),
        r"# not valid on the certified model": is_(1), r"Each of # parameters": is_(3), r"layer#": is_(0),
        r"at most #": no_less(report.shift.delta),
    }  # fmt: skip
    account(report.summary(), facts)
    account(report.shift.summary(), facts)
    reason = {r"delta is #": is_(0.01), r"at most #": no_less(report.shift.delta)}
    assert [("itself did not give the class" in account(row.reason, reason)) for row in report] == [False, False, True]
    assert report.to_frame()["was_valid"].tolist() == [True, True, False]
    account(apas.verify(found, old).summary(), {r"^# statements:": is_(3), r"# HOLDS": is_(3)})


@pytest.mark.parametrize(("rows", "good"), [(3, 2), (20001, 20000), (20001, 20001), (20001, 0)])
def test_evaluations(rows, good):
    net = FeedForward([[[1.0], [1.0]]], [[-1.0]])
    points = np.where(np.arange(rows)[:, None] < good, [[0.9, 0.3]], [[0.3, 0.6]])
    given = apas.counterfactuals.result.Counterfactuals.from_frame(net, np.full((rows, 2), 0.2), points)
    found = apas.evaluate(given, metrics=("validity",))
    facts = {r"^# counterfactuals:": is_(rows), r"found #": is_(1), r"vm1 #": near(good / rows, 4)}
    account(str(found), facts)


def test_proved_shares():
    net = FeedForward([[[1.0]]], [[0.0]])
    for share in (0.9999999999999999, 0.9, 1e-12):
        found = apas.certify(net, [[1.0], [0.1], [-1.0]], 0.3, target=1, method=Enumeration(coverage=share, gap=0.001))
        for item in found:
            text = item.sentence().replace(item.claim.measure, MEASURE)
            facts = {**claim_facts(item.claim), **evidence_facts(item.evidence)}
            account(text, {**facts, r"delta = #": is_(0.3), r"class #": is_(1)})
    assert str(Most(0.9999999999999999, 0.9, MEASURE)).startswith("at least 99.99999999999999 % of the shifts")
