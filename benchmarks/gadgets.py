"""`python -m benchmarks.gadgets`: draw the gadgets of Theorem 1 and one whole network."""

from __future__ import annotations

from pathlib import Path

from apas.theory import Formula, reduction
from apas.theory.drawings import draw_gadgets, draw_reduction

__all__ = ["draw"]

#: Three variables and two clauses, as in the paper's example.
EXAMPLE = Formula(3, [[1, -2, 3], [-1, 2, -3]])


def draw(folder: Path) -> None:
    """Save both pictures."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    draw_gadgets().savefig(folder / "gadgets.png", dpi=110)
    figure, ax = plt.subplots(figsize=(10, 6), layout="constrained")
    draw_reduction(reduction(EXAMPLE), ax)
    figure.savefig(folder / "hardness-network.png", dpi=110)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "docs" / "results")
