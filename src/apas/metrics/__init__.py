"""How good counterfactuals are: valid, near, sparse, plausible, robust; `evaluate` for all of it in one table."""

from apas.metrics.api import Evaluation, delta_validity, evaluate, validity
from apas.metrics.distance import cost, distance_to_data, l0, l1, linf, lof, violations

__all__ = [
    "Evaluation",
    "cost",
    "delta_validity",
    "distance_to_data",
    "evaluate",
    "l0",
    "l1",
    "linf",
    "lof",
    "validity",
    "violations",
]
