"""The paper's experiments, its data, and the demo's bank: imported by the command line and by lazy names alone."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from apas._lazy import require
from apas.display.numbers import at_least, at_most

if TYPE_CHECKING:
    from pandas import DataFrame

Results = Sequence[Mapping[str, Any]]


def package_text(name: str) -> str:
    """A text file that comes with this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def package_table(name: str) -> list[dict[str, str]]:
    """The lines of a CSV file that comes with this package."""
    return list(csv.DictReader(package_text(name).splitlines()))


class _Cells(Formatter):
    """Formats of cells: bounds stay true when they are written, and a dash stands for what is not there."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return "-"
        bounds = {"at_least": at_least, "at_most": at_most}
        return bounds[format_spec](value) if format_spec in bounds else format(value, format_spec)


def make_tables(results: Mapping[str, Results]) -> "dict[str, DataFrame]":
    """Tables with a line per result, laid out as ``columns.csv`` says: the name of a value, or a format of some."""
    import pandas as pd

    write, tables = _Cells().vformat, {}
    for name, some in results.items():
        columns = [(line["column"], line["cell"]) for line in package_table("columns.csv") if line["table"] == name]
        lines = [{title: write(c, (), r) if "{" in c else r[c] for title, c in columns} for r in some]
        tables[name] = pd.DataFrame(lines)
    return tables


def group_by(results: Results, *names: str) -> list[list[Mapping[str, Any]]]:
    """Results with the same values of some entries, in the order of their first appearance."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault(tuple(result[name] for name in names), []).append(result)
    return list(groups.values())


def new_figure(*shape: int, feature: str = "a figure of the paper", **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, so many lines and columns of them."""
    plt = require("matplotlib.pyplot", feature=feature, extra="plot")
    return plt.subplots(*shape, layout="constrained", **options)  # type: ignore[no-any-return]
