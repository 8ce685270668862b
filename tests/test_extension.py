"""One file outside of the package: a shift set, a model kind, a claim, a method, a source and a metric of one's own.

Each goes through every verb that it takes part in, and is refused only where a file is to be written. What single
parts do in depth is checked beside them: certification/test_capabilities, contracts/test_own_parts,
metrics/test_own_metrics.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

import apas
from apas import Candidate, Feature, FeatureSpace, InputError, Verdict
from apas._random import Stream
from apas.certification.api import FractionCurve, OutputRange
from apas.certification.certificate import Certificate, Evidence, Rechecked
from apas.certification.claims import Claim
from apas.certification.max_shift.result import MaxShift
from apas.certification.question import BoundsShare, EnclosesOutput, FindsLargestShift, Method
from apas.contracts.audit import Outcome
from apas.contracts.verify_evidence import Checked
from apas.counterfactuals.result import Status
from apas.counterfactuals.sources.base import CandidateSource
from apas.models.base import Differentiable, Model, offers
from apas.shifts.base import Bounded, Box, Finite, Listed, Measurable, ShiftSet, ShiftWords, Worded


class Scorecard:
    """Accepts if w1 x1 + w2 x2 + w3 x1 x2 + b is at least 0: no dense network, but it has gradients."""

    classes = ("reject", "accept")
    n_features = 2
    feature_names = ("income", "debt")

    def __init__(self, weights, bias):
        self.parameters = apas.Parameters.from_arrays(
            [weights, [bias]], names=["score.weight", "score.bias"], kinds=["weight", "bias"], layers=["score", "score"]
        )

    def margin(self, X, target):
        return self._sign(target) * (self._terms(X) @ self.parameters.values)

    def shifted_margins(self, X, target, directions, delta):
        return self._sign(target) * (self._terms(X) @ self.parameters.values + delta * (directions @ self._terms(X).T))

    def parameter_gradient(self, X, target, moves=None):
        terms, sign = self._terms(X), self._sign(target)
        values = self.parameters.values + (0.0 if moves is None else moves)
        return sign * (terms * values).sum(axis=1), np.reshape(sign, (-1, 1)) * terms

    def input_gradient(self, X, target, moves=None):
        w = np.broadcast_to(self.parameters.values + (0.0 if moves is None else moves), (len(X), 4))
        slopes = np.column_stack([w[:, 0] + w[:, 2] * X[:, 1], w[:, 1] + w[:, 2] * X[:, 0]])
        return self.parameter_gradient(X, target, moves)[0], np.reshape(self._sign(target), (-1, 1)) * slopes

    def describe(self):
        return {"kind": "scorecard", "terms": ["income", "debt", "income * debt", "1"]}

    def _terms(self, X):
        return np.column_stack([X[:, 0], X[:, 1], X[:, 0] * X[:, 1], np.ones(len(X))])

    def _sign(self, target):
        return np.where(np.asarray(target) == "accept", 1.0, -1.0)


@dataclass(frozen=True)
class SteadyBias:
    """Weights move by at most delta each, biases by a share of that."""

    share: float = 0.5
    words: ClassVar[ShiftWords] = ShiftWords(changes="recalibrations of the model")

    def radii(self, parameters):
        kinds = np.repeat(parameters.kinds, [part.stop - part.start for part in parameters.slices])
        return np.where(kinds == "bias", self.share, 1.0)

    def geometry(self, parameters):
        return Box(self.radii(parameters))

    def directions(self, parameters, stream, start, stop):
        k = len(parameters)
        words = stream.words(k * start, k * (stop - start)).reshape(stop - start, k)
        return ((words >> 11) / 2**52 - 1) * self.radii(parameters)

    def margins(self, model, X, target, directions, delta):
        return model.shifted_margins(X, target, directions, delta)

    def contains(self, base, other, delta):
        return self.distance(base, other) <= delta

    def distance(self, base, other):
        return float((np.abs(other.values - base.values) / self.radii(base)).max())

    def region(self, parameters):
        return f"weights move by at most delta, biases by at most {self.share} delta"

    def measure(self, parameters):
        return f"uniform where {self.region(parameters)}"

    def to_dict(self):
        return {"kind": "steady bias", "share": self.share}


@dataclass(frozen=True)
class Branches:
    """Some scorecards that exist, as differences from the one that is in use."""

    models: tuple
    base: Scorecard
    default_delta: ClassVar[float] = 1.0

    def directions(self, parameters, stream, start, stop):
        return np.stack([m.parameters.values - self.base.parameters.values for m in self.models[start:stop]])

    def margins(self, model, X, target, directions, delta):
        return model.shifted_margins(X, target, directions, delta)

    def radii(self, parameters):
        return np.abs(self.directions(parameters, None, 0, len(self.models))).max(axis=0)

    def geometry(self, parameters):
        return Finite(self.models)

    def contains(self, base, other, delta):
        return any(np.array_equal(other.values, m.parameters.values) for m in self.models)

    def region(self, parameters):
        return f"the scorecards of {len(self.models)} branches"

    def measure(self, parameters):
        return f"one of {self.region(parameters)}, each as likely"

    def to_dict(self):
        return {"kind": "branches", "models": [m.parameters.values.tolist() for m in self.models]}


@dataclass(frozen=True)
class Credible:
    """At least a share of the shifts keeps the class, with a posterior probability after a uniform prior."""

    coverage: float
    probability: str
    measure: str
    rows: int = 1
    against: ClassVar[str] = "with too small a credible share"

    @property
    def risk(self):
        return 1 - Fraction(self.probability)

    @property
    def confidence(self):
        return float(self.probability)

    @property
    def row_confidence(self):
        return Fraction(self.probability)

    def __str__(self):
        return f"at least {self.coverage} of the shifts, posterior probability {self.probability}"

    def among(self, count, what="row"):
        return f"{self} for each {what}" if count > 1 else str(self)

    def subject(self, *, refuted=False):
        return f"{'fewer than' if refuted else 'at least'} {self.coverage} of the shifts keep"

    def sureness(self):
        return f"with posterior probability {self.probability}"

    def meaning(self, size, *, per_test=False):
        return f"{self.sureness()}, {self.subject()} the promised class ({self.measure}; {size})."

    def to_dict(self):
        return {"kind": "credible", **vars(self)}


@dataclass(frozen=True)
class Tally:
    """What was counted, and what counts it again."""

    draws: int
    failures: int
    entropy: int
    purpose: str

    def to_dict(self):
        return {"kind": "tally", **vars(self)}

    def recheck(self, question, certificate):
        drawn = question.directions(Stream(self.entropy, self.purpose), 0, self.draws)
        again = int((question.margins(drawn)[:, 0] <= 0).sum())
        return again == self.failures, f"counted again: {again} of {self.draws} draws fail"


@dataclass(frozen=True)
class Bayes:
    """The posterior of the share of shifts that keep the class, after a uniform prior and some draws."""

    coverage: float = 0.9
    probability: str = "0.999"
    n: int = 400
    name: ClassVar[str] = "bayes"

    def claim(self, question):
        return Credible(self.coverage, self.probability, question.measure)

    def unsupported(self, question):
        return "Bayes draws from no list." if question.listed is not None else None

    def run(self, question, stream):
        failures, claim = self._failures(question, stream), self.claim(question)
        answers = []
        for i, failed in enumerate(failures):
            sure = self._posterior(failed).sf(self.coverage)
            certified, refuted = sure >= float(self.probability), 1 - sure >= float(self.probability)
            verdict = Verdict.CERTIFIED if certified else Verdict.REFUTED if refuted else Verdict.UNKNOWN
            found = Tally(self.n, int(failed), stream.entropy, stream.purpose)
            reason = f"{failed} of {self.n} draws failed"
            answers.append(
                Certificate(claim, verdict, float(question.delta[i]), question.target[i], self.name, found, reason)
            )
        return answers

    def largest_shift(self, question, stream, *, limit, search):
        answers, claim = [], self.claim(question)
        for i, target in enumerate(question.target):
            alone, delta = question.take(slice(i, i + 1)), limit
            while delta > limit / 1000 and not self.run(alone.at(delta), stream)[0].is_certified:
                delta /= 2
            found = delta if delta > limit / 1000 else 0.0
            reason = "the first of the halved limits that is credible"
            ends = (found, np.inf, 0.0, np.inf, False, found == limit)
            answers.append(MaxShift(*ends, claim, target, reason, {"method": self.name, "draws": self.n}))
        return answers

    def shares(self, question, deltas, stream):
        curves = []
        risk = (1 - float(self.probability)) / len(deltas)
        counts = np.array([self._failures(question.at(delta), stream) for delta in deltas])
        valid = question.valid_rows()
        for i, target in enumerate(question.target):
            posterior = self._posterior(counts[:, i])
            ends = posterior.ppf(risk / 2), posterior.ppf(1 - risk / 2)
            more = (self.n, float(self.probability), target, question.measure, bool(valid[i]))
            curves.append(FractionCurve(deltas, posterior.mean(), *ends, *more))
        return curves

    def ranges(self, question, stream):
        margins, claim = question.margins(question.directions(stream, 0, self.n)), self.claim(question)
        low, high = np.sort(margins, axis=0)[[0, -1]]
        rows = zip(low, high, question.base_margins, question.delta, question.target, strict=True)
        return [
            OutputRange(float(a), float(b), claim, claim, (True, True), float(m), float(d), t, self.name)
            for a, b, m, d, t in rows
        ]

    def _failures(self, question, stream):
        return (question.margins(question.directions(stream, 0, self.n)) <= 0).sum(axis=0)

    def _posterior(self, failures):
        return stats.beta(1 + self.n - failures, 1 + failures)


@dataclass(frozen=True)
class Slopes:
    """Proves every shift of a box for models that are linear in their parameters, by their gradients."""

    name: ClassVar[str] = "slopes"

    def claim(self, question):
        return apas.Every(question.region, question.claim_rows)

    def unsupported(self, question):
        fits = isinstance(question.geometry, Box) and offers(question.model, Differentiable)
        return None if fits else "Slopes needs a box, and a model with gradients."

    def run(self, question, stream):
        margins, slopes = question.model.parameter_gradient(question.X, question.one_target)
        least = margins - question.delta * (np.abs(slopes) @ question.geometry.radii)
        rows = zip(least.tolist(), question.delta.tolist(), question.target, strict=True)
        return [
            Certificate(
                self.claim(question),
                Verdict.CERTIFIED if bound > 1e-9 else Verdict.UNKNOWN,
                delta,
                target,
                self.name,
                Least(bound),
                f"the margin is at least {bound:.6g}",
            )
            for bound, delta, target in rows
        ]


@dataclass(frozen=True)
class Least:
    """A bound on the margin, and nothing that would check it again."""

    bound: float
    draws: ClassVar[int] = 0
    failures: ClassVar[int] = 0

    def to_dict(self):
        return {"kind": "least", "bound": self.bound}


@dataclass(frozen=True)
class Raised:
    """Raises one feature, step by step."""

    feature: str
    step: float
    ordered: ClassVar[bool] = True

    def unsupported(self, task):
        return None if self.feature in task.space.names else f"Raised needs a feature {self.feature!r}."

    def candidates(self, search):
        place = search.task.space.names.index(self.feature)
        for value in np.arange(search.input[place], search.task.space[self.feature].high, self.step):
            point = search.input.copy()
            point[place] = value
            yield Candidate(search.snapped(point))


def raised_income(inputs):
    """By how much the income rises."""
    return inputs.points[:, 0] - inputs.inputs[:, 0]


CARD = Scorecard([1.0, -1.0, 0.5], bias=0.2)
NET = apas.FeedForward(
    [[[1.0, -0.5], [-1.0, 0.3]], [[1.0], [0.7]]],
    [[0.4, 0.3], [-0.2]],
    classes=("reject", "accept"),
    feature_names=("income", "debt"),
)
ROWS = np.array([[2.0, 0.5], [0.3, 0.45], [0.1, 0.9]])
LATER = Scorecard([1.0, -1.5, 0.5], bias=-0.2)
BRANCHES = Branches((Scorecard([1.1, -1.0, 0.5], bias=0.2), Scorecard([1.0, -1.2, 0.5], bias=0.1)), CARD)
HALF = apas.Sampling(coverage=0.5, confidence=0.5)
SPACE = FeatureSpace(
    [
        Feature("income", "continuous", low=0, high=3, step=0.01),
        Feature("debt", "continuous", low=0, high=3, direction="decrease"),
    ]
)
ASK = {"target": "accept", "shifts": SteadyBias(), "rng": 0}
WORDS = "weights move by at most delta, biases by at most 0.5 delta"


def test_each_part_offers_what_its_members_say():
    assert offers(CARD, Model)
    assert offers(CARD, Differentiable)
    for shifts in (SteadyBias(), BRANCHES):
        assert offers(shifts, ShiftSet)
        assert offers(shifts, Bounded)
    assert offers(SteadyBias(), Measurable)
    assert offers(SteadyBias(), Worded)
    assert offers(BRANCHES, Listed)
    for capability in (Method, FindsLargestShift, BoundsShare, EnclosesOutput):
        assert offers(Bayes(), capability)
    assert offers(Credible(0.9, "0.99", ""), Claim)
    assert offers(Tally(1, 0, 0, ""), Evidence)
    assert offers(Tally(1, 0, 0, ""), Rechecked)
    assert offers(Raised("income", 0.1), CandidateSource)


def shown(page):
    """The text of a page, without its scripts."""
    text = re.sub(r"<(script|style).*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def refused(found, tmp_path, what):
    """That answers are refused in one sentence where they would be written, and nowhere else."""
    with pytest.raises(InputError, match=what) as error:
        apas.save_certificates(found, tmp_path / "file.json")
    assert "cannot be written to a file" in str(error.value)
    assert str(error.value).count(". ") == 0
    if hasattr(found, "certified"):
        with apas.Ledger(tmp_path / "ledger.db") as ledger, pytest.raises(InputError, match=what):
            ledger.add(found, [f"A-{i}" for i in range(len(found))])


@pytest.mark.parametrize(
    ("method", "verdicts", "checks"),
    [
        ("sampling", "CERTIFIED CERTIFIED REFUTED", "HOLDS HOLDS HOLDS"),
        (apas.Attack(restarts=2), "UNKNOWN REFUTED REFUTED", "HOLDS HOLDS HOLDS"),
        (Bayes(), "CERTIFIED CERTIFIED REFUTED", "HOLDS HOLDS HOLDS"),
        (Slopes(), "CERTIFIED UNKNOWN REFUTED", "NOT_CHECKED NOT_CHECKED HOLDS"),
        (apas.Cascade(Slopes(), apas.Attack(restarts=2)), "CERTIFIED REFUTED REFUTED", "NOT_CHECKED HOLDS HOLDS"),
    ],
    ids=str,
)
def test_certified_verified_audited_and_reported(method, verdicts, checks, tmp_path):
    found = apas.certify(CARD, ROWS, 0.1, method=method, **ASK)
    assert [c.verdict.name for c in found] == verdicts.split()
    assert WORDS in found.summary()
    assert all(WORDS in c.sentence() for c in found if c.valid_today)
    assert [row.check.name for row in apas.verify(found, CARD)] == checks.split()
    report = apas.audit(found, LATER, base=CARD)
    outside = [row.outcome for row, c in zip(report, found, strict=True) if c.is_certified]
    assert outside == [Outcome.HELD, Outcome.BROKEN_OUTSIDE][: len(outside)]
    page = shown(apas.write_report(found, tmp_path / "page.html", new_model=LATER))
    assert "of the recalibrations of the model that were asked about" in page
    assert WORDS in page
    assert "LinfShifts" not in page
    assert ("By sampling:" in page) == (method == "sampling")
    refused(found, tmp_path, "certificates about SteadyBias cannot be written to a file")


@pytest.mark.parametrize("method", ["interval", "linear", "exact", "cascade", "enumeration"])
def test_worst_cases_by_geometry(method):
    found = apas.certify(NET, ROWS, 0.02, method=method, **ASK)
    assert all(c.is_certified for c in found)
    assert [row.check for row in apas.verify(found, NET)] == [Checked.HOLDS] * 3
    low = apas.output_range(NET, ROWS, 0.02, method="interval", **ASK)
    assert all(0 < r.low < r.high for r in low)


def test_the_largest_shift(tmp_path):
    drawn, own = (apas.max_shift(CARD, ROWS, method=method, **ASK) for method in ("sampling", Bayes()))
    assert (drawn.deltas > 0).tolist() == (own.deltas > 0).tolist() == [True, True, False]
    assert [row.check for row in apas.verify(drawn, CARD)] == [Checked.HOLDS] * 3
    checked = apas.verify(own, CARD)
    assert [row.check for row in checked] == [Checked.NOT_CHECKED, Checked.NOT_CHECKED, Checked.HOLDS]
    assert (
        checked.rows[0].reason == "nothing is known that would search again: a claim of type Credible has no recheck()"
    )
    said = "with posterior probability 0.999, at least 0.9 of the shifts keep class 'accept' at delta = 0.625 "
    assert own[0].sentence().startswith(said)
    page = shown(apas.write_report(own, tmp_path / "page.html", new_model=LATER))
    assert said in page
    assert "every shift by up to" not in page
    both = apas.certify(CARD, ROWS, 0.1, method=Bayes(), **ASK)
    assert said in shown(apas.write_report(both, tmp_path / "both.html", max_shifts=own))
    refused(own, tmp_path, "certificates about SteadyBias")
    for method in ("interval", "sampling"):
        proved = apas.max_shift(NET, ROWS, method=method, **ASK)
        assert (proved.deltas > 0).all()
        assert [row.check for row in apas.verify(proved, NET)] == [Checked.HOLDS] * 3


def test_a_claim_that_searches_again():
    @dataclass(frozen=True)
    class Repeated(Credible):
        def recheck(self, question, answer):
            again = Bayes().run(question, Stream(0, "max_shift"))[0]
            return again.is_certified == (
                answer.delta > 0
            ), f"asked again at {float(question.delta[0])}: {again.reason}"

    class Repeating(Bayes):
        def claim(self, question):
            return Repeated(self.coverage, self.probability, question.measure)

    checked = apas.verify(apas.max_shift(CARD, ROWS, method=Repeating(), **ASK), CARD)
    assert [row.check for row in checked] == [Checked.HOLDS] * 3
    assert checked.rows[0].reason.startswith("asked again at 0.625: ")


def test_shares_and_ranges():
    drawn, own = (apas.robust_fraction(CARD, ROWS, [0.1, 0.5], method=m, **ASK) for m in ("sampling", Bayes()))
    for known, curve in zip(drawn, own, strict=True):
        assert (np.maximum(known.lower, curve.lower) <= np.minimum(known.upper, curve.upper)).all()
    assert "by 400 draws" in own[1].sentence()
    computed = FractionCurve([0.1], [0.9], [0.8], [1.0], 0, 0.99, "accept", "a prior", True)
    assert computed.sentence().startswith("with confidence 0.99: the share of shifts")
    drawn, own = (apas.output_range(CARD, ROWS, 0.1, method=m, **ASK) for m in ("sampling", Bayes()))
    assert [r.side for r in own] == ["above", "above", "below"]
    assert all(known.low <= r.low and r.high <= known.high for known, r in zip(drawn, own, strict=True))
    assert "every one" not in own[0].sentence()
    assert (
        own[0].sentence().endswith("each end by itself for: at least 0.9 of the shifts, posterior probability 0.999.")
    )
    assert WORDS in own[0].sentence()


@pytest.mark.parametrize("method", ["exact", HALF], ids=["exact", "sampling"])
def test_a_list(method, tmp_path):
    found = apas.certify(CARD, ROWS, None, target="accept", shifts=BRANCHES, method=method, rng=0)
    assert [c.is_certified for c in found] == [True, False, False]
    assert apas.verify(found, CARD).ok
    inside, outside = (apas.audit(found, model, base=CARD).rows[0].inside for model in (BRANCHES.models[1], LATER))
    assert (inside, outside) == (True, False)
    page = shown(apas.write_report(found, tmp_path / "page.html", new_model=BRANCHES.models[1]))
    assert "there is no size of shifts to vary" in page
    assert "the 2 listed models" in page
    refused(found, tmp_path, "certificates about Branches cannot be written to a file")
    for verb in (apas.robust_fraction, apas.output_range):
        answers = verb(CARD, ROWS, None, target="accept", shifts=BRANCHES, method=HALF, rng=0)
        assert "scorecards of 2 branches" in answers[0].sentence()


@pytest.mark.parametrize("method", ["sampling", Slopes()], ids=str)
@pytest.mark.parametrize("source", [Raised("income", 0.05), "wachter"], ids=str)
def test_generated_and_evaluated(source, method, tmp_path):
    rejected = [[0.1, 0.4], [0.1, 0.9]]
    found = apas.generate(CARD, rejected, 0.1, space=SPACE, source=source, method=method, **ASK)
    assert found.status.tolist() == [Status.FOUND] * 2
    assert [c.is_certified for c in found.certificates] == [True, True]
    rows = apas.evaluate(found, metrics=["validity", raised_income]).rows
    assert rows["valid"].tolist() == [True, True]
    assert (rows["raised_income"] > 0).all()
    assert {row.check for row in apas.verify(found, CARD)} == {
        Checked.HOLDS if method == "sampling" else Checked.NOT_CHECKED
    }
    assert {row.outcome for row in apas.audit(found, LATER, base=CARD)} == {Outcome.BROKEN_OUTSIDE}
    assert "recalibrations" in shown(apas.write_report(found, tmp_path / "page.html"))
    refused(found, tmp_path, "certificates about SteadyBias")


def test_generated_for_a_list():
    found = apas.generate(
        CARD,
        [[0.1, 0.4]],
        None,
        target="accept",
        space=SPACE,
        shifts=BRANCHES,
        source=Raised("income", 0.05),
        method="exact",
    )
    assert found.certificates[0].is_certified
    assert "the scorecards of 2 branches" in found.certificates[0].sentence()
    assert apas.verify(found, CARD).ok


def test_what_is_refused_besides():
    with pytest.raises(apas.Unsupported, match="Bayes claims 'at least 0.9 of the shifts, posterior probability"):
        apas.generate(CARD, [[0.1, 0.4]], 0.1, space=SPACE, method=Bayes(), **ASK)
    with pytest.raises(apas.Unsupported, match="Bayes draws from no list"):
        apas.certify(CARD, ROWS, 1, target="accept", shifts=BRANCHES, method=Bayes())
    with pytest.raises(apas.Unsupported, match="Slopes needs a box"):
        apas.certify(CARD, ROWS, 0.1, target="accept", shifts="l2", method=Slopes())


def test_known_shifts_and_methods_are_saved_for_a_model_and_a_source_of_ones_own(tmp_path):
    found = apas.generate(CARD, [[0.1, 0.4]], 0.1, target="accept", space=SPACE, source=Raised("income", 0.05), rng=0)
    apas.save_certificates(found, tmp_path / "file.json")
    assert apas.verify(tmp_path / "file.json", CARD).ok


def test_the_claim_and_the_evidence_alone_are_refused_when_saved(tmp_path):
    for method, what in ((Bayes(), "with evidence of type Tally"), (Slopes(), "with evidence of type Least")):
        found = apas.certify(CARD, ROWS[:1], 0.1, target="accept", method=method, rng=0)
        refused(found, tmp_path, what)
    found = apas.max_shift(CARD, ROWS[:1], target="accept", method=Bayes(), rng=0)
    refused(found, tmp_path, "with a claim of type Credible")


def test_broken_inside(tmp_path):
    """A claim with a risk is not said to leave out a share that it does not leave out; a proof of one's own is wrong."""

    class Surely(Credible):
        def __str__(self):
            return "every shift, posterior probability 0.999"

    class Proof(Credible):
        risk = 0

        def __str__(self):
            return "every shift, by slopes"

    @dataclass(frozen=True)
    class Hasty(Slopes):
        """Certifies whatever it is asked."""

        kind: type

        def claim(self, question):
            return self.kind(1.0, "0.999", question.region)

        def run(self, question, stream):
            return [replace(c, verdict=Verdict.CERTIFIED) for c in super().run(question, stream)]

    near = Scorecard([0.91, -1.09, 0.41], bias=0.16)
    row = [[0.3, 0.45]]
    for kind, wrong, said, headline in (
        (Surely, 0, "0.999, and is false with its risk: here it is", "certificates that are not proofs may be false"),
        (Proof, 1, "THE CERTIFICATE WAS WRONG", "CERTIFICATES THAT CANNOT BE RIGHT: 1."),
    ):
        found = apas.certify(CARD, row, 0.1, method=Hasty(kind), **ASK)
        report = apas.audit(found, near, base=CARD, repairs=False)
        assert report.rows[0].outcome is Outcome.BROKEN_INSIDE
        assert report.wrong_certificates == wrong
        assert said in report.rows[0].reason
        page = shown(apas.write_report(found, tmp_path / "page.html", audit=report, model=CARD))
        assert headline in page
        assert "leave out a share" not in page
