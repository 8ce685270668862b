"""What the page's statements rest on: the claim, what is assumed, what is not promised, and where it all comes from."""

from __future__ import annotations

import math
import platform
import sys
from importlib.metadata import version
from typing import Any

import numpy as np

from apas.certify.certificate import Certificate
from apas.certify.claims import Every, Most
from apas.certify.maxshifts import MaxShift
from apas.contracts.shiftsets import AbsentModels
from apas.report.draws import Curves, Histograms
from apas.report.later import Later
from apas.report.subject import Subject
from apas.report.words import capital, claims_in_words
from apas.shifts.noise import InputNoise
from apas.shifts.observed import ObservedShifts

__all__ = ["methods", "provenance"]

#: So many seeds are written out.
SEEDS = 5


def methods(
    subject: Subject, later: Later | None, curves: Curves | str, bars: Histograms | str
) -> dict[str, list[str]]:
    """Sentences under headings; each is true of this page."""
    searched = subject.certificates is None and any(radius.per_test for radius in subject.radii or ())
    found = {
        "What the published search asks" if searched else "What certified means": [
            capital(said) for said in claims_in_words(subject)
        ][:8],
        "How it was shown": _shown(subject),
        "What is assumed": _assumed(subject),
        "What is not promised": _not_promised(subject, later),
        "What the plots show": _plots(curves, bars),
    }
    return {heading: sentences for heading, sentences in found.items() if sentences}


def _claims(subject: Subject) -> list[Every | Most]:
    items = [*(subject.certificates or ()), *(subject.radii or ())]
    return [item.claim for item in items]


def _pairs(subject: Subject) -> list[tuple[Certificate, MaxShift]]:
    """Certificates with the largest shifts of their rows, where both speak of most shifts and both are known."""
    both = zip(subject.certificates or (), subject.radii or (), strict=False)
    return [(c, r) for c, r in both if isinstance(c.claim, Most) and isinstance(r.claim, Most)]


def _shown(subject: Subject) -> list[str]:
    said = []
    kinds = sorted({c.method for c in subject.certificates or ()})
    if kinds:
        said.append(f"Method of the certificates: {', '.join(kinds)}. Each line of the table names its evidence.")
    if _estimated(subject):
        said.append(
            "By sampling: shifted models were drawn at random, and those that do not give the promised class were "
            "counted. A row is certified if so few failed as would be improbable if fewer shifts than claimed kept the "
            "class; the confidence says how improbable."
        )
    if _proved(subject):
        said.append("Worst case: a bound that holds for every model of the set was proved; no sampling is involved.")
    if any(c.witness is not None and isinstance(c.claim, Every) for c in subject.certificates or ()):
        said.append("Rows that are refuted about every shift come with one on which the promised class is lost.")
    if any(r.trace.get("search") == "rays" for r in subject.radii or ()):
        said.append(
            "Largest shifts: each drawn direction is followed from the model itself outwards, as a ray, until the "
            "class is lost, at any size or on a grid of sizes, as its line says. Up to the certified size no more rays "
            "have lost it than the line allows."
        )
    if any(r.trace.get("search") == "confirm" and "rungs" in r.trace for r in subject.radii or ()):
        said.append(
            "Largest shifts: a size was searched for, then tested on fresh draws at sizes up to it (rungs), "
            "which were fixed before. A draw that loses the class at any of them counts as failed. The file lists them."
        )
    if any(isinstance(r.claim, Most) and r.delta and math.isfinite(r.upper) for r in subject.radii or ()):
        said.append(
            "Where a line says that the whole way up to a size is refuted, too many rays have lost the class somewhere "
            "on the way. At a larger size by itself, enough shifts may keep it again."
        )
    if any(c.is_certified and 0 < r.delta < c.delta for c, r in _pairs(subject)):
        said.append(
            "Some rows are certified at the delta asked about, while their largest certified delta is smaller. "
            "The two are answers of different draws, each true with its confidence."
        )
    if any(r.trace.get("search") == "paper" for r in subject.radii or ()):
        said.append(
            "The largest shifts were searched as published: their confidence holds for each test, not for the search."
        )
    return said


def _proved(subject: Subject) -> bool:
    certified = any(c.is_certified and isinstance(c.claim, Every) for c in subject.certificates or ())
    return certified or any(r.provable > 0 for r in subject.radii or ())


def _estimated(subject: Subject) -> bool:
    return any(isinstance(claim, Most) and claim.confidence < 1 for claim in _claims(subject))


def _assumed(subject: Subject) -> list[str]:
    said = [
        "The model stays as it is; what varies is how exactly somebody carries an explanation out."
        if isinstance(subject.rows.shifts, InputNoise)
        else "A later model has the same architecture, features, preprocessing, classes and decision threshold as the "
        "certified one; what moves are its parameters, as the set of shifts says."
    ]
    if isinstance(subject.rows.shifts, ObservedShifts | AbsentModels):
        said = ["A later model comes from the process that the listed models come from."]
    if _estimated(subject):
        said.append(
            "Statements about most shifts are about the distribution that they name. Whether later models follow it is "
            "not known to this report."
        )
        said.append(
            "Rows, delta and the number of draws were chosen without looking at the draws that certify. The report "
            "cannot check that."
        )
    return said


def _not_promised(subject: Subject, later: Later | None) -> list[str]:
    most = [c for c in _claims(subject) if isinstance(c, Most)]
    said = ["Nothing is said about models outside of the set: larger changes, other preprocessing or architectures."]
    if most:
        said.append("A claim about most shifts leaves out a share of them: a model in the set may break the promise.")
    if any(c.confidence < 1 and c.rows == 1 for c in most) and len(subject.rows) > 1:
        said.append(
            "The confidence holds for each explanation by itself, not for all of them together: among many, single "
            "claims may be false."
        )
    if subject.certificates is not None:
        but = "" if subject.certificates.valid_today.all() else ", but for rows that are not valid today"
        said.append(
            f"UNKNOWN is no promise. REFUTED is evidence against the claim{but}; it does not say that the next model "
            "breaks the explanation."
        )
    if not all(item.valid_today for item in subject.rows):
        said.append(
            "Of rows that are not valid today nothing is said about the shifts: the model itself does not give the "
            "promised class, so that there is nothing to keep."
        )
    if not isinstance(subject.rows.shifts, InputNoise):
        said.append("The promise is about exactly the values that are listed, not about values near them.")
    said.append(
        "Whether a person can or should make the changes, and whether a decision follows the model, is not a matter of "
        "certificates."
    )
    if later is not None:
        said.append("What became of the promises is about this one later model, not about further ones.")
    return said


def _plots(curves: Curves | str, bars: Histograms | str) -> list[str]:
    said = []
    if isinstance(curves, Curves):
        first = curves.found[0]
        said.append(
            f"Curves are estimates from {first.draws:,} shifted models, drawn anew for this page: they are not the "
            "draws that certified, and not a certificate. The band holds, for each explanation by itself, at all "
            f"{len(first.deltas)} marked sizes together with confidence {first.confidence!r}; between them the line "
            "only guides the eye."
        )
    if isinstance(bars, Histograms):
        which = (
            f"{bars.draws:,} further shifted models, at the delta that is named below, in the same directions for all"
        )
        if bars.listed:
            which = f"the {bars.draws:,} listed models, which are those that the certificates are about"
        said.append(f"Histograms show the margins on {which}. They are a picture, not a bound.")
    said.append(
        "The margin says how far the model's score lies on the side of the promised class: above 0 the row has that "
        "class, below 0 it has not."
    )
    return said


def provenance(
    subject: Subject, later: Later | None, entropy: int, curves: Curves | str, bars: Histograms | str
) -> list[tuple[str, str]]:
    """What to compare, and what to repeat the page with: names and values."""
    written = ", ".join(f"{name} {value}" for name, value in sorted(subject.versions.items()))
    found = [
        ("SHA-256 of the certificates", subject.digest),
        ("SHA-256 of the certified model", subject.rows.model_digest),
    ]
    if later is not None:
        found.append(("SHA-256 of the later model", later.digest))
    found.append(("certificates made with", written))
    now = {"apas": sys.modules["apas"].__version__, "numpy": np.__version__, "python": platform.python_version()}
    libraries = {name: version(name) for name in ("jinja2", "plotly")}
    found.append(("page made with", ", ".join(f"{n} {v}" for n, v in {**now, **libraries}.items())))
    seeds = {_seed(c.evidence) for c in subject.certificates or ()} - {None}
    found += _listed("seeds of the certificates", seeds)
    found += _listed("seeds of the largest shifts", {r.trace.get("entropy") for r in subject.radii or ()} - {None})
    drawn = isinstance(bars, Histograms) and not bars.listed
    if isinstance(curves, Curves) or drawn:
        found.append(("seed of the page's own draws", hex(entropy)))
    return found


def _seed(evidence: Any) -> str | None:
    entropy = getattr(evidence, "entropy", None)
    return None if entropy is None else f"{hex(entropy)} ({evidence.purpose})"


def _listed(name: str, seeds: set[Any]) -> list[tuple[str, str]]:
    texts = sorted(str(seed) for seed in seeds)
    if not texts:
        return []
    more = f" and {len(texts) - SEEDS} more" if len(texts) > SEEDS else ""
    return [(name, ", ".join(texts[:SEEDS]) + more)]
