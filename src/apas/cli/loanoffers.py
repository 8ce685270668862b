"""The offers of `apas demo`: what rejected applicants are told, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from apas.cli.loanbank import LoanBank

if TYPE_CHECKING:
    from pandas import DataFrame

    from apas.certify.certificates import Certificates
    from apas.certify.maxshifts import MaxShifts
    from apas.contracts.auditreport import AuditReport
    from apas.counterfactuals.result import Counterfactuals
    from apas.models.protocol import Model

__all__ = ["Offers", "plain_offers", "robust_offers"]

#: Shifts that a plain offer is proved to survive: none worth the name, so that it is an offer for today's model only.
NEXT_TO_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class Offers:
    """Offers of one kind, and what was certified about them.

    Attributes
    ----------
    name : str
        "plain" or "robust".
    found : Counterfactuals
        One per applicant, found or not.
    certificates : Certificates
        Of those that were found, at the bank's delta, about most shifts.
    worst : Certificates
        The same about every shift.
    radii, proved : MaxShifts
        The largest delta of each, for most shifts and for every shift.
    """

    name: str
    found: Counterfactuals
    certificates: Certificates
    worst: Certificates
    radii: MaxShifts
    proved: MaxShifts

    @property
    def cost(self) -> float:
        """The mean change in units of the ranges, over those that were found."""
        costs = [item.cost for item in self.found if item.is_found]
        return float(np.mean(costs)) if costs else float("nan")

    def audit(self, bank: LoanBank, retrained: Model) -> AuditReport:
        """What becomes of the offers on the retrained model."""
        from apas import audit

        return audit(self.certificates, retrained, base=bank.model, space=bank.space)

    def frame(self, audit: AuditReport) -> DataFrame:
        """One line per applicant: what is offered, what is certified, and what became of it."""
        frame = self.found.to_frame()[["status", "changes", "cost"]].rename_axis("applicant")
        known = {
            "verdict_most": [c.verdict.name for c in self.certificates],
            "verdict_every": [c.verdict.name for c in self.worst],
            "largest_delta_most": self.radii.deltas, "largest_delta_every": self.proved.deltas,
            "outcome": [row.outcome.name for row in audit], "valid_next_year": [row.valid for row in audit],
        }  # fmt: skip
        for name, values in known.items():
            column = np.full(len(frame), None, dtype=object)
            column[self.found.found] = values
            frame[name] = column
        return frame

    def to_dict(self, audit: AuditReport) -> dict[str, Any]:
        """The counts, as JSON values."""
        found = int(self.found.found.sum())
        return {
            "applicants": len(self.found), "found": found, "mean_change": self.cost if found else None,
            "certified_most": int(self.certificates.certified.sum()),
            "certified_every": int(self.worst.certified.sum()),
            "median_delta_most": _median(self.radii), "median_delta_every": _median(self.proved),
            "valid_next_year": sum(row.valid for row in audit),
            "broken_promises": int(audit.broken.sum()), "audit": audit.summary(),
        }  # fmt: skip


def plain_offers(bank: LoanBank, applicants: DataFrame, delta: float) -> Offers:
    """Small changes that today's model accepts; nobody asks about tomorrow's before they are made."""
    from apas import certify, generate

    found = generate(
        bank.model, applicants, NEXT_TO_NOTHING, target=1, space=bank.space, source="milp", method="interval"
    )
    made = found[found.found]
    certificates = certify(bank.model, made.points, delta, target=1, rng=bank.seeds(4))
    return _offers("plain", bank, found, certificates, delta)


def robust_offers(bank: LoanBank, applicants: DataFrame, delta: float) -> Offers:
    """Small changes that are certified; the search has draws of its own, so its certificates count as they are."""
    from apas import generate

    found = generate(bank.model, applicants, delta, target=1, space=bank.space, rng=bank.seeds(5))
    return _offers("robust", bank, found, found.certificates, delta)


def _offers(name: str, bank: LoanBank, found: Counterfactuals, certificates: Certificates, delta: float) -> Offers:
    from apas import certify, max_shift

    made = found[found.found]
    worst = certify(bank.model, made.points, delta, target=1, method="cascade", rng=bank.seeds(6))
    for known in (certificates, worst):  # nobody has seen them yet; with the inputs a reader sees what changes
        known.inputs = made.inputs
    radii = max_shift(bank.model, made.points, target=1, rng=bank.seeds(7))
    proved = max_shift(bank.model, made.points, target=1, method="cascade", rng=bank.seeds(8))
    return Offers(name, found, certificates, worst, radii, proved)


def _median(shifts: MaxShifts) -> float | None:
    return float(np.median(shifts.deltas)) if len(shifts) else None
