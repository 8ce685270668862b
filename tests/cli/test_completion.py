"""Completion in shells: the scripts can be had, and they find commands, options, choices and files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "apas"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the command is not installed beside this Python")


def completed(words, number, **environment):
    """What bash would offer for the word of this number."""
    asked = {"_APAS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number), **environment}
    done = subprocess.run(
        [PROGRAM], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "number", "found"),
    [
        ("apas ce", 1, ["certify"]),
        ("apas ledger re", 2, ["retire"]),
        ("apas certify --del", 2, ["--delta"]),
        ("apas certify --method ca", 3, ["cascade"]),
        ("apas certify mod", 2, []),  # nothing of ours, so that the shell offers its files
    ],
)
def test_words(words, number, found):
    assert completed(words, number) == found


def test_every_command_is_offered():
    assert {"certify", "max-shift", "generate", "audit", "report", "bench"} <= set(completed("apas ", 1))


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o default -F"), ("zsh", "#compdef apas"), ("fish", "complete --command apas")])  # fmt: skip
def test_scripts(shell, said):
    environment = {**os.environ, "_APAS_COMPLETE": f"source_{shell}"}
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert said in done.stdout
    assert "_APAS_COMPLETE" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_uses_its_script(tmp_path):
    """A real bash reads the script that is shown to it, and completes a command and, left to itself, a file."""
    (tmp_path / "model.json").touch()
    lines = f"""
    export PATH={PROGRAM.parent}:$PATH
    eval "$(apas --show-completion)"
    complete -p apas
    COMP_WORDS=(apas max); COMP_CWORD=1; _apas_completion apas; echo "found ${{COMPREPLY[*]}}"
    COMP_WORDS=(apas certify mod); COMP_CWORD=2; _apas_completion apas; echo "found ${{#COMPREPLY[@]}}"
    compgen -f mod
    """
    done = subprocess.run(["bash", "-c", lines], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[:4] == [
        "complete -o default -F _apas_completion apas", "found max-shift", "found 0", "model.json",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_installed_for_bash(tmp_path):
    (tmp_path / ".bashrc").write_text("# mine\n")
    lines = f"{PROGRAM} --install-completion; true"  # a second command, so that bash stays and is recognised
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["bash", "-c", lines], env=environment, capture_output=True, text=True, timeout=60, check=True)
    rc = (tmp_path / ".bashrc").read_text()
    assert rc.startswith("# mine\n")
    installed = tmp_path / ".bash_completions" / "apas.sh"
    assert str(installed) in rc
    assert "complete -o default -F _apas_completion apas" in installed.read_text()
