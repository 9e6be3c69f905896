"""A page for each part and each method, made of what they declare: settings, ranges, memory, rule, origin, advice."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from docs.extensions.docstrings import html
from docs.extensions.rows import accuracies, table, tuned_table

from tmln.analysis.text_table import Lines, grid_markdown
from tmln.measure.memory_cost import format_terms
from tmln.methods import Component, Guide, MemoryConditions
from tmln.methods.recipes import FAMILIES, RECIPES, Recipe
from tmln.streams.options import describe_options

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
        return f"{space['low']:g} to {space['high']:g}{', log scale' * bool(space.get('log'))}"
    return ", ".join(str(value).lower() for value in space) if space else "-"


def settings(family: str, part: type[Component[Any]]) -> str:
    """A line for each: how it is written, what it is unless given, where a search looks, what it is."""
    lines = [["setting", "allowed", "default", "search range", "what it is"]]
    for one in describe_options(part.Settings):  # type: ignore[arg-type]  # it looks at the fields alone
        field = part.Settings.model_fields[one.name]
        lines.append([f"`{family}.{one.name}`", one.form, one.default or "-", searched(field), one.about])
    if len(lines) == 1:
        return "It has none."
    return f"{worded(lines)}\n\nThe search range is where `tmln sweep` and `tmln tune` look for a value."


def linked(text: str) -> str:
    """Pages of the documentation that a guide names, as links from a page of ``made``.

    >>> linked("A half more (docs/speed.md).")
    'A half more ([speed](../../speed.md)).'
    """
    return re.sub(r"docs/(\w+)\.md", r"[\1](../../\1.md)", text)


def advice(guide: Guide) -> list[str]:
    """When to take it, and when not."""
    return [f"**Take it:** {linked(_lower(guide.use))}", "", f"**Not:** {linked(_lower(guide.avoid))}", ""]


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _upper(text: str) -> str:
    return text if text[1:2].isupper() else text[0].upper() + text[1:]  # iCaRL stays


def rule(guide: Guide) -> list[str]:
    """The equation as a block, and where it comes from."""
    origin = [f"Origin: {linked(guide.origin)}", ""] if guide.origin else []
    return ["```{math}", guide.equation, "```", "", *origin]


def restated(text: str, guide: Guide) -> bool:
    """Whether a formula in plain text says no more than the equation: hardly a word that is not in it."""
    words = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", text)}
    formula = "<-" in text or "*" in text
    return formula and sum(word not in guide.equation.lower() for word in words) <= 3


def in_words(part: type[Component[Any]]) -> str:
    """A part's docstring, in HTML, without the rule that its equation shows."""
    first, *rest = (inspect.getdoc(part) or "").split("\n\n")
    kept = rest if part.guide and restated(first, part.guide) else [first, *rest]
    return html("\n\n".join(kept), lambda _: None) if kept else ""


def beside(recipe: Recipe) -> str:
    """What a row of accuracies has to say besides its name: data of before that no replay shows."""
    if recipe.joint:
        return " (trained on all data so far)"
    own = [
        term for term in recipe.memory_terms() or [] if term.unit == "samples" and not term.name.startswith("replay.")
    ]
    return "".join(f" (its {term.name.split('.')[0]} keeps {term.times} samples)" for term in own)


def with_it(methods: list[str]) -> str:
    """ACC of every method with a part."""
    if not methods:
        return "None by name; put it in any."
    head, *lines = accuracies(methods)
    found = grid_markdown([head, *([method_link(name) + beside(RECIPES[name]), *cells] for name, *cells in lines)])
    return f"ACC in percent ([what that is and how it was found](../../results.md)):\n\n{found}"


def otherwise(family: str, name: str, methods: list[str]) -> list[str]:
    """Other rules that a part has at settings of methods, each with the first that has it, and what it costs then."""
    part = FAMILIES[family][name]
    usual = [guide for guide in (part.guide, part.guide_for(part.Settings())) if guide]
    shown, said = {guide.equation for guide in usual}, {text for guide in usual for text in (guide.origin, guide.cost)}
    lines: list[str] = []
    for method in methods:
        guide = part.guide_for(RECIPES[method].resolve(family)[1])
        if guide and guide.equation not in shown:
            shown.add(guide.equation)
            new = replace(guide, origin="") if guide.origin in said else guide
            lines += [f"With {own_settings(RECIPES[method], family)}, as in {method_link(method)}:", "", *rule(new)]
            lines += [f"Cost: {linked(_lower(guide.cost))}", ""] if guide.cost not in said else []
    return ["## At other settings", "", *lines] if lines else []


def own_settings(recipe: Recipe, family: str) -> str:
    """``step.momentum=0.9`` and the like, in which a method differs from its part."""
    return ", ".join(f"`{family}.{key}={value}`" for key, value in recipe.components[family].settings.items())


def part_page(family: str, name: str) -> str:
    """Of one part."""
    part = FAMILIES[family][name]
    guide = part.guide
    users = [method for method, recipe in RECIPES.items() if recipe.components[family].name == name]
    held = part.memory_terms(part.Settings(), MemoryConditions())
    lines = [f"# {family} `{name}`", "", f"*{FAMILIES[family].question}*", ""]
    lines += ["```{raw} html", said, "```", ""] if (said := in_words(part)) else []
    if guide:
        lines += [*rule(guide), "## When", "", *advice(guide)]
    lines += ["## Settings", "", settings(family, part), ""]
    lines += ["## What it costs", "", linked(guide.cost) if guide else "", ""]
    lines += [f"It holds {format_terms(held)} beside the model. {UNITS}", ""] if held else []
    lines += ["It needs to be told where a task ends.", ""] if part.needs_boundary else []
    needs = ", ".join(part_link(other, needed) for other, needed in part.required_components.items())
    lines += [f"It needs {needs}.", ""] if needs else []
    lines += otherwise(family, name, users)
    lines += ["## Methods with it, in our results", "", with_it(users), ""]
    option = "Learner(model, " + f'{family}="{name}")'
    lines += [f"In Python `tmln.{option}`, on the command line `--{family} {name}`.", ""]
    return "\n".join(lines)


def guides(recipe: Recipe) -> Iterator[tuple[str, str, Guide]]:
    """Family, name and guide, at a method's settings, of its step and of those parts that are not the defaults."""
    for family, choice in recipe.components.items():
        part, chosen = recipe.resolve(family)
        guide = part.guide_for(chosen)
        if guide and (choice.name != FAMILIES.default(family) or family == "step"):
            yield family, choice.name, guide


def told(recipe: Recipe) -> list[str]:
    """Rule, advice and cost of a method: its own where it has a guide, else those of its parts."""
    if own := recipe.guide:
        lines = ["## Its rule", "", *rule(own), "## When", "", *advice(own)]
        return [*lines, "## What it costs", "", linked(own.cost), ""]
    found = list(guides(recipe))
    lines = ["## Its rule", ""]
    for family, name, guide in found:
        lines += [f"{family} {part_link(family, name)}:", "", *rule(guide)]
    lines += ["## When", ""]
    for family, name, guide in found:
        if name != FAMILIES.default(family):  # a plain step is what the others are for
            lines += [part_link(family, name), "", *advice(guide)]
    return [*lines, "## What it costs", "", *(f"- {name}: {linked(_lower(g.cost))}" for _, name, g in found), ""]


def method_page(name: str) -> str:
    """Of one method: its parts, and what follows from theirs."""
    recipe = RECIPES[name]
    lines = [f"# `{name}`", "", f"{_upper(recipe.about)}.", ""]
    parts = [["question", "part", "settings of its own"]]
    for family, choice in recipe.components.items():
        parts.append([FAMILIES[family].question, part_link(family, choice.name), own_settings(recipe, family)])
    lines += [worded(parts), "", *told(recipe)]
    held = recipe.memory_terms()
    data = " and all data so far" if recipe.joint else ""
    lines += [f"It holds {format_terms(held)}{data} beside the model. {UNITS}", ""] if held else []
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
        parts = (part_link(family, choice.name) for family, choice in recipe.components.items())
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
