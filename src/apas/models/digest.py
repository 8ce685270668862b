"""A fingerprint of a model: its parameters, its architecture and its preprocessing."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from apas.models.protocol import Described, Model, offers

__all__ = ["canonical", "model_digest"]


def model_digest(model: Model) -> str:
    """SHA-256 over all that decides what `model` answers.

    Examples
    --------
    >>> from apas import FeedForward
    >>> model_digest(FeedForward([[[1.0]]], [[0.0]])) == model_digest(FeedForward([[[1.0]]], [[1e-9]]))
    False
    """
    parameters = model.parameters
    layout = [list(parameters.names), [list(shape) for shape in parameters.shapes]]
    described: Any = {"classes": [canonical(c) for c in model.classes], "n_features": model.n_features}
    if offers(model, Described):
        described = model.describe()
    digest = hashlib.sha256(json.dumps([described, layout], sort_keys=True).encode())
    digest.update(parameters.values.astype("<f8", copy=False).tobytes())
    return digest.hexdigest()


def canonical(value: Any) -> Any:
    """Fitted state (numbers, arrays, estimators, nested) as JSON values that do not depend on where it is held."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value) if isinstance(value, float) else value
    if isinstance(value, np.generic):
        return canonical(value.item())
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return [list(value.shape), [canonical(v) for v in value.ravel().tolist()]]
        content = np.ascontiguousarray(value)
        content = content.astype(content.dtype.newbyteorder("<"), copy=False)
        return [value.dtype.kind, list(value.shape), hashlib.sha256(content.tobytes()).hexdigest()]
    if isinstance(value, dict):
        return [[canonical(k), canonical(v)] for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(canonical(v)) for v in value)
    if hasattr(value, "toarray"):
        return canonical(value.toarray())
    if hasattr(value, "get_params") and not isinstance(value, type):
        # an estimator is its class, its settings and what it has learned; names starting with "_" are caches
        learned = {k: v for k, v in sorted(vars(value).items()) if k.endswith("_") and not k.startswith("_")}
        return [
            type(value).__name__,
            canonical(dict(sorted(value.get_params(deep=False).items()))),
            canonical(learned),
        ]
    # functions, types, frames' dtypes and the like: by name, never by address
    return getattr(value, "__qualname__", None) or type(value).__qualname__
