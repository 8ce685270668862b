"""Which explanations survive training from scratch: those made for a box of shifts, and those made for retraining.

Every method explains the inputs that differ. Networks trained anew play three parts, and none plays two: some are
searched, others certify, and further ones judge. What is made for a box of shifts sees none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from apas.certify.sampling import Sampling
from apas.counterfactuals.entry import generate
from apas.counterfactuals.result import Counterfactuals, Status
from apas.experiments.loops import published_loops
from apas.experiments.networks import Preparation
from apas.experiments.published import PublishedSampling
from apas.experiments.scratch import accepted_by, trained_anew
from apas.models.feedforward import FeedForward
from apas.shifts.observed import ObservedShifts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Survival", "Survivors", "survival_table"]

_Array = NDArray[np.float64]
#: What is claimed about networks trained from scratch, and how many of them certify, are searched, and judge.
CLAIM: Final = Sampling(coverage=0.95, confidence=0.95)
CERTIFYING, SEARCHED, JUDGES = 59, 40, 200
#: A claim counts as false if fewer judges accept, which one true claim in 2,000 would at a share of exactly 0.95.
LEAST = 179
#: Seeds of the networks of repetition r are these plus r: no two repetitions share one.
CERTIFY, SEARCH, JUDGE = 1000, 2000, 3000


@dataclass(frozen=True, eq=False)
class Survivors:
    """How the explanations of one method fare.

    Attributes
    ----------
    dataset, method : str
    inputs : int
        How many were to be explained.
    infeasible : int
        For how many it was proved that there is no explanation.
    l1 : ndarray of shape (found,)
        Distances of those found, as the network sees them.
    accepted : ndarray of int, shape (found,)
        How many of the 200 judges accept each.
    """

    dataset: str
    method: str
    inputs: int
    infeasible: int
    l1: _Array
    accepted: NDArray[np.int64]

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
            source.network, self.inputs, delta, target=1, space=space, background=source.d1.raw, **options  # type: ignore[arg-type]
        )  # fmt: skip

    def _judged(self, method: str, found: Counterfactuals) -> Survivors:
        coding, kept = self.preparation.tables.space.coding, found.found
        points, inputs = coding.encode(found.numbers[kept]), coding.encode(found.origins[kept])
        infeasible = sum(answer.status is Status.INFEASIBLE for answer in found)
        return self._survivors(method, points, inputs, len(found), infeasible)

    def _survivors(self, method: str, points: _Array, inputs: _Array, asked: int, infeasible: int) -> Survivors:
        l1 = np.abs(points - inputs).mean(axis=1)
        accepted = accepted_by(self.judges, points)
        return Survivors(self.preparation.name, method, asked, infeasible, l1, accepted)


def survival_table(results: Iterable[Survivors]) -> pd.DataFrame:
    """One line per dataset and method, repetitions taken together.

    Examples
    --------
    >>> half = Survivors("loans", "MILP", 4, 0, np.array([0.1, 0.3]), np.array([200, 100]))
    >>> survival_table([half, half]).round(3).iloc[0].tolist()
    [2.0, 0.5, 0.0, 0.2, 0.75, 0.5]
    """
    import pandas as pd

    lines = pd.DataFrame(
        {
            "dataset": r.dataset, "method": r.method, "inputs": r.inputs, "found": len(r.l1),
            "infeasible": r.infeasible, "l1": r.l1.sum(), "accepted": r.accepted.sum(), "false": r.n_false,
        }
        for r in results
    )  # fmt: skip
    groups = lines.groupby(["dataset", "method"], sort=False)
    sums = groups.sum()
    return pd.DataFrame(
        {
            "repetitions": groups.size(), "found": sums["found"] / sums["inputs"],
            "infeasible": sums["infeasible"] / sums["inputs"], "l1": sums["l1"] / sums["found"],
            "valid": sums["accepted"] / sums["found"] / JUDGES, "shown below 95 %": sums["false"] / sums["found"],
        }
    )  # fmt: skip
