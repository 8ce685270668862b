"""Certificate files that a command writes beside what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certify.certificates import Certificates
    from apas.certify.maxshifts import MaxShifts
    from apas.counterfactuals.result import Counterfactuals

__all__ = ["check_place", "save_to"]


def check_place(path: Path | None) -> None:
    """Refuse a file that could not be written before the work rather than after it."""
    if path is None:
        return
    why = "it must end in .json" if path.suffix.lower() != ".json" else "it is a folder" if path.is_dir() else None
    if why is None and not path.parent.is_dir():
        why = f"there is no folder {str(path.parent)!r}"
    if why is not None:
        raise InputError(f"`--save` must be a file that can be written, got {str(path)!r}: {why}.")


def save_to(path: Path | None, found: Certificates | Counterfactuals | MaxShifts) -> None:
    """Write what was found, if that was asked for."""
    from apas import save_certificates

    if path is not None:
        save_certificates(found, path)
