"""Files that a command writes: where they may go, refused before the work rather than after it, and certificates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from apas._atomic import same_file
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certify.certificates import Certificates
    from apas.certify.maxshifts import MaxShifts
    from apas.counterfactuals.result import Counterfactuals

__all__ = ["check_outputs", "save_to"]


def check_outputs(outputs: Mapping[str, Path | None], *inputs: Path | Sequence[Path] | None) -> None:
    """Refuse outputs that could not be written, that are inputs, or two that are one file; before any work.

    Parameters
    ----------
    outputs : mapping
        What the command writes, by the name of the option; None where it was not asked for.
    *inputs
        What it reads, in any order: paths, several of them, or None.
    """
    chosen = {name: path for name, path in outputs.items() if path is not None}
    read = [path for given in inputs if given is not None for path in ([given] if isinstance(given, Path) else given)]
    for name, path in chosen.items():
        why = "it must end in .json" if name == "--save" and path.suffix.lower() != ".json" else _unwritable(path)
        if why is not None:
            raise InputError(f"`{name}` must be a file that can be written, got {str(path)!r}: {why}.")
        for other in read:
            if same_file(path, other):
                known = "" if str(other) == str(path) else f", which is {str(other)!r}"
                raise InputError(
                    f"`{name}` must be another file than those that are read, got {str(path)!r}{known}; it would be "
                    "overwritten, so name another."
                )
    for (first, a), (second, b) in itertools.combinations(chosen.items(), 2):
        if same_file(a, b):
            raise InputError(
                f"`{first}` and `{second}` must be two files, by names that differ in more than capitals, got "
                f"{str(a)!r} and {str(b)!r}; name another."
            )


def _unwritable(path: Path) -> str | None:
    """Why a file cannot be written at this place, as far as one can see."""
    try:
        if path.is_dir():
            return "it is a folder"
        if path.exists() and not path.is_file():
            return "it is not a plain file"
        return None if path.parent.is_dir() else f"there is no folder {str(path.parent)!r}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)


def save_to(path: Path | None, found: Certificates | Counterfactuals | MaxShifts) -> None:
    """Write what was found, if that was asked for."""
    from apas import save_certificates

    if path is not None:
        save_certificates(found, path)
