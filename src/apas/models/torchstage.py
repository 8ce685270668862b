"""A private copy of a PyTorch module whose parameters lie side by side in one vector that is overwritten at will."""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

__all__ = ["Stage"]

_Array = NDArray[np.float64]
#: Shifted parameters are computed in parts of this many, which stay in the processor's cache.
PART = 1 << 15


class Stage:
    """A module that belongs to us, and the shifted parameters it is given.

    Parameters
    ----------
    module : torch.nn.Module
        In eval mode, its parameters of one floating dtype on one device. It is changed, but never called: pass a copy.
    base : ndarray of shape (k,)
        The parameters that shifts start from, in the order of ``module.named_parameters()``.

    Examples
    --------
    >>> stage = Stage(torch.nn.Linear(1, 1, dtype=torch.float64), np.array([2.0, 1.0]))
    >>> with stage.moved(np.array([1.0, 0.0]), 0.5) as module:
    ...     module(torch.tensor([[4.0]], dtype=torch.float64)).item()
    11.0
    """

    def __init__(self, module: Any, base: _Array) -> None:
        self.module, self.base = module, base
        named = list(module.named_parameters())  # a tied parameter comes once
        first = named[0][1]
        self.dtype, self.device = first.dtype, first.device
        self.names = [name for name, _ in named]
        self.shapes = [tuple(p.shape) for _, p in named]
        ends = [0, *itertools.accumulate(math.prod(shape) for shape in self.shapes)]
        self.slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
        # on the processor NumPy writes the module's parameters themselves, elsewhere they are sent there
        self._host = torch.empty(len(base), dtype=self.dtype, device="cpu")
        self._flat = self._host if self.device.type == "cpu" else torch.empty_like(self._host, device=self.device)
        self._own_base = base.astype(self._host.numpy().dtype, copy=False)
        self._lock = threading.RLock()
        self._write(None, 1.0)
        self._on_flat(module)
        # what a module keeps of a call, such as an attention map, must not be copied or met by another kind of call
        self._called, self._mapped = (self._on_flat(copy.deepcopy(module)) for _ in range(2))
        self.parameters = list(self._called.parameters())
        owners = [(f"{path}.".lstrip("."), owner) for path, owner in module.named_modules()]
        places = [(id(p), path + name) for path, owner in owners for name, p in owner._parameters.items()]
        self._places = [[place for key, place in places if key == id(p)] for _, p in named]

    def _on_flat(self, module: Any) -> Any:
        """Let the parameters of a module lie in our vector."""
        for p, part, shape in zip(module.parameters(), self.slices, self.shapes, strict=True):
            p.data = self._flat[part].view(shape)
            p.grad = None
            p.requires_grad_(True)
        return module

    def __reduce__(self) -> tuple[Any, ...]:
        # as views of one vector, parameters would be written to a pickle with the whole vector each; copies are not
        return Stage, (copy.deepcopy(self.module), self.base)

    def doubled(self) -> Stage:
        """The same in float64."""
        return Stage(copy.deepcopy(self.module).double(), self.base)

    @contextmanager
    def moved(self, direction: _Array | None = None, delta: float = 1.0) -> Iterator[Any]:
        """Give the module with parameters ``base + delta * direction``; nobody else can move them meanwhile."""
        with self._lock:
            self._write(direction, delta)
            if self._flat is not self._host:
                self._flat.copy_(self._host)
            yield self._called

    def _write(self, direction: _Array | None, delta: float) -> None:
        out = self._host.numpy()
        if direction is None:
            np.copyto(out, self._own_base)
            return
        for start in range(0, len(out), PART):
            part = slice(start, start + PART)
            _shift(out[part], self._own_base[part], direction[part], delta)

    def shifted(self, directions: _Array, delta: float) -> dict[str, Any]:
        """Tensors of the models ``base + delta * direction``, by name, the models along their first dimension."""
        host = torch.empty(directions.shape, dtype=self.dtype, device="cpu")
        if directions.flags.c_contiguous:  # one after the other they stay in the processor's cache
            for out, direction in zip(host.numpy(), directions, strict=True):
                _shift(out, self._own_base, direction, delta)
        else:
            _shift(host.numpy(), self._own_base, directions, delta)
        flat = host.to(self.device)
        parts = zip(self.names, self.slices, self.shapes, strict=True)
        return {name: flat[:, part].view(len(flat), *shape) for name, part, shape in parts}

    @contextmanager
    def held(self) -> Iterator[Callable[[dict[str, Any], Any], Any]]:
        """Give a function that calls the module with other tensors in place of its parameters."""

        def call(tensors: dict[str, Any], x: Any) -> Any:
            places = zip(self.names, self._places, strict=True)
            spread = {place: tensors[name] for name, named in places for place in named}
            # ties are spelled out: left to functional_call, a layer used twice would keep what it was called with
            return functional_call(self._mapped, spread, (x.clone(),), tie_weights=False)

        with self._lock:
            yield call


def _shift(out: NDArray[Any], base: NDArray[Any], direction: _Array, delta: float) -> None:
    """Write ``base + delta * direction`` in the module's precision: in float32 twice as fast as rounding at the end."""
    np.copyto(out, direction, casting="same_kind")
    out *= out.dtype.type(delta)
    out += base
