"""What to cite for what was used, as BibTeX."""

from __future__ import annotations

import sys
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from apas.errors import InputError

SOFTWARE, PAPER = "apas", "marzari2024rigorous"


@cache
def _known() -> tuple[dict[str, list[str]], dict[str, str]]:
    """What everything rests on, and the entries of works by their keys."""
    folder = files("apas.display")
    entries = folder.joinpath("citations.bib").read_text(encoding="utf-8").strip().split("\n\n")
    works = {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}
    return tomllib.loads(folder.joinpath("citations.toml").read_text(encoding="utf-8")), works


def citation(*used: Any) -> str:
    """What to cite, as BibTeX: the software, the paper whose method it implements, and what else was used.

    Parameters
    ----------
    *used : object
        Methods, sources, searches or metrics: a class, an object of it, or its name, such as ``Exact()``,
        ``apas.Roar`` or ``"wachter"``.

    Returns
    -------
    str
        One entry per work, each once.

    Examples
    --------
    >>> [line for line in citation("roar").splitlines() if line.startswith("@")]
    ['@software{apas,', '@inproceedings{marzari2024rigorous,', '@inproceedings{upadhyay2021towards,']
    """
    found, (rests, works) = dict.fromkeys([SOFTWARE, PAPER]), _known()
    for one in used:
        name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        rests_on = rests.get(name.lower().replace("_", ""))
        if rests_on is None:
            known = ", ".join(rests)
            raise InputError(f"`used` of citation must name methods, sources or metrics ({known}), got {one!r}.")
        found.update(dict.fromkeys(rests_on))
    return "\n\n".join(works[key] for key in found).replace("{VERSION}", f"{{{sys.modules['apas'].__version__}}}")
