"""A PostgreSQL server of the tests' own, in a temporary folder, on a free port of the loopback address."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from conftest import absent


def programs() -> Path:
    """The folder of `initdb` and `postgres`."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    absent("postgres", "no PostgreSQL server is installed (on Debian: apt-get install postgresql)")
    raise AssertionError


class PostgresServer:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path, bin_folder: Path, user: str | None) -> None:
        self.folder, self.bin, self.user = folder, bin_folder, user
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "--auth=trust", "--username=apas", "--no-locale", "--encoding=UTF8", "-D", folder / "data")

    @property
    def url(self) -> str:
        return f"postgresql://apas:secret-word@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *words: object) -> None:
        line = [str(self.bin / program), *map(str, words)]
        subprocess.run(line, check=True, capture_output=True, timeout=120, user=self.user, cwd="/", env=self._env())

    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C"}

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", self.folder / "data", "-o", options, "-l", self.folder / "log", "-w", "start")

    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """As a power cut: SIGKILL to the server and all that it started."""
        pid = self.pid()
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
        for each in (pid, *map(int, children.stdout.split())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")


@contextlib.contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server, stopped and removed at the end."""
    bin_folder = programs()
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        names = [name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()}]
        if not names:
            absent("postgres", "PostgreSQL does not run as root, and there is no other user")
        user = names[0]
    folder = Path(tempfile.mkdtemp(prefix="apas-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        server = PostgresServer(folder, bin_folder, user)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
