"""PyTorch modules of many kinds, with rows to ask them about and a shift applied by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from conftest import absent

try:
    import torch
except ModuleNotFoundError:
    absent("torch", "PyTorch is not installed: make test TORCH=1")
from torch import nn

import apas

# several test processes share the cores, and threads that wait for each other cost more than they save
torch.set_num_threads(1)


class Branched(nn.Module):
    """Not a sequence, so never a dense network to us."""

    def __init__(self, inputs=5, width=7, outputs=1):
        super().__init__()
        self.first, self.last, self.around = (
            nn.Linear(inputs, width),
            nn.Linear(width, outputs),
            nn.Linear(inputs, outputs),
        )

    def forward(self, x):
        return self.last(torch.relu(self.first(x))) + self.around(x)


class Picture(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.one, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.two, self.last = nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Linear(6 * 9, outputs)
        self.norm.running_mean.normal_(0, 0.3)
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        x = torch.relu(self.norm(self.one(x)))
        return self.last(torch.relu(self.two(x)).flatten(1))


class Words(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.embed, self.last = nn.Embedding(12, 5), nn.Linear(5, outputs)

    def forward(self, x):
        return self.last(self.embed(x).mean(dim=1))


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.last = nn.Linear(3, 8), nn.Linear(8, 1)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True), 2, enable_nested_tensor=False
        )

    def forward(self, x):
        return self.last(self.layers(self.into(x)).mean(dim=1))


class Tied(nn.Module):
    """The same matrix three times, under three names."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.two.weight = self.one.weight
        self.again = self.one.weight

    def forward(self, x):
        return self.last(torch.tanh(self.two(torch.tanh(self.one(x)))) @ self.again)


class TwoHeads(nn.Module):
    """A trunk with one head per class."""

    def __init__(self):
        super().__init__()
        self.trunk, self.no, self.yes = nn.Linear(4, 6), nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x):
        h = nn.functional.gelu(self.trunk(x))
        return torch.cat([self.no(h), self.yes(h)], dim=1)


class Forked(nn.Module):
    """Control flow that depends on values, which vmap cannot follow."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 4), nn.Linear(4, 1)

    def forward(self, x):
        rows = [h if float(h.detach().sum()) > 0 else -0.5 * h for h in self.first(x)]
        return self.last(torch.stack(rows)).squeeze(-1)


class Recurrent(nn.Module):
    """An operation that vmap has no rule for."""

    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.GRU(3, 5, batch_first=True), nn.Linear(5, 1)

    def forward(self, x):
        return self.last(self.cells(x)[0][:, -1])


class Probable(nn.Module):
    """A probability, and an answer to a single row that has no dimensions at all."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 7), nn.Linear(7, 1)

    def forward(self, x):
        return torch.sigmoid(self.last(torch.relu(self.first(x)))).squeeze()


class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return torch.softmax(self.last(torch.tanh(self.first(x))), dim=-1)


class Rude(nn.Module):
    """Writes into its input, and into numbers of its own."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 1)
        self.register_buffer("mean", torch.full((5,), 0.3))

    def forward(self, x):
        x -= self.mean
        x.mul_(2.0)
        return self.last(x)


class Twice(nn.Module):
    """The same layer twice."""

    def __init__(self):
        super().__init__()
        self.one, self.last = nn.Linear(5, 5), nn.Linear(5, 1)
        self.layers = nn.Sequential(self.one, nn.Tanh(), self.one, nn.Tanh(), self.last)

    def forward(self, x):
        return self.layers(x)


def ends_in_sigmoid():
    return nn.Sequential(nn.Unflatten(1, (1, 6, 6)), Picture(1), nn.Sigmoid(), nn.Flatten(0))


@dataclass(frozen=True)
class Case:
    make: Callable
    output: str | None
    shape: tuple[int, ...]
    words: int = 0
    slow: bool = False  # vmap cannot handle it


CASES = {
    "branched": Case(Branched, "logit", (5,)),
    "conv and batch norm": Case(Picture, "logits", (1, 6, 6)),
    "conv to a sigmoid": Case(ends_in_sigmoid, None, (36,)),
    "transformer": Case(Attentive, "logit", (4, 3)),
    "embedding and mean": Case(Words, "logits", (6,), words=12),
    "tied weights": Case(Tied, "logit", (6,)),
    "the same layer twice": Case(Twice, "logit", (5,)),
    "two heads": Case(TwoHeads, "logits", (4,)),
    "four classes": Case(lambda: Branched(4, 6, 4), "logits", (4,)),
    "control flow": Case(Forked, "logit", (5,), slow=True),
    "recurrent": Case(Recurrent, "logit", (4, 3), slow=True),
    "probability": Case(Probable, "probability", (5,)),
    "probabilities": Case(Shares, "probabilities", (4,)),
    "writes into its input": Case(Rude, "logit", (5,)),
}


def module_of(case: Case, dtype=None, seed: int = 0):
    torch.manual_seed(seed)
    return case.make().to(torch.float32 if dtype is None else dtype).eval()


def rows_of(case: Case, count: int = 9, seed: int = 0):
    rng = np.random.default_rng(seed)
    size = (count, int(np.prod(case.shape)))
    return rng.integers(0, case.words, size).astype(float) if case.words else rng.normal(size=size)


def model_of(case: Case, module, **options):
    return apas.as_model(module, output=case.output, input_shape=case.shape, **options)


def by_hand(case: Case, module, X, direction, delta):
    """Margins towards the last class after a shift is written into a copy of the module."""
    copied, start = copy.deepcopy(module), 0
    with torch.no_grad():
        for p in copied.parameters():
            step = torch.from_numpy(direction[start : start + p.numel()].reshape(p.shape))
            p.copy_(p.double() + delta * step)
            start += p.numel()
        assert start == len(direction)
        x = torch.tensor(X.reshape(-1, *case.shape), dtype=torch.int64 if case.words else p.dtype)
        raw = copied(x).double().numpy().reshape(len(X), -1)
    if case.output in ("probability", None):
        return np.log(raw[:, 0]) - np.log1p(-raw[:, 0])
    raw = np.log(raw) if case.output == "probabilities" else raw
    return raw[:, -1] - raw[:, :-1].max(axis=1) if raw.shape[1] > 1 else raw[:, 0]


def state(module):
    """All that can be seen of a module, bit by bit."""
    tensors = {name: (t.numpy().tobytes(), t.dtype, t.stride()) for name, t in module.state_dict().items()}
    flags = [(name, p.requires_grad, p.grad, id(p)) for name, p in module.named_parameters(remove_duplicate=False)]
    return tensors, flags, [(name, m.training) for name, m in module.named_modules()]
