"""A page with a table and no scripts, in the report's type and colours."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files

STYLES = ("theme.css", "page.css")
TABLE = """
body { max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; display: block; }
table { border-collapse: collapse; margin-top: 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.9rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
"""


def plain_page(title: str, sentences: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Title, sentences and a grid, its heading first, as one self-contained file.

    >>> "<td>a&lt;b</td>" in plain_page("kept", ["All of it."], [["set"], ["a<b"]])
    True
    """
    style = "\n".join((files("tmln.report") / "assets" / name).read_text(encoding="utf-8") for name in STYLES) + TABLE
    heading, *body = [[html.escape(cell) for cell in line] for line in lines]
    rows = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in body)
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heading)
    said = "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>\n"
        f"<body><main><h1>{html.escape(title)}</h1>\n{said}\n"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></main></body></html>\n"
    )
