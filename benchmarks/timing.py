"""Timing on a noisy machine: everything that is compared runs in the same rounds, one after the other.

Within a round a short call is repeated until 20 ms have passed, each time with a new seed, and the mean counts.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

__all__ = ["interleaved", "ratio"]

LEAST = 0.02


def interleaved(*calls: Callable[[int], object], rounds: int) -> list[list[float]]:
    """Seconds of each call in each round; every call gets a number it has never seen, to use as a seed."""
    seconds: list[list[float]] = [[] for _ in calls]
    seeds = itertools.count(1000)
    for number in range(rounds + 1):
        for taken, call in zip(seconds, calls, strict=True):
            begin = time.process_time()
            repetitions, spent = 0, 0.0
            while spent < LEAST:
                call(next(seeds))
                repetitions += 1
                spent = time.process_time() - begin
            if number:  # the first round warms up and does not count
                taken.append(spent / repetitions)
    return seconds


def ratio(slow: list[float], fast: list[float], *, times: float = 1.0) -> str:
    """Median, least and largest ratio over the rounds."""
    ratios = [times * a / b for a, b in zip(slow, fast, strict=True)]
    return f"{statistics.median(ratios):7.1f} ({min(ratios):.1f}-{max(ratios):.1f})"
