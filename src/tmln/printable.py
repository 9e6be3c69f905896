"""Text of others made harmless where it leaves: a terminal obeys control characters, a spreadsheet runs formulas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# C0 and C1 but for the line's end and the tab, and what turns the direction of writing around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENDS = re.compile("[\t\n\u2028\u2029]")
_FORMULA = re.compile("[\\s\x00-\x20]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


def printable(text: str) -> str:
    r"""The text with what a terminal would obey written out, as ``\x1b`` for an escape.

    >>> printable("a\x1b]0;title\x07b")
    'a\\x1b]0;title\\x07b'
    """
    return _CONTROL.sub(_written_out, text).encode("utf-8", "replace").decode()


def one_line(text: str) -> str:
    """The same for a name within a line, which has no line of its own to end."""
    return printable(_ENDS.sub(_written_out, text))


def csv_cell(text: str) -> str:
    """The same for a cell of a CSV file; text that a spreadsheet would run gets an apostrophe, numbers stay numbers."""
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) and text != "-" and not _is_number(text) else text


def readable(value: Any) -> Any:
    """The value, with halves of characters, which JSON can hold and files cannot, replaced by question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {readable(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
