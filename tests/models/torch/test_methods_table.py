"""The table of which module and which set gets which method: every cell of it is asked for."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="make test TORCH=1")
from torch import nn  # noqa: E402

import apas  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


class Ordinary(nn.Module):
    """Two dense layers, and what is given between them; `more` adds what went in."""

    def __init__(self, *between, more=False):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(3, 3), nn.Sequential(*between), nn.Linear(3, 1)
        self.more = more

    def forward(self, x):
        inner = self.between(self.first(x))
        return self.last(x + inner if self.more else inner)


class Twice(Ordinary):
    def forward(self, x):
        return self.last(torch.relu(self.first(torch.relu(self.first(x)))))


MODULES = {
    "`nn.Sequential` of dense layers, default settings": nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)),
    "a class of your own, one hidden layer": Ordinary(nn.ReLU(), nn.Dropout()),
    "with `BatchNorm1d`": Ordinary(nn.BatchNorm1d(3), nn.ReLU()),
    "with a residual addition": Ordinary(nn.ReLU(), nn.Linear(3, 3), more=True),
    "with `LeakyReLU`, `PReLU` per unit, `ReLU6`, `Hardtanh`": Ordinary(
        nn.LeakyReLU(0.2), nn.Linear(3, 3), nn.PReLU(3), nn.Linear(3, 3), nn.ReLU6(), nn.Linear(3, 3), nn.Hardtanh(-0.5, 2.0)
    ),
    "with `ELU`, `GELU`, `SiLU`, several hidden layers": Ordinary(nn.ELU(0.5), nn.Linear(3, 3), nn.GELU("tanh"), nn.Linear(3, 3), nn.SiLU()),
    "with `Softplus`": Ordinary(nn.Softplus()),
    "with a parameter that is used twice, such as the one slope of `PReLU()`": Twice(),
    "with any other layer, such as `LayerNorm` or a convolution": Ordinary(nn.LayerNorm(3)),
}  # fmt: skip
SETS = {
    "`LinfShifts`": apas.LinfShifts(),
    "`LpShifts`": apas.LpShifts(2),
    "`SparseShifts`": apas.SparseShifts(1),
    "`InputNoise`": apas.InputNoise(),
    "`JointShifts`": apas.JointShifts(),
}
METHODS = ("sampling", "interval", "linear", "attack", "exact", "enumeration")


def answering(model, shifts):
    """The methods that answer a question about a row, in their order."""
    found = []
    for method in METHODS:
        how = {"enumeration": apas.Enumeration(max_boxes=4), "exact": apas.Exact(time_limit=5.0)}.get(method, method)
        how = apas.Sampling(coverage=0.5, confidence=0.5) if method == "sampling" else how
        try:
            certificate = apas.certify(
                model, [[0.3, -0.2, 0.5]], 1e-4, target="predicted", shifts=shifts, method=how, rng=0
            )
        except apas.Unsupported:
            continue
        assert certificate[0].verdict is not None
        found.append(method)
    return found


def test_the_table_of_methods_is_what_they_do():
    torch.manual_seed(0)
    lines = [f"| Module | {' | '.join(SETS)} |", f"|---|{'---|' * len(SETS)}"]
    for words, module in MODULES.items():
        model = apas.as_model(module.double().eval(), output="logit", input_shape=(3,))
        cells = [answering(model, shifts) for shifts in SETS.values()]
        shown = ["all" if len(cell) == len(METHODS) else ", ".join(cell) for cell in cells]
        lines.append(f"| {words} | {' | '.join(shown)} |")
    table = "\n".join(lines)
    assert table in PAGE.read_text(encoding="utf-8"), f"docs/models.md must have this table:\n{table}"
