"""The paper's drawings: every weight is there, intervals are those of the paper, and ranges are what they are."""

from __future__ import annotations

import numpy as np
import pytest

from apas import FeedForward
from apas.paper import drawings
from apas.paper.toy import TOY
from apas.theory.shift_notions import LEMMA_EXAMPLE

#: Places of the weights of the 2-2-1 network among its parameters; the others are biases that it does not have.
WEIGHTS = [0, 1, 2, 3, 6, 7]


@pytest.fixture(autouse=True)
def _pyplot():
    pytest.importorskip("matplotlib").use("agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_figure_1():
    model = LEMMA_EXAMPLE.model()
    assert texts(drawings.draw_network(model))[:6] == ["1", "0", "0", "0.6", "1", "-1"]
    assert texts(drawings.draw_network(model, delta=0.3))[:6] == [
        "[0.7, 1.3]", "[-0.3, 0.3]", "[-0.3, 0.3]", "[0.3, 0.9]", "[0.7, 1.3]", "[-1.3, -0.7]",
    ]  # fmt: skip


def test_figure_3():
    found = texts(drawings.draw_network(TOY, delta=0.115, digits=2))
    assert found[:4] == ["[-0.48, -0.25]", "[-0.99, -0.76]", "[-1.1, -0.91]", "[0.7, 0.93]"]
    assert sorted(found[4:]) == ["relu", "relu", "x", "y"]


def test_every_weight_and_bias_is_drawn():
    rng = np.random.default_rng(0)
    model = FeedForward(
        [rng.normal(size=(3, 4)), rng.normal(size=(4, 2)), rng.normal(size=(2, 2))],
        [rng.normal(size=4), [0.0, 7.0], [0.0, 0.0]], activation=("tanh", "relu"), output="softmax",
    )  # fmt: skip
    ax = drawings.draw_network(model, biases={(1, 1): "seven"})
    assert len(ax.lines) == 12 + 8 + 4
    found = texts(ax)
    assert found[:24] == [f"{w:.3g}" for weights in model.weights for w in weights.ravel()]
    assert found.count("tanh") == 4
    assert found.count("relu") == 2
    assert {"x1", "x2", "x3", "y1", "y2", "bias seven"} <= set(found)
    assert sum(text.startswith("bias") for text in found) == 5


def test_figure_2_ranges():
    results = [drawings.place_output(**unit.settings) for unit in drawings.units({})]
    assert [r["side"] for r in results] == ["above", "across", "below"]
    draws = np.random.default_rng(1).uniform(-1, 1, (100_000, len(WEIGHTS)))
    model = LEMMA_EXAMPLE.model()
    for found in results:
        X = np.array([drawings.CASES[found["case"]]])
        assert model.margin(X, 1)[0] + 0.5 == pytest.approx(found["output"])
        moves = np.zeros((100_000, 9))
        moves[:, WEIGHTS] = draws
        outputs = model.shifted_margins(X, 1, moves, drawings.DELTA)[:, 0] + 0.5
        assert found["low"] <= outputs.min()
        assert outputs.max() <= found["high"]
        assert found["share"][0] - 0.01 < (outputs >= 0.5).mean() < found["share"][1] + 0.01
        corners = 2.0 * ((np.arange(64)[:, None] >> np.arange(6)) & 1) - 1
        moves = np.zeros((64, 9))
        moves[:, WEIGHTS] = corners
        outputs = model.shifted_margins(X, 1, moves, drawings.DELTA)[:, 0] + 0.5
        assert (outputs.min(), outputs.max()) == pytest.approx((found["low"], found["high"]))
    table = drawings.tables(results)["figure2"]
    assert table["side of 1/2"].tolist() == ["above", "across", "below"]


def test_files(tmp_path):
    results = [drawings.place_output(**unit.settings) for unit in drawings.units({"quick": True})]
    paths = drawings.figures(results, tmp_path)
    assert [path.name for path in paths] == [
        f"{name}.{kind}" for name in ("figure1", "figure2", "figure3", "appendix-network") for kind in ("png", "svg")
    ]
    for path in paths:
        assert path.stat().st_size > 5000
    texts = {path.stem: path.read_text() for path in paths if path.suffix == ".svg"}
    assert "expected output 0.519875" in texts["figure1"]
    assert "1: 55 to 58 % of them" in texts["figure2"]
    assert "bias -(theta + tau)" in texts["appendix-network"]
    import matplotlib.pyplot as plt

    assert not plt.get_fignums()
