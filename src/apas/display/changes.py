"""A picture of what counterfactuals change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.display.plots import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["changes_plot"]

#: Rows with more than this many get no text in their cells.
READABLE = 15
MOST = 60


def changes_plot(
    moved: NDArray[np.float64],
    texts: Sequence[Sequence[str]],
    names: Sequence[str],
    rows: Sequence[str],
    ax: Axes | None,
) -> Axes:
    """Per row (line) and feature (column) how far it moves: up in blue, down in red, other categories in grey."""
    ax = new_axes(ax, "Counterfactuals.plot")
    shown = slice(0, MOST)
    values = np.clip(np.nan_to_num(moved[shown]), -1, 1)
    used = [j for j in range(len(names)) if any(line[j] for line in texts[shown])] or list(range(len(names)))
    most = max(0.05, float(np.abs(values).max(initial=0.0)))
    image = ax.imshow(values[:, used], cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    if len(values) <= READABLE:
        _write(ax, values[:, used], [[line[j] for j in used] for line in texts[shown]], most)
    ax.set_xticks(range(len(used)), [names[j] for j in used], rotation=30, ha="right")
    ax.set_yticks(range(len(values)), rows[shown] if len(values) <= MOST else [])
    title = "What the counterfactuals change" + (f" (first {MOST} of {len(moved)})" if len(moved) > MOST else "")
    ax.set_title(title, loc="left")
    bar: Any = ax.figure.colorbar(image, ax=ax)
    bar.set_label("change in units of the range")
    return ax


def _write(ax: Axes, values: NDArray[np.float64], texts: Sequence[Sequence[str]], most: float) -> None:
    for i, line in enumerate(texts):
        for j, text in enumerate(line):
            colour = "white" if abs(values[i, j]) > 0.6 * most else "black"
            ax.text(j, i, text.replace(" -> ", "\n\u2192 "), ha="center", va="center", fontsize=7, color=colour)
