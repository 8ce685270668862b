"""The least margin over a box of parameters, by going through all activation patterns.

Written apart from the package. Given what enters it, a unit can be pushed to every value between l and u, whatever the
others do; with the piece of every activation and the sign of every unit fixed, all of this is linear, so each pattern
is one linear program. Its point is turned back into a shifted network, which shows that the value is attained.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog

INF = np.inf
#: Per activation its pieces: least and largest argument, slope, height, and the sign of the value.
PIECES = {
    "relu": [(-INF, 0.0, 0.0, 0.0, 1.0), (0.0, INF, 1.0, 0.0, 1.0)],
    "leaky_relu": [(-INF, 0.0, 0.01, 0.0, -1.0), (0.0, INF, 1.0, 0.0, 1.0)],
    "identity": [(-INF, 0.0, 1.0, 0.0, -1.0), (0.0, INF, 1.0, 0.0, 1.0)],
    "hard_tanh": [
        (-INF, -1.0, 0.0, -1.0, -1.0), (-1.0, 0.0, 1.0, 0.0, -1.0), (0.0, 1.0, 1.0, 0.0, 1.0), (1.0, INF, 0.0, 1.0, 1.0),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Least:
    """The least margin, and the parameters of a network that has it."""

    value: float
    parameters: np.ndarray


def least_margin(net, x, wanted, rival, radii, delta):
    """Over all networks whose parameter i differs by at most ``delta * radii[i]``; against one rival."""
    layers = _layers(net, radii * delta)
    v, v_reach, const, const_reach = _output(net, layers, wanted, rival)
    options = _possible(net, layers, x)
    best, where = INF, None
    for pattern in product(*(product(*layer) for layer in options)):
        found = _program(layers, x, pattern, v, v_reach)
        if found is not None and found[0] < best:
            best, where = found
    return Least(best + const - const_reach, _parameters(net, layers, x, where, wanted, rival))


def _layers(net, reach):
    parts = [reach[p].reshape(s) for p, s in zip(net.parameters.slices, net.parameters.shapes, strict=True)]
    return list(zip(net.weights, parts[::2], net.biases, parts[1::2], strict=True))


def _output(net, layers, wanted, rival):
    w, r, b, q = layers[-1]
    if w.shape[1] == 1:
        sign = 1.0 if wanted == 1 else -1.0
        return sign * w[:, 0], r[:, 0], sign * (b[0] - net.offset), q[0]
    offset = (net.offset if wanted == 1 else -net.offset) if w.shape[1] == 2 else 0.0
    return (
        w[:, wanted] - w[:, rival], r[:, wanted] + r[:, rival], b[wanted] - b[rival] - offset, q[wanted] + q[rival]
    )  # fmt: skip


def _possible(net, layers, x):
    """Per unit the pieces that its argument can reach, by the four products of ends, term by term."""
    low = high = x
    options = []
    for i, (name, (w, r, b, q)) in enumerate(zip(net.activations, layers, strict=False)):
        ends = np.stack([a[:, None] * (w + s * r) for a in (low, high) for s in (-1, 1)])
        z_low, z_high = ends.min(axis=0).sum(axis=0) + b - q - 1e-9, ends.max(axis=0).sum(axis=0) + b + q + 1e-9
        pieces = PIECES[name]
        ranges = list(zip(z_low, z_high, strict=True))
        if i == 0 and name == "relu":  # its units fill a box: 0 or more for one that can be alive
            options.append([[pieces[1] if hi > 0 else pieces[0]] for _, hi in ranges])
        else:
            options.append([[p for p in pieces if p[0] < hi and p[1] > lo] for lo, hi in ranges])
        value = {
            "relu": lambda z: np.maximum(z, 0), "leaky_relu": lambda z: np.maximum(z, 0.01 * z),
            "identity": lambda z: z, "hard_tanh": lambda z: np.clip(z, -1, 1),
        }[name]  # fmt: skip
        low, high = value(z_low), value(z_high)
    return options


def _program(layers, x, pattern, v, v_reach):
    """The least value of one pattern and its arguments, or None if the pattern cannot occur."""
    counts = [len(layer) for layer in pattern]
    starts = np.concatenate([[0], np.cumsum(counts)])
    bounds, rows, ends = [], [], []
    w, r, b, q = layers[0]
    middle, spread = x @ w + b, np.abs(x) @ r + q
    for k, piece in enumerate(pattern[0]):
        low, high = max(piece[0], middle[k] - spread[k]), min(piece[1], middle[k] + spread[k])
        if low > high + 1e-12:
            return None
        bounds.append((low, max(low, high)))
    for i in range(1, len(pattern)):
        w, r, b, q = layers[i]
        slope, height, sign = (np.array([p[j] for p in pattern[i - 1]]) for j in (2, 3, 4))
        for k, piece in enumerate(pattern[i]):
            for side in (-1.0, 1.0):  # side (z - w.a - b) <= r.abs(a) + q
                row = np.zeros(starts[-1])
                row[starts[i] + k] = side
                row[starts[i - 1] : starts[i]] = (-side * w[:, k] - r[:, k] * sign) * slope
                rows.append(row)
                ends.append(((side * w[:, k] + r[:, k] * sign) * height).sum() + side * b[k] + q[k])
            bounds.append((piece[0], piece[1]))
    slope, height, sign = (np.array([p[j] for p in pattern[-1]]) for j in (2, 3, 4))
    enters = v - v_reach * sign
    cost = np.zeros(starts[-1])
    cost[starts[-2] :] = enters * slope
    found = linprog(cost, A_ub=np.array(rows) if rows else None, b_ub=ends or None, bounds=bounds)
    if found.status == 2:
        return None
    assert found.status == 0, found.message
    return found.fun + float(enters @ height), [found.x[a:b] for a, b in zip(starts, starts[1:], strict=False)]


def _parameters(net, layers, x, arguments, wanted, rival):
    """Parameters that bring every unit to its argument: all weights of a unit are pushed equally far."""
    a, parts = x, []
    for (w, r, b, q), z, name in zip(layers, arguments, net.activations, strict=False):
        middle, spread = a @ w + b, np.abs(a) @ r + q
        if name == "relu" and a is x:  # what was found is the value; an argument below 0 will do for 0
            z = np.where(z <= 0, middle - spread, z)
        push = np.clip(np.divide(z - middle, spread, out=np.zeros_like(z), where=spread > 0), -1, 1)
        parts += [w + push * r * np.sign(a)[:, None], b + push * q]
        a = _values(name, middle + push * spread)
    w, r, b, q = layers[-1]
    enters = np.zeros(w.shape[1])
    if len(enters) == 1:
        enters[0] = 1.0 if wanted == 1 else -1.0
    else:
        enters[wanted], enters[rival] = 1.0, -1.0
    parts += [w - np.sign(a)[:, None] * r * enters, b - q * enters]
    return np.concatenate([p.ravel() for p in parts])


def _values(name, z):
    if name == "relu":
        return np.maximum(z, 0)
    if name == "leaky_relu":
        return np.maximum(z, 0.01 * z)
    return np.clip(z, -1, 1) if name == "hard_tanh" else z
