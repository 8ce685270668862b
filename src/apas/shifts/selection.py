"""Which parameters of a model a shift set moves: by kind and by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.errors import InputError
from apas.models.parameters import Parameters

__all__ = [
    "ALL_KINDS",
    "check_kinds",
    "check_layers",
    "chosen_layers",
    "layer_name",
    "moving",
    "placed",
    "plain",
    "selected",
]

#: Both kinds of parameters, which is what moves unless less is asked for; absent ones never do.
ALL_KINDS = ("weight", "bias")


def check_kinds(kinds: Any, owner: str) -> tuple[str, ...]:
    """Give `kinds` as a tuple of different kinds."""
    listed = _listed(kinds)
    if not listed or not set(listed) <= set(ALL_KINDS) or len(set(listed)) < len(listed):
        raise InputError(f'`kinds` of {owner} must hold "weight", "bias" or both, got {kinds!r}.')
    return tuple(kind for kind in ALL_KINDS if kind in listed)  # in one order, so that equal sets read alike


def check_layers(layers: Any) -> tuple[str | int, ...] | None:
    """Give `layers` as a tuple of names and indices; whether a model has them is seen when it is known."""
    return None if layers is None else tuple(plain(layer) for layer in _listed(layers))


def chosen_layers(parameters: Parameters, layers: Sequence[str | int] | None, owner: str) -> set[str]:
    """Names of the layers that `layers` names or indexes; None means all."""
    if layers is None:
        return set(parameters.layers)
    return {layer_name(parameters, layer, "layers", owner) for layer in layers}


def layer_name(parameters: Parameters, layer: str | int, argument: str, owner: str) -> str:
    """Name of a layer given by name or index."""
    names = parameters.layer_names
    if isinstance(layer, str) and layer not in names and re.fullmatch(r"-?\d{1,9}", layer):
        layer = int(layer)  # an index that has been through JSON, where keys are texts
    if isinstance(layer, int) and not isinstance(layer, bool) and -len(names) <= layer < len(names):
        return names[layer]
    if isinstance(layer, str) and layer in names:
        return layer
    raise InputError(
        f"`{argument}` of {owner} must name layers of the model ({', '.join(names)}) or index them "
        f"(0 to {len(names) - 1}), got {layer!r}."
    )


def moving(
    parameters: Parameters, kinds: tuple[str, ...], layers: Sequence[str | int] | None, owner: str
) -> NDArray[np.bool_]:
    """Which parameters are of one of the kinds and in one of the layers, shape (k,).

    Examples
    --------
    >>> from apas import FeedForward
    >>> moving(FeedForward([[[1.0], [2.0]]], [[3.0]]).parameters, ("weight",), None, "LinfShifts")
    array([ True,  True, False])
    """
    chosen = chosen_layers(parameters, layers, owner)
    moves = np.zeros(len(parameters), dtype=bool)
    for kind, layer, part in zip(parameters.kinds, parameters.layers, parameters.slices, strict=True):
        moves[part] = kind in kinds and layer in chosen
    return moves


def selected(parameters: Parameters, kinds: tuple[str, ...], layers: Sequence[str | int] | None, owner: str) -> str:
    """What moves, in words: "weights and biases of layer0", or "weights" if there are no biases."""
    chosen = chosen_layers(parameters, layers, owner)
    there = {kind for kind, layer in zip(parameters.kinds, parameters.layers, strict=True) if layer in chosen}
    what = " and ".join({"weight": "weights", "bias": "biases"}[kind] for kind in kinds if kind in there)
    return what if layers is None else f"{what} of {', '.join(sorted(chosen))}"


def placed(points: NDArray[np.float64], movers: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    """Points of the parameters that move as points of all `size` parameters, 0 elsewhere, in the same memory order."""
    order = "F" if points.flags.f_contiguous and len(points) > 1 else "C"
    directions = np.zeros((len(points), size), order=order)  # type: ignore[call-overload]
    directions[:, movers] = points
    return directions  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """A scalar of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _listed(value: Any) -> tuple[Any, ...]:
    """One name or several as a tuple; what cannot be iterated over stands for itself, to be refused by name."""
    return tuple(value) if isinstance(value, list | tuple | set | frozenset | np.ndarray) else (value,)
