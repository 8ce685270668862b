"""Gradients of the margins of PyTorch modules by autograd, each row on a shifted module of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import grad, vmap

from apas.errors import InputError, Unsupported
from apas.models.torchhead import Head
from apas.models.torchpasses import LARGE, Passes, answer, said_once

__all__ = ["gradients"]

_Array = NDArray[np.float64]
#: How many numbers of gradients are held as tensors at a time, and how many times the widest result a pass keeps.
NUMBERS, KEPT = 1 << 20, 16


def gradients(
    passes: Passes, head: Head, X: _Array, wanted: NDArray[np.intp], moves: _Array | None, *, by_input: bool,
    out: Callable[[slice, _Array, _Array], None],
) -> None:  # fmt: skip
    """Hand margins (rows,) and gradients (rows, features or k) to `out`, some rows at a time.

    Parameters
    ----------
    passes : Passes
    head : Head
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
        Position of the wanted class.
    moves : ndarray of shape (rows, k) or None
        Row i is looked at on the module with parameters ``base + moves[i]``.
    by_input : bool
        Whether to derive by the input rather than by the parameters.
    out : callable
        Takes a slice of rows, their margins and their gradients.
    """
    size = len(passes.stage.base)
    if moves is not None and moves.shape != (len(X), size):
        raise InputError(
            f"`moves` must hold one change per row and parameter, shape {(len(X), size)}, got {moves.shape}."
        )
    if by_input and passes.integers:
        raise Unsupported("the module takes whole numbers, by which nothing can be derived; use method='sampling'.")
    step = max(1, min(NUMBERS // size, passes.step(KEPT))) if passes.batched else 1
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        some = None if moves is None else moves[rows]
        found = None
        if passes.batched and size <= LARGE:
            found = _together(passes, head, X[rows], wanted[rows], some, by_input=by_input)
        if found is None:
            for i in range(start, min(start + step, len(X))):
                move = None if moves is None else moves[i]
                out(slice(i, i + 1), *_alone(passes, head, X[i : i + 1], int(wanted[i]), move, by_input=by_input))
        else:
            out(rows, *found)


def _alone(
    passes: Passes, head: Head, X: _Array, wanted: int, move: _Array | None, *, by_input: bool
) -> tuple[_Array, _Array]:
    with torch.inference_mode(False), torch.enable_grad(), passes.calm(), passes.stage.moved(move) as module:
        x = passes.rows(X)
        x = x.requires_grad_(True) if by_input else x
        margin = head.margin(head.scores(answer(module, x)[0]), wanted)
        sources = [x] if by_input else passes.stage.parameters
        try:
            slopes = torch.autograd.grad(margin, sources, allow_unused=True)
        except RuntimeError as error:
            first = str(error).splitlines()[0]
            raise Unsupported(f"{type(module).__name__} has no gradients that autograd can compute: {first}") from error
    flat = [np.zeros(s.numel()) if g is None else _numbers(g).ravel() for s, g in zip(sources, slopes, strict=True)]
    return np.array([float(margin.detach())]), np.concatenate(flat)[None, :]


def _together(
    passes: Passes, head: Head, X: _Array, wanted: NDArray[np.intp], moves: _Array | None, *, by_input: bool
) -> tuple[_Array, _Array] | None:
    """Margins and gradients of all rows at once, or None if `vmap` cannot."""
    stage, x = passes.stage, passes.rows(X)
    places = torch.tensor(wanted, device=stage.device)
    shared = moves is None
    tensors = stage.shifted(np.zeros((1, len(stage.base))) if moves is None else moves, 1.0)
    tensors = {name: t[0] for name, t in tensors.items()} if shared else tensors
    try:
        with torch.inference_mode(False), passes.calm(), stage.held() as call, passes.vmappable():

            def margin(tensors: Any, x: Any, place: Any) -> tuple[Any, Any]:
                raw = call(tensors, x[None]).reshape(-1)
                value = head.margin(head.scores(raw), place)
                return value, value

            one = grad(margin, argnums=1 if by_input else 0, has_aux=True)
            slopes, margins = vmap(one, in_dims=(None if shared else 0, 0, 0))(tensors, x, places)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError):
        passes.batched = False
        said_once(stage.module)
        return None
    parts = [slopes] if by_input else [slopes[name] for name in stage.names]
    flat = [_numbers(part).reshape(len(X), -1) for part in parts]
    return _numbers(margins), np.concatenate(flat, axis=1)


def _numbers(tensor: Any) -> _Array:
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return np.asarray(dense.cpu().numpy(), dtype=np.float64)
