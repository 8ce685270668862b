"""A fingerprint of a model: its parameters, its architecture and its preprocessing."""

from __future__ import annotations

import hashlib
import json
from functools import partial
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
    if isinstance(value, np.generic):
        return canonical(value.item())
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if hasattr(value, "detach"):  # a tensor
        tensor = value.detach().cpu()
        return canonical((tensor if tensor.dtype.itemsize != 2 else tensor.float()).numpy())
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"shape": list(value.shape), "values": [canonical(v) for v in value.ravel().tolist()]}
        content = np.ascontiguousarray(value)
        content = content.astype(content.dtype.newbyteorder("<"), copy=False)
        digest = hashlib.sha256(content.tobytes()).hexdigest()
        return {"shape": list(value.shape), "dtype": value.dtype.kind, "digest": digest}
    if isinstance(value, dict):
        return {"items": [[canonical(k), canonical(v)] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"slice": [canonical(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted(json.dumps(canonical(v)) for v in value)}
    if hasattr(value, "toarray"):
        return canonical(value.toarray())
    if hasattr(value, "to_numpy"):  # a data frame or series
        return {"columns": canonical(list(getattr(value, "columns", []))), "values": canonical(value.to_numpy(object))}
    if hasattr(value, "get_params") and not isinstance(value, type):
        # an estimator is its class, its settings and what it has learned, some of which lives in private members
        return {"class": type(value).__name__, "state": canonical(dict(sorted(vars(value).items())))}
    if isinstance(value, partial):
        return {"partial": [canonical(v) for v in (value.func, value.args, value.keywords)]}
    if getattr(value, "__name__", None) == "<lambda>":  # has no name of its own: by what it does
        code = value.__code__
        return {"code": [code.co_code.hex(), [repr(c) for c in code.co_consts], list(code.co_names)]}
    # functions, types, frames' dtypes and the like: by name, never by address
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    return {"name": name}
