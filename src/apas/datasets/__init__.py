"""Data to try apas on: a generated loan table, and the datasets of the experiments found on disk."""

from apas._lazy import attach_stub

#: Where each name is, as `__init__.pyi` says; imported on first use: the command line only asks what there is.
_PLACES, __getattr__, __dir__ = attach_stub(__name__, __file__)
__all__ = sorted(_PLACES)
