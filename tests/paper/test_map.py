"""The map of the paper: every numbered element is on it, and what it points to exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from apas.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "differences.md"
#: What the paper numbers. Theorems, lemmas and the proposition share their numbers; appendix included.
ELEMENTS = (
    *(f"Definition {n}" for n in range(1, 8)),
    "Problem DRP",
    *("Theorem 1", "Theorem 2", "Lemma 3", "Lemma 4", "Equation 1", "Proposition 5"),
    *(f"Lemma {n}" for n in range(6, 11)),
    *(f"Algorithm {n}" for n in range(1, 5)),
    *("Table 1", "Table 2"),
    *(f"Figure {n}" for n in range(1, 11)),
)
NUMBERED = re.compile(r"(?:Definition|Theorem|Lemma|Proposition|Equation|Algorithm|Table|Figure) \d+|Problem \w+")


def rows(text: str) -> list[tuple[str, list[str], list[str]]]:
    """Element, names or commands, and tests of each line of the page's tables."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    lines = [line for line in cells if line[0] != "Element"]
    assert all(len(line) == 4 for line in lines)
    return [(line[0], *(re.findall(r"`([^`]+)`", cell) for cell in line[2:])) for line in lines]


ROWS = rows(PAGE.read_text(encoding="utf-8").partition("\n## Map of the paper\n")[2])


def complaint(name: str) -> str | None:
    """Why what stands in the third column is neither a public name, a command, nor an option of one."""
    if name.startswith("apas "):
        command: Any = get_command(app)
        for word in name.split()[1:]:
            command = getattr(command, "commands", {}).get(word)
            if command is None:
                return f"{name}: no such command"
        return None
    if not name.startswith("apas."):
        option = re.fullmatch(r'(\w+=)?("\w+"|\d+|\.\.\.)', name)
        return None if option else f"{name}: neither a name of apas nor an option"
    module, _, last = name.rpartition(".")
    if any(part.startswith("_") for part in name.split(".")):
        return f"{name}: not public"
    return None if hasattr(import_module(module), last) else f"{name}: cannot be imported"


@cache
def functions_of(file: str) -> frozenset[str]:
    """Functions of a file that pytest collects."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


def is_collected(node: str) -> bool:
    """Whether there is a test of this id, parametrised or not."""
    file, found, name = node.partition("::")
    path = ROOT / file
    return bool(found) and path.is_file() and path.name.startswith("test_") and name in functions_of(file)


def test_every_numbered_element_is_there_once():
    found = [element for element, _, _ in ROWS if NUMBERED.fullmatch(element)]
    assert sorted(found) == sorted(ELEMENTS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_a_line_points_to_exists(row):
    _, names, tests = row
    assert any(name.startswith("apas") for name in names)
    assert [why for name in names if (why := complaint(name))] == []
    assert tests
    assert [test for test in tests if not is_collected(test)] == []


def test_what_does_not_exist_is_noticed():
    assert complaint("apas.certify_all") == "apas.certify_all: cannot be imported"
    assert complaint("apas paper table3") == "apas paper table3: no such command"
    assert complaint("something") == "something: neither a name of apas nor an option"
    assert complaint("apas._random.Stream") == "apas._random.Stream: not public"
    assert not is_collected("tests/paper/test_map.py::test_nothing")
    assert not is_collected("tests/paper/test_maps.py::test_what_does_not_exist_is_noticed")
    assert not is_collected("tests/paper/test_map.py")
    assert is_collected("tests/paper/test_map.py::test_what_does_not_exist_is_noticed")
