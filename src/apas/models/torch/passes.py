"""Forward and backward passes of many shifted copies of a PyTorch module, in blocks of bounded memory.

How far rounding may move the margins is measured, since what happens inside a module is unknown: all parameters are
moved by a thousandth of themselves, up or down at random. Rounding moves them, and what is computed from them, by a few
units of roundoff; the margin follows in proportion. The last bits of float32 margins depend on the shape of a batch. So
margins near the edge of what counts as failing are computed again in float64, where they hardly do.
"""

import copy
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from apas._random import Stream
from apas._typing import Array, Floats, Indices
from apas._validation import check_probability
from apas.errors import InputError, Unsupported
from apas.models.base import ROUNDING, Parameters
from apas.models.forward import margins_from_scores

#: What the numbers of a module may be, and the same with one number per class instead of one, or the other way round.
OTHER = {"logit": "logits", "probability": "probabilities", "logits": "logit", "probabilities": "probability"}
SLACK, SUM_SLACK = 1e-5, 1e-3  # how far beyond [0, 1], and how far from a sum of 1, rounding may bring probabilities


@dataclass(frozen=True)
class Head:
    """How the numbers of a module become scores."""

    # A probability that its dtype cannot tell from 0 or 1 counts as the nearest number that is neither: in float32 the
    # logit of 1 is taken to be 16.6. What lies outside [0, 1] has the margin NaN, which is never valid.

    kind: str
    classes: tuple[Any, ...]
    threshold: float
    offset: float  # what the score of class 1 of two is compared with
    eps: float

    @classmethod
    def of(cls, kind: str, classes: Sequence[Any] | None, threshold: float, outputs: int, dtype: Any) -> Self:
        """Check the options of `as_model` against the number of outputs."""
        single = kind in ("logit", "probability")
        if single != (outputs == 1):
            needs = "1 number" if single else "a number per class"
            instead = f'use "{OTHER[kind]}" if that is what they are'
            if kind == "probability":  # "probabilities" would be refused in turn, as they do not sum to 1
                instead += ", or one model per label if several labels can hold at once"
            why = f'`output` of as_model is "{kind}", which needs {needs}, but the module gives {outputs} per row;'
            raise InputError(f"{why} {instead}.")
        count = max(2, outputs)
        given = range(count) if classes is None else classes
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        labels = tuple(c.item() if isinstance(c, np.generic) else c for c in given) if listed else ()
        good = all(isinstance(c, str | int | float) and c == c for c in labels)
        if not good or len(labels) != count or len(set(labels)) != count:
            raise InputError(f"`classes` of as_model must hold {count} different texts or numbers, got {classes!r}.")
        value = check_probability(threshold, "threshold", "as_model")
        if len(labels) > 2 and value != 0.5:
            said = f"`threshold` of as_model only applies to two classes, but there are {len(labels)};"
            raise InputError(f"{said} leave it out.")
        eps = float(torch.finfo(dtype).eps)
        if not eps < value < 1 - eps:
            raise InputError(f"`threshold` of as_model is {value!r}, which {dtype} cannot tell from 0 or 1.")
        return cls(kind, labels, value, math.log(value) - math.log1p(-value), eps)

    def scores(self, raw: Any) -> Any:
        """Outputs (..., outputs) as float64 scores: logits as they are, probabilities as their logarithms or logit."""
        raw = raw.to(torch.float64)
        if self.kind in ("logit", "logits"):
            return raw
        p = torch.where((raw >= -SLACK) & (raw <= 1 + SLACK), raw, torch.nan)
        # the least normal number of float32, whose eps is 1.2e-7 (half precision: 1e-3), or of float64 (2.2e-16)
        least = torch.finfo(torch.float32 if self.eps > 1e-10 else torch.float64).tiny
        if self.kind == "probability":
            p = p.clamp(least, 1 - self.eps / 2)  # the largest number below 1 of the dtype
            return torch.log(p) - torch.log1p(-p)
        return torch.log(p.clamp(min=least))

    def margins(self, raw: Any, wanted: Indices) -> Floats:
        """Margins (..., rows) from outputs (..., rows, outputs) and the positions of the wanted classes."""
        return margins_from_scores(self.scores(raw).cpu().numpy(), wanted, self.offset)

    def margin(self, scores: Any, wanted: Any) -> Any:
        """Margin of one row from its scores (outputs,) and the position of its wanted class, differentiable."""
        outputs = scores.shape[-1]
        if outputs <= 2:
            score = scores[0] if outputs == 1 else scores[1] - scores[0]
            return (score - self.offset) * (2 * wanted - 1)
        chosen = torch.arange(outputs, device=scores.device) == wanted
        return torch.where(chosen, scores, 0.0).sum() - torch.where(chosen, -torch.inf, scores).max()

    def check(self, raw: Any) -> None:
        """Refuse outputs (rows, outputs) that are no probabilities although they are said to be."""
        if self.kind in ("logit", "logits"):
            return
        bad = (raw < -SLACK) | (raw > 1 + SLACK)
        if bad.any():
            raise InputError(
                f'`output` of as_model is "{self.kind}", but the module gives {float(raw[bad][0]):.6g}, which is no '
                f'probability; use "{"logit" if self.kind == "probability" else "logits"}" if it gives logits.'
            )
        if self.kind == "probabilities" and ((raw.sum(dim=-1) - 1).abs() > SUM_SLACK).any():
            why = '`output` of as_model is "probabilities", but those of a row do not sum to 1;'
            raise InputError(f"{why} several labels at once need one model per label.")


def unhooked(module: Any) -> bool:
    """Whether calling the module does what its class says, and nothing that was hung onto it."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


PART = 1 << 15  # shifted parameters are computed in parts of this many, which stay in the processor's cache


class Stage:
    """A module that belongs to us, and the shifted parameters it is given."""

    def __init__(self, module: Any, layout: Parameters) -> None:
        self.module, self.layout, self.base = module, layout, layout.values
        named = list(module.parameters())  # a tied parameter comes once
        self.dtype, self.device = named[0].dtype, named[0].device
        self._host = torch.tensor(self.base, dtype=self.dtype, device="cpu")
        self._own_base, self.lock = self._host.numpy().copy(), threading.RLock()
        # on the processor this is the same: NumPy writes the module's parameters themselves; elsewhere they are sent
        self._flat = self._host.to(self.device)
        self._on_flat(module)
        # what a module keeps of a call, such as an attention map, must not be copied or met by another kind of call
        self._called, self._mapped = (self._on_flat(copy.deepcopy(module)) for _ in range(2))
        self.parameters = list(self._called.parameters())
        owners = [(f"{path}.".lstrip("."), owner) for path, owner in module.named_modules()]
        places = [(id(p), path + name) for path, owner in owners for name, p in owner._parameters.items()]
        self._places = [[place for key, place in places if key == id(p)] for p in named]

    def _on_flat(self, module: Any) -> Any:
        """Let the parameters of a module lie in our vector."""
        for p, tensor in zip(module.parameters(), self.layout.split(self._flat), strict=True):
            p.data, p.grad = tensor, None
            p.requires_grad_(True)
        return module

    def __reduce__(self) -> tuple[Any, ...]:
        # as views of one vector, parameters would be written to a pickle with the whole vector each; copies are not
        return Stage, (copy.deepcopy(self.module), self.layout)

    def in_float64(self) -> Self:
        """The same in float64."""
        return type(self)(copy.deepcopy(self.module).double(), self.layout)

    @contextmanager
    def move(self, direction: Floats | None = None, delta: float = 1.0) -> Iterator[Any]:
        """Give the module with parameters ``base + delta * direction``; nobody else can move them meanwhile."""
        with self.lock:
            out = self._host.numpy()
            if direction is None:
                np.copyto(out, self._own_base)
            else:
                for start in range(0, len(out), PART):
                    part = slice(start, start + PART)
                    _shift(out[part], self._own_base[part], direction[part], delta)
            if self._flat is not self._host:
                self._flat.copy_(self._host)
            yield self._called

    def shifted(self, directions: Floats, delta: float) -> dict[str, Any]:
        """Tensors of the models ``base + delta * direction``, by name, the models along their first dimension."""
        host = torch.empty(directions.shape, dtype=self.dtype, device="cpu")
        if directions.flags.c_contiguous:  # one after the other they stay in the processor's cache
            for out, direction in zip(host.numpy(), directions, strict=True):
                _shift(out, self._own_base, direction, delta)
        else:
            _shift(host.numpy(), self._own_base, directions, delta)
        return dict(zip(self.layout.names, self.layout.split(host.to(self.device)), strict=True))

    def call(self, tensors: dict[str, Any], x: Any) -> Any:
        """Outputs (rows, outputs) of the module with other tensors in place of its parameters."""
        places = zip(self.layout.names, self._places, strict=True)
        spread = {place: tensors[name] for name, named in places for place in named}
        # ties are spelled out: left to functional_call, a layer used twice would keep what it was called with
        return functional_call(self._mapped, spread, (x.clone(),), tie_weights=False).reshape(len(x), -1)


def _shift(out: Array, base: Array, direction: Floats, delta: float) -> None:
    """Write ``base + delta * direction`` in the module's precision: in float32 twice as fast as rounding at the end."""
    np.copyto(out, direction, casting="same_kind")
    out *= out.dtype.type(delta)
    out += base


VALUES = 1 << 19  # how many numbers the largest intermediate result may have
WORTH = 8  # fewer shifted copies than this are not worth the overhead of `vmap`
LARGE = 1 << 18  # modules of more parameters than this are never copied several times at once
WIDE = 1 << 16  # modules with a larger result for one row than this are left to as many threads as PyTorch has
#: How far apart a pass of many copies and single ones may be: as a share of what a move did, and in roundoffs of the
#: largest answer.
FOLLOWS, APART = 0.1, 256
#: What `vmap` raises about a module that it cannot evaluate.
NO_VMAP = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError)


@dataclass
class Passes:
    """A module on its stage, and how rows are given to it."""

    stage: Stage
    shape: tuple[int, ...]
    integers: bool = False
    widest: int = 1
    batched: bool = False

    def rows(self, X: Floats) -> Any:
        """Rows of a matrix as a batch of inputs."""
        if self.integers and (np.rint(X) != X).any():
            row, column = (int(i) for i in np.argwhere(np.rint(X) != X)[0])
            must = "`X` must hold whole numbers, since the module takes indices,"
            raise InputError(f"{must} but row {row}, column {column} is {X[row, column]}.")
        kind = torch.int64 if self.integers else self.stage.dtype
        return torch.tensor(X.reshape(-1, *self.shape), dtype=kind, device=self.stage.device)

    def step(self, copies: int = 1) -> int:
        """How many rows to look at together."""
        return max(1, VALUES // (self.widest * copies))

    def raw(self, X: Floats, direction: Floats | None = None, delta: float = 1.0) -> Any:
        """Outputs (rows, outputs) of the module itself, or of one shifted copy."""
        x = self.rows(X)
        with torch.no_grad(), self.calm(), self.stage.move(direction, delta) as module:
            if len(x) <= self.step():
                return answer(module, x)
            return torch.cat([answer(module, some) for some in x.split(self.step())])

    def shifted(self, X: Floats, directions: Floats, delta: float) -> Iterator[tuple[slice, Any]]:
        """Outputs (copies, rows, outputs) of some shifted copies at a time, and which ones."""
        copies = self.step(len(X))
        for start in range(0, len(directions), copies):
            some = slice(start, start + copies)
            many = len(directions[some]) >= WORTH and self.batched
            together = self.together(X, directions[some], delta) if many else None
            if together is not None:
                yield some, together
                continue
            for i, direction in enumerate(directions[some], start):
                yield slice(i, i + 1), self.raw(X, direction, delta)[None]

    def together(self, X: Floats, directions: Floats, delta: float) -> Any:
        """Outputs of all copies at once, or None if `vmap` turns out not to be able to."""
        with torch.no_grad():
            return self.mapped(self.stage.call, (0, None), self.stage.shifted(directions, delta), self.rows(X))

    def mapped(self, function: Callable[..., Any], in_dims: tuple[int | None, ...], *given: Any) -> Any:
        """What a function that calls the module gives for many arguments at once, or None if `vmap` cannot."""
        try:
            # attention by matrix products: `vmap` has no rule for the fused kernels, and would warn and go one by one
            with self.calm(), self.stage.lock, warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
                warnings.filterwarnings("ignore", message="There is a performance drop")
                fast = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
                try:
                    return vmap(function, in_dims=in_dims)(*given)
                finally:
                    torch.backends.mha.set_fastpath_enabled(fast)
        except NO_VMAP:
            self.give_up()
            return None

    def give_up(self) -> None:
        """Use `vmap` no more, and say so: the module is slow, but the answers are the same."""
        self.batched = False
        why = "control flow that depends on values, or an operation without a rule for it"
        told = f"{type(self.stage.module).__name__} cannot be evaluated by torch.func.vmap ({why}),"
        instead = "so that shifted modules are evaluated one by one; the answers are the same."
        warnings.warn(f"{told} {instead}", UserWarning, stacklevel=2)

    def try_together(self, numbers: Any, raw: Any) -> None:
        """Let `vmap` be used if it follows every tensor of parameters as single passes do."""
        # A tensor that a module keeps in a list besides is moved in single passes but not by `functional_call`: each is
        # moved by itself, so that none can hide behind the others.
        stage, draws = self.stage, np.random.default_rng(1)
        if len(stage.base) > LARGE:
            return
        some, self.batched = max(1, VALUES // len(stage.base)), True
        for start in range(0, len(stage.layout.slices), some):
            parts = stage.layout.slices[start : start + some]
            directions = np.zeros((len(parts), len(stage.base)))
            for direction, part in zip(directions, parts, strict=True):
                sizes = np.maximum(np.abs(stage.base[part]), 1)
                direction[part] = draws.uniform(-0.1, 0.1, part.stop - part.start) * sizes
            together = self.together(numbers, directions, 1.0)
            if together is None:
                return
            for direction, ours in zip(directions, together, strict=True):
                alone = self.raw(numbers, direction)
                # the two may differ by rounding, and by a small share of what the move did
                eps = float(torch.finfo(alone.dtype).eps)
                limit = FOLLOWS * largest(alone - raw) + APART * eps * largest(alone)
                if alone.shape != ours.shape or not torch.allclose(alone, ours, rtol=0, atol=limit, equal_nan=True):
                    self.give_up()
                    return

    @contextmanager
    def calm(self) -> Iterator[None]:
        """One thread for small modules: several save little there, and on busy cores they wait for each other."""
        threads = torch.get_num_threads()
        if len(self.stage.base) <= LARGE and self.widest <= WIDE:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def largest(a: Any) -> float:
    """The largest magnitude among finite numbers."""
    return float(a.nan_to_num(0.0, 0.0, 0.0).abs().max())


def answer(module: Any, x: Any) -> Any:
    """Outputs (rows, outputs) of a batch, or an error that says what the module did not like."""
    try:
        out = module(x.clone())  # what it writes into its input stays there
    except Exception as error:  # the user's code may raise anything
        first = (str(error).splitlines() or [""])[0]
        why = f"the module could not answer {len(x)} rows of shape {tuple(x.shape[1:])}:"
        raise InputError(f"{why} {type(error).__name__}: {first}") from error
    # what squeezes its result gives a single row without its dimension
    fits = isinstance(out, torch.Tensor) and out.numel() > 0 and out.ndim <= 2 and not out.is_complex()
    if not fits or (tuple(out.shape[:1]) != (len(x),) and (len(x) > 1 or out.ndim == 2)):
        got = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else type(out).__name__
        got = f"complex numbers in {got}" if isinstance(out, torch.Tensor) and out.is_complex() else got
        must = f"the module must give one tensor of shape (rows,) or (rows, outputs), but {len(x)} rows gave {got};"
        raise InputError(f"{must} wrap it in a module that picks the scores of the classes.")
    return out.reshape(len(x), -1)


#: How many numbers of gradients are held as tensors at a time, and how many times the widest result a pass keeps.
NUMBERS, KEPT = 1 << 20, 16


def gradients(
    passes: Passes, head: Head, X: Floats, wanted: Indices, moves: Floats | None, *, by_input: bool
) -> tuple[Floats, Floats]:
    """Margins (rows,) and gradients (rows, features or k)."""
    k = len(passes.stage.base)
    if moves is not None and moves.shape != (len(X), k):
        raise InputError(f"`moves` must hold one change per row and parameter, shape {(len(X), k)}, got {moves.shape}.")
    if by_input and passes.integers:
        raise Unsupported("the module takes whole numbers, by which nothing can be derived; use method='sampling'.")
    margins, slopes = np.empty(len(X)), np.empty((len(X), math.prod(passes.shape) if by_input else k))
    step = max(1, min(NUMBERS // k, passes.step(KEPT))) if passes.batched else 1
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        some = None if moves is None else moves[rows]
        together = passes.batched and k <= LARGE
        found = _together(passes, head, X[rows], wanted[rows], some, by_input) if together else None
        if found is not None:
            margins[rows], slopes[rows] = found
            continue
        for i in range(start, min(start + step, len(X))):
            move = None if moves is None else moves[i]
            margins[i], slopes[i] = _alone(passes, head, X[i : i + 1], int(wanted[i]), move, by_input)
    return margins, slopes


def _alone(
    passes: Passes, head: Head, X: Floats, wanted: int, move: Floats | None, by_input: bool
) -> tuple[float, Floats]:
    with torch.inference_mode(False), torch.enable_grad(), passes.calm(), passes.stage.move(move) as module:
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
    return float(margin.detach()), np.concatenate(flat)


def _together(
    passes: Passes, head: Head, X: Floats, wanted: Indices, moves: Floats | None, by_input: bool
) -> tuple[Floats, Floats] | None:
    """Margins and gradients of all rows at once, or None if `vmap` cannot."""
    stage, shared = passes.stage, moves is None
    tensors = stage.shifted(np.zeros((1, len(stage.base))) if moves is None else moves, 1.0)
    tensors = {name: t[0] for name, t in tensors.items()} if shared else tensors

    def margin(tensors: Any, x: Any, place: Any) -> tuple[Any, Any]:
        value = head.margin(head.scores(stage.call(tensors, x[None])[0]), place)
        return value, value

    with torch.inference_mode(False):
        one = grad(margin, argnums=1 if by_input else 0, has_aux=True)
        places = torch.tensor(wanted, device=stage.device)
        found = passes.mapped(one, (None if shared else 0, 0, 0), tensors, passes.rows(X), places)
    if found is None:
        return None
    slopes, margins = found
    parts = [slopes] if by_input else [slopes[name] for name in stage.layout.names]
    return _numbers(margins), np.concatenate([_numbers(part).reshape(len(X), -1) for part in parts], axis=1)


def _numbers(tensor: Any) -> Floats:
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return np.asarray(dense.cpu().numpy(), dtype=np.float64)


ROUNDOFFS = 32  # how many units of roundoff a margin may be off, in units of how it follows its parameters
STEP, TRIES = 1e-3, 4  # by which share parameters are moved, and how often, to see how the margins follow
#: Margins below this many times what rounding may do are looked at again: more than the largest normal number is
#: beyond the largest of a block of them, so that the edge of what counts as failing is always looked at.
AGAIN = 8
FAR = 0.05  # margins beyond this are taken to be beyond rounding without asking how large the numbers behind them are
#: Shifts that make everything larger make rounding larger too: nor are margins below this share of the largest.
SHARE = 1e-3
REMEMBERED = 1 << 16  # how many rows' magnitudes are remembered


@dataclass
class Rounding:
    """Magnitudes behind the margins of rows, remembered by row."""

    passes: Passes
    head: Head
    _known: dict[int, list[float]] = field(default_factory=dict, repr=False)
    _precise: Passes | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": {}, "_precise": None}

    def scale(self, X: Floats, wanted: Indices, delta: float | Floats, radius: float) -> Floats:
        """Magnitudes per row while parameters move by at most ``delta * radius``, in units of `ROUNDING`."""
        still, moving = self._magnitudes(X, wanted)
        roundoff = float(torch.finfo(self.passes.stage.dtype).eps) / 2
        return np.asarray(max(1.0, ROUNDOFFS * roundoff / ROUNDING) * (still + delta * radius * moving))

    def settle(self, margins: Floats, X: Floats, wanted: Indices, directions: Floats | None, delta: float) -> None:
        """Compute the margins (copies, rows) near 0 again, in float64; without directions on the module itself."""
        sizes = np.abs(margins)
        # most often none is near; NaN goes on
        if self.passes.stage.dtype == torch.float64 or sizes.min() > max(FAR, SHARE * sizes.max()):
            return
        far = SHARE * np.max(sizes, axis=0, initial=0.0, where=np.isfinite(sizes))
        some = np.flatnonzero((sizes <= np.maximum(far, FAR)).any(axis=0))
        if not len(some):
            return
        # how far the parameters move: one layer may move much farther than all others
        radius = 0.0 if directions is None else max(1.0, float(directions.max()), -float(directions.min()))
        limit = np.maximum(AGAIN * ROUNDING * self.scale(X[some], wanted[some], delta, radius), far[some])
        for sample, place in np.argwhere(sizes[:, some] <= limit):
            row, direction = some[place], None if directions is None else directions[sample]
            x = X[row : row + 1]
            x = x if self.passes.integers else x.astype(np.float32).astype(np.float64)  # as the module gets it
            raw = self._precise_passes(x).raw(x, direction, delta)
            margins[sample, row] = self.head.margins(raw, wanted[row : row + 1])[0]

    def _precise_passes(self, x: Floats) -> Passes:
        if self._precise is None:
            passes = self.passes
            doubled = Passes(passes.stage.in_float64(), passes.shape, passes.integers, passes.widest)
            try:
                doubled.raw(x)
            except InputError:  # it makes float32 numbers itself: the row alone, in float32, is all there is
                doubled = passes
            self._precise = doubled
        return self._precise

    def _magnitudes(self, X: Floats, wanted: Indices) -> tuple[Floats, Floats]:
        """Per row the magnitudes behind the margin of the module itself, and their growth with the parameters."""
        if len(self.head.classes) == 2:  # the same towards either class
            wanted = np.ones_like(wanted)
        keys = [hash((row.tobytes(), place)) for row, place in zip(X, wanted.tolist(), strict=True)]
        new = np.array([i for i, key in enumerate(keys) if key not in self._known], dtype=np.intp)
        if len(self._known) + len(new) > REMEMBERED:
            self._known.clear()
            new = np.arange(len(keys))
        if len(new):
            for i, sizes in zip(new.tolist(), self._measure(X[new], wanted[new]).tolist(), strict=True):
                self._known[keys[i]] = sizes
        known = np.array([self._known[key] for key in keys]).reshape(-1, 2)
        return known[:, 0], known[:, 1]

    def _measure(self, X: Floats, wanted: Indices) -> Floats:
        """Magnitudes (rows, 2): of the margins as they are, and per size of the moves."""
        margins = self.head.margins(self.passes.raw(X), wanted)
        # how far the logit of a probability at the threshold moves when the probability is rounded
        steep = 1 / (1 - self.head.threshold) if self.head.kind == "probability" else 0.0
        sizes = np.zeros((2, len(X)))
        sizes[0] = np.maximum(1.0, np.nan_to_num(np.abs(margins), posinf=0.0)) + steep
        base = self.passes.stage.base
        together = 2 * TRIES if len(base) <= LARGE else 1
        changes = np.zeros((2 * TRIES, len(X)))
        for start in range(0, 2 * TRIES, together):
            # moves up or down at random: of every parameter in proportion to itself, and, every other one, by 1
            words = Stream(0, "rounding").integers(start * len(base), together * len(base))
            directions = np.where(words < 0, -1.0, 1.0).reshape(together, -1)
            directions[start % 2 :: 2] *= base
            for some, raw in self.passes.shifted(X, directions, STEP):
                moved = self.head.margins(raw, wanted)
                changes[start : start + together][some] = np.nan_to_num(np.abs(moved - margins), posinf=0.0) / STEP
        sizes[0] += changes[::2].max(axis=0)
        sizes[1] += changes[1::2].max(axis=0)
        return sizes.T
