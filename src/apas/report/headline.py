"""The page in plain words: the headline, and what its statements rest on."""

import math
import tomllib
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from apas.certification.certificate import NOT_TODAY
from apas.certification.claims import CLAIMS, Claim, is_proof
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.results import Certificates
from apas.contracts.audit import Outcome
from apas.contracts.certificate_file import own_versions
from apas.display.numbers import at_least, at_most, exactly
from apas.report.subject import Drawn, Later, Subject
from apas.shifts.base import words_of

_DISTANCE = {np.inf: "inf", 1.0: "one", 2.0: "two"}
SPELLED = 4  # so many different claims are spelled out


def own_file(name: str) -> str:
    """The text of a file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


#: What the page says, by heading and name.
TEXTS = tomllib.loads(own_file("sentences.toml"))


@dataclass(frozen=True)
class Figure:
    """A number to begin with, and what it counts."""

    value: str
    label: str
    tone: str = ""


def headline(subject: Subject, later: Later | None) -> list[str]:
    """What a reader should know after ten seconds, a sentence or two per entry."""
    found = _certified_words(subject) if subject.certificates is not None else _reached_words(subject)
    total = subject.searches
    if total is not None and (missing := total - len(subject.rows)) > 0:
        found.append(f"For {missing} of the {total} that were asked for nothing was found; they have no line.")
    return [*found, *_kept_words(subject, later)]


def _certified_words(subject: Subject) -> list[str]:
    certificates: Any = subject.rows
    counts = Counter(c.verdict.name for c in certificates if c.valid_today)
    total, good = len(certificates), counts["CERTIFIED"]
    who = f"{good} of {total} explanations {_are(good)}"
    if good == total:
        who = "The explanation is" if total == 1 else f"All {total} explanations are"
    rest = [f"{n} {_are(n)} {TEXTS['headline'][name]}" for name in ("REFUTED", "UNKNOWN") if (n := counts[name])]
    first = "; ".join([f"{who} certified to survive {_claim_words(subject)}", *rest, *_not_today(certificates)]) + "."
    means = claims_in_words(subject)
    more = f" And {len(means) - SPELLED} more claims, see the table." if len(means) > SPELLED else ""
    return [first, f"Certified means: {' '.join(means[:SPELLED])}{more}"]


def _not_today(items: Certificates | MaxShifts) -> list[str]:
    """How many explanations the model itself refuses; nothing if none."""
    count = sum(not item.valid_today for item in items)
    return [f"{count} {_are(count)} {NOT_TODAY}"] if count else []


def _claim_words(subject: Subject) -> str:
    """What certified explanations survive, in a few words that do not say too much."""
    shares = [c.claim.coverage for c in subject.certificates or ()]
    many = {"every one" if share == 1 else "most" if share > 0.5 else "a share" for share in shares}
    which = many.pop() if len(many) == 1 else "a share"
    return f"{which} of the {words_of(subject.rows.shifts).changes} that were asked about"


def claims_in_words(subject: Subject) -> list[str]:
    """What "certified" means for each claim, as a sentence; of largest shifts, what holds at each row's own delta."""
    said: dict[str, None] = {}
    for item in [item for item in subject.rows if item.valid_today] or subject.rows:
        size = f"delta = {exactly(item.delta)}" if subject.certificates is not None else "the delta of its line"
        said[item.claim.meaning(size, per_test=isinstance(item, MaxShift) and item.per_test)] = None
    return [capital(sentence) if len(said) > 1 else sentence for sentence in said]


def _reached_words(subject: Subject) -> list[str]:
    radii: Any = subject.rows
    some, rest = int(np.count_nonzero(radii.deltas)), _not_today(radii)
    if not some:
        return ["; ".join([f"For none of {len(radii)} explanations is any shift of the model certified", *rest]) + "."]
    whole_way = subject.searched or all(item.rungs is None for item in radii if item.delta)
    # between rungs nothing is certified, so a delta that is one must not be rounded
    write = at_least if whole_way else exactly
    low, middle, high = (write(float(v)) for v in np.percentile(radii.deltas[radii.deltas > 0], [0, 50, 100]))
    first = f"{some} of {len(radii)} explanations {_are(some)} certified up to a largest shift of the model"
    if subject.searched:  # where the search passed no test, a delta may still be proved
        first = f"For {some} of {len(radii)} explanations the published search ended at, or a proof reaches, a shift"
    elif not whole_way:
        first = f"{some} of {len(radii)} explanations {_are(some)} {TEXTS['headline']['not_every_smaller']}"
    first = "; ".join([first, *rest]) + "."
    spread = f"That shift is delta = {low} to {high}, in the middle {middle}." if some > 1 else f"It is delta = {low}."
    means = claims_in_words(subject)
    return [
        first,
        f"{spread} {'Of that search:' if subject.searched else 'Certified means:'} {' '.join(means[:SPELLED])}",
    ]


def _kept_words(subject: Subject, later: Later | None) -> list[str]:
    if later is None:
        return []
    said, counts = [], later.counts
    if later.audit is not None:
        promised = sum(counts.values()) - counts["NOT_PROMISED"]
        kept = f"keeps {counts['HELD']} of {promised} promises" if promised else "had no promise to keep"
        said.append(f"A later model {kept}.")
        wrong = later.audit.wrong_certificates
        if wrong:
            said.append(TEXTS["headline"]["wrong"].format(wrong))
        both = zip(later.audit, subject.certificates or (), strict=True)
        inside = [c for row, c in both if row.outcome is Outcome.BROKEN_INSIDE]
        risky = sum(c.claim.coverage == 1 and c.claim.risk > 0 for c in inside)
        counts["left_out"], counts["risky"] = counts["BROKEN_INSIDE"] - wrong - risky, risky
        said += [f"{n} {_are(n)} {why}." for name, why in TEXTS["kept"].items() if (n := counts[name])]
        if rest := [row.valid for row in later.audit if row.outcome is Outcome.NOT_PROMISED]:
            have = "has" if sum(rest) == 1 else "have"
            said.append(f"Of {len(rest)} without a promise, {sum(rest)} {have} the class on it.")
    if later.measured is not None:
        said.append(f"From the certified to the later model, {measured_in_words(later)}.")
    if later.beyond:
        said.append(later.beyond)
    return [" ".join(said)] if said else []


def measured_in_words(later: Later) -> str:
    """How far the model moved, without a full stop."""
    measured = later.measured
    assert measured is not None
    said: str = TEXTS["moved"][_DISTANCE.get(measured.p, "other")]
    return said.format(at_most(measured.delta), measured.p)


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def figures(subject: Subject, later: Later | None) -> list[Figure]:
    """The large numbers at the top."""
    found, total = [], len(subject.rows)
    if subject.certificates is not None:
        good = int(subject.certificates.certified.sum())
        deltas = sorted({c.delta for c in subject.certificates})
        found.append(Figure(f"{good} of {total}", "explanations certified", "good" if good == total else ""))
        if never := int((~subject.certificates.valid_today).sum()):
            found.append(Figure(f"{never} of {total}", "not valid today: the model itself refuses them", "bad"))
        spread = exactly(deltas[0]) if len(deltas) == 1 else f"{exactly(deltas[0])} to {exactly(deltas[-1])}"
        found.append(Figure(spread, "delta asked about: size of the shifts"))
    if subject.radii is not None and (subject.radii.deltas > 0).any():
        middle = float(np.median(subject.radii.deltas[subject.radii.deltas > 0]))
        what = "delta that the published search led to" if subject.searched else "largest certified delta"
        found.append(Figure(at_least(middle), f"median of the {what}, where there is one"))
    if later is not None and later.measured is not None:
        found.append(Figure(at_most(later.measured.delta), "measured shift to the later model, at most"))
    if later is not None and later.audit is not None and later.counts["NOT_PROMISED"] < total:
        promised = total - later.counts["NOT_PROMISED"]
        tone = "good" if later.counts["HELD"] == promised else "bad"
        found.append(Figure(f"{later.counts['HELD']} of {promised}", "promises kept by the later model", tone))
    return found


SEEDS = 5  # so many seeds are written out
#: What a digest is of where there is no file to compare it with.
UNSAVED = ", as their to_dict() gives them: no file can hold them"


def methods(subject: Subject, later: Later | None, drawn: Drawn) -> dict[str, list[str]]:
    """Sentences under headings; each is true of this page."""
    searched = subject.certificates is None and subject.searched
    first = "What the published search asks" if searched else "What certified means"
    risky, plots, text = any(claim.risk for claim in _claims(subject)), [], TEXTS["plots"]
    if curves := drawn.get("curves"):
        plots.append(text["curves"].format(sizes=len(curves["deltas"]), **curves))
    if bars := drawn.get("histograms"):
        plots.append(text["histograms"].format(text["listed" if bars["listed"] else "drawn"].format(bars["draws"])))
    found = {
        first: [capital(said) for said in claims_in_words(subject)][:8],
        "How it was shown": _how_shown(subject),
        "What is assumed": [words_of(subject.rows.shifts).assumed, *(TEXTS["assumed"].values() if risky else ())],
        "What is not promised": _not_promised(subject, later),
        "What the plots show": [*plots, text["margin"]],
    }
    return {heading: sentences for heading, sentences in found.items() if sentences}


def _claims(subject: Subject) -> list[Claim]:
    return [item.claim for item in [*(subject.certificates or ()), *(subject.radii or ())]]


def _how_shown(subject: Subject) -> list[str]:
    certificates, radii, text = subject.certificates or (), subject.radii or (), TEXTS["shown"]
    kinds = sorted({c.method for c in certificates})
    both = zip(certificates, radii, strict=False)
    most = [(c, r) for c, r in both if c.claim.coverage < 1 and r.claim.coverage < 1]
    proved = any(c.is_certified and is_proof(c.claim) for c in certificates) or any(r.provable > 0 for r in radii)
    searches = {r.trace.get("search") for r in radii}
    when = {
        "method": kinds,
        "sampling": any(claim.risk and CLAIMS.know(claim) for claim in _claims(subject)),
        "proved": proved,
        "witness": any(c.witness is not None and c.claim.coverage == 1 for c in certificates),
        "rays": "rays" in searches,
        "rungs": any(r.trace.get("search") == "confirm" and "rungs" in r.trace for r in radii),
        "way": any(r.claim.coverage < 1 and r.delta and math.isfinite(r.upper) for r in radii),
        "smaller": any(c.is_certified and 0 < r.delta < c.delta for c, r in most),
        "published": "paper" in searches,
    }
    return [text[name].format(", ".join(kinds)) for name, holds in when.items() if holds]


def _not_promised(subject: Subject, later: Later | None) -> list[str]:
    most, text = [claim for claim in _claims(subject) if claim.coverage < 1], TEXTS["not_promised"]
    today = all(item.valid_today for item in subject.rows)
    when = {
        "outside": True,
        "share": most,
        "each": any(claim.risk and claim.rows == 1 for claim in most) and len(subject.rows) > 1,
        "verdicts": subject.certificates is not None,
        "not_today": not today,
        "values": not words_of(subject.rows.shifts).moves_rows,
        "people": True,
        "later": later is not None,
    }
    but = "" if today else ", but for rows that are not valid today"
    return [text[name].format(but) for name, holds in when.items() if holds]


def provenance(subject: Subject, later: Later | None, entropy: int, drawn: Drawn) -> list[tuple[str, str]]:
    """What to compare, and what to repeat the page with: names and values."""
    written = ", ".join(f"{name} {value}" for name, value in sorted(subject.versions.items()))
    found = [
        (f"SHA-256 of the certificates{'' if subject.is_saved else UNSAVED}", subject.digest),
        ("SHA-256 of the certified model", subject.rows.model_digest),
    ]
    if later is not None:
        found.append(("SHA-256 of the later model", later.digest))
    found.append(("certificates made with", written))
    now = {**own_versions(), **{name: version(name) for name in ("jinja2", "plotly")}}
    found.append(("page made with", ", ".join(f"{name} {value}" for name, value in now.items())))
    found += _list_seeds("seeds of the certificates", {_seed(c.evidence) for c in subject.certificates or ()})
    found += _list_seeds("seeds of the largest shifts", {r.trace.get("entropy") for r in subject.radii or ()})
    if "curves" in drawn or ("histograms" in drawn and not drawn["histograms"]["listed"]):
        found.append(("seed of the page's own draws", hex(entropy)))
    return found


def _seed(evidence: Any) -> str | None:
    entropy = getattr(evidence, "entropy", None)
    return None if entropy is None else f"{hex(entropy)} ({evidence.purpose})"


def _list_seeds(name: str, seeds: set[Any]) -> list[tuple[str, str]]:
    texts = sorted(str(seed) for seed in seeds - {None})
    more = f" and {len(texts) - SEEDS} more" if len(texts) > SEEDS else ""
    return [(name, ", ".join(texts[:SEEDS]) + more)] if texts else []
