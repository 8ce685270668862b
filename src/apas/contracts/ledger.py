"""`Ledger`: all promises that are owed, in one SQLite file or PostgreSQL database that many may write to at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np

from apas._fields import Fields, parse_json
from apas._validation import check_flag, check_texts, is_path
from apas.certification.calibration import ALARM, NextUpdate
from apas.certification.claims import CLAIMS
from apas.certification.results import Certificates
from apas.contracts import certificate_file as files
from apas.contracts.audit import AuditReport, audit, certificates_of
from apas.contracts.certificate_lines import write_line, write_sorted
from apas.contracts.certified_model import match_model
from apas.contracts.stores import open_store
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.space.space import FeatureSpace, check_space
from apas.errors import InputError
from apas.models.digest import model_digest
from apas.shifts.distance import read_model

if TYPE_CHECKING:
    from pandas import DataFrame


class Promise(NamedTuple):
    """One certified row."""

    label: Any  # what the row is called
    digest: str  # SHA-256 of what is promised, whatever the row is called and whichever version of apas wrote it
    about: dict[str, Any]  # what a certificate file says of all rows
    entry: dict[str, Any]  # what it says of this one

    def text(self, reference: str) -> str:
        """A certificate file whose row is called by the reference."""
        content = {**self.about, "certificates": [{**self.entry, "row": reference}]}
        return write_line({**content, "digest": files.content_digest(content)})


def _without(content: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def _parts(certificates: Any) -> list[Promise | None]:
    """The certified rows one by one; None for a row that is not certified."""
    if not is_path(certificates):
        content = files.stored_content(certificates_of(certificates))
    else:
        stored = files.read_stored(path := Path(os.fsdecode(certificates)))
        if stored.certificates is None:
            what = "the largest shifts of rows but no certificates, so that nothing is promised"
            raise InputError(f"{path} holds {what}.")
        is_json = path.suffix.lower() not in (".jsonl", ".parquet")
        content = files.read_object(path, "certificate file") if is_json else files.stored_content(stored.certificates)
    about = _without(content, "certificates", "digest")
    promised = _without(about, "versions")
    return [
        Promise(
            entry["row"], files.content_digest({**promised, "certificates": [{**entry, "row": None}]}), about, entry
        )
        if entry["certificate"]["verdict"] == "CERTIFIED"
        else None
        for entry in content["certificates"]
    ]


def read_part(text: str) -> dict[str, Any]:
    """The content that a part's text holds; its row and its certificate are there."""
    try:
        content = parse_json(Path("ledger"), text.encode(), finite=True)
        (entry,) = content["certificates"]
        if not {"claim", "target", "delta"} <= set(entry["certificate"]):
            raise TypeError
    except (ValueError, KeyError, TypeError):  # what is no JSON among them
        raise InputError("a promise of the ledger is damaged: it holds no certificate; get it from a backup.") from None
    return dict(content)


Groups: TypeAlias = list[tuple[list[int], Certificates]]


def join_promises(texts: Sequence[str], labels: Iterable[Any]) -> Groups:
    """Promises as certificates again, those of one table together, each with the numbers of its rows."""
    tables: dict[str, tuple[dict[str, Any], list[tuple[int, Any, Any]]]] = {}
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        content = read_part(text)
        if content.get("digest") != files.content_digest(content):
            _refuse([text])
        about = _without(content, "certificates", "digest")
        same = write_sorted(_without(about, "versions"))  # whichever version of apas wrote it
        tables.setdefault(same, (about, []))[1].append((number, label, content["certificates"][0]))
    found = []
    for about, rows in tables.values():
        numbers, names, entries = (list(column) for column in zip(*rows, strict=True))
        try:
            found.append((numbers, files.read_rows_of(about, entries, names)))
        except InputError:
            _refuse([texts[number] for number in numbers])
            raise
    return found


def _refuse(texts: Iterable[str]) -> None:
    """Say what is wrong with the first promise that is no certificate file."""
    for text in texts:
        try:
            files.read_content(read_part(text))
        except InputError as error:
            raise InputError(f"a promise of the ledger cannot be used: {error}") from None


def checked_promises(
    certificates: Any, references: Sequence[str] | None, expires: date | str | None, today: str
) -> tuple[list[Promise | None], list[str], str | None]:
    """The rows that a ledger is asked to take: one by one, whom each belongs to, and the last day of the promises."""
    parts = _parts(certificates)
    if references is None:
        there = [(place, part) for place, part in enumerate(parts) if part is not None]
        counted = bool(there) and all(part.label == place for place, part in there)
        # a name is a text, or a number of a data frame's own; those of an array are places
        framed = any(part.about["points"]["kind"] == "frame" for _, part in there)
        if counted or not all(isinstance(p.label, str) or (framed and type(p.label) is int) for _, p in there):
            raise InputError(
                "`references` must say whom each row belongs to, since the rows have no names of their own"
                f"{', but are counted from 0' if counted else ''}; pass a text per row (--references FILE)."
            )
        names = ["" if part is None else str(part.label) for part in parts]
    else:
        names = check_texts(references, "references")
        if len(names) != len(parts):
            raise InputError(f"`references` must have one text per row ({len(parts)}), got {len(names)}.")
    if expires is None:
        return parts, names, None
    try:
        told = date.fromisoformat(expires) if isinstance(expires, str) else expires
        day = date(told.year, told.month, told.day).isoformat()
    except (ValueError, AttributeError):
        raise InputError(f"`expires` must be a day such as 2027-06-30, got {expires!r}.") from None
    if day < today:
        raise InputError(f"`expires` must not lie before today ({today}), got {day}.")
    return parts, names, day


#: What a promise can be; "expired" follows from the date and is never stored.
STATES = ("open", "honoured", "broken", "expired", "withdrawn")
#: How far the clock may be from the last entry of the history: a day forgives a wrong time zone, ten years (with at
#: most three leap days) a ledger that rested.
BEFORE, AFTER = timedelta(days=1), timedelta(days=3653)
#: How many promises are added in one transaction: others wait for its end, and each costs a write to the disk.
TOGETHER = 20
#: What the columns of the tables hold.
_KINDS: dict[str, Any] = {
    "id": int,
    **dict.fromkeys(("reference", "digest", "content", "issued", "state", "at", "event", "detail"), str),
    **dict.fromkeys(("expires", "model"), str | None),
}


def joint_audit(
    groups: Groups, labels: Sequence[str], new_model: Any, *, base: Any, expired: int, strict: bool, **how: Any
) -> AuditReport:
    """Audit promises in their order, those of one table together; `base` may be several models."""
    # A promise about none of the base models is asked about without a base. How many more promises have `expired`, and
    # whether that fails the audit, goes into the report.
    given = [] if base is None else list(base) if isinstance(base, list | tuple) else [base]
    bases = [read_model(model, "`base`") for model in given]
    new = read_model(new_model, "`new_model`")
    # the model that these certificates are about, if it is given
    chosen = [next((m for m in bases if not isinstance(match_model(found, m), str)), None) for _, found in groups]
    if bases and groups and all(own is None for own in chosen):
        raise InputError("`base` must be a model that promises of the ledger are about, but none is; leave it out.")
    reports = [audit(found, new, base=own, **how) for (_, found), own in zip(groups, chosen, strict=True)]
    both = zip(groups, reports, strict=True)
    rows = dict(pair for (numbers, _), told in both for pair in zip(numbers, told, strict=True))
    notes = [note for told in reports for note in told.notes]
    if bases and not all(own is not None for own in chosen):
        others = "Some promises are about models that are not among the given bases"
        notes.append(f"{others}; no shift was measured for them.")
    return AuditReport(
        [rows[number] for number in range(len(labels))],
        index=np.array(labels, dtype=object),
        points=groups[0][1].points if len(groups) == 1 else None,
        new_digest=model_digest(new),
        shifts=dict(shift for told in reports for shift in told.shifts.items()),
        notes=list(dict.fromkeys(notes)),
        comparable=bool(groups) and all(told.comparable and told.shifts for told in reports),
        expired=expired,
        strict=strict,
    )


def _beginning(digest: str) -> str:
    """How a digest has to begin, which may be written as on letters."""
    if not isinstance(digest, str):
        raise InputError(f"`digest` must be a text, how the digest of the promise begins, got {digest!r}.")
    return digest.replace("-", "").strip().lower()


_COLUMNS = ("reference", "state", "issued", "expires", "target", "delta", "claim", "digest")


class Added(NamedTuple):
    """What became of the rows that were to be added."""

    added: int
    known: int
    not_certified: int


class Ledger:
    """The promises that were made to people, and what became of them.

    A promise is one certified row for one reference. It is **open** until its expiry date has passed (**expired**),
    until it is retired as **honoured** or **withdrawn**, or until an audit finds a model that does not keep it
    (**broken**). A broken promise is still owed until its date: later audits ask about it again, and open it again if
    their model keeps it. Whether a promise has expired is read off its date each time and never written down.

    Parameters
    ----------
    path : path
        The file; or the address of a PostgreSQL database, such as ``postgresql://user@host:5432/name`` (extra
        ``postgres``), in which the ledger has a schema of its own.
    create : bool, default True
        Whether to make a ledger where there is none.
    clock : callable, optional
        Gives the present time (a `datetime` in UTC), for tests.
    trust_clock : bool, default False
        Whether to believe the clock although it is more than a day before, or more than ten years after, the last entry
        of the history. Otherwise that is an error, since such a clock would keep or expire promises wrongly.

    Notes
    -----
    Certificates are added up to twenty in a transaction that is on the disk before the next begins; whoever is
    interrupted adds the same certificates again and gets the same ledger. References are opaque: no names of people.

    Examples
    --------
    >>> import apas, tempfile
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.01, target=1, rng=0)
    >>> with Ledger(tempfile.mkdtemp() + "/ledger.db") as ledger:
    ...     ledger.add(certificates, ["A-17", "A-18"]).added
    ...     ledger.audit(apas.FeedForward([[[1.0], [-1.0]]], [[-0.2]])).ok
    ...     ledger.to_frame()["state"].tolist()
    2
    False
    ['open', 'broken']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        clock: Callable[[], datetime] | None = None,
        trust_clock: bool = False,
    ) -> None:
        if clock is not None and not callable(clock):
            raise InputError(f"`clock` must be a function that gives the time, or None, got {clock!r}.")
        check_flag(trust_clock, "trust_clock")
        self._store, self._clock = open_store(path, create=create), clock or (lambda: datetime.now(UTC))
        self._path, self._trust_clock = self._store.name, trust_clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._store.close()

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM promises")[0][0])

    def __repr__(self) -> str:
        return f"<Ledger {self._path!r}>"

    def add(
        self,
        certificates: Certificates | Counterfactuals | str | os.PathLike[str],
        references: Sequence[str] | None = None,
        *,
        expires: date | str | None = None,
    ) -> Added:
        """Add the certified rows of certificates, up to twenty in a transaction.

        Parameters
        ----------
        references : sequence of str, optional
            Whom each row belongs to, one per row; what the rows are called unless given.
        expires : date or str, optional
            Last day on which the promises hold, such as "2027-06-30"; None for no end.

        Returns
        -------
        Added
            How many are new, how many the ledger had already (the same promise to the same reference; nothing about
            them changes), and how many rows are not certified, so that nothing was promised.
        """
        parts, names, last = checked_promises(certificates, references, expires, self._today)
        owed = [(name, part) for name, part in zip(names, parts, strict=True) if part is not None]
        fresh = 0
        for some in (owed[start : start + TOGETHER] for start in range(0, len(owed), TOGETHER)):
            with self._store.transaction():
                now, day = self._stamp(), self._today
                for reference, part in some:
                    model = part.about["model"]["digest"]
                    _, made = self._store.execute(
                        "INSERT INTO promises (reference, digest, model, content, issued, expires, state) "
                        "VALUES (?, ?, ?, ?, ?, ?, 'open') ON CONFLICT (reference, digest) DO NOTHING RETURNING id",
                        (reference, part.digest, model, part.text(reference), day, last),
                    )
                    for (number,) in made:
                        self._note(number, now, "added", "open", model)
                        fresh += 1
        return Added(fresh, len(owed) - fresh, len(parts) - len(owed))

    def audit(
        self,
        new_model: Any,
        *,
        base: Any = None,
        validity_only: bool = False,
        space: FeatureSpace | None = None,
        repairs: bool = True,
        record: bool = True,
        strict: bool = False,
    ) -> AuditReport:
        """Ask a new model about every promise that is owed; see `audit`.

        Parameters
        ----------
        base : object or list of object, optional
            The certified model, or several, for promises that were made about different ones. Promises about none of
            them are asked about without measuring a shift.
        record : bool, default True
            Whether to write the outcome into the history and change states. Pass False to ask about a model that
            may never be used.
        strict : bool, default False
            Whether the audit fails, too, if promises have expired that nobody retired.

        Returns
        -------
        AuditReport
            One line per promise that is owed, called by its reference, in the order in which they were added; and in
            `expired` how many are not, because their last day has passed.
        """
        flags = {"validity_only": validity_only, "repairs": repairs, "record": record, "strict": strict}
        for name, flag in flags.items():
            check_flag(flag, name)
        if space is not None:
            check_space(space)
        today = self._today
        self._check()
        query = "SELECT {} FROM promises WHERE state IN ('open', 'broken') AND "
        columns = query.format("id, reference, content")
        owed: list[Any] = self._rows(f"{columns}(expires IS NULL OR expires >= ?) ORDER BY id", today)
        gone = int(self._rows(f"{query.format('count(*)')}expires < ?", today)[0][0])
        numbers, names = [number for number, _, _ in owed], [name for _, name, _ in owed]
        groups = join_promises([text for _, _, text in owed], names)
        how: dict[str, Any] = {"validity_only": validity_only, "space": space, "repairs": repairs}
        report = joint_audit(groups, names, new_model, base=base, expired=gone, strict=strict, **how)
        report.notes += tuple(self._followed(numbers, groups, report))
        if not record:
            return report
        with self._store.transaction():
            now = self._stamp()
            for number, row in zip(numbers, report, strict=True):
                state = "broken" if row.outcome.is_broken else "open"
                if self._move(number, state):  # else somebody retired it meanwhile
                    detail = row.reason + ("" if row.repair is None else f"; nearest repair: {row.repair}")
                    self._note(number, now, f"audited: {row.outcome.name}", state, report.new_digest, detail)
        return report

    def _followed(self, numbers: Sequence[int], groups: Groups, report: AuditReport) -> list[str]:
        """How often calibrated claims have held so far, this audit included; loud where that contradicts them."""
        found: dict[NextUpdate, tuple[set[int], set[str]]] = {}
        for places, certificates in groups:
            # the models that calibrated, and the certified one, are no later updates
            own = {certificates.model_digest, *certificates.shifts.to_dict().get("models", ())}
            for place, item in zip(places, certificates, strict=True):
                if isinstance(item.claim, NextUpdate):
                    found.setdefault(item.claim, (set(), own))[0].add(numbers[place])
        query = "SELECT promise AS id, model, event FROM history WHERE event LIKE 'audited: %' ORDER BY history.id"
        audits = [(n, m, event.endswith(("HELD", "OPEN"))) for n, m, event in self._rows(query)] if found else []
        audits += [(n, report.new_digest, not row.outcome.is_broken) for n, row in zip(numbers, report, strict=True)]
        notes = []
        for claim, (promises, own) in found.items():
            kept: dict[str, bool] = {}
            for number, model, held in audits:
                if number in promises and model not in own:
                    kept[model] = kept.get(model, True) and held
            count = f"{sum(kept.values())} of {len(kept)} later models kept every row asked about"
            if claim.contradicted(list(kept.values())):
                count = (
                    f"THE CALIBRATION IS CONTRADICTED: {count}, which has a probability of at most {ALARM} if the "
                    "claim is true, however often one looks; the updates are no longer like those that calibrated, so "
                    "calibrate again"
                )
            notes.append(f"{count} ({claim}).")
        return notes

    def retire(self, references: str | Sequence[str], outcome: str = "honoured", *, digest: str = "") -> int:
        """Close promises, also those that have expired.

        Parameters
        ----------
        outcome : {"honoured", "withdrawn"}, default "honoured"
        digest : str, optional
            How the digest of the promise begins, where somebody has several; or the code of a letter.

        Returns
        -------
        int
            How many were closed.
        """
        if outcome not in ("honoured", "withdrawn"):
            raise InputError(f'`outcome` must be "honoured" or "withdrawn", got {outcome!r}.')
        code, names = _beginning(digest), check_texts(references, "references")
        query = "SELECT id, digest FROM promises WHERE reference = ? AND state IN ('open', 'broken')"
        closed = 0
        with self._store.transaction():
            for name in names:
                chosen = [number for number, known in self._rows(query, name) if known.startswith(code)]
                if not chosen:
                    raise InputError(
                        f"{self._path} holds no promise to {name!r} that is not closed yet; nothing was changed."
                    )
                for number in chosen:
                    if self._move(number, outcome):
                        self._note(number, self._stamp(), "retired", outcome)
                closed += len(chosen)
        return closed

    def to_frame(self, state: str | None = None, *, digest: str = "") -> DataFrame:
        """One line per promise, in the order in which they were added.

        Only those in this `state`, and those whose `digest` begins like this, such as the code of a letter
        ("3F2A-91BC-77D0").
        """
        import pandas as pd

        code = _beginning(digest)
        if state is not None and state not in STATES:
            raise InputError(f"`state` must be one of {', '.join(STATES)}, got {state!r}.")
        self._check()
        today, lines = self._today, []
        query = "SELECT reference, state, issued, expires, content, digest FROM promises ORDER BY id"
        for reference, kept, issued, last, content, known in self._rows(query):
            if not known.startswith(code):
                continue
            told = read_part(content)["certificates"][0]["certificate"]
            now = "expired" if kept == "open" and last is not None and last < today else kept
            about = (told["target"], told["delta"], _claim(told["claim"]))
            lines.append((reference, now, issued, last, *about, known))
        frame = pd.DataFrame(lines, columns=list(_COLUMNS))
        return frame if state is None else frame[frame["state"] == state].reset_index(drop=True)

    def history(self, reference: str | None = None) -> DataFrame:
        """What became of the promises to a reference, or of all, line by line."""
        import pandas as pd

        if reference is not None and not isinstance(reference, str):
            raise InputError(f"`reference` must be a text or None, got {reference!r}.")
        query = "SELECT reference, digest, at, event, history.state, history.model, detail FROM history JOIN promises "
        query += "ON promises.id = promise WHERE CAST(? AS TEXT) IS NULL OR reference = ? ORDER BY history.id"
        columns = ["reference", "digest", "at", "event", "state", "model", "detail"]
        return pd.DataFrame(self._rows(query, reference, reference), columns=columns)

    @property
    def _now(self) -> datetime:
        """The time, in UTC; an error if the history makes it unlikely to be right."""
        now = self._clock().astimezone(UTC)
        # what version 1 of the file closed by its clock does not count
        query = "SELECT at FROM history WHERE event != 'expired' ORDER BY id DESC LIMIT 1"
        for (at,) in () if self._trust_clock else self._rows(query):
            try:
                last = datetime.fromisoformat(at).astimezone(UTC)
            except (TypeError, ValueError, OverflowError):
                what = "an entry of its history has no time"
                raise InputError(f"{self._path} is damaged: {what}; get it from a backup.") from None
            if not -BEFORE <= now - last <= AFTER:
                where = "more than a day before" if now < last else "more than ten years after"
                raise InputError(
                    f"the clock says {now:%Y-%m-%d %H:%M} UTC, which is {where} the last entry of {self._path} "
                    f"({last:%Y-%m-%d %H:%M} UTC); set the clock, or if it is right pass trust_clock=True "
                    "(--trust-clock)."
                )
        return now

    @property
    def _today(self) -> str:
        return self._now.date().isoformat()

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query gives; SQLite keeps any value in any column, so that their kinds are checked."""
        columns, found = self._store.execute(query, values)
        for place, name in enumerate(columns):
            kinds = _KINDS.get(name, object)
            if not all(isinstance(row[place], kinds) for row in found):
                raise InputError(
                    f"{self._path} is damaged (a value of {name!r} is of the wrong kind); get it from a backup."
                )
        return found

    def _check(self) -> None:
        """Refuse promises in a state, or with a last day, that no ledger writes: no question would ever find them."""
        _, kinds = self._store.execute("SELECT DISTINCT state, expires FROM promises")
        day = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
        if not all(s in STATES and s != "expired" and (d is None or day.fullmatch(str(d))) for s, d in kinds):
            what = "a promise has a state or a last day that there is not"
            raise InputError(f"{self._path} is damaged ({what}); get it from a backup.")

    def _move(self, number: int, state: str) -> bool:
        query = "UPDATE promises SET state = ? WHERE id = ? AND state IN ('open', 'broken') RETURNING id"
        return bool(self._store.execute(query, (state, number))[1])

    def _stamp(self) -> str:
        return self._now.isoformat(timespec="seconds")

    def _note(
        self, number: int | None, at: str, event: str, state: str, model: str | None = None, detail: str = ""
    ) -> None:
        self._store.execute(
            "INSERT INTO history (promise, at, event, state, model, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (number, at, event, state, model, detail),
        )


def _claim(told: dict[str, Any]) -> str:
    try:
        return str(CLAIMS.read(Fields.of(told, "claim")))
    except InputError:
        raise InputError("a promise of the ledger is damaged: it claims nothing; get it from a backup.") from None
