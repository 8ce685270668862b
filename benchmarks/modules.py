"""PyTorch modules: what a shifted module costs, and how much faster many small ones are together.

The floor for one shifted module is drawing its directions plus one forward pass of the module alone; writing the
shifted parameters down comes on top. `python -m benchmarks.modules` needs the extra `torch`.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call

import apas
from apas import LinfShifts, Sampling
from apas._random import Stream
from apas.certification.failing_draws import block_size
from apas.certification.question import Question
from apas.models.base import Model
from benchmarks.timing import interleaved, ratio

__all__ = ["bulk", "compare", "single"]

DELTA = 1e-4
_Array = NDArray[np.float64]


class Branched(nn.Module):  # type: ignore[misc]
    """Two linear layers with a way around them: no sequence, so that it goes through `torch.func`."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.last, self.around = nn.Linear(inputs, width), nn.Linear(width, 1), nn.Linear(inputs, 1)

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.last(torch.relu(self.first(x))) + self.around(x) + 50.0


class Picture(nn.Module):  # type: ignore[misc]
    """Two convolutions with batch norm and a linear layer, on pictures of 8 x 8."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(16 * channels, 1)

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.last(self.layers(x)) + 50.0


class Words(nn.Module):  # type: ignore[misc]
    """The mean of embedded words, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(30, 8), nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.last(self.embed(x).mean(dim=1)) + 50.0


class Attentive(nn.Module):  # type: ignore[misc]
    """One transformer layer on five triples of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(3, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.last(self.layer(self.into(x)).mean(dim=1)) + 50.0


def sequence(inputs: int, width: int) -> Any:
    """A dense sequence that says class 1 with room to spare."""
    net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 1))
    net[2].bias.data.fill_(50.0)
    return net


#: Module, shape of its input, and draws per call, for about 10^4 to 10^7 parameters.
SINGLE: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "sequence 1e4": (partial(sequence, 100, 100), (100,), 1379),
    "sequence 1e5": (partial(sequence, 300, 330), (300,), 1000),
    "sequence 1e6": (partial(sequence, 1000, 1000), (1000,), 59),
    "sequence 1e7": (partial(sequence, 3000, 3333), (3000,), 59),
    "branched 1e4": (partial(Branched, 100, 100), (100,), 1379),
    "branched 1e5": (partial(Branched, 300, 330), (300,), 1000),
    "branched 1e6": (partial(Branched, 1000, 1000), (1000,), 59),
    "branched 1e7": (partial(Branched, 3000, 3333), (3000,), 59),
    "picture 1e4": (partial(Picture, 30), (1, 8, 8), 1379),
    "picture 1e5": (partial(Picture, 100), (1, 8, 8), 1000),
    "picture 1e6": (partial(Picture, 330), (1, 8, 8), 59),
    "picture 1e7": (partial(Picture, 1050), (1, 8, 8), 59),
}
BULK: dict[str, tuple[Any, tuple[int, ...]]] = {
    "sequence": (partial(sequence, 8, 8), (8,)),
    "branched": (partial(Branched, 8, 8), (8,)),
    "picture": (partial(Picture, 4), (1, 8, 8)),
    "words": (Words, (6,)),
    "attentive": (Attentive, (5, 3)),
}


def single(rounds: int = 3) -> None:
    """Print the time per shifted module against drawing its directions plus one forward pass."""
    print(f"One shifted module, one row, one thread; median (min-max) over {rounds} rounds; at most 2 is asked for\n")
    print(f"{'module':14} {'parameters':>11} {'draw + pass us':>15} {'ours us':>9} {'/ draw + pass':>20}")
    for name, (make, shape, samples) in SINGLE.items():
        module, model, x = _problem(make, shape)
        floor, ours = interleaved(
            partial(draw_and_pass, module, model, x, shape, samples), partial(certify, model, x, samples), rounds=rounds
        )
        times = [1e6 * statistics.median(seconds) / samples for seconds in (floor, ours)]
        print(f"{name:14} {len(model.parameters):11,} {times[0]:15.0f} {times[1]:9.0f} {ratio(ours, floor):>20}")


def bulk(rounds: int = 5, samples: int = 2000) -> None:
    """Print how many times faster small modules are than a loop of `functional_call`."""
    print(f"Small modules, {samples} draws, one row, one thread; at least 20 times a loop is asked for\n")
    print(f"{'module':14} {'parameters':>11} {'loop us':>9} {'ours us':>9} {'x loop':>24}")
    for name, (make, shape) in BULK.items():
        module, model, x = _problem(make, shape)
        loop, ours = interleaved(
            partial(call_one_by_one, module, model, x, shape, samples), partial(certify, model, x, samples),
            rounds=rounds,
        )  # fmt: skip
        times = [1e6 * statistics.median(seconds) / samples for seconds in (loop, ours)]
        print(f"{name:14} {len(model.parameters):11,} {times[0]:9.1f} {times[1]:9.2f} {ratio(loop, ours):>24}")


def _problem(make: Any, shape: tuple[int, ...]) -> tuple[Any, Model, _Array]:
    torch.manual_seed(0)
    module = make().eval()
    x = np.random.default_rng(0).integers(0, 2, (1, int(np.prod(shape)))).astype(np.float64)
    return module, apas.as_model(module, output="logit", input_shape=shape), x


def certify(model: Model, x: _Array, samples: int, seed: int) -> None:
    """What is timed: the whole public call."""
    method = Sampling(coverage=0.95, confidence=0.95, n_samples=samples)
    if not apas.certify(model, x, DELTA, target=1, method=method, rng=seed).certified.all():
        raise AssertionError("the benchmark's rows must be certified, or fewer draws are made than are counted")


def draw_and_pass(module: Any, model: Model, x: _Array, shape: tuple[int, ...], samples: int, seed: int) -> None:
    """The floor: draw the same directions in the same blocks, and call the module as often."""
    step = block_size(Question(model, x, np.full(1, 1), np.full(1, DELTA), LinfShifts()))
    stream, rows = Stream(seed, "floor"), _rows(module, x, shape)
    with torch.no_grad():
        for start in range(0, samples, step):
            drawn = LinfShifts().directions(model.parameters, stream, start, min(start + step, samples))
            for _ in drawn:
                module(rows)


def call_one_by_one(module: Any, model: Model, x: _Array, shape: tuple[int, ...], samples: int, seed: int) -> None:
    """The baseline: `functional_call` with one shifted set of tensors after the other, as its documentation shows."""
    rows, stream = _rows(module, x, shape), Stream(seed, "loop")
    named = {name: p.detach() for name, p in module.named_parameters()}
    sizes = [p.numel() for p in named.values()]
    with torch.no_grad():
        directions = torch.from_numpy(LinfShifts().directions(model.parameters, stream, 0, samples).astype(np.float32))
        for direction in directions:
            parts = zip(named.items(), direction.split(sizes), strict=True)
            shifted = {name: p + DELTA * part.view(p.shape) for (name, p), part in parts}
            functional_call(module, shifted, (rows,))


def _rows(module: Any, x: _Array, shape: tuple[int, ...]) -> Any:
    return torch.tensor(x.reshape(-1, *shape), dtype=torch.int64 if isinstance(module, Words) else torch.float32)


def compare() -> None:
    """Print both tables, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        single()
        print()
        bulk()
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        compare()
