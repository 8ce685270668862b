"""The command `apas`."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from typing import Any

from apas._sanitise import for_error
from apas.errors import ApasError, GuaranteeWarning

__all__ = ["main"]

#: Exit code of what nobody foresaw: an internal error (sysexits.h). 0, 1, 2 and 3 are answers of commands.
UNFORESEEN = 70


def main() -> None:
    """Run the command line.

    Bad input ends with one sentence on standard error and exit code 2, and Ctrl-C with one word and exit code 130.
    Whatever nobody foresaw, a full disk or a closed pipe behind standard output among it, ends with one sentence and
    exit code 70, which no answer of a command has; ``APAS_TRACEBACK=1`` shows where it happened.
    """
    try:
        _prepare_streams()
        # inside, so that Ctrl-C is answered in the same way while the libraries load
        from apas.cli.app import run_program

        if not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
            # help texts would have colours on GitHub's machines, whoever reads them
            os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("default", GuaranteeWarning)
            warnings.showwarning = _show_warning
            code = run_program()
        sys.stdout.flush()  # while it can still be answered: the interpreter would end with a code of its own
    except ApasError as error:
        code = _say(f"error: {error}", 2)
    except KeyboardInterrupt:
        code = _say("stopped", 130)
    except SystemExit as stop:
        if not isinstance(stop.__context__, BrokenPipeError):  # whose code of Typer is 1, that of broken promises
            raise
        code = _say(_unforeseen(stop.__context__), UNFORESEEN)
    except BaseException as error:  # noqa: BLE001  (none may pass for an answer, and panics of Rust are no `Exception`)
        code = _say(_unforeseen(error), UNFORESEEN)
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    sys.exit(code)


def _prepare_streams() -> None:
    """Make standard output one that can be written to: closed ones swallow, strange names are spelt out."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:  # it was closed before we began
            os.open(os.devnull, os.O_WRONLY)  # takes its number, lest a file of ours gets it
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _unforeseen(error: BaseException) -> str:
    """One sentence about what nobody foresaw; all about it on standard error if the environment asks."""
    if os.environ.get("APAS_TRACEBACK"):
        sys.stderr.write("".join(traceback.format_exception(error)))
    what = "apas" if len(sys.argv) < 2 or sys.argv[1].startswith("-") else f"apas {sys.argv[1]}"
    kind = type(error).__name__
    if isinstance(error, BrokenPipeError):
        return f"error: `{what}` could not write all of its answer: who read its output has gone."
    if isinstance(error, OSError):
        return for_error(f"error: `{what}` could not go on: {error.strerror or error} ({kind}).")
    if isinstance(error, MemoryError):
        return f"error: `{what}` needs more memory than there is."
    said = for_error(str(error)).rstrip(".")[:300]
    return for_error(
        f"error: `{what}` met what nobody foresaw, which is a mistake in apas: {kind}{f': {said}' if said else ''}; "
        "please report it, with what APAS_TRACEBACK=1 in the environment shows."
    )


def _say(text: str, code: int) -> int:
    try:
        sys.stderr.write(f"{text}\n")
    except (OSError, ValueError):  # nobody can be told
        _let_go(sys.stderr)
    return code


def _let_go(stream: Any) -> None:
    """Flush a stream; what cannot be written is dropped, or the interpreter would complain when it ends."""
    try:
        stream.flush()
    except (OSError, ValueError):
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as the errors look: where in the source it comes from helps nobody here."""
    sys.stderr.write(f"warning: {for_error(str(message))}\n")
