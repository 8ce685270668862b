"""Arguments and options that several commands share, so that each reads the same everywhere.

A command writes ``seed: options.Seed = None``: the type and the help are here, the default is its own. What differs
between commands (`--method`, `--coverage`, `--samples`) is written in each; `asked.py` makes sense of the words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from apas.cli.asked import Kind, Norm

__all__ = [
    "Activation",
    "Confidence",
    "Dask",
    "Delta",
    "Jobs",
    "Json",
    "ModelFile",
    "Only",
    "Output",
    "Relative",
    "RowsFile",
    "Save",
    "Seed",
    "Shifts",
    "Simultaneous",
    "Target",
    "TimeLimit",
]

# What is asked about.
ModelFile: TypeAlias = Annotated[
    Path, typer.Argument(help="Model file (.json, .safetensors, .onnx, .skops, .pt or .pth).")
]
RowsFile: TypeAlias = Annotated[Path, typer.Argument(help="CSV file with a header line and a row per explanation.")]
Target: TypeAlias = Annotated[str, typer.Option(help='Class the rows must keep, or "predicted".')]
Delta: TypeAlias = Annotated[float, typer.Option(help="How far the parameters may move.")]

# What a model file does not tell.
Activation: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Activation of the hidden layers (.pt, .pth); with commas, one per layer.", show_default="none"),
]
Output: TypeAlias = Annotated[
    str | None,
    typer.Option(help="What the last layer gives: sigmoid, softmax or identity (.pt, .pth).", show_default="none"),
]

# By what evidence.
Confidence: TypeAlias = Annotated[
    float | None, typer.Option(help="Confidence of the statement (sampling).", show_default="0.999")
]
TimeLimit: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Seconds to search for a proof, per row (exact, cascade).", show_default="60"),
]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Seed of the draws, to repeat a run.")]
Simultaneous: TypeAlias = Annotated[
    bool, typer.Option("--simultaneous", help="Let the confidence hold for all rows together.")
]

# What may move, and how.
Shifts: TypeAlias = Annotated[
    Norm, typer.Option(help="Delta bounds each change (linf), their sum (l1) or Euclidean length (l2).")
]
Relative: TypeAlias = Annotated[
    bool, typer.Option("--relative", help="Delta is a share of each parameter's size (linf).")
]
Only: TypeAlias = Annotated[Kind | None, typer.Option(help="Move only weights or only biases.")]

# How it runs, and what is printed.
Jobs: TypeAlias = Annotated[int | None, typer.Option(help="Number of processes, -1 for all cores.", show_default="1")]
Dask: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on this Dask cluster, such as tcp://scheduler:8786.", show_default="none"
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Save: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write what was certified to this certificate file (.json).")
]
