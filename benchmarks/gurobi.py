"""Exact verdicts beside Gurobi: `python -m benchmarks.gurobi`, where `gurobipy` was installed by hand.

Its free licence is limited in size, which the networks here keep. Two encodings: the usual one, with a fixed big M, to
the optimum; and a good one, whose big Ms are interval bounds, with no binary where a unit cannot change its phase,
which stops as soon as the sign of the least margin is known. Processor time, one thread, one row per call.
"""

from __future__ import annotations

import statistics
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import apas
from apas import FeedForward
from benchmarks.milp import BIG
from benchmarks.worstcase import FACTORS, deep_network, towards_one

__all__ = ["compare", "is_kept"]

_Array = NDArray[np.float64]
SIZES = [(6, 12, 8, 1), (8, 20, 10, 1), (20, 64, 32, 1), (5, 10, 10, 6, 1), (8, 16, 16, 16, 1)]
ASKED = {"usual": 5, "good": 3}


def pre_activations(net: FeedForward, x: _Array, delta: float) -> list[tuple[_Array, _Array]]:
    """Interval bounds on the pre-activations of each hidden layer."""
    low = high = x
    found = []
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        down, up = w - delta, w + delta
        ends = np.stack([low[:, None] * down, low[:, None] * up, high[:, None] * down, high[:, None] * up])
        found.append((ends.min(axis=0).sum(axis=0) + b - delta, ends.max(axis=0).sum(axis=0) + b + delta))
        low, high = (np.maximum(end, 0.0) for end in found[-1])
    return found


def is_kept(environment: Any, net: FeedForward, x: _Array, delta: float, *, good: bool) -> bool:
    """Whether the least logit over all shifts by `delta` is above 0, by Gurobi; inputs must not be negative."""
    gurobi: Any = import_module("gurobipy")
    ranges = pre_activations(net, x, delta)
    model = gurobi.Model(env=environment)
    a: Any = x
    for (low, high), w, b in zip(ranges, net.weights[:-1], net.biases[:-1], strict=True):
        units = len(b)
        most = np.maximum(high, 0.0) if good else np.full(units, BIG)
        h, z = model.addMVar(units, lb=0.0, ub=most), model.addMVar(units, vtype=gurobi.GRB.BINARY)
        least, largest = a @ (w - delta) + (b - delta), a @ (w + delta) + (b + delta)
        model.addConstr(h >= least)
        if good:  # h <= largest less the bound where it is switched off; the phase of most units is known
            model.addConstr(h <= largest - np.minimum(low, 0.0) * (1 - z))
            z.LB, z.UB = (low >= 0).astype(float), (high > 0).astype(float)
        else:
            model.addConstr(h <= largest + BIG * (1 - z))
        model.addConstr(h <= most * z)
        a = h
    model.setObjective(a @ (net.weights[-1][:, 0] - delta) + float(net.biases[-1][0]) - delta)
    if good:
        model.Params.BestObjStop, model.Params.BestBdStop = 0.0, 0.0
    model.optimize()
    return bool(model.ObjBound > 0)


def compare(networks: int = 4, rows: int = 2) -> None:
    """Print medians and ratios for each kind of network."""
    if find_spec("gurobipy") is None:
        print("Gurobi: left out, since gurobipy is not installed")
        return
    gurobi: Any = import_module("gurobipy")
    with gurobi.Env(empty=True) as environment, threadpool_limits(1):
        environment.setParam("OutputFlag", 0)
        environment.setParam("Threads", 1)
        environment.start()
        for sizes in SIZES:
            _line(environment, sizes, networks, rows)


def _line(environment: Any, sizes: tuple[int, ...], networks: int, rows: int) -> None:
    times: dict[str, list[float]] = {"ours": [], "usual": [], "good": []}
    differ = 0
    for seed in range(networks):
        base = deep_network(sizes, seed)
        for x in np.random.default_rng(seed).random((rows, 1, sizes[0])):
            net = towards_one(base, x)
            star = apas.max_shift(net, x, target=1, method=apas.Exact(time_limit=5.0))[0].delta
            for delta in star * np.array(FACTORS):
                began = time.process_time()
                answer = apas.certify(net, x, delta, target=1, method="exact")[0]
                times["ours"].append(time.process_time() - began)
                for name in ("usual", "good"):
                    began = time.process_time()
                    kept = is_kept(environment, net, x[0], float(delta), good=name == "good")
                    times[name].append(time.process_time() - began)
                    differ += answer.verdict is not apas.Verdict.UNKNOWN and kept != answer.is_certified
    ours, *others = (1e3 * statistics.median(times[name]) for name in ("ours", "usual", "good"))
    named = zip(ASKED, others, strict=True)
    texts = [f"{name} {ms:7.2f} ms x {ms / ours:5.1f} (asked {ASKED[name]})" for name, ms in named]
    shape = "-".join(map(str, sizes))
    print(f"{shape:14} n={len(times['ours']):3} ours {ours:6.2f} ms  {'  '.join(texts)}  {differ} differ", flush=True)


if __name__ == "__main__":
    compare()
