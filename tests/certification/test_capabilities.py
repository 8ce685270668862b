"""Shift sets and methods of one's own, each in one class outside the package, are asked for what they can do."""

from __future__ import annotations

from copy import copy  # as pickling does, for workers
from dataclasses import dataclass, replace

import numpy as np
import pytest

import apas
from apas import InputError, LinfShifts, LpShifts, Unsupported, Verdict
from apas.certification.certificate import BoundEvidence, Certificate
from apas.certification.claims import Every
from apas.certification.question import Draws, OnlyRefutes, Question
from apas.models.base import Parameters, offers
from apas.shifts.base import Ball, Bounded, Box, Finite, Listed, Sparse

RNG = np.random.default_rng(5)
DEEP = apas.FeedForward([RNG.normal(size=(3, 4)), RNG.normal(size=(4, 3)), RNG.normal(size=(3, 1))], [RNG.normal(size=s) for s in (4, 3, 1)])  # fmt: skip
LINE = apas.FeedForward([[[1.0], [-1.0]]], [[0.25]])
ROWS = RNG.normal(size=(6, 3))


@dataclass(frozen=True)
class OwnSet:
    """What every set has; a subclass adds its geometry."""

    def directions(self, parameters, stream, start, stop):
        k = len(parameters)
        words = stream.words(k * start, k * (stop - start)).reshape(stop - start, k)
        return ((words >> 11) / 2**52 - 1) * self.radii(parameters)

    def margins(self, model, X, target, directions, delta):
        return model.shifted_margins(X, target, directions, delta)

    def radii(self, parameters):
        return np.ones(len(parameters))

    def contains(self, base, other, delta):
        return bool((np.abs(other.values - base.values) <= delta * self.radii(base)).all())

    def measure(self, parameters):
        return f"drawn from {self.region(parameters)}"

    def region(self, parameters):
        return "a set of one's own"

    def to_dict(self):
        return {"kind": "own"}


class HalfBox(OwnSet):
    """Every parameter moves by at most half of delta."""

    def radii(self, parameters):
        return np.full(len(parameters), 0.5)

    def geometry(self, parameters):
        return Box(self.radii(parameters))


class RoundBall(OwnSet):
    """All parameters together move by at most delta."""

    def geometry(self, parameters):
        return Ball(2.0, self.radii(parameters))

    def contains(self, base, other, delta):
        return bool(np.linalg.norm(other.values - base.values) <= delta)


@dataclass(frozen=True)
class Refits(OwnSet):
    """Some models of the same layout, as differences from the model itself."""

    models: tuple
    base: apas.FeedForward
    default_delta = 1.0

    def directions(self, parameters, stream, start, stop):
        return np.stack([m.parameters.values - self.base.parameters.values for m in self.models[start:stop]])

    def radii(self, parameters):
        return np.abs(self.directions(parameters, None, 0, len(self.models))).max(axis=0)

    def geometry(self, parameters):
        return Finite(self.models)


HALF = LinfShifts(scale={0: 0.5, 1: 0.5, 2: 0.5})


def told(found):
    """What an answer says besides the words for its set."""
    return [replace(c, claim=replace(c.claim, measure=""), witness=None, seconds=0.0) for c in found]


@pytest.mark.parametrize("method", ["interval", "linear", "exact", "cascade", apas.Attack(restarts=3), apas.Enumeration(max_boxes=50)], ids=str)  # fmt: skip
@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_a_box_of_ones_own_is_proved_like_the_one_that_is_known(method, delta):
    options = {"target": "predicted", "method": method, "rng": 0}
    own = apas.certify(DEEP, ROWS, delta, shifts=HalfBox(), **options)
    known = apas.certify(DEEP, ROWS, delta, shifts=HALF, **options)
    assert own[0].claim.measure == "a set of one's own"
    if not isinstance(method, apas.Attack):  # whose starts are drawn from the set
        assert told(own) == told(known)
    for row, certificate in zip(ROWS, own, strict=True):
        if certificate.witness is not None:
            values = certificate.witness.parameters(DEEP)
            assert HALF.contains(DEEP.parameters, replace(DEEP.parameters, values=values), delta)
            assert certificate.witness.margin(DEEP, row[None], certificate.target) <= 0


def test_other_verbs_take_a_box_of_ones_own():
    ask = {"target": "predicted", "shifts": HalfBox()}
    known = {"target": "predicted", "shifts": HALF}
    for method in ("interval", "linear", "cascade"):
        found = apas.max_shift(DEEP, ROWS[:2], method=method, **ask)
        assert found.deltas.tolist() == apas.max_shift(DEEP, ROWS[:2], method=method, **known).deltas.tolist()
        assert (found.deltas > 0).all()
    for method in ("interval", "exact"):
        own, other = (apas.output_range(DEEP, ROWS[:2], 0.05, method=method, **q) for q in (ask, known))
        assert [(r.low, r.high, r.attained) for r in own] == [(r.low, r.high, r.attained) for r in other]
    curves = [apas.robust_fraction(LINE, [[1.0, 0.5]], [0.5], method="enumeration", target=1, shifts=s)[0] for s in (HalfBox(), LinfShifts(scale={0: 0.5}))]  # fmt: skip
    assert curves[0].lower.tolist() == curves[1].lower.tolist()
    assert 0 < curves[0].lower[0] <= curves[0].upper[0] <= 1


@pytest.mark.parametrize("method", ["interval", "exact", "cascade"])
def test_a_ball_of_ones_own(method):
    rows, answers = [[2.0, 0.5], [0.4, 0.6], [0.7, 0.1]], []
    for shifts in (RoundBall(), LpShifts(2)):
        found = apas.certify(LINE, rows, 0.2, target="predicted", shifts=shifts, method=method)
        answers.append([(c.verdict, c.evidence) for c in found])
        for c in found:
            if c.witness is not None:
                assert np.linalg.norm(c.witness.parameters(LINE) - LINE.parameters.values) <= 0.2
    assert answers[0] == answers[1]
    assert {verdict for verdict, _ in answers[0]} == {Verdict.CERTIFIED, Verdict.REFUTED}
    own, known = (
        apas.max_shift(LINE, rows, target="predicted", shifts=s, method=method) for s in (RoundBall(), LpShifts(2))
    )
    assert own.deltas.tolist() == known.deltas.tolist()


def test_a_ball_of_ones_own_is_attacked():
    found = apas.certify(DEEP, ROWS, 1.0, target="predicted", shifts=RoundBall(), method=apas.Attack(restarts=3), rng=0)
    broken = [c for c in found if c.witness is not None]
    assert broken
    for c in broken:
        assert np.linalg.norm(c.witness.parameters(DEEP) - DEEP.parameters.values) <= 1.0


def test_a_list_of_ones_own():
    near, far = (apas.FeedForward([[[1.0], [w]]], [[0.25]]) for w in (-1.1, -4.0))
    shifts = Refits((near, far), LINE)
    assert offers(shifts, Listed)
    assert offers(shifts, Bounded)
    found = apas.certify(LINE, [[2.0, 0.5], [1.0, 0.5]], None, target=1, shifts=shifts, method="exact")
    assert [c.verdict for c in found] == [Verdict.CERTIFIED, Verdict.REFUTED]
    assert found[1].witness.index == 1
    assert found[1].witness.parameters(LINE).tolist() == far.parameters.values.tolist()
    sampled = apas.Sampling(coverage=0.5, confidence=0.5)
    drawn = apas.certify(LINE, [[2.0, 0.5]], None, target=1, shifts=shifts, method=sampled, rng=0)[0]
    assert (drawn.verdict, drawn.evidence.draws) == (Verdict.CERTIFIED, 2)
    with pytest.raises(InputError, match="must be at most 2, as Refits has models, got 3"):
        apas.certify(LINE, [[2.0, 0.5]], 1, target=1, shifts=shifts, method=apas.Sampling(n_samples=3))
    with pytest.raises(InputError, match="`models` of Refits must number at least"):
        apas.certify(LINE, [[2.0, 0.5]], 1, target=1, shifts=shifts)
    with pytest.raises(Unsupported, match="max_shift cannot use Refits"):
        apas.max_shift(LINE, [[2.0, 0.5]], target=1, shifts=shifts)
    with pytest.raises(Unsupported, match="IntervalBounds needs shifts in a box .* use Exact, which asks every model"):
        apas.certify(LINE, [[2.0, 0.5]], 1, target=1, shifts=shifts, method="interval")


def test_a_set_without_geometry_has_no_worst_case():
    with pytest.raises(
        Unsupported, match=r"Exact needs shifts in a box \(LinfShifts\) here, got OwnSet\(\); use Sampling"
    ):
        apas.certify(DEEP, ROWS, 0.1, target="predicted", shifts=OwnSet(), method="exact")


def test_one_reach():
    class Twice(HalfBox):
        def geometry(self, parameters):
            return Box(np.ones(len(parameters)))

    with pytest.raises(InputError, match=r"the radii of Twice.geometry are not those of its `radii`"):
        apas.certify(DEEP, ROWS, 0.1, target="predicted", shifts=Twice(), method="interval")
    with pytest.raises(InputError, match="a box of any radii is a Box"):
        Ball(2.0, np.array([0.5]))
    with pytest.raises(InputError, match="`p` of Ball must be above 0"):
        Ball(0.0, np.ones(1))
    for count in (0, -1, 1.5):
        with pytest.raises(InputError, match="`count` of Sparse must be an integer of at least 1, got"):
            Sparse(count, np.ones(3))


def test_what_moves_in_place_of_parameters_is_no_box_of_them():
    class Moving(HalfBox):
        def coordinates(self, model):
            return Parameters.from_arrays([[0.0]], names=["x"], kinds=["weight"], layers=["x"])

        def shifted_parameters(self, model, direction, delta):
            return model.parameters.values

    with pytest.raises(Unsupported, match="IntervalBounds needs shifts in a box"):
        apas.certify(DEEP, ROWS, 0.1, target="predicted", shifts=Moving(), method="interval")


@dataclass(frozen=True)
class Halves:
    """Proves what intervals prove at half of the largest delta: a method of one's own with all that verbs ask for."""

    name = "halves"

    def claim(self, question):
        return Every(question.region, question.claim_rows)

    def unsupported(self, question):
        return None if isinstance(question.geometry, Box) else "Halves needs a box."

    def run(self, question, stream):
        return [
            Certificate(self.claim(question), Verdict.UNKNOWN, float(d), t, self.name, BoundEvidence("none", None), "")
            for d, t in zip(question.delta, question.target, strict=True)
        ]

    def largest_shift(self, question, stream, *, limit, search):
        found = apas.IntervalBounds().largest_shift(question, stream, limit=limit)
        return [replace(one, delta=one.delta / 2, trace={"method": self.name}) for one in found]

    def shares(self, question, deltas, stream):
        ones = np.ones(len(deltas))
        return [
            apas.FractionCurve(deltas, ones / 2, 0 * ones, ones, 0, 1.0, t, question.measure, True)
            for t in question.target
        ]

    def ranges(self, question, stream):
        return [replace(r, method=self.name) for r in apas.IntervalBounds().ranges(question, stream)]


def test_a_method_of_ones_own_answers_all_verbs():
    ask = {"target": "predicted", "method": Halves()}
    proved = apas.max_shift(DEEP, ROWS, target="predicted", method="interval").deltas
    found = apas.max_shift(DEEP, ROWS, **ask)
    assert found.deltas.tolist() == (proved / 2).tolist()
    assert found[0].trace["method"] == "halves"
    curves = apas.robust_fraction(DEEP, ROWS, [0.1, 0.2], **ask)
    assert curves.entropy is None
    assert curves[0].upper.tolist() == [1.0, 1.0]
    assert {r.method for r in apas.output_range(DEEP, ROWS, 0.1, **ask)} == {"halves"}
    with pytest.raises(Unsupported, match="Halves needs a box"):
        apas.max_shift(DEEP, ROWS, shifts="gaussian", **ask)
    with pytest.raises(InputError, match="`search` goes with method"):
        apas.max_shift(DEEP, ROWS, search="paper", **ask)
    wrong = apas.certify(LINE, [[0.0, 1.0]], 0.1, target=1, method=Halves())[0]
    assert (wrong.method, wrong.verdict) == ("halves", Verdict.REFUTED)


def test_a_cascade_asks_the_tightest_for_the_largest_shift():
    exact = apas.max_shift(DEEP, ROWS[:1], target="predicted", method=apas.Exact())[0]
    found = apas.max_shift(
        DEEP, ROWS[:1], target="predicted", method=apas.Cascade(apas.Exact(), apas.IntervalBounds())
    )[0]
    assert (found.delta, found.trace["method"]) == (exact.delta, "exact")
    alone = apas.max_shift(DEEP, ROWS[:1], target="predicted", method=apas.Cascade(Halves()))[0]
    assert alone.trace["method"] == "halves"
    with pytest.raises(Unsupported, match="max_shift needs a method that proves"):
        apas.max_shift(DEEP, ROWS[:1], target="predicted", method=apas.Cascade(apas.Sampling()))


def test_who_draws_and_who_only_refutes():
    methods = [
        apas.Sampling(),
        apas.IntervalBounds(),
        apas.Exact(),
        apas.Enumeration(coverage=0.9),
        apas.Cascade(),
        apas.Attack(),
    ]
    assert [offers(m, Draws) for m in methods] == [True, False, False, False, False, False]
    assert [offers(m, OnlyRefutes) for m in methods] == [False, False, False, False, False, True]


def test_one_forward_pass_of_the_rows():
    """Validity, agreement and the band share the margins on the model itself."""
    passes = []

    class Counting:
        classes, n_features, parameters = LINE.classes, 2, LINE.parameters

        def margin(self, X, target):
            passes.append(len(X))
            return LINE.margin(X, target)

        def shifted_margins(self, *args):
            return LINE.shifted_margins(*args)

        def library_classes(self, X):
            return np.array([1] * len(X))

    apas.certify(Counting(), [[2.0, 0.5], [3.0, 0.5]], 0.1, target=1, rng=0)
    assert passes == [2]


def test_questions_that_travel_leave_the_rows_of_the_user_behind():
    question = Question.ask(LINE, [[2.0, 0.5]], target=1, delta=0.1, shifts="linf", method="sampling")
    assert question.points.tolist() == [[2.0, 0.5]]
    assert copy(question).points is None
    near = apas.ObservedShifts([apas.FeedForward([[[1.0], [-1.1]]], [[0.25]])])
    question = Question.ask(LINE, [[2.0, 0.5]], target=1, delta=None, shifts=near, method="exact")
    assert question.delta.tolist() == [1.0]
    assert copy(question).points.tolist() == [[2.0, 0.5]]
