"""Model files on the command line: what a file does not tell is said by options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apas.models.protocol import Model

__all__ = ["listed", "read_model"]


def read_model(path: Path, *, activation: str | None = None, output: str | None = None, **said: Any) -> Model:
    """Read a model file; `activation` and `output` are the words of ``--activation`` and ``--output``.

    Parameters
    ----------
    path : Path
        The file.
    activation : str, optional
        One name, or one per hidden layer with commas between them.
    output : str, optional
        As `load_model` takes it.
    **said
        Other arguments of `load_model`.
    """
    from apas import load_model

    names: Any = None if activation is None else listed(activation)
    return load_model(path, activation=names[0] if names and len(names) == 1 else names, output=output, **said)


def listed(text: str) -> list[str]:
    """The words of a text with commas between them.

    Examples
    --------
    >>> listed("relu, tanh")
    ['relu', 'tanh']
    """
    return [word.strip() for word in text.split(",")]
