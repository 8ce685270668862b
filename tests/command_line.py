"""Running the command `apas` in tests, and a folder with all the files that its examples name, each of them real."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import apas
from apas import Feature, FeatureSpace
from apas.cli import main

NAMES = ("income", "debt", "age")


def run(capsys, *words):
    """Run the command in this process: exit code, standard output, standard error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["apas", *words])
        with pytest.raises(SystemExit) as stop:
            main()
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


def network() -> apas.FeedForward:
    """Accepts high incomes, refuses debts; no row of `rows` lies at its boundary."""
    return apas.FeedForward(
        [[[2.0, 1.0], [-1.0, -2.0], [0.1, 0.0]], [[1.5], [1.0]]], [[0.1, 0.2], [-2.0]], feature_names=NAMES
    )


def fill(folder: Path) -> Path:
    """Models in all formats that need no further library to write, tables, a space, certificates and a ledger."""
    draw = np.random.default_rng(0)
    net = network()
    apas.save_model(net, folder / "model.json")
    for name in ("model.onnx", "model.safetensors"):
        apas.save_model(net, folder / name)
    moved = [np.array(b) + 1e-4 for b in net.biases]
    apas.save_model(apas.FeedForward(net.weights, moved, feature_names=NAMES), folder / "new.json")
    good = pd.DataFrame(draw.uniform([0.7, 0.0, 0.2], [1.0, 0.3, 0.9], (4, 3)), columns=NAMES, index=list("ABCD"))
    bad = pd.DataFrame(draw.uniform([0.0, 0.5, 0.2], [0.3, 1.0, 0.9], (2, 3)), columns=NAMES, index=["E", "F"])
    good.to_csv(folder / "rows.csv")
    bad.to_csv(folder / "rejected.csv")
    pd.concat([good, bad]).to_csv(folder / "train.csv", index=False)
    space = FeatureSpace([Feature(name, low=0.0, high=1.0, mutable=name != "age") for name in NAMES])
    space.to_toml(folder / "space.toml")
    offers = bad.assign(income=[0.95, 0.9], debt=[0.1, 0.2])
    offers.to_csv(folder / "offers.csv")
    (folder / "own.html").write_text("<p>{{ letter.reference }}: {{ letter.options[0].code }}</p>", encoding="utf-8")
    found = apas.certify(net, good, 0.01, target=1, rng=0)
    for name in ("promises.json", "certificates.json"):
        apas.save_certificates(found, folder / name)
    applicants = [f"A-{17 + i}" for i in range(len(good))]
    (folder / "applicants.txt").write_text("\n".join(applicants) + "\n")
    with apas.Ledger(folder / "ledger.db") as ledger:
        ledger.add(found, applicants)
    return folder
