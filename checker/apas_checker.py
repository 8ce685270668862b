#!/usr/bin/env python3
"""Check a certificate file against a dense network without apas: NumPy and the standard library are all it needs.

    python apas_checker.py CERTIFICATES.json MODEL.json [--require-coverage C] [--require-confidence C]
                           [--require-delta D] [--require-target T] [--require-derived] [--table TABLE.npy]

Redone are draws (boxes, L1 and L2 balls, sparse and normal shifts), interval and closed-form bounds, shares that are
computed (boxes, L2 balls and normal shifts of an output layer), witnesses and,
with the training table in model units (np.save of DataChange.table), bounds over refits; the rest is NOT CHECKED.
A line per row: its name, what became of it, why, and what it claims; what is required it must claim at least. Exit
code 0: all hold; 1: something does not; 2: bad input; 3: all that was checked holds, some, or all, was not; 70: no
answer, such as when nobody takes it.

A seed that is said to be derived is derived again: `derive` and `numbers` say how, and `VECTOR` is an example.
"""

import argparse
import hashlib
import json
import math
import os
import re
import sys
from collections import Counter
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np

ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0), "identity": lambda z: z, "hard_tanh": lambda z: np.clip(z, -1, 1),
    "leaky_relu": lambda z: np.maximum(z, 0.01 * z), "tanh": np.tanh, "sigmoid": lambda z: 0.5 + 0.5 * np.tanh(0.5 * z),
    "softplus": lambda z: np.logaddexp(z, 0.0), "elu": lambda z: np.maximum(z, np.expm1(np.minimum(z, 0.0))),
}  # fmt: skip
UNKNOWN = ("noise", "joint", "observed", "ellipsoid")  # sets whose claims are not checked here
COUNTS = ("allowed", "refuting", "draws", "failures", "doubtful", "first_failure")
FIELDS = {  # of each kind of object
    "linf": "relative kinds layers scale floor", "gaussian": "relative kinds layers scale floor",
    "lp": "p kinds layers", "sparse": "count relative kinds layers scale floor",
    "every": "measure rows", "most": "measure rows coverage confidence tries",
    "update": "coverage level measure rows score worst steps made_with", "calibration": "score draws failures",
    "ellipsoid": "layers distribution covariance",
    "share": "lower upper", "model": "draws failures", "sampling": f"entropy purpose samples {' '.join(COUNTS)}",
    "bound": "step bound nodes exact", "enumeration": "lower upper evaluated open stopped", "draw": "index",
    "partition": "lower upper evaluated open stopped robust non_robust",
    "noise": "scale features integers", "joint": "parameters row", "observed": "models process",
    "corner": "delta signs", "row": "cells shift",
    "parameters": "delta values", "refit": "bound radius threshold spared rows added table",
}  # fmt: skip
REFITS = ("removed", "relabelled", "added", "replaced")
FIELDS |= dict.fromkeys(REFITS, "loss C tolerance class_weight rows table low high categories weight")
HALVINGS = 12  # how often a part of a region is cut in two
MOST = 10**6  # draws that are made again for one row
# streams of tests: of a search with rank and number
TEST = re.compile("(?:derived/1/)?certify|generate/(0|[1-9][0-9]{0,8})/(0|[1-9][0-9]{0,8})")


class Stop(Exception):
    """What became of a row: its status, and why."""


def need(true, message, status="FAILS"):
    """End the check of a row unless something is true."""
    if not true:
        raise Stop(status, message)


def once(pairs):
    """An object of a file: no key occurs twice, none of its kind is missing, and none is there that nobody looks at."""
    found = dict(pairs)
    fields = FIELDS.get(str(found.get("kind")))
    if found.get("kind") == "most" and "bits" in found:  # of a derived seed
        fields = fields.replace("confidence", "bits")
    known = set(found) - ({"test", "siblings"} if found.get("kind") == "sampling" else set())  # new in version 2
    if len(found) < len(pairs) or (fields and {"kind", *fields.split()} != known):
        raise ValueError(f"an object must not have the keys {[key for key, _ in pairs][:12]}")
    return found


def read(path, kind):
    """A JSON object of a kind, in which numbers are finite."""
    if not os.path.isfile(path):  # a pipe would keep us waiting
        raise ValueError(f"{path} is not a plain file")
    with open(path, encoding="utf-8-sig") as file:
        content = (
            lines(file.read()) if str(path).lower().endswith(".jsonl") else json.load(file, object_pairs_hook=once)
        )
    versions = (1, 2) if kind == "apas-certificates" else (1,)
    version = content.get("version") if isinstance(content, dict) and content.get("format") == kind else None
    if type(version) is not int or version not in versions:
        raise ValueError(f"{path} does not have the format {kind}, version {versions[-1]} or older")
    json.dumps(content, allow_nan=False, ensure_ascii=False).encode()  # fails where half a character stands alone
    return content


def lines(text):
    """The content of a file in JSON Lines, whose last line has the SHA-256 of all above it."""
    above, _, seal = text.removesuffix("\n").rpartition("\n")
    seal, (top, *rows) = json.loads(seal), [json.loads(row, object_pairs_hook=once) for row in above.split("\n")]
    if seal != {"rows": len(rows), "digest": hashlib.sha256(f"{above}\n".encode()).hexdigest()}:
        raise ValueError("it was damaged or edited: its last line does not match the lines above")
    return {**top, "certificates": rows, "digest": content_digest({**top, "certificates": rows})}


def content_digest(file):
    """SHA-256 of all but the digest."""
    text = json.dumps({key: file[key] for key in file if key != "digest"}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def hashed(what, **fields):
    """SHA-256 of fields, each with its name and its length."""
    parts = [(name, value if isinstance(value, bytes) else str(value).encode()) for name, value in fields.items()]
    text = b"".join(f"/{name}/{len(value)}/".encode() + value for name, value in parts)
    return hashlib.sha256(f"apas/derived/1/{what}".encode() + text).digest()


def derive(model, shifts, x, k, c):
    """The seed that follows from a model's digest, the shifts, a row in model units, its class and its certificate."""
    claim, e = c["claim"], c["evidence"]
    row, delta = ((np.asarray(v, dtype="<f8") + 0.0).astype("<f8").tobytes() for v in (x, c["delta"]))  # no -0.0
    root = hashed("record", row=row, target=k, delta=delta)
    need(all(re.fullmatch("[0-9a-f]{64}", text) for text in e["siblings"]), "its seed has other digests than SHA-256")
    for sibling in e["siblings"]:  # on the way to the root of the hash tree over all rows
        root = hashed("node", children=b"".join(sorted([root, bytes.fromhex(sibling)])))
    test = e["test"] if e["test"] != "fixed" else f"fixed/{e['samples']}"
    shifts = {name: float(v) + 0.0 if name in ("p", "floor") else v for name, v in shifts.items()}  # neither 1 nor -0.0
    shifts, share = json.dumps(shifts, sort_keys=True, separators=(",", ":")), Fraction(repr(claim["coverage"]))
    about = {"model": bytes.fromhex(model), "shifts": shifts, "records": root, "coverage": share}
    about |= {"bits": claim["bits"], "test": test, "rows": claim["rows"], "tries": claim["tries"]}
    return int.from_bytes(hashed("seed", **about, question="certify"), "big")


def numbers(stream, at, count):
    """Words number `at` and on: those of SHAKE-128, 1024 for each of its inputs, or of PCG64DXSM in a state."""
    if isinstance(stream, str):
        inputs = (f"{stream}/{i}".encode() for i in range(at // 1024, -(-(at + count) // 1024)))
        output = b"".join(hashlib.shake_128(text).digest(8192) for text in inputs)
        return np.frombuffer(output, "<u8")[at % 1024 :][:count]
    bits = np.random.PCG64DXSM()
    bits.state = {"bit_generator": "PCG64DXSM", "state": stream, "has_uint32": 0, "uinteger": 0}
    bits.advance(at)
    return bits.random_raw(count).astype("<u8")


LINF = {"kind": "linf", "relative": False, "kinds": ["weight", "bias"], "layers": None, "scale": None, "floor": 0.0}
CLAIM = {"coverage": 0.995, "bits": 64, "rows": 1, "tries": 1}
MADE = {"test": "fixed", "samples": 20000, "siblings": ["11" * 32, "ee" * 32]}
#: What `derive` is given, and what it gives; and words 0 and 1024 of that seed's stream.
VECTOR = ("00" * 32, LINF, [1.0, -0.0, 0.1], 1, {"delta": 0.05, "claim": CLAIM, "evidence": MADE})
VECTOR_SEED = 0x6B258FC0FA46CB5A2293B2F97B4D8026650B2171C49EB0659CAF09669BEADAE6
VECTOR_WORDS = [0xBF5EF40BBD51B91C, 0xA2DF29178AF004A6]


def words_of(purpose, entropy):
    """What the stream of a purpose begins with."""
    d = hashlib.sha256(f"apas/1/{purpose}/{entropy}".encode()).digest()
    stream = {"state": int.from_bytes(d[:16], "little"), "inc": int.from_bytes(d[16:], "little") | 1}
    return f"apas/{purpose}/{entropy:064x}" if purpose.startswith("derived/") else stream


class Net:
    """The dense network of a model file, and how far each parameter moves when delta is 1."""

    def __init__(self, file, shifts):
        layers = [(np.array(w, dtype=float), b) for w, b in zip(file["weights"], file["biases"], strict=True)]
        parts = [t for w, b in layers for t in (w, np.zeros(w.shape[1]) if b is None else np.array(b, dtype=float))]
        self.act, self.classes, self.names = file["activation"], file["classes"], file["feature_names"]
        self.shapes, self.cuts = [t.shape for t in parts], np.cumsum([0, *(t.size for t in parts)])
        self.theta, threshold = np.concatenate([t.ravel() for t in parts]), float(file["threshold"])
        self.offset = threshold if file["output"] == "identity" else math.log(threshold) - math.log1p(-threshold)
        about = {key: file[key] for key in ("kind", "activation", "output", "classes", "feature_names")}
        about |= {"threshold": threshold, "shapes": [list(s) for s in self.shapes[::2]]}
        absent = [i for i, (_, b) in enumerate(layers) if b is None]
        about |= {"without_biases": absent} if absent else {}
        self.single = file.get("dtype", "float64") == "float32"
        about |= {"dtype": file["dtype"]} if file.get("dtype", "float64") != "float64" else {}
        self.head = 0.0 if file["output"] == "identity" else self.at_head(threshold)
        kinds = [(i, kind) for i in range(len(layers)) for kind in ("weight", "bias")]
        self.parts = [(f"layer{i}", kind, kind == "weight" or i not in absent) for i, kind in kinds]
        layout = [[f"{a}.{b}" for a, b, _ in self.parts], [list(s) for s in self.shapes]]
        text = json.dumps([about, layout], sort_keys=True).encode()
        self.digest = hashlib.sha256(text + self.theta.astype("<f8").tobytes()).hexdigest()
        if shifts["kind"] not in ("linf", "lp", "sparse", "gaussian", *UNKNOWN, *REFITS):
            raise ValueError("shifts of a kind that there is not")
        known = shifts["kind"] not in UNKNOWN
        self.shifts, self.radii = shifts, np.zeros(len(self.theta)) if known else None
        self.radii = self.reach(shifts) if known and "kinds" in shifts else self.radii

    def reach(self, shifts):
        """How far each parameter moves when delta is 1."""
        depth, sizes, named = len(self.act) + 1, np.diff(self.cuts), shifts["layers"]
        kinds, scale, relative = shifts["kinds"], shifts.get("scale"), shifts.get("relative", False)
        known = {f"{i}": f"layer{i % depth}" for i in range(-depth, depth)} | {a: a for a, _, _ in self.parts}
        layers = known.values() if named is None else [known[str(name)] for name in named]
        moves = [float(there and kind in kinds and name in layers) for name, kind, there in self.parts]
        radii = np.repeat(moves, sizes) * (np.maximum(np.abs(self.theta), shifts["floor"]) if relative else 1.0)
        if isinstance(scale, dict | None):
            by_name = {known[name]: factor for name, factor in (scale or {}).items()}
            factors = np.repeat([float(by_name.get(name, 1.0)) for name, _, _ in self.parts], sizes)
        else:
            factors = np.concatenate([np.array(s, dtype=float).ravel() for s in scale])
        typed = isinstance(named, list | None) and isinstance(kinds, list) and isinstance(relative, bool)
        same = typed and factors.shape == radii.shape and {*kinds} <= {"weight", "bias"} and shifts.get("p", 1) >= 0.001
        same = same and type(shifts.get("count", 1)) is int and shifts.get("count", 1) > 0
        if not (same and (factors >= 0).all() and 0 < (radii * factors).max() < math.inf):
            raise ValueError("the shifts are no set of models, or move nothing")
        return radii * factors

    def split(self, flat):
        """Vectors of parameters (..., k) as one array per tensor."""
        ends = zip(self.cuts[:-1], self.cuts[1:], self.shapes, strict=True)
        return [flat[..., a:b].reshape(*flat.shape[:-1], *s) for a, b, s in ends]

    def hidden(self, X, parts):
        """What enters the output layer."""
        for i, name in enumerate(self.act):
            X = ACTIVATIONS[name](X @ parts[2 * i] + parts[2 * i + 1][..., None, :])
        return X

    def rivals(self, k):
        """The margin towards class number k is the least of these: outputs with their signs, plus a constant."""
        constant = (-self.offset if k else self.offset) if len(self.classes) == 2 else 0.0
        if self.shapes[-1] == (1,):
            return [([(1 if k else -1, 0)], constant)]
        return [([(1, k), (-1, j)], constant) for j in range(len(self.classes)) if j != k]

    def margin(self, X, flat, k):
        """Margins of rows with parameters (..., k), shape (..., rows); of fractions exactly."""
        parts, number = self.split(flat), Fraction if X.dtype == object else float
        s = self.hidden(X, parts) @ parts[-2] + parts[-1][..., None, :]
        return np.min([sum(sign * s[..., j] for sign, j in signed) + number(c) for signed, c in self.rivals(k)], axis=0)

    def leads(self, x, k):
        """The margins of a row over each rival."""
        s = (self.hidden(x[None], self.split(self.theta)) @ self.split(self.theta)[-2])[0] + self.split(self.theta)[-1]
        return [sum(sign * s[j] for sign, j in signed) + c for signed, c in self.rivals(k)]

    def valid(self, margin, k):
        """Whether a margin means that the class is given."""
        return margin >= 0 if len(self.classes) == 2 and k == 1 else margin > 0

    def sizes(self, X, reach, least=0.0, elu=0.0):
        """Magnitudes behind each layer's numbers, the rows' own and the parameters' first, the scores' last."""
        a, size = np.abs(X) + least, self.split(np.abs(self.theta) + least + reach)
        yield np.maximum(a.max(axis=-1), np.max(np.abs(self.theta)) + least + np.max(reach))[:, None]
        for i, name in enumerate([*self.act, None]):
            extra = {"softplus": math.log(2.0), "sigmoid": 0.5, "elu": elu}.get(name, 0.0)
            yield (a := a @ size[2 * i] + size[2 * i + 1] + extra)

    def at_head(self, threshold):
        """What a sigmoid or softmax in float32 can make of a margin."""
        error = (2 * 16 + len(self.classes) + 8) * 2.0**-24
        return 2 * error / (1 - threshold) if error * threshold <= 0.5 * (1 - threshold) else math.inf

    def single_error(self, X, reach):
        """Per row how far float32 arithmetic can be from real arithmetic, in any order of its sums; 0 for float64."""
        if not self.single:
            return np.zeros(len(X))
        u, error = 2.0**-24, 2.0**-24
        for i, (inputs, _) in enumerate(self.shapes[::2]):
            part = (inputs + 4) * u
            error = error + (1 + error) * part / (1 - part) if part <= 0.01 else math.inf
            error += 16 * u * (1 + error) if i < len(self.act) else 8 * u
        sizes = list(self.sizes(X, reach, 2.0**-100, 1.0))
        behind = sizes[-1].sum(axis=-1) if sizes[-1].shape[-1] < 3 else 2 * sizes[-1].max(axis=-1)
        over = np.max([size.max(axis=-1) for size in sizes], axis=0) > 1e38
        return np.where(over, math.inf, error * (behind + abs(self.offset)) + self.head)

    def double_error(self, X, reach):
        """The same for float64, in the manner of apas."""
        return 1e-12 * (list(self.sizes(X, reach))[-1].sum(axis=-1) + abs(self.offset))

    def band(self, X, reach):
        """Per row the margin below which a sign may be owed to rounding while parameters move by `reach`."""
        return self.double_error(X, reach) + self.single_error(X, reach)

    def draws(self, stream, start, stop):
        """Directions number start to stop: a pure function of the stream and their numbers."""
        kind, p, moving = self.shifts["kind"], self.shifts.get("p"), np.flatnonzero(self.radii)
        if kind == "sparse":
            return self.sparse_draws(stream, start, stop, moving, min(self.shifts["count"], len(moving)))
        k, box = len(moving), kind == "linf"  # a box takes 32 bits per number, other sets 64, a ball one number more
        width, tile = k + (kind == "lp"), 128 if k <= 1024 else 1
        first, last = start // tile, -(-stop // tile)
        at, count = first * tile * width, (last - first) * tile * width
        words = numbers(stream, at // 2, count // 2 + 1) if box else numbers(stream, at, count)
        u = words.view("<i4")[at % 2 :][:count] * 2.0**-31 if box else words
        u = u.reshape(-1, width, tile).transpose(0, 2, 1).reshape(-1, width)[start - first * tile :][: stop - start]
        if not box:
            share, sign = ((u >> np.uint64(11)) + 0.5) * 2.0**-53, np.where(u[:, :k] & np.uint64(1), -1.0, 1.0)
            normal = NormalDist(sigma=0.5**0.5 if kind == "lp" else 1.0).inv_cdf
            size = [-math.log(v) if p == 1 else -normal(0.5 * v) for v in share[:, :k].ravel().tolist()]
            u = sign * np.array(size).reshape(-1, k)
            u *= 1.0 if p is None else (((np.abs(u) ** p).sum(axis=1) - np.log(share[:, k])) ** (-1.0 / p))[:, None]
        out = np.zeros((len(u), len(self.theta)))
        out[:, moving] = u * self.radii[moving]
        return out

    def sparse_draws(self, stream, start, stop, moving, count):
        """The same for sparse shifts: which parameters move, by Floyd's way to draw a set, and then by how much."""
        out = np.zeros((stop - start, len(self.theta)))
        words = (numbers(stream, 2 * count * start, 2 * count * len(out)) >> np.uint64(11)).reshape(len(out), 2, count)
        for row, (picks, sizes) in zip(out, words.tolist(), strict=True):
            taken = {}
            for i, (pick, size) in enumerate(zip(picks, sizes, strict=True), len(moving) - count):
                place = min(int((pick + 0.5) * 2.0**-53 * (i + 1)), i)
                taken[i if place in taken else place] = (size - 2**52 + 0.5) * 2.0**-52
            for place, size in taken.items():
                row[moving[place]] = size * self.radii[moving[place]]
        return out

    def scan(self, X, delta, k, purpose, entropy, samples):
        """Which draws fail for each row, which of them beyond rounding, and the margins on the first one."""
        stream = words_of(purpose, entropy)
        step = max(1, 2**21 // (len(self.theta) + len(X) * max(map(max, self.shapes))) // 128 * 128)
        band = self.band(X, delta * self.radii * (8.4 if self.shifts["kind"] == "gaussian" else 1.0))
        found = []
        for a in range(0, samples, step):
            m = self.margin(X, self.theta + delta * self.draws(stream, a, min(a + step, samples)), k)
            found.append((~(m > band), ~(m >= -band), m[0]))
        return *(np.concatenate(part) for part in list(zip(*found, strict=True))[:2]), found[0][2]

    def unproved(self, box, delta, k, purpose, entropy, samples):
        """Which draws linear bounds do not prove to keep all rows of a box, cut in halves up to `HALVINGS` times."""
        step, (low, high), found = max(1, 2**20 // len(self.theta) // 128 * 128), box, []
        reach = delta * self.radii * (8.4 if self.shifts["kind"] == "gaussian" else 1.0)
        band = 4 * self.band(np.maximum(np.abs(low), np.abs(high))[None], reach)[0]
        for a in range(0, samples, step):
            stream = words_of(purpose, entropy)
            parts = self.split(self.theta + delta * self.draws(stream, a, min(a + step, samples)))
            fails = np.zeros(len(parts[0]), dtype=bool)
            fails[self.open(parts, low, high, k, band, np.arange(len(fails)), HALVINGS)] = True
            found.append(fails)
        return np.concatenate(found)

    def open(self, parts, low, high, k, band, draws, depth):
        """Those of the draws that are not proved for a box."""
        middle, half, (w, b) = (low + high) / 2, (high - low) / 2, (t[draws] for t in parts[:2])
        z, spread = middle @ w + b, half @ np.abs(w)
        kept = np.ones(len(draws), dtype=bool)
        for signed, constant in self.rivals(k):
            if self.act:
                v, b2 = (sum(s * t[draws][..., j] for s, j in signed) for t in parts[2:])
                low_z, high_z = z - spread, z + spread
                loose, on = (low_z < 0) & (high_z > 0), (low_z >= 0) * 1.0
                chord = np.divide(high_z, high_z - low_z, out=on.copy(), where=loose)
                slope = np.where(v >= 0, np.where(loose, (high_z > -low_z) * 1.0, on), chord)
                height = np.where((v < 0) & loose, -chord * low_z, 0.0)
                slope, height = (slope, height) if self.act[0] == "relu" else (np.ones_like(z), np.zeros_like(z))
                bound = (v * (slope * z + height)).sum(axis=1) + b2 + constant
                bound -= np.abs(np.einsum("dio,do->di", w, v * slope)) @ half
            else:
                slope = sum(s * w[..., j] for s, j in signed)
                bound = sum(s * z[..., j] for s, j in signed) + constant - np.abs(slope) @ half
            kept &= bound > band
        bad = draws[~kept]
        if not len(bad) or not depth or not half.any():
            return bad
        j = int((half * np.abs(parts[0][bad]).sum(axis=(0, 2))).argmax())
        left, right = high.copy(), low.copy()
        left[j] = right[j] = middle[j]
        first = self.open(parts, low, left, k, band, bad, depth - 1)
        return np.union1d(first, self.open(parts, right, high, k, band, np.setdiff1d(bad, first), depth - 1))

    def least(self, x, delta, k, high=None):
        """A lower bound on the margin of a row, or of all rows up to another, over a box, by interval arithmetic."""
        base, move, low, high = self.split(self.theta), self.split(delta * self.radii), x, x if high is None else high
        for i, name in enumerate(self.act):
            ends = [a[:, None] * (base[2 * i] + s * move[2 * i]) for a in (low, high) for s in (-1, 1)]
            sums = [pick(ends, axis=0).sum(axis=0) + base[2 * i + 1] for pick in (np.min, np.max)]
            low, high = (ACTIVATIONS[name](v) for v in (sums[0] - move[2 * i + 1], sums[1] + move[2 * i + 1]))
        bounds = []
        for signed, constant in self.rivals(k):
            v, b = (sum(s * t[..., j] for s, j in signed) for t in base[-2:])
            r, c = (sum(t[..., j] for _, j in signed) for t in move[-2:])
            terms = np.min([a * (v + s * r) for a in (low, high) for s in (-1, 1)], axis=0)
            bounds.append(terms.sum() + b - c + constant)
        return min(bounds)


@cache
def plan(coverage, risk, n):
    """How many failures certify at most and refute at least, from a binomial distribution with 80 digits."""
    shares = Fraction(repr(coverage)), risk
    with localcontext(Context(prec=80, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        p, risk = (Decimal(f.numerator) / f.denominator for f in shares)
        term, below, allowed, j = p**n, Decimal(0), -1, 0
        while j <= n and 1 - below > risk:  # the chance of j or more failures
            below += term
            allowed = j if below <= risk else allowed
            term, j = term * (n - j) / (j + 1) * (1 - p) / p, j + 1
    return allowed, max(j, allowed + 1)


PRIORS = {  # odds ratios and weights of the anytime test, which a file must not bring itself
    "certify": "0 6/20, 1/8 3/20, 1/4 3/20, 1/2 3/20, 3/4 3/20, 7/8 2/20",
    "refute": "5/4 2/10, 3/2 2/10, 2 2/10, 4 2/10, 16 1/10, 256 1/10",
}


def crosses(side, n, k, coverage, risk):
    """Whether a mixture of likelihood ratios reaches 1 / risk with k failures of n draws."""
    q = 1 - Fraction(repr(coverage))
    with localcontext(Context(prec=80, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        prior = [map(Fraction, pair.split()) for pair in PRIORS[side].split(",")]
        terms = [(g, w, 1 + (g - 1) * q) for g, w in prior if g or not k]
        ratio = lambda f: Decimal(f.numerator) / f.denominator  # noqa: E731
        value = sum(ratio(w) * (ratio(g) ** k if k else 1) / ratio(base) ** n for g, w, base in terms)
        beyond = value * risk.numerator / risk.denominator - 1
        if abs(beyond) > (abs(beyond) + 1) * 8 * (n + k + 9) * Decimal(10) ** -79:
            return beyond > 0
    return sum(w * g**k / base**n for g, w, base in terms) * risk >= 1  # a tie


def anytime(coverage, risk, drawn, draws, samples):
    """Verdict, deciding draw, and failing draws up to it, of the anytime test after a number of draws."""
    where, count, clear = np.flatnonzero(drawn[0][:draws]).tolist(), 0, 0
    for at in where:
        if crosses("certify", at, count, coverage, risk):
            return "CERTIFIED", at, count  # or even before
        count, clear = count + 1, clear + int(drawn[1][at])
        if drawn[1][at] and crosses("refute", at + 1, clear, coverage, risk):
            return "REFUTED", at + 1, count
        if count - clear >= 1000 and crosses("refute", at + 1, count, coverage, risk):
            return "UNKNOWN", at + 1, count
    if crosses("certify", draws, count, coverage, risk):
        return "CERTIFIED", draws - crosses("certify", draws - 1, count, coverage, risk), count  # or even before
    return "UNKNOWN", samples, count


def risk_of(claim):
    """How often such a claim may be false; 0 if it never is, and NaN if it is none."""
    if "bits" in claim:
        return Fraction(1, 2 ** claim["bits"]) if type(claim["bits"]) is int and 0 < claim["bits"] <= 256 else math.nan
    sure = claim.get("confidence", 1)
    return 1 - Fraction(repr(sure)) if 0 < sure <= 1 else math.nan


def sampled(c, drawn, together, lower):
    """Count the draws again; `lower` is how many ranks from 0 on the file holds of this seed."""
    claim, e, n = c["claim"], c["evidence"], c["evidence"]["samples"]
    test = TEST.fullmatch(e["purpose"])
    need(test and claim["kind"] == "most", "draws on such a stream do not show what is claimed")
    rank, number = (int(text or 0) for text in test.groups())
    before = max(1, number * (number + 1))  # what tests cost when ranks had no price yet
    price = before * max(1, rank * (rank + 1))
    share, rows, tries, risk = claim["coverage"], claim["rows"], claim["tries"], risk_of(claim)
    derived = "siblings" in e  # then a search tests each row on draws that follow from it, and pays what it likes
    same = derived == ("bits" in claim) == e["purpose"].startswith("derived/")
    need(same, "the claim, the stream and the seed do not agree on whether the seed was derived")
    price = tries if derived else price
    fixed = e.get("test", "fixed") == "fixed"
    need(all(type(e[key]) in (int, type(None)) for key in ("samples", *COUNTS)), "its counts are no whole numbers")
    paid = tries == price or (tries == before and c["verdict"] == "CERTIFIED" and fixed)
    whole = type(rows) is type(tries) is int and 0 < rows < 2**63 and paid
    whole = whole and tries > 0 and 0 < share < 1 and 0 < risk < 1
    need(whole and (rows == 1 or together <= rows), "the claim hides tests or rows")
    if not fixed:
        at = e["draws"]
        verdict, draws, count = anytime(share, risk / (rows * tries), drawn, at, n)
        where = np.flatnonzero(drawn[0][:at])
        beyond = drawn[1][where]
        first = int(where[beyond][0]) if beyond.any() else None
        found = (None, None, draws, count, int((~beyond).sum()), first)
        same = found == tuple(e[key] for key in COUNTS) and verdict == c["verdict"] and 0 < at <= n
        need(same, f"drawn again: {verdict}, {dict(zip(COUNTS, found, strict=True))}")
        need(c["witness"] == (None if first is None else {"kind": "draw", "index": first}), "the witness is another")
        return f"drawn again: {count} of {draws} failed (anytime test)"
    allowed, refuting = plan(share, risk / (rows * tries), n)
    enough = plan(share, risk / (rows * price), n)[0]
    where = np.flatnonzero(drawn[0])
    sure = drawn[1][where]
    ends = (np.cumsum(sure) == refuting) | (np.arange(1, len(where) + 1) == 10 * refuting)
    if ends.any():
        where, sure = where[: ends.argmax() + 1], sure[: ends.argmax() + 1]
    draws, first = int(where[-1]) + 1 if ends.any() else n, int(where[sure][0]) if sure.any() else None
    found = (allowed, refuting, draws, len(where), int((~sure).sum()), first)
    verdict = "CERTIFIED" if len(where) <= allowed else "REFUTED" if sure.sum() >= refuting else "UNKNOWN"
    same = allowed >= 0 and found == tuple(e[key] for key in COUNTS) and verdict == c["verdict"]
    need(same, f"drawn again: {verdict}, {dict(zip(COUNTS, found, strict=True))}")
    need(c["witness"] == (None if first is None else {"kind": "draw", "index": first}), "the witness is another draw")
    unpaid = f"a test on the stream {e['purpose']!r} divides its risk by {price}, the file says {tries}"
    need(tries == price or len(where) <= enough, unpaid, "FAILS" if rank > lower else "NOT CHECKED")
    return f"drawn again: {len(where)} of {draws} failed"


def kept(shifts, moving, sizes, level):
    """How often ``sum of sizes * s >= -level`` for a draw s in units of the radii, and how far that may be off."""
    sizes = -np.sort(-sizes[sizes > 0])
    length, total = math.sqrt(float((sizes**2).sum())), float(sizes.sum())
    if not len(sizes) or (shifts["kind"] == "linf" and abs(level) >= total * (1 + 1e-12)):
        return float(level >= 0), 0.0
    if shifts["kind"] == "gaussian":
        return NormalDist().cdf(level / length), 1e-11
    if shifts["kind"] == "lp":  # sin(t) of a coordinate of a point of the ball has the density cos(t)**n
        end = math.asin(max(-1.0, min(1.0, level / length)))
        parts = [np.cos(np.linspace(-math.pi / 2, stop, 40_001)) ** moving for stop in (end, math.pi / 2)]
        weights = np.resize([2.0, 4.0], 40_001)
        weights[[0, -1]] = 1.0  # Simpson's rule
        return (weights @ parts[0]) * (end + math.pi / 2) / ((weights @ parts[1]) * math.pi), 1e-9
    if len(sizes) == 1:
        return min(1.0, max(0.0, 0.5 + 0.5 * level / total)), 1e-12
    # boxes: the series of a square wave of the period 4 C, beyond which no difference lies, at level minus the sum
    half, k = 2 * max(total, abs(level)), np.arange(1.0, 8192.0, 2.0)
    terms = np.sin(math.pi * k * level / half) / k
    for size in sizes:
        terms = terms * np.sinc(k * (size / half))
    j = np.arange(1, len(sizes) + 1)  # what is left out is bounded by the j largest sizes, whichever j is best
    left = -np.cumsum(np.log(math.pi * sizes / half)) - (j + 1) * math.log(8193) + np.log1p(8193 / (2 * j))
    return 0.5 + 2 / math.pi * float(terms.sum()), math.exp(min(0.0, float(left.min()))) + 1e-10


def computed(net, x, k, c):
    """Compute the share of shifts again, of which nothing but the output layer may be moved."""
    claim, e, delta, kind = c["claim"], c["evidence"], c["delta"], net.shifts["kind"]
    need(kind in ("linf", "gaussian") or net.shifts.get("p") == 2, "a share of such shifts is not computed")
    need(not net.radii[: net.cuts[-3]].any(), "a share of shifts that move hidden layers is not computed")
    sure = claim["kind"] == "most" and claim.get("confidence") == 1 and claim["tries"] == 1 and possible(claim)
    need(sure and claim["coverage"] < 1 and c["method"] == "closed form", "a share that is computed has confidence 1")
    h, reach = np.abs(net.hidden(x[None], net.split(net.theta))[0]), net.split(net.radii)[-2:]
    band = net.band(x[None], delta * net.radii * (8.4 if kind == "gaussian" else 1.0))[0]
    low, high = 1.0, 1.0
    for lead, (signed, _) in zip(net.leads(x, k), net.rivals(k), strict=True):
        columns = [j for _, j in signed]
        sizes = np.concatenate([(reach[0][:, columns] * h[:, None]).ravel(), reach[1][columns]])
        slack = band / delta + 1e-13 * (float(sizes.sum()) + abs(lead) / delta)
        ends = [kept(net.shifts, np.count_nonzero(net.radii), sizes, lead / delta + s * slack) for s in (-1, 1)]
        low, high = low - (1 - ends[0][0] + ends[0][1]), min(high, ends[1][0] + ends[1][1])
    again = f"computed again, the share is between {max(low, 0.0):.9f} and {min(high, 1.0):.9f}"
    need(low - 3e-9 <= e["upper"] and e["lower"] <= high + 3e-9 and 0 <= e["lower"] <= e["upper"] <= 1, again)
    verdict = {(True, False): "CERTIFIED", (False, True): "REFUTED"}
    told = verdict.get((e["lower"] >= claim["coverage"], e["upper"] < claim["coverage"]))
    need(told == c["verdict"], "its bounds do not decide what it says")
    found = verdict.get((low >= claim["coverage"], high < claim["coverage"]))
    need(found == told or found is None, again)
    need(found == told, f"{again}, which does not decide", "NOT CHECKED")
    need(c["witness"] is None or replayed(net, x, k, c), "the witness is none")
    return again


def replayed(net, x, k, c):
    """Replay the shifted model that is kept: it must lie in the set and break the row, both without tolerance."""
    w, delta, p = c["witness"], Fraction(c["delta"]), net.shifts.get("p", math.inf)
    need(w["kind"] != "draw" and w["delta"] == c["delta"], "the witness is not one of this delta")
    base, reach = [Fraction(v) for v in net.theta.tolist()], [delta * Fraction(v) for v in net.radii.tolist()]
    values = w.get("values")
    if w["kind"] == "corner":  # as far as fits inside
        signs = [{"-": -1, "0": 0, "+": 1}[s] for s in w["signs"]]
        ends = [(float(b + s * r), b, r) for b, r, s in zip(base, reach, signs, strict=True)]
        values = [v if abs(Fraction(v) - b) <= r else float(np.nextafter(v, float(b))) for v, b, r in ends]
    need(len(values) == len(base), "the witness has another number of parameters")
    moved = [abs(Fraction(v) - b) for v, b in zip(values, base, strict=True)]
    inside = all(m <= r for m, r in zip(moved, reach, strict=True))
    few = sum(m > 0 for m in moved)  # a single one of them can be seen to lie in every ball
    need(p in (1, 2, math.inf) or few <= 1 or not inside, "a witness in a ball of this norm", "NOT CHECKED")
    order = int(p) if p in (1, 2) else 1
    inside = inside and (p == math.inf or sum(m**order for m in moved) <= delta**order)
    inside = inside and few <= net.shifts.get("count", few)
    need(inside, "the witness is not in the set")
    failing = net.margin(x[None], np.array(values), k)[0] < -net.band(x[None], c["delta"] * net.radii)[0]
    rational = not net.single and set(net.act) <= {"relu", "hard_tanh", "identity"}
    if not failing and rational:  # too close to 0 for floats
        row, flat = (np.array([Fraction(v) for v in vector]) for vector in (x.tolist(), values))
        failing = not net.valid(net.margin(row[None], flat, k)[0], k)
    need(failing, "the witness does not break the row")
    return "its witness lies in the set and breaks the row"


def proved(net, x, k, c):
    """Prove a bound again: interval arithmetic in a box, a closed form in a ball where only the output layer moves."""
    step, told, p, r = c["evidence"]["step"], c["evidence"]["bound"], net.shifts.get("p"), net.radii
    box, closed = net.shifts["kind"] == "linf", step == "ball" and p is not None and not r[: net.cuts[-3]].any()
    sparse = net.shifts["kind"] == "sparse" and not net.act and step == "interval"
    need(closed or sparse or (step == "interval" and box), f"a proof by the step {step!r}", "NOT CHECKED")
    if closed:
        a, order = net.hidden(x[None], net.split(net.theta))[0], math.inf if p <= 1 else p / (p - 1)
        slopes = [np.append(a * r[net.cuts[-3]], r[net.cuts[-2]])] * min(2, *net.shapes[-1])
        bound = net.margin(x[None], net.theta, k)[0] - c["delta"] * np.linalg.norm(np.concatenate(slopes), order)
    elif sparse:  # of a linear model: the largest effects of the parameters of two scores, or of one
        effects = net.split(r)[0] * np.abs(x)[:, None], net.split(r)[1][None]
        effects = [np.concatenate(effects)[:, [j for _, j in signed]].ravel() for signed, _ in net.rivals(k)]
        falls = [np.sort(e)[::-1][: net.shifts["count"]].sum() for e in effects]
        bound = min(m - c["delta"] * fall for m, fall in zip(net.leads(x, k), falls, strict=True))
    else:
        bound = net.least(x, c["delta"], k)
    bound -= net.single_error(x[None], c["delta"] * r)[0]
    error = 100 * net.double_error(x[None], c["delta"] * r)[0]  # rounding, and bounds of six digits
    same = bound > 0.01 * error and -error <= bound - told <= 1.1e-5 * bound + error
    need(same, f"the bound is {bound:.7g}, not {told}")
    return f"proved again: the margin is at least {told} on every shift"


class Refits:
    """The training table behind a network, and bounds over every refit on it; allowances of 1e-9 cover rounding."""

    def __init__(self, net, table):
        need(table is not None, "a bound over refits needs the training table; pass --table", "NOT CHECKED")
        self.net, self.told, self.kind = net, net.shifts, net.shifts["kind"]
        self.digest = hashlib.sha256(np.ascontiguousarray(table).astype("<f8").tobytes()).hexdigest()
        X, y, self.c, self.turned = table[:, :-3], table[:, -3], table[:, -2], table[:, -1]
        need(X.shape[1] == net.shapes[0][0] and net.shapes[-1] == (1,), "the table does not fit the network")
        self.logistic = self.told["loss"] == "logistic"
        self.Z = np.column_stack([net.hidden(X, net.split(net.theta)), np.ones(len(X))])
        self.y, self.R = y if self.logistic else 2 * y - 1, np.append(np.ones(self.Z.shape[1] - 1), 0.0)
        self.theta = np.zeros(self.Z.shape[1])
        for _ in range(100):
            step = np.linalg.lstsq(self.hessian(self.theta), self.gradient(self.theta, self.y, self.c), rcond=None)[0]
            self.theta = self.theta - step / max(1.0, math.sqrt(max(0.0, step @ self.hessian(self.theta) @ step)))
        self.S = np.linalg.inv(np.linalg.cholesky(self.hessian(self.theta)))
        self.zt, self.m = self.Z @ self.S.T, self.Z @ self.theta
        self.n = np.linalg.norm(self.zt, axis=1) * (1 + 1e-9)
        self.e0 = np.linalg.norm(self.S @ self.gradient(self.theta, self.y, self.c)) + self.told["tolerance"]
        weights = [w for _, w in self.told["class_weight"] or []]
        self.new = self.told["C"] * self.told["weight"] * max([*weights, *[1.0] * (len(weights) < 2)])
        ends = [self.Z[:, :-1].min(axis=0), self.Z[:, :-1].max(axis=0)]
        low, high = (
            e if self.told[k] is None else np.array(self.told[k]) for k, e in zip(("low", "high"), ends, strict=True)
        )
        unit, used = np.eye(len(self.theta)), {j for group in self.told["categories"] for j in group}
        groups = [unit[g] for g in self.told["categories"]]
        groups += [np.stack([low[j] * unit[j], high[j] * unit[j]]) for j in range(len(low)) if j not in used]
        self.groups, self.low, self.high = [*groups, unit[-1:]], low, high
        white = [g @ self.S.T for g in self.groups]
        pairs = [(a @ b.T).max() for i, a in enumerate(white) for j, b in enumerate(white) if i != j]
        self.add = math.sqrt(sum(pairs) + sum((a * a).sum(axis=1).max() for a in white)) * (1 + 1e-9)
        self.add *= self.kind in ("added", "replaced")

    def p(self, m):
        """Residual plus label: the logistic function, or the score itself."""
        return 0.5 + 0.5 * np.tanh(0.5 * m) if self.logistic else m

    def slope(self, m):
        """Its derivative."""
        return self.p(m) * self.p(-m) if self.logistic else np.ones_like(m)

    def gradient(self, theta, y, c, Z=None):
        """Gradient of what is minimised."""
        Z = self.Z if Z is None else Z
        return Z.T @ (c * (self.p(Z @ theta) - y)) + self.R * theta

    def hessian(self, theta):
        """Its Hessian on the table as it is."""
        return (self.Z.T * (self.c * self.slope(self.Z @ theta))) @ self.Z + np.diag(self.R)

    def gram(self, weights):
        """Weighted sum of the products of whitened rows."""
        return (self.zt.T * weights) @ self.zt

    def bound(self, u, k, radius, tau, spared):
        """A lower bound on u @ theta after k changes, if all refits lie within the radius; else minus infinity."""
        T, m, c, y = self.n * radius * (1 + 1e-9) + 1e-9, self.m, self.c, self.y
        ends, flat = (self.p(m - T), self.p(m + T)), c
        if self.logistic:
            flat = (
                c * np.min([self.slope(m), (ends[1] - self.p(m)) / T, (self.p(m) - ends[0]) / T], axis=0)
                - 1e-9 / T * 1e-6
            )
        changes = [-c * (p - y) for p in ends]
        if self.kind == "relabelled":
            changes = [self.turned * (p - (1 - y if self.logistic else -y)) - c * (p - y) for p in ends]
        up, down = (np.maximum(0, np.max([s * e for e in changes], axis=0)) for s in (1, -1))
        cost = np.maximum(up, down)
        if self.kind in ("removed", "replaced"):
            cost = np.minimum(cost, c * np.abs(self.p(m) - y) + flat * T)
        cost = cost * (self.kind != "added")
        far = 1.0 if self.logistic else sum(np.abs(g @ self.theta).max() for g in self.groups) + self.add * radius + 1
        extra, order = self.new * far * self.add, np.argsort(-cost * self.n, kind="stable")
        big, H = (cost * self.n)[order], radius * (self.gram(flat) + self.S * self.R @ self.S.T)
        need_ = k * (tau + extra) + self.e0 + (big[:spared] - tau).sum() if tau else big[:k].sum() + k * extra + self.e0
        if tau:
            om = np.where(
                big <= tau, 0, np.where(big < 2 * tau, (big - tau) / np.maximum(big, 1e-300) ** 2, 1 / (4 * tau))
            )
            om[:spared] = 0
            H = H - (self.zt[order].T * (om * cost[order] ** 2)) @ self.zt[order]
        if not np.linalg.eigvalsh(H)[0] - 1e-9 * radius * len(H) > need_ * (1 + 1e-9):
            return -math.inf, 0.0
        v = self.S @ u
        a, bend = self.zt @ v, 0.0
        if self.logistic:
            at = [self.slope(e) * np.tanh(-0.5 * e) for e in (m - T, m + T)]
            top = math.log(2 + math.sqrt(3))
            sup = [
                np.where(np.abs(m - s * top) <= T, 1 / (6 * math.sqrt(3)), np.max([-s * e for e in at], axis=0))
                for s in (-1, 1)
            ]
            bend = (
                0.5
                * radius**2
                * max(0.0, np.linalg.eigvalsh(self.gram(c * np.where(a > 0, a * sup[0], -a * sup[1])))[-1] + 1e-9)
            )
        harm = np.sort(np.maximum(a * up, -a * down) * (self.kind != "added"))[::-1][:k].sum()
        added = max(self.harm_of_added(s * v, s * self.theta, self.add * radius) for s in (1, -1)) if self.add else 0.0
        length = np.linalg.norm(v)
        rest = self.e0 * length + 1e-9 * (1 + radius) * length + bend + (harm + k * added) * (1 + 1e-9)
        return u @ self.theta - rest - 1e-9 * (1 + abs(u @ self.theta)), 0.02 * k * added

    def harm_of_added(self, v, theta, wide):
        """An upper bound on effect times residual over added rows: the logarithm is concave, so a tangent is one."""
        q, best = self.S.T @ v, math.inf
        z = sum(g[(g @ q).argmax()] for g in self.groups)
        if not z @ q > 0:
            return 0.0
        for t in range(200):
            s = z @ theta + wide
            g, tilt = (self.p(s), self.p(-s)) if self.logistic else (s + 1, 1 / max(s + 1, 1e-9))
            slope = q / (z @ q) + tilt * theta
            corner = sum(h[(h @ slope).argmax()] for h in self.groups)
            best = min(best, (z @ q) * g * math.exp(min(700.0, slope @ (corner - z)))) if z @ q > 0 and g > 0 else best
            z = z + 2 / (t + 3) * (corner - z)
            if not z @ q > 0:
                break
        return self.new * best

    def check(self, x, k, c):
        """Check one certificate."""
        e, count, sign = c["evidence"], c["delta"], 1 if k else -1
        need(e["table"] == self.digest and count == int(count), "the table is another one")
        need(self.told["rows"] == len(self.Z), "the table has another number of rows")
        u = sign * np.append(self.net.hidden(x[None], self.net.split(self.net.theta))[0], 1.0)
        if c["verdict"] == "UNKNOWN":
            return "nothing is claimed"
        if c["verdict"] == "REFUTED":
            return self.replayed(u, sign, c, int(count))
        fine = e["radius"] > 0 and e["threshold"] >= 0 and type(e["spared"]) is int and 0 <= e["spared"] <= count
        need(fine and count <= 10**9, "no proof has such a radius or threshold")
        bound, slack = self.bound(u, int(count), e["radius"], e["threshold"], e["spared"])
        bound -= sign * self.net.offset
        need(
            e["bound"] is not None and e["bound"] <= bound + slack + 1e-5 * max(1.0, bound), f"the bound is {bound:.7g}"
        )
        need(bound > 0, "the bound is not reached by a simpler proof", "NOT CHECKED")
        return f"proved again: the margin is above 0 on every refit after {int(count)} changes"

    def replayed(self, u, sign, c, count):
        """Replay a change and the refit that breaks the row."""
        e, w = c["evidence"], c["witness"]
        rows, adds, size = e["rows"], self.kind in ("added", "replaced"), len(self.theta)
        fits = w["kind"] == "parameters" and w["delta"] == count and len(w["values"]) == len(self.net.theta)
        fits = (
            fits and len(set(rows)) == len(rows) <= count and all(type(r) is int and 0 <= r < len(self.Z) for r in rows)
        )
        need(
            fits and not (self.kind == "added" and rows) and len(e["added"]) == adds * (size + 1),
            "no change of the set",
        )
        values = np.array(w["values"])
        need((values[:-size] == self.net.theta[:-size]).all(), "the hidden layers of the witness are others")
        theta, y, weights, Z = values[-size:], self.y.copy(), self.c.copy(), self.Z
        if self.kind == "relabelled":
            y[rows], weights[rows] = (1 - y if self.logistic else -y)[rows], self.turned[rows]
        else:
            weights[rows] = 0
        if adds:
            z, label = np.array(e["added"][:-1]), e["added"][-1]
            inside = ((z[:-1] >= self.low) & (z[:-1] <= self.high)).all() and z[-1] == 1
            inside = inside and label in ((0, 1) if self.logistic else (-1, 1))
            one = all(sorted(z[g].tolist()) == [0.0] * (len(g) - 1) + [1.0] for g in self.told["categories"])
            need(inside and one, "the added row is not one of the set")
            Z, y, weights = np.vstack([Z, z]), np.append(y, label), np.append(weights, count * self.new)
        norm = np.linalg.norm(self.S @ self.gradient(theta, y, weights, Z))
        need(norm <= self.told["tolerance"] * (1 + 1e-6), f"the gradient at the witness is {norm:.3g}")
        need(u @ theta - sign * self.net.offset < -1e-12, "the witness does not break the row")
        return "its change and its refit break the row"


def checked(net, x, k, entry, drawn, *shared):
    """Check one certificate; what is returned says how."""
    c, margins = entry["certificate"], entry["margins"]
    kind, verdict, bound = c["evidence"]["kind"], c["verdict"], c["evidence"].get("bound")
    base, band = net.margin(x[None], net.theta, k)[0], net.double_error(x[None], c["delta"] * net.radii)[0]
    near = net.single and abs(base) <= net.band(x[None], 0 * net.radii)[0]
    told = "computed in float32" in c["claim"]["measure"]
    need(told == net.single, "the claim does not say in which arithmetic the model computes")
    for name, margin in (("model", base), *([("first_draw", drawn[2])] if drawn else [])):
        told = math.nan if margins[name] is None else margins[name]
        same = abs(told - margin) <= 1e-8 * abs(margin) + band if math.isfinite(margin) else math.isnan(told)
        need(same, f"the margin ({name}) is {margin}, the file says {told}")
    if kind == "model" or near or not net.valid(base, k):
        decided = verdict == "UNKNOWN" if near else verdict == "REFUTED" and not net.valid(base, k)
        same = kind == "model" and decided and c["witness"] is None
        same = same and c["evidence"]["draws"] == c["evidence"]["failures"] == 0 and possible(c["claim"])
        need(same, "file and model do not agree on whether the model itself gives the class")
        return "within float32 rounding of the boundary" if near else "not valid on the model itself"
    if kind == "sampling":
        return sampled(c, drawn, *shared)
    if kind == "share":
        return computed(net, x, k, c)
    need(kind in ("bound", "refit"), f"evidence of the kind {kind!r}", "NOT CHECKED")
    same = c["claim"]["kind"] == "every" and (bound is not None and bound > 0) == (verdict == "CERTIFIED")
    need(same and (c["witness"] is not None) == (verdict == "REFUTED"), "claim, bound, witness, verdict contradict")
    if kind == "refit":
        need(net.shifts["kind"] in REFITS and c["claim"]["kind"] == "every", "refits of another set")
        net.refits = getattr(net, "refits", None) or Refits(net, net.table)
        return net.refits.check(x, k, c)
    need(net.shifts["kind"] not in REFITS, "refits are not proved by parameters")
    check = {"CERTIFIED": proved, "REFUTED": replayed, "UNKNOWN": lambda *_: "nothing is claimed"}[verdict]
    return check(net, x, k, c)


def region(net, x, k, c, names, *shared):
    """Prove a certified region again: as boxes of rows, over the draws or over every shift."""
    need(c["verdict"] == "CERTIFIED", "a region that is not certified", "NOT CHECKED")
    need(c["region"]["spans"] and "siblings" not in c["evidence"], "a seed that does not bind the region")
    boxes = [(x.copy(), x.copy())]
    for span in c["region"]["spans"]:
        j = names.index(span["feature"]) if span["feature"] in names else int(span["feature"].removeprefix("x"))
        ends = [(v, v) for v in span["levels"]] if span["side"] == "one of" else [(span["low"], span["high"])]
        need(any(low <= x[j] <= high for low, high in ends), "the region does not hold its own row")
        boxes = [(low.copy(), high.copy()) for low, high in boxes for _ in ends]
        for (low, high), (a, b) in zip(boxes, ends * (len(boxes) // len(ends)), strict=True):
            low[j], high[j] = a, b
    need(len(boxes) <= 4096, "so many combinations", "NOT CHECKED")
    e, claim = c["evidence"], c["claim"]
    if e["kind"] == "bound":
        error = max(100 * net.band(np.maximum(abs(a), abs(b))[None], c["delta"] * net.radii)[0] for a, b in boxes)
        bound = min(net.least(low, c["delta"], k, high) for low, high in boxes) - error
        simple = claim["kind"] == "every" and net.shifts["kind"] == "linf" and c["witness"] is None
        need(simple and bound > 0, "a proof over a region by other means", "NOT CHECKED")
        return "proved again: every row of the region on every shift"
    known = e["kind"] == "sampling" and len(net.act) <= 1 and {*net.act} <= {"relu", "identity"}
    need(known, "a region on such a network", "NOT CHECKED")
    question = (c["delta"], k, e["purpose"], int(e["entropy"], 16), e["draws"])
    need(e["draws"] <= MOST, "so many draws", "NOT CHECKED")
    fails = np.any([net.unproved(box, *question) for box in boxes], axis=0)
    none, risk = np.zeros(len(fails), dtype=bool), risk_of(claim) / (claim["rows"] * claim["tries"])
    count = int(fails.sum())
    if e.get("test", "fixed") == "fixed":
        found = (*plan(claim["coverage"], risk, e["samples"]), e["draws"], count, count, None)
    else:
        _, at, count = anytime(claim["coverage"], risk, (fails, none), e["draws"], e["samples"])
        found, fails, none = (None, None, at, count, count, None), fails[:at], none[:at]
    mine = {**c, "evidence": {**e, **dict(zip(COUNTS, found, strict=True))}, "witness": None}
    try:
        sampled(mine, (fails, none), *shared)
    except Stop as stop:
        raise Stop("NOT CHECKED" if stop.args[1].startswith("drawn again") else "FAILS", stop.args[1]) from None
    return f"drawn again: of {len(fails)} draws {count} are not proved here to keep every row of the region"


def possible(claim):
    """Whether a claim is one that could be made."""
    share = claim.get("coverage", 1)
    return claim["kind"] in ("every", "most") and 0 < share <= 1 > risk_of(claim) and claim["rows"] > 0


def streams(net, entries, version):
    """Per row the class it wants, its stream, and the claim with its seed that other rows may share."""
    for c in (entry["certificate"] for entry in entries):
        kinds = ("model", "sampling", "share", "bound", "enumeration", "partition", "calibration", "refit")
        if c and c["evidence"]["kind"] not in kinds:
            raise ValueError("evidence of a kind that there is not")
        e, claim = (c["evidence"], c["claim"]) if c and c["evidence"]["kind"] == "sampling" else ({}, {})
        seed = e.get("entropy", "0x0")
        if not re.fullmatch("0x[0-9a-f]{1,1024}", seed):
            raise ValueError("an entropy is a hexadecimal number")
        k = [i for i, label in enumerate(net.classes) if c and repr(label) == repr(c["target"])]
        shared = [claim.get(key) for key in ("coverage", "confidence", "bits", "rows", "tries")]
        if (e and (version == 1) != ("test" not in e)) or e.get("test", "fixed") not in ("fixed", "anytime/1"):
            raise ValueError("a sampling test is fixed or anytime/1, and its file says which from version 2 on")
        made = e.get("samples" if e.get("test", "fixed") == "fixed" else "draws", 1)
        yield (*k, None)[0], (e.get("purpose", "probe"), int(seed, 16), made), (*shared, int(seed, 16))


def check(file, net):
    """Yield what became of each row."""
    entries, groups, drawn, wide = file["certificates"], {}, {}, net.shapes[0][0]
    behind = file["model"]["preprocessing"]  # which is not in a model file
    names = file["points"]["columns"] if file["points"]["kind"] == "frame" else file["feature_names"] or []
    names = names or (net.names if not any(e["certificate"] for e in entries) else [])  # not always told then
    order = [names.index(n) for n in net.names] if net.names and not behind else range(wide)
    given = [e["encoded" if behind else "values"] for e in entries]
    if any(len(row) != wide for row in given):
        raise ValueError(f"a row has {wide} values")
    X = [[row[j] for j in order] for row in given]
    X = np.array(X, dtype=float).reshape(-1, wide)
    known = net.radii is not None and net.radii.any()
    known = known and net.shifts.get("p", 1) in (1, 2) and set(net.act) <= set(ACTIVATIONS)
    asked = list(streams(net, entries, file["version"]))
    for i, (k, stream, _) in enumerate(asked):
        if k is not None and known and 0 < stream[2] <= MOST:
            part = i // max(1, 10**7 // stream[2])  # for what fits into memory
            groups.setdefault((entries[i]["certificate"]["delta"], k, *stream, part), []).append(i)
    for (*question, _), rows in groups.items():
        fails, sure, first = net.scan(X[rows], *question)
        drawn |= {i: (fails[:, j], sure[:, j], first[j]) for j, i in enumerate(rows)}
    together, ranks = Counter(claim for _, _, claim in asked), {}
    for _, (purpose, seed, _), _ in asked:
        ranks.setdefault(seed, set()).update(int(test[1] or 0) for test in [TEST.fullmatch(purpose)] if test)
    lower = {seed: next(r for r in range(len(known) + 1) if r not in known) for seed, known in ranks.items()}
    for i, (entry, c) in enumerate((entry, entry["certificate"]) for entry in entries):
        try:
            need(np.array_equal(X[i], np.array(entry["encoded"], dtype=float)), "its values in model units are others")
            e = c["evidence"] if c else {"kind": None}
            shown = e["kind"] != "sampling" or c["verdict"] != "CERTIFIED" or e["draws"] == e["samples"]
            shown = shown or e.get("test") == "anytime/1"
            need(shown, "a certified row has seen all its draws")
            alone = e["kind"] != "sampling" or c["method"] == "sampling"
            need(alone, "its method is not one sample; a cascade may have drawn until one passed")
            k, (_, seed, _), _ = asked[i]
            same = "siblings" not in e or derive(file["model"]["digest"], net.shifts, X[i], k, c) == seed
            need(same, "its seed is not the one that model, shifts, row and claim lead to")
            usable = c and net.radii is not None and (c["evidence"]["kind"] != "sampling" or i in drawn)
            need(not c or (asked[i][0] is not None and c["delta"] > 0), "its target is no class of the model")
            need(usable and set(net.act) <= set(ACTIVATIONS), "a statement or a network of another kind", "NOT CHECKED")
            shared = together[asked[i][2]], lower[asked[i][1][1]]
            if c and "region" in c:
                need(not behind, "regions behind a preprocessing", "NOT CHECKED")
                reason = region(net, X[i], asked[i][0], c, list(net.names or []), *shared)
            else:
                reason = checked(net, X[i], asked[i][0], entry, drawn.get(i), *shared)
            need(not behind, f"{reason}, in model units; not the preprocessing", "NOT CHECKED")
            need(entry["max_shift"] is None, f"{reason}; not its largest shift", "NOT CHECKED")
            yield "HOLDS", reason
        except Stop as stop:
            yield stop.args


def claims(entry):
    """The certificate of a row or else its largest shift, whether it promises anything, and what; 1 for every shift."""
    c = entry["certificate"] or entry["max_shift"]
    claim, alone = c["claim"], (c.get("trace") or {}).get("claim") == "per test"
    sure = claim.get("confidence", claim.get("level", 1) or 0)
    sure = 1 - 2.0 ** -min(claim["bits"], 53) if "bits" in claim else sure
    sure = math.nan if alone else sure  # of each test alone, not of the delta they led to
    promise = c.get("verdict", "CERTIFIED") == "CERTIFIED" and c["delta"] > 0
    return c, promise, {"coverage": claim.get("coverage", 1), "confidence": sure, "delta": c["delta"]}


def missing(entry, required):
    """What a row does not claim that is required, or None."""
    c, promise, told = claims(entry)
    if required.target not in (None, str(c["target"])):
        return f"is about the target {str(c['target'])!r}, {required.target!r} is required"
    for name, want in ((name, getattr(required, name)) for name in told):
        if want is not None and not (promise and told[name] >= want):  # also if one of them is no number
            return f"{f'claims {name} {told[name]}' if promise else 'certifies nothing'}, {want} is required"
    if required.derived and "entropy" in c.get("evidence", c.get("trace")) and c["claim"].get("bits", 0) < 64:
        return "a seed that nobody can choose is required, for a risk of at most 2^-64"
    return None if promise or required.target is None else f"certifies nothing, {required.target!r} is required"


def shown(entry, net):
    """The claim of a row in words, and how far the parameters really move."""
    c, _, told = claims(entry)
    claim, r, alone = c["claim"], net.radii, math.isnan(told["confidence"])
    words = [f"target {c['target']}", f"delta {told['delta']}", f"coverage {told['coverage']}"]
    sure = f"1 - 2^-{claim['bits']}, seed derived" if "bits" in claim else told["confidence"]
    words += ["confidence of each test alone" if alone else f"confidence {sure}"]
    words += [f"for {claim['rows']} rows together"] * (claim["rows"] > 1)
    for span in c.get("region", {"spans": ()})["spans"]:
        words += [f"{span['feature']} {span['side']} {span.get('levels', [span.get('low'), span.get('high')])}"]
    if not alone and (parts := claim["rows"] * claim.get("tries", 1)) > 1 and claim["kind"] == "most":
        words += [f"tested at {math.floor((1 - risk_of(claim) / parts) * 10**15) / 10**15}"]
    words += [f"shifts {net.shifts['kind']} {net.shifts.get('p', '')}".strip()]
    if r is not None and r.any():
        reach = f"{r[r > 0].min():.6g} to {r.max():.6g}"
        words += [f"{np.count_nonzero(r)} of {len(r)} parameters move, at delta 1 by {reach}"]
    return ", ".join(words)


def line(text):
    """A text as a part of one line, which a terminal does not obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


def run(words):
    """Run the program as a command; what goes wrong in it, or with what it writes, is no answer."""
    try:
        if sys.stdout is None:  # it was closed before we began, so that the exit code is all that is asked for
            return main(words)
        sys.stdout.reconfigure(errors="backslashreplace")
        code = main(words)
        sys.stdout.flush()
        return code
    except Exception as error:  # noqa: BLE001
        print(f"error: there is no answer: {line(f'{type(error).__name__}: {error}'[:500])}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python complains about what is left, with a code of its own
        return 70


def main(words):
    """Check what the words name; give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("certificates")
    parser.add_argument("model")
    for name in ("coverage", "confidence", "delta", "target"):
        parser.add_argument(f"--require-{name}", dest=name, type=str if name == "target" else float)
    parser.add_argument("--require-derived", dest="derived", action="store_true")
    parser.add_argument("--table")
    required = parser.parse_args(words)
    try:
        words = required.certificates, required.model
        file, model = read(words[0], "apas-certificates"), read(words[1], "apas-model")
        if content_digest(file) != file["digest"]:
            raise ValueError(f"{words[0]} was damaged or edited: its digest does not match what it holds")
        first = numbers(f"apas/derived/1/certify/{derive(*VECTOR):064x}", 0, 1025)
        if derive(*VECTOR) != VECTOR_SEED or first[::1024].tolist() != VECTOR_WORDS:
            raise ValueError("seeds are not derived here as they must be")
        net = Net(model, file["shifts"])
        net.table = None if required.table is None else np.load(required.table, allow_pickle=False).astype(float)
        behind, whole = file["model"]["preprocessing"], net.digest == file["model"]["digest"]
        if whole == behind or (behind and net.digest != file["model"]["network"]):
            print(f"FAILS\tthe certificates are not about this model, whose digest is {net.digest}")
            return 1
        with np.errstate(all="ignore"):
            labels, found = [str(entry["row"]) for entry in file["certificates"]], list(check(file, net))
        for i, entry in enumerate(file["certificates"]):
            said = missing(entry, required) if found[i][0] != "FAILS" else None
            found[i] = (*(("FAILS", said) if said else found[i]), shown(entry, net))
    except Exception as error:  # noqa: BLE001  # whatever is wrong with a file, it is not a verdict
        print(f"error: bad input: {line(f'{type(error).__name__}: {error}'[:500])}", file=sys.stderr)
        return 2
    for label, answer in zip(labels, found, strict=True):
        print(*map(line, (label, *answer)), sep="\t")  # none of which must look like another line
    if not found:
        print("NOT CHECKED\tthe file holds no rows")
    kinds = {answer[0] for answer in found}
    return 1 if "FAILS" in kinds else 0 if kinds == {"HOLDS"} else 3


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
