"""The page itself: a template filled in, with the plotting library inside, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from apas._optional import require
from apas._sanitise import for_xml

__all__ = ["embedded_json", "rendered"]

#: What could end the element that JSON is embedded in, or a line of JavaScript.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&'\u2028\u2029"}


def rendered(*, data: dict[str, Any], **parts: Any) -> str:
    """The whole page as text.

    Parameters
    ----------
    data : dict
        What is drawn, see `plot_data`.
    **parts
        What the template names; every text is escaped.
    """
    jinja = require("jinja2", feature="write_report", extra="report")
    offline = require("plotly.offline", feature="write_report", extra="report")
    env = jinja.Environment(
        autoescape=True,
        finalize=lambda value: for_xml(value) if type(value) is str else value,  # what is safe is no plain text
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    library, script = _script(offline.get_plotlyjs()), _script(_own("page.js"))
    safe = jinja.utils.markupsafe.Markup
    return str(
        env.from_string(_own("page.html")).render(
            **parts,
            style=safe(_own("style.css")),
            library=safe(library),
            script=safe(script),
            data=safe(embedded_json(data)),
            policy=_policy(library, script),
        )
    )


def embedded_json(content: Any) -> str:
    r"""JSON that stays inside of a script element, whatever texts it holds.

    Examples
    --------
    >>> embedded_json({"name": "</script><b>"})
    '{"name":"\\u003c/script\\u003e\\u003cb\\u003e"}'
    """
    return json.dumps(content, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def _own(name: str) -> str:
    return (files("apas.report") / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """A script as it can stand in a page: a browser must find its end where it is."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(*scripts: str) -> str:
    """Only these very scripts run, and nothing is fetched."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
