"""Rows that move in the worst case, alone and together with the model: against brute force, patterns, draws, attacks."""

from itertools import product

import numpy as np
import pytest

import apas
from apas import FeedForward, InputNoise, JointShifts, LinfShifts, Verdict
from apas._random import Stream
from apas.models.dense_chain import dense_chain
from tests.activation_patterns import least_margin
from tests.problems import network

SETS = [
    InputNoise(scale=[1.0, 0.5, 0.0]),
    JointShifts(row=InputNoise(scale=[0.5, 1.0, 2.0])),
    JointShifts(parameters=LinfShifts(layers=[-1], relative=True, floor=0.1), row=InputNoise(features=[1])),
]
METHODS = ("interval", "linear", "attack", "exact", apas.Enumeration(max_boxes=300))


def embedded(net, shifts):
    """The network with its row, and how far its parameters move."""
    chain, what = shifts.embed(dense_chain(net)), shifts.coordinates(net)
    return chain, what, chain.reach(shifts.radii(what))


def least_by_patterns(net, x, target, shifts, delta):
    """The least margin, from all activation patterns of the network with its row."""
    chain, _, reach = embedded(net, shifts)
    rivals = [0] if len(net.biases[-1]) == 1 else [c for c in range(len(net.classes)) if c != target]
    return min(least_margin(chain.network, x, target, rival, reach, delta).value for rival in rivals)


def test_noise_of_a_linear_model_against_all_corners():
    rng = np.random.default_rng(1)
    for seed in range(20):
        net, x = network([4, 1], "sigmoid", (), seed), rng.normal(size=4)
        target, scale = int(net.margin(x[None], 1)[0] >= 0), rng.uniform(0, 2, 4)
        corners = x + 0.3 * scale * np.array(list(product((-1, 1), repeat=4)))
        least = net.margin(corners, target).min()
        found = apas.certify(net, x[None], 0.3, target=target, shifts=InputNoise(scale=scale), method="exact")[0]
        assert found.is_certified == (least > 0)
        assert found.evidence.exact or found.witness is not None
        if found.is_certified:
            assert found.evidence.bound == pytest.approx(least, rel=1e-5)
        ranges = apas.output_range(net, x[None], 0.3, target=target, shifts=InputNoise(scale=scale), method="exact")[0]
        assert ranges.low == pytest.approx(least, abs=1e-9)
        radius = apas.max_shift(net, x[None], target=target, shifts=InputNoise(scale=scale), method="exact")[0]
        slope = np.abs(net.weights[0][:, 0]) @ scale  # of a linear margin the radius is known
        assert radius.delta == pytest.approx(net.margin(x[None], target)[0] / slope, rel=1e-9)


def test_joint_shifts_of_a_linear_model_in_closed_form():
    rng = np.random.default_rng(2)
    for seed in range(20):
        net, x = network([3, 1], "sigmoid", (), seed), rng.normal(size=3)
        target, delta = int(net.margin(x[None], 1)[0] >= 0), 0.2
        signs = np.array(list(product((-1, 1), repeat=3)))
        # the margin is least at a corner of both boxes: it is linear in the row for given weights, and the other way
        rows = x + 0.5 * delta * signs
        least = min(
            ((2 * target - 1) * (row @ (net.weights[0][:, 0] + delta * s) + net.biases[0][0] - net.offset) - delta)
            for row in rows for s in signs
        )  # fmt: skip
        shifts = JointShifts(row=InputNoise(scale=0.5))
        found = apas.certify(net, x[None], delta, target=target, shifts=shifts, method="exact")[0]
        assert found.is_certified == (least > 0)
        if found.is_certified:
            assert found.evidence.exact
            assert found.evidence.bound == pytest.approx(least, rel=1e-5)


def check_against_patterns(seeds, sizes, kinds):
    """Exact verdicts, bounds and witnesses against the least margin over all activation patterns."""
    decided = dict.fromkeys(Verdict.__members__, 0)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        net = network(sizes, "sigmoid" if sizes[-1] == 1 else "softmax", kinds[seed % len(kinds)], seed)
        x, shifts = rng.normal(size=sizes[0]), SETS[seed % len(SETS)]
        margins = [net.margin(x[None], c)[0] for c in net.classes]
        target, delta = int(np.argmax(margins)), float(rng.uniform(0.02, 0.4))
        least = least_by_patterns(net, x, target, shifts, delta)
        for method in METHODS:
            found = apas.certify(net, x[None], delta, target=target, shifts=shifts, method=method, rng=0)[0]
            assert not (found.is_certified and least < -1e-9)
            assert not (found.verdict is Verdict.REFUTED and least > 1e-9)
            if method == "exact":
                decided[found.verdict.name] += 1
                assert found.verdict is not Verdict.UNKNOWN or abs(least) < 1e-5
            if found.is_certified and hasattr(found.evidence, "bound"):
                assert found.evidence.bound <= least + 1e-9
            if found.witness is not None:
                assert found.witness.margin(net, x[None], target) <= 0
            assert apas.verify(
                apas.certify(net, x[None], delta, target=target, shifts=shifts, method=method, rng=0), net
            ).ok
    return decided


def test_one_hidden_layer_against_activation_patterns():
    found = check_against_patterns(range(12), [3, 3, 1], ("relu", "leaky_relu", "hard_tanh"))
    assert min(found["CERTIFIED"], found["REFUTED"]) > 0


@pytest.mark.validity
def test_more_networks_against_activation_patterns():
    found = check_against_patterns(range(12, 150), [3, 4, 1], ("relu", "leaky_relu", "hard_tanh"))
    assert min(found["CERTIFIED"], found["REFUTED"]) > 10
    found = check_against_patterns(range(60), [3, 3, 3], ("relu", "leaky_relu"))
    assert min(found["CERTIFIED"], found["REFUTED"]) > 5


def worst_drawn(net, X, target, shifts, delta, draws):
    """The least margins on many draws and on as many corners."""
    what = shifts.coordinates(net)
    drawn = shifts.directions(what, Stream(5, "certify"), 0, draws)
    unit = np.sign(drawn) if isinstance(shifts, InputNoise) else None
    if unit is None:
        unit, count = np.sign(drawn), len(net.parameters)
        unit[:, :count] *= shifts.parameters.radii(net.parameters)
    both = [shifts.margins(net, X, target, u, delta) for u in (drawn, unit)]
    return np.minimum(*[m.min(axis=0) for m in both])


def check_against_draws(seeds, draws):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        sizes = [3, *rng.integers(2, 7, size=int(rng.integers(0, 4))).tolist(), int(rng.choice([1, 3]))]
        kind = str(rng.choice(["relu", "tanh", "gelu", "elu", "softplus", "sigmoid", "leaky_relu", "hard_tanh"]))
        net = network(sizes, "sigmoid" if sizes[-1] == 1 else "softmax", kind, seed)
        X, shifts = rng.normal(size=(3, 3)), SETS[seed % len(SETS)]
        target = int(np.argmax([net.margin(X[:1], c)[0] for c in net.classes]))
        X, delta = X[net.margin(X, target) > 0], float(10 ** rng.uniform(-3, -0.3))
        least = worst_drawn(net, X, target, shifts, delta, draws)
        for method in ("interval", "linear", "attack"):
            found = apas.certify(net, X, delta, target=target, shifts=shifts, method=method, rng=0)
            for c, x, low in zip(found, X, least, strict=True):
                assert not (c.is_certified and low <= 0)
                assert c.evidence.bound is None or c.evidence.bound <= low + 1e-12
                assert c.witness is None or c.witness.margin(net, x[None], target) <= 0
            ranges = apas.output_range(net, X, delta, target=target, shifts=shifts, method="interval")
            assert all(r.low <= low + 1e-12 for r, low in zip(ranges, least, strict=True))
        for method in ("interval", "linear"):
            for radius, x in zip(apas.max_shift(net, X, target=target, shifts=shifts, method=method), X, strict=True):
                if radius.delta:
                    assert worst_drawn(net, x[None], target, shifts, radius.delta, draws)[0] > 0
                assert radius.delta <= radius.broken_at


def test_no_draw_corner_or_attack_contradicts_a_bound():
    check_against_draws(range(15), 2000)


@pytest.mark.validity
def test_no_draw_corner_or_attack_contradicts_a_bound_in_many_networks():
    check_against_draws(range(15, 200), 50_000)


def test_enumeration_finds_the_share_of_noise():
    # one feature of weight 2 moves by u in [-0.5, 0.5] from 0.1: valid where 0.2 + 2 u >= 0
    net = FeedForward([[[2.0]]], [[0.0]])
    curve = apas.robust_fraction(
        net, [[0.1]], [0.5], target=1, shifts=InputNoise(), method=apas.Enumeration(coverage=0.5, gap=1e-4)
    )[0]
    assert curve.lower[0] <= 0.6 <= curve.upper[0]
    assert curve.upper[0] - curve.lower[0] <= 1e-4


def test_joint_draws_are_the_models_asked_about_moved_rows():
    net, X = network([3, 4, 1], "sigmoid", "tanh", 3), np.random.default_rng(0).normal(size=(2, 3))
    for shifts in (SETS[1], JointShifts(row=InputNoise(integers=[0], scale=3.0))):
        what = shifts.coordinates(net)
        drawn = shifts.directions(what, Stream(1, "certify"), 0, 50)
        found = shifts.margins(net, X, 1, drawn, np.array([0.5, 0.2]))
        for row, delta in enumerate((0.5, 0.2)):
            moved = shifts.row.moved(net, X[row : row + 1], drawn[:, len(net.parameters) :], delta)
            for i, direction in enumerate(drawn):
                shifted = net.with_parameters(shifts.shifted_parameters(net, direction, delta))
                assert found[i, row] == pytest.approx(shifted.margin(moved[i], 1)[0], abs=1e-10)


def test_files_audits_reports_and_sentences_know_joint_shifts(tmp_path):
    net, X = network([3, 4, 1], "sigmoid", "relu", 4), np.random.default_rng(1).normal(size=(4, 3))
    shifts = JointShifts(parameters=LinfShifts(kinds=("weight",)), row=InputNoise(scale=0.5))
    assert JointShifts.from_dict is not None
    for method in ("exact", "sampling", "attack"):
        found = apas.certify(net, X, 0.3, target="predicted", shifts=shifts, method=method, rng=0)
        apas.save_certificates(found, tmp_path / "found.json")
        again = apas.load_certificates(tmp_path / "found.json")
        assert again.shifts == shifts
        assert list(again) == list(found)
        assert apas.verify(again, net).ok
        near = net.with_parameters(net.parameters.values * (1 + 1e-3))
        assert len(apas.audit(again, near, base=net).to_frame()) == len(X)
        assert "of the row moves by at most delta times its scale" in found[0].sentence()
        apas.write_report(found, tmp_path / "report.html", model=net)
    refuted = [c for c in apas.certify(net, X, 3.0, target="predicted", shifts=shifts, method="exact") if c.witness]
    assert refuted
    assert refuted[0].witness.parameters(net).shape == (len(net.parameters),)


def test_what_joint_shifts_refuse():
    with pytest.raises(apas.InputError, match="`parameters` of JointShifts"):
        JointShifts(parameters=InputNoise())
    with pytest.raises(apas.InputError, match="`row` of JointShifts"):
        JointShifts(row=LinfShifts())
    net = network([3, 4, 1], "sigmoid", "relu", 4)
    for shifts in (JointShifts(parameters=apas.LpShifts(2)), JointShifts(row=InputNoise(integers=[0]))):
        with pytest.raises(apas.Unsupported, match="needs shifts in a box"):
            apas.certify(net, [[0.0, 1.0, 2.0]], 0.1, target="predicted", shifts=shifts, method="interval")
        apas.certify(net, [[0.0, 1.0, 2.0]], 0.1, target="predicted", shifts=shifts, rng=0)
