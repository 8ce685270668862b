"""The league table: offers of all methods on the same inputs, models and refits, judged by refits that nobody has seen.

A unit of work is a table, a kind of model and a seed: the base model, fitted to D1, explains 25 of its inputs by every
method. Its refits are models of the same recipe with seeds of their own, each on a bootstrap sample: of D1 (`SAME`), or
of D1 and D2 together (`LATER`), where D2 is the later period if a table has one, else the other half of the rows. What
methods offer is judged by 100 refits of each process; what was made for D1 also by those of D1 and D2: a surprise.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import apas
from apas._lazy import require
from apas._typing import Floats, Integers
from apas.counterfactuals.sources.betarce import BetaRce
from apas.counterfactuals.sources.consensus import Consensus
from apas.counterfactuals.sources.ellice import Ellice
from apas.counterfactuals.sources.proplace import Proplace
from apas.counterfactuals.sources.rbr import Rbr
from apas.counterfactuals.sources.rnce import Rnce
from apas.counterfactuals.sources.spread_path import SpreadPath
from apas.counterfactuals.sources.trex import TRex
from apas.display.plots import save_figure
from apas.metrics.distance import l1, lof, share_changed
from apas.paper import Results, new_figure
from apas.paper.data_folder import reading
from apas.paper.datasets import Tables, files_of, make_part, read_labelled, read_tables
from apas.paper.experiment import Unit
from apas.paper.networks import Recipe, fit_together, refused_rows
from apas.stats.binomial import clopper_pearson

SAME, LATER = "bootstrap of D1", "bootstrap of D1 and D2"
PROCESSES: Final = (SAME, LATER)
OURS = "SpreadPath"  # the source that was tuned, and frozen before the other tables were run
COVERAGE, CONFIDENCE = 0.95, 0.95  # of the certified offers, and of all intervals here
RISK = 0.0005  # a claim of 95 % counts as shown to be false if so few judges accept that this is less likely
RESAMPLES = 2000
ENOUGH = 0.5  # what finds a row for fewer of the inputs is drawn hollow, and is on no frontier

MOST_ROWS = 4000  # of a table
#: Refits that methods know: to search with, and to certify on; with 93 of these one may refuse a row.
SEARCH, CERTIFY = 40, 93
KNOWN = SEARCH + CERTIFY
#: The column of the label of tables that are cut into halves; 1 is wanted, or P.
HALVED: Final[Mapping[str, str]] = {
    "diabetes": "Outcome", "no2": "binaryClass", "heloc": "RiskPerformance", "adult": "income", "compas": "score",
}  # fmt: skip
#: Tables on which methods may be tuned, and those that are run once.
TUNED, HELD_OUT = ("diabetes", "no2", "heloc"), ("adult", "compas", "credit", "sba")
NETWORK: Final = Recipe(12, 0.01, 32, 40, 0.0, 0)  # one hidden layer of 12 units, 40 passes of Adam
LINES, TREES = "logistic regression", "XGBoost"


def read_league_table(name: str, seed: int) -> Tables:
    """A table in two parts: of sba and credit the earlier and the later period, of others random halves."""
    if name in HALVED:
        with reading(name):
            frame, y, space = read_labelled(name, HALVED[name])
        rows = np.random.default_rng([seed, 1]).permutation(len(frame))[:MOST_ROWS]
        first, second = (make_part(frame, y, space, half) for half in np.array_split(rows, 2))
    else:
        tables = read_tables(name, aligned=True)
        space, parts = tables.space, (tables.d1, tables.d2)
        drawn = (np.random.default_rng([seed, 2]).permutation(len(part))[: MOST_ROWS // 2] for part in parts)
        first, second = (make_part(part.raw, part.y, space, rows) for part, rows in zip(parts, drawn, strict=True))
    return Tables(name, space, first, second)


def _fit_logistic(X: Floats, y: Integers, rows: Integers, *, seeds: Sequence[int], feature_names: Any) -> list[Any]:
    """Scikit-learn's logistic regression with its defaults, as a network without hidden units."""
    fitted = (LogisticRegression(max_iter=1000).fit(X[line], y[line]) for line in rows)
    return [apas.FeedForward([m.coef_.T], [m.intercept_], feature_names=feature_names) for m in fitted]


def _fit_trees(X: Floats, y: Integers, rows: Integers, *, seeds: Sequence[int], feature_names: Any) -> list[Any]:
    """XGBoost, 50 trees of depth 4, each on 80 % of the rows."""
    from xgboost import XGBClassifier

    how = {"n_estimators": 50, "max_depth": 4, "learning_rate": 0.2, "subsample": 0.8, "n_jobs": 1}
    kinds = (XGBClassifier(**how, random_state=int(seed)) for seed in seeds)
    return [apas.as_model(model.fit(X[line], y[line])) for model, line in zip(kinds, rows, strict=True)]


#: What fits a model to each line of numbers of rows.
MODELS: Final[Mapping[str, Callable[..., list[Any]]]] = {
    LINES: _fit_logistic, "network": partial(fit_together, NETWORK), TREES: _fit_trees,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ground:
    """A table, the model that is explained, and the inputs."""

    tables: Tables
    kind: str
    seed: int
    base: Any
    inputs: Integers  # rows of D1 that the base model refuses

    @classmethod
    def of(cls, table: str, kind: str, seed: int, count: int) -> Self:
        """Fit the base model to D1, and draw different rows that it refuses."""
        tables = read_league_table(table, seed)
        d1, names = tables.d1, tables.inputs
        base = MODELS[kind](d1.X, d1.y, np.arange(len(d1))[None], seeds=[seed], feature_names=names)[0]
        refused = np.random.default_rng([seed, 3]).permutation(refused_rows(base, d1.X))
        return cls(tables, kind, seed, base, refused[:count])

    def refits(self, process: str, judges: int, known: int = KNOWN) -> tuple[list[Any], list[Any]]:
        """Independent refits of a process: those that methods know, and those that judge, which nothing else sees."""
        parts = (self.tables.d1, self.tables.d2)[: 1 + PROCESSES.index(process)]
        X, y = np.vstack([p.X for p in parts]), np.concatenate([p.y for p in parts])
        rng, total = np.random.default_rng([self.seed, 4 + PROCESSES.index(process)]), known + judges
        rows, seeds = rng.integers(0, len(X), (total, len(X))), rng.integers(0, 2**31, total).tolist()
        models = MODELS[self.kind](X, y, rows, seeds=seeds, feature_names=self.tables.inputs)
        return models[:known], models[known:]

    @property
    def accuracy(self) -> tuple[float, float]:
        """Of the base model on D1 and on D2."""
        parts = (self.tables.d1, self.tables.d2)
        first, second = (float(((self.base.margin(p.X, 1) >= 0) == p.y).mean()) for p in parts)
        return first, second


def accepted_by(models: Sequence[Any], points: Floats) -> Integers:
    """How many models put each point into class 1; points as the models see them."""
    return np.asarray(np.sum([model.margin(points, 1) >= 0 for model in models], axis=0, dtype=np.int64))


CLAIM: Final = apas.Sampling(coverage=0.95, confidence=0.95, n_samples=CERTIFY)
SECONDS = 300.0  # per row and method at most, by the clock: far more than any took; beyond it a row is not found
WHOLE: Final[Mapping[str, Any]] = {"inputs": 25, "seeds": 3, "judges": 100, "knobs": True}
QUICK: Final[Mapping[str, Any]] = {"inputs": 4, "seeds": 1, "judges": 30, "tables": ("diabetes",), "knobs": False}


@dataclass(frozen=True)
class LeagueMethod:
    """A line of the table: makes a source for the base model and, if it looks at refits, those of a process."""

    make: Callable[[Any, list[Any]], Any]
    on_refits: bool = False
    certified: bool = False
    trees: bool = True  # whether it can explain trees


#: A new method is a source in a file of its own and a line here.
METHODS: Final[Mapping[str, LeagueMethod]] = {
    "nearest": LeagueMethod(lambda base, _: Consensus(refits=[base])),
    "neighbours": LeagueMethod(lambda base, _: apas.NearestNeighbours()),
    "Wachter": LeagueMethod(lambda base, _: apas.Wachter(), trees=False),
    "Prototype": LeagueMethod(lambda base, _: apas.Prototype(), trees=False),
    "ROAR": LeagueMethod(lambda base, _: apas.Roar()),
    "RNCE": LeagueMethod(lambda base, _: Rnce(), trees=False),
    "PROPLACE": LeagueMethod(lambda base, _: Proplace(), trees=False),
    "T-Rex": LeagueMethod(lambda base, _: TRex()),
    "RBR": LeagueMethod(lambda base, _: Rbr()),
    "ElliCE": LeagueMethod(lambda base, _: Ellice(), trees=False),
    "BetaRCE": LeagueMethod(lambda base, refits: BetaRce(refits=refits), on_refits=True),
    "consensus": LeagueMethod(lambda base, refits: Consensus(refits=refits), on_refits=True),
    "RobustOptimum alone": LeagueMethod(lambda base, _: apas.RobustOptimum(alone=True), on_refits=True, certified=True),
    "RobustOptimum": LeagueMethod(lambda base, _: apas.RobustOptimum(), on_refits=True, certified=True),
    "SpreadPath": LeagueMethod(lambda base, _: SpreadPath(), on_refits=True, certified=True),
}


def left_out() -> str:
    """Which part cannot be run here."""
    return "" if find_spec("xgboost") else f"{TREES}, which is not installed: pip install xgboost."


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """One piece of work per table, kind of model and seed."""
    how = dict(QUICK if settings.get("quick") else WHOLE)
    names = settings.get("tables", how.pop("tables", (*TUNED, *HELD_OUT)))
    seeds = how.pop("seeds")
    kinds = [kind for kind in MODELS if kind != TREES or not left_out()]
    return [
        Unit("league", explain, {"table": name, "kind": kind, "seed": seed, **how}, files_of(name))
        for seed in range(seeds)  # outermost, so that what is done early covers all tables
        for name in names
        for kind in kinds
    ]


def explain(table: str, kind: str, seed: int, inputs: int, judges: int, knobs: bool) -> dict[str, Any]:
    """What every method offers for the inputs, and how it fares."""
    ground = Ground.of(table, kind, seed, inputs)
    known, judging = zip(*(ground.refits(process, judges) for process in PROCESSES), strict=True)
    lines, answers = zip(*_offers(ground, dict(zip(PROCESSES, known, strict=True)), knobs), strict=True)
    space, found = ground.tables.space, [answer[answer.found] for answer in answers]
    points = [space.coding.encode(answer.numbers) for answer in found]
    together, ends = np.concatenate(points), np.cumsum([len(rows) for rows in points])[:-1]
    counts = [np.split(accepted_by(models, together), ends) for models in judging]
    inliers = np.split(lof(ground.tables.d1.X, together) if len(together) else np.empty(0), ends)
    for i, (line, answer) in enumerate(zip(lines, found, strict=True)):
        numbers, origins = answer.numbers, answer.origins
        apart = l1(space.coding.encode(origins), points[i]) if len(answer) else np.empty(0)
        changed = share_changed(space.differences(numbers, origins)) if len(answer) else np.empty(0)
        costs = {"l1": apart, "cost": space.costs(numbers, origins, "l1"), "l0": changed, "lof": inliers[i]}
        line |= {"rows": np.flatnonzero(answers[i].found).tolist()}
        line |= {"accepted": {process: each[i].tolist() for process, each in zip(PROCESSES, counts, strict=True)}}
        line |= {name: values.tolist() for name, values in costs.items()}
    about = {"table": table, "kind": kind, "seed": seed, "judges": judges, "inputs": len(ground.inputs)}
    return {**about, "accuracy": ground.accuracy, "lines": list(lines)}


def _offers(ground: Ground, refits: Mapping[str, list[Any]], knobs: bool) -> Iterator[tuple[dict[str, Any], Any]]:
    """What all methods that can explain the kind of model give for all inputs, by process, and what each is called."""
    for name, method in METHODS.items():
        if ground.kind == TREES and not method.trees:
            continue
        for process in PROCESSES if method.on_refits else (None,):
            known = [] if process is None else refits[process]
            line = {"method": name, "certified": method.certified, "processes": [process] if process else [*PROCESSES]}
            for knob, variant in _variants(method.make(ground.base, known), knobs):
                answer, seconds = _generated(ground, variant, _certifying(known) if method.certified else {"delta": 0})
                yield {**line, "knob": knob, "seconds": seconds}, answer


def _certifying(refits: list[Any]) -> dict[str, Any]:
    listed = apas.ObservedShifts(refits, process="a refit on a bootstrap sample with a new seed")
    return {"delta": 1.0, "shifts": listed, "method": CLAIM}


def _variants(source: Any, knobs: bool) -> Iterator[tuple[str, Any]]:
    """A source with its defaults, and, if asked for, with other values of the knob that it names."""
    yield "", source
    name, values = getattr(source, "knob", ("", ()))
    for value in values if knobs else ():
        if value != getattr(source, name):
            yield f"{name} = {value:g}", replace(source, **{name: value})


def _generated(ground: Ground, source: Any, options: Mapping[str, Any]) -> tuple[apas.Counterfactuals, float]:
    """Answers for all inputs, and processor seconds per row."""
    tables, began = ground.tables, time.process_time()
    known: dict[str, Any] = {"space": tables.space, "background": tables.d1.raw, "source": source, "rng": ground.seed}
    known["time_limit"] = SECONDS * max(1, len(ground.inputs))
    answer = apas.generate(ground.base, tables.d1.raw.iloc[ground.inputs], target=1, **known, **options)
    return answer, (time.process_time() - began) / max(1, len(ground.inputs))


def row_table(results: Results) -> pd.DataFrame:
    """A line per row that was found and process that judges it; `made for` is that process, or SAME for surprises."""
    parts = []
    for r in results:
        for line in r["lines"]:
            for process in PROCESSES[PROCESSES.index(line["processes"][0]) :]:
                made = process if process in line["processes"] else SAME
                about = {name: r[name] for name in ("table", "kind", "seed", "judges")}
                about |= {name: line[name] for name in ("method", "knob", "certified")}
                figures = {name: line[name] for name in ("l1", "cost", "l0", "lof")}
                rows = {"row": line["rows"], "accepted": line["accepted"][process], **figures}
                parts.append(pd.DataFrame(rows).assign(process=process, **{"made for": made}, **about))
    found = pd.concat(parts, ignore_index=True)
    return found.assign(valid=found["accepted"] / found["judges"], safe=found["accepted"] >= COVERAGE * found["judges"])


def tables(results: Results) -> dict[str, pd.DataFrame]:
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


def _cells(results: Results, rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
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
    by = ["process", "method"]
    costs = _paired(rows).groupby([*by, "table", "kind"])[["cost", "cost of ours"]].mean()
    ratios = (costs["cost"] / costs["cost of ours"]).groupby(by).median().rename("cost / ours")
    return (
        _means(cells, by)
        .join(ratios, on=by)
        .sort_values(["process", "rows >= 95 %"], ascending=[True, False], kind="stable", ignore_index=True)
    )


def _paired(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of all methods beside ours of the same input."""
    key = ["table", "kind", "seed", "process", "row"]
    ours = rows[rows["method"] == OURS][[*key, "valid", "cost"]]
    return rows.merge(ours, on=key, suffixes=("", " of ours"))


def _surprises(surprised: pd.DataFrame, foreseen: pd.DataFrame) -> pd.DataFrame:
    """How rows that were made for refits of D1 fare before those of D1 and D2, beside what they were made for."""
    by, shares = ["table", "method"], ["valid", "safe"]
    before = foreseen[foreseen["process"] == SAME].groupby(by)[shares].mean()
    groups = surprised.groupby(by, sort=False)
    after = groups[shares].mean()
    columns = {"rows": groups.size()}
    columns |= {"valid as foreseen": before["valid"], "valid, surprised": after["valid"]}
    columns |= {"rows >= 95 % as foreseen": before["safe"], "rows >= 95 %, surprised": after["safe"]}
    return pd.DataFrame(columns, index=after.index).reset_index()


def _claims(rows: pd.DataFrame) -> pd.DataFrame:
    """Certified offers against what they claim: 95 % of the refits, with confidence 0.95 for each row."""
    rows = rows[rows["certified"]].rename(columns={"kind": "model"})
    rows["false"] = rows["accepted"] <= binom.ppf(RISK, rows["judges"], COVERAGE) - 1
    groups = rows.groupby(["method", "process", "table", "model"], sort=False)
    found = groups["safe"].agg(["size", "sum", "mean"]).set_axis(["rows", "accepted by >= 95 %", "share"], axis=1)
    # fewer than this has a probability below 0.01 if 95 % of the rows are
    found["least that 95 % allows"] = binom.ppf(0.01, found["rows"], COVERAGE).astype(int)
    return found.assign(**{"shown to be false": groups["false"].sum(), "valid": groups["valid"].mean()}).reset_index()


def _duels(rows: pd.DataFrame) -> pd.DataFrame:
    """On how many tables a rival is clearly valid more often, clearly cheaper, or both, on rows that both found."""
    paired = _paired(rows).sort_values("process", kind="stable")
    lines = []
    for (process, method), pairs in paired[paired["method"] != OURS].groupby(["process", "method"], sort=False):
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


def figures(results: Results, folder: Path | str) -> list[Path]:
    """For each table what methods cost against how often they are valid, per model and process."""
    colours = require("matplotlib", feature="the league table", extra="plot").colormaps["tab20"].colors
    ticks = require("matplotlib.ticker", feature="the league table", extra="plot").LogLocator
    rows = row_table(results)
    cells = _cells(results, rows[rows["process"] == rows["made for"]], ["table", "kind", "process", "method", "knob"])
    if "valid" not in cells:
        return []
    methods, written = list(dict.fromkeys(cells["method"])), []
    for table, part in cells.groupby("table", sort=False):
        kinds = list(dict.fromkeys(part["model"]))
        shape, size = (len(PROCESSES), len(kinds)), (4.2 * len(kinds), 7)
        figure, axes = new_figure(*shape, feature="the league table", figsize=size, squeeze=False, sharey=True)
        for line, process in zip(axes, PROCESSES, strict=True):
            for ax, kind in zip(line, kinds, strict=True):
                here = part[(part["model"] == kind) & (part["process"] == process)].dropna(subset=["valid"])
                for method, points in here.groupby("method", sort=False):
                    place = methods.index(method)
                    colour = "black" if method == OURS else colours[place % len(colours)]
                    _draw_method(ax, points, MARKS[place % len(MARKS)], colour, str(method))
                _draw_frontier(ax, here[here["found"] >= ENOUGH])
                ax.set(xscale="log", title=f"{kind}, {process}", xlabel="cost", ylim=(-0.03, 1.03))
                ax.xaxis.set_major_locator(ticks(subs=(1.0, 2.0, 5.0)))
                ax.xaxis.set_major_formatter("{x:g}")
                ax.xaxis.set_minor_formatter("")  # or labels of neighbouring marks run into each other
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
