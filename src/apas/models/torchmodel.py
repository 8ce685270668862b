"""Any PyTorch module as a model whose parameters can be shifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apas.models.digest import canonical
from apas.models.margins import class_indices
from apas.models.parameters import Parameters
from apas.models.sourcecode import changed_members, own_class
from apas.models.torchgradients import gradients
from apas.models.torchhead import Head
from apas.models.torchpasses import Passes
from apas.models.torchrounding import Rounding

__all__ = ["TorchModel"]

_Array = NDArray[np.float64]
#: Members that PyTorch gives to every module.
_BOOKKEEPING = frozenset(vars(nn.Module()))


class TorchModel:
    """A module in eval mode, copied when it was read, and what its input and output mean.

    Parameters
    ----------
    passes : Passes
        How rows are given to the module.
    head : Head
        What its numbers mean.
    parameters : Parameters
    feature_names : tuple of str or None
    """

    def __init__(
        self, passes: Passes, head: Head, parameters: Parameters, feature_names: tuple[str, ...] | None
    ) -> None:
        self._passes, self._head, self._parameters, self._names = passes, head, parameters, feature_names
        self._rounding = Rounding(passes, head)
        self._code = _code(passes.stage.module)  # as it was read: some modules keep what they computed last

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels."""
        return self._head.classes

    @property
    def n_features(self) -> int:
        """Numbers in one input."""
        return int(np.prod(self._passes.shape))

    @property
    def parameters(self) -> Parameters:
        """The module's parameters in the order of ``named_parameters()``, tied ones once."""
        return self._parameters

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the inputs, if given."""
        return self._names

    @property
    def dtype(self) -> str:
        """In which arithmetic the module computes."""
        return str(self._passes.stage.dtype).removeprefix("torch.")

    def margin(self, X: _Array, target: Any) -> _Array:
        """Margins of the rows `X` towards `target`, shape (rows,)."""
        wanted = class_indices(self.classes, target, len(X))
        if not len(X):
            return np.empty(0)
        raw = self._passes.raw(X)
        self._head.check(raw)
        margins = self._head.margins(raw, wanted)
        self._rounding.settle(margins[None, :], X, wanted, None, 0.0)
        return margins

    def shifted_margins(self, X: _Array, target: Any, directions: _Array, delta: float | _Array) -> _Array:
        """Margins on the modules ``parameters + delta * direction``, shape (directions, rows)."""
        wanted = class_indices(self.classes, target, len(X))
        margins = np.empty((len(directions), len(X)))
        if isinstance(delta, np.ndarray) and delta.ndim:
            for value in np.unique(delta):  # rows that share a delta share the shifted modules
                rows = np.flatnonzero(delta == value)
                margins[:, rows] = self._shifted(X[rows], wanted[rows], directions, float(value))
            return margins
        return self._shifted(X, wanted, directions, float(delta))

    def _shifted(self, X: _Array, wanted: NDArray[np.intp], directions: _Array, delta: float) -> _Array:
        margins = np.empty((len(directions), len(X)))
        if not len(X):
            return margins
        for some, raw in self._passes.shifted(X, directions, delta):
            margins[some] = self._head.margins(raw, wanted)
        self._rounding.settle(margins, X, wanted, directions, delta)
        return margins

    def margin_scale(self, X: _Array, radii: _Array, delta: float | _Array = 1.0) -> _Array:
        """Magnitudes behind the margins of each row, so large that rounding moves them by less than 1e-12 of it.

        Measured, not proved: see `apas.models.torchrounding`. Parameters move by at most ``delta * max(radii)``, to
        first order; shifts that make the margins many times larger make rounding larger than this says.
        """
        if not len(X):
            return np.empty(0)
        return self._rounding.scale(X, self._predicted(X), delta, float(radii.max()))

    def _predicted(self, X: _Array) -> NDArray[np.intp]:
        # which class is asked about matters little for the magnitudes, and is not known here
        scores = self._head.scores(self._passes.raw(X)).cpu().numpy()
        if scores.shape[1] > 2:
            return np.asarray(scores.argmax(axis=1))
        return np.ones(len(X), dtype=np.intp)

    def input_gradient(self, X: _Array, target: Any, moves: _Array | None = None) -> tuple[_Array, _Array]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""
        return self._gradients(X, target, moves, by_input=True)

    def parameter_gradient(self, X: _Array, target: Any, moves: _Array | None = None) -> tuple[_Array, _Array]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""
        return self._gradients(X, target, moves, by_input=False)

    def _gradients(self, X: _Array, target: Any, moves: _Array | None, *, by_input: bool) -> tuple[_Array, _Array]:
        wanted = class_indices(self.classes, target, len(X))
        margins = np.empty(len(X))
        slopes = np.empty((len(X), self.n_features if by_input else len(self._parameters)))

        def keep(rows: slice, some: _Array, parts: _Array) -> None:
            margins[rows], slopes[rows] = some, parts

        gradients(self._passes, self._head, X, wanted, moves, by_input=by_input, out=keep)
        return margins, slopes

    def describe(self) -> dict[str, Any]:
        """Layers, their settings and buffers, and what input and output mean, as JSON values."""
        module = self._passes.stage.module
        parts = _parts(module)
        layers = [[name, type(layer).__qualname__, _settings(layer, parts)] for name, layer in module.named_modules()]
        return {
            # only where there is any, so that a network of PyTorch's layers alone keeps its fingerprint
            **({"code": self._code} if self._code else {}),
            "kind": "torch",
            "layers": layers,
            "buffers": [[name, canonical(buffer)] for name, buffer in module.named_buffers()],
            "dtype": self.dtype,
            "output": self._head.kind,
            "threshold": self._head.threshold,
            "classes": [canonical(c) for c in self.classes],
            "input_shape": list(self._passes.shape),
            "feature_names": None if self._names is None else list(self._names),
        }

    def __repr__(self) -> str:
        name, shape = type(self._passes.stage.module).__name__, "x".join(map(str, self._passes.shape))
        return (
            f"<{name} of {len(self._parameters)} parameters, input {shape}, {self._head.kind} output, "
            f"classes {list(self.classes)}>"
        )


def _parts(module: Any) -> dict[int, str]:
    """Names of what is described by itself: layers, parameters and buffers."""
    named = [*module.named_modules(), *module.named_parameters(), *module.named_buffers()]
    return {id(part): name for name, part in named}


def _settings(layer: Any, parts: dict[int, str]) -> Any:
    """What a layer was made with; what begins with an underscore is PyTorch's own bookkeeping, or part of the code."""
    left_out = changed_members(type(layer), "forward") | {"training"}
    public = {k: v for k, v in sorted(vars(layer).items()) if not k.startswith("_") and k not in left_out}
    return canonical(public, parts)


def _code(module: Any) -> list[Any]:
    """What decides the answers of a module besides settings: its own classes, their private members, and hooks."""
    parts, told = _parts(module), []
    for name, layer in module.named_modules():
        hooks = [*layer._forward_pre_hooks.values(), *layer._forward_hooks.values()]
        code: dict[str, Any] = {"hooks": canonical(hooks, parts)} if hooks else {}
        if own_class(type(layer)):
            changed = changed_members(type(layer), "forward") & vars(layer).keys()
            private = {k: v for k, v in sorted(vars(layer).items()) if k.startswith("_") and k not in _BOOKKEEPING}
            private = {k: v for k, v in private.items() if k not in changed}
            code |= {"class": canonical(type(layer)), "private": canonical(private, parts)}
            # what a call leaves behind is another value after each, and may or may not decide the next
            code["changed"] = [{"unidentified": f"{key}, which forward() changes"} for key in sorted(changed)]
        if isinstance(layer, torch.jit.ScriptModule):  # compiled, with constants that it does not show
            code["script"] = {"unidentified": "a TorchScript module"}
        told += [[name, code]] if code else []
    return told
