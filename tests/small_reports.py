"""Small reports for tests: a bank with two features, its offers, a later model, and what can be said about them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import apas

NAMES = ("income", "savings")
#: Names that would run, break out of their element, or become a tag if anything forgot to escape them.
HOSTILE = (
    "</script><script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">'\"&amp;{{ 7 * 7 }}\u2028%{x}",
)


def bank(names: tuple[str, ...] = NAMES, **options: Any) -> apas.FeedForward:
    weights = [[[1.0, -0.5], [0.5, 2.0]], [[2.0], [1.0]]]
    return apas.FeedForward(weights, [[0.1, 0.2], [-2.0]], feature_names=names, **options)


def later(names: tuple[str, ...] = NAMES, move: float = 0.06, **options: Any) -> apas.FeedForward:
    """The same with each parameter moved against the applicants."""
    old = bank(names)
    return apas.FeedForward(
        [w - move for w in old.weights], [b - move for b in old.biases], feature_names=names, **options
    )


def applicants() -> pd.DataFrame:
    return pd.DataFrame({"income": [0.6, 0.4, 0.7], "savings": [0.1, 0.2, 0.0]}, index=["A1", "A2", "A3"])


@cache
def offers() -> apas.Counterfactuals:
    """Offers with their original rows; nobody changes them."""
    space = apas.FeatureSpace([apas.Feature("income", low=0, high=4), apas.Feature("savings", low=0, high=2)])
    return apas.generate(bank(), applicants(), 0.05, space=space, rng=7)


@cache
def radii() -> apas.MaxShifts:
    return apas.max_shift(bank(), offers().points, target=1, rng=8)


def mixed(names: tuple[str, ...] = NAMES, *, count: int = 6, **options: Any) -> apas.Certificates:
    """Certificates of all verdicts, by sampling."""
    points = np.column_stack([np.linspace(0.8, 1.4, count), np.zeros(count)])
    model = bank(names, **options)
    return apas.certify(model, points, 0.1, target=model.classes[1], rng=0)


def data_of(path: Path) -> dict[str, Any]:
    """What the plots of a page are drawn from."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def own_text(path: Path) -> str:
    """A page without the plotting library."""
    text = path.read_text(encoding="utf-8")
    start = text.index("<script>/**\n* plotly.js")
    return text[:start] + text[text.index("</script>", start) :]
