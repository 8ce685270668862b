"""Arrays, tensors and tables as JSON values: by what they hold, wherever in memory that is."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["array_form"]


def array_form(value: Any, form: Callable[[Any], Any]) -> Any:
    """A tensor, array, matrix, table or type of numbers; None for all else. `form` does what they hold."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):  # a file has a `detach` too, which closes it
        tensor = value.detach().cpu()
        return form((tensor if tensor.dtype.itemsize != 2 else tensor.float()).numpy())
    if isinstance(value, np.ma.MaskedArray):
        return {"masked": [form(v) for v in (value.data, np.ma.getmaskarray(value), value.fill_value)]}
    if isinstance(value, np.ndarray):
        return _array(value, form)
    if isinstance(value, np.dtype) and value.kind in "SUVmM":  # of which there are many by one name
        return {"dtype": repr(value)}
    if hasattr(value, "toarray"):
        return form(value.toarray())
    if hasattr(value, "to_numpy"):  # a data frame or series
        names, values = list(getattr(value, "columns", [])), value.to_numpy(object)
        table = {"columns": form(names), "values": form(values)}
        index = list(getattr(value, "index", range(len(values))))
        return table if index == list(range(len(values))) else {**table, "index": form(index)}
    return None


def _array(value: Any, form: Callable[[Any], Any]) -> Any:
    # of objects the bytes are addresses, and those of long doubles are more than the numbers
    if value.dtype.hasobject or value.dtype.char in "gG":
        return {"shape": list(value.shape), "values": [form(v) for v in value.ravel().tolist()]}
    content = np.ascontiguousarray(value)
    content = content.astype(content.dtype.newbyteorder("<"), copy=False)
    dtype = value.dtype.name if value.dtype.kind in "mM" else value.dtype.kind  # times have a unit
    return {"shape": list(value.shape), "dtype": dtype, "digest": hashlib.sha256(content.tobytes()).hexdigest()}
