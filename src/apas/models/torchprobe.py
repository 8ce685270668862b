"""Trying a PyTorch module out before anything is certified about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apas.errors import InputError
from apas.models.torchpasses import LARGE, Passes, answer, said_once
from apas.models.torchstage import Stage

__all__ = ["input_size", "probed"]

#: How far apart two answers to the same row may be, as a share of the largest answer.
SAME = 1e-3


def input_size(module: Any, given: Sequence[int] | None, names: Sequence[str] | None) -> tuple[int, ...]:
    """Shape of one input: as given, else as many numbers as there are names, or as the first layer takes."""
    if given is not None:
        sizes = tuple(given) if isinstance(given, Sequence | np.ndarray | torch.Size) else ()
        if not sizes or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in sizes):
            raise InputError(
                "`input_shape` of as_model must be the shape of one input as positive integers, such as (1, 28, 28), "
                f"got {given!r}."
            )
        return tuple(int(n) for n in sizes)
    if names is not None:
        return (len(names),)
    for layer in module.modules():
        if not any(True for _ in layer.parameters(recurse=False)):
            continue
        if isinstance(layer, nn.Linear):
            return (int(layer.in_features),)
        if isinstance(layer, nn.BatchNorm1d):
            return (int(layer.num_features),)
        break
    raise InputError(
        "`input_shape` of as_model must be given, since the module does not say what one input looks like; pass its "
        "shape without the batch dimension, such as input_shape=(3, 32, 32)."
    )


def probed(stage: Stage, shape: tuple[int, ...]) -> tuple[Passes, int]:
    """How to give rows to a module, and how many numbers it gives back per row.

    Numbers from (0, 1) are tried first, then the whole numbers 0 and 1. A module is refused if it answers at random, or
    if its answer to a row depends on the other rows of a batch: a claim about a row would then mean nothing.
    """
    size = math.prod(shape)
    numbers, places = np.random.default_rng(0).random((2, size)), np.indices((2, size)).sum(axis=0) % 2.0
    passes = Passes(stage, shape)
    try:
        raw = passes.raw(numbers)
    except InputError as refused:
        passes, numbers = Passes(stage, shape, integers=True), places
        try:
            raw = passes.raw(numbers)
        except InputError:
            raise InputError(f"{str(refused).rstrip('.')}; is `input_shape` of as_model right?") from refused
    if not torch.equal(raw.nan_to_num(), passes.raw(numbers).nan_to_num()):
        raise InputError(
            "the module must give the same answer to the same rows, but does not even in eval mode; is there a dropout "
            "that does not look at self.training?"
        )
    if not _same(raw, torch.cat([passes.raw(row[None, :]) for row in numbers])):
        raise InputError(
            "the module's answer to a row must not depend on the other rows of a batch, but does (a batch norm without "
            "running statistics, or an `input_shape` that leaves out a dimension, would explain it)."
        )
    _look_inside(passes, numbers)
    if len(stage.base) <= LARGE:
        _try_together(passes, numbers)
    return passes, int(raw.shape[1])


def _try_together(passes: Passes, numbers: Any) -> None:
    """Let `vmap` be used if it gives what single passes give."""
    base = passes.stage.base
    directions = np.random.default_rng(1).uniform(-1e-3, 1e-3, (2, len(base))) * np.maximum(np.abs(base), 1e-3)
    passes.batched = True
    together = passes.together(passes.rows(numbers), directions, 1.0)
    if together is not None:
        alone = torch.stack([passes.raw(numbers, direction) for direction in directions])
        passes.batched = _same(alone, together)
        if not passes.batched:
            said_once(passes.stage.module)


def _same(a: Any, b: Any) -> bool:
    if a.shape != b.shape:
        return False
    size = float(a.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return bool(torch.allclose(a, b, rtol=SAME, atol=SAME * size, equal_nan=True))


def _look_inside(passes: Passes, numbers: Any) -> None:
    """Find out how many numbers the largest intermediate result has per row, and whether there is fused attention."""
    few, many = (_operations(passes, np.tile(numbers, (n, 1))) for n in (1, 2))
    # results that do not grow with the rows, such as transposed weights, do not count
    sizes = [b - a for a, b in zip(few.sizes, many.sizes, strict=False)]
    if len(few.sizes) != len(many.sizes):
        sizes = many.sizes
    passes.widest = max(1, -(-max(sizes, default=1) // len(numbers)))
    passes.attention = any("attention" in name or "transformer" in name for name in many.names)


def _operations(passes: Passes, numbers: Any) -> _Operations:
    with torch.no_grad(), passes.stage.moved() as module, _Operations() as seen:
        answer(module, passes.rows(numbers))
    return seen  # type: ignore[no-any-return]


class _Operations(TorchDispatchMode):  # type: ignore[misc]
    """Looks at every operation, also at those inside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.names = list[int](), set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.names.add(str(func))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.sizes.append(tensor.numel())
        return out
