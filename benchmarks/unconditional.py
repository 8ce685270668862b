"""`python -m benchmarks.unconditional`: how often searches return false rows, where robust rows exist and where not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import apas

__all__ = ["counted", "unconditional"]

COVERAGE, CONFIDENCE, CALLS = 0.9, 0.9, 2000
#: Of each offer the share of valid shifts: twenty that just miss the coverage; and one more that has it.
NONE = np.full(20, 0.8995)
SOME = np.append(NONE, 0.99)
ENDS = {"found, claim true": "#1b5e9b", "found, claim false": "#b3261e", "not found": "#c9c9c9"}
INK = dict(zip(ENDS, ("white", "white", "black"), strict=True))


def counted(shares: NDArray[np.float64], calls: int) -> Counter[str]:
    """How calls of `generate` with different seeds end, of which each may choose among offers of known shares.

    An offer is accepted if its own weight, ``2 share - 1``, is at least 0, and weights move by up to 1.
    """
    offers = pd.DataFrame({"offer": ["none", *(f"offer {i}" for i in range(1, len(shares) + 1))]})
    space = apas.FeatureSpace([apas.Feature("offer", "categorical", values=tuple(offers["offer"]))])
    model = space.bind(apas.FeedForward([np.append(-1.0, 2 * shares - 1)[:, None]], [[0.0]]))
    method = apas.Sampling(coverage=COVERAGE, confidence=CONFIDENCE, n_samples=116)
    ends = Counter(dict.fromkeys(ENDS, 0))
    for seed in range(calls):
        answer = apas.generate(
            model, offers.head(1), 1.0, target=1, space=space, background=offers, source="neighbours",
            shifts=apas.LinfShifts(kinds=("weight",)), method=method, rng=seed,
        )  # fmt: skip
        if not answer[0].is_found:
            ends["not found"] += 1
        else:
            true = shares[int(answer.numbers[0, 0]) - 1] >= COVERAGE
            ends["found, claim true" if true else "found, claim false"] += 1
    return ends


def unconditional(folder: Path) -> None:
    """Print the counts, and save the picture."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    titles = ("one offer is robust enough,\n20 just miss it", "no offer is robust enough:\n20 just miss it")
    figure, ax = plt.subplots(figsize=(8.5, 2.7), layout="constrained")
    for place, (title, shares) in enumerate(zip(titles, (SOME, NONE), strict=True)):
        ends = counted(shares, CALLS)
        print(title.replace("\n", " "), dict(ends))
        start = 0
        for name, colour in ENDS.items():
            ax.barh(place, ends[name], left=start, height=0.5, color=colour, label=None if place else name)
            narrow = ends[name] < 0.2 * CALLS  # its number is written outside it
            above = -0.35 if name != "not found" else 0.35
            if ends[name]:
                middle = max(start + ends[name] / 2, 0.03 * CALLS)  # clear of the axis
                ax.text(middle, place + narrow * above, f"{ends[name]:,}", ha="center", va="center",
                        color="black" if narrow else INK[name])  # fmt: skip
            start += ends[name]
        found = ends["found, claim true"] + ends["found, claim false"]
        part = f"{ends['found, claim false']:,} of {found:,}\nfound are false" if found else "none found"
        ax.text(1.02 * CALLS, place, part, va="center")
    ax.set(yticks=range(len(titles)), yticklabels=titles, xlim=(0, 1.25 * CALLS), ylim=(1.5, -0.8))
    ax.set(xticks=np.linspace(0, CALLS, 5))
    ax.set_xlabel(f"calls of generate at confidence {CONFIDENCE:g}, each with a seed of its own")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(frameon=False, ncols=3, loc="upper left", fontsize=9)
    figure.savefig(folder / "unconditional.png", dpi=110)


if __name__ == "__main__":
    unconditional(Path(__file__).parents[1] / "docs" / "results")
