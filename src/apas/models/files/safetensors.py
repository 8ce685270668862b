"""Dense networks as `.safetensors`: raw numbers behind a small JSON header.

Tensors are called ``layer0.weight`` (inputs, outputs), ``layer0.bias`` and so on, as in `parameters`; a layer without
biases has no such tensor. What the numbers mean stands in the entry ``apas`` of ``__metadata__``, as JSON with the
fields of a ``.json`` file but the arrays. A file without that entry is taken for the state of a PyTorch module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from apas._optional import require
from apas._typing import Array
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.models.files import formats
from apas.models.files.formats import BROKEN, LoadOptions
from apas.models.files.json import parse_json
from apas.models.files.torch_state import state_dtype, state_layers

HEADER = 2**22  # largest header in bytes
KEY = "apas"


def safetensors_bytes(network: FeedForward) -> bytes:
    """Give a network as the bytes of a ``.safetensors`` file."""
    library = require("safetensors.numpy", feature="a .safetensors file", extra="safetensors")
    tensors = {}
    for i, (weight, bias) in enumerate(zip(network.weights, network.given_biases, strict=True)):
        tensors[f"layer{i}.weight"] = weight
        if bias is not None:
            tensors[f"layer{i}.bias"] = bias
    content: bytes = library.save(tensors, {KEY: json.dumps(formats.describe_network(network), allow_nan=False)})
    size = int.from_bytes(content[:8], "little")
    if size > HEADER:
        raise InputError(
            f"the header of a .safetensors file may have {HEADER} bytes, but classes and feature names need {size}; "
            "write a .json file."
        )
    return content


def read_safetensors(path: Path, raw: bytes, options: LoadOptions) -> FeedForward:
    """Read the network that `raw`, the bytes of `path`, holds."""
    header, arrays = _header(path, raw), _arrays(path, raw)
    said = header.get("__metadata__")
    if not isinstance(said, dict) or KEY not in said:
        weights, biases = state_layers(path, arrays, ordered=False)
        return options.network(path, weights, biases, dtype=state_dtype(arrays))
    fields = formats.check_description(parse_json(path, str(said[KEY]).encode(), "the metadata of "), path)
    count = sum(name.endswith(".weight") for name in arrays)
    known = [f"layer{i}.{kind}" for i in range(count) for kind in ("weight", "bias")]
    strange = sorted(set(arrays) - set(known))
    missing = [name for name in known[::2] if name not in arrays]
    if strange or missing or not count:
        wrong = f"has {strange[0]!r}" if strange else "has no 'layer0.weight'" if not count else f"lacks {missing[0]!r}"
        raise InputError(f"{path} must have tensors called layer0.weight, layer0.bias and so on, but {wrong}.")
    weights, biases = [arrays[name] for name in known[::2]], [arrays.get(name) for name in known[1::2]]
    return options.confirm(path, formats.build_network(path, {"weights": weights, "biases": biases, **fields}))


def _header(path: Path, raw: bytes) -> dict[str, Any]:
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or not 2 <= size <= len(raw) - 8:
        raise InputError(
            f"{path} is not a whole .safetensors file: its header is said to have {size} bytes, but {len(raw)} is all "
            "that the file has."
        )
    if size > HEADER:
        raise InputError(f"{path} has a header of {size} bytes, more than the {HEADER} that apas reads.")
    header = parse_json(path, raw[8 : 8 + size], "the header of ")
    if not isinstance(header, dict):
        raise InputError(f"{path} is not a .safetensors file: its header is not a JSON object.")
    return header


def _arrays(path: Path, raw: bytes) -> dict[str, Array]:
    library = require("safetensors.numpy", feature="a .safetensors file", extra="safetensors")
    error_type = require("safetensors", feature="a .safetensors file", extra="safetensors").SafetensorError
    try:
        arrays: dict[str, Array] = library.load(raw)
    except (*BROKEN, error_type) as error:
        raise InputError(f"{path} is not a whole .safetensors file: {formats.first_line(error)}") from None
    for name, array in arrays.items():
        if array.dtype not in (np.float16, np.float32, np.float64):
            raise InputError(f"{path} must hold floating point numbers, but {name!r} holds {array.dtype}.")
    return arrays
