"""`apas paper`: the paper's experiments run again, and the data they need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from apas.cli import options
from apas.cli.output import print_table
from apas.experiments.register import available

if TYPE_CHECKING:
    from pandas import DataFrame

    from apas.experiments.experiment import Outcome
    from apas.experiments.register import Entry

__all__ = ["paper_app"]

paper_app = typer.Typer(help="Run the experiments of the paper again, and fetch their data.", no_args_is_help=True)

Data: TypeAlias = Annotated[
    Path | None, typer.Option("--data", help="Folder with the datasets.", show_default="APAS_DATA, else ../shared")
]
Output: TypeAlias = Annotated[
    Path,
    typer.Option("--output", help="Folder for tables, figures and finished work; a run that was ended goes on there."),
]
Quick: TypeAlias = Annotated[bool, typer.Option("--quick", help="Run less of it, to see that everything works.")]
#: Where results go unless told otherwise.
FOLDER = Path("apas-paper")


@paper_app.command("data")
def data_command(data: Data = None) -> None:
    """Download the datasets that are not there yet; every file is checked by its SHA-256.

    The exit code is 1 if a file could not be had. What to put where by hand is then said for each.

    Example:  apas paper data --data datasets
    """
    from rich.table import Table
    from rich.text import Text

    from apas.datasets.download import fetch

    folder = _place(data)
    files = fetch(folder)
    table = Table("dataset", "file", "state", box=None, pad_edge=False)
    for file in files:
        table.add_row(file.name, str(file.path.relative_to(folder)), Text(file.state, "green" if file.ok else "red"))
    right = sum(file.ok for file in files)
    print_table(table, f"{right} of {len(files)} files are in {folder}.")
    for file in files:
        if not file.ok:
            typer.echo(f"error: {file.reason}", err=True)
    if right < len(files):
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


def _experiment_command(entry: Entry) -> Callable[..., None]:
    """The sub-command of an experiment; all of them take the same options."""

    def command(data: Data = None, output: Output = FOLDER, quick: Quick = False, jobs: options.Jobs = 1) -> None:
        with _prepared(data, jobs):
            run(entry, output=output, quick=quick, jobs=jobs)

    command.__doc__ = f"""{entry.title}.

    Example:  apas paper {entry.name} --data datasets --output results --jobs 2
    """
    return command


for _entry in available():
    paper_app.command(_entry.name)(_experiment_command(_entry))


@paper_app.command("all")
def all_command(data: Data = None, output: Output = FOLDER, quick: Quick = False, jobs: options.Jobs = 1) -> None:
    """Run all experiments in turn, and write one HTML page with all tables and figures besides their files.

    Give the same command again to go on with a run that was ended.

    Example:  apas paper all --data datasets --output results --jobs 2
    """
    from apas.experiments.page import Section, write_page
    from apas.experiments.register import datasets_of

    entries, sections = available(), []
    with _prepared(data, jobs):
        datasets_of(entries, quick=quick)
        for number, entry in enumerate(entries, start=1):
            typer.echo(f"{number} of {len(entries)}: {entry.title}")
            outcome = run(entry, output=output, quick=quick, jobs=jobs)
            sections.append(Section(entry, entry.load().units({"quick": quick}), outcome))
        page = write_page(sections, output, quick=quick, n_jobs=jobs)
    typer.echo(f"page: {page}")


@contextmanager
def _prepared(data: Path | None, jobs: int) -> Iterator[None]:
    """What every run begins with: a number of processes that makes sense, and the folder to read from."""
    from apas._validation import check_jobs
    from apas.datasets import data_from

    check_jobs(jobs)
    with data_from(data):
        yield


def run(entry: Entry, *, output: Path, quick: bool, jobs: int) -> Outcome:
    """Run an experiment, write its tables and figures, and print the tables."""
    from apas.experiments.experiment import run_experiment

    outcome = run_experiment(entry.load(), output, quick=quick, n_jobs=jobs, label=entry.name)
    for title, table in outcome.tables.items():
        print_table(_shown(title, table), "")
    typer.echo(f"written: {', '.join(str(file) for file in outcome.files)}")
    if outcome.without_figures:
        typer.echo(f"no figures: {outcome.without_figures}", err=True)
    return outcome


def _shown(title: str, frame: DataFrame) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(*map(str, frame.columns), title=title, title_justify="left", box=None, pad_edge=False)
    for cells in frame.itertuples(index=False):
        table.add_row(*(Text(f"{cell:.3g}" if isinstance(cell, float) else str(cell)) for cell in cells))
    return table
