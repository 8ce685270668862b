"""No command writes over what it reads, nor two outputs into one file, by whatever name."""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path
from typing import get_type_hints

import pytest
import typer.main
from command_line import fill, run
from conftest import spread

import apas
from apas._atomic import same_file, write_bytes
from apas.cli.app import app

#: Per command a good call, which of its words are read, and how each output is named; {} is the place of the output.
CALLS = {
    ("certify",): (
        "model.json rows.csv --target 1 --delta 0.01 --beyond rejected.csv --space space.toml",
        "model.json rows.csv rejected.csv space.toml", ["--save {}", "--out {}"],
    ),
    ("max-shift",): ("model.json rows.csv --target 1 --method interval", "model.json rows.csv", ["--save {}", "--out {}"]),
    ("generate",): (
        "model.json rejected.csv --space space.toml --background train.csv --delta 0.01",
        "model.json rejected.csv space.toml train.csv", ["--save {}", "--out {}"],
    ),
    ("menu",): (
        "model.json rejected.csv --space space.toml --background train.csv --delta 0.01",
        "model.json rejected.csv space.toml train.csv", ["--save {}", "--out {}"],
    ),
    ("calibrate",): (
        "model.json rejected.csv --target 1 --updates none --grid 0.1 --space space.toml --background train.csv",
        "model.json rejected.csv space.toml train.csv", ["--save {}"],
    ),
    ("audit",): (
        "promises.json new.json --base model.json --space space.toml", "promises.json new.json model.json space.toml",
        ["--markdown {}", "--junit {}", "--out {}"],
    ),
    ("ledger", "audit"): (
        "ledger.db new.json --base model.json --space space.toml", "ledger.db new.json model.json space.toml",
        ["--markdown {}", "--junit {}"],
    ),
    ("ledger", "add"): ("{} promises.json --references applicants.txt", "promises.json applicants.txt", [""]),
    ("report",): (
        "promises.json --model model.json --audit audit.json --new-model new.json --max-shifts radii.json",
        "promises.json model.json audit.json new.json radii.json", ["-o {}"],
    ),
    ("convert",): ("model.json {}", "model.json", [""]),
}  # fmt: skip
#: Options that name files or folders of commands that write none over inputs.
READ_ONLY = {("verify",), ("shift",), ("bench",), ("ledger", "list"), ("ledger", "retire")}
#: These write into a folder of their own, and name the files themselves.
FOLDERS = {"demo", "paper", "retrain", "letter"}


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    folder = fill(tmp_path_factory.mktemp("office"))
    for name in ("audit.json", "radii.json"):
        shutil.copy(folder / "promises.json", folder / name)
    return folder


@pytest.fixture
def desk(office, tmp_path, monkeypatch):
    folder = tmp_path / "desk"
    shutil.copytree(office, folder)
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def linked(make):
    """Another name for a file, which a link is; it ends as the command wants it to."""

    def name(path: str, suffix: str) -> str:
        make(path, f"link{suffix}")
        return f"link{suffix}"

    return name


SPELLINGS = {
    "as it is": lambda path, _: path,
    "with dots": lambda path, _: f"inner/../{path}",
    "in full": lambda path, _: os.path.abspath(path),
    "symbolic link": linked(os.symlink),
    "hard link": linked(os.link),
}


@pytest.mark.parametrize("spelling", spread(SPELLINGS, 2))
@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_an_output_that_is_an_input_is_refused(capsys, desk, words, spelling):
    call, inputs, outputs = CALLS[words]
    before = content(desk)
    for option in outputs:
        suffix = {"-o {}": ".html", "--save {}": ".json", "--out {}": ".jsonl"}.get(option, ".json")
        for path in inputs.split():
            name = SPELLINGS[spelling](path, suffix)
            given = f"{call} {option}".replace("{}", name).split()
            code, out, err = run(capsys, *words, *given)
            Path(f"link{suffix}").unlink(missing_ok=True)
            assert (code, out) == (2, ""), (option, path)
            if name.endswith(suffix):  # else the ending is refused already
                assert "must be another file than those that are read" in err, (option, path)
            assert err.count("\n") == 1
    assert content(desk) == before


@pytest.mark.parametrize("words", [w for w, (_, _, outputs) in CALLS.items() if len(outputs) > 1], ids=" ".join)
@pytest.mark.parametrize("second", ["new-file.jsonl", "./new-file.jsonl", "inner/../new-file.jsonl", "New-File.jsonl"])
def test_two_outputs_that_are_one_file_are_refused(capsys, desk, words, second):
    call, _, (first, other, *_) = CALLS[words]
    given = f"{call} {first.format('new-file.jsonl')} {other.format(second)}".split()
    code, out, err = run(capsys, *words, *given)
    assert (code, out) == (2, "")
    assert "must be two files" in err
    assert not (desk / "new-file.jsonl").exists()


def test_what_is_beside_a_ledger_is_no_place_for_a_report(capsys, desk):
    for ending in ("-wal", "-shm", "-journal"):
        code, _, err = run(capsys, "ledger", "audit", "ledger.db", "new.json", "--junit", f"ledger.db{ending}")
        assert code == 2
        assert "those that are read" in err


def test_every_option_that_names_a_file_is_known_here():
    """A command that learns to write a file must be added above."""

    def leaves(command, path=()):
        for name, part in command.commands.items():
            yield from leaves(part, (*path, name)) if hasattr(part, "commands") else [((*path, name), part)]

    for words, leaf in leaves(typer.main.get_command(app)):
        hints = get_type_hints(inspect.unwrap(leaf.callback))
        # refits are a folder, into which no command but retrain writes; `--continue` takes the place of the rows
        folders = ("refits", "updates", "others", "further")
        # the place of a ledger is a text, since it may be an address as well
        takes = [n for n, kind in hints.items() if ("Path" in str(kind) or n == "ledger") and n not in folders]
        assert words in CALLS or words in READ_ONLY or words[0] in FOLDERS, f"{words} takes {takes}"
        if words in CALLS:
            _, inputs, outputs = CALLS[words]
            assert len(takes) == len(inputs.split()) + len(outputs), takes


def test_a_report_over_its_own_certificates_is_refused_in_python(desk):
    shutil.copy("promises.json", "promises.html")
    for options in ({}, {"audit": "promises.html"}, {"max_shifts": "promises.html"}):
        source = "promises.json" if options else "promises.html"
        with pytest.raises(apas.InputError, match="must be another file than"):
            apas.write_report(source, "inner/../promises.html", **options)


def test_only_plain_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="it is not a plain file"):
            write_bytes(place, b"")
    assert (tmp_path / "pipe").is_fifo()


def test_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    Path("B").touch()
    assert same_file("a", tmp_path / "a")
    assert same_file("new", "./NEW")
    assert not same_file("a", "A") or os.path.exists("A")  # the disk says
    assert not same_file("a", "B")
    assert not same_file("a\x00", "a")
