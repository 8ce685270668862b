"""The paper's experiments by name: units of work, tables and figures made of their results, and one page of them all.

The page refers to no other file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from apas._atomic import write_text
from apas._sanitise import for_html
from apas.display.tables import csv_text, html_table, markdown_table
from apas.errors import InputError, MissingExtra
from apas.paper.data_folder import DATASETS, dataset_path
from apas.paper.store import (
    COMPUTING,
    Store,
    Unit,
    blas,
    code_version,
    library_version,
    made_with,
    processor,
    run_units,
)

if TYPE_CHECKING:
    from pandas import DataFrame

RESULTS = "results.sqlite"  # beside the tables: what was computed once, so that a run that was ended goes on


class Experiment(Protocol):
    """A module that offers these three functions."""

    def units(self, settings: Mapping[str, Any], /) -> list[Unit]:
        """The work; with ``settings["quick"]`` less of it."""

    def tables(self, results: Sequence[dict[str, Any]], /) -> dict[str, DataFrame]:
        """Tables by their names, which become names of files."""

    def figures(self, results: Sequence[dict[str, Any]], folder: Path, /) -> list[Path]:
        """Write the figures into a folder, as PNG and SVG, and say which files they are."""


@runtime_checkable
class LeavesOut(Protocol):
    """An experiment that may have to leave out a part, as where files of others are not there."""

    def left_out(self) -> str:
        """Which part and why, in one sentence; empty if all of it can be run."""


@dataclass(frozen=True, eq=False)
class ExperimentOutcome:
    """What a run gave: tables, the files of tables and figures, why there are no figures, and what was left out."""

    tables: dict[str, DataFrame]
    files: tuple[Path, ...]
    without_figures: str = ""
    left_out: str = ""


def run_experiment(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    n_jobs: int = 1,
    label: str = "working",
    finished: bool = False,
) -> ExperimentOutcome:
    """Do what is not done yet, unless only what is `finished` is wanted, and write the tables and figures."""
    from apas.models.base import offers  # numpy is not loaded to list the commands

    place = Path(folder)
    units, options = experiment.units({"quick": quick}), " --quick" * quick + " --finished" * finished
    made = f"Made by `apas paper {label}{options}` with {made_with()}, on {os.cpu_count()} cores."
    with Store(place / RESULTS) as store:
        if finished:
            results = [result for result in map(store.finished, units) if result is not None]
            made = f"Of {len(results)} finished units of {len(units)}, which may be of another version. {made}"
        else:
            results = run_units(units, store, n_jobs=n_jobs, label=label)
    if not results:
        raise InputError(f"{str(place)!r} must hold finished units of {label}, got none; run it without `--finished`.")
    tables, files = experiment.tables(results), []
    try:
        for name, table in tables.items():
            files += [place / f"{name}.csv", place / f"{name}.md"]
            write_text(files[-2], csv_text(table, index=False, float_format="%.6g"))
            write_text(files[-1], f"{markdown_table(table, digits=table.attrs.get('digits', 3))}\n\n{made}\n")
        without = ""
        try:
            files += experiment.figures(results, place)
        except MissingExtra as missing:
            without = str(missing)
    except OSError as error:
        raise InputError(f"{str(place)!r} must be a folder to write to, got: {error.strerror or error}.") from None
    left_out = experiment.left_out() if offers(experiment, LeavesOut) else ""
    return ExperimentOutcome(tables, tuple(files), without, left_out)


@dataclass(frozen=True)
class Entry:
    """An experiment, the module `apas.paper.NAME`."""

    name: str
    title: str
    seeds: str = ""

    def load(self) -> Experiment:
        """Import the module."""
        module: Any = import_module(f"apas.paper.{self.name}")
        return module  # type: ignore[no-any-return]


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
        "0 for splits and networks; a digest of dataset, draws, delta and number for each explanation's draws; "
        "as published, the authors' 0",
    ),
    Entry("lemma", "Lemma 3: plausible shifts that are not natural, and natural ones that are not plausible", "0"),
    Entry("hardness", "Theorem 1: formulas as networks, decided and compared with trying all assignments", "0"),
)
#: What is not in the paper, and so no part of its page.
BEYOND: Final = (
    Entry(
        "league", "The league table: offers of all methods, judged by refits that none of them has seen", "0, 1 and 2"
    ),
)


def datasets_of(entries: Iterable[Entry], *, quick: bool = False) -> tuple[str, ...]:
    """Names of the datasets that experiments read, after checking that their files are there."""
    read = {name for entry in entries for unit in entry.load().units({"quick": quick}) for name in unit.data}
    names = tuple(name for name in DATASETS if name in read)
    for name in names:
        dataset_path(name)
    return names


#: Names in the output folder: of the page, and of what it was made with, which may be kept beside single tables.
PAGE, MADE_WITH = "paper.html", "made-with.md"
LIBRARIES = (*COMPUTING, "matplotlib", "torch")
VALUES, LINES = 12, 100  # of the settings, values that are written out; of the tables, lines at each end
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: bold; padding-bottom: .3em; }
th, td { border-bottom: 1px solid #ddd; padding: .2em .7em; text-align: left; font-weight: normal; }
thead th { font-weight: bold; }
img { max-width: 100%; display: block; margin: 1em 0; }
"""
#: A browser loads nothing for this page, whatever is in it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True, eq=False)
class Section:
    """An experiment that was run."""

    entry: Entry
    units: Sequence[Unit]
    outcome: ExperimentOutcome

    def html(self, *, quick: bool) -> str:
        """The part of the page about it."""
        command = f"apas paper {self.entry.name}{' --quick' if quick else ''}"
        settings = "; ".join(f"{name}: {values}" for name, values in _settings(self.units).items())
        seeds = f" Seeds: {self.entry.seeds}." if self.entry.seeds else ""
        work = f"{len(self.units)} units of work. Settings: {settings}.{seeds}"
        lines = [
            f'<h2 id="{for_html(self.entry.name)}">{for_html(self.entry.title)}</h2>',
            f"<p><code>{for_html(command)}</code>, {for_html(work)}</p>",
            *(html_table(table, caption=name, ends=LINES) for name, table in self.outcome.tables.items()),
        ]
        for file in self.outcome.files:
            if file.suffix == ".png":
                content = base64.b64encode(file.read_bytes()).decode("ascii")
                lines.append(f'<img alt="{for_html(file.stem)}" src="data:image/png;base64,{content}">')
        if self.outcome.without_figures:
            lines.append(f"<p>No figures: {for_html(self.outcome.without_figures)}</p>")
        if self.outcome.left_out:
            lines.append(f"<p>Left out: {for_html(self.outcome.left_out)}</p>")
        return "\n".join(lines)


def write_page(sections: Sequence[Section], folder: str | os.PathLike[str], *, quick: bool, n_jobs: int) -> Path:
    """Write the page of a run into a folder, and what it was made with as Markdown besides; each in one step."""
    import pandas as pd

    command = f"apas paper all{' --quick' if quick else ''}"
    links = "".join(f'<li><a href="#{for_html(s.entry.name)}">{for_html(s.entry.title)}</a></li>' for s in sections)
    read = {name for section in sections for unit in section.units for name in unit.data}
    versions = [
        ("apas", code_version()),
        ("Python", platform.python_version()),
        *((name, library_version(name)) for name in LIBRARIES),
        ("BLAS", blas()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("processor", processor()),
        ("cores", str(os.cpu_count())),
        ("processes asked for", "one per core" if n_jobs == -1 else str(n_jobs)),
    ]
    seeds = [(s.entry.name, len(s.units), s.entry.seeds) for s in sections]
    digests = [
        (name, file, hashlib.sha256(dataset_path(name).read_bytes()).hexdigest())
        for name, file in DATASETS.items()
        if name in read
    ]
    made_with = {
        "program and machine": pd.DataFrame(versions, columns=["what", "which"]),
        "seeds": pd.DataFrame(seeds, columns=["experiment", "units", "seeds"]),
        "data": pd.DataFrame(digests, columns=["dataset", "file", "SHA-256"]),
    }
    parts = [
        f"<h1>The paper, reproduced</h1><p>Made by <code>{for_html(command)}</code>.</p><ul>{links}</ul>",
        *(section.html(quick=quick) for section in sections),
        "<h2>Made with</h2>",
        *(html_table(table, caption=name) for name, table in made_with.items()),
    ]
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>The paper, reproduced</title><style>{_STYLE}</style>"
    )
    body, path = "\n".join(parts), Path(folder) / PAGE
    try:
        tables = "\n\n".join(markdown_table(table) for table in made_with.values())
        write_text(path.with_name(MADE_WITH), f"Made by `{command}`.\n\n{tables}\n")
        write_text(path, f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n')
    except OSError as error:
        raise InputError(f"{str(path)!r} must be a file to write to, got: {error.strerror or error}.") from None
    return path


def _settings(units: Iterable[Unit]) -> Mapping[str, str]:
    """Each setting with the values that occur, which may have commas in them."""
    found: dict[str, dict[str, None]] = {}
    for unit in units:
        for name, value in unit.settings.items():
            found.setdefault(name, {})[str(value)] = None
    return {
        name: " | ".join(list(values)[:VALUES]) + (f" and {len(values) - VALUES} more" if len(values) > VALUES else "")
        for name, values in found.items()
    }
