"""A model that is to follow the one that was certified: whether it can be compared, and what differs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from apas.certify.certificates import Certificates
from apas.contracts.matching import match_model
from apas.contracts.readings import Origin
from apas.contracts.shiftsets import AbsentModels
from apas.counterfactuals.coded import CodedModel
from apas.counterfactuals.space import FeatureSpace
from apas.errors import ApasError, GuaranteeWarning, InputError
from apas.models.digest import model_digest, unidentified
from apas.models.protocol import Described, Model, Named, Raw, offers
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.measure import ShiftReport, compare_models, read_model
from apas.shifts.observed import ObservedShifts

__all__ = ["BEYOND_PARAMETERS", "NOT_IDENTIFIED", "Successor", "bounds_distance", "read_successor"]

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
    """A new model beside the one that was certified.

    Attributes
    ----------
    model : Model
        The new one; takes rows in raw units, unless only the network is known.
    given : Model
        The same as it was given, without the coding of a space.
    base : Model or None
        The certified one, if the two are to be compared.
    network_only : bool
        Whether rows are taken in model units.
    differs : str
        What differs besides parameters, in words; empty if nothing is known to.
    unidentified : str
        What of the two models has no fingerprint, so that it could not be compared; empty if all of it has one.
    notes : tuple of str
    """

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
    """Read the new model for the rows of certificates; refuse what cannot be compared.

    Parameters
    ----------
    found : Certificates
        As a file has them, at least one.
    new_model, base : object
        See `audit`.
    validity_only : bool
    known : Model, optional
        The model that was certified, if it is at hand though not given as `base`.
    """
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
