"""Ranges of margins: drawn ends with their share, proved ends around every shift, attained ends where exact."""

from __future__ import annotations

import json
import pickle
import threading
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from problems import CASES, case, network

import apas
from apas import Every, FeedForward, InputError, Most, Sampling, Unsupported
from apas.certification.api import output_range
from apas.certification.methods import bounds
from apas.stats import coverage_lower

SMALL = Sampling(coverage=0.9, confidence=0.9)


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_ranges_of_known_problems(known):
    drawn = output_range(known.model, known.X, known.delta, target=known.target, shifts=known.shifts, rng=0)[0]
    proved = output_range(
        known.model, known.X, known.delta, target=known.target, shifts=known.shifts, method="interval"
    )[0]
    assert proved.low <= drawn.low <= drawn.margin <= drawn.high <= proved.high
    assert (proved.low > 0) == (known.delta < known.worst_case)
    assert proved.attained == (True, len(known.model.classes) == 2)
    assert isinstance(proved.low_claim, Every)
    # a share of failing shifts that is not tiny shows in 20,000 draws
    assert (drawn.low < 0) == (known.share < 1)


def test_the_share_that_an_extreme_of_draws_stands_for():
    known = case("bias-some")  # the margin is uniform on [-0.1, 0.7]
    method = Sampling(coverage=0.9, confidence=0.99, n_samples=100)
    false = 0
    for seed in range(400):
        found = output_range(known.model, known.X, known.delta, target=1, shifts=known.shifts, method=method, rng=seed)[
            0
        ]
        assert isinstance(found.low_claim, Most)
        assert found.low_claim.coverage == pytest.approx(0.01 ** (1 / 100), rel=1e-9)
        share_above = (0.7 - found.low) / 0.8
        false += share_above < found.low_claim.coverage
    assert false <= 13  # 4 expected at 1 %; above 13 has probability 1e-4


@pytest.mark.parametrize(("sizes", "output"), [((3, 5, 4, 1), "sigmoid"), ((3, 4, 4, 2), "softmax")], ids=str)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh"])
def test_exact_ends_are_attained_and_never_passed(sizes, output, activation):
    net = network(sizes, output, activation, 2)
    X = np.random.default_rng(0).normal(size=(3, 3))
    exact = output_range(net, X, 0.1, target=1, method="exact")
    loose = output_range(net, X, 0.1, target=1, method="interval")
    rng = np.random.default_rng(1)
    directions = np.vstack([rng.uniform(-1, 1, (3000, len(net.parameters))), rng.choice([-1.0, 1.0], (3000, len(net.parameters)))])  # fmt: skip
    margins = net.shifted_margins(X, 1, directions, 0.1)
    for i, (sharp, wide) in enumerate(zip(exact, loose, strict=True)):
        assert sharp.attained == (True, True)
        assert wide.low <= sharp.low <= margins[:, i].min()
        assert margins[:, i].max() <= sharp.high <= wide.high
        # just inside the end the verdict is the other one
        scale = abs(sharp.low) + 1
        below, above = (_lowered(net, sharp.low + s * 1e-4 * scale) for s in (-1, 1))
        assert apas.certify(below, X[i : i + 1], 0.1, target=1, method="exact")[0].is_certified
        assert not apas.certify(above, X[i : i + 1], 0.1, target=1, method="exact")[0].is_certified


def _lowered(net, level):
    biases = [b.copy() for b in net.biases]
    if len(biases[-1]) == 1:
        biases[-1] = biases[-1] - level
    else:
        biases[-1] = biases[-1] - np.array([0.0, level])
    return FeedForward(
        net.weights, biases, activation=net.activations, output=net.output, threshold=net.threshold
    )  # fmt: skip


def test_more_than_two_classes():
    net = network((3, 5, 4, 3), "softmax", "relu", 0)
    X = np.random.default_rng(3).normal(size=(4, 3))
    ranges = [
        output_range(net, X, 0.05, target="predicted", method=m, rng=0) for m in ("interval", "exact", SMALL)
    ]  # fmt: skip
    for loose, sharp, drawn in zip(*ranges, strict=True):
        assert loose.low <= sharp.low <= drawn.low <= drawn.high <= sharp.high == loose.high
        assert sharp.attained == (True, False)


def test_balls():
    net = case("two-weights").model
    found = output_range(net, [[1.0, 1.0]], 0.5, target=1, shifts=apas.LpShifts(2, kinds=("weight",)), method="interval")[0]  # fmt: skip
    assert found.low == pytest.approx(1 - 0.5 * 2**0.5)
    assert found.high == pytest.approx(1 + 0.5 * 2**0.5)
    three = case("three-classes").model
    with pytest.raises(Unsupported, match="two classes"):
        output_range(three, [[1.0]], 0.5, target="b", shifts="l2", method="interval")


def test_sides_tables_and_words():
    net = FeedForward([[[1.0]]], [[0.0]])
    X = pd.DataFrame({"x": [2.0, 0.05, -2.0]}, index=["a", "b", "c"])
    found = output_range(net, X, 0.1, target=1, method="interval")
    assert [item.side for item in found] == ["above", "across", "below"]
    assert found.to_frame().index.tolist() == ["a", "b", "c"]
    assert found.summary() == "3 rows: 1 above, 1 across, 1 below the threshold (every shift)."
    assert "lies between 1.69999 and 2.30001" in found[0].sentence()
    assert "of the shifts have margins" in str(output_range(net, X, 0.1, target=1, rng=0)[0])
    drawn = output_range(net, X, 0.1, target=1, rng=0)
    assert drawn[0].low_claim.coverage == coverage_lower(20_000, 0, confidence=0.999)
    assert drawn[0].sentence().startswith("at least 99.9654 % of the shifts have margins")
    assert "(at least 99.9654 % of the shifts, confidence 0.999 for each end of each row by itself)" in drawn.summary()
    assert drawn.to_frame()["claim"].iloc[0] == "at least 99.9654 % of the shifts, confidence 0.999"
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["side"] == "across"
    assert len(found[:2]) == 2
    assert "<table" in found._repr_html_()
    assert output_range(net, X[:0], 0.1, target=1).summary() == "No rows, no ranges."


def test_plot(tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
    matplotlib.use("Agg")
    net = FeedForward([[[1.0]]], [[0.0]])
    axes = output_range(net, [[2.0], [0.05], [-2.0]], 0.1, target=1, method="interval").plot()
    assert len(axes.lines) == 7  # a bar and a mark per row, and the threshold
    axes.figure.savefig(tmp_path / "ranges.png")
    legend, figure = axes.get_legend(), axes.figure.bbox
    assert [text.get_text() for text in legend.get_texts()] == ["threshold", "model itself", "above", "across", "below"]
    shown, frame = legend.get_window_extent(), axes.get_window_extent()
    assert frame.x0 <= shown.x0  # nothing is cut off
    assert shown.x1 <= frame.x1 + 1
    assert shown.y1 <= figure.y1
    assert frame.width > 0.85 * figure.width  # nor are the axes squeezed
    assert frame.height > 0.6 * figure.height
    matplotlib.pyplot.close(axes.figure)


def test_misuse():
    net = FeedForward([[[1.0]]], [[0.0]])
    with pytest.raises(InputError, match="`method` of output_range must be sampling, interval or exact, got Attack"):
        output_range(net, [[1.0]], 0.1, target=1, method="attack")
    deep = network((2, 3, 3, 1), "sigmoid", "tanh", 0)
    with pytest.raises(Unsupported, match="Exact needs relu"):
        output_range(deep, [[1.0, 1.0]], 0.1, target=1, method="exact")


class Undecided:
    """A linear model that gives no number once its bias is negative."""

    def __init__(self, net):
        self.net = net
        self.classes, self.n_features, self.parameters = net.classes, net.n_features, net.parameters

    def margin(self, X, target):
        return self.net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        margins = self.net.shifted_margins(X, target, directions, delta)
        margins[self.parameters.values[-1] + delta * directions[:, -1] < 0] = np.nan
        return margins


def test_draws_without_a_number_are_on_no_side():
    model = Undecided(FeedForward([[[1.0]]], [[0.05]]))
    found = output_range(model, [[3.0]], 0.1, target=1, method=SMALL, rng=0)[0]
    assert (found.low, found.high, found.attained) == (-np.inf, np.inf, (False, False))
    assert found.undefined > 0
    assert f": {found.undefined} of the drawn models give no number." in found.sentence()
    assert "inf" not in found.sentence()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["low"] is None
    found = output_range(model, [[3.0]], 0.01, target=1, method=SMALL, rng=0)[0]
    assert np.isfinite([found.low, found.high]).all()


@pytest.mark.parametrize(
    "ask", [lambda *q, **how: output_range(*q, 0.1, **how), lambda *q, **how: apas.robust_fraction(*q, [0.1], **how)]
)
def test_answers_that_nobody_continues_hold_no_model(ask):
    model = Undecided(FeedForward([[[1.0]]], [[0.05]]))
    model.lock = threading.Lock()  # which cannot be pickled
    found = ask(model, [[3.0]], target=1, rng=0)
    assert pickle.loads(pickle.dumps(found)).to_dict() == found.to_dict()


@pytest.mark.parametrize("output", ["sigmoid", "softmax"])
def test_a_lowered_network_is_lowered_by_no_less(output):
    rng, outputs = np.random.default_rng(0), 1 if output == "sigmoid" else 2
    for _ in range(200):
        biases = rng.normal(size=outputs) * 10.0 ** rng.integers(-8, 8)
        net = FeedForward([rng.normal(size=(1, outputs))], [biases], output=output)
        level, wanted = float(rng.normal() * 10.0 ** rng.integers(-8, 8)), int(rng.integers(2))
        lower = bounds._lower_margin(net, wanted, level).biases[-1].tolist()
        change = [Fraction(old) - Fraction(new) for old, new in zip(biases.tolist(), lower, strict=True)]
        assert (change[wanted] if outputs == 2 else change[0] * (2 * wanted - 1)) >= Fraction(level)
