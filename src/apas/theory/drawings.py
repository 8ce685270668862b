"""Pictures of the gadgets and of a whole network of Theorem 1, with matplotlib imported when one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from apas._optional import require
from apas.display.graphs import Edge, Node, draw_graph, weight_colour
from apas.display.plots import new_axes
from apas.theory.hardness import Reduction, Unit, clause_unit, discretizer_units, generating_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LETTERS = ("chi", "p", "q", "t")


def draw_gadgets() -> Figure:
    """Draw the five gadgets, each with what it does."""
    plt = require("matplotlib.pyplot", feature="draw_gadgets", extra="plot")
    figure, axes = plt.subplots(1, 5, figsize=(15, 3.6), layout="constrained")
    negated, clause = clause_unit([-1]), clause_unit([1, -2, 3])
    pictures: list[tuple[str, str, list[Node], list[Edge]]] = [
        ("Generating", "shifts move chi to any number\nfrom 0 to 1", *_units(["x"], [generating_unit()], ["chi"])),
        (
            "Discretizer",
            "p + q is 1 where chi is 0 or 1,\nless between",
            *_units(["chi"], discretizer_units(0), ["p", "q"]),
        ),
        ("Negation", "not x is 1 - chi, so what is\nmissing to truth is chi", *_units(["chi"], [negated], ["t"])),
        (
            "Clause",
            "x1 or not x2 or x3:\nt is 1 if none is true, else 0",
            *_units(["chi 1", "chi 2", "chi 3"], [clause], ["t"]),
        ),
        ("Conjunction and end", "at or above 0 only if the assignment\nnearest to the chi breaks no clause", *_end()),
    ]
    for ax, (title, text, nodes, edges) in zip(axes, pictures, strict=True):
        draw_graph(ax, nodes, edges, labels=True)
        ax.set_title(title, loc="left", fontweight="bold")
        ax.text(0.5, -0.02, text, transform=ax.transAxes, ha="center", va="top", fontsize=9)
    return figure  # type: ignore[no-any-return]


def draw_reduction(hard: Reduction, ax: Axes | None = None) -> Axes:
    """Draw the whole network of a formula: weights by colour, zeros only where they choose the assignment.

    All parameters move by up to delta, those that are not drawn as well.
    """
    ax = new_axes(ax, "draw_reduction")
    n, m = hard.formula.variables, len(hard.formula.needed)
    chi, p, q, t = ([f"{letter} {i + 1}" for i in range(k)] for letter, k in zip(_LETTERS, (n, n, n, m), strict=True))
    names = [["x"], chi, [*p, *q, *t], ["z"]]
    order = [[0], list(range(n)), [*(k for i in range(n) for k in (i, n + i)), *range(2 * n, len(names[2]))], [0]]
    nodes: list[Node] = []
    where: list[dict[int, int]] = []
    for layer, column in enumerate(names):
        where.append({})
        for rank, unit in enumerate(order[layer]):
            kind = "input" if layer == 0 else "output" if layer == 3 else "relu"
            bias = "" if layer == 0 else f"{hard.model.biases[layer - 1][unit]:.4g}"
            height = (len(order[layer]) - 1) / 2 - rank
            spacing = max(1.0, (len(names[2]) - 1) / max(1, len(order[layer])))
            where[layer][unit] = len(nodes)
            nodes.append(Node(column[unit], kind, (3.4 * layer, spacing * height), bias))
    edges = [
        Edge(where[layer][i], where[layer + 1][j], float(w[i, j]))
        for layer, w in enumerate(hard.model.weights)
        for i in range(w.shape[0])
        for j in range(w.shape[1])
        if w[i, j] or layer == 0
    ]
    draw_graph(ax, nodes, edges, labels=False)
    ax.set_title(str(hard.formula), loc="left", fontsize=10)
    handles = [ax.plot([], [], color=colour, label=label)[0] for colour, label in _legend(edges)]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(handles), frameon=False)
    return ax


def _units(inputs: Sequence[str], units: Sequence[Unit], names: Sequence[str]) -> tuple[list[Node], list[Edge]]:
    """Units of one layer and what enters them."""
    kind = "input" if inputs[0] == "x" else "relu"
    nodes = [Node(name, kind, (0.0, (len(inputs) - 1) / 2 - i)) for i, name in enumerate(inputs)]
    for j, (unit, name) in enumerate(zip(units, names, strict=True)):
        nodes.append(Node(name, "relu", (2.0, (len(units) - 1) / 2 - j), str(unit.bias)))
    edges = [Edge(i, len(inputs) + j, w) for j, unit in enumerate(units) for i, w in unit.weights.items()]
    return nodes, edges


def _end() -> tuple[list[Node], list[Edge]]:
    names = ["p 1, q 1", "...", "p n, q n", "t 1", "...", "t m"]
    nodes = [Node(name, "relu" if name != "..." else "", (0.0, 2.0 - 0.8 * i)) for i, name in enumerate(names)]
    nodes.append(Node("z", "output", (2.0, 0.0), "gap/2 - n"))
    return nodes, [Edge(i, 6, 1.0 if i < 3 else -1.0) for i in (0, 2, 3, 5)]


def _legend(edges: Sequence[Edge]) -> list[tuple[str, str]]:
    sizes = sorted({e.weight for e in edges})
    return [(weight_colour(w), f"weight {w:g}" + (", chooses the assignment" if w == 0 else "")) for w in sizes]
