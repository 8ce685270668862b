"""`python -m benchmarks.scale WHAT`: a million rows on the command line, 100,000 rows of two networks, 10,000 promises.

``stream`` certifies from CSV to JSON Lines in processes of this machine, ``dask`` on clusters of one and two processes,
``kernel`` compares the sampling test with NumPy's matrix products, ``columns`` certifies, saves and loads, and
``ledger`` adds and audits promises on SQLite or on the PostgreSQL database whose address is given.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import apas
from apas._typing import Floats
from benchmarks import sampling
from benchmarks.plain import random_network

__all__ = ["columns", "kernel", "ledger", "stream"]

SAMPLES = 1379


def spent() -> float:
    """Processor seconds of this process and of those that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds and seconds by the clock."""
    began, clock = spent(), time.perf_counter()
    call()
    return spent() - began, time.perf_counter() - clock


def small_network(rows: int) -> tuple[apas.FeedForward, Floats]:
    """A network 8-8-1 and rows of it."""
    weights, biases = random_network((8, 8, 1), seed=0)
    return apas.FeedForward(weights, biases), np.random.default_rng(1).random((rows, 8))


def memory_of(pid: int) -> int:
    """Megabytes that a process and its children hold now, what they share counted once for each."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if int(folder.name) == pid:
                total += int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            elif parent == pid:
                total += memory_of(int(folder.name)) << 20
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total >> 20


def run_watched(words: list[str], folder: Path) -> tuple[float, float, int]:
    """Run `apas` there: processor seconds, seconds, and the most megabytes of all its processes together."""
    began, clock, most = spent(), time.perf_counter(), 0
    process = subprocess.Popen([sys.executable, "-m", "apas", *words], cwd=folder, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, memory_of(process.pid))
        time.sleep(0.5)
    if process.returncode:
        raise AssertionError(f"it ended with exit code {process.returncode}")
    return spent() - began, time.perf_counter() - clock, most


def table(folder: Path, rows: int) -> None:
    """A model file and a CSV file of so many rows."""
    net, X = small_network(rows)
    apas.save_model(net, folder / "model.json")
    np.savetxt(folder / "rows.csv", X, delimiter=",", header=",".join(f"x{i}" for i in range(8)), comments="")


ASK = ["certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.02", "--seed", "0"]


def stream(rows: int) -> None:
    """Print what a streamed run takes in one process and in two."""
    with tempfile.TemporaryDirectory() as name:
        table(Path(name), rows)
        for jobs in ("2", "1"):
            busy, clock, most = run_watched([*ASK, "--out", f"{jobs}.jsonl", "--jobs", jobs], Path(name))
            size = (Path(name) / f"{jobs}.jsonl").stat().st_size / 1e6
            told = f"{busy:.0f} s of processor time, {clock:.0f} s, {most} MB, file {size:.0f} MB"
            print(f"{rows} rows, --jobs {jobs}: {told}", flush=True)
        same = (Path(name) / "1.jsonl").read_bytes() == (Path(name) / "2.jsonl").read_bytes()
        print("the same file" if same else "THE FILES DIFFER")


def on_dask(rows: int) -> None:
    """Print what a streamed run takes on clusters of one and two processes, and what a billion rows would by that."""
    import distributed

    with tempfile.TemporaryDirectory() as name:
        table(Path(name), rows)
        heavy, X = sampling.question((30, 100, 50, 1))
        apas.save_model(heavy, Path(name) / "heavy.json")
        X = np.resize(X, (rows // 25, 30))
        head = ",".join(heavy.feature_names or [f"x{i}" for i in range(30)])
        np.savetxt(Path(name) / "heavy.csv", X, delimiter=",", header=head, comments="", fmt="%.17g")
        draws = ["certify", "heavy.json", "heavy.csv", *ASK[3:], "--samples", str(SAMPLES)]
        tasks = {"8-8-1": (ASK, rows), "30-100-50-1": (draws, len(X))}
        clocks: dict[str, list[float]] = {what: [] for what in tasks}
        for workers in (1, 2):
            with (
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                for what, (words, count) in tasks.items():
                    few = (Path(name) / words[2]).read_text().splitlines(keepends=True)[:65]
                    (Path(name) / f"few-{words[2]}").write_text("".join(few))
                    costs = []
                    # 64 rows first: what they take are starts, not rows
                    for table_name, out in ((f"few-{words[2]}", "few.jsonl"), (words[2], f"{what}.{workers}.jsonl")):
                        before = sum(client.run(time.process_time).values())
                        where = ["--out", out, "--dask", cluster.scheduler_address]
                        busy, clock, _ = run_watched([*words[:2], table_name, *words[3:], *where], Path(name))
                        costs.append((clock, busy, sum(client.run(time.process_time).values()) - before))
                    clock, own, theirs = (b - a for a, b in zip(*costs, strict=True))
                    clocks[what].append(clock)
                    told = f"processor time {own:.1f} s of the command, {theirs:.1f} s of workers"
                    print(
                        f"{what}, {count} rows, {workers} worker(s): {clock:.1f} s by the clock, and {costs[0][0]:.1f}"
                    )
                    print(f"    to start; {told}", flush=True)
                    if workers == 2:
                        size = (Path(name) / f"{what}.2.jsonl").stat().st_size
                        extrapolate(what, own / count, theirs / count, size / count)
        for what, (one, two) in clocks.items():
            files = [(Path(name) / f"{what}.{workers}.jsonl").read_bytes() for workers in (1, 2)]
            same = "the same file" if files[0] == files[1] else "THE FILES DIFFER"
            print(f"{what}: two workers {one / two:.2f} times as fast as one; {same}")


def extrapolate(what: str, own: float, theirs: float, size: float) -> None:
    """Print the time of a billion rows from what one takes of the command and of a worker, and its bytes."""
    # the command reads and writes while the workers compute, so that the slower of the two is what counts
    hours = {workers: 1e9 / 3600 * max(own, theirs / workers) for workers in (1, 16, 128)}
    told = ", ".join(f"{taken:,.0f} h with {workers}" for workers, taken in hours.items())
    print(f"{what}: a row takes {1e6 * own:.0f} us of the command and {1e6 * theirs:.0f} us of a worker")
    print(f"{what}: 10^9 rows at these costs: {told} workers; a file of {size * 1e9 / 1e12:.2f} TB")


def kernel(rows: int) -> None:
    """Print the rate of the sampling test against that of NumPy's products, and two processes against one."""
    net, few = sampling.question((30, 100, 50, 1))
    X = few[0] * (1 + 1e-9 * np.arange(rows)[:, None])
    work = 2 * SAMPLES * rows * sum(w.size for w in net.weights) / 1e9

    def ask(n_jobs: int) -> None:
        method = apas.Sampling(n_samples=SAMPLES)
        found = apas.certify(net, X, sampling.DELTA, target=1, method=method, rng=0, n_jobs=n_jobs)
        if not found.certified.all():
            raise AssertionError("the benchmark's rows must be certified, or fewer draws are made than are counted")

    def multiply(block: int, repeats: int) -> float:
        """Billions of operations per second of all layers' products for so many rows."""
        pieces = [np.random.default_rng(0).random((block, w.shape[0])) for w in net.weights]
        outs = [np.empty((block, w.shape[1])) for w in net.weights]

        def products() -> None:
            for _ in range(repeats):
                for piece, w, out in zip(pieces, net.weights, outs, strict=True):
                    np.matmul(piece, w, out=out)

        products()
        return 2 * repeats * block * sum(w.size for w in net.weights) / 1e9 / timed(products)[0]

    with threadpool_limits(1):
        before = max(multiply(block, max(1, 400_000 // block)) for block in (128, 1024, 8192, rows))
        one, clock = timed(lambda: ask(1))
        after = max(multiply(block, max(1, 400_000 // block)) for block in (128, 1024, 8192, rows))
    rate = work / one
    print(f"{rows} rows of 30-100-50-1, n = {SAMPLES}: {one:.1f} s of processor time, {rate:.1f} GFLOP/s")
    print(f"NumPy's products: {before:.1f} before and {after:.1f} GFLOP/s after; share {rate / max(before, after):.0%}")
    apas.certify(net, X[:64], sampling.DELTA, target=1, rng=0, n_jobs=2)  # starts the processes
    together = timed(lambda: ask(2))[1]
    print(f"one process {clock:.1f} s, two {together:.1f} s by the clock: {clock / together:.2f} times as fast")


def columns(rows: int) -> None:
    """Print what it takes to certify, save and load, for rows that hold and for random ones, and the memory of it."""
    net, few = sampling.question((8, 8, 1))
    kinds = {"that hold": (net, few[0] * (1 + 1e-9 * np.arange(rows)[:, None])), "at random": small_network(rows)}
    for kind, (model, X) in kinds.items():
        with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
            path, kept = Path(name) / "certificates.json", list[apas.Certificates]()
            seconds = [timed(lambda: kept.append(apas.certify(model, X, 0.02, target=1, rng=0)))[0]]  # noqa: B023
            seconds.append(timed(partial(apas.save_certificates, kept[0], path))[0])
            seconds.append(timed(partial(apas.load_certificates, path))[0])
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        told = "certify {:.1f} s, save {:.1f} s, load {:.1f} s".format(*seconds)
        print(f"{rows} rows {kind}: {told}, in all {sum(seconds):.1f} s; {most:.0f} MB at most")


def ledger(count: int, address: str | None) -> None:
    """Print what it takes to add and to audit so many promises."""
    net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
    new = apas.FeedForward([[[1.0], [-1.0]]], [[-0.005]], feature_names=("income", "debt"))
    X = np.column_stack([10.0 + np.arange(count), np.full(count, 0.5)])
    certificates = apas.certify(net, X, 0.01, target=1, method="interval")
    names = [f"A-{i}" for i in range(count)]
    with ExitStack() as stack:
        place = address or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ledger.db"
        book = stack.enter_context(apas.Ledger(place))
        added = timed(lambda: book.add(certificates, names))
        audited = timed(lambda: book.audit(new, base=net))
    where = "PostgreSQL" if address else "SQLite"
    print(
        f"{count} promises on {where}: add {added[0]:.2f} s of processor time ({added[1]:.2f} s), "
        f"audit {audited[0]:.2f} s ({audited[1]:.2f} s)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("stream", "dask", "kernel", "columns", "ledger"))
    parser.add_argument("--rows", type=int, help="a million, or 100,000, or 10,000 promises, unless given")
    parser.add_argument("--address", help="of the PostgreSQL database")
    told = parser.parse_args()
    if told.what == "ledger":
        ledger(told.rows or 10_000, told.address)
    elif told.what == "stream":
        stream(told.rows or 1_000_000)
    else:
        {"dask": on_dask, "kernel": kernel, "columns": columns}[told.what](told.rows or 100_000)
