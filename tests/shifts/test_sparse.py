"""Sparse shifts: the law of their draws, what lies inside without tolerance, and their way through every verb."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from conftest import spread
from scipy import stats

import apas
from apas import Feature, FeatureSpace, InputError, LinfShifts, LpShifts, SparseShifts
from apas._fields import Fields
from apas._random import SMALL, Stream
from apas.contracts.audit import Outcome
from apas.shifts.base import KINDS, Bounded, Measurable, Normed, ShiftSet, Sparse

STREAM = Stream(2024, "certify")


def network(sizes=(3, 4, 1), seed=0):
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    return apas.FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs])


NET = network()
P = NET.parameters


def moved(values):
    return apas.Parameters(np.asarray(values, dtype=float), P.names, P.kinds, P.layers, P.shapes, P.slices)


# -- the distribution: every test is wrong once in 10**4 or more seldom, and its seed is fixed ---------------------


def test_every_set_of_parameters_is_as_likely():
    net = network((5, 1))  # six parameters, of which 15 pairs
    drawn = SparseShifts(2).directions(net.parameters, STREAM, 0, 30_000) != 0
    assert (drawn.sum(axis=1) == 2).all()
    codes = drawn @ 2 ** np.arange(6)
    sets, counts = np.unique(codes, return_counts=True)
    assert len(sets) == 15
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("count", [1, 3, 20, 21, 50])
def test_each_that_moves_is_uniform_and_independent(count):
    size, n = len(P), 20_000
    drawn = SparseShifts(count).directions(P, STREAM, 0, n)
    chosen = drawn != 0
    assert (chosen.sum(axis=1) == min(count, size)).all()
    for j in (0, 7, size - 1):  # also the last, which Floyd's way treats apart
        share = min(count, size) / size
        assert share == 1 or stats.binomtest(int(chosen[:, j].sum()), n, share).pvalue > 1e-4
        assert stats.kstest(drawn[chosen[:, j], j], stats.uniform(-1, 2).cdf).pvalue > 1e-4
    if count > 1:  # products of two that move together have mean 0
        both = chosen[:, 0] & chosen[:, 7]
        products = drawn[both, 0] * drawn[both, 7]
        assert abs(products.mean()) < 4.5 * products.std() / math.sqrt(len(products))


def test_only_those_that_can_move_do_and_by_their_radii():
    shifts = SparseShifts(2, kinds=("weight",), layers=[0], scale={"layer0": 0.5})
    drawn = shifts.directions(P, STREAM, 0, 2000)
    assert (drawn[:, 12:] == 0).all()
    assert (np.count_nonzero(drawn[:, :12], axis=1) == 2).all()
    assert 0.45 < np.abs(drawn).max() < 0.5


@pytest.mark.parametrize("sizes", [(3, 4, 1), (40, 30, 1)])
def test_draws_are_a_pure_function_of_stream_and_index(sizes):
    parameters, shifts = network(sizes).parameters, SparseShifts(3)
    assert (len(parameters) > SMALL) == (sizes[0] == 40)
    whole = shifts.directions(parameters, STREAM, 0, 200)
    assert np.array_equal(shifts.directions(parameters, STREAM, 70, 200), whole[70:])
    assert np.array_equal(shifts.directions(parameters, STREAM, 199, 200)[0], whole[199])
    assert len(shifts.directions(parameters, STREAM, 5, 5)) == 0


def test_the_first_draw_never_changes():
    drawn = SparseShifts(2).directions(P, Stream(1, "certify"), 0, 1)[0]
    assert {int(i): drawn[i].hex() for i in np.flatnonzero(drawn)} == PINNED


PINNED = {3: "0x1.6da70e83f2a49p-1", 10: "0x1.0d4fd89483252p-2"}

# -- what lies inside ----------------------------------------------------------------------------------------------


def shifted(**moves):
    values = P.values.copy()
    for name, by in moves.items():
        values[int(name[1:])] += by
    return moved(values)


def test_contains_counts_and_measures():
    shifts = SparseShifts(2)
    assert shifts.contains(P, P, 0.1)
    assert shifts.contains(P, shifted(p0=0.05, p9=-0.09), 0.1)
    assert not shifts.contains(P, shifted(p0=0.05, p9=-0.09, p4=1e-15), 0.1)
    assert not shifts.contains(P, shifted(p0=0.2), 0.1)
    assert not shifts.contains(P, shifted(p0=math.nan), 0.1)
    assert not SparseShifts(2, kinds=("bias",)).contains(P, shifted(p0=0.05), 0.1)
    with pytest.raises(InputError, match="same shapes"):
        shifts.contains(P, network((2, 1)).parameters, 0.1)


def test_distance_is_the_least_delta_that_contains():
    shifts = SparseShifts(2, relative=True, floor=0.1)
    other = shifted(p0=0.05, p9=-0.09)
    least = shifts.distance(P, other)
    assert least == LinfShifts(relative=True, floor=0.1).distance(P, other)
    assert shifts.contains(P, other, least * (1 + 1e-12))
    assert not shifts.contains(P, other, least * (1 - 1e-12))
    assert shifts.distance(P, shifted(p0=0.05, p1=0.05, p2=0.05)) == math.inf
    assert SparseShifts(3, kinds=("bias",)).distance(P, shifted(p0=0.05)) == math.inf
    assert shifts.distance(P, P) == 0


def test_projection_is_the_nearest_point():
    rng = np.random.default_rng(3)
    geometry = Sparse(2, np.array([1.0, 0.5, 2.0, 0.0]))
    moves = rng.normal(size=(200, 4)) * 2
    nearest = geometry.project(moves, 1.0)
    best = np.full(len(moves), np.inf)
    for pair in itertools.combinations(range(4), 2):
        cut = np.zeros_like(moves)
        cut[:, pair] = np.clip(moves[:, pair], -geometry.radii[list(pair)], geometry.radii[list(pair)])
        best = np.minimum(best, ((moves - cut) ** 2).sum(axis=1))
    assert (np.count_nonzero(nearest, axis=1) <= 2).all()
    np.testing.assert_allclose(((moves - nearest) ** 2).sum(axis=1), best, rtol=1e-12)


def test_steepest_point_is_the_worst_corner():
    rng = np.random.default_rng(4)
    geometry, gradients = Sparse(2, np.array([1.0, 0.5, 2.0, 0.0])), rng.normal(size=(100, 4))
    signs = np.array([s for s in itertools.product((-1, 0, 1), repeat=4) if np.count_nonzero(s) <= 2])
    least = (gradients @ (signs * geometry.radii).T).min(axis=1)
    np.testing.assert_allclose((gradients * geometry.steepest(gradients)).sum(axis=1), least, rtol=1e-12)


def test_whatever_is_pulled_inside_lies_inside():
    rng, shifts = np.random.default_rng(5), SparseShifts(2, relative=True)
    for scale in (1e-14, 1e-3, 1.0, 1e9):
        rows = P.values + scale * rng.normal(size=(20, len(P)))
        for row in shifts.geometry(P).pull_inside(P, rows, scale / 3):
            assert shifts.contains(P, moved(row), scale / 3)
            assert not np.array_equal(row, P.values) or scale < 1e-10


# -- what it says about itself -------------------------------------------------------------------------------------


def test_words():
    assert (
        SparseShifts(2).region(P) == "the set in which at most 2 of 21 weights and biases move, each by at most delta"
    )
    few = SparseShifts(30, relative=True, kinds=("bias",))
    assert few.measure(P) == (
        "5 of 5 biases, chosen at random, move, each uniformly by at most delta times its magnitude, 16 fixed"
    )
    assert repr(few) == "SparseShifts(30, relative=True, kinds=('bias',))"
    assert repr(SparseShifts(count=3)) == "SparseShifts(3)"


@pytest.mark.parametrize(
    "shifts", [SparseShifts(1), SparseShifts(4, relative=True, floor=0.5, layers=["layer0"], scale={"layer0": 2.0})]
)
def test_files_hold_all_of_it(shifts):
    about = json.loads(json.dumps(shifts.to_dict()))
    again = KINDS.read(Fields(about, "shifts"))
    assert again == shifts
    assert again != SparseShifts(7)
    for damage in ({"count": 0}, {"count": 1.5}, {"count": True}, {"more": 1}):
        with pytest.raises(InputError):
            KINDS.read(Fields({**about, **damage}, "shifts"))
    with pytest.raises(InputError):
        KINDS.read(Fields({key: value for key, value in about.items() if key != "count"}, "shifts"))


def test_what_it_offers():
    assert all(isinstance(SparseShifts(1), one) for one in (ShiftSet, Bounded, Measurable))
    assert not isinstance(SparseShifts(1), Normed)  # its delta is no distance of all parameters


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "2", None])
def test_bad_counts(count):
    with pytest.raises(InputError, match="`count` of SparseShifts must be an integer of at least 1, got"):
        SparseShifts(count)


def test_a_set_that_moves_nothing_is_refused():
    with pytest.raises(InputError, match="must move at least one parameter"):
        apas.certify(NET, [[0.0, 0.0, 0.0]], 0.1, target="predicted", shifts=SparseShifts(1, layers=[]), rng=0)


# -- every verb, with both sets that are not convex ------------------------------------------------------------------


@pytest.mark.parametrize("shifts", [SparseShifts(2), LpShifts(0.5)], ids=["sparse", "half"])
@pytest.mark.parametrize("sizes", spread([(2, 1), (2, 3, 1), (2, 3, 2, 1)], 2), ids=["linear", "one", "deep"])
def test_every_verb(shifts, sizes, tmp_path):
    net = network(sizes, seed=3)
    X = np.random.default_rng(1).normal(size=(3, 2))
    asked = {"target": "predicted", "shifts": shifts}
    small = apas.Sampling(coverage=0.9, confidence=0.99, n_samples=300)
    for method in (small, "interval", "attack", "cascade", *(["exact"] if len(sizes) == 2 else [])):
        found = apas.certify(net, X, 0.1, method=method, rng=0, **asked)
        assert apas.verify(found, net).summary() == "3 statements: 3 HOLDS."
        apas.save_certificates(found, tmp_path / "c.json")
        again = apas.load_certificates(tmp_path / "c.json")
        assert again.shifts == shifts
        assert list(again) == list(found)
        assert apas.verify(tmp_path / "c.json", net).ok
    drawn, proved = (apas.max_shift(net, X, method=method, rng=0, **asked) for method in (small, "cascade"))
    assert (proved.deltas > 0).all()
    for one, other in zip(drawn, proved, strict=True):
        assert one.provable == pytest.approx(other.delta)
        assert other.delta < other.broken_at < np.inf
        assert other.exact or len(sizes) > 2 + isinstance(shifts, SparseShifts)
        assert one.delta >= other.delta
    assert apas.verify(proved, net).ok
    assert apas.verify(drawn, net).ok
    shares = apas.robust_fraction(net, X[:2], [0.05, 0.2], method=small, rng=0, **asked)
    assert all(curve.lower[0] <= curve.upper[0] for curve in shares)
    inner = apas.output_range(net, X, 0.1, method=small, rng=0, **asked)
    outer = apas.output_range(net, X, 0.1, method="interval", **asked)
    assert all(o.low <= i.low <= i.high <= o.high for i, o in zip(inner, outer, strict=True))
    space = FeatureSpace([Feature(name, "continuous", low=-4, high=4) for name in "ab"])
    rejected = X[net.margin(X, 1) < 0][:2]
    assert len(rejected)
    made = apas.generate(net, rejected, delta=0.01, target=1, space=space, shifts=shifts, method=small, rng=0)
    assert all(one.certificate is None or one.certificate.is_certified for one in made)
    values = net.parameters.values.copy()
    values[0] += 0.05
    new = net.with_parameters(values)
    audited = apas.audit(apas.certify(net, X, 0.1, method="cascade", **asked), new, base=net)
    assert {row.inside for row in audited} == {True}
    assert Outcome.BROKEN not in {row.outcome for row in audited}
    values[1:] += 0.05
    audited = apas.audit(apas.certify(net, X, 0.1, method="cascade", **asked), net.with_parameters(values), base=net)
    assert {row.inside for row in audited} == {False}
    assert apas.write_report(found, tmp_path / "r.html", new_model=new)


@pytest.mark.parametrize("shifts", [SparseShifts(2), LpShifts(0.5)], ids=["sparse", "half"])
@pytest.mark.parametrize("method", ["linear", "enumeration", "exact"])
def test_what_is_not_there_is_refused_in_one_sentence(shifts, method):
    net = network((2, 3, 2, 1))
    with pytest.raises(apas.Unsupported) as caught:
        apas.certify(net, [[0.0, 0.0]], 0.1, target="predicted", shifts=shifts, method=method)
    assert str(caught.value).count("; use ") == 1
    assert "\n" not in str(caught.value)
