"""PyTorch modules: dense sequences as `FeedForward`, all others through `torch.func`."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from apas._validation import check_names
from apas.errors import GuaranteeWarning, InputError, Unsupported
from apas.models.feedforward import FeedForward
from apas.models.parameters import Parameters
from apas.models.torchdense import DenseTorchModel, dense_layers
from apas.models.torchhead import Head, chosen_output, final_layer
from apas.models.torchmodel import TorchModel
from apas.models.torchprobe import input_size, probed
from apas.models.torchstage import Stage

__all__ = ["from_torch"]


def from_torch(
    module: Any,
    *,
    output: str | None = None,
    threshold: float = 0.5,
    classes: Sequence[Any] | None = None,
    input_shape: Sequence[int] | None = None,
    feature_names: Sequence[str] | None = None,
) -> TorchModel | DenseTorchModel:
    """Read a trained module, without changing it: what is used is a copy, in eval mode.

    Parameters
    ----------
    module : torch.nn.Module
        A classifier that maps a batch of inputs to one number per row, or one per row and class. Its parameters must
        all be float32 or all float64, on one device.
    output : {"logit", "probability", "logits", "probabilities"}, optional
        What these numbers are. Needed unless the module is a `Sequential` that ends in a sigmoid or softmax; logarithms
        of probabilities are logits.
    threshold : float, default 0.5
        From which probability on a binary module is taken to say class 1.
    classes : sequence, optional
        Class labels; (0, 1) or 0..m-1 unless given.
    input_shape : sequence of int, optional
        Shape of one input, into which the numbers of a row are put in C order; needed unless it is one number per
        feature and the first layer says how many.
    feature_names : sequence of str, optional
        Names of the inputs.

    Notes
    -----
    Modules that refuse floating point numbers, such as embeddings, are given whole numbers. All parameters may move,
    those with ``requires_grad=False`` too; choose with `LinfShifts(layers=...)`. Buffers do not move.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()).eval()
    >>> from_torch(net).classes
    (0, 1)
    """
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    kind = chosen_output(module, output)
    names = check_names(feature_names)
    parameters = _parameters(module)
    if any(part.training for part in module.modules()):
        warnings.warn(
            "the module is in training mode, in which dropout and batch norm do not do what they do in use; apas looks "
            "at a copy of it in eval mode: call module.eval() before to say that this is meant.",
            GuaranteeWarning, stacklevel=3,
        )  # fmt: skip
    own = _copied(module).eval()
    dtype, last = next(own.parameters()).dtype, final_layer(own)
    layers = dense_layers(own, input_shape)
    # a linear layer without a sigmoid gives no probabilities, whatever is said about it: trying it out will show
    if layers is not None and (kind in ("logit", "logits") or last is not None):
        head = Head.of(kind, classes, threshold, layers[0][-1].shape[1], dtype)
        shape = input_size(own, input_shape, None)
        return DenseTorchModel(own, head, _network(layers, head, shape, names, str(dtype)), shape)
    shape = input_size(own, input_shape, names)
    check_names(names, math.prod(shape))
    # a sequence that is used twice has its last layer inside the network too, where it must stay
    if last is not None and sum(part is last[0] for _, part in own.named_modules(remove_duplicate=False)) > 1:
        last = None
    if last is not None:  # the logits before a sigmoid or softmax say more than the probabilities behind it
        last[0][last[1]] = nn.Identity()
    passes, outputs = probed(Stage(own, parameters.values), shape)
    head = Head.of(kind, classes, threshold, outputs, dtype)
    if last is not None:
        head = replace(head, kind="logit" if outputs == 1 else "logits")
    return TorchModel(passes, head, parameters, names)


def _network(
    layers: tuple[list[Any], list[Any], list[str]], head: Head, shape: tuple[int, ...], names: tuple[str, ...] | None,
    dtype: str,
) -> FeedForward:  # fmt: skip
    weights, biases, activations = layers
    if math.prod(shape) != len(weights[0]):
        raise InputError(
            f"`input_shape` of as_model is {shape}, which holds {math.prod(shape)} numbers, but the first layer takes "
            f"{len(weights[0])}."
        )
    return FeedForward(
        weights, biases, activation=activations, output="sigmoid" if weights[-1].shape[1] == 1 else "softmax",
        threshold=head.threshold, classes=head.classes, feature_names=names,
        dtype=dtype.removeprefix("torch."),
    )  # fmt: skip


def _parameters(module: Any) -> Parameters:
    """Every parameter once, under its first name."""
    named = list(module.named_parameters())
    if any(isinstance(p, nn.parameter.UninitializedParameter) for _, p in named):
        raise InputError("the module must be initialised, but has lazy layers that are not; call it once on a batch.")
    if not sum(p.numel() for _, p in named):
        raise InputError(f"the module must have parameters to shift, but this {type(module).__name__} has none.")
    kinds = sorted({str(p.dtype).removeprefix("torch.") for _, p in named})
    if len(kinds) > 1 or kinds[0] not in ("float32", "float64"):
        raise Unsupported(
            f"the module's parameters must all be float32 or all float64, but are {' and '.join(kinds)}; pass "
            "copy.deepcopy(module).float()."
        )
    if len({p.device for _, p in named}) > 1:
        raise Unsupported("the module's parameters must be on one device, but are on several; move it to one of them.")
    if named[0][1].device.type == "meta":
        raise InputError(
            "the module's parameters must have values, but are on the meta device; load the weights first, for example "
            "by module.to_empty(device='cpu') and load_state_dict(...)."
        )
    _check_memory(module, named)
    arrays = [p.detach().cpu().numpy() for _, p in named]
    for (name, _), array in zip(named, arrays, strict=True):
        if not np.isfinite(array).all():
            raise InputError(f"the module's parameters must be finite, but {name} is not; was the training stable?")
    return Parameters.from_arrays(
        arrays,
        names=[name for name, _ in named],
        kinds=["bias" if p.ndim == 1 and _is_bias(name.split(".")[-1]) else "weight" for name, p in named],
        layers=[name.rpartition(".")[0] or type(module).__name__ for name, _ in named],
    )


def _check_memory(module: Any, named: list[tuple[str, Any]]) -> None:
    """Refuse tensors that follow a parameter because they share its memory: in a copy of our own they would not."""
    owners = {p.untyped_storage().data_ptr(): name for name, p in named if p.numel()}
    for path, part in module.named_modules():
        for key, value in {**vars(part), **part._buffers}.items():
            plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel()
            owner = owners.get(value.untyped_storage().data_ptr()) if plain else None
            if owner is not None:
                raise Unsupported(
                    f"the module must compute with its parameters themselves, but {f'{path}.{key}'.lstrip('.')} is a "
                    f"view of {owner}, which a shift would not move; take the view in forward()."
                )
    ranges = sorted((p.data_ptr(), p.data_ptr() + p.numel() * p.element_size(), name) for name, p in named if p.numel())
    for (_, end, one), (start, _, other) in itertools.pairwise(ranges):
        if start < end:
            raise Unsupported(
                f"the module's parameters must be tied by being one and the same, but {one} and {other} only share "
                "their memory, so that a shift would move them apart; assign the one parameter to both names."
            )


def _is_bias(name: str) -> bool:
    # attention and recurrent layers have an in_proj_bias, a bias_ih_l0 and the like
    return name == "bias" or name.startswith("bias_") or name.endswith("_bias")


def _copied(module: Any) -> Any:
    # PyTorch does not copy results of a call, which some modules keep, together with the way they were computed
    values = [value for part in module.modules() for value in vars(part).values()]
    kept = {id(t): t.detach().clone() for t in values if isinstance(t, torch.Tensor) and not t.is_leaf}
    try:
        return copy.deepcopy(module, kept)
    except (RuntimeError, TypeError, AttributeError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise Unsupported(
            f"this {type(module).__name__} cannot be copied, and apas changes only copies: {first}"
        ) from error
