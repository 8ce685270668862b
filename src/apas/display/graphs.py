"""Networks as graphs: units as boxes, weights on the lines between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


POSITIVE, NEGATIVE, FREE = "#1b4f7f", "#b3261e", "#8a8a8a"
WEAK_POSITIVE, WEAK_NEGATIVE = "#6fa8d6", "#e39a94"
FILL = {"input": "#e8f3e8", "relu": "#eeeaf6", "output": "#fbe9e7"}
WHITE = {"facecolor": "white", "edgecolor": "none"}


@dataclass(frozen=True)
class Node:
    """A unit."""

    name: str
    kind: str
    place: tuple[float, float]
    bias: str = ""


@dataclass(frozen=True)
class Edge:
    """A weight between two units, given by their numbers, and what is written on it instead of the weight."""

    start: int
    end: int
    weight: float
    label: str | None = None


def weight_colour(weight: float) -> str:
    """Blue above 0, red below, grey at 0; stronger where the weight is above 1 in size."""
    if 0 < abs(weight) <= 1:
        return WEAK_POSITIVE if weight > 0 else WEAK_NEGATIVE
    return sign_colour(weight)


def sign_colour(weight: float) -> str:
    """Blue above 0, red below, grey at 0."""
    return FREE if weight == 0 else POSITIVE if weight > 0 else NEGATIVE


def draw_graph(
    ax: Axes,
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    *,
    labels: bool,
    at: float = 0.45,
    colour: Callable[[float], str] = weight_colour,
) -> None:
    """Draw units and lines; weights stand on the lines if there is room for `labels`."""
    for edge in edges:
        (x0, y0), (x1, y1) = nodes[edge.start].place, nodes[edge.end].place
        style, shade = "--" if edge.weight == 0 else "-", colour(edge.weight)
        ax.plot([x0, x1], [y0, y1], style, color=shade, linewidth=1.3, zorder=1)
        if labels:
            text = f"{edge.weight:g}" if edge.label is None else edge.label
            x, y, box = x0 + at * (x1 - x0), y0 + at * (y1 - y0), {**WHITE, "pad": 1.0}
            ax.text(x, y, text, ha="center", va="center", fontsize=9, color=shade, bbox=box, zorder=2)
    for node in nodes:
        x, y = node.place
        box = {"boxstyle": "round,pad=0.35", "facecolor": FILL.get(node.kind, "white"), "edgecolor": "black"}
        ax.text(x, y, node.name, ha="center", va="center", fontsize=9, zorder=3, bbox=box if node.kind else None)
        if node.bias:
            above: dict[str, Any] = {"xytext": (0, 17 if labels else 12), "textcoords": "offset points", "ha": "center"}
            ax.annotate(f"bias {node.bias}", (x, y), **above, fontsize=7, zorder=2, bbox={**WHITE, "pad": 0.5})
    xs, ys = zip(*(node.place for node in nodes), strict=True)
    ax.set_xlim(min(xs) - 0.7, max(xs) + 0.7)
    ax.set_ylim(min(ys) - 0.7, max(ys) + 0.9)
    ax.axis("off")
