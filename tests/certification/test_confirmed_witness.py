from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from apas import FeedForward, LinfShifts
from apas.certification import certificate
from apas.certification.certificate import CornerShift, KeptShift, confirmed_witness
from apas.certification.question import Question
from apas.shifts.geometry import inside_box
from apas.worst_case.exact_arithmetic import exact_sign


def question(net, X, target, delta, shifts=None):
    X = np.asarray(X, dtype=float)
    labels = np.empty(len(X), dtype=object)
    labels[:] = target
    return Question(net, X, labels, np.full(len(X), float(delta)), shifts or LinfShifts())


LINEAR = FeedForward([[[1.0]]], [[0.0]])


def test_keeps_the_very_parameters():
    asked = question(LINEAR, [[1.0]], 1, 0.75)
    values = inside_box(LINEAR.parameters.values, asked.radii, 0.75, -np.ones(2))
    found = confirmed_witness(asked, 0, values)
    assert found.delta == 0.75
    assert (found.parameters(LINEAR) == [0.25, -0.75]).all()
    assert found.margin(LINEAR, [[1.0]], 1) == -0.5


def test_kept_shifts_hash_what_they_keep():
    # equal ones alike, -0.0 and 0.0 too; different ones apart, so that a set of many takes no time
    values = np.random.default_rng(0).normal(size=(50, 3))
    kept = [KeptShift(0.5, row) for row in values] + [KeptShift(0.5, row.copy()) for row in values]
    assert len(set(kept)) == len({hash(one) for one in kept}) == 50
    below, above = KeptShift(0.5, np.array([-0.0])), KeptShift(0.5, np.array([0.0]))
    assert below == above
    assert hash(below) == hash(above)
    corners = [CornerShift(LinfShifts(), 0.5, np.array(signs, dtype=np.int8)) for signs in ([0, -1], [0, 1], [0, -1])]
    assert corners[0] == corners[2] != corners[1]
    assert len({hash(one) for one in corners}) == 2
    assert kept[0] != KeptShift(0.25, values[0])
    assert above != CornerShift(LinfShifts(), 0.5, np.zeros(1, dtype=np.int8))
    assert corners[0] != CornerShift(LinfShifts(relative=True), 0.5, corners[0].signs)


def test_the_last_bit_outside_is_outside():
    # 0.3 + 0.1 in real arithmetic lies between these two neighbours
    net = FeedForward([[[0.3]]], [[0.0]])
    asked = question(net, [[-1.0]], 1, 0.1)
    assert confirmed_witness(asked, 0, np.array([0.39999999999999997, -0.1])) is not None
    assert confirmed_witness(asked, 0, np.array([0.4, -0.1])) is None


def test_parameters_that_do_not_move_must_not():
    asked = question(LINEAR, [[1.0]], 1, 5.0, LinfShifts(kinds=("weight",)))
    assert confirmed_witness(asked, 0, np.array([-1.0, 0.0])) is not None
    assert confirmed_witness(asked, 0, np.array([-1.0, -1e-300])) is None


@pytest.mark.parametrize(("target", "fails"), [(1, False), (0, True)])
def test_a_tie_fails_only_where_the_margin_must_be_positive(target, fails):
    asked = question(LINEAR, [[1.0]], target, 1.0)
    assert (confirmed_witness(asked, 0, np.array([0.5, -0.5])) is not None) is fails


def test_float64_and_real_arithmetic_must_agree():
    net = FeedForward([[[0.0], [1.0], [1.0]]], [[0.0]])
    asked = {target: question(net, [[1.0, 1.0, -1.0]], target, 1.0) for target in (0, 1)}
    # 1 - 1 + 1e-30 and 1 - 1 - 1e-30 are 0 in float64
    above, below = np.array([1e-30, 1.0, 1.0, 0.0]), np.array([-1e-30, 1.0, 1.0, 0.0])
    assert confirmed_witness(asked[1], 0, below) is None  # fails in real arithmetic, but not in float64
    assert confirmed_witness(asked[0], 0, below) is None  # fails in float64, but not in real arithmetic
    assert confirmed_witness(asked[0], 0, above) is not None


def test_beyond_rounding_the_sign_is_that_of_rational_arithmetic(monkeypatch):
    rng, confirmed = np.random.default_rng(3), 0
    for hidden in ((4,), (5, 4), (6, 6, 6)):
        sizes = (3, *hidden, 1)
        net = FeedForward(
            [rng.normal(size=s) for s in pairwise(sizes)], [rng.normal(size=s) for s in sizes[1:]], activation="relu"
        )
        for x in rng.normal(size=(40, 3)):
            asked = question(net, [x], int(net.margin(x[None], 1)[0] > 0), 0.5)
            values = inside_box(net.parameters.values, asked.radii, 0.5, rng.choice([-1.0, 1.0], len(net.parameters)))
            shifted, wanted = net.with_parameters(values), int(asked.wanted[0])
            parts = (shifted.weights, shifted.biases, shifted.activations)
            fails = exact_sign(*parts, x, wanted) < 0
            with monkeypatch.context() as patch:  # which none of these needs
                patch.setattr(certificate, "exact_sign", None)
                assert (confirmed_witness(asked, 0, values) is not None) is fails
            confirmed += fails
    assert 10 < confirmed < 110


def test_within_rounding_rational_arithmetic_decides(monkeypatch):
    net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    asked = question(net, [[1.0, -1.0]], 0, 1.0)
    values, calls = np.array([1.0, 1.0 + 2.0**-52, 0.0]), []
    monkeypatch.setattr(certificate, "exact_sign", lambda *args: calls.append(args) or exact_sign(*args))
    assert confirmed_witness(asked, 0, values) is None  # a margin of 2**-52, kept
    values[1] = 1.0 - 2.0**-53
    assert confirmed_witness(asked, 0, values) is not None
    assert len(calls) == 1


def test_smooth_networks_must_fail_beyond_rounding():
    net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]], activation="tanh")
    asked = question(net, [[1.0]], 1, 1.0)
    values = np.array([1.0, 0.0, 1.0, -np.tanh(1.0)])
    for below, confirmed in ((1e-15, False), (1e-9, True)):
        values[3] = -np.tanh(1.0) - below
        assert (confirmed_witness(asked, 0, values) is not None) is confirmed


@dataclass(frozen=True)
class Opaque:
    """A network that does not say it is one."""

    net: FeedForward
    classes = (0, 1)
    n_features = 1

    @property
    def parameters(self):
        return self.net.parameters

    def margin(self, X, target):
        return self.net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return self.net.shifted_margins(X, target, directions, delta)


def test_opaque_models_must_fail_beyond_rounding():
    asked = question(Opaque(LINEAR), [[1.0]], 1, 1.0)
    assert confirmed_witness(asked, 0, np.array([0.5, -0.5 - 1e-14])) is None
    assert confirmed_witness(asked, 0, np.array([0.5, -0.6])).margin(LINEAR, [[1.0]], 1) < 0


def test_never_from_numbers_that_are_not_finite():
    asked = question(LINEAR, [[1.0]], 1, 1.0)
    for bad in (np.nan, -np.inf):
        assert confirmed_witness(asked, 0, np.array([0.0, bad])) is None
    huge = FeedForward([[[1e308, 1e308]], [[1e308], [-1e308]]], [[0.0, 0.0], [0.0]], activation="softplus")
    with np.errstate(over="ignore", invalid="ignore"):
        assert confirmed_witness(question(huge, [[1e3]], 1, 1.0), 0, huge.parameters.values) is None


def test_other_shift_sets_are_asked_themselves():
    @dataclass(frozen=True)
    class Ball:
        inside: bool

        def radii(self, parameters):
            return np.ones(len(parameters))

        def contains(self, base, other, delta):
            assert (other.values == [-1.0, 0.0]).all()
            return self.inside

    for inside in (True, False):
        asked = replace(question(LINEAR, [[1.0]], 1, 2.0), shifts=Ball(inside))
        assert (confirmed_witness(asked, 0, np.array([-1.0, 0.0])) is not None) is inside


def test_the_row_decides_delta_and_target():
    asked = question(LINEAR, [[1.0], [1.0]], 1, 0.25)
    asked = replace(asked, delta=np.array([0.25, 0.75]))
    values = np.array([0.25, -0.75])
    assert confirmed_witness(asked, 0, values) is None
    assert confirmed_witness(asked, 1, values) is not None
