"""One audit over promises that were made about different models and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from apas.certify.certificates import Certificates
from apas.contracts.audit import audited
from apas.contracts.auditreport import AuditReport, AuditRow
from apas.contracts.matching import match_model
from apas.contracts.promises import joined
from apas.counterfactuals.space import FeatureSpace
from apas.counterfactuals.wanted import check_space
from apas.errors import InputError
from apas.models.digest import model_digest
from apas.shifts.measure import ShiftReport, read_model

__all__ = ["joint_audit"]


def joint_audit(
    texts: Sequence[str],
    labels: Sequence[str],
    new_model: Any,
    *,
    base: Any = None,
    validity_only: bool = False,
    space: FeatureSpace | None = None,
    repairs: bool = True,
    expired: int = 0,
    strict: bool = False,
) -> AuditReport:
    """Audit promises, each the text of a certificate file, in their order; `base` may be several models.

    A promise about none of the base models is asked about without a base. How many more promises have `expired`, and
    whether that fails the audit, goes into the report.
    """
    if space is not None:
        check_space(space)
    given = [] if base is None else list(base) if isinstance(base, list | tuple) else [base]
    bases = [read_model(model, "`base`") for model in given]
    new = read_model(new_model, "`new_model`")
    groups = joined(texts, labels)
    chosen = [_own_base(found, bases) for _, found in groups]
    if bases and groups and all(own is None for own in chosen):
        raise InputError("`base` must be a model that promises of the ledger are about, but none is; leave it out.")
    rows: dict[int, AuditRow] = {}
    shifts: dict[str, ShiftReport] = {}
    notes: list[str] = []
    comparable = bool(groups)
    for (numbers, found), own in zip(groups, chosen, strict=True):
        report = audited(found, new, base=own, validity_only=validity_only, space=space, repairs=repairs)
        rows |= dict(zip(numbers, report, strict=True))
        shifts |= report.shifts
        comparable &= report.comparable and bool(report.shifts)
        notes += [note for note in report.notes if note not in notes]
    if bases and not all(own is not None for own in chosen):
        notes.append(
            "Some promises are about models that are not among the given bases; no shift was measured for them."
        )
    return AuditReport(
        [rows[number] for number in range(len(labels))], points=groups[0][1].points if len(groups) == 1 else None,
        new_digest=model_digest(new), shifts=shifts, notes=notes, index=np.array(labels, dtype=object),
        comparable=comparable, expired=expired, strict=strict,
    )  # fmt: skip


def _own_base(found: Certificates, bases: Sequence[Any]) -> Any:
    """The model that these certificates are about, if it is given."""
    return next((model for model in bases if not isinstance(match_model(found, model), str)), None)
