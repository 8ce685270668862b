"""One certificate as JSON values, and back: claim, evidence and witness, every field checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from apas.certify.certificate import BaseEvidence, BoundEvidence, Certificate, Evidence
from apas.certify.claims import Every, Most, Verdict
from apas.certify.enumeration import EnumerationEvidence
from apas.certify.maxshifts import MaxShift
from apas.certify.sampling import SamplingEvidence
from apas.certify.witness import CornerShift, DrawnShift, KeptShift, Witness
from apas.contracts.fields import Fields, as_number
from apas.display.values import plain
from apas.errors import InputError
from apas.shifts.linf import LinfShifts

__all__ = ["described_certificate", "read_certificate", "read_max_shift"]

_CERTIFICATE = ("verdict", "claim", "delta", "target", "method", "reason", "evidence", "witness")
_MAX_SHIFT = (
    "delta", "upper", "provable", "broken_at", "exact", "reached_limit", "reason", "target", "claim", "trace",
)  # fmt: skip
#: Stream of the one draw that asks a listed model, as `apas.certify.listed` has it.
_LISTED = (0, "listed")
_SIGNS = {"-": -1, "0": 0, "+": 1}


def described_certificate(certificate: Certificate) -> dict[str, Any]:
    """A certificate as JSON values."""
    evidence = certificate.evidence
    if not isinstance(evidence, BaseEvidence | BoundEvidence | SamplingEvidence | EnumerationEvidence):
        raise InputError(
            f"certificates with evidence of type {type(evidence).__name__} cannot be written to a file: a reader would "
            "not know it; use the methods of apas."
        )
    return {**certificate.to_dict(), "target": plain(certificate.target)}


def read_certificate(about: Fields, shifts: Any) -> Certificate:
    """The certificate that an entry of a file holds."""
    about.only(*_CERTIFICATE)
    evidence, delta = _read_evidence(about.inner("evidence")), about.number("delta", above=0)
    witness = None if about.is_null("witness") else _read_witness(about.inner("witness"), shifts, delta, evidence)
    return Certificate(
        _read_claim(about.inner("claim")), Verdict[about.choice("verdict", *Verdict.__members__)], delta,
        read_label(about, "target"), about.text("method"), evidence, about.text("reason"), witness,
    )  # fmt: skip


def read_max_shift(about: Fields) -> MaxShift:
    """The largest shift that an entry of a file holds; null stands for infinity."""
    about.only(*_MAX_SHIFT)
    names = ("delta", "upper", "provable", "broken_at")
    sizes = {name: math.inf if about.is_null(name) else about.number(name) for name in names}
    if min(sizes.values()) < 0 or not math.isfinite(sizes["delta"]):
        raise InputError(f"{about.where} must hold a finite delta, and numbers of at least 0.")
    trace = about.inner("trace")
    for key, value in trace.content.items():
        if key == "rungs":
            if None in map(as_number, trace.items(key)):
                raise trace.wrong(key, "a list of finite numbers")
        elif not isinstance(value, str | bool | int | float):
            raise trace.wrong(key, "a number, a text or a truth value")
    if "rungs_ratio" in trace.content:  # `MaxShift.rungs` counts from these: a ratio of almost 1 would not end
        trace.number("rungs_ratio", above=1.001)
        trace.number("rungs_from", above=0)
        trace.number("limit", above=0)
    return MaxShift(
        **sizes, exact=about.flag("exact"), reached_limit=about.flag("reached_limit"),
        claim=_read_claim(about.inner("claim")), target=read_label(about, "target"), reason=about.text("reason"),
        trace=trace.content,
    )  # fmt: skip


def read_label(about: Fields, key: str) -> Any:
    """A class label: a number, a text or a truth value."""
    value = about.any(key)
    if not isinstance(value, str | bool) and as_number(value) is None:
        raise about.wrong(key, "a class label, a number or a text")
    return value


def _read_claim(about: Fields) -> Every | Most:
    if about.choice("kind", "every", "most") == "every":
        about.only("kind", "measure", "rows")
        return Every(about.text("measure"), about.integer("rows", 1))
    about.only("kind", "coverage", "confidence", "measure", "rows", "tries")
    return Most(
        about.number("coverage"), about.number("confidence"), about.text("measure"), about.integer("rows", 1),
        about.integer("tries", 1),
    )  # fmt: skip


def _read_evidence(about: Fields) -> Evidence:
    return _EVIDENCE[about.choice("kind", *_EVIDENCE)](about)


def _base(about: Fields) -> BaseEvidence:
    if any(about.only("kind", "draws", "failures").integer(key) for key in ("draws", "failures")):
        raise InputError(f"{about.where} must have no draws: the unshifted model alone decided.")
    return BaseEvidence()


def _bound(about: Fields) -> BoundEvidence:
    about.only("kind", "step", "bound", "nodes", "exact")
    bound = None if about.is_null("bound") else about.number("bound")
    return BoundEvidence(about.text("step"), bound, about.integer("nodes"), about.flag("exact"))


def _sampling(about: Fields) -> SamplingEvidence:
    counts = ("samples", "allowed", "refuting", "draws", "failures", "doubtful")
    about.only("kind", "entropy", "purpose", *counts, "first_failure")
    first = None if about.is_null("first_failure") else about.integer("first_failure")
    numbers = {key: about.integer(key) for key in counts}
    return SamplingEvidence(about.entropy("entropy"), about.text("purpose"), **numbers, first_failure=first)


def _enumeration(about: Fields) -> EnumerationEvidence:
    about.only("kind", "lower", "upper", "evaluated", "open", "stopped")
    lower, upper = about.number("lower"), about.number("upper")
    if not 0 <= lower <= upper <= 1:
        raise InputError(f"{about.where} must have bounds on a share, of which the lower one is not the larger.")
    stopped = about.choice("stopped", "settled", "decided", "gap", "limit", "rounding")
    return EnumerationEvidence(lower, upper, about.integer("evaluated", 1), about.integer("open"), stopped, None)


_EVIDENCE: dict[str, Callable[[Fields], Evidence]] = {
    "model": _base, "bound": _bound, "sampling": _sampling, "enumeration": _enumeration,
}  # fmt: skip


def _read_witness(about: Fields, shifts: Any, delta: float, evidence: Evidence) -> Witness:
    kind = about.choice("kind", "draw", "corner", "parameters")
    if kind == "draw":
        index = about.only("kind", "index").integer("index")
        stream = (evidence.entropy, evidence.purpose) if isinstance(evidence, SamplingEvidence) else _LISTED
        return DrawnShift(shifts, delta, *stream, index)
    size = about.number("delta", above=0)
    if kind == "parameters":
        values = [as_number(value) for value in about.only("kind", "delta", "values").items("values")]
        if None in values:
            raise about.wrong("values", "a list of finite numbers")
        return KeptShift(size, np.array(values, dtype=np.float64))
    text = about.only("kind", "delta", "signs").text("signs")
    if not isinstance(shifts, LinfShifts) or not set(text) <= set(_SIGNS):
        raise about.wrong("signs", "a text of -, 0 and +, with shifts in a box")
    return CornerShift(shifts, size, np.array([_SIGNS[sign] for sign in text], dtype=np.int8))
