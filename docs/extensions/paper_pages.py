"""The paper on one page: its tables and figures, what they print, and where it is silent or contradicts itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.extensions.part_pages import worded

from tmln.paper.items import ITEMS
from tmln.paper.notes import NOTES
from tmln.paper.published import METRICS, TABLE1, TABLE2, Cells
from tmln.results.textgrid import grid_markdown


def printed(rows: Mapping[str, Cells]) -> str:
    """A table of the paper's numbers."""
    lines = [["method", *(metric.upper() for metric in METRICS)]]
    lines += [[name, *(str(cells.get(metric, "-")) for metric in METRICS)] for name, cells in rows.items()]
    return grid_markdown(lines)


def pages() -> dict[Path, str]:
    """By where it is made."""
    items = [["name", "what", "made by"]]
    items += [[name, item.title, f"`tmln paper {name} --scale cpu`"] for name, item in ITEMS.items()]
    lines = ["# The paper's tables and figures", "", worded(items), ""]
    lines += [
        "## What it prints",
        "",
        "In percent, mean and deviation of five runs. Nothing here was measured by us.",
        "",
    ]
    for benchmark, rows in [*TABLE1.items(), ("split-cifar10 (its ablation)", TABLE2)]:
        lines += [f"### {benchmark}", "", printed(rows), ""]
    lines += ["## Where it is silent or contradicts itself", "", *(f"- {note}" for note in NOTES.values()), ""]
    return {Path("paper.md"): "\n".join(lines)}
