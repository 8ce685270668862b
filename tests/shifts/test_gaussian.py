"""Normal shifts: their distribution, that draws are fixed and independent, options, and that nothing speaks of every one."""

import json
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import apas
from apas import InputError, Sampling, Unsupported, Verdict
from apas._random import LARGEST, PART, SMALL, TILE, Stream, _normals, standard_normals
from apas.shifts.balls import GaussianShifts
from apas.shifts.base import ShiftSet

STREAM = Stream(1, "certify")


def network(sizes=(3, 4, 2, 1), seed=0):
    rng = np.random.default_rng(seed)
    pairs = list(zip(sizes, sizes[1:], strict=False))
    return apas.FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs])


NET = network()
P = NET.parameters
WEIGHT0, BIAS0, WEIGHT1, BIAS1, WEIGHT2, BIAS2 = P.slices


def with_values(parameters, values):
    names, kinds, layers = parameters.names, parameters.kinds, parameters.layers
    return apas.Parameters(np.asarray(values, dtype=float), names, kinds, layers, parameters.shapes, parameters.slices)


# -- the distribution --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, SMALL + 1])
def test_marginals_are_standard_normal(size):
    n = 20_000 if size < 100 else 4_000
    points = standard_normals(size, Stream(2024, "certify"), 0, n)
    assert points.shape == (n, size)
    for j in sorted({0, size // 2, size - 1}):
        column = points[:, j]
        assert stats.kstest(column, "norm").pvalue > 1e-4
        assert abs(column.mean()) < 5 / np.sqrt(n)
        assert abs(column.var() - 1) < 5 * np.sqrt(2 / n)
        assert abs((column**3).mean()) < 5 * np.sqrt(15 / n)
        assert abs((column**4).mean() - 3) < 5 * np.sqrt(96 / n)
    # the squared length has the chi-square distribution
    assert stats.kstest(np.sum(points**2, axis=1), stats.chi2(size).cdf).pvalue > 1e-4


def test_tails_are_those_of_the_normal_distribution():
    numbers = standard_normals(50, Stream(7, "certify"), 0, 40_000).ravel()
    for limit in (1.0, 2.0, 3.0, 4.0):
        for side in (numbers > limit, numbers < -limit):
            assert stats.binomtest(int(side.sum()), len(numbers), stats.norm.sf(limit)).pvalue > 1e-5
    assert np.abs(numbers).max() < LARGEST


def test_the_largest_number_is_known():
    # the smallest share is half a unit of 53 bits, and a size is the normal quantile of half of it
    assert 8.37 < np.abs(_normals(np.array([0, 1], dtype=np.uint64))).min() < LARGEST
    assert np.abs(_normals(np.array([2**64 - 1], dtype=np.uint64))).max() < 1e-12


@pytest.mark.parametrize("size", [6, SMALL + 1])
def test_coordinates_and_draws_are_uncorrelated(size):
    n = 20_000 if size < 100 else 4_000
    points = standard_normals(size, Stream(2025, "certify"), 0, n)[:, :6]
    columns = np.column_stack([points[:-1], points[1:], points[:-1] ** 2, points[1:] ** 2])
    correlations = np.corrcoef(columns, rowvar=False)[np.triu_indices(24, 1)]
    assert np.abs(correlations).max() < 5.5 / np.sqrt(n)


def test_the_share_of_a_linear_margin_is_the_normal_probability():
    # 2 w + b with w = 1 + delta u, b = 1 + delta v: normal with mean 3 and standard deviation delta sqrt(5)
    net = apas.FeedForward([[[1.0]]], [[1.0]])
    shifts = GaussianShifts()
    margins = shifts.margins(net, np.array([[2.0]]), 1, shifts.directions(net.parameters, STREAM, 0, 40_000), 1.5)
    share = stats.norm.cdf(3 / (1.5 * math.sqrt(5)))
    assert stats.binomtest(int((margins >= 0).sum()), 40_000, share).pvalue > 1e-4


# -- a pure function of stream and index -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, SMALL, SMALL + 1])
def test_any_block_gives_the_same_points(size):
    n = 300 if size < 100 else 140
    whole = standard_normals(size, STREAM, 0, n)
    for cuts in ([0, 1, n], [0, TILE - 1, TILE, TILE + 1, n], [0, n // 3, n]):
        parts = [standard_normals(size, STREAM, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
        assert np.array_equal(np.vstack(parts), whole)
    for i in (0, 7, n - 1):
        assert np.array_equal(standard_normals(size, STREAM, i, i + 1)[0], whole[i])
    assert len(standard_normals(size, STREAM, 3, 3)) == 0


def test_a_number_takes_one_word():
    size = PART + 5
    point = standard_normals(size, STREAM, 3, 4)[0]
    words = STREAM.words(3 * size, size)
    share = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    expected = stats.norm.isf(share / 2) * np.where(words & np.uint64(1), -1.0, 1.0)
    np.testing.assert_allclose(point, expected, rtol=1e-9)


def test_the_first_points_never_change():
    # beyond the last digits, which the inverse of the distribution function may give differently on another machine
    point = standard_normals(3, Stream(1, "certify"), 5, 6)[0]
    np.testing.assert_allclose(point, PINNED, rtol=1e-12)


PINNED = [-0.4935982857139608, -0.737232284481012, -0.36122592174861357]


def test_streams_give_different_points():
    one, other = (standard_normals(3, Stream(1, purpose), 0, 5) for purpose in ("certify", "search"))
    assert not np.isclose(one, other).any()


def test_other_processes_draw_the_same():
    code = (
        "from apas._random import Stream; from apas._random import standard_normals\n"
        "print(standard_normals(4, Stream(9, 'certify'), 100, 102).tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == standard_normals(4, Stream(9, "certify"), 100, 102).tobytes().hex()


# -- options -----------------------------------------------------------------------------------------------------

VECTOR = np.linspace(0.0, 2.0, len(P))
OPTIONS = {
    "all": {},
    "weights": {"kinds": ("weight",)},
    "last layer": {"layers": [-1]},
    "relative": {"relative": True},
    "floor": {"relative": True, "floor": 0.5},
    "per layer": {"scale": {"layer0": 0.5, 2: 0.0}},
    "per parameter": {"scale": VECTOR},
    "several": {"relative": True, "kinds": ("weight",), "layers": [0], "scale": {0: 3.0}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_standard_deviations_are_the_radii_of_the_box(options):
    shifts = GaussianShifts(**options)
    radii = apas.LinfShifts(**options).radii(P)
    assert np.array_equal(shifts.radii(P), radii)
    directions = shifts.directions(P, Stream(3, "certify"), 0, 5000)
    assert directions.shape == (5000, len(P))
    assert (directions[:, radii == 0] == 0).all()
    moving = radii > 0
    ratios = directions[:, moving].std(axis=0) / radii[moving]
    assert np.abs(ratios - 1).max() < 5.5 / np.sqrt(2 * 5000)
    unit = standard_normals(int(moving.sum()), Stream(3, "certify"), 0, 5000)
    assert np.array_equal(directions[:, moving], unit * radii[moving])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_sets_are_values(options):
    shifts = GaussianShifts(**options)
    assert isinstance(shifts, ShiftSet)
    assert shifts == GaussianShifts(**options)
    assert hash(shifts) == hash(GaussianShifts(**options))
    assert shifts == pickle.loads(pickle.dumps(shifts))
    assert shifts != apas.LinfShifts(**options)
    assert json.loads(json.dumps(shifts.to_dict()))["kind"] == "gaussian"
    again = {k: v for k, v in shifts.to_dict().items() if k != "kind"}
    assert np.array_equal(GaussianShifts(**again).radii(P), shifts.radii(P))


def test_words():
    assert repr(GaussianShifts(layers=[0], scale={0: 2.0})) == "GaussianShifts(layers=(0,), scale=...)"
    words = GaussianShifts(kinds=("bias",)).measure(P)
    assert words == "each of 7 biases moves by an independent normal number of standard deviation delta, 22 fixed"
    zero = apas.FeedForward([[[0.0], [2.0]]], [[1.0]]).parameters
    assert GaussianShifts(relative=True).measure(zero) == (
        "each of 2 weights and biases moves by an independent normal number of standard deviation delta times its "
        "magnitude, 1 that is 0 and so cannot move (layer0.weight[0, 0])"
    )


REFUSED = {
    "kinds": ({"kinds": ("heads",)}, '`kinds` of GaussianShifts must hold "weight", "bias" or both'),
    "relative": ({"relative": "yes"}, "`relative` of GaussianShifts must be True or False, got 'yes'"),
    "floor": ({"floor": 0.1}, "`floor` of GaussianShifts must be at least 0 and goes with relative=True"),
    "scale": ({"scale": 3.0}, "`scale` of GaussianShifts must hold numbers"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        GaussianShifts(**options)


def test_options_that_the_model_cannot_meet():
    with pytest.raises(InputError, match="`layers` of GaussianShifts must name layers of the model"):
        GaussianShifts(layers=["head"]).radii(P)
    with pytest.raises(InputError, match="`shifts` must move at least one parameter, but GaussianShifts"):
        GaussianShifts(scale={0: 0, 1: 0, 2: 0}).radii(P)
    with pytest.raises(InputError, match="`scale` of GaussianShifts must hold finite numbers"):
        GaussianShifts(scale={0: -1.0}).radii(P)
    with pytest.raises(TypeError):
        GaussianShifts(True)


# -- membership --------------------------------------------------------------------------------------------------


def test_everything_that_only_moves_what_moves_is_contained():
    far = with_values(P, P.values + 1e6)
    assert GaussianShifts().contains(P, far, 1e-6)
    weights = GaussianShifts(kinds=("weight",))
    assert not weights.contains(P, far, 1.0)
    moved = P.values.copy()
    moved[WEIGHT1] += 5.0
    assert weights.contains(P, with_values(P, moved), 1e-6)
    assert not GaussianShifts().contains(P, with_values(P, np.full(len(P), np.nan)), 1.0)
    with pytest.raises(InputError, match="same shapes"):
        GaussianShifts().contains(P, network((3, 1)).parameters, 1.0)


# -- certificates ------------------------------------------------------------------------------------------------

LINE = apas.FeedForward([[[1.0]]], [[1.0]])  # margin 3 + delta (2 u + v) at x = 2


def test_certificates_decide_as_the_normal_probability_says():
    for delta in (0.4, 0.5, 0.6, 0.8, 1.0):
        share = stats.norm.cdf(3 / (delta * math.sqrt(5)))
        for coverage in (0.9, 0.95, 0.99, 0.995):
            if abs(share - coverage) < 0.004:
                continue
            method = Sampling(coverage=coverage)
            got = apas.certify(LINE, [[2.0]], delta, target=1, shifts="gaussian", method=method, rng=3)[0]
            assert got.verdict is (Verdict.CERTIFIED if share > coverage else Verdict.REFUTED), (delta, coverage)


def test_evidence_does_not_depend_on_rows_or_jobs():
    X = np.random.default_rng(0).normal(size=(40, 3))
    asked = {"target": "predicted", "shifts": GaussianShifts(), "rng": 5}
    whole = apas.certify(NET, X, 0.3, **asked)
    assert whole == apas.certify(NET, X, 0.3, n_jobs=2, **asked)
    assert [c.evidence for c in apas.certify(NET, X[7:9], 0.3, **asked)] == [c.evidence for c in whole[7:9]]


def test_a_witness_can_be_replayed():
    drawn = apas.Sampling(test="anytime")
    got = apas.certify(LINE, [[2.0]], 1.0, target=1, shifts=GaussianShifts(), method=drawn, rng=0)[0]
    assert got.verdict is Verdict.REFUTED
    theta = got.witness.parameters(LINE)
    assert theta[0] * 2 + theta[1] < 0
    assert got.witness.margin(LINE, [[2.0]], 1) == pytest.approx(theta[0] * 2 + theta[1])


def test_the_band_covers_draws_far_out():
    # the magnitudes behind a margin must be those of the farthest draw, not of one standard deviation
    got = GaussianShifts().magnitudes(LINE, None, np.array([[2.0]]), 1, 1.0)
    np.testing.assert_allclose(got, [2 * (1 + LARGEST) + 1 + LARGEST])


@pytest.mark.parametrize("search", ["rays", "confirm", "paper"])
def test_the_largest_standard_deviation(search):
    # P(3 + delta sqrt(5) z >= 0) >= 0.95 up to delta = 3 / (sqrt(5) 1.6449)
    truth = 3 / (math.sqrt(5) * stats.norm.ppf(0.95))
    method = Sampling(coverage=0.95, confidence=0.99)
    found = apas.max_shift(LINE, [[2.0]], target=1, shifts="gaussian", method=method, search=search, rng=1)[0]
    assert 0.6 * truth < found.delta <= truth
    if search == "rays":
        assert found.delta <= truth <= found.upper < 1.2 * truth
        assert found.provable == 0.0
        assert "standard deviation delta" in found.sentence()


def test_the_limit_is_kept():
    found = apas.max_shift(LINE, [[2.0]], target=1, shifts="gaussian", limit=0.2, rng=1)[0]
    assert found.delta == 0.2
    assert found.reached_limit


@pytest.mark.parametrize("method", ["interval", "linear", "attack", "exact", "enumeration", "cascade"])
@pytest.mark.parametrize("net", [LINE, NET], ids=["linear", "deep"])
def test_nothing_speaks_of_every_normal_shift(method, net):
    x = np.full((1, net.n_features), 2.0)
    why = (
        "have no bound, so nothing can be said about every one of them" if method != "enumeration" else "cuts up boxes"
    )
    with pytest.raises(Unsupported, match=rf'GaussianShifts.*{why}|{why}.*GaussianShifts.*use method="sampling"'):
        apas.certify(net, x, 0.1, target="predicted", shifts="gaussian", method=method)
    if method in ("interval", "linear", "exact", "cascade"):
        with pytest.raises(Unsupported, match="GaussianShifts"):
            apas.max_shift(net, x, target="predicted", shifts="gaussian", method=method)
    # whoever asks nevertheless what every shift is, is told that nothing holds for all of them
    with pytest.raises(Unsupported, match=re.escape("GaussianShifts() has no limit to how far a parameter moves")):
        GaussianShifts().region(net.parameters)


def test_robust_fraction_follows_the_normal_curve():
    deltas = [0.5, 1.0, 2.0]
    curve = apas.robust_fraction(LINE, [[2.0]], deltas, target=1, shifts="gaussian", rng=0)[0]
    truth = stats.norm.cdf(3 / (np.array(deltas) * math.sqrt(5)))
    assert (curve.lower <= truth).all()
    assert (truth <= curve.upper).all()
    assert (curve.upper - curve.lower < 0.03).all()
