"""What a certificate file holds, as JSON values."""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np

from apas.certify.certificates import Certificates
from apas.certify.maxshifts import MaxShifts
from apas.contracts.entries import described_certificate
from apas.contracts.jsontext import content_digest
from apas.contracts.readings import Origin, Reading, question, readings, rows_of
from apas.contracts.shiftsets import described_shifts
from apas.contracts.tables import described_table, table_cells
from apas.display.values import plain
from apas.errors import InputError
from apas.models.digest import model_digest

__all__ = ["FORMAT", "VERSION", "stored_content"]

FORMAT, VERSION = "apas-certificates", 1


def stored_content(found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None) -> dict[str, Any]:
    """What a file holds, its digest included.

    Parameters
    ----------
    found : Certificates or MaxShifts
    max_shifts : MaxShifts, optional
        What is known beside certificates about the same rows.
    """
    certificates, radii = (found, max_shifts) if isinstance(found, Certificates) else (None, found)
    if radii is not None and radii is not found:
        _check_same_rows(found, radii)
    read = _readings(found)
    inputs = [None] * len(found) if found.inputs is None else table_cells(found.inputs)
    lines = zip(found._labels(), table_cells(found.points), inputs, read, strict=True)
    entries = [
        {
            "row": plain(label), "values": values, "encoded": list(reading.encoded), "input": start,
            "margins": {"model": reading.margin, "first_draw": reading.first_draw},
            "certificate": None if certificates is None else described_certificate(certificates[i]),
            "max_shift": None if radii is None else radii[i].to_dict(),
        }
        for i, (label, values, start, reading) in enumerate(lines)
    ]  # fmt: skip
    origin = read[0].origin if read else Origin(False, None, None)
    content: dict[str, Any] = {
        "format": FORMAT, "version": VERSION, "versions": _versions(),
        "model": {"digest": found.model_digest, "preprocessing": origin.preprocessing, "network": origin.network},
        "shifts": described_shifts(found.shifts), "space": origin.space,
        "feature_names": None if found.feature_names is None else list(found.feature_names),
        "points": described_table(found.points),
        "inputs": None if found.inputs is None else described_table(found.inputs), "certificates": entries,
    }  # fmt: skip
    return {**content, "digest": content_digest(content)}


def _versions() -> dict[str, str]:
    """What writes the file."""
    apas = str(sys.modules["apas"].__version__)
    return {"apas": apas, "numpy": np.__version__, "python": platform.python_version()}


def _readings(found: Certificates | MaxShifts) -> list[Reading]:
    """What the model makes of each row: asked of the model if it is at hand, else as a file said."""
    model = found.model
    if model is None:
        if found.readings is None:
            raise InputError(
                "`certificates` must come from certify, generate, max_shift or load_certificates: the model that these "
                "are about is not known."
            )
        return list(found.readings)
    if model_digest(model) != found.model_digest:
        raise InputError("`certificates` are about a model that was changed since; certify again and save at once.")
    points, encoded = rows_of(model, found.points, found.feature_names)
    return readings(question(model, encoded, points, list(found), found.shifts), list(found))


def _check_same_rows(found: Certificates | MaxShifts, radii: Any) -> None:
    if not isinstance(radii, MaxShifts):
        raise InputError(f"`max_shifts` must be what max_shift returns, got {type(radii).__name__}.")
    same = (
        radii.model_digest == found.model_digest
        and radii.shifts.to_dict() == found.shifts.to_dict()
        and table_cells(radii.points) == table_cells(found.points)
        and [plain(item.target) for item in radii] == [plain(item.target) for item in found]
    )
    if not same:
        raise InputError(
            "`max_shifts` must be about the same rows, targets, shifts and model as `certificates`; ask max_shift "
            "about certificates.points."
        )
