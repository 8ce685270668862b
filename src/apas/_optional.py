"""Optional dependencies, imported when they are needed and missed politely."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from apas.errors import MissingExtra

__all__ = ["require"]


def require(module: str, *, feature: str, extra: str) -> Any:
    """Import `module`, or say which extra brings it.

    Parameters
    ----------
    module : str
        What to import.
    feature : str
        What the user asked for, to begin the error with.
    extra : str
        Name of the extra.

    Examples
    --------
    >>> require("json", feature="Nothing", extra="none").__name__
    'json'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # the extra is there, but something it needs is not
        raise MissingExtra(feature, extra) from None
