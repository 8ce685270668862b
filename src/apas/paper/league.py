"""The league table: offers of all methods on the same inputs, models and refits, judged by refits that nobody has seen.

A unit of work is a table, a kind of model and a seed: the base model explains 25 of its inputs by every method. Methods
that look at refits do so once for each process, the others once for both. What they offer is judged by 100 refits of
each process; what was made for refits of D1 also by those of D1 and D2, which it could not foresee.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from apas._typing import Floats
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
from apas.metrics.distance import l1, lof, share_changed
from apas.paper.league_models import (
    HELD_OUT,
    MODELS,
    PROCESSES,
    TREES,
    TUNED,
    Ground,
    Refits,
    accepted_by,
    league_files,
)
from apas.paper.league_tables import figures, tables
from apas.paper.store import Unit
from apas.shifts.observed import ObservedShifts

__all__ = ["figures", "left_out", "tables", "units"]

INPUTS, SEEDS, JUDGES = 25, 3, 100
#: Refits to search with, and to certify on: with 93 of them one may refuse a row.
SEARCH, CERTIFY = 40, 93
CLAIM: Final = Sampling(coverage=0.95, confidence=0.95, n_samples=CERTIFY)
SECONDS = 30.0  # per row and method at most, beyond which a row counts as not found: far more than any took
QUICK: Final[Mapping[str, Any]] = {"inputs": 4, "seeds": 1, "judges": 30, "tables": ("diabetes",), "knobs": False}

#: A source for the base model and, if it looks at refits, those of a process.
Make = Callable[[Any, Refits | None], Any]


@dataclass(frozen=True)
class LeagueMethod:
    """A line of the table."""

    make: Make
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
    whole: dict[str, Any] = {"inputs": INPUTS, "seeds": SEEDS, "judges": JUDGES, "knobs": True}
    how = dict(QUICK) if settings.get("quick") else whole
    names = settings.get("tables", how.pop("tables", (*TUNED, *HELD_OUT)))
    seeds = how.pop("seeds")
    kinds = [kind for kind in MODELS if kind != TREES or not left_out()]
    return [
        Unit("league", explain, {"table": name, "kind": kind, "seed": seed, **how}, league_files(name))
        for seed in range(seeds)  # outermost, so that what is done early covers all tables
        for name in names
        for kind in kinds
    ]


def explain(table: str, kind: str, seed: int, inputs: int, judges: int, knobs: bool) -> dict[str, Any]:
    """What every method offers for the inputs, and how it fares."""
    ground = Ground.of(table, kind, seed, inputs)
    refits = {process: ground.refits(process, (SEARCH, CERTIFY, judges)) for process in PROCESSES}
    offers = list(_offers(ground, refits, knobs))
    coding = ground.tables.space.coding
    points = np.concatenate([coding.encode(o.answer.numbers[o.answer.found]) for o in offers])
    accepted = {process: accepted_by(refits[process].judge, points) for process in PROCESSES}
    inliers = lof(ground.tables.d1.X, points) if len(points) else np.empty(0)
    lines, first = [], 0
    for offer in offers:
        rows = slice(first, first := first + int(offer.answer.found.sum()))
        lines.append(offer.line(ground, points[rows], {p: a[rows] for p, a in accepted.items()}, inliers[rows]))
    about = {"table": table, "kind": kind, "seed": seed, "judges": judges, "inputs": len(ground.inputs)}
    return {**about, "accuracy": ground.accuracy, "lines": lines}


@dataclass(frozen=True, eq=False)
class Offer:
    """What a method gave for all inputs."""

    method: str
    knob: str
    processes: tuple[str, ...]  # whose refits it was made for, or all if it looks at none
    certified: bool
    answer: Counterfactuals
    seconds: float

    def line(self, ground: Ground, points: Floats, accepted: Mapping[str, Any], inliers: Floats) -> dict[str, Any]:
        """Figures of each row that was found, as JSON values."""
        found, space = self.answer.found, ground.tables.space
        numbers, origins = self.answer.numbers[found], self.answer.origins[found]
        return {
            "method": self.method,
            "knob": self.knob,
            "processes": list(self.processes),
            "certified": self.certified,
            "rows": np.flatnonzero(found).tolist(),
            "accepted": {process: counts.tolist() for process, counts in accepted.items()},
            "l1": l1(space.coding.encode(origins), points).tolist() if len(points) else [],
            "cost": space.costs(numbers, origins, "l1").tolist(),
            "l0": share_changed(space.differences(numbers, origins)).tolist() if len(points) else [],
            "lof": inliers.tolist(),
            "seconds": self.seconds,
        }


def _offers(ground: Ground, refits: Mapping[str, Refits], knobs: bool) -> Iterator[Offer]:
    """Offers of all methods that can explain the kind of model, by process."""
    for name, method in METHODS.items():
        if ground.kind == TREES and not method.trees:
            continue
        for process in PROCESSES if method.on_refits else (None,):
            known = None if process is None else refits[process]
            source = method.make(ground.base, known)
            about = (PROCESSES if process is None else (process,), method.certified)
            for knob, variant in _variants(source, knobs):
                options = _certifying(known) if method.certified else {"delta": 0}
                yield Offer(name, knob, *about, *_generated(ground, variant, options))


def _variants(source: Any, knobs: bool) -> Iterator[tuple[str, Any]]:
    """A source with its defaults, and, if asked for, with other values of the knob that it names."""
    yield "", source
    name, values = getattr(source, "knob", ("", ()))
    for value in values if knobs else ():
        if value != getattr(source, name):
            yield f"{name} = {value:g}", replace(source, **{name: value})


def _certifying(refits: Refits | None) -> dict[str, Any]:
    listed = ObservedShifts(_all_refits(refits), process="a refit on a bootstrap sample with a new seed")
    return {"delta": 1.0, "shifts": listed, "method": CLAIM}


def _generated(ground: Ground, source: Any, options: Mapping[str, Any]) -> tuple[Counterfactuals, float]:
    """Answers for all inputs, and processor seconds per row."""
    tables, began = ground.tables, time.process_time()
    answer = generate(
        ground.base,
        tables.d1.raw.iloc[ground.inputs],
        target=1,
        space=tables.space,
        background=tables.d1.raw,
        source=source,
        time_limit=SECONDS * max(1, len(ground.inputs)),
        rng=ground.seed,
        **options,
    )
    return answer, (time.process_time() - began) / max(1, len(ground.inputs))
