"""Forward passes of many shifted copies of a PyTorch module, in blocks of bounded memory.

Small modules go through `torch.func.vmap`, many shifted copies at a time; of large ones, of modules that `vmap` cannot
handle, and where there are many rows anyway, one shifted copy after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from apas.errors import InputError
from apas.models.torchstage import Stage

__all__ = ["LARGE", "Passes", "answer", "said_once"]

_Array = NDArray[np.float64]
#: How many numbers the largest intermediate result may have.
VALUES = 1 << 19
#: Fewer shifted copies than this are not worth the overhead of `vmap`.
WORTH = 8
#: Modules of more parameters than this are never copied several times at once.
LARGE = 1 << 18
#: Modules with a larger result for one row than this are left to as many threads as PyTorch has.
WIDE = 1 << 16


@dataclass
class Passes:
    """A module on its stage, and how rows are given to it.

    Attributes
    ----------
    stage : Stage
    shape : tuple of int
        Shape of one input.
    integers : bool
        Whether it takes whole numbers, such as the indices of an embedding.
    widest : int
        How many numbers the largest intermediate result has for one row.
    batched : bool
        Whether `vmap` can handle it.
    attention : bool
        Whether it uses fused kernels for attention.
    """

    stage: Stage
    shape: tuple[int, ...]
    integers: bool = False
    widest: int = 1
    batched: bool = False
    attention: bool = False

    def rows(self, X: _Array) -> Any:
        """Rows of a matrix as a batch of inputs."""
        if self.integers and (np.rint(X) != X).any():
            row, column = (int(i) for i in np.argwhere(np.rint(X) != X)[0])
            raise InputError(
                f"`X` must hold whole numbers, since the module takes indices, but row {row}, column {column} is "
                f"{X[row, column]}."
            )
        kind = torch.int64 if self.integers else self.stage.dtype
        return torch.tensor(X.reshape(-1, *self.shape), dtype=kind, device=self.stage.device)

    def step(self, copies: int = 1) -> int:
        """How many rows to look at together."""
        return max(1, VALUES // (self.widest * copies))

    def raw(self, X: _Array, direction: _Array | None = None, delta: float = 1.0) -> Any:
        """Outputs (rows, outputs) of the module itself, or of one shifted copy."""
        return self._one(self.rows(X), direction, delta)

    def _one(self, x: Any, direction: _Array | None, delta: float) -> Any:
        with torch.no_grad(), self.calm(), self.stage.moved(direction, delta) as module:
            if len(x) <= self.step():
                return answer(module, x)
            return torch.cat([answer(module, some) for some in x.split(self.step())])

    def shifted(self, X: _Array, directions: _Array, delta: float) -> Iterator[tuple[slice, Any]]:
        """Outputs (copies, rows, outputs) of some shifted copies at a time, and which ones."""
        copies, x = max(1, VALUES // (self.widest * len(X))), self.rows(X)
        for start in range(0, len(directions), copies):
            some = slice(start, start + copies)
            many = len(directions[some]) >= WORTH and self.batched
            together = self.together(x, directions[some], delta) if many else None
            if together is not None:
                yield some, together
                continue
            for i, direction in enumerate(directions[some], start):
                yield slice(i, i + 1), self._one(x, direction, delta)[None]

    def together(self, x: Any, directions: _Array, delta: float) -> Any:
        """Outputs of all copies at once, or None if `vmap` turns out not to be able to."""
        tensors = self.stage.shifted(directions, delta)
        try:
            with torch.no_grad(), self.calm(), self.stage.held() as call, self.vmappable():
                out = vmap(call, in_dims=(0, None))(tensors, x)
            return out.reshape(len(directions), len(x), -1)
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError):
            self.batched = False
            said_once(self.stage.module)
            return None

    @contextmanager
    def calm(self) -> Iterator[None]:
        """One thread for small modules: several save little there, and on busy cores they wait for each other."""
        threads = torch.get_num_threads()
        if threads == 1 or len(self.stage.base) > LARGE or self.widest > WIDE:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    @contextmanager
    def vmappable(self) -> Iterator[None]:
        """Attention by matrix products: `vmap` has no rule for the fused kernels, and would warn and go one by one."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            if not self.attention:
                yield
                return
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                with sdpa_kernel(SDPBackend.MATH):
                    yield
            finally:
                torch.backends.mha.set_fastpath_enabled(fast)


def answer(module: Any, x: Any) -> Any:
    """Outputs (rows, outputs) of a batch, or an error that says what the module did not like."""
    try:
        out = module(x.clone())  # what it writes into its input stays there
    except Exception as error:  # the user's code may raise anything
        first = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"the module could not answer {len(x)} rows of shape {tuple(x.shape[1:])}: {type(error).__name__}: {first}"
        ) from error
    # what squeezes its result gives a single row without its dimension
    fits = isinstance(out, torch.Tensor) and out.numel() > 0 and out.ndim <= 2 and not out.is_complex()
    if not fits or (tuple(out.shape[:1]) != (len(x),) and (len(x) > 1 or out.ndim == 2)):
        got = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else type(out).__name__
        got = f"complex numbers in {got}" if isinstance(out, torch.Tensor) and out.is_complex() else got
        raise InputError(
            f"the module must give one tensor of shape (rows,) or (rows, outputs), but {len(x)} rows gave {got}; wrap "
            "it in a module that picks the scores of the classes."
        )
    return out.reshape(len(x), -1)


def said_once(module: Any) -> None:
    """Tell that a module is slow; the answers are the same."""
    warnings.warn(
        f"{type(module).__name__} cannot be evaluated by torch.func.vmap (control flow that depends on values, or an "
        "operation without a rule for it), so that shifted modules are evaluated one by one; the answers are the same.",
        UserWarning, stacklevel=2,
    )  # fmt: skip
