"""Pictures of results, with matplotlib imported when one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from apas._optional import require
from apas.display.labels import label_rows, legend_beside
from apas.display.numbers import exactly

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["coverage_plot", "fraction_plot", "new_axes", "radius_plot", "range_plot"]

COLOURS = {"CERTIFIED": "#1b7f4d", "REFUTED": "#b3261e", "UNKNOWN": "#8a8a8a"}


def new_axes(ax: Axes | None, feature: str) -> Axes:
    """`ax` itself, or the axes of a new figure."""
    if ax is not None:
        return ax
    plt = require("matplotlib.pyplot", feature=feature, extra="plot")
    _, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    return axes  # type: ignore[no-any-return]


def coverage_plot(certificates: Sequence[Any], ax: Axes | None) -> Axes:
    """Per row a bar from the lower to the upper bound on the share of valid shifts, and the share asked for.

    A row that is not valid on the model itself has no bar: nobody asked about its share, which may be anything.
    """
    ax = new_axes(ax, "Certificates.plot")
    shown: set[str] = set()
    for i, certificate in enumerate(certificates):
        if not certificate.valid_today:
            continue
        low, high = _bounds(certificate)
        name = certificate.verdict.name
        label = None if name in shown else name
        shown.add(name)
        ax.plot([i, i], [low, high], color=COLOURS[name], linewidth=3, solid_capstyle="butt", label=label)
        ax.plot([i], [(low + high) / 2], "o", color=COLOURS[name], markersize=4)
    not_today = [i for i, certificate in enumerate(certificates) if not certificate.valid_today]
    _mark_not_today(ax, not_today, "the share is not known")
    if len(certificates):
        for asked in sorted({getattr(certificate.claim, "coverage", 1.0) for certificate in certificates}):
            ax.axhline(asked, color="black", linewidth=1, linestyle="--", label=f"asked for: {exactly(asked)}")
        legend_beside(ax)
    if not shown:  # nothing else says what the axis is
        ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(-0.6, max(len(certificates), 1) - 0.4)
    label_rows(ax, certificates._labels())  # type: ignore[attr-defined]
    ax.set_ylabel("share of shifts that keep the class")
    ax.set_title("Bounds on the robust share of each explanation", loc="left")
    return ax


def _bounds(certificate: Any) -> tuple[float, float]:
    if not hasattr(certificate.evidence, "coverage_lower"):  # nothing was counted or measured
        return (1.0 if certificate.verdict.name == "CERTIFIED" else 0.0), 1.0
    level = float(getattr(certificate.claim, "row_confidence", 1.0))
    return certificate.evidence.coverage_lower(level), certificate.evidence.coverage_upper(level)


def _mark_not_today(ax: Axes, places: Sequence[int], said: str) -> None:
    """A dotted line from top to bottom at rows that are not valid on the model itself: it is no value of the axis."""
    for number, place in enumerate(places):
        label = None if number else f"not valid today:\n{said}"
        ax.axvline(place, color=COLOURS["UNKNOWN"], linewidth=1.2, linestyle=":", label=label, zorder=1)


def radius_plot(shifts: Sequence[Any], ax: Axes | None) -> Axes:
    """Per row the certified, the provable and the breaking delta, sorted by the certified one."""
    ax = new_axes(ax, "MaxShifts.plot")
    order = sorted(range(len(shifts)), key=lambda i: shifts[i].delta)
    places = range(len(order))
    certified = "where the published search ended" if any(item.per_test for item in shifts) else "certified"
    series: list[
        tuple[str, str, str, str, dict[str, Any]]
    ] = [  # the hollow triangles stay visible where a proof and a failing shift meet
        ("delta", certified, "o", "#1b4f7f", {"markersize": 4}),
        ("provable", "proved for every shift", "s", "#1b7f4d", {"markersize": 4}),
        ("broken_at", "a failing shift is known", "v", "#b3261e", {"markersize": 8, "fillstyle": "none"}),
    ]
    for name, label, marker, colour, style in series:
        values = [getattr(shifts[i], name) for i in order]
        shown = [(x, y) for x, y in zip(places, values, strict=True) if 0 < y < float("inf")]
        if shown:
            ax.plot(*zip(*shown, strict=True), marker, color=colour, label=label, **style)
    not_today = [x for x, i in zip(places, order, strict=True) if not shifts[i].valid_today]
    _mark_not_today(ax, not_today, "no shift is certified")
    ax.set_xlabel("rows, sorted")
    ticker = require("matplotlib.ticker", feature="MaxShifts.plot", extra="plot")
    ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))  # there is no row between two
    ax.set_ylabel("delta")
    ax.set_ylim(bottom=0)
    ax.set_title("How far the model may shift", loc="left")
    if len(order):
        ax.legend(loc="best", frameon=False)
    return ax


def fraction_plot(curves: Sequence[Any], ax: Axes | None) -> Axes:
    """Per row the share of valid shifts against delta, as a line in its band, which holds at the marked deltas."""
    ax = new_axes(ax, "FractionCurves.plot")
    few = len(curves) <= 10
    for i, curve in enumerate(curves):
        order = curve.deltas.argsort()
        deltas = curve.deltas[order]
        label = f"row {i}{'' if curve.valid else ' (not valid today)'}" if few else None
        (line,) = ax.plot(deltas, curve.estimate[order], "o-", linewidth=1.2, markersize=3, label=label)
        colour, ends = line.get_color(), (curve.lower[order], curve.upper[order])
        ax.fill_between(deltas, *ends, color=colour, alpha=0.2, linewidth=0)
        ax.vlines(deltas, *ends, color=colour, linewidth=1)
    ax.set_xlabel("delta")
    ax.set_ylabel("share of shifts that keep the class")
    ax.set_ylim(-0.02, 1.02)
    ax.set_title("How the robust share falls with the size of the shifts", loc="left")
    if len(curves) and few:
        ax.legend(loc="best", frameon=False)
    return ax


def range_plot(ranges: Sequence[Any], ax: Axes | None) -> Axes:
    """Per row the range of margins over the shifted models, coloured by its side of the decision threshold."""
    ax = new_axes(ax, "OutputRanges.plot")
    sides = {"above": COLOURS["CERTIFIED"], "across": COLOURS["UNKNOWN"], "below": COLOURS["REFUTED"]}
    handles = {"threshold": ax.axvline(0.0, color="black", linewidth=1, linestyle="--", zorder=3)}
    for i, item in enumerate(ranges):
        (mark,) = ax.plot([item.margin], [i], "|", color="black", markersize=10)
        handles["model itself"] = mark
        if isfinite(item.low) and isfinite(item.high):
            (bar,) = ax.plot([item.low, item.high], [i, i], color=sides[item.side], linewidth=4, solid_capstyle="butt")
            handles[item.side] = bar
        else:
            line = ax.axhline(i, color=COLOURS["UNKNOWN"], linewidth=1.2, linestyle=":", zorder=1)
            handles["no end known"] = line
    ax.set_yticks(range(len(ranges)) if len(ranges) <= 20 else [])
    ax.invert_yaxis()
    ax.set_xlabel("margin towards the wanted class")
    ax.set_ylabel("row")
    ax.set_title("What shifted models make of each explanation", loc="left", pad=24)  # the legend is below it
    if len(ranges):
        shown = [name for name in ("threshold", "model itself", *sides, "no end known") if name in handles]
        ax.legend(  # above the bars, and no wider than they are: nothing may be cut off, nor the axes squeezed
            [handles[name] for name in shown], shown, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(shown),
            frameon=False, fontsize="small", handlelength=1.2, columnspacing=1.0, borderaxespad=0.2,
        )  # fmt: skip
    return ax
