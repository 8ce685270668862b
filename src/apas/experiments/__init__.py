"""The paper's experiments run again: its tables, its networks and the inputs it explains, as published."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apas.paper.baselines import PROTOTYPES as PROTOTYPES
    from apas.paper.baselines import WACHTERS as WACHTERS
    from apas.paper.baselines import BaselineRun as BaselineRun
    from apas.paper.baselines import baseline_table as baseline_table
    from apas.paper.baselines import later_network as later_network
    from apas.paper.baselines import run_baseline as run_baseline
    from apas.paper.networks import RECIPES as RECIPES
    from apas.paper.networks import Preparation as Preparation
    from apas.paper.networks import Recipe as Recipe
    from apas.paper.networks import prepare as prepare
    from apas.paper.published import PublishedSampling as PublishedSampling
    from apas.paper.tables import TABLES as TABLES
    from apas.paper.tables import Part as Part
    from apas.paper.tables import Tables as Tables
    from apas.paper.tables import read_tables as read_tables

__all__ = [
    "PROTOTYPES",
    "RECIPES",
    "TABLES",
    "WACHTERS",
    "BaselineRun",
    "Part",
    "Preparation",
    "PublishedSampling",
    "Recipe",
    "Tables",
    "baseline_table",
    "later_network",
    "prepare",
    "read_tables",
    "run_baseline",
]

#: Which module defines each name, imported on first use: the command line only asks what there is.
_DEFINED_IN = {
    "baselines": "PROTOTYPES WACHTERS BaselineRun baseline_table later_network run_baseline",
    "networks": "RECIPES Preparation Recipe prepare",
    "published": "PublishedSampling",
    "tables": "TABLES Part Tables read_tables",
}
_PLACES = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(import_module(f"apas.paper.{_PLACES[name]}"), name)
        return found
    raise AttributeError(f"module 'apas.experiments' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
