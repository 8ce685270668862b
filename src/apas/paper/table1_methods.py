"""The methods of Table 1, and which of their explanations survive training from scratch.

Every method explains the inputs that differ. Refits play three parts, and none plays two: some are
searched, others certify, and further ones judge. What is made for a box of shifts sees none of them.

All give points in the columns of the network, since those of ROAR need not be rows of any table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.certification.methods.sampling import Sampling
from apas.certification.question import Method
from apas.counterfactuals.api import generate
from apas.counterfactuals.sources.base import CandidateSource
from apas.counterfactuals.sources.roar import Roar
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.paper import published
from apas.paper.networks import Preparation, refitted_networks
from apas.paper.published import PROTOTYPES, WACHTERS, WANTED, PublishedSampling
from apas.shifts.observed import ObservedShifts

#: What is claimed about networks trained from scratch, and how many of them certify and are searched.
CLAIM: Final = Sampling(coverage=0.95, confidence=0.95)
CERTIFYING, SEARCHED = 59, 40

APAS, RETRAINED, WIDER = "APΔS", "RobustOptimum, retrained", "RobustOptimum, 1.5 delta"


class Optimum(NamedTuple):
    """What `RobustOptimum` is asked for: a claim, and about the shifts up to how many times the paper's delta."""

    claim: Sampling
    times: float = 1.0


_STATED = Sampling(coverage=0.995, confidence=0.999, n_samples=20_000)
#: `RobustOptimum` for boxes of shifts: at the claim that the paper states; at the one that the 10,000 draws of its
#: program show at the same confidence; and at the stated one for wider shifts.
OPTIMA: Final[Mapping[str, Optimum]] = MappingProxyType(
    {
        "RobustOptimum": Optimum(_STATED),
        "RobustOptimum, 99.931 %": Optimum(replace(_STATED, coverage=0.99931)),
        WIDER: Optimum(_STATED, 1.5),
    }
)
#: Parts that networks trained from scratch play; those of different parts have nothing in common.
PARTS: Final = ("search", "certify", "judge")


class MethodPoints(NamedTuple):
    """What a method found."""

    points: Floats
    seconds: float


def explain(preparation: Preparation, method: str, *, seed: int = 0) -> MethodPoints:
    """Explain the inputs of a dataset."""
    if method not in METHODS:
        raise InputError(f"`method` of Table 1 must be one of {', '.join(METHODS)}, got {method!r}.")
    return METHODS[method](preparation, method, seed)


def is_run(method: str, dataset: str) -> bool:
    """Whether a method is run on a dataset: Wachter's descents are not on credit, where all derivatives are 0."""
    return not method.startswith("Wacht") or dataset in WACHTERS


def refits_for(preparation: Preparation, part: str, count: int, *, seed: int) -> list[FeedForward]:
    """Networks trained from scratch that play a part, others for every seed."""
    return refitted_networks(preparation, count, seed=10_000 + len(PARTS) * seed + PARTS.index(part))


def _rows(preparation: Preparation) -> tuple[Floats, Indices]:
    """The inputs that differ, in the units of the file, and where each input is among them."""
    rows, places = np.unique(preparation.tables.space.numbers(preparation.raw_inputs), axis=0, return_inverse=True)
    return rows, places.ravel()


def _loop(preparation: Preparation, method: str, seed: int) -> MethodPoints:
    tests: dict[str, Method | str | None] = {"MILP": None, "MILP-R": "interval", APAS: PublishedSampling()}
    places, began = _rows(preparation)[1], time.process_time()
    found = published.published_loops(preparation, {method: tests[method]}).points[method]
    return MethodPoints(found[places], time.process_time() - began)


def _baseline(preparation: Preparation, method: str, seed: int) -> MethodPoints:
    sources: Mapping[str, CandidateSource] = WACHTERS if method.startswith("Wacht") else PROTOTYPES
    source, robust = sources[preparation.name], method.endswith("-R")
    run = published.run_baseline(preparation, source, robust=robust, retrained=(), method=method)
    return MethodPoints(_encode(preparation, run.counterfactuals.numbers, run.counterfactuals.found), run.seconds)


def _roar(preparation: Preparation, method: str, seed: int) -> MethodPoints:
    began = time.process_time()
    found = published.run_recourse(preparation, Roar(surrogate="published"), seed=seed)
    return MethodPoints(found, time.process_time() - began)


def _optimum(preparation: Preparation, method: str, seed: int) -> MethodPoints:
    """For a box of shifts, or for networks trained from scratch, of which some are searched and others certify."""
    rows, places = _rows(preparation)
    space, shifts = preparation.tables.space, None
    asked = OPTIMA.get(method, Optimum(CLAIM))
    if method == RETRAINED:
        counts = {"search": SEARCHED, "certify": CERTIFYING}
        networks = [net for part, count in counts.items() for net in refits_for(preparation, part, count, seed=seed)]
        shifts = ObservedShifts(networks, process="training from scratch on a bootstrap sample")
    options: dict[str, Any] = {"space": space, "background": preparation.d1.raw, "target": WANTED, "rng": seed}
    options |= {"shifts": shifts or "linf", "method": asked.claim}
    began, delta = time.process_time(), None if shifts else asked.times * preparation.delta
    found = generate(preparation.network, space.table(rows), delta, **options)
    return MethodPoints(_encode(preparation, found.numbers, found.found)[places], time.process_time() - began)


def _encode(preparation: Preparation, numbers: Floats, found: Bools) -> Floats:
    points = np.full((len(numbers), preparation.network.n_features), np.nan)
    points[found] = preparation.tables.space.coding.encode(numbers[found])
    return points


#: What explains the inputs, by name; in the order of the table.
METHODS: Final[Mapping[str, Callable[[Preparation, str, int], MethodPoints]]] = MappingProxyType(
    {
        "MILP": _loop,
        **dict.fromkeys(("Wachter", "Proto", "Wacht-R", "Proto-R"), _baseline),
        "MILP-R": _loop,
        "ROAR": _roar,
        APAS: _loop,
        **dict.fromkeys(OPTIMA, _optimum),
        RETRAINED: _optimum,
    }
)
