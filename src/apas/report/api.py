"""`write_report`: certificates as one page that people can read."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from apas._atomic import refusing, same_file, write_text
from apas._lazy import require
from apas._random import entropy_of
from apas._sanitise import for_xml
from apas._validation import is_path
from apas.certification.claims import is_proof
from apas.certification.max_shift.result import MaxShifts
from apas.certification.results import Certificates
from apas.contracts import certified_model
from apas.contracts.audit import AuditReport, Outcome
from apas.contracts.certificate_lines import table_cells
from apas.counterfactuals.result import Counterfactuals, differ, number_pair, number_text
from apas.display.numbers import at_least, at_most, exactly
from apas.errors import InputError
from apas.report.headline import TEXTS, capital, figures, headline, measured_in_words, methods, own_file, provenance
from apas.report.subject import Drawn, Later, Subject, draw, read_later, read_subject
from apas.shifts.base import words_of

#: What could end the element that JSON is embedded in, or a line of JavaScript.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&'\u2028\u2029"}


def render_page(*, data: dict[str, Any], **parts: Any) -> str:
    """The whole page as text."""
    jinja = require("jinja2", feature="write_report", extra="report")
    offline = require("plotly.offline", feature="write_report", extra="report")
    scripts = _script(offline.get_plotlyjs()), _script(own_file("page.js"))
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    embedded = json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
    safe = jinja.utils.markupsafe.Markup
    return str(
        template_of(own_file("page.html"), feature="write_report").render(
            **parts,
            style=safe(own_file("style.css")),
            library=safe(scripts[0]),
            script=safe(scripts[1]),
            data=safe(embedded),
            # only these very scripts run, and nothing is fetched
            policy=f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'",
        )
    )


def template_of(text: str, *, feature: str) -> Any:
    """A template, in a sandbox, that escapes what it inserts and knows no other files."""
    jinja, sandbox = (require(name, feature=feature, extra="report") for name in ("jinja2", "jinja2.sandbox"))
    env = sandbox.ImmutableSandboxedEnvironment(
        autoescape=True,
        finalize=lambda value: for_xml(value) if type(value) is str else value,  # what is safe is no plain text
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return env.from_string(text)


def _script(text: str) -> str:
    """A script as it can stand in a page: a browser must find its end where it is."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


LISTED = 16  # so many features are listed per row, which keeps pages of wide tables small


def lines_of(subject: Subject, later: Later | None) -> list[dict[str, Any]]:
    """One line of the table per row: what it changes, what was shown about it, and what became of it."""
    rows = subject.rows
    after = table_cells(rows.points)
    before: list[Any] = [None] * len(after) if rows.inputs is None else table_cells(rows.inputs)
    columns = rows.points.columns if hasattr(rows.points, "columns") else rows.feature_names
    names = [f"x{j}" for j in range(len(after[0]))] if columns is None else [str(name) for name in columns]
    return [
        {"number": i, "label": str(label), **_changes(names, before[i], after[i]), **_shown(i, subject, later)}
        for i, label in enumerate(subject.labels)
    ]


def _changes(names: list[str], before: list[Any] | None, after: list[Any]) -> dict[str, Any]:
    if before is None:
        every: list[Any] = [(name, None, _text(b)) for name, b in zip(names, after, strict=True)]
    else:
        every = [
            (name, *(number_pair(float(a), float(b)) if _is_number(a) and _is_number(b) else (_text(a), _text(b))))
            for name, a, b in zip(names, before, after, strict=True)
            if differ(a, b)
        ]
    listed = [dict(zip(("name", "before", "after"), change, strict=True)) for change in every[:LISTED]]
    return {"changes": listed, "more": max(0, len(every) - LISTED)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    if isinstance(value, dict):  # a number that JSON lacks
        value = None if value.get("number") == "nan" else value.get("number")
    if value is None:
        return "(missing)"
    return number_text(float(value)) if _is_number(value) else str(value)


def _shown(i: int, subject: Subject, later: Later | None) -> dict[str, Any]:
    certificate = None if subject.certificates is None else subject.certificates[i]
    radius = None if subject.radii is None else subject.radii[i]
    # deltas and how they are written: what is certified rounded down
    proved, sampled = list[tuple[float, str]](), list[tuple[float, str]]()
    if radius is not None:
        proved.append((radius.provable, at_least(radius.provable)))
        if is_proof(radius.claim):
            proved.append((radius.delta, at_least(radius.delta)))
        else:
            sampled.append((radius.delta, radius.written()))
    tested = None if certificate is None else (certificate.delta, exactly(certificate.delta))
    if certificate is not None and certificate.is_certified and tested is not None:
        (proved if is_proof(certificate.claim) else sampled).append(tested)
    said = [] if certificate is None else [certificate.sentence()]
    said += [] if radius is None else [capital(f"largest shift: {radius.sentence()}")]
    outcome, outcome_text = "", ""
    if later is not None and later.audit is not None:
        row = later.audit[i]
        more = f" Nearest repair: {row.repair}." if row.repair else ""
        if row.outcome is Outcome.NOT_PROMISED:
            more = f" It is {'' if row.valid else 'not '}valid on the later model."
        outcome, outcome_text = row.outcome.name, f"{capital(row.reason)}.{more}"
    item: Any = certificate if certificate is not None else radius
    broken = None if radius is None or not 0 < radius.broken_at < math.inf else radius.broken_at
    marks = {
        "tested": tested,
        "sampled": next((mark for mark in sampled if mark[0]), None),
        "worst": max((mark for mark in proved if mark[0]), key=itemgetter(0), default=None),
        "broken": None if broken is None else (broken, at_most(broken)),
    }
    return {
        "target": str(item.target),
        "verdict": "" if certificate is None else certificate.verdict.name,
        "valid_today": item.valid_today,
        "sentences": said,
        "marks": {key: None if mark is None else {"at": mark[0], "text": mark[1]} for key, mark in marks.items()},
        "outcome": outcome,
        "outcome_text": outcome_text,
    }


def plot_data(subject: Subject, later: Later | None, lines: Sequence[dict[str, Any]], drawn: Drawn) -> dict[str, Any]:
    """Everything that is drawn; null for a part that the page lacks."""
    measured, known = None if later is None else later.measured, subject.rows.readings
    marked = measured if later is not None and later.comparable else None
    marked = marked if marked is not None and math.isfinite(marked.delta) else None
    return {
        **{f"{name}s": [line[name] for line in lines] for name in ("label", "verdict", "outcome")},
        "marks": [line["marks"] for line in lines],
        "margins": [_number(m) for m in ([] if known is None else known.margins[:, 0].tolist())],
        "after": None if later is None or later.margins is None else [_number(m) for m in later.margins],
        "curves": drawn.get("curves"),
        "histograms": drawn.get("histograms"),
        "radii": subject.radii is not None,
        "most": "the published search ended" if subject.searched else "certified for most shifts",
        "measured": None if marked is None else {"at": marked.delta, "text": at_most(marked.delta)},
        "layers": [
            {"name": f"{layer} {kind}", "size": size, "distance": _number(distance), "text": at_most(distance)}
            for layer, kind, size, distance in (() if later is None else later.layers)
        ]
        or None,
        "order": None if measured is None else "inf" if measured.p == math.inf else f"{measured.p:g}",
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


#: What the distance of a layer is, by the order that is measured in.
LAYERS = {np.inf: "the largest change of a single one", 1.0: "the sum of their changes"}
#: Where what is drawn has an entry per row.
PER_ROW = {"curves": "estimate", "histograms": "counts"}
TITLE = "Do these explanations survive a new model?"


@dataclass(frozen=True)
class Written:
    """A report that was written."""

    path: Path
    rows: int
    left_out: dict[str, str]
    size: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        told = {"path": str(self.path), "rows": self.rows, "bytes": self.size, "left_out": self.left_out}
        return {"format": "apas-report", **told}


def write_report(
    certificates: Certificates | MaxShifts | Counterfactuals | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    audit: AuditReport | str | os.PathLike[str] | None = None,
    new_model: Any = None,
    max_shifts: MaxShifts | str | os.PathLike[str] | None = None,
    rng: int | np.random.Generator | None = None,
    title: str | None = None,
) -> Path:
    """Write one HTML page about certificates: in plain words, as a table, and with plots to look into each row.

    The page needs no network and no other file, and can be printed. It needs the extra ``report``.

    Parameters
    ----------
    certificates : Certificates, MaxShifts, Counterfactuals or path
        What `certify`, `generate` or `max_shift` returned, or the name of a certificate file.
    path : path
        The file to write; must end in ``.html``.
    model : object, optional
        The model that was certified: see `as_model`. Results that were just computed know it; for a file it is needed
        for the curves and the margins on shifted models, which are left out without it.
    audit : AuditReport or path, optional
        What `audit` returned about these certificates, or the file that ``apas audit --json`` printed.
    new_model : object, optional
        A later model, for the margins before and after. Without `audit` the certificates are audited against it.
    max_shifts : MaxShifts or path, optional
        The largest shifts of the same rows, unless a file holds them already.
    rng : None, int or numpy.random.Generator
        Seed of the page's own draws. None takes a number that the certificates fix: the same call writes the same page.
    title : str, optional

    Returns
    -------
    Path
        Of the page.

    Notes
    -----
    Curves and histograms come from draws of their own, never from those that certified. They are estimates and no
    certificates. With many rows there are curves for the first ones only, and the page says for how many.

    Examples
    --------
    >>> import apas, tempfile
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)
    >>> page = apas.write_report(certificates, tempfile.mkdtemp() + "/report.html")
    >>> "1 of 2 explanations is certified to survive most of the changes" in page.read_text(encoding="utf-8")
    True
    """
    about: dict[str, Any] = {"model": model, "audit": audit, "new_model": new_model, "max_shifts": max_shifts}
    return report_file(certificates, path, **about, rng=rng, title=title).path


def report_file(
    certificates: Any,
    path: Any,
    model: Any = None,
    audit: Any = None,
    new_model: Any = None,
    max_shifts: Any = None,
    rng: Any = None,
    title: str | None = None,
) -> Written:
    """The same, with what was left out."""
    target = check_path(path)
    for given, name in ((certificates, "certificates"), (audit, "audit"), (max_shifts, "max_shifts")):
        if is_path(given) and same_file(target, os.fsdecode(given)):
            other = f"another file than `{name}`, which it would overwrite"
            raise InputError(f"`path` must be {other}, got {str(target)!r}.")
    if title is not None and not isinstance(title, str):
        raise InputError(f"`title` must be a text, got {type(title).__name__}.")
    for module in ("jinja2", "plotly"):
        require(module, feature="write_report", extra="report")
    subject = read_subject(certificates, max_shifts, model)
    later = read_later(subject, audit, new_model)
    # a number that the certificates fix unless the caller says one, so that pages repeat
    fixed = int(hashlib.sha256(f"apas/report/{subject.digest}".encode()).hexdigest()[:32], 16)
    entropy = fixed if rng is None else entropy_of(rng)
    (drawn, undrawn), lines = draw(subject, later, entropy), lines_of(subject, later)
    left_out, measured = undrawn | _left_out(subject.radii, later), None if later is None else later.measured
    text = render_page(
        title=TITLE if title is None else title,
        headline=headline(subject, later),
        figures=figures(subject, later),
        lines=lines,
        later=later,
        left_out=left_out,
        drawn=max([len(drawn[name][rows]) for name, rows in PER_ROW.items() if name in drawn], default=0),
        subject=subject,
        shift_words=words_of(subject.rows.shifts).one,
        at_most=at_most,
        measured_words="" if later is None or measured is None else measured_in_words(later),
        layer_words="" if measured is None else LAYERS.get(measured.p, f"the distance of order {measured.p:g}"),
        methods=methods(subject, later, drawn),
        provenance=provenance(subject, later, entropy, drawn),
        data=plot_data(subject, later, lines, drawn),
    )
    with refusing(f"`path` must be a file that can be written, but {target} cannot"):
        write_text(target, text)
    return Written(target, len(lines), left_out, len(text.encode()))


def check_path(path: Any) -> Path:
    """The path of a page, refused before the work if it could not be written after it."""
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    why = "" if target.suffix.lower() in (".html", ".htm") else "it must end in .html"
    why = why or "it is a folder" * target.is_dir()
    if why := why or f"there is no folder {str(target.parent)!r}" * (not target.parent.is_dir()):
        raise InputError(f"`path` must be a file that can be written, got {str(target)!r}: {why}.")
    return target


def _left_out(radii: MaxShifts | None, later: Later | None) -> dict[str, str]:
    """Which parts the page lacks besides what is drawn anew, and why."""
    absent = dict(TEXTS["left_out"])
    known: dict[str, Any] = {"radii": radii}
    if later is not None:
        if certified_model.NOT_MEASURED.lower() in later.beyond.lower():  # whatever is passed
            absent["layers"] = later.beyond
        known |= {"outcomes": later.audit, "layers": later.measured, "margins": later.margins}
    return {part: why for part, why in absent.items() if known.get(part) is None}
