"""`apas report`: certificates as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from apas.cli import options
from apas.cli.options import group_options, optional
from apas.cli.output import check_outputs, print_json, print_line
from apas.errors import InputError


@group_options
def report_command(
    certificates: options.CertificatesFile,
    *,
    report: Annotated[Path, Option("--report", "-o", help="The page to write (.html).")] = Path("report.html"),
    model: Annotated[Path | None, optional("Model file of the certified model, for the curves.")] = None,
    audit: Annotated[Path | None, optional("File that `apas audit --json` printed.")] = None,
    new_model: Annotated[Path | None, optional("Model file of a later model, for before and after.")] = None,
    max_shifts: Annotated[Path | None, optional("File that `apas max-shift --save` wrote.")] = None,
    title: Annotated[str | None, optional("Title of the page.", "a question")] = None,
    seed: Annotated[
        int | None, Option(min=0, help="Seed of the page's own draws.", show_default="from the certificates")
    ] = None,
    layers: options.LayerOptions,
    as_json: options.Json = False,
) -> None:
    """Write one HTML page about certificates: in plain words, as a table, and with plots.

    The page needs no network and no other file. Parts that need a model or an audit are left out without them.

    Example:  apas report certificates.json --model model.json -o report.html
    """
    from apas.report.api import check_path, report_file

    check_path(report)
    check_outputs({"--report": report}, certificates, model, audit, new_model, max_shifts)
    if model is None and new_model is None and (layers.activation is not None or layers.output is not None):
        raise InputError(
            "`--activation` and `--output` say what the layers of a model file give, but there is none; the page to "
            "write is named by -o."
        )
    old, new = (None if path is None else layers.read(path) for path in (model, new_model))
    done = report_file(
        certificates, report, model=old, audit=audit, new_model=new, max_shifts=max_shifts, rng=seed, title=title
    )
    if as_json:
        print_json(done.to_dict())
        return
    print_line(f"{done.path}: {done.rows} explanation{'s' if done.rows > 1 else ''}.")
    for part, why in done.left_out.items():
        print_line(f"Left out, {part}: {why}")
