"""The folder that `apas demo` writes: certificates, models, tables and the report, none of them over foreign files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from apas._atomic import write_text
from apas.display.tables import csv_text
from apas.errors import InputError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

    from apas.cli.loanbank import LoanBank
    from apas.cli.loanoffers import Offers
    from apas.contracts.auditreport import AuditReport
    from apas.models.protocol import Model

__all__ = ["FILES", "DemoFolder"]

#: What the folder holds, and what it is; the first one tells that the folder is ours.
FILES = {
    "README.txt": "this list",
    "report.html": "the robust offers on one page, to be opened in a browser (if the extra `report` is installed)",
    "offers.csv": "all offers of both kinds: what changes, what is certified, what became of it",
    "applicants.csv": "the rejected applicants",
    "plain.csv": "the plain offers, as applications",
    "robust.csv": "the robust offers, as applications",
    "plain.json": "certificates of the plain offers about most shifts, with their largest deltas",
    "robust.json": "certificates of the robust offers about most shifts, with their largest deltas",
    "plain-every.json": "the same offers and every shift",
    "robust-every.json": "the same offers and every shift",
    "space.toml": "what an application may be, how it may change, and how a network sees it",
    "this-year.json": "the network that was explained",
    "next-year.json": "the network after it was trained further",
}
_OURS = "Written by `apas demo`; it overwrites these files and no others."


@dataclass(frozen=True)
class DemoFolder:
    """Where the demo writes.

    Attributes
    ----------
    path : Path
    """

    path: Path

    def claim(self) -> None:
        """Make the folder, or refuse one in which a file of the same name comes from somebody else."""
        readme = self.path / "README.txt"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            ours = readme.is_file() and readme.read_text(encoding="utf-8", errors="replace").startswith(_OURS)
            there = [name for name in FILES if (self.path / name).exists()]
            if there and not ours:
                raise InputError(
                    f"`--output` must be a folder in which nothing is overwritten, but {str(self.path)!r} holds "
                    f"{there[0]!r}, which `apas demo` did not write; name another folder."
                )
            for name in there:  # what an earlier run wrote must not stand beside what this one writes
                (self.path / name).unlink()
            lines = [f"{name:<18} {what}" for name, what in FILES.items()]
            write_text(readme, "\n".join([_OURS, "", *lines, ""]))
        except OSError as error:
            raise InputError(
                f"`--output` must be a folder that can be written, got {str(self.path)!r}: {error.strerror or error}."
            ) from None

    @property
    def files(self) -> list[Path]:
        """What is there, in the order of the list."""
        return [self.path / name for name in FILES if (self.path / name).exists()]

    def write_promises(self, bank: LoanBank, kinds: list[Offers]) -> None:
        """What is known before the network is trained further."""
        from apas import save_certificates

        self._write_model("this-year.json", bank.model)
        self._write("space.toml", bank.space.to_toml())
        self._write_csv("applicants.csv", kinds[0].found.inputs.rename_axis("applicant"))
        for offers in kinds:
            rows = offers.found.points.rename_axis("applicant")
            rows.insert(0, "status", [status.name for status in offers.found.status])
            self._write_csv(f"{offers.name}.csv", rows)
            save_certificates(offers.certificates, self.path / f"{offers.name}.json", max_shifts=offers.radii)
            save_certificates(offers.worst, self.path / f"{offers.name}-every.json", max_shifts=offers.proved)

    def write_outcomes(self, retrained: Model, kinds: list[Offers], audits: list[AuditReport]) -> None:
        """What became of the promises."""
        import pandas as pd

        self._write_model("next-year.json", retrained)
        frames = [o.frame(a).assign(offer=o.name) for o, a in zip(kinds, audits, strict=True)]
        table = pd.concat(frames).set_index("offer", append=True).sort_index(kind="stable")
        self._write_csv("offers.csv", table)

    def write_page(self, bank: LoanBank, robust: Offers, audit: AuditReport, retrained: Model) -> str | None:
        """The report; if there is none, why: without the extra that it needs, how to install that."""
        from apas.report import write_report

        if not len(robust.certificates):
            return "there are no robust offers."
        try:
            write_report(
                robust.certificates, self.path / "report.html", model=bank.model, audit=audit, new_model=retrained,
                max_shifts=robust.radii, title="Offers to rejected loan applicants",
            )  # fmt: skip
        except MissingExtra as error:
            return str(error)
        return None

    def _write_model(self, name: str, model: Model) -> None:
        from apas import save_model
        from apas.models.protocol import Dense, offers

        assert offers(model, Dense)
        save_model(model.as_feedforward(), self.path / name)

    def _write_csv(self, name: str, table: pd.DataFrame) -> None:
        self._write(name, csv_text(table))

    def _write(self, name: str, text: str) -> None:
        try:
            write_text(self.path / name, text)
        except OSError as error:
            raise InputError(f"{self.path / name} cannot be written: {error.strerror or error}.") from None
