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
