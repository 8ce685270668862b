"""The command `apas`."""

from __future__ import annotations

import sys

import typer

from apas import __version__
from apas.cli.audit import audit_command
from apas.cli.certify import certify_command
from apas.cli.convert import convert_command
from apas.cli.demo import demo_command
from apas.cli.generate import generate_command
from apas.cli.ledger import ledger_app
from apas.cli.maxshift import max_shift_command
from apas.cli.paper import paper_app
from apas.cli.shift import shift_command
from apas.cli.verify import verify_command
from apas.errors import ApasError

__all__ = ["app", "main"]

app = typer.Typer(
    name="apas",
    help="Certify that counterfactual explanations survive a change of the model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Try:  apas demo",
)
app.command("demo")(demo_command)
app.command("certify")(certify_command)
app.command("max-shift")(max_shift_command)
app.command("generate")(generate_command)
app.command("shift")(shift_command)
app.command("verify")(verify_command)
app.command("audit")(audit_command)
app.add_typer(ledger_app, name="ledger")
app.command("convert")(convert_command)
app.add_typer(paper_app, name="paper")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; bad input ends with one sentence on standard error and exit code 2."""
    try:
        app()
    except ApasError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)
