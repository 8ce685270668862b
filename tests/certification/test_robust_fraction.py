"""Curves of the valid share: bands that hold, bounds that enclose, numbers that do not depend on how they were computed."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from problems import CASES, case, network

from apas import FeedForward, InputError, LinfShifts, ObservedShifts, Sampling, Unsupported
from apas._random import Stream
from apas.certification import failing_draws
from apas.certification.api import FractionCurve, FractionCurves, robust_fraction
from apas.certification.methods.enumeration import Enumeration
from apas.stats import coverage_lower, coverage_upper


def ask(known, deltas, **options):
    options = {"rng": 0, **options}
    return robust_fraction(known.model, known.X, deltas, target=known.target, shifts=known.shifts, **options)


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize(
    "method",
    [Sampling(n_samples=20_000), "sampling", "enumeration", Enumeration(gap=0.002)],
    ids=["drawn", "closed", "computed", "fine"],
)
def test_known_shares(known, method):
    curve = ask(known, [0.5 * known.worst_case, known.delta], method=method)[0]
    for j, share in enumerate((1.0, known.share)):
        assert curve.lower[j] - 1e-9 <= share <= curve.upper[j] + 1e-9
        assert curve.lower[j] <= curve.estimate[j] <= curve.upper[j]
    if method == "sampling":
        assert (curve.draws, curve.confidence) in ((0, 1.0), (20_000, 0.999))
    elif not isinstance(method, Sampling):
        assert (curve.draws, curve.confidence) == (0, 1.0)
        assert (curve.upper - curve.lower <= (0.01 if method == "enumeration" else 0.002)).all()
        assert curve.estimate == pytest.approx(0.5 * (curve.lower + curve.upper))
    else:
        assert (curve.draws, curve.confidence) == (20_000, 0.999)


def test_counts_and_bounds_are_those_of_the_draws():
    """Drawn once more by hand: the same directions at every delta, each end with its part of the risk."""
    known = case("two-weights")
    deltas = [0.6, 0.9, 0.8]
    curve = ask(known, deltas, method=Sampling(confidence=0.9, n_samples=700), rng=4)[0]
    u = known.shifts.directions(known.model.parameters, Stream(4, "fraction"), 0, 700)
    level = 1 - Fraction(1, 10) / 6
    for j, delta in enumerate(deltas):
        failures = int((1 + delta * u[:, :2].sum(axis=1) < 0).sum())
        assert curve.estimate[j] == 1 - failures / 700
        assert curve.lower[j] == coverage_lower(700, failures, confidence=level)
        assert curve.upper[j] == coverage_upper(700, failures, confidence=level)
    assert curve.deltas.tolist() == deltas


def test_the_band_holds_at_all_deltas_together():
    """400 runs at confidence 0.8: the true curve leaves the band in no more of them than a binomial limit allows."""
    known = case(
        "two-weights"
    )  # 1 + delta (u1 + u2): fails where u1 + u2 < -1 / delta, a triangle of legs 2 - 1 / delta
    deltas = np.array([0.55, 0.6, 0.7, 0.8, 0.95])
    truth = 1 - (2 - 1 / deltas) ** 2 / 8
    broken = 0
    for seed in range(400):
        curve = ask(known, deltas, method=Sampling(confidence=0.8, n_samples=300), rng=seed)[0]
        broken += bool(((curve.lower > truth) | (curve.upper < truth)).any())
    assert broken <= 400 * 0.2 + 3 * np.sqrt(400 * 0.2 * 0.8)
    assert broken > 0  # a band that never fails would be too wide to test anything


def test_margins_within_rounding_are_counted_both_ways():
    # a dead unit: the margin is 0 on every shifted model
    net = FeedForward([[[-5.0]], [[1.0]]], [[0.0], [0.0]])
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    curve = robust_fraction(net, [[1.0]], 0.5, target=1, shifts=shifts, rng=0)[0]
    assert (curve.lower[0], curve.estimate[0], curve.upper[0]) == (0.0, 0.0, 1.0)
    computed = robust_fraction(net, [[1.0]], 0.5, target=1, shifts=shifts, method="enumeration")[0]
    assert (computed.lower[0], computed.upper[0]) == (0.0, 1.0)


def test_rows_blocks_and_workers_do_not_matter(monkeypatch):
    net = network((3, 4, 3), "softmax", "relu", 0)
    rows = np.random.default_rng(0).normal(size=(6, 3))
    ask_rows = {"target": "predicted", "method": Sampling(n_samples=3000), "rng": 1}
    together = robust_fraction(net, rows, [0.1, 0.4], **ask_rows)
    assert list(together) == [robust_fraction(net, rows[i : i + 1], [0.1, 0.4], **ask_rows)[0] for i in range(6)]
    assert together == robust_fraction(net, rows, [0.1, 0.4], n_jobs=2, **ask_rows)
    monkeypatch.setattr(failing_draws, "block_size", lambda question: 7)
    monkeypatch.setattr(failing_draws, "ROWS", 2)
    assert together == robust_fraction(net, rows, [0.1, 0.4], **ask_rows)
    computed = {"target": "predicted", "method": Enumeration(max_boxes=50)}
    several = robust_fraction(net, rows, [0.1, 0.4], n_jobs=2, **computed)
    assert list(several) == [robust_fraction(net, rows[i : i + 1], [0.1, 0.4], **computed)[0] for i in range(6)]


def test_a_row_that_is_not_valid_has_a_curve_too():
    known = case("bias-some")  # the margin is 0.3 + delta u, so that of class 0 is positive where u < -0.3 / delta
    for method in ("sampling", "enumeration"):
        curves = robust_fraction(known.model, np.vstack([known.X] * 2), [0.4], target=[0, 1], shifts=known.shifts, method=method, rng=0)  # fmt: skip
        assert [c.valid for c in curves] == [False, True]
        assert curves[0].lower[0] <= 0.125 <= curves[0].upper[0]
        assert curves[0].sentence().endswith("; the model itself does not give that class.")


def test_the_interval_networks_of_every_delta():
    """With a precision the curve has, at each delta, exact volumes and the networks behind them; else nothing."""
    known, deltas = case("two-weights"), [0.4, 0.8, 1.2]
    curve = ask(known, deltas, method=Enumeration(precision=0.01))[0]
    lost = [0, 0.75**2 / 8, (2 - 1 / 1.2) ** 2 / 8]  # a triangle in a square of area 4
    assert [evidence.whole.delta for evidence in curve.evidence] == deltas
    for evidence, lower, upper, share in zip(curve.evidence, curve.lower, curve.upper, lost, strict=True):
        robust, non_robust, undecided = evidence.volumes
        assert robust + non_robust + undecided == 1
        assert undecided < 0.01
        assert (evidence.lower, evidence.upper) == (lower, upper)
        assert non_robust <= share <= 1 - robust
        for part in evidence.networks.non_robust:
            assert part.realization(1.0).margin(known.X, 1)[0] < 0
    assert len(curve.evidence[1].networks.non_robust) > 50
    assert [told["robust"] for told in curve.to_dict()["evidence"]] == [str(e.volumes.robust) for e in curve.evidence]
    shared = ask(known, deltas, method=Enumeration(precision=0.01), n_jobs=2)[0]
    assert shared == curve
    plain = ask(known, deltas, method=Enumeration(gap=0.01))[0]
    assert plain.evidence == ()
    assert "evidence" not in plain.to_dict()


def test_sentence():
    curve = ask(case("bias-some"), [0.2, 0.4], method="enumeration")[0]
    measure = curve.measure
    assert curve.sentence() == (
        "for certain: the share of shifts that keep class 1 is 1 at delta = 0.2, "
        f"{curve.sentence().split('0.2, ')[1].split(' at')[0]} at delta = 0.4 ({measure})."
    )
    fixed = Sampling(test="fixed")
    drawn = ask(case("bias-some"), [0.2, 0.4], method=fixed)[0]
    assert drawn.sentence().startswith("with confidence 0.999 for all 2 deltas together, by 20000 draws: ")
    assert str(drawn) == drawn.sentence()
    single = ask(case("bias-some"), 0.4, method=fixed)[0]
    assert single.sentence().startswith("with confidence 0.999, by 20000 draws: ")
    many = ask(case("bias-some"), np.linspace(0.1, 1.0, 10))[0].sentence()
    assert "at delta = 0.1, " in many
    assert "at delta = 1.0 (of 10 deltas)" in many
    assert "0.30000000000000004" not in many


def test_printed_ends_are_rounded_to_the_safe_side():
    numbers = np.array([0.123456789]), np.array([0.223456789])
    curve = FractionCurve(np.array([0.1]), numbers[0], *numbers, 10, 0.9, 1, "m", True)
    assert "0.123456 to 0.223457 at delta = 0.1" in curve.sentence()


def test_results_are_read_only_and_serialisable():
    net = network((2, 3, 1), "sigmoid", "relu", 0)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[1.0, 2.0], [0.0, 1.0]], columns=["a", "b"], index=["x", "y"])
    curves = robust_fraction(net, frame, [0.1, 0.2, 0.3], target="predicted", method=Sampling(n_samples=500), rng=7)
    assert isinstance(curves, FractionCurves)
    with pytest.raises(ValueError, match="read-only"):
        curves[0].lower[0] = 1.0
    table = curves.to_frame()
    assert table.index.tolist() == ["x"] * 3 + ["y"] * 3
    assert list(table.columns) == [
        "delta",
        "estimate",
        "lower",
        "upper",
        "draws",
        "confidence",
        "target",
        "valid_today",
    ]
    assert table["delta"].tolist() == [0.1, 0.2, 0.3] * 2
    values = json.loads(json.dumps(curves.to_dict()))
    assert values["format"] == "apas-fraction-curves"
    assert values["entropy"] == hex(7)
    assert [r["row"] for r in values["rows"]] == ["x", "y"]
    assert values["rows"][1]["upper"] == curves[1].upper.tolist()
    assert curves[1:].to_dict()["rows"] == curves.to_dict()["rows"][1:]
    assert curves[1:].points.index.tolist() == ["y"]
    assert "<table>" in curves._repr_html_()
    assert repr(curves).startswith("<FractionCurves: 2 rows: share of shifts that keep the class ")
    assert curves == robust_fraction(net, frame, [0.1, 0.2, 0.3], target="predicted", method=Sampling(n_samples=500), rng=7)  # fmt: skip
    assert curves != robust_fraction(net, frame, [0.1, 0.2, 0.3], target="predicted", method=Sampling(n_samples=500), rng=8)  # fmt: skip


def test_no_rows():
    for method in ("sampling", "enumeration"):
        curves = robust_fraction(case("product").model, np.empty((0, 1)), [0.1], target=1, method=method)
        assert len(curves) == 0
        assert curves.summary() == "No rows, no curves."
        assert len(curves.to_frame()) == 0


def test_plot():
    pytest.importorskip("matplotlib").use("Agg")
    curves = ask(case("product"), [0.3, 0.1, 0.2], method=Sampling(n_samples=500))
    ax = curves.plot()
    assert ax.lines[0].get_xdata().tolist() == [0.1, 0.2, 0.3]  # sorted, as a curve must be
    assert ax.lines[0].get_ydata().tolist() == curves[0].estimate[[1, 2, 0]].tolist()
    assert curves.plot(ax) is ax


class Opaque:
    """A model that says nothing about its inside."""

    def __init__(self, net):
        self.net, self.classes, self.n_features, self.parameters = net, net.classes, net.n_features, net.parameters

    def margin(self, X, target):
        return self.net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return self.net.shifted_margins(X, target, directions, delta)


def test_any_model_by_sampling():
    known = case("product")
    opaque = robust_fraction(Opaque(known.model), known.X, [0.2], target=1, shifts=known.shifts, rng=0)[0]
    assert opaque.estimate == ask(known, [0.2])[0].estimate
    with pytest.raises(Unsupported, match="Enumeration needs a dense network, but Opaque cannot"):
        robust_fraction(Opaque(known.model), known.X, [0.2], target=1, method="enumeration")


def test_fewer_draws_than_a_claim_needs_are_fine():
    curve = ask(case("product"), [0.2], method=Sampling(n_samples=50))[0]  # a test of coverage 0.995 needs 1379
    assert curve.draws == 50
    assert curve.upper[0] - curve.lower[0] > 0.05


@pytest.mark.parametrize(
    "deltas", [[], 0.0, [0.1, -0.2], [0.1, float("nan")], [[0.1]], "0.1", None, [float("inf")], ["a"]]
)
def test_bad_deltas(deltas):
    with pytest.raises(
        InputError, match="`deltas` must be one or more positive finite numbers, got .*; they say how far"
    ):
        ask(case("product"), deltas)


@pytest.mark.parametrize("method", ["exact", None, Sampling, 3])
def test_bad_methods(method):
    with pytest.raises(InputError, match='`method` of robust_fraction must be "sampling", "enumeration", a Sampling'):
        ask(case("product"), [0.1], method=method)


def test_target_is_required():
    known = case("product")
    with pytest.raises(TypeError, match="target"):
        robust_fraction(known.model, known.X, [0.1])
    with pytest.raises(InputError, match="`target` must be the class to keep"):
        robust_fraction(known.model, known.X, [0.1], target=None)


def test_models_that_exist_need_no_delta():
    base, *others = (FeedForward([[[1.0], [w]]], [[0.0]]) for w in (-1.0, -1.5, -3.0))
    shifts, few = ObservedShifts(others), Sampling(coverage=0.5, confidence=0.5)
    curves = [
        robust_fraction(base, [[2.0, 1.0]], deltas, target=1, shifts=shifts, method=few) for deltas in (None, 1.0)
    ]
    assert [curve[0].deltas.tolist() for curve in curves] == [[1.0], [1.0]]
    assert curves[0][0].estimate.tolist() == curves[1][0].estimate.tolist() == [0.5]
    with pytest.raises(InputError, match="`deltas` must be one or more positive finite numbers, got None"):
        robust_fraction(base, [[2.0, 1.0]], None, target=1)
