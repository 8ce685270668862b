"""The paper's experiments by name, what comes of running one, and one page of them all that refers to no other file."""

import base64
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from apas._atomic import refusing, write_text
from apas._sanitise import for_html
from apas.display.tables import csv_text, html_table, markdown_table
from apas.errors import InputError, MissingExtra
from apas.paper import package_table, package_text
from apas.paper.data_folder import DATASETS, dataset_path
from apas.paper.store import Store, Unit, made_with, processor, run_units, versions

if TYPE_CHECKING:
    from pandas import DataFrame

RESULTS = "results.sqlite"  # beside the tables: what was computed once, so that a run that was ended goes on


class Experiment(Protocol):
    """A module that offers these three functions; `left_out`, too, if a part cannot be run everywhere: a sentence."""

    def units(self, settings: Mapping[str, Any], /) -> list[Unit]:
        """The work; with ``settings["quick"]`` less of it."""

    def tables(self, results: Sequence[dict[str, Any]], /) -> "dict[str, DataFrame]":
        """Tables by their names, which become names of files."""

    def figures(self, results: Sequence[dict[str, Any]], folder: Path, /) -> list[Path]:
        """Write the figures into a folder, as PNG and SVG, and say which files they are."""


@dataclass(frozen=True, eq=False)
class ExperimentOutcome:
    """What a run gave."""

    tables: "dict[str, DataFrame]"
    files: tuple[Path, ...]  # of tables and figures
    without_figures: str = ""  # why there are none
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
    place = Path(folder)
    units, options = experiment.units({"quick": quick}), " --quick" * quick + " --finished" * finished
    made = f"Made by `apas paper {label}{options}` with {made_with()}, on {os.cpu_count()} cores."
    with Store(place / RESULTS) as store:
        if finished:
            results = [result for result in map(store.finished, units) if result is not None]
            made = f"Of {len(results)} finished units of {len(units)}, which may be of another version.\n\n{made}"
        else:
            results = run_units(units, store, n_jobs=n_jobs, label=label)
    if not results:
        raise InputError(f"{str(place)!r} must hold finished units of {label}, got none; run it without `--finished`.")
    tables, files, without = experiment.tables(results), [], ""
    with refusing(f"{str(place)!r} must be a folder to write to, got"):
        for name, table in tables.items():
            files += [place / f"{name}.csv", place / f"{name}.md"]
            write_text(files[-2], csv_text(table, index=False, float_format="%.6g"))
            write_text(files[-1], f"{markdown_table(table, digits=table.attrs.get('digits', 3))}\n\n{made}\n")
        try:
            files += experiment.figures(results, place)
        except MissingExtra as missing:
            without = str(missing)
    return ExperimentOutcome(tables, tuple(files), without, getattr(experiment, "left_out", str)())


@dataclass(frozen=True)
class Entry:
    """An experiment, the module `apas.paper.NAME`."""

    name: str
    title: str
    seeds: str = ""

    def load(self) -> Experiment:
        """Import the module."""
        return import_module(f"apas.paper.{self.name}")


_ENTRIES: Final = {Entry(line["name"], line["title"], line["seeds"]): line for line in package_table("experiments.csv")}
#: In the order in which they are run, and those that are no part of the paper's page. A new experiment is a module and
#: a line of the table.
EXPERIMENTS: Final = tuple(entry for entry, line in _ENTRIES.items() if line["page"] == "yes")
BEYOND: Final = tuple(entry for entry, line in _ENTRIES.items() if line["page"] == "no")


def datasets_of(entries: Iterable[Entry], *, quick: bool = False) -> tuple[str, ...]:
    """Names of the datasets that experiments read, after checking that their files are there."""
    read = {name for entry in entries for unit in entry.load().units({"quick": quick}) for name in unit.data}
    names = tuple(name for name in DATASETS if name in read)
    for name in names:
        dataset_path(name)
    return names


#: Names in the output folder: of the page, and of what it was made with, which may be kept beside single tables.
PAGE, MADE_WITH = "paper.html", "made-with.md"
VALUES, LINES = 12, 100  # of the settings, values that are written out; of the tables, lines at each end
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
        command, settings = f"apas paper {self.entry.name}{' --quick' * quick}", _settings(self.units)
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
        for what, why in (("No figures", self.outcome.without_figures), ("Left out", self.outcome.left_out)):
            lines += [f"<p>{what}: {for_html(why)}</p>"] if why else []
        return "\n".join(lines)


def write_page(sections: Sequence[Section], folder: str | os.PathLike[str], *, quick: bool, n_jobs: int) -> Path:
    """Write the page of a run into a folder, and what it was made with as Markdown besides; each in one step."""
    import pandas as pd

    command = f"apas paper all{' --quick' * quick}"
    links = "".join(f'<li><a href="#{for_html(s.entry.name)}">{for_html(s.entry.title)}</a></li>' for s in sections)
    read = {name for section in sections for unit in section.units for name in unit.data}
    program = [
        *versions("matplotlib", "torch"),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("processor", processor()),
        ("cores", str(os.cpu_count())),
        ("processes asked for", "one per core" if n_jobs == -1 else str(n_jobs)),
    ]
    seeds = [(s.entry.name, len(s.units), s.entry.seeds) for s in sections]
    known = [(name, file) for name, file in DATASETS.items() if name in read]
    digests = [(*about, hashlib.sha256(dataset_path(about[0]).read_bytes()).hexdigest()) for about in known]
    made_with = {
        "program and machine": pd.DataFrame(program, columns=["what", "which"]),
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
        f"<title>The paper, reproduced</title><style>\n{package_text('page.css')}</style>"
    )
    body, path = "\n".join(parts), Path(folder) / PAGE
    with refusing(f"{str(path)!r} must be a file to write to, got"):
        tables = "\n\n".join(markdown_table(table) for table in made_with.values())
        write_text(path.with_name(MADE_WITH), f"Made by `{command}`.\n\n{tables}\n")
        write_text(path, f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n')
    return path


def _settings(units: Iterable[Unit]) -> str:
    """Each setting with the values that occur, which may have commas in them."""
    found: dict[str, dict[str, None]] = {}
    for unit in units:
        for name, value in unit.settings.items():
            found.setdefault(name, {})[str(value)] = None
    more = {name: f" and {len(values) - VALUES} more" if len(values) > VALUES else "" for name, values in found.items()}
    return "; ".join(f"{name}: {' | '.join(list(values)[:VALUES])}{more[name]}" for name, values in found.items())
