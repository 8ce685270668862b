"""Names that mean harm, through every output: terminals, CSV, Markdown, HTML, JUnit XML, JSON and error messages."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import run
from hostile_files import skops_file, skops_node
from markdown_it import MarkdownIt

import apas
from apas._sanitise import for_csv, for_error, for_html, for_markdown, for_terminal, for_xml, from_csv
from apas.display.tables import csv_text

NAMES = [
    '=HYPERLINK("http://evil.example","x")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\x1b[31mred", "\x1b]8;;http://evil.example\x07link",
    "[click](http://evil.example)", "![x](https://evil.example/x.png)", "www.evil.example", "<script>alert(1)</script>", "<http://evil.example>",
    "a|b `c` \\", "line\nbreak", "\u202egnp.exe", "me@evil.example", "\x9b31m", "'=1+1", "ftp://evil.example", "&lt;b&gt; &#58;", "__b__ **c** ~~d~~",
]  # fmt: skip
CLASSES = ("=no", "[yes](http://evil.example)\x1b[1m")
#: What no output may hold besides line breaks: controls and marks that turn the direction of writing around.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def network(move: float = 0.0) -> apas.FeedForward:
    width = len(NAMES)
    return apas.FeedForward([np.ones((width, 1))], [[-1.0 - move]], feature_names=NAMES, classes=CLASSES)


@pytest.fixture(scope="module")
def office(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evil")
    apas.save_model(network(), folder / "model.json")
    apas.save_model(network(30.0), folder / "new.json")
    rows = np.eye(len(NAMES)) + 1.0
    cells = [for_csv(name) if name.startswith("'") else name for name in NAMES]
    for name, values in (("rows.csv", rows), ("rejected.csv", rows - 1.5)):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                [["id", *cells], *([n, *v] for n, v in zip(cells, values.tolist(), strict=True))]
            )
    apas.FeatureSpace([apas.Feature(n, low=-2.0, high=3.0) for n in NAMES]).to_toml(folder / "space.toml")
    return folder


@pytest.fixture(scope="module")
def outputs(office, request) -> dict[str, str]:
    """What every command that shows names prints or writes, by its kind and name."""
    capture = request.getfixturevalue("capture")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(office)
        for name, words in COMMANDS.items():
            code, out, err = capture(words)
            assert code in (0, 1), err
            found[f"{'json' if '--json' in words else 'terminal'} {name}"] = out
            assert err == "", err
        for name in ("out.csv", "audit.md", "audit.xml", "page.html", "menu.html"):
            found[f"{name.split('.')[1]} {name}"] = (office / name).read_text(encoding="utf-8")
        found["html letters"] = "".join(p.read_text(encoding="utf-8") for p in sorted(office.glob("letters/*.html")))
        certificates = apas.load_certificates("promises.json")
        found["html notebook"] = certificates._repr_html_()
        found["html shift"] = apas.measure_shift(network(), network(1.0))._repr_html_()
        found["terminal sentence"] = "\n".join(for_terminal(c.sentence()) for c in certificates)
    return found


@pytest.fixture(scope="module")
def capture():
    """Run the command in this process."""
    import contextlib
    import sys

    from apas.cli import main

    def call(words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr(
                sys, "argv", ["apas", *words.split(), *([f"--target={CLASSES[1]}"] if TARGETED.match(words) else [])]
            )
            with pytest.raises(SystemExit) as stop:
                main()
        return stop.value.code or 0, out.getvalue(), err.getvalue()

    return call


TARGETED = re.compile("certify|max-shift|generate|menu")
COMMANDS = {
    "certify": "certify model.json rows.csv --delta 0.01 --seed 0 --save promises.json",
    "certify as JSON": "certify model.json rows.csv --delta 0.01 --seed 0 --json",
    "max-shift": "max-shift model.json rows.csv --method interval",
    "generate": "generate model.json rejected.csv --space space.toml --delta 0.001 --method interval --source milp --out out.csv",
    "menu": "menu model.json rejected.csv --space space.toml --delta 0.001 --size 1 --seed 0 --out menu.html",
    "letter": "letter promises.json -o letters",
    "verify": "verify promises.json model.json",
    "audit": "audit promises.json new.json --base model.json --markdown audit.md --junit audit.xml",
    "audit as JSON": "audit promises.json new.json --json --no-repairs",
    "add": "ledger add ledger.db promises.json",
    "list": "ledger list ledger.db",
    "list as JSON": "ledger list ledger.db --json",
    "ledger audit": "ledger audit ledger.db new.json --no-repairs",
    "history": "ledger list ledger.db --history =x",
    "shift": "shift model.json new.json",
    "report": "report promises.json --model model.json --new-model new.json -o page.html",
    "convert": "convert model.json copy.json",
}  # fmt: skip


def of_kind(outputs, kind):
    found = {name: text for name, text in outputs.items() if name.startswith(f"{kind} ")}
    assert found
    return found


def test_no_output_holds_a_control_character(outputs):
    for name, text in outputs.items():
        # the page holds the plotting library, which is no text of ours
        shown = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
        assert not CONTROL.search(shown), name


def test_terminals_show_a_line_per_row(outputs):
    for name in ("terminal certify", "terminal max-shift"):
        lines = outputs[name].splitlines()
        assert sum("?[31mred" in line for line in lines) == 1
        assert any(line.startswith("line?break ") for line in lines)


def test_csv_holds_no_formula_and_can_be_read_back(outputs):
    for text in of_kind(outputs, "csv").values():
        header, *lines = csv.reader(io.StringIO(text))
        for cell in (cell for line in [header, *lines] for cell in line):
            assert not re.match(r"\s*[=+\-@]", cell) or is_number(cell), cell
        assert [from_csv(cell) for cell in header[2:]] == [harmless(name) for name in NAMES]
        assert [from_csv(line[0]) for line in lines] == [harmless(name) for name in NAMES]
        assert {line[1] for line in lines} == {"FOUND"}
        assert any(cell.startswith("-") for line in lines for cell in line[2:]), "numbers stay numbers"


def harmless(name: str) -> str:
    return re.sub(CONTROL, "?", name)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_markdown_is_text_and_tables_alone(outputs):
    for text in of_kind(outputs, "md").values():
        assert not re.search(r"://|\bwww\.|@\w|mailto:", text)
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {inner.type for token in tokens for inner in [token, *(token.children or [])]}
        assert kinds <= {"text", "text_special", "inline", "softbreak"} | {
            f"{tag}_{end}" for tag in ("heading", "paragraph", "bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td")
            for end in ("open", "close")
        }, kinds  # fmt: skip
        rows = text.split("|---|---|---|---|---|---|\n")[1].split("\n\n")[0].splitlines()
        assert len(rows) == len(NAMES)
        shown = [token.content for token in tokens if token.type == "inline"]
        assert shown.count("BROKEN_OUTSIDE") == len(NAMES)


class Tags(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_html_has_no_tag_of_theirs(outputs):
    for name, text in of_kind(outputs, "html").items():
        page = Tags()
        page.feed(text)
        assert not [tag for tag, attributes in page.tags if tag in ("a", "img", "b") and "href" in attributes], name
        assert sum(tag == "script" for tag, _ in page.tags) == text.count("<script"), name
        assert "alert(1)</script>" not in re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL), name
    assert "<script>alert(1)</script>" in "".join(page_texts(outputs["html notebook"]))


def page_texts(text: str) -> list[str]:
    page = Tags()
    page.feed(text)
    return page.texts


def test_junit_is_xml_with_a_case_per_row(outputs):
    for text in of_kind(outputs, "xml").values():
        cases = list(ElementTree.fromstring(text.encode()).iter("testcase"))
        assert [case.get("name") for case in cases] == [
            f"row {harmless(name)}" if name != "line\nbreak" else "row line\nbreak" for name in NAMES
        ]


def test_json_is_ascii_and_gives_the_names_back(outputs):
    for text in of_kind(outputs, "json").values():
        assert text.isascii()
        names = {
            row.get("row", row.get("reference"))
            for row in (json.loads(text).get("rows") or json.loads(text)["certificates"])
        }
        assert names == set(NAMES)


@pytest.mark.parametrize("name", NAMES[4:13:2])
def test_error_messages_are_short_lines(capsys, office, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    long = name * 3000
    (tmp_path / "evil.skops").write_bytes(skops_file(skops_node("ObjectNode", long, long)))
    (tmp_path / "evil.csv").write_text(f'"{long}"\n1\n')
    (tmp_path / "evil.toml").write_text(f"[features.x]\n{json.dumps(name * 300)} = 1\n")
    (tmp_path / "evil.json").write_text(json.dumps({"format": "apas-model", "version": long, "kind": long}))
    model = str(office / "model.json")
    calls = [
        ("convert", "evil.skops", "out.json"), ("certify", model, "evil.csv", "--target", "1", "--delta", "1"),
        ("certify", model, "evil.csv", "--target", long, "--delta", "1"), ("convert", "evil.json", "out.json"),
        ("generate", model, str(office / "rows.csv"), "--space", "evil.toml", "--delta", "1"), ("certify", model, long),
        ("convert", model, f"{name.replace('/', '')}.pkl"), (long,), ("shift", model, model, "--p", long),
        ("ledger", "retire", "none.db", long), ("report", long),
    ]  # fmt: skip
    for words in calls:
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, ""), words[0]
        assert err.startswith("error: ")
        assert err.endswith("\n")
        assert err[:-1].isprintable()
        assert len(err.encode()) < 5000
        assert len(err) <= 1008


def test_errors_are_cut_where_they_are_made():
    for kind in (apas.InputError, apas.UnsafeFile, apas.Unsupported, apas.ApasError, apas.GuaranteeWarning):
        text = str(kind("`x` must be small, got " + "9" * 10**6 + "\x1b[31m\n; make it smaller."))
        assert len(text) == 1000
        assert text.isprintable()
        assert text.startswith("`x` must be small, got 999")
        assert text.endswith("; make it smaller.")
    with pytest.raises(apas.InputError) as caught:
        apas.certify(network(), np.ones((1, len(NAMES))), 0.1, target="\x1b" * 10**5)
    assert len(str(caught.value)) <= 1000
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text", [*NAMES, *(f"'{name}" for name in NAMES), "''=a", "-1.5", "+1", "1e-5", "", "=", "  =x", "＝x", "n'=a"]
)
def test_csv_cells_come_back(text):
    kept = harmless(text)
    assert from_csv(for_csv(kept)) == kept
    assert is_number(for_csv(kept)) or not re.match(r"\s*[=+\-@＝]", for_csv(kept))


def test_other_names_are_left_alone():
    for name in ("income", "debt_ratio", "Größe (cm)", "年齢", "A-17", "a/b", "50 %", "\xa0x", "c\u200cd"):
        assert for_csv(name) == for_html(name) == for_xml(name) == name
        assert for_markdown(name) == " ".join(name.split())
    assert for_error("`x` must be 1.") == "`x` must be 1."


def test_tables_keep_their_numbers_and_indices():
    import pandas as pd

    frame = pd.DataFrame({"a": [1, -2], "@b": ["=x", None], "c": pd.Categorical(["-y", "z"]), "d": [True, False], "e": [-0.5, np.nan]}, index=pd.Index([-1, 5], name="=id"))  # fmt: skip
    assert csv_text(frame) == "'=id,a,'@b,c,d,e\n-1,1,'=x,'-y,True,-0.5\n5,-2,,z,False,\n"
    both = frame.set_index("@b", append=True)
    assert csv_text(both).splitlines()[:2] == ["'=id,'@b,a,c,d,e", "-1,'=x,1,'-y,True,-0.5"]
    plain = pd.DataFrame({"x": [0.1, -3.0], "y": ["u", "v,w"]}, index=["r", "s"])
    assert csv_text(plain) == plain.to_csv(lineterminator="\n")
