"""Figures as files: PNG to look at, SVG to print, and the same bytes from the same figure."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from apas._atomic import write_bytes
from apas._optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save_figure"]

DOTS = 150


def save_figure(figure: Figure, folder: Path | str, name: str) -> list[Path]:
    """Write a figure as PNG and SVG into a folder, which is made if it is not there, and close it.

    Returns
    -------
    list of Path
        Of the two files.
    """
    matplotlib = require("matplotlib", feature="save_figure", extra="plot")
    plt = require("matplotlib.pyplot", feature="save_figure", extra="plot")
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [Path(folder) / f"{name}.{kind}" for kind in ("png", "svg")]
    # without them an SVG holds random names and the time
    with matplotlib.rc_context({"svg.hashsalt": name}):
        drawn = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn[0], format="png", dpi=DOTS)
        figure.savefig(drawn[1], format="svg", metadata={"Date": None})
    for path, content in zip(paths, drawn, strict=True):
        write_bytes(path, content.getvalue())
    plt.close(figure)
    return paths
