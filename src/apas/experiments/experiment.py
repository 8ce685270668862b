"""What the experiments of the paper have in common: units of work, and tables and figures made of their results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from apas._atomic import write_text
from apas.display.tables import csv_text, markdown_table
from apas.errors import InputError, MissingExtra
from apas.experiments.runner import Unit, run_units
from apas.experiments.store import Store, made_with

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Experiment", "Outcome", "run_experiment"]

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
    experiment: Experiment, folder: str | os.PathLike[str], *, quick: bool = False, n_jobs: int = 1,
    label: str = "working",
) -> Outcome:  # fmt: skip
    """Do what is not done yet, and write the tables and figures.

    Parameters
    ----------
    experiment : Experiment
        Such as the module `apas.experiments.table2`.
    folder : path
        Where the tables and figures go, and the file of finished units; made if need be.
    quick : bool, default False
        Fewer draws, seeds or rows: to see that everything works.
    n_jobs : int, default 1
        Number of processes.
    label : str
        Beside the progress bar, and in the last line of the Markdown tables.
    """
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
