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
import sys
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import absent

import apas
from apas.cli import main

ROOT = Path(__file__).resolve().parents[1]
#: Tables under docs/results are written by `apas paper`, and linked, not listed.
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "results")]
#: Its programs are run one by one, by tests/test_gallery.py.
GALLERY = ROOT / "docs" / "examples" / "gallery.md"
TOLD = [page for page in PAGES if page != GALLERY]
SHOWN = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
COMMANDS = ("bash", "console")
LANGUAGES = {"python", "text", "json", "bibtex", "yaml", *COMMANDS}
#: Commands that may be shown; only the first is executed.
PROGRAMS = ("apas", "make", "pip")
FENCE = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
#: A line that stands directly above a block which needs an optional library; pages do not show it.
NEEDS = re.compile(r"^ *<!-- needs (torch|dask|xgboost|keras|mlflow|postgres) -->$", re.MULTILINE)
#: How each of them is imported, and what to say without it.
OPTIONAL = {
    "torch": ("torch", "PyTorch is not installed: make test TORCH=1"),
    "dask": ("distributed", "Dask is not installed: pip install 'apas[dask]'"),
}
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MODULES = [m.name for m in pkgutil.walk_packages(apas.__path__, "apas.") if not m.name.endswith("__main__")]


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, the line its text begins at, whether only blank lines part it from the block
    before, and which optional library it needs, if any.
    """

    info: str
    line: int
    text: str
    follows: bool
    needs: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    fence, info, start, inside, follows, needs = "", "", 0, [], False, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        mark = FENCE.match(line)
        if fence:
            if line.strip() == fence:
                found.append(Block(info, start, textwrap.dedent("\n".join(inside)), follows, needs))
                fence, follows, needs = "", True, ""
            else:
                inside.append(line)
        elif mark:
            fence, info, start, inside = mark[1], mark[2].strip(), number + 1, []
        else:
            follows = follows and not line.strip()
            needs = mark[1] if (mark := NEEDS.match(line)) else ""
    assert not fence, f"{name_of(page)}: the block of line {start - 1} is not closed"
    return found


def expected_outputs(found: list[Block]) -> Iterator[tuple[Block, str | None]]:
    """Each block with the text that stands directly below it, if any."""
    for block, after in itertools.zip_longest(found, found[1:]):
        yield block, after.text if after is not None and after.follows and after.info == "text" else None


def run_python(page: Path, block: Block, names: dict[str, object]) -> str:
    # empty lines in front make the line numbers of a traceback those of the page
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(code, names)
    return shown.getvalue()


def run_command(line: str) -> str:
    words = shlex.split(line, comments=True)
    assert words[0] in PROGRAMS, f"a page may show {PROGRAMS}, but not {line!r}"
    if words[0] != "apas":
        return ""
    end = words.index(">") if ">" in words else len(words)
    shown, said = io.StringIO(), io.StringIO()
    # in this process, since to load the libraries takes longer than most commands; with Python's own filter of warnings
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
            patch.setattr(sys, "argv", words[:end])
            main()
    assert not stop.value.code, f"{line!r} ended with exit code {stop.value.code}:\n{said.getvalue()}"
    if end < len(words):
        Path(words[end + 1]).write_text(shown.getvalue(), encoding="utf-8")
        return ""
    return shown.getvalue()


def commands(block: Block) -> list[str]:
    joined = block.text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def tidy(text: str) -> str:
    """The text without spaces at ends; what stands beyond 12 digits of what a library fitted depends on the machine."""
    text = re.sub(r"\b\d+\.\d{13,}\b", lambda number: f"{float(number[0]):.12g}", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip()


@pytest.fixture
def _reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody who follows a page in an empty directory, on a terminal of 120 columns without colours."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"MPLBACKEND": "agg", "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}.items():
        monkeypatch.setenv(name, value)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def follow(page: Path, *, have: str = "") -> None:
    """Run the blocks of a page, those that need an optional library only if told so, and compare what they print."""
    names: dict[str, object] = {"__name__": "__page__"}
    for block, expected in expected_outputs(blocks(page)):
        if block.needs not in ("", have):
            continue
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


@pytest.mark.parametrize("page", TOLD, ids=name_of)
@pytest.mark.usefixtures("_reader")
def test_page_does_what_it_shows(page: Path) -> None:
    follow(page)


NEEDED = [(page, name) for page in TOLD for name in sorted(set(NEEDS.findall(page.read_text(encoding="utf-8"))))]


@pytest.mark.parametrize(("page", "name"), NEEDED, ids=[f"{name_of(page)}-{name}" for page, name in NEEDED])
@pytest.mark.usefixtures("_reader")
def test_page_does_what_it_shows_with(page: Path, name: str) -> None:
    module, reason = OPTIONAL[name]
    try:
        library = importlib.import_module(module)
    except ModuleNotFoundError:
        absent(name, reason)
    if name == "torch":
        library.set_num_threads(1)  # as in torch_modules: test processes share the cores
    follow(page, have=name)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_what_they_are(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        # "python no-run" and its like would be a block that nobody runs
        assert block.info in LANGUAGES, f"{name_of(page)}, line {block.line - 1}: info string {block.info!r}"
        imported = re.search(
            r"^(?:import|from) (torch|dask|distributed|xgboost|keras|mlflow)\b", block.text, re.MULTILINE
        )
        if block.info == "python" and imported:
            needed = imported[1].replace("distributed", "dask")
            assert block.needs == needed, f"{name_of(page)}, line {block.line - 1}: needs the mark for {needed} above"
        if block.info == "json" and json.loads(block.text)["format"] == "apas-model":
            (tmp_path / "model.json").write_text(block.text, encoding="utf-8")
            apas.load_model(tmp_path / "model.json")


@pytest.mark.parametrize("page", SHOWN, ids=name_of)
def test_links_to_files_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}, which is not there"


@pytest.mark.parametrize("page", [page for page in SHOWN if page.parent == ROOT], ids=name_of)
def test_anchors_from_outside_the_site_resolve(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((docs/[\w-]+\.md)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        titles = re.findall(r"^#+ (.*)$", (ROOT / target).read_text(encoding="utf-8"), re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert anchor in slugs, f"{name_of(page)} links to {target}#{anchor}, which is not there"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_files_of_the_checkout_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks|notebooks|checker)/[\w/]+\.py)`", text)
    named += [f"benchmarks/{name}.py" for name in re.findall(r"python -m benchmarks\.(\w+)", text)]
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_documentation_keeps_its_diet() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    assert len([page for page in PAGES if page.parent.name == "docs"]) <= 28


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
    runner = doctest.DocTestRunner()
    for case in doctest.DocTestFinder(exclude_empty=True).find(loaded, module):
        runner.run(case, out=shown.write)
    assert runner.failures == 0, shown.getvalue()
