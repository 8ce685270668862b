"""Along rays: the floor lies below, the first failure is the first, on every activation and depth."""

from __future__ import annotations

import numpy as np
import pytest
from problems import network

from apas import FeedForward, LinfShifts
from apas._random import Stream
from apas.certification.max_shift.rays import KINKS, Rays, chord_gaps, first_ray_failures
from apas.models.forward import ACTIVATIONS, activate

SHAPES = [((4, 5, 1), "sigmoid"), ((4, 5, 6, 1), "sigmoid"), ((4, 6, 3), "softmax"), ((4, 5, 5, 4, 3), "softmax"), ((4, 1), "sigmoid"), ((4, 3), "softmax"), ((3, 5, 2), "softmax")]  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gaps_of_the_chord(name):
    rng = np.random.default_rng(0)
    first, last = rng.normal(size=(2, 400)) * rng.choice([0.3, 2.0, 8.0], size=400)
    below, above = (0.0 if gap is None else gap for gap in chord_gaps(name, first, last))
    share = np.linspace(0, 1, 501)[:, None]
    value = activate(name, (1 - share) * first + share * last)
    chord = (1 - share) * activate(name, first.copy()) + share * activate(name, last.copy())
    assert (value >= chord - below - 1e-12).all()
    assert (value <= chord + above + 1e-12).all()


def setting(sizes, output, activation, seed):
    rng = np.random.default_rng(seed)
    net = network(sizes, output, activation, seed)
    X = rng.normal(size=(6, sizes[0]))
    wanted = rng.integers(0, len(net.classes), size=6)
    directions = LinfShifts().directions(net.parameters, Stream(seed, "test"), 0, 128)
    return net, X, wanted, directions, rng.uniform(0.05, 1.0, size=6)


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.validity)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_floor_lies_below(sizes, output, activation, seeds):
    for seed in range(seeds):
        net, X, wanted, directions, reach = setting(sizes, output, activation, seed)
        rays = Rays(net, X, wanted, directions)
        along = np.stack([rays.margins(s * reach) for s in np.linspace(0, 1, 151)])
        labels = [net.classes[w] for w in wanted]
        assert rays.margins(reach) == pytest.approx(net.shifted_margins(X, labels, directions, reach).T, abs=1e-9)
        coarse = rays.floors([0 * reach, reach])[0]
        fine = rays.floors([0 * reach, 0.3 * reach, 0.7 * reach, reach]).min(axis=0)
        assert (coarse <= along.min(axis=0) + 1e-9).all()
        assert (fine <= along.min(axis=0) + 1e-9).all()
        assert fine.mean() >= coarse.mean()


@pytest.mark.parametrize("activation", KINKS)
@pytest.mark.parametrize(("sizes", "output"), [s for s in SHAPES if len(s[0]) <= 3], ids=str)
def test_first_failure_is_the_first(sizes, output, activation):
    steps = np.linspace(0, 1, 401)
    for seed in range(3):
        net, X, wanted, directions, reach = setting(sizes, output, activation, seed)
        rays = Rays(net, X, wanted, directions)
        row, sample = np.divmod(np.arange(6 * 128), 128)
        found = first_ray_failures(rays, row, sample, reach[row], np.zeros(len(row))).reshape(6, 128)
        along = np.stack([rays.margins(s * reach) for s in steps])
        failing = along <= 0
        seen = np.where(failing.any(axis=0), steps[failing.argmax(axis=0)] * reach[:, None], np.inf)
        assert (found <= seen + 1e-12).all()  # never later than a failure on a fine grid
        for i in range(6):  # and where it says so, the margin is 0 or the row fails at once
            some = np.isfinite(found[i]) & (found[i] > 0)
            one = Rays(
                net, np.repeat(X[i : i + 1], some.sum(), axis=0), np.repeat(wanted[i], some.sum()), directions[some]
            )
            at = np.diag(one.margins(found[i][some]))
            assert np.abs(at).max(initial=0.0) < 1e-8


def test_a_ray_may_become_valid_again_and_the_first_failure_counts():
    # margin (1 - 3.5 t)(1 - t): fails from t = 1 / 3.5, and is valid again from t = 1 on
    net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]], activation="identity", output="identity", threshold=0.0)
    rays = Rays(net, np.array([[1.0]]), np.array([1]), np.array([[-3.5, 0.0, -1.0, 0.0]]))
    assert rays.margins(np.array([2.0]))[0, 0] > 0
    found = first_ray_failures(rays, np.array([0]), np.array([0]), np.array([2.0]), np.zeros(1))
    assert found[0] == pytest.approx(1 / 3.5)
    assert rays.floors([np.zeros(1), np.array([2.0])])[0, 0, 0] < 0


@pytest.mark.parametrize("activation", KINKS)
def test_units_that_begin_exactly_at_their_kink(activation):
    """Small integers make pre-activations that are exactly 0, 1 or -1, where a unit comes alive at once or never."""
    rng = np.random.default_rng(0)
    steps = np.linspace(0, 1, 401)
    seen_at_kink = 0
    for _ in range(40):
        net = FeedForward(
            [rng.integers(-1, 2, size=(3, 4)), rng.integers(-1, 2, size=(4, 1))],
            [rng.integers(-1, 2, size=4), [1.0]], activation=activation, output="identity", threshold=0.0,
        )  # fmt: skip
        X = rng.integers(-1, 2, size=(4, 3)).astype(float)
        X[0] = 0.0
        wanted = rng.integers(0, 2, size=4)
        rays = Rays(net, X, wanted, rng.uniform(-1, 1, size=(32, len(net.parameters))))
        seen_at_kink += int((rays.z0 == 0).sum())
        row, sample = np.divmod(np.arange(4 * 32), 32)
        found = first_ray_failures(rays, row, sample, np.full(128, 2.0), np.zeros(128)).reshape(4, 32)
        along = np.stack([rays.margins(np.full(4, 2 * s)) for s in steps])
        failing = along <= 0
        seen = np.where(failing.any(axis=0), 2 * steps[failing.argmax(axis=0)], np.inf)
        assert (found <= seen + 1e-12).all()
        for i in range(4):
            for j in np.flatnonzero(np.isfinite(found[i])):
                at = Rays(net, X[i : i + 1], wanted[i : i + 1], rays_direction(rays, j)).margins(found[i, j : j + 1])
                assert at[0, 0] <= 1e-9
    assert seen_at_kink > 50


def rays_direction(rays, sample):
    parts = [part[..., sample].ravel() for slopes in rays.slopes for part in slopes]
    return np.concatenate(parts)[None, :]
