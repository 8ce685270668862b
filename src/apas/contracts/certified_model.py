"""The model behind certificates: how it reads rows, whether a given model is it, and what a successor changes.

A certificate without a failing draw would look the same for a slightly different delta, seed or row. The margin on the
first of the drawn models would not: it depends on all of them. Where nothing was drawn one model is, from a stream of
its own. Margins are kept with nine digits, since the last ones depend on how a machine adds up.
"""

import copy
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Self, TypeVar

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas._validation import is_frame
from apas.certification.certificate import Certificate, Drawn
from apas.certification.claims import is_proof
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.question import Question, check_agreement
from apas.certification.region_claims import AskedRegion
from apas.certification.results import Certificates, UnderShifts
from apas.counterfactuals.space.encoder import CodedModel
from apas.counterfactuals.space.space import FeatureSpace
from apas.display.numbers import at_most, exactly
from apas.errors import ApasError, GuaranteeWarning, InputError
from apas.models.base import Dense, Described, Learned, Model, Named, Parameters, Raw, encoded_rows, offers
from apas.models.digest import model_digest, unidentified
from apas.shifts.base import Fingerprinted, Listed, Measurable, Normed, OtherMoves, Refitted, words_of
from apas.shifts.distance import ShiftReport, compare_models, read_model

Results = TypeVar("Results", bound=UnderShifts[Any])
PROBE = (0, "probe")  # stream (entropy and purpose) of the one model that is drawn where a certificate drew none


@dataclass(frozen=True)
class Origin:
    """What a file says about the model besides its fingerprint."""

    preprocessing: bool
    network: str | None
    space: dict[str, Any] | None


class Readings:
    """What a model makes of many rows, in columns: `encoded` has a row each, `margins` two numbers, NaN for none."""

    def __init__(self, origin: Origin, encoded: Any, margins: Floats) -> None:
        self.origin, self.encoded, self.margins = origin, encoded, margins

    def __len__(self) -> int:
        return len(self.margins)

    def __getitem__(self, index: slice | Bools) -> Self:
        some = np.arange(len(self))[index]
        encoded = self.encoded[some] if isinstance(self.encoded, np.ndarray) else [self.encoded[i] for i in some]
        return type(self)(self.origin, encoded, self.margins[some])


def origin_of(model: Model) -> Origin:
    """What a file says about a model besides its fingerprint."""
    network = model_digest(model.as_feedforward()) if offers(model, Dense) else None
    described = model.describe() if offers(model, Described) else {"preprocessing": offers(model, Raw) or None}
    between = described.get("preprocessing") is not None or isinstance(model, CodedModel)
    return Origin(between, network, model.space.to_dict() if isinstance(model, CodedModel) else None)


def rows_of(model: Model, points: Any, names: tuple[str, ...] | None) -> tuple[Any, Floats]:
    """Rows as the model takes them, and in model units."""
    # A table without column names is in the order of `names`, which need not be that of the model.
    if names is not None and _names(model) not in (None, names) and not is_frame(points):
        points = _named_table(points, names)
    return encoded_rows(model, points)


def _named_table(rows: Any, names: Sequence[str]) -> Any:
    import pandas as pd

    if np.ndim(rows) != 2 or np.shape(rows)[1] != len(names):
        raise InputError(f"the rows must have a value for each of the {len(names)} features that are named.")
    return pd.DataFrame(rows, columns=list(names))


def question_of(
    model: Model, encoded: Floats, points: Any, items: Sequence[Certificate | MaxShift], shifts: Any
) -> Question:
    """The question that certificates answer, with the deltas and targets that they name."""
    target = np.empty(len(items), dtype=object)
    target[:] = [item.target for item in items]
    # a row of which nothing is certified has the delta 0, at which nothing is asked
    delta = np.array([item.delta or 1.0 for item in items], dtype=np.float64)
    told = enumerate([None if points is None else getattr(item, "region", None) for item in items])
    regions = tuple(None if region is None else AskedRegion(region, points, i) for i, region in told)
    return Question(model, encoded, target, delta, shifts, points=points, regions=regions if any(regions) else None)


def readings(question: Question, items: Sequence[Certificate | MaxShift]) -> Readings:
    """What the model of a question makes of each of its rows, whatever regions they stand for."""
    question = replace(question, regions=None)
    found = np.full((len(question), 2), np.nan)
    if len(question):
        found[:, 0] = question.base_margins
    with np.errstate(over="ignore", invalid="ignore"):
        for (entropy, purpose), rows in () if offers(question.shifts, Refitted) else streams(items).items():
            found[rows, 1] = question.margins(question.directions(Stream(entropy, purpose), 0, 1), rows)[0]
    nine = [float(f"{value:.9g}") if math.isfinite(value) else math.nan for value in found.ravel().tolist()]
    return Readings(origin_of(question.model), question.X, np.array(nine).reshape(-1, 2))


def known_readings(found: UnderShifts[Any]) -> Readings:
    """What the model makes of each row: as a file said, or asked of the model."""
    if isinstance(found.readings, Readings):
        return found.readings
    if found.model is None:
        raise InputError(
            "`certificates` must come from certify, generate, max_shift or load_certificates: the model that these are "
            "about is not known."
        )
    check_unchanged(found)
    points, encoded = rows_of(found.model, found.points, found.feature_names)
    return readings(question_of(found.model, encoded, points, found._items, found.shifts), found._items)


def with_readings(found: Results) -> Results:
    """A copy of answers that holds, like one from a file, what the model makes of each row."""
    copied = copy.copy(found)
    copied.readings = known_readings(found)
    return copied


def completed(found: Results, shifts: Any) -> Results:
    """Answers from a file with the set that they are about, of which the file holds a part; it must be the very one."""
    if shifts is None or not offers(found.shifts, Refitted):
        return found
    if getattr(shifts, "to_dict", dict)() != found.shifts.to_dict():
        raise InputError(
            f"`shifts` must be the set that the certificates are about, {found.shifts.to_dict()}, got {shifts!r}."
        )
    copied = copy.copy(found)
    copied.shifts = shifts
    return copied


def check_unchanged(found: UnderShifts[Any]) -> None:
    """Refuse certificates about a model that somebody has changed in place."""
    if found.model is not None and model_digest(found.model) != found.model_digest:
        raise InputError("`certificates` are about a model that was changed since; certify again and save at once.")


def streams(items: Sequence[Certificate | MaxShift]) -> dict[tuple[int, str], Indices]:
    """The random streams of certificates, and the rows that share each."""
    found: dict[tuple[int, str], list[int]] = {}
    known: dict[int, list[int]] = {}  # by answer, since many rows share one
    for i, item in enumerate(items):
        if id(item) not in known and isinstance(item, Certificate):
            e = item.evidence
            known[id(item)] = found.setdefault((e.entropy, e.purpose) if offers(e, Drawn) else PROBE, [])
        if id(item) in known:
            known[id(item)].append(i)
    return {stream: np.array(rows, dtype=np.intp) for stream, rows in found.items()}


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
    origin = origin_behind(found)
    own, borrowed = model, False
    if origin is not None and origin.space is not None and model_digest(model) != found.model_digest:
        borrowed = True
        try:
            own = FeatureSpace.from_dict(origin.space).bind(model)
        except (ApasError, TypeError, ValueError, KeyError, AttributeError) as error:
            return f"the file's space does not fit the model: {error}"
    digest = model_digest(own)
    if digest == found.model_digest:
        told = found.feature_names  # largest shifts were once written without
        if (told is not None or isinstance(found, Certificates)) and sorted(_names(own) or ()) != sorted(told or ()):
            return "the file's feature names are not those of the model"
        if origin is not None and origin != origin_of(own):
            return "what the file says about the network or the space behind the model is not true of it"
        return Matched(own, borrowed_space=borrowed, unidentified=unidentified(own))
    behind = None if origin is None or not origin.preprocessing or offers(model, Raw) else origin.network
    if behind is not None and offers(model, Dense) and model_digest(model.as_feedforward()) == behind:
        return Matched(model, network_only=True)
    return (
        f"this is not the model that the file is about: its SHA-256 is {digest[:12]}..., the file says "
        f"{found.model_digest[:12]}..."
    )


def origin_behind(found: Certificates | MaxShifts) -> Origin | None:
    """What is known about the model of certificates besides its fingerprint: from the model, or from their file."""
    if found.readings or found.model is None:
        return found.readings.origin if found.readings else None
    return origin_of(found.model)


def ask_again(found: Certificates | MaxShifts, matched: Matched) -> tuple[Question, Floats]:
    """The question that the file answers, and its rows in model units as the model reads them now."""
    width = matched.model.n_features
    missing = (np.nan,) * width  # of a row that has another number of values, which is then no row of the model
    told = np.array([r if len(r) == width else missing for r in found.readings.encoded], dtype=np.float64)
    points, encoded = None, told
    if not matched.network_only:
        points, encoded = rows_of(matched.model, found.points, found.feature_names)
    return question_of(matched.model, encoded, points, list(found), found.shifts), told


def row_complaints(found: Certificates | MaxShifts, question: Question, told: Floats) -> list[str | None]:
    """Per row what its target, its values in model units or its margins are not, or None."""
    question, drawn = replace(question, regions=None), isinstance(found, Certificates)
    allowed = 0.0 if not offers(question.model, Raw) else SAME_UNITS * np.maximum(1.0, np.abs(question.X))
    close = np.all(np.abs(told - question.X) <= allowed, axis=1).tolist()
    now, was = readings(question, list(found)).margins.tolist(), found.readings.margins.tolist()
    # margins of a dense network are computed in float64, whatever it is used in
    same = question.single and question.network is not None and not offers(question.shifts, OtherMoves)
    precise = replace(question, model=question.network.with_dtype("float64")) if same and question.network else question
    band = precise.band if len(question) else np.empty(0)
    said: list[str | None] = []
    for i, fits in enumerate(close):
        said.append(None if fits else "its values in model units are not what the model makes of its raw values")
        # that on the first draw belongs to a certificate
        for name, old, new in zip(("model itself", "first draw")[: 1 + drawn], was[i], now[i], strict=False):
            near = abs(old - new) <= NINE_DIGITS * abs(new) + band[i]
            if said[i] is None and not (near or old == new or (math.isnan(old) and math.isnan(new))):
                shown = [None if math.isnan(margin) else margin for margin in (new, old)]
                said[i] = "its margin on the {} is {!r}, the file says {!r}".format(name, *shown)
    return said


def wrong_targets(items: Sequence[Certificate | MaxShift], classes: tuple[Any, ...]) -> list[str | None]:
    """Per row whether its target is no class of the model."""
    known = {(type(c), c) for c in map(as_python, classes)}
    targets = [as_python(item.target) for item in items]
    return [None if (type(t), t) in known else f"its target {t!r} is no class of the model" for t in targets]


def as_python(label: Any) -> Any:
    """A class label, if it is a scalar of NumPy as one of Python."""
    return label.item() if isinstance(label, np.generic) else label


#: What may differ between two models of one architecture besides the parameters; no shift of parameters covers it.
_BESIDES = ("preprocessing", "code", "threshold", "classes", "buffers", "dtype", "coding", "what it has learned")
_IN_MODEL_UNITS = (
    "The rows were taken in model units, as they were certified: the preprocessing is not part of the new model, and "
    "is taken to be the same."
)
#: How the note begins that says so; models without parameters do not differ in more than these.
DIFFERS = "The new model differs from the certified one"
BEYOND_PARAMETERS = f"{DIFFERS} in more than parameters"
#: How the note begins that says that nobody knows whether it does.
NOT_IDENTIFIED = "Not all of the models is identified"
#: How the note begins that says why there is no distance between models.
NOT_MEASURED = "No shift was measured"
#: How the note begins about a model that may or may not come from the certified process.
OF_THE_PROCESS = "The certificates speak of the process that the listed models came from"
_ASKED = "what was asked is whether the rows are valid on it"
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
    comparable: bool = True  # whether there is a distance between the parameters

    def shift(self, shifts: Any) -> ShiftReport | None:
        """How far the parameters moved, in the distance that the certified set is about; None if there is none."""
        if self.base is None or not self.comparable:
            return None
        order = shifts.order if offers(shifts, Normed) else float("inf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GuaranteeWarning)  # the audit itself says what else differs
            return compare_models(self.base, [self.model], p=order, names=["`new_model`"], columns=["new model"])

    def is_listed(self, shifts: Any) -> bool:
        """Whether it is one of the models that certificates list by their fingerprints."""
        return not {model_digest(self.model), model_digest(self.given)}.isdisjoint(shifts.digests)

    def lies_in(
        self, shifts: Any, asked: Iterable[tuple[float, bool]], moved: ShiftReport | None, refit: Any = None
    ) -> dict[tuple[float, bool], bool | None]:
        """Per delta and whether a claim is a proof: whether the claim speaks of the new model; None if nobody knows."""
        if self.base is None:
            return dict.fromkeys(asked)
        if offers(shifts, Refitted) and not self.differs:
            return {one: None if refit is None else bool(refit.applies(one[0])) for one in asked}
        ours, theirs = self.base.parameters, self.model.parameters
        listed, least = None, math.nan
        if offers(shifts, Fingerprinted):
            listed = self.is_listed(shifts)
        elif moved is not None and bounds_distance(shifts):
            least = moved.delta
        elif not self.differs and offers(shifts, Measurable):
            least = shifts.distance(ours, theirs)
        found: dict[tuple[float, bool], bool | None] = {}
        for delta, proof in dict.fromkeys(asked):
            if listed is not None and delta == 1:
                inside: bool | None = listed
            elif listed is not None and not offers(shifts, Listed):
                inside = None
            elif self.differs:
                inside = False
            elif abs(least - delta) > 1e-9 * delta:  # the distance is rounded; what is closer, real arithmetic decides
                inside = least < delta
            else:
                inside = shifts.contains(ours, theirs, delta)
            if listed is not None and not proof and not inside and (delta == 1 or not self.differs):
                inside = None  # a claim about a process speaks of all models that come from it, and nothing shows it
            found[delta, proof] = None if inside and self.unidentified else inside
        return found

    def why(self, inside: bool | None, item: Certificate, shifts: Any, moved: ShiftReport | None) -> str:
        """What is known about the shift."""
        listed = offers(shifts, Fingerprinted)
        if self.base is None:
            return "whether the new model lies in the certified set was not measured"
        if inside is None and self.unidentified:
            return (
                "whether the new model lies in the certified set is not known, since not all of the models is "
                f"identified ({self.unidentified})"
            )
        if inside is None and offers(shifts, Refitted):
            return "whether it is a refit that the certificate speaks of only its table shows; pass it as `data`"
        if inside is None and listed and not is_proof(item.claim):
            return "the certificate covers it if it comes from the certified process, which its fingerprint cannot show"
        if self.differs and not (listed and item.delta == 1):
            where = "" if not self.comparable and not len(self.model.parameters) else " in more than parameters"
            return f"the new model differs{where} ({self.differs}), which this certificate does not cover"
        if words_of(shifts).no_limit:
            return words_of(shifts).no_limit
        if moved is None or not bounds_distance(shifts):  # their delta is in other units than the distance
            return f"the certified set is: {item.claim.measure}, delta = {exactly(item.delta)}"
        least = at_most(moved.delta)
        return f"the certified delta is {exactly(item.delta)}, the distance of the parameters at most {least}"


def bounds_distance(shifts: Any) -> bool:
    """Whether the delta of a set of shifts bounds the distance that is measured, over all parameters."""
    return offers(shifts, Normed) and shifts.is_whole


def read_successor(
    found: Certificates, new_model: Any, base: Any, *, validity_only: bool, known: Model | None = None
) -> Successor:
    """Read the new model for the rows of certificates; refuse what cannot be compared."""
    origin = origin_behind(found) or Origin(False, None, None)
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
    notes = [_IN_MODEL_UNITS] if network_only else []
    if not network_only and found.feature_names is not None and _names(new) is None:
        notes.append(_UNNAMED)
    if not network_only and (absent := absent_columns(found, new)):
        notes.append(f"The certified rows have no {absent}: passed to the new model as missing.")
    if validity_only:
        return Successor(new, given, None, network_only, "", "", tuple(notes))
    compared = old if old is not None else known
    apart = [] if compared is None else _other_architecture(compared, new)
    apart += _other_features(found, given, new, base, network_only)
    new_has, old_has = len(new.parameters) > 0, compared is None or len(compared.parameters) > 0
    whose = "the certified one has" if new_has else "the new model has" if old_has else "the models have"
    bare = "" if new_has and old_has else f"{whose} no parameters"
    ours, theirs = ({}, {}) if old is None else (_describe(old), _describe(new))
    same_kind = ours.get("kind") == theirs.get("kind")  # models of two kinds have nothing in common to be compared
    beside = [key for key in _BESIDES if same_kind and ours.get(key) != theirs.get(key)]
    differs = ", ".join([*apart, *beside])
    if apart:
        what, since = (DIFFERS, f"since {bare}, ") if bare else (BEYOND_PARAMETERS, "")
        notes.append(f"{what} ({differs}): {since}no shift was measured; {_ASKED}.")
    elif bare:
        notes.append(f"{NOT_MEASURED}, since {bare}; {_ASKED}.")
    elif differs and not offers(found.shifts, Fingerprinted):  # listed models may differ in anything
        small = "however small the measured shift is, these certificates do not cover it"
        notes.append(f"{BEYOND_PARAMETERS} ({differs}): {small}.")
    missing = "" if old is None else "; ".join(dict.fromkeys(filter(None, (unidentified(old), unidentified(new)))))
    if missing and not differs:
        notes.append(
            f"{NOT_IDENTIFIED} ({missing}): that part could not be compared, and may differ at any measured shift."
        )
    apart_from_base = differs if old is not None else ""
    successor = Successor(new, given, old, network_only, apart_from_base, missing, (), not (apart or bare))
    of_process = (item.is_certified and item.delta == 1 and not is_proof(item.claim) for item in found)
    if offers(found.shifts, Fingerprinted) and any(of_process) and not successor.is_listed(found.shifts):
        own = f", with what differs ({differs})," if differs else ""
        if_so = f"they cover it{own} if it comes from that process, which its fingerprint cannot show"
        notes.append(f"{OF_THE_PROCESS}, and the new model is none of these: {if_so}.")
    return replace(successor, notes=tuple(notes))


def _bound(given: Model, origin: Origin, found: Certificates, network_only: bool) -> Model:
    """The new model as the rows need it."""
    if origin.space is not None and not isinstance(given, CodedModel):
        try:
            return FeatureSpace.from_dict(origin.space).bind(given)
        except (ApasError, TypeError, ValueError, KeyError, AttributeError) as error:
            if offers(given, Raw):  # it reads raw rows by itself, though not all that the space allows
                return given
            raise InputError(
                f"`new_model` must fit the space that the certificates were made with, or come with its own (pass "
                f"space.bind(model) of that): {error}"
            ) from None
    width = len(found.readings.encoded[0]) if found.readings else given.n_features
    width = width if found.model is None else found.model.n_features
    if network_only and given.n_features != width:
        raise InputError(
            f"`new_model` must take rows in raw units, as the certified model did, or be the network behind the same "
            f"preprocessing, which has {width} inputs, got {given!r}; pass the whole pipeline."
        )
    return given


def _names(model: Model) -> tuple[str, ...] | None:
    names = model.feature_names if offers(model, Named) else None
    return None if names is None else tuple(names)


def _describe(model: Model) -> dict[str, Any]:
    told = model.describe() if offers(model, Described) else {"classes": [str(c) for c in model.classes]}
    return {**told, "what it has learned": model.content_digest()} if offers(model, Learned) else told


def _other_architecture(old: Model, new: Model) -> list[str]:
    """What differs so that there is no distance between the parameters, in words."""
    ours, theirs = (_describe(old), _describe(new)) if offers(old, Described) and offers(new, Described) else ({}, {})
    apart = []
    if ours.get("kind") != theirs.get("kind"):
        return [f"kind ({theirs.get('kind')} instead of {ours.get('kind')})"]
    for key in {**ours, **theirs}:
        if key not in (*_BESIDES, "feature_names") and ours.get(key) != theirs.get(key):
            pair = f"{theirs.get(key)} instead of {ours.get(key)}" if key in ours and key in theirs else ""
            apart.append(key.replace("_", " ") + (f" ({pair})" if 0 < len(pair) < 120 else ""))
    if not apart and (old.parameters.shapes != new.parameters.shapes or old.n_features != new.n_features):
        apart.append("the shapes of its parameters")
    return apart


def _other_features(found: Certificates, given: Model, new: Model, base: Any, network_only: bool) -> list[str]:
    """Whether features are not the same ones, in the same order if that is known, in words."""
    theirs = _names(given if base is not None else new)
    ours = found.feature_names if base is None else _names(read_model(base, "`base`"))
    if theirs is None or ours is None or network_only or theirs == tuple(ours):
        return []
    same = sorted(theirs) == sorted(ours)
    if base is None and same and offers(new, Raw) and not isinstance(new, CodedModel):
        return []  # rows are matched by name, and the order of the pipeline that was certified is not known
    pairs = enumerate(zip_longest(ours, theirs))
    number, was, is_ = next((i, repr(a), repr(b)) for i, (a, b) in pairs if a != b)
    pair = f"number {number} is {is_} instead of {was}"
    pair = f"{is_} is new" if was == "None" else f"{was} is gone" if is_ == "None" else pair
    return [f"{'the order of its features' if same else 'its features'}: {pair}"]


class NothingMoves:
    """The shifts of a question about a model itself, of which only the reach is ever asked."""

    def radii(self, parameters: Parameters) -> Floats:
        """No parameter moves."""
        return np.zeros(len(parameters))


def rows_on(found: Certificates, new: Successor) -> Question:
    """The question whether the rows are valid on the new model; the shifts of it play no part."""
    complaints = [said for said in wrong_targets(list(found), new.model.classes) if said]
    if complaints:
        raise InputError(f"`new_model` must know the promised classes, but of a row {complaints[0]}.")
    if new.network_only:
        known = np.asarray(known_readings(found).encoded, dtype=np.float64)
        return question_of(new.model, known, None, list(found), NothingMoves())
    rows, absent = own_columns(found.points, found, new.model), absent_columns(found, new.model)
    try:
        points, encoded = rows_of(new.model, rows, found.feature_names)
        check_agreement(new.model, points, encoded, name="`new_model`")
        question = question_of(new.model, encoded, points, list(found), NothingMoves())
        if absent and np.isnan(question.base_margins).any():
            raise InputError("it gives no number for them.")
    except Exception as error:  # each library has an error of its own for rows that it does not take
        if not (absent or isinstance(error, ApasError)):
            raise
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        lack = f"they have no {absent}, and it does not take missing values there: " if absent else ""
        raise InputError(f"`new_model` cannot read the rows of the certificates: {lack}{said}") from error
    return question


def absent_columns(found: Certificates, model: Model) -> str:
    """Columns of the new model that the rows do not have, in words."""
    names, told = _names(model), found.feature_names
    absent = [] if names is None or told is None else [name for name in names if name not in told]
    return ", ".join(f"column {name!r}" for name in absent)


def own_columns(rows: Any, found: Certificates, model: Model) -> Any:
    """The columns of the new model in its order, where the certified one had others; missing where it had none."""
    names, told = _names(model), found.feature_names
    if names is None or told is None or names == tuple(told):
        return rows
    return (rows if is_frame(rows) else _named_table(rows, told)).reindex(columns=list(names))
