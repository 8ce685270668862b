"""`python -m benchmarks.trace`: which files one row visits on its way through a call, and how often it changes files.

A call is run once to load what it needs, then once more under a profiler. Every call of a function of the package
counts its file; a switch is a call that comes from another file of the package than the one it goes to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import apas

__all__ = ["Trace", "calls", "traced"]

PACKAGE = str(Path(apas.__file__).parent)


@dataclass
class Trace:
    """Files in the order of their first visit, switches between files, and functions that were called."""

    files: dict[str, int] = field(default_factory=dict)
    switches: int = 0
    functions: set[CodeType] = field(default_factory=set)

    def visit(self, frame: FrameType, event: str, _: Any) -> None:
        """Count one event of the profiler."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        name = code.co_filename[len(PACKAGE) + 1 :]
        self.files[name] = self.files.get(name, 0) + 1
        self.functions.add(code)
        self.switches += _caller(frame) not in (None, code.co_filename)


def _caller(frame: FrameType) -> str | None:
    """File of the package that a call came from, if it came from one."""
    back = frame.f_back
    while back is not None and not back.f_code.co_filename.startswith(PACKAGE):
        back = back.f_back  # a library that calls back
    return None if back is None else back.f_code.co_filename


def traced(call: Callable[[], object]) -> Trace:
    """Run a call twice; trace the second time."""
    call()
    trace = Trace()
    sys.setprofile(trace.visit)
    try:
        call()
    finally:
        sys.setprofile(None)
    return trace


def calls() -> dict[str, Callable[[], object]]:
    """One row through each of the verbs, with a small network of scikit-learn's."""
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 4))
    labels = (rows[:, 0] + rows[:, 1] ** 2 > 0.5).astype(int)
    net = MLPClassifier((6,), max_iter=300, tol=0, n_iter_no_change=300, solver="lbfgs", random_state=0).fit(
        rows, labels
    )
    later = deepcopy(net)
    later.intercepts_[0] += 0.001
    margins = apas.as_model(net).margin(rows, 1)
    row, other = rows[margins.argmax()][None, :], rows[margins < -0.2][:1]
    certificates = apas.certify(net, row, 0.01, target=1, rng=0)
    return {
        "certify": lambda: apas.certify(net, row, 0.01, target=1, rng=0),
        "max_shift": lambda: apas.max_shift(net, row, target=1, rng=0),
        "generate (RobustOptimum)": lambda: apas.generate(
            net, other, 0.01, target=1, background=rows, source="robust", rng=0
        ),
        "audit": lambda: apas.audit(certificates, later, base=net),
    }


def main() -> None:
    """Print a line per call, and with `--files` the files of each."""
    print(f"{'one row through':26s} {'files':>6s} {'switches':>9s} {'functions':>10s}")
    for name, call in calls().items():
        trace = traced(call)
        print(f"{name:26s} {len(trace.files):6d} {trace.switches:9d} {len(trace.functions):10d}")
        if "--files" in sys.argv:
            print("".join(f"    {count:6d} {file}\n" for file, count in trace.files.items()))


if __name__ == "__main__":
    main()
