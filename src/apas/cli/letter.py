"""`apas letter`: what was promised to each applicant, as pages that people can read and print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from apas.cli import options
from apas.cli.ledger import read_references
from apas.cli.options import group_options, optional, parse_pairs
from apas.cli.output import print_json, print_line


@group_options
def letter_command(
    certificates: options.CertificatesFile,
    *,
    folder: Annotated[Path, Option("--folder", "-o", help="Where to write the pages.")] = Path("letters"),
    references: Annotated[
        Path | None, optional("File with a reference per row, one per line; or a CSV file.", "names of rows")
    ] = None,
    reference_column: Annotated[str | None, optional("Column of the CSV file that holds the references.")] = None,
    expires: Annotated[str | None, optional("Last day of the promises (UTC), such as 2027-06-30.")] = None,
    answer: Annotated[str | None, optional("What the class means to people.", "its name")] = None,
    name: Annotated[list[str] | None, optional("What people call a feature: FEATURE=WORDS; several times.")] = None,
    sender: Annotated[str, optional("Who writes.")] = "",
    template: Annotated[Path | None, optional("A page of your own (Jinja).", "the one of apas")] = None,
    as_json: options.Json = False,
) -> None:
    """Write a page for each applicant: what to change, what is promised, until when, and what is not.

    Rows that are not certified are left out. Each option has a code, which `apas ledger list --digest` finds.

    Examples, with what the class means, and with a page of your own:

    apas letter promises.json --expires 2099-12-31 --answer approved -o letters

    apas letter promises.json --template own.html -o letters
    """
    from apas import write_letter

    pages = write_letter(
        certificates,
        folder,
        references=read_references(references, reference_column),
        expires=expires,
        answer=answer,
        names=parse_pairs(name, "--name"),
        sender=sender,
        template=template,
    )
    if as_json:
        print_json({"format": "apas-letters", "pages": [str(page) for page in pages]})
        return
    for page in pages:
        print_line(str(page))
    print_line(f"{len(pages)} letter{'' if len(pages) == 1 else 's'}.")
