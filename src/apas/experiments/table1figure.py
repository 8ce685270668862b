"""The figure of Table 1: what explanations cost against which of them survive retraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from apas._optional import require
from apas.display.pictures import save_figure
from apas.experiments.table1methods import APAS, METHODS, RETRAINED, WIDER
from apas.experiments.tables import TABLES

__all__ = ["draw_trade"]

#: Kinds of retraining, a line of panels each.
KINDS: Final = {"vm2_one_pass": "valid after one more pass, %", "vm2_scratch": "valid on networks from scratch, %"}
MARKS: Final = ("o", "s", "D", "s", "D", "^", "v", "P", "*", "X", "h", "p")
#: Ours and APΔS; the paper's other methods are grey, hollow where they are not made to be robust.
COLOURS: Final = {
    APAS: "#c97b2e", "RobustOptimum": "#1b4f7f", "RobustOptimum, 99.931 %": "#3f8fc4", WIDER: "#7db8dc",
    RETRAINED: "#1b7f4d",
}  # fmt: skip


def draw_trade(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """Draw means over the seeds with bars from the least to the largest, a column per dataset, into a folder.

    Parameters
    ----------
    results : sequence of mapping
        What `apas.experiments.table1.unit` gave.
    folder : path-like
    """
    plt = require("matplotlib.pyplot", feature="The figure of Table 1", extra="plot")
    ticker = require("matplotlib.ticker", feature="The figure of Table 1", extra="plot")
    names = [name for name in TABLES if any(r["dataset"] == name for r in results)]
    size = (3.2 * max(len(names), 1), 6.5)
    figure, axes = plt.subplots(
        len(KINDS), max(len(names), 1), figsize=size, sharex="col", sharey=True, squeeze=False, layout="constrained"
    )
    handles: dict[str, Any] = {}
    for column, name in enumerate(names):
        axes[0, column].set_title(name, loc="left")
        axes[-1, column].set_xlabel("mean l1 distance, logarithmic")
        for line, kind in enumerate(KINDS):
            for method, mark in zip(METHODS, MARKS, strict=True):
                group = [r for r in results if (r["dataset"], r["method"]) == (name, method)]
                pairs = np.array([(r["l1"], 100 * r[kind]) for r in group if None not in (r["l1"], r[kind])])
                if not len(pairs):
                    continue
                centre = pairs.mean(axis=0)
                ends = np.abs(np.array([pairs.min(axis=0), pairs.max(axis=0)]) - centre)
                robust = method in COLOURS or method.endswith("-R") or method == "ROAR"
                colour = COLOURS.get(method, "0.55")
                handles[method] = axes[line, column].errorbar(
                    *centre, ends[:, [1]], ends[:, [0]], fmt=mark, color=colour, markersize=8, elinewidth=0.8,
                    markerfacecolor=colour if robust else "white",
                    zorder=3 if method in COLOURS else 2,
                )  # fmt: skip
            ax = axes[line, column]
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            ax.xaxis.set_minor_locator(ticker.NullLocator())
            ax.tick_params(axis="x", labelsize=8)
            ax.grid(color="0.93")
            ax.set_axisbelow(True)
    for line, title in enumerate(KINDS.values()):
        axes[line, 0].set_ylabel(title)
        axes[line, 0].set_ylim(-5, 105)
    shown = {method: handles[method] for method in METHODS if method in handles}
    if shown:
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return save_figure(figure, folder, "table1")
