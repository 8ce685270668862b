"""docs/architecture.md is about the tree as it is: its files exist, its folders are all there, rows go the way it says."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_layers import BESIDE, LEAVES, ORDER

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "apas"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILE = re.compile(r"[\w/]+\.py\b")
VERBS = {"certify": "certify", "generate": "generate (RobustOptimum)", "audit": "audit"}


def picture(page: str = PAGE) -> str:
    """The packages, as drawn."""
    return page.split("```text\n")[1].split("```")[0]


def named_files(page: str) -> set[str]:
    """Files that are named by a path in backticks; the picture names some of their folder."""
    return {name for quoted in re.findall(r"`([^`\n]+)`", page) for name in FILE.findall(quoted)}


def missing_files(page: str) -> list[str]:
    def exists(name: str) -> bool:
        home = ROOT if name.startswith(("tests/", "benchmarks/")) else SOURCE
        return (home / name).is_file()

    return sorted(name for name in named_files(page) if not exists(name))


def named_folders(page: str) -> set[str]:
    """Packages that the picture names, each below the package that it is in."""
    found, here = set(), ""
    for line in picture(page).splitlines():
        names = re.findall(r"(?<![\w`/])[a-z_]+(?:/[a-z_]+)*(?=/(?: |$))", line)
        inside = line.startswith("  ")  # "  |  methods/" belongs to the package above
        here = here if inside or not names else names[0]
        found |= {f"{here}/{name}" if inside else name for name in names}
    return found


def folders() -> set[str]:
    """Packages of the tree."""
    return {p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*/__init__.py")}


def missing_folders(page: str) -> list[str]:
    return sorted(folders() - named_folders(page))


def layers(page: str) -> list[str]:
    """What stands at the left edge of the picture, above the leaves."""
    return re.findall(r"^([a-z_]+)/", picture(page).split("leaves")[0], re.MULTILINE)


def test_every_file_that_is_named_exists():
    assert len(named_files(PAGE)) > 40
    assert missing_files(PAGE) == []


def test_every_folder_is_named_and_no_other():
    assert missing_folders(PAGE) == []
    assert sorted(named_folders(PAGE) - folders()) == []


def test_the_picture_has_the_order_of_the_layers():
    assert layers(PAGE) == ORDER
    for name in {*BESIDE, *(leaf for leaf in LEAVES if (SOURCE / leaf).is_dir())}:
        assert f"{name}/" in picture()
    assert {f"{leaf}.py" for leaf in LEAVES if not (SOURCE / leaf).is_dir()} <= set(FILE.findall(picture()))


def test_contributing_has_the_order_of_the_layers():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert " > ".join(f"`{layer}`" for layer in ORDER) in " ".join(text.split())


@cache
def tracer() -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location("architecture_trace", ROOT / "benchmarks" / "trace.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def traces() -> dict[str, Any]:
    return {name: tracer().traced(call) for name, call in tracer().calls().items()}


def steps(verb: str, page: str = PAGE) -> set[str]:
    """Files that the numbered steps of a verb name."""
    (part,) = re.findall(rf"^## A row through `{verb}`\n(.*?)\n## ", page, re.MULTILINE | re.DOTALL)
    (numbered,) = re.findall(r"\n1\. .*?(?=\n\n[^ ]|\Z)", part, re.DOTALL)
    return named_files(numbered)


@pytest.mark.parametrize("verb", VERBS)
def test_a_row_goes_the_way_that_is_described(verb):
    visited, said = set(traces()[VERBS[verb]].files), steps(verb)
    assert len(said) > 4
    assert sorted(said - visited) == []


def test_figures_are_those_of_the_trace():
    lines = re.findall(r"^\| ([a-z_]+(?: \(\w+\))?) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert [name for name, _, _ in lines] == list(traces())
    for name, files, switches in lines:
        trace = traces()[name]
        line = f"| {name} | {len(trace.files)} | {trace.switches} |"
        assert int(files) == len(trace.files), f"the page should say {line}"
        # the solver and the version of a library may change the number of steps a little
        assert int(switches) == pytest.approx(trace.switches, rel=0.1), f"the page should say {line}"


def test_the_checks_can_fail():
    assert missing_files(PAGE + "`certification/nothing.py`") == ["certification/nothing.py"]
    for layer in ORDER:
        assert layer in missing_folders(PAGE.replace(f"\n{layer}/ ", "\nelsewhere/ "))
    for folder in {p.parent for p in SOURCE.glob("*/*/__init__.py")}:
        gone = PAGE.replace(f"  {folder.name}/ ", "  elsewhere/ ")
        assert folder.relative_to(SOURCE).as_posix() in missing_folders(gone)
    assert named_folders(PAGE.replace("  methods/ ", "  elsewhere/ ")) - folders() == {"certification/elsewhere"}
    assert layers(PAGE.replace(f"\n{ORDER[3]}/", f"\n{ORDER[4]}/")) != ORDER
    start = "## A row through `audit`\n\n1. "
    assert steps("audit", PAGE.replace(start, f"{start}`cli/demo.py` ")) - steps("audit") == {"cli/demo.py"}
    assert "cli/demo.py" not in traces()["audit"].files
