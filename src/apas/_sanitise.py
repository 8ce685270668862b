"""Texts that others chose (names of rows, features and classes, paths, parts of files) as each kind of output can bear.

One function per kind of output; whoever writes such an output calls it, and nothing else does the same job.
"""

import html
import re

LONGEST = 1000  # characters of an error message: more would push what matters out of sight
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
    r"""The text in one line: what would end it, move the cursor or colour a terminal becomes a question mark."""
    return "".join(c if c.isprintable() else "?" for c in text)


def for_error(text: str, longest: int = LONGEST) -> str:
    r"""A message, or a part of one, in one line of bounded length: cut in the middle, as its end says what to do."""
    if len(text) > longest:
        head = (longest - len(_CUT)) * 3 // 4
        text = text[:head] + _CUT + text[head + len(_CUT) - longest :]
    return for_terminal(re.sub(r"[\r\n\t]+", " ", text))


def shown(value: object, longest: int = 200) -> str:
    """How a value looks in a message, cut; Python refuses to write whole numbers of more than 4300 digits."""
    try:
        return for_error(repr(value), longest)
    except ValueError:
        return f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def for_csv(text: str) -> str:
    r"""A cell that no spreadsheet takes for a formula: an apostrophe before what looks like one, but no number."""
    text = _harmless(text, keep="\n\t")
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_csv(text: str) -> str:
    """A cell without the apostrophe that `for_csv` put before it."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def for_markdown(text: str) -> str:
    r"""The text in one line that is text and nothing else: no code, table, tag, picture, mention or live link."""
    line = _harmless(" ".join(text.split()))
    escaped = html.escape(_MARKUP.sub(r"\\\g<0>", line), quote=False)
    # "&amp;#8288;" is what a name with an entity in it has become, so that "#" below cannot end one of ours
    return _LINKS.sub(lambda found: found[0] + _JOINER, escaped)


def for_html(text: str) -> str:
    r"""The text as it can stand between tags or in an attribute."""
    return html.escape(_harmless(text, keep="\n\t"))


def for_xml(text: str) -> str:
    r"""The text as XML 1.0 can hold it; whoever writes the XML escapes its marks."""
    return _harmless(text, keep="\n\t")
