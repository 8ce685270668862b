"""`apas paper`: the paper's experiments run again, and the data they need."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from apas.cli import options
from apas.cli.output import print_table

if TYPE_CHECKING:
    from pandas import DataFrame

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


@paper_app.command("table2")
def table2_command(
    data: Data = None, output: Output = FOLDER, quick: Quick = False, jobs: options.Jobs = 1
) -> None:  # fmt: skip
    """Table 2: how far plausible shifts move the expected output, which naturally occurring ones leave alone.

    Example:  apas paper table2 --data datasets --output results --jobs 2
    """
    run("table2", data=data, output=output, quick=quick, jobs=jobs)


def run(name: str, *, data: Path | None, output: Path, quick: bool, jobs: int) -> None:
    """Run the experiment `apas.experiments.NAME`, write its tables and figures, and print the tables."""
    from apas._validation import check_jobs
    from apas.datasets import data_from
    from apas.experiments.experiment import run_experiment

    experiment: Any = import_module(f"apas.experiments.{name}")
    with data_from(data):
        outcome = run_experiment(experiment, output, quick=quick, n_jobs=check_jobs(jobs), label=name)
    for title, table in outcome.tables.items():
        print_table(_shown(title, table), "")
    typer.echo(f"written: {', '.join(str(file) for file in outcome.files)}")
    if outcome.without_figures:
        typer.echo(f"no figures: {outcome.without_figures}", err=True)


def _shown(title: str, frame: DataFrame) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(*map(str, frame.columns), title=title, title_justify="left", box=None, pad_edge=False)
    for cells in frame.itertuples(index=False):
        table.add_row(*(Text(f"{cell:.3g}" if isinstance(cell, float) else str(cell)) for cell in cells))
    return table
