"""Generate a page for each component and each method from their declarations."""

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

UNITS = (
    "N: a number for every trainable weight; K: the Kronecker factors of every layer; d: features, C: classes; "
    "sizes at the defaults."
)


def format_text_table(lines: Lines) -> str:
    """Format a table with all columns left-aligned."""
    return grid_markdown(lines).replace("---:", "---")


def slug(name: str) -> str:
    """Return the name as part of a URL.

    >>> slug("tmln+der++")
    'tmln-plus-der-plus-plus'
    """
    return name.replace("+", "-plus-").replace("--", "-").strip("-")


def link_component(family: str, name: str, place: str = "../components/") -> str:
    """Link to a component's page, by default from a sibling page."""
    return f"[`{name}`]({place}{family}-{slug(name)}.md)"


def link_method(name: str, place: str = "../methods/") -> str:
    """Link to a method's page."""
    return f"[`{name}`]({place}{slug(name)}.md)"


def format_search_range(field: Any) -> str:
    """Format the range that ``tmln tune`` searches."""
    extra = field.json_schema_extra
    space = extra.get("search") if isinstance(extra, dict) else None
    if isinstance(space, dict):
        return f"{space['low']:g} to {space['high']:g}{', log scale' * bool(space.get('log'))}"
    return ", ".join(str(value).lower() for value in space) if space else "-"


def settings(family: str, component: type[Component[Any]]) -> str:
    """Format the table of settings: name, allowed values, default, search range, description."""
    lines = [["setting", "allowed", "default", "search range", "description"]]
    for one in describe_options(component.Settings):  # type: ignore[arg-type]  # it looks at the fields alone
        field = component.Settings.model_fields[one.name]
        lines.append([f"`{family}.{one.name}`", one.form, one.default or "-", format_search_range(field), one.about])
    if len(lines) == 1:
        return "None."
    return f"{format_text_table(lines)}\n\n`tmln sweep` and `tmln tune` search the search range."


def link_pages(text: str) -> str:
    """Link pages of the documentation that a guide names, from a page of ``made``.

    >>> link_pages("A half more (docs/speed.md).")
    'A half more ([speed](../../speed.md)).'
    """
    return re.sub(r"docs/(\w+)\.md", r"[\1](../../\1.md)", text)


def advice(guide: Guide) -> list[str]:
    """Format when to use it, and when not."""
    return [
        f"**Use it:** {link_pages(_lower(guide.use))}",
        "",
        f"**Do not use it:** {link_pages(_lower(guide.avoid))}",
        "",
    ]


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _upper(text: str) -> str:
    return text if text[1:2].isupper() else text[0].upper() + text[1:]  # iCaRL stays


def rule(guide: Guide) -> list[str]:
    """Format the equation as a block, and its origin."""
    origin = [f"Origin: {link_pages(guide.origin)}", ""] if guide.origin else []
    return ["```{math}", guide.equation, "```", "", *origin]


def repeats_equation(text: str, guide: Guide) -> bool:
    """Return whether a formula in plain text has hardly a word that is not in the equation."""
    words = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", text)}
    formula = "<-" in text or "*" in text
    return formula and sum(word not in guide.equation.lower() for word in words) <= 3


def format_docstring(component: type[Component[Any]]) -> str:
    """Format a component's docstring in HTML, without a formula that repeats the equation."""
    first, *rest = (inspect.getdoc(component) or "").split("\n\n")
    kept = rest if component.guide and repeats_equation(first, component.guide) else [first, *rest]
    return html("\n\n".join(kept), lambda _: None) if kept else ""


def describe_stored_data(recipe: Recipe) -> str:
    """Describe data that a method stores besides its replay."""
    if recipe.joint:
        return " (trained on all data so far)"
    own = [
        term for term in recipe.memory_terms() or [] if term.unit == "samples" and not term.name.startswith("replay.")
    ]
    return "".join(f" (its {term.name.split('.')[0]} keeps {term.times} samples)" for term in own)


def format_results(methods: list[str]) -> str:
    """Format ACC of every method with a component."""
    if not methods:
        return "No named method has it."
    head, *lines = accuracies(methods)
    found = grid_markdown(
        [head, *([link_method(name) + describe_stored_data(RECIPES[name]), *cells] for name, *cells in lines)]
    )
    return f"ACC in percent ([definition and protocol](../../results.md)):\n\n{found}"


def format_variants(family: str, name: str, methods: list[str]) -> list[str]:
    """Format the rules and costs at other settings of named methods, each once."""
    component = FAMILIES[family][name]
    usual = [guide for guide in (component.guide, component.guide_for(component.Settings())) if guide]
    shown, said = {guide.equation for guide in usual}, {text for guide in usual for text in (guide.origin, guide.cost)}
    lines: list[str] = []
    for method in methods:
        guide = component.guide_for(RECIPES[method].resolve(family)[1])
        if guide and guide.equation not in shown:
            shown.add(guide.equation)
            new = replace(guide, origin="") if guide.origin in said else guide
            lines += [f"With {format_settings(RECIPES[method], family)}, as in {link_method(method)}:", "", *rule(new)]
            lines += [f"Cost: {link_pages(_lower(guide.cost))}", ""] if guide.cost not in said else []
    return ["## At other settings", "", *lines] if lines else []


def format_settings(recipe: Recipe, family: str) -> str:
    """Format a method's settings of a component, such as ``step.momentum=0.9``."""
    return ", ".join(f"`{family}.{key}={value}`" for key, value in recipe.components[family].settings.items())


def format_component_page(family: str, name: str) -> str:
    """Format the page of a component."""
    component = FAMILIES[family][name]
    guide = component.guide
    users = [method for method, recipe in RECIPES.items() if recipe.components[family].name == name]
    held = component.memory_terms(component.Settings(), MemoryConditions())
    lines = [f"# {family} `{name}`", "", f"*{FAMILIES[family].question}*", ""]
    lines += ["```{raw} html", said, "```", ""] if (said := format_docstring(component)) else []
    if guide:
        lines += [*rule(guide), "## When", "", *advice(guide)]
    lines += ["## Settings", "", settings(family, component), ""]
    lines += ["## Cost", "", link_pages(guide.cost) if guide else "", ""]
    lines += [f"It holds {format_terms(held)} beside the model. {UNITS}", ""] if held else []
    lines += ["It needs task boundaries.", ""] if component.needs_boundary else []
    needs = ", ".join(link_component(other, needed) for other, needed in component.required_components.items())
    lines += [f"It needs {needs}.", ""] if needs else []
    lines += format_variants(family, name, users)
    lines += ["## Methods with it, in our results", "", format_results(users), ""]
    option = "Learner(model, " + f'{family}="{name}")'
    lines += [f"In Python `tmln.{option}`, on the command line `--{family} {name}`.", ""]
    return "\n".join(lines)


def iterate_guides(recipe: Recipe) -> Iterator[tuple[str, str, Guide]]:
    """Yield family, name and guide of a method's step and of its non-default components."""
    for family, choice in recipe.components.items():
        component, chosen = recipe.resolve(family)
        guide = component.guide_for(chosen)
        if guide and (choice.name != FAMILIES.default(family) or family == "step"):
            yield family, choice.name, guide


def format_guides(recipe: Recipe) -> list[str]:
    """Format rule, advice and cost of a method, its own or those of its components."""
    if own := recipe.guide:
        lines = ["## Rule", "", *rule(own), "## When", "", *advice(own)]
        return [*lines, "## Cost", "", link_pages(own.cost), ""]
    found = list(iterate_guides(recipe))
    lines = ["## Rule", ""]
    for family, name, guide in found:
        lines += [f"{family} {link_component(family, name)}:", "", *rule(guide)]
    lines += ["## When", ""]
    for family, name, guide in found:
        if name != FAMILIES.default(family):  # no advice about the plain step
            lines += [link_component(family, name), "", *advice(guide)]
    return [*lines, "## Cost", "", *(f"- {name}: {link_pages(_lower(g.cost))}" for _, name, g in found), ""]


def format_use(name: str) -> list[str]:
    """Format the call and the commands that use a method."""
    code = f'learner = tmln.Learner(model, method="{name}")\nlearner.learn((x, y), epochs=5)'
    commands = [
        f"$ tmln run --benchmark split-digits --method {name}",
        f"$ tmln compare --benchmark split-digits --methods {','.join(dict.fromkeys(('naive', 'er', name)))} --seeds 3",
    ]
    return ["## Use", "", "```python", code, "```", "", "```console", *commands, "```", ""]


def format_method_page(name: str) -> str:
    """Format the page of a method."""
    recipe = RECIPES[name]
    lines = [f"# `{name}`", "", f"{_upper(recipe.about)}.", ""]
    parts = [["question", "component", "settings"]]
    for family, choice in recipe.components.items():
        parts.append([FAMILIES[family].question, link_component(family, choice.name), format_settings(recipe, family)])
    lines += [format_text_table(parts), "", *format_use(name), *format_guides(recipe)]
    held = recipe.memory_terms()
    data = " and all data so far" if recipe.joint else ""
    lines += [f"It holds {format_terms(held)}{data} beside the model. {UNITS}", ""] if held else []
    lines += ["## In our results", ""]
    lines += ["At its own settings:", "", own, ""] if (own := table(name)) else []
    said = "Tuned with equal budgets, on small [real images](../../results.md):"
    untuned = ["Its settings were not tuned here: no table of tuned methods has it.", ""]
    lines += [said, "", on_images, ""] if (on_images := tuned_table(name)) else untuned
    return "\n".join(lines)


def format_component_index() -> str:
    """Format the list of components by question."""
    lines = [
        "# Components",
        "",
        "A method has one component of each family. Each page is generated from the component's declarations.",
        "",
    ]
    for family, members in FAMILIES.items():
        lines += [f"## {family}: {_lower(members.question)}", ""]
        for name, component in members.items():
            first = (inspect.getdoc(component) or "").split("\n")[0].replace("*", r"\*").replace("|", r"\|")
            lines.append(f"- {link_component(family, name, '')}: {first}")
        lines.append("")
    names = [f"{family}-{slug(name)}" for family, members in FAMILIES.items() for name in members]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *names, "```", ""])


FILTERS = """```{raw} html
<form class="filters" hidden>
<label>Stores samples <select data-column="2"><option value="">any</option><option>no</option>
<option value="-no">yes</option></select></label>
<label>Needs task boundaries <select data-column="3"><option value="">any</option><option>no</option>
<option>yes</option></select></label>
<label>Cost: values kept per weight <select data-column="4"><option value="">any</option>
<option value="0">none</option><option value="<1">at most 1</option><option value="<5">at most 5</option>
</select></label>
<output aria-live="polite"></output>
</form>
<script src="../../_static/methods.js" defer></script>
```"""


def needs_boundary(recipe: Recipe) -> bool:
    """Return whether a component needs to know where a task ends, or the method begins anew there."""
    return recipe.restarts_each_task or any(recipe.resolve(family)[0].needs_boundary for family in recipe.components)


def count_stored_samples(recipe: Recipe) -> str:
    """Format the number of samples that a method stores by default."""
    if recipe.joint:
        return "all"
    return str(sum(term.times for term in recipe.memory_terms() or [] if term.unit == "samples") or "no")


def count_values(recipe: Recipe) -> str:
    """Format the numbers that a method keeps for every trainable weight, by default."""
    terms = recipe.memory_terms() or []
    values = sum(term.times for term in terms if term.unit in ("N", "W", "model"))
    return f"{values:g}" + " and Kronecker factors" * any(term.unit == "K" for term in terms)


def format_method_index() -> str:
    """Format the table of methods: what they need and what they are made of."""
    lines = [["method", "about", "stores samples", "needs task boundaries", "cost", "components"]]
    for name, recipe in RECIPES.items():
        chosen = recipe.components.items()
        parts = ", ".join(link_component(f, c.name) for f, c in chosen if c.name != FAMILIES.default(f) or f == "step")
        needs = count_stored_samples(recipe), "yes" if needs_boundary(recipe) else "no", count_values(recipe)
        lines.append([link_method(name, ""), recipe.about, *needs, parts])
    said = (
        "Every named method, and what it needs at its default settings. Cost is the numbers that it keeps for every "
        "trainable weight, beside samples; each page has the cost in time. "
        "[Which one for my case?](../../which_method.md)"
    )
    toc = ["```{toctree}", ":hidden:", "", *map(slug, RECIPES), "```", ""]
    return "\n".join(["# List of methods", "", said, "", FILTERS, "", format_text_table(lines), "", *toc])


def pages() -> dict[Path, str]:
    """Return all pages by path."""
    made = {
        Path("components") / "index.md": format_component_index(),
        Path("methods") / "index.md": format_method_index(),
    }
    for family, members in FAMILIES.items():
        made |= {
            Path("components") / f"{family}-{slug(name)}.md": format_component_page(family, name) for name in members
        }
    return made | {Path("methods") / f"{slug(name)}.md": format_method_page(name) for name in RECIPES}
