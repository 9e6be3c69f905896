"""Format a docstring as HTML; ``theta*_i`` and ``|m|`` are formulas there, no markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from textwrap import dedent

INLINE = re.compile(r"``(.+?)``|:\w+:`~?([\w.]+)`|`([^`]+)`", re.DOTALL)
Link = Callable[[str], str | None]  # a name -> its address, where there is one
POINT = ("- ", "* ")


def inline(text: str, link: Link) -> str:
    """Format literals and names as code, known names as links, and keep the rest.

    >>> inline("F*_i < ``a*b``, see :func:`~tmln.f`", {"tmln.f": "api.html#tmln.f"}.get)
    'F*_i &lt; <code>a*b</code>, see <a href="api.html#tmln.f"><code>tmln.f</code></a>'
    """
    made, place = [], 0
    for found in INLINE.finditer(text):
        literal, role, single = found.groups()
        code = f"<code>{escape(literal or role or single, quote=False)}</code>"
        address = link(role) if role else None
        made += [
            escape(text[place : found.start()], quote=False),
            f'<a href="{address}">{code}</a>' if address else code,
        ]
        place = found.end()
    return "".join([*made, escape(text[place:], quote=False)])


def html(docstring: str, link: Link) -> str:
    """Format paragraphs, points, named arguments and examples."""
    return "\n".join(_block(block, link) for block in re.split(r"\n\s*\n", docstring.strip("\n")))


def _block(block: str, link: Link) -> str:
    lines = block.splitlines()
    first = lines[0]
    if first.lstrip().startswith(">>>") or (first.startswith("    ") and len(lines) == len(_indented(lines))):
        return f'<pre tabindex="0">{escape(dedent(block), quote=False)}</pre>'
    if first.startswith(POINT):
        return _points(lines, link)
    at = next((k for k, line in enumerate(lines) if k and line.startswith((*POINT, "    "))), len(lines))
    said = f"<p>{inline(' '.join(lines[:at]), link)}</p>"
    rest = dedent("\n".join(lines[at:]))
    if not rest:
        return said
    return said + (
        _points(rest.splitlines(), link)
        if first.rstrip().endswith(":") or rest.startswith(POINT)
        else _block(rest, link)
    )


def _indented(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("    ")]


def _points(lines: list[str], link: Link) -> str:
    """Format a list; a line that is indented goes on with the point before it."""
    points: list[str] = []
    for line in lines:
        if line.startswith(" ") and points:
            points[-1] += " " + line.strip()
        else:
            points.append(line.removeprefix("- ").removeprefix("* "))
    return "<ul>" + "".join(f"<li>{inline(point, link)}</li>" for point in points) + "</ul>"
