"""`apas paper` and `apas bench`: the paper's experiments run again, and how fast this machine draws shifted models."""

import itertools
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import apas
from apas.cli import options
from apas.cli.output import cell, json_rows, new_table, print_json, print_line, print_note, print_table
from apas.cli.workers import workers
from apas.errors import InputError
from apas.paper.data_folder import data_folder, data_from, fetch
from apas.paper.experiment import BEYOND, EXPERIMENTS, Entry, Section, datasets_of, run_experiment, write_page

if TYPE_CHECKING:
    from apas._typing import Floats, Integers

paper_app = typer.Typer(
    name="paper",
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
    output: Path = Option(
        Path("apas-paper"),
        "--output",
        help="Folder for tables, figures and finished work; a run that was ended goes on there.",
    )
    quick: bool = Option(False, "--quick", help="Run less of it, to see that everything works.")
    jobs: options.Jobs = None
    dask: options.Dask = None
    as_json: options.Json = False

    def run(self, entry: Entry, n_jobs: int, *, finished: bool = False) -> Section:
        """Run an experiment, write its tables and figures, and print the tables."""
        how: dict[str, Any] = {"quick": self.quick, "n_jobs": n_jobs, "finished": finished}
        outcome = run_experiment(entry.load(), self.output, label=entry.name, **how)
        if not self.as_json:
            for title, frame in outcome.tables.items():
                table = new_table(*map(str, frame.columns), title=title, title_justify="left")
                for cells in frame.itertuples(index=False):
                    table.add_row(*(cell(f"{value:.3g}" if isinstance(value, float) else value) for value in cells))
                print_table(table, "")
            print_line(f"written: {', '.join(str(file) for file in outcome.files)}")
        if outcome.without_figures:
            print_note(f"no figures: {outcome.without_figures}")
        if outcome.left_out:
            print_note(f"left out: {outcome.left_out}")
        return Section(entry, entry.load().units({"quick": self.quick}), outcome)

    def print_content(self, sections: list[Section], page: Path | None = None) -> None:
        """Print all that was made as one JSON document."""
        content: dict[str, Any] = {"format": "apas-paper", "quick": self.quick, "experiments": []}
        for part in sections:
            tables = {title: json_rows(table) for title, table in part.outcome.tables.items()}
            told = {"name": part.entry.name, "title": part.entry.title, "tables": tables}
            content["experiments"].append({**told, "files": [str(file) for file in part.outcome.files]})
        print_json({**content, "page": None if page is None else str(page)})


@dataclass(eq=False, repr=False)
class PartOptions(RunOptions):
    """What an experiment takes besides, if a part of its units makes tables, too."""

    finished: bool = Option(False, "--finished", help="Run nothing: make tables of what is done.")


@paper_app.command("data")
def data_command(data: Data = None, as_json: options.Json = False) -> None:
    """Download the datasets that are not there yet; every file is checked by its SHA-256.

    The exit code is 1 if a file could not be had. What to put where by hand is then said for each.

    Example:  apas paper data --data datasets
    """
    try:
        folder = data_folder(data)
    except InputError:  # a folder to fill need not exist, if it is named
        named = str(data or os.environ.get("APAS_DATA", "").strip())
        if not named:
            raise
        folder = Path(named).expanduser().absolute()
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


def _experiment_command(entry: Entry) -> Callable[..., None]:

    def command(how: RunOptions) -> None:
        with data_from(how.data), workers(how.jobs, how.dask) as n_jobs:
            section = how.run(entry, n_jobs, finished=getattr(how, "finished", False))
        if how.as_json:
            how.print_content([section])

    command.__doc__ = f"""{entry.title}.

    Example:  apas paper {entry.name} --data datasets --output results --jobs 2
    """
    command.__annotations__["how"] = PartOptions if entry in BEYOND else RunOptions
    return options.group_options(command)


for _entry in (*EXPERIMENTS, *BEYOND):
    paper_app.command(_entry.name)(_experiment_command(_entry))


@paper_app.command("all")
@options.group_options
def all_command(how: RunOptions) -> None:
    """Run all experiments in turn, and write one HTML page with all tables and figures besides their files.

    Give the same command again to go on with a run that was ended.

    Example:  apas paper all --data datasets --output results --jobs 2
    """
    sections: list[Section] = []
    with data_from(how.data), workers(how.jobs, how.dask) as n_jobs:
        datasets_of(EXPERIMENTS, quick=how.quick)
        for number, entry in enumerate(EXPERIMENTS, start=1):
            typer.echo(f"{number} of {len(EXPERIMENTS)}: {entry.title}", err=how.as_json)
            sections.append(how.run(entry, n_jobs))
        page = write_page(sections, how.output, quick=how.quick, n_jobs=n_jobs)
    if how.as_json:
        how.print_content(sections, page)
    else:
        print_line(f"page: {page}")


SIZES = ((8, 8, 1), (30, 100, 50, 1))
ROWS = (1, 100)
DRAWS, DELTA = 1379, 0.02


def bench_command(
    rounds: int = Option(5, help="How often each is timed; the medians are shown."), as_json: options.Json = False
) -> None:
    """Time the sampling test against a plain loop in NumPy, on random networks, in one thread.

    Both draw as many shifted models and ask each of them about all rows, from random streams of their own.

    Example:  apas bench --rounds 3
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    if rounds < 1:
        raise InputError(f"`--rounds` must be a positive number, got {rounds}.")
    with threadpool_limits(1):
        lines = [_compare(sizes, rows, rounds) for sizes, rows in itertools.product(SIZES, ROWS)]
    here = {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    here |= {"python": platform.python_version(), "numpy": np.__version__}
    if as_json:
        print_json({"format": "apas-bench", "draws": DRAWS, "rounds": rounds, "machine": here, "comparisons": lines})
        return
    table = new_table("network", right=("parameters", "rows", "loop ms", "apas ms", "times as fast"))
    for line in lines:
        times = [f"{1e3 * line[name]:.2f}" for name in ("loop_seconds", "apas_seconds")]
        table.add_row(line["network"], str(line["parameters"]), str(line["rows"]), *times, f"{line['ratio']:.1f}")
    print_table(
        table,
        f"{DRAWS} shifted models each; medians of {rounds} rounds in one thread; Python {here['python']}, "
        f"NumPy {here['numpy']}, {here['system']}.",
    )


def _compare(sizes: tuple[int, ...], rows: int, rounds: int) -> dict[str, Any]:
    """Time both on one network; turn by turn, so that a busy machine slows down both."""
    import numpy as np

    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]
    biases = [0.1 * rng.normal(size=b) for b in sizes[1:]]
    biases[-1] += 5.0  # so far from the boundary that no draw fails, and every draw is made
    net, X = apas.FeedForward(weights, biases), rng.random((rows, sizes[0]))
    plain, ours = [], []
    for turn in range(rounds):
        began = time.perf_counter()
        failures = plain_failures(net, X, turn)
        between = time.perf_counter()
        found = apas.certify(net, X, DELTA, target=1, method=apas.Sampling(n_samples=DRAWS), rng=turn)
        ours.append(time.perf_counter() - between)
        plain.append(between - began)
        if failures.any() or not found.certified.all():
            raise AssertionError("rows far from the boundary failed, so that fewer draws were made than are counted")
    slow, fast = statistics.median(plain), statistics.median(ours)
    about = {"network": "-".join(map(str, sizes)), "parameters": len(net.parameters.values), "rows": rows}
    return {**about, "loop_seconds": slow, "apas_seconds": fast, "ratio": slow / fast}


def plain_failures(net: "apas.FeedForward", X: "Floats", seed: int) -> "Integers":
    """How many shifted models put each row below 0: one model at a time, all rows together."""
    import numpy as np

    rng = np.random.default_rng(seed)
    failures = np.zeros(len(X), dtype=np.int64)
    for _ in range(DRAWS):
        a = X
        for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            assert bias is not None
            moved = weight + rng.uniform(-DELTA, DELTA, weight.shape)
            a = a @ moved + (bias + rng.uniform(-DELTA, DELTA, bias.shape))
            if i < len(net.weights) - 1:
                a = np.maximum(a, 0.0)
        failures += a[:, 0] < 0.0
    return failures
