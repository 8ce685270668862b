"""`python -m benchmarks.kernels --output FOLDER`: which digits of Table 1 depend on the processor.

A BLAS has a kernel per kind of processor, which adds up in an order of its own, and NumPy has functions for each set of
instructions. Here every kind is imposed on this processor by environment variables, in a process of its own, and the
units of Table 1 are computed anew. What differs then is rounding that a method has made large.

Needs the datasets. The folder keeps finished units, so that a run goes on where it ended; ``--settings`` are those of
the experiment, as JSON. The figures go into ``docs/results/table1-kernels.csv``, with six digits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["KERNELS", "compare", "work"]

_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"  # as NumPy 2.4 calls its sets of instructions
#: What imposes each of them: the kernel of OpenBLAS, and what NumPy is to do without.
KERNELS: Mapping[str, tuple[str, str]] = {
    "SkylakeX": ("SKYLAKEX", ""),
    "Haswell": ("HASWELL", _AVX512),
    "Sandybridge": ("SANDYBRIDGE", f"{_AVX512} X86_V3"),
}
#: What is compared: the figures of the table, but for the seconds, and for networks from scratch, which take long.
FIGURES = (
    *("vm1", "vm2_one_pass", "vm2_most_shifted", "l1", "lof", "l0", "delta_validity", "robust_fraction"),
    "least_fraction",
)
WHERE = ("variant", "dataset", "seed", "method")


def work(path: Path, settings: Mapping[str, Any]) -> None:
    """Compute what is not in a file yet, with the kernel of this process."""
    from threadpoolctl import threadpool_limits

    from apas.paper import table1
    from apas.paper.experiment import blas

    known = _known(path)
    with threadpool_limits(1), path.open("a", encoding="utf-8") as file:
        for unit in table1.units(settings):
            asked = {**unit.settings, "judges": 0}
            if json.dumps(asked) not in known:
                line = {"settings": asked, "blas": blas(), "result": table1.unit(**asked)}
                print(json.dumps(line), file=file, flush=True)


def _known(path: Path) -> dict[str, dict[str, Any]]:
    """Finished units by their settings."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {json.dumps(line["settings"]): line for line in map(json.loads, lines)}


def compare(folder: Path) -> pd.DataFrame:
    """One line per unit and figure, with its value under every kernel, for units that all of them have done."""
    kernels = {name: _known(folder / f"{name}.jsonl") for name in KERNELS}
    done = [key for key in kernels[next(iter(KERNELS))] if all(key in known for known in kernels.values())]
    return pd.DataFrame(
        [
            {name: json.loads(key)[name] for name in WHERE}
            | {"figure": figure}
            | {name: known[key]["result"][figure] for name, known in kernels.items()}
            for key in done
            for figure in FIGURES
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--kernel")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if given.kernel:
        work(given.output / f"{given.kernel}.jsonl", given.settings)
        sys.exit()
    for name, (core, without) in KERNELS.items():
        environment = {**os.environ, "OPENBLAS_CORETYPE": core, "NPY_DISABLE_CPU_FEATURES": without}
        options = ["--output", str(given.output), "--settings", json.dumps(given.settings), "--kernel", name]
        subprocess.run([sys.executable, "-m", "benchmarks.kernels", *options], env=environment, check=True)
    table = compare(given.output)
    values = table[list(KERNELS)]
    apart = values.max(axis=1) - values.min(axis=1)
    still = sorted(set(table["method"]) - set(table[apart > 1e-9]["method"]))
    largest = table.assign(apart=apart).groupby(["method", "figure"])["apart"].max().unstack()
    print(f"{len(table) // len(FIGURES)} units. No figure differs for {', '.join(still) or 'no method'}.")
    print("Largest differences:", largest.to_string(float_format="{:.2g}".format), sep="\n")
    path = Path(__file__).parents[1] / "docs" / "results" / "table1-kernels.csv"
    table.to_csv(path, index=False, float_format="%.6g")
