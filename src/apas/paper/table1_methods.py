"""The methods of Table 1, and which of their explanations survive training from scratch.

Every method explains the inputs that differ. Networks trained anew play three parts, and none plays two: some are
searched, others certify, and further ones judge. What is made for a box of shifts sees none of them.

All give points in the columns of the network, since those of ROAR need not be rows of any table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from apas._typing import Bools, Floats, Indices, Integers
from apas.certification.methods.sampling import Sampling
from apas.certification.question import Method
from apas.counterfactuals.api import generate
from apas.counterfactuals.result import Counterfactuals, Status
from apas.counterfactuals.search.source import CandidateSource
from apas.counterfactuals.sources.roar import Roar
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.paper.baselines import PROTOTYPES, WACHTERS, WANTED, published_loops, run_baseline, run_recourse
from apas.paper.networks import Preparation
from apas.paper.published import PublishedSampling
from apas.paper.retrained_networks import accepted_by, trained_anew
from apas.shifts.observed import ObservedShifts

if TYPE_CHECKING:
    import pandas as pd


#: What is claimed about networks trained from scratch, and how many of them certify, are searched, and judge.
CLAIM: Final = Sampling(coverage=0.95, confidence=0.95)
CERTIFYING, SEARCHED, JUDGES = 59, 40, 200
#: A claim counts as false if fewer judges accept, which one true claim in 2,000 would at a share of exactly 0.95.
LEAST = 179
#: Seeds of the networks of repetition r are these plus r: no two repetitions share one.
CERTIFY, SEARCH, JUDGE = 1000, 2000, 3000


@dataclass(frozen=True, eq=False)
class Survivors:
    """How the explanations of one method fare."""

    dataset: str
    method: str
    inputs: int
    infeasible: int
    l1: Floats
    accepted: Integers

    @property
    def n_false(self) -> int:
        """For how many "at least 95 % of the networks trained anew accept it" is false, claimed or not."""
        return int(np.count_nonzero(self.accepted < LEAST))


@dataclass(frozen=True, eq=False)
class Survival:
    """Explanations of one dataset before networks trained from scratch, all of which a repetition has to itself."""

    preparation: Preparation
    repetition: int = 0

    @cached_property
    def searched(self) -> list[FeedForward]:
        """Networks that a search may look at."""
        return trained_anew(self.preparation, SEARCHED, seed=SEARCH + self.repetition)

    @cached_property
    def judges(self) -> list[FeedForward]:
        """Networks that no search and no certificate has seen."""
        return trained_anew(self.preparation, JUDGES, seed=JUDGE + self.repetition)

    @property
    def inputs(self) -> pd.DataFrame:
        """The inputs that differ, in raw units."""
        return self.preparation.raw_inputs.drop_duplicates()

    def of_a_box(self) -> Iterator[Survivors]:
        """MILP, MILP-R and APΔS as published and `RobustOptimum`, all for the shifts of the paper's delta."""
        tests = {"MILP": None, "MILP-R": "interval", "APΔS": PublishedSampling()}
        loops = published_loops(self.preparation, tests)
        for method, points in loops.points.items():
            yield self._survivors(method, points, loops.inputs, len(points), 0)
        yield self._judged("RobustOptimum", self._generated(self.preparation.delta, rng=0))

    def of_retraining(self) -> Survivors:
        """`RobustOptimum` with 40 networks to search and 59 others to certify, at (0.95, 0.95)."""
        certifying = trained_anew(self.preparation, CERTIFYING, seed=CERTIFY + self.repetition)
        shifts = ObservedShifts([*self.searched, *certifying], process="training from scratch on a bootstrap sample")
        found = self._generated(None, shifts=shifts, method=CLAIM, rng=self.repetition)
        return self._judged("RobustOptimum, retrained", found)

    def _generated(self, delta: float | None, **options: object) -> Counterfactuals:
        source, space = self.preparation, self.preparation.tables.space
        return generate(
            source.network,
            self.inputs,
            delta,
            target=1,
            space=space,
            background=source.d1.raw,
            **options,  # type: ignore[arg-type]
        )

    def _judged(self, method: str, found: Counterfactuals) -> Survivors:
        coding, kept = self.preparation.tables.space.coding, found.found
        points, inputs = coding.encode(found.numbers[kept]), coding.encode(found.origins[kept])
        infeasible = sum(answer.status is Status.INFEASIBLE for answer in found)
        return self._survivors(method, points, inputs, len(found), infeasible)

    def _survivors(self, method: str, points: Floats, inputs: Floats, asked: int, infeasible: int) -> Survivors:
        l1 = np.abs(points - inputs).mean(axis=1)
        accepted = accepted_by(self.judges, points)
        return Survivors(self.preparation.name, method, asked, infeasible, l1, accepted)


def survival_table(results: Iterable[Survivors]) -> pd.DataFrame:
    """One line per dataset and method, repetitions taken together."""
    import pandas as pd

    lines = pd.DataFrame(
        {
            "dataset": r.dataset,
            "method": r.method,
            "inputs": r.inputs,
            "found": len(r.l1),
            "infeasible": r.infeasible,
            "l1": r.l1.sum(),
            "accepted": r.accepted.sum(),
            "false": r.n_false,
        }
        for r in results
    )
    groups = lines.groupby(["dataset", "method"], sort=False)
    sums = groups.sum()
    return pd.DataFrame(
        {
            "repetitions": groups.size(),
            "found": sums["found"] / sums["inputs"],
            "infeasible": sums["infeasible"] / sums["inputs"],
            "l1": sums["l1"] / sums["found"],
            "valid": sums["accepted"] / sums["found"] / JUDGES,
            "shown below 95 %": sums["false"] / sums["found"],
        }
    )


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


class Explained(NamedTuple):
    """What a method found."""

    points: Floats
    seconds: float


def explain(preparation: Preparation, method: str, *, seed: int = 0) -> Explained:
    """Explain the inputs of a dataset."""
    if method not in METHODS:
        raise InputError(f"`method` of Table 1 must be one of {', '.join(METHODS)}, got {method!r}.")
    return METHODS[method](preparation, method, seed)


def is_run(method: str, dataset: str) -> bool:
    """Whether a method is run on a dataset: Wachter's descents are not on credit, where all derivatives are 0."""
    return METHODS[method] is not _wachter or dataset in WACHTERS


def anew(preparation: Preparation, part: str, count: int, *, seed: int) -> list[FeedForward]:
    """Networks trained from scratch that play a part, others for every seed."""
    return trained_anew(preparation, count, seed=10_000 + len(PARTS) * seed + PARTS.index(part))


def _rows(preparation: Preparation) -> tuple[Floats, Indices]:
    """The inputs that differ, in the units of the file, and where each input is among them."""
    numbers = preparation.tables.space.numbers(preparation.raw_inputs)
    rows, places = np.unique(numbers, axis=0, return_inverse=True)
    return rows, places.ravel()


def _loop(preparation: Preparation, method: str, seed: int) -> Explained:
    tests: dict[str, Method | str | None] = {"MILP": None, "MILP-R": "interval", APAS: PublishedSampling()}
    places = _rows(preparation)[1]
    began = time.process_time()
    found = published_loops(preparation, {method: tests[method]}).points[method]
    return Explained(found[places], time.process_time() - began)


def _wachter(preparation: Preparation, method: str, seed: int) -> Explained:
    return _descended(preparation, WACHTERS[preparation.name], method)


def _prototype(preparation: Preparation, method: str, seed: int) -> Explained:
    return _descended(preparation, PROTOTYPES[preparation.name], method)


def _descended(preparation: Preparation, source: CandidateSource, method: str) -> Explained:
    run = run_baseline(preparation, source, robust=method.endswith("-R"), retrained=(), method=method)
    numbers = run.counterfactuals.numbers
    return Explained(_encoded(preparation, numbers, run.counterfactuals.found), run.seconds)


def _roar(preparation: Preparation, method: str, seed: int) -> Explained:
    began = time.process_time()
    found = run_recourse(preparation, Roar(surrogate="published"), seed=seed)
    return Explained(found, time.process_time() - began)


def _optimum(preparation: Preparation, method: str, seed: int) -> Explained:
    """For a box of shifts, or for networks trained from scratch, of which some are searched and others certify."""
    rows, places = _rows(preparation)
    space, shifts = preparation.tables.space, None
    asked = OPTIMA.get(method, Optimum(CLAIM))
    if method == RETRAINED:
        counts = {"search": SEARCHED, "certify": CERTIFYING}
        networks = [net for part, count in counts.items() for net in anew(preparation, part, count, seed=seed)]
        shifts = ObservedShifts(networks, process="training from scratch on a bootstrap sample")
    began = time.process_time()
    found = generate(
        preparation.network,
        space.table(rows),
        None if shifts else asked.times * preparation.delta,
        target=WANTED,
        space=space,
        background=preparation.d1.raw,
        shifts=shifts or "linf",
        method=asked.claim,
        rng=seed,
    )
    seconds = time.process_time() - began
    return Explained(_encoded(preparation, found.numbers, found.found)[places], seconds)


def _encoded(preparation: Preparation, numbers: Floats, found: Bools) -> Floats:
    points = np.full((len(numbers), preparation.network.n_features), np.nan)
    points[found] = preparation.tables.space.coding.encode(numbers[found])
    return points


#: What explains the inputs, by name; in the order of the table.
METHODS: Final[Mapping[str, Callable[[Preparation, str, int], Explained]]] = MappingProxyType(
    {
        "MILP": _loop,
        "Wachter": _wachter,
        "Proto": _prototype,
        "Wacht-R": _wachter,
        "Proto-R": _prototype,
        "MILP-R": _loop,
        "ROAR": _roar,
        APAS: _loop,
        **dict.fromkeys(OPTIMA, _optimum),
        RETRAINED: _optimum,
    }
)
