"""Texts that others chose (names of rows, features and classes, paths, parts of files) as each kind of output can bear.

One function per kind of output; whoever writes such an output calls it, and nothing else does the same job.
"""

from __future__ import annotations

import html
import re

__all__ = ["for_csv", "for_error", "for_html", "for_markdown", "for_terminal", "for_xml", "from_csv", "shown"]

#: Most characters of an error message: more would push what matters out of sight.
LONGEST = 1000
_CUT = " [...] "
#: Controls (a terminal obeys them, XML cannot hold them), marks that turn the direction of writing around or are not
#: seen, halves of characters, and code points that are none. Spaces and joiners that languages need are not among them.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\ufffe\uffff"
    "\U000e0000-\U000e007f]"
)
#: How a cell begins that spreadsheets take for a formula, wide forms included; with apostrophes that we put before it.
_FORMULA = re.compile(r"'*\s*[=+\-@＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
#: What Markdown gives a meaning anywhere in a line; underscores only where a word begins or ends.
_MARKUP = re.compile(r"[\\`*~\[\]|]|(?<![^\W_])_|_(?![^\W_])")
#: Where renderers make links or mentions of bare texts: between the two groups an invisible character breaks them.
_LINKS = re.compile(r"(:)(?=//)|(\bwww)(?=\.)|(\b(?:mailto|xmpp))(?=:)|([@#])", re.IGNORECASE)
_JOINER = "&#8288;"


def _harmless(text: str, keep: str = "") -> str:
    """The text with a question mark for everything harmful but `keep`."""
    return _HARMFUL.sub(lambda found: found[0] if found[0] in keep else "?", text)


def for_terminal(text: str) -> str:
    r"""The text in one line: what would end it, move the cursor or colour a terminal becomes a question mark.

    Examples
    --------
    >>> for_terminal("A-1\n\x1b[31mHOLDS")
    'A-1??[31mHOLDS'
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def for_error(text: str, longest: int = LONGEST) -> str:
    r"""A message, or a part of one, in one line of bounded length: cut in the middle, as its end says what to do.

    Examples
    --------
    >>> for_error("got 'a\x1b[2J',\nnot a number")
    "got 'a?[2J', not a number"
    >>> len(for_error("x" * 10**6))
    1000
    """
    if len(text) > longest:
        head = (longest - len(_CUT)) * 3 // 4
        text = text[:head] + _CUT + text[head + len(_CUT) - longest :]
    return for_terminal(re.sub(r"[\r\n\t]+", " ", text))


def shown(value: object, longest: int = 200) -> str:
    """How a value looks in a message, cut; Python refuses to write whole numbers of more than 4300 digits.

    Examples
    --------
    >>> shown("a"), shown(10**5000)
    ("'a'", 'a whole number of 16610 bits')
    """
    try:
        return for_error(repr(value), longest)
    except ValueError:
        return f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def for_csv(text: str) -> str:
    r"""A cell that no spreadsheet takes for a formula: an apostrophe stands before what looks like one, but no number.

    Examples
    --------
    >>> [for_csv(t) for t in ("=1+1", "-x", "-1.5", "'=a", "A-17", "a\x1bb")]
    ["'=1+1", "'-x", '-1.5', "''=a", 'A-17', 'a?b']
    """
    text = _harmless(text, keep="\n\t")
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_csv(text: str) -> str:
    """A cell without the apostrophe that `for_csv` put before it.

    Examples
    --------
    >>> [from_csv(t) for t in ("'=1+1", "''=a", "-1.5", "'n Sync")]
    ['=1+1', "'=a", '-1.5', "'n Sync"]
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def for_markdown(text: str) -> str:
    r"""The text in one line that is text and nothing else: no code, table, tag, picture, mention or live link.

    Examples
    --------
    >>> print(for_markdown("a|b `c` <d> [e](f)"))
    a\|b \`c\` &lt;d&gt; \[e\](f)
    >>> print(for_markdown("see https://x.org"))
    see https:&#8288;//x.org
    """
    line = _harmless(" ".join(text.split()))
    escaped = html.escape(_MARKUP.sub(r"\\\g<0>", line), quote=False)
    # "&amp;#8288;" is what a name with an entity in it has become, so that "#" below cannot end one of ours
    return _LINKS.sub(lambda found: found[0] + _JOINER, escaped)


def for_html(text: str) -> str:
    r"""The text as it can stand between tags or in an attribute.

    Examples
    --------
    >>> for_html("<b>\x1b")
    '&lt;b&gt;?'
    """
    return html.escape(_harmless(text, keep="\n\t"))


def for_xml(text: str) -> str:
    r"""The text as XML 1.0 can hold it; whoever writes the XML escapes its marks.

    Examples
    --------
    >>> for_xml("a\x00\nb<")
    'a?\nb<'
    """
    return _harmless(text, keep="\n\t")
