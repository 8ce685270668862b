"""Pictures of the gadgets and of a whole network of Theorem 1, with matplotlib imported when one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apas._optional import require
from apas.display.plots import new_axes
from apas.theory.gadgets import Unit, clause_unit, discretizer_units, generating_unit
from apas.theory.hardness import Reduction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_gadgets", "draw_reduction"]

POSITIVE, NEGATIVE, FREE = "#1b4f7f", "#b3261e", "#8a8a8a"
_LETTERS = ("chi", "p", "q", "t")
FILL = {"input": "#e8f3e8", "relu": "#eeeaf6", "output": "#fbe9e7"}


@dataclass(frozen=True)
class _Node:
    name: str
    kind: str
    place: tuple[float, float]
    bias: str = ""


@dataclass(frozen=True)
class _Edge:
    start: int
    end: int
    weight: float


def draw_gadgets() -> Figure:
    """Draw the five gadgets, each with what it does.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = draw_gadgets()
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['Generating', 'Discretizer', 'Negation', 'Clause', 'Conjunction and end']
    """
    plt = require("matplotlib.pyplot", feature="draw_gadgets", extra="plot")
    figure, axes = plt.subplots(1, 5, figsize=(15, 3.6), layout="constrained")
    negated, clause = clause_unit([-1]), clause_unit([1, -2, 3])
    pictures: list[tuple[str, str, list[_Node], list[_Edge]]] = [
        ("Generating", "shifts move chi to any number\nfrom 0 to 1", *_units(["x"], [generating_unit()], ["chi"])),
        ("Discretizer", "p + q is 1 where chi is 0 or 1,\nless between",
         *_units(["chi"], discretizer_units(0), ["p", "q"])),
        ("Negation", "not x is 1 - chi, so what is\nmissing to truth is chi", *_units(["chi"], [negated], ["t"])),
        ("Clause", "x1 or not x2 or x3:\nt is 1 if none is true, else 0",
         *_units(["chi 1", "chi 2", "chi 3"], [clause], ["t"])),
        ("Conjunction and end", "at or above 0 only if the assignment\nnearest to the chi breaks no clause", *_end()),
    ]  # fmt: skip
    for ax, (title, text, nodes, edges) in zip(axes, pictures, strict=True):
        _graph(ax, nodes, edges, labels=True)
        ax.set_title(title, loc="left", fontweight="bold")
        ax.text(0.5, -0.02, text, transform=ax.transAxes, ha="center", va="top", fontsize=9)
    return figure  # type: ignore[no-any-return]


def draw_reduction(hard: Reduction, ax: Axes | None = None) -> Axes:
    """Draw the whole network of a formula: weights by colour, zeros only where they choose the assignment.

    All parameters move by up to delta, those that are not drawn as well.

    Parameters
    ----------
    hard : Reduction
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from apas.theory import Formula, reduction
    >>> draw_reduction(reduction(Formula(2, [[1, -2]]))).get_title(loc="left")
    '(x1 or not x2)'
    """
    ax = new_axes(ax, "draw_reduction")
    n, m = hard.formula.variables, len(hard.formula.needed)
    chi, p, q, t = ([f"{letter} {i + 1}" for i in range(k)] for letter, k in zip(_LETTERS, (n, n, n, m), strict=True))
    names = [["x"], chi, [*p, *q, *t], ["z"]]
    order = [[0], list(range(n)), [*(k for i in range(n) for k in (i, n + i)), *range(2 * n, len(names[2]))], [0]]
    nodes: list[_Node] = []
    where: list[dict[int, int]] = []
    for layer, column in enumerate(names):
        where.append({})
        for rank, unit in enumerate(order[layer]):
            kind = "input" if layer == 0 else "output" if layer == 3 else "relu"
            bias = "" if layer == 0 else f"{hard.model.biases[layer - 1][unit]:.4g}"
            height = (len(order[layer]) - 1) / 2 - rank
            spacing = max(1.0, (len(names[2]) - 1) / max(1, len(order[layer])))
            where[layer][unit] = len(nodes)
            nodes.append(_Node(column[unit], kind, (3.4 * layer, spacing * height), bias))
    edges = [
        _Edge(where[layer][i], where[layer + 1][j], float(w[i, j]))
        for layer, w in enumerate(hard.model.weights)
        for i in range(w.shape[0])
        for j in range(w.shape[1])
        if w[i, j] or layer == 0
    ]
    _graph(ax, nodes, edges, labels=False)
    ax.set_title(str(hard.formula), loc="left", fontsize=10)
    handles = [ax.plot([], [], color=colour, label=label)[0] for colour, label in _legend(edges)]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(handles), frameon=False)
    return ax


def _units(inputs: Sequence[str], units: Sequence[Unit], names: Sequence[str]) -> tuple[list[_Node], list[_Edge]]:
    """Units of one layer and what enters them."""
    kind = "input" if inputs[0] == "x" else "relu"
    nodes = [_Node(name, kind, (0.0, (len(inputs) - 1) / 2 - i)) for i, name in enumerate(inputs)]
    for j, (unit, name) in enumerate(zip(units, names, strict=True)):
        nodes.append(_Node(name, "relu", (2.0, (len(units) - 1) / 2 - j), str(unit.bias)))
    edges = [_Edge(i, len(inputs) + j, w) for j, unit in enumerate(units) for i, w in unit.weights.items()]
    return nodes, edges


def _end() -> tuple[list[_Node], list[_Edge]]:
    names = ["p 1, q 1", "...", "p n, q n", "t 1", "...", "t m"]
    nodes = [_Node(name, "relu" if name != "..." else "", (0.0, 2.0 - 0.8 * i)) for i, name in enumerate(names)]
    nodes.append(_Node("z", "output", (2.0, 0.0), "gap/2 - n"))
    return nodes, [_Edge(i, 6, 1.0 if i < 3 else -1.0) for i in (0, 2, 3, 5)]


def _legend(edges: Sequence[_Edge]) -> list[tuple[str, str]]:
    sizes = sorted({e.weight for e in edges})
    return [(_colour(w), f"weight {w:g}" + (", chooses the assignment" if w == 0 else "")) for w in sizes]


def _colour(weight: float) -> Any:
    if weight == 0:
        return FREE
    strong = abs(weight) > 1
    return {(True, True): POSITIVE, (True, False): "#6fa8d6", (False, True): NEGATIVE, (False, False): "#e39a94"}[
        (weight > 0, strong)
    ]


def _graph(ax: Axes, nodes: Sequence[_Node], edges: Sequence[_Edge], *, labels: bool) -> None:
    """Circles and arrows; biases above the units, weights on the arrows if there is room for `labels`."""
    for edge in edges:
        (x0, y0), (x1, y1) = nodes[edge.start].place, nodes[edge.end].place
        style = "--" if edge.weight == 0 else "-"
        ax.plot([x0, x1], [y0, y1], style, color=_colour(edge.weight), linewidth=1.3, zorder=1)
        if labels:
            ax.text(
                x0 + 0.45 * (x1 - x0), y0 + 0.45 * (y1 - y0), f"{edge.weight:g}", ha="center", va="center", fontsize=9,
                color=_colour(edge.weight), bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0}, zorder=2,
            )  # fmt: skip
    for node in nodes:
        x, y = node.place
        box = {"boxstyle": "round,pad=0.35", "facecolor": FILL.get(node.kind, "white"), "edgecolor": "black"}
        ax.text(x, y, node.name, ha="center", va="center", fontsize=9, zorder=3, bbox=box if node.kind else None)
        if node.bias:
            offset = (0, 17) if labels else (0, 12)
            ax.annotate(
                f"bias {node.bias}",
                (x, y),
                xytext=offset,
                textcoords="offset points",
                ha="center",
                fontsize=7,
                zorder=2,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    xs, ys = zip(*(node.place for node in nodes), strict=True)
    ax.set_xlim(min(xs) - 0.7, max(xs) + 0.7)
    ax.set_ylim(min(ys) - 0.7, max(ys) + 0.9)
    ax.axis("off")
