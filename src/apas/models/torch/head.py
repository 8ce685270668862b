"""What the numbers mean that a PyTorch module gives, and what its last layer says about that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from apas._typing import Floats, Indices
from apas._validation import check_probability
from apas.errors import InputError
from apas.models.forward import margins_from_scores

OUTPUTS = ("logit", "probability", "logits", "probabilities")
#: The same with one number per class instead of one, and the other way round.
OTHER = {"logit": "logits", "probability": "probabilities", "logits": "logit", "probabilities": "probability"}
#: Layers behind the last one that change no number once the module is in eval mode.
SILENT = (nn.Identity, nn.Flatten, nn.Dropout, nn.AlphaDropout)
SLACK, SUM_SLACK = 1e-5, 1e-3  # how far beyond [0, 1], and how far from a sum of 1, rounding may bring probabilities


@dataclass(frozen=True)
class Head:
    """How the numbers of a module become scores.

    A probability that its dtype cannot tell from 0 or 1 counts as the nearest number that is neither: in float32 the
    logit of 1 is taken to be 16.6. A margin is then as large as can be vouched for, finite, and never NaN. What lies
    outside [0, 1] is no probability, and its margin is NaN, which is never valid.
    """

    kind: str
    classes: tuple[Any, ...]
    threshold: float
    eps: float

    @classmethod
    def of(cls, kind: str, classes: Sequence[Any] | None, threshold: float, outputs: int, dtype: Any) -> Head:
        """Check the options of `as_model` against the number of outputs."""
        single = kind in ("logit", "probability")
        if single != (outputs == 1):
            needs = "1 number" if single else "a number per class"
            instead = f'use "{OTHER[kind]}" if that is what they are'
            if kind == "probability":  # "probabilities" would be refused in turn, as they do not sum to 1
                instead += ", or one model per label if several labels can hold at once"
            raise InputError(
                f'`output` of as_model is "{kind}", which needs {needs}, but the module gives {outputs} per row; '
                f"{instead}."
            )
        labels = _check_classes(classes, max(2, outputs))
        value = check_probability(threshold, "threshold", "as_model")
        if len(labels) > 2 and value != 0.5:
            raise InputError(
                f"`threshold` of as_model only applies to two classes, but there are {len(labels)}; leave it out."
            )
        eps = float(torch.finfo(dtype).eps)
        if not eps < value < 1 - eps:
            raise InputError(f"`threshold` of as_model is {value!r}, which {dtype} cannot tell from 0 or 1.")
        return cls(kind, labels, value, eps)

    @property
    def offset(self) -> float:
        """What the score of class 1 of a binary module is compared with."""
        return math.log(self.threshold) - math.log1p(-self.threshold)

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
            raise InputError(
                '`output` of as_model is "probabilities", but those of a row do not sum to 1; several labels at once '
                "need one model per label."
            )


def _check_classes(classes: Sequence[Any] | None, count: int) -> tuple[Any, ...]:
    given = range(count) if classes is None else classes
    listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    labels = tuple(c.item() if isinstance(c, np.generic) else c for c in given) if listed else ()
    good = all(isinstance(c, str | int | float) and c == c for c in labels)
    if not good or len(labels) != count or len(set(labels)) != count:
        raise InputError(f"`classes` of as_model must hold {count} different texts or numbers, got {classes!r}.")
    return labels


def chosen_output(module: Any, output: str | None) -> str:
    """What the module gives: as the last layer says, else as the user does; refuse what contradicts it."""
    found = final_layer(module)
    told = None if found is None else found[2]
    last = type(module).__name__ if found is None else type(found[0][found[1]]).__name__
    if output is None and told is None:
        raise InputError(
            "`output` of as_model must say what the module's numbers are, since its last layer does not; pass "
            'apas.as_model(module, output=...) with "logit", "probability", "logits" or "probabilities" (a probability '
            "read as a logit would certify everything)."
        )
    if output is not None and output not in OUTPUTS:
        raise InputError(f"`output` of as_model must be one of {', '.join(map(repr, OUTPUTS))}, got {output!r}.")
    if output is not None and told is not None and output != told:
        raise InputError(
            f'`output` of as_model is "{output}", but the module ends in {last}, which gives "{told}"; leave it out.'
        )
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


def unhooked(module: Any) -> bool:
    """Whether calling the module does what its class says, and nothing that was hung onto it."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
