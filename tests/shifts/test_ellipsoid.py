"""Ellipsoids of shifts: their draws, closed forms against draws and attacks, and their way through every verb."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import EllipsoidShifts, InputError, Unsupported
from apas._fields import Fields
from apas._random import Stream
from apas.contracts.audit import Outcome
from apas.shifts.base import KINDS, Bounded, Ellipsoid, Elliptical, Measurable, ShiftSet, Unbounded

STREAM = Stream(2024, "certify")
RNG = np.random.default_rng(3)


def network(sizes=(4, 1), seed=0):
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    output = "softmax" if sizes[-1] > 1 else "sigmoid"
    return apas.FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs], output=output)


def covariance(size, seed=1):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return 0.01 * root @ root.T


NET, C = network(), covariance(5)
ROWS = np.random.default_rng(5).normal(size=(60, 4))
ROWS = ROWS[NET.margin(ROWS, 1) > 0.05][:12]
GRADIENTS = np.column_stack([ROWS, np.ones(len(ROWS))])  # of the margin by weights and bias
SIZES = np.sqrt(np.einsum("ij,jk,ik->i", GRADIENTS, C, GRADIENTS))


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_draws_have_the_law_that_they_state(distribution):
    drawn = EllipsoidShifts(C, distribution=distribution).directions(NET.parameters, STREAM, 0, 20_000)
    whole = np.linalg.solve(np.linalg.cholesky(C), drawn.T)
    length = np.linalg.norm(whole, axis=0)
    law = stats.chi(5).cdf if distribution == "normal" else stats.powerlaw(5).cdf
    assert stats.kstest(length, law).pvalue > 1e-4
    scale = 1.0 if distribution == "normal" else 1 / 7  # the variance of a coordinate of the ball, 1 / (n + 2)
    assert np.abs(np.cov(whole) / scale - np.eye(5)).max() < 0.06


@pytest.mark.parametrize("sizes", [(4, 1), (30, 1)])
def test_draws_are_a_pure_function_of_stream_and_index(sizes):
    net = network(sizes)
    shifts = EllipsoidShifts(covariance(len(net.parameters)))
    whole = shifts.directions(net.parameters, STREAM, 0, 300)
    assert np.array_equal(shifts.directions(net.parameters, STREAM, 70, 300), whole[70:])
    assert np.array_equal(shifts.directions(net.parameters, STREAM, 299, 300)[0], whole[299])


def test_what_it_offers_depends_on_the_distribution():
    uniform, normal = EllipsoidShifts(C), EllipsoidShifts(C, distribution="normal")
    for shifts in (uniform, normal):
        assert isinstance(shifts, ShiftSet | Measurable | Elliptical)
    assert isinstance(uniform, Bounded)
    assert not isinstance(normal, Bounded)
    assert isinstance(normal, Unbounded)
    assert isinstance(uniform.geometry(NET.parameters), Ellipsoid)
    assert pickle.loads(pickle.dumps(uniform)).geometry(NET.parameters).radii.shape == (5,)
    with pytest.raises(Unsupported, match="no bound"):
        apas.certify(NET, ROWS, 1, target=1, shifts=normal, method="exact")


def closed_forms(draws):
    """Least margins, largest shifts and shares in closed form against draws and an attack."""
    delta, shifts = 0.9 * float(np.median(NET.margin(ROWS, 1) / SIZES)), EllipsoidShifts(C)
    margins, largest = NET.margin(ROWS, 1), apas.max_shift(NET, ROWS, target=1, shifts=shifts, method="exact")
    assert np.allclose(largest.deltas, margins / SIZES, rtol=1e-8)
    assert all(item.exact for item in largest)
    proved = apas.certify(NET, ROWS, delta, target=1, shifts=shifts, method="exact")
    attacked = apas.certify(NET, ROWS, delta, target=1, shifts=shifts, method="attack", rng=0)
    assert proved.certified.tolist() == (margins > delta * SIZES).tolist()
    assert [c.verdict.name for c in attacked] == ["UNKNOWN" if ok else "REFUTED" for ok in proved.certified]
    for c, d, row in zip(proved, largest.deltas, ROWS, strict=True):
        if not c.is_certified:
            assert d < delta
            assert c.witness.margin(NET, row[None, :], 1) <= 0
    for distribution in ("uniform", "normal"):
        own = EllipsoidShifts(C, distribution=distribution)
        curves = apas.robust_fraction(NET, ROWS, [delta, 4 * delta], target=1, shifts=own, method="enumeration")
        for size, place in ((delta, 0), (4 * delta, 1)):
            least, kept = np.full(len(ROWS), np.inf), np.zeros(len(ROWS))
            for start in range(0, draws, 50_000):
                some = own.directions(NET.parameters, STREAM, start, min(draws, start + 50_000))
                found = NET.shifted_margins(ROWS, 1, some, size)
                least, kept = np.minimum(least, found.min(axis=0)), kept + (found >= 0).sum(axis=0)
            if distribution == "uniform":
                assert (least >= margins - size * SIZES - 1e-9).all()
            for i, curve in enumerate(curves):
                lower, upper = curve.lower[place], curve.upper[place]
                assert upper - lower < 1e-9
                assert (
                    stats.binomtest(int(kept[i]), draws, float(np.clip(lower, 0, 1))).pvalue > 1e-5 or lower > 1 - 1e-9
                )


def test_closed_forms_against_draws_and_an_attack():
    closed_forms(30_000)


@pytest.mark.validity
def test_closed_forms_against_a_million_draws():
    closed_forms(1_000_000)


def test_bounds_of_whole_networks_are_sound_and_draws_take_them():
    net = network((3, 4, 1), seed=2)
    rows = np.random.default_rng(0).normal(size=(20, 3))
    rows = rows[net.margin(rows, 1) > 0.1]
    assert len(rows) > 3
    shifts = EllipsoidShifts(1e-4 * np.eye(len(net.parameters)) + 1e-6)
    found = apas.certify(net, rows, 1, target=1, shifts=shifts, method="interval")
    drawn = net.shifted_margins(rows, 1, shifts.directions(net.parameters, STREAM, 0, 5000), 1.0).min(axis=0)
    assert found.certified.any()
    assert (drawn[found.certified] > 0).all()
    assert apas.certify(net, rows, 1, target=1, shifts=shifts, rng=0).certified.any()
    assert (apas.max_shift(net, rows, target=1, shifts=shifts, rng=0).deltas > 0).all()
    with pytest.raises(Unsupported):
        apas.certify(net, rows, 1, target=1, shifts=shifts, method="exact")


def test_last_layers_and_several_classes_are_closed_too():
    for sizes in ((3, 4, 1), (3, 4, 3)):
        net = network(sizes, seed=2)
        moves = net.parameters.slices[-1].stop - net.parameters.slices[-2].start
        shifts = EllipsoidShifts(covariance(moves), layers=[-1])
        rows = np.random.default_rng(1).normal(size=(10, 3))
        target = "predicted"
        largest = apas.max_shift(net, rows, target=target, shifts=shifts, method="exact").deltas
        for factor, holds in ((0.999, True), (1.001, False)):
            some = apas.certify(net, rows, factor * largest, target=target, shifts=shifts, method="exact")
            assert some.certified.all() == holds
            assert holds or all(c.verdict.name == "REFUTED" for c in some)


def test_containment_is_without_tolerance():
    shifts, base = EllipsoidShifts(C), NET.parameters
    for seed in range(30):
        direction = np.random.default_rng(seed).normal(size=5)
        direction /= np.linalg.norm(direction)
        move = np.linalg.cholesky(C) @ direction
        for factor, inside in ((1 - 1e-9, True), (1 + 1e-9, False)):
            other = NET.with_parameters(base.values + factor * move).parameters
            assert shifts.contains(base, other, 1.0) == inside
            assert shifts.distance(base, other) == pytest.approx(factor, rel=1e-8)
        pulled = shifts.geometry(base).pull_inside(base, base.values + 3 * move, 1.0)
        assert shifts.contains(base, NET.with_parameters(pulled).parameters, 1.0)


def test_laplace_is_the_inverse_of_the_curvature():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X @ [1.0, -1.0, 0.5] + rng.logistic(size=400) > 0).astype(int)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.5)).fit(X, y)
    Z, p = np.column_stack([model[0].transform(X), np.ones(400)]), model.predict_proba(X)[:, 1]
    wanted = np.linalg.inv(Z.T @ (Z * (p * (1 - p))[:, None]) + np.diag([2.0, 2.0, 2.0, 0.0]))
    assert np.allclose(EllipsoidShifts.laplace(model, X).covariance, wanted)
    refits = [LogisticRegression(C=0.5).fit(Z[i, :3], y[i]) for i in rng.integers(0, 400, (100, 400))]
    spread = np.std([np.append(m.coef_, m.intercept_) for m in refits], axis=0)
    assert np.all(np.abs(spread / np.sqrt(np.diag(wanted)) - 1) < 0.35)


def test_files_verify_audit_and_report_know_it(tmp_path):
    shifts = EllipsoidShifts(C)
    for method, delta in (("exact", 0.5), ("enumeration", 0.5), ("sampling", 0.5)):
        if method == "enumeration":
            method = apas.Enumeration(coverage=0.9)
        found = apas.certify(NET, ROWS, delta, target=1, shifts=shifts, method=method, rng=0)
        assert found.certified.any()
        path = tmp_path / "c.json"
        apas.save_certificates(found, path)
        assert apas.load_certificates(path) == found
        assert apas.verify(path, NET).ok
        content = json.loads(path.read_text())
        assert KINDS.read(Fields(content["shifts"])) == shifts
        inside = NET.with_parameters(NET.parameters.values + 1e-3)
        assert {row.inside for row in apas.audit(path, inside, base=NET)} == {True}
        apas.write_report(found, tmp_path / "r.html")
    outside = NET.with_parameters(NET.parameters.values - 10)
    assert {row.outcome for row in apas.audit(path, outside, base=NET) if row.verdict == "CERTIFIED"} == {
        Outcome.BROKEN_OUTSIDE
    }


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EllipsoidShifts([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: EllipsoidShifts([[1.0, 0.1], [0.0, 1.0]]), "symmetric"),
        (lambda: EllipsoidShifts("many"), "symmetric"),
        (lambda: EllipsoidShifts(np.eye(2), distribution="cauchy"), "uniform"),
        (lambda: apas.certify(NET, ROWS, 1, target=1, shifts=EllipsoidShifts(np.eye(3))), "one row per parameter"),
        (lambda: EllipsoidShifts.laplace(NET, ROWS), "penalty"),
        (lambda: EllipsoidShifts.laplace(NET, ROWS[:2], penalty=0.0), "directions"),
        (lambda: EllipsoidShifts.laplace(network((3, 3)), ROWS[:, :3], penalty=1), "one output"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises((InputError, Unsupported), match=said):
        make()
