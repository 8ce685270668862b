"""Optional dependencies, imported when they are needed and missed politely."""

from importlib import import_module
from typing import Any

from apas.errors import MissingExtra


def require(module: str, *, feature: str, extra: str) -> Any:
    """Import `module`, or say which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # the extra is there, but something it needs is not
        raise MissingExtra(feature, extra) from None
