"""The table of which module and which set gets which method: every cell of it is asked for."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import absent

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


def table(first, models):
    """Rows of a table, one per model, as the page must have it."""
    lines = [f"| {first} | {' | '.join(SETS)} |", f"|---|{'---|' * len(SETS)}"]
    for words, model in models.items():
        cells = [answering(model, shifts) for shifts in SETS.values()]
        shown = ["all" if len(cell) == len(METHODS) else ", ".join(cell) for cell in cells]
        lines.append(f"| {words} | {' | '.join(shown)} |")
    return "\n".join(lines)


def check(found):
    assert found in PAGE.read_text(encoding="utf-8"), f"docs/models.md must have this table:\n{found}"


def test_the_table_of_methods_is_what_they_do():
    torch.manual_seed(0)
    read = {words: apas.as_model(m.double().eval(), output="logit", input_shape=(3,)) for words, m in MODULES.items()}
    check(table("Module", read))


def keras_models():
    """Keras's models of the same kinds."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    try:
        keras = importlib.import_module("keras")
    except ModuleNotFoundError as missing:
        absent("keras", f"{missing.name} is not installed, which Keras needs: pip install 'apas[keras,torch]'")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    given, dense = keras.Input((3,)), lambda: layers.Dense(3)
    shared = dense()
    between = {
        "`Dense` layers with the activations of `FeedForward`": [layers.ReLU(), layers.Dropout(0.5)],
        "with `BatchNormalization`": [layers.BatchNormalization(), layers.ReLU()],
        "with a residual `Add`": None,
        "with `LeakyReLU`, `PReLU`, `relu6`, `ReLU(max_value)`": [
            layers.LeakyReLU(0.2), dense(), layers.PReLU(), dense(), layers.Activation("relu6"), dense(), layers.ReLU(2.0)
        ],
        "with `ELU`, `swish`, several hidden layers": [layers.ELU(0.5), dense(), layers.Activation("swish")],
        "with a `Dense` layer that is used twice": [shared, layers.ReLU(), shared, layers.ReLU()],
        "with any other layer, such as `LayerNormalization`, where Keras computes with PyTorch": [layers.LayerNormalization()],
    }  # fmt: skip
    for words, some in between.items():
        value = given if "twice" in words else dense()(given)
        for layer in some or [layers.ReLU(), dense()]:
            value = layer(value)
        value = value if some is not None else layers.Add()([given, value])
        yield f"Keras: {words}", apas.as_model(keras.Model(given, layers.Dense(1)(value)), output="logit")


def onnx_models(folder):
    """Graphs of the same kinds."""
    from onnx import TensorProto, helper, numpy_helper

    rng, numbers = np.random.default_rng(0), {"low": np.float64(0), "high": np.float64(6)}
    numbers |= {name: rng.normal(size=(3, 3)) for name in ("w0", "w1", "w2")} | {"end": rng.normal(size=(3, 1))}
    numbers |= {name: rng.uniform(0.3, 1.0, 3) for name in ("s", "b", "m", "v", "k")}
    two = [("MatMul", "w1")]
    between = {
        "`Gemm` or `MatMul` with the activations of `FeedForward`": [("Relu",)],
        "with `BatchNormalization`": [("BatchNormalization", "s", "b", "m", "v"), ("Relu",)],
        "with a residual `Add`": [("Relu",), *two, ("Add", "x")],
        "with `LeakyRelu`, `PRelu`, `Clip`": [("PRelu", "k"), *two, ("Clip", "low", "high")],
        "with `Elu`, `Gelu`, several hidden layers": [("Elu",), *two, ("Gelu",)],
        "with a constant that is used twice": [("Relu",), ("MatMul", "w0"), ("Relu",)],
    }
    for words, some in between.items():
        nodes, value = [], "x"
        for i, (kind, *more) in enumerate([("MatMul", "w0"), *some, ("MatMul", "end")]):
            nodes.append(helper.make_node(kind, [value, *more], [f"v{i}"]))
            value = f"v{i}"
        ends = [
            helper.make_tensor_value_info(name, TensorProto.DOUBLE, [None, n]) for name, n in (("x", 3), (value, 1))
        ]
        tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        (folder / "net.onnx").write_bytes(model.SerializeToString())
        yield f"ONNX: {words}", apas.load_model(folder / "net.onnx", output="sigmoid")


def test_the_table_of_other_readers_is_what_they_do(tmp_path):
    check(table("Read from", dict([*keras_models(), *onnx_models(tmp_path)])))
