"""Figures 1, 2 and 3 of the paper and the network of its appendix, drawn from the objects that compute with them."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

import apas
from apas._typing import Array
from apas.display.plots import new_axes, save_figure
from apas.paper import Results, make_tables, new_figure
from apas.paper.experiment import Unit
from apas.paper.toy import TOY, TOY_DELTA
from apas.theory.shift_notions import LEMMA_EXAMPLE, UnboundedFamily

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows of the network of Figure 1, and how far its weights move, such that each case of Figure 2 occurs.
CASES: Final[Mapping[str, tuple[float, float]]] = {"a": (1.0, 0.2), "b": (1.0, 0.8), "c": (0.3, 0.9)}
DELTA: Final = 0.1
SENTENCES: Final = {
    "above": "every shifted model says 1:\nrobust",
    "across": "some say 1 and some 0:\nnot robust for every shift",
    "below": "every shifted model says 0:\nnot valid",
}
ORANGE = "#e07b00"


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """What is computed for the pictures: the three ranges of Figure 2."""
    return [Unit("drawings", place_output, {"case": name}) for name in CASES]


def place_output(case: str) -> dict[str, Any]:
    """The range of outputs over the shifted models, and bounds, with confidence 0.999, on the share that says 1."""
    model, X = LEMMA_EXAMPLE.model(), np.array([CASES[case]])
    found = apas.output_range(model, X, DELTA, target=1, method="exact")[0]
    share = apas.robust_fraction(model, X, [DELTA], target=1, rng=0)[0]
    # a margin is the output less the threshold
    low, middle, high = (v + model.threshold for v in (found.low, found.margin, found.high))
    ends = [float(share.lower[0]), float(share.upper[0])]
    return {"case": case, "side": found.side, "low": low, "output": middle, "high": high, "share": ends}


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """The ranges of Figure 2."""
    lines = [{**r, "x": CASES[r["case"]], "delta": DELTA, "confidence": "0.999"} for r in results]
    return make_tables({"figure2": lines})


def figures(results: Results, folder: Path | str) -> list[Path]:
    """Draw Figures 1, 2 and 3 and the appendix network into a folder."""
    figure3, ax = new_figure(figsize=(5.5, 2.8))
    draw_network(TOY, ax, delta=TOY_DELTA)
    _title(ax, f"The network of Section 7.1, shifted by up to {TOY_DELTA:g}")
    made = {"figure1": _figure1(), "figure2": _figure2(results), "figure3": figure3, "appendix-network": _appendix()}
    return [path for name, figure in made.items() for path in save_figure(figure, folder, name)]


POSITIVE, NEGATIVE, FREE = "#1b4f7f", "#b3261e", "#8a8a8a"
FILL = {"input": "#e8f3e8", "relu": "#eeeaf6", "output": "#fbe9e7"}
WHITE = {"facecolor": "white", "edgecolor": "none"}


class DrawnUnit(NamedTuple):
    """A unit; one without a kind is a name only."""

    name: str
    kind: str
    height: float
    bias: str = ""


def weight_colour(weight: float) -> str:
    """Blue above 0, red below, grey at 0; stronger where the weight is above 1 in size."""
    weak = {POSITIVE: "#6fa8d6", NEGATIVE: "#e39a94"}
    return weak[sign_colour(weight)] if 0 < abs(weight) <= 1 else sign_colour(weight)


def sign_colour(weight: float) -> str:
    """Blue above 0, red below, grey at 0."""
    return FREE if weight == 0 else POSITIVE if weight > 0 else NEGATIVE


def heights(count: int, spacing: float) -> list[float]:
    """Where the units of a layer are drawn, from above."""
    return [spacing * ((count - 1) / 2 - i) for i in range(count)]


def draw_layers(
    ax: "Axes",
    layers: Sequence[Sequence[DrawnUnit]],
    weights: Sequence[Array],
    label: Callable[[float], str] | None = "{:g}".format,
    *,
    width: float = 2.0,
    at: float = 0.45,
    colour: Callable[[float], str] = weight_colour,
) -> None:
    """Draw layers as columns of units, and weights, (inputs, units) each, as lines with a `label`; none for NaN."""
    for k, (before, behind) in enumerate(pairwise(layers)):
        for (i, j), w in np.ndenumerate(np.asarray(weights[k], dtype=np.float64)):
            if np.isnan(w):
                continue
            x, y0, y1, shade = width * k, before[i].height, behind[j].height, colour(w)
            ax.plot([x, x + width], [y0, y1], "--" if w == 0 else "-", color=shade, linewidth=1.3, zorder=1)
            if label is not None:
                place, box = (x + at * width, y0 + at * (y1 - y0)), {**WHITE, "pad": 1.0}
                ax.text(*place, label(w), ha="center", va="center", fontsize=9, color=shade, bbox=box, zorder=2)
    for x, unit in ((width * k, unit) for k, layer in enumerate(layers) for unit in layer):
        box = {"boxstyle": "round,pad=0.35", "facecolor": FILL.get(unit.kind, "white"), "edgecolor": "black"}
        how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "zorder": 3}
        ax.text(x, unit.height, unit.name, bbox=box if unit.kind else None, **how)
        if unit.bias:
            above: dict[str, Any] = {"xytext": (0, 12 if label is None else 17), "textcoords": "offset points"}
            above |= {"ha": "center", "fontsize": 7, "zorder": 2, "bbox": {**WHITE, "pad": 0.5}}
            ax.annotate(f"bias {unit.bias}", (x, unit.height), **above)
    ends = [unit.height for layer in layers for unit in layer]
    ax.set(xlim=(-0.7, width * (len(layers) - 1) + 0.7), ylim=(min(ends) - 0.7, max(ends) + 0.9))
    ax.axis("off")


def draw_network(
    model: apas.FeedForward,
    ax: "Axes | None" = None,
    *,
    delta: float | None = None,
    digits: int = 3,
    biases: Mapping[tuple[int, int], str] | None = None,
) -> "Axes":
    """Draw a small dense network as a graph: blue weights are above 0, red below, grey ones 0."""

    def told(weight: float) -> str:
        if delta is None:
            return f"{weight:.{digits}g}"
        low, high = (0.0 if abs(end) < 1e-12 else end for end in (weight - delta, weight + delta))
        return f"[{low:.{digits}g}, {high:.{digits}g}]"

    ax = new_axes(ax, "draw_network")
    sizes, layers = [model.n_features, *(w.shape[1] for w in model.weights)], []
    for k, size in enumerate(sizes):
        kind = "relu" if 0 < k < len(model.weights) else "output" if k else "input"
        letter, own = ("y" if k else "x"), [""] * size
        names = [f"{letter}{unit + 1}" for unit in range(size)] if size > 1 else [letter]
        names = [model.activations[k - 1]] * size if kind == "relu" else names
        if k:
            own = [f"{b:.{digits}g}" if b else "" for b in model.biases[k - 1]]
            own = [(biases or {}).get((k - 1, unit), text) if text else "" for unit, text in enumerate(own)]
        layers.append([DrawnUnit(n, kind, y, b) for n, y, b in zip(names, heights(size, 2.0), own, strict=True)])
    draw_layers(ax, layers, model.weights, told, at=0.33, colour=sign_colour)  # in the middle lines cross
    return ax


def _title(ax: "Axes", text: str) -> None:
    ax.set_title(text, loc="left", fontsize=10)


def _figure1() -> Any:
    figure, (left, right) = new_figure(1, 2, figsize=(9.5, 2.8))
    model, delta = LEMMA_EXAMPLE.model(), float(LEMMA_EXAMPLE.delta)
    value, mean = float(LEMMA_EXAMPLE.value()), float(LEMMA_EXAMPLE.expectation())
    draw_network(model, left)
    draw_network(model, right, delta=delta)
    _title(left, f"(a) the model: output {value:g} at the counterfactual (1, 0.8)")
    _title(right, f"(b) shifted by up to {delta:g}: expected output {mean:g}")
    return figure


def _figure2(results: Results) -> Any:
    figure, axes = new_figure(1, 3, figsize=(10, 2.6))
    for ax, found in zip(axes, results, strict=True):
        ax.axvline(0.5, color="black", linestyle="--", linewidth=1.2)
        ax.plot([found["low"], found["high"]], [0.6, 0.6], color=ORANGE, linewidth=5, solid_capstyle="butt")
        ax.plot([found["output"]], [0.6], "|", color="black", markersize=13, markeredgewidth=1.5)
        ax.vlines([found["low"], found["high"]], 0, 0.6, color="grey", linestyle="--", linewidth=0.8)
        ax.set(xlim=(-0.6, 1.4), ylim=(0, 1), yticks=[], xticks=[-0.5, 0, 0.5, 1])
        for side in ("left", "right", "top"):
            ax.spines[side].set_visible(False)
        _title(ax, f"({found['case']}) {SENTENCES[found['side']]}")
        if found["side"] == "across":
            low, high = math.floor(100 * found["share"][0]), math.ceil(100 * found["share"][1])
            ax.text(0.02, 0.8, f"1: {low} to {high} % of them\n(confidence 0.999)", transform=ax.transAxes, fontsize=8)
    outputs = f"outputs of the models whose weights are shifted by up to {DELTA:g}"
    axes[1].set_xlabel(f"{outputs}; the bar is the model's own")
    return figure


def _appendix() -> Any:
    data = np.array([[0.2], [0.5], [0.6], [1.0]])
    family = UnboundedFamily.of(data)
    figure, (left, right) = new_figure(1, 2, figsize=(10, 3.0))
    draw_network(family.model(), left, biases={(0, 0): "-(theta + tau)"})
    _title(left, "theta is the largest number of the data; tau shifts the bias")
    line = np.linspace(0, 3.2, 321)[:, None]
    for tau in (0.0, 0.5, 1.0, 1.5):
        model = family.model(tau)
        right.plot(line[:, 0], model.margin(line, 1) + model.threshold, linewidth=1.5, label=f"tau = {tau:g}")
    right.plot(data[:, 0], np.full(len(data), 0.5), "o", color="black", label="the data", zorder=4)
    right.set(ylim=(-0.03, 0.6), xlabel="x", ylabel="output")
    _title(right, "Whatever tau is, the output is 1/2 on the data")
    right.legend(frameon=False, fontsize=8, loc="lower left")
    return figure
