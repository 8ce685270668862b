"""Cutting up the box of shifts: volumes add up, bounds enclose what is known, runs end where they should."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from problems import CASES, case, network

from apas import FeedForward, LinfShifts
from apas.models.base import class_indices
from apas.worst_case.enumeration import splitting
from apas.worst_case.enumeration.splitting import FAILING, HALVED, OPEN, VALID, BoxTree, ShiftBox, split


def box_of(known, delta=None):
    radii = known.shifts.radii(known.model.parameters)
    wanted = int(class_indices(known.model.classes, known.target, 1)[0])
    return ShiftBox(known.model, known.X[0], wanted, radii, known.delta if delta is None else delta)


def small_box(delta=0.5, activation="relu", seed=2, sizes=(2, 3, 1)):
    net = network(sizes, "sigmoid", activation, seed)
    x = np.array([0.7, -1.2])[: sizes[0]]
    wanted = int(net.margin(x[None, :], 1)[0] >= 0)
    return ShiftBox(net, x, wanted, np.ones(len(net.parameters)), delta)


def volume(tree, *statuses):
    return sum((Fraction(1, 2 ** int(d)) for d in tree.depth[tree.having(*statuses)]), Fraction(0))


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_known_shares_are_enclosed(known):
    found = split(box_of(known), gap=Fraction(1, 1000), max_boxes=50_000)
    assert found.lower <= Fraction(known.share) + Fraction(1, 10**12)
    assert found.upper >= Fraction(known.share) - Fraction(1, 10**12)
    assert found.upper - found.lower <= Fraction(1, 1000)
    low, high = found.interval
    assert Fraction(low) <= found.lower <= found.upper <= Fraction(high)


@pytest.mark.parametrize("max_boxes", [1, 2, 3, 7, 100, 5000])
@pytest.mark.parametrize("probe", [None, lambda start, width: False], ids=["largest", "least"])
def test_volumes_add_up_to_one(max_boxes, probe):
    found = split(small_box(), gap=Fraction(0), max_boxes=max_boxes, probe=probe)
    assert max_boxes - 2 < found.evaluated <= max_boxes
    assert found.stopped == "limit"
    assert volume(found.tree, VALID, FAILING, OPEN) == 1
    assert found.open == len(found.tree.having(OPEN))
    if probe is None:  # open parts count as far as they are known
        assert volume(found.tree, VALID) <= found.lower <= found.upper <= 1 - volume(found.tree, FAILING)
    else:
        assert volume(found.tree, VALID) == found.lower
        assert volume(found.tree, FAILING) == 1 - found.upper


def test_parts_do_not_overlap():
    found = split(small_box(), gap=Fraction(0), max_boxes=3000)
    nodes = found.tree.having(VALID, FAILING, OPEN)
    start, width = found.tree.coordinates(nodes)
    points = np.random.default_rng(0).uniform(size=(300, found.tree.axes))
    inside = ((points[:, None, :] >= start) & (points[:, None, :] < start + width)).all(axis=2)
    assert (inside.sum(axis=1) == 1).all()
    assert np.prod(width, axis=1) == pytest.approx(0.5 ** found.tree.depth[nodes])


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize("sizes", [(2, 3, 1), (2, 2, 2, 1)])
def test_settled_boxes_are_what_they_say(activation, sizes):
    box = small_box(0.6, activation, 6, sizes)
    found = split(box, gap=Fraction(0), max_boxes=20_000)
    low, high, status = found.boxes()
    assert {-1, 1} == set(status.tolist())
    rng = np.random.default_rng(1)
    chosen = np.concatenate([rng.choice(np.flatnonzero(status == s), size=300) for s in (-1, 1)])
    inside = rng.uniform(low[chosen], high[chosen])
    corners = np.where(rng.integers(0, 2, size=inside.shape) == 1, low[chosen], high[chosen])
    base = box.net.parameters.values
    margins = box.net.shifted_margins(box.x[None, :], box.wanted, np.vstack([inside, corners]) - base, 1.0)[:, 0]
    assert (np.sign(margins) == np.tile(status[chosen], 2)).all()
    assert (low >= base - 0.6 - 1e-12).all()
    assert (high <= base + 0.6 + 1e-12).all()


def test_bounds_enclose_the_drawn_share():
    box = small_box(0.5)
    found = split(box, gap=Fraction(0), max_boxes=100_000)
    directions = np.random.default_rng(2).uniform(-1, 1, size=(200_000, len(box.radii)))
    share = (box.net.shifted_margins(box.x[None, :], box.wanted, directions, 0.5) >= 0).mean()
    assert float(found.lower) - 0.005 < share < float(found.upper) + 0.005
    assert found.upper - found.lower < Fraction(1, 10)


def test_the_axis_with_the_largest_effect_is_halved():
    # one weight moves the margin a thousand times as far as the other
    net = FeedForward([[[1.0], [1.0]]], [[0.2]])
    box = ShiftBox(net, np.array([0.001, 1.0]), 1, np.array([1.0, 1.0, 0.0]), 1.5)
    found = split(box, gap=Fraction(1, 500), max_boxes=1000)
    width = found.tree.coordinates(found.tree.having(VALID, FAILING, OPEN))[1]
    assert (width[:, 1] <= 0.25).all()
    assert (width[:, 0] == 1).all()


def test_fewer_boxes_than_halving_the_widest_axis(monkeypatch):
    wise = split(small_box(0.4), gap=Fraction(1, 20), max_boxes=100_000)
    measure = ShiftBox.measure
    monkeypatch.setattr(ShiftBox, "measure", lambda self, *a: measure(self, *a)._replace(effects=a[1] + 10.0))
    naive = split(small_box(0.4), gap=Fraction(1, 20), max_boxes=100_000)
    assert wise.stopped == "gap"
    assert wise.evaluated * 3 < naive.evaluated


def test_far_fewer_boxes_than_by_settled_ones_alone(monkeypatch):
    """What open parts are known by counts: the same gap takes a small share of the boxes."""
    found = split(small_box(0.4), gap=Fraction(1, 20), max_boxes=100_000)
    monkeypatch.setattr(ShiftBox, "measure", ShiftBox.bound)
    alone = split(small_box(0.4), gap=Fraction(1, 20), max_boxes=20 * found.evaluated)
    assert found.stopped == "gap"
    assert alone.stopped == "limit"
    assert alone.lower < found.lower


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gap": Fraction(1, 10), "max_boxes": 10**5}, "gap"),
        ({"gap": Fraction(0), "max_boxes": 50}, "limit"),
        ({"gap": Fraction(0), "max_boxes": 10**5, "coverage": Fraction(9, 10)}, "decided"),
        ({"gap": Fraction(0), "max_boxes": 10**5, "coverage": Fraction(99, 100)}, "decided"),
    ],
)
def test_ends_where_it_should(options, reason):
    found = split(box_of(case("two-weights")), **options)  # the share is 0.9297
    assert found.stopped == reason
    if reason == "gap":
        assert found.upper - found.lower <= options["gap"]
    if "coverage" in options:
        assert found.lower >= options["coverage"] or found.upper < options["coverage"]
        assert (found.lower >= options["coverage"]) == (options["coverage"] < 0.92)


def test_ends_when_everything_is_settled():
    found = split(box_of(case("bias-all")), gap=Fraction(0), max_boxes=10)
    assert (found.stopped, found.evaluated, found.lower, found.open) == ("settled", 1, 1, 0)


def test_a_margin_that_is_zero_everywhere_is_left_open():
    # a dead unit: the score is the bias 0 itself, which float64 cannot tell from a failing one
    net = FeedForward([[[-5.0]], [[1.0]]], [[0.0], [0.0]])
    box = ShiftBox(net, np.array([1.0]), 1, np.array([1.0, 0.0, 0.0, 0.0]), 0.5)
    found = split(box, gap=Fraction(0), max_boxes=1000)
    assert (found.stopped, found.evaluated, found.lower, found.upper) == ("rounding", 1, 0, 1)


def test_numbers_that_are_too_large_settle_nothing():
    net = FeedForward([[[1e200]], [[1e200]]], [[0.0], [0.0]])
    found = split(ShiftBox(net, np.array([1.0]), 1, np.ones(4), 1e199), gap=Fraction(0), max_boxes=200)
    assert (found.lower, found.upper) == (0, 1)


def test_parameters_that_do_not_move_are_no_axes():
    known = case("relative-wide")  # the bias is 0 and cannot move
    found = split(box_of(known), gap=Fraction(1, 100), max_boxes=100)
    assert found.tree.axes == 1
    low, high, _ = found.boxes()
    assert (low[:, 1] == 0).all()
    assert (high[:, 1] == 0).all()


def test_the_probe_sees_the_least_margins_first_and_stops_the_run():
    # a dozen weights of the same effect: of 2**24 parts of this size, the one in the worst corner comes first
    net = FeedForward([np.ones((12, 1))], [[-1.0]])
    box = ShiftBox(net, np.ones(12), 1, np.append(np.ones(12), 0.0), 1.2)
    seen = []

    def probe(start, width):
        seen.append(len(start))
        return bool(((start == 0).all(axis=1) & (width <= 0.25).all(axis=1)).any())

    found = split(box, gap=Fraction(0), max_boxes=20_000, probe=probe)
    assert found.stopped == "decided"
    assert sum(seen) <= found.evaluated < 5000


def test_batches_do_not_change_the_volumes_when_all_is_settled(monkeypatch):
    # a quadratic in one parameter has few parts: the same ones, however they come
    known = case("product")
    small = split(box_of(known, 0.1), gap=Fraction(0), max_boxes=1000)
    monkeypatch.setattr(splitting, "PARTS", 3)
    assert split(box_of(known, 0.1), gap=Fraction(0), max_boxes=1000).lower == small.lower == 1


def test_rounding_of_the_ends_is_allowed_for():
    """Parameters that are large against their reach: the box in float64 is wider or narrower than the real one."""
    # margin 1e8 - 1e8 + 0.3 + 1e-9 u, valid on all of the box; and with u alone, valid on half of it
    for middle, share in ((0.3, 1.0), (0.0, 0.5)):
        net = FeedForward([[[1e8]]], [[-1e8 + middle]])
        found = split(ShiftBox(net, np.array([1.0]), 1, np.array([1.0, 0.0]), 1e-9), gap=Fraction(0), max_boxes=500)
        assert found.lower <= Fraction(share) <= found.upper
        assert found.stopped == ("settled" if share == 1 else "rounding")


def test_memory_is_bounded():
    """A hundred thousand boxes of 50 parameters: far less than their coordinates would take."""
    net = network((8, 5, 1), "sigmoid", "relu", 1)
    assert len(net.parameters) == 51
    x = np.random.default_rng(0).normal(size=8)
    box = ShiftBox(net, x, int(net.margin(x[None, :], 1)[0] >= 0), np.ones(51), 0.5)
    tracemalloc.start()
    found = split(box, gap=Fraction(0), max_boxes=100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.evaluated > 99_990
    assert peak < 60e6


def test_tree():
    tree = BoxTree(3)
    halves = tree.halve(np.array([0]), np.array([2]))
    again = tree.halve(halves, np.array([0, 2]))
    assert halves.tolist() == [1, 2]
    assert again.tolist() == [3, 4, 5, 6]
    assert tree.depth[np.arange(7)].tolist() == [0, 1, 1, 2, 2, 2, 2]
    assert tree.having(HALVED).tolist() == [0, 1, 2]
    start, width = tree.coordinates(np.array([0, 1, 4, 5, 6]))
    assert start.tolist() == [[0, 0, 0], [0, 0, 0], [0.5, 0, 0], [0, 0, 0.5], [0, 0, 0.75]]
    assert width.tolist() == [[1, 1, 1], [1, 1, 0.5], [0.5, 1, 0.5], [1, 1, 0.25], [1, 1, 0.25]]


def test_box_in_parameters():
    net = FeedForward([[[1.0], [2.0]]], [[3.0]])
    box = ShiftBox(
        net, np.array([1.0, 1.0]), 1, LinfShifts(relative=True, kinds=("weight",)).radii(net.parameters), 0.5
    )
    low, high = box.ends(np.array([[0.0, 0.5]]), np.array([[1.0, 0.5]]))
    assert low.tolist() == [[0.5, 2.0, 3.0]]
    assert high.tolist() == [[1.5, 3.0, 3.0]]
    assert box.directions(np.array([[0.25, 1.0]])).tolist() == [[-0.5, 1.0, 0.0]]


def test_failures_against_several_rivals_add_up():
    # classes of scores 2, 3, 2 whose biases move by 0.8: the middle one loses where either other leads by more
    net = FeedForward([[[0.0, 0.0, 0.0]]], [[2.0, 3.0, 2.0]], output="softmax")
    box = ShiftBox(net, np.array([0.0]), 1, np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 0.8)
    u = np.random.default_rng(0).uniform(-0.8, 0.8, size=(400_000, 3))
    lost = (np.maximum(u[:, 0], u[:, 2]) - u[:, 1] > 1).mean()
    known = box.measure(np.zeros((1, 3)), np.ones((1, 3)))
    assert known.failing[0] >= lost - 0.003
    assert known.valid[0] == 1
    # and where one rival leads by far, the other does not matter
    net = FeedForward([[[0.0, 0.0, 0.0]]], [[5.0, 3.0, 2.0]], output="softmax")
    box = ShiftBox(net, np.array([0.0]), 1, np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 1.1)
    known = box.measure(np.zeros((1, 3)), np.ones((1, 3)))
    assert known.valid[0] < 0.05


def test_the_ends_of_a_part_are_rounded_outward():
    """A weight of 1e8 that a shift of 0.1 * 1e9 brings to about 0: float64 says 0, the real number is below it."""
    net = FeedForward([[[1e8]]], [[0.0]], output="identity", threshold=0.0)
    box = ShiftBox(net, np.array([1.0]), 1, np.array([1e9, 0.0]), 0.1)
    part = np.zeros((1, 1)), np.full((1, 1), 2.0**-50)
    exact = Fraction(1e8) - Fraction(0.1) * Fraction(1e9)
    assert box.ends(*part)[0][0, 0] > exact
    assert Fraction(box.bound(*part).least[0]) <= exact
    assert Fraction(box.measure(*part).least[0]) <= exact
