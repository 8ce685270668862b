"""The command `apas`."""

from __future__ import annotations

import os
import sys
import warnings

from apas.errors import ApasError, GuaranteeWarning

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Bad input ends with one sentence on standard error and exit code 2, and Ctrl-C with one word and exit code 130.
    """
    try:
        # inside, so that Ctrl-C is answered in the same way while the libraries load
        from apas.cli.program import run_program

        if not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
            # help texts would have colours on GitHub's machines, whoever reads them
            os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("default", GuaranteeWarning)
            warnings.showwarning = _show_warning
            code = run_program()
    except ApasError as error:
        code = _say(f"error: {error}", 2)
    except KeyboardInterrupt:
        code = _say("stopped", 130)
    sys.exit(code)


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as the errors look: where in the source it comes from helps nobody here."""
    sys.stderr.write(f"warning: {message}\n")
