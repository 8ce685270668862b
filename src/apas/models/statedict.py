"""Dense networks from the state of a PyTorch module: names and arrays, and nothing about what happens in between."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.errors import InputError, Unsupported
from apas.models.archive import read_archive
from apas.models.feedforward import FeedForward
from apas.models.stated import Stated
from apas.models.torchrecord import Tensor, read_record

__all__ = ["read_state", "state_dtype", "state_layers"]

_Array = NDArray[np.float64]
ALONE = "write the state alone, by torch.save(module.state_dict(), path)"
#: Numbers of these storages; bfloat16 is the upper half of a float32.
DTYPES = {"DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "u2"}


def read_state(path: Path, raw: bytes, stated: Stated) -> FeedForward:
    """Read a ``.pt`` file that ``torch.save(module.state_dict(), path)`` wrote, without PyTorch and without a pickle.

    Parameters
    ----------
    path : Path
        For messages.
    raw : bytes
        What it holds.
    stated : Stated
        Must say the activation, if there are hidden layers, and the output.

    Notes
    -----
    Layers are taken in the order in which the module registered them.
    """
    if raw[:4] != b"PK\x03\x04":
        raise InputError(
            f"{path} is not a file of torch.save (or of a version before 1.6, which could run code when read); {ALONE}."
        )
    state, storages, order = read_record(path, read_archive(path, raw))
    arrays = {name: _array(path, name, value, storages, order) for name, value in state.items()}
    owners: dict[str, str] = {}
    for name, value in state.items():
        if owners.setdefault(value.key, name) != name:
            raise Unsupported(
                f"{path} holds {owners[value.key]!r} and {name!r} in the same memory: tied parameters move together, "
                "which a dense network cannot do."
            )
    return stated.network(path, *state_layers(path, arrays, ordered=True), dtype=state_dtype(arrays))


def _array(path: Path, name: str, value: Any, storages: Mapping[str, bytes], order: str) -> NDArray[Any]:
    if not isinstance(value, Tensor):
        raise InputError(f"{path} must hold tensors only, but {name!r} is {type(value).__name__}; {ALONE}.")
    if value.dtype not in DTYPES:
        raise InputError(
            f"{path} must hold floating point parameters of dense layers, but {name!r} is a {value.dtype} (batch norms "
            "count in whole numbers, for example): such layers have no place in a dense network."
        )
    if value.key not in storages:
        raise InputError(f"{path} lacks the numbers of {name!r}; it is damaged.")
    content, kind = storages[value.key], np.dtype(f"{order}{DTYPES[value.dtype]}")
    if len(content) != value.count * kind.itemsize:
        raise InputError(
            f"{path} must have {value.count} numbers for {name!r}, but has {len(content)} bytes; it is damaged."
        )
    flat = np.frombuffer(content, dtype=kind)
    if value.dtype == "BFloat16Storage":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    # a view that repeats numbers, or reaches beyond them, is nothing that a trained layer has
    reach = sum((n - 1) * step for n, step in zip(value.shape, value.strides, strict=True))
    if np.prod(value.shape, dtype=object) > flat.size or value.offset + reach >= flat.size or 0 in value.shape:
        raise InputError(
            f"{path} must have different numbers of shape {value.shape} for {name!r}, but has not; it is damaged."
        )
    strides = tuple(step * flat.itemsize for step in value.strides)
    return np.lib.stride_tricks.as_strided(flat[value.offset :], value.shape, strides, writeable=False).copy()


def state_dtype(arrays: Mapping[str, NDArray[Any]]) -> str:
    """In which arithmetic a module with this state computes; numbers stored in less are taken to be turned to float32.

    Examples
    --------
    >>> state_dtype({"0.weight": np.ones((1, 2), dtype=np.float32)})
    'float32'
    """
    return "float32" if any(array.dtype.itemsize < 8 for array in arrays.values()) else "float64"


def state_layers(
    path: Path, arrays: Mapping[str, NDArray[Any]], *, ordered: bool
) -> tuple[list[_Array], list[_Array | None]]:
    """Weights (inputs, outputs) and biases of the linear layers whose state this is.

    Parameters
    ----------
    path : Path
        For messages.
    arrays : mapping
        By name, such as ``0.weight`` (outputs, inputs) and ``0.bias``.
    ordered : bool
        Whether the arrays come in the order of the layers. Otherwise the names must count the layers.

    Examples
    --------
    >>> weights, biases = state_layers(Path("a.pt"), {"0.weight": np.ones((1, 2))}, ordered=True)
    >>> weights[0].shape, biases
    ((2, 1), [None])
    """
    layers: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        layer, _, kind = name.rpartition(".")
        if array.ndim != {"weight": 2, "bias": 1}.get(kind):
            raise InputError(
                f"{path} must hold weights and biases of linear layers only, but {name!r} has shape {array.shape}; "
                "other layers have no place in a dense network."
            )
        layers.setdefault(layer, {})[kind] = array
    if not layers:
        raise InputError(f"{path} holds no parameters; {ALONE}.")
    lonely = [layer for layer, parts in layers.items() if "weight" not in parts]
    if lonely:
        raise InputError(f"{path} must hold the weights of each layer, but {lonely[0]!r} has only biases.")
    names = list(layers) if ordered else sorted(layers, key=lambda name: _number(path, name, list(layers)))
    weights = [np.asarray(layers[name]["weight"], dtype=np.float64).T for name in names]
    biases = [layers[name].get("bias") for name in names]
    for before, after, first, second in zip(names, names[1:], weights, weights[1:], strict=False):
        if first.shape[1] != len(second):
            raise InputError(
                f"{path} must hold layers that follow each other, but {before!r} gives {first.shape[1]} numbers and "
                f"{after!r} takes {len(second)}; are they in the order of the network?"
            )
    return weights, [None if b is None else np.asarray(b, dtype=np.float64) for b in biases]


def _number(path: Path, name: str, names: list[str]) -> int:
    """The place that the name of a layer counts; all names must be alike but for one number."""
    patterns = {re.sub(r"\d+(?=\D*$)", "#", other) for other in names}
    if len(names) > 1 and (len(patterns) > 1 or "#" not in next(iter(patterns))):
        raise InputError(
            f"{path} does not keep the order of layers, so their names must count them, as 0, 2, 4 or fc1, fc2 do, but "
            f"they are {', '.join(map(repr, sorted(names)[:5]))}; write it with apas.save_model."
        )
    found = re.findall(r"\d+", name)
    return int(found[-1]) if found else 0
