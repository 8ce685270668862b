"""Run as a program: tries model files, each in a process of its own with 200 MB of memory above what is there, and 20 s.

What is there is measured in that very process, before it is limited.

Reads a JSON object from standard input: ``good`` (files that load, to import what reading needs), ``target`` (a
file for commands to write) and ``files`` (what to try). Writes, per file, what `load_model` raised, and how the command line ended.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import select
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout

import apas
from apas.cli import main

MEMORY, SECONDS = 200 * 2**20, 20


def address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def load(path: str) -> dict[str, object]:
    said = {"activation": "relu", "output": "sigmoid"} if path.endswith((".pt", ".pth")) else {}
    try:
        found = apas.load_model(path, **said)
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is reported)
        return {"error": type(error).__name__, "ours": isinstance(error, apas.ApasError), "message": str(error)}
    return {"error": None, "message": repr(found)}


def command(path: str, target: str) -> dict[str, object]:
    said = ["--activation", "relu", "--output", "sigmoid"] if path.endswith((".pt", ".pth")) else []
    sys.argv = ["apas", "convert", path, target, *said]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        except BaseException as error:  # noqa: BLE001
            return {"code": None, "err": repr(error)}
    return {"code": code, "err": err.getvalue()}


def allocate(path: str) -> dict[str, object]:
    """What the limit is for, to see that it is there."""
    try:
        return {"error": None, "message": str(len(bytearray(int(path))))}
    except MemoryError:
        return {"error": "MemoryError", "ours": False, "message": ""}


def both(path: str, target: str) -> dict[str, object]:
    """What Python and the command line say about a file."""
    return {"load": load(path), "command": command(path, target)}


def limited(work, *arguments: str) -> dict[str, object]:
    """What `work` gives in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        most = address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        answer = json.dumps(work(*arguments)).encode()
        os.write(writer, answer)
        os._exit(0)
    os.close(writer)
    content = b""
    while select.select([reader], [], [], SECONDS)[0]:
        piece = os.read(reader, 65536)
        if not piece:
            break
        content += piece
    else:
        os.kill(child, signal.SIGKILL)
        content = b'{"load": {"error": "took more than 20 s"}}'
    os.close(reader)
    os.waitpid(child, 0)
    return json.loads(content or b'{"load": {"error": "died"}}')


def run() -> None:
    jobs = json.load(sys.stdin)
    for path in jobs["good"]:
        assert load(path)["error"] is None, load(path)
        assert command(path, jobs["target"])["code"] == 0, command(path, jobs["target"])
    gc.freeze()  # so that no process copies what is there by counting it
    results = {"limit": limited(allocate, str(MEMORY + 2**20))}
    for path in jobs["files"]:
        results[path] = limited(both, path, jobs["target"])
    print(json.dumps(results))


if __name__ == "__main__":
    run()
