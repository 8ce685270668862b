"""`max_shift`: the authors' answers, the right order statistic, every search on every kind of model."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from conftest import shared_folder, spread
from problems import BACK, CASES, LOST, RECOVERING_SHIFTS, case, recovering, recovering_share
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import Every, FeedForward, InputError, LinfShifts, Most, Sampling, Unsupported
from apas._random import Stream
from apas.display.numbers import at_most

SMALL = Sampling(n_samples=1379)


@pytest.fixture(scope="module")
def rows(oracle):
    return np.array([row["x"] for row in oracle["counterfactuals"]])


def known_of(oracle, name):
    return np.array([row[name] for row in oracle["counterfactuals"]])


@pytest.mark.parametrize("method", ["interval", "exact"])
def test_authors_worst_case(oracle, oracle_network, rows, method):
    found = apas.max_shift(oracle_network, rows, target=1, method=method)
    assert np.abs(found.deltas - known_of(oracle, "delta_worst_case")).max() <= 1.0e-4
    assert all(item.exact for item in found)
    assert all(item.delta <= item.upper <= item.delta * (1 + 1e-6) for item in found)
    assert isinstance(found[0].claim, Every)


def test_authors_sampling(oracle, oracle_network, rows):
    theirs = known_of(oracle, "delta_sampling")
    ratios = {}
    for samples in (1379, 20_000):
        found = apas.max_shift(oracle_network, rows, target=1, method=Sampling(n_samples=samples), rng=0)
        ratios[samples] = (found.deltas / theirs).mean()
        assert all(item.provable <= item.delta <= item.upper for item in found)
        assert all(item.provable < item.broken_at <= item.upper for item in found)
        assert np.abs([item.provable for item in found] - known_of(oracle, "delta_worst_case")).max() <= 1.0e-4
    assert 0.85 < ratios[1379] < 1.15
    assert ratios[20_000] >= 1.10


def test_tight(oracle_network, rows):
    """At least 93 % of the true quantile radius, which 200,000 other rays estimate."""
    some = rows[:10]
    found = apas.max_shift(oracle_network, some, target=1, rng=0).deltas
    reference = Sampling(coverage=0.995, n_samples=200_000)
    # the 1000th smallest of 200,000 first failures is the 0.5 % quantile: allowed_failures is near it
    truth = apas.max_shift(oracle_network, some, target=1, method=reference, rng=1)
    middle = np.array([(item.delta + item.upper) / 2 for item in truth])
    assert (found / middle).min() >= 0.93
    assert (found / middle).max() <= 1.0


def test_toy():
    toy = json.loads((shared_folder("oracle") / "toy.json").read_text())
    net = FeedForward(toy["network"]["weights"], toy["network"]["biases"])
    shifts = LinfShifts(kinds=("weight",))
    worst = apas.max_shift(net, [toy["x"]], target=1, shifts=shifts, method="exact")[0]
    assert round(worst.delta, 4) == 0.1090
    method = Sampling(coverage=0.9, confidence=0.999, n_samples=100_000)
    found = apas.max_shift(net, [toy["x"]], target=1, shifts=shifts, method=method, rng=0)[0]
    assert 0.265 <= found.delta <= 0.276
    # the robust share at the returned delta, from 10 million fresh draws
    rng = np.random.default_rng(5)
    valid = 0
    (w1, w2), (v1, v2) = np.array(toy["network"]["weights"][0])[0], np.array(toy["network"]["weights"][1])[:, 0]
    for _ in range(10):
        u = rng.uniform(-found.delta, found.delta, size=(4, 1_000_000))
        z1, z2 = (np.maximum((w + d) * toy["x"][0], 0) for w, d in zip((w1, w2), u[:2], strict=True))
        valid += int(((v1 + u[2]) * z1 + (v2 + u[3]) * z2 >= 0).sum())
    assert valid / 10_000_000 >= 0.9


def test_the_right_order_statistic():
    """A linear model with one moving weight: the first failures are known for every draw."""
    known = case("bias-some")  # margin 0.3 + delta u
    method = Sampling(coverage=0.9, confidence=0.9, n_samples=500)
    found = apas.max_shift(known.model, known.X, target=1, shifts=known.shifts, method=method, rng=3)[0]
    u = known.shifts.directions(known.model.parameters, Stream(3, "max_shift/rays"), 0, 500)[:, -1]
    first = np.sort(np.where(u < 0, 0.3 / np.maximum(-u, 1e-300), np.inf))
    allowed = apas.allowed_failures(500, coverage=0.9, confidence=0.9)
    assert found.delta == pytest.approx(first[allowed], rel=1e-8)
    assert found.delta < first[allowed]
    assert found.upper == pytest.approx(
        first[apas.stats.refuting_failures(500, coverage=0.9, confidence=0.9) - 1], rel=1e-8
    )
    assert "along the whole way" in found.reason


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("search", ["rays", "confirm", "paper"])
def test_known_problems(known, search):
    found = apas.max_shift(
        known.model, known.X, target=known.target, shifts=known.shifts, method=SMALL, search=search, limit=50.0, rng=1
    )[0]
    assert found.provable == pytest.approx(known.worst_case, rel=1e-9)
    assert found.delta >= found.provable
    assert found.provable < found.broken_at <= found.provable * (1 + 1e-6)
    assert isinstance(found.claim, Most)
    # at the returned delta the share is what the claim says, by brute force (0.9945: what 200,000 draws can tell)
    rng = np.random.default_rng(2)
    directions = rng.uniform(-1, 1, size=(200_000, len(known.model.parameters))) * known.shifts.radii(
        known.model.parameters
    )
    margins = known.model.shifted_margins(known.X, known.target, directions, found.delta)[:, 0]
    assert (margins >= 0).mean() >= 0.9945


class Opaque:
    """A model that offers the five members and nothing else."""

    def __init__(self, net):
        self._net = net
        self.classes, self.n_features, self.parameters = net.classes, net.n_features, net.parameters

    def margin(self, X, target):
        return self._net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return self._net.shifted_margins(X, target, directions, delta)


def deep(seed=0, sizes=(4, 6, 5, 1)):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in zip(sizes, sizes[1:], strict=False)]
    return FeedForward(weights, [0.1 * rng.normal(size=b) for b in sizes[1:-1]] + [np.ones(sizes[-1])])


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "elu"])
def test_the_grid_of_deep_networks_is_what_brute_force_finds(activation):
    base = deep()
    net = FeedForward(base.weights, base.biases, activation=activation)
    X = np.random.default_rng(1).random((3, 4))
    found = apas.max_shift(net, X, target=1, method=Sampling(coverage=0.9, confidence=0.9, n_samples=300), rng=2)
    allowed = apas.allowed_failures(300, coverage=0.9, confidence=0.9)
    directions = LinfShifts().directions(net.parameters, Stream(2, "max_shift/rays"), 0, 300)
    for i, item in enumerate(found):
        grid = item.provable * 1.005 ** np.arange(0, 2000)
        grid = grid[grid <= 1.3 * item.delta]
        margins = np.stack([net.shifted_margins(X[i : i + 1], 1, directions, g)[:, 0] for g in grid])
        broken = np.maximum.accumulate(margins <= 0, axis=0).sum(axis=1)
        last = grid[np.flatnonzero(broken <= allowed)[-1]]
        assert item.delta == pytest.approx(last, rel=1e-9)
        assert "at every grid value" in item.reason
        assert item.rungs == pytest.approx(grid[grid <= last * (1 + 1e-9)], rel=1e-12)
        assert item.rungs[-1] == item.delta


def test_models_that_can_only_be_asked_for_margins():
    net = case("product").model
    shifts = case("product").shifts
    exact = apas.max_shift(net, [[1.0]], target=1, shifts=shifts, method=SMALL, rng=0)[0]
    opaque = apas.max_shift(Opaque(net), [[1.0]], target=1, shifts=shifts, method=SMALL, rng=0)[0]
    assert opaque.provable == 0.0
    assert 0.93 * exact.delta < opaque.delta <= exact.delta * (1 + 1e-9)  # same rays, on a grid
    assert opaque.upper >= opaque.delta
    for search in ("confirm", "paper"):
        assert (
            apas.max_shift(Opaque(net), [[1.0]], target=1, shifts=shifts, method=SMALL, search=search, rng=0)[0].delta
            > 0
        )
    with pytest.raises(Unsupported, match="Exact needs a dense network"):
        apas.max_shift(Opaque(net), [[1.0]], target=1, method="exact")


def test_scikit_learn_and_frames():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"), index=range(100, 160))
    y = (table["a"] - table["b"] > 0).astype(int)
    for last in (LogisticRegression(), MLPClassifier((5,), max_iter=3000, random_state=0, tol=1e-3)):
        model = make_pipeline(StandardScaler(), last).fit(table, y)
        found = apas.max_shift(model, table.iloc[:7], target="predicted", method=SMALL, rng=0)
        assert (found.deltas > 0).all()
        assert found.to_frame().index.tolist() == list(range(100, 107))
        swapped = apas.max_shift(model, table.iloc[:7][["c", "a", "b"]], target="predicted", method=SMALL, rng=0)
        assert list(swapped) == list(found)


@pytest.mark.parametrize("sizes", [(4, 6, 1), (4, 6, 5, 1)], ids=str)
def test_same_answer_for_any_rows_and_workers(sizes):
    net = deep(sizes=sizes)
    X = np.random.default_rng(3).random((9, 4))
    whole = apas.max_shift(net, X, target=1, method=SMALL, rng=4)
    order = np.random.default_rng(0).permutation(9)
    assert apas.max_shift(net, X[order], target=1, method=SMALL, rng=4).deltas == pytest.approx(
        whole.deltas[order], rel=1e-12
    )
    assert apas.max_shift(net, X[2:5], target=1, method=SMALL, rng=4).deltas == pytest.approx(
        whole.deltas[2:5], rel=1e-12
    )
    assert apas.max_shift(net, X, target=1, method=SMALL, rng=4, n_jobs=2).deltas == pytest.approx(
        whole.deltas, rel=1e-12
    )
    assert apas.max_shift(net, X, target=1, method=SMALL, rng=5).deltas != pytest.approx(whole.deltas, rel=1e-6)


def test_block_sizes_do_not_matter(monkeypatch):
    from apas.certification.max_shift import rays as raysearch

    net = deep(sizes=(4, 6, 1))
    X = np.random.default_rng(3).random((9, 4))
    whole = apas.max_shift(net, X, target=1, method=SMALL, rng=4)
    monkeypatch.setattr(raysearch, "RAYS", 128)
    monkeypatch.setattr(raysearch, "BLOCK", 1 << 10)
    monkeypatch.setattr(raysearch, "GUESSING", (128, 128))
    # the allowance for rounding grows with how far is looked, and so moves the last digits
    assert apas.max_shift(net, X, target=1, method=SMALL, rng=4).deltas == pytest.approx(whole.deltas, rel=1e-10)


def test_a_bad_guess_of_the_reach_is_enlarged(monkeypatch):
    from apas.certification.max_shift import rays as raysearch

    net = deep(sizes=(4, 6, 1))
    X = np.random.default_rng(3).random((4, 4))
    whole = apas.max_shift(net, X, target=1, method=SMALL, rng=4)
    honest = raysearch.RaySearch.guess
    monkeypatch.setattr(raysearch.RaySearch, "guess", lambda self, rank: 0.3 * honest(self, rank))
    assert apas.max_shift(net, X, target=1, method=SMALL, rng=4).deltas == pytest.approx(whole.deltas, rel=1e-10)


def test_rows_that_are_not_valid_or_never_fail():
    net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [5.0]], activation="sigmoid")
    shifts = LinfShifts(layers=[0])
    for options in (
        {"method": SMALL},
        {"method": SMALL, "search": "confirm"},
        {"method": SMALL, "search": "paper"},
        {"method": "interval"},
    ):
        never = apas.max_shift(net, [[1.0]], target=1, shifts=shifts, limit=3.0, rng=0, **options)[0]
        assert never.delta == 3.0
        assert never.reached_limit
        refused = apas.max_shift(net, [[1.0]], target=0, shifts=shifts, rng=0, **options)[0]
        assert (refused.delta, refused.reason) == (0.0, "not valid on the model itself")
    assert len(apas.max_shift(net, [], target=1)) == 0


def test_published_search_counts_its_work():
    known = case("two-weights")
    found = apas.max_shift(known.model, known.X, target=1, shifts=known.shifts, method=SMALL, search="paper", rng=0)[0]
    # doubling from 1e-4 to the first failure, then bisection of that bracket to 1e-4
    doublings = int(np.ceil(np.log2(found.delta / 1e-4))) + 1
    assert doublings <= found.trace["tests"] <= 2 * doublings + 2
    assert found.trace["forward_passes"] == found.trace["tests"] * 1379
    assert "each of its tests" in found.reason


def test_simultaneous_is_stricter():
    net = deep(sizes=(4, 6, 1))
    X = np.random.default_rng(3).random((20, 4))
    method = Sampling(coverage=0.95, confidence=0.95, n_samples=400)
    alone = apas.max_shift(net, X, target=1, method=method, rng=0)
    together = apas.max_shift(net, X, target=1, method=method, simultaneous=True, rng=0)
    assert (together.deltas < alone.deltas).all()
    assert together[0].claim.rows == 20


def test_default_search_of_large_models():
    net = FeedForward([np.full((400, 260), 1e-3), np.full((260, 1), 1e-3)], [np.zeros(260), [1.0]])
    found = apas.max_shift(
        net, np.zeros((1, 400)), target=1, method=Sampling(coverage=0.9, confidence=0.9, n_samples=60), rng=0
    )[0]
    assert found.trace["search"] == "confirm"


def test_results_can_be_asked(oracle_network, rows, tmp_path):
    found = apas.max_shift(oracle_network, rows[:5], target=1, method=SMALL, rng=0)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_frame().columns.tolist() == ["delta", "upper", "provable", "broken_at", "exact", "reached_limit", "target", "claim", "reason", "valid_today"]  # fmt: skip
    assert "<table>" in found._repr_html_()
    assert found.summary().startswith("5 rows: largest delta 0.")
    assert "keep class 1 at delta = 0." in found[0].sentence()
    assert found[1:3].deltas.tolist() == found.deltas[1:3].tolist()
    assert found == apas.max_shift(oracle_network, rows[:5], target=1, method=SMALL, rng=0)
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
    matplotlib.use("Agg")
    axes = found.plot()
    assert len(axes.lines) == 3
    axes.figure.savefig(tmp_path / "shifts.png")
    matplotlib.pyplot.close(axes.figure)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "`method` must be one of 'sampling', 'interval'"),
        ({"search": "luck"}, "`search` must be one of 'rays', 'confirm', 'paper', got 'luck'"),
        ({"method": "exact", "search": "confirm"}, "`search` goes with method"),
        ({"method": np.array([1, 2])}, "`method` must be one of"),
        ({"method": apas.Attack()}, "`method` of max_shift must be Sampling, IntervalBounds"),
        ({"search": np.array([1, 2])}, "`search` must be one of"),
        ({"limit": 10**400}, "`limit` of max_shift must be a positive finite number, got 1000"),
        ({"limit": 1j}, "`limit` of max_shift must be a positive finite number"),
        ({"simultaneous": "no"}, "`simultaneous` must be True or False, got 'no'"),
        ({"limit": 0.0}, "`limit` of max_shift must be a positive finite number, got 0.0"),
        ({"limit": float("nan")}, "`limit` of max_shift must be a positive finite number"),
        ({"method": Sampling(n_samples=10)}, "`n_samples` of Sampling must be at least 1379"),
        ({"n_jobs": 0}, "`n_jobs` must be"),
    ],
)
def test_bad_input(options, message):
    known = case("two-weights")
    with pytest.raises(InputError, match=message):
        apas.max_shift(known.model, known.X, target=1, **options)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh"])
def test_rows_at_the_kink_of_units_agree_with_certify(activation):
    net = FeedForward([np.ones((2, 8)), np.ones((8, 1))], [np.zeros(8), [0.1]], activation=activation)
    method = Sampling(coverage=0.9, confidence=0.999, n_samples=20_000)
    for x in ([[1.0, -1.0]], [[0.0, 0.0]], [[0.5, 0.5]]):
        found = apas.max_shift(net, x, target=1, method=method, rng=0)[0]
        again = apas.certify(net, x, found.delta, target=1, method=method, rng=5)[0]
        assert again.verdict is not apas.Verdict.REFUTED
        beyond = apas.certify(net, x, 1.2 * found.upper, target=1, method=method, rng=6)[0]
        assert beyond.verdict is not apas.Verdict.CERTIFIED


@pytest.mark.parametrize("options", [{"method": SMALL}, {"method": SMALL, "search": "confirm"}, {"method": SMALL, "search": "paper"}, {"method": "exact"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("sizes", [(4, 6, 1), (4, 6, 5, 1)], ids=str)
def test_a_row_alone_gets_the_same_answer(sizes, options):
    net = deep(sizes=sizes)
    X = np.random.default_rng(3).random((12, 4))
    whole = apas.max_shift(net, X, target=1, rng=4, **options)
    for i in (0, 5, 11):
        alone = apas.max_shift(net, X[i : i + 1], target=1, rng=4, **options)[0]
        assert alone.provable == whole[i].provable
        assert alone.delta == pytest.approx(whole[i].delta, rel=1e-12)
        assert alone.reason == whole[i].reason


def test_nothing_certified_is_said_so():
    net = case("two-weights").model
    for options in ({"method": SMALL}, {"method": "exact"}):
        sentence = apas.max_shift(net, [[1.0, 1.0]], target=0, **options)[0].sentence()
        assert sentence == "nothing is certified for class 0: not valid on the model itself."


def test_the_published_search_is_labelled_everywhere():
    known = case("two-weights")
    found = apas.max_shift(known.model, known.X, target=1, shifts=known.shifts, search="paper", rng=0)
    assert "per test only, as published" in found.summary()
    assert "per test only, as published" in found._repr_html_()
    assert found.to_dict()["rows"][0]["trace"]["claim"] == "per test"
    assert found[0].trace["samples"] == 1379


def test_a_delta_is_rounded_only_where_smaller_ones_are_certified_too():
    net = deep(sizes=(4, 6, 5, 1))
    x = np.random.default_rng(3).random((1, 4))
    on_rungs = apas.max_shift(net, x, target=1, method=SMALL, search="confirm", rng=0)[0]
    assert float(on_rungs.written()) == on_rungs.delta == on_rungs.rungs[-1]
    pathwise = apas.max_shift(deep(sizes=(4, 6, 1)), x, target=1, method=SMALL, rng=0)[0]
    assert float(pathwise.written()) <= pathwise.delta
    assert len(pathwise.written()) <= 9


RECOVERING = {"target": 1, "shifts": RECOVERING_SHIFTS, "method": Sampling(coverage=0.9, confidence=0.9, n_samples=200)}


@pytest.mark.parametrize("wrap", [lambda net: net, Opaque], ids=["dense", "opaque"])
@pytest.mark.parametrize("search", ["rays", "confirm"])
def test_networks_that_recover_do_not_lure_the_search_beyond_the_gap(search, wrap):
    """At 0.4 the share is 0.775, at 5 it is 0.98: a search that looks at its answer alone returns the limit."""
    model, false = wrap(recovering()), 0
    for seed in range(20):
        found = apas.max_shift(model, [[1.0]], search=search, rng=seed, **RECOVERING)[0]
        assert LOST * 0.9 < found.delta < BACK
        false += recovering_share(found.rungs) < 0.9
        assert found.rungs[-1] == found.delta
        assert np.all(np.diff(found.rungs) > 0)
    assert false <= 6  # 2 are expected at most, and more than 6 have probability 0.002


@pytest.mark.parametrize("wrap", [lambda net: net, Opaque], ids=["dense", "opaque"])
def test_the_confirming_test_can_be_made_again_from_what_the_trace_says(wrap):
    net = recovering()
    found = apas.max_shift(wrap(net), [[1.0]], search="confirm", rng=3, **RECOVERING)[0]
    assert len(found.rungs) == 12
    assert min(found.rungs) > (found.provable or found.delta / 33)
    level = apas.stats.spend(0.9, apas.stats.Telescoping(), found.trace["tests"])
    drawn = max(200, apas.sample_size(coverage=0.9, confidence=level))
    stream = Stream(int(found.trace["entropy"], 16), f"max_shift/confirm/{found.trace['tests']}")
    directions = RECOVERING_SHIFTS.directions(net.parameters, stream, 0, drawn)
    valid = [net.shifted_margins(np.ones((1, 1)), 1, directions, rung)[:, 0] >= 0 for rung in found.trace["rungs"]]
    failed, allowed = int((~np.all(valid, axis=0)).sum()), apas.allowed_failures(drawn, coverage=0.9, confidence=level)
    assert (
        f"at 12 rungs up to delta: {failed} of {drawn} fresh draws failed at any of them, at most {allowed} may"
        in found.reason
    )
    assert failed > 0
    assert "keep class 1 at delta = " in found.sentence()
    assert "at 12 rungs up to delta" in found.sentence()


def test_every_smaller_delta_is_certified_only_where_no_rungs_are_named():
    net, x = deep(sizes=(4, 6, 1)), np.random.default_rng(3).random((1, 4))
    assert apas.max_shift(net, x, target=1, method=SMALL, rng=0)[0].rungs is None
    assert apas.max_shift(net, x, target=1, method="exact")[0].rungs is None
    published = apas.max_shift(net, x, target=1, method=SMALL, search="paper", rng=0)[0]
    assert published.rungs == ()  # nothing has the confidence of the claim
    assert apas.max_shift(net, x, target=0, method=SMALL, search="confirm", rng=0)[0].rungs == ()
    proved = apas.max_shift(net, x, target=1, method=SMALL, search="confirm", rng=0, limit=1e-3)[0]
    assert (proved.delta, proved.provable, proved.rungs) == (1e-3, 1e-3, None)


def test_the_rungs_of_a_grid_end_at_the_limit():
    net, x = deep(sizes=(4, 6, 5, 1)), np.random.default_rng(3).random((1, 4))
    free = apas.max_shift(net, x, target=1, method=SMALL, rng=0)[0]
    start = free.trace["rungs_from"]
    limit = start * 1.005**10.3  # between two rungs
    found = apas.max_shift(net, x, target=1, method=SMALL, rng=0, limit=limit)[0]
    assert (found.delta, found.reached_limit) == (limit, True)
    assert found.rungs == pytest.approx([*(start * 1.005 ** np.arange(11)), limit], rel=1e-12)


def test_what_is_refuted_is_the_whole_way():
    found = apas.max_shift(recovering(), [[1.0]], rng=0, **RECOVERING)
    item = found[0]
    assert item.delta < item.way_refuted_at == item.upper < 0.2
    for beyond in (2.0, 5.0, 20.0):  # the network has recovered
        again = apas.certify(recovering(), [[1.0]], beyond, rng=1, **RECOVERING)[0]
        assert again.verdict is apas.Verdict.CERTIFIED
    assert f"along the whole way up to delta = {at_most(item.upper)} it is refuted" in item.sentence()
    assert "way_refuted_at" in found._repr_html_()
    assert "upper" not in found._repr_html_()
    assert found.to_frame()["upper"].tolist() == [item.upper]
    confirmed = apas.max_shift(recovering(), [[1.0]], search="confirm", rng=0, **RECOVERING)[0]
    assert confirmed.way_refuted_at == np.inf
    assert "refuted" not in confirmed.sentence()


def test_a_large_limit_only_says_where_to_stop():
    net = deep(sizes=(4, 6, 1))
    x = np.random.default_rng(3).random((1, 4))
    near, far = (apas.max_shift(net, x, target=1, method=SMALL, limit=limit, rng=0)[0] for limit in (5.0, 1e9))
    assert far.delta == pytest.approx(near.delta, rel=1e-6)


def test_only_clear_failures_refute():
    # the margin is exactly 0 on every shift: valid, and within rounding of the boundary
    net = FeedForward([[[1.0], [0.0]]], [[0.0]])
    shifts = LinfShifts(kinds=("weight",))
    for model in (net, Opaque(net)):
        found = apas.max_shift(model, [[0.0, 0.0]], target=1, shifts=shifts, method=SMALL, limit=1.0, rng=0)[0]
        assert found.delta == 0.0
        assert found.upper == np.inf


def test_answers_can_be_kept_in_sets_and_do_not_share_their_traces():
    net = deep(sizes=(4, 6, 1))
    found = apas.max_shift(net, np.random.default_rng(3).random((2, 4)), target=1, method=SMALL, rng=0)
    assert len({found[0], found[1]}) == 2
    assert found[0].trace is not found[1].trace


def test_huge_weights_do_not_warn():
    net = FeedForward([[[1e160, 1.0]], [[1e160], [1.0]]], [[0.0, 0.0], [1.0]])
    for options in ({"method": SMALL}, {"method": "exact"}, {"method": SMALL, "search": "confirm"}):
        found = apas.max_shift(net, [[0.0]], target=1, limit=1.0, rng=0, **options)[0]
        assert found.delta >= 0
    apas.certify(net, [[0.0]], 1.0, target=1, rng=0)


@pytest.mark.parametrize("size", spread([1e155, 1e100, 1e200], 3))
@pytest.mark.parametrize("x", [-1.0, 1.0])
def test_where_numbers_overflow_along_rays_nothing_is_certified(size, x):
    """Half of the shifts at the limit lose the class: they turn the sign of the hidden weight or of the last bias."""
    net = FeedForward([[[size]], [[size]]], [[0.0], [0.0]])
    found = apas.max_shift(net, [[x]], target=1, method=SMALL, rng=0)[0]
    assert found.delta < size
    assert found.upper > found.delta


def test_roots_of_huge_quadratics_are_where_they_are():
    """The square of a coefficient overflows, the margin itself does not."""
    deltas = []
    for size in (1e30, 1e157):
        net = FeedForward([[[1.0]]], [[-0.5 * size]], output="identity", threshold=0.0)
        found = apas.max_shift(net, [[size]], target=1, limit=0.9, method=SMALL, rng=0)[0]
        deltas.append(found.delta)
    assert 0.3 < deltas[0] < 0.8
    assert deltas[1] == pytest.approx(deltas[0], rel=1e-6)
