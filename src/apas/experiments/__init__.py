"""The paper's experiments run again: its tables, its networks and the inputs it explains, as published."""

from __future__ import annotations

from apas.experiments.networks import RECIPES, Preparation, Recipe, prepare
from apas.experiments.published import PublishedSampling
from apas.experiments.tables import TABLES, Part, Tables, read_tables

__all__ = [
    "RECIPES",
    "TABLES",
    "Part",
    "Preparation",
    "PublishedSampling",
    "Recipe",
    "Tables",
    "prepare",
    "read_tables",
]
