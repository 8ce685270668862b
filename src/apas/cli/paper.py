"""`apas paper`: the paper's experiments run again, and the data they need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from apas.cli import options
from apas.cli.output import cell, json_rows, new_table, print_json, print_line, print_note, print_table
from apas.paper.experiment import BEYOND, EXPERIMENTS

if TYPE_CHECKING:
    from pandas import DataFrame

    from apas.paper.experiment import Entry, ExperimentOutcome

paper_app = typer.Typer(
    help="Run the experiments of the paper again, and fetch their data.\n\nExample:  apas paper data --data datasets",
    no_args_is_help=True,
)

Data = Annotated[
    Path | None, Option("--data", help="Folder with the datasets.", show_default="APAS_DATA, else ../shared")
]


@dataclass(eq=False, repr=False)
class RunOptions:
    """What every experiment takes."""

    data: Data = None
    output: Annotated[
        Path,
        Option("--output", help="Folder for tables, figures and finished work; a run that was ended goes on there."),
    ] = Path("apas-paper")
    quick: Annotated[bool, Option("--quick", help="Run less of it, to see that everything works.")] = False
    jobs: options.Jobs = None
    dask: options.Dask = None
    as_json: options.Json = False

    @contextmanager
    def prepare(self) -> Iterator[int]:
        """What every run begins with: a number of processes that makes sense, and the folder to read from."""
        from apas.cli.workers import workers
        from apas.datasets import data_from

        with data_from(self.data), workers(self.jobs, self.dask) as n_jobs:
            yield n_jobs

    def run(self, entry: Entry, n_jobs: int, *, finished: bool = False) -> ExperimentOutcome:
        """Run an experiment, write its tables and figures, and print the tables."""
        from apas.paper.experiment import run_experiment

        how: dict[str, Any] = {"quick": self.quick, "n_jobs": n_jobs, "finished": finished}
        outcome = run_experiment(entry.load(), self.output, label=entry.name, **how)
        if not self.as_json:
            for title, table in outcome.tables.items():
                print_table(_result_table(title, table), "")
            print_line(f"written: {', '.join(str(file) for file in outcome.files)}")
        if outcome.without_figures:
            print_note(f"no figures: {outcome.without_figures}")
        if outcome.left_out:
            print_note(f"left out: {outcome.left_out}")
        return outcome


@dataclass(eq=False, repr=False)
class PartOptions(RunOptions):
    """What an experiment takes besides, if a part of its units makes tables, too."""

    finished: Annotated[bool, Option("--finished", help="Run nothing: make tables of what is done.")] = False


@paper_app.command("data")
def data_command(data: Data = None, as_json: options.Json = False) -> None:
    """Download the datasets that are not there yet; every file is checked by its SHA-256.

    The exit code is 1 if a file could not be had. What to put where by hand is then said for each.

    Example:  apas paper data --data datasets
    """
    from apas.paper.data_folder import fetch

    folder = _place(data)
    files = fetch(folder)
    if as_json:
        lines = [
            {"dataset": f.name, "file": str(f.path.relative_to(folder)), "state": str(f.state), "reason": f.reason}
            for f in files
        ]
        print_json({"format": "apas-paper-data", "folder": str(folder), "files": lines})
    else:
        table = new_table("dataset", "file", "state")
        for f in files:
            table.add_row(f.name, cell(f.path.relative_to(folder)), cell(f.state, "green" if f.ok else "red"))
        print_table(table, f"{sum(f.ok for f in files)} of {len(files)} files are in {folder}.")
    failed = [file for file in files if not file.ok]
    for file in failed:
        print_note(f"error: {file.reason}")
    if failed:
        raise typer.Exit(1)


def _place(data: Path | None) -> Path:
    """The folder to fill: the one where data are looked for; if it is named, it need not exist."""
    from apas.datasets import data_folder
    from apas.errors import InputError

    try:
        return data_folder(data)
    except InputError:
        named = str(data or os.environ.get("APAS_DATA", "").strip())
        if not named:
            raise
        return Path(named).expanduser().absolute()


def _experiment_command(entry: Entry, group: type[RunOptions]) -> Callable[..., None]:
    """The sub-command of an experiment."""

    def command(how: RunOptions) -> None:
        with how.prepare() as n_jobs:
            outcome = how.run(entry, n_jobs, finished=getattr(how, "finished", False))
        if how.as_json:
            print_json(_content([(entry, outcome)], how.quick, None))

    command.__doc__ = f"""{entry.title}.

    Example:  apas paper {entry.name} --data datasets --output results --jobs 2
    """
    command.__annotations__["how"] = group
    return command


for _entry in (*EXPERIMENTS, *BEYOND):
    _options = PartOptions if _entry in BEYOND else RunOptions
    paper_app.command(_entry.name)(options.group_options(_experiment_command(_entry, _options)))


@paper_app.command("all")
@options.group_options
def all_command(how: RunOptions) -> None:
    """Run all experiments in turn, and write one HTML page with all tables and figures besides their files.

    Give the same command again to go on with a run that was ended.

    Example:  apas paper all --data datasets --output results --jobs 2
    """
    from apas.paper.experiment import Section, datasets_of, write_page

    sections: list[Section] = []
    with how.prepare() as n_jobs:
        datasets_of(EXPERIMENTS, quick=how.quick)
        for number, entry in enumerate(EXPERIMENTS, start=1):
            typer.echo(f"{number} of {len(EXPERIMENTS)}: {entry.title}", err=how.as_json)
            outcome = how.run(entry, n_jobs)
            sections.append(Section(entry, entry.load().units({"quick": how.quick}), outcome))
        page = write_page(sections, how.output, quick=how.quick, n_jobs=n_jobs)
    if how.as_json:
        print_json(_content([(part.entry, part.outcome) for part in sections], how.quick, page))
    else:
        print_line(f"page: {page}")


def _content(outcomes: list[tuple[Entry, ExperimentOutcome]], quick: bool, page: Path | None) -> dict[str, Any]:
    """What experiments found, as JSON values."""
    found = [
        {
            "name": entry.name,
            "title": entry.title,
            "tables": {title: json_rows(table) for title, table in outcome.tables.items()},
            "files": [str(file) for file in outcome.files],
        }
        for entry, outcome in outcomes
    ]
    return {"format": "apas-paper", "quick": quick, "experiments": found, "page": None if page is None else str(page)}


def _result_table(title: str, frame: DataFrame) -> Any:
    table = new_table(*map(str, frame.columns), title=title, title_justify="left")
    for cells in frame.itertuples(index=False):
        table.add_row(*(cell(f"{value:.3g}" if isinstance(value, float) else value) for value in cells))
    return table
