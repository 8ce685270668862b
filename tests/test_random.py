"""Random words: the same for ever, from any position, independent of the platform."""

import hashlib
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import apas
from apas._random import UNIT, Stream, entropy_of

MASK = (1 << 128) - 1
MULTIPLIER = 0xDA942042E4DD58B5


def plain_words(entropy, purpose, start, count):
    """PCG64-DXSM written down from its paper, with Python's integers; the state is a SHA-256 digest."""
    digest = hashlib.sha256(f"apas/1/{purpose}/{entropy}".encode()).digest()
    state, increment = int.from_bytes(digest[:16], "little"), int.from_bytes(digest[16:], "little") | 1
    factor, addend, jump = MULTIPLIER, increment, start
    while jump:  # x -> factor * x + addend, composed with itself
        if jump & 1:
            state = (factor * state + addend) & MASK
        addend = (factor * addend + addend) & MASK
        factor = factor * factor & MASK
        jump >>= 1
    words = []
    for _ in range(count):
        high, low = state >> 64, state & 0xFFFFFFFFFFFFFFFF | 1
        high ^= high >> 32
        high = high * MULTIPLIER & 0xFFFFFFFFFFFFFFFF
        high ^= high >> 48
        words.append(high * low & 0xFFFFFFFFFFFFFFFF)
        state = (MULTIPLIER * state + increment) & MASK
    return words


@pytest.mark.parametrize("start", [0, 1, 2, 1000, 10**6, 2**63, 2**64 - 1, 2**64, 10**25])
@pytest.mark.parametrize(("entropy", "purpose"), [(0, "certify"), (1, "certify"), (2**128 - 1, "search"), (10**60, "")])
def test_words_are_those_of_the_published_generator(entropy, purpose, start):
    assert Stream(entropy, purpose).words(start, 20).tolist() == plain_words(entropy, purpose, start, 20)


def test_the_first_words_never_change():
    # Every certificate ever written is replayed from these words. If this test fails, the stream has changed, and no
    # old certificate can be checked any more: undo the change, or give the new stream a new version in `Stream`.
    words = Stream(1, "certify").words(0, 1000)
    assert hashlib.sha256(words.astype("<u8").tobytes()).hexdigest() == (
        "4919d2f678bb635e58d0734baf1362c0307b47d3d020db25dc60c95b2f2b8c29"
    )


CUTS = [
    [0, 500],
    [0, 1, 500],
    [0, 63, 64, 65, 500],
    [0, 127, 128, 500],
    [0, 250, 250, 500],
    [0, *range(7, 500, 7), 500],
]


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("kind", ["words", "integers"])
def test_any_part_can_be_had_directly(cuts, kind):
    stream = Stream(5, "certify")
    read = getattr(stream, kind)
    whole = read(0, 500)
    parts = [read(a, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(
        np.concatenate([read(a, b - a) for a, b in reversed(list(zip(cuts, cuts[1:], strict=False)))][::-1]), whole
    )


@pytest.mark.parametrize(("start", "count"), [(0, 0), (0, 1), (1, 1), (1, 2), (3, 4), (2, 5), (7, 0)])
def test_integers_are_the_halves_of_the_words_low_first(start, count):
    stream = Stream(3, "x")
    halves = []
    for word in stream.words(0, 20).tolist():
        halves += [word & 0xFFFFFFFF, word >> 32]
    signed = [h - (1 << 32) if h >> 31 else h for h in halves]
    got = stream.integers(start, count)
    assert got.dtype == np.int32
    assert got.tolist() == signed[start : start + count]


def test_streams_differ_by_seed_and_purpose():
    streams = [Stream(e, p) for e in (0, 1, 2**64, 2**128) for p in ("certify", "search", "confirm", "certify/1")]
    firsts = {tuple(s.words(0, 4).tolist()) for s in streams}
    assert len(firsts) == len(streams)
    assert Stream(1, "a") == Stream(1, "a") != Stream(1, "b")


def test_streams_are_uncorrelated():
    streams = [Stream(1, "certify"), Stream(2, "certify"), Stream(1, "search")]
    numbers = np.array([s.integers(0, 40_000) * UNIT for s in streams])
    numbers = np.vstack([numbers, numbers[0, ::-1]])
    off_diagonal = np.corrcoef(numbers)[np.triu_indices(4, 1)]
    assert (np.abs(off_diagonal) < 5 / 200).all()


def test_integers_are_uniform():
    numbers = Stream(11, "certify").integers(0, 50_000) * UNIT
    assert numbers.min() >= -1.0
    assert numbers.max() < 1.0
    assert stats.kstest(numbers, stats.uniform(-1, 2).cdf).pvalue > 1e-4
    assert stats.chisquare(np.bincount(np.floor((numbers + 1) * 128).astype(int), minlength=256)).pvalue > 1e-4


def test_asking_does_not_change_what_others_get():
    before = Stream(1, "a").words(0, 5).tolist()
    Stream(2, "b").words(77, 1000)
    assert Stream(1, "a").words(0, 5).tolist() == before


def test_threads_do_not_disturb_each_other():
    def part(i):
        return Stream(i % 3, "threads").words(17 * i, 2000)

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(part, range(60)))
    assert all(np.array_equal(words, part(i)) for i, words in enumerate(got))


def test_other_processes_draw_the_same():
    stream = Stream(4, "process")
    # spawned rather than forked, so that nothing is inherited
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert np.array_equal(pool.apply(stream.words, (3, 10)), stream.words(3, 10))


# -- what a user passes as rng -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rng", [0, 7, 2**128, np.int64(7), np.uint8(200), 10**40])
def test_integers_are_their_own_entropy(rng):
    entropy = entropy_of(rng)
    assert entropy == int(rng)
    assert type(entropy) is int


def test_none_takes_new_entropy_each_time():
    drawn = {entropy_of(None) for _ in range(50)}
    assert len(drawn) == 50
    assert all(0 <= e < 2**128 for e in drawn)
    assert max(drawn) > 2**100


def test_a_generator_gives_entropy_and_moves_on():
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    first = entropy_of(one)
    assert first == entropy_of(other)
    assert first != entropy_of(one)
    assert 0 <= first < 2**128


BAD = [
    (-1, "`rng` must not be negative, got -1"),
    (np.int64(-5), "`rng` must not be negative, got -5"),
    (True, "`rng` must be None, a non-negative integer or a numpy.random.Generator, got bool"),
    (np.bool_(True), "`rng` must be None.*got bool"),
    (1.0, "`rng` must be None.*got float"),
    ("1", "`rng` must be None.*got str"),
    ([1, 2], "`rng` must be None.*got list"),
    (np.random.RandomState(0), "`rng` must be None.*got RandomState"),
    (np.random.SeedSequence(0), "`rng` must be None.*got SeedSequence"),
    (np.random.PCG64(0), "`rng` must be None.*got PCG64"),
]


@pytest.mark.parametrize(("rng", "message"), BAD)
def test_bad_rng(rng, message):
    with pytest.raises(apas.InputError, match=message):
        entropy_of(rng)
