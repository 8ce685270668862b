"""The search for one counterfactual of one row, as far as it has got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.certificate import Certificate
from apas.counterfactuals.result import Status
from apas.counterfactuals.source import Candidate, Search

__all__ = ["Hunt", "asked_about", "given_up"]

_Array = NDArray[np.float64]


@dataclass
class Hunt:
    """The search for one counterfactual of one row."""

    search: Search
    rank: int
    delta: float
    stream: Iterator[Candidate]
    candidate: Candidate | None = None
    slack: float | None = None
    hopeful: bool = False
    asked: int = 0
    candidates: int = 0
    tests: int = 0
    answer: Certificate | None = None
    best: tuple[float, _Array, Certificate] | None = None
    ended: tuple[Status, str] | None = None
    seen: set[bytes] = field(default_factory=set)


def asked_about(hunts: list[Hunt]) -> tuple[_Array, NDArray[Any], _Array]:
    """Points, wanted classes and deltas of the candidates of several hunts."""
    points = np.stack([h.candidate.point for h in hunts if h.candidate is not None])
    targets = np.empty(len(hunts), dtype=object)
    targets[:] = [h.search.target for h in hunts]
    return points, targets, np.array([h.delta for h in hunts])


def given_up(hunt: Hunt, why: str, status: Status = Status.BUDGET) -> tuple[Status, str]:
    """How a hunt ends that goes no further: what it has found it keeps."""
    if hunt.best is not None:
        return Status.FOUND, hunt.best[2].reason
    looked = f"{hunt.asked} point{'s' if hunt.asked != 1 else ''} looked at, {hunt.tests} tested, none certified"
    return status, f"{why}; {looked}"
