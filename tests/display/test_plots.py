"""The picture of an audit shows what the report says, and survives any names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import apas
from apas.display.plots import NAMED

OLD = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=["$in$", "$\\frac{$"])
NEW = apas.FeedForward([[[1.0], [-1.0]]], [[-0.2]], feature_names=["$in$", "$\\frac{$"])
X = [[2.0, 0.5], [1.0, 0.9], [0.0, 1.0]]


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
    matplotlib.use("Agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    yield pyplot
    pyplot.close("all")


def rows(index=("$a$", "$\\frac{$", "x\x00\ny")):
    return pd.DataFrame(X, columns=list(OLD.feature_names), index=list(index))


def marks(axes):
    return {line.get_label(): np.column_stack(line.get_data()).tolist() for line in axes.lines}


@pytest.mark.parametrize("shifts", ["linf", "l2"])
def test_marks_are_the_outcomes(plt, tmp_path, shifts):
    certificates = apas.certify(OLD, rows(), [0.3, 0.02, 0.1], target=1, shifts=shifts, method="cascade", rng=0)
    report = apas.audit(certificates, NEW, base=OLD, repairs=False)
    axes = report.plot()
    shown = marks(axes)
    assert shown.pop("measured shift: 0.2") == [[0.0, 0.2], [1.0, 0.2]]
    assert shown == {"HELD (1)": [[0, 0.3]], "BROKEN_OUTSIDE (1)": [[1, 0.02]], "NOT_PROMISED (1)": [[2, 0.1]]}
    axes.figure.savefig(tmp_path / "audit.png")  # names that look like formulas are drawn as they are
    assert (tmp_path / "audit.png").stat().st_size > 5000
    assert [label.get_text() for label in axes.get_xticklabels()] == ["$a$", "$\\frac{$", "x??y"]
    assert report.plot(ax=axes) is axes


@pytest.mark.parametrize(
    ("shifts", "base"),
    [(apas.LinfShifts(relative=True), OLD), (apas.LinfShifts(kinds=("weight",)), OLD), (apas.GaussianShifts(), OLD), ("linf", None)],
)  # fmt: skip
def test_no_line_where_the_distance_is_not_that_of_delta(plt, shifts, base):
    certificates = apas.certify(OLD, rows(), 0.01, target=1, shifts=shifts, rng=0)
    axes = apas.audit(certificates, NEW, base=base, repairs=False).plot()
    assert not [label for label in marks(axes) if "measured" in label]
    assert len(axes.lines) >= 2


def test_empty_and_many(plt):
    certificates = apas.certify(OLD, rows(), 0.02, target=1, method="interval")
    assert len(apas.audit(certificates[:0], NEW).plot().lines) == 0
    many = apas.certify(OLD, X * (NAMED // 3 + 1), 0.02, target=1, method="interval")
    assert apas.audit(many, NEW, repairs=False).plot().get_xlabel() == f"{len(many)} rows, in their order"


def test_other_pictures_take_any_names(plt, tmp_path):
    names = ["$a$", "$\\frac{$", "x\x00\ny"]
    space = apas.FeatureSpace([apas.Feature(name, low=0, high=3) for name in OLD.feature_names])
    found = apas.generate(OLD, rows(names)[2:], 0.02, target=1, space=space, method="interval")
    for number, axes in enumerate([found.plot(), found.certificates.plot()]):
        axes.figure.savefig(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 5000
