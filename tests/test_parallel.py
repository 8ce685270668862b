"""How work is divided: libraries in one thread, also those that are loaded later."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import numpy
from threadpoolctl import threadpool_info
from apas._parallel import _libraries, one_thread
def threads():
    return [library["num_threads"] for library in threadpool_info()]
before = threads()
assert before and all(count > 1 for count in before), before
for _ in range(2):
    with one_thread():
        assert set(threads()) == {1}
    assert threads() == before
first = _libraries.cache_info().misses
with one_thread():
    pass
assert _libraries.cache_info().misses == first  # looked for once
import scipy.linalg
with one_thread():
    assert len(threads()) > len(before)
    assert set(threads()) == {1}
"""


def test_one_thread_for_what_is_loaded_and_for_what_is_loaded_later(monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
