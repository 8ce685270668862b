"""A second opinion on an ONNX file: onnxruntime's, where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.models.onnx import Chain, Graph
from apas.models.passes import scores

__all__ = ["check_with_onnxruntime"]

ROWS = 8
#: How many units of rounding the numbers may differ by, in proportion to the magnitudes behind them.
UNITS = 64
_DTYPES: dict[str, Any] = {"tensor(float)": np.float32, "tensor(double)": np.float64}


def check_with_onnxruntime(path: Path, model: Any, graph: Graph, chain: Chain, network: FeedForward) -> None:
    """Compare the numbers of the last layer on a few rows; do nothing if onnxruntime is absent or cannot run them.

    What it gets is a graph of the layers that were read and their numbers, not the file.
    """
    try:
        import onnxruntime
    except ImportError:
        return
    session = _session(onnxruntime, model, graph, chain)
    given = None if session is None else session.get_inputs()[0]
    if given is None or given.type not in _DTYPES:
        return
    rows = np.random.default_rng(0).normal(size=(ROWS, network.n_features)).astype(_DTYPES[given.type])
    shape = [n if isinstance(n, int) else -1 for n in given.shape[1:]] if chain.flattens else [-1]
    try:  # a file may have a fixed number of rows, so that they go in one by one
        found = [session.run(None, {given.name: row.reshape(1, *shape)})[0].ravel() for row in rows]
    except Exception as error:  # noqa: BLE001  (its errors have no common class)
        raise InputError(f"{path} cannot be run by onnxruntime, so apas refuses it: {type(error).__name__}.") from None
    ours = scores(network.weights, network.biases, network.activations, rows.astype(np.float64))
    still, precise = np.zeros(len(network.parameters)), network.with_dtype("float64")
    size = precise.margin_scale(rows.astype(np.float64), still)[:, None]
    band = UNITS * np.finfo(found[0].dtype).eps * size
    if any(len(row) != ours.shape[1] for row in found) or not (np.abs(np.stack(found) - ours) <= band).all():
        raise InputError(
            f"{path} gives other numbers in onnxruntime than the network that apas read from it, so apas refuses it; "
            "please report this file."
        )


def _session(onnxruntime: Any, model: Any, graph: Graph, chain: Chain) -> Any:
    from onnx import helper, numpy_helper

    names = {name for node in chain.nodes for name in node.input if name}
    kept = {name: graph.constant(name) for name in names}
    tensors = [numpy_helper.from_array(np.array(array), name) for name, array in kept.items() if array is not None]
    inputs = [i for i in model.graph.input if i.name in graph.inputs]
    last = helper.make_empty_tensor_value_info(chain.nodes[-1].output[0])
    layers = helper.make_graph(chain.nodes, "layers", inputs, [last], tensors)
    opsets = [entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    pruned = helper.make_model(layers, opset_imports=opsets, ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(pruned.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  (its errors have no common class, and one that cannot run says nothing)
        return None
