"""What tests share: optional parts of the environment, and the data that others computed."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores: threads of theirs would only wait for each other
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

import numpy as np
import pytest

from apas import FeedForward


def pytest_configure() -> None:
    """Collect no garbage while tests are collected: nothing of them is any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over ten thousand tests and all modules from now on: they stay to the end."""
    gc.freeze()
    gc.enable()


def absent(what: str, reason: str) -> None:
    """Skip for lack of `what`, or fail where CI says that it must be there."""
    if what in os.environ.get("APAS_REQUIRE", "").split(","):
        pytest.fail(f"APAS_REQUIRE names {what!r}, but {reason}")
    pytest.skip(reason, allow_module_level=True)


def library(name: str) -> Any:
    """A library that users bring themselves."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        absent(name, f"{missing.name} is not installed: make test TORCH=1 LIBRARIES=1")


def resolve(value: Any) -> Any:
    """What a parameter of a test stands for: a `partial`, as of a model to be fitted, is called when the test runs."""
    return value() if isinstance(value, functools.partial) else value


def spread(values: Iterable[Any], every: int) -> list[Any]:
    """Values of one parameter: each `every`-th, from the first on, in `make test`; the others in `make validity`."""
    long = pytest.mark.validity
    return [value if i % every == 0 else pytest.param(value, marks=long) for i, value in enumerate(values)]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements of a syntax tree: classes, imports and the like; a tenth of its nodes, most of which are values."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def shared_folder(name: str) -> Path:
    """A folder of the shared data, found through APAS_DATA or beside the checkout."""
    root = Path(__file__).resolve().parents[1]
    places = [Path(os.environ["APAS_DATA"])] if "APAS_DATA" in os.environ else []
    places += [root.parent / "shared"]
    for place in places:
        if (place / name).is_dir():
            return place / name
    absent("data", f"no folder {name!r} under APAS_DATA or ../shared")
    raise AssertionError


@pytest.fixture(scope="session")
def oracle() -> dict:
    """The authors' diabetes networks and counterfactuals."""
    return json.loads((shared_folder("oracle") / "diabetes.json").read_text())


@pytest.fixture(scope="session")
def oracle_network(oracle: dict) -> FeedForward:
    base = oracle["base"]
    return FeedForward(base["weights"], base["biases"])


@pytest.fixture
def small_network() -> FeedForward:
    """A random 4-6-1 network."""
    rng = np.random.default_rng(3)
    return FeedForward([rng.normal(size=(4, 6)), rng.normal(size=(6, 1))], [rng.normal(size=6), [0.3]])
