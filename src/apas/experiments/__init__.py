"""The paper's experiments run again: its tables, its networks and the inputs it explains, as published."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apas.paper.datasets import TABLES as TABLES, Part as Part, Tables as Tables, read_tables as read_tables
    from apas.paper.networks import RECIPES as RECIPES, Preparation as Preparation, Recipe as Recipe, prepare as prepare
    from apas.paper.published import (
        PROTOTYPES as PROTOTYPES,
        WACHTERS as WACHTERS,
        BaselineRun as BaselineRun,
        PublishedSampling as PublishedSampling,
        baseline_table as baseline_table,
        later_network as later_network,
        run_baseline as run_baseline,
    )

#: Which module defines each name, imported on first use: the command line only asks what there is.
_DEFINED_IN = {
    "networks": "RECIPES Preparation Recipe prepare",
    "published": "PROTOTYPES WACHTERS BaselineRun PublishedSampling baseline_table later_network run_baseline",
    "datasets": "TABLES Part Tables read_tables",
}
_PLACES = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(import_module(f"apas.paper.{_PLACES[name]}"), name)
        return found
    raise AttributeError(f"module 'apas.experiments' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
