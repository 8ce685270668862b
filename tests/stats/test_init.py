"""The public names, and what importing them may load."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import apas.stats

SOURCES = sorted(Path(apas.stats.__file__).parent.glob("*.py"))


def test_public_names() -> None:
    assert sorted(apas.stats.__all__) == apas.stats.__all__
    assert set(apas.stats.__all__) == {
        "Budget",
        "FixedSequence",
        "Geometric",
        "Telescoping",
        "Uniform",
        "allowed_failures",
        "anytime_coverage_lower",
        "anytime_coverage_upper",
        "anytime_refuting_draw",
        "anytime_sample_size",
        "clopper_pearson",
        "coverage_lower",
        "coverage_upper",
        "refuting_failures",
        "sample_size",
        "simultaneous",
        "spend",
    }
    for name in apas.stats.__all__:
        assert getattr(apas.stats, name).__doc__


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_importing_loads_only_numpy_the_standard_library_and_errors(source: Path) -> None:
    """SciPy is for functions to import when they are called."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        else:
            continue
        for name in names:
            own = name in ("apas.errors", "apas._typing") or name.startswith("apas.stats.")
            assert own or name.split(".")[0] in sys.stdlib_module_names | {"numpy"}
