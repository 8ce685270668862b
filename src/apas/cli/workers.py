"""Where the work of a command is done: on this machine, or on a Dask cluster."""

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from apas.errors import InputError

#: Seconds to wait for the scheduler, and for its first worker.
PATIENCE = 10


@contextmanager
def workers(jobs: int | None, dask: str | None) -> Iterator[int]:
    """Give `n_jobs` for the calls inside, which run on a cluster if there is an address."""
    from apas._validation import check_jobs

    if dask is None:
        n_jobs = 1 if jobs is None else check_jobs(jobs)
        if n_jobs != 1:
            _start_processes(n_jobs)
        yield n_jobs
        return
    from joblib import parallel_config

    with _cluster(jobs, dask) as client, parallel_config(backend="dask", client=client):
        yield -1


def answers_in_order(
    function: Any, shared: Any, work: Iterator[Any], jobs: int | None, dask: str | None
) -> Iterator[Any]:
    """``function(shared, *job)`` of each job in their order; to the workers of a cluster `shared` goes once."""
    from apas._parallel import in_parallel, on_cluster

    if dask is None:
        with workers(jobs, dask) as n_jobs:
            yield from in_parallel(function, ((shared, *job) for job in work), n_jobs, pre_dispatch="n_jobs + 2")
        return
    with _cluster(jobs, dask) as client:
        try:
            yield from on_cluster(client, function, shared, work, PATIENCE)
        except ConnectionError as error:
            kept = "what is finished is in the file, and the same command with `--resume` goes on from there"
            raise InputError(f"`--dask` must be a cluster that stays, but {error} ({dask}); {kept}.") from None


def _start_processes(n_jobs: int) -> None:
    """Start the processes now, deaf to Ctrl-C: a terminal sends it to all of them, but only this one answers it.

    A blocked signal stays blocked in what is started meanwhile; here it is answered as soon as they are there. The
    calls that follow use the same processes.
    """
    from multiprocessing import resource_tracker

    from joblib import Parallel, delayed

    if sys.platform == "win32":
        return
    resource_tracker.ensure_running()  # it is started with the first process otherwise, and unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        Parallel(n_jobs=n_jobs)(delayed(int)() for _ in range(2))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _cluster(jobs: int | None, address: str) -> Iterator[Any]:
    """A client of a scheduler that has workers, all with this apas."""
    import logging

    from apas._lazy import require

    if jobs is not None:
        raise InputError("`--jobs` is about this machine and `--dask` about a cluster; leave one of them out.")
    if not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://.+:\d+", address):
        raise InputError(f"`--dask` must be the address of a scheduler, such as tcp://host:8786, got {address!r}.")
    distributed = require("distributed", feature="--dask", extra="dask")
    for name in ("distributed", "distributed.client"):  # a lost connection is told in a sentence
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"`--dask` must be the address of a Dask scheduler, got {address!r}: {why}.") from None

    def installed() -> str:  # runs on the workers, and so must not need apas itself
        from importlib import metadata

        try:
            return metadata.version("apas")
        except metadata.PackageNotFoundError:
            return ""

    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(
                f"`--dask` must be a cluster with workers, but {address} has had none for {PATIENCE} s; start some."
            ) from None
        _check_versions(client.run(installed), address)
        yield client


def _check_versions(found: dict[str, str], address: str) -> None:
    """Refuse a cluster that would run another apas."""
    from apas import __version__

    for worker, version in found.items():
        if version != __version__:
            has = f"apas {version}" if version else "no apas"
            raise InputError(
                f"`--dask` must be a cluster whose workers have apas {__version__}, but {worker} of {address} has "
                f"{has}; install it there."
            )
