"""What all commands have in common: help with examples that work, JSON, colours for terminals only, short errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import typer.main
from command_line import fill, run
from conftest import absent

from apas.cli.app import app, examples_in

PROGRAM = [sys.executable, "-m", "apas"]
#: Red, green, and so on; bold letters are no colours.
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")


def leaves(command=None, path=()):
    """Every command that does something, by its words."""
    command = typer.main.get_command(app) if command is None else command
    for name, part in command.commands.items():
        if hasattr(part, "commands"):
            yield from leaves(part, (*path, name))
        else:
            yield (*path, name), part


LEAVES = dict(leaves())
EXAMPLES = [(words, example) for words, leaf in LEAVES.items() for example in examples_in(leaf.help)]
#: Their examples take minutes or need a network. Here they are only read; `test_demo`,
#: `test_calibrate` and `test_paper` run these commands, with other options.
LONG = ("demo", "paper", "retrain", "calibrate")


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("office"))


@pytest.fixture
def desk(office, tmp_path, monkeypatch):
    """A copy of the files to work in."""
    folder = tmp_path / "desk"
    shutil.copytree(office, folder)
    monkeypatch.chdir(folder)
    return folder


def test_commands_are_those_of_the_documentation():
    assert {words[0] for words in LEAVES} == {
        "demo", "certify", "max-shift", "generate", "verify", "audit", "ledger", "report", "shift", "convert", "retrain", "paper",
        "bench", "calibrate", "menu", "letter",
    }  # fmt: skip


def test_top_help_has_groups_and_an_example_of_each_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    for group in ("Start here", "Certify explanations", "Keep promises", "Model files", "Research"):
        assert f"─ {group} ─" in out
    shown = [shlex.split(line)[1] for line in out.split("Examples:")[1].splitlines() if line.strip()]
    assert sorted(shown) == sorted({words[0] for words in LEAVES})
    assert "--install-completion" in out


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_ends_with_examples_of_the_command(words):
    lines = [line for line in LEAVES[words].help.splitlines() if line.strip()]
    assert examples_in(lines[-1])
    for example in examples_in(LEAVES[words].help):
        assert tuple(shlex.split(example)[1 : 1 + len(words)]) == words


@pytest.mark.parametrize("name", sorted({words[0] for words in LEAVES if len(words) > 1}))
def test_a_group_shows_an_example_of_one_of_its_commands(name):
    [example] = examples_in(typer.main.get_command(app).commands[name].help)
    assert (tuple(shlex.split(example)[1:3]), example) in EXAMPLES


@pytest.mark.parametrize(("words", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_examples_work(capsys, desk, words, example):
    given = shlex.split(example)[1:]
    if words[0] in LONG:
        LEAVES[words].make_context(" ".join(words), given[len(words) :])  # raises for what it does not know
        return
    if "model.pt" in given:
        _save_module(desk / "model.pt")
    before = set(os.listdir(desk))
    code, _, err = run(capsys, *given)
    assert (code, err) == (0, "")
    named = {word for word in given if "." in word and not word.replace(".", "").isdecimal()}
    assert named <= set(os.listdir(desk)), "it writes what its example names"
    assert set(os.listdir(desk)) - before <= named | set(given), "and nothing else"


def _save_module(path):
    try:
        import torch
    except ImportError:
        absent("torch", "PyTorch is not installed: make test TORCH=1")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    torch.save(module.state_dict(), path)


#: How each command is asked for JSON, and with which exit code it answers.
JSON = {
    ("certify",): ("model.json rows.csv --target 1 --delta 0.01 --seed 0", 0),
    ("max-shift",): ("model.json rows.csv --target 1 --method interval", 0),
    ("generate",): ("model.json rejected.csv --space space.toml --delta 0.01 --source milp --method interval", 0),
    ("menu",): ("model.json rejected.csv --space space.toml --delta 0.01 --features income --size 1", 0),
    ("letter",): ("promises.json -o letters", 0),
    ("verify",): ("promises.json new.json", 1),
    ("audit",): ("promises.json new.json --base model.json", 0),
    ("ledger", "add"): ("other.db promises.json", 0),
    ("ledger", "list"): ("ledger.db", 0),
    ("ledger", "audit"): ("ledger.db new.json", 0),
    ("ledger", "retire"): ("ledger.db A-17", 0),
    ("report",): ("promises.json --model model.json -o page.html", 0),
    ("shift",): ("model.json new.json", 0),
    ("convert",): ("model.json copy.safetensors", 0),
    ("bench",): ("--rounds 1", 0),
    ("paper", "data"): ("--data data", 1),
    ("paper", "lemma"): ("--quick", 0),
    # these are asked in test_demo, test_retrain, test_calibrate and test_paper
    ("demo",): None,
    ("retrain",): None,
    ("calibrate",): None,
    ("paper", "all"): None,
}


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_json(capsys, desk, monkeypatch, words):
    assert "--json" in [option for parameter in LEAVES[words].params for option in parameter.opts]
    if words[0] == "paper" and words not in JSON:
        return  # made by the same function as `paper lemma`
    if JSON[words] is None:
        return
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    given, expected = JSON[words]
    code, out, err = run(capsys, *words, *given.split(), "--json")
    assert code == expected, err
    content = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert isinstance(content, dict)
    assert content


def test_json_has_the_exit_code_of_the_table(capsys, desk):
    words = ("verify", "promises.json", "new.json")
    assert run(capsys, *words)[0] == run(capsys, *words, "--json")[0] == 1


ERRORS = {
    "missing": (["certify", "model.json", "rows.csv", "--delta", "0.1"], "Missing option '--target'; see `apas certify --help`."),
    "unknown": (["certify", "model.json", "rows.csv", "--tarjet", "1"], "No such option: --tarjet"),
    "word": (["certify", "model.json", "rows.csv", "--target", "1", "--delta", "much"], "Invalid value for '--delta': "),
    "command": (["certfy"], "No such command 'certfy'. Did you mean 'certify'"),
    "file": (["certify", "none.json", "rows.csv", "--target", "1", "--delta", "0.1"], "none.json"),
    "both": (["certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.1", "--jobs", "2", "--dask", "tcp://a:1"], "leave one of them out."),
    "address": (["max-shift", "model.json", "rows.csv", "--target", "1", "--dask", "cluster"], "such as tcp://host:8786, got 'cluster'."),
    "jobs": (["certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.1", "--jobs", "0"], "`n_jobs` must be"),
    "rounds": (["bench", "--rounds", "0"], "`--rounds` must be a positive number, got 0."),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line(capsys, desk, name):
    words, expected = ERRORS[name]
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert expected in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_no_words_at_all_show_the_help(capsys):
    code, out, err = run(capsys)
    assert code == 2
    assert "Usage: apas" in out + err
    assert "error:" not in err


def test_warnings_are_one_line(capsys, desk):
    code, _, err = run(capsys, "shift", "model.json", "model.json")
    assert code == 0
    assert re.fullmatch(r"(warning: .*\n)?", err)


SHOWN = {
    "help": ["--help"],
    "help of a command": ["certify", "--help"],
    "table": ["verify", "promises.json", "model.json"],
}


def in_a_terminal(words, folder, **environment):
    """What a command writes to a terminal."""
    import pty

    shown, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [*PROGRAM, *words], stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder, env=clean(environment)
        )
        os.close(terminal)
        found = b""
        while True:
            try:
                part = os.read(shown, 4096)
            except OSError:  # nobody is at the other end any more
                break
            if not part:
                break
            found += part
        assert process.wait(timeout=60) == 0
    finally:
        os.close(shown)
    return found.decode()


def clean(environment):
    """The environment without what asks for colours, or against them."""
    names = (
        "NO_COLOR",
        "FORCE_COLOR",
        "PY_COLORS",
        "TTY_COMPATIBLE",
        "GITHUB_ACTIONS",
        "_TYPER_FORCE_DISABLE_TERMINAL",
    )
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "100", **environment}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")
@pytest.mark.parametrize("name", SHOWN)
def test_colours_on_a_terminal_unless_not_wanted(office, name):
    assert COLOUR.search(in_a_terminal(SHOWN[name], office))
    assert not COLOUR.search(in_a_terminal(SHOWN[name], office, NO_COLOR="1"))


@pytest.mark.parametrize("environment", [{}, {"GITHUB_ACTIONS": "true"}], ids=["plain", "github"])
@pytest.mark.parametrize("name", SHOWN)
def test_no_colours_in_a_pipe(office, name, environment):
    done = subprocess.run(
        [*PROGRAM, *SHOWN[name]], capture_output=True, text=True, encoding="utf-8", cwd=office, env=clean(environment),
        timeout=120, check=True,
    )  # fmt: skip
    assert "\x1b" not in done.stdout + done.stderr
