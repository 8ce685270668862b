"""The figure of Table 1: what explanations cost against which of them survive retraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from apas._optional import require
from apas.display.pictures import save_figure
from apas.experiments.table1methods import METHODS

__all__ = ["draw_trade"]

#: Kinds of retraining, a line of panels each.
KINDS: Final = {"vm2_one_pass": "valid after one more pass, %", "vm2_scratch": "valid on networks from scratch, %"}
MARKS: Final = ("o", "s", "D", "s", "D", "^", "v", "P", "*", "X", "h", "p")
#: `RobustOptimum` for the box and for retraining, APΔS, and the paper's other methods.
COLOURS: Final = {"RobustOptimum": "#1b4f7f", "APΔS": "#c97b2e"}


def draw_trade(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """Draw means over the seeds with their standard deviation, a column per dataset, into a folder.

    Parameters
    ----------
    results : sequence of mapping
        What `apas.experiments.table1.unit` gave.
    folder : path-like
    """
    plt = require("matplotlib.pyplot", feature="The figure of Table 1", extra="plot")
    names = list(dict.fromkeys(r["dataset"] for r in results))
    size = (3.2 * max(len(names), 1), 6.5)
    figure, axes = plt.subplots(
        len(KINDS), max(len(names), 1), figsize=size, sharex="col", sharey=True, squeeze=False, layout="constrained"
    )
    handles: dict[str, Any] = {}
    for column, name in enumerate(names):
        axes[0, column].set_title(name, loc="left")
        axes[-1, column].set_xlabel("mean l1 distance")
        for line, kind in enumerate(KINDS):
            for (method, mark), k in zip(zip(METHODS, MARKS, strict=True), range(len(MARKS)), strict=True):
                group = [r for r in results if (r["dataset"], r["method"]) == (name, method)]
                pairs = np.array([(r["l1"], 100 * r[kind]) for r in group if None not in (r["l1"], r[kind])])
                if not len(pairs):
                    continue
                (x, y), spread = pairs.mean(axis=0), pairs.std(axis=0, ddof=1) if len(pairs) > 1 else np.zeros(2)
                colour = COLOURS.get(method.split(",")[0], f"{0.2 + 0.08 * k:.2f}")
                handles[method] = axes[line, column].errorbar(
                    x, y, spread[1], spread[0], fmt=mark, color=colour, markersize=7, elinewidth=0.8
                )
    for line, title in enumerate(KINDS.values()):
        axes[line, 0].set_ylabel(title)
        axes[line, 0].set_ylim(-5, 105)
    shown = {method: handles[method] for method in METHODS if method in handles}
    if shown:
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return save_figure(figure, folder, "table1")
