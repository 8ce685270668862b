"""`python -m benchmarks`: print every comparison, save the plots."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from threadpoolctl import threadpool_limits

from apas.errors import InputError
from benchmarks import anytime, auditing, derived, everyday, generation, radius, sampling, worstcase

with threadpool_limits(1):
    sampling.compare()
    print()
    anytime.compare()
    print()
    radius.compare()
    print()
    derived.compare()
    print()
    worstcase.compare()
    print()
    auditing.compare()
    print()
    everyday.compare()
    print()
    if find_spec("torch") is None:
        print("PyTorch modules: left out, since torch is not installed (extra `torch`)")
    else:
        from benchmarks import modules

        modules.compare()
    print()
    try:
        generation.compare()
    except InputError as missing:
        print(f"Generation: left out; {missing}")
    print()
    sampling.scaling(Path(__file__).parents[1] / "docs" / "results")
