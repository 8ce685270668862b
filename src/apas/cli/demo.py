"""`apas demo`: a short story about a bank, told with generated data."""

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

import apas
from apas.cli import options
from apas.cli.output import cell, json_rows, new_table, print_json, print_line, print_table
from apas.display.numbers import at_least, at_most

if TYPE_CHECKING:
    from pandas import DataFrame

APPLICANTS = 20
#: So many of them are shown as an example.
SHOWN = 6
FOLDER = Path("apas-demo")
#: What to say about promises that were certified and are broken.
_WHY = {
    "BROKEN_INSIDE": (
        " although the model stayed within delta: what training does is no shift drawn at random, "
        "and may be one of the few that a certificate leaves out. `apas.ObservedShifts` asks retrained models instead."
    ),
    "BROKEN_OUTSIDE": ": the model moved further than the certificates speak of.",
}


def demo_command(
    seed: int = Option(0, min=0, max=2**64, help="Seed of the data, the training and the draws."),
    output: Path = Option(FOLDER, "--output", "-o", help="Folder for the report, certificates and CSVs."),
    as_json: options.Json = False,
) -> None:
    """Train a loan model, certify explanations of its rejections, retrain it, and see which ones hold.

    Takes about half a minute, works offline, and writes a report, certificates and tables.

    Example:  apas demo
    """
    from apas.paper.demo_bank import GRID, LATER, PASSES, ROUNDS, TRAINED, DemoFolder, LoanBank, make_offers

    say: Any = (lambda _: None) if as_json else _say  # nothing but the JSON document is printed
    folder, bank = DemoFolder(output), LoanBank(seed)
    folder.claim()
    say(
        f"A bank trains a network of {len(bank.model.parameters)} weights and biases on {TRAINED:,} loan "
        f"applications. Of the {LATER:,} that come in later this year it decides {bank.agreement} as the lender did."
    )
    applicants = bank.rejected(APPLICANTS)
    tried = ", ".join(f"{delta:g}" for delta in GRID)
    say(
        f"Every year it is trained further, by {PASSES} passes over the new applications; the bank rehearses that "
        f"{ROUNDS} times with those of this year. {len(applicants)} rejected applicants ask what would have to change. "
        f"Offers that most models within delta = {tried} accept are made, and shown to the rehearsals.\n\n"
    )
    calibration = bank.calibration(applicants)
    delta = min(calibration.delta, GRID[-1])
    if calibration.certified.any():
        say(f"The bank takes delta = {delta:g}, since the rehearsals say {calibration.claim}.\n\n")
    else:
        say(f"Too many rehearsals break offers at each of these; the bank takes the largest, delta = {delta:g}.\n\n")
    say(
        '"Plain" offers are small changes that the model of today accepts.\n'
        '"Robust" offers are small changes that most models within delta of it are certified to accept, too.\n\n'
    )
    kinds = [make_offers(name, bank, calibration, delta) for name in ("plain", "robust")]
    folder.write_promises(bank, kinds, calibration)
    say("A year later the network is trained on next year's applications, which nothing so far has seen.\n\n")
    retrained = bank.retrained()  # from here on: what was offered is written down and cannot change any more
    audits = [apas.audit(offers.certificates, retrained, base=bank.model, space=bank.space) for offers in kinds]
    folder.write_outcomes(retrained, kinds, audits)
    advice = folder.write_page(bank, kinds[1], audits[1], retrained)
    frames = {offers.name: offers.frame(report) for offers, report in zip(kinds, audits, strict=True)}
    told = {offers.name: offers.to_dict(report) for offers, report in zip(kinds, audits, strict=True)}
    # how far the training moved the model; an audit of no offers does not know
    moved = next((report.shift for report in audits if report.shift is not None), None)
    if as_json:
        content: dict[str, Any] = {"format": "apas-demo", "seed": seed, "delta": delta}
        content |= {"calibration": str(calibration.claim), "calibrated": bool(calibration.certified.all())}
        content |= {"measured_shift": None if moved is None else float(moved), **told}
        content["offers"] = {name: json_rows(frame.reset_index()) for name, frame in frames.items()}
        print_json({**content, "files": [str(file) for file in folder.files], "without_report": advice})
        return
    _print_examples(list(frames.values()))
    _print_scores(told, delta, _ending(audits, moved, delta, bool(calibration.certified.any())))
    for line in _files(output, folder.files, advice).split("\n"):  # commands to copy stay on one line
        print_line(line)


def _say(text: str) -> None:
    """Print paragraphs as wide as the terminal, but no wider than people read."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    for paragraph in text.splitlines():
        typer.echo(textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False))


def _print_examples(frames: "list[DataFrame]") -> None:
    table = new_table()
    for name in ("applicant", "plain offer", "next year", "robust offer", "next year"):
        table.add_column(name, overflow="fold")
    shown = frames[0].index[:SHOWN]
    for label in shown:
        cells = [cell(label)]
        for frame in frames:
            valid = frame.at[label, "valid_next_year"]
            style, word = ("", "-") if valid is None else ("green", "accepted") if valid else ("red", "rejected")
            cells += [cell(frame.at[label, "changes"]), cell(word, style=style)]
        table.add_row(*cells)
    print_table(table, f"These are {len(shown)} of {len(frames[0])}; the others are in offers.csv.\n")


def _print_scores(told: dict[str, dict[str, Any]], delta: float, ending: str) -> None:
    claim = apas.Sampling()
    most = f"{100 * claim.coverage:g} % of the shifts"
    table = new_table("", right=("plain", "robust"), no_wrap=True)

    def line(words: str, shown: Any) -> None:
        table.add_row(words, *map(shown, told.values()))

    def known(name: str, write: Any) -> Any:
        return lambda s: "-" if s[name] is None else write(s[name])

    line("offers found", lambda s: f"{s['found']} of {s['applicants']}")
    line("mean change, in % of the features' ranges", known("mean_change", lambda share: f"{100 * share:.2f}"))
    line(
        f"certified at delta = {delta:g} for {most} (confidence {claim.confidence:g}, each by itself)",
        lambda s: f"{s['certified_most']} of {s['found']}",
    )
    line(f"proved at delta = {delta:g} for every shift", lambda s: f"{s['certified_every']} of {s['found']}")
    line(f"largest delta for {most}, median", known("median_delta_most", at_least))
    line("largest delta for every shift, median", known("median_delta_every", at_least))
    line("accepted by the model of next year", lambda s: f"{s['valid_next_year']} of {s['found']}")
    print_table(table, ending)


def _ending(audits: "list[apas.AuditReport]", moved: "apas.ShiftReport | None", delta: float, calibrated: bool) -> str:
    plain, robust = (f"{sum(row.valid for row in audit)} of {len(audit)}" for audit in audits)
    lines = [f"Promises kept: {plain} plain, {robust} robust."]
    if calibrated:
        kept = all(row.valid for row in audits[1])  # a share of updates is claimed, of which this is one
        told = "keeps all robust offers, as most updates are said to" if kept else "is one of those that break some"
        lines.append(f"Next year's model {told}.")
    if moved is not None:
        where = "within" if moved.delta <= delta else "beyond"
        lines.append(
            f"The training moved no weight or bias by more than {at_most(moved.delta)}, {where} the delta of the plan."
        )
    for outcome, why in _WHY.items():
        count = sum(row.outcome.name == outcome for row in audits[1])
        if count:
            lines.append(f"{count} of the certified offers {'is' if count == 1 else 'are'} broken{why}")
    return "\n".join(lines)


def _files(folder: Path, files: list[Path], advice: str | None) -> str:
    others = f"Certificates, models and CSVs are in {folder}; {folder / 'README.txt'} says which."
    page = folder / "report.html"
    first = f"The report: {page}" if page in files else f"No report was written: {advice}"
    again = (
        f"apas verify {folder / 'robust.json'} {folder / 'this-year.json'} --space {folder / 'space.toml'}\n"
        f"apas audit {folder / 'robust.json'} {folder / 'next-year.json'} --base {folder / 'this-year.json'}"
    )
    return f"\n{first}\n{others}\nTo check the certificates and to ask the new model yourself:\n{again}"
