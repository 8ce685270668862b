"""Theorem 1 of the paper: formulas as networks, decided, and compared with trying all assignments.

Each formula becomes a network, an input and a delta; then the paper's question is asked, whether two shifted models lie
on different sides of 1/2. The answer must be "yes" exactly if some assignment makes the formula true.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from apas._optional import require
from apas.display.plots import save_figure
from apas.paper.store import Unit
from apas.theory.drawings import draw_gadgets, draw_reduction
from apas.theory.formula import Formula
from apas.theory.hardness import reduction
from apas.theory.realizations import Answer, distinct_realizations

if TYPE_CHECKING:
    from pandas import DataFrame


#: Three variables and two clauses, as in the paper's example: the network that is drawn.
EXAMPLE: Final = Formula(3, [[1, -2, 3], [-1, 2, -3]])
VARIABLES = 3
#: In how many parts the formulas with 0, 1, 2 and 3 clauses are decided; ``quick`` does the first of so many parts.
PARTS, SPARSE = (1, 1, 1, 8), (1, 1, 20, 20)
#: Numbers of variables and clauses of the random formulas; with five clauses per variable both answers occur.
RANDOM: Final = ((4, 8), (4, 20), (5, 25), (6, 30), (7, 35), (8, 40))
COUNT, FEW = 100, 10


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """All formulas with 3 variables and up to 3 clauses in parts, and random larger ones."""
    quick = bool(settings.get("quick"))
    found = []
    for clauses, step in enumerate(SPARSE if quick else PARTS):
        for first in range(1 if quick else step):
            found.append(Unit("hardness", decide_small, {"clauses": clauses, "first": first, "step": step}))
    for variables, clauses in RANDOM:
        asked = {"variables": variables, "clauses": clauses, "count": FEW if quick else COUNT, "seed": 0}
        found.append(Unit("hardness", decide_random, asked))
    return found


def small_formulas(clauses: int) -> Iterator[Formula]:
    """Every formula with 3 variables and so many different clauses, none of them always true."""
    signs = itertools.product((0, 1, -1), repeat=VARIABLES)
    known = [[sign * (i + 1) for i, sign in enumerate(chosen) if sign] for chosen in signs]
    return (Formula(VARIABLES, chosen) for chosen in itertools.combinations(known, clauses))


def random_formulas(variables: int, clauses: int, count: int, seed: int) -> Iterator[Formula]:
    """Formulas with clauses of three different variables, each negated or not, all equally likely."""
    rng = np.random.default_rng([seed, variables, clauses])
    for _ in range(count):
        chosen = [rng.permutation(variables)[:3] + 1 for _ in range(clauses)]
        yield Formula(variables, [(c * rng.choice([-1, 1], size=len(c))).tolist() for c in chosen])


def decide_small(clauses: int, first: int, step: int) -> dict[str, Any]:
    """Decide every `step`-th of the small formulas, beginning with number `first`."""
    formulas = itertools.islice(small_formulas(clauses), first, None, step)
    return {"variables": VARIABLES, "clauses": clauses, "random": False, "step": step, **_decided(formulas)}


def decide_random(variables: int, clauses: int, count: int, seed: int) -> dict[str, Any]:
    """Decide random formulas."""
    formulas = random_formulas(variables, clauses, count, seed)
    return {"variables": variables, "clauses": clauses, "random": True, "step": 1, **_decided(formulas)}


def _decided(formulas: Iterable[Formula]) -> dict[str, Any]:
    """Integers and times; what is read off a witness is checked on the formula itself."""
    counts = dict.fromkeys(("formulas", "true", "yes", "no", "unknown", "wrong", "solutions", "parameters"), 0)
    seconds, tried = [], 0.0
    for formula in formulas:
        began = time.perf_counter()
        solvable = formula.solution() is not None
        between = time.perf_counter()
        hard = reduction(formula)
        found = distinct_realizations(hard.model, hard.X, hard.delta, 0.5)
        seconds.append(time.perf_counter() - between)
        tried += between - began
        counts["formulas"] += 1
        counts["true"] += solvable
        counts[str(found.answer)] += 1
        counts["wrong"] += found.answer is (Answer.NO if solvable else Answer.YES)
        if found.certificate.witness is not None:
            counts["solutions"] += formula.holds(hard.assignment(found.certificate.witness))
        counts["parameters"] = max(counts["parameters"], len(hard.model.parameters))
    return {**counts, "seconds": sum(seconds), "longest": max(seconds), "tried": tried}


def tables(results: Sequence[Mapping[str, Any]]) -> dict[str, DataFrame]:
    """Answers and times by the numbers of variables and clauses."""
    import pandas as pd

    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for r in results:
        kinds.setdefault((r["random"], r["variables"], r["clauses"]), []).append(r)
    return {"hardness": pd.DataFrame([_line(parts) for parts in kinds.values()])}


def _line(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = parts[0]

    def total(name: str) -> Any:
        return sum(part[name] for part in parts)

    formulas = total("formulas")
    whole = "all" if first["step"] == len(parts) else f"every {first['step']}th"
    return {
        "variables": first["variables"],
        "clauses": first["clauses"],
        "which": "random" if first["random"] else whole,
        "formulas": formulas,
        "can be true": total("true"),
        "yes": total("yes"),
        "no": total("no"),
        "unknown": total("unknown"),
        "wrong": total("wrong"),
        "solutions from witnesses": total("solutions"),
        "parameters": max(part["parameters"] for part in parts),
        "ms per formula": f"{1e3 * total('seconds') / formulas:.2f}",
        "longest ms": f"{1e3 * max(part['longest'] for part in parts):.1f}",
        "ms to try assignments": f"{1e3 * total('tried') / formulas:.2f}",
    }


def figures(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """The gadgets, and the whole network of a formula."""
    plt = require("matplotlib.pyplot", feature="a figure of the paper", extra="plot")
    gadgets = save_figure(draw_gadgets(), folder, "gadgets")
    figure, ax = plt.subplots(figsize=(10, 6), layout="constrained")
    draw_reduction(reduction(EXAMPLE), ax)
    return gadgets + save_figure(figure, folder, "hardness-network")
