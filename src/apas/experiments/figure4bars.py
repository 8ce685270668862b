"""The bars of Figure 4: mean deltas in the worst case and for most shifts, with the spread over the explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from apas._optional import require
from apas.display.pictures import save_figure

__all__ = ["draw_bars"]

#: Methods in the order of the bars, with their colours.
BARS: Final = {
    "worst case": "#8a8a8a",
    "paper search, its draws": "#c97b2e",
    "paper search, own draws": "#e8c08f",
    "rays, n = 1379": "#6fa8d6",
    "rays, n = 20,000": "#1b4f7f",
}
WIDTH = 0.8 / len(BARS)


def draw_bars(
    results: Sequence[Mapping[str, Any]], shifts: Mapping[str, float], printed: Mapping[str, tuple[float, float]],
    folder: Path | str,
) -> list[Path]:  # fmt: skip
    """Draw the figure into a folder.

    Parameters
    ----------
    results : sequence of mapping
        What `apas.experiments.figure4.measure` gave.
    shifts : mapping
        How far retraining moves the network of a dataset.
    printed : mapping
        The paper's means of a dataset, in the worst case and by sampling.
    folder : path-like
    """
    plt = require("matplotlib.pyplot", feature="draw_bars", extra="plot")
    figure, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    names = list(dict.fromkeys(r["dataset"] for r in results))
    for k, (method, colour) in enumerate(BARS.items()):
        shown = [r for r in results if r["method"] == method]
        places = [names.index(r["dataset"]) + (k - (len(BARS) - 1) / 2) * WIDTH for r in shown]
        means = [r["mean"] for r in shown]
        below = [r["mean"] - r["least"] for r in shown]
        above = [r["largest"] - r["mean"] for r in shown]
        ax.bar(places, means, WIDTH * 0.92, color=colour, label=method)
        ax.errorbar(places, means, [below, above], fmt="none", ecolor="black", elinewidth=0.8, capsize=2.5)
        if method in ("worst case", "paper search, its draws"):
            theirs = [printed[r["dataset"]][k] for r in shown]
            label = "as printed in the paper's notebooks" if k == 0 else None
            ax.plot(places, theirs, "D", color="white", markeredgecolor="black", markersize=5, zorder=4, label=label)
    ax.set_xticks(range(len(names)), [f"{name}\nretraining moves it by {_rounded(shifts.get(name))}" for name in names])
    ax.set_ylabel("largest delta: mean of 50 explanations\n(whiskers: least and largest)")
    ax.set_title("How far the model may shift: every shift against 99.5 % of the shifts", loc="left")
    ax.legend(frameon=False, fontsize=9, ncols=2)
    ax.margins(y=0.12)
    return save_figure(figure, folder, "figure4")


def _rounded(shift: float | None) -> str:
    return "?" if shift is None else f"{shift:.2f}"
