"""Ctrl-C: one word, exit code 130, no traceback, no half of a file, and no process that goes on."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import apas
from apas._atomic import write_bytes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux to list processes")
#: Draws for more than a minute.
ENDLESS = "60000000"
PATIENCE = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    draw = np.random.default_rng(0)
    net = apas.FeedForward([draw.normal(size=(6, 20)), draw.normal(size=(20, 1))], [np.zeros(20), [9.0]])
    apas.save_model(net, folder / "model.json")
    pd.DataFrame(draw.normal(size=(3, 6)), columns=list("abcdef")).to_csv(folder / "rows.csv", index=False)
    return folder


def members(group):
    """The live processes of a group: each with its state and the processor time it has used, in ticks."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                found[int(entry.name)] = int(fields[11]) + int(fields[12])
    return found


def wait_for(condition, process):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def hear_ctrl_c():
    """As on a terminal: what a shell starts in the background is deaf to it, and so are its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(words, folder, *, workers, everyone):
    """Start a command in a group of its own, wait until its processes work, and interrupt it as a terminal does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "apas", *words], cwd=folder, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_ctrl_c,
    )  # fmt: skip
    try:
        # a second of work: processes that wait for some have a fraction of that, and who loads libraries a bit more
        ticks = os.sysconf("SC_CLK_TCK")
        wait_for(lambda: sum(used > ticks for used in members(process.pid).values()) >= workers, process)
        (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while members(process.pid) and time.monotonic() < end:
            time.sleep(0.05)
        return process.returncode, out, err, members(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("jobs", "everyone"),
    [(1, True), (2, True), pytest.param(2, False, marks=pytest.mark.validity)],
    ids=["one", "two", "only the parent"],
)
def test_ctrl_c(files, tmp_path, jobs, everyone):
    target = tmp_path / "promises.json"
    target.write_text("what was there")
    words = [
        "certify", str(files / "model.json"), str(files / "rows.csv"), "--target", "1", "--delta", "0.3",
        "--samples", ENDLESS, "--jobs", str(jobs), "--save", str(target),
    ]  # fmt: skip
    assert interrupted(words, tmp_path, workers=jobs, everyone=everyone) == (130, "", "stopped\n", {})
    assert [path.name for path in tmp_path.iterdir()] == ["promises.json"]
    assert target.read_text() == "what was there"


def test_interrupted_writing_leaves_nothing(tmp_path, monkeypatch):
    """The last moment: all is written, and only the name is missing."""

    def interrupt(*_):
        raise KeyboardInterrupt

    target = tmp_path / "promises.json"
    target.write_bytes(b"what was there")
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(target, b"something else")
    assert [path.name for path in tmp_path.iterdir()] == ["promises.json"]
    assert target.read_bytes() == b"what was there"


#: Methods that write a file in place: always, or if they are given its name first.
WRITE, WRITE_NAMED = (
    {"write_text", "write_bytes", "write_html", "write_image", "savez", "savetxt", "copyfile"},
    {"to_csv", "to_json"},
)


def writes_in_place(call):
    """Whether a call writes a file under its own name."""
    method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if method else getattr(call.func, "id", "")
    if name in ("open", "fdopen"):
        words = [
            a.value for a in call.args[not method :] + [k.value for k in call.keywords] if isinstance(a, ast.Constant)
        ]
        return any(isinstance(word, str) and set(word) & set("wax+") and len(word) < 4 for word in words)
    return method and (name in WRITE or (name in WRITE_NAMED and bool(call.args)))


def test_all_files_are_written_whole():
    """Whatever writes a file calls `apas._atomic`; SQLite keeps books of its own."""
    source = Path(apas.__file__).parent
    for path in set(source.rglob("*.py")) - {source / "_atomic.py"}:
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        assert [node.lineno for node in calls if writes_in_place(node)] == [], path.relative_to(source)
    assert writes_in_place(ast.parse("Path(a).write_text('')").body[0].value)
    assert writes_in_place(ast.parse("open(a, 'w')").body[0].value)
    assert not writes_in_place(ast.parse("write_text(a, frame.to_csv(index=False))").body[0].value)
