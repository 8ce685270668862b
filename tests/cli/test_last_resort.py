"""What nobody foresaw: one sentence, and an exit code that no answer of a command has."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from command_line import fill, run
from conftest import spread

import apas

PROGRAM = [sys.executable, "-m", "apas"]
linux = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
COMMANDS = {
    "certify": "certify model.json rows.csv --target 1 --delta 0.01 --seed 0",
    "certify as JSON": "certify model.json rows.csv --target 1 --delta 0.01 --seed 0 --json",
    "audit": "audit promises.json new.json",
    "list": "ledger list ledger.db",
    "convert": "convert model.json copy.json",
    "help": "--help",
    "version": "--version",
}


class Panic(BaseException):
    """As extensions written in Rust raise it."""


UNFORESEEN = {
    "key": KeyError("a"), "text": RuntimeError("x\x1b[31m\n" * 5000), "nothing": ValueError(), "panic": Panic("at 1"),
    "end of file": EOFError("no more"), "memory": MemoryError(), "depth": RecursionError("too deep"),
    "disk": OSError(errno.ENOSPC, "No space left on device"), "pipe": BrokenPipeError(errno.EPIPE, "Broken pipe"),
    "system": SystemError("error return without exception set"), "assertion": AssertionError(),
}  # fmt: skip


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("office"))


@pytest.mark.parametrize("name", UNFORESEEN)
def test_one_sentence_and_a_code_of_its_own(capsys, office, monkeypatch, name):
    def fail(*_, **__):
        raise UNFORESEEN[name]

    streams = sys.stdout, sys.stderr
    monkeypatch.chdir(office)
    monkeypatch.setattr(apas, "verify", fail)
    code, out, err = run(capsys, "verify", "promises.json", "model.json")
    sys.stdout, sys.stderr = streams  # Typer replaces them when a pipe breaks
    assert (code, out) == (70, "")
    assert err.strip().startswith("error: `apas verify` ")
    assert err.strip().endswith(".")
    assert err.strip().isprintable()
    assert len(err) < 1100
    assert "Traceback" not in err


def test_where_it_happened_can_be_seen(capsys, office, monkeypatch):
    monkeypatch.chdir(office)
    monkeypatch.setattr(apas, "verify", lambda *_, **__: {}["a"])
    monkeypatch.setenv("APAS_TRACEBACK", "1")
    code, _, err = run(capsys, "verify", "promises.json", "model.json")
    assert code == 70
    assert err.startswith("Traceback (most recent call last):")
    assert "KeyError: 'a'" in err


def said(words, office, **streams):
    done = subprocess.run([*PROGRAM, *words.split()], cwd=office, stderr=subprocess.PIPE, text=True, timeout=300, check=False, **streams)  # fmt: skip
    return done.returncode, done.stderr


@linux
@pytest.mark.parametrize("name", spread(COMMANDS, 2))
def test_a_full_disk_behind_the_output(office, name):
    with open("/dev/full", "w") as full:
        code, err = said(COMMANDS[name], office, stdout=full)
    assert code == 70
    assert err.startswith("error: ")
    assert err.endswith("No space left on device (OSError).\n")
    assert err.count("\n") == 1


@linux
@pytest.mark.parametrize("name", spread(["audit", "list", "help"], 2))
def test_a_reader_that_has_gone(office, name):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        code, err = said(COMMANDS[name], office, stdout=pipe)
    assert code == 70
    assert err.endswith("who read its output has gone.\n")
    assert err.count("\n") == 1


@linux
def test_streams_that_are_closed_or_full_do_not_change_an_answer(office):
    for rest, expected in (("audit promises.json new.json >&-", 0), ("audit promises.json none.json 2>/dev/full", 2), ("audit promises.json none.json 2>&-", 2), ("audit promises.json none.json >&- 2>&-", 2)):  # fmt: skip
        done = subprocess.run(f"{sys.executable} -m apas {rest}", shell=True, cwd=office, check=False, timeout=300)
        assert done.returncode == expected, rest


def test_names_that_the_terminal_cannot_spell(office):
    (office / "umlauts.csv").write_text((office / "rows.csv").read_text().replace("\nA,", "\né,"), encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*PROGRAM, "certify", "model.json", "umlauts.csv", "--target", "1", "--delta", "0.01"], cwd=office, env=environment,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\n\\xe9 " in done.stdout
