"""Pictures of gadgets and networks: every unit and every weight that is not 0 is there."""

from __future__ import annotations

import pytest

from apas.paper.hardness import draw_gadgets, draw_reduction
from apas.theory import Formula, reduction


@pytest.fixture(autouse=True)
def _pyplot():
    pytest.importorskip("matplotlib").use("agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_gadgets():
    figure = draw_gadgets()
    texts = [{t.get_text() for t in ax.texts} for ax in figure.axes]
    assert {"x", "chi", "0", "bias 1/2"} <= texts[0]
    assert {"chi", "p", "q", "-2", "2", "bias 1", "bias -1"} <= texts[1]
    assert {"chi 1", "chi 2", "chi 3", "-1", "1", "t", "bias 0"} <= texts[3]
    assert "bias gap/2 - n" in texts[4]


def test_whole_network():
    hard = reduction(Formula(3, [[1, -2, 3], [-1, 2]]))
    ax = draw_reduction(hard)
    names = {t.get_text() for t in ax.texts}
    assert {"x", "z", "chi 3", "p 1", "q 3", "t 2"} <= names
    assert sum(name.startswith("t ") for name in names) == 2
    drawn = [line for line in ax.lines if len(line.get_xdata())]
    weights = hard.model.weights
    assert len(drawn) == weights[0].size + int((weights[1] != 0).sum()) + int((weights[2] != 0).sum())
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {
        "weight -2", "weight -1", "weight 0, chooses the assignment", "weight 1", "weight 2",
    }  # fmt: skip
