"""A picture of what counterfactuals change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.display.labels import readable
from apas.display.plots import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["changes_plot"]

#: Rows with more than this many get no text in their cells.
READABLE = 15
MOST = 60
GREY = "#b8b8b8"


def changes_plot(
    moved: NDArray[np.float64],
    texts: Sequence[Sequence[str]],
    names: Sequence[str],
    rows: Sequence[str],
    ax: Axes | None,
) -> Axes:
    """Per row (line) and feature (column) how far it moves: up in blue, down in red, to another category in grey.

    Parameters
    ----------
    moved : ndarray of shape (rows, features)
        In units of the ranges; NaN where there is no up or down.
    texts : sequence of sequence of str
        What is written into the cells; empty where nothing changes.
    names, rows : sequence of str
        What the features and the rows are called.
    ax : matplotlib axes or None
        None makes a figure that is large enough.
    """
    own, ax = ax is None, new_axes(ax, "Counterfactuals.plot")
    texts, rows = texts[:MOST], rows[:MOST]
    used = [j for j in range(len(names)) if any(line[j] for line in texts)] or list(range(len(names)))
    values = np.clip(moved[:MOST, used], -1, 1)
    written = len(values) <= READABLE
    if own:
        size = max(7.0, 2.0 + 0.8 * len(used)), max(4.0, 1.4 + (0.36 if written else 0.15) * len(values))
        ax.figure.set_size_inches(*size)  # type: ignore[union-attr]
    most = max(0.05, float(np.nanmax(np.abs(values), initial=0.0)))
    ax.set_facecolor(GREY)  # shows through where a value is missing
    image = ax.imshow(values, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    if written:
        _write(ax, values, [[line[j] for j in used] for line in texts], most)
    # a dollar sign in a name is no formula
    ax.set_xticks(range(len(used)), readable(names[j] for j in used), rotation=30, ha="right", parse_math=False)
    ax.set_yticks(range(len(values)), readable(rows), fontsize=None if written else 7, parse_math=False)
    title = "What the counterfactuals change" + (f" (first {MOST} of {len(moved)})" if len(moved) > MOST else "")
    ax.set_title(title, loc="left")
    bar: Any = ax.figure.colorbar(image, ax=ax)
    bar.set_label("change in units of the range" + ("; grey: another category" if np.isnan(values).any() else ""))
    return ax


def _write(ax: Axes, values: NDArray[np.float64], texts: Sequence[Sequence[str]], most: float) -> None:
    for i, line in enumerate(texts):
        for j, text in enumerate(line):
            colour = "white" if abs(values[i, j]) > 0.6 * most else "black"
            parts = readable(text.split(" -> "))
            ax.text(j, i, "\n\u2192 ".join(parts), ha="center", va="center", fontsize=7, color=colour, parse_math=False)
