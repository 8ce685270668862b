"""Lines below activations: every slope of a pencil, on every kind of range, and both pieces of a kink."""

from __future__ import annotations

import numpy as np
import pytest

from apas.models.forward import ACTIVATIONS, activate
from apas.worst_case.linear import cases, chord_of_magnitude, pencil

#: What rounding in an activation and a line of size 1 may do.
ROUNDING = 1e-14


def ranges(seed):
    """Points, tiny, ordinary and huge ranges, on either side of the kinks and across them."""
    rng = np.random.default_rng(seed)
    middle = np.concatenate(
        [rng.normal(size=200) * 2, np.repeat([-1.0, 0.0, 1.0, -0.75, 1.414], 20), rng.normal(size=50) * 40]
    )
    width = rng.choice([0.0, 1e-12, 1e-3, 0.3, 2.0, 10.0, 80.0], size=len(middle))
    share = rng.choice([0.0, 0.3, 0.5, 1.0], size=len(middle))
    return middle - share * width, middle + (1 - share) * width


def value(name, y, mirrored):
    return -activate(name, -y.copy()) if mirrored else activate(name, y.copy())


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_no_line_of_a_pencil_is_above_the_activation(name, mirrored, seed):
    low, high = ranges(seed)
    lines = pencil(name, low, high, mirrored=mirrored)
    assert (lines.flat >= 0).all()
    assert (lines.flat <= lines.steep).all()
    rng = np.random.default_rng(seed)
    for share in (0.0, 0.25, 1.0, rng.random(len(low))):
        slope = lines.flat + share * (lines.steep - lines.flat)
        height = lines.height(slope)
        for t in (*np.linspace(0, 1, 41), *rng.random(40)):
            y = np.clip(low + t * (high - low), low, high)
            gap = value(name, y, mirrored) - (slope * y + height)
            size = 1 + np.abs(slope * y) + np.abs(lines.value) + np.abs(slope * lines.at)
            assert (gap >= -ROUNDING * size).all()


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "hard_tanh", "identity"])
def test_lines_are_tight_where_the_function_is_straight(name, mirrored):
    for low, high in ((-0.9, -0.2), (0.1, 0.8), (1.5, 3.0), (-3.0, -1.5), (0.5, 0.5)):
        lines = pencil(name, np.array([low]), np.array([high]), mirrored=mirrored)
        for y in (low, high):
            here = lines.steep[0] * y + lines.height(lines.steep)[0]
            assert here == pytest.approx(value(name, np.array([y]), mirrored)[0], abs=1e-11)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "hard_tanh", "identity", "tanh", "gelu"])
def test_the_least_of_the_cases_is_below_the_activation(name, mirrored):
    low, high = ranges(5)
    pieces = cases(name, low, high, mirrored=mirrored)
    if name in ("identity", "tanh", "gelu") or (name in ("relu", "leaky_relu") and not mirrored):
        assert pieces[0] is pieces[1]
        return
    for t in np.linspace(0, 1, 81):
        y = np.clip(low + t * (high - low), low, high)
        least = np.minimum(*(p.steep * (y - p.at) + p.value for p in pieces))
        assert (least <= value(name, y, mirrored) + ROUNDING * (1 + np.abs(y))).all()


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_the_cases_of_a_falling_kink_are_exact(name):
    low, high = ranges(6)
    pieces = cases(name, low, high, mirrored=True)
    for t in np.linspace(0, 1, 41):
        y = np.clip(low + t * (high - low), low, high)
        least = np.minimum(*(p.steep * (y - p.at) + p.value for p in pieces))
        assert least == pytest.approx(value(name, y, True), abs=1e-9)


def test_the_cases_of_hard_tanh_are_exact_from_the_lower_kink_on():
    low, high = np.array([-1.0, 0.0, -0.5, 0.9, 1.2, -1.0]), np.array([3.0, 2.0, 0.5, 1.1, 4.0, 50.0])
    for mirrored in (False, True):
        pieces = cases("hard_tanh", low, high, mirrored=mirrored)
        for t in np.linspace(0, 1, 41):
            y = low + t * (high - low)
            least = np.minimum(*(p.steep * (y - p.at) + p.value for p in pieces))
            assert least == pytest.approx(np.clip(y, -1, 1), abs=1e-9)


def test_the_chord_of_a_magnitude_is_never_below_it():
    low, high = ranges(7)
    tilt, lift = chord_of_magnitude(low, high)
    for t in np.linspace(0, 1, 41):
        a = np.clip(low + t * (high - low), low, high)
        assert (tilt * a + lift >= np.abs(a) * (1 - 1e-12) - 1e-15).all()
    straight = (low >= 0) | (high <= 0)
    assert (lift[straight] == 0).all()
