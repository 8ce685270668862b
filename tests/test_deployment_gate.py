"""The workflow that `docs/contracts.md` shows: its commands are run as a build server runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from test_docs import ROOT, blocks

import apas

EXAMPLE = ROOT / "docs" / "examples" / "deployment-gate.yml"
WORKFLOW = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
STEPS = WORKFLOW["jobs"]["audit"]["steps"]


def linear(bias):
    return apas.FeedForward([[[1.0], [-1.0]]], [[bias]], feature_names=("income", "debt"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """What the repository of the workflow holds, and a `pip` that notes what it is asked to install."""
    for name in ("models", "promises", "wheels", "bin"):
        (tmp_path / name).mkdir()
    certified = linear(0.0)
    apas.save_model(certified, tmp_path / "models" / "certified.json")
    table = pd.DataFrame([[2.0, 0.5], [1.0, 0.9]], columns=["income", "debt"], index=["A1", "A2"])
    offers = apas.certify(certified, table, 0.02, target=1, method="interval")
    apas.save_certificates(offers, tmp_path / "promises" / "promises.json")
    (tmp_path / "wheels" / "apas-1.0-py3-none-any.whl").touch()
    commands = {"apas": f'exec "{sys.executable}" -m apas "$@"', "pip": 'echo "$@" >> installed.txt'}
    for name, line in commands.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path


def play(folder: Path) -> dict[str, int]:
    """Run the commands in turn, in `bash -e`; after a failing one only the steps that say `always()`."""
    codes: dict[str, int] = {}
    for step in STEPS:
        if "run" in step and (not any(codes.values()) or step.get("if") == "always()"):
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]], cwd=folder, capture_output=True, text=True, timeout=120, check=False
            )
            codes[step["name"]] = done.returncode
    return codes


def test_page_shows_the_file():
    shown = [block.text for block in blocks(ROOT / "docs" / "contracts.md") if block.info == "yaml"]
    assert shown == [EXAMPLE.read_text(encoding="utf-8").rstrip("\n")]


def test_workflow_is_well_formed():
    assert set(WORKFLOW) == {"name", True, "jobs"}  # YAML reads the key "on" as true
    assert WORKFLOW[True] == ["pull_request"]
    assert set(WORKFLOW["jobs"]["audit"]) == {"runs-on", "steps"}
    for step in STEPS:
        assert set(step) <= {"name", "if", "run", "uses", "with"}
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])


@pytest.mark.parametrize(("bias", "kept"), [(-0.01, True), (-0.2, False)])
def test_gate(checkout, bias, kept):
    apas.save_model(linear(bias), checkout / "models" / "candidate.json")
    codes = play(checkout)
    assert list(codes.values()) == [0, 0, 0 if kept else 1, 0]
    assert (checkout / "installed.txt").read_text() == "install wheels/apas-1.0-py3-none-any.whl\n"
    summary = (checkout / "summary.md").read_text(encoding="utf-8")
    assert ("BROKEN_OUTSIDE" in summary) == (not kept)
    failures = ElementTree.parse(checkout / "audit.xml").getroot()[0].get("failures")
    assert failures == ("0" if kept else "1")


ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
USES = yaml.safe_load((ROOT / "docs" / "examples" / "promises-action.yml").read_text(encoding="utf-8"))


def play_action(folder: Path, **given: str) -> list[int]:
    """Run the steps of the composite action as GitHub does: expressions only in `env`, defaults for what is not given."""
    values = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | given
    known = {f"inputs.{name}": value for name, value in values.items()} | {"github.action_path": str(ROOT)}
    codes: list[int] = []
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        told = {key: re.sub(r"\$\{\{ (.*?) \}\}", lambda m: known[m[1]], text) for key, text in step["env"].items()}
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        if not any(codes):
            done = subprocess.run(
                line, cwd=folder, env=os.environ | told, capture_output=True, timeout=120, check=False
            )
            codes.append(done.returncode)
    return codes


@pytest.mark.parametrize(("bias", "kept"), [(-0.01, True), (-0.2, False)])
def test_the_action_and_the_workflow_that_uses_it(checkout, bias, kept):
    apas.save_model(linear(bias), checkout / "models" / "candidate.json")
    (step,) = [step for step in USES["jobs"]["audit"]["steps"] if step["uses"] == "./.apas"]
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert play_action(checkout, **step["with"], extras="onnx") == [0, 0 if kept else 1]
    assert (checkout / "installed.txt").read_text() == f"install {ROOT}[onnx]\n"
    assert "BROKEN" in (checkout / "summary.md").read_text() or kept
    suite = ElementTree.parse(checkout / "apas-audit" / "audit.xml").getroot()
    assert bool(suite.findall(".//failure")) is not kept


def test_the_action_takes_certificates_in_lines(checkout):
    apas.save_model(linear(-0.2), checkout / "models" / "candidate.json")
    promises = apas.load_certificates(checkout / "promises" / "promises.json")
    apas.save_certificates(promises, checkout / "promises.jsonl")
    assert play_action(checkout, promises="promises.jsonl", candidate="models/candidate.json") == [0, 1]
    assert "BROKEN" in (checkout / "summary.md").read_text()


def test_the_action_takes_a_ledger_and_names_with_spaces(checkout):
    apas.save_model(linear(-0.2), checkout / "models" / "candidate; echo x.json")
    with apas.Ledger(checkout / "all promises.db") as ledger:
        ledger.add(checkout / "promises" / "promises.json")
    codes = play_action(checkout, promises="all promises.db", candidate="models/candidate; echo x.json")
    assert codes == [0, 1]
    with apas.Ledger(checkout / "all promises.db") as ledger:
        assert set(ledger.to_frame()["state"]) == {"open"}  # a candidate may never be used
    assert play_action(checkout, promises="nowhere.json", candidate="models/certified.json") == [0, 2]
    assert not (checkout / "apas-audit" / "audit.md").exists()  # that of the run before is not shown again
    for promises, candidate in (("--help", "x.json"), ("promises/promises.json", "--help")):
        assert play_action(checkout, promises=promises, candidate=candidate) == [0, 2]
