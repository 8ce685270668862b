"""The same calls on a Dask cluster: another place, the same bytes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import operator
import socket
import subprocess
import sys
import time
import warnings

import joblib
import numpy as np
import pytest
from command_line import fill, run
from conftest import absent

import apas
from apas._parallel import on_cluster
from apas.cli.workers import _check_versions
from apas.errors import InputError

if importlib.util.find_spec("distributed") is None:
    absent("dask", "Dask is not installed: pip install 'apas[dask]'")


@pytest.fixture(scope="module")
def cluster():
    """Two workers on this machine, processes of their own."""
    import distributed  # here: it takes half a second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Dask has to say about itself
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as found:
            yield found


@pytest.fixture
def office(tmp_path, monkeypatch):
    monkeypatch.chdir(fill(tmp_path))
    return tmp_path


def bytes_of(result, folder):
    apas.save_certificates(result, folder / "saved.json")
    return (folder / "saved.json").read_bytes()


NET = apas.FeedForward(
    [np.random.default_rng(0).normal(size=(4, 8)), np.random.default_rng(1).normal(size=(8, 1))], [np.zeros(8), [0.2]]
)
ROWS = np.random.default_rng(2).normal(size=(6, 4))
CALLS = {
    "sampling": lambda n: apas.certify(
        NET, ROWS, 0.05, target="predicted", method=apas.Sampling(n_samples=20_000), n_jobs=n, rng=1
    ),
    "every shift": lambda n: apas.certify(NET, ROWS, 0.05, target="predicted", method="cascade", n_jobs=n),
    "largest shift": lambda n: apas.max_shift(NET, ROWS, target="predicted", n_jobs=n, rng=1),
}


@pytest.mark.filterwarnings("default")  # Dask's own
def test_backend_of_joblib_is_kept(cluster, tmp_path):
    from distributed import Client

    for name, call in CALLS.items():
        with Client(cluster) as client, joblib.parallel_config(backend="dask"):
            before = tasks_of(client)
            there = bytes_of(call(-1), tmp_path)
            assert tasks_of(client) > before, f"the cluster did the work of {name}"
        assert there == bytes_of(call(1), tmp_path), name


def tasks_of(client):
    """How many tasks the workers have finished."""
    return sum(client.run(lambda dask_worker: len(dask_worker.state.log)).values())


COMMANDS = {
    "certify": "model.json rows.csv --target 1 --delta 0.05 --seed 3 --save {0}",
    "generate": "model.json rejected.csv --space space.toml --delta 0.01 --source milp --seed 3 --save {0}",
}


def test_commands_give_the_same_file(capsys, office, cluster):
    for name, given in COMMANDS.items():
        assert run(capsys, name, *given.format("here.json").split())[0] == 0
        words = [name, *given.format("there.json").split(), "--dask", cluster.scheduler_address, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "apas", *words], cwd=office, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)
        assert (office / "there.json").read_bytes() == (office / "here.json").read_bytes(), name


@pytest.mark.parametrize(
    ("version", "said"), [("0.0.1", "has apas 0.0.1; install it there"), ("", "has no apas; install")]
)
def test_workers_with_another_apas_are_refused(version, said):
    _check_versions({"tcp://a:1": apas.__version__}, "tcp://a:8786")
    with pytest.raises(InputError, match=said):
        _check_versions({"tcp://a:1": apas.__version__, "tcp://b:1": version}, "tcp://a:8786")


@pytest.mark.filterwarnings("default")
def test_nobody_there(capsys, office, monkeypatch):
    monkeypatch.setattr("apas.cli.workers.PATIENCE", 1)
    code, out, err = run(
        capsys, "certify", *COMMANDS["certify"].format("no.json").split(), "--dask", "tcp://127.0.0.1:9"
    )
    assert (code, out) == (2, "")
    assert err.startswith("error: `--dask` must be the address of a Dask scheduler, got 'tcp://127.0.0.1:9': ")
    assert not (office / "no.json").exists()


STREAM = "certify model.json many.csv --target 1 --delta 0.05 --seed 3"


@pytest.fixture
def many(office):
    """Rows of some blocks, and the file of a run over them on this machine alone."""
    draw = np.random.default_rng(8)
    table = "\n".join(
        ["income,debt,age", *(",".join(map(repr, row)) for row in draw.uniform(size=(40_000, 3)).tolist())]
    )
    (office / "many.csv").write_text(table + "\n")
    subprocess.run([sys.executable, "-m", "apas", *STREAM.split(), "--out", "here.jsonl"], cwd=office, check=True)
    return office


def begun(folder, address):
    """A streamed run on a cluster, of which the first block is in the file."""
    words = [*STREAM.split(), "--out", "there.jsonl", "--dask", address]
    process = subprocess.Popen(
        [sys.executable, "-m", "apas", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    part = folder / "there.jsonl.part"
    while process.poll() is None and not (part.exists() and part.stat().st_size):
        time.sleep(0.01)
    return process


def test_a_streamed_run_survives_the_death_of_a_worker(many):
    with own_cluster() as (address, _, workers):
        process = begun(many, address)
        workers[0].kill()
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        assert out.startswith("40000 rows: ")
    assert (many / "there.jsonl").read_bytes() == (many / "here.jsonl").read_bytes()


def test_a_lost_scheduler_is_an_error_and_the_run_goes_on_later(many):
    with own_cluster() as (address, scheduler, _):
        process = begun(many, address)
        scheduler.kill()
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (2, "")
    assert "`--dask` must be a cluster that stays, but its scheduler or all of its workers were lost" in err
    assert not (many / "there.jsonl").exists()
    words = [*STREAM.split(), "--out", "there.jsonl", "--resume"]
    done = subprocess.run([sys.executable, "-m", "apas", *words], cwd=many, capture_output=True, text=True, check=True)
    assert "rows were there already" in done.stderr
    assert (many / "there.jsonl").read_bytes() == (many / "here.jsonl").read_bytes()


@contextlib.contextmanager
def own_cluster():
    """A scheduler and two workers, processes that can be killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, program = f"tcp://127.0.0.1:{port}", [sys.executable, "-m"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.ExitStack() as stack:
        words = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        found = [subprocess.Popen([*program, *words], **quiet)]
        words = ["distributed.cli.dask_worker", address, "--nworkers", "1", "--nthreads", "1", "--no-nanny"]
        found += [subprocess.Popen([*program, *words, "--no-dashboard"], **quiet) for _ in range(2)]
        stack.callback(lambda: [(process.kill(), process.wait()) for process in found])
        yield address, found[0], found[1:]


class Counted:
    """What says how often it was sent somewhere."""

    sent = 0

    def __call__(self, block):
        return block * 2

    def __reduce__(self):
        type(self).sent += 1
        return (operator.methodcaller, ("__mul__", 2))


@pytest.mark.filterwarnings("default")
def test_what_all_blocks_share_travels_once(cluster):
    from distributed import Client

    with Client(cluster) as client:
        found = list(on_cluster(client, _apply, Counted(), ((i,) for i in range(40)), 10))
    assert found == [2 * i for i in range(40)]
    assert Counted.sent <= 2, "once to be measured, once to be sent"


def _apply(shared, block):
    return shared(block)
