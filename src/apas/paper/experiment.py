"""The paper's experiments by name: units of work, and tables and figures made of their results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from apas._atomic import write_text
from apas.display.tables import csv_text, markdown_table
from apas.errors import InputError, MissingExtra
from apas.paper.data_folder import DATASETS, dataset_path
from apas.paper.store import Store, Unit, made_with, run_units

if TYPE_CHECKING:
    from pandas import DataFrame


#: Beside the tables: what was computed once, so that a run that was ended goes on.
RESULTS = "results.sqlite"


class Experiment(Protocol):
    """A module that offers these three functions."""

    def units(self, settings: Mapping[str, Any], /) -> list[Unit]:
        """The work; with ``settings["quick"]`` less of it."""
        ...

    def tables(self, results: Sequence[dict[str, Any]], /) -> dict[str, DataFrame]:
        """Tables by their names, which become names of files."""
        ...

    def figures(self, results: Sequence[dict[str, Any]], folder: Path, /) -> list[Path]:
        """Write the figures into a folder, as PNG and SVG, and say which files they are."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run gave.

    Attributes
    ----------
    tables : dict of str to DataFrame
    files : tuple of Path
        The tables (CSV, Markdown) and figures (PNG, SVG).
    without_figures : str
        Why there are no figures; empty if there are.
    """

    tables: dict[str, DataFrame]
    files: tuple[Path, ...]
    without_figures: str = ""


def run_experiment(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    n_jobs: int = 1,
    label: str = "working",
) -> Outcome:
    """Do what is not done yet, and write the tables and figures."""
    place = Path(folder)
    with Store(place / RESULTS) as store:
        results = run_units(experiment.units({"quick": quick}), store, n_jobs=n_jobs, label=label)
    tables, files = experiment.tables(results), []
    try:
        for name, table in tables.items():
            files += [place / f"{name}.csv", place / f"{name}.md"]
            write_text(files[-2], csv_text(table, index=False, float_format="%.6g"))
            write_text(files[-1], f"{markdown_table(table)}\n\n{_made_by(label, quick)}\n")
        without = ""
        try:
            files += experiment.figures(results, place)
        except MissingExtra as missing:
            without = str(missing)
    except OSError as error:
        raise InputError(f"{str(place)!r} must be a folder to write to, got: {error.strerror or error}.") from None
    return Outcome(tables, tuple(files), without)


def _made_by(label: str, quick: bool) -> str:
    how = " --quick" if quick else ""
    return f"Made by `apas paper {label}{how}` with {made_with()}, on {os.cpu_count()} cores."


@dataclass(frozen=True)
class Entry:
    """An experiment, the module `apas.experiments.NAME`."""

    name: str
    title: str
    seeds: str = ""

    def load(self) -> Experiment:
        """Import the module."""
        module: Any = import_module(f"apas.paper.{self.name}")
        return module  # type: ignore[no-any-return]

    @property
    def exists(self) -> bool:
        """Whether there is such a module; nothing is imported to find out."""
        return files("apas").joinpath("paper", f"{self.name}.py").is_file()


#: In the order in which they are run. A new experiment is a module and a line here.
EXPERIMENTS: Final = (
    Entry("drawings", "Figures 1, 2 and 3 and the network of the appendix, drawn from what computes with them", "0"),
    Entry(
        "toy",
        "Section 7.1: the largest shift of a network with four weights, and Algorithm 3 level by level",
        "0, 1, ... as often as its draws are repeated; the paper's own draws have its seed, 1",
    ),
    Entry(
        "figure4",
        "Figure 4 and Section 7.2: how far the model may shift, in the worst case and for most shifts",
        "0, 1, ... as often as its draws are repeated; the paper's own draws, splits and networks have its seeds",
    ),
    Entry(
        "table1",
        "Table 1: counterfactuals of all methods, as published and corrected",
        "those of its settings; as published, the parts, networks and inputs have the paper's",
    ),
    Entry(
        "table2",
        "Table 2: how far plausible shifts move the expected output, which naturally occurring ones leave alone",
        "0 for splits and networks; a digest of dataset, draws, delta and number for each explanation's draws",
    ),
    Entry("lemma", "Lemma 3: plausible shifts that are not natural, and natural ones that are not plausible", "0"),
    Entry("hardness", "Theorem 1: formulas as networks, decided and compared with trying all assignments", "0"),
)


def available() -> tuple[Entry, ...]:
    """The experiments that this version has."""
    return tuple(entry for entry in EXPERIMENTS if entry.exists)


def datasets_of(entries: Iterable[Entry], *, quick: bool = False) -> tuple[str, ...]:
    """Names of the datasets that experiments read, after checking that their files are there."""
    read = {name for entry in entries for unit in entry.load().units({"quick": quick}) for name in unit.data}
    names = tuple(name for name in DATASETS if name in read)
    for name in names:
        dataset_path(name)
    return names
