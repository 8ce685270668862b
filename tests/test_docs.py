"""Whatever the documentation shows is run here: every Python block, every `apas` command, every doctest."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import itertools
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import apas

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
COMMANDS = ("bash", "console")
LANGUAGES = {"python", "text", "json", "bibtex", *COMMANDS}
#: Commands that may be shown; only the first is executed.
PROGRAMS = ("apas", "make", "pip")
FENCE = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MODULES = [m.name for m in pkgutil.walk_packages(apas.__path__, "apas.") if not m.name.endswith("__main__")]


@dataclass(frozen=True)
class Block:
    """A fenced block: what its info string says, where its text begins, and whether prose separates it from the last."""

    info: str
    line: int
    text: str
    follows: bool


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    adjacent = False
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            adjacent = adjacent and not line.strip()
            continue
        fence, info = opening.groups()
        inside = [text for _, text in itertools.takewhile(lambda item: item[1].strip() != fence, lines)]  # noqa: B023
        found.append(Block(info.strip(), number + 1, "\n".join(inside), adjacent))
        adjacent = True
    return found


def expected_outputs(found: list[Block]) -> Iterator[tuple[Block, str | None]]:
    """Each block with the text that stands directly below it, if any."""
    for block, after in itertools.zip_longest(found, found[1:]):
        yield block, after.text if after is not None and after.follows and after.info == "text" else None


def run_python(page: Path, block: Block, names: dict[str, object]) -> str:
    # empty lines in front make the line numbers of a traceback those of the page
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(code, names)
    return shown.getvalue()


def run_command(line: str) -> str:
    words = shlex.split(line, comments=True)
    assert words[0] in PROGRAMS, f"a page may show {PROGRAMS}, but not {line!r}"
    if words[0] != "apas":
        return ""
    words, _, target = (list(part) for part in _partition(words, ">"))
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, f"{line!r} ended with exit code {done.returncode}:\n{done.stderr}"
    if target:
        Path(target[0]).write_text(done.stdout, encoding="utf-8")
        return ""
    return done.stdout


def _partition(words: list[str], mark: str) -> tuple[list[str], list[str], list[str]]:
    at = words.index(mark) if mark in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def commands(block: Block) -> list[str]:
    joined = block.text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, object] = {"__name__": "__page__"}
    for block, expected in expected_outputs(blocks(page)):
        try:
            if block.info == "python":
                shown = run_python(page, block, names)
            elif block.info in COMMANDS:
                shown = "".join(run_command(line) for line in commands(block))
            else:
                continue
        except apas.MissingExtra as missing:
            pytest.skip(str(missing))
        if expected is not None:
            assert tidy(shown) == tidy(expected), f"{name_of(page)}, line {block.line}: the output differs"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_what_they_are(page: Path) -> None:
    for block in blocks(page):
        # "python no-run" and its like would be a block that nobody runs
        assert block.info in LANGUAGES, f"{name_of(page)}, line {block.line - 1}: info string {block.info!r}"
        if block.info == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", SHOWN, ids=name_of)
def test_links_to_files_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}, which is not there"


def test_readme_example_is_short() -> None:
    examples = [block for block in blocks(ROOT / "README.md") if block.info == "python"]
    assert examples
    assert all(len(block.text.splitlines()) <= 15 for block in examples)


@pytest.mark.parametrize("package", ["apas", "apas.stats", "apas.datasets"])
def test_reference_has_every_public_name(package: str) -> None:
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    public = importlib.import_module(package).__all__
    assert [name for name in public if f"`{package}.{name}`" not in reference] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.parent != ROOT]
    assert sorted(listed) == pages


@pytest.mark.parametrize("module", MODULES)
def test_doctests(module: str) -> None:
    try:
        loaded = importlib.import_module(module)
    except apas.MissingExtra as missing:
        pytest.skip(str(missing))
    except ModuleNotFoundError as missing:
        if str(missing.name).startswith("apas"):
            raise
        pytest.skip(f"{module} needs {missing.name}, which is not installed")
    shown = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for case in doctest.DocTestFinder(exclude_empty=True).find(loaded, module):
        runner.run(case, out=shown.write)
    assert runner.failures == 0, shown.getvalue()
