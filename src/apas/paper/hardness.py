"""Theorem 1 of the paper: formulas as networks, decided by our construction and the paper's, and by all assignments."""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from apas._typing import Array
from apas.display.plots import new_axes, save_figure
from apas.paper import Results, group_by, new_figure
from apas.paper.drawings import DrawnUnit, draw_layers, heights, weight_colour
from apas.paper.experiment import Unit
from apas.theory import Answer, Formula, Reduction, distinct_realizations, reduction
from apas.theory.gadgets import PaperGadgets, PaperReduction, paper_reduction
from apas.theory.hardness import GadgetUnit, clause_unit, discretizer_units, generating_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Three variables and two clauses, as in the paper's example: the network that is drawn.
EXAMPLE: Final = Formula(3, [[1, -2, 3], [-1, 2, -3]])
VARIABLES = 3
#: In how many parts the formulas with 0, 1, 2 and 3 clauses are decided; ``quick`` does the first of so many parts.
PARTS, SPARSE = (1, 1, 1, 8), (1, 1, 20, 20)
#: Numbers of variables and clauses of the random formulas; with five clauses per variable both answers occur.
RANDOM: Final = ((4, 8), (4, 20), (5, 25), (6, 30), (7, 35), (8, 40))
COUNT, FEW = 100, 10
#: Deltas of the paper's gadgets; the second is below its limit 2/25, and too large for what the limit is there for.
DELTAS: Final = ("1/16", "79/1000")
#: Every so many of the formulas with 0, 1, 2 and 3 clauses are decided by the paper's construction and by ours.
COMPARED, FEW_COMPARED = (1, 1, 1, 10), (1, 9, 90, 900)


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """All formulas with 3 variables and up to 3 clauses in parts, and random larger ones."""
    quick = bool(settings.get("quick"))
    parts = [(c, i, n) for c, n in enumerate(SPARSE if quick else PARTS) for i in range(1 if quick else n)]
    both = [(b, c, n) for c, n in enumerate(FEW_COMPARED if quick else COMPARED) for b in ("paper's", "ours")]
    count = FEW if quick else COUNT
    random = [{"variables": v, "clauses": c, "count": count, "seed": 0} for v, c in RANDOM]
    return [
        *(Unit("hardness", decide_small, {"clauses": c, "first": i, "step": n}) for c, i, n in parts),
        *(Unit("hardness", decide_random, asked) for asked in random),
        *(Unit("hardness", compare, {"construction": b, "clauses": c, "step": n}) for b, c, n in both),
        *(Unit("hardness", check_lemmas, {"delta": delta}) for delta in DELTAS),
    ]


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
    return {"variables": VARIABLES, "clauses": clauses, "random": False, "step": step, **_decide(formulas)}


def decide_random(variables: int, clauses: int, count: int, seed: int) -> dict[str, Any]:
    """Decide random formulas."""
    formulas = random_formulas(variables, clauses, count, seed)
    return {"variables": variables, "clauses": clauses, "random": True, "step": 1, **_decide(formulas)}


def compare(construction: str, clauses: int, step: int) -> dict[str, Any]:
    """Decide every `step`-th of the small formulas by one of the constructions."""
    chosen = itertools.islice(small_formulas(clauses), 0, None, step)
    formulas = [formula for formula in chosen if all(formula.clauses)]  # the paper has no empty clauses
    paper = construction != "ours"
    pinned = PaperGadgets(DELTAS[0]).pinned(VARIABLES, clauses) if paper else 0
    settings = {"construction": construction, "variables": VARIABLES, "clauses": clauses, "random": False, "step": step}
    return {**settings, **_decide(formulas, paper=paper), "pinned": pinned}


def check_lemmas(delta: str) -> dict[str, Any]:
    """What the paper says of its gadgets, and what is the case."""
    names = ("gadget", "statement", "verdict", "against_if", "against_only_if", "corrected")
    checks = PaperGadgets(delta).lemmas()
    return {"delta": delta, "lemmas": [[str(getattr(c, name) or "none") for name in names] for c in checks]}


def _decide(formulas: Iterable[Formula], *, paper: bool = False) -> dict[str, Any]:
    """Integers and times; what is read off a witness is checked on the formula itself."""
    counts = dict.fromkeys(("formulas", "true", "yes", "no", "unknown", "wrong", "solutions", "parameters"), 0)
    seconds, tried = [], 0.0
    for formula in formulas:
        began = time.process_time()
        solvable = formula.solution() is not None
        between = time.process_time()
        hard = paper_reduction(formula) if paper else reduction(formula)
        box: dict[str, Any] = {"shifts": hard.shifts} if isinstance(hard, PaperReduction) else {}
        found = distinct_realizations(hard.model, hard.X, hard.delta, 0.5, **box)
        seconds.append(time.process_time() - between)
        tried += between - began
        counts["formulas"] += 1
        counts["true"] += solvable
        counts[str(found.answer)] += 1
        counts["wrong"] += found.answer is (Answer.NO if solvable else Answer.YES)
        if found.certificate.witness is not None:
            counts["solutions"] += formula.holds(hard.assignment(found.certificate.witness))
        counts["parameters"] = max(counts["parameters"], len(hard.model.parameters))
    return {**counts, "seconds": sum(seconds), "longest": max(seconds), "tried": tried}


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """Answers and times by the numbers of variables and clauses; both constructions; and the paper's lemmas."""
    asked = [{"construction": "", **r} for r in results if "lemmas" not in r]
    kinds = group_by(asked, "construction", "random", "variables", "clauses")
    columns = ["delta", "gadget", "lemma", "verdict", "against if", "against only if", "true"]
    lemmas = [(r["delta"], *line) for r in results if "lemmas" in r for line in r["lemmas"]]
    both = [
        {"construction": parts[0]["construction"], **_line(parts), "parameters that a tie pins": parts[0]["pinned"]}
        for parts in kinds
        if parts[0]["construction"]
    ]
    return {
        "hardness": pd.DataFrame([_line(parts) for parts in kinds if not parts[0]["construction"]]),
        "hardness-constructions": pd.DataFrame(both),
        "hardness-lemmas": pd.DataFrame(lemmas, columns=columns),
    }


def _line(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, names = parts[0], ("formulas", "true", "yes", "no", "unknown", "wrong", "solutions", "seconds", "tried")
    total = {name: sum(part[name] for part in parts) for name in names}
    titles = {"true": "can be true", "solutions": "solutions from witnesses"}
    whole = "all" if first["step"] == len(parts) else f"every {first['step']}th"
    line = {name: first[name] for name in ("variables", "clauses")} | {"which": "random" if first["random"] else whole}
    line |= {titles.get(name, name): total[name] for name in names[:-2]}
    line |= {"parameters": max(part["parameters"] for part in parts)}
    each, tried = (f"{1e3 * total[name] / total['formulas']:.2f}" for name in ("seconds", "tried"))
    longest = f"{1e3 * max(part['longest'] for part in parts):.1f}"
    return {**line, "ms per formula": each, "longest ms": longest, "ms to try assignments": tried}


def figures(results: Results, folder: Path | str) -> list[Path]:
    """The gadgets, and the whole network of a formula."""
    gadgets = save_figure(draw_gadgets(), folder, "gadgets")
    figure, ax = new_figure(figsize=(10, 6))
    draw_reduction(reduction(EXAMPLE), ax)
    return gadgets + save_figure(figure, folder, "hardness-network")


def draw_gadgets() -> Any:
    """Draw the five gadgets, each with what it does."""
    figure, axes = new_figure(1, 5, feature="draw_gadgets", figsize=(15, 3.6))
    chis, negation, clause = ["chi 1", "chi 2", "chi 3"], [clause_unit([-1])], [clause_unit([1, -2, 3])]
    names = ["p 1, q 1", "...", "p n, q n", "t 1", "...", "t m"]
    ends = [DrawnUnit(name, "relu" if name != "..." else "", 2.0 - 0.8 * i) for i, name in enumerate(names)]
    nan = math.nan  # no line from the dots
    end = [ends, [DrawnUnit("z", "output", 0.0, "gap/2 - n")]], np.array([[1, nan, 1, -1, nan, -1]]).T
    pictures = [
        ("Generating", "shifts move chi to any number\nfrom 0 to 1", _units(["x"], [generating_unit()], ["chi"])),
        ("Discretizer", "p + q is 1 where chi is 0 or 1,\nless between", _units(["chi"], discretizer_units(0), "pq")),
        ("Negation", "not x is 1 - chi, so what is\nmissing to truth is chi", _units(["chi"], negation, "t")),
        ("Clause", "x1 or not x2 or x3:\nt is 1 if none is true, else 0", _units(chis, clause, "t")),
        ("Conjunction and end", "at or above 0 only if the assignment\nnearest to the chi breaks no clause", end),
    ]
    for ax, (title, text, (layers, weights)) in zip(axes, pictures, strict=True):
        draw_layers(ax, layers, [weights])
        ax.set_title(title, loc="left", fontweight="bold")
        ax.text(0.5, -0.02, text, transform=ax.transAxes, ha="center", va="top", fontsize=9)
    return figure


def _units(
    inputs: Sequence[str], units: Sequence[GadgetUnit], names: Sequence[str]
) -> tuple[list[list[DrawnUnit]], Array]:
    kind, weights = "input" if inputs[0] == "x" else "relu", np.full((len(inputs), len(units)), math.nan)
    for j, unit in enumerate(units):
        weights[list(unit.weights), j] = list(unit.weights.values())
    layers = [[DrawnUnit(name, kind, y) for name, y in zip(inputs, heights(len(inputs), 1.0), strict=True)]]
    each = zip(names, heights(len(units), 1.0), units, strict=True)
    return [*layers, [DrawnUnit(name, "relu", y, str(unit.bias)) for name, y, unit in each]], weights


def draw_reduction(hard: Reduction, ax: "Axes | None" = None) -> "Axes":
    """Draw the whole network of a formula: weights by colour, zeros only where they choose the assignment."""
    # All parameters move by up to delta, those that are not drawn as well.
    ax = new_axes(ax, "draw_reduction")
    n, m = hard.formula.variables, len(hard.formula.needed)
    chi, p, q, t = (
        [f"{letter} {i + 1}" for i in range(k)] for letter, k in zip(("chi", *"pqt"), (n, n, n, m), strict=True)
    )
    names, layers = [["x"], chi, [*p, *q, *t], ["z"]], []
    weights = [hard.model.weights[0], *(np.where(w == 0, math.nan, w) for w in hard.model.weights[1:])]
    for k, (column, kind) in enumerate(zip(names, ("input", "relu", "relu", "output"), strict=True)):
        biases = [f"{bias:.4g}" for bias in hard.model.biases[k - 1]] if k else [""]
        # of each variable p and q stand one above the other
        order = [*np.arange(2 * n).reshape(2, n).T.flat, *range(2 * n, 2 * n + m)] if k == 2 else range(len(column))
        spaced = heights(len(column), max(1.0, (2 * n + m - 1) / max(1, len(column))))
        places = dict(zip(order, spaced, strict=True))
        layers.append([DrawnUnit(name, kind, places[i], biases[i]) for i, name in enumerate(column)])
    draw_layers(ax, layers, weights, None, width=3.4)
    ax.set_title(str(hard.formula), loc="left", fontsize=10)
    handles = []
    for w in np.unique(np.concatenate([matrix[~np.isnan(matrix)] for matrix in weights])):
        label = f"weight {w:g}" + (", chooses the assignment" if w == 0 else "")
        handles += ax.plot([], [], color=weight_colour(w), label=label)
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(handles), frameon=False)
    return ax
