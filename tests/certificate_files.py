"""Certificate files for tests: made, changed with their digest recomputed, and given to the separate checker."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import apas
from apas.contracts.certificate_file import content_digest

CHECKER = Path(__file__).resolve().parents[1] / "checker" / "apas_checker.py"


def network(seed: int = 0, sizes: tuple[int, ...] = (4, 6, 1), **options: Any) -> apas.FeedForward:
    """A random network."""
    rng = np.random.default_rng(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    return apas.FeedForward([rng.normal(size=p) for p in pairs], [rng.normal(size=p[1]) for p in pairs], **options)


def rows(count: int, width: int = 4, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


def content_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a content whose digest is right, whatever it says."""
    path.write_text(json.dumps({**content, "digest": content_digest(content)}))


def changed(content: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a content in which one field is another; a function is given what was there."""
    copied = copy.deepcopy(content)
    inner = copied
    for key in place[:-1]:
        inner = inner[key]
    before = inner[place[-1]]
    inner[place[-1]] = value(before) if callable(value) else value
    assert json.dumps(copied) != json.dumps(content), f"{place} was {before!r} before"
    return copied


def run_checker(certificates: Path, model: Path, *more: Any) -> tuple[int, list[list[str]], str]:
    """Exit code, lines and errors of the checker, which must not see apas."""
    code = (
        "import runpy, sys\n"
        "sys.modules['apas'] = None\n"  # an import of it fails
        f"sys.argv = ['apas_checker.py', *{list(map(str, (certificates, model, *more)))!r}]\n"
        f"runpy.run_path({str(CHECKER)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)
    return done.returncode, [line.split("\t") for line in done.stdout.splitlines()], done.stderr


def checker_in_process() -> Any:
    """The checker as a module, for many files in one test."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("apas_checker", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
