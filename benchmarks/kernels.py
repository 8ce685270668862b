"""`python -m benchmarks.kernels`: which digits of Table 1 depend on the processor.

A BLAS has a kernel per kind of processor, which adds up in an order of its own, and NumPy has functions for each set of
instructions. Here every kind is imposed on this processor by environment variables, in a process of its own, and the
units of Table 1 are computed anew. What differs then is rounding that a method has made large.

Needs the datasets. The output folder keeps finished units, so that a run goes on where it ended; ``--write`` puts the
table into ``docs/results``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["KERNELS", "compare", "spread"]

_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"  # as NumPy 2.4 calls its sets of instructions
#: What imposes each of them: the kernel of OpenBLAS, and what NumPy is to do without.
KERNELS: Mapping[str, tuple[str, str]] = {
    "SkylakeX": ("SKYLAKEX", ""),
    "Haswell": ("HASWELL", _AVX512),
    "Sandybridge": ("SANDYBRIDGE", f"{_AVX512} X86_V3"),
}
#: What is compared: the figures of the table, but for the seconds.
FIGURES = ("vm1", "vm2_one_pass", "vm2_most_shifted", "l1", "lof", "l0", "delta_validity", "robust_fraction")


def _known(path: Path) -> dict[str, dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {json.dumps(line["settings"]): line for line in map(json.loads, lines)}


def work(path: Path, settings: Mapping[str, Any]) -> None:
    """Compute what is not in a file yet, with the kernel of this process."""
    from threadpoolctl import threadpool_info, threadpool_limits

    from apas.paper import table1

    known = _known(path)
    with threadpool_limits(1), path.open("a", encoding="utf-8") as file:
        for unit in table1.units(settings):
            asked = {**unit.settings, "judges": 0}
            if json.dumps(asked) in known:
                continue
            blas = sorted(
                {f"{lib['version']} {lib['architecture']}" for lib in threadpool_info() if "blas" in lib["user_api"]}
            )
            result = table1.unit(**asked)
            print(json.dumps({"settings": asked, "blas": blas, "result": result}), file=file, flush=True)


def spread(folder: Path) -> list[dict[str, Any]]:
    """One line per unit and figure: its least and largest value over the kernels."""
    kernels = {name: _known(folder / f"{name}.jsonl") for name in KERNELS}
    lines = []
    for key in kernels[next(iter(KERNELS))]:
        found = [known[key] for known in kernels.values() if key in known]
        if len(found) < len(KERNELS):
            continue
        asked = found[0]["settings"]
        for figure in FIGURES:
            values = [f["result"][figure] for f in found]
            if None not in values:
                where = {name: asked[name] for name in ("variant", "dataset", "seed", "method")}
                lines.append({**where, "figure": figure, "least": min(values), "largest": max(values)})
    return lines


def compare(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print, per method and figure, the largest difference and that of the means over the seeds."""
    import pandas as pd

    table = pd.DataFrame(lines)
    table["apart"] = table["largest"] - table["least"]
    table["part"] = table["apart"] / table["largest"].abs()
    for title in ("apart", "part"):
        worst = table.groupby(["variant", "method", "figure"])[title].max().unstack()
        print(title, worst.to_string(float_format="{:.2g}".format), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--kernel")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if given.kernel:
        work(given.output / f"{given.kernel}.jsonl", given.settings)
    else:
        for name, (core, without) in KERNELS.items():
            environment = {**os.environ, "OPENBLAS_CORETYPE": core, "NPY_DISABLE_CPU_FEATURES": without}
            options = ["--output", str(given.output), "--settings", json.dumps(given.settings), "--kernel", name]
            subprocess.run([sys.executable, "-m", "benchmarks.kernels", *options], env=environment, check=True)
        compare(spread(given.output))
