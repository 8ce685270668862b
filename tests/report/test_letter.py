"""Letters: what they say is what was certified, their codes are found in the ledger, templates can do no harm."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
from browser_checks import PHONE, WIDER, open_browser, output_folder
from small_reports import HOSTILE

import apas
from apas import InputError

pytest.importorskip("jinja2")
NAMES = ("income", "debt_ratio")
#: Contrast of text with what is behind it, by the formula of the Web Content Accessibility Guidelines.
CONTRAST = """() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3)
    .map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
  return Math.min(...[...document.querySelectorAll('body *')].filter(e => e.innerText).map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    return (a + .05) / (b + .05); })); }"""


def bank(names=NAMES, classes=(0, 1)) -> apas.FeedForward:
    return apas.FeedForward([[[1.0], [-0.5]]], [[-1.0]], feature_names=names, classes=classes)


def space(names=NAMES, **more) -> apas.FeatureSpace:
    return apas.FeatureSpace([apas.Feature(n, low=0, high=5, **more) for n in names])


def applicants(names=NAMES, index=("A-17", "A-18")) -> pd.DataFrame:
    return pd.DataFrame([[0.5, 0.6], [0.2, 0.1]], columns=list(names), index=list(index))


def offers(**more):
    return apas.generate(bank(), applicants(), 0.02, space=space(), rng=0, **more)


def text_of(path) -> str:
    """What a reader sees, in one line."""
    page = re.sub(r"<style>.*?</style>|<[^>]+>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+(?=[.,;])", "", re.sub(r"\s+", " ", unescape(page)))


def test_a_letter_says_what_was_certified_and_no_more(tmp_path):
    found = offers(beyond=True)
    pages = apas.write_letter(found, tmp_path / "letters", expires="2099-12-31", answer="approved", sender="A bank")
    assert len(pages) == 2
    for page, certificate in zip(pages, found.certificates, strict=True):
        told, html = text_of(page), page.read_text(encoding="utf-8")
        (span,) = certificate.region.spans
        (written,) = re.findall(r"at least ([\d.,]+) \(up to 5\)", told)
        assert span.low <= float(written) <= span.low + 1e-4  # rounded into what is certified
        for part in ("A bank", "approved", "2099-12-31, that day included", certificate.sentence()):
            assert part in told
        assert "With confidence 0.999, at least 99.5 % of the shifts keep this answer." in told
        assert "Values outside of the limits above." in told
        assert html.startswith('<!doctype html>\n<html lang="en">')
        assert html.count("<h1>") == 1
        assert "debt" not in told.split("What is promised")[0]  # it does not change


def test_points_tolerances_and_levels_are_said_as_they_are(tmp_path):
    point = text_of(apas.write_letter(offers(), tmp_path / "a")[0])
    value = float(np.asarray(offers().points)[0, 0])
    assert f"exactly {value!r}" in point
    assert "Values other than those above" in point
    assert "no last day was set" in point
    near = text_of(apas.write_letter(offers(tolerance=0.02), tmp_path / "b", names={"income": "monthly income"})[0])
    assert re.search(r"monthly income 0.5 between 1\.[\d]+ and [\d.]+", near)
    assert re.search(r"debt ratio 0.6 between 0.5 and 0.7 \(need not change\)", near)
    frame = applicants().assign(home=["rent", "rent"])
    net = apas.FeedForward([[[1.0], [-0.5], [2.0], [0.0]]], [[-1.0]])
    kinds = apas.FeatureSpace([*space(mutable=False), apas.Feature("home", "categorical", values=("own", "rent"))])
    levels = apas.generate(net, frame, 0.02, space=kinds, rng=0)
    assert "home rent exactly own" in text_of(apas.write_letter(levels, tmp_path / "c")[0])
    region = {"home": ["own"], "income": (0.5, 3.0)}
    listed = apas.certify(kinds.bind(net), levels.points[:1], 0.02, target=1, region=region, rng=0)
    if listed[0].is_certified:
        assert "home not known here own" in text_of(apas.write_letter(listed, tmp_path / "d")[0])


def test_a_code_is_found_in_the_ledger(tmp_path):
    found = offers(beyond=True)
    pages = apas.write_letter(found, tmp_path / "letters")
    codes = [re.search(r"code ([0-9A-F]{4}(-[0-9A-F]{4}){2})\.", text_of(p))[1] for p in pages]
    with apas.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.add(found)
        for code, name in zip(codes, ("A-17", "A-18"), strict=True):
            assert ledger.to_frame(digest=code)["reference"].tolist() == [name]
            assert ledger.to_frame(digest=code.lower().replace("-", ""))["reference"].tolist() == [name]
        assert len(ledger.to_frame(digest="0000-0000-0000")) == 0
        assert ledger.retire("A-18", digest=codes[1]) == 1
        with pytest.raises(InputError, match="`digest` must be a text"):
            ledger.to_frame(digest=7)
    # a file gives the same pages as what was computed
    apas.save_certificates(found, tmp_path / "offers.json")
    again = apas.write_letter(tmp_path / "offers.json", tmp_path / "again")
    assert [p.name for p in again] == [p.name for p in pages]
    assert [p.read_text() for p in again] == [p.read_text() for p in pages]


def test_a_menu_has_options_and_what_is_not_enough(tmp_path):
    net = apas.FeedForward([[[1.0], [-1.0], [0.05]]], [[-1.0]], feature_names=("income", "debt", "years"))
    table = pd.DataFrame([[1.2, 0.6, 1.0]], columns=list(net.feature_names))
    wide = space(net.feature_names)
    found = apas.menu(net, table, 0.02, space=wide, rng=0)
    told = text_of(apas.write_letter(found, tmp_path / "m", references=["A-17"])[0])
    assert "Option 1" in told
    assert "no change of the following alone can lead to the answer: years." in told
    with pytest.raises(InputError, match="one text per applicant"):
        apas.write_letter(found, tmp_path / "m", references=["A-17", "A-18"])


def test_templates_of_users_are_escaped_and_run_in_a_sandbox(tmp_path):
    own = tmp_path / "own.html"
    own.write_text("<b>{{ letter.reference }}</b>{% for o in letter.options %}{{ o.changes[0].needed }}{% endfor %}")
    strange = apas.generate(bank(), applicants(index=["<i>1", "2"]), 0.02, space=space(), rng=0)
    assert "<b>&lt;i&gt;1</b>exactly" in apas.write_letter(strange, tmp_path / "o", template=own)[0].read_text()
    for bad, why in {
        "{{ letter.nothing }}": "UndefinedError",
        "{% include 'other.html' %}": "TypeError|TemplateNotFound",
        "{{ ''.__class__.__mro__ }}": "SecurityError",
        "{{ letter.options.append(1) }}": "SecurityError",
        "{{ 1 / 0 }}": "ZeroDivisionError",
        "{% if %}": "TemplateSyntaxError",
    }.items():
        own.write_text(bad)
        with pytest.raises(InputError, match=f"`template` cannot be used: ({why})"):
            apas.write_letter(strange, tmp_path / "o", template=own)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"answer": 1}, "`answer` must be a text"),
        ({"names": ["income"]}, "`names` must map features"),
        ({"names": {"incme": "what you earn"}}, "`names` has 'incme', which is no feature of the rows; they have"),
        ({"expires": "2001-01-01"}, "must not lie before today"),
        ({"references": ["A"]}, "one text per row"),
        ({"template": "none.html"}, "`template` must be a text file"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, more, error):
    with pytest.raises(InputError, match=error):
        apas.write_letter(offers(), tmp_path / "x", **more)
    assert not list(tmp_path.glob("x/*"))
    with pytest.raises(InputError, match="`folder` must be"):
        apas.write_letter(offers(), tmp_path / "no" / "where")


def test_in_a_browser_on_a_desk_a_phone_and_one_sheet_of_paper(tmp_path):
    names = tuple(HOSTILE[:2])
    table = applicants(names, index=HOSTILE[:2])
    hostile = apas.generate(bank(names, ("no", HOSTILE[1])), table, 0.02, space=space(names), rng=0, beyond=True)
    wide = apas.FeatureSpace([apas.Feature(f"feature number {i}", low=0, high=5) for i in range(12)])
    many = apas.FeedForward([[[0.3]] * 12], [[-1.0]], feature_names=wide.names)
    rows = pd.DataFrame(np.full((1, 12), 0.1), columns=list(wide.names), index=["A-17"])
    several = apas.generate(many, rows, 0.01, space=wide, rng=0, k=3, tolerance={"feature number 3": 0.1})
    long = apas.generate(many, rows, 0.01, space=wide, rng=0, tolerance=0.01)
    # three options with their small print and much that is not enough; and one of very many entries
    bank_of = apas.FeedForward([[[1.0], [-0.9], [0.8], *[[0.01]] * 9]], [[-0.8]], feature_names=wide.names)
    menu = apas.menu(bank_of, rows, 0.01, space=wide, rng=0, beyond=True)
    crowd = apas.FeatureSpace([apas.Feature(f"feature number {i}", low=0, high=5) for i in range(30)])
    table = pd.DataFrame(np.full((1, 30), 0.1), columns=list(crowd.names), index=["A-18"])
    weights = apas.FeedForward([[[0.3]] * 30], [[-2.0]], feature_names=crowd.names)
    crowded = apas.generate(weights, table, 0.001, space=crowd, rng=0, tolerance=0.001)
    pages = {"offer": offers(beyond=True), "hostile": hostile, "several": several, "long": long}
    pages |= {"menu": menu, "crowded": crowded}
    with open_browser() as browser:
        for name, found in pages.items():
            page_file = apas.write_letter(found, tmp_path / name, expires="2099-12-31", answer="approved")[0]
            page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="dark")
            complaints: list[str] = []
            page.on("console", lambda message, told=complaints: told.append(message.text))
            page.on("pageerror", lambda error, told=complaints: told.append(str(error)))
            page.on("request", lambda r, told=complaints: told.append(r.url) if not r.url.startswith("file:") else None)
            page.goto(page_file.as_uri())
            assert page.evaluate("() => document.querySelectorAll('script, img, iframe').length") == 0
            assert page.evaluate("() => document.documentElement.lang") == "en"
            levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
            assert levels[0] == 1
            assert levels.count(1) == 1
            assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
            assert page.evaluate("() => [...document.querySelectorAll('th')].every(e => e.scope)")
            assert page.evaluate(CONTRAST) >= 7
            pdf = page.pdf(prefer_css_page_size=True)
            assert len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) == 1, f"{name} does not fit on one sheet"
            (output_folder() / f"letter-{name}.pdf").write_bytes(pdf)
            page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            assert page.evaluate(WIDER) == []
            page.screenshot(path=str(output_folder() / f"letter-{name}-phone.png"), full_page=True)
            assert complaints == []
            page.close()
