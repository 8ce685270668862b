"""`apas shift` as a user meets it: a table, JSON, exit codes, one-sentence errors."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from command_line import run

import apas
from apas.display.numbers import at_most
from apas.shifts.distance import measure_shift


@pytest.fixture
def nets(tmp_path, small_network, monkeypatch):
    moved = [w + 0.125 for w in small_network.weights]
    old, new = small_network, apas.FeedForward(moved, small_network.biases)
    for name, net in {
        "old": old,
        "new": new,
        "wide": apas.FeedForward([np.ones((4, 7)), np.ones((7, 1))], [np.zeros(7), [0.0]]),
        "tanh": apas.FeedForward(moved, small_network.biases, activation="tanh"),
    }.items():
        apas.save_model(net, tmp_path / f"{name}.json")
    monkeypatch.chdir(tmp_path)
    return old, new


def test_table(nets, capsys):
    code, out, err = run(capsys, "shift", "old.json", "new.json")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split("  ")[0] == "layer"
    assert [name.strip() for name in lines[0].split("  ") if "=" in name] == ["p = 0", "p = 1", "p = 2", "p = inf"]
    assert [line.split()[:4] for line in lines[1:6]] == [
        ["all", "all", "37", "30"],
        ["layer0", "weight", "24", "24"],
        ["layer0", "bias", "6", "0"],
        ["layer1", "weight", "6", "6"],
        ["layer1", "bias", "1", "0"],
    ]
    assert lines[-1] == str(measure_shift(*nets))
    assert lines[-1].startswith("Each of 37 parameters changes by at most 0.125")


@pytest.mark.parametrize("p", ["inf", "0", "1", "2", "1.5"])
def test_json_is_what_the_library_gives(nets, capsys, p):
    code, out, _ = run(capsys, "shift", "old.json", "new.json", "--p", p, "--json")
    assert code == 0
    assert json.loads(out) == measure_shift(*nets, p=float(p)).to_dict()


def test_another_distance(nets, capsys):
    code, out, _ = run(capsys, "shift", "old.json", "new.json", "--p", "1.5")
    assert code == 0
    assert "p = 1.5" in out.splitlines()[0]
    assert at_most(30 ** (1 / 1.5) * 0.125) in out.splitlines()[-1]


def test_the_same_model(nets, capsys):
    code, out, _ = run(capsys, "shift", "old.json", "old.json")
    assert (code, out.splitlines()[-1]) == (0, "None of 37 parameters changes.")


def test_other_differences_are_said_on_standard_error(nets, capsys):
    code, out, err = run(capsys, "shift", "old.json", "tanh.json", "--json")
    assert code == 0
    assert math.isclose(json.loads(out)["delta"], 0.125)
    assert err.startswith("warning: tanh.json differs from the base model in more than its parameters (activation)")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("old.json", "wide.json"), "wide.json must have parameters of the same shapes as the base model, which has layer0.weight of shape (4, 6), but it has layer0.weight of shape (4, 7)"),
        (("old.json", "missing.json"), "missing.json cannot be read: No such file or directory"),
        (("missing.json", "new.json"), "missing.json cannot be read"),
        (("old.json", "new.pkl"), "could run code when read"),
        (("old.json", "new.json", "--p", "-1"), "`p` of measure_shift must be a number of at least 0, or math.inf, got -1.0"),
        (("old.json", "new.json", "--p", "nan"), "got nan"),
    ],
)  # fmt: skip
def test_bad_input(nets, capsys, words, message):
    code, out, err = run(capsys, "shift", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1


def test_missing_words_are_usage_errors(nets, capsys):
    code, _, err = run(capsys, "shift", "old.json")
    assert code == 2
    assert "new" in err.lower()


def test_help_has_an_example(capsys):
    code, out, _ = run(capsys, "shift", "--help")
    assert code == 0
    assert "apas shift model.json new.json" in out
