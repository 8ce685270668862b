"""The league table: offers of all methods on the same inputs, models and refits, judged by refits that nobody has seen.

A unit of work is a table, a kind of model and a seed: the base model, fitted to D1, explains 25 of its inputs by every
method. Its refits are models of the same recipe with seeds of their own, each on a bootstrap sample: of D1 (`SAME`), or
of D1 and D2 together (`LATER`), where D2 is the later period if a table has one, else the other half of the rows. What
methods offer is judged by 100 refits of each process; what was made for D1 also by those of D1 and D2: a surprise.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from apas._typing import Floats, Integers
from apas.certification.methods.sampling import Sampling
from apas.counterfactuals.api import generate
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.sources.betarce import BetaRce
from apas.counterfactuals.sources.consensus import Consensus
from apas.counterfactuals.sources.ellice import Ellice
from apas.counterfactuals.sources.neighbours import NearestNeighbours
from apas.counterfactuals.sources.proplace import Proplace
from apas.counterfactuals.sources.prototype import Prototype
from apas.counterfactuals.sources.rbr import Rbr
from apas.counterfactuals.sources.rnce import Rnce
from apas.counterfactuals.sources.roar import Roar
from apas.counterfactuals.sources.robust_optimum import RobustOptimum
from apas.counterfactuals.sources.spread_path import SpreadPath
from apas.counterfactuals.sources.trex import TRex
from apas.counterfactuals.sources.wachter import Wachter
from apas.counterfactuals.space.space import FeatureSpace
from apas.metrics.distance import l1, lof, share_changed
from apas.models.base import as_model
from apas.models.feedforward import FeedForward
from apas.paper.data_folder import dataset_path, reading
from apas.paper.datasets import Part, Tables, files_of, make_part, read_tables
from apas.paper.league_tables import PROCESSES, figures, tables
from apas.paper.networks import Recipe, fit_together
from apas.paper.store import Unit
from apas.shifts.observed import ObservedShifts

__all__ = ["figures", "left_out", "tables", "units"]

MOST_ROWS = 4000  # of a table
#: The column of the label of tables that are cut into halves; 1 is wanted, or P.
HALVED: Final = MappingProxyType(
    {"diabetes": "Outcome", "no2": "binaryClass", "heloc": "RiskPerformance", "adult": "income", "compas": "score"}
)
#: Tables on which methods may be tuned, and those that are run once.
TUNED, HELD_OUT = ("diabetes", "no2", "heloc"), ("adult", "compas", "credit", "sba")
NETWORK: Final = Recipe(12, 0.01, 32, 40, 0.0, 0)
LINES, TREES, TOGETHER = "logistic regression", "XGBoost", 100


def read_league_table(name: str, seed: int) -> Tables:
    """A table in two parts: of sba and credit the earlier and the later period, of others random halves."""
    if name not in HALVED:
        tables = read_tables(name, aligned=True)
        return Tables(name, tables.space, _cut(tables.d1, seed), _cut(tables.d2, seed))
    with reading(name):
        frame = pd.read_csv(dataset_path(name))
    y = (frame[HALVED[name]] == ("P" if name == "no2" else 1)).to_numpy()
    frame = frame.drop(columns=HALVED[name])
    numbers = [c for c in frame.columns if frame[c].dtype.kind in "iuf"]
    space = FeatureSpace.from_frame(frame, kinds=dict.fromkeys(numbers, "continuous"), scale="minmax")
    rows = np.random.default_rng([seed, 1]).permutation(len(frame))[:MOST_ROWS]
    first, second = (make_part(frame, y, space, half) for half in np.array_split(rows, 2))
    return Tables(name, space, first, second)


def _cut(part: Part, seed: int) -> Part:
    rows = np.random.default_rng([seed, 2]).permutation(len(part))[: MOST_ROWS // 2]
    return Part(part.raw.iloc[rows].reset_index(drop=True), part.X[rows].copy(), part.y[rows].copy())


Fit = Callable[[Floats, Integers, Integers, Sequence[int], tuple[str, ...]], list[Any]]


def _fit_logistic(X: Floats, y: Integers, rows: Integers, seeds: Sequence[int], names: tuple[str, ...]) -> list[Any]:
    """Scikit-learn's logistic regression with its defaults, as a network without hidden units."""
    fitted = (LogisticRegression(max_iter=1000).fit(X[line], y[line]) for line in rows)
    return [FeedForward([m.coef_.T], [m.intercept_], feature_names=names) for m in fitted]


def _fit_networks(X: Floats, y: Integers, rows: Integers, seeds: Sequence[int], names: tuple[str, ...]) -> list[Any]:
    """Networks with one hidden layer of 12 units, 40 passes of Adam."""
    parts = [slice(i, i + TOGETHER) for i in range(0, len(rows), TOGETHER)]
    fitted = (fit_together(NETWORK, X, y, rows[part], seeds=seeds[part], feature_names=names) for part in parts)
    return list(chain.from_iterable(fitted))


def _fit_trees(X: Floats, y: Integers, rows: Integers, seeds: Sequence[int], names: tuple[str, ...]) -> list[Any]:
    """XGBoost, 50 trees of depth 4, each on 80 % of the rows."""
    from xgboost import XGBClassifier

    how = {"n_estimators": 50, "max_depth": 4, "learning_rate": 0.2, "subsample": 0.8, "n_jobs": 1}
    kinds = (XGBClassifier(**how, random_state=int(seed)) for seed in seeds)
    return [as_model(model.fit(X[line], y[line])) for model, line in zip(kinds, rows, strict=True)]


MODELS: Final[Mapping[str, Fit]] = MappingProxyType({LINES: _fit_logistic, "network": _fit_networks, TREES: _fit_trees})


@dataclass(frozen=True, eq=False)
class Refits:
    """Models of one process: to search with, to certify on, and to judge, which nothing else sees."""

    search: list[Any]
    certify: list[Any]
    judge: list[Any]


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
        base = MODELS[kind](d1.X, d1.y, np.arange(len(d1))[None], [seed], names)[0]
        refused = np.flatnonzero(base.margin(d1.X, 1) < 0)
        different = refused[np.sort(np.unique(d1.X[refused], axis=0, return_index=True)[1])]
        return cls(tables, kind, seed, base, np.random.default_rng([seed, 3]).permutation(different)[:count])

    def refits(self, process: str, counts: tuple[int, int, int]) -> Refits:
        """Independent refits of a process."""
        parts = (self.tables.d1, self.tables.d2)[: 1 + PROCESSES.index(process)]
        X, y = np.vstack([p.X for p in parts]), np.concatenate([p.y for p in parts])
        rng, total = np.random.default_rng([self.seed, 4 + PROCESSES.index(process)]), sum(counts)
        rows, seeds = rng.integers(0, len(X), (total, len(X))), rng.integers(0, 2**31, total).tolist()
        models = MODELS[self.kind](X, y, rows, seeds, self.tables.inputs)
        a, b = counts[0], counts[0] + counts[1]
        return Refits(models[:a], models[a:b], models[b:])

    @property
    def accuracy(self) -> tuple[float, float]:
        """Of the base model on D1 and on D2."""
        parts = (self.tables.d1, self.tables.d2)
        first, second = (float(((self.base.margin(p.X, 1) >= 0) == p.y).mean()) for p in parts)
        return first, second


def accepted_by(models: Sequence[Any], points: Floats) -> Integers:
    """How many models put each point into class 1; points as the models see them."""
    return np.asarray(np.sum([model.margin(points, 1) >= 0 for model in models], axis=0, dtype=np.int64))


#: Refits to search with, and to certify on: with 93 of them one may refuse a row.
SEARCH, CERTIFY = 40, 93
CLAIM: Final = Sampling(coverage=0.95, confidence=0.95, n_samples=CERTIFY)
SECONDS = 300.0  # per row and method at most, by the clock: far more than any took; beyond it a row is not found
WHOLE: Final[Mapping[str, Any]] = {"inputs": 25, "seeds": 3, "judges": 100, "knobs": True}
QUICK: Final[Mapping[str, Any]] = {"inputs": 4, "seeds": 1, "judges": 30, "tables": ("diabetes",), "knobs": False}


@dataclass(frozen=True)
class LeagueMethod:
    """A line of the table: makes a source for the base model and, if it looks at refits, those of a process."""

    make: Callable[[Any, Refits | None], Any]
    on_refits: bool = False
    certified: bool = False
    trees: bool = True  # whether it can explain trees


def _all_refits(refits: Refits | None) -> list[Any]:
    return [] if refits is None else [*refits.search, *refits.certify]


#: A new method is a source in a file of its own and a line here.
METHODS: Final[Mapping[str, LeagueMethod]] = {
    "nearest": LeagueMethod(lambda base, _: Consensus(refits=[base])),
    "neighbours": LeagueMethod(lambda base, _: NearestNeighbours()),
    "Wachter": LeagueMethod(lambda base, _: Wachter(), trees=False),
    "Prototype": LeagueMethod(lambda base, _: Prototype(), trees=False),
    "ROAR": LeagueMethod(lambda base, _: Roar()),
    "RNCE": LeagueMethod(lambda base, _: Rnce(), trees=False),
    "PROPLACE": LeagueMethod(lambda base, _: Proplace(), trees=False),
    "T-Rex": LeagueMethod(lambda base, _: TRex()),
    "RBR": LeagueMethod(lambda base, _: Rbr()),
    "ElliCE": LeagueMethod(lambda base, _: Ellice(), trees=False),
    "BetaRCE": LeagueMethod(lambda base, refits: BetaRce(refits=_all_refits(refits)), on_refits=True),
    "consensus": LeagueMethod(lambda base, refits: Consensus(refits=_all_refits(refits)), on_refits=True),
    "RobustOptimum alone": LeagueMethod(lambda base, _: RobustOptimum(alone=True), on_refits=True, certified=True),
    "RobustOptimum": LeagueMethod(lambda base, _: RobustOptimum(), on_refits=True, certified=True),
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
    refits = {process: ground.refits(process, (SEARCH, CERTIFY, judges)) for process in PROCESSES}
    lines, answers = zip(*_offers(ground, refits, knobs), strict=True)
    space, found = ground.tables.space, [answer[answer.found] for answer in answers]
    points = [space.coding.encode(answer.numbers) for answer in found]
    together, ends = np.concatenate(points), np.cumsum([len(rows) for rows in points])[:-1]
    accepted = {process: np.split(accepted_by(refits[process].judge, together), ends) for process in PROCESSES}
    inliers = np.split(lof(ground.tables.d1.X, together) if len(together) else np.empty(0), ends)
    for i, (line, answer) in enumerate(zip(lines, found, strict=True)):
        numbers, origins = answer.numbers, answer.origins
        apart = l1(space.coding.encode(origins), points[i]) if len(answer) else np.empty(0)
        changed = share_changed(space.differences(numbers, origins)) if len(answer) else np.empty(0)
        costs = {"l1": apart, "cost": space.costs(numbers, origins, "l1"), "l0": changed, "lof": inliers[i]}
        line |= {"rows": np.flatnonzero(answers[i].found).tolist()}
        line |= {"accepted": {process: counts[i].tolist() for process, counts in accepted.items()}}
        line |= {name: values.tolist() for name, values in costs.items()}
    about = {"table": table, "kind": kind, "seed": seed, "judges": judges, "inputs": len(ground.inputs)}
    return {**about, "accuracy": ground.accuracy, "lines": list(lines)}


def _offers(ground: Ground, refits: Mapping[str, Refits], knobs: bool) -> Iterator[tuple[dict[str, Any], Any]]:
    """What all methods that can explain the kind of model give for all inputs, by process, and what each is called."""
    for name, method in METHODS.items():
        if ground.kind == TREES and not method.trees:
            continue
        for process in PROCESSES if method.on_refits else (None,):
            known = None if process is None else refits[process]
            line = {"method": name, "certified": method.certified, "processes": [process] if process else [*PROCESSES]}
            for knob, variant in _variants(method.make(ground.base, known), knobs):
                options: dict[str, Any] = {"delta": 0}
                if method.certified:
                    listed = ObservedShifts(_all_refits(known), process="a refit on a bootstrap sample with a new seed")
                    options = {"delta": 1.0, "shifts": listed, "method": CLAIM}
                answer, seconds = _generated(ground, variant, options)
                yield {**line, "knob": knob, "seconds": seconds}, answer


def _variants(source: Any, knobs: bool) -> Iterator[tuple[str, Any]]:
    """A source with its defaults, and, if asked for, with other values of the knob that it names."""
    yield "", source
    name, values = getattr(source, "knob", ("", ()))
    for value in values if knobs else ():
        if value != getattr(source, name):
            yield f"{name} = {value:g}", replace(source, **{name: value})


def _generated(ground: Ground, source: Any, options: Mapping[str, Any]) -> tuple[Counterfactuals, float]:
    """Answers for all inputs, and processor seconds per row."""
    tables, began = ground.tables, time.process_time()
    known: dict[str, Any] = {"space": tables.space, "background": tables.d1.raw, "source": source, "rng": ground.seed}
    known["time_limit"] = SECONDS * max(1, len(ground.inputs))
    answer = generate(ground.base, tables.d1.raw.iloc[ground.inputs], target=1, **known, **options)
    return answer, (time.process_time() - began) / max(1, len(ground.inputs))
