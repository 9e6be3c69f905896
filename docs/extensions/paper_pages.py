"""Generate a page on the paper: its tables and figures, and where it is silent or contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.extensions.component_pages import format_text_table

from tmln.analysis.text_table import Lines, grid_markdown
from tmln.paper.items import ITEMS
from tmln.paper.published import METRICS, NOTES, TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE6_JOINT, Cells
from tmln.streams import BENCHMARKS


def numbers(cells: Cells) -> list[str]:
    """Return the numbers in the order of the metrics, with a dash where the paper has one."""
    return [str(cells.get(metric, "-")) for metric in METRICS]


def printed(rows: Mapping[str, Cells]) -> Lines:
    """Return methods and their printed numbers."""
    return [["method", *(metric.upper() for metric in METRICS)], *([name, *numbers(of)] for name, of in rows.items())]


def hyper_parameters() -> Lines:
    """Return Table 3, with the names of tmln."""
    lines = [["method", "in the paper", "here"]]
    for method, chosen in TABLE3.items():
        lines += [[method, f"{sign} = {value:g}", f"`{ours}={value:g}`"] for ours, (sign, value) in chosen.items()]
    return lines


def overheads() -> Lines:
    """Return Table 4."""
    head = ["method", "beside the weights", "peak, GB", "relative time"]
    return [
        head,
        *([name, of.auxiliary, f"{of.peak_gb:.2f}", f"{of.relative_time:.2f}"] for name, of in TABLE4.items()),
    ]


def losses() -> Lines:
    """Return Table 5."""
    head = ["method", "task", "at the beginning", "after task 1", "after task 2"]
    rows = [(name, task, found) for name, tasks in TABLE5.items() for task, found in enumerate(tasks, 1)]
    return [head, *([name, str(task), *(f"{loss:.4f}" for loss in found)] for name, task, found in rows)]


def grids() -> Lines:
    """Return Table 6."""
    lines = [
        ["method", "setting", *(metric.upper() for metric in METRICS)],
        ["joint", "-", str(TABLE6_JOINT), "-", "-"],
    ]
    for method, grid in TABLE6.items():
        lines += [[method, f"{value:g}", *numbers(cells)] for value, cells in grid.items()]
    return lines


def tables() -> Iterator[tuple[str, str]]:
    """Return all that the paper prints, by item, in Markdown."""
    for benchmark, rows in TABLE1.items():
        yield f"Table 1: {BENCHMARKS[benchmark].title}", grid_markdown(printed(rows))
    yield "Table 2: the ablation, on Split CIFAR-10", grid_markdown(printed(TABLE2))
    yield "Table 3: hyper-parameters", format_text_table(hyper_parameters())
    yield "Table 4: overhead", grid_markdown(overheads())
    yield "Table 5: losses of two tasks along the way", grid_markdown(losses())
    yield "Table 6: every method over its grid, on Split CIFAR-10", grid_markdown(grids())


def pages() -> dict[Path, str]:
    """Return the page by where it is made."""
    items = [["name", "what", "made by"]]
    items += [[name, item.title, f"`tmln paper {name} --scale cpu`"] for name, item in ITEMS.items()]
    lines = ["# The paper's tables and figures", "", format_text_table(items), ""]
    lines += [
        "Tables 1 to 6 and Figures 2 and 3 are the paper's, the others are ours. What came of them stands in",
        "[the results](../results.md).",
        "",
        "## What it prints",
        "",
        "Accuracies in percent, mean and deviation of five runs. Nothing here was measured by us. Figure 3 draws FM",
        "against INT of Table 6, Figure 2 the ways of Table 5 through the loss.",
        "",
    ]
    for title, table in tables():
        lines += [f"### {title}", "", table, ""]
    lines += ["## Where it is silent or contradicts itself", "", *(f"- {note}" for note in NOTES.values()), ""]
    return {Path("paper.md"): "\n".join(lines)}
