"""An audit for other programs: Markdown for people, JUnit XML for build servers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from apas._sanitise import for_markdown, for_xml
from apas.display.numbers import at_most, exactly
from apas.display.tables import markdown_table

if TYPE_CHECKING:
    from apas.contracts.auditreport import AuditReport

__all__ = ["as_junit", "as_markdown"]


def as_markdown(report: AuditReport) -> str:
    """A heading, what was found, a table of the rows, and one of the distances."""
    import pandas as pd

    parts = [f"## {report.heading()}", for_markdown(report.summary())]
    parts += ["\n".join(f"- {for_markdown(note)}" for note in report.notes)] if report.notes else []
    lines = [
        (label, row.outcome.name, row.target, exactly(row.delta), row.reason, "" if row.repair is None else row.repair)
        for label, row in zip(report._labels(), report, strict=True)
    ]
    if lines:
        names = ["row", "outcome", "target", "delta", "reason", "nearest repair"]
        parts.append(markdown_table(pd.DataFrame(lines, columns=names).astype(str)))
    for digest, shift in report.shifts.items():
        sizes = shift.to_frame()
        sizes = sizes[sizes["p"] == shift.p].assign(change=sizes[shift.models[0]].map(at_most))
        parts.append(
            f"### Shift from {digest[:12]}\n\n{markdown_table(sizes[['layer', 'kind', 'size', 'change']].astype(str))}"
        )
    return "\n\n".join(parts) + "\n"


def as_junit(report: AuditReport) -> str:
    """One test suite; a row without a promise is skipped, and a case for those that have expired if there are any."""
    outcomes = [row.outcome for row in report]
    gone = int(bool(report.expired))
    skipped = sum(outcome.name == "NOT_PROMISED" for outcome in outcomes) + (0 if report.strict else gone)
    failures = int(report.broken.sum()) + (gone if report.strict else 0)
    counts = {"tests": len(report) + gone, "failures": failures, "errors": 0, "skipped": skipped}
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", {"name": "apas audit", **{k: str(v) for k, v in counts.items()}})
    for label, row in zip(report._labels(), report, strict=True):
        case = SubElement(suite, "testcase", {"classname": "apas.audit", "name": for_xml(f"row {label}"), "time": "0"})
        if row.outcome.is_broken:
            failure = SubElement(case, "failure", {"type": row.outcome.name, "message": for_xml(row.reason)})
            failure.text = for_xml(f"{row.reason}\nnearest repair: {row.repair or 'nobody asked'}")
        elif row.outcome.name == "NOT_PROMISED":
            SubElement(case, "skipped", {"message": for_xml(row.reason)})
    if gone:
        case = SubElement(suite, "testcase", {"classname": "apas.audit", "name": "expired promises", "time": "0"})
        said = f"{report.expired} expired: their last day has passed, and nobody has retired them"
        SubElement(case, "failure" if report.strict else "skipped", {"message": said})
    out = SubElement(suite, "system-out")
    out.text = for_xml("\n".join([report.summary(), *report.notes]))
    indent(suites, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"
