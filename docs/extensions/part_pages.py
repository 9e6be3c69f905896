"""A page for each part and each method, made of what they declare: settings, ranges, memory, rule, origin, advice."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.extensions.docstrings import html
from docs.extensions.rows import accuracies, table, tuned_table

from tmln.measure.memory_cost import as_text
from tmln.parts import Beside, Guide, Part
from tmln.recipes import FAMILIES, RECIPES, Recipe
from tmln.results.textgrid import Lines, grid_markdown
from tmln.streams.options import described

UNITS = "N: a number for every trainable weight; K: the Kronecker factors of every layer; sizes at the defaults."


def worded(lines: Lines) -> str:
    """A table of words: all columns to the left."""
    return grid_markdown(lines).replace("---:", "---")


def slug(name: str) -> str:
    """For an address.

    >>> slug("tmln+der++")
    'tmln-plus-der-plus-plus'
    """
    return name.replace("+", "-plus-").replace("--", "-").strip("-")


def part_link(family: str, name: str, place: str = "../parts/") -> str:
    """To the page of a part, from a page beside it."""
    return f"[`{name}`]({place}{family}-{slug(name)}.md)"


def method_link(name: str, place: str = "../methods/") -> str:
    """To the page of a method."""
    return f"[`{name}`]({place}{slug(name)}.md)"


def searched(field: Any) -> str:
    """Where ``tmln tune`` looks for a value."""
    extra = field.json_schema_extra
    space = extra.get("search") if isinstance(extra, dict) else None
    if isinstance(space, dict):
        return f"{space['low']:g} to {space['high']:g}{', log' * bool(space.get('log'))}"
    return ", ".join(str(value) for value in space) if space else ""


def settings(family: str, part: type[Part[Any]]) -> str:
    """A line for each: how it is written, what it is unless given, where a search looks, what it is."""
    lines = [["setting", "what it may be", "unless given", "searched", "about"]]
    for one in described(part.Settings):  # type: ignore[arg-type]  # it looks at the fields alone
        field = part.Settings.model_fields[one.name]
        lines.append([f"`{family}.{one.name}`", one.form, str(field.default), searched(field), one.about])
    return worded(lines) if len(lines) > 1 else "It has none."


def advice(guide: Guide) -> list[str]:
    """When to take it, and when not."""
    return [f"**Take it:** {_lower(guide.use)}", "", f"**Not:** {_lower(guide.avoid)}", ""]


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def equation(guide: Guide) -> list[str]:
    """As a block."""
    return ["```{math}", guide.equation, "```", ""]


def with_it(methods: list[str]) -> str:
    """ACC of every method with a part."""
    if not methods:
        return "None by name; put it in any."
    head, *lines = accuracies(methods)
    found = grid_markdown([head, *([method_link(name), *cells] for name, *cells in lines)])
    return f"ACC in percent ([what that is and how it was found](../../results.md)):\n\n{found}"


def part_page(family: str, name: str) -> str:
    """Of one part."""
    part = FAMILIES[family][name]
    guide = part.guide
    users = [method for method, recipe in RECIPES.items() if recipe.chosen[family].name == name]
    held = part.holds(part.Settings(), Beside())
    said = html(inspect.getdoc(part) or "", lambda _: None)
    lines = [f"# {family} `{name}`", "", f"*{FAMILIES[family].question}*", "", "```{raw} html", said, "```", ""]
    if guide:
        lines += equation(guide)
        lines += [f"Origin: {guide.origin}", ""] if guide.origin else []
        lines += ["## When", "", *advice(guide)]
    lines += ["## Settings", "", settings(family, part), ""]
    lines += ["## What it costs", "", guide.cost if guide else "", ""]
    lines += [f"It holds {as_text(held)} beside the model. {UNITS}", ""] if held else []
    lines += ["It needs to be told where a task ends.", ""] if part.needs_boundary else []
    needs = ", ".join(part_link(other, needed) for other, needed in part.needs.items())
    lines += [f"It needs {needs}.", ""] if needs else []
    lines += ["## Methods with it, in our results", "", with_it(users), ""]
    option = "Learner(model, " + f'{family}="{name}")'
    lines += [f"In Python `tmln.{option}`, on the command line `--{family} {name}`.", ""]
    return "\n".join(lines)


def chosen(recipe: Recipe) -> Iterator[tuple[str, type[Part[Any]]]]:
    """The parts of a method that are not the defaults, or its step."""
    for family, choice in recipe.chosen.items():
        if choice.name != FAMILIES.default(family) or family == "step":
            yield family, FAMILIES[family][choice.name]


def method_page(name: str) -> str:
    """Of one method: its parts, and what follows from theirs."""
    recipe = RECIPES[name]
    lines = [f"# `{name}`", "", f"{recipe.about[0].upper()}{recipe.about[1:]}.", ""]
    parts = [["question", "part", "settings of its own"]]
    for family, choice in recipe.chosen.items():
        own = ", ".join(f"`{family}.{key}={value}`" for key, value in choice.settings.items())
        parts.append([FAMILIES[family].question, part_link(family, choice.name), own])
    lines += [worded(parts), "", "## Its rule", ""]
    for family, part in chosen(recipe):
        if part.guide:
            lines += [f"{family} {part_link(family, part.name)}:", "", *equation(part.guide)]
    lines += ["## When", ""]
    for family, part in chosen(recipe):
        if part.guide:
            lines += [f"{part_link(family, part.name)}", "", *advice(part.guide)]
    held = recipe.holds()
    lines += [
        "## What it costs",
        "",
        *(f"- {p.name}: {_lower(p.guide.cost)}" for _, p in chosen(recipe) if p.guide),
        "",
    ]
    lines += [f"It holds {as_text(held)} beside the model. {UNITS}", ""] if held else []
    lines += ["## In our results", ""]
    lines += ["At its own settings:", "", own, ""] if (own := table(name)) else []
    command = f"$ tmln compare --benchmark split-digits --methods naive,er,{name} --seeds 3"
    lines += ["Beside others, by", "", "```console", command, "```", "", "and [all of them](../results.md).", ""]
    said = "Tuned as all others were, on small [real images](../../results.md):"
    lines += [said, "", on_images, ""] if (on_images := tuned_table(name)) else []
    return "\n".join(lines)


def parts_index() -> str:
    """Every part by its question."""
    lines = [
        "# Parts",
        "",
        "A method is a part of every family. Each has a page of its own, made of what it declares.",
        "",
    ]
    for family, members in FAMILIES.items():
        lines += [f"## {family}: {_lower(members.question)}", ""]
        for name, part in members.items():
            first = (inspect.getdoc(part) or "").split("\n")[0].replace("*", r"\*").replace("|", r"\|")
            lines.append(f"- {part_link(family, name, '')}: {first}")
        lines.append("")
    names = [f"{family}-{slug(name)}" for family, members in FAMILIES.items() for name in members]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *names, "```", ""])


def methods_index() -> str:
    """Every method with its parts."""
    lines = [["method", *FAMILIES, "about"]]
    for name, recipe in RECIPES.items():
        parts = (part_link(family, choice.name) for family, choice in recipe.chosen.items())
        lines.append([method_link(name, ""), *parts, recipe.about])
    said = "Every named method: a part of every family, with the numbers that differ from the parts' own."
    toc = ["```{toctree}", ":hidden:", "", *map(slug, RECIPES), "```", ""]
    return "\n".join(["# Methods by name", "", said, "", worded(lines), "", *toc])


def pages() -> dict[Path, str]:
    """By where they are made."""
    made = {Path("parts") / "index.md": parts_index(), Path("methods") / "index.md": methods_index()}
    for family, members in FAMILIES.items():
        made |= {Path("parts") / f"{family}-{slug(name)}.md": part_page(family, name) for name in members}
    return made | {Path("methods") / f"{slug(name)}.md": method_page(name) for name in RECIPES}
