"""A page as text in several formats, as files in a folder, and the folder's index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch

import tmln
from tmln.analysis.text_table import grid_latex, grid_markdown, grid_rich, grid_width, records_csv
from tmln.experiments.files import make_folder, to_json, write_whole
from tmln.paper.scales import Scale
from tmln.paper.study import Page
from tmln.plots.figure import SUFFIXES, save_figure
from tmln.printable import printable

WIDE = 120  # columns where no terminal says how many it has


def print_page(page: Page, file: TextIO | None = None) -> None:
    """Print tables and notes; if a table is too wide, printed deviations are left out."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file)
    columns = console.width if console.is_terminal else WIDE
    console.width = columns
    console.print(Text(page.title, style="bold"))
    for sheet in page.sheets:
        lines = _compact(sheet.lines)
        if grid_width(lines) > columns:
            lines = _without_deviations(lines)
        console.width = max(columns, grid_width(lines))  # better broken lines than truncated numbers
        console.print(grid_rich(lines, sheet.title))
        console.width = columns
    for note in page.notes:
        console.print(Text(printable(f"- {note}")))
    console.print()


def _compact(lines: list[list[str]]) -> list[list[str]]:
    return [[type(text)(text.replace(" ± ", "±")) for text in line] for line in lines]


def _without_deviations(lines: list[list[str]]) -> list[list[str]]:
    paper = [number for number, text in enumerate(lines[0]) if text == "paper"]
    return [[text.partition("±")[0] if k in paper else text for k, text in enumerate(line)] for line in lines]


def format_page(page: Page, format: str) -> str:
    """Return the page as md, latex, csv or json."""
    return {"md": markdown, "latex": latex, "csv": csv_text, "json": json_text}[format](page)


def markdown(page: Page, picture: str | None = None) -> str:
    """Return title, figure, a table per sheet, and the notes as a list."""
    parts = [f"# {page.title}"]
    if picture:
        parts.append(f"![{page.title}]({picture})")
    for sheet in page.sheets:
        parts += [f"**{sheet.title}**", grid_markdown(sheet.lines)]
    parts.append("\n".join(f"- {note}" for note in page.notes))
    return "\n\n".join(parts) + "\n"


def latex(page: Page) -> str:
    """Return one tabular per table; notes are comments."""
    parts = ["% needs \\usepackage{booktabs}", *(f"% {note}" for note in page.notes)]
    for sheet in page.sheets:
        parts += ["", f"% {page.title}: {sheet.title}", grid_latex(sheet.lines)]
    return "\n".join(parts) + "\n"


def csv_text(page: Page) -> str:
    """Return the unrounded numbers; empty cells are missing values."""
    return (records_csv(page.records) if page.records else "nothing") + "\n"


def json_text(page: Page) -> str:
    """Return the unrounded numbers in percent, with the notes."""
    return to_json({"name": page.name, "title": page.title, "records": page.records, "notes": page.notes}, indent=1)


def write_page(page: Page, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.tex and NAME.csv, and the figure as .png, .svg and .pdf."""
    make_folder(folder)
    pictures = [] if page.figure is None else [folder / f"{page.name}{suffix}" for suffix in SUFFIXES]
    for path in pictures:
        assert page.figure is not None
        save_figure(page.figure, path)
    texts = {
        ".md": markdown(page, pictures[0].name if pictures else None),
        ".tex": latex(page),
        ".csv": csv_text(page),
    }
    for suffix, text in texts.items():
        write_whole(folder / f"{page.name}{suffix}", text)
    return [*(folder / f"{page.name}{suffix}" for suffix in texts), *pictures]


def write_head(scale: Scale, runs: Path) -> list[str]:
    """Return the first paragraphs of an index."""
    return [
        f"Scale `{scale.name}`: {scale.about}. Runs: `{runs}`. Made by tmln {tmln.__version__} with torch "
        f"{torch.__version__}.",
        "",
        "Ours stands beside what the paper prints; rows with a + are ours alone. A star marks means from which seeds "
        "are left out; a note says which.",
    ]


def write_index(pages: Sequence[Page], folder: Path, head: Sequence[str]) -> Path:
    """Write index.md: everything on one page, with links to the files."""
    parts = ["# The paper's tables and figures, from runs", "\n".join(head)]
    for page in pages:
        names = [".md", ".tex", ".csv", *(SUFFIXES if page.figure is not None else ())]
        links = ", ".join(f"[{suffix[1:]}]({page.name}{suffix})" for suffix in names)
        body = markdown(page, f"{page.name}.png" if page.figure is not None else None)
        parts += ["#" + body.replace("\n\n", f"\n\n{links}\n\n", 1).rstrip()]
    path = folder / "index.md"
    write_whole(path, "\n\n".join(parts) + "\n")
    return path
