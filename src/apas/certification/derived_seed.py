"""Seeds that nobody chooses: SHA-256 of the model, the shifts, the rows, the claim and the test, and nothing else.

Who may choose a seed tries many, until one passes. All rows of a call share a derived one through the root of a hash
tree over their records. The page "Mathematics" has the theorem, the page "Files" every byte of the hash.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from apas._random import DERIVED, Stream
from apas._typing import Floats
from apas._validation import check_integer
from apas.certification.certificate import Certificate
from apas.certification.claims import Most
from apas.certification.max_shift.result import MaxShift
from apas.certification.question import NamesTest, Question, decide
from apas.errors import InputError, Unsupported
from apas.models.base import offers
from apas.models.digest import model_digest, unidentified
from apas.shifts.base import KINDS, Fingerprinted

_TAG = "apas/derived/1"
#: Per row the digests that lead from its record to the root of the hash tree.
Ways: TypeAlias = list[tuple[str, ...]]
#: With fewer bits it pays to try variants, and SHAKE-128 is not made for more.
LEAST_BITS, MOST_BITS = 64, 128


@dataclass(frozen=True)
class DerivedSeed:
    """A seed that follows from model, shifts, rows and claim; pass it, or its alias ``"derived"``, as `rng`.

    Parameters
    ----------
    bits : int, default 64
        The risk of a claim is ``2**-bits``, from 64 to 128; the method must not state a confidence of its own. Whoever
        tries N variants of model, row or claim gets a false certificate with probability at most ``N / 2**bits``.

    Notes
    -----
    What voids the guarantee: the wrong distribution of shifts, or a model that is not the one in use. Rows that were
    refuted can still be left out.
    """

    bits: int = LEAST_BITS

    def __post_init__(self) -> None:
        bits = check_integer(self.bits, "bits", "DerivedSeed", least=LEAST_BITS)
        if bits > MOST_BITS:
            raise InputError(f"`bits` of DerivedSeed must be at most {MOST_BITS}, got {bits}.")
        object.__setattr__(self, "bits", bits)

    @classmethod
    def wanted(cls, rng: Any) -> DerivedSeed | None:
        """What a user passed as `rng`, if it asks for a derived seed."""
        if isinstance(rng, str) and rng != "derived":
            known = 'None, a non-negative integer, a numpy.random.Generator, "derived" or a DerivedSeed'
            raise InputError(f"`rng` must be {known}, got {reprlib.repr(rng)}.")
        return cls() if isinstance(rng, str) else rng if isinstance(rng, cls) else None

    def ask(self, question: Question) -> Question:
        """The same question at the risk of derived seeds; refuse it where no seed would bind all that matters."""
        shifts, method, what = question.shifts, question.method, '`rng="derived"`'
        left, asked = unidentified(question.model), replace(question, bits=self.bits)
        if not offers(method, NamesTest):
            raise InputError(f'{what} goes with method="sampling", got {type(method).__name__}; leave `rng` out.')
        method.test_name(asked, question.method.claim(asked))
        if offers(shifts, Fingerprinted) or not KINDS.know(shifts):
            told = f"{what} cannot be used with {type(shifts).__name__}"
            if offers(shifts, Fingerprinted):
                told = f"{told}: models can be left out or trained again, and nobody sees it"
            raise Unsupported(f"{told}; no hash binds what it is, so leave `rng` out.")
        if left:
            told = f"of this one not {left}, which could be changed after the draws"
            raise Unsupported(f"{what} needs a model whose digest covers all of it, {told}; leave `rng` out.")
        if not np.isfinite(question.X).all():
            raise InputError(f"`X` must be finite for {what}, got missing or infinite values; fill them.")
        return asked

    def derive(self, question: Question, purpose: str, asked: str, limit: float | None = None) -> tuple[Stream, Ways]:
        """The stream of a question that `ask` gave, and per row its way to the seed; with a limit, delta is asked."""
        claim, method = question.method.claim(question), question.method
        root, ways = _tree(_records(question, with_delta=limit is None))
        test = method.test_name(question, claim, largest=limit is not None)
        seed = _seed(root, model_digest(question.model), question, claim, test, asked, limit)
        return Stream(seed, f"{DERIVED}{purpose}"), ways


def decide_derived(question: Question, seed: DerivedSeed) -> list[Certificate]:
    """Certificates of a question that the seed's `ask` gave, with the way from each row to the seed."""
    stream, ways = seed.derive(question, "certify", "certify")
    found = zip(decide(question, question.method, stream), ways, strict=True)
    drawn = [(c, c.evidence, way) for c, way in found]
    # rows that the model itself decides have no draws, and no seed
    return [replace(c, evidence=replace(e, siblings=way)) if hasattr(e, "siblings") else c for c, e, way in drawn]  # type: ignore[type-var]


def source_of_seed(item: Certificate | MaxShift) -> str | None:
    """Where the draws of an answer come from, as it says: "derived", "chosen", or None where there are none."""
    told = item.trace if isinstance(item, MaxShift) else item.evidence.to_dict()
    return ("derived" if "siblings" in told else "chosen") if "entropy" in told else None


def wrong_seed(alone: Question, item: Certificate | MaxShift, digest: str, unbound: str) -> str | None:
    """Why an answer about one row of a model with this digest, but for what is `unbound`, has no derived seed."""
    told, largest = (item.trace, True) if isinstance(item, MaxShift) else (item.evidence.to_dict(), False)
    source, claim = source_of_seed(item), item.claim
    derived = {source == "derived", isinstance(claim, Most) and claim.bits is not None}
    derived |= set() if largest else {str(told.get("purpose")).startswith(DERIVED)}
    if source is None or derived == {False}:
        return None
    if derived != {True} or not isinstance(claim, Most):
        return "its claim, its stream and its seed do not agree on whether the seed was derived"
    if unbound:
        return f"its seed does not bind all of the model: not {unbound}"
    try:
        (root,) = _records(alone, with_delta=not largest)
        for sibling in told["siblings"].split() if largest else told["siblings"]:
            root = _node(root, bytes.fromhex(sibling))
        test = told.get("test", "fixed")
        test = f"fixed/{told['samples']}" if test == "fixed" else test
        asked, limit = (f"{told['search']}/1", float(told["limit"])) if largest else ("certify", None)
        # the published search leads to a delta without a confidence, for which no seed is derived
        same = asked != "paper/1" and _seed(root, digest, alone, claim, test, asked, limit) == int(told["entropy"], 16)
    except (KeyError, TypeError, ValueError):  # a trace may say anything
        same = False
    return None if same else "its seed is not the one that model, shifts, row and claim lead to"


def _seed(root: bytes, digest: str, question: Question, claim: Most, test: str, asked: str, limit: float | None) -> int:
    coverage = Fraction(repr(claim.coverage))
    fields: dict[str, bytes | str] = {
        "model": bytes.fromhex(digest),
        "shifts": json.dumps(question.shifts.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False),
        "records": root,
        "coverage": f"{coverage.numerator}/{coverage.denominator}",
        "bits": str(claim.bits),
        "test": test,
        "rows": str(claim.rows),
        "tries": str(claim.tries),
        "question": asked,
    }
    if limit is not None:
        fields["limit"] = _bytes(limit)
    return int.from_bytes(_hash("seed", fields), "big")


def _records(question: Question, *, with_delta: bool) -> list[bytes]:
    """A digest per row of what is its own: its numbers in model units, which all sets start from, class and delta."""
    records = []
    for row, k, delta in zip(question.X, question.wanted.tolist(), question.delta.tolist(), strict=True):
        fields: dict[str, bytes | str] = {"row": _bytes(row), "target": str(k)}
        records.append(_hash("record", fields | ({"delta": _bytes(delta)} if with_delta else {})))
    return records


def _tree(leaves: Sequence[bytes]) -> tuple[bytes, Ways]:
    """The root of the hash tree over leaves, and per leaf the digests beside its way there."""
    order = sorted(range(len(leaves)), key=lambda i: leaves[i])  # so that the order of rows does not matter
    level, siblings = [leaves[i] for i in order], [list[str]() for _ in leaves]
    below = [[i] for i in order]  # whose way leads through each node
    while len(level) > 1:
        for i in range(len(level)):
            for leaf in below[i] if i ^ 1 < len(level) else ():
                siblings[leaf].append(level[i ^ 1].hex())
        pairs = range(0, len(level), 2)  # the last one of an odd number goes up as it is
        below = [below[i] + (below[i + 1] if i + 1 < len(level) else []) for i in pairs]
        level = [_node(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in pairs]
    return level[0] if level else b"", [tuple(way) for way in siblings]


def _node(*children: bytes) -> bytes:
    # the smaller one first, so that a way to the root need not tell left from right
    return _hash("node", {"children": b"".join(sorted(children))})


def _bytes(numbers: Floats | float) -> bytes:
    # -0.0 + 0.0 is 0.0: both are the same number to every model
    return (np.asarray(numbers, dtype="<f8") + 0.0).astype("<f8").tobytes()


def _hash(what: str, fields: Mapping[str, bytes | str]) -> bytes:
    """SHA-256 of fields, each with its name and its length, so that no two lists of fields give the same bytes."""
    digest = hashlib.sha256(f"{_TAG}/{what}".encode())
    for name, value in fields.items():
        content = value.encode() if isinstance(value, str) else value
        digest.update(f"/{name}/{len(content)}/".encode() + content)
    return digest.digest()
