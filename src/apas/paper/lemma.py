"""Lemma 3 of the paper, both directions: plausible shifts need not be natural, and natural ones not plausible."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from apas.display.plots import save_figure
from apas.paper import Results, make_tables, new_figure
from apas.paper.experiment import Unit
from apas.shifts.distance import measure_shift
from apas.theory.shift_notions import LEMMA_EXAMPLE, UnboundedFamily, is_naturally_occurring, lipschitz_bound

ACTIVATIONS: Final = ("relu", "tanh", "sigmoid")
DELTAS: Final = ("1/10", "1/5", "4/15", "3/10", "2/5", "1/2")  # sizes of the shifts; the paper's is 3/10
PAPER = "3/10"
DRAWS, FEW = 1_000_000, 20_000  # how many shifted models are drawn, to see what draws alone can tell; with the seed 0
#: Rows of the other direction, and by how much its bias is shifted.
DATA: Final = (-2.0, 0.5, 1.25)
SHIFTS: Final = (1.0, 1e3, 1e6, 1e9)


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """Expectations by activation and delta, draws by activation, and the family by shift."""
    draws = FEW if settings.get("quick") else DRAWS
    return [
        *(Unit("lemma", expected, {"activation": a, "delta": d}) for a in ACTIVATIONS for d in DELTAS),
        *(Unit("lemma", drawn, {"activation": a, "draws": draws}) for a in ACTIVATIONS),
        *(Unit("lemma", unbounded, {"shift": shift}) for shift in SHIFTS),
    ]


def expected(activation: str, delta: str) -> dict[str, Any]:
    """Output of the example's network and the expected output of a shifted one."""
    example = replace(LEMMA_EXAMPLE, delta=Fraction(delta))
    if activation == "relu":
        value, mean = example.value(), example.expectation()
        output, difference, change, exact = float(value), float(mean - value), 0.0, str(mean)
    else:
        model = example.model(activation)
        output = float(model.margin(example.X, 1)[0]) + model.threshold
        (difference, change), exact = example.difference(activation), None
    about = {"activation": activation, "delta": delta, "output": output}
    return {**about, "difference": difference, "change": change, "exact": exact}


def drawn(activation: str, draws: int) -> dict[str, Any]:
    """What draws of shifted models tell of the example at the paper's delta."""
    model, X = LEMMA_EXAMPLE.model(activation), LEMMA_EXAMPLE.X
    found = is_naturally_occurring(model, X, delta=float(LEMMA_EXAMPLE.delta), n_samples=draws, rng=0)
    row = {"mean": found.mean, "variance": found.variance, "p": found.p_values}
    about = {"verdict": found.verdict.name, "confidence": found.confidence, "lipschitz": found.lipschitz_shifted}
    return {"activation": activation, "draws": draws} | {name: v[0].item() for name, v in row.items()} | about


def unbounded(shift: float) -> dict[str, Any]:
    """The family of the other direction, shifted by so much."""
    X = np.array(DATA)[:, None]
    family = UnboundedFamily.of(X)
    base, shifted = family.model(), family.model(shift)
    apart = float(np.abs(shifted.margin(X, 1) - base.margin(X, 1)).max())
    found = {"delta": measure_shift(base, shifted).delta, "difference": apart, "lipschitz": lipschitz_bound(shifted)}
    return {"shift": shift, "rows": len(X), **found}


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """Expectations, what draws tell of them, and the family."""
    exact, family = [_line(r) for r in results if "exact" in r], [r for r in results if "shift" in r]
    draws = [{**r, "delta": PAPER, "seed": 0} for r in results if "verdict" in r]
    return make_tables({"lemma": exact, "lemma-draws": draws, "lemma-unbounded": family})


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    # smaller ones are rounding, which depends on the processor
    change = "less than 1e-12" if result["change"] < 1e-12 else f"{result['change']:.0e}"
    paper = "> 0.52" if result["activation"] == "relu" and result["delta"] == PAPER else "-"
    how = "exact" if result["exact"] else f"quadrature, half the nodes change it by {change}"
    return {**result, "mean": result["output"] + result["difference"], "paper": paper, "how": how}


def figures(results: Results, folder: Path | str) -> list[Path]:
    """How far the expected output is from the output, against delta."""
    figure, ax = new_figure(figsize=(6, 3.2))
    ax.axhline(0.0, color="grey", linewidth=0.8)
    for name in ACTIVATIONS:
        found = [r for r in results if "exact" in r and r["activation"] == name]
        deltas = [float(Fraction(r["delta"])) for r in found]
        ax.plot(deltas, [r["difference"] for r in found], "o-", markersize=4, label=name)
    ax.axvline(float(Fraction(PAPER)), color="black", linestyle="--", linewidth=0.8, label="the paper's delta")
    ax.set(xlabel="delta", ylabel="expected output - output")
    ax.legend(frameon=False, fontsize="small")
    return save_figure(figure, folder, "lemma")
