"""Data to try apas on: a generated loan table, and the paper's six datasets found on disk."""

from __future__ import annotations

from apas.datasets.loans import CATEGORICAL, LOAN_FEATURES, NUMERIC, make_loans
from apas.datasets.registry import DATASETS, data_folder, data_from, dataset_path

__all__ = [
    "CATEGORICAL",
    "DATASETS",
    "LOAN_FEATURES",
    "NUMERIC",
    "data_folder",
    "data_from",
    "dataset_path",
    "make_loans",
]
