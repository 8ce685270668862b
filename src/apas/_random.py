"""Random streams, and points drawn from them: uniform in cubes and balls, and normal.

NumPy promises that the *bit streams* of its bit generators do not change, but not the numbers that its `Generator`
derives from them. So the words come from `PCG64DXSM.random_raw`, whose state is set from a SHA-256 digest rather than
by NumPy's seeding. For seeds that were derived (`apas.certification.derived_seed`) they come from SHAKE-128: there an
attacker may choose the model, and so which function of the words counts as a failure.

Every coordinate takes a fixed number of 64-bit words, whose highest 53 bits are a number of (0, 1) and whose lowest bit
is a sign; the size follows by inverting the distribution function.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apas._lazy import cached_property
from apas._typing import Floats
from apas.errors import InputError


class _PerThread(threading.local):
    """A bit generator for each thread: making one costs ten times as much as setting its state."""

    def __init__(self) -> None:
        self.bits: Any = np.random.PCG64DXSM(0)


_LOCAL = _PerThread()
#: How purposes of streams begin that are drawn from SHAKE-128, and how many words of them one hash gives. Both say
#: which word is which, and so never change: a later version would have another name.
DERIVED, HASHED = "derived/1/", 1024
UNIT = 2.0**-31  # turns a signed 32-bit integer into a number of [-1, 1)
#: Directions of small models are drawn in groups of this many, parameter by parameter: whole cache lines of samples,
#: and few draws too many at the ends of a block. It says which word belongs to which draw, and so never changes.
TILE = 128
SMALL = 1024  # up to this many moving parameters a model counts as small
PART = 1 << 15  # numbers of larger models are made in parts of so many, which stay in the processor's cache
LARGEST = 8.4  # no normal number is larger: the smallest share is 2**-54, and half of it the quantile of -8.3744
_Words = NDArray[np.uint64]


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
    wanted, advice = "None, a non-negative integer or a numpy.random.Generator", "make the result repeatable"
    raise InputError(f"`rng` must be {wanted}, got {type(rng).__name__}; pass an integer to {advice}.")


@dataclass(frozen=True)
class Stream:
    """An endless row of 64-bit words, any part of which can be had directly; other purposes, independent streams."""

    entropy: int
    purpose: str

    @cached_property
    def _state(self) -> dict[str, int]:
        digest = hashlib.sha256(f"apas/1/{self.purpose}/{self.entropy}".encode()).digest()
        state = int.from_bytes(digest[:16], "little")
        increment = int.from_bytes(digest[16:], "little") | 1  # the generator needs an odd one
        return {"state": state, "inc": increment}

    @classmethod
    def seeded(cls, rng: object, purpose: str) -> Self:
        """The stream of a purpose for what a user passed as `rng`."""
        return cls(entropy_of(rng), purpose)

    def part(self, name: str) -> Self:
        """The stream of a part of its purpose."""
        return type(self)(self.entropy, f"{self.purpose}/{name}")

    def words(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count` (exclusive)."""
        if self.purpose.startswith(DERIVED):  # for a seed that nobody chose
            return self._hashed(int(start), int(start) + int(count))
        bits = _LOCAL.bits
        bits.state = {"bit_generator": "PCG64DXSM", "state": self._state, "has_uint32": 0, "uinteger": 0}
        bits.advance(int(start))
        return bits.random_raw(int(count))  # type: ignore[no-any-return]

    def _hashed(self, start: int, stop: int) -> NDArray[np.uint64]:
        """The same for derived seeds: the output of SHAKE-128 for one number after the other, joined."""
        about = f"apas/{self.purpose}/{self.entropy:064x}/"
        # of the last one no more than is asked for
        lengths = [(n, min(stop - n * HASHED, HASHED)) for n in range(start // HASHED, -(-stop // HASHED))]
        parts = [hashlib.shake_128(f"{about}{number}".encode()).digest(8 * length) for number, length in lengths]
        return np.frombuffer(b"".join(parts), dtype="<u8")[start % HASHED :]

    def integers(self, start: int, count: int) -> NDArray[np.int32]:
        """Signed 32-bit numbers `start` to `start + count`: the two halves of each word, the low one first."""
        first = start // 2
        words = self.words(first, (start + count + 1) // 2 - first).astype("<u8", copy=False)
        offset = start - 2 * first
        return words.view("<i4")[offset : offset + count]


def unit_cube(size: int, stream: Stream, start: int, stop: int) -> Floats:
    """Points number `start` to `stop` of a row of independent uniform points of [-1, 1)**size.

    Of small models the result is Fortran-contiguous: the order in which they are fastest.
    """
    if size > SMALL:
        points = np.empty((stop - start) * size)
        for part in range(0, len(points), PART):
            some = points[part : part + PART]
            np.copyto(some, stream.integers(start * size + part, len(some)))
            some *= UNIT
        return points.reshape(-1, size)
    tiles = _tiles(stream.integers, size, start, stop)
    cube = np.empty((size, len(tiles), TILE))
    np.copyto(cube.transpose(1, 0, 2), tiles)
    cube *= UNIT
    return _asked_for(cube.reshape(size, -1), start, stop)


def _tiles(words: Callable[[int, int], Any], width: int, start: int, stop: int) -> Any:
    """The words, `width` per point, of all groups of 128 points that hold numbers `start` to `stop`."""
    first, last = start // TILE, -(-stop // TILE)
    return words(first * TILE * width, (last - first) * TILE * width).reshape(-1, width, TILE)


def _asked_for(numbers: Floats, start: int, stop: int) -> Floats:
    """Points number `start` to `stop`, Fortran-contiguous, of whole groups of them (size, points)."""
    if numbers.shape[1] != stop - start:
        first = start // TILE * TILE
        numbers = np.ascontiguousarray(numbers[:, start - first : stop - first])
    return numbers.T


def standard_normals(size: int, stream: Stream, start: int, stop: int) -> Floats:
    """Points number `start` to `stop` of a row of independent points with `size` standard normal coordinates."""
    if size > SMALL:
        points = np.empty((stop - start) * size)
        for part in range(0, len(points), PART):
            some = points[part : part + PART]
            some[:] = _normals(stream.words(start * size + part, len(some)))
        return points.reshape(-1, size)
    words = _tiles(stream.words, size, start, stop)
    return _asked_for(_normals(np.ascontiguousarray(words.transpose(1, 0, 2)).reshape(size, -1)), start, stop)


def _normals(words: NDArray[np.uint64]) -> Floats:
    from scipy.special import ndtri

    # the lower half of the distribution alone: there `uniform` has its finest numbers, and the far tail all its digits
    sizes: Floats = -ndtri(0.5 * uniform(words))
    return np.where(words & np.uint64(1), -sizes, sizes)


def unit_ball(size: int, p: float, stream: Stream, start: int, stop: int) -> Floats:
    """Points number `start` to `stop` of a row of independent uniform points of the unit ball, (stop - start, size)."""
    # With coordinates g_i of density proportional to ``exp(-abs(x)**p)`` and a standard exponential E, all independent,
    # the point ``g / (sum(abs(g)**p) + E)**(1/p)`` is uniform in the unit ball of the L_p norm: Barthe, Guédon,
    # Mendelson and Naor (2005), "A probabilistic approach to the geometry of the l_p^n-ball", Annals of Probability 33.
    # What is computed together is always whole groups of 128 points, or else one point, so that no point can depend on
    # which others are asked for, not even in its last bit.
    if size > SMALL:
        points = np.empty((stop - start, size))
        for i, point in enumerate(points, start):
            _fill(point, p, stream, i)
        return points
    width = _words_per_coordinate(p) * size + 1
    words = _tiles(stream.words, width, start, stop)
    coordinates = np.ascontiguousarray(words[:, :-1].transpose(1, 0, 2)).reshape(width - 1, -1)
    numbers, powers = _numbers(coordinates[:size], coordinates[size:], p)
    total = powers.sum(axis=0)
    total -= np.log(uniform(np.ascontiguousarray(words[:, -1]).reshape(-1)))
    _onto_ball(numbers, total, p)
    return _asked_for(numbers, start, stop)


def _fill(point: Floats, p: float, stream: Stream, index: int) -> None:
    """Point number `index`, in parts that stay in the processor's cache."""
    size, per = len(point), _words_per_coordinate(p)
    begin = index * (per * size + 1)
    total = -float(np.log(uniform(stream.words(begin + per * size, 1)))[0])
    for part in range(0, size, PART):
        count = min(PART, size - part)
        words = stream.words(begin + part, count)
        more = stream.words(begin + size + part, count if per == 2 else 0)
        point[part : part + count], powers = _numbers(words, more, p)
        total += float(powers.sum())
    _onto_ball(point, total, p)


def _onto_ball(numbers: Floats, total: Floats | float, p: float) -> None:
    """Divide what `_numbers` gives by ``total**(1/p)``, in place."""
    if p >= 1:
        numbers *= total ** (-1.0 / p)
    else:
        np.copysign((np.abs(numbers) / total) ** (1.0 / p), numbers, out=numbers)


def _words_per_coordinate(p: float) -> int:
    return 1 if p in (1.0, 2.0) else 2


def _numbers(words: _Words, more: _Words, p: float) -> tuple[Floats, Floats]:
    """Numbers of density proportional to ``exp(-abs(x)**p)`` and their sizes to the power p; below p = 1 only these."""
    # ``abs(g) = G**(1/p) * U`` with G of the Gamma(1 + 1/p) distribution, one word, and U uniform, a second one: to
    # invert the Gamma(1/p) distribution itself would underflow for large p. Below p = 1 powers ``abs(g)**p`` are
    # computed, and the root is taken of their shares: ``abs(g)`` itself would overflow.
    share = uniform(words)
    if p == 1.0:
        sizes = powers = -np.log(share)
    elif p == 2.0:
        from scipy.special import ndtri

        sizes = ndtri(0.5 * share) * -(0.5**0.5)
        powers = sizes**2
    else:
        from scipy.special import gammainccinv

        gamma, factor = gammainccinv(1.0 + 1.0 / p, share), uniform(more)
        powers = gamma * factor**p
        sizes = gamma ** (1.0 / p) * factor if p >= 1 else powers
    return np.where(words & np.uint64(1), -sizes, sizes), powers


def uniform(words: _Words) -> Floats:
    """Numbers of (0, 1] from the highest 53 bits of each word, finest next to 0."""
    numbers = (words >> np.uint64(11)).astype(np.float64)
    numbers += 0.5  # never 0, whose logarithm or quantile would be infinite
    numbers *= 2.0**-53
    return numbers
