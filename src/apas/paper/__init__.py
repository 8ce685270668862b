"""The paper's experiments, its data, and the demo's bank: imported by the command line and by lazy names alone."""

from __future__ import annotations

import csv
from importlib.resources import files


def package_table(name: str) -> list[dict[str, str]]:
    """The lines of a CSV file that comes with this package."""
    with files("apas.paper").joinpath(name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
