"""Write the document and the assets as one HTML file that makes no requests."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tmln.experiments.files import make_folder, write_whole
from tmln.experiments.result import Oracle
from tmln.report.document import build_document
from tmln.signals import asked_to_stop

# in this order one script; a file uses what those before it define
SCRIPTS = (
    *("dom.js", "data.js", "format.js", "rows.js", "download.js", "style.js", "plot.js", "controls.js", "summary.js"),
    *("table.js", "benchmarks.js", "matrices.js", "classes.js", "curves.js", "seeds.js", "sensitivity.js"),
    *("fronts.js", "cost.js", "landscapes.js", "runs.js", "main.js"),
)
STYLES = ("theme.css", "page.css", "parts.css", "print.css")
PLAIN_STYLE = """
body { max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; display: block; }
table { border-collapse: collapse; margin-top: 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.9rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
"""


def write_report(runs: Path, output: Path, oracle: Oracle | None = None, reload: int = 0) -> Path:
    """Read the runs, write the page atomically, and return its path.

    ``reload``: seconds after which an open page reads itself again; 0: never. Such a page may be
    without runs.
    """
    content = build_document(runs, oracle)
    if not content["runs"] and not content["warnings"] and not reload:  # damaged runs alone are named on the page
        raise ValueError(
            f"no finished run in {runs}; `tmln compare --benchmark split-digits --methods er,tmln` makes some"
        )
    text = render_page(content, reload)
    make_folder(output.parent)
    write_whole(output, text)
    return output


def watch_report(runs: Path, output: Path, oracle: Oracle | None = None, pause: float = 5.0) -> None:
    """Write the page whenever results appear, until Ctrl-C; then once more, as a page that stays.

    An open page reads itself again every ``pause`` seconds and keeps what is shown.
    """
    before: object = None
    try:
        with asked_to_stop() as stops:
            while not stops():
                now = sorted((str(file), file.stat().st_mtime_ns) for file in runs.glob("*/result.json"))
                if now != before:
                    write_report(runs, output, oracle, reload=max(1, round(pause)))
                before, until = now, time.monotonic() + pause
                while time.monotonic() < until and not stops():
                    time.sleep(0.1)
    finally:
        write_report(runs, output, oracle)


def render_page(content: dict[str, Any], reload: int = 0) -> str:
    """Return the whole file as text; ``reload``: as in :func:`write_report`."""
    plotly, script = _plotly(), _script()
    style = "\n".join(_asset(name) for name in STYLES)
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src 'none'; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    summaries = [html.escape(table["summary"]) for table in content["tables"].values()]
    parts = {
        "policy": policy,
        "reload": f'<meta http-equiv="refresh" content="{reload}">' if reload else "",
        "title": html.escape(str(content["title"])),
        "style": style,
        "sentences": "\n".join(f"<p>{text}</p>" for text in summaries) or "<p>Nothing has finished yet.</p>",
        "data": embed_json(content),
        "plotly": plotly,
        "script": script,
    }
    found = _asset("page.html")
    pieces = []
    for name in parts:  # in the order of the template, so that nothing inserted is looked at again
        before, mark, found = found.partition(f"[[{name}]]")
        assert mark, f"page.html lacks [[{name}]]"
        pieces += [before, parts[name]]
    return "".join([*pieces, found])


def plain_page(title: str, sentences: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a self-contained page without scripts: title, sentences and a table.

    >>> "<td>a&lt;b</td>" in plain_page("kept", ["All of it."], [["set"], ["a<b"]])
    True
    """
    style = "\n".join([*(_asset(name) for name in STYLES[:2]), PLAIN_STYLE])
    heading, *body = [[html.escape(cell) for cell in line] for line in lines]
    rows = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in body)
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heading)
    text = "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>\n"
        f"<body><main><h1>{html.escape(title)}</h1>\n{text}\n"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></main></body></html>\n"
    )


def embed_json(content: dict[str, Any]) -> str:
    """Write JSON that no HTML parser takes for anything else; what is not a number is null."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate has no UTF-8, but its escape is JSON


def _script() -> str:
    inner = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(function () {{\n"use strict";\n{inner}\n}})();\n'


def _plotly() -> str:
    found = find_spec("plotly")  # it is not imported: of all that is in it, one file is wanted
    if found is None or not found.submodule_search_locations:
        raise ImportError('the report needs plotly: pip install "tmln[report]"')
    script = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    text = script.read_text(encoding="utf-8").replace("\r\n", "\n")
    return text.replace("</script", "<\\/script")


def _hash(script: str) -> str:
    """Return a script's hash for the policy: only these scripts may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (files("tmln.report") / "assets" / name).read_text(encoding="utf-8")
