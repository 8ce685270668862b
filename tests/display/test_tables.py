"""Tables for notebooks: escaped, short, and rounded to the side that promises less."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import apas
from apas.display.tables import html_table

HOSTILE = ["<script>alert(1)</script>", "\"'><img src=x onerror=y>", "&lt;b&gt; </table>"]
OLD = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], classes=HOSTILE[:2], feature_names=HOSTILE[1:])
NEW = apas.FeedForward([[[1.0], [-1.0]]], [[-0.2]], classes=HOSTILE[:2], feature_names=HOSTILE[1:])
ROWS = pd.DataFrame([[2.0, 0.5], [1.0, 0.9], [0.0, 1.0]], columns=HOSTILE[1:], index=HOSTILE)


class Tags(HTMLParser):
    """The tags and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def results():
    certificates = apas.certify(OLD, ROWS, 0.02, target=HOSTILE[1], method="interval")
    space = apas.FeatureSpace([apas.Feature(name, low=0, high=3) for name in HOSTILE[1:]])
    return {
        "Certificates": certificates,
        "MaxShifts": apas.max_shift(OLD, ROWS, target=HOSTILE[1], method="interval"),
        "Counterfactuals": apas.generate(OLD, ROWS[2:], 0.02, target=HOSTILE[1], space=space, method="interval"),
        "AuditReport": apas.audit(certificates, NEW, base=OLD, space=space),
    }


@pytest.mark.parametrize("kind", ["Certificates", "MaxShifts", "Counterfactuals", "AuditReport"])
def test_hostile_labels_stay_texts(kind):
    found = results()[kind]
    page = Tags(found._repr_html_())
    assert set(page.tags) == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert page.texts[0] == found.summary()
    labels = [label for label in HOSTILE if any(label in text for text in page.texts)]
    assert len(labels) >= len(found)


def test_what_is_missing_is_empty_and_long_tables_are_cut():
    frame = pd.DataFrame({"a": [None, "x", 1.5], "b": [np.nan, 2.0, np.inf]})
    cells = re.findall("<td>(.*?)</td>", html_table(frame, caption="c"))
    assert cells == ["", "", "x", "2", "1.5", "inf"]
    cut = html_table(pd.concat([frame] * 7), caption="c")
    assert "1 more row; to_frame() has all of them" in cut
    assert cut.count("<tr>") == 22
    assert "more row" not in html_table(pd.concat([frame] * 6), caption="c")


def test_formulas_are_not_made_of_names():
    assert html_table(pd.DataFrame({"$a$": [1]}), caption="$b$").startswith(
        '<div class="tex2jax_ignore mathjax_ignore">'
    )


def test_numbers_of_the_largest_shift_promise_no_more():
    net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]])
    rows = np.random.default_rng(0).uniform(1, 3, size=(12, 2))
    found = apas.max_shift(net, rows, target=1, method=apas.Sampling(n_samples=2000), rng=0)
    lines = re.findall("<tr><th>.*?</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>", found._repr_html_())
    assert len(lines) == 12
    nearest = 0
    for item, shown in zip(found, lines, strict=True):
        delta, upper, provable, broken_at = map(float, shown)
        assert delta <= item.delta
        assert upper >= item.upper
        assert provable <= item.provable
        assert broken_at >= item.broken_at
        nearest += float(f"{item.delta:g}") > item.delta
    assert nearest > 0  # the nearest six digits would have promised too much
