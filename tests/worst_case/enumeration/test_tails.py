"""Bounds on the share of a cube where a sum is below 0: never below the truth, and close to it where they should be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apas.worst_case.enumeration.box_bounds import share_below


def drawn_share(middle, straight, bend, rng, draws=200_000):
    """The share of draws u of the cube with ``middle + sum of straight u - bend abs(u)`` of at most 0."""
    u = 2 * rng.random(size=(draws, len(straight)), dtype=np.float32) - 1
    return (middle + u @ straight.astype(np.float32) - np.abs(u) @ bend.astype(np.float32) <= 0).mean()


@pytest.mark.parametrize("axes", [1, 2, 3, 10, 60])
def test_never_below_the_drawn_share(axes):
    rng = np.random.default_rng(axes)
    for _ in range(12):
        straight = rng.normal(size=axes) * rng.choice([0.1, 1.0], size=axes)
        bend = np.abs(rng.normal(size=axes)) * rng.choice([0.0, 0.05, 0.5])
        middle = rng.normal() * np.sqrt((straight**2).sum())
        low, high = straight - bend, straight + bend
        bound = share_below(np.array([middle]), low[None, :], high[None, :])[0]
        # five standard deviations of the drawn share
        assert bound >= drawn_share(middle, straight, bend, rng) - 5 * math.sqrt(0.25 / 200_000)


def test_known_shares_of_one_and_two_terms():
    # one term: uniform on [m - 1, m + 1]; two equal terms: a triangle on [m - 2, m + 2]
    for middle in np.linspace(-1.9, 1.9, 39):
        one = min(1.0, max(0.0, (1 - middle) / 2))
        two = (2 - middle) ** 2 / 8 if middle > 0 else 1 - (2 + middle) ** 2 / 8
        for terms, truth in ((1, one), (2, two)):
            ends = np.ones((1, terms))
            assert share_below(np.array([middle]), ends, ends)[0] >= truth


def test_close_to_a_normal_distribution():
    """Of many straight terms: at most 2.5 times the normal tail up to 2, 15 times up to 4, and at most 0.1 beside it near the middle."""
    ends = np.full((1, 300), 0.1)
    deviation = math.sqrt(300 * 0.01 / 3)
    for t in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0):
        truth = 0.5 * math.erfc(t / math.sqrt(2))
        assert truth <= share_below(np.array([t * deviation]), ends, ends)[0] <= (2.5 if t <= 2 else 15) * truth
    for t in (-1.0, -0.5, 0.0, 0.5):
        truth = 0.5 * math.erfc(t / math.sqrt(2))
        assert truth <= share_below(np.array([t * deviation]), ends, ends)[0] <= truth + 0.1


def test_bends_make_it_larger():
    straight = np.ones((1, 20))
    without = share_below(np.array([5.0]), straight, straight)[0]
    bent = share_below(np.array([5.0]), straight - 0.1, straight + 0.1)[0]
    assert without < bent < 1


def test_extreme_numbers():
    one = np.ones((1, 4))
    for size in (1e-250, 1e250):  # the question does not change with the unit
        got = share_below(np.array([2.0 * size]), size * one, size * one)[0]
        assert got == pytest.approx(share_below(np.array([2.0]), one, one)[0], rel=1e-9)
    for middle, ends in ((np.nan, 1.0), (1.0, np.inf), (1.0, np.nan), (np.inf, np.inf), (-1.0, 0.0), (0.0, 0.0)):
        assert share_below(np.array([middle]), ends * one, ends * one)[0] == 1.0
    assert share_below(np.array([1.0]), 0 * one, 0 * one)[0] < 1e-10
    mixed = np.array([[1e-200, 1.0]])
    assert share_below(np.array([0.5]), mixed, mixed)[0] >= 0.25
