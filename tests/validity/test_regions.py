"""Claims about regions, many times over: fresh draws with sampled rows and corners, and claims that are known to be false."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import apas
from apas import Verdict

pytestmark = pytest.mark.validity
DELTA, DRAWS = 0.05, 20_000


def problem(seed: int):
    """A random network, a row that it accepts, and a region of up to three numbers."""
    rng = np.random.default_rng(seed)
    hidden = [(), (8,), (8,), (6, 4)][seed % 4]
    sizes = [6, *hidden, 1]
    weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in itertools.pairwise(sizes)]
    net = apas.FeedForward(weights, [0.3 * rng.normal(size=n) for n in sizes[1:]])
    rows = rng.normal(size=(200, 6))
    margins = np.abs(net.margin(rows, 1))
    row = rows[np.argsort(margins)[int(rng.integers(40, 200))]]
    names = rng.choice(6, size=int(rng.integers(1, 4)), replace=False)
    return net, row, {f"x{j}": float(rng.uniform(0.05, 0.8)) for j in names}


def test_fresh_draws_with_sampled_rows_and_corners_keep_what_was_certified():
    regions = certified = 0
    open_draws = 0
    for seed in range(2000):
        net, row, widths = problem(seed)
        target = int(net.margin(row[None], 1)[0] >= 0)
        found = apas.certify(net, row[None], DELTA, target=target, region=widths, rng=seed)[0]
        if not found.is_certified:
            continue
        certified += 1
        open_draws += found.evidence.doubtful
        rng = np.random.default_rng(10_000 + seed)
        columns = [int(name[1:]) for name in widths]
        off = np.array(list(widths.values()))
        ends = np.array(list(itertools.product((-1, 1), repeat=len(off)))) * off
        rows = np.tile(row, (50 + len(ends), 1))
        rows[:, columns] += np.vstack([rng.uniform(-off, off, (50, len(off))), ends])
        failing = 0
        for _ in range(0, DRAWS, 4000):
            drawn = rng.uniform(-1, 1, (4000, len(net.parameters)))
            failing += int((net.shifted_margins(rows, target, drawn, DELTA).min(axis=1) < 0).sum())
        # 133 of 20,000 failures refute a coverage of 0.995 with confidence 0.999
        assert failing < 133, f"region {seed}: {failing} of {DRAWS} draws fail somewhere"
        regions += 1
        if regions == 50:
            break
    assert regions == 50
    assert open_draws <= 1e-4 * 50 * DRAWS


def test_false_claims_about_regions_are_certified_no_more_often_than_stated():
    # only the bias moves: the worst corner of the region has margin 1 - 0.21 and the share that keeps it is
    # (1 + 0.79 / delta) / 2, which is just below 0.9 here; a risk of 10 % lets 252 of 2,000 pass with probability < 1e-4
    net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    delta = 0.79 / 0.799
    how = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=300)
    shifts = apas.LinfShifts(kinds=("bias",))
    region = {"x0": 0.11, "x1": 0.1}
    false = 0
    for seed in range(2000):
        found = apas.certify(net, [[2.0, 1.0]], delta, target=1, region=region, method=how, shifts=shifts, rng=seed)[0]
        false += found.verdict is Verdict.CERTIFIED
    assert false <= 252


def test_largest_of_nested_regions_is_false_no_more_often_than_stated():
    # the share at size s of 10 is (1 + (1 - 0.021 s) / delta) / 2: 0.9 is reached between sizes 4 and 5
    net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    delta = (1 - 0.021 * 4.5) / 0.8
    how = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=300)
    shifts = apas.LinfShifts(kinds=("bias",))
    region = apas.Region({"x0": 0.21}, sizes=10)
    false = 0
    for seed in range(2000):
        found = apas.certify(net, [[2.0, 1.0]], delta, target=1, region=region, method=how, shifts=shifts, rng=seed)[0]
        false += found.is_certified and found.region.size[0] > 4
    assert false <= 252
