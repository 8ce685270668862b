"""`write_letter`: what was promised to each applicant, as one page that a person can read and print."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from apas._atomic import refusing, write_text
from apas._lazy import require
from apas._sanitise import shown
from apas._validation import is_path
from apas.certification.region import AT_LEAST, AT_MOST, ONE_OF, RowRegion, Span, cells_of, names_of
from apas.certification.results import Certificates
from apas.contracts.audit import certificates_of
from apas.contracts.ledger import Promise, checked_promises
from apas.counterfactuals.menu import Menu, MenuStatus
from apas.counterfactuals.result import Counterfactuals, differ
from apas.display.numbers import at_least, at_most, exactly
from apas.errors import InputError
from apas.report.api import template_of
from apas.report.headline import capital, own_file

#: Options and sentences about what is not enough that are on a page at most; of more it says how many.
OPTIONS, EXCLUDED = 3, 5
#: Lines of print that every page has, and room for others on a sheet, with letters of POINTS; where one option needs
#: more, letters are smaller, down to SMALLEST.
FIXED, ROOM, POINTS, SMALLEST = 27.5, 30.0, 10.0, 6.5


def write_letter(
    offers: Certificates | Counterfactuals | Menu | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    references: Sequence[str] | None = None,
    expires: date | str | None = None,
    answer: str | None = None,
    names: Mapping[str, str] | None = None,
    sender: str = "",
    template: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Write a page for each applicant: what to change, what is promised about it, until when, and what is not.

    The pages are HTML, need no network and no other file, and print on one sheet. It needs the extra ``report``.

    Parameters
    ----------
    offers : Certificates, Counterfactuals, Menu or path
        What `generate`, `menu` or `certify` returned, or the name of a certificate file. Rows that are not certified
        are left out: nothing is promised about them.
    folder : path
        Where to write; made if it is not there.
    references : sequence of str, optional
        Whom each row belongs to (of a menu: each applicant), as in `Ledger.add`; what the rows are called unless given.
        Rows of one reference are options on one page.
    expires : date or str, optional
        Last day on which the promises hold, such as "2027-06-30".
    answer : str, optional
        What the wanted class means to people, such as "approved"; the name of the class unless given.
    names : mapping, optional
        From features to what people call them.
    sender : str, optional
        Who writes.
    template : path, optional
        A page of your own, as a Jinja template; see the documentation for what it can use. It runs in a sandbox, and
        everything that it inserts is escaped.

    Returns
    -------
    list of Path
        Of the pages, in the order of the applicants.

    Examples
    --------
    >>> import apas, tempfile
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[-1.0]], feature_names=("income", "debt"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=5) for n in net.feature_names])
    >>> offers = apas.generate(net, [[0.2, 0.3]], 0.02, space=space, beyond=True, rng=0)
    >>> pages = apas.write_letter(offers, tempfile.mkdtemp(), references=["A-17"], answer="approved")
    >>> "at least" in pages[0].read_text(encoding="utf-8")
    True
    """
    require("jinja2", feature="write_letter", extra="report")
    place = _folder(folder)
    if names is not None and not (
        isinstance(names, Mapping) and all(isinstance(text, str) for pair in names.items() for text in pair)
    ):
        raise InputError(f"`names` must map features to what people call them, got {shown(names)}.")
    called = dict(names or {})
    for value, what in ((answer, "answer"), (sender, "sender")):
        if value is not None and not isinstance(value, str):
            raise InputError(f"`{what}` must be a text, got {shown(value)}.")
    excluded: dict[str, list[str]] = {}
    if isinstance(offers, Menu):
        references, excluded = _of_menu(offers, references, called)
        offers = offers.offers
    today = datetime.now(UTC).date().isoformat()
    parts, owners, last = checked_promises(offers, references, expires, today)
    options: dict[str, list[dict[str, Any]]] = {}
    certificates = certificates_of(offers)
    for i, (part, owner) in enumerate(zip(parts, owners, strict=True)):
        if part is not None:
            options.setdefault(owner, []).append(_option(certificates, i, part, called, answer))
    pages = []
    for owner, own in options.items():
        lacking = excluded.get(owner, [])
        lines = np.cumsum([_lines(option) for option in own[:OPTIONS]]) + (
            len(" ".join(lacking[:EXCLUDED])) / 100 + 3.5
        ) * bool(lacking)
        fitting = max(1, int(np.count_nonzero(lines <= ROOM)))
        # what a template gets are texts, truth values, lists and mappings: nothing that could do anything
        letter = {
            "reference": owner,
            "issued": today,
            "expires": last,
            "sender": sender,
            "limits": all(option["several"] for option in own[:fitting]),
            "options": own[:fitting],
            "more_options": len(own[fitting:]),
            "excluded": lacking[:EXCLUDED],
            "more_excluded": len(lacking[EXCLUDED:]),
            "points": f"{min(POINTS, max(SMALLEST, POINTS * (FIXED + ROOM) / (FIXED + lines[0]))):.1f}",
        }
        page = _page_template(template)
        try:
            text = str(template_of(page, feature="write_letter").render(letter=letter))
        except Exception as error:  # noqa: BLE001  (whatever the expressions of a template may raise)
            raise InputError(f"`template` cannot be used: {type(error).__name__}: {shown(str(error))}.") from None
        pages.append(place / f"letter-{own[0]['code'].replace('-', '').lower()}.html")
        with refusing(f"`folder` must be one that can be written, but {place}"):
            place.mkdir(exist_ok=True)
            write_text(pages[-1], text)
    return pages


def _lines(option: Mapping[str, Any]) -> float:
    """About how many lines of print an option takes: its table, with longer cells in several, and its small print."""
    rows = [(c["name"], c["now"], c["needed"] + " (need not change)" * (not c["changes"])) for c in option["changes"]]
    cells = [max(-(-len(text) // width) for text, width in zip(row, (24, 28, 46), strict=True)) for row in rows]
    return 3.1 + sum(cells) + 0.35 * len(cells) + 0.7 * (len(option["details"]) // 120 + 1) + 0.3


def _page_template(path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return own_file("letter.html")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise InputError(f"`template` must be a text file in UTF-8, got {shown(str(path))}: {error}.") from None


def _folder(path: Any) -> Path:
    if not is_path(path):
        raise InputError(f"`folder` must be the name of a folder, got {type(path).__name__}.")
    place = Path(os.fsdecode(path))
    if (place.exists() and not place.is_dir()) or not place.parent.is_dir():
        raise InputError(f"`folder` must be a folder, or a new one in a folder that is there, got {str(place)!r}.")
    return place


def _of_menu(
    menu: Menu, references: Sequence[str] | None, called: Mapping[str, str]
) -> tuple[Any, dict[str, list[str]]]:
    """A reference per offer of a menu, and per reference which features alone do not lead to the answer."""
    labels = dict(zip([item.row for item in menu], menu.to_frame().index.tolist(), strict=True))
    if references is not None:
        if isinstance(references, str) or len(references) != len(labels):
            raise InputError(f"`references` must have one text per applicant ({len(labels)}), got {shown(references)}.")
        labels = dict(zip(sorted(labels), references, strict=True))
    excluded: dict[str, list[str]] = {}
    for item in menu:
        if item.status is MenuStatus.UNREACHABLE:
            told = " and ".join(called.get(name, name.replace("_", " ")) for name in item.features)
            excluded.setdefault(str(labels[item.row]), []).append(told)
    return (None if references is None else [labels[offer.row] for offer in menu.offers]), excluded


def _option(
    certificates: Certificates, i: int, part: Promise, called: Mapping[str, str], answer: str | None
) -> dict[str, Any]:
    """One way to the answer, and what is promised about it."""
    certificate, names = certificates[i], names_of(certificates.model, certificates.points)
    if certificates.feature_names is not None:
        names = tuple(certificates.feature_names)
    if strange := [name for name in called if name not in names]:
        raise InputError(f"`names` has {strange[0]!r}, which is no feature of the rows; they have {', '.join(names)}.")
    before = None if certificates.inputs is None else cells_of(certificates.inputs, i, names)
    code, region = part.digest[:12].upper(), certificate.region
    return {
        "code": "-".join(code[a : a + 4] for a in (0, 4, 8)),
        "answer": answer or f"class {certificate.target}",
        "changes": _changes(region, before, cells_of(certificates.points, i, names), called),
        "several": region is not None and bool(region.spans),  # values within limits rather than single ones
        "shown": capital(f"{certificate.claim.sureness()}, {certificate.claim.subject()} this answer."),
        "details": certificate.sentence(),
        "model": certificates.model_digest,
    }


def _changes(
    region: RowRegion | None, before: Mapping[str, Any] | None, after: Mapping[str, Any], called: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What has to change, and what may be a little off; without knowing what was, all that has to be."""
    spans = {span.feature: span for span in (() if region is None else region.spans)}
    found = []
    for name, cell in after.items():
        changed, span = before is None or differ(before[name], cell), spans.get(name)
        if changed or span is not None:
            now = "" if before is None else _value(before[name])
            needed = f"exactly {_value(cell)}" if span is None else _needed(span)
            told = called.get(name, name.replace("_", " "))
            found.append({"name": told, "now": now, "needed": needed, "changes": changed})
    return sorted(found, key=lambda change: not change["changes"])


def _value(cell: Any) -> str:
    """A cell with all its digits, or in words."""
    if isinstance(cell, bool | str) or not hasattr(cell, "__float__"):
        return "nothing" if cell is None else str(cell)
    return "nothing" if cell != cell else _spaced(exactly(float(cell)))


def _spaced(text: str) -> str:
    """A written number with commas between thousands."""
    whole, dot, rest = text.partition(".")
    return f"{int(whole):,}{dot}{rest}" if whole.lstrip("-").isdigit() and not whole.startswith("-0") else text


def _needed(span: Span) -> str:
    """What a feature has to be, in words; ends are rounded into the span, so that what is written is covered."""
    if span.side == ONE_OF:
        *most, last = (_value(level) for level in span.levels)
        return f"{', '.join(most)} or {last}" if most else last
    low, high = at_most(span.low), at_least(span.high)
    if span.step or not float(low) <= float(high):
        low, high = exactly(span.low), exactly(span.high)
    low, high, steps = _spaced(low), _spaced(high), f", in steps of {exactly(span.step)}" * (span.step not in (0, 1))
    if span.side == AT_LEAST:
        return f"at least {low} (up to {high}{steps})"
    if span.side == AT_MOST:
        return f"at most {high} (down to {low}{steps})"
    return f"between {low} and {high}{steps}"
