"""`apas ledger`: the promises that are owed, in one file."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from apas._sanitise import from_csv
from apas.cli import options
from apas.cli.audit import AuditOptions
from apas.cli.options import optional
from apas.cli.output import PAGE, cell, check_outputs, json_rows, new_table, print_json, print_table
from apas.errors import InputError


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
    help="Keep the promises that were made to people, and audit new models against all of them.\n\n"
    "Example:  apas ledger list ledger.db --state open",
    no_args_is_help=True,
)
#: What SQLite keeps beside the file.
BESIDE = ("-wal", "-shm", "-journal")
LedgerPlace = Annotated[str, Argument(metavar="LEDGER", help="Ledger: a file (SQLite), or postgresql://...")]
TrustClock = Annotated[
    bool,
    Option("--trust-clock", help="The clock is right, although it is far from the last entry of the ledger's history."),
]


def _file(ledger: str) -> Path | None:
    """The file of a ledger, None for a server's."""
    return None if "://" in ledger else Path(ledger)


#: How a promise ends.
Retired = StrEnum("Retired", "honoured withdrawn")
#: What has become of a promise.
PromiseState = StrEnum("PromiseState", "open honoured broken expired withdrawn")


@ledger_app.command("add")
def add_command(
    ledger: Annotated[str, Argument(help="Ledger: a file, or postgresql://...; made if there is none.")],
    certificates: options.CertificatesFile,
    references: Annotated[
        Path | None, optional("File with a reference per row, one per line; or a CSV file.", "names of rows")
    ] = None,
    reference_column: Annotated[str | None, optional("Column of the CSV file that holds the references.")] = None,
    expires: Annotated[str | None, optional("Last day of the promises (UTC), such as 2027-06-30.", "never")] = None,
    trust_clock: TrustClock = False,
    as_json: options.Json = False,
) -> None:
    """Add the certified rows of a certificate file, each in a transaction of its own; again does no harm.

    Example:  apas ledger add ledger.db promises.json --references applicants.txt
    """
    from apas import Ledger, load_certificates
    from apas.contracts.promises import checked_promises

    check_outputs({"LEDGER": _file(ledger)}, certificates, references)
    names = read_references(references, reference_column)
    # before the ledger is opened: a refusal must not leave an empty one behind
    checked_promises(certificates, names, expires, datetime.now(UTC).date().isoformat())
    with Ledger(ledger, trust_clock=trust_clock) as book:
        done = book.add(certificates, names, expires=expires)
    never = int((~load_certificates(certificates).valid_today).sum())
    if as_json:
        print_json({**done._asdict(), "not_valid_today": never})
        return
    why = f" ({never} not valid on the certified model itself)" if never else ""
    typer.echo(f"{done.added} added, {done.known} known already, {done.not_certified} not certified{why}.")


@ledger_app.command("list")
def list_command(
    ledger: LedgerPlace,
    state: Annotated[PromiseState | None, optional("Only promises in this state.", "all")] = None,
    digest: Annotated[
        str, optional("Only promises whose digest begins like this, such as the code of a letter.", "all")
    ] = "",
    history: Annotated[str | None, optional("Show what became of the promises to this reference.")] = None,
    trust_clock: TrustClock = False,
    as_json: options.Json = False,
) -> None:
    """List promises and their states.

    Examples, by state, and by the code that stands on a letter:

    apas ledger list ledger.db --state open

    apas ledger list ledger.db --digest 3F2A-91BC-77D0
    """
    from apas import Ledger

    if digest and history is not None:
        raise InputError("`--digest` goes without `--history`, which asks for a reference; leave one of them out.")

    with Ledger(ledger, create=False, trust_clock=trust_clock) as book:
        chosen = None if state is None else state.value
        frame = book.to_frame(chosen, digest=digest) if history is None else book.history(history)
    if as_json:
        kind = "apas-ledger" if history is None else "apas-ledger-history"
        print_json({"format": kind, "rows": json_rows(frame)})
        return
    frame = frame.astype(object).where(frame.notna(), None)
    hidden = [c for c in ("digest", "model") if c in frame]
    short = frame.assign(**{c: [str(v or "")[:12] for v in frame[c]] for c in hidden})
    table = new_table(*short.columns)
    for line in short[:PAGE].itertuples(index=False):
        table.add_row(*(cell("" if value is None else value) for value in line))
    counts = frame["state"].value_counts(sort=False).to_dict() if len(frame) else {}
    parts = ", ".join(f"{n} {name}" for name, n in counts.items())
    what = "promise" if history is None else "event"
    said = f"{len(frame)} {what}{'' if len(frame) == 1 else 's'}{f': {parts}' if history is None and parts else ''}."
    print_table(table, said, len(frame))


@ledger_app.command("audit")
@options.group_options
def audit_command(
    ledger: LedgerPlace,
    new_model: options.ModelFile,
    *,
    base: Annotated[list[Path] | None, optional("Model file of a certified model; may be given several times.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Record nothing: the model may never be used.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail if promises have expired, too.")] = False,
    trust_clock: TrustClock = False,
    how: AuditOptions,
) -> None:
    """Ask a new model about every promise that is owed, and write the outcome into the history.

    The exit code is 0 if no promise is broken, 1 if any is (with --strict also if any has expired), 2 for bad input.

    Example:  apas ledger audit ledger.db new.json --base model.json --dry-run
    """
    from apas import Ledger

    file = _file(ledger)
    own = [] if file is None else [file, *(file.with_name(file.name + ending) for ending in BESIDE)]
    how.check_outputs(own, new_model, base)
    new, *old = (how.read(path) for path in (new_model, *(base or ())))
    with Ledger(ledger, create=False, trust_clock=trust_clock) as book:
        report = book.audit(new, base=old or None, record=not dry_run, strict=strict, **how.arguments())
    how.finish(report)


@ledger_app.command("retire")
def retire_command(
    ledger: LedgerPlace,
    references: Annotated[list[str], Argument(help="Whose promises to close.")],
    outcome: Annotated[Retired, Option("--as", help="How they ended.")] = Retired.honoured,
    digest: Annotated[str, optional("How the digest of the promise begins, if there are several.", "all")] = "",
    trust_clock: TrustClock = False,
    as_json: options.Json = False,
) -> None:
    """Close promises, also those that have expired: they were honoured, or withdrawn.

    Example:  apas ledger retire ledger.db A-17 A-18 --as honoured
    """
    from apas import Ledger

    with Ledger(ledger, create=False, trust_clock=trust_clock) as book:
        closed = book.retire(references, outcome.value, digest=digest)
    if as_json:
        print_json({"retired": closed, "as": outcome.value})
    else:
        typer.echo(f"{closed} {outcome.value}.")
