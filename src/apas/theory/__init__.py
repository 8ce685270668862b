"""The paper's theorems, executable: hardness (Theorems 1 and 2) and notions of shifts (Lemma 3)."""

from apas._lazy import attach_stub

_PLACES, __getattr__, __dir__ = attach_stub(__name__, __file__)
__all__ = sorted(_PLACES)
