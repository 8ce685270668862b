"""Reports for people: what was certified, on one page that needs nothing else."""

from __future__ import annotations

from apas.report.api import write_report

__all__ = ["write_report"]
