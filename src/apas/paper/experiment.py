"""The paper's experiments by name, and what comes of running one: units of work, kept as they are done, and a page.

What was computed once lies in one SQLite file, and is not computed again, unless what it is made of changed. The page
holds all tables and figures, and refers to no other file.
"""

import base64
import hashlib
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from apas._atomic import refusing, write_text
from apas._parallel import in_parallel, one_thread
from apas._sanitise import for_html
from apas.display.progress import Progress
from apas.display.tables import csv_text, html_table, markdown_table
from apas.errors import InputError, MissingExtra
from apas.paper import package_table, package_text
from apas.paper.data_folder import DATASETS, data_folder, data_from, dataset_path

if TYPE_CHECKING:
    from pandas import DataFrame

_TABLE = """create table if not exists results (key text primary key, experiment text not null,
    settings text not null, result text not null, seconds real not null) without rowid"""
APPLICATION = 0x61706172  # "apar" in ASCII marks a file of results: nothing is written into other databases
PATIENCE = 60.0  # seconds to wait for another run that writes to the same file
COMPUTING = ("numpy", "scipy", "scikit-learn", "pandas", "highspy")  # libraries whose version may change a result


@cache
def code_version() -> str:
    """Version of the package and a digest of its source files."""
    return f"{sys.modules['apas'].__version__}+{source_digest(Path(__file__).parents[1])[:12]}"


def library_version(name: str) -> str:
    """Version of a library that is installed, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


@cache
def processor() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


@cache
def blas() -> str:
    """The BLAS libraries of NumPy and SciPy with their versions and the kernels that they chose for this processor."""
    import scipy.linalg  # noqa: F401 - loads the library, as NumPy has loaded its own
    from threadpoolctl import threadpool_info

    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    words = {" ".join(str(lib.get(k) or "") for k in ("internal_api", "version", "architecture")) for lib in found}
    return " and ".join(sorted(words)) or "unknown"


def versions(*more: str) -> list[tuple[str, str]]:
    """Of the code, Python, the libraries that compute and some `more`, and the BLAS."""
    own = [("apas", code_version()), ("Python", platform.python_version())]
    return [*own, *((name, library_version(name)) for name in (*COMPUTING, *more)), ("BLAS", blas())]


@cache
def made_with() -> str:
    """The code, Python, the libraries that compute, and the processor: whatever may change a digit of a result."""
    return ", ".join(" ".join(part) for part in [*versions(), ("processor", processor())])


def source_digest(root: Path) -> str:
    """Digest of the Python files of a folder and of the tables beside them: their places and their bytes."""
    digest = hashlib.sha256()
    for path in sorted(path for ending in ("py", "csv") for path in root.rglob(f"*.{ending}")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@cache
def _file_digest(path: Path, size: int, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def data_version(names: tuple[str, ...]) -> str:
    """Digest of the files of datasets, by name."""
    digest = hashlib.sha256()
    for name in names:
        path = dataset_path(name)
        state = path.stat()
        digest.update(f"{name} {_file_digest(path, state.st_size, state.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


def unit_key(experiment: str, settings: Mapping[str, Any], data: str, code: str) -> str:
    """What a unit of work is known by."""
    text = json.dumps([experiment, dict(settings), data, code], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Unit:
    """A piece of an experiment that is done as a whole or not at all."""

    experiment: str
    work: Callable[..., dict[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What the unit is known by in a store."""
        name = f"{self.experiment}/{self.work.__module__}.{self.work.__qualname__}"
        return unit_key(name, self.settings, data_version(self.data), made_with())


class Store(AbstractContextManager["Store"]):
    """Results in a file, one transaction each."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with self._reading():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._reading():
                self._prepare()
        except BaseException:
            self._base.close()
            raise

    def _prepare(self) -> None:
        """Make the table in an empty file; what is neither empty nor ours is left as it is."""
        count = "select count(*) from sqlite_master"
        # in this order: whoever has made the table has marked the file
        tables, known = (self._number(query) for query in (count, "pragma application_id"))
        if known != APPLICATION and (known or tables):
            raise sqlite3.DatabaseError("another program's database")
        # their answers could be anything, or take forever
        if self._number(f"{count} where type in ('view', 'trigger')"):
            raise sqlite3.DatabaseError("a database with views or triggers")
        if not tables:  # with the lock, since another run may do the same: all of it is there, or nothing
            self._base.execute("begin immediate")
            self._base.execute(_TABLE)
            self._base.execute(f"pragma application_id = {APPLICATION}")
            self._base.execute("commit")

    def _number(self, query: str) -> int:
        return int(self._base.execute(query).fetchone()[0])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A file that was damaged, or is full or locked, is refused in one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError, RecursionError) as error:  # the last three are of JSON
            why, wanted = getattr(error, "strerror", None) or error, "a file of results of `apas paper` or a new one"
            raise InputError(f"{str(self.path)!r} must be {wanted}, got {why}; name another.") from None

    def get(self, key: str) -> dict[str, Any] | None:
        """The result of a unit, or None if it is not done."""
        with self._reading():
            row = self._base.execute("select result from results where key = ?", (key,)).fetchone()
            result = {} if row is None else json.loads(row[0])
            if not isinstance(result, dict):
                raise TypeError("a result that is none")
            return None if row is None else result

    def put(
        self, key: str, experiment: str, settings: Mapping[str, Any], result: Mapping[str, Any], *, seconds: float
    ) -> None:
        """Keep the result of a unit; done when this returns."""
        values = (key, experiment, json.dumps(dict(settings), sort_keys=True), json.dumps(dict(result)), seconds)
        with self._reading():
            self._base.execute("insert or replace into results values (?, ?, ?, ?, ?)", values)

    def finished(self, unit: Unit) -> dict[str, Any] | None:
        """The result of a unit, whatever version and data it was computed with; None if it is not done."""
        with self._reading():
            query = "select result from results where experiment = ? and settings = ?"
            rows = self._base.execute(query, (unit.experiment, json.dumps(dict(unit.settings), sort_keys=True)))
            found = [dict(json.loads(text)) for (text,) in rows]
        if len(found) > 1:
            twice = f"once, but more than one version has computed {dict(unit.settings)}"
            wanted = f"hold a unit of {unit.experiment} {twice}"
            raise InputError(f"{str(self.path)!r} must {wanted}; give a folder of one version.")
        return found[0] if found else None

    def __len__(self) -> int:
        with self._reading():
            return self._number("select count(*) from results")

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def run_units(units: Iterable[Unit], store: Store, *, n_jobs: int = 1, label: str = "working") -> list[dict[str, Any]]:
    """Results of units in their order; `n_jobs` processes do what is not there yet, and each result is kept at once."""
    asked = [(unit.key, unit) for unit in units]
    open_ = {key: unit for key, unit in asked if store.get(key) is None}
    with Progress(len(asked), label) as progress:
        progress.advance(sum(key not in open_ for key, _ in asked))
        # here and not below: joblib asks for most jobs in threads of its own, which know nothing of `data_from`
        folder = data_folder() if any(unit.data for unit in open_.values()) else None
        jobs = ((key, unit, folder) for key, unit in open_.items())
        # short units are not bundled: a kill would lose the finished ones of a bundle
        for key, result, seconds in in_parallel(_do, jobs, n_jobs, return_as="generator_unordered", batch_size=1):
            unit = open_[key]
            store.put(key, unit.experiment, unit.settings, result, seconds=seconds)
            progress.advance(sum(key == other for other, _ in asked))
    found = [store.get(key) for key, _ in asked]
    assert None not in found
    return found  # type: ignore[return-value]


def _do(key: str, unit: Unit, folder: Path | None) -> tuple[str, dict[str, Any], float]:
    began = time.perf_counter()
    with data_from(folder), one_thread():  # the processes share the cores
        result = unit.work(**unit.settings)
    return key, result, time.perf_counter() - began


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
