"""`audit`: whether a new model keeps what certificates promised about the old one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas._typing import Bools, Floats
from apas._validation import check_flag, is_frame, is_path
from apas.certification.api import check_agreement
from apas.certification.certificate import Certificate
from apas.certification.claims import Every
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.question import Question
from apas.certification.results import Certificates
from apas.contracts.file import load_certificates, read_content, stored_content
from apas.contracts.repairs import Repair, assumed_space, repaired
from apas.contracts.reports import AuditReport, AuditRow, Outcome
from apas.contracts.row_fingerprints import Origin, Reading, origin_of, question_of, readings, rows_of
from apas.contracts.shiftsets import AbsentModels, with_models
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.space.encoder import CodedModel
from apas.counterfactuals.space.space import FeatureSpace, check_space
from apas.display.numbers import at_most, exactly
from apas.errors import ApasError, GuaranteeWarning, InputError
from apas.models.base import Dense, Described, Model, Named, Raw, offers
from apas.models.digest import model_digest, unidentified
from apas.shifts.base import OtherMoves
from apas.shifts.distance import ShiftReport, compare_models, read_model
from apas.shifts.gaussian import GaussianShifts
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts

#: How far a preprocessing may be off on another machine, and a margin of nine digits.
SAME_UNITS, NINE_DIGITS = 1e-12, 1e-8


@dataclass(frozen=True)
class Matched:
    """The model of a file."""

    model: Model
    network_only: bool = False
    borrowed_space: bool = False
    unidentified: str = ""


def match_model(found: Certificates | MaxShifts, model: Model) -> Matched | str:
    """The model as the file needs it, or why it is another one."""
    origin = found.readings[0].origin if found.readings else None
    own, borrowed = model, False
    if origin is not None and origin.space is not None and model_digest(model) != found.model_digest:
        borrowed = True
        try:
            own = FeatureSpace.from_dict(origin.space).bind(model)
        except (ApasError, TypeError, ValueError, KeyError, AttributeError) as error:
            return f"the file's space does not fit the model: {error}"
    digest = model_digest(own)
    if digest == found.model_digest:
        complaint = _other(found, own, origin)
        matched = Matched(own, borrowed_space=borrowed, unidentified=unidentified(own))
        return matched if complaint is None else complaint
    network = model.as_feedforward() if offers(model, Dense) and not offers(model, Raw) else None
    behind = origin is not None and origin.preprocessing and network is not None
    if behind and origin is not None and network is not None and model_digest(network) == origin.network:
        return Matched(model, network_only=True)
    return (
        f"this is not the model that the file is about: its SHA-256 is {digest[:12]}..., the file says "
        f"{found.model_digest[:12]}..."
    )


def _other(found: Certificates | MaxShifts, model: Model, origin: Origin | None) -> str | None:
    """What the file says about the model besides its fingerprint and does not hold, or None."""
    names = model.feature_names if offers(model, Named) else None
    told = found.feature_names  # largest shifts were once written without
    if (told is not None or isinstance(found, Certificates)) and sorted(names or ()) != sorted(told or ()):
        return "the file's feature names are not those of the model"
    if origin is not None and origin != origin_of(model):
        return "what the file says about the network or the space behind the model is not true of it"
    return None


def asked(found: Certificates | MaxShifts, matched: Matched) -> tuple[Question, Floats]:
    """The question that the file answers, and its rows in model units as the model reads them now."""
    width = matched.model.n_features
    missing = (np.nan,) * width  # of a row that has another number of values, which is then no row of the model
    told = np.array([r.encoded if len(r.encoded) == width else missing for r in found.readings or ()], dtype=np.float64)
    points, encoded = None, told
    if not matched.network_only:
        points, encoded = rows_of(matched.model, found.points, found.feature_names)
    question = question_of(matched.model, encoded, points, list(found), found.shifts)
    return question, told


def row_complaints(found: Certificates | MaxShifts, question: Question, told: Floats) -> list[str | None]:
    """Per row what its target, its values in model units or its margins are not, or None."""
    exact = not offers(question.model, Raw)
    allowed = 0.0 if exact else SAME_UNITS * np.maximum(1.0, np.abs(question.X))
    close: list[bool] = np.all(np.abs(told - question.X) <= allowed, axis=1).tolist()
    now = readings(question, list(found))
    # margins of a dense network are computed in float64, whatever it is used in
    same = question.single and question.network is not None and not offers(question.shifts, OtherMoves)
    precise = replace(question, model=question.network.with_dtype("float64")) if same and question.network else question
    band = precise.band if len(question) else np.empty(0)
    return [
        "its values in model units are not what the model makes of its raw values"
        if not close[i]
        else _margins(told_row, now_row, float(band[i]), isinstance(found, Certificates))
        for i, (told_row, now_row) in enumerate(zip(found.readings or (), now, strict=True))
    ]


def wrong_targets(items: Sequence[Certificate | MaxShift], classes: tuple[Any, ...]) -> list[str | None]:
    """Per row whether its target is no class of the model."""
    known = {(type(c), c) for c in (c.item() if isinstance(c, np.generic) else c for c in classes)}
    return [
        None if (type(item.target), item.target) in known else f"its target {item.target!r} is no class of the model"
        for item in items
    ]


def _margins(told: Reading, now: Reading, band: float, drawn: bool) -> str | None:
    """Which margin is another one, or None; that on the first draw belongs to a certificate."""
    pairs = [("model itself", told.margin, now.margin)]
    pairs += [("first draw", told.first_draw, now.first_draw)] if drawn else []
    for name, was, is_ in pairs:
        known = was is not None and is_ is not None
        if was != is_ and not (known and abs(was - is_) <= NINE_DIGITS * abs(is_) + band):  # type: ignore[operator, arg-type]
            return f"its margin on the {name} is {is_!r}, the file says {was!r}"
    return None


#: What may differ between two models of one architecture besides the parameters; no shift of parameters covers it.
_BESIDES = ("preprocessing", "code", "threshold", "classes", "buffers", "dtype", "coding")
_INSTEAD = "to ask only whether the rows are valid on it, pass validity_only=True (--validity-only)"
_IN_MODEL_UNITS = (
    "The rows were taken in model units, as they were certified: the preprocessing is not part of the new model, and "
    "is taken to be the same."
)
#: How the note begins that says so.
BEYOND_PARAMETERS = "The new model differs from the certified one in more than parameters"
#: How the note begins that says that nobody knows whether it does.
NOT_IDENTIFIED = "Not all of the models is identified"
_UNNAMED = "The new model does not name its features: columns were taken in the order of the certificates."


@dataclass(frozen=True)
class Successor:
    """A new model beside the one that was certified."""

    model: Model
    given: Model
    base: Model | None
    network_only: bool
    differs: str
    unidentified: str
    notes: tuple[str, ...]

    def shift(self, shifts: Any) -> ShiftReport | None:
        """How far the parameters moved, in the distance that the certified set is about."""
        if self.base is None:
            return None
        order = shifts.p if isinstance(shifts, LpShifts) else float("inf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GuaranteeWarning)  # the audit itself says what else differs
            return compare_models(self.base, [self.model], p=order, names=["`new_model`"], columns=["new model"])

    def lies_in(self, shifts: Any, delta: float) -> bool | None:
        """Whether the new model is one that certificates about `shifts` by `delta` speak of; None if nobody knows."""
        if self.base is None:
            return None
        if isinstance(shifts, ObservedShifts | AbsentModels):
            if delta == 1:  # the listed models themselves, with all that belongs to them
                known = shifts.to_dict()["models"]
                listed = model_digest(self.model) in known or model_digest(self.given) in known
                return None if listed and self.unidentified else listed
            if isinstance(shifts, AbsentModels):
                return None
        if self.differs or not shifts.contains(self.base.parameters, self.model.parameters, delta):
            return False
        return None if self.unidentified else True


def bounds_distance(shifts: Any) -> bool:
    """Whether the delta of a set of shifts bounds the distance that is measured, over all parameters."""
    if isinstance(shifts, LinfShifts):
        return bool(shifts == LinfShifts())
    return isinstance(shifts, LpShifts) and shifts.to_dict() == LpShifts(shifts.p).to_dict()


def read_successor(
    found: Certificates, new_model: Any, base: Any, *, validity_only: bool, known: Model | None = None
) -> Successor:
    """Read the new model for the rows of certificates; refuse what cannot be compared."""
    origin = found.readings[0].origin if found.readings else Origin(False, None, None)
    given = read_model(new_model, "`new_model`")
    old, network_only = None, origin.preprocessing and origin.space is None and not offers(given, Raw)
    if base is not None:
        matched = match_model(found, read_model(base, "`base`"))
        if isinstance(matched, str):
            raise InputError(
                f"`base` must be the model that the certificates are about, but {matched}; pass that model, or none."
            )
        old = matched.model
        if not validity_only and matched.network_only != network_only:
            raise InputError(
                "`base` and `new_model` must both come with their preprocessing, or both as the network behind it, but "
                "only one of them does."
            )
    new = _bound(given, origin, found, network_only)
    notes = (_IN_MODEL_UNITS,) if network_only else ()
    if not network_only and found.feature_names is not None and _names(new) is None:
        notes = (*notes, _UNNAMED)
    if validity_only:
        return Successor(new, given, None, network_only, "", "", notes)
    compared = old if old is not None else known
    if compared is not None:
        _refuse_other_architecture(compared, new)
    _refuse_other_features(found, given, new, base, network_only)
    differs = "" if old is None else _differences(old, new)
    if differs and not isinstance(found.shifts, ObservedShifts | AbsentModels):  # listed models may differ in anything
        what = f"{BEYOND_PARAMETERS} ({differs}): however small the measured shift is, it lies in no certified set."
        notes = (*notes, what)
    missing = "" if old is None else "; ".join(dict.fromkeys(filter(None, (unidentified(old), unidentified(new)))))
    if missing and not differs:
        what = f"{NOT_IDENTIFIED} ({missing}): that part could not be compared, and may differ at any measured shift."
        notes = (*notes, what)
    return Successor(new, given, old, network_only, differs, missing, notes)


def _bound(given: Model, origin: Origin, found: Certificates, network_only: bool) -> Model:
    """The new model as the rows need it."""
    if origin.space is not None and not isinstance(given, CodedModel):
        try:
            return FeatureSpace.from_dict(origin.space).bind(given)
        except (ApasError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"`new_model` must fit the space that the certificates were made with: {error}") from None
    width = len(found.readings[0].encoded) if found.readings else given.n_features
    if network_only and given.n_features != width:
        raise InputError(
            f"`new_model` must take rows in raw units, as the certified model did, or be the network behind the same "
            f"preprocessing, which has {width} inputs, got {given!r}; pass the whole pipeline."
        )
    return given


def _names(model: Model) -> tuple[str, ...] | None:
    names = model.feature_names if offers(model, Named) else None
    return None if names is None else tuple(names)


def _described(model: Model) -> dict[str, Any]:
    return model.describe() if offers(model, Described) else {"classes": [str(c) for c in model.classes]}


def _refuse_other_architecture(old: Model, new: Model) -> None:
    ours, theirs = _described(old), _described(new)
    fixed = [key for key in {**ours, **theirs} if key not in (*_BESIDES, "feature_names")]
    if not (offers(old, Described) and offers(new, Described)):
        fixed = []
    for key in fixed:
        if ours.get(key) != theirs.get(key):
            pair = f"{theirs.get(key)} instead of {ours.get(key)}"
            shown = f" ({pair})" if len(pair) < 120 else ""
            raise InputError(
                "`new_model` must have the architecture of the certified model, but differs in "
                f"{key.replace('_', ' ')}{shown}; {_INSTEAD}."
            )
    if old.parameters.shapes != new.parameters.shapes or old.n_features != new.n_features:
        raise InputError(
            "`new_model` must have the architecture of the certified model, but the shapes of its parameters differ; "
            f"{_INSTEAD}."
        )


def _refuse_other_features(found: Certificates, given: Model, new: Model, base: Any, network_only: bool) -> None:
    """Features must be the same ones, in the same order if that is known."""
    theirs = _names(given if base is not None else new)
    ours = found.feature_names if base is None else _names(read_model(base, "`base`"))
    if theirs is None or ours is None or network_only or theirs == tuple(ours):
        return
    same = sorted(theirs) == sorted(ours)
    if base is None and same and offers(new, Raw) and not isinstance(new, CodedModel):
        return  # rows are matched by name, and the order of the pipeline that was certified is not known
    first = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
    what = "the same features in another order" if same else "other features"
    raise InputError(
        f"`new_model` must have the features of the certified model in their order, but it has {what}: number {first} "
        f"is {theirs[first]!r} instead of {ours[first]!r}; {_INSTEAD}."
    )


def _differences(old: Model, new: Model) -> str:
    ours, theirs = _described(old), _described(new)
    return ", ".join(key for key in _BESIDES if ours.get(key) != theirs.get(key))


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
    question = rows_on(stored, new)
    with np.errstate(over="ignore", invalid="ignore"):
        valid = question.valid_rows()
        doubtful = np.abs(question.model.margin(question.X, question.one_target)) <= question.band
        rounded = question.doubtful_rows()
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
        rows,
        points=found.points,
        new_digest=new_digest,
        notes=notes,
        feature_names=found.feature_names,
        index=found._index,
        shifts={} if shift is None else {stored.model_digest: shift},
        comparable=bounds_distance(shifts) and not new.differs and not new.unidentified,
    )


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


def rows_on(found: Certificates, new: Successor) -> Question:
    """The question whether the rows are valid on the new model; the shifts of it play no part."""
    complaints = [said for said in wrong_targets(list(found), new.model.classes) if said]
    if complaints:
        raise InputError(f"`new_model` must know the promised classes, but of a row {complaints[0]}.")
    if new.network_only:
        points: Any = None
        encoded: Floats = np.array([r.encoded for r in found.readings or ()], dtype=np.float64)
    else:
        try:
            points, encoded = rows_of(new.model, _own_columns(found.points, found, new.model), found.feature_names)
        except ApasError as error:
            raise InputError(f"`new_model` cannot read the rows of the certificates: {error}") from None
        check_agreement(new.model, points, encoded, name="`new_model`")
    return question_of(new.model, encoded, points, list(found), LinfShifts())


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
        "valid": valid,
        "inside": inside,
        "verdict": item.verdict.name,
        "claim": str(item.claim),
        "target": item.target,
        "delta": item.delta,
        "was_valid": item.valid_today,
    }
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
    found: Certificates, new: Successor, broken: Bools, space: FeatureSpace | None
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
