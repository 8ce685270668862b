"""Random words that are the same in years: a pure function of (entropy, purpose, position).

NumPy promises that the *bit streams* of its bit generators do not change, but makes no such promise for the
numbers that `numpy.random.Generator` derives from them. So the words come from `PCG64DXSM.random_raw`, whose
state is set from a SHA-256 digest rather than by NumPy's seeding, and the few lines below turn them into numbers.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.errors import InputError

_LOCAL = threading.local()
#: What turns a signed 32-bit integer into a number of [-1, 1).
UNIT = 2.0**-31


def entropy_of(rng: object) -> int:
    """Turn what a user passes as `rng` into the integer that a certificate records."""
    if rng is None:
        return secrets.randbits(128)
    if isinstance(rng, np.random.Generator):
        return int.from_bytes(rng.bytes(16), "little")
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool):
        if rng >= 0:
            return int(rng)
        raise InputError(f"`rng` must not be negative, got {rng}; pass a non-negative integer.")
    raise InputError(
        "`rng` must be None, a non-negative integer or a numpy.random.Generator, "
        f"got {type(rng).__name__}; pass an integer to make the result repeatable."
    )


@dataclass(frozen=True)
class Stream:
    """An endless row of 64-bit words, any part of which can be had directly.

    Streams of different purposes are independent, so that draws used in a search never come back in the
    test that certifies its result.
    """

    entropy: int
    purpose: str
    _state: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(f"apas/1/{self.purpose}/{self.entropy}".encode()).digest()
        state = int.from_bytes(digest[:16], "little")
        increment = int.from_bytes(digest[16:], "little") | 1  # the generator needs an odd one
        object.__setattr__(self, "_state", {"state": state, "inc": increment})

    def words(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count` (exclusive)."""
        bits = _bit_generator()
        bits.state = {"bit_generator": "PCG64DXSM", "state": self._state, "has_uint32": 0, "uinteger": 0}
        bits.advance(int(start))
        return bits.random_raw(int(count))  # type: ignore[no-any-return]

    def integers(self, start: int, count: int) -> NDArray[np.int32]:
        """Signed 32-bit numbers `start` to `start + count`: the two halves of each word, the low one first."""
        first = start // 2
        words = self.words(first, (start + count + 1) // 2 - first).astype("<u8", copy=False)
        offset = start - 2 * first
        return words.view("<i4")[offset : offset + count]


def _bit_generator() -> Any:
    # One per thread: making one costs ten times as much as setting its state.
    try:
        return _LOCAL.bits
    except AttributeError:
        _LOCAL.bits = np.random.PCG64DXSM(0)
        return _LOCAL.bits
