from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from apas.shifts.geometry import LARGEST, box_distances, box_reach, inside_box, within_box


def magnitudes(rng, count, spread=(-320, 307)):
    """Magnitudes over the whole range of float64: denormals, powers of two, round numbers, zeros."""
    with np.errstate(under="ignore"):
        values = rng.uniform(1, 10, count) * 10.0 ** rng.uniform(*spread, count)
    kind = rng.integers(8, size=count)
    values = np.where(kind == 0, 2.0 ** np.round(np.log2(np.maximum(values, 1e-320))), values)
    values[kind == 1] = 0.0
    values[kind == 2] = 5e-324 * rng.integers(1, 50, int((kind == 2).sum()))
    return values


def exactly_within(base, radius, delta, value):
    return abs(Fraction(value) - Fraction(base)) <= Fraction(delta) * Fraction(radius)


def near(rng, base, reach):
    """Bases far above, far below and about as large as the reach."""
    mixed = base * rng.choice([-1.0, 1.0], len(base))
    with np.errstate(over="ignore", under="ignore"):
        about = reach * rng.choice([-1.0, 1.0], len(base)) * 2.0 ** rng.integers(-60, 60, len(base))
        return np.where((rng.random(len(base)) < 0.6) & np.isfinite(about), about, mixed)


@pytest.fixture(scope="module")
def boxes():
    rng = np.random.default_rng(0)
    count = 6000
    radii, delta = magnitudes(rng, count), magnitudes(rng, count)
    radii[: count // 2] = 10.0 ** rng.uniform(-8, 8, count // 2)
    delta[: count // 2] = 10.0 ** rng.uniform(-6, 2, count // 2)
    with np.errstate(over="ignore", under="ignore"):
        reach = np.minimum(radii * delta, 1e300)
    base = near(rng, magnitudes(rng, count), reach)
    direction = np.where(rng.random(count) < 0.5, rng.choice([-1.0, 1.0], count), rng.uniform(-1, 1, count))
    return base, radii, delta, direction


def test_every_value_is_inside(boxes):
    base, radii, delta, direction = boxes
    values = inside_box(base, radii, delta, direction)
    assert np.isfinite(values).all()
    for box in zip(base.tolist(), radii.tolist(), delta.tolist(), values.tolist(), strict=True):
        assert exactly_within(*box)


def test_the_value_asked_for_up_to_rounding(boxes):
    base, radii, delta, direction = boxes
    values = inside_box(base, radii, delta, direction)
    for b, r, d, u, v in zip(*(a.tolist() for a in (base, radii, delta, direction, values)), strict=True):
        move = Fraction(d) * Fraction(r) * Fraction(u)
        room = (abs(Fraction(b)) + abs(move)) / 2**50 + 2 * Fraction(5e-324)
        # beyond the largest number the box is cut off
        assert abs(Fraction(v) - Fraction(b) - move) <= room or abs(v) == LARGEST or abs(move) > LARGEST


def test_reach_is_the_largest_number_below_the_product(boxes):
    _, radii, delta, _ = boxes
    reach = box_reach(radii, delta)
    for r, d, below in zip(radii.tolist(), delta.tolist(), reach.tolist(), strict=True):
        exact = Fraction(r) * Fraction(d)
        assert Fraction(below) <= exact
        assert below == LARGEST or Fraction(float(np.nextafter(below, np.inf))) > exact


def test_membership_is_decided_exactly(boxes):
    base, radii, delta, direction = boxes
    rng = np.random.default_rng(1)
    inside = inside_box(base, radii, delta, np.where(direction < 0, -1.0, 1.0))
    with np.errstate(over="ignore"):
        tried = [inside, np.nextafter(inside, np.inf), np.nextafter(inside, -np.inf), base, inside * 2, -base]
        tried.append(base + delta * radii * rng.choice([-1.0, 1.0], len(base)))
    for values in tried:
        found = within_box(base, radii, delta, values)
        for b, r, d, v, answer in zip(*(a.tolist() for a in (base, radii, delta, values, found)), strict=True):
            with np.errstate(over="ignore"):
                too_far = not np.isfinite(v) or not np.isfinite(v - b)
            assert answer == (not too_far and exactly_within(b, r, d, v))


def test_differences_that_are_not_float64_numbers():
    # |1e-310 - 1| lies just below 1, the reach just above or below it
    base, values = np.ones(2), np.full(2, 1e-310)
    assert within_box(base, np.array([1.0, np.nextafter(1.0, 0)]), 1.0, values).tolist() == [True, False]
    assert not within_box(base, np.ones(2), 1.0, -values).any()
    # a product that is not a float64 number: (1 + 2**-52)**2 = 1 + 2**-51 + 2**-104
    one_up = 1 + 2.0**-52
    box = np.zeros(2), np.full(2, one_up), one_up
    assert within_box(*box, np.array([1 + 2.0**-51, 1 + 3 * 2.0**-52])).tolist() == [True, False]
    base = np.array([-(2.0**-104), -(2.0**-103)])
    assert within_box(-base, *box[1:], np.full(2, 1 + 2.0**-51)).all()
    assert within_box(base, *box[1:], np.full(2, 1 + 2.0**-51)).tolist() == [True, False]


def test_zero_reach_moves_nothing():
    base = np.array([0.1, -3e-310, 0.0, 1e300])
    assert (inside_box(base, np.zeros(4), 5.0, np.ones(4)) == base).all()
    assert (inside_box(base, np.ones(4), 0.0, -np.ones(4)) == base).all()


def test_directions_beyond_the_unit_box_are_cut_off():
    values = inside_box(np.zeros(3), np.ones(3), 0.5, np.array([7.0, -np.inf, np.nan]))
    assert values.tolist() == [0.5, -0.5, 0.0]


def test_broadcasts_over_rows():
    values = inside_box(np.zeros(2), np.array([1.0, 0.0]), np.array([[0.5], [2.0]]), -np.ones((2, 2)))
    assert values.tolist() == [[-0.5, 0.0], [-2.0, 0.0]]


def test_what_is_not_finite_is_outside():
    assert not within_box(np.zeros(3), np.ones(3), 1.0, np.array([np.inf, -np.inf, np.nan])).any()
    assert not within_box(np.array([-LARGEST]), np.ones(1), LARGEST, np.array([LARGEST])).any()


def test_distances_are_the_least_floats_not_below_them():
    rng = np.random.default_rng(3)
    a, b = (magnitudes(rng, 2000, (-30, 30)) * rng.choice([-1.0, 1.0], 2000) for _ in range(2))
    for x, y, distance in zip(a.tolist(), b.tolist(), box_distances(a, b).tolist(), strict=True):
        exact = abs(Fraction(y) - Fraction(x))
        assert distance >= exact
        assert distance == 0 or float(np.nextafter(distance, 0)) < exact
