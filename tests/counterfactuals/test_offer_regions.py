"""Tolerances and offers that may be exceeded: the region is part of the search, and certified as a whole."""

from __future__ import annotations

import numpy as np
import pytest

import apas
from apas import InputError

NAMES = ("income", "debt")


def linear() -> apas.FeedForward:
    return apas.FeedForward([[[1.0], [-1.0]]], [[-1.0]], feature_names=NAMES)


def space(**more) -> apas.FeatureSpace:
    return apas.FeatureSpace([apas.Feature(n, low=0, high=5, **more) for n in NAMES])


def dip() -> apas.FeedForward:
    """Accepts an income of about 0.5 to 2 and from 4.2 on, and rejects the rest: going further breaks an offer."""
    weights = [[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], [[1.0], [-2.2], [3.0]]]
    return apas.FeedForward(weights, [[0.0, -1.2, -3.0], [-0.5]], feature_names=NAMES)


def sampled_failures(net, found, count: int = 400) -> float:
    """The largest share of fresh draws that fail at one of many rows of the region of an offer."""
    region = {s.feature: s for s in found.certificates[0].region.spans}
    rng = np.random.default_rng(5)
    point = np.asarray(found.points, dtype=float)[0]
    rows = np.tile(point, (60, 1))
    for j, name in enumerate(NAMES):
        if name in region:
            low, high = region[name].low, region[name].high
            rows[:, j] = np.where(rng.random(60) < 0.5, rng.choice([low, high], 60), rng.uniform(low, high, 60))
    drawn = rng.uniform(-1, 1, (count, len(net.parameters)))
    return float((net.shifted_margins(rows, 1, drawn, 0.02).min(axis=1) < 0).mean())


def test_a_tolerance_is_a_share_of_ranges_or_raw_units_and_is_certified():
    net, X = linear(), [[0.2, 0.3]]
    plain = apas.generate(net, X, 0.02, space=space(), rng=0)
    share = apas.generate(net, X, 0.02, space=space(), rng=0, tolerance=0.02)
    raw = apas.generate(net, X, 0.02, space=space(), rng=0, tolerance={"income": 0.5})
    for found, width in ((share, 0.2), (raw, 1.0)):
        assert found[0].is_found
        spans = {s.feature: s for s in found.certificates[0].region.spans}
        assert spans["income"].high - spans["income"].low == pytest.approx(width)
        assert found[0].cost > plain[0].cost
        assert sampled_failures(net, found) <= 0.02
        assert apas.verify(found, net).ok
    assert {s.feature for s in raw.certificates[0].region.spans} == {"income"}


def test_beyond_goes_to_the_end_of_the_range_where_it_can():
    net = linear()
    found = apas.generate(net, [[0.2, 0.3]], 0.02, space=space(), rng=0, beyond=True)
    spans = {s.feature: s for s in found.certificates[0].region.spans}
    assert spans
    for name, (side, end) in {"income": ("at least", 5.0), "debt": ("at most", 0.0)}.items():
        if name in spans:
            assert spans[name].side == side
            assert end in (spans[name].low, spans[name].high)
    assert "window" not in found[0].reason
    assert sampled_failures(net, found) <= 0.02


def test_where_going_further_breaks_the_offer_it_is_a_window_and_says_so():
    net = dip()
    cut = apas.FeatureSpace(
        [apas.Feature("income", low=0, high=3.0), apas.Feature("debt", low=0, high=5, mutable=False)]
    )
    assert net.margin(np.array([[1.0, 0.0], [2.9, 0.0]]), 1).tolist()[0] > 0 > net.margin(np.array([[2.9, 0.0]]), 1)[0]
    found = apas.generate(net, [[0.1, 0.0]], 0.02, space=cut, rng=0, beyond=True)
    assert found[0].is_found
    assert "so this one is a window" in found[0].reason
    (span,) = found.certificates[0].region.spans
    assert span.side == "between"
    assert span.high < 2.2
    assert found.certificates[0].region.is_window
    assert sampled_failures(net, found) <= 0.02


def test_an_offer_at_the_end_of_the_range_is_preferred_to_a_window():
    net = dip()
    far = apas.FeatureSpace(
        [apas.Feature("income", low=0, high=8.0), apas.Feature("debt", low=0, high=5, mutable=False)]
    )
    found = apas.generate(net, [[3.0, 0.0]], 0.02, space=far, rng=0, beyond=True)
    (span,) = found.certificates[0].region.spans
    if span.side == "at least":  # further up all is well again
        assert span.low > 3.5
    assert sampled_failures(net, found) <= 0.02


@pytest.mark.parametrize("method", ["interval", apas.Sampling(n_samples=3000)])
def test_other_methods_certify_regions_too(method):
    found = apas.generate(linear(), [[0.2, 0.3]], 0.02, space=space(), method=method, rng=0, tolerance=0.05)
    assert found[0].is_found
    assert found.certificates[0].region is not None
    assert sampled_failures(linear(), found) <= 0.02


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"tolerance": "wide"}, "`tolerance` must be a share of ranges"),
        ({"tolerance": -0.1}, "`tolerance` must be at least 0"),
        # what was passed, not what became of it
        ({"tolerance": -0.1}, "got -0.1"),
        ({"tolerance": float("nan")}, "got nan"),
        ({"tolerance": {"wealth": 1}}, "'wealth', which is no number of the space"),
        ({"beyond": 1}, "`beyond` must be True or False"),
        ({"tolerance": 0.1, "rng": "derived"}, "need a delta above 0 and a chosen seed"),
    ],
)
def test_what_makes_no_sense_is_refused(more, error):
    with pytest.raises(InputError, match=error):
        apas.generate(linear(), [[0.2, 0.3]], 0.02, space=space(), **{"rng": 0, **more})


def test_workers_change_nothing():
    X = [[0.2, 0.3], [0.5, 0.1], [0.0, 0.0]]
    one, two = (apas.generate(linear(), X, 0.02, space=space(), rng=0, tolerance=0.02, n_jobs=n) for n in (1, 2))
    assert one.certificates.to_dict() == two.certificates.to_dict()
