"""How good counterfactuals are: valid, near, sparse, plausible, robust; `evaluate` for all of it in one table."""

from __future__ import annotations

from apas.metrics.api import Evaluation, evaluate
from apas.metrics.distance import cost, distance_to_data, l0, l1, linf, lof, violations
from apas.metrics.validity import delta_validity, validity

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
