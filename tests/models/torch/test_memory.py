"""Large modules: certifying takes less than 1 GiB beyond the module itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch_modules  # noqa: F401 - skips without PyTorch

#: Runs in a process of its own, since the system only tells the highest memory a process ever had.
CODE = """
import resource
import sys

import numpy as np
import torch
from torch import nn

import apas

torch.set_num_threads(1)
torch.manual_seed(0)


class Branched(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.first, self.last, self.around = nn.Linear(inputs, width), nn.Linear(width, 1), nn.Linear(inputs, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x))) + self.around(x) + 20.0


class Picture(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one, self.norm = nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.two, self.last = nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.Linear(channels, 1)

    def forward(self, x):
        x = torch.relu(self.two(torch.relu(self.norm(self.one(x)))))
        return self.last(x.mean(dim=(2, 3))) + 20.0


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


kind, size, rows, samples = sys.argv[1], *map(int, sys.argv[2:])
X = np.random.default_rng(0).random((rows, 768 if kind == "picture" else size))
if kind == "picture":
    module, options = Picture(size), {"input_shape": (3, 16, 16)}
elif kind == "branched":
    module, options = Branched(size, size), {}
else:
    module, options = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1)), {}
    module[2].bias.data.fill_(20.0)
module.eval()
with torch.no_grad():  # the libraries take their own memory on first use
    module(torch.tensor(X[:2], dtype=torch.float32).reshape(-1, *options.get("input_shape", (size,))))
before = peak()
model = apas.as_model(module, output="logit", **options)
method = apas.Sampling(coverage=0.5, confidence=0.9, n_samples=samples)
certificates = apas.certify(model, X, 1e-4, target=1, method=method, rng=0)
assert certificates.certified.all()
print(len(model.parameters), peak() - before)
"""


@pytest.mark.parametrize(
    ("kind", "size", "rows", "samples", "parameters"),
    [
        ("branched", 1000, 3000, 5, 1_000_000),
        ("picture", 330, 64, 5, 900_000),
        pytest.param("branched", 1000, 1, 200, 1_000_000, marks=pytest.mark.validity),
        pytest.param("sequence", 3162, 1, 10, 10_000_000, marks=pytest.mark.validity),
        pytest.param("branched", 3162, 1, 10, 10_000_000, marks=pytest.mark.validity),
        pytest.param("picture", 1050, 4, 5, 9_900_000, marks=pytest.mark.validity),
    ],
)
def test_memory_of_large_modules(tmp_path: Path, kind, size, rows, samples, parameters):
    script = tmp_path / "large.py"
    script.write_text(CODE)
    command = [sys.executable, str(script), kind, *map(str, (size, rows, samples))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    count, taken = map(int, done.stdout.split())
    assert count >= parameters
    assert taken < 1 << 30, f"{taken / 2**20:.0f} MiB"
