"""One way to run in parallel: parts of the work, by joblib in processes here, or on Dask's workers once it is told.

Draws, rows and refits are pure functions of their numbers: parts may be of any size, and answers come back in order.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from apas._typing import Indices

Answer = TypeVar("Answer")
PARTS = 4  # per worker: a few, so that a slow one does not hold up the rest


def in_parallel(
    function: Callable[..., Answer], jobs: Iterable[Sequence[Any]], n_jobs: int, **how: Any
) -> Iterator[Answer]:
    """``function(*job)`` of each job in their order, as they are asked for; one process, or one job, needs no other."""
    waiting = iter(jobs)
    first = list(islice(waiting, 2))
    if n_jobs == 1 or len(first) < 2:
        return (function(*job) for job in chain(first, waiting))
    from joblib import Parallel, delayed

    work = Parallel(n_jobs=n_jobs, **{"return_as": "generator", **how})
    return iter(work(delayed(function)(*job) for job in chain(first, waiting)))


def on_cluster(
    client: Any, function: Callable[..., Answer], shared: Any, jobs: Iterable[Sequence[Any]], patience: float
) -> Iterator[Answer]:
    """``function(shared, *job)`` of each job in their order, on a Dask client's workers; each gets `shared` once."""
    # work of a worker that dies is done by another; ConnectionError if there is no scheduler any more, or no worker for
    # so many seconds
    from concurrent.futures import CancelledError

    waiting: deque[tuple[Sequence[Any], Any]] = deque()
    work, held = iter(jobs), None
    while True:
        try:
            if held is None:  # at first, or its last copy died with a worker
                held = client.scatter(shared, broadcast=True, hash=False)
                waiting = deque((job, client.submit(function, held, *job, pure=False)) for job, _ in waiting)
            # a few more than there are threads, so that none waits; and no more, so that blocks do not pile up
            for job in islice(work, max(0, 2 * sum(client.nthreads().values()) + 2 - len(waiting))):
                waiting.append((job, client.submit(function, held, *job, pure=False)))
            if not waiting:
                return
            answer = waiting[0][1].result(timeout=patience)
        except Exception as error:
            if not _is_alive(client):
                raise ConnectionError("its scheduler or all of its workers were lost") from None
            if not isinstance(error, CancelledError | TimeoutError):
                raise
            held = held if isinstance(error, TimeoutError) else None
            continue
        waiting.popleft()
        yield answer


def _is_alive(client: Any) -> bool:
    try:
        return client.status == "running" and bool(client.nthreads())
    except Exception:  # noqa: BLE001  (it has many for a connection that is gone)
        return False


def one_thread() -> AbstractContextManager[Any]:
    """Inside, the libraries compute in one thread: processes share the cores, and more threads add up differently."""
    return _libraries(len(sys.modules)).limit(limits=1)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """What has threads; to look for it takes some 10 ms, so that is done again only where modules were loaded since."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def workers(n_jobs: int) -> int:
    """How many processes there are."""
    if n_jobs == 1:
        return 1
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


def ranges(total: int, block: int, n_jobs: int) -> list[tuple[int, int]]:
    """Draws number 0 to `total` in a few parts per worker, each a whole number of blocks."""
    blocks = -(-total // block)
    parts = blocks if n_jobs == 1 else min(blocks, PARTS * workers(n_jobs))
    size = -(-blocks // max(1, parts)) * block
    return [(a, min(a + size, total)) for a in range(0, total, size)]


def row_parts(count: int, n_jobs: int, per_worker: int = PARTS) -> list[Indices]:
    """Rows number 0 to `count` in a few parts per worker; in one part where there is one worker."""
    import numpy as np

    rows = np.arange(count)
    return [rows] if n_jobs == 1 or count < 2 else np.array_split(rows, min(count, per_worker * workers(n_jobs)))
