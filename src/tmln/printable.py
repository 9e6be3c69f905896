"""Text from files of others, escaped.

Terminals obey control characters, spreadsheets run formulas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# C0 and C1 but for the line's end and the tab, and what turns the direction of writing around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENDS = re.compile("[\t\n\u2028\u2029]")
_FORMULA = re.compile("[\\s\x00-\x20]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


def printable(text: str) -> str:
    r"""Return the text with control characters written out, as ``\x1b`` for an escape.

    >>> printable("a\x1b]0;title\x07b")
    'a\\x1b]0;title\\x07b'
    """
    return _CONTROL.sub(_escape, text).encode("utf-8", "replace").decode()


def one_line(text: str) -> str:
    """Return the text with control characters and line ends written out."""
    return printable(_ENDS.sub(_escape, text))


def csv_cell(text: str) -> str:
    """Return text for a CSV cell; what a spreadsheet would run gets an apostrophe."""
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) and text != "-" and not _is_number(text) else text


def readable(value: Any) -> Any:
    """Return the value with halves of characters, which files cannot hold, as question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {readable(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
