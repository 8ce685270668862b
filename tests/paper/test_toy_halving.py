"""Algorithm 3 level by level: parts tile the box, settled parts are what draws say, and the rules differ as they say."""

from __future__ import annotations

import numpy as np
import pytest

from apas import IntervalNetwork, LinfShifts
from apas.paper.toy import RULES, TOY, TOY_SHIFTS, TOY_X, levels_of


def toy_box(delta: float) -> IntervalNetwork:
    return IntervalNetwork.of(TOY, delta, shifts=TOY_SHIFTS)


@pytest.mark.parametrize("rule", RULES)
def test_settled_and_open_parts_make_up_the_box(rule):
    levels = levels_of(toy_box(0.27), rule, most=9)
    settled: list[tuple[float, float]] = []
    for level in levels:
        size = 2.0 ** (1 - level["number"])
        assert level["valid"] + level["failing"] + level["open"] == 1.0
        assert level["open"] == size * level["states"].count(0)
        spans = [(place, place + size) for place in level["places"]]
        covered = sorted(settled + spans)
        assert covered[0][0] == 0.0
        assert covered[-1][1] == 1.0
        assert all(a[1] == b[0] for a, b in zip(covered, covered[1:], strict=False))
        settled += [span for span, state in zip(spans, level["states"], strict=True) if state]
    assert [level["looked"] for level in levels] == np.cumsum([len(level["states"]) for level in levels]).tolist()
    assert all(2 * a["states"].count(0) == len(b["states"]) for a, b in zip(levels, levels[1:], strict=False))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("delta", [0.115, 0.27, 0.6])
def test_bounds_enclose_the_share_of_draws(rule, delta):
    directions = np.random.default_rng(0).uniform(-1, 1, (200_000, len(TOY.parameters)))
    directions *= TOY_SHIFTS.radii(TOY.parameters)
    share = (TOY.shifted_margins(TOY_X, 1, directions, delta) >= 0).mean()
    for level in levels_of(toy_box(delta), rule, most=10):
        assert level["valid"] - 0.005 < share < 1 - level["failing"] + 0.005


def test_the_published_rule_halves_one_weight_only():
    """Once the others decide, no more levels help; the rule that looks at effects gets on."""
    first, effect = (levels_of(toy_box(0.27), rule, most=12)[-1] for rule in RULES)
    assert first["valid"] < 0.3
    assert first["failing"] == 0
    assert effect["valid"] > 0.75
    assert effect["failing"] > 0.03
    # with the first weight alone moving, both rules are the same
    only = LinfShifts(scale=[np.array([[1.0, 0.0]]), np.zeros(2), np.zeros((2, 1)), np.zeros(1)])
    box = IntervalNetwork.of(TOY, 0.6, shifts=only)
    assert levels_of(box, "first", most=8) == levels_of(box, "effect", most=8)


def test_stops_when_nothing_is_open():
    assert len(levels_of(toy_box(0.1), "first", most=20)) == 1
    assert levels_of(toy_box(0.1), "first", most=20)[0]["valid"] == 1.0
