"""Section 7.1 of the paper: one input, two relu units, one output, of which the four weights move.

The largest delta in several ways, how many draws the paper's claim needs, and the share of valid shifts at each delta
found. `apas.Enumeration` is what to use for that; the paper's plain procedure (Algorithm 3) is here to see what its
rule for choosing the weight to halve is worth, and to be drawn.
"""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

import apas
from apas.display.numbers import at_least
from apas.display.plots import save_figure
from apas.paper import Results, make_tables, new_figure
from apas.paper.experiment import Unit
from apas.paper.published import PublishedSampling, published_delta
from apas.stats import coverage_lower, sample_size

#: Which weight of an open part is halved: "first" always the first one of the network, as the published program does;
#: "effect" the one with the largest effect on the margin.
RULES: Final = ("first", "effect")


def levels_of(network: apas.IntervalNetwork, rule: str, *, most: int) -> list[dict[str, Any]]:
    """Halve an interval network of the toy network level by level; of each level its parts and what is settled."""
    # level 1 is the whole box, and parts of level s have the volume 2**(1 - s); `places` are where parts lie when the
    # halves of each are laid side by side in the unit interval; a state is 1 if all shifts of a part are valid, -1 if
    # all fail, 0 if it is open; `looked` counts parts on this level and before; the three shares add up to 1
    parts, places, looked, valid, failing = [network], [0.0], 0, 0.0, 0.0
    levels: list[dict[str, Any]] = []
    for number in range(1, most + 1):
        size, ends = 2.0 ** (1 - number), [part.reach(TOY_X) for part in parts]
        states = [int(low[0] > 0) - int(high[0] < 0) for low, high in ends]
        looked += len(states)
        valid, failing = valid + size * states.count(1), failing + size * states.count(-1)
        rest = [i for i, state in enumerate(states) if not state]
        level: dict[str, Any] = {"number": number, "places": places, "states": states, "looked": looked}
        levels.append({**level, "valid": valid, "failing": failing, "open": size * len(rest)})
        if not rest:
            break
        chosen = [0 if rule == "first" else int(parts[i].effects(TOY_X).argmax()) for i in rest]
        parts = [half for i, parameter in zip(rest, chosen, strict=True) for half in parts[i].split(parameter)]
        places = [places[i] + side for i in rest for side in (0.0, 0.5 * size)]
    return levels


#: Colours of parts that are valid, open and failing, and of the rules.
STATES: Final = {1: "#1b7f4d", 0: "#d9d9d9", -1: "#b3261e"}
RULE_NAMES: Final = {
    "first": ("first weight only, as published", "#b3261e"),
    "effect": ("weight with the largest effect", "#1b4f7f"),
    "enumeration": ("apas.Enumeration, which also counts\nshares of open parts", "#1b7f4d"),
}
SHOWN = 7  # how many levels are drawn


def figures(results: Results, folder: Path | str) -> list[Path]:
    """The progress of the tree as a picture: what `halve` gave, for two deltas and three rules."""
    figure, axes = new_figure(2, 2, feature="the figure of Algorithm 3", figsize=(11, 7.5))
    results = [r for r in results if "rule" in r]
    deltas = list(dict.fromkeys(r["delta"] for r in results))
    for ax, rule in zip(axes[0], RULES, strict=True):
        for result in results:
            if result["rule"] == rule and result["delta"] == deltas[0]:
                _parts(ax, result["levels"][:SHOWN])
        ax.set_title(f"Halved: {RULE_NAMES[rule][0]} (delta = {deltas[0]:g})", loc="left", fontsize=10)
    for ax, delta in zip(axes[1], deltas, strict=True):
        _shares(ax, [r for r in results if r["delta"] == delta])
        ax.set_title(f"Bounds of the valid share (delta = {delta:g})", loc="left", fontsize=10)
    handles = [axes[0, 1].fill([], [], color=STATES[s])[0] for s in (1, 0)]
    axes[0, 1].legend(handles, ["all shifts valid", "open"], loc="center", bbox_to_anchor=(0.6, 0.35), frameon=False)
    axes[1, 0].legend(loc="lower right", fontsize=9, frameon=False)
    return save_figure(figure, folder, "toy-halving")


def _parts(ax: Any, levels: Results) -> None:
    """Every part as a piece of its level's bar, as wide as its volume; what was settled above is left white."""
    for level in levels:
        colours, number = [STATES[s] for s in level["states"]], level["number"]
        how = {"color": colours, "edgecolor": "white", "linewidth": 0.5}
        ax.barh([number] * len(colours), 2.0 ** (1 - number), 0.82, level["places"], **how)
        # just beyond the bars, where nothing else is drawn
        ax.text(1.01, number, f"{100 * level['valid']:.6g} %", va="center", fontsize=8)
    ax.set(xlim=(0, 1.15), xticks=[0, 0.25, 0.5, 0.75, 1], xlabel="volume; right: share proved valid so far")
    ax.set(ylim=(len(levels) + 0.6, 0.4), yticks=range(1, len(levels) + 1), ylabel="level")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _shares(ax: Any, results: Results) -> None:
    """The share proved valid, and one less the share proved failing, against the number of parts looked at."""
    for result in results:
        label, colour = RULE_NAMES[result["rule"]]
        points = [(level["looked"], level["valid"], 1 - level["failing"]) for level in result.get("levels", ())]
        looked, low, high = zip(*(result.get("bounds") or points), strict=True)
        ax.plot(looked, low, "o-", color=colour, markersize=3, linewidth=1.2, label=label)
        ax.plot(looked, high, "o--", color=colour, markersize=3, linewidth=1.0)
    ax.axhline(0.9, color="black", linewidth=0.8, linestyle=":", label="coverage that is asked for")
    ax.set(xscale="log", xlabel="parts looked at (full lines: at least; dashed: at most)")
    ax.set(ylim=(-0.03, 1.05), ylabel="share of valid shifts")
    # beyond the levels that were halved, nothing is left to compare
    ax.set_xlim(0.8, 1.3 * max(level["looked"] for r in results for level in r.get("levels", ())))


#: The network, with the six decimals that its authors give; all biases are 0 and do not move.
TOY: Final = apas.FeedForward([[[-0.365079, -0.873838]], [[-1.023650], [0.811177]]], [[0.0, 0.0], [0.0]])
TOY_X: Final = np.array([[-2.57477835]])
TOY_SHIFTS: Final = apas.LinfShifts(kinds=("weight",))
#: The paper's coverage R and, of its program, the confidence alpha; its number of draws, and the delta it found.
COVERAGE, CONFIDENCE, DRAWS, TOY_DELTA = 0.9, 0.9999, 100_000, 0.115
#: What is asked, with the number of draws; and what the paper's program printed.
SEARCHES: Final[Mapping[str, tuple[int, float | None]]] = {
    "interval": (0, 0.1090),
    "paper, its draws": (DRAWS, 0.11505),
    "paper, own draws": (DRAWS, None),
    "rays, fewest draws": (sample_size(coverage=COVERAGE, confidence=CONFIDENCE), None),
    "rays": (DRAWS, None),
}
#: How close the bounds of the valid share come, and at which numbers of boxes they are looked at.
GAP, BUDGETS = 1e-3, tuple(2**k - 1 for k in range(1, 13))
#: How many levels are halved at the paper's delta, and at one where the valid share is near the paper's coverage.
LEVELS: Final[Mapping[float, int]] = {TOY_DELTA: 10, 0.27: 12}
#: Numbers of draws that the paper and its program state, with coverage and risk.
STATED: Final = (("program", 0.9, 1e-4, 87), ("Section 7.1", 0.9, 1e-40, 100_000), ("Section 6", 0.995, 1e-3, 1378))


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """Pieces of work; with ``settings["quick"]`` fewer repetitions of what is random."""
    repeated, certain = 3 if settings.get("quick") else 11, ("interval", "paper, its draws")
    times = {name: 1 if name in certain else repeated for name in SEARCHES}
    found = [Unit("toy", find_delta, {"search": name, "repetitions": n}) for name, n in times.items()]
    cut = [(rule, delta) for delta in LEVELS for rule in (*RULES, "enumeration")]
    return found + [Unit("toy", halve, {"rule": rule, "delta": delta}) for rule, delta in cut]


def find_delta(search: str, repetitions: int) -> dict[str, Any]:
    """The largest delta by one of `SEARCHES`, with seeds 0, 1, ...; and the valid share at the median one."""
    deltas = [_delta(search, seed) for seed in range(repetitions)]
    middle = statistics.median_low(deltas)
    share = _valid_share(middle, apas.Enumeration(gap=GAP))
    return {"search": search, "delta": middle, "least": min(deltas), "largest": max(deltas), "share": share}


def _valid_share(delta: float, method: apas.Enumeration) -> list[float]:
    """Bounds of the share of valid shifts."""
    curve = apas.robust_fraction(TOY, TOY_X, [delta], target=1, shifts=TOY_SHIFTS, method=method)[0]
    return [float(curve.lower[0]), float(curve.upper[0])]


def _delta(search: str, seed: int) -> float:
    draws = SEARCHES[search][0]
    if search == "paper, its draws":
        return float(published_delta(TOY, TOY_X, PublishedSampling(n_samples=draws), TOY_SHIFTS)[0])
    how: dict[str, Any] = {"method": "interval"}
    if search != "interval":
        method = apas.Sampling(coverage=COVERAGE, confidence=CONFIDENCE, n_samples=draws)
        how = {"method": method, "search": "paper" if search.startswith("paper") else "rays", "rng": seed}
    return apas.max_shift(TOY, TOY_X, target=1, shifts=TOY_SHIFTS, **how)[0].delta


def halve(rule: str, delta: float) -> dict[str, Any]:
    """Cut up the box: level by level for a rule of `RULES`, else bounds from ever more boxes of `Enumeration`."""
    if rule in RULES:
        whole = apas.IntervalNetwork.of(TOY, delta, shifts=TOY_SHIFTS)
        return {"rule": rule, "delta": delta, "levels": levels_of(whole, rule, most=LEVELS[delta])}
    bounds = [[boxes, *_valid_share(delta, apas.Enumeration(gap=1e-6, max_boxes=boxes))] for boxes in BUDGETS]
    return {"rule": rule, "delta": delta, "bounds": bounds}


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """Deltas, draws and the progress of the tree, ours beside the paper's."""
    needed = [
        {"where": where, "coverage": coverage, "risk": risk, "stated": stated}
        | {"needed": sample_size(coverage=coverage, log_risk=math.log(risk))}
        for where, coverage, risk, stated in STATED
    ]
    opened = [(r, level, level["states"].count(0)) for r in results for level in r.get("levels", ())]
    halving = [{**r, **level, "parts": count, "halves": 2 * count} for r, level, count in opened]
    names = ("boxes", "low", "high")
    bounds = [{**r, **dict(zip(names, line, strict=True))} for r in results for line in r.get("bounds", ())]
    deltas = [_line(r) for r in results if "search" in r]
    return make_tables({"toy-delta": deltas, "toy-draws": needed, "toy-halving": halving, "toy-enumeration": bounds})


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    draws, printed = SEARCHES[result["search"]]
    # what is certified must not grow by being written; the paper's search ends on multiples of 5e-5
    written = "{:.5f}".format if result["search"].startswith("paper") else at_least
    deltas = {name: written(result[name]) for name in ("delta", "least", "largest")}
    return {**result, **deltas, "draws": draws, "claim": _claim(result["search"], draws), "printed": printed}


def _claim(search: str, draws: int) -> str:
    if search == "interval":
        return "every shift"
    if search.startswith("rays"):
        return f"{100 * COVERAGE:g} % of the shifts, confidence {CONFIDENCE}"
    shown = math.floor(1e6 * coverage_lower(draws, 0, confidence=CONFIDENCE)) / 1e6
    return f"{100 * shown:.4f} % of the shifts, confidence {CONFIDENCE} per test only"
