"""Certificates as files: written in one step, read with every field checked."""

from __future__ import annotations

import os
from pathlib import Path

from apas._atomic import write_text
from apas.certify.certificates import Certificates
from apas.certify.maxshifts import MaxShifts
from apas.contracts.contents import stored_content
from apas.contracts.jsontext import written
from apas.contracts.stored import read_stored
from apas.counterfactuals.result import Counterfactuals
from apas.errors import InputError

__all__ = ["load_certificates", "save_certificates"]


def save_certificates(
    certificates: Certificates | Counterfactuals | MaxShifts,
    path: str | os.PathLike[str],
    *,
    max_shifts: MaxShifts | None = None,
) -> None:
    """Write certificates to a file that anyone can check again, in one step.

    Parameters
    ----------
    certificates : Certificates, Counterfactuals or MaxShifts
        What `certify`, `generate` or `max_shift` returned, or a part of it. Of counterfactuals those that were found
        and certified.
    path : path
        Must end in ``.json``.
    max_shifts : MaxShifts, optional
        What `max_shift` said about the same rows of the same model, to be kept beside the certificates.

    Notes
    -----
    The format is described on the page "Certificate file". Nobody ever sees half of a file: it is written beside
    `path`, made durable, and put in place.

    Examples
    --------
    >>> import apas, tempfile
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)
    >>> path = tempfile.mkdtemp() + "/certificates.json"
    >>> save_certificates(certificates, path)
    >>> load_certificates(path) == certificates
    True
    """
    target = _json_path(path)
    found = certificates.certificates if isinstance(certificates, Counterfactuals) else certificates
    if not isinstance(found, Certificates | MaxShifts):
        raise InputError(
            f"`certificates` must be what certify, generate or max_shift returns, got {type(certificates).__name__}."
        )
    kept = found.max_shifts if isinstance(found, Certificates) and max_shifts is None else max_shifts
    content = stored_content(found, kept)
    try:
        write_text(target, written(content))
    except OSError as error:
        raise InputError(f"`path` must be a file that can be written, but {target} cannot: {error.strerror}.") from None


def load_certificates(path: str | os.PathLike[str]) -> Certificates:
    """Read certificates that `save_certificates` wrote, in this or an older version.

    Parameters
    ----------
    path : path

    Returns
    -------
    Certificates
        Equal to those that were saved; `max_shifts` holds the largest shifts, if the file does. Nothing is checked
        against a model: see `verify`.
    """
    found = read_stored(path)
    if found.certificates is None:
        raise InputError(
            f"{path} holds the largest shifts of rows but no certificates; apas.verify and `apas verify` read it."
        )
    return found.certificates


def _json_path(path: str | os.PathLike[str]) -> Path:
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    if target.suffix.lower() != ".json":
        raise InputError(f"`path` must end in .json, got {str(target)!r}.")
    return target
