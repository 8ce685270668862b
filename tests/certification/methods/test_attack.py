from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from problems import CASES, network

from apas import FeedForward, InputError, LinfShifts, Sampling, Verdict
from apas._random import Stream
from apas.certification.max_shift.proved import proved_deltas
from apas.certification.methods.attack import Attack, broken_deltas
from apas.certification.question import Method, Question
from apas.shifts.balls import LpShifts
from apas.shifts.geometry import within_box
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR, exact_sign
from apas.worst_case.intervals import Boxes

STREAM = Stream(0, "certify")
QUICK = Attack(restarts=6, steps=30)


def question(net, X, target, delta, shifts=None, **options):
    labels = np.empty(len(X), dtype=object)
    labels[:] = target
    deltas = np.broadcast_to(np.asarray(delta, dtype=float), len(X)).copy()
    return Question(net, np.asarray(X, dtype=float), labels, deltas, shifts or LinfShifts(), **options)


def valid_problem(sizes, activation, seed=0, rows=6, shifts=None):
    """Rows that the network puts into their class, at delta 0."""
    net = network(sizes, "sigmoid" if sizes[-1] == 1 else "softmax", activation, seed)
    rng = np.random.default_rng(seed + 1)
    X = rng.normal(size=(4 * rows, sizes[0]))
    asked = question(net, X, rng.integers(max(2, sizes[-1]), size=len(X)).tolist(), 0.0, shifts)
    return asked.take(np.flatnonzero(asked.valid_rows())[:rows])


def refuted(certificates):
    return np.array([c.verdict is Verdict.REFUTED for c in certificates])


def check_witness(asked, row, witness):
    """Inside the set and invalid, by arithmetic of its own."""
    net, values, x = asked.network, witness.parameters(asked.model), asked.X[row]
    base = asked.model.parameters.values
    for value, centre, radius in zip(values.tolist(), base.tolist(), asked.radii.tolist(), strict=True):
        assert abs(Fraction(value) - Fraction(centre)) <= Fraction(witness.delta) * Fraction(radius)
    shifted = net.with_parameters(values)
    margin = shifted.margin(x[None, :], asked.target[row])[0]
    assert margin <= 0 if asked.strict[row] else margin < 0
    if PIECEWISE_LINEAR.issuperset(net.activations):
        wanted = net.classes.index(asked.target[row])
        sign = exact_sign(shifted.weights, shifted.biases, shifted.activations, x, wanted, shifted.offset)
        assert sign <= (0 if asked.strict[row] else -1)


@dataclass(frozen=True)
class Opaque:
    """A network that offers gradients, but does not say that it is a network."""

    net: FeedForward

    @property
    def classes(self):
        return self.net.classes

    @property
    def n_features(self):
        return self.net.n_features

    @property
    def parameters(self):
        return self.net.parameters

    def margin(self, X, target):
        return self.net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return self.net.shifted_margins(X, target, directions, delta)

    def input_gradient(self, X, target, moves=None):
        return self.net.input_gradient(X, target, moves)

    def parameter_gradient(self, X, target, moves=None):
        return self.net.parameter_gradient(X, target, moves)


CLOSED = [((4, 1), "relu"), ((4, 3), "relu"), ((4, 7, 1), "relu"), ((4, 7, 1), "tanh"), ((4, 7, 3), "leaky_relu"),
          ((4, 7, 2), "sigmoid"), ((4, 7, 1), "gelu")]  # fmt: skip
DEEP = [((4, 8, 6, 1), "relu"), ((4, 8, 6, 3), "relu"), ((4, 6, 6, 5, 1), "hard_tanh"), ((4, 8, 6, 1), "tanh"),
        ((4, 8, 6, 2), "elu")]  # fmt: skip


class TestVerdicts:
    @pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
    def test_cases_with_known_answers(self, case):
        for delta, fails in ((case.worst_case * (1 + 1e-6), True), (case.worst_case * (1 - 1e-6), False)):
            asked = question(case.model, case.X, case.target, delta, case.shifts)
            (certificate,) = Attack().run(asked, STREAM)
            assert certificate.verdict is (Verdict.REFUTED if fails else Verdict.UNKNOWN)

    @pytest.mark.parametrize(("sizes", "activation"), CLOSED, ids=str)
    def test_closed_form_breaks_just_beyond_what_is_proved(self, sizes, activation):
        asked = valid_problem(sizes, activation)
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        beyond, below = (replace(asked, delta=proved * factor) for factor in (1 + 1e-6, 1 - 1e-9))
        certificates = Attack().run(beyond, STREAM)
        assert refuted(certificates).all()
        for i, certificate in enumerate(certificates):
            check_witness(beyond, i, certificate.witness)
        assert not refuted(Attack().run(below, STREAM)).any()

    @pytest.mark.parametrize("shifts", [
        LinfShifts(relative=True), LinfShifts(kinds=("bias",)), LinfShifts(kinds=("weight",)), LinfShifts(layers=[0]),
        LinfShifts(layers=[-1]), LinfShifts(scale={0: 0.1, 1: 2.0}), LinfShifts(relative=True, floor=0.2),
    ], ids=str)  # fmt: skip
    def test_every_box(self, shifts):
        asked = valid_problem((4, 7, 1), "relu", shifts=shifts)
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        keep = (proved > 0) & (proved < 10.0)  # some boxes cannot break a row at all
        assert keep.any()
        beyond = replace(asked, delta=proved * (1 + 1e-6)).take(keep)
        certificates = Attack().run(beyond, STREAM)
        assert refuted(certificates).all()
        for i, certificate in enumerate(certificates):
            check_witness(beyond, i, certificate.witness)

    @pytest.mark.parametrize(("sizes", "activation"), DEEP, ids=str)
    def test_deep_networks_never_below_what_is_proved(self, sizes, activation):
        asked = valid_problem(sizes, activation)
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        assert (proved > 0).all()
        assert not refuted(QUICK.run(replace(asked, delta=proved), STREAM)).any()
        for factor in (1.5, 3.0, 10.0):
            larger = replace(asked, delta=proved * factor)
            bound, error = Boxes(asked.network, asked.X, asked.wanted, asked.radii).least(larger.delta)
            certificates = QUICK.run(larger, STREAM)
            assert not (refuted(certificates) & (bound - error > 0)).any()
            for i, certificate in enumerate(certificates):
                if certificate.witness is not None:
                    check_witness(larger, i, certificate.witness)
        assert refuted(certificates).all()

    @pytest.mark.parametrize("activation", ["relu", "tanh"])
    def test_finds_more_than_draws_and_corners(self, activation):
        ours = theirs = total = 0
        for seed in range(4):
            asked = valid_problem((5, 12, 8, 1), activation, seed)
            proved, _ = proved_deltas(asked, asked.network, 10.0)
            delta = proved * 1.5
            ours += refuted(QUICK.run(replace(asked, delta=delta), STREAM)).sum()
            directions = LinfShifts().directions(asked.model.parameters, Stream(seed, "draws"), 0, 4000)
            directions[2000:] = np.sign(directions[2000:])
            drawn = asked.model.shifted_margins(asked.X, asked.target, directions, delta).min(axis=0)
            theirs += (drawn < 0).sum()
            total += len(asked)
        assert ours > 0.3 * total
        assert theirs < 0.5 * ours

    def test_tie_breaks_only_where_the_margin_must_be_positive(self):
        # the unit dies at delta 0.5, and the margin is 0 from there on
        net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]], classes=("no", "yes"))
        shifts = LinfShifts(layers=[0], kinds=("bias",))
        asked = question(net, [[0.5]], "yes", 0.75, shifts)
        assert not refuted(Attack().run(asked, STREAM)).any()
        upside_down = FeedForward([[[1.0]], [[-1.0]]], [[0.0], [0.0]], classes=("no", "yes"))
        asked = question(upside_down, [[0.5]], "no", 0.75, shifts)
        (certificate,) = Attack().run(asked, STREAM)
        assert certificate.verdict is Verdict.REFUTED
        assert certificate.witness.margin(upside_down, [[0.5]], "no") == 0.0

    @pytest.mark.parametrize("scale", [1e-8, 1e8])
    def test_weights_of_any_size(self, scale):
        small = valid_problem((4, 7, 1), "relu")
        net = small.network
        scaled = FeedForward([w * scale for w in net.weights], [net.biases[0] * scale, net.biases[1] * scale**2])
        asked = question(scaled, small.X, small.target.tolist(), 0.0)
        asked = asked.take(asked.valid_rows())
        proved, _ = proved_deltas(asked, scaled, 10.0 * scale)
        assert refuted(Attack().run(replace(asked, delta=proved * (1 + 1e-6)), STREAM)).all()
        assert not refuted(Attack().run(replace(asked, delta=proved * (1 - 1e-9)), STREAM)).any()

    def test_numbers_that_overflow_decide_nothing_wrong(self):
        net = FeedForward([np.full((2, 3), 1e200), np.full((3, 2), 1e200), np.full((2, 1), 1e200)],
                          [np.zeros(3), np.zeros(2), np.zeros(1)])  # fmt: skip
        (certificate,) = QUICK.run(question(net, [[1.0, 2.0]], 1, 1.0), STREAM)
        assert certificate.verdict is Verdict.UNKNOWN  # all weights stay positive

    def test_zero_width_and_zero_rows(self):
        asked = valid_problem((4, 8, 6, 1), "relu")
        assert not refuted(QUICK.run(asked, STREAM)).any()  # delta is 0
        assert QUICK.run(asked.take(np.array([], dtype=int)), STREAM) == []


class TestCertificates:
    def test_evidence_and_words(self):
        asked = valid_problem((4, 8, 6, 1), "relu", rows=2)
        far, near = (QUICK.run(replace(asked, delta=np.full(2, d)), STREAM)[0] for d in (5.0, 1e-9))
        expected = {"kind": "bound", "step": "attack", "bound": None, "nodes": far.evidence.nodes, "exact": False}
        assert far.evidence.to_dict() == expected
        assert (far.method, near.method) == ("attack", "attack")
        assert 0 < far.evidence.nodes < near.evidence.nodes
        assert far.sentence().startswith("REFUTED: for certain, not every one of the shifts keep")
        assert far.sentence().endswith("; a shift that loses it was found and checked.")
        assert near.witness is None
        assert near.sentence().startswith("UNKNOWN: it is not settled whether every one of the shifts keep")
        assert near.sentence().endswith(
            f"; none of the {near.evidence.nodes} shifts tried loses it, which proves nothing."
        )

    def test_words_for_closed_form(self):
        (certificate,) = Attack().run(question(CASES[0].model, CASES[0].X, 1, 1e-9), STREAM)
        assert certificate.reason == (
            "the worst shift, known in closed form, does not lose it, which interval bounds can prove"
        )

    def test_within_rounding(self):
        net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]], activation="tanh")
        asked = question(net, [[1.0]], 1, np.tanh(1.0), LinfShifts(layers=[1], kinds=("bias",)))
        (certificate,) = Attack().run(asked, STREAM)
        assert certificate.verdict is Verdict.UNKNOWN
        assert certificate.reason == "the worst shift found is within rounding of the boundary"

    def test_claim(self):
        asked = valid_problem((4, 8, 6, 1), "relu")
        claim = Attack().claim(replace(asked, claim_rows=6))
        assert claim.rows == 6
        assert claim.measure == asked.shifts.region(asked.model.parameters)

    def test_deterministic_and_row_independent(self):
        asked = valid_problem((5, 12, 8, 3), "relu", rows=8)
        asked = replace(asked, delta=np.linspace(0.02, 0.2, len(asked)))
        whole = QUICK.run(asked, STREAM)
        assert QUICK.run(asked, STREAM) == whole
        for rows in ([3], [7, 0, 4]):
            assert QUICK.run(asked.take(np.array(rows)), STREAM) == [whole[i] for i in rows]
        assert 0 < refuted(whole).sum() < len(asked)

    @pytest.mark.parametrize("shifts", [LinfShifts(), LpShifts(2)], ids=str)
    def test_opaque_models_are_row_independent(self, shifts):
        asked = valid_problem((4, 8, 6, 1), "relu", rows=4, shifts=shifts)
        asked = replace(asked, model=Opaque(asked.network), delta=np.array([0.03, 0.1, 0.3, 1.0]))
        whole = QUICK.run(asked, STREAM)
        for rows in ([2], [3, 0]):
            assert QUICK.run(asked.take(np.array(rows)), STREAM) == [whole[i] for i in rows]

    def test_parts_and_workers_do_not_change_the_answer(self, monkeypatch):
        module = sys.modules[Attack.__module__]  # `apas.certify` is the function
        asked = valid_problem((4, 8, 6, 1), "tanh", rows=5)
        asked = replace(asked, delta=np.linspace(0.01, 0.3, 5))
        whole = QUICK.run(asked, STREAM)
        monkeypatch.setattr(module, "ROWS", 2)
        assert QUICK.run(asked, STREAM) == whole
        assert QUICK.run(replace(asked, n_jobs=2), STREAM) == whole

    def test_the_seed_is_the_entropy(self):
        asked = valid_problem((4, 8, 6, 1), "relu", rows=3)
        asked = replace(asked, delta=np.full(3, 1e-3))
        assert QUICK.run(asked, Stream(1, "certify")) == QUICK.run(asked, Stream(1, "other"))


class TestOtherModelsAndSets:
    def test_opaque_models(self):
        asked = valid_problem((4, 8, 6, 1), "tanh")
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        opaque = replace(asked, model=Opaque(asked.network))
        assert opaque.network is None
        assert not refuted(QUICK.run(replace(opaque, delta=proved), STREAM)).any()
        far = replace(opaque, delta=proved * 5)
        certificates = QUICK.run(far, STREAM)
        assert refuted(certificates).all()
        for i, certificate in enumerate(certificates):
            values = certificate.witness.parameters(asked.model)
            assert within_box(asked.model.parameters.values, asked.radii, far.delta[i], values).all()
            assert asked.network.with_parameters(values).margin(asked.X[i : i + 1], asked.target[i])[0] < 0

    def test_opaque_linear_models_to_the_worst_case(self):
        asked = valid_problem((4, 1), "relu")
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        opaque = replace(asked, model=Opaque(asked.network))
        assert refuted(QUICK.run(replace(opaque, delta=proved * (1 + 1e-6)), STREAM)).all()

    @pytest.mark.parametrize("p", [1, 2])
    def test_balls_of_linear_models_to_the_worst_case(self, p):
        asked = valid_problem((4, 1), "relu", shifts=LpShifts(p))
        extended = np.abs(np.hstack([asked.X, np.ones((len(asked), 1))]))
        dual = extended.max(axis=1) if p == 1 else np.sqrt((extended**2).sum(axis=1))
        worst = asked.model.margin(asked.X, asked.target) / dual
        for factor, fails in ((1 + 1e-6, True), (1 - 1e-6, False)):
            scaled = replace(asked, delta=worst * factor)
            certificates = QUICK.run(scaled, STREAM)
            assert (refuted(certificates) == fails).all()
            for certificate in certificates if fails else ():
                moved = replace(asked.model.parameters, values=certificate.witness.parameters(asked.model))
                assert asked.shifts.contains(asked.model.parameters, moved, certificate.delta)

    @pytest.mark.parametrize("p", [1, 2])
    def test_balls_of_deep_networks(self, p):
        asked = valid_problem((4, 8, 6, 3), "relu", shifts=LpShifts(p, kinds=("weight",)), rows=3)
        certificates = QUICK.run(replace(asked, delta=np.full(3, 5.0)), STREAM)
        assert refuted(certificates).all()
        for certificate in certificates:
            moved = replace(asked.model.parameters, values=certificate.witness.parameters(asked.model))
            assert asked.shifts.contains(asked.model.parameters, moved, 5.0)

    def test_models_without_gradients_are_refused(self):
        asked = valid_problem((4, 8, 6, 1), "relu")
        model = type("Model", (), {n: vars(Opaque).get(n) for n in ("classes", "n_features", "margin")})
        complaint = Attack().unsupported(replace(asked, model=model()))
        assert complaint == (
            "Attack needs a model with gradients (`parameter_gradient`), which Model does not offer; "
            'use method="sampling", which takes every model.'
        )
        assert Attack().unsupported(asked) is None
        assert Attack().unsupported(replace(asked, model=Opaque(asked.network))) is None

    def test_other_shift_sets_are_refused(self):
        asked = valid_problem((4, 8, 6, 1), "relu")
        complaint = Attack().unsupported(replace(asked, shifts=Sampling()))
        assert complaint.startswith(
            "Attack needs shifts of all parameters in a box or a ball (LinfShifts, LpShifts), got"
        )
        assert Attack().unsupported(replace(asked, shifts=LpShifts(2))) is None


class TestOptions:
    def test_it_is_a_method(self):
        assert isinstance(Attack(), Method)

    @pytest.mark.parametrize("name", ["restarts", "steps"])
    def test_numbers_are_checked(self, name):
        with pytest.raises(InputError, match=f"`{name}` of Attack must be .*, got 0"):
            Attack(**{name: 0})
        with pytest.raises(TypeError):
            Attack(5)

    def test_one_start_and_one_step(self):
        asked = valid_problem((4, 8, 6, 1), "relu")
        certificates = Attack(restarts=1, steps=1).run(replace(asked, delta=np.full(len(asked), 5.0)), STREAM)
        assert refuted(certificates).all()


class TestBrokenDeltas:
    @pytest.mark.parametrize(("sizes", "activation"), CLOSED, ids=str)
    def test_closed_form_meets_what_is_proved(self, sizes, activation):
        asked = valid_problem(sizes, activation)
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        for start in (proved, np.zeros(len(asked))):
            delta, witnesses = broken_deltas(asked, start, 10.0)
            np.testing.assert_allclose(delta, proved, rtol=1e-7)
            assert (delta >= proved).all()
            for i, witness in enumerate(witnesses):
                assert witness.delta == delta[i]
                check_witness(asked, i, witness)

    @pytest.mark.parametrize(("sizes", "activation"), DEEP, ids=str)
    def test_deep_networks(self, sizes, activation):
        asked = valid_problem(sizes, activation, rows=4)
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        delta, witnesses = broken_deltas(asked, proved, 10.0, attack=QUICK)
        assert (delta >= proved).all()
        assert np.isfinite(delta).all()
        for i, witness in enumerate(witnesses):
            check_witness(asked, i, witness)
        # just below, the same effort finds nothing
        assert refuted(QUICK.run(replace(asked, delta=delta * 0.98), STREAM)).mean() <= 0.25

    def test_rows_do_not_depend_on_each_other(self):
        asked = valid_problem((4, 8, 6, 1), "relu", rows=5)
        start = np.zeros(5)
        delta, witnesses = broken_deltas(asked, start, 10.0, attack=QUICK)
        rows = np.array([4, 1])
        some, kept = broken_deltas(asked.take(rows), start[rows], 10.0, attack=QUICK)
        np.testing.assert_array_equal(some, delta[rows])
        assert kept == [witnesses[i] for i in rows]

    def test_nothing_breaks_below_the_limit(self):
        asked = valid_problem((4, 8, 6, 1), "relu", rows=3)
        delta, witnesses = broken_deltas(asked, np.zeros(3), 1e-9, attack=QUICK)
        assert np.isinf(delta).all()
        assert witnesses == [None] * 3

    def test_never_beyond_the_limit(self):
        asked = valid_problem((4, 7, 1), "relu", rows=3)
        proved, _ = proved_deltas(asked, asked.network, 10.0)
        limit = float(proved.max()) * 1.01
        delta, _ = broken_deltas(asked, np.zeros(3), limit)
        assert (delta <= limit).all()

    def test_opaque_models_and_balls(self):
        asked = valid_problem((4, 8, 6, 1), "tanh", rows=3)
        units, _ = broken_deltas(asked, np.zeros(3), 10.0, attack=QUICK)
        parameters, _ = broken_deltas(replace(asked, model=Opaque(asked.network)), np.zeros(3), 10.0, attack=QUICK)
        np.testing.assert_allclose(parameters, units, rtol=0.03)
        ball, witnesses = broken_deltas(replace(asked, shifts=LpShifts(2)), np.zeros(3), 10.0, attack=QUICK)
        assert (ball > units).all()  # the ball of the same size lies inside the box
        for witness in witnesses:
            moved = replace(asked.model.parameters, values=witness.parameters(asked.model))
            assert LpShifts(2).contains(asked.model.parameters, moved, witness.delta)
