"""What to cite for what was used, as BibTeX."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from apas.errors import InputError

SOFTWARE, PAPER = "apas", "marzari2024rigorous"
WILKS, HIGHS, INTERVAL_NETWORKS = "wilks1941determination", "huangfu2018parallelizing", "jiang2023formalising"
#: By the name of a class or its alias, in small letters without underscores, what it rests on besides the paper.
_RESTS_ON: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("sampling", "rays", "maxshift", "maxshifts", "outputranges"), (WILKS,)),
        **dict.fromkeys(("certificates", "counterfactuals", "paper", "confirm", "enumeration", "attack"), ()),
        **dict.fromkeys(("robustfraction", "fractioncurves"), ("clopper1934use",)),
        **dict.fromkeys(("interval", "intervalbounds", "linear", "linearbounds"), (INTERVAL_NETWORKS,)),
        **dict.fromkeys(("exact", "cascade", "milp", "milpsource"), (INTERVAL_NETWORKS, HIGHS)),
        **dict.fromkeys(("robust", "robustoptimum"), (WILKS, HIGHS)),
        **dict.fromkeys(("neighbours", "nearestneighbours", "given", "refit", "refitbounds"), ()),
        **dict.fromkeys(("cuts", "cuttingplanes"), (HIGHS,)),
        **dict.fromkeys(("validity", "l1", "l0", "linf", "cost", "distancetodata", "violations"), ()),
        "deltavalidity": (INTERVAL_NETWORKS,),
        "wachter": ("wachter2017counterfactual",),
        "prototype": ("vanlooveren2021interpretable",),
        "roar": ("upadhyay2021towards",),
        "lof": ("breunig2000lof",),
    }
)


@cache
def _works() -> Mapping[str, str]:
    """The entries of `citations.bib` by their keys."""
    entries = files("apas.display").joinpath("citations.bib").read_text(encoding="utf-8").strip().split("\n\n")
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}


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
    found = dict.fromkeys([SOFTWARE, PAPER])
    for one in used:
        name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        rests_on = _RESTS_ON.get(name.lower().replace("_", ""))
        if rests_on is None:
            known = ", ".join(_RESTS_ON)
            raise InputError(f"`used` of citation must name methods, sources or metrics ({known}), got {one!r}.")
        found.update(dict.fromkeys(rests_on))
    return "\n\n".join(_works()[key] for key in found).replace("{VERSION}", f"{{{sys.modules['apas'].__version__}}}")
