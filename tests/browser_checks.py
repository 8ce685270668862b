"""Reports opened in a real browser: what a reader would notice, checked on any page that `write_report` made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import absent

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PLOTS = ("plot-curve", "plot-histogram", "plot-radii", "plot-margins", "plot-layers")
#: Widths and heights of a desk, and of a phone.
DESK, PHONE = (1200, 900), (400, 800)
#: Width of a printed page (A4 with margins), in pixels of a screen.
PAPER = 718
#: Counts what is drawn: points, bars, lines and filled areas.
MARKS = "e => e.querySelectorAll('.points path, .point path, path.js-line, path.js-fill').length"
FITS = "() => { const box = document.querySelector('.scroll'); return box.scrollWidth <= box.clientWidth; }"
#: What sticks out to the right, for the message of a failure.
WIDER = (
    "() => document.documentElement.scrollWidth > innerWidth"
    " ? [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    ".map(e => e.tagName + '.' + e.className).slice(0, 5) : []"
)


def output_folder() -> Path:
    """Where screenshots are kept."""
    folder = Path(os.environ.get("APAS_TEST_OUTPUT", Path(__file__).resolve().parents[1] / "test-output"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def open_browser() -> Iterator[Any]:
    """A headless Chromium of this machine; without one, or without playwright, the test is skipped."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("chromium", "playwright is not installed: run `make test BROWSER=1`, or pip install 'apas[browser]'")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        absent("chromium", f"no browser is installed ({', '.join(BROWSERS)}); on Debian: apt-get install chromium")
    # the sandbox of Chromium does not work for root
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Any, path: Path, *, size: tuple[int, int] = DESK, scheme: str = "light") -> Iterator[Any]:
    """A report on a screen; at the end nobody may have complained or asked the network for anything."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = path.resolve().as_uri()
    page.goto(address)
    page.wait_for_function("() => document.querySelector('#shown')")
    try:
        yield page
        assert complaints == []
        assert [url for url in requests if url != address and not url.startswith(("data:", "blob:"))] == []
    finally:
        context.close()


def check_report(browser: Any, path: Path, name: str, *, plots: tuple[str, ...] = PLOTS) -> None:
    """Whatever must hold for a report in a browser, on a desk and a phone, light and dark.

    Parameters
    ----------
    browser : playwright Browser
        Of `open_browser`.
    path : Path
        Of the report.
    name : str
        What the screenshots are called.
    plots : tuple of str
        The plots that the report must have; other ones must not be there.
    """
    folder = output_folder()
    for size, kind in ((DESK, "desk"), (PHONE, "phone")):
        with open_page(browser, path, size=size) as page:
            for scheme in ("dark", "light"):
                page.emulate_media(color_scheme=scheme)
                check_plots(page, plots)
                assert page.evaluate(WIDER) == [], f"the page scrolls sideways ({kind}, {scheme})"
                assert page.evaluate(FITS), f"the table scrolls sideways ({kind}, {scheme})"
                check_scheme(page, scheme)
                page.screenshot(path=str(folder / f"{name}-{kind}-{scheme}.png"), full_page=True)
            if kind == "desk":
                check_table(page, curve="plot-curve" in plots)
                page.set_viewport_size({"width": PAPER, "height": 1000})
                page.emulate_media(media="print", color_scheme="dark")
                if plots:
                    page.wait_for_function(
                        "() => document.querySelector('.plot .main-svg').getAttribute('width') === '640'"
                    )
                assert page.evaluate(WIDER) == [], "the page is wider than paper"
                # the changes have room, and each sentence stands on paper
                assert (
                    page.evaluate("() => document.querySelector('#rows tbody td').getBoundingClientRect().width") > 140
                )
                assert page.evaluate("() => [...document.querySelectorAll('.told')].every(e => e.offsetHeight > 0)")
                check_scheme(page, "light")  # paper is
                page.screenshot(path=str(folder / f"{name}-print.png"), full_page=True)


def check_plots(page: Any, plots: tuple[str, ...]) -> None:
    """Each plot has marks, and no other plot is there."""
    for name in PLOTS:
        place = page.query_selector(f"#{name}")
        assert (place is not None) == (name in plots), name
        if place is not None:
            assert place.evaluate(MARKS) > 0, f"{name} is empty"


def check_scheme(page: Any, scheme: str) -> None:
    """Text stands out from the background, which is dark in the dark; in plots, too."""
    # the page hears of another scheme before the next frame, and draws its plots anew
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
    colours = page.evaluate(
        "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        " ...[...document.querySelectorAll('.plot .xtick text')].map(e => getComputedStyle(e).fill)]"
    )
    back, *texts = [_brightness(colour) for colour in colours]
    assert (back < 60) == (scheme == "dark")
    for text in texts:
        assert abs(text - back) > 110


def _brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in colour[colour.index("(") + 1 : colour.index(")")].split(",")[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue


def visible_rows(page: Any) -> list[str]:
    """The labels of the lines that can be seen, in their order."""
    return page.evaluate(
        "() => [...document.querySelectorAll('#rows tbody tr:not([hidden]) th')].map(e => e.textContent)"
    )


def check_table(page: Any, *, curve: bool) -> None:
    """The table filters by text, verdict and outcome, sorts, and shows the curve of a line that is clicked."""
    everything = visible_rows(page)
    page.fill("#search", everything[-1])
    found = visible_rows(page)
    assert everything[-1] in found
    page.fill("#search", "no line says this")
    assert visible_rows(page) == []
    assert page.inner_text("#shown").startswith("0 of")
    page.fill("#search", "")
    for name in ("verdict", "outcome"):
        for choice in page.query_selector_all(f"#{name} option:not([value=''])"):
            value = choice.evaluate("e => e.value")
            page.select_option(f"#{name}", value)
            wanted = page.evaluate(
                f"v => [...document.querySelectorAll('#rows tbody tr')].filter(r => r.dataset.{name} === v).length",
                value,
            )
            assert 0 < len(visible_rows(page)) == wanted
        if page.query_selector(f"#{name}"):
            page.select_option(f"#{name}", "")
    assert visible_rows(page) == everything
    if page.is_visible("[data-sort=number]"):
        page.click("[data-sort=number]")
        page.click("[data-sort=number]")
        assert visible_rows(page) == everything[::-1]
        page.click("[data-sort=number]")
    else:  # a phone has no head of the table
        page.select_option("#sort", "sampled")
        page.select_option("#sort", "number")
    assert visible_rows(page) == everything
    if curve and len(everything) > 1:
        data = "() => document.getElementById('plot-curve').data.find(t => t.name === 'estimated share').y"
        first = page.evaluate(data)
        last = page.query_selector_all("#rows tbody tr")[-1]
        last.click(position={"x": 10, "y": 10})
        number = int(last.get_attribute("data-number"))
        assert last.get_attribute("aria-selected") == "true"
        shown = page.evaluate("i => JSON.parse(document.getElementById('data').textContent).curves.estimate[i]", number)
        assert page.evaluate(data) == shown
        assert page.inner_text("#chosen") == "row " + page.evaluate(
            "i => JSON.parse(document.getElementById('data').textContent).labels[i]", number
        )
        page.click("#next")  # round to the first
        assert page.evaluate(data) == first
