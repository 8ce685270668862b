"""Units of work that note when they are done, and processes that run them and are killed.

Run as a program it does the units of a folder with so many processes, and notes each that it begins in a file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from apas.datasets import dataset_path
from apas.paper.experiment import Store, Unit, run_units

COUNT = 60


def square(number, pause=0.0):
    if "UNIT_NOTES" in os.environ:
        with open(os.environ["UNIT_NOTES"], "a") as notes:
            notes.write(f"{number}\n")
    if number >= int(os.environ.get("UNIT_HOLD", COUNT)):
        wait_to_be_killed()
    time.sleep(pause)
    return {"square": number**2}


def wait_to_be_killed():
    """Keep a run from ending before the kill comes, however late that is; workers end with their parent."""
    parent, began = os.getppid(), time.monotonic()
    while os.getppid() == parent and time.monotonic() < began + 120:
        time.sleep(0.01)


def size(name):
    return {"size": dataset_path(name).stat().st_size, "folder": str(dataset_path(name).parents[1])}


def failing(number):
    if number == 2:
        raise RuntimeError("number 2 does not work")
    return square(number)


def units(count=COUNT, pause=0.01):
    return [Unit("squares", square, {"number": number, "pause": pause}) for number in range(count)]


def start(folder, notes, jobs, hold=COUNT):
    environment = {**os.environ, "UNIT_NOTES": str(notes), "UNIT_HOLD": str(hold)}
    return subprocess.Popen([sys.executable, __file__, str(folder), str(jobs)], env=environment)


def killed_after(folder, notes, rows, jobs):
    """Start a run, and kill it once so many units are in the store; later than 10 units more it cannot come."""
    process = start(folder, notes, jobs, hold=rows + 10)
    while process.poll() is None and len(finished(folder)) < rows:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def finished(folder):
    """Numbers whose results another connection sees."""
    path = Path(folder) / "results.sqlite"
    if not path.exists():
        return set()
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as base, contextlib.suppress(sqlite3.OperationalError):
        return {n for (n,) in base.execute("select json_extract(settings, '$.number') from results")}
    return set()


def noted(path):
    return [int(line) for line in Path(path).read_text().split()] if Path(path).exists() else []


if __name__ == "__main__":
    import killed_experiments  # the functions' module is part of a key, and here it would be __main__

    with Store(Path(sys.argv[1]) / "results.sqlite") as store:
        run_units(killed_experiments.units(), store, n_jobs=int(sys.argv[2]))
