"""`audit`: whether a new model keeps what certificates promised about the old one."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._validation import check_flag, is_frame, is_path
from apas.certify.certificate import Certificate
from apas.certify.certificates import Certificates
from apas.certify.claims import Every
from apas.certify.entry import check_agreement
from apas.certify.problem import Problem
from apas.contracts.auditreport import AuditReport, AuditRow, Outcome
from apas.contracts.contents import stored_content
from apas.contracts.matching import wrong_targets
from apas.contracts.readings import question, rows_of
from apas.contracts.repairs import Repair, assumed_space, repaired
from apas.contracts.shiftsets import with_models
from apas.contracts.storage import load_certificates
from apas.contracts.stored import read_content
from apas.contracts.successor import Successor, bounds_distance, read_successor
from apas.counterfactuals.coded import CodedModel
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.space import FeatureSpace
from apas.counterfactuals.wanted import check_space
from apas.display.numbers import at_most, exactly
from apas.errors import ApasError, InputError
from apas.models.digest import model_digest
from apas.models.protocol import Model, Named, offers
from apas.shifts.gaussian import GaussianShifts
from apas.shifts.linf import LinfShifts
from apas.shifts.measure import ShiftReport, read_model
from apas.shifts.observed import ObservedShifts

__all__ = ["audit", "audited", "rows_on"]

_WRONG = (
    "THE CERTIFICATE WAS WRONG: it says that every model of its set gives the class, the new model is one of the set, "
    "and does not; check the certificate with verify, and if it holds there, report this as an error of apas"
)
#: Added to what a new model says of a row where its own rounding may say otherwise.
_DOUBT = ", within float32 rounding of the boundary, where the model itself may decide otherwise"
_ROUNDED = "Which class the new model itself gives to a row within float32 rounding of the boundary is not known here."
_NEVER_VALID = "since the certified model itself did not give the class"
_NO_SPACE = (
    "What the features may be was not said: repairs change {what}, and nobody knows whether that is possible; pass "
    "`space` (--space)."
)


def audit(
    certificates: Certificates | Counterfactuals | str | os.PathLike[str],
    new_model: Any,
    *,
    base: Any = None,
    validity_only: bool = False,
    space: FeatureSpace | None = None,
    repairs: bool = True,
) -> AuditReport:
    """Ask a new model whether it keeps what certificates promised; of what it breaks, find the nearest repair.

    Parameters
    ----------
    certificates : Certificates, Counterfactuals or path
        What `certify`, `generate` or `load_certificates` returned, or the name of a certificate file. Rows that are
        ``CERTIFIED`` are promises, others are not.
    new_model : object
        The model that is to be used from now on: see `as_model`. It must have the architecture, the features and the
        order of features of the model that was certified.
    base : object, optional
        The model that was certified. With it the shift is measured, overall and per layer, and each broken promise is
        said to lie inside or outside of what was certified; without it that is not known.
    validity_only : bool, default False
        Take a model of any architecture, match the columns by name, and ask only which rows are valid on it.
    space : FeatureSpace, optional
        What repairs may change. Known if `generate` made the certificates with a space that encodes the rows.
    repairs : bool, default True
        Whether to look for repairs.

    Returns
    -------
    AuditReport
        One line per certificate: ``HELD``, ``BROKEN_INSIDE``, ``BROKEN_OUTSIDE``, ``BROKEN`` (without `base`, or if
        not all of the models has a fingerprint) or ``NOT_PROMISED``.

    Notes
    -----
    A certificate about every shift is wrong if it is broken inside, and the report says so loudly; one about most
    shifts leaves a share out. A new preprocessing, threshold or list of classes is outside of every certificate. The
    certificates themselves are not checked: see `verify`. A repair is no promise: certify it before it becomes one.

    Examples
    --------
    >>> import apas
    >>> old = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
    >>> certificates = apas.certify(old, [[2.0, 0.5], [1.0, 0.9]], 0.01, target=1, method="interval")
    >>> new = apas.FeedForward([[[1.0], [-1.0]]], [[-0.2]], feature_names=("income", "debt"))
    >>> report = audit(certificates, new, base=old)
    >>> [row.outcome.name for row in report], float(report.shift)
    (['HELD', 'BROKEN_OUTSIDE'], 0.2)
    """
    check_flag(validity_only, "validity_only")
    check_flag(repairs, "repairs")
    if space is None and isinstance(certificates, Counterfactuals):
        space = certificates.space
    found = _certificates(certificates)
    if space is not None:
        check_space(space)
    return audited(found, new_model, base=base, validity_only=validity_only, space=space, repairs=repairs)


def audited(
    found: Certificates,
    new_model: Any,
    *,
    base: Any = None,
    validity_only: bool = False,
    space: FeatureSpace | None = None,
    repairs: bool = True,
) -> AuditReport:
    """The same for certificates alone; the arguments are checked."""
    new_digest = model_digest(read_model(new_model, "`new_model`"))
    if not len(found):
        return AuditReport([], points=found.points, new_digest=new_digest, index=found._index)
    stored = found if found.model is None else read_content(stored_content(found)).certificates
    assert stored is not None
    shifts = with_models(stored.shifts, found.shifts.models) if isinstance(found.shifts, ObservedShifts) else None
    shifts = stored.shifts if shifts is None else shifts
    new = read_successor(stored, new_model, base, validity_only=validity_only, known=found.model)
    problem = rows_on(stored, new)
    with np.errstate(over="ignore", invalid="ignore"):
        valid = problem.valid_rows()
        doubtful = np.abs(problem.model.margin(problem.X, problem.one_target)) <= problem.band
        rounded = problem.doubtful_rows()
    shift = new.shift(shifts)
    lies = {delta: new.lies_in(shifts, delta) for delta in {item.delta for item in stored}}
    rows = [
        _row(item, ok, lies[item.delta], near, _why(new, lies[item.delta], shift, shifts, item), doubt)
        for item, ok, near, doubt in zip(
            stored, valid.tolist(), doubtful.tolist(), np.where(rounded, _DOUBT, "").tolist(), strict=True
        )
    ]
    notes = list(new.notes)
    if rounded.any():
        notes.append(_ROUNDED)
    broken = np.array([row.outcome.is_broken for row in rows])
    if repairs and broken.any():
        found_repairs, note = _repairs(stored, new, broken, space)
        notes += note
        fixes = iter(found_repairs)
        rows = [AuditRow(**{**vars(r), "repair": next(fixes)}) if r.outcome.is_broken else r for r in rows]
    return AuditReport(
        rows, points=found.points, new_digest=new_digest, notes=notes, feature_names=found.feature_names,
        index=found._index, shifts={} if shift is None else {stored.model_digest: shift},
        comparable=bounds_distance(shifts) and not new.differs and not new.unidentified,
    )  # fmt: skip


def _certificates(certificates: Any) -> Certificates:
    if is_path(certificates):
        return load_certificates(os.fsdecode(certificates))
    found = certificates.certificates if isinstance(certificates, Counterfactuals) else certificates
    if not isinstance(found, Certificates):
        raise InputError(
            "`certificates` must be what certify, generate or load_certificates returns, or the name of a certificate "
            f"file, got {type(certificates).__name__}."
        )
    return found


def rows_on(found: Certificates, new: Successor) -> Problem:
    """The question whether the rows are valid on the new model; the shifts of it play no part."""
    complaints = [said for said in wrong_targets(list(found), new.model.classes) if said]
    if complaints:
        raise InputError(f"`new_model` must know the promised classes, but of a row {complaints[0]}.")
    if new.network_only:
        points: Any = None
        encoded: NDArray[np.float64] = np.array([r.encoded for r in found.readings or ()], dtype=np.float64)
    else:
        try:
            points, encoded = rows_of(new.model, _own_columns(found.points, found, new.model), found.feature_names)
        except ApasError as error:
            raise InputError(f"`new_model` cannot read the rows of the certificates: {error}") from None
        check_agreement(new.model, points, encoded, name="`new_model`")
    return question(new.model, encoded, points, list(found), LinfShifts())


def _own_columns(rows: Any, found: Certificates, model: Model) -> Any:
    """The columns of the new model in its order, where the certified one had others besides, or another order."""
    names = model.feature_names if offers(model, Named) else None
    if names is None or found.feature_names is None or not set(names) <= set(found.feature_names):
        return rows
    if tuple(names) == tuple(found.feature_names):
        return rows
    import pandas as pd

    frame = rows if is_frame(rows) else pd.DataFrame(rows, columns=list(found.feature_names))
    return frame[list(names)]


def _why(new: Successor, inside: bool | None, shift: ShiftReport | None, shifts: Any, item: Certificate) -> str:
    """What is known about the shift, in words."""
    if shift is None:
        return "whether the new model lies in the certified set was not measured"
    if inside is None and new.unidentified:
        return (
            "whether the new model lies in the certified set is not known, since not all of the models is identified "
            f"({new.unidentified})"
        )
    if new.differs:
        return f"the new model differs in more than parameters ({new.differs}), which no certificate covers"
    if isinstance(shifts, GaussianShifts):
        return "normal shifts have no limit, so that every change of the parameters that move is one of them"
    if not bounds_distance(shifts):  # their delta is in other units than the distance
        return f"the certified set is: {item.claim.measure}, delta = {exactly(item.delta)}"
    return (
        f"the certified delta is {exactly(item.delta)}, the distance of the parameters at most {at_most(shift.delta)}"
    )


def _row(item: Certificate, valid: bool, inside: bool | None, doubtful: bool, why: str, doubt: str) -> AuditRow:
    told: dict[str, Any] = {
        "valid": valid, "inside": inside, "verdict": item.verdict.name, "claim": str(item.claim),
        "target": item.target, "delta": item.delta, "was_valid": item.valid_today,
    }  # fmt: skip
    if not item.is_certified:
        was = item.verdict.name if item.valid_today else f"{item.verdict.name}, {_NEVER_VALID}"
        return AuditRow(Outcome.NOT_PROMISED, **told, reason=f"it was {was}, so nothing was promised")
    if valid:
        place = {
            True: "; the new model lies in the certified set",
            False: f", though outside of the certified set: {why}",
            None: "",
        }[inside]
        return AuditRow(Outcome.HELD, **told, reason=f"valid on the new model{doubt}{place}")
    if inside is None:
        return AuditRow(Outcome.BROKEN, **told, reason=f"not valid on the new model{doubt}; {why}")
    if not inside:
        return AuditRow(Outcome.BROKEN_OUTSIDE, **told, reason=f"not valid{doubt}: outside of the certified set; {why}")
    if isinstance(item.claim, Every):
        near = "; but its margin lies within rounding of 0, where a computed sign may be wrong" if doubtful else ""
        return AuditRow(Outcome.BROKEN_INSIDE, **told, reason=_WRONG + near)
    said = f"the certificate speaks of {item.claim}, and this is one of the rest; {why}"
    return AuditRow(
        Outcome.BROKEN_INSIDE, **told, reason=f"not valid{doubt}, though inside of the certified set: {said}"
    )


def _repairs(
    found: Certificates, new: Successor, broken: NDArray[np.bool_], space: FeatureSpace | None
) -> tuple[list[Repair], list[str]]:
    """Repairs of the broken rows, and what was assumed for them."""
    notes: list[str] = []
    count = int(broken.sum())
    if new.network_only:
        return [Repair(None, (), "", None, "the preprocessing is not at hand")] * count, notes
    if space is None and isinstance(new.model, CodedModel):
        space = new.model.space
    points = _own_columns(found.points, found, new.model)
    if space is None:
        inputs = None if found.inputs is None else _own_columns(found.inputs, found, new.model)
        try:
            space = assumed_space(points, inputs, found.feature_names)
        except ApasError as error:
            return [Repair(None, (), "", None, f"no space is known: {error}")] * count, notes
        what = "any feature" if inputs is None else "the features that promises of these certificates changed"
        notes.append(_NO_SPACE.format(what=what))
    rows = points.iloc[broken] if is_frame(points) else points[broken]
    targets = [item.target for item, hit in zip(found, broken, strict=True) if hit]
    return repaired(new.model, space, rows, targets), notes
