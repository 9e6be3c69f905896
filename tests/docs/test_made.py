"""The pages that are made: of what the parts declare, and of results that are still true."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.results_page import DETAILS, accuracies
from docs.extensions.component_pages import (
    count_stored_samples,
    count_values,
    format_component_page,
    format_method_index,
    format_method_page,
    format_results,
    link_pages,
    needs_boundary,
    settings,
    slug,
)
from docs.extensions.docstrings import html
from docs.extensions.internal_pages import SOURCE, exported, modules, names
from docs.extensions.internal_pages import pages as internal_pages
from docs.extensions.paper_pages import pages as paper_pages
from docs.extensions.project_pages import move_page
from docs.extensions.reference_pages import escape_formulas, public_names
from docs.extensions.rows import RESULTS, page, rows, still_so, table, tuned_table
from latex2mathml.converter import convert

import tmln
from tmln.analysis.read import read_results
from tmln.methods.recipes import FAMILIES, RECIPES
from tmln.paper.items import ITEMS
from tmln.paper.published import TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6

COMPONENTS = [(family, name) for family in FAMILIES for name in FAMILIES[family]]


@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_a_part_has_a_guide_of_its_own(family: str, name: str) -> None:
    """A guide that is inherited would speak of another part."""
    guide = vars(FAMILIES[family][name]).get("guide")
    assert guide is not None, f"{family} {name} says nothing of itself: give its class a `guide` (tmln.methods.Guide)"
    assert "<math" in convert(guide.equation)
    for text in (guide.cost, guide.use, guide.avoid):
        assert text[0].isupper()
        assert text.endswith(".")
    page = format_component_page(family, name)
    said = (guide.equation, guide.origin, guide.cost, guide.use[1:], guide.avoid[1:])
    assert all(link_pages(text) in page for text in said)


@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_a_setting_is_told_in_words(family: str, name: str) -> None:
    for setting, field in FAMILIES[family][name].Settings.model_fields.items():
        said = field.description or ""
        assert len(said.split()) >= 3, f"{family}.{setting} is {said!r}: a symbol is no description"


def test_settings_are_those_that_the_part_declares() -> None:
    lines = settings("step", FAMILIES["step"]["tmln"]).split("\n\n")[0].splitlines()
    assert lines[0] == "| setting | allowed | default | search range | description |"
    (line,) = [line for line in lines if line.startswith("| `step.damping` |")]
    assert line.startswith("| `step.damping` | a number > 0 | 0.1 | 0.001 to 10, log scale | damping lambda, added to")
    assert "| `step.clip_norm` | a number > 0 | - | - |" in "\n".join(lines)
    assert len(lines) == 2 + len(FAMILIES["step"]["tmln"].Settings.model_fields)


def test_a_rule_is_shown_once() -> None:
    """In plain text it would say the same again; what it says in words stays."""
    assert "&lt;-" not in format_component_page("step", "tmln")
    assert "before a task's first iterate" in format_component_page("weights", "average").lower()
    assert "Current samples among their own classes" in format_component_page("replay", "er-ace")


def test_a_part_shows_its_rules_at_other_settings() -> None:
    page = format_component_page("step", "tmln")
    assert "With `step.geometry=kfac`, `step.factors=running`, as in [`tmln-kfac`](../methods/tmln-kfac.md):" in page
    assert page.count(r"(A + \pi \sqrt{\lambda})^{-1}") == 1
    assert "At other settings" not in format_component_page("step", "sgd")


def test_what_a_row_has_besides_replay_is_said() -> None:
    page = format_component_page("replay", "none")
    assert "| [`joint`](../methods/joint.md) (trained on all data so far) |" in page
    assert "| [`a-gem`](../methods/a-gem.md) (its step keeps 500 samples) |" in page
    assert "| [`naive`](../methods/naive.md) |" in page


def test_a_method_has_its_parts_and_its_row() -> None:
    page = format_method_page("tmln+")
    assert "[`average`](../components/weights-average.md)" in page
    assert "`replay.balance=1.0`" in page
    assert "| split-digits | 3 |" in page
    assert f"| Split CIFAR-100 | 5 | {accuracies(['tmln+'])[1][1]} |" in page  # as in README


# What settings switch off is not in a method's rule, nor what they would cost; what they switch on is.
OFF: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("step", "sgd", {"momentum": 0.0}, [r"\mu", "sum for every weight"]),
    ("step", "tmln", {"trajectory": 0.0}, [r"\bar S", r"\gamma", r"\omega"]),
    ("step", "tmln", {"geometry": "euclidean"}, ["F +", "F (", "a Fisher pass over"]),
    ("step", "tmln", {"geometry": "kfac"}, ["{g}{F"]),
    ("step", "tmln", {"geometry": "kfac", "factors": "running"}, ["step costs what"]),
    ("step", "tmln", {"base": "adam"}, [r"\frac{g}", "costs what SGD's does"]),
    ("replay", "er", {"balance": 0.0}, ["prior"]),
    ("replay", "der++", {"balance": 0.0}, ["prior"]),
    ("replay", "distill", {"loss": "sigmoid"}, [r"\mathrm{KL}", "/ T"]),
    ("replay", "distill", {"loss": "softmax"}, [r"\sigma("]),
]  # fmt: skip
ON: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("step", "tmln", {"geometry": "kfac"}, [r"(A + \pi \sqrt{\lambda})^{-1}", "Kronecker factors of every layer"]),
    ("step", "tmln", {"geometry": "kfac", "factors": "running"}, ["1.2 to 1.5 times as long"]),
    ("step", "tmln", {"geometry": "euclidean"}, [r"(\theta - \theta_{\text{prev}})^2 + \epsilon"]),
    ("step", "tmln", {"base": "adam"}, ["Adam's direction"]),
    ("replay", "er", {"balance": 1.0}, [r"f(x_i) + b \log \text{prior}, y_i", "Menon et al. 2021"]),
    ("replay", "der++", {"balance": 1.0}, [r"\mathrm{MSE}(f(x'), z')", r"f(x'') + b \log \text{prior}, y''"]),
    ("replay", "distill", {"loss": "sigmoid"}, [r"\mathrm{BCE}"]),
    ("replay", "distill", {"loss": "softmax"}, [r"\mathrm{KL}"]),
]  # fmt: skip
# Settings of methods that change numbers of a rule, or what is done around it, not the rule.
SAME_RULE = {
    "step.momentum", "step.inner.momentum", "step.factors", "replay.fill", "replay.alpha", "replay.beta",
    "replay.selection", "penalty.proximal", "penalty.plastic_decay", "penalty.stable_decay",
}  # fmt: skip


def ruled(method: str) -> str:
    """The part of a method's page that speaks of its rule, advice and cost."""
    return re.split("## Rule|## In our results", format_method_page(method))[1]


def has(method: str, family: str, part: str, values: dict[str, Any]) -> bool:
    """Whether a method speaks through this part, at these settings."""
    recipe = RECIPES[method]
    if recipe.guide or recipe.components[family].name != part:
        return False
    found = recipe.resolve_settings(family)
    return all(found[name] == value for name, value in values.items())


@pytest.mark.parametrize("method", RECIPES)
def test_a_method_tells_what_its_settings_make_of_it(method: str) -> None:
    page = ruled(method)
    for family, part, values, symbols in OFF:
        if has(method, family, part, values):
            shown = [symbol for symbol in symbols if symbol in page]
            assert shown == [], f"{method} has {family} {part} at {values}: give the part a guide_for that knows of it"
    for family, part, values, symbols in ON:
        if has(method, family, part, values):
            assert [symbol for symbol in symbols if symbol not in page] == []


@pytest.mark.parametrize("method", RECIPES)
def test_no_setting_of_a_method_is_passed_over_in_silence(method: str) -> None:
    """It changes what is told of the part, or it is known not to change the rule."""
    recipe = RECIPES[method]
    for family, choice in recipe.components.items():
        told = {f"{family}.{name}" for name in choice.settings} - SAME_RULE
        part, chosen = recipe.resolve(family)
        if told:
            assert part.guide_for(chosen) != part.guide_for(part.Settings()), f"{sorted(told)}: see SAME_RULE"


@pytest.mark.parametrize("method", RECIPES)
def test_a_methods_equations_are_drawn_and_its_origins_named(method: str) -> None:
    recipe, page = RECIPES[method], format_method_page(method)
    equations = re.findall(r"```\{math\}\n(.+)\n```", page)
    assert equations
    assert all("<math" in convert(equation) for equation in equations)
    for family in FAMILIES if recipe.guide is None else ():
        part, chosen = recipe.resolve(family)
        guide = part.guide_for(chosen)
        assert guide is not None
        if part.name != FAMILIES.default(family):
            assert f"Origin: {guide.origin}" in page
            for text in (guide.cost, guide.use, guide.avoid):
                assert text[0].isupper()
                assert text.endswith(".")


def test_joint_says_what_it_needs() -> None:
    """What its parts are when alone is not what it is."""
    page = format_method_page("joint")
    assert "All data so far, kept and learned again at every task" in page
    assert "and all data so far beside the model" in page
    assert r"D_1 \cup \dots \cup D_k" in page
    assert "forgets" not in page
    assert "Nothing" not in ruled("joint")
    assert "the last task alone" in format_method_page("independent")


def test_advice_on_a_plain_step_is_for_those_who_have_nothing_else() -> None:
    assert "Alone: it forgets" not in format_method_page("er")
    assert "alone: it forgets" not in format_method_page("er")


def test_what_a_method_says_of_itself_is_no_part_of_what_it_is() -> None:
    joint = RECIPES["joint"]
    assert joint.guide is not None
    assert "guide" not in joint.to_dict()
    assert joint.with_component("step", "tmln").guide is None
    assert joint.with_setting("step.momentum", 0.5).guide is None
    assert replace(joint, guide=None) == joint


def test_bold_is_explained() -> None:
    assert page().count("**Bold**: the best of a column") == page().count("\n## ")


def test_a_part_has_the_rows_of_its_methods() -> None:
    page = format_component_page("weights", "average")
    assert "| method | split-digits | Split CIFAR-100, tuned | Split CIFAR-10, tuned | pacs, tuned |" in page
    (line,) = [line for line in page.splitlines() if line.startswith("| [`tmln+`](../methods/tmln-plus.md) |")]
    assert line.endswith(f"| {' | '.join(accuracies(['tmln+'])[1][1:])} | - |")


def test_a_row_is_ours_not_the_papers() -> None:
    """On PACS the table has the paper's CORe50 beside each number."""
    (line,) = [line for line in tuned_table("upgd").splitlines() if line.startswith("| pacs |")]
    lines = [line for path in DETAILS for line in path.read_text(encoding="utf-8").splitlines()]
    _, row = [line for line in lines if line.startswith("| UPGD | 5 |") and "[" not in line]  # but for intervals
    assert line.split(" | ")[2] == row.replace("*", "").split(" | ")[2]


@pytest.mark.parametrize(("method", "is_tuned"), [("er", True), ("scr", False), ("mir", False)])
def test_a_method_outside_the_tuned_tables_says_so(method: str, is_tuned: bool) -> None:
    page = format_method_page(method)
    assert ("Tuned with equal budgets" in page) is is_tuned
    assert ("settings were not tuned here" in page) is not is_tuned


def test_a_part_without_a_method_says_so() -> None:
    assert format_results([]) == "No named method has it."


def test_the_paper_is_shown_whole() -> None:
    """Every number that it prints, in the words in which the tables of `tmln paper` have it."""
    (page,) = paper_pages().values()
    printed = [cells for rows in (*TABLE1.values(), TABLE2) for cells in rows.values()]
    printed += [cells for grid in TABLE6.values() for cells in grid.values()]
    assert all(str(number) in page for cells in printed for number in cells.values())
    assert all(f"{loss:.4f}" in page for tasks in TABLE5.values() for losses in tasks for loss in losses)
    assert all(f"{cost.relative_time:.2f} |" in page for cost in TABLE4.values())
    assert all(f"`{ours}={value:g}`" in page for chosen in TABLE3.values() for ours, (_, value) in chosen.items())
    assert all(f"| {name} |" in page for name in ITEMS)


def test_addresses_are_told_apart() -> None:
    assert len({slug(name) for name in RECIPES}) == len(RECIPES)
    assert len({f"{family}-{slug(name)}" for family, name in COMPONENTS}) == len(COMPONENTS)


def test_what_a_method_no_longer_is_is_not_shown() -> None:
    result = read_results(RESULTS / "digits.json")[0][0]
    assert still_so(result)
    config = {**result.config, "settings": {**result.config["settings"], "step.batch": 1}}
    assert not still_so(replace(result, config=config))
    assert not still_so(replace(result, method="gone"))


def test_a_method_without_runs_has_no_table() -> None:
    assert table("er", []) == ""
    assert table("er", rows()).count("\n") == 2


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a*b |c| <d>", "<p>a*b |c| &lt;d&gt;</p>"),
        ("first:\n- one\n  more\n- two", "<p>first:</p><ul><li>one more</li><li>two</li></ul>"),
        ("Args:\n    x: a\n        b\n    y: c", "<p>Args:</p><ul><li>x: a b</li><li>y: c</li></ul>"),
        (">>> 1 < 2\nTrue", '<pre tabindex="0">&gt;&gt;&gt; 1 &lt; 2\nTrue</pre>'),
        ("so:\n\n    x = 1", '<p>so:</p>\n<pre tabindex="0">x = 1</pre>'),
        ("see :func:`f` and :func:`g`", '<p>see <a href="#f"><code>f</code></a> and <code>g</code></p>'),
    ],
)
def test_docstrings_are_shown_as_they_are_written(text: str, made: str) -> None:
    assert html(text, {"f": "#f"}.get) == made


def test_every_module_is_in_the_api() -> None:
    assert len(list(modules())) == len(list(SOURCE.rglob("*.py"))) - 1  # __main__
    (optim,) = [module for module in modules() if module.name == "tmln.optim.tmln"]
    assert {"tmln.optim.tmln.TMLN", "tmln.optim.tmln.TMLN.consolidate"} <= {*names(optim)}


def test_a_room_begins_with_what_it_hands_on() -> None:
    """Every name of ``__all__``, linked to where it is defined, with what it says of itself first."""
    made = {path.stem: text for path, text in internal_pages().items()}
    packages = [module for module in modules() if module.name == f"tmln.{module.package}"]
    wanted = [(module.package, name) for module in packages for name in exported(module)]
    assert len(wanted) > 90
    for package, name in [("tmln", name) for name in tmln.__all__] + wanted:
        found = re.findall(rf'<li><a href="(\w+)\.html#([\w.]+)"><code>{name}</code></a>', made[package])
        assert len(found) == 1, f"{name} is not on the page of {package}"
        ((where, place),) = found
        assert f'id="{place}"' in made[where]
    assert '<a href="optim.html#tmln.optim.tmln.TMLN"><code>TMLN</code></a>: ' in made["tmln"]
    assert '<a href="report.html#tmln.report.page.render_page"><code>render_page</code></a>' in made["report"]


def test_every_exported_name_has_a_page() -> None:
    named = public_names()
    found = {id(value) for members in named.values() for value in members.values()}
    without = {name for name in tmln.__all__ if id(getattr(tmln, name)) not in found}
    assert without == {"curvature", "optim", "streams"}  # packages, with a section each
    assert "tmln.optim.OCAR" in named["tmln.optim"]
    assert "tmln.streams.Stream" in named["tmln.streams"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("F*_i <= |m|", r"F\*\_i <= \|m\|".replace(r"\_", "_")),
        ("see ``a*b`` and :func:`f_`", "see ``a*b`` and :func:`f_`"),
        ("**options: more", "**options: more"),
        ("so:\n\n    x = 1", "so::\n\n    x = 1"),
        (">>> _ = a * b", ">>> _ = a * b"),
        (".. math::\n    a_* b", ".. math::\n    a_* b"),
    ],
)
def test_formulas_of_docstrings_are_no_markup(written: str, read: str) -> None:
    lines = written.split("\n")
    escape_formulas(None, "function", "f", None, None, lines)
    assert "\n".join(lines) == read


def test_the_list_of_methods_has_what_it_filters_by() -> None:
    """Counted by hand: SGD with momentum keeps one number a weight, EWC an anchor and an importance."""
    assert [count_stored_samples(RECIPES[name]) for name in ("naive", "er", "joint")] == ["no", "500", "all"]
    assert [needs_boundary(RECIPES[name]) for name in ("er", "ewc", "joint", "tmln")] == [False, True, True, True]
    assert [count_values(RECIPES[name]) for name in ("naive", "ewc", "tmln")] == ["1", "2", "5"]
    assert count_values(RECIPES["ocar"]) == "0 and Kronecker factors"
    index = format_method_index()
    head = index.index("| method | about | stores samples | needs task boundaries | cost | components |")
    assert index.count("\n| [`", head) == len(RECIPES)


@pytest.mark.parametrize("method", RECIPES)
def test_a_method_has_python_and_a_command(method: str) -> None:
    page = format_method_page(method)
    assert f'tmln.Learner(model, method="{method}")' in page
    assert f"$ tmln run --benchmark split-digits --method {method}\n" in page


def test_links_of_the_root_follow() -> None:
    assert (
        move_page("[a](docs/experiments.md#x) [b](CONTRIBUTING.md)")
        == "[a](../../experiments.md#x) [b](contributing.md)"
    )
