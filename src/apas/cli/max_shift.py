"""`apas max-shift`: the largest shift at which the rows of a CSV file are certified."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from apas.cli import options
from apas.cli.options import group_options, optional, pick_method
from apas.cli.output import PAGE, cell, new_table, print_table
from apas.display.numbers import at_least, at_most

if TYPE_CHECKING:
    from apas.certification.max_shift.result import MaxShifts

#: How to look for the largest shift with draws.
SearchName = StrEnum("SearchName", "rays confirm paper")


@group_options
def max_shift_command(
    model: options.ModelFile,
    rows: options.RowsFile,
    target: options.Target,
    *,
    method: Annotated[
        options.MethodName, Option(help="sampling asks about most shifts, the others about every shift.")
    ] = options.MethodName.sampling,
    search: Annotated[
        SearchName | None, optional("How to search (sampling).", "rays; confirm above 100,000 parameters")
    ] = None,
    coverage: Annotated[
        float | None, optional("Share of the shifts that must keep the class (sampling).", "0.995")
    ] = None,
    confidence: options.Confidence = None,
    samples: Annotated[int | None, Option(help="How many directions to draw (sampling).")] = None,
    time_limit: options.TimeLimit = None,
    seeds: options.SeedOptions,
    limit: Annotated[
        float | None, optional("Where to stop looking.", "10 times the largest parameter; 10 if relative")
    ] = None,
    common: options.QuestionOptions,
) -> None:
    """Find the largest shift of the model at which each explanation is certified to keep its class.

    Examples, for most shifts and for every shift:

    apas max-shift model.json rows.csv --target 1

    apas max-shift model.json rows.csv --target 1 --method cascade --jobs 2
    """
    from apas import max_shift

    common.check_outputs(model, rows)
    how = pick_method(method, coverage=coverage, confidence=confidence, samples=samples, time_limit=time_limit)
    asked: dict[str, Any] = {"method": how, "search": None if search is None else search.value, "limit": limit}
    asked["rng"] = seeds.pick(confidence)
    common.answer(max_shift, print_max_shifts, model, rows, target, {"derived": seeds.derived}, **asked)


def print_max_shifts(found: MaxShifts) -> None:
    """Print a table of the answers and what they mean; numbers are rounded to the safe side."""
    rounding = {"delta": at_least, "way_refuted_at": at_most, "provable": at_least, "broken_at": at_most}
    table = new_table("row", right=tuple(rounding), no_wrap=True)
    table.add_column("reason")
    for (index, line), item in zip(found[:PAGE].to_frame().iterrows(), found, strict=False):
        shown = [write(float(getattr(item, name))) for name, write in rounding.items()]
        shown[0] = item.written()
        table.add_row(cell(index), *shown, cell(line["reason"]))
    print_table(table, found.summary(), len(found))
