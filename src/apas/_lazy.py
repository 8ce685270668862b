"""Public names that are imported on first use: the stub beside a package says where each of them is."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any


def attach_stub(package: str, file: str) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """Where each name of a package is, and the `__getattr__` and `__dir__` that import it when somebody asks."""
    places: dict[str, str] = {}
    module = ""
    with open(f"{os.path.splitext(file)[0]}.pyi", encoding="utf-8") as stub:
        for line in stub:  # nothing but "from module import name as name", over one line or more
            words = line.replace(",", " ").split()
            module = words[1] if words[:1] == ["from"] else module
            places |= {name: module for before, name in pairwise(words) if before == "as"}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == package:
            return import_module(f"{package}.{name}")
        found = sys.modules[package].__dict__[name] = getattr(import_module(places[name]), name)
        return found

    return places, find, lambda: sorted({*sys.modules[package].__dict__, *places})
