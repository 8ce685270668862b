"""Tables and pictures of the league: what was found, how it fared before the judges, what it cost, who beats whom."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.stats import binom

from apas._lazy import require
from apas._typing import Floats
from apas.display.plots import save_figure
from apas.stats.binomial import clopper_pearson

SAME, LATER = "bootstrap of D1", "bootstrap of D1 and D2"
PROCESSES: Final = (SAME, LATER)
OURS = "SpreadPath"  # the source that was tuned, and frozen before the other tables were run
COVERAGE, CONFIDENCE = 0.95, 0.95  # of the certified offers, and of all intervals here
RISK = 0.0005  # a claim of 95 % counts as shown to be false if so few judges accept that this is less likely
RESAMPLES = 2000
ENOUGH = 0.5  # what finds a row for fewer of the inputs is drawn hollow, and is on no frontier


def row_table(results: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A line per row that was found and process that judges it; `made for` is that process, or SAME for surprises."""
    parts = []
    for r in results:
        for line in r["lines"]:
            for process in PROCESSES:
                made = process if process in line["processes"] else line["processes"][0]
                if made == LATER != process:
                    continue
                about = {name: r[name] for name in ("table", "kind", "seed", "judges")}
                about |= {name: line[name] for name in ("method", "knob", "certified")}
                figures = {name: line[name] for name in ("l1", "cost", "l0", "lof")}
                rows = {"row": line["rows"], "accepted": line["accepted"][process], **figures}
                parts.append(pd.DataFrame(rows).assign(process=process, **{"made for": made}, **about))
    found = pd.concat(parts, ignore_index=True)
    return found.assign(valid=found["accepted"] / found["judges"], safe=found["accepted"] >= COVERAGE * found["judges"])


def tables(results: Sequence[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """The league, by table and by cell, the claims, surprises, duels, and the methods' own knobs."""
    rows = row_table(results)
    foreseen = rows[rows["process"] == rows["made for"]]
    plain = foreseen[foreseen["knob"] == ""]
    every = _cells(results, foreseen, ["table", "kind", "process", "method", "knob"])
    cells = every[every["knob"] == ""].drop(columns="knob").reset_index(drop=True)
    surprised = rows[(rows["process"] != rows["made for"]) & (rows["knob"] == "")]
    data = pd.DataFrame(
        {"table": r["table"], "model": r["kind"], "seed": r["seed"], "inputs": r["inputs"]}
        | {"accuracy on D1": r["accuracy"][0], "accuracy on D2": r["accuracy"][1]}
        for r in results
    )
    return {
        "league": _league(cells, plain),
        "league-by-table": _cells(results, plain, ["table", "process", "method"]),
        "league-cells": cells,
        "league-claims": _claims(plain),
        "league-surprises": _surprises(surprised, plain),
        "league-duels": _duels(plain),
        "league-knobs": _means(every, ["process", "method", "knob"]),
        "league-models": data.groupby(["table", "model"], sort=False).mean().drop(columns="seed").reset_index(),
    }


def _cells(results: Sequence[Mapping[str, Any]], rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Figures of a method on a table: shares of what was asked for and of what was found, and means over the latter."""
    asked = pd.DataFrame(
        {**{name: r[name] for name in ("table", "kind", "inputs")}, "process": process}
        | {name: line[name] for name in ("method", "knob", "seconds")}
        for r in results
        for line in r["lines"]
        for process in line["processes"]
    )
    if "knob" not in by:  # the defaults alone
        asked = asked[asked["knob"] == ""]
    groups, lines = dict(list(rows.groupby(by))), []
    for key, told in asked.groupby(by, sort=False):
        count = int(told["inputs"].sum())
        cell: dict[str, Any] = dict(zip(by, key, strict=True)) | {"inputs": count, "found": 0.0}
        if (part := groups.get(key)) is not None:
            low, high = _mean_interval(part["valid"].to_numpy())
            safe = clopper_pearson(int(part["safe"].sum()), len(part), confidence=CONFIDENCE)
            cell |= {"found": len(part) / count, "valid": part["valid"].mean(), "valid, from": low, "valid, to": high}
            cell |= {"rows >= 95 %": part["safe"].mean(), "rows, from": safe[0], "rows, to": safe[1]}
            cell |= {name: part[name].mean() for name in ("l1", "cost", "l0", "lof")}
        lines.append(cell | {"s per row": told["seconds"].mean()})
    return pd.DataFrame(lines).rename(columns={"kind": "model"})


def _mean_interval(values: Floats) -> tuple[float, float]:
    """A percentile bootstrap of the mean over rows; one row has none."""
    if len(values) < 2:
        return np.nan, np.nan
    picked = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[picked].mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


FIGURES: Final = ("found", "valid", "rows >= 95 %", "l1", "cost", "l0", "lof", "s per row")


def _means(cells: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means over tables and models, each of which counts once."""
    groups = cells.groupby(by, sort=False)
    return groups[[name for name in FIGURES if name in cells]].mean().assign(cells=groups.size()).reset_index()


def _league(cells: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """A line per method and process, with what it costs against ours on rows that both found."""
    means = _means(cells, ["process", "method"])
    ratios = []
    for process, method in zip(means["process"], means["method"], strict=True):
        pairs = _paired(rows[rows["process"] == process], method)
        by_cell = pairs.groupby(["table", "kind"])[["cost", "cost of ours"]].mean()
        ratios.append(float((by_cell["cost"] / by_cell["cost of ours"]).median()))
    return means.assign(**{"cost / ours": pd.Series(ratios)}).sort_values(
        ["process", "rows >= 95 %"], ascending=[True, False], kind="stable", ignore_index=True
    )


def _paired(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """Rows of a method beside ours of the same input."""
    key, figures = ["table", "kind", "seed", "process", "row"], ["valid", "cost"]
    theirs, ours = (rows[rows["method"] == name][[*key, *figures]] for name in (method, OURS))
    return theirs.merge(ours, on=key, suffixes=("", " of ours"))


def _surprises(surprised: pd.DataFrame, foreseen: pd.DataFrame) -> pd.DataFrame:
    """How rows that were made for refits of D1 fare before those of D1 and D2, beside what they were made for."""
    lines = []
    for (table, method), part in surprised.groupby(["table", "method"], sort=False):
        same = (foreseen["table"] == table) & (foreseen["method"] == method) & (foreseen["process"] == SAME)
        before = foreseen[same]
        lines.append(
            {"table": table, "method": method, "rows": len(part), "valid as foreseen": before["valid"].mean()}
            | {"valid, surprised": part["valid"].mean(), "rows >= 95 % as foreseen": before["safe"].mean()}
            | {"rows >= 95 %, surprised": part["safe"].mean()}
        )
    return pd.DataFrame(lines)


def _claims(rows: pd.DataFrame) -> pd.DataFrame:
    """Certified offers against what they claim: 95 % of the refits, with confidence 0.95 for each row."""
    lines = []
    for key, part in rows[rows["certified"]].groupby(["method", "process", "table", "kind"], sort=False):
        judges, safe = int(part["judges"].iloc[0]), int(part["safe"].sum())
        limit = int(binom.ppf(RISK, judges, COVERAGE)) - 1
        lines.append(
            dict(zip(("method", "process", "table", "model"), key, strict=True))
            | {"rows": len(part), "accepted by >= 95 %": safe, "share": safe / len(part)}
            # fewer than this has a probability below 0.01 if 95 % of the rows are
            | {"least that 95 % allows": int(binom.ppf(0.01, len(part), COVERAGE))}
            | {"shown to be false": int((part["accepted"] <= limit).sum()), "valid": part["valid"].mean()}
        )
    return pd.DataFrame(lines)


def _duels(rows: pd.DataFrame) -> pd.DataFrame:
    """On how many tables a rival is clearly valid more often, clearly cheaper, or both, on rows that both found."""
    lines = []
    for process in dict.fromkeys(rows["process"]):
        here = rows[rows["process"] == process]
        for method in dict.fromkeys(here["method"]):
            if method == OURS:
                continue
            pairs = _paired(here, method)
            signs = [(_sign(part, "valid"), -_sign(part, "cost")) for _, part in pairs.groupby("table")]
            line: dict[str, Any] = {"process": process, "rival": method, "tables": len(signs), "rows": len(pairs)}
            line |= {"more valid": sum(v > 0 for v, _ in signs), "cheaper": sum(c > 0 for _, c in signs)}
            line |= {"less valid": sum(v < 0 for v, _ in signs), "dearer": sum(c < 0 for _, c in signs)}
            line |= {"both better": sum(v > 0 < c for v, c in signs), "both worse": sum(v < 0 > c for v, c in signs)}
            lines.append(line)
    return pd.DataFrame(lines)


def _sign(pairs: pd.DataFrame, name: str) -> int:
    """1 or -1 if the mean difference from ours is above or below 0 by an interval of 95 %, else 0."""
    low, high = _mean_interval((pairs[name] - pairs[f"{name} of ours"]).to_numpy())
    return int(low > 0) - int(high < 0)


MARKS: Final = ["o", "s", "^", "v", "D", "P", "X", "<", ">", "p", "h", "*", "d", "8"]


def figures(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """For each table what methods cost against how often they are valid, per model and process."""
    plt = require("matplotlib.pyplot", feature="the league table", extra="plot")
    rows = row_table(results)
    cells = _cells(results, rows[rows["process"] == rows["made for"]], ["table", "kind", "process", "method", "knob"])
    if "valid" not in cells:
        return []
    methods, written = list(dict.fromkeys(cells["method"])), []
    colours = plt.get_cmap("tab20").colors
    for table, part in cells.groupby("table", sort=False):
        kinds = list(dict.fromkeys(part["model"]))
        figure, axes = plt.subplots(
            len(PROCESSES), len(kinds), figsize=(4.2 * len(kinds), 7), squeeze=False, layout="constrained", sharey=True
        )
        for line, process in zip(axes, PROCESSES, strict=True):
            for ax, kind in zip(line, kinds, strict=True):
                here = part[(part["model"] == kind) & (part["process"] == process)].dropna(subset=["valid"])
                for method, points in here.groupby("method", sort=False):
                    place = methods.index(method)
                    colour = "black" if method == OURS else colours[place % len(colours)]
                    _draw_method(ax, points, MARKS[place % len(MARKS)], colour, str(method))
                _draw_frontier(ax, here[here["found"] >= ENOUGH])
                ax.set(xscale="log", title=f"{kind}, {process}", xlabel="cost", ylim=(-0.03, 1.03))
            line[0].set_ylabel("share of judges that accept")
        seen = {text: mark for ax in axes.flat for mark, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(seen.values(), seen.keys(), loc="outside lower center", ncols=7, frameon=False, fontsize=8)
        figure.suptitle(f"{table}: what offers cost and how often refits accept them", x=0.01, ha="left")
        written += save_figure(figure, folder, f"league-{table}")
    return written


def _draw_method(ax: Any, points: pd.DataFrame, mark: str, colour: Any, name: str) -> None:
    """A mark for the defaults, joined with smaller ones for other values of the knob."""
    points = points.sort_values("cost")
    if len(points) > 1:
        ax.plot(points["cost"], points["valid"], "-", color=colour, linewidth=0.7, marker=".", markersize=4)
    own = points[points["knob"] == ""]
    if len(own):
        face = colour if own["found"].iloc[0] >= ENOUGH else "none"
        size = 11 if name == OURS else 7
        ax.plot(own["cost"], own["valid"], mark, color=colour, markerfacecolor=face, markersize=size, label=name)


def _draw_frontier(ax: Any, points: pd.DataFrame) -> None:
    """The methods that none beats in both."""
    points = points.sort_values(["cost", "valid"], ascending=[True, False])
    best = points[points["valid"] > points["valid"].shift(fill_value=-1).cummax()]
    ax.step(best["cost"], best["valid"], where="post", color="#bbbbbb", linewidth=1, zorder=0)
