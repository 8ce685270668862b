"""Pictures of results, with matplotlib imported when one is asked for."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._atomic import write_bytes
from apas._lazy import require
from apas._sanitise import for_terminal
from apas._typing import Floats
from apas.display.numbers import at_most, exactly

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: So many rows are named below a picture; more are counted.
NAMED = 25
#: So many characters of a name are shown.
LONGEST = 24
COLOURS = {"CERTIFIED": "#1b7f4d", "REFUTED": "#b3261e", "UNKNOWN": "#8a8a8a"}
#: A picture of more rows than the first has no text in its cells, and none has more rows than the second.
READABLE = 15
MOST = 60
KEPT, BROKEN, OPEN = COLOURS["CERTIFIED"], COLOURS["REFUTED"], COLOURS["UNKNOWN"]
#: Marker, colour and filling of each outcome: they differ in shape, too, for who sees or prints no colours.
STYLES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "HELD": ("o", KEPT, {"markersize": 7}),
    "BROKEN_INSIDE": ("X", BROKEN, {"markersize": 9}),
    "BROKEN_OUTSIDE": ("v", BROKEN, {"markersize": 8}),
    "BROKEN": ("v", BROKEN, {"markersize": 8, "fillstyle": "none"}),
    "OPEN": ("s", OPEN, {"markersize": 7, "fillstyle": "none"}),
    "NOT_PROMISED": ("o", OPEN, {"markersize": 7, "fillstyle": "none"}),
}


def readable(labels: Iterable[Any], longest: int = LONGEST) -> list[str]:
    r"""Names in one line each, not too long, without characters that no font has."""
    texts = [for_terminal(str(label)) for label in labels]
    return [text if len(text) <= longest else text[: longest - 1] + "…" for text in texts]


def label_rows(ax: Axes, labels: Sequence[Any]) -> None:
    """Name the rows along the horizontal axis, if there are not too many of them."""
    if len(labels) > NAMED:
        ax.set_xlabel(f"{len(labels)} rows, in their order")
        return
    names = readable(labels)
    wide = sum(map(len, names)) > 60
    turned: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if wide else {}
    # a dollar sign in a name is no formula
    ax.set_xticks(range(len(names)), names, parse_math=False, **turned)
    ax.set_xlabel("row")


def legend_beside(ax: Axes) -> None:
    """A legend to the right of a picture whose marks may be anywhere."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0)


def save_figure(figure: Figure, folder: Path | str, name: str) -> list[Path]:
    """Write a figure as PNG and SVG into a folder, which is made if it is not there, and close it."""
    plt = require("matplotlib.pyplot", feature="save_figure", extra="plot")
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [Path(folder) / f"{name}.{kind}" for kind in ("png", "svg")]
    # without them an SVG holds random names and the time
    with plt.rc_context({"svg.hashsalt": name}):
        options: list[dict[str, Any]] = [{"dpi": 150}, {"metadata": {"Date": None}}]
        for path, how in zip(paths, options, strict=True):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=path.suffix[1:], **how)
            write_bytes(path, drawn.getvalue())
    plt.close(figure)
    return paths


def _name_axes(ax: Axes, x: str | None, y: str, title: str, **how: Any) -> None:
    if x is not None:
        ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.set_title(title, loc="left", **how)


def new_axes(ax: Axes | None, feature: str) -> Axes:
    """`ax` itself, or the axes of a new figure."""
    if ax is not None:
        return ax
    _, axes = require("matplotlib.pyplot", feature=feature, extra="plot").subplots(figsize=(7, 4), layout="constrained")
    return axes  # type: ignore[no-any-return]


def coverage_plot(certificates: Sequence[Any], ax: Axes) -> None:
    """Per row a bar from the lower to the upper bound on the share of valid shifts, and the share asked for."""
    shown: set[str] = set()
    for i, certificate in enumerate(certificates):
        if not certificate.valid_today:  # no bar: nobody asked about its share, which may be anything
            continue
        name, (low, high) = certificate.verdict.name, (0.0, 1.0)
        if hasattr(certificate.evidence, "coverage_lower"):
            level = certificate.claim.row_confidence
            low, high = certificate.evidence.coverage_lower(level), certificate.evidence.coverage_upper(level)
        elif name == "CERTIFIED":  # nothing was counted or measured
            low = 1.0
        label = None if name in shown else name
        shown.add(name)
        ax.plot([i, i], [low, high], color=COLOURS[name], linewidth=3, solid_capstyle="butt", label=label)
        ax.plot([i], [(low + high) / 2], "o", color=COLOURS[name], markersize=4)
    _mark_not_today(ax, [i for i, c in enumerate(certificates) if not c.valid_today], "the share is not known")
    if len(certificates):
        for asked in sorted({certificate.claim.coverage for certificate in certificates}):
            ax.axhline(asked, color="black", linewidth=1, linestyle="--", label=f"asked for: {exactly(asked)}")
        legend_beside(ax)
    if not shown:  # nothing else says what the axis is
        ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(-0.6, max(len(certificates), 1) - 0.4)
    label_rows(ax, certificates._labels())  # type: ignore[attr-defined]
    _name_axes(ax, None, "share of shifts that keep the class", "Bounds on the robust share of each explanation")


def _mark_not_today(ax: Axes, places: Sequence[int], said: str) -> None:
    """A dotted line from top to bottom at rows that are not valid on the model itself: it is no value of the axis."""
    for number, place in enumerate(places):
        label = None if number else f"not valid today:\n{said}"
        ax.axvline(place, color=COLOURS["UNKNOWN"], linewidth=1.2, linestyle=":", label=label, zorder=1)


def calibration_plot(found: Any, ax: Axes) -> None:
    """The sorted scores of the rows, the largest score that each update broke, and the threshold between them."""
    scores, certified, claim = found.scores, found.certified, found.claim
    order, rows = np.argsort(scores, kind="stable"), len(scores)
    for name, kept in (("CERTIFIED", True), ("UNKNOWN", False)):
        places = [(x, scores[i]) for x, i in enumerate(order) if certified[i] == kept and isfinite(scores[i])]
        if places:
            ax.plot(*zip(*places, strict=True), "o", markersize=4, color=COLOURS[name], label=f"{name}: {len(places)}")
    broken = [s for s in claim.worst if isfinite(s)]
    said = f"largest {claim.scored}\nthat an update broke"
    ax.plot(np.full(len(broken), rows), broken, "_", markersize=14, color=COLOURS["REFUTED"], label=said)
    if isfinite(claim.threshold):
        above = f"above {at_most(claim.threshold)}"
        ax.axhline(claim.threshold, color="black", linewidth=1, linestyle="--", label=above)
    legend_beside(ax)
    said = f"{rows} rows, sorted; at the right end the {len(claim.worst)} updates"
    _name_axes(ax, said, claim.scored, "Rows that the next update keeps")


def radius_plot(shifts: Sequence[Any], ax: Axes) -> None:
    """Per row the certified, the provable and the breaking delta, sorted by the certified one."""
    order = sorted(range(len(shifts)), key=lambda i: shifts[i].delta)
    places = range(len(order))
    certified = "where the published search ended" if any(item.per_test for item in shifts) else "certified"
    hollow: dict[str, Any] = {"fillstyle": "none"}  # the triangles stay visible where a proof and a failing shift meet
    for name, label, marker, colour, size, filling in (
        ("delta", certified, "o", "#1b4f7f", 4, {}),
        ("provable", "proved for every shift", "s", "#1b7f4d", 4, {}),
        ("broken_at", "a failing shift is known", "v", "#b3261e", 8, hollow),
    ):
        values = [getattr(shifts[i], name) for i in order]
        if shown := [(x, y) for x, y in zip(places, values, strict=True) if 0 < y < float("inf")]:
            ax.plot(*zip(*shown, strict=True), marker, color=colour, label=label, markersize=size, **filling)
    not_today = [x for x, i in zip(places, order, strict=True) if not shifts[i].valid_today]
    _mark_not_today(ax, not_today, "no shift is certified")
    ticker = require("matplotlib.ticker", feature="MaxShifts.plot", extra="plot")
    ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))  # there is no row between two
    ax.set_ylim(bottom=0)
    _name_axes(ax, "rows, sorted", "delta", "How far the model may shift")
    if len(order):
        ax.legend(loc="best", frameon=False)


def fraction_plot(curves: Sequence[Any], ax: Axes) -> None:
    """Per row the share of valid shifts against delta, as a line in its band, which holds at the marked deltas."""
    few = len(curves) <= 10
    for i, curve in enumerate(curves):
        order = curve.deltas.argsort()
        deltas = curve.deltas[order]
        label = f"row {i}{'' if curve.valid else ' (not valid today)'}" if few else None
        (line,) = ax.plot(deltas, curve.estimate[order], "o-", linewidth=1.2, markersize=3, label=label)
        colour, ends = line.get_color(), (curve.lower[order], curve.upper[order])
        ax.fill_between(deltas, *ends, color=colour, alpha=0.2, linewidth=0)
        ax.vlines(deltas, *ends, color=colour, linewidth=1)
    ax.set_ylim(-0.02, 1.02)
    title = "How the robust share falls with the size of the shifts"
    _name_axes(ax, "delta", "share of shifts that keep the class", title)
    if len(curves) and few:
        ax.legend(loc="best", frameon=False)


def range_plot(ranges: Sequence[Any], ax: Axes) -> None:
    """Per row the range of margins over the shifted models, coloured by its side of the decision threshold."""
    sides = {"above": COLOURS["CERTIFIED"], "across": COLOURS["UNKNOWN"], "below": COLOURS["REFUTED"]}
    handles = {"threshold": ax.axvline(0.0, color="black", linewidth=1, linestyle="--", zorder=3)}
    for i, item in enumerate(ranges):
        (handles["model itself"],) = ax.plot([item.margin], [i], "|", color="black", markersize=10)
        if isfinite(item.low) and isfinite(item.high):
            (bar,) = ax.plot([item.low, item.high], [i, i], color=sides[item.side], linewidth=4, solid_capstyle="butt")
            handles[item.side] = bar
        else:
            handles["no end known"] = ax.axhline(i, color=COLOURS["UNKNOWN"], linewidth=1.2, linestyle=":", zorder=1)
    ax.set_yticks(range(len(ranges)) if len(ranges) <= 20 else [])
    ax.invert_yaxis()
    title = "What shifted models make of each explanation"
    _name_axes(ax, "margin towards the wanted class", "row", title, pad=24)  # the legend is below it
    if len(ranges):
        shown = [name for name in ("threshold", "model itself", *sides, "no end known") if name in handles]
        # above the bars, and no wider than they are: nothing may be cut off, nor the axes squeezed
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": len(shown)}
        tight: dict[str, Any] = {"handlelength": 1.2, "columnspacing": 1.0, "borderaxespad": 0.2, "fontsize": "small"}
        ax.legend([handles[name] for name in shown], shown, frameon=False, **place, **tight)


def changes_plot(
    moved: Floats, texts: Sequence[Sequence[str]], names: Sequence[str], rows: Sequence[str], ax: Axes | None
) -> Axes:
    """Per row (line) and feature (column) how far it moves: up in blue, down in red, to another category in grey."""
    own, ax = ax is None, new_axes(ax, "Counterfactuals.plot")
    texts, rows = texts[:MOST], rows[:MOST]
    used = [j for j in range(len(names)) if any(line[j] for line in texts)] or list(range(len(names)))
    values = np.clip(moved[:MOST, used], -1, 1)
    written = len(values) <= READABLE
    if own:
        size = max(7.0, 2.0 + 0.8 * len(used)), max(4.0, 1.4 + (0.36 if written else 0.15) * len(values))
        ax.figure.set_size_inches(*size)  # type: ignore[union-attr]
    most = max(0.05, float(np.nanmax(np.abs(values), initial=0.0)))
    ax.set_facecolor("#b8b8b8")  # a grey that shows through where a value is missing
    image = ax.imshow(values, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    for i, line in enumerate(texts if written else ()):
        for j, column in enumerate(used):
            colour = "white" if abs(values[i, j]) > 0.6 * most else "black"
            text = "\n\u2192 ".join(readable(line[column].split(" -> ")))
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color=colour, parse_math=False)
    # a dollar sign in a name is no formula
    ax.set_xticks(range(len(used)), readable(names[j] for j in used), rotation=30, ha="right", parse_math=False)
    ax.set_yticks(range(len(values)), readable(rows), fontsize=None if written else 7, parse_math=False)
    title = "What the counterfactuals change" + (f" (first {MOST} of {len(moved)})" if len(moved) > MOST else "")
    ax.set_title(title, loc="left")
    bar: Any = ax.figure.colorbar(image, ax=ax)
    bar.set_label("change in units of the range" + ("; grey: another category" if np.isnan(values).any() else ""))
    return ax


def outcome_plot(rows: Sequence[Any], labels: Sequence[str], measured: float | None, ax: Axes | None) -> Axes:
    """Per row the delta it was certified at, marked by what became of it; and how far the model moved."""
    ax = new_axes(ax, "AuditReport.plot")
    for name, (marker, colour, style) in STYLES.items():
        if places := [i for i, row in enumerate(rows) if row.outcome.name == name]:
            deltas = [rows[i].delta for i in places]
            ax.plot(places, deltas, marker, color=colour, label=f"{name} ({len(places)})", linestyle="", **style)
    if measured is not None:
        said = f"measured shift: {at_most(measured)}"
        ax.axhline(measured, color="black", linewidth=1, linestyle="--", label=said, zorder=1)
    ax.set_ylim(0, 1.15 * max([row.delta for row in rows] + ([] if measured is None else [measured]), default=1.0))
    label_rows(ax, labels)
    _name_axes(ax, None, "delta of the certificate", "What the new model keeps")
    if len(rows):
        legend_beside(ax)
    return ax
