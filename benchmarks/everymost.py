"""`python -m benchmarks.everymost`: the paper's toy network, every shift against most shifts, as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import apas
from apas.paper.toy import TOY, TOY_SHIFTS, TOY_X

__all__ = ["everymost"]

#: Deltas of the histograms: just at the worst case, and where about nine of ten shifts are valid.
SHOWN = (0.109, 0.27)
#: Coverages that are marked on the curve, at the same confidence.
COVERAGES, CONFIDENCE, DRAWS = (0.995, 0.9), 0.999, 100_000
RANGE = (-2.2, 3.2)
BLUE, RED, GREY = "#1b5e9b", "#b3261e", "#6b6b6b"


def everymost(folder: Path) -> None:
    """Print the deltas, and save the picture."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    every = apas.max_shift(TOY, TOY_X, target=1, shifts=TOY_SHIFTS, method="exact")[0].delta
    print(f"every shift: {every:.4f}")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), layout="constrained", width_ratios=(1, 1, 1.15))
    directions = 2 * np.random.default_rng(0).random((DRAWS, len(TOY.parameters))) - 1
    directions[:, TOY_SHIFTS.radii(TOY.parameters) == 0] = 0
    for ax, delta in zip(axes, SHOWN, strict=False):
        margins = TOY.shifted_margins(TOY_X, 1, directions, delta)[:, 0]
        worst = apas.output_range(TOY, TOY_X, delta, target=1, shifts=TOY_SHIFTS, method="exact")[0].low
        ax.hist(margins, bins=60, range=RANGE, color=BLUE)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.axvline(worst, color=RED, linestyle="--")
        ax.text(
            worst - 0.08, 0.8, "worst\nof all", color=RED, ha="right", transform=ax.get_xaxis_transform(), fontsize=9
        )
        ax.set(xlabel="margin of a shifted model", yticks=[], xlim=RANGE)
        valid = f"{np.mean(margins >= 0):.1%}".replace("%", " %")
        ax.set_title(f"delta {delta:g}\n{valid} of {DRAWS:,} draws valid", loc="left", fontsize=10)
    ax, deltas = axes[2], np.linspace(0.01, 0.4, 40)
    curve = apas.robust_fraction(
        TOY, TOY_X, deltas, target=1, shifts=TOY_SHIFTS, method=apas.Sampling(n_samples=DRAWS), rng=0
    )[0]
    ax.fill_between(deltas, curve.lower, curve.upper, color=BLUE, alpha=0.4, linewidth=0)
    ax.plot(deltas, curve.estimate, color=BLUE)
    ax.plot(every, 1, "o", color=RED)
    ax.annotate("every shift", (every, 1), (every, 0.98), color=RED, ha="right", fontsize=9)
    for coverage in COVERAGES:
        method = apas.Sampling(coverage=coverage, confidence=CONFIDENCE, n_samples=DRAWS)
        found = apas.max_shift(TOY, TOY_X, target=1, shifts=TOY_SHIFTS, method=method, rng=1)[0].delta
        print(f"{coverage:g} of the shifts: {found:.4f}")
        ax.plot(found, coverage, "o", color=GREY)
        ax.annotate(f"at least {100 * coverage:g} %", (found, coverage), (found + 0.008, coverage + 0.006), fontsize=9)
    ax.set(xlabel="delta", ylabel="share of valid shifts", ylim=(0.78, 1.02), xlim=(0, 0.4))
    ax.set_title("The share, and certified deltas", loc="left", fontsize=10)
    figure.savefig(folder / "every-or-most.png", dpi=140)


if __name__ == "__main__":
    everymost(Path(__file__).parents[1] / "docs" / "results")
