"""PyTorch modules as models: dense sequences as `FeedForward`, all others through `torch.func`."""

import copy
import itertools
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apas._typing import Array, Floats
from apas._validation import check_names, check_numbers
from apas.errors import GuaranteeWarning, InputError, Unsupported
from apas.models.base import ROUNDING, Gradients, ModelWrapper, Parameters, by_delta, class_indices, not_fitted
from apas.models.dense_chain import DenseChain, NotDense
from apas.models.digest import canonical, changed_members, own_class
from apas.models.feedforward import FeedForward
from apas.models.torch.dense import traced_chain
from apas.models.torch.passes import OTHER, Head, Passes, Rounding, Stage, answer, gradients, largest, unhooked


class DenseTorchModel(ModelWrapper):
    """A module that is a dense network, computed in float64 by NumPy, which allows for the module's own rounding."""

    _inner: FeedForward

    def __init__(self, module: Any, kind: str, network: FeedForward, shape: tuple[int, ...]) -> None:
        super().__init__(network)
        self._module, self._kind, self._shape = module, kind, shape

    def library_classes(self, X: Any) -> Array:
        """Classes of the rows according to the module itself, in its own arithmetic."""
        first = next(self._module.parameters())
        rows = torch.tensor(check_numbers(X), dtype=first.dtype, device=first.device)
        with torch.no_grad():
            raw = answer(self._module, rows.reshape(-1, *self._shape))
        return self._inner.classes_of(raw.cpu().numpy(), self._kind)

    def __repr__(self) -> str:
        return f"<{type(self._module).__name__} as {self._inner!r}>"


def _plain_network(module: Any, kind: str, shape: Sequence[int] | None, parameters: Parameters) -> FeedForward | None:
    """A sequence of PyTorch's own linear layers as the network that it is, or None if it is anything else."""
    linear = [layer for layer in module.modules() if type(layer) is nn.Linear]
    of_torch = all(type(part).__module__.startswith("torch.nn.") for part in module.modules())
    if type(module) not in (nn.Linear, nn.Sequential) or not linear or not of_torch:
        return None
    if type(module) is nn.Linear:
        module, parameters = nn.Sequential(module), replace(parameters, names=("0.weight", "0.bias"))
    given = (1,) * (len(shape or ()) - 1) + (linear[0].in_features,)  # of several dimensions: flattened first, or never
    output = "sigmoid" if linear[-1].out_features == 1 else "softmax"
    try:
        return traced_chain(module, parameters, kind, given, output=output).plain()
    except NotDense:
        return None


#: Names of biases: attention and recurrent layers have an in_proj_bias, a bias_ih_l0 and the like.
_BIAS = re.compile("bias|bias_.*|.*_bias", re.DOTALL)
MANY = ("logits", "probabilities")  # outputs of one number per class
_BOOKKEEPING = frozenset(vars(nn.Module()))  # members that PyTorch gives to every module


class TorchModel(Gradients):
    """A module in eval mode, copied when it was read, and what its input and output mean."""

    # `parameters` are in the order of ``named_parameters()``, tied ones once

    def __init__(self, passes: Passes, head: Head, parameters: Parameters, names: tuple[str, ...] | None) -> None:
        self._passes, self._head, self.parameters, self.feature_names = passes, head, parameters, names
        self.classes, self.n_features = head.classes, int(np.prod(passes.shape))
        self.dtype = str(passes.stage.dtype).removeprefix("torch.")
        self._rounding = Rounding(passes, head)
        self._code = _code(passes.stage.module)  # as it was read: some modules keep what they computed last

    def margin(self, X: Floats, target: Any) -> Floats:
        """Margins of the rows `X` towards `target`, shape (rows,)."""
        wanted = class_indices(self.classes, target, len(X))
        if not len(X):
            return np.empty(0)
        raw = self._passes.raw(X)
        self._head.check(raw)
        margins = self._head.margins(raw, wanted)
        self._rounding.settle(margins[None, :], X, wanted, None, 0.0)
        return margins

    def shifted_margins(self, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the modules ``parameters + delta * direction``, shape (directions, rows)."""
        margins = np.empty((len(directions), len(X)))
        for size, rows, wanted in by_delta(delta, class_indices(self.classes, target, len(X)), len(X)):
            part = np.empty((len(directions), len(rows)))
            for some, raw in self._passes.shifted(X[rows], directions, size):
                part[some] = self._head.margins(raw, wanted)
            self._rounding.settle(part, X[rows], wanted, directions, size)
            margins[:, rows] = part
        return margins

    def margin_scale(self, X: Floats, radii: Floats, delta: float | Floats = 1.0) -> Floats:
        """Magnitudes behind the margins of each row, so large that rounding moves them by less than 1e-12 of it."""
        # Measured, not proved: see `apas.models.torch.passes`. Parameters move by at most ``delta * max(radii)``, to
        # first order; shifts that make the margins many times larger make rounding larger than this says.
        if not len(X):
            return np.empty(0)
        # which class is asked about matters little for the magnitudes, and is not known here
        scores = self._head.scores(self._passes.raw(X)).cpu().numpy()
        predicted = scores.argmax(axis=1) if scores.shape[1] > 2 else np.ones(len(X), dtype=np.intp)
        return self._rounding.scale(X, predicted, delta, float(radii.max()))

    def _gradients(self, *given: Any, by_input: bool) -> tuple[Floats, Floats]:
        return gradients(self._passes, self._head, *given, by_input=by_input)

    def dense_chain(self) -> DenseChain | str:
        """The module as a network in which its parameters stand, or why `torch.fx` does not show it to be one."""
        return self._traced

    @cached_property
    def _traced(self) -> DenseChain | str:
        # a chain must give the module's margins, also where the parameters move
        head, passes, draws = self._head, self._passes, np.random.default_rng(0)
        if passes.integers:
            return "the module takes whole numbers"
        told: dict[str, Any] = {"threshold": head.threshold, "classes": head.classes, "dtype": self.dtype}
        told["output"] = "softmax" if len(head.classes) > 2 or head.kind in MANY else "sigmoid"
        told["feature_names"] = self.feature_names
        try:
            with passes.stage.move() as module:
                chain = traced_chain(module, self.parameters, head.kind, passes.shape, **told)
        except NotDense as error:
            return str(error)
        X, target = draws.random((4, self.n_features)) * 2 - 1, self.classes[-1]
        move = draws.uniform(-0.1, 0.1, (1, len(self.parameters)))
        for directions in (np.zeros_like(move), move):
            lifted = chain.lift(directions)
            ours = chain.network.shifted_margins(X, target, lifted, 1.0)
            theirs = self.shifted_margins(X, target, directions, 1.0)
            scale = self.margin_scale(X, np.abs(move[0])) + chain.network.margin_scale(X, np.abs(chain.lift(move)[0]))
            far = np.abs(np.clip(ours, -10, 10) - np.clip(theirs, -10, 10)) > 1e-9 + ROUNDING * scale
            if far.any():  # never seen: what is proved of a chain would not be about the module
                return f"{type(passes.stage.module).__name__} does not compute what torch.fx says it does"
        return chain

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
            "feature_names": None if self.feature_names is None else list(self.feature_names),
        }

    def __repr__(self) -> str:
        name, shape = type(self._passes.stage.module).__name__, "x".join(map(str, self._passes.shape))
        said = f"{len(self.parameters)} parameters, input {shape}, {self._head.kind} output"
        return f"<{name} of {said}, classes {list(self.classes)}>"


def _parts(module: Any) -> dict[int, str]:
    """Names of what is described by itself: layers, parameters and buffers."""
    named = [*module.named_modules(), *module.named_parameters(), *module.named_buffers()]
    return {id(part): name for name, part in named}


def _settings(layer: Any, parts: dict[int, str]) -> Any:
    """What a layer was made with; what begins with an underscore is PyTorch's own bookkeeping, or part of the code."""
    left_out = changed_members(type(layer), "forward") | {"training"}
    return canonical({k: v for k, v in sorted(vars(layer).items()) if k[:1] != "_" and k not in left_out}, parts)


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


class _Program(list[Any]):
    """A Keras model and its variables: only the layers are used, every variable is given when it is called."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing in it is ever written


class KerasModule(nn.Module):  # type: ignore[misc]
    """A Keras model that computes with PyTorch: what is trained are parameters, named by layers; all else buffers."""

    def __init__(self, model: Any, not_dense: str) -> None:
        super().__init__()
        self._program, self._not_dense, self._places = _Program([model, []]), not_dense, list[tuple[str, str]]()
        variables = self._program[1]
        for layer in model._flatten_layers():
            trained = {id(v) for v in layer._trainable_variables}
            own = [*layer._trainable_variables, *layer._non_trainable_variables]
            own = [v for v in own if not any(v is known for known in variables)]
            if not own:
                continue
            name = layer.name.replace(".", "_")
            while hasattr(self, name):  # a member of every module, or a layer of a nested model
                name += "_"
            self.add_module(name, holder := nn.Module())
            for variable in own:
                value, part = variable.value.detach().clone(), variable.name.replace(".", "_")
                if id(variable) in trained:
                    holder.register_parameter(part, nn.Parameter(value))
                else:
                    holder.register_buffer(part, value)
                variables.append(variable)
                self._places.append((name, part))
        self.config = repr(model.get_config()) if type(model).__module__.split(".")[0] == "keras" else None
        self.layers = [canonical(type(layer)) for layer in model._flatten_layers() if own_class(type(layer))]

    def forward(self, x: Any) -> Any:
        """What Keras computes with the numbers that the module holds now."""
        import keras

        model, variables = self._program
        values = [getattr(getattr(self, name), part) for name, part in self._places]
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return model(x, training=False)


#: What the module of a skorch classifier gives, by the loss that it was trained with.
_BY_LOSS = {"NLLLoss": "probabilities", "CrossEntropyLoss": "logits"}
_BY_LOSS |= {"BCEWithLogitsLoss": "logit", "BCELoss": "probability"}


def from_skorch(net: Any, *, output: Any, threshold: Any, classes: Any, **options: Any) -> Any:
    """Read the module of a fitted skorch classifier, with its classes and its threshold."""
    if not getattr(net, "initialized_", False):
        raise not_fitted(net)
    told = _BY_LOSS.get(type(getattr(net.criterion_, "_orig_mod", net.criterion_)).__name__)
    if net.predict_nonlinearity not in ("auto", None) or (told or output) is None:
        why = f"this {type(net).__name__} turns its module's numbers into probabilities in a way of its own;"
        raise Unsupported(f'{why} pass its module: apas.as_model(net.module_, output="logits").')
    level = getattr(net, "threshold", 0.5) if threshold == 0.5 else threshold
    classes = list(net.classes_) if classes is None else classes
    return from_torch(net.module_.eval(), output=output or told, threshold=level, classes=classes, **options)


def from_torch(module: Any, *, output: Any, threshold: Any, classes: Any, input_shape: Any, feature_names: Any) -> Any:
    """Read a trained module, without changing it: what is used is a copy, in eval mode."""
    # all parameters may move, those with ``requires_grad=False`` too; buffers do not
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    kind, names = chosen_output(module, output), check_names(feature_names)
    parameters = _parameters(module)
    if any(part.training for part in module.modules()):
        told = "the module is in training mode, in which dropout and batch norm do not do what they do in use;"
        copied = "apas looks at a copy of it in eval mode: call module.eval() before to say that this is meant."
        warnings.warn(f"{told} {copied}", GuaranteeWarning, stacklevel=3)
    own = _copy(module).eval()
    dtype, last = next(own.parameters()).dtype, final_layer(own)
    network = _plain_network(own, kind, input_shape, parameters)
    # a linear layer without a sigmoid gives no probabilities, whatever is said about it: trying it out will show
    if network is not None and (kind in ("logit", "logits") or last is not None):
        head = Head.of(kind, classes, threshold, network.weights[-1].shape[1], dtype)
        shape = input_size(own, input_shape, None)
        if math.prod(shape) != network.n_features:
            why = f"`input_shape` of as_model is {shape}, which holds {math.prod(shape)} numbers,"
            raise InputError(f"{why} but the first layer takes {network.n_features}.")
        said: dict[str, Any] = {"threshold": head.threshold, "classes": head.classes, "feature_names": names}
        network = network.with_options(**said, dtype=str(dtype).removeprefix("torch."))
        return DenseTorchModel(own, kind, network, shape)
    shape = input_size(own, input_shape, names)
    check_names(names, math.prod(shape))
    # a sequence that is used twice has its last layer inside the network too, where it must stay
    if last is not None and sum(part is last[0] for _, part in own.named_modules(remove_duplicate=False)) > 1:
        last = None
    if last is not None:  # the logits before a sigmoid or softmax say more than the probabilities behind it
        last[0][last[1]] = nn.Identity()
    passes, outputs = probe(Stage(own, parameters), shape)
    head = Head.of(kind, classes, threshold, outputs, dtype)
    if last is not None:
        head = replace(head, kind="logit" if outputs == 1 else "logits")
    return TorchModel(passes, head, parameters, names)


#: Layers behind the last one that change no number once the module is in eval mode.
SILENT = (nn.Identity, nn.Flatten, nn.Dropout, nn.AlphaDropout)


def chosen_output(module: Any, output: str | None) -> str:
    """What the module gives: as the last layer says, else as the user does; refuse what contradicts it."""
    found = final_layer(module)
    told = None if found is None else found[2]
    if output is None and told is None:
        raise InputError(
            "`output` of as_model must say what the module's numbers are, since its last layer does not; pass "
            'apas.as_model(module, output=...) with "logit", "probability", "logits" or "probabilities" (a probability '
            "read as a logit would certify everything)."
        )
    if output is not None and output not in tuple(OTHER):
        raise InputError(f"`output` of as_model must be one of {', '.join(map(repr, OTHER))}, got {output!r}.")
    if output is not None and found is not None and output != told:
        last = type(found[0][found[1]]).__name__
        why = f'`output` of as_model is "{output}", but the module ends in {last}, which gives "{told}";'
        raise InputError(f"{why} leave it out.")
    return str(output or told)


def final_layer(module: Any) -> tuple[Any, int, str] | None:
    """Where a sequence of layers ends in a sigmoid or softmax: its container, its place, and the output it makes."""
    if type(module) is not nn.Sequential or not unhooked(module):
        return None
    for i in reversed(range(len(module))):
        layer = module[i]
        if type(layer) is nn.Sequential:
            return final_layer(layer)
        if type(layer) in SILENT and unhooked(layer):
            continue
        kind = {nn.Sigmoid: "probability", nn.Softmax: "probabilities", nn.LogSoftmax: "logits"}.get(type(layer))
        if kind is None or not unhooked(layer) or getattr(layer, "dim", 1) not in (1, -1):
            return None
        return module, i, kind
    return None


def _parameters(module: Any) -> Parameters:
    named = list(module.named_parameters())
    if any(isinstance(p, nn.parameter.UninitializedParameter) for _, p in named):
        raise InputError("the module must be initialised, but has lazy layers that are not; call it once on a batch.")
    if not sum(p.numel() for _, p in named):
        raise InputError(f"the module must have parameters to shift, but this {type(module).__name__} has none.")
    kinds = sorted({str(p.dtype).removeprefix("torch.") for _, p in named})
    if len(kinds) > 1 or kinds[0] not in ("float32", "float64"):
        must = f"the module's parameters must all be float32 or all float64, but are {' and '.join(kinds)};"
        raise Unsupported(f"{must} pass copy.deepcopy(module).float().")
    if len({p.device for _, p in named}) > 1:
        raise Unsupported("the module's parameters must be on one device, but are on several; move it to one of them.")
    if named[0][1].device.type == "meta":
        must = "the module's parameters must have values, but are on the meta device; load the weights first,"
        raise InputError(f"{must} for example by module.to_empty(device='cpu') and load_state_dict(...).")
    _check_memory(module, named)
    arrays = [p.detach().cpu().numpy() for _, p in named]
    for (name, _), array in zip(named, arrays, strict=True):
        if not np.isfinite(array).all():
            raise InputError(f"the module's parameters must be finite, but {name} is not; was the training stable?")
    kinds = ["bias" if p.ndim == 1 and _BIAS.fullmatch(name.rpartition(".")[2]) else "weight" for name, p in named]
    layers = [name.rpartition(".")[0] or type(module).__name__ for name, _ in named]
    return Parameters.from_arrays(arrays, names=[name for name, _ in named], kinds=kinds, layers=layers)


def _check_memory(module: Any, named: list[tuple[str, Any]]) -> None:
    """Refuse tensors that follow a parameter because they share its memory: in a copy of our own they would not."""
    owners = {p.untyped_storage().data_ptr(): name for name, p in named if p.numel()}
    for path, part in module.named_modules():
        for key, value in {**vars(part), **part._buffers}.items():
            plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel()
            owner = owners.get(value.untyped_storage().data_ptr()) if plain else None
            if owner is not None:
                must = f"the module must compute with its parameters themselves, but {f'{path}.{key}'.lstrip('.')} is a"
                raise Unsupported(f"{must} view of {owner}, which a shift would not move; take the view in forward().")
    ranges = sorted((p.data_ptr(), p.data_ptr() + p.numel() * p.element_size(), name) for name, p in named if p.numel())
    for (_, end, one), (start, _, other) in itertools.pairwise(ranges):
        if start < end:
            raise Unsupported(
                f"the module's parameters must be tied by being one and the same, but {one} and {other} only share "
                "their memory, so that a shift would move them apart; assign the one parameter to both names."
            )


def _copy(module: Any) -> Any:
    # PyTorch does not copy results of a call, which some modules keep, together with the way they were computed
    values = [value for part in module.modules() for value in vars(part).values()]
    kept = {id(t): t.detach().clone() for t in values if isinstance(t, torch.Tensor) and not t.is_leaf}
    try:
        return copy.deepcopy(module, kept)
    except (RuntimeError, TypeError, AttributeError) as error:
        first = (str(error).splitlines() or [""])[0]
        what = f"this {type(module).__name__} cannot be copied, and apas changes only copies"
        raise Unsupported(f"{what}: {first}") from error


SAME = 1e-3  # how far apart two answers to the same row may be, as a share of the largest answer
SIZES = (0.01, 1.0)  # how far parameters are moved to see whether the answers follow


def input_size(module: Any, given: Sequence[int] | None, names: Sequence[str] | None) -> tuple[int, ...]:
    """Shape of one input: as given, else as many numbers as there are names, or as the first layer takes."""
    if given is not None:
        sizes = tuple(given) if isinstance(given, Sequence | np.ndarray | torch.Size) else ()
        if not sizes or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in sizes):
            must = "`input_shape` of as_model must be the shape of one input as positive integers,"
            raise InputError(f"{must} such as (1, 28, 28), got {given!r}.")
        return tuple(int(n) for n in sizes)
    if names is not None:
        return (len(names),)
    first = next((layer for layer in module.modules() if any(True for _ in layer.parameters(recurse=False))), None)
    if isinstance(first, nn.Linear):
        return (int(first.in_features),)
    if isinstance(first, nn.BatchNorm1d):
        return (int(first.num_features),)
    must = "`input_shape` of as_model must be given, since the module does not say what one input looks like;"
    raise InputError(f"{must} pass its shape without the batch dimension, such as input_shape=(3, 32, 32).")


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
        must = "the module must give the same answer to the same rows, but does not even in eval mode;"
        raise InputError(f"{must} is there a dropout that does not look at self.training?")
    alone = torch.cat([passes.raw(row[None, :]) for row in numbers])
    same = raw.shape == alone.shape
    if not same or not torch.allclose(raw, alone, rtol=SAME, atol=SAME * largest(raw), equal_nan=True):
        raise InputError(
            "the module's answer to a row must not depend on the other rows of a batch, but does (a batch norm without "
            "running statistics, or an `input_shape` that leaves out a dimension, would explain it)."
        )
    _check_moves(passes, numbers, raw)
    _look_inside(passes, numbers)
    passes.try_together(numbers, raw)
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
    must = "the module's answers must follow its parameters, but moving all of them changes none; does its forward()"
    raise InputError(f"{must} use another module, from a closure or a global name, whose parameters are not its own?")


def _look_inside(passes: Passes, numbers: Any) -> None:
    """Find out how many numbers the largest intermediate result has per row."""
    few, many = _ResultSizes(), _ResultSizes()
    for n, seen in ((1, few), (2, many)):
        with torch.no_grad(), passes.stage.move() as module, seen:
            answer(module, passes.rows(np.tile(numbers, (n, 1))))
    # results that do not grow with the rows, such as transposed weights, do not count
    alike = len(few.sizes) == len(many.sizes)
    sizes = [b - a for a, b in zip(few.sizes, many.sizes, strict=True)] if alike else many.sizes
    passes.widest = max(1, -(-max(sizes, default=1) // len(numbers)))


class _ResultSizes(TorchDispatchMode):  # type: ignore[misc]
    """Sizes of what every operation gives, also of those inside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = list[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.sizes += [tensor.numel() for tensor in tree_leaves(out) if isinstance(tensor, torch.Tensor)]
        return out
