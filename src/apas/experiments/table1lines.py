"""The lines of Table 1: results of its units beside the authors' figures, and averaged over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from apas.experiments.table1methods import APAS, OPTIMA
from apas.experiments.table1printed import MOST_SHIFTED, ONE_PASS, PRINTED

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["COLUMNS", "against", "averaged", "compared", "each_network", "each_seed"]

_Results = Sequence[Mapping[str, Any]]
#: Results by the names of their columns, and how many decimals they are shown with.
COLUMNS: Final[Mapping[str, tuple[str, int]]] = {
    "VM1": ("vm1", 2),
    f"VM2, {ONE_PASS}": ("vm2_one_pass", 2),
    f"VM2, {MOST_SHIFTED}": ("vm2_most_shifted", 2),
    "VM2, scratch": ("vm2_scratch", 2),
    "l1": ("l1", 5),
    "lof": ("lof", 2),
    "l0": ("l0", 3),
    "Δ-validity": ("delta_validity", 2),
    "robust fraction": ("robust_fraction", 4),
    "least": ("least_fraction", 4),
    "seconds": ("seconds", 1),
}
#: Differences below this are rounding.
ROUNDING = 1e-9


def shown(value: float | None, decimals: int) -> str:
    """A number with so many decimals; a dash for none.

    Examples
    --------
    >>> shown(0.00892, 4), shown(None, 2)
    ('0.0089', '-')
    """
    return "-" if value is None else f"{value:.{decimals}f}"


def compared(results: _Results) -> DataFrame:
    """One line per dataset and method, ours beside the printed figures."""
    import pandas as pd

    return pd.DataFrame([_beside(r) for r in results])


def _beside(result: Mapping[str, Any]) -> dict[str, str]:
    printed = PRINTED.get((result["dataset"], result["method"]))
    line = {"dataset": result["dataset"], "method": result["method"]}
    for title, (name, decimals) in COLUMNS.items():
        if name == "vm2_scratch":
            continue  # the published experiments have no such networks
        line[title] = shown(result[name], decimals)
        if name.startswith("vm2"):
            theirs = printed.vm2 if printed is not None and title == f"VM2, {printed.later}" else None
        elif name in ("robust_fraction", "least_fraction"):
            continue
        else:
            theirs = getattr(printed, name, None)
        line[f"paper {title}"] = shown(theirs, decimals)
    return line


def averaged(results: _Results) -> DataFrame:
    """One line per dataset and method: mean over the seeds, and standard deviation if there are several."""
    import pandas as pd

    lines = []
    for (dataset, method), group in _grouped(results, "dataset", "method").items():
        line: dict[str, Any] = {
            "dataset": dataset,
            "method": method,
            "seeds": len(group),
            "found": _over(group, "found", 2),
        }
        lines.append(line | {title: _over(group, name, decimals) for title, (name, decimals) in COLUMNS.items()})
    return pd.DataFrame(lines)


def _over(group: _Results, name: str, decimals: int) -> str:
    values = [r[name] for r in group if r[name] is not None]
    if not values:
        return "-"
    spread = f" ± {np.std(values, ddof=1):.{decimals}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{decimals}f}{spread}"


def each_seed(results: _Results) -> DataFrame:
    """One line per dataset, seed and method, as numbers."""
    import pandas as pd

    names = ["dataset", "seed", "method", "found", *(name for name, _ in COLUMNS.values())]
    return pd.DataFrame([{name: r[name] for name in names} for r in results], columns=names)


def against(results: _Results) -> DataFrame:
    """`RobustOptimum` against APΔS: its l1 as a part of the other's, and on how many seeds it is worse in what.

    ``shift / delta`` is how much farther retraining by one pass moves the network than the shifts that are certified.
    """
    import pandas as pd

    lines = []
    for (variant, dataset), group in _grouped(results, "variant", "dataset").items():
        group = [r for r in group if r["vm1"]]  # else there is nothing to compare
        theirs = {r["seed"]: r for r in group if r["method"] == APAS}
        for method in OPTIMA:
            pairs = [(r, theirs[r["seed"]]) for r in group if r["method"] == method and r["seed"] in theirs]
            if not pairs:
                continue
            parts = [ours["l1"] / other["l1"] for ours, other in pairs]
            moved = [ours["network"]["shift"] / ours["network"]["delta"] for ours, _ in pairs]
            line = {
                "variant": variant, "dataset": dataset, "method": method, "seeds": len(pairs),
                "shift / delta": shown(float(np.mean(moved)), 1), "l1 / l1 of APΔS": shown(float(np.mean(parts)), 3),
                "largest": shown(max(parts), 3),
            }  # fmt: skip
            for title in ("VM1", "lof", f"VM2, {ONE_PASS}"):
                name = COLUMNS[title][0]
                line[f"worse in {title}"] = sum(ours[name] < other[name] - ROUNDING for ours, other in pairs)
            lines.append(line)
    return pd.DataFrame(lines)


def each_network(results: _Results) -> DataFrame:
    """One line per variant, dataset and seed: inputs, the certified shift, and how far retraining moves the network."""
    import pandas as pd

    lines = []
    for (variant, dataset, seed), group in _grouped(results, "variant", "dataset", "seed").items():
        facts = group[0]["network"]
        lines.append(
            {
                "variant": variant, "dataset": dataset, "seed": seed, "inputs": facts["inputs"],
                "different": facts["different"], "judges": facts["judges"], "delta": shown(facts["delta"], 6),
                "shift of all parameters": shown(facts["shift"], 6),
                "first-layer shift": shown(facts["published_shift"], 6), MOST_SHIFTED: shown(facts["most_shift"], 6),
            }
        )  # fmt: skip
    return pd.DataFrame(lines)


def _grouped(results: _Results, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Results by the values of some entries, in the order of their first appearance."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault(tuple(result[name] for name in names), []).append(result)
    return groups
