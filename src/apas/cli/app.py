"""All commands as one program: their groups, their examples, and what bad usage is answered with."""

import re
from collections.abc import Callable
from typing import Any

import typer
from typer import Option
from typer.core import TyperGroup

from apas import __version__
from apas.cli.certify import calibrate_command, certify_command, generate_command, max_shift_command, menu_command
from apas.cli.demo import demo_command
from apas.cli.model_files import convert_command, retrain_command, shift_command
from apas.cli.promises import audit_command, ledger_app, letter_command, report_command, verify_command
from apas.cli.research import bench_command, paper_app
from apas.errors import InputError

#: The groups of `apas --help`, in its order; a command is called as its function.
COMMANDS: dict[str, list[Callable[..., None] | typer.Typer]] = {
    "Start here": [demo_command],
    "Certify explanations": [certify_command, max_shift_command, generate_command, menu_command, calibrate_command],
    "Keep promises": [verify_command, audit_command, ledger_app, report_command, letter_command],
    "Model files": [shift_command, convert_command, retrain_command],
    "Research": [paper_app, bench_command],
}
#: What `UsageError` is called in every version of Typer: the class of which a bad parameter is a case.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


def examples_in(text: str | None) -> list[str]:
    r"""The commands that a help text shows: lines of their own, or what follows `Example:` on its line."""
    return re.findall(r"^ *(?:Example: +)?(apas .*?) *$", text or "", flags=re.MULTILINE)


def _first_example(command: Callable[..., None] | typer.Typer) -> str:
    parts = [command] if not isinstance(command, typer.Typer) else [c.callback for c in command.registered_commands]
    return next(example for part in parts for example in examples_in(part.__doc__))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


class _WithExamples(TyperGroup):
    """The program, whose help ends with an example of each command, a line each however narrow the terminal is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        first = [_first_example(command) for group in COMMANDS.values() for command in group]
        typer.echo("\n".join([" Examples:", *(f"   {example}" for example in first), ""]))


_WHAT = "Certify that counterfactual explanations survive a change of the model."
app = typer.Typer(name="apas", help=_WHAT, no_args_is_help=True, pretty_exceptions_enable=False, cls=_WithExamples)
for panel, group in COMMANDS.items():
    for command in group:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            app.command(command.__name__.removesuffix("_command").replace("_", "-"), rich_help_panel=panel)(command)


@app.callback()
def _root(
    version: bool = Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def run_program() -> int:
    """Run what the command line asks for, and give the exit code."""
    try:
        code = app(prog_name="apas", standalone_mode=False)
    except _UsageError as error:
        message = " ".join(error.format_message().split())
        if not message:  # no arguments at all: help has been printed
            return int(error.exit_code)
        path = error.ctx.command_path if error.ctx is not None else "apas"
        where = "" if message.endswith("?") else f"; see `{path} --help`."
        raise InputError(f"{message.rstrip('.')}{where}") from None
    except typer.Abort as abort:
        # Typer takes the end of any file for the end of what is typed
        raise (abort.__cause__ if isinstance(abort.__cause__, EOFError) else KeyboardInterrupt()) from None
    if code == 130:  # how Typer tells that it was interrupted
        raise KeyboardInterrupt
    return int(code or 0)
