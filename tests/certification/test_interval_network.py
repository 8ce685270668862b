"""Interval networks: exact ends, volumes and membership; ranges that contain what realizations do."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from problems import network
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import FeedForward, InputError, IntervalNetwork, LinfShifts, Unsupported
from apas.worst_case.exact_arithmetic import exact_margin


def line(*weights, bias=0.0, **options):
    return FeedForward([np.array(weights, dtype=float)[:, None]], [[bias]], **options)


def true_ends(net, radii, delta, start, width):
    """Exact ends of every interval, by their definition."""
    base = [Fraction(v) for v in net.parameters.values.tolist()]
    reach = [Fraction(delta) * Fraction(r) for r in radii.tolist()]
    low = [b - r + 2 * r * Fraction(s) for b, r, s in zip(base, reach, start.tolist(), strict=True)]
    return [(a, a + 2 * r * Fraction(w)) for a, r, w in zip(low, reach, width.tolist(), strict=True)]


def random_part(whole, seed, times=12):
    rng, part = np.random.default_rng(seed), whole
    for i in rng.choice(np.flatnonzero(whole.radii), times):
        part = part.split(int(i))[int(rng.integers(2))]
    return part


def exact(net, values, x, wanted):
    tensors = net.parameters.split(values)
    return exact_margin(tensors[::2], tensors[1::2], net.activations, x, wanted, net.offset)


#: Weights and deltas from where every digit counts to where nothing moves in float64.
SCALES = [(1.0, 0.1), (1e8, 1e-9), (0.1, 1e-18), (1e-300, 1e-310), (3.0, 1e17)]


@pytest.mark.parametrize(("size", "delta"), SCALES)
def test_realizations_lie_inside_and_membership_is_exact(size, delta):
    net = line(size, -size / 3, 0.7 * size, bias=size / 7)
    whole = IntervalNetwork.of(net, delta)
    rng = np.random.default_rng(0)
    for t in [0.0, 1.0, 0.5, *rng.uniform(size=(20, 4)), *rng.integers(0, 2, (8, 4))]:
        ends = true_ends(net, whole.radii, delta, whole.start, whole.width)
        values = whole.realization(t).parameters.values
        assert all(a <= Fraction(v) <= b for v, (a, b) in zip(values.tolist(), ends, strict=True))
        assert whole.contains(whole.realization(t))
        for v, (a, b), share in zip(values.tolist(), ends, np.broadcast_to(t, 4), strict=True):
            # the float64 number that is nearest but one, or nearer
            assert abs(Fraction(v) - (a + Fraction(float(share)) * (b - a))) <= Fraction(math.ulp(v))
    for i in range(4):
        for end, outwards in ((0.0, -math.inf), (1.0, math.inf)):
            values = whole.realization(end).parameters.values.copy()
            values[i] = np.nextafter(values[i], outwards)  # one float64 number further is outside
            assert not whole.contains(net.with_parameters(values))


def test_ends_are_rounded_outward():
    net, delta = line(0.1, 1.0, -0.7, 3.3), 0.3
    whole = IntervalNetwork.of(net, delta)
    for one in (whole, *(random_part(whole, seed) for seed in range(8))):
        ends = true_ends(net, one.radii, delta, one.start, one.width)
        for low, high, (a, b) in zip(one.low.tolist(), one.high.tolist(), ends, strict=True):
            assert Fraction(low) <= a < Fraction(math.nextafter(low, math.inf))
            assert Fraction(math.nextafter(high, -math.inf)) < b <= Fraction(high)
    assert IntervalNetwork.of(line(1.0), 0.5).low.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("seed", range(3))
def test_halves_make_up_the_whole(seed):
    net = network((2, 2, 1), "sigmoid", "relu", seed)
    shifts = LinfShifts(kinds=("weight",), scale={0: 0.3, 1: 2.0})
    parts = [IntervalNetwork.of(net, 0.7, shifts=shifts)]
    rng = np.random.default_rng(seed)
    for _ in range(25):
        part = parts.pop(int(rng.integers(len(parts))))
        i = int(rng.choice(np.flatnonzero(part.radii)))
        lower, upper = part.split(i)
        assert lower.volume == upper.volume == part.volume / 2
        ends = [true_ends(net, one.radii, 0.7, one.start, one.width) for one in (part, lower, upper)]
        for j, (old, low, high) in enumerate(zip(*ends, strict=True)):
            if j == i:
                assert (low[0], low[1], high[1]) == (old[0], high[0], old[1])
            else:
                assert old == low == high
        parts += [lower, upper]
    assert sum(part.volume for part in parts) == 1
    for t in rng.uniform(size=(60, len(net.parameters))):
        model = (
            parts[0].realization(t)
            if rng.random() < 0.2
            else IntervalNetwork.of(net, 0.7, shifts=shifts).realization(t)
        )
        assert sum(part.contains(model) for part in parts) == 1


def test_names_and_places():
    whole = IntervalNetwork.of(network((2, 3, 1), "sigmoid", "relu", 0), 0.1)
    for name, i in {
        "layer0.weight[0, 0]": 0,
        "layer0.weight[1, 2]": 5,
        "layer0.bias[1]": 7,
        "layer1.bias[0]": 12,
    }.items():
        for by_name, by_place in zip(whole.split(name), whole.split(i), strict=True):
            assert by_name.low.tolist() == by_place.low.tolist()
            assert np.flatnonzero(by_name.width < 1).tolist() == [i]


def test_parameters_that_do_not_move():
    net = line(2.0, 0.0, bias=0.5)
    whole = IntervalNetwork.of(net, 0.125, shifts=LinfShifts(relative=True, kinds=("weight",)))
    assert (whole.low.tolist(), whole.high.tolist()) == ([1.75, 0.0, 0.5], [2.25, 0.0, 0.5])
    assert whole.realization([1.0, 0.2, 0.9]).parameters.values[1:].tolist() == [0.0, 0.5]
    assert whole.volume == 1
    assert not whole.contains(line(2.0, 5e-324, bias=0.5))
    assert not whole.contains(line(2.0, 0.0, bias=np.nextafter(0.5, 1)))
    assert whole.contains(line(1.9, 0.0, bias=0.5))
    assert whole.effects([[1.0, 1.0]])[0, 1:].tolist() == [0.0, 0.0]
    for fixed in (1, "layer0.bias[0]"):
        with pytest.raises(InputError, match="`parameter` must be one that can be halved, got .*, which does not move"):
            whole.split(fixed)


@pytest.mark.parametrize(
    ("sizes", "activation"), [((2, 3, 1), "relu"), ((2, 3, 2, 1), "leaky_relu"), ((2, 2, 3), "relu")]
)
@pytest.mark.parametrize("seed", range(3))
def test_reach_contains_every_realization(sizes, activation, seed):
    """Compared in rational arithmetic, at random points, corners and ends of parts of several sizes."""
    net = network(sizes, "softmax" if sizes[-1] > 1 else "sigmoid", activation, seed)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, 2))
    whole = IntervalNetwork.of(net, 0.5)
    for part in (whole, random_part(whole, seed, 6), random_part(whole, seed, 60), IntervalNetwork.of(net, 1e-12)):
        for target in net.classes:
            low, high = part.reach(X, target)
            k = len(part.radii)
            for t in [*rng.uniform(size=(8, k)), *rng.integers(0, 2, (8, k))]:
                values = part.realization(t).parameters.values
                for x, a, b in zip(X, low, high, strict=True):
                    assert Fraction(a) <= exact(net, values, x, net.classes.index(target)) <= Fraction(b)


def test_reach_is_attained_with_one_hidden_layer():
    net = network((1, 2, 1), "sigmoid", "relu", 1)
    part = IntervalNetwork.of(net, 0.4).split(0)[1]
    corners = [part.realization(np.array(t)) for t in itertools.product((0, 1), repeat=len(net.parameters))]
    margins = np.array([c.margin(np.array([[1.5]]), 1)[0] for c in corners])
    low, high = part.reach([[1.5]])
    # relu units are convex in their own parameters and the rest is monotone, so the corners have both ends
    assert low[0] == pytest.approx(margins.min(), abs=1e-12)
    assert high[0] == pytest.approx(margins.max(), abs=1e-12)


def test_effects_bound_what_one_parameter_does():
    net, X = network((2, 3, 3), "softmax", "tanh", 4), np.array([[0.5, -1.0]])
    part = random_part(IntervalNetwork.of(net, 0.6), 1, 8)
    rng, k = np.random.default_rng(0), len(net.parameters)
    effects = part.effects(X, 2)[0]
    assert effects.shape == (k,)
    largest = np.zeros(k)
    for i in range(k):
        for t in rng.uniform(size=(10, k)):
            margins = [part.realization(np.where(np.arange(k) == i, end, t)).margin(X, 2)[0] for end in (0.0, 1.0)]
            largest[i] = max(largest[i], abs(margins[1] - margins[0]))
    assert (largest <= effects + 1e-12).all()
    assert (largest > 0.2 * effects).any()


def test_reach_decides_as_the_boxes_of_enumeration():
    net = network((2, 3, 1), "sigmoid", "relu", 2)
    answer = apas.certify(net, [[0.7, -1.2]], 0.45, target=0, method=apas.Enumeration(precision=0.2))[0]
    for sign, parts in zip((1, -1), answer.evidence.networks, strict=False):
        assert len(parts) > 3
        for part in parts:
            low, high = part.reach([[0.7, -1.2]], 0)
            assert low[0] > 0 if sign > 0 else high[0] < 0


def test_models_behind_a_preprocessing_take_raw_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(100, 20, size=(60, 2)), columns=["income", "debt"])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, X["income"] > X["debt"])
    whole = IntervalNetwork.of(pipeline, 0.05)
    assert whole.contains(pipeline)
    moved = whole.realization(0.0)
    assert whole.contains(moved)
    low, high = whole.reach(X, True)
    margins = moved.margin(moved.encode(X), True)
    assert ((low <= margins + 1e-12) & (margins <= high + 1e-12)).all()
    # its rows are raw ones, so that the whole package reads them as those of the pipeline
    shown = apas.output_range(moved, X, 1e-9, target=True, method="interval")
    assert [item.margin for item in shown] == pytest.approx(margins)
    other = make_pipeline(StandardScaler(), LogisticRegression()).fit(X * 2, X["income"] > X["debt"])
    assert not IntervalNetwork.of(pipeline, 1e6).contains(other)  # another preprocessing


def test_another_architecture_is_not_contained():
    whole = IntervalNetwork.of(line(1.0, 2.0), 10.0)
    assert whole.contains(line(3.0, 1.0, bias=1.0))
    assert not whole.contains(line(3.0, 1.0, 2.0))
    assert not whole.contains(line(3.0, 1.0, bias=1.0, threshold=0.4))
    assert not whole.contains(line(3.0, 1.0, bias=1.0, classes=["no", "yes"]))
    assert not whole.contains(line(3.0, 1.0, bias=11.0))


def test_float32_rounding_is_part_of_the_reach():
    net = line(1.0, -1.0)
    wide, narrow = (IntervalNetwork.of(one, 0.1).reach([[1.0, 1.0]]) for one in (net.with_dtype("float32"), net))
    assert wide[0][0] < narrow[0][0] - 1e-8
    assert wide[1][0] > narrow[1][0] + 1e-8


def test_numbers_that_are_too_large_say_nothing():
    net = FeedForward([[[1e200]], [[1e200]]], [[0.0], [0.0]])
    low, high = IntervalNetwork.of(net, 1e199).reach([[1e100]])
    assert (low[0], high[0]) == (-math.inf, math.inf)


def test_an_interval_between_two_numbers_has_no_realization():
    part = IntervalNetwork.of(line(1.0), 1e-17).split(0)[1].split(0)[1]
    with pytest.raises(InputError, match="parameter 0 has no float64 number in its interval"):
        part.realization(0.5)


def test_what_cannot_be_asked():
    net = network((2, 3, 3), "softmax", "relu", 0)
    whole = IntervalNetwork.of(net, 0.1)
    for bad in (-1, 99, 1.0, True, "layer0.weight", "layer0.weight[0]", "layer0.weight[9, 0]", "layer7.bias[0]", None):
        with pytest.raises(
            InputError, match=r"`parameter` must be a number from 0 to \d+, or a name such as 'layer0.weight"
        ):
            whole.split(bad)
    for bad in (-0.1, 1.1, math.nan, "a", [0.5, 0.5], True, None):
        with pytest.raises(InputError, match="`t` of realization must be a number from 0 to 1, or one per parameter"):
            whole.realization(bad)
    with pytest.raises(InputError, match="`target` must be one of the model's 3 classes, got None"):
        whole.reach([[1.0, 2.0]])
    with pytest.raises(InputError, match="`delta` of IntervalNetwork must be a number above 0, got 0"):
        IntervalNetwork.of(net, 0)
    with pytest.raises(Unsupported, match=r"`shifts` must be LinfShifts\(...\), got LpShifts"):
        IntervalNetwork.of(net, 0.1, shifts="l2")
    part = whole
    for _ in range(50):
        part = part.split(0)[1]
    assert part.volume == Fraction(1, 2**50)
    with pytest.raises(InputError, match="which was halved 50 times"):
        part.split(0)
    assert repr(part).endswith(f"delta 0.1, volume 1/{2**50}>")
