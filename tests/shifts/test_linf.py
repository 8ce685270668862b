"""Boxes of shifts: what moves, how far, and that the draws are uniform, fixed and independent."""

import hashlib
import json

import numpy as np
import pytest
from scipy import stats

import apas
from apas._random import SMALL, TILE, Stream, unit_cube
from apas.shifts.base import ShiftSet

STREAM = Stream(1, "certify")


def network(sizes=(3, 4, 2, 1), seed=0):
    rng = np.random.default_rng(seed)
    pairs = list(zip(sizes, sizes[1:], strict=False))
    return apas.FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=o) for _, o in pairs])


NET = network()
P = NET.parameters
SMALL_NET, LARGE_NET = network((3, 4, 1)), network((30, 40, 5, 1))
PART = dict(zip(P.names, P.slices, strict=True))
WEIGHT0, BIAS0, WEIGHT1, BIAS1, WEIGHT2, BIAS2 = P.slices


def radii_of(*parts):
    """Zero but for the given (slice, value) pairs."""
    radii = np.zeros(len(P))
    for part, value in parts:
        radii[part] = value
    return radii


ABS = np.abs(P.values)
TENSORS = [np.full(shape, i + 0.5) for i, shape in enumerate(P.shapes)]
VECTOR = np.arange(len(P), dtype=float)
RADII = {
    "default": ({}, np.ones(len(P))),
    "weights": ({"kinds": ("weight",)}, radii_of((WEIGHT0, 1), (WEIGHT1, 1), (WEIGHT2, 1))),
    "biases": ({"kinds": ("bias",)}, radii_of((BIAS0, 1), (BIAS1, 1), (BIAS2, 1))),
    "one kind as text": ({"kinds": "bias"}, radii_of((BIAS0, 1), (BIAS1, 1), (BIAS2, 1))),
    "kinds in another order": ({"kinds": ("bias", "weight")}, np.ones(len(P))),
    "layer by index": ({"layers": [1]}, radii_of((WEIGHT1, 1), (BIAS1, 1))),
    "layer by number alone": ({"layers": 1}, radii_of((WEIGHT1, 1), (BIAS1, 1))),
    "layer by name": ({"layers": ["layer1"]}, radii_of((WEIGHT1, 1), (BIAS1, 1))),
    "layer by name alone": ({"layers": "layer1"}, radii_of((WEIGHT1, 1), (BIAS1, 1))),
    "last layer": ({"layers": [-1]}, radii_of((WEIGHT2, 1), (BIAS2, 1))),
    "first from the end": ({"layers": [-3]}, radii_of((WEIGHT0, 1), (BIAS0, 1))),
    "two layers": ({"layers": (0, "layer2")}, radii_of((WEIGHT0, 1), (BIAS0, 1), (WEIGHT2, 1), (BIAS2, 1))),
    "a layer named twice": ({"layers": [0, "layer0", -3]}, radii_of((WEIGHT0, 1), (BIAS0, 1))),
    "indices of NumPy": ({"layers": np.array([1])}, radii_of((WEIGHT1, 1), (BIAS1, 1))),
    "bias of the last layer": ({"kinds": ("bias",), "layers": [-1]}, radii_of((BIAS2, 1))),
    "relative": ({"relative": True}, ABS),
    "relative weights of a layer": (
        {"relative": True, "kinds": ("weight",), "layers": [0]},
        np.where(radii_of((WEIGHT0, 1)), ABS, 0),
    ),
    "relative with floor": ({"relative": True, "floor": 0.5}, np.maximum(ABS, 0.5)),
    "scale per layer": (
        {"scale": {0: 2.0, "layer2": 0.25}},
        radii_of((WEIGHT0, 2), (BIAS0, 2), (WEIGHT1, 1), (BIAS1, 1), (WEIGHT2, 0.25), (BIAS2, 0.25)),
    ),
    "scale of the last layer": (
        {"scale": {-1: 3}},
        radii_of((WEIGHT0, 1), (BIAS0, 1), (WEIGHT1, 1), (BIAS1, 1), (WEIGHT2, 3), (BIAS2, 3)),
    ),
    "a layer scaled to nothing": (
        {"scale": {"layer1": 0.0}},
        radii_of((WEIGHT0, 1), (BIAS0, 1), (WEIGHT2, 1), (BIAS2, 1)),
    ),
    "scale per tensor": ({"scale": TENSORS}, np.concatenate([t.ravel() for t in TENSORS])),
    "scale per tensor as lists": (
        {"scale": [t.tolist() for t in TENSORS]},
        np.concatenate([t.ravel() for t in TENSORS]),
    ),
    "scale as a vector": ({"scale": VECTOR}, VECTOR),
    "scale as a list": ({"scale": VECTOR.tolist()}, VECTOR),
    "scale of integers": ({"scale": np.arange(len(P))}, VECTOR),
    "all together": (
        {"relative": True, "kinds": ("weight",), "layers": [0, 1], "scale": {1: 0.5}, "floor": 0.1},
        np.maximum(ABS, 0.1) * radii_of((WEIGHT0, 1), (WEIGHT1, 0.5)),
    ),
    "vector and layer": ({"layers": [2], "scale": VECTOR}, VECTOR * radii_of((WEIGHT2, 1), (BIAS2, 1))),
}


@pytest.mark.parametrize(("options", "expected"), RADII.values(), ids=RADII)
def test_radii(options, expected):
    got = apas.LinfShifts(**options).radii(P)
    np.testing.assert_allclose(got, expected, rtol=1e-15)


@pytest.mark.parametrize(("options", "expected"), RADII.values(), ids=RADII)
def test_directions_fill_the_box_and_nothing_else(options, expected):
    directions = apas.LinfShifts(**options).directions(P, STREAM, 0, 3000)
    assert directions.shape == (3000, len(P))
    assert directions.dtype == np.float64
    assert (np.abs(directions) <= expected).all()
    assert (directions[:, expected == 0] == 0).all()
    reached = np.abs(directions[:, expected > 0]).max(axis=0) / expected[expected > 0]
    assert (reached > 0.99).all()
    assert (directions[:, expected > 0].min(axis=0) < 0).all()
    assert (directions[:, expected > 0].max(axis=0) > 0).all()


def test_a_zero_parameter_never_moves_relatively_unless_it_has_a_floor():
    net = apas.FeedForward([[[0.0], [2.0]]], [[-0.5]])
    relative = apas.LinfShifts(relative=True)
    assert relative.radii(net.parameters).tolist() == [0.0, 2.0, 0.5]
    assert (relative.directions(net.parameters, STREAM, 0, 500)[:, 0] == 0).all()
    floored = apas.LinfShifts(relative=True, floor=0.75)
    assert floored.radii(net.parameters).tolist() == [0.75, 2.0, 0.75]
    assert floored.directions(net.parameters, STREAM, 0, 500)[:, 0].any()


# -- a pure function of seed and index ---------------------------------------------------------------------------

CUTS = [
    [0, 500],
    [0, 1, 2, 500],
    [0, 63, 64, 65, 128, 500],
    [0, 250, 250, 500],
    [0, 100, 300, 437, 500],
    [0, *range(64, 500, 64), 500],
    [0, *range(13, 500, 13), 500],
]
SETS = {
    "default": apas.LinfShifts(),
    "weights": apas.LinfShifts(kinds=("weight",)),
    "relative": apas.LinfShifts(relative=True),
    "a layer": apas.LinfShifts(layers=[-1]),
    "scaled": apas.LinfShifts(scale={0: 0.5, -1: 2.0}),
}


@pytest.mark.parametrize("cuts", CUTS, ids=[str(len(c)) for c in CUTS])
@pytest.mark.parametrize("net", [SMALL_NET, LARGE_NET], ids=["small", "large"])
@pytest.mark.parametrize("name", SETS)
def test_blocks_do_not_matter(name, net, cuts):
    shifts = SETS[name]
    whole = shifts.directions(net.parameters, STREAM, 0, 500)
    parts = [shifts.directions(net.parameters, STREAM, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_nets_above_are_on_both_sides_of_small():
    assert len(SMALL_NET.parameters) <= SMALL < len(LARGE_NET.parameters)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, SMALL - 1, SMALL, SMALL + 1, 2000])
def test_single_draws_anywhere(size):
    whole = unit_cube(size, STREAM, 0, 200)
    assert whole.shape == (200, size)
    for i in (0, 1, 63, 64, 65, 127, 128, 199):
        assert np.array_equal(unit_cube(size, STREAM, i, i + 1), whole[i : i + 1])
    assert unit_cube(size, STREAM, 70, 70).shape == (0, size)
    assert unit_cube(size, STREAM, 128, 128).shape == (0, size)


@pytest.mark.parametrize("size", [1, 7, SMALL, SMALL + 1])
def test_the_number_behind_each_coordinate(size):
    # what anyone who checks a certificate without apas has to know: draws of small models are laid out in tiles
    cube = unit_cube(size, STREAM, 0, 300)
    for i, j in [(0, 0), (1, 0), (63, size // 2), (64, 0), (127, size - 1), (128, size // 3), (299, size - 1)]:
        place = i * size + j if size > SMALL else (i // TILE * size + j) * TILE + i % TILE
        assert cube[i, j] == STREAM.integers(place, 1)[0] * 2.0**-31


def test_draws_far_out():
    far = 10**12
    assert np.array_equal(unit_cube(5, STREAM, far, far + 100)[17:40], unit_cube(5, STREAM, far + 17, far + 40))
    assert np.array_equal(unit_cube(1500, STREAM, far, far + 20)[7:9], unit_cube(1500, STREAM, far + 7, far + 9))


@pytest.mark.parametrize("net", [SMALL_NET, LARGE_NET], ids=["small", "large"])
def test_seeds_and_purposes_differ(net):
    shifts = apas.LinfShifts()
    drawn = [
        shifts.directions(net.parameters, Stream(e, p), 0, 4)
        for e, p in [(1, "certify"), (2, "certify"), (1, "search")]
    ]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert not (one == other).any()


def test_asking_twice_gives_arrays_of_one_s_own():
    shifts = apas.LinfShifts()
    first = shifts.directions(P, STREAM, 0, 10)
    kept = first.copy()
    first *= 0.0
    assert np.array_equal(shifts.directions(P, STREAM, 0, 10), kept)


PINNED = {
    "small": (SMALL_NET, "7a091c497b141e0c8bad730b55b713e770c0afe98066477a05b5c2ec8ac25c84"),
    "large": (LARGE_NET, "582db92fcfc84a2d642f0b141b875482d6e6a4660a4dd9f7499a3876e07a4702"),
}


@pytest.mark.parametrize(("net", "expected"), PINNED.values(), ids=PINNED)
def test_the_first_directions_never_change(net, expected):
    # A certificate keeps its draws as a seed and indices only. If this test fails, old certificates can no longer be
    # checked: undo the change, or give the new draws a new version.
    drawn = apas.LinfShifts().directions(net.parameters, STREAM, 0, 100)
    assert hashlib.sha256(np.ascontiguousarray(drawn, dtype="<f8").tobytes()).hexdigest() == expected


# -- the distribution --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, SMALL + 1])
def test_marginals_are_uniform(size):
    n = 20_000 if size < 100 else 4_000
    cube = unit_cube(size, Stream(2024, "certify"), 0, n)
    assert cube.min() >= -1.0
    assert cube.max() < 1.0
    coordinates = range(size) if size < 100 else [0, 1, 17, 500, size - 1]
    for j in coordinates:
        assert stats.kstest(cube[:, j], stats.uniform(-1, 2).cdf).pvalue > 1e-4
        assert abs(cube[:, j].mean()) < 5 / np.sqrt(3 * n)
        assert abs(cube[:, j].var() - 1 / 3) < 5 * np.sqrt(4 / 45 / n)
    # along a draw, too: neighbouring coordinates come from neighbouring words
    assert stats.kstest(cube[:4000].ravel()[:20_000], stats.uniform(-1, 2).cdf).pvalue > 1e-4


@pytest.mark.parametrize("size", [6, SMALL + 1])
def test_coordinates_and_draws_are_uncorrelated(size):
    n = 20_000 if size < 100 else 4_000
    cube = unit_cube(size, Stream(2025, "certify"), 0, n)[:, :6]
    columns = np.column_stack([cube[:-1], cube[1:], cube[:-1] ** 2, cube[1:] ** 2])  # also from one draw to the next
    correlations = np.corrcoef(columns, rowvar=False)[np.triu_indices(24, 1)]
    assert np.abs(correlations).max() < 5.5 / np.sqrt(n)


def test_pairs_fill_the_square():
    cube = unit_cube(4, Stream(2026, "certify"), 0, 40_000)
    for i, j in [(0, 1), (1, 3)]:
        counts, _, _ = np.histogram2d(cube[:, i], cube[:, j], bins=16, range=[[-1, 1], [-1, 1]])
        assert stats.chisquare(counts.ravel()).pvalue > 1e-4


def test_scaled_marginals_are_uniform_on_their_own_interval():
    shifts = apas.LinfShifts(relative=True)
    directions = shifts.directions(P, Stream(3, "certify"), 0, 10_000)
    for j in (0, 5, len(P) - 1):
        r = abs(P.values[j])
        assert stats.kstest(directions[:, j], stats.uniform(-r, 2 * r).cdf).pvalue > 1e-4


def test_the_sign_of_a_linear_margin_has_the_probability_that_geometry_says():
    # f = w x + b with x = 2, w = b = 0: valid where 2u + v >= 0, half of the square
    # and towards a threshold: P(2u + v >= 1) = 1/4 of the square by integration
    net = apas.FeedForward([[[0.0]]], [[0.0]], output="identity", threshold=1.0)
    shifts = apas.LinfShifts()
    margins = shifts.margins(net, np.array([[2.0]]), 1, shifts.directions(net.parameters, STREAM, 0, 40_000), 1.0)
    assert stats.binomtest(int((margins >= 0).sum()), 40_000, 0.25).pvalue > 1e-4


# -- membership --------------------------------------------------------------------------------------------------


def line(w, b):
    return apas.FeedForward([[[w]]], [[b]]).parameters


BASE = line(1.0, -2.0)
INSIDE = [
    ({}, (1.0, -2.0), 0.5, True),
    ({}, (1.5, -2.5), 0.5, True),
    ({}, (0.5, -1.5), 0.5, True),
    ({}, (np.nextafter(1.5, 2), -2.0), 0.5, False),
    ({}, (1.0, np.nextafter(-2.5, -3)), 0.5, False),
    ({}, (1.5, -2.5), np.nextafter(0.5, 0), False),
    ({"kinds": ("weight",)}, (1.5, -2.0), 0.5, True),
    ({"kinds": ("weight",)}, (1.0, np.nextafter(-2.0, 0)), 0.5, False),
    ({"relative": True}, (1.5, -3.0), 0.5, True),
    ({"relative": True}, (1.5, np.nextafter(-3.0, -4)), 0.5, False),
    ({"relative": True}, (np.nextafter(1.5, 2), -2.0), 0.5, False),
    ({"scale": np.array([2.0, 0.0])}, (2.0, -2.0), 0.5, True),
    ({"scale": np.array([2.0, 0.0])}, (2.0, np.nextafter(-2.0, 0)), 0.5, False),
    ({"scale": np.array([2.0, 0.0])}, (np.nextafter(2.0, 3), -2.0), 0.5, False),
]


@pytest.mark.parametrize(("options", "other", "delta", "inside"), INSIDE)
def test_contains(options, other, delta, inside):
    answer = apas.LinfShifts(**options).contains(BASE, line(*other), delta)
    assert answer is inside


QUARTERS = apas.FeedForward(  # sums and products of quarters and of drawn numbers are exact
    [np.round(4 * w) / 4 for w in NET.weights], [np.round(4 * b) / 4 + 0.25 for b in NET.biases]
).parameters
EXACT = [{}, {"kinds": ("weight",)}, {"relative": True}, {"layers": [-1]}, {"scale": {0: 0.5}}, {"scale": VECTOR}]


@pytest.mark.parametrize("options", EXACT, ids=[str(i) for i in range(len(EXACT))])
def test_every_draw_is_contained_and_just_so(options):
    shifts = apas.LinfShifts(**options)
    radii = shifts.radii(QUARTERS)
    for u in shifts.directions(QUARTERS, STREAM, 0, 50):
        other = apas.Parameters(
            QUARTERS.values + 0.25 * u,
            QUARTERS.names,
            QUARTERS.kinds,
            QUARTERS.layers,
            QUARTERS.shapes,
            QUARTERS.slices,
        )
        assert shifts.contains(QUARTERS, other, 0.25)
        needed = 0.25 * np.max(np.abs(u[radii > 0]) / radii[radii > 0])
        assert shifts.contains(QUARTERS, other, needed * (1 + 1e-12))
        assert not shifts.contains(QUARTERS, other, needed * (1 - 1e-12))


def test_nan_is_not_contained():
    other = apas.Parameters(np.array([np.nan, -2.0]), BASE.names, BASE.kinds, BASE.layers, BASE.shapes, BASE.slices)
    assert apas.LinfShifts().contains(BASE, other, 1e300) is False


def test_models_of_other_shapes_are_refused():
    with pytest.raises(apas.InputError, match="same shapes"):
        apas.LinfShifts().contains(BASE, P, 0.5)


# -- words, equality, files --------------------------------------------------------------------------------------

MEASURES = [
    (
        {},
        r"uniform on the box in which each of 25 weights and biases moves by at most delta$".replace("25", str(len(P))),
    ),
    ({"kinds": ("weight",)}, r"each of 22 weights moves by at most delta, 7 fixed$"),
    ({"kinds": ("bias",)}, r"each of 7 biases moves by at most delta, 22 fixed$"),
    ({"layers": [0]}, r"each of 16 weights and biases of layer0 moves"),
    ({"layers": [-1, "layer1"]}, r"of layer1, layer2 moves"),
    ({"relative": True}, r"moves by at most delta times its magnitude$"),
    ({"scale": {0: 2.0}}, r"moves by at most delta times its scale$"),
    ({"relative": True, "scale": {0: 2.0}}, r"delta times its magnitude times its scale$"),
    ({"scale": {0: 0.0}}, r"each of 13 .*, 16 fixed$"),
]


@pytest.mark.parametrize(("options", "text"), MEASURES)
def test_the_measure_says_what_moves(options, text):
    import re

    measure = apas.LinfShifts(**options).measure(P)
    assert re.search(text, measure), measure
    assert "\n" not in measure


def test_the_measure_tells_a_floor():
    # a relative set with a floor is another distribution, and the claim must say so
    with_floor = apas.LinfShifts(relative=True, floor=0.5).measure(P)
    assert with_floor != apas.LinfShifts(relative=True).measure(P)
    assert "0.5" in with_floor


def test_relative_shifts_tell_how_many_parameters_are_zero():
    net = apas.FeedForward([[[0.0], [0.0], [2.0]]], [[-0.5]])
    assert "2 that are 0 and so cannot move (layer0.weight[0, 0], layer0.weight[1, 0])" in apas.LinfShifts(
        relative=True
    ).measure(net.parameters)


OPTIONS = [
    {},
    {"relative": True},
    {"relative": True, "floor": 0.1},
    {"relative": True, "floor": 0.2},
    {"kinds": ("weight",)},
    {"kinds": ("bias",)},
    {"layers": [0]},
    {"layers": [1]},
    {"layers": [0, 1]},
    {"scale": {0: 2.0}},
    {"scale": {0: 3.0}},
    {"scale": {"layer0": 2.0}},
    {"scale": VECTOR},
    {"scale": VECTOR + 1},
    {"scale": TENSORS},
]


def test_equality_and_hash():
    sets = [apas.LinfShifts(**options) for options in OPTIONS]
    for i, one in enumerate(sets):
        assert one == apas.LinfShifts(**OPTIONS[i])
        assert hash(one) == hash(apas.LinfShifts(**OPTIONS[i]))
        assert all(one != other for j, other in enumerate(sets) if j != i)
        assert one != "linf"
    assert len(set(sets)) == len(sets)


def test_lists_and_tuples_are_the_same():
    assert apas.LinfShifts(layers=[0, 1], kinds=["weight"]) == apas.LinfShifts(layers=(0, 1), kinds=("weight",))


@pytest.mark.parametrize("options", OPTIONS, ids=[str(i) for i in range(len(OPTIONS))])
def test_to_dict_is_json_from_which_the_set_can_be_built_again(options):
    shifts = apas.LinfShifts(**options)
    content = json.loads(json.dumps(shifts.to_dict(), allow_nan=False))
    assert content.pop("kind") == "linf"
    again = apas.LinfShifts(**content)
    assert again == shifts
    assert np.array_equal(again.radii(P), shifts.radii(P))


def test_indices_of_numpy_are_json_too():
    json.dumps(apas.LinfShifts(layers=list(np.arange(2))).to_dict())


def test_repr():
    assert repr(apas.LinfShifts()) == "LinfShifts()"
    assert repr(apas.LinfShifts(kinds="bias", layers=0)) == "LinfShifts(kinds=('bias',), layers=(0,))"
    assert "scale" in repr(apas.LinfShifts(scale=VECTOR))
    assert len(repr(apas.LinfShifts(scale=np.ones(10_000)))) < 100


@pytest.mark.parametrize("make", [lambda a: a, lambda a: [t.copy() for t in TENSORS]], ids=["vector", "tensors"])
def test_the_set_does_not_change_with_the_arrays_it_was_made_from(make):
    given = make(VECTOR + 1.0)
    shifts = apas.LinfShifts(scale=given)
    radii, key = shifts.radii(P).copy(), hash(shifts)
    for array in given if isinstance(given, list) else [given]:
        array *= 7.0
    assert np.array_equal(shifts.radii(P), radii)
    assert hash(shifts) == key


def test_the_set_does_not_change_with_the_mapping_it_was_made_from():
    given = {0: 2.0}
    shifts = apas.LinfShifts(scale=given)
    given[0] = 5.0
    assert shifts == apas.LinfShifts(scale={0: 2.0})


def test_it_is_a_frozen_shift_set_with_named_options():
    shifts = apas.LinfShifts()
    assert isinstance(shifts, ShiftSet)
    with pytest.raises(AttributeError):
        shifts.relative = True
    with pytest.raises(TypeError):
        apas.LinfShifts(True)


def test_margins_are_those_of_the_model():
    shifts = apas.LinfShifts()
    directions = shifts.directions(P, STREAM, 0, 20)
    X = np.random.default_rng(0).normal(size=(4, 3))
    assert np.array_equal(shifts.margins(NET, X, 1, directions, 0.2), NET.shifted_margins(X, 1, directions, 0.2))


# -- refusals ----------------------------------------------------------------------------------------------------

NOTHING = {
    "no layers": {"layers": []},
    "all scales 0": {"scale": np.zeros(len(P))},
    "all layers scaled to nothing": {"scale": {0: 0, 1: 0, 2: 0}},
    "the only layer scaled to nothing": {"layers": [1], "scale": {"layer1": 0.0}},
}


@pytest.mark.parametrize("options", NOTHING.values(), ids=NOTHING)
def test_a_set_that_moves_nothing_is_an_error(options):
    shifts = apas.LinfShifts(**options)
    for ask in (shifts.radii, shifts.measure, lambda p: shifts.directions(p, STREAM, 0, 5)):
        with pytest.raises(
            apas.InputError, match="`shifts` must move at least one parameter, but LinfShifts.* moves none"
        ):
            ask(P)
    with pytest.raises(apas.InputError, match="`shifts` must move at least one parameter"):
        apas.certify(NET, [[0.0, 0.0, 0.0]], 0.1, target="predicted", shifts=shifts)


def test_relative_shifts_of_a_zero_model_move_nothing():
    net = apas.FeedForward([np.zeros((2, 1))], [[0.0]])
    with pytest.raises(apas.InputError, match="`shifts` must move at least one parameter"):
        apas.certify(net, [[1.0, 1.0]], 0.1, target=1, shifts=apas.LinfShifts(relative=True))


BAD = {
    "unknown kind": ({"kinds": ("weights",)}, '`kinds` of LinfShifts must hold "weight", "bias" or both'),
    "a kind named twice": ({"kinds": ("weight", "weight")}, '`kinds` of LinfShifts must hold "weight", "bias" or both'),
    "no kind": ({"kinds": ()}, "`kinds` of LinfShifts must hold"),
    "a number as kinds": ({"kinds": 3}, "`kinds` of LinfShifts must hold"),
    "None as kinds": ({"kinds": None}, "`kinds` of LinfShifts must hold"),
    "unknown layer": (
        {"layers": ["output"]},
        r"`layers` of LinfShifts must name layers of the model \(layer0, layer1, layer2\).*got 'output'",
    ),
    "layer 3": ({"layers": [3]}, r"`layers` of LinfShifts.*\(0 to 2\), got 3"),
    "layer -4": ({"layers": [-4]}, "`layers` of LinfShifts.*got -4"),
    "layer True": ({"layers": [True]}, "`layers` of LinfShifts.*got True"),
    "layer 1.0": ({"layers": [1.0]}, "`layers` of LinfShifts.*got 1.0"),
    "unknown layer to scale": ({"scale": {"output": 2.0}}, "`scale` of LinfShifts must name layers.*got 'output'"),
    "negative factor": ({"scale": {0: -1.0}}, "`scale` of LinfShifts must hold finite numbers of at least 0"),
    "NaN factor": ({"scale": {0: np.nan}}, "`scale` of LinfShifts must hold finite numbers"),
    "infinite factor": ({"scale": {0: np.inf}}, "`scale` of LinfShifts must hold finite numbers"),
    "text factor": ({"scale": {0: "big"}}, "`scale` of LinfShifts"),
    "negative vector": (
        {"scale": np.where(VECTOR == 3, -1.0, 1.0)},
        "`scale` of LinfShifts must hold finite numbers of at least 0",
    ),
    "short vector": ({"scale": VECTOR[:-1]}, "`scale` of LinfShifts must be a factor per layer"),
    "tensors of other shapes": ({"scale": TENSORS[:-1]}, "`scale` of LinfShifts must be a factor per layer"),
    "transposed tensors": ({"scale": [t.T for t in TENSORS]}, "`scale` of LinfShifts must be a factor per layer"),
    "texts": ({"scale": ["a", "b"]}, "`scale` of LinfShifts"),
    "a text": ({"scale": "ab"}, "`scale` of LinfShifts"),
    "a number": ({"scale": 2.0}, "`scale` of LinfShifts"),
    "negative floor": ({"relative": True, "floor": -1.0}, "`floor` of LinfShifts must be at least 0"),
    "NaN floor": ({"relative": True, "floor": np.nan}, "`floor` of LinfShifts must be"),
    "infinite floor": ({"relative": True, "floor": np.inf}, "`floor` of LinfShifts must be"),
    "text floor": ({"relative": True, "floor": "a"}, "`floor` of LinfShifts must be"),
    "floor without relative": (
        {"floor": 0.1},
        "`floor` of LinfShifts must be at least 0 and goes with relative=True, got 0.1",
    ),
    "relative as text": ({"relative": "no"}, "`relative` of LinfShifts must be True or False"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_bad_input(options, message):
    with pytest.raises(apas.InputError, match=message) as caught:
        apas.certify(NET, [[0.0, 0.0, 0.0]], 0.1, target="predicted", shifts=apas.LinfShifts(**options), rng=0)
    assert "\n" not in str(caught.value)


def test_contains_is_decided_in_real_arithmetic():
    base = apas.FeedForward([[[0.3]]], [[0.0]]).parameters
    inside, outside = (apas.FeedForward([[[w]]], [[0.0]]).parameters for w in (0.39999999999999997, 0.4))
    assert apas.LinfShifts().contains(base, inside, 0.1)
    assert not apas.LinfShifts().contains(base, outside, 0.1)
    # in floating point 1 - -1e-17 is 1, and 0.1 * 0.1 more than it is
    tiny = apas.FeedForward([[[-1e-17]]], [[0.0]]).parameters
    assert not apas.LinfShifts().contains(tiny, apas.FeedForward([[[1.0]]], [[0.0]]).parameters, 1.0)
    zero, product = (apas.FeedForward([[[w]]], [[0.0]]).parameters for w in (0.0, 0.1 * 0.1))
    assert not apas.LinfShifts(scale=np.array([0.1, 0.1])).contains(zero, product, 0.1)


def test_kinds_read_alike_in_any_order():
    there, back = apas.LinfShifts(kinds=("weight", "bias")), apas.LinfShifts(kinds=("bias", "weight"))
    assert there == back == apas.LinfShifts(kinds={"bias", "weight"})
    assert there.measure(P) == back.measure(P)


def test_options_of_numpy_become_json():
    options = apas.LinfShifts(relative=np.True_, floor=np.float32(0.5)).to_dict()
    assert json.loads(json.dumps(options)) == options


def test_of_many_zeros_three_are_named():
    parameters = apas.FeedForward([np.zeros((1000, 1))], [[2.0]]).parameters
    words = apas.LinfShifts(relative=True).measure(parameters)
    first = ", ".join(f"{parameters.names[0]}[{i}, 0]" for i in range(3))
    assert words.endswith(f"1000 that are 0 and so cannot move ({first}, ...)")
