"""The document and the assets as one HTML file that asks nobody for anything: its policy forbids every request."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tmln.lab.files import make_folder, write_whole
from tmln.lab.result import Oracle
from tmln.report.document import document

# in this order one script; a file uses what those before it define
SCRIPTS = (
    "dom.js",
    "data.js",
    "stats.js",
    "front.js",
    "words.js",
    "state.js",
    "view.js",
    "grids.js",
    "download.js",
    "look.js",
    "plot.js",
    "controls.js",
    "summary.js",
    "bullets.js",
    "tablefiles.js",
    "table.js",
    "matrices.js",
    "benchmarks.js",
    "classes.js",
    "curves.js",
    "panels.js",
    "spread.js",
    "sensitivity.js",
    "fronts.js",
    "overhead.js",
    "cost.js",
    "barriers.js",
    "landscapes.js",
    "provenance.js",
    "warnings.js",
    "details.js",
    "main.js",
)
STYLES = ("theme.css", "page.css", "parts.css", "print.css")


def write_report(runs: Path, output: Path, oracle: Oracle | None = None) -> Path:
    """Read the runs, write the page whole, and return where it is."""
    text = page(document(runs, oracle))
    make_folder(output.parent)
    write_whole(output, text)
    return output


def page(content: dict[str, Any]) -> str:
    """The whole file as text."""
    plotly, script = _plotly(), _script()
    style = "\n".join(_asset(name) for name in STYLES)
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src 'none'; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    sentences = [html.escape(said) for said in content["sentences"].values()]
    parts = {
        "policy": policy,
        "title": html.escape(str(content["title"])),
        "style": style,
        "sentences": "\n".join(f"<p>{said}</p>" for said in sentences) or "<p>Nothing has finished yet.</p>",
        "data": embedded(content),
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


def embedded(content: dict[str, Any]) -> str:
    """JSON that no HTML parser takes for anything else; what is not a number is null."""
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
    """The one script that may run, by its hash: what is injected has another."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (files("tmln.report") / "assets" / name).read_text(encoding="utf-8")
