"""The progress of Algorithm 3 as a picture: the parts of the box level by level, and the share that they settle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from apas._optional import require
from apas.display.pictures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_halving"]

#: Colours of parts that are valid, open and failing, and of the rules.
STATES: Final = {1: "#1b7f4d", 0: "#d9d9d9", -1: "#b3261e"}
NAMES: Final = {1: "all shifts valid", 0: "open", -1: "all shifts fail"}
RULES: Final = {
    "first": ("first weight only, as published", "#b3261e"),
    "effect": ("weight with the largest effect", "#1b4f7f"),
    "enumeration": ("apas.Enumeration, which also counts\nshares of open parts", "#1b7f4d"),
}
#: How many levels are drawn.
SHOWN = 7


def draw_halving(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """Draw what `apas.experiments.toy.halve` gave, for two deltas and three rules, into a folder."""
    plt = require("matplotlib.pyplot", feature="draw_halving", extra="plot")
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    deltas = list(dict.fromkeys(r["delta"] for r in results))
    for ax, rule in zip(axes[0], ("first", "effect"), strict=True):
        for result in results:
            if result["rule"] == rule and result["delta"] == deltas[0]:
                _parts(ax, result["levels"][:SHOWN])
        ax.set_title(f"Halved: {RULES[rule][0]} (delta = {deltas[0]:g})", loc="left", fontsize=10)
    for ax, delta in zip(axes[1], deltas, strict=True):
        _shares(ax, [r for r in results if r["delta"] == delta])
        ax.set_title(f"Bounds of the valid share (delta = {delta:g})", loc="left", fontsize=10)
    handles = [plt.Rectangle((0, 0), 1, 1, color=STATES[s]) for s in (1, 0)]
    names = [NAMES[s] for s in (1, 0)]
    axes[0, 1].legend(handles, names, loc="center", bbox_to_anchor=(0.6, 0.35), frameon=False)
    axes[1, 0].legend(loc="lower right", fontsize=9, frameon=False)
    return save_figure(figure, folder, "toy-halving")


def _parts(ax: Axes, levels: Sequence[Mapping[str, Any]]) -> None:
    """Every part as a piece of its level's bar, as wide as its volume; what was settled above is left white."""
    for level in levels:
        width = 2.0 ** (1 - level["number"])
        colours = [STATES[s] for s in level["states"]]
        ax.barh(
            [level["number"]] * len(colours), width, left=level["places"], height=0.82, color=colours, align="center",
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        # just beyond the bars, where nothing else is drawn
        ax.text(1.01, level["number"], f"{100 * level['valid']:.6g} %", va="center", fontsize=8)
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_ylim(len(levels) + 0.6, 0.4)
    ax.set_yticks(range(1, len(levels) + 1))
    ax.set_xlabel("volume; right: share proved valid so far")
    ax.set_ylabel("level")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _shares(ax: Axes, results: Sequence[Mapping[str, Any]]) -> None:
    """The share proved valid, and one less the share proved failing, against the number of parts looked at."""
    for result in results:
        label, colour = RULES[result["rule"]]
        if "bounds" in result:
            points = [tuple(line) for line in result["bounds"]]
        else:
            points = [(level["looked"], level["valid"], 1 - level["failing"]) for level in result["levels"]]
        looked, low, high = zip(*points, strict=True)
        ax.plot(looked, low, "o-", color=colour, markersize=3, linewidth=1.2, label=label)
        ax.plot(looked, high, "o--", color=colour, markersize=3, linewidth=1.0)
    ax.axhline(0.9, color="black", linewidth=0.8, linestyle=":", label="coverage that is asked for")
    ax.set_xscale("log")
    ax.set_ylim(-0.03, 1.05)
    ax.set_xlabel("parts looked at (full lines: at least; dashed: at most)")
    ax.set_ylabel("share of valid shifts")
    # beyond the levels that were halved, nothing is left to compare
    ax.set_xlim(0.8, 1.3 * max(level["looked"] for r in results for level in r.get("levels", ())))
