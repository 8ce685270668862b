"""Data to try apas on: a generated loan table, and the paper's six datasets found on disk."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apas.paper.data_folder import (
        DATASETS as DATASETS,
        data_folder as data_folder,
        data_from as data_from,
        dataset_path as dataset_path,
    )
    from apas.paper.loans import (
        CATEGORICAL as CATEGORICAL,
        LOAN_FEATURES as LOAN_FEATURES,
        NUMERIC as NUMERIC,
        make_loans as make_loans,
    )

#: Which module defines each name, imported on first use: the command line only asks what there is.
_DEFINED_IN = {
    "data_folder": "DATASETS data_folder data_from dataset_path",
    "loans": "CATEGORICAL LOAN_FEATURES NUMERIC make_loans",
}
_PLACES = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(import_module(f"apas.paper.{_PLACES[name]}"), name)
        return found
    raise AttributeError(f"module 'apas.datasets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
