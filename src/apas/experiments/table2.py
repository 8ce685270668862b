"""Table 2 of the paper (appendix): whether plausible shifts leave expected outputs alone, as natural ones do.

For each explanation, networks are drawn whose weights and biases all move by at most delta, every time from the network
itself. Asked are the average change of the output, and whether a t-test rejects that the expected output is the
original one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from apas._optional import require
from apas.display.pictures import save_figure
from apas.experiments.appendix import EPOCHS, explained
from apas.experiments.runner import Unit
from apas.models.feedforward import FeedForward
from apas.theory import is_naturally_occurring

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["PAPER", "figures", "measured", "tables", "unit", "units"]

_Array = NDArray[np.float64]
DRAWS, DELTAS, LEVEL = (1000, 10_000), (0.05, 0.1, 0.2, 0.3), 0.05
_PAPER = {
    ("credit", 1000): ((0.008, 0.9), (0.017, 1.0), (0.046, 1.0), (0.110, 1.0)),
    ("credit", 10_000): ((0.022, 0.9), (0.047, 1.0), (0.086, 1.0), (0.140, 0.9)),
    ("spam", 1000): ((0.018, 0.5), (0.034, 1.0), (0.0748, 0.9), (0.121, 1.0)),
    ("spam", 10_000): ((0.017, 0.7), (0.035, 1.0), (0.064, 1.0), (0.087, 1.0)),
    ("news", 1000): ((0.034, 0.7), (0.064, 0.8), (0.127, 0.9), (0.207, 0.9)),
    ("news", 10_000): ((0.033, 0.8), (0.063, 1.0), (0.141, 1.0), (0.173, 1.0)),
}
#: The paper's table: average difference and share of rejected tests by dataset, number of draws and delta.
PAPER: Final[Mapping[tuple[str, int, float], tuple[float, float]]] = MappingProxyType(
    {(*key, delta): pair for key, pairs in _PAPER.items() for delta, pair in zip(DELTAS, pairs, strict=True)}
)


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """One per dataset, number of draws and delta; with ``settings["quick"]`` for 1000 draws only.

    Examples
    --------
    >>> len(units({})), len(units({"quick": True}))
    (24, 12)
    """
    return [
        Unit("table2", unit, {"dataset": dataset, "draws": draws, "delta": delta}, (dataset,))
        for dataset in EPOCHS
        for draws in (DRAWS[:1] if settings.get("quick") else DRAWS)
        for delta in DELTAS
    ]


def unit(dataset: str, draws: int, delta: float) -> dict[str, Any]:
    """The explanations of a dataset under so many shifts of a size."""
    found = explained(dataset)
    facts = {
        "rows": found.rows, "features": found.network.n_features, "epochs": EPOCHS[dataset],
        "accuracy": found.accuracy, "majority": found.majority, "ones": found.ones,
        "explanations": len(found.points), "different": len(np.unique(found.points, axis=0)),
    }  # fmt: skip
    seeds = [_seed(dataset, draws, delta, i) for i in range(len(found.points))]
    return {
        "dataset": dataset, "draws": draws, "delta": delta, "network": facts,
        **measured(found.network, found.points, draws, delta, seeds),
    }  # fmt: skip


def _seed(*words: object) -> int:
    """A seed of its own for every explanation of every unit."""
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:16], "little")


def measured(
    network: FeedForward, points: _Array, draws: int, delta: float, seeds: Sequence[int]
) -> dict[str, list[Any]]:  # fmt: skip
    """What shifts do to the output at each point, each with draws of its own.

    Returns
    -------
    dict
        Per point: ``original`` and ``mean`` output, ``difference`` (mean magnitude of the change), ``t``, the
        two-sided ``p`` of the t-test, and ``shown``: whether bounds that need no normal distribution show, with
        confidence 0.95, that the expected output is another.

    Examples
    --------
    >>> found = measured(FeedForward([[[2.0]]], [[1.0]]), np.array([[1.0]]), 1000, 0.3, [0])
    >>> found["shown"], bool(found["mean"][0] < found["original"][0])
    ([False], True)
    """
    rows: dict[str, list[Any]] = {name: [] for name in ("original", "mean", "difference", "t", "p", "shown")}
    for point, seed in zip(points, seeds, strict=True):
        found = is_naturally_occurring(
            network, point[None, :], delta=delta, n_samples=draws, confidence=1 - LEVEL, rng=seed
        )
        values = (found.original, found.mean, found.difference, found.t, found.p_values, found.moved)
        for name, value in zip(rows, values, strict=True):
            rows[name].append(value[0].item())
    return rows


def tables(results: Sequence[Mapping[str, Any]]) -> dict[str, DataFrame]:
    """The paper's table with its own numbers beside ours, and what is to be known about the networks.

    In ``table2`` shares are those of the explanations: ``rejected`` by the two-sided test of the published code, with
    an expected output that is significantly ``lower`` or ``higher`` by a one-sided one, and ``shown`` without a normal
    distribution; ``moved`` is the average distance of the mean output from the original one.
    """
    import pandas as pd

    networks = {result["dataset"]: {"dataset": result["dataset"], **result["network"]} for result in results}
    return {
        "table2": pd.DataFrame([_line(result) for result in results]),
        "table2-networks": pd.DataFrame(list(networks.values())),
    }


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    t, p = np.array(result["t"]), np.array(result["p"])
    difference, rejected = PAPER[result["dataset"], result["draws"], result["delta"]]
    return {
        "dataset": result["dataset"], "n": result["draws"], "delta": str(result["delta"]),
        "difference": float(np.mean(result["difference"])), "paper": difference,
        "rejected": float((p < LEVEL).mean()), "paper rejected": rejected,
        # the two-sided value is twice that of the side the mean lies on
        "lower": float(((t < 0) & (p / 2 < LEVEL)).mean()), "higher": float(((t > 0) & (p / 2 < LEVEL)).mean()),
        "shown": float(np.mean(result["shown"])),
        "moved": float(np.abs(np.subtract(result["mean"], result["original"])).mean()),
    }  # fmt: skip


def figures(results: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Average difference and share of rejected tests against delta, ours and the paper's, a column per dataset."""
    pyplot = require("matplotlib.pyplot", feature="The figure of Table 2", extra="plot")
    table = tables(results)["table2"]
    names = list(dict.fromkeys(table["dataset"]))
    figure, axes = pyplot.subplots(
        2, len(names), figsize=(3.4 * len(names), 5), sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for column, name in enumerate(names):
        axes[0, column].set_title(name, loc="left")
        axes[1, column].set_xlabel("delta")
        for (draws, part), colour in zip(table[table["dataset"] == name].groupby("n"), ("C0", "C1"), strict=False):
            deltas = part["delta"].astype(float)
            for ax, ours, theirs in zip(
                axes[:, column], ("difference", "rejected"), ("paper", "paper rejected"), strict=True
            ):
                ax.plot(deltas, part[ours], "o-", color=colour, markersize=4, label=f"apas, n = {draws}")
                ax.plot(deltas, part[theirs], "x--", color=colour, linewidth=0.8, label=f"paper, n = {draws}")
    axes[0, 0].set_ylabel("average |new - original|")
    axes[1, 0].set_ylabel("share of rejected tests")
    axes[1, 0].set_ylim(0, 1.05)
    axes[0, 0].legend(frameon=False, fontsize="small")
    return save_figure(figure, folder, "table2")
