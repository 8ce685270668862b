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
from apas.models.torch.passes import LARGE, VALUES, Passes, Stage, answer

SAME = 1e-3  # how far apart two answers to the same row may be, as a share of the largest answer
#: How far apart they may be after a move: as a share of what it did, and in roundoffs of the largest answer.
FOLLOWS, ROUNDOFFS = 0.1, 256
SIZES = (0.01, 1.0)  # how far parameters are moved to see whether the answers follow


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


def probe(stage: Stage, shape: tuple[int, ...]) -> tuple[Passes, int]:
    """How to give rows to a module, and how many numbers it gives back per row."""
    # Numbers from (0, 1) are tried first, then the whole numbers 0 and 1. A module is refused if it answers at random,
    # or if its answer to a row depends on the other rows of a batch: a claim about a row would then mean nothing.
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
            if "could not answer" not in str(refused):  # it did, but with something else than a tensor of scores
                raise refused from None
            raise InputError(f"{str(refused).rstrip('.')}; is `input_shape` of as_model right?") from refused
    if not torch.equal(raw.nan_to_num(), passes.raw(numbers).nan_to_num()):
        raise InputError(
            "the module must give the same answer to the same rows, but does not even in eval mode; is there a dropout "
            "that does not look at self.training?"
        )
    alone = torch.cat([passes.raw(row[None, :]) for row in numbers])
    same = raw.shape == alone.shape
    if not same or not torch.allclose(raw, alone, rtol=SAME, atol=SAME * _largest(raw), equal_nan=True):
        raise InputError(
            "the module's answer to a row must not depend on the other rows of a batch, but does (a batch norm without "
            "running statistics, or an `input_shape` that leaves out a dimension, would explain it)."
        )
    _check_moves(passes, numbers, raw)
    _look_inside(passes, numbers)
    if len(stage.base) <= LARGE:
        _try_together(passes, numbers, raw)
    return passes, int(raw.shape[1])


def _check_moves(passes: Passes, numbers: Any, raw: Any) -> None:
    """Refuse a module that computes with something else than its parameters: every claim would seem to hold."""
    if raw.isnan().all():  # no answer at all is no matter of the parameters, and never certified
        return
    draws = np.random.default_rng(1)
    for size in SIZES:
        moved = passes.raw(numbers, draws.uniform(-size, size, len(passes.stage.base)))
        if not torch.equal(raw.nan_to_num(), moved.nan_to_num()):
            return
    # saturated probabilities, for example: autograd knows whether the answers are computed from the parameters
    with torch.enable_grad(), passes.stage.move() as module:
        out = answer(module, passes.rows(numbers))
        sources = passes.stage.parameters if out.requires_grad else []
        slopes = torch.autograd.grad(out.sum(), sources, allow_unused=True) if sources else ()
    if any(slope is not None for slope in slopes):
        return
    raise InputError(
        "the module's answers must follow its parameters, but moving all of them changes none; does its forward() use "
        "another module, from a closure or a global name, whose parameters are not its own?"
    )


def _try_together(passes: Passes, numbers: Any, raw: Any) -> None:
    """Let `vmap` be used if it follows every tensor of parameters as single passes do."""
    # A tensor that a module keeps in a list besides is moved in single passes but not by `functional_call`: each is
    # moved by itself, so that none can hide behind the others.
    stage, draws = passes.stage, np.random.default_rng(1)
    x, some = passes.rows(numbers), max(1, VALUES // len(stage.base))
    passes.batched = True
    for start in range(0, len(stage.layout.slices), some):
        parts = stage.layout.slices[start : start + some]
        directions = np.zeros((len(parts), len(stage.base)))
        for direction, part in zip(directions, parts, strict=True):
            direction[part] = draws.uniform(-0.1, 0.1, part.stop - part.start) * np.maximum(np.abs(stage.base[part]), 1)
        together = passes.together(x, directions, 1.0)
        if together is None:
            return
        for direction, ours in zip(directions, together, strict=True):
            alone = passes.raw(numbers, direction)
            # the two may differ by rounding, and by a small share of what the move did
            limit = FOLLOWS * _largest(alone - raw) + ROUNDOFFS * float(torch.finfo(alone.dtype).eps) * _largest(alone)
            if alone.shape != ours.shape or not torch.allclose(alone, ours, rtol=0, atol=limit, equal_nan=True):
                passes.give_up()
                return


def _largest(a: Any) -> float:
    return float(a.nan_to_num(0.0, 0.0, 0.0).abs().max())


def _look_inside(passes: Passes, numbers: Any) -> None:
    """Find out how many numbers the largest intermediate result has per row, and whether there is fused attention."""
    few, many = _Operations(), _Operations()
    for n, seen in ((1, few), (2, many)):
        with torch.no_grad(), passes.stage.move() as module, seen:
            answer(module, passes.rows(np.tile(numbers, (n, 1))))
    # results that do not grow with the rows, such as transposed weights, do not count
    sizes = [b - a for a, b in zip(few.sizes, many.sizes, strict=False)]
    if len(few.sizes) != len(many.sizes):
        sizes = many.sizes
    passes.widest = max(1, -(-max(sizes, default=1) // len(numbers)))
    passes.attention = any("attention" in name or "transformer" in name for name in many.names)


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
