"""The bank of `apas demo`: its applications, its network, its offers, and the folder that it writes."""

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import apas
from apas._atomic import refusing, write_text
from apas.datasets import CATEGORICAL, LOAN_FEATURES, make_loans
from apas.display.tables import csv_text
from apas.errors import InputError, MissingExtra
from apas.models import base
from apas.paper import package_table

#: Applications that the network is trained on, and those that come in afterwards: this year, and again the next.
TRAINED, LATER = 2000, 1000
PASSES = 3  # how the bank trains its network further: so many passes over the applications that came in
ROUNDS = 29  # how often it rehearses that
#: The deltas at which offers are tried out on the rehearsals, and how many of such updates are to keep them all.
GRID, KEPT = (0.05, 0.1, 0.2), 0.9
_FEATURES = list(LOAN_FEATURES)


def space_of(loans: pd.DataFrame) -> apas.FeatureSpace:
    """What the bank may ask of an applicant: no other age, no lower income, amounts as people speak of them."""
    return apas.FeatureSpace.from_frame(
        loans[_FEATURES],
        immutable=["age", "dependants", "years_employed", "housing"],
        increase=["income"],
        decrease=["loan_amount", "existing_loans", "debt_ratio"],
        ranges={"income": (300, 15_000), "loan_amount": (500, 60_000), "debt_ratio": (0, 1.5)},
        steps={"income": 50, "loan_amount": 500, "duration_months": 6, "debt_ratio": 0.01},
        kinds={"credit_history": "ordinal"},
        values=dict(CATEGORICAL),
        scale="minmax",
    )


@dataclass(frozen=True, eq=False)
class LoanBank:
    """A bank with a year of applications; everything it does follows from the seed."""

    seed: int

    def seeds(self, purpose: int) -> int:
        """A seed of its own for each purpose, so that no draws are used twice."""
        return int(np.random.SeedSequence((self.seed, purpose)).generate_state(1)[0])

    @cached_property
    def loans(self) -> pd.DataFrame:
        """Applications of this year, with the lender's decisions."""
        return make_loans(TRAINED + LATER, rng=self.seed)

    @cached_property
    def space(self) -> apas.FeatureSpace:
        """What an application may be, and how it may change."""
        return space_of(self.loans)

    @cached_property
    def network(self) -> Any:
        """The network as scikit-learn trains it, on encoded rows of the first applications."""
        from sklearn.neural_network import MLPClassifier

        seed = self.seeds(1)
        network = MLPClassifier((16,), alpha=0.01, learning_rate_init=0.005, tol=1e-3, max_iter=1000, random_state=seed)
        return network.fit(*self._encode(self.loans[:TRAINED]))

    @cached_property
    def model(self) -> apas.Model:
        """The network behind the coding of the space: it takes applications in raw units."""
        return self.space.bind(self.network)

    @property
    def agreement(self) -> int:
        """How many of the later applications, which the network has not seen, it decides as the lender did."""
        rows, decisions = self._encode(self.loans[TRAINED:])
        return int((self.network.predict(rows) == decisions).sum())

    def rejected(self, most: int) -> pd.DataFrame:
        """The first applicants of the year whom the network rejects."""
        rejected = self.network.predict(self._encode(self.loans)[0]) == 0
        return pd.DataFrame(self.loans.loc[rejected, _FEATURES]).head(most)

    def calibration(self, applicants: pd.DataFrame) -> apas.Calibration:
        """Offers at the least delta that rehearsals of this year's training further keep."""
        rows, decisions = self._encode(self.loans[TRAINED:])
        draws = np.random.default_rng(self.seeds(2)).integers(len(rows), size=(ROUNDS, len(rows)))
        rehearsals = [trained_further(copy.deepcopy(self.network), rows[i], decisions[i]) for i in draws]
        asked: dict[str, Any] = {"target": 1, "space": self.space, "coverage": KEPT, "rng": self.seeds(5)}
        return apas.calibrate_offers(self.model, applicants, rehearsals, GRID, **asked)

    def retrained(self) -> apas.Model:
        """The model of next year, as it takes applications; nothing before the audit may ask for it."""
        loans = make_loans(LATER, drift=1.0, rng=self.seeds(3))
        return self.space.bind(trained_further(copy.deepcopy(self.network), *self._encode(loans)))

    def _encode(self, loans: pd.DataFrame) -> tuple[Any, Any]:
        return self.space.encode(loans[_FEATURES]), loans["approved"].to_numpy()


def trained_further(network: Any, rows: Any, decisions: Any) -> Any:
    """The network itself after some more passes over the rows."""
    for _ in range(PASSES):
        network.partial_fit(rows, decisions)
    return network


#: Shifts that a plain offer is proved to survive: none worth the name, so that it is an offer for today's model only.
NEXT_TO_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class Offers:
    """Offers of one kind, and what was certified about them."""

    name: str
    found: apas.Counterfactuals
    certificates: apas.Certificates
    worst: apas.Certificates
    radii: apas.MaxShifts
    proved: apas.MaxShifts

    @property
    def _claims(self) -> dict[str, tuple[apas.Certificates, apas.MaxShifts]]:
        return {"most": (self.certificates, self.radii), "every": (self.worst, self.proved)}

    def frame(self, audit: apas.AuditReport) -> pd.DataFrame:
        """One line per applicant: what is offered, what is certified, and what became of it."""
        frame = self.found.to_frame()[["status", "changes", "cost"]].rename_axis("applicant")
        claims = self._claims.items()
        known: dict[str, Any] = {f"verdict_{name}": [c.verdict.name for c in made] for name, (made, _) in claims}
        known |= {f"largest_delta_{name}": shifts.deltas for name, (_, shifts) in claims}
        known |= {"outcome": [row.outcome.name for row in audit], "valid_next_year": [row.valid for row in audit]}
        for name, values in known.items():
            column = np.full(len(frame), None, dtype=object)
            column[self.found.found] = values
            frame[name] = column
        return frame

    def to_dict(self, audit: apas.AuditReport) -> dict[str, Any]:
        """The counts, and the mean change in units of the ranges, as JSON values."""
        costs = [item.cost for item in self.found if item.is_found]
        told: dict[str, Any] = {"applicants": len(self.found), "found": len(costs)}
        told["mean_change"] = float(np.mean(costs)) if costs else None
        for name, (made, _) in self._claims.items():
            told[f"certified_{name}"] = int(made.certified.sum())
        for name, (_, shifts) in self._claims.items():
            told[f"median_delta_{name}"] = float(np.median(shifts.deltas)) if len(shifts) else None
        told |= {"valid_next_year": sum(row.valid for row in audit), "broken_promises": int(audit.broken.sum())}
        return {**told, "audit": audit.summary()}


def make_offers(name: str, bank: LoanBank, calibration: apas.Calibration, delta: float) -> Offers:
    """Small changes that today's model accepts ("plain"), or those of the calibration, which are certified."""
    model, found = bank.model, calibration.offers
    if name == "plain":  # nobody asks about tomorrow's model before they are made
        asked: dict[str, Any] = {"target": 1, "space": bank.space, "source": "milp", "method": "interval"}
        found = apas.generate(model, found.inputs, NEXT_TO_NOTHING, **asked)
        certificates = apas.certify(model, found[found.found].points, delta, target=1, rng=bank.seeds(4))
    else:  # the search has draws of its own, so its certificates count as they are
        certificates = found.certificates
    made = found[found.found]
    worst = apas.certify(model, made.points, delta, target=1, method="cascade", rng=bank.seeds(6))
    for known in (certificates, worst):  # nobody has seen them yet; with the inputs a reader sees what changes
        known.inputs = made.inputs
    radii = apas.max_shift(model, made.points, target=1, rng=bank.seeds(7))
    proved = apas.max_shift(model, made.points, target=1, method="cascade", rng=bank.seeds(8))
    return Offers(name, found, certificates, worst, radii, proved)


#: What the folder holds, and what it is; the first one tells that the folder is ours.
FILES = {line["file"]: line["what"] for line in package_table("demo.csv")}
_OURS = "Written by `apas demo`; it overwrites these files and no others."


@dataclass(frozen=True)
class DemoFolder:
    """Where the demo writes."""

    path: Path

    def claim(self) -> None:
        """Make the folder, or refuse one in which a file of the same name comes from somebody else."""
        readme = self.path / "README.txt"
        with refusing(f"`--output` must be a folder that can be written, got {str(self.path)!r}"):
            self.path.mkdir(parents=True, exist_ok=True)
            ours = readme.is_file() and readme.read_text(encoding="utf-8", errors="replace").startswith(_OURS)
            there = [name for name in FILES if (self.path / name).exists()]
            if there and not ours:
                held = f"{str(self.path)!r} holds {there[0]!r}, which `apas demo` did not write"
                wanted = "a folder in which nothing is overwritten"
                raise InputError(f"`--output` must be {wanted}, but {held}; name another folder.")
            for name in there:  # what an earlier run wrote must not stand beside what this one writes
                (self.path / name).unlink()
            write_text(readme, "\n".join([_OURS, "", *(f"{name:<18} {what}" for name, what in FILES.items()), ""]))

    @property
    def files(self) -> list[Path]:
        """What is there, in the order of the list."""
        return [self.path / name for name in FILES if (self.path / name).exists()]

    def write_promises(self, bank: LoanBank, kinds: list[Offers], calibration: apas.Calibration) -> None:
        """What is known before the network is trained further."""
        apas.save_certificates(calibration, self.path / "calibration.json")
        self._write_model("this-year.json", bank.model)
        self._write("space.toml", bank.space.to_toml())
        self._write("applicants.csv", csv_text(kinds[0].found.inputs.rename_axis("applicant")))
        for offers in kinds:
            rows = offers.found.points.rename_axis("applicant")
            rows.insert(0, "status", [status.name for status in offers.found.status])
            self._write(f"{offers.name}.csv", csv_text(rows))
            apas.save_certificates(offers.certificates, self.path / f"{offers.name}.json", max_shifts=offers.radii)
            apas.save_certificates(offers.worst, self.path / f"{offers.name}-every.json", max_shifts=offers.proved)

    def write_outcomes(self, retrained: apas.Model, kinds: list[Offers], audits: list[apas.AuditReport]) -> None:
        """What became of the promises."""
        self._write_model("next-year.json", retrained)
        frames = [o.frame(a).assign(offer=o.name) for o, a in zip(kinds, audits, strict=True)]
        self._write("offers.csv", csv_text(pd.concat(frames).set_index("offer", append=True).sort_index(kind="stable")))

    def write_page(self, bank: LoanBank, robust: Offers, audit: apas.AuditReport, retrained: apas.Model) -> str | None:
        """The report; if there is none, why: without the extra that it needs, how to install that."""
        if not len(robust.certificates):
            return "there are no robust offers."
        try:
            known: dict[str, Any] = {"model": bank.model, "audit": audit, "new_model": retrained}
            known |= {"max_shifts": robust.radii, "title": "Offers to rejected loan applicants"}
            apas.write_report(robust.certificates, self.path / "report.html", **known)
        except MissingExtra as error:
            return str(error)
        return None

    def _write_model(self, name: str, model: apas.Model) -> None:
        assert base.offers(model, base.Dense)
        apas.save_model(model.as_feedforward(), self.path / name)

    def _write(self, name: str, text: str) -> None:
        with refusing(f"{self.path / name} cannot be written"):
            write_text(self.path / name, text)
