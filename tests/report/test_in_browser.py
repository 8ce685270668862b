"""Reports in a real browser: no complaint, marks in every plot, a table that answers, on a desk, a phone and paper."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from browser_checks import (
    FITS,
    PHONE,
    WIDER,
    check_plots,
    check_report,
    check_table,
    open_browser,
    open_page,
    visible_rows,
)
from certificate_files import network, rows
from small_reports import HOSTILE, bank, later, offers, radii

import apas


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


def test_a_whole_report(browser, tmp_path):
    path = apas.write_report(offers(), tmp_path / "whole.html", new_model=later(), max_shifts=radii())
    check_report(browser, path, "whole")


def test_a_report_without_a_model(browser, tmp_path):
    apas.save_certificates(offers(), tmp_path / "offers.json")
    path = apas.write_report(tmp_path / "offers.json", tmp_path / "bare.html")
    with open_page(browser, path, size=PHONE, scheme="dark") as page:
        check_plots(page, ())
        check_table(page, curve=False)
        assert page.evaluate(WIDER) == []
        page.click("#rows tbody tr:nth-child(2)")
        assert offers().certificates[1].sentence() in page.inner_text("#said")


def test_hostile_names_do_not_run(browser, tmp_path):
    table = pd.DataFrame([[1.5, 0.4], [0.9, 0.0]], columns=list(HOSTILE), index=list(HOSTILE))
    model = bank(HOSTILE, classes=("no", HOSTILE[1]))
    found = apas.certify(model, table, 0.05, target=HOSTILE[1], rng=0)
    new = later(HOSTILE, classes=("no", HOSTILE[1]))
    path = apas.write_report(found, tmp_path / "hostile.html", new_model=new, title="as it was")
    with open_page(browser, path, size=PHONE) as page:
        assert page.evaluate(WIDER) == []
        assert page.evaluate(FITS)
        check_plots(page, ("plot-curve", "plot-histogram", "plot-margins", "plot-layers"))
        check_table(page, curve=True)
        assert page.title() == "as it was"
        # a line separator is nothing that a page shows
        assert visible_rows(page) == [name.replace("\u2028", "?") for name in HOSTILE]


def test_a_thousand_rows(browser, tmp_path):
    net = network(feature_names=list("abcd"))
    table = pd.DataFrame(rows(1000), columns=list("abcd"), index=[f"case-{i:04}" for i in range(1000)])
    few = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=60)
    found = apas.certify(net, table, 0.05, target=1, method=few, rng=0)
    largest = apas.max_shift(net, table, target=1, method=few, rng=1)
    path = apas.write_report(found, tmp_path / "thousand.html", new_model=network(), max_shifts=largest)
    assert path.stat().st_size < 10_000_000
    with open_page(browser, path) as page:
        certified = [label for label, c in zip(table.index, found, strict=True) if c.is_certified]
        page.select_option("#verdict", "CERTIFIED")
        assert visible_rows(page) == certified
        page.fill("#search", "case-09")
        assert visible_rows(page) == [label for label in certified if label.startswith("case-09")]
        page.fill("#search", "")
        page.select_option("#verdict", "")
        page.click("[data-sort=sampled]")
        deltas = dict(zip(table.index, largest.deltas, strict=True))
        shown = np.array([deltas[label] for label in visible_rows(page)])
        assert (np.diff(shown) >= 0).all()
