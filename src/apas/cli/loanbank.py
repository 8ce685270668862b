"""The bank of `apas demo`: its applications, its network, and how it trains it further."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from apas.datasets import CATEGORICAL, LOAN_FEATURES, make_loans

if TYPE_CHECKING:
    from pandas import DataFrame

    from apas.counterfactuals.space import FeatureSpace
    from apas.models.protocol import Model
    from apas.shifts.measure import ShiftReport

__all__ = ["LATER", "PASSES", "ROUNDS", "TRAINED", "LoanBank", "space_of"]

#: Applications that the network is trained on, and those that come in afterwards: this year, and again the next.
TRAINED, LATER = 2000, 1000
#: How the bank trains its network further: so many passes over the applications that came in.
PASSES = 3
#: How often it rehearses that.
ROUNDS = 5
_FEATURES = list(LOAN_FEATURES)


def space_of(loans: DataFrame) -> FeatureSpace:
    """What the bank may ask of an applicant: no other age, no lower income, amounts as people speak of them."""
    from apas import FeatureSpace

    return FeatureSpace.from_frame(
        loans[_FEATURES],
        immutable=["age", "dependants", "years_employed", "housing"],
        increase=["income"],
        decrease=["loan_amount", "existing_loans", "debt_ratio"],
        ranges={"income": (300, 15_000), "loan_amount": (500, 60_000), "debt_ratio": (0, 1.5)},
        steps={"income": 50, "loan_amount": 500, "duration_months": 6, "debt_ratio": 0.01},
        kinds={"credit_history": "ordinal"},
        values=dict(CATEGORICAL),
        scale="minmax",
    )


@dataclass(frozen=True, eq=False)
class LoanBank:
    """A bank with a year of applications; everything it does follows from the seed.

    Attributes
    ----------
    seed : int
    """

    seed: int

    def seeds(self, purpose: int) -> int:
        """A seed of its own for each purpose, so that no draws are used twice."""
        return int(np.random.SeedSequence((self.seed, purpose)).generate_state(1)[0])

    @cached_property
    def loans(self) -> DataFrame:
        """Applications of this year, with the lender's decisions."""
        return make_loans(TRAINED + LATER, rng=self.seed)

    @cached_property
    def space(self) -> FeatureSpace:
        """What an application may be, and how it may change."""
        return space_of(self.loans)

    @cached_property
    def network(self) -> Any:
        """The network as scikit-learn trains it, on encoded rows of the first applications."""
        from sklearn.neural_network import MLPClassifier

        seed = self.seeds(1)
        network = MLPClassifier((16,), alpha=0.01, learning_rate_init=0.005, tol=1e-3, max_iter=1000, random_state=seed)
        return network.fit(*self._encoded(self.loans[:TRAINED]))

    @cached_property
    def model(self) -> Model:
        """The network behind the coding of the space: it takes applications in raw units."""
        return self.space.bind(self.network)

    @property
    def agreement(self) -> int:
        """How many of the later applications, which the network has not seen, it decides as the lender did."""
        rows, decisions = self._encoded(self.loans[TRAINED:])
        return int((self.network.predict(rows) == decisions).sum())

    def rejected(self, most: int) -> DataFrame:
        """The first applicants of the year whom the network rejects."""
        rows, _ = self._encoded(self.loans)
        rejected: DataFrame = self.loans.loc[self.network.predict(rows) == 0, _FEATURES]
        return rejected.head(most)

    def rehearsal(self) -> ShiftReport:
        """How far the network moves if it is trained further on this year's later applications, several times."""
        from apas import estimate_delta

        rows, decisions = self._encoded(self.loans[TRAINED:])
        return estimate_delta(
            self.network, rows, decisions, update=trained_further, rounds=ROUNDS, fraction=1.0, rng=self.seeds(2)
        )

    def retrained(self) -> Model:
        """The model of next year, as it takes applications; nothing before the audit may ask for it."""
        loans = make_loans(LATER, drift=1.0, rng=self.seeds(3))
        return self.space.bind(trained_further(copy.deepcopy(self.network), *self._encoded(loans)))

    def _encoded(self, loans: DataFrame) -> tuple[Any, Any]:
        return self.space.encode(loans[_FEATURES]), loans["approved"].to_numpy()


def trained_further(network: Any, rows: Any, decisions: Any) -> Any:
    """The network itself after some more passes over the rows."""
    for _ in range(PASSES):
        network.partial_fit(rows, decisions)
    return network


def rounded_up(delta: float) -> float:
    """The next hundredth: what a bank would write into its plans.

    Examples
    --------
    >>> rounded_up(0.1926), rounded_up(0.2)
    (0.2, 0.2)
    """
    return math.ceil(round(100 * delta, 9)) / 100
