"""Data to try apas on: a generated loan table, and the paper's six datasets found on disk."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apas.datasets.loans import CATEGORICAL as CATEGORICAL
    from apas.datasets.loans import LOAN_FEATURES as LOAN_FEATURES
    from apas.datasets.loans import NUMERIC as NUMERIC
    from apas.datasets.loans import make_loans as make_loans
    from apas.datasets.registry import DATASETS as DATASETS
    from apas.datasets.registry import data_folder as data_folder
    from apas.datasets.registry import data_from as data_from
    from apas.datasets.registry import dataset_path as dataset_path

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

#: Which module defines each name, imported on first use: the command line only asks what there is.
_DEFINED_IN = {
    "loans": "CATEGORICAL LOAN_FEATURES NUMERIC make_loans",
    "registry": "DATASETS data_folder data_from dataset_path",
}
_PLACES = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(import_module(f"apas.datasets.{_PLACES[name]}"), name)
        return found
    raise AttributeError(f"module 'apas.datasets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
