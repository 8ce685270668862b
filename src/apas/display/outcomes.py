"""A picture of an audit: which promises a new model keeps, and how far it moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from apas.display.labels import label_rows, legend_beside
from apas.display.numbers import at_most
from apas.display.plots import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["outcome_plot"]

KEPT, BROKEN, OPEN = COLOURS["CERTIFIED"], COLOURS["REFUTED"], COLOURS["UNKNOWN"]
#: Marker, colour and filling of each outcome: they differ in shape, too, for who sees or prints no colours.
STYLES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "HELD": ("o", KEPT, {"markersize": 7}),
    "BROKEN_INSIDE": ("X", BROKEN, {"markersize": 9}),
    "BROKEN_OUTSIDE": ("v", BROKEN, {"markersize": 8}),
    "BROKEN": ("v", BROKEN, {"markersize": 8, "fillstyle": "none"}),
    "NOT_PROMISED": ("o", OPEN, {"markersize": 7, "fillstyle": "none"}),
}


def outcome_plot(rows: Sequence[Any], labels: Sequence[str], measured: float | None, ax: Axes | None) -> Axes:
    """Per row the delta it was certified at, marked by what became of it; and how far the model moved.

    Parameters
    ----------
    rows : sequence of AuditRow
    labels : sequence of str
        What the rows are called.
    measured : float or None
        The measured shift, if it is in the units of delta: rows above it speak of the new model.
    ax : matplotlib axes or None
    """
    ax = new_axes(ax, "AuditReport.plot")
    for name, (marker, colour, style) in STYLES.items():
        places = [i for i, row in enumerate(rows) if row.outcome.name == name]
        if places:
            deltas = [rows[i].delta for i in places]
            ax.plot(places, deltas, marker, color=colour, label=f"{name} ({len(places)})", linestyle="", **style)
    if measured is not None:
        said = f"measured shift: {at_most(measured)}"
        ax.axhline(measured, color="black", linewidth=1, linestyle="--", label=said, zorder=1)
    tops = [row.delta for row in rows] + ([] if measured is None else [measured])
    ax.set_ylim(0, 1.15 * max(tops, default=1.0))
    label_rows(ax, labels)
    ax.set_ylabel("delta of the certificate")
    ax.set_title("What the new model keeps", loc="left")
    if len(rows):
        legend_beside(ax)
    return ax
