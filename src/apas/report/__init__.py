"""Reports for people: what was certified, on one page that needs nothing else."""

from apas.report.api import write_report

__all__ = ["write_report"]
