"""`Cascade`, and the largest shifts of deep networks: who decided, and in which order the answers must stand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import spread
from contradiction_sweep import inside_exactly, rational_margin
from problems import network

import apas
from apas import (
    Attack,
    Cascade,
    Exact,
    FeedForward,
    InputError,
    IntervalBounds,
    LinearBounds,
    LinfShifts,
    Sampling,
    Unsupported,
    Verdict,
)

CERTIFIED, REFUTED, UNKNOWN = Verdict.CERTIFIED, Verdict.REFUTED, Verdict.UNKNOWN


def deep(seed=0, sizes=(4, 7, 6, 5, 1), activation="relu", rows=12):
    net = network(sizes, "sigmoid" if sizes[-1] == 1 else "softmax", activation, seed)
    return net, np.random.default_rng(seed).normal(size=(rows, sizes[0]))


# --- the cascade ------------------------------------------------------------------------------------------------------


def test_the_default_is_interval_linear_attack_exact():
    assert [type(m) for m in Cascade().methods] == [IntervalBounds, LinearBounds, Attack, Exact]
    assert Cascade() == Cascade(IntervalBounds(), LinearBounds(), Attack(), Exact())


def test_agrees_with_exact_and_names_the_step():
    net, X = deep(1, rows=40)
    deltas = np.random.default_rng(3).choice([0.001, 0.01, 0.02, 0.05, 0.2], size=40)
    exact = apas.certify(net, X, deltas, target="predicted", method=Exact(), rng=0)
    found = apas.certify(net, X, deltas, target="predicted", method=Cascade(), rng=0)
    assert [c.verdict for c in found] == [c.verdict for c in exact]
    names = {"cascade: interval": {"interval"}, "cascade: linear": {"linear", "interval"}, "cascade: attack": {"attack"},
             "cascade: exact": {"interval", "linear", "attack", "splitting", "solver", "none"}}  # fmt: skip
    for c in found:
        assert c.evidence.step in names[c.method]
        json.dumps(c.to_dict())
        assert c.sentence().startswith(c.verdict.name)
    assert len({c.method for c in found}) >= 3


def test_later_methods_are_asked_about_open_rows_only():
    asked = []

    class Counting:
        def __init__(self, method):
            self.method = method

        def claim(self, question):
            return self.method.claim(question)

        def unsupported(self, question):
            return self.method.unsupported(question)

        def run(self, question, stream):
            asked.append((type(self.method).__name__, len(question)))
            return self.method.run(question, stream)

    net, X = deep(1, rows=30)
    method = Cascade(Counting(IntervalBounds()), Counting(LinearBounds()), Counting(Exact()))
    found = apas.certify(net, X, 0.01, target="predicted", method=method, rng=0)
    rows = [n for _, n in asked]
    assert rows[0] == 30
    assert rows == sorted(rows, reverse=True)
    assert rows[1] == 30 - sum(c.method == "cascade: interval" for c in found)
    assert rows[2] == rows[1] - sum(c.method == "cascade: linear" for c in found)
    asked.clear()
    apas.certify(net, X, 1e-9, target="predicted", method=method, rng=0)
    assert asked == [("IntervalBounds", 30)]


def test_methods_that_do_not_apply_are_left_out():
    net, X = deep(0, activation="tanh")
    found = apas.certify(net, X, np.array([0.001, 0.01, 0.3] * 4), target="predicted", method=Cascade(), rng=0)
    assert {c.verdict for c in found} >= {CERTIFIED, REFUTED}
    assert all("exact" not in c.method for c in found)


def test_no_method_applies():
    net, X = deep(0, activation="tanh")
    with pytest.raises(Unsupported, match="Cascade has no method that applies: Exact needs relu"):
        apas.certify(net, X, 0.1, target="predicted", method=Cascade(Exact()))


def test_methods_of_different_claims_are_refused():
    net, X = deep()
    with pytest.raises(Unsupported, match="Cascade needs methods that speak of the same claim, got IntervalBounds of"):
        apas.certify(net, X, 0.1, target="predicted", method=Cascade(IntervalBounds(), Sampling()))


def test_draws_are_not_repeated_until_they_certify():
    """Each sample would have the whole risk: of a share just below the coverage too many rows would be certified."""
    net, X = deep()

    class Own:
        """A method of a user's own, which draws."""

        def claim(self, question):
            return Sampling().claim(question)

        def unsupported(self, question):
            return None

        def run(self, question, stream):
            raise AssertionError("nothing may be drawn")

    for methods in ([Sampling(), Sampling(n_samples=2000)], [Cascade(Sampling()), Sampling()], [Sampling(), Own()]):
        with pytest.raises(Unsupported, match="Cascade takes one method whose claim has a confidence below 1, got 2, "):
            apas.certify(net, X, 0.1, target="predicted", method=Cascade(*methods), rng=0)


def test_one_sampling_is_what_it_is_alone():
    net, X = deep(activation="tanh")
    alone = apas.certify(net, X, 0.1, target="predicted", method=Sampling(), rng=0)
    for method in (Cascade(Sampling()), Cascade(Exact(), Sampling())):  # Exact does not apply to tanh units
        assert apas.certify(net, X, 0.1, target="predicted", method=method, rng=0) == alone
    assert apas.verify(alone, net).ok


@pytest.mark.parametrize("wrong", [Exact, "exact", 3, None])
def test_only_methods_will_do(wrong):
    with pytest.raises(InputError, match=r"`methods` of Cascade must be methods such as Exact\(\)"):
        Cascade(IntervalBounds(), wrong)


def test_an_unknown_row_keeps_the_best_bound():
    net, X = deep(2)
    broken = apas.max_shift(net, X, target="predicted", method="linear").deltas * 1.05
    some = broken > 0
    found = apas.certify(
        net, X[some], broken[some], target="predicted", method=Cascade(IntervalBounds(), LinearBounds()), rng=0
    )
    for c in found:
        assert c.verdict is not REFUTED
        assert c.evidence.bound is not None
        assert c.method in ("cascade: interval", "cascade: linear")
    assert any(c.verdict is UNKNOWN and c.method == "cascade: linear" for c in found)


def test_rows_that_are_not_valid_come_back_refuted_without_a_witness():
    net, X = deep()
    wrong = [1 - int(m >= 0) for m in net.margin(X, 1)]
    for c in apas.certify(net, X, 0.01, target=wrong, method=Cascade(), rng=0):
        assert (c.verdict, c.witness) == (REFUTED, None)
        assert "nothing to keep" in c.sentence()


# --- the largest shifts of deep networks ------------------------------------------------------------------------------

SHIFTS = [LinfShifts(), LinfShifts(relative=True), LinfShifts(scale={0: 0.5, 1: 2.0}), LinfShifts(layers=[1]), LinfShifts(kinds=("weight",))]  # fmt: skip


def test_what_no_shift_breaks_is_proved_up_to_the_limit():
    net, X = deep(3, (3, 4, 4, 3, 1), "relu", rows=4)
    found = apas.max_shift(net, X, target="predicted", shifts=LinfShifts(layers=[1]), method="exact")
    assert all(item.reached_limit and item.exact for item in found)


@pytest.mark.parametrize("shifts", spread(SHIFTS, 2), ids=str)
@pytest.mark.parametrize(
    ("sizes", "activation"), [((4, 6, 5, 1), "relu"), ((3, 4, 4, 3, 1), "relu"), ((3, 5, 4, 3), "leaky_relu")], ids=str
)
def test_interval_linear_exact_stand_in_order(sizes, activation, shifts):
    net, X = deep(3, sizes, activation, rows=2)
    found = {
        kind: apas.max_shift(net, X, target="predicted", shifts=shifts, method=kind)
        for kind in ("interval", "linear", "exact", "cascade")
    }
    for kind, items in found.items():
        for item in items:
            assert 0 <= item.delta <= item.upper
            assert item.provable == item.delta
            assert not item.exact or item.reached_limit or item.upper <= item.delta * (1 + 2e-6) + 1e-12, kind
            json.dumps(item.to_dict())
    assert (found["interval"].deltas <= found["linear"].deltas).all()
    assert (found["linear"].deltas <= found["exact"].deltas * (1 + 1e-5)).all()
    assert found["exact"].deltas == pytest.approx(found["cascade"].deltas, rel=1e-5)
    closed = [item.exact for item in found["exact"]]
    assert np.mean(closed) >= 0.8
    # what one kind proves, no other breaks
    for low in found.values():
        for high in found.values():
            assert all(a.delta <= b.upper for a, b in zip(low, high, strict=True))


@pytest.mark.parametrize("seed", spread(range(3), 2))
def test_both_ends_of_the_bracket_are_what_they_say(seed):
    net, X = deep(seed, (3, 5, 4, 4, 1), rows=4)
    labels = [int(m >= 0) for m in net.margin(X, 1)]
    found = apas.max_shift(net, X, target=labels, method="exact")
    shifts = LinfShifts()
    for i, item in enumerate(found):
        if not item.exact or item.reached_limit:
            continue
        row = {"target": labels[i], "rng": 0}
        assert apas.certify(net, X[i : i + 1], item.delta * (1 - 1e-9), method=Exact(), **row)[0].verdict is CERTIFIED
        beyond = item.upper * (1 + 1e-6)
        refuted = apas.certify(net, X[i : i + 1], beyond, method=Exact(), **row)[0]
        assert refuted.verdict is REFUTED
        values = refuted.witness.parameters(net)
        assert inside_exactly(net.parameters.values, shifts.radii(net.parameters), beyond, values)
        assert rational_margin(net, values, X[i], labels[i]) <= 0


def test_a_row_that_nothing_can_break_reaches_the_limit():
    # the output layer does not move and its weights are positive: the score stays above its bias
    net = FeedForward([np.ones((2, 3)), np.ones((3, 3)), np.ones((3, 1))], [np.zeros(3), np.zeros(3), [1.0]])
    found = apas.max_shift(net, [[1.0, -2.0]], target=1, shifts=LinfShifts(layers=[0, 1]), method="exact", limit=20.0)[
        0
    ]
    assert (found.delta, found.reached_limit) == (20.0, True)


def test_processes_and_order_do_not_change_the_largest_shift():
    net, X = deep(4, (3, 5, 5, 1), rows=5)
    one = apas.max_shift(net, X, target="predicted", method="exact")
    two = apas.max_shift(net, X, target="predicted", method="exact", n_jobs=2)
    assert [i.to_dict() for i in one] == [i.to_dict() for i in two]
    order = np.random.default_rng(0).permutation(5)
    turned = apas.max_shift(net, X[order], target="predicted", method="exact").deltas
    assert turned == pytest.approx(one.deltas[order], rel=2e-6)


def test_no_time_proves_less_but_nothing_false():
    net, X = deep(5, (3, 5, 4, 4, 1), rows=5)
    hasty = apas.max_shift(net, X, target="predicted", method=Exact(time_limit=0.0))
    slow = apas.max_shift(net, X, target="predicted", method=Exact())
    for a, b in zip(hasty, slow, strict=True):
        assert a.delta <= b.upper
        assert a.upper >= b.delta
        assert a.reason.endswith("was not closed within 0 seconds") == (0 < a.delta and not a.exact)
        assert "closed within" not in b.reason
    assert any("was not closed within 0 seconds" in a.reason for a in hasty)


def test_a_gap_that_rounding_keeps_open_is_not_a_matter_of_time():
    rng, shapes = np.random.default_rng(0), ((2, 3), (3, 3), (3, 1))
    scales = 10.0 ** rng.integers(-6, 7, size=3)
    weights = [scale * rng.normal(size=shape) for shape, scale in zip(shapes, scales, strict=True)]
    net = FeedForward(weights, [0.3 * rng.normal(size=shape[1]) for shape in shapes])
    found = apas.max_shift(net, rng.normal(size=(1, 2)), target="predicted", method=Exact(time_limit=np.inf))[0]
    assert 0 < found.delta < found.broken_at
    assert not found.exact
    assert found.reason.endswith("the gap up to `broken_at` stays open even with more time")
