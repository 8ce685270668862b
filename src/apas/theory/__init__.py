"""The paper's theorems, executable: hardness (Theorems 1 and 2) and notions of shifts (Lemma 3)."""

from __future__ import annotations

from apas.theory.hardness import (
    Answer,
    DistinctRealizations,
    Formula,
    Neighbourhood,
    Reduction,
    distinct_realizations,
    failing_neighbourhood,
    read_dimacs,
    reduction,
)
from apas.theory.lipschitz import lipschitz_bound
from apas.theory.shift_notions import (
    LEMMA_EXAMPLE,
    NaturalEvidence,
    PlausibleExample,
    UnboundedFamily,
    is_naturally_occurring,
)

__all__ = [
    "LEMMA_EXAMPLE",
    "Answer",
    "DistinctRealizations",
    "Formula",
    "NaturalEvidence",
    "Neighbourhood",
    "PlausibleExample",
    "Reduction",
    "UnboundedFamily",
    "distinct_realizations",
    "failing_neighbourhood",
    "is_naturally_occurring",
    "lipschitz_bound",
    "read_dimacs",
    "reduction",
]
