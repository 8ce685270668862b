"""Section 7.1 of the paper: one input, two relu units, one output, of which the four weights move.

The largest delta by interval bounds, by the paper's search and along rays; how many draws the paper's claim needs; and
the share of valid shifts at each delta found, computed by cutting up the box of shifts (Algorithm 3).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from apas.bounds.shiftbox import ShiftBox
from apas.certify.enumeration import Enumeration
from apas.certify.fraction import robust_fraction
from apas.certify.radius import max_shift
from apas.certify.sampling import Sampling
from apas.display.numbers import at_least, at_most
from apas.experiments.doubling import published_delta
from apas.experiments.halving import RULES, levels_of
from apas.experiments.published import PublishedSampling
from apas.experiments.runner import Unit
from apas.models.feedforward import FeedForward
from apas.shifts.linf import LinfShifts
from apas.stats import coverage_lower, sample_size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TOY", "TOY_DELTA", "TOY_SHIFTS", "TOY_X", "figures", "find_delta", "halve", "tables", "units"]

#: The network, with the six decimals that its authors give; all biases are 0 and do not move.
TOY: Final = FeedForward([[[-0.365079, -0.873838]], [[-1.023650], [0.811177]]], [[0.0, 0.0], [0.0]])
TOY_X: Final = np.array([[-2.57477835]])
TOY_SHIFTS: Final = LinfShifts(kinds=("weight",))
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
GAP, BUDGETS = 1e-3, (1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 2047, 4095)
#: How many levels are halved at the paper's delta, and at one where the valid share is near the paper's coverage.
LEVELS: Final[Mapping[float, int]] = {TOY_DELTA: 10, 0.27: 12}
#: Numbers of draws that the paper and its program state, with coverage and risk.
STATED: Final = (
    ("program", 0.9, 1e-4, 87),
    ("Section 7.1", 0.9, 1e-40, 100_000),
    ("Section 6", 0.995, 1e-3, 1378),
)


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """Pieces of work; with ``settings["quick"]`` fewer repetitions of what is random."""
    repeated = 3 if settings.get("quick") else 11
    found = [
        Unit("toy", find_delta, {"search": name, "repetitions": repeated if _is_random(name) else 1})
        for name in SEARCHES
    ]
    cut = [(rule, delta) for delta in LEVELS for rule in (*RULES, "enumeration")]
    return found + [Unit("toy", halve, {"rule": rule, "delta": delta}) for rule, delta in cut]


def _is_random(search: str) -> bool:
    return search not in ("interval", "paper, its draws")


def find_delta(search: str, repetitions: int) -> dict[str, Any]:
    """The largest delta by one of `SEARCHES`, with seeds 0, 1, ...; and the valid share at the median one.

    Examples
    --------
    >>> found = find_delta("interval", 1)
    >>> round(found["delta"], 4), found["share"][0] > 0.999
    (0.109, True)
    """
    deltas = [_delta(search, seed) for seed in range(repetitions)]
    middle = statistics.median_low(deltas)
    method = Enumeration(gap=GAP)
    curve = robust_fraction(TOY, TOY_X, [middle], target=1, shifts=TOY_SHIFTS, method=method)[0]
    share = [float(curve.lower[0]), float(curve.upper[0])]
    return {"search": search, "delta": middle, "least": min(deltas), "largest": max(deltas), "share": share}


def _delta(search: str, seed: int) -> float:
    draws = SEARCHES[search][0]
    if search == "paper, its draws":
        return float(published_delta(TOY, TOY_X, PublishedSampling(n_samples=draws), TOY_SHIFTS)[0])
    if search == "interval":
        return max_shift(TOY, TOY_X, target=1, shifts=TOY_SHIFTS, method="interval")[0].delta
    method = Sampling(coverage=COVERAGE, confidence=CONFIDENCE, n_samples=draws)
    way = "paper" if search.startswith("paper") else "rays"
    return max_shift(TOY, TOY_X, target=1, shifts=TOY_SHIFTS, method=method, search=way, rng=seed)[0].delta


def halve(rule: str, delta: float) -> dict[str, Any]:
    """Cut up the box: level by level for a rule of `RULES`, else bounds from ever more boxes of `Enumeration`."""
    if rule in RULES:
        box = ShiftBox(TOY, TOY_X[0], 1, TOY_SHIFTS.radii(TOY.parameters), delta)
        levels = [level.to_dict() for level in levels_of(box, rule, most=LEVELS[delta])]
        return {"rule": rule, "delta": delta, "levels": levels}
    bounds = []
    for boxes in BUDGETS:
        method = Enumeration(gap=1e-6, max_boxes=boxes)
        curve = robust_fraction(TOY, TOY_X, [delta], target=1, shifts=TOY_SHIFTS, method=method)[0]
        bounds.append([boxes, float(curve.lower[0]), float(curve.upper[0])])
    return {"rule": rule, "delta": delta, "bounds": bounds}


def tables(results: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Deltas, draws and the progress of the tree, ours beside the paper's."""
    import pandas as pd

    found = pd.DataFrame([_line(r) for r in results if "search" in r])
    needed = pd.DataFrame(
        [
            {
                "stated in": where, "coverage": str(coverage), "1 - confidence": f"{risk:g}", "draws stated": stated,
                "draws needed": sample_size(coverage=coverage, log_risk=math.log(risk)),
            }
            for where, coverage, risk, stated in STATED
        ]
    )  # fmt: skip
    progress = pd.DataFrame([line for r in results if "levels" in r for line in _progress(r)])
    bounds = pd.DataFrame(
        [
            {
                "delta": str(r["delta"]),
                "boxes at most": boxes,
                "share at least": at_least(low),
                "share at most": at_most(high),
            }
            for r in results
            if "bounds" in r
            for boxes, low, high in r["bounds"]
        ]
    )
    return {"toy-delta": found, "toy-draws": needed, "toy-halving": progress, "toy-enumeration": bounds}


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    draws, printed = SEARCHES[result["search"]]
    # what is certified must not grow by being written; the paper's search ends on multiples of 5e-5
    written = "{:.5f}".format if result["search"].startswith("paper") else at_least
    return {
        "search": result["search"], "draws": draws, "claim": _claim(result["search"], draws),
        "delta": written(result["delta"]), "least": written(result["least"]), "largest": written(result["largest"]),
        "paper": "-" if printed is None else str(printed), "share at least": at_least(result["share"][0]),
        "share at most": at_most(result["share"][1]),
    }  # fmt: skip


def _claim(search: str, draws: int) -> str:
    if search == "interval":
        return "every shift"
    if search.startswith("rays"):
        return f"{100 * COVERAGE:g} % of the shifts, confidence {CONFIDENCE}"
    shown = math.floor(1e6 * coverage_lower(draws, 0, confidence=CONFIDENCE)) / 1e6
    return f"{100 * shown:.4f} % of the shifts, confidence {CONFIDENCE} per test only"


def _progress(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "delta": str(result["delta"]), "rule": result["rule"], "level": level["number"],
            "looked at": level["looked"], "valid": repr(level["valid"]),
            "failing": repr(level["failing"]), "open": repr(level["open"]), "open parts": level["states"].count(0),
            "halves to look at": 2 * level["states"].count(0),
        }
        for level in result["levels"]
    ]  # fmt: skip


def figures(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """The progress of the tree as a picture."""
    from apas.experiments.halvingfigure import draw_halving

    return draw_halving([r for r in results if "rule" in r], folder)
