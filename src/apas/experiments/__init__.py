"""The paper's experiments run again: its tables, its networks and the inputs it explains, as published."""

from __future__ import annotations

from apas.experiments.baselines import PROTOTYPES, WACHTERS, BaselineRun, baseline_table, later_network, run_baseline
from apas.experiments.networks import RECIPES, Preparation, Recipe, prepare
from apas.experiments.published import PublishedSampling
from apas.experiments.tables import TABLES, Part, Tables, read_tables

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
