"""`.onnx` files: graphs of dense layers are read as what they compute, and all others are refused by name."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from conftest import absent
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import apas
from apas.models.digest import model_digest
from apas.models.forward import ACTIVATIONS

RNG = np.random.default_rng(0)
W0, B0 = RNG.normal(size=(2, 3)).astype(np.float32), RNG.normal(size=3).astype(np.float32)
W1, B1 = RNG.normal(size=(3, 1)).astype(np.float32), RNG.normal(size=1).astype(np.float32)
X = RNG.normal(size=(20, 2))


def graph(nodes, constants=(), *, shape=(None, 2), opset=20, out=(None, None), dtype=TensorProto.FLOAT, outputs=None):
    """A model of nodes (operator, inputs, output, settings) from "x" to "y"."""
    made = [helper.make_node(kind, given, [name], **settings) for kind, given, name, settings in nodes]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()]
    ends = [helper.make_tensor_value_info("x", dtype, shape), helper.make_tensor_value_info("y", dtype, out)]
    content = helper.make_graph(made, "g", ends[:1], ends[1:] if outputs is None else outputs, tensors)
    return helper.make_model(content, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


CONSTANTS = {"w0": W0, "b0": B0, "w1": W1, "b1": B1}


def layers(*between, last=(), **options):
    """Two layers with some nodes between and behind them."""
    nodes, value = [("Gemm", ["x", "w0", "b0"], "z0", {})], "z0"
    for i, (kind, *rest) in enumerate(between):
        more, settings = (rest[0] if rest else []), (rest[1] if len(rest) > 1 else {})
        nodes.append((kind, [value, *more], f"a{i}", settings))
        value = f"a{i}"
    nodes.append(("Gemm", [value, "w1", "b1"], "z1", {}))
    value = "z1"
    for i, (kind, *rest) in enumerate(last):
        nodes.append((kind, [value, *(rest[0] if rest else [])], f"c{i}", rest[1] if len(rest) > 1 else {}))
        value = f"c{i}"
    kind, given, _, settings = nodes[-1]
    nodes[-1] = (kind, given, "y", settings)
    constants = {**CONSTANTS, **options.pop("more", {})}
    return graph(nodes, constants, **options)


def loaded(model, tmp_path, **said):
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return apas.load_model(path, **said)


def answers(model, rows=X, name="x"):
    dtype = np.float64 if model.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE else np.float32
    return ReferenceEvaluator(model).run(None, {name: rows.astype(dtype)})[0]


LIMITS = {"low": np.float32(-1), "high": np.float32(1)}
HIDDEN = {
    "relu": (("Relu",), {}), "leaky_relu": (("LeakyRelu", [], {"alpha": 0.01}), {}), "tanh": (("Tanh",), {}),
    "hard_tanh": (("Clip", ["low", "high"]), LIMITS), "sigmoid": (("Sigmoid",), {}), "softplus": (("Softplus",), {}),
    "elu": (("Elu",), {}), "gelu": (("Gelu",), {}), "identity": (("Identity",), {}),
}  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_those_of_onnx(activation, tmp_path):
    node, more = HIDDEN[activation]
    model = layers(node, more=more)
    net = loaded(model, tmp_path, output="sigmoid")
    assert net.activations == (activation,)
    assert np.allclose(net.margin(X, 1), answers(model)[:, 0], rtol=1e-5, atol=1e-6)
    assert np.array_equal(net.weights[0], W0.astype(float))


SILENT = {
    "cast first": [("Cast", ["x"], "c", {"to": TensorProto.DOUBLE}), ("Cast", ["c"], "d", {"to": TensorProto.FLOAT}),
                   ("MatMul", ["d", "w0"], "m", {}), ("Add", ["m", "b0"], "y", {})],
    "bias first": [("MatMul", ["x", "w0"], "m", {}), ("Add", ["b0", "m"], "y", {})],
    "turned": [("Gemm", ["x", "wT", "b0"], "y", {"transB": 1})],
    "a bias as a row": [("MatMul", ["x", "w0"], "m", {}), ("Add", ["m", "row"], "y", {})],
    "flat": [("Flatten", ["x"], "f", {}), ("Gemm", ["f", "w0", "b0"], "y", {})],
    "reshaped": [("Reshape", ["x", "shape"], "f", {}), ("Gemm", ["f", "w0", "b0"], "y", {})],
    "dropout": [("Dropout", ["x"], "f", {}), ("Gemm", ["f", "w0", "b0"], "i", {}), ("Identity", ["i"], "y", {})],
    "a constant node": [("Constant", [], "k", {"value": numpy_helper.from_array(W0, "k")}), ("MatMul", ["x", "k"], "m", {}),
                        ("Add", ["m", "b0"], "y", {})],
}  # fmt: skip


@pytest.mark.parametrize("nodes", SILENT.values(), ids=SILENT)
def test_ways_to_write_a_layer(nodes, tmp_path):
    more = {"wT": W0.T, "row": B0[None], "shape": np.array([-1, 2])}
    model = graph(nodes, {**CONSTANTS, **more})
    net = loaded(model, tmp_path, output="softmax")
    assert np.array_equal(net.biases[0], B0.astype(float))
    found = np.stack([net.margin(X, c) for c in net.classes], axis=1)
    assert np.array_equal(found.argmax(axis=1), answers(model).argmax(axis=1))


def test_layers_without_biases(tmp_path):
    model = graph([("MatMul", ["x", "w0"], "m", {}), ("Gemm", ["m", "w1"], "y", {})], CONSTANTS)
    net = loaded(model, tmp_path, output="sigmoid")
    assert net.given_biases == (None, None)
    assert net.activations == ("identity",)


def test_the_end_says_what_the_numbers_are(tmp_path):
    assert loaded(layers(last=[("Sigmoid",)]), tmp_path).output == "sigmoid"
    wide = [("Gemm", ["x", "w0", "b0"], "z", {})]
    for kind in ("Softmax", "LogSoftmax"):
        assert loaded(graph([*wide, (kind, ["z"], "y", {"axis": -1})], CONSTANTS), tmp_path).output == "softmax"
        assert loaded(graph([*wide, (kind, ["z"], "y", {})], CONSTANTS, opset=11), tmp_path).output == "softmax"
    with pytest.raises(apas.InputError, match="`output` of load_model must say what the numbers of the last layer are"):
        loaded(layers(), tmp_path)
    with pytest.raises(apas.InputError, match="`output` of load_model is 'identity', but .* says 'sigmoid'"):
        loaded(layers(last=[("Sigmoid",)]), tmp_path, output="identity", threshold=0.5)
    net = loaded(layers(), tmp_path, output="identity", threshold=1.5, classes=["n", "y"], feature_names=["p", "q"])
    assert (net.threshold, net.classes, net.feature_names) == (1.5, ("n", "y"), ("p", "q"))


SCALE = {"s": np.float32(2)}
NORM = {
    "s": RNG.uniform(0.5, 2, 3), "c": RNG.normal(size=3), "m": RNG.normal(size=3), "v": RNG.uniform(0.3, 2, 3),
}  # fmt: skip
NORM = {name: array.astype(np.float32) for name, array in NORM.items()}
REFUSED = {
    "another node": (lambda: layers(("HardSwish",)), "it has the node HardSwish"),
    "scaled": (lambda: layers(("Mul", ["s"]), more=SCALE), "it has the node Mul"),
    "an Add on its own": (lambda: layers(("Relu",), ("Add", ["s"]), more=SCALE), "Add stands elsewhere"),
    "an Add of one value": (lambda: layers(("Relu",), ("Add", [])), "Add stands elsewhere"),
    "an Add after a bias": (lambda: layers(("Add", ["s"]), more=SCALE), "Add stands elsewhere"),
    "several labels": (lambda: graph([("Gemm", ["x", "w0", "b0"], "z", {}), ("Sigmoid", ["z"], "y", {})], CONSTANTS), "several labels at once"),
    "an end": (lambda: layers(last=[("Tanh",)]), "it ends in the node Tanh"),
    "behind the probabilities": (lambda: layers(last=[("Sigmoid",), ("Relu",)]), "Relu does not stand behind a layer|ends in the node Relu"),
    "alpha": (lambda: graph([("Gemm", ["x", "w0", "b0"], "y", {"alpha": 0.5})], CONSTANTS), "turns or scales its input"),
    "transA": (lambda: graph([("Gemm", ["x", "w0", "b0"], "y", {"transA": 1})], CONSTANTS), "turns or scales its input"),
    "a softmax over rows": (lambda: graph([("Gemm", ["x", "w0", "b0"], "z", {}), ("Softmax", ["z"], "y", {"axis": 0})], CONSTANTS), "does not run over the classes"),
    "an input of images": (lambda: graph([("MatMul", ["x", "w0"], "y", {})], CONSTANTS, shape=(None, 5, 2)), "its input has 3 dimensions"),
    "weights on the left": (lambda: graph([("MatMul", ["w0", "x"], "y", {})], CONSTANTS), "no constant matrix on its right side"),
    "no layer": (lambda: graph([("Relu", ["x"], "y", {})], {}), "ends in the node Relu"),
    "only values": (lambda: graph([("Add", ["x", "x"], "y", {})], {}), "it has no layer"),
    "an open end": (lambda: layers(("Clip", ["", "high"]), more={"high": np.float32(6)}), "Clip does not fit: clip has the settings"),
    "limits that cross": (lambda: layers(("Clip", ["low", "high"]), more={"low": np.float32(2), "high": np.float32(1)}), "Clip does not fit"),
    "a product": (lambda: graph([("Gemm", ["x", "w0", "b0"], "z", {}), ("Mul", ["z", "z"], "y", {})], CONSTANTS), "Mul brings 2 values together"),
    "a mask": (lambda: graph([("Gemm", ["x", "w0", "b0"], "z", {}), ("Softmax", ["z"], "s", {}), ("Gemm", ["s", "w1", "b1"], "y", {})], CONSTANTS), "a softmax stands between layers"),
    "statistics of the batch": (lambda: layers(("BatchNormalization", ["s", "c", "m", "v"], {"training_mode": 1}), more=NORM), "it has the node BatchNormalization"),
    "no variances": (lambda: layers(("BatchNormalization", ["s", "c", "m", "v"]), more={**NORM, "v": -NORM["v"]}), "a variance is no number above 0"),
    "a dropout that drops": (lambda: graph([("Dropout", ["x", "r", "t"], "d", {}), ("MatMul", ["d", "w0"], "y", {})], {**CONSTANTS, "r": np.float32(0.5), "t": np.array(True)}), "in training mode"),
    "two outputs": (lambda: graph([("MatMul", ["x", "w0"], "y", {})], CONSTANTS, outputs=[helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None]) for n in ("y", "x")]), "1 inputs and 2 outputs"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_other_graphs_are_refused(make, message, tmp_path):
    with pytest.raises(apas.Unsupported, match=f"is not a graph of dense layers: .*({message})"):
        loaded(make(), tmp_path, output="softmax")


SLOPES = {"k": np.array([0.2, -0.3, 1.5], dtype=np.float32)}
CHAINS = {
    "a slope": (("LeakyRelu", [], {"alpha": 0.2}),), "a slope above 1": (("LeakyRelu", [], {"alpha": 1.5}),),
    "a negative slope": (("LeakyRelu", [], {"alpha": -0.3}),), "an ELU": (("Elu", [], {"alpha": 0.5}),),
    "a GELU by tanh": (("Gelu", [], {"approximate": "tanh"}),), "ReLU6": (("Clip", ["l", "h"]),), "PReLU": (("PRelu", ["k"]),),
    "PReLU of one slope": (("PRelu", ["one"]),), "two activations": (("Relu",), ("Tanh",)),
    "a batch norm": (("BatchNormalization", ["s", "c", "m", "v"]), ("Relu",)),
    "one after the unit": (("Relu",), ("BatchNormalization", ["s", "c", "m", "v"], {"epsilon": 1e-3})),
    "SiLU": (), "a bias after the unit": (("Relu",), ("Add", ["c"])),
}  # fmt: skip
MORE = {**NORM, **SLOPES, "one": np.array([0.25], dtype=np.float32), "l": np.float32(0), "h": np.float32(6)}


def in_float64(model):
    """The same graph with every number in double precision."""
    wide = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for end in (*wide.graph.input, *wide.graph.output):
        end.type.tensor_type.elem_type = TensorProto.DOUBLE
    return wide


def moved(model, read, move):
    """The graph with other numbers in the constants that move."""
    other = onnx.ModelProto.FromString(model.SerializeToString())
    parts = dict(zip(read.parameters.names, read.parameters.split(read.parameters.values + move), strict=True))
    for tensor in other.graph.initializer:
        if tensor.name in parts:
            tensor.CopyFrom(numpy_helper.from_array(parts[tensor.name], tensor.name))
    return other


def residual(*between):
    """x + layer(between(layer(x))), then a layer."""
    w2, b2, w3 = (RNG.normal(size=s).astype(np.float32) for s in ((3, 2), (2,), (2, 1)))
    nodes, value = [("Gemm", ["x", "w0", "b0"], "z0", {})], "z0"
    for i, (kind, *rest) in enumerate(between):
        nodes.append((kind, [value, *(rest[0] if rest else [])], f"a{i}", rest[1] if len(rest) > 1 else {}))
        value = f"a{i}"
    if not between:  # a SiLU is two nodes
        nodes += [("Sigmoid", ["z0"], "q", {}), ("Mul", ["z0", "q"], "p", {})]
        value = "p"
    nodes += [("MatMul", [value, "w2"], "n", {}), ("Add", ["n", "b2"], "o", {}), ("Add", ["o", "x"], "r", {})]
    return graph([*nodes, ("MatMul", ["r", "w3"], "y", {})], {**CONSTANTS, **MORE, "w2": w2, "b2": b2, "w3": w3})


@pytest.mark.parametrize("between", CHAINS.values(), ids=CHAINS)
def test_residual_graphs_with_every_activation(between, tmp_path):
    model, rng = in_float64(residual(*between)), np.random.default_rng(1)
    read = loaded(model, tmp_path, output="sigmoid")
    moves = np.vstack([np.zeros(len(read.parameters)), rng.uniform(-0.1, 0.1, (6, len(read.parameters)))])
    ours = read.shifted_margins(X, 1, moves, 1.0)
    theirs = np.stack([answers(moved(model, read, move))[:, 0] for move in moves])
    # the definition of the one has constants in float32, of which the model knows
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-7 if read.dtype == "float32" else 1e-10)
    assert (read.dtype == "float32") == (between[:1] == (("Gelu", [], {"approximate": "tanh"}),))
    assert set(read.parameters.names) <= {"w0", "b0", "w2", "b2", "w3", "s", "c", "k", "one"}
    rows = X[np.abs(theirs[0]) > 0.2][:4]
    least = np.abs(read.shifted_margins(rows, 1, np.sign(rng.normal(size=(300, moves.shape[1]))), 0.01)).min(axis=0)
    smooth = any(node[0] in ("Elu", "Gelu", "Tanh") for node in between) or not between
    for method in ("interval", "linear", "attack", "exact"):
        if method == "exact" and (smooth or read.dense_chain().tied):
            with pytest.raises(apas.Unsupported):
                apas.certify(read, rows, 0.01, target="predicted", method=method)
            continue
        found = apas.certify(read, rows, 0.01, target="predicted", method=method, rng=0)
        assert all(
            c.evidence.bound is None or c.evidence.bound <= low + 1e-12 for c, low in zip(found, least, strict=True)
        )
        assert all(c.witness is None for c in found if c.is_certified)
    assert model_digest(read) == model_digest(loaded(model, tmp_path, output="sigmoid"))
    single = loaded(residual(*between), tmp_path, output="sigmoid")
    assert single.dtype == "float32"
    with pytest.raises(apas.Unsupported, match="is not a dense network"):
        apas.save_model(single, tmp_path / "again.onnx")


def test_tied_constants_move_together(tmp_path):
    eye, nodes = (
        np.eye(2),
        [("Gemm", ["x", "w", "b"], "z", {}), ("Relu", ["z"], "a", {}), ("Gemm", ["a", "w", "b"], "y", {})],
    )
    model = graph(nodes, {"w": eye + 0.1, "b": np.ones(2)}, dtype=TensorProto.DOUBLE)
    read = loaded(model, tmp_path, output="softmax")
    assert (read.parameters.names, len(read.parameters)) == (("w", "b"), 6)
    assert read.dense_chain().tied == "w, b are used more than once"
    move = np.random.default_rng(0).uniform(-0.1, 0.1, 6)
    theirs = answers(moved(model, read, move))
    ours = read.shifted_margins(X, 1, move[None], 1.0)[0]
    np.testing.assert_allclose(ours, theirs[:, 1] - theirs[:, 0], atol=1e-12)
    with pytest.raises(apas.Unsupported, match="used more than once"):
        apas.certify(read, X[:2], 1e-3, target="predicted", method="exact")


def test_pytorch_exports_of_ordinary_modules(tmp_path):
    try:
        import torch
        from torch import nn
    except ModuleNotFoundError:
        absent("torch", "PyTorch is not installed: make test TORCH=1")

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
            self.out, self.units = nn.Linear(2, 1), nn.Sequential(nn.SiLU(), nn.PReLU(), nn.ReLU6(), nn.Dropout())

        def forward(self, x):
            return self.out(x + self.last(self.units(self.norm(self.first(x)))))

    torch.manual_seed(0)
    module = Block().double().eval()
    module.norm.running_mean.normal_()
    module.norm.running_var.uniform_(0.5, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this way of exporting needs no other package, but is the older one
        torch.onnx.export(module, (torch.zeros(1, 2).double(),), str(tmp_path / "net.onnx"), dynamo=False,
                          do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE)  # fmt: skip
    net, traced = apas.load_model(tmp_path / "net.onnx", output="sigmoid"), apas.as_model(module, output="logit")
    assert np.allclose(net.margin(X, 1), traced.margin(X, 1), atol=1e-9)
    assert sorted(net.parameters.names) == sorted(traced.parameters.names)


DAMAGED = {
    "an input of another width": (lambda: graph([("MatMul", ["x", "w0"], "y", {})], CONSTANTS, shape=(None, 7)), "its input has 7 numbers per row, but its first layer takes 2"),
    "biases of another width": (lambda: graph([("Gemm", ["x", "w0", "w1"], "y", {})], CONSTANTS), "a layer of 3 outputs has biases of shape .3, 1."),
    "one bias for all": (lambda: graph([("Gemm", ["x", "w0", "b1"], "y", {})], CONSTANTS), "a layer of 3 outputs has biases of shape .1,."),
    "an unknown name": (lambda: graph([("Gemm", ["u", "w0", "b0"], "y", {})], CONSTANTS), "'u' comes from nowhere"),
    "layers that do not fit": (lambda: graph([("Gemm", ["x", "w0", "b0"], "z", {}), ("MatMul", ["z", "v"], "y", {})], {**CONSTANTS, "v": W0}), "`weights.1.` of FeedForward must have 3 rows"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), DAMAGED.values(), ids=DAMAGED)
def test_what_does_not_fit_together(make, message, tmp_path):
    with pytest.raises(apas.InputError, match=f"does not hold a usable network: .*{message}"):
        loaded(make(), tmp_path, output="softmax")


# -- what we write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("output", ["sigmoid", "softmax", "identity"])
def test_written_graphs_compute_the_network(activation, output, tmp_path):
    outputs = 3 if output == "softmax" else 1
    weights = [RNG.normal(size=s) for s in ((2, 4), (4, 3), (3, outputs))]
    net = apas.FeedForward(weights, [RNG.normal(size=4), None, None], activation=[activation, "relu"], output=output)
    apas.save_model(net, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model, full_check=True)
    found = answers(model, name="input")
    if output == "softmax":
        ours = np.stack([net.margin(X, c) for c in net.classes], axis=1)
        assert np.array_equal(ours.argmax(axis=1), found.argmax(axis=1))
        return
    if output == "sigmoid":
        found = np.log(found) - np.log1p(-found)
    # an alpha is a float32, also beside doubles
    assert np.allclose(net.margin(X, 1) + net.offset, found[:, 0], rtol=1e-6, atol=1e-9)


def test_metadata_that_contradicts_the_graph(tmp_path):
    apas.save_model(apas.FeedForward([W0, W1], [B0, B1], activation="tanh"), tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    for old, new, name in (("tanh", "relu", "activation"), ("sigmoid", "identity", "output")):
        changed = onnx.ModelProto.FromString(model.SerializeToString())
        changed.metadata_props[0].value = changed.metadata_props[0].value.replace(old, new)
        with pytest.raises(apas.InputError, match=f"`{name}` of load_model is .*{new}.*, but .* says .*{old}"):
            loaded(changed, tmp_path)


# -- numbers in other files --------------------------------------------------------------------------------------


def test_numbers_beside_the_file(tmp_path):
    model = layers(("Relu",), last=[("Sigmoid",)])
    expected = model_digest(loaded(model, tmp_path))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    assert (tmp_path / "net.onnx.data").stat().st_size
    assert model_digest(apas.load_model(tmp_path / "net.onnx")) == expected
    (tmp_path / "net.onnx.data").write_bytes(b"")
    with pytest.raises(apas.InputError, match="must have 12 bytes of numbers in 'net.onnx.data' for 'w1', but has not"):
        apas.load_model(tmp_path / "net.onnx")


# -- second opinions ---------------------------------------------------------------------------------------------


def onnxruntime():
    try:
        import onnxruntime
    except ModuleNotFoundError:
        absent("onnxruntime", "onnxruntime is not installed: pip install 'apas[onnx]'")
    return onnxruntime


@pytest.mark.parametrize("activation", ["relu", "hard_tanh", "tanh", "sigmoid", "identity"])
def test_onnxruntime_agrees_with_what_we_write(activation, tmp_path):
    library = onnxruntime()
    net = apas.FeedForward([W0, W1], [B0, B1], activation=activation)
    apas.save_model(net, tmp_path / "net.onnx")
    session = library.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {"input": X})[0][:, 0]
    assert np.allclose(np.log(found) - np.log1p(-found), net.margin(X, 1), rtol=1e-9, atol=1e-12)


def test_a_network_that_onnxruntime_contradicts_is_refused(tmp_path, monkeypatch):
    onnxruntime()
    from apas.models.files import onnx as module

    model = layers(("Relu",), last=[("Sigmoid",)])
    loaded(model, tmp_path)
    taken_apart = module._taken_apart

    def misread(*given):
        graph = taken_apart(*given)
        return type(graph)(
            **{
                **vars(graph),
                "attributes": lambda node: {
                    **graph.attributes(node),
                    "transB": node.op_type == "Gemm" and "w2" in node.input,
                },
            }
        )

    square = graph_of_square()
    loaded(square, tmp_path)
    monkeypatch.setattr(module, "_taken_apart", misread)
    with pytest.raises(apas.InputError, match="gives other numbers in onnxruntime"):
        loaded(square, tmp_path)


def graph_of_square():
    nodes = [("Gemm", ["x", "w2", ""], "z", {}), ("Softmax", ["z"], "y", {"axis": -1})]
    return graph(nodes, {"w2": np.array([[1.0, 2.0], [-3.0, 0.5]], dtype=np.float32)})


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("labels", ["numbers", "texts", "three"])
def test_scikit_learn_through_its_converter(labels, zipmap, tmp_path):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from skl2onnx import to_onnx
    except ModuleNotFoundError:
        absent("skl2onnx", "skl2onnx is not installed: pip install skl2onnx")
    from sklearn.neural_network import MLPClassifier

    rows = np.random.default_rng(1).normal(size=(80, 2)).astype(np.float32)
    y = {
        "numbers": (rows[:, 0] > 0) * 2 + 3,
        "texts": np.where(rows[:, 0] > 0, "yes", "no"),
        "three": np.digitize(rows[:, 0], [-0.5, 0.5]),
    }
    mlp = MLPClassifier((4,), max_iter=300, tol=0.05, random_state=0).fit(rows, y[labels])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = to_onnx(mlp, rows[:1], options={"zipmap": zipmap})
    net = loaded(model, tmp_path)
    assert net.classes == apas.as_model(mlp).classes
    assert np.allclose(net.parameters.values, apas.as_model(mlp).parameters.values, rtol=1e-6)
    assert apas.certify(net, rows[:5], 0.01, target="predicted", rng=0).certified.any()


def test_pytorch_exports(tmp_path):
    try:
        import torch
        from torch import nn
    except ModuleNotFoundError:
        absent("torch", "PyTorch is not installed: make test TORCH=1")
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(2, 4), nn.LeakyReLU(), nn.Linear(4, 4, bias=False), nn.Hardtanh(), nn.Dropout(),
        nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2), nn.ELU(), nn.Linear(2, 1), nn.Sigmoid(),
    ).eval()  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this way of exporting needs no other package, but is the older one
        torch.onnx.export(module, (torch.zeros(1, 2),), str(tmp_path / "net.onnx"), dynamo=False)
    net = apas.load_model(tmp_path / "net.onnx")
    assert model_digest(net) == model_digest(apas.as_model(module))


def test_nodes_that_go_nowhere_do_no_harm(tmp_path):
    from hostile_files import NETWORK, onnx_model

    model = onnx_model()
    model.graph.node.add(op_type="Constant").attribute.add(name="value", type=4).t.CopyFrom(model.graph.initializer[0])
    model.graph.node.add(op_type="ArrayFeatureExtractor", output=["label"])  # of nothing
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert model_digest(apas.load_model(tmp_path / "net.onnx")) == model_digest(NETWORK)
