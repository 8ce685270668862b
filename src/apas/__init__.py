"""Certify that counterfactual explanations survive a change of the model."""

from apas._lazy import attach_stub

__version__ = "0.2.0"

#: Where each public name is, as `__init__.pyi` says to type checkers, too: a new name is a line there. It is imported
#: when it is first used, so that `import apas` and `apas --help` wait for nothing.
_PLACES, __getattr__, __dir__ = attach_stub(__name__, __file__)
__all__ = sorted(_PLACES)
