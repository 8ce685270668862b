"""The paper's theorems, executable: hardness (Theorems 1 and 2) and notions of shifts (Lemma 3)."""

from __future__ import annotations

from apas.theory.formula import Formula, read_dimacs
from apas.theory.gadgets import LemmaCheck, PaperGadgets, PaperReduction, paper_reduction
from apas.theory.hardness import Neighbourhood, Reduction, failing_neighbourhood, reduction
from apas.theory.natural import NaturalEvidence, is_naturally_occurring, lipschitz_bound
from apas.theory.realizations import Answer, DistinctRealizations, distinct_realizations
from apas.theory.shift_notions import LEMMA_EXAMPLE, PlausibleExample, UnboundedFamily

__all__ = [
    "LEMMA_EXAMPLE",
    "Answer",
    "DistinctRealizations",
    "Formula",
    "LemmaCheck",
    "NaturalEvidence",
    "Neighbourhood",
    "PaperGadgets",
    "PaperReduction",
    "PlausibleExample",
    "Reduction",
    "UnboundedFamily",
    "distinct_realizations",
    "failing_neighbourhood",
    "is_naturally_occurring",
    "lipschitz_bound",
    "paper_reduction",
    "read_dimacs",
    "reduction",
]
