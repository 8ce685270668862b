"""Delta 0: the nearest valid row of the model itself, against optima in rational arithmetic and by enumeration."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from enumerable_problems import enumerated, random_problem
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import Feature, FeatureSpace, FeedForward, InputError, Status
from apas.counterfactuals.sources.base import Search
from apas.counterfactuals.sources.milp import source as milp
from apas.display.numbers import at_most
from apas.worst_case.exact_arithmetic import exact_sign

BOX = FeatureSpace([Feature("a", low=-1, high=1), Feature("b", low=0, high=3)])


def rational(values):
    return [Fraction(float(v)) for v in values]


def optimum(net: FeedForward, x: np.ndarray, space: FeatureSpace, distance: str) -> Fraction | None:
    """The least cost of a valid row of two free features: at a corner of the pieces on which all is linear."""
    first, second, bias = rational(net.weights[0][0]), rational(net.weights[0][1]), rational(net.biases[0])
    out, const = rational(net.weights[1][:, 0]), Fraction(float(net.biases[1][0])) - Fraction(float(net.offset))
    own, low, high = rational(x), *(rational(ends) for ends in zip(*(f.ends for f in space), strict=True))
    span, units = [b - a for a, b in zip(low, high, strict=True)], range(len(bias))
    lines = [(first[k], second[k], -bias[k]) for k in units]
    for on in itertools.product((0, 1), repeat=len(bias)):
        parts = [[out[k] * on[k] * w[k] for k in units] for w in (first, second, bias)]
        lines.append((sum(parts[0]), sum(parts[1]), -const - sum(parts[2])))
    lines += [(Fraction(1), Fraction(0), end) for end in (low[0], high[0], own[0])]
    lines += [(Fraction(0), Fraction(1), end) for end in (low[1], high[1], own[1])]
    if distance == "linf":
        lines += [(1 / span[0], s / span[1], own[0] / span[0] + s * own[1] / span[1]) for s in (1, -1)]
    costs = []
    for (a, b, r), (c, d, q) in itertools.combinations(lines, 2):
        if a * d == b * c:
            continue
        p = (r * d - b * q) / (a * d - b * c), (a * q - r * c) / (a * d - b * c)
        margin = sum(out[k] * max(0, first[k] * p[0] + second[k] * p[1] + bias[k]) for k in units) + const
        if margin >= 0 and all(least <= v <= most for least, v, most in zip(low, p, high, strict=True)):
            apart = [abs(v - o) / s for v, o, s in zip(p, own, span, strict=True)]
            costs.append(sum(apart) / 2 if distance == "l1" else max(apart))
    return min(costs, default=None)


def small_network(seed: int) -> tuple[FeedForward, np.ndarray]:
    rng = np.random.default_rng(seed)
    hidden = int(rng.integers(1, 5))
    weights = [rng.normal(size=(2, hidden)), rng.normal(size=(hidden, 1))]
    net = FeedForward(weights, [rng.normal(size=hidden) / 2, [rng.normal() / 2 - 0.3]], threshold=rng.uniform(0.3, 0.7))
    return net, rng.uniform([-1.0, 0.0], [1.0, 3.0])


def compare_with_optimum(seed: int) -> bool:
    net, x = small_network(seed)
    distance = ("l1", "linf")[seed % 2]
    if net.margin(x[None], 1)[0] >= 0:
        return False
    best, found = optimum(net, x, BOX, distance), apas.generate(net, [x], 0, target=1, space=BOX, distance=distance)
    if best is None:
        assert found[0].status is Status.INFEASIBLE
        return False
    item, point = found[0], found.numbers[0]
    tensors = net.weights, net.biases, net.activations
    assert exact_sign(*tensors, point, 1, net.offset) >= 0
    assert net.margin(point[None], 1)[0] >= 0
    apart = [abs(p - o) / Fraction(s) for p, o, s in zip(rational(point), rational(x), (2, 3), strict=True)]
    cost = sum(apart) / 2 if distance == "l1" else max(apart)
    assert Fraction(item.lower_bound) <= best <= cost
    assert cost - Fraction(item.lower_bound) <= Fraction(item.gap)
    assert item.gap <= 1e-6
    assert "the nearest, proved up to" in item.reason
    return True


def test_no_valid_row_is_nearer_than_proved_in_rational_arithmetic():
    assert sum(compare_with_optimum(seed) for seed in range(40)) > 10


@pytest.mark.validity
@pytest.mark.parametrize("start", range(1000, 5000, 1000))
def test_no_valid_row_is_nearer_than_proved_in_many_networks(start):
    assert sum(compare_with_optimum(seed) for seed in range(start, start + 1000)) > 250


@pytest.mark.parametrize("distance", ["l1", "linf"])
def test_the_way_to_a_hyperplane_has_a_closed_form(distance):
    weights, high = np.array([1.0, -4.0, 0.5, 9.0, 2.0]), np.array([2.0, 1.0, 10.0, 5.0, 4.0])
    x, bias = np.array([0.5, 0.4, 1.0, 2.0, 0.5]), -23.5
    ways = {3: {"mutable": False}, 4: {"direction": "decrease"}}
    space = FeatureSpace([Feature(f"f{i}", low=0, high=h, **ways.get(i, {})) for i, h in enumerate(high)])
    net = FeedForward([weights[:, None]], [[bias]])
    needed = -net.margin(x[None], 1)[0]
    rooms = np.array([1.5, 0.4, 9.0, 0.0, 0.0]) / high  # what each may move in its useful way, in units of its range
    gains = np.abs(weights) * high
    if distance == "l1":  # the steepest go first
        cost = 0.0
        for j in np.argsort(-gains * (rooms > 0)):
            step = min(rooms[j], max(needed, 0.0) / gains[j])
            cost, needed = cost + step / 5, needed - step * gains[j]
    else:  # all go together, as far as they can
        cuts = [0.0, *np.sort(rooms[:3])]
        cost = next(a + (needed - np.minimum(rooms, a) @ gains) / gains[rooms > a].sum()
                    for a, b in itertools.pairwise(cuts) if np.minimum(rooms, b) @ gains >= needed)  # fmt: skip
    found = apas.generate(net, [x], 0, target=1, space=space, distance=distance)
    assert found[0].cost == pytest.approx(cost, rel=1e-5)
    assert found[0].lower_bound <= cost <= found[0].cost * (1 + 1e-12)


def check_against_all(seed: int, continuous: int) -> int:
    """Compare with every allowed row, or with a grid of them if some features are continuous."""
    task, row = random_problem(seed, ("l1", "linf")[seed % 2], continuous)
    there = 0
    for target in task.model.classes:
        search = Search(task, 0, row, target)
        if search.is_valid(row):
            continue
        costs, margins = enumerated(search)
        least = costs[margins > 1e-9].min(initial=np.inf)
        options = {"target": target, "space": task.space, "distance": task.distance}
        found = apas.generate(task.model, task.space.table(row[None]), 0, **options)
        if not found[0].is_found:
            assert found[0].status is Status.INFEASIBLE
            assert not np.isfinite(least)
            continue
        item = found[0]
        assert search.is_valid(found.numbers[0])
        assert task.space.allowed(found.numbers, found.origins).all()
        assert item.lower_bound <= least
        assert 0 < item.gap <= 1e-6
        assert item.cost <= least * (1 + 1e-5)
        if not continuous:
            assert item.cost == pytest.approx(least, abs=1e-12)
        there += 1
    return there


@pytest.mark.parametrize("continuous", [0, 1])
def test_no_row_of_steps_levels_and_categories_is_nearer(continuous):
    assert sum(check_against_all(seed, continuous) for seed in range(20 * continuous, 20 + 20 * continuous)) >= 9


@pytest.mark.validity
@pytest.mark.parametrize("start", range(2000, 6000, 500))
def test_no_row_of_steps_levels_and_categories_is_nearer_in_many_problems(start):
    assert sum(check_against_all(seed, seed % 3) for seed in range(start, start + 500)) > 150


def test_a_proof_that_is_cut_off_says_how_far_it_got(monkeypatch):
    words = set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = [(4, 14), (14, 14), (14, 1)]
        net = FeedForward([rng.normal(size=s) for s in sizes], [rng.normal(size=s[1]) - (s[1] == 1) for s in sizes])
        rows = rng.uniform(size=(50, 4))
        X, space = rows[net.margin(rows, 1) < 0][:1], FeatureSpace([Feature(n, low=0, high=1) for n in "abcd"])
        monkeypatch.setattr(milp, "CASES", (60, 20_000))
        whole = apas.generate(net, X, 0, target=1, space=space)
        for item in whole[whole.found]:
            assert item.nearness == "the nearest, proved up to {}"
            for cases in ((0, 0), (1, 1), (2, 5), (20, 20)):
                monkeypatch.setattr(milp, "CASES", cases)
                part = apas.generate(net, X, 0, target=1, space=space)[0]
                assert part.cost == item.cost
                assert 0 <= part.lower_bound <= item.cost
                assert part.gap == pytest.approx(part.cost - part.lower_bound, abs=1e-11)
                assert part.reason.endswith(part.nearness.format(at_most(part.gap, 2)))
                words.add(part.nearness)
    assert len(words) == 3


def test_on_the_boundary_itself_class_1_is_given_and_class_0_is_not():
    space = FeatureSpace([Feature(name, "integer", low=0, high=4) for name in "ab"])
    net = FeedForward([[[2.0], [1.0]]], [[-3.0]])
    up = apas.generate(net, [[0, 0], [1, 0]], 0, target=1, space=space)
    assert net.margin(up.numbers, 1).tolist() == [1.0, 0.0]
    assert up[1].cost == 0.125
    assert up[1].nearness == "the nearest, proved up to {}"
    down = apas.generate(net, [[2, 0], [1, 1]], 0, target=0, space=space)
    assert (net.margin(down.numbers, 0) > 0).all()
    assert [item.cost for item in down] == [0.125, 0.125]
    assert all(item.lower_bound <= 0.125 for item in down)


def test_a_row_that_is_valid_by_rounding_alone_is_not_taken():
    net = FeedForward([[[0.1], [0.1], [0.6]]], [[-0.8]])
    tensors = net.weights, net.biases, net.activations
    assert net.margin(np.ones((1, 3)), 1)[0] == 0
    assert exact_sign(*tensors, np.ones(3), 1, 0.0) < 0
    kinds = [{}, {"mutable": False}, {"mutable": False}]
    space = FeatureSpace([Feature(n, "integer", low=0, high=4, **kind) for n, kind in zip("abc", kinds, strict=True)])
    found = apas.generate(net, [[0, 1, 1]], 0, target=1, space=space)
    assert found.numbers.tolist() == [[2, 1, 1]]
    assert found[0].lower_bound <= found[0].cost == pytest.approx(1 / 6)


def test_the_library_agrees_in_whatever_batch():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)) * [1, 10, 100, 0.1] + [0, 50, 1000, 1]
    y = ((X - X.mean(axis=0)) @ [1, 0.1, 0.01, 5] + np.sin(3 * X[:, 0]) > 0).astype(int)
    space = FeatureSpace([Feature(f"x{i}", low=X[:, i].min(), high=X[:, i].max()) for i in range(4)])
    for final in (LogisticRegression(), MLPClassifier((6, 4), max_iter=60, random_state=0, tol=1e-1)):
        model = make_pipeline(StandardScaler(), final).fit(X, y)
        rejected = X[model.predict(X) == 0][:8]
        found = apas.generate(model, rejected, 0, space=space)
        assert found.found.all()
        assert {item.nearness for item in found} == {"the nearest, proved up to {}"}
        assert (model.predict(found.points) == 1).all()
        assert max(model.predict_proba(found.points)[:, 1]) < 0.5 + 1e-6


def test_several_per_row_leave_features_alone_and_prove_that_they_are_nearest():
    net, space = (
        FeedForward([[[3.0], [2.0], [1.0]]], [[-3.0]]),
        FeatureSpace([Feature(n, low=0, high=4) for n in "abc"]),
    )
    found = apas.generate(net, [[0.0, 0.0, 0.0]], 0, target=1, space=space, k=3)
    assert [item.cost for item in found] == pytest.approx([1 / 12, 1.5 / 12, 3 / 12])
    assert found.changes().tolist() == ["a 0 -> 1", "b 0 -> 1.5", "c 0 -> 3"]
    assert {item.nearness for item in found} == {"the nearest, proved up to {}"}
    assert found.summary().startswith(
        "3 counterfactuals of 1 row from class 0 to class 1: 3 FOUND; mean l1 distance 0.1528; 3 the nearest"
    )


def test_what_is_said_about_the_rows():
    net, space = FeedForward([[[1.0], [1.0]]], [[-1.0]]), FeatureSpace([Feature(n, low=0, high=2) for n in "ab"])
    found = apas.generate(net, [[0.2, 0.3], [0.0, 0.0]], 0, space=space)
    end = "; valid on the model itself; nothing is claimed about other models."
    assert found.summary().endswith(end)
    assert "2 the nearest, proved up to" in found.summary()
    frame = found.to_frame()
    assert frame.columns.tolist()[4:6] == ["cost", "gap"]
    assert frame["verdict"].isna().all()
    assert (frame["gap"] < 1e-7).all()
    assert frame["reason"].str.startswith("valid on the model itself; the nearest, proved up to ").all()
    entry = found.to_dict()["counterfactuals"][0]
    assert (entry["certificate"], entry["gap"]) == (None, found[0].gap)
    assert found.to_dict()["shifts"]["models"] == [found.model_digest]
    assert found[0].lower_bound == entry["lower_bound"] < 0.125
    assert "gap" not in apas.generate(net, [[0.2, 0.3]], 0.01, space=space, rng=0).to_frame()
    none = apas.generate(net, [[0.2, 0.3]], 0, space=FeatureSpace([Feature(n, low=0, high=0.4) for n in "ab"]))
    assert none.summary().endswith(": 1 INFEASIBLE; nothing is claimed about other models.")


def test_nothing_is_certified_saved_verified_or_reported(tmp_path):
    net, space = FeedForward([[[1.0], [1.0]]], [[-1.0]]), FeatureSpace([Feature(n, low=0, high=2) for n in "ab"])
    found = apas.generate(net, [[0.2, 0.3]], 0, space=space)
    for ask in (
        lambda: found.certificates,
        lambda: apas.save_certificates(found, tmp_path / "found.json"),
        lambda: apas.verify(found, net),
        lambda: apas.audit(found, net),
        lambda: apas.write_report(found, tmp_path / "found.html"),
    ):
        with pytest.raises(InputError, match="at delta 0 nothing is claimed about other models"):
            ask()
    assert not list(tmp_path.iterdir())
    assert apas.evaluate(found, metrics=["validity", "l1"]).to_dict()["summary"]["vm1"] == 1


class Smooth:
    """Accept inside of a circle; no network, and no parameters that could move."""

    classes, n_features = (0, 1), 2

    def __init__(self):
        self.parameters = apas.Parameters.from_arrays([[1.0]], names=["r"], kinds=["bias"], layers=["r"])

    def margin(self, X, target):
        return (1.0 if np.ndim(target) else 2.0 * target - 1.0) * (1.0 - (X**2).sum(axis=1))

    def shifted_margins(self, X, target, directions, delta):
        raise AssertionError("nothing shifts")


def test_of_other_models_the_best_row_found_is_returned_and_nothing_proved():
    space = FeatureSpace([Feature(n, low=-3, high=3) for n in "ab"])
    known = np.random.default_rng(0).uniform(-3, 3, size=(200, 2))
    for source, most in (("robust", 0.0834), ("neighbours", 0.2)):
        found = apas.generate(Smooth(), [[2.0, 0.0]], 0, target=1, space=space, background=known, source=source)
        assert found[0].cost <= most  # the circle is 1 of 12 away
        assert Smooth().margin(found.numbers, 1)[0] >= 0
        assert found[0].lower_bound == 0
        assert found[0].reason == "valid on the model itself; not proved to be the nearest"
        assert found.summary().endswith(
            "; 1 not proved to be the nearest; valid on the model itself; nothing is claimed about other models."
        )


@pytest.mark.parametrize(
    "source", ["milp", "wachter", "prototype", apas.Given([[1.9, 0.3]]), apas.MilpSource(margin=5)]
)
def test_every_source_has_its_say(source):
    net, space = FeedForward([[[1.0], [1.0]]], [[-1.0]]), FeatureSpace([Feature(n, low=0, high=2) for n in "ab"])
    known = np.random.default_rng(0).uniform(0, 2, size=(60, 2))
    found = apas.generate(net, [[0.2, 0.3]], 0, space=space, background=known, source=source, rng=0)
    assert found.found.all()
    assert net.margin(found.numbers, 1)[0] >= 0
    proves = source == "milp" or isinstance(source, apas.MilpSource)
    assert (found[0].cost == pytest.approx(0.125, abs=1e-9)) == proves
    assert found[0].nearness.startswith("the nearest") == proves


def test_a_network_in_float32_is_valid_beyond_its_rounding():
    net = FeedForward([np.float32([[0.7], [1.3]])], [np.float32([-1.1])], dtype="float32")
    space = FeatureSpace([Feature(n, low=0, high=2) for n in "ab"])
    found = apas.generate(net, [[0.2, 0.3]], 0, space=space)
    assert net.margin(found.numbers, 1)[0] > 0
    best = -(net.weights[0][:, 0] @ [0.2, 0.3] + net.biases[0][0]) / net.weights[0][1, 0] / 4
    assert found[0].lower_bound <= best < found[0].cost <= best * (1 + 1e-4)


def test_zero_may_be_said_per_row_but_not_for_some():
    net, X = FeedForward([[[1.0], [1.0]]], [[-1.0]]), [[0.2, 0.3], [0.1, 0.1]]
    space = FeatureSpace([Feature(n, low=0, high=2) for n in "ab"])
    whole = apas.generate(net, X, 0, space=space)
    assert apas.generate(net, X, np.zeros(2), space=space) == whole == apas.generate(net, X, [0, 0.0], space=space)
    assert apas.generate(net, X[:1], 0, space=space)[0] == whole[0]
    for delta in ([0, 0.1], False, [False, False], [[0.0], [0.0]], [0.0], None, -0.1):
        with pytest.raises(InputError, match="`delta` must be"):
            apas.generate(net, X, delta, space=space)
    with pytest.raises(InputError, match="`method` must be one of"):
        apas.generate(net, X, 0, space=space, method="exat")
    with pytest.raises(InputError, match="`delta` must be positive"):
        apas.certify(net, X, 0, target=1)
