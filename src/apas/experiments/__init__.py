"""The paper's experiments run again: its tables, its networks and the inputs it explains, as published."""

from apas._lazy import attach_stub

#: Where each name is, as `__init__.pyi` says; imported on first use: the command line only asks what there is.
_PLACES, __getattr__, __dir__ = attach_stub(__name__, __file__)
__all__ = sorted(_PLACES)
