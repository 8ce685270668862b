"""`apas verify`, `audit`, `ledger`, `report` and `letter`: what becomes of promises that were made."""

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Argument, Option

import apas
from apas._atomic import refusing, write_text
from apas._sanitise import from_csv
from apas.cli import options, output
from apas.cli.options import group_options, optional, parse_pairs
from apas.cli.output import cell, check_outputs, give, new_table, print_json, print_line, print_rows
from apas.display.numbers import exactly
from apas.errors import InputError


@dataclass(eq=False, repr=False)
class CheckOptions:
    """What certificates must claim at least, and whether their claims are tested on new draws."""

    require_coverage: float | None = Option(None, help="Fail rows that certify less than this share of the shifts.")
    require_confidence: float | None = Option(None, help="Fail rows that claim less than this confidence.")
    require_delta: float | None = Option(
        None, help="Fail rows that certify a smaller delta than this, in their own set."
    )
    require_target: str | None = Option(None, help="Fail rows that are about another class than this, as printed.")
    require_derived: bool = Option(
        False, "--require-derived", help="Fail rows whose draws come from a seed that somebody could choose."
    )
    fresh: bool = Option(False, "--fresh", help="Test claims by sampling on models that are drawn now, too.")
    samples: int | None = optional("Models drawn afresh for each row.", "as many as it takes")


@group_options
def verify_command(
    certificates: options.CertificatesFile,
    model: options.ModelFile,
    *,
    checks: CheckOptions,
    seed: int | None = Option(None, min=0, help="Seed of the new draws, to repeat a run."),
    space: Path | None = Option(None, help="TOML file: the space that encodes the rows, if one does (apas generate)."),
    models: list[Path] | None = Option(
        None, help="Model file of a model that exists, or a folder of refits; once for each, in their order."
    ),
    layers: options.LayerOptions,
    as_json: options.Json = False,
) -> None:
    """Check a certificate file against the model it is about: draw again, prove again, replay witnesses.

    The exit code is 0 if all hold, 1 if something does not hold or the model is another one, 2 for bad input, and 3
    if all that was checked holds but some rows could not be checked, or there are none.

    Example:  apas verify promises.json model.json
    """
    for name, value in (("--seed", seed), ("--samples", checks.samples)):
        if value is not None and not checks.fresh:
            raise InputError(f"`{name}` goes with `--fresh`; leave it out.")
    net = layers.read(model)
    bound = net if space is None else apas.FeatureSpace.from_toml(space).bind(net)
    read = (apas.RetrainedModels.load(path) if path.is_dir() else [layers.read(path)] for path in models or ())
    report = apas.verify(certificates, bound, models=[m for several in read for m in several], rng=seed, **vars(checks))
    give(report, print_checks, as_json=as_json)
    raise typer.Exit(report.exit_code)


def print_checks(report: "apas.VerifyReport") -> None:
    """Print a line per statement with what it claims, the sets that its delta is a size in, and what they come to."""
    columns = ("row", "statement", "claimed", "target", "delta", "coverage", "confidence", "check", "reason")
    colours = {"HOLDS": "green", "FAILS": "red", "NOT_CHECKED": "yellow"}

    def cells(i: int) -> list[Any]:
        line = report[i]
        told = (line.target, exactly(line.delta), exactly(line.coverage), line.sureness())
        return [line.statement, line.claimed, *told, cell(line.check.value, colours[line.check.name]), line.reason]

    sets = [f"Set: {words}." for words in dict.fromkeys(line.shifts for line in report)]
    summary = "\n".join([*sets, *report.notes, report.summary()])
    print_rows(report, new_table(*columns), cells, summary, urgent=lambda line: line.check.name != "HOLDS")


@dataclass(eq=False, repr=False)
class AuditOptions(options.LayerOptions):
    """What both audits take: of a certificate file, and of a ledger."""

    validity_only: bool = Option(False, "--validity-only", help="Ask only which rows are valid on the new model.")
    space: Path | None = optional("TOML file that says what repairs may change.")
    no_repairs: bool = Option(False, "--no-repairs", help="Do not look for repairs.")
    as_json: options.Json = False
    markdown: Path | None = Option(None, help="Write the report to this Markdown file, too.")
    junit: Path | None = Option(None, help="Write the report to this JUnit XML file, too.")

    def check_outputs(self, *inputs: Path | None, out: Path | None = None) -> None:
        """Refuse files to write that are among those that are read."""
        check_outputs({"--markdown": self.markdown, "--junit": self.junit, "--out": out}, *inputs, self.space)

    def arguments(self) -> dict[str, Any]:
        """What `audit` takes besides the models."""
        space = None if self.space is None else apas.FeatureSpace.from_toml(self.space)
        return {"validity_only": self.validity_only, "space": space, "repairs": not self.no_repairs}

    def finish(self, report: "apas.AuditReport") -> NoReturn:
        """Write the files that were asked for, print the report, and end with its exit code."""
        for path, text in ((self.markdown, report.to_markdown), (self.junit, report.to_junit)):
            if path is not None:
                with refusing(f"{path} cannot be written"):
                    write_text(path, text())
        give(report, print_audit, as_json=self.as_json)
        raise typer.Exit(report.exit_code)


@options.group_options
def audit_command(
    certificates: options.CertificatesFile,
    new_model: options.ModelFile,
    *,
    base: Path | None = optional("Model file of the certified model, to measure the shift."),
    how: AuditOptions,
    where: options.BlockOptions,
) -> None:
    """Ask a new model whether it keeps what certificates promised, and what would repair the promises it breaks.

    The exit code is 0 if no promise is broken, 1 if any is, and 2 for bad input.

    Example:  apas audit promises.json new.json --base model.json
    """
    how.check_outputs(certificates, new_model, base, out=where.out)
    in_blocks = where.streams(json=how.as_json, markdown=how.markdown, junit=how.junit)
    if not in_blocks and (where.out or where.jobs or where.dask):
        raise InputError("`--jobs` and `--dask` of audit go with `--out`, whose file must end in .jsonl or .parquet.")
    new, old = (None if path is None else how.read(path) for path in (new_model, base))
    if not in_blocks:
        how.finish(apas.audit(certificates, new, base=old, **how.arguments()))
    from apas.cli.stream import StoredRows, write_rows

    files = {"CERTIFICATES": certificates, "NEW_MODEL": new_model, "--base": base}
    source, ask = StoredRows(certificates), partial(apas.audit, new_model=new, base=old)
    counts = where.stream(ask, source, files, how.arguments(), counts="outcome", size=2048, write=write_rows)
    raise typer.Exit(int(any(word.startswith("BROKEN") for word in counts)))


def print_audit(report: "apas.AuditReport") -> None:
    """Print a line per row, what repairs the broken ones, and what it all comes to."""
    colours = {"HELD": "green", "NOT_PROMISED": "yellow", "OPEN": "yellow"}

    def cells(i: int) -> list[Any]:
        row, outcome = report[i], report[i].outcome.name
        said = cell(row.reason)
        if row.repair is not None:
            said.append("\n").append_text(cell(f"nearest repair: {row.repair}"))
        return [cell(outcome, colours.get(outcome, "red")), exactly(row.delta), said]

    summary, table = "\n".join([report.summary(), *report.notes]), new_table("row", "outcome", "delta", "reason")
    print_rows(report, table, cells, summary, urgent=lambda row: row.outcome.name not in colours)


def read_references(path: Path | None, column: str | None) -> list[str] | None:
    r"""One text per row: the lines of a text file, or a column of a CSV file."""
    if path is None:
        if column is not None:
            raise InputError("`--reference-column` names a column of the file of `--references`; give that, too.")
        return None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8.") from None
    if column is None:
        return [line.strip() for line in text.splitlines()]
    try:
        lines = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}.") from None
    column = next((name for name in lines[0] if name and from_csv(name) == column), column) if lines else column
    if not lines or column not in lines[0]:
        known = ", ".join(repr(name) for name in (lines[0] if lines else {}) if name) or "none"
        raise InputError(f"{path} must have the column {column!r}, but its columns are: {known}.")
    return [from_csv(str(line[column] or "").strip()) for line in lines]


ledger_app = typer.Typer(
    name="ledger",
    help="Keep the promises that were made to people, and audit new models against all of them.\n\n"
    "Example:  apas ledger list ledger.db --state open",
    no_args_is_help=True,
)
#: What SQLite keeps beside the file.
BESIDE = ("-wal", "-shm", "-journal")
_WHOSE = "File with a reference per row, one per line; or a CSV file."
References = Annotated[Path | None, Option(help=_WHOSE, show_default="names of rows")]
_COLUMN = "Column of the CSV file that holds the references."
ReferenceColumn = Annotated[str | None, Option(help=_COLUMN, show_default="none")]
LedgerPlace = Annotated[str, Argument(metavar="LEDGER", help="Ledger: a file (SQLite), or postgresql://...")]
TrustClock = Annotated[
    bool,
    Option("--trust-clock", help="The clock is right, although it is far from the last entry of the ledger's history."),
]


def _file(ledger: str) -> Path | None:
    return None if "://" in ledger else Path(ledger)


#: How a promise ends.
Retired = StrEnum("Retired", "honoured withdrawn")
#: What has become of a promise.
PromiseState = StrEnum("PromiseState", "open honoured broken expired withdrawn")


@ledger_app.command("add")
def add_command(
    ledger: Annotated[str, Argument(help="Ledger: a file, or postgresql://...; made if there is none.")],
    certificates: options.CertificatesFile,
    references: References = None,
    reference_column: ReferenceColumn = None,
    expires: str | None = optional("Last day of the promises (UTC), such as 2027-06-30.", "never"),
    trust_clock: TrustClock = False,
    as_json: options.Json = False,
) -> None:
    """Add the certified rows of a certificate file, up to twenty in a transaction; again does no harm.

    Example:  apas ledger add ledger.db promises.json --references applicants.txt
    """
    from apas.contracts.ledger import checked_promises

    check_outputs({"LEDGER": _file(ledger)}, certificates, references)
    names = read_references(references, reference_column)
    # before the ledger is opened: a refusal must not leave an empty one behind
    checked_promises(certificates, names, expires, datetime.now(UTC).date().isoformat())
    with apas.Ledger(ledger, trust_clock=trust_clock) as book:
        done = book.add(certificates, names, expires=expires)
    never = int((~apas.load_certificates(certificates).valid_today).sum())
    if as_json:
        print_json({**done._asdict(), "not_valid_today": never})
        return
    why = f" ({never} not valid on the certified model itself)" if never else ""
    typer.echo(f"{done.added} added, {done.known} known already, {done.not_certified} not certified{why}.")


@ledger_app.command("list")
def list_command(
    ledger: LedgerPlace,
    state: PromiseState | None = optional("Only promises in this state.", "all"),
    digest: str = optional(
        "Only promises whose digest begins like this, such as the code of a letter.", "all", default=""
    ),
    history: str | None = optional("Show what became of the promises to this reference."),
    trust_clock: TrustClock = False,
    as_json: options.Json = False,
) -> None:
    """List promises and their states.

    Examples, by state, and by the code that stands on a letter:

    apas ledger list ledger.db --state open

    apas ledger list ledger.db --digest 3F2A-91BC-77D0
    """
    if digest and history is not None:
        raise InputError("`--digest` goes without `--history`, which asks for a reference; leave one of them out.")
    with apas.Ledger(ledger, create=False, trust_clock=trust_clock) as book:
        chosen = None if state is None else state.value
        frame = book.to_frame(chosen, digest=digest) if history is None else book.history(history)
    if as_json:
        kind = "apas-ledger" if history is None else "apas-ledger-history"
        print_json({"format": kind, "rows": output.json_rows(frame)})
        return
    frame = frame.astype(object).where(frame.notna(), None)
    hidden = [c for c in ("digest", "model") if c in frame]
    short = frame.assign(**{c: [str(v or "")[:12] for v in frame[c]] for c in hidden})
    table = new_table(*short.columns)
    for line in short.head(output.PAGE).itertuples(index=False):
        table.add_row(*(cell("" if value is None else value) for value in line))
    counts = frame["state"].value_counts(sort=False).to_dict() if len(frame) else {}
    parts = ", ".join(f"{n} {name}" for name, n in counts.items())
    what = "promise" if history is None else "event"
    said = f"{len(frame)} {what}{'' if len(frame) == 1 else 's'}{f': {parts}' if history is None and parts else ''}."
    output.print_table(table, said, len(frame))


@ledger_app.command("audit")
@options.group_options
def ledger_audit_command(
    ledger: LedgerPlace,
    new_model: options.ModelFile,
    *,
    base: list[Path] | None = optional("Model file of a certified model; may be given several times."),
    dry_run: bool = Option(False, "--dry-run", help="Record nothing: the model may never be used."),
    strict: bool = Option(False, "--strict", help="Fail if promises have expired, too."),
    trust_clock: TrustClock = False,
    how: AuditOptions,
) -> None:
    """Ask a new model about every promise that is owed, and write the outcome into the history.

    The exit code is 0 if no promise is broken, 1 if any is (with --strict also if any has expired), 2 for bad input.

    Example:  apas ledger audit ledger.db new.json --base model.json --dry-run
    """
    file = _file(ledger)
    own = [] if file is None else [file, *(file.with_name(file.name + ending) for ending in BESIDE)]
    models = [new_model, *(base or ())]
    how.check_outputs(*own, *models)
    new, *old = map(how.read, models)
    with apas.Ledger(ledger, create=False, trust_clock=trust_clock) as book:
        report = book.audit(new, base=old or None, record=not dry_run, strict=strict, **how.arguments())
    how.finish(report)


@ledger_app.command("retire")
def retire_command(
    ledger: LedgerPlace,
    references: list[str] = Argument(help="Whose promises to close."),
    outcome: Retired = Option(Retired.honoured, "--as", help="How they ended."),
    digest: str = optional("How the digest of the promise begins, if there are several.", "all", ""),
    trust_clock: TrustClock = False,
    as_json: options.Json = False,
) -> None:
    """Close promises, also those that have expired: they were honoured, or withdrawn.

    Example:  apas ledger retire ledger.db A-17 A-18 --as honoured
    """
    with apas.Ledger(ledger, create=False, trust_clock=trust_clock) as book:
        closed = book.retire(references, outcome.value, digest=digest)
    if as_json:
        print_json({"retired": closed, "as": outcome.value})
    else:
        typer.echo(f"{closed} {outcome.value}.")


@group_options
def report_command(
    certificates: options.CertificatesFile,
    *,
    report: Path = Option(Path("report.html"), "--report", "-o", help="The page to write (.html)."),
    model: Path | None = optional("Model file of the certified model, for the curves."),
    audit: Path | None = optional("File that `apas audit --json` printed."),
    new_model: Path | None = optional("Model file of a later model, for before and after."),
    max_shifts: Path | None = optional("File that `apas max-shift --save` wrote."),
    title: str | None = optional("Title of the page.", "a question"),
    seed: int | None = Option(None, min=0, help="Seed of the page's own draws.", show_default="from the certificates"),
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


@group_options
def letter_command(
    certificates: options.CertificatesFile,
    *,
    folder: Path = Option(Path("letters"), "--folder", "-o", help="Where to write the pages."),
    references: References = None,
    reference_column: ReferenceColumn = None,
    expires: str | None = optional("Last day of the promises (UTC), such as 2027-06-30."),
    answer: str | None = optional("What the class means to people.", "its name"),
    name: list[str] | None = optional("What people call a feature: FEATURE=WORDS; several times."),
    sender: str = optional("Who writes.", default=""),
    template: Path | None = optional("A page of your own (Jinja).", "the one of apas"),
    as_json: options.Json = False,
) -> None:
    """Write a page for each applicant: what to change, what is promised, until when, and what is not.

    Rows that are not certified are left out. Each option has a code, which `apas ledger list --digest` finds.

    Examples, with what the class means, and with a page of your own:

    apas letter promises.json --expires 2099-12-31 --answer approved -o letters

    apas letter promises.json --template own.html -o letters
    """
    said: dict[str, Any] = {"expires": expires, "answer": answer, "sender": sender, "template": template}
    said |= {"references": read_references(references, reference_column), "names": parse_pairs(name, "--name")}
    pages = apas.write_letter(certificates, folder, **said)
    if as_json:
        print_json({"format": "apas-letters", "pages": [str(path) for path in pages]})
        return
    for path in pages:
        print_line(str(path))
    print_line(f"{len(pages)} letter{'' if len(pages) == 1 else 's'}.")
