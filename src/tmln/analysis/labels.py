"""Label runs: the method, and whatever differs from it or from the other runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmln.experiments.result import REFERENCES
from tmln.methods.recipes import RECIPES
from tmln.methods.registry import FAMILIES
from tmln.user_code import is_code

SETTINGS = "settings."
# Fields that no label needs: a name, a heading or a column has them, or they change no result.
TOLD = {"benchmark", "method", "name", "seed", "lr", "train_accuracy", "merged", "compile", *FAMILIES}


@dataclass(frozen=True)
class RunLabel:
    """A row's label in two parts, and what was left out of it.

    Attributes:
        variant: What competes: the method with the components in which it differs, or its name.
        settings: Settings in which it differs from the method's own, or from its other runs.
        shared: Settings that differ from the method's, with one value wherever methods have them.
        chosen: Settings that a search chose.
    """

    variant: str
    settings: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return ``der++ replay=none step.momentum=0.5``."""
        return " ".join([self.variant, *self.settings])


def label_runs(
    configs: Sequence[Mapping[str, Any]],
    changed: Sequence[Sequence[str] | None] | None = None,
    searched: Sequence[Sequence[str]] | None = None,
) -> list[RunLabel]:
    """Return the label of each run: runs of one configuration have the same, others do not.

    Args:
        configs: Resolved configurations; ``benchmark`` is the title of the table.
        changed: The settings of each that differ from the method's and the benchmark's; None where
            that is not known.
        searched: The settings of each that a search chose.
    """
    flat = [flat_fields({key: value for key, value in config.items() if key != "seed"}) for config in configs]
    variants = _name_variants(configs)
    tables = [str(config.get("benchmark")) for config in configs]
    competes = [config.get("method") not in REFERENCES for config in configs]
    group = _collect((zip(tables, variants, strict=True)), flat)
    rivals = _collect((t for t, c in zip(tables, competes, strict=True) if c), _where(flat, competes))
    given = [None if keys is None else set(map(_spell, keys)) for keys in changed or [None] * len(flat)]
    spread: dict[tuple[str, str], dict[str, set[str | None]]] = {}  # a setting's values by method, within a table
    for table, variant, fields in zip(tables, variants, flat, strict=True):
        for key, value in fields.items():
            spread.setdefault((table, key), {}).setdefault(variant, set()).add(value)
    labels = []
    for table, variant, fields, mine, chosen in zip(
        tables, variants, flat, given, searched or [()] * len(flat), strict=True
    ):
        shown = {key for key in fields if len(group[table, variant][key]) > 1}
        shown |= {
            key
            for key in fields
            if _is_of_run(key) and len(rivals.get(table, {}).get(key, ())) > 1 and (mine is None or key in mine)
        }
        own = {key for key in mine or () if key.startswith(SETTINGS) and key in fields} - shown
        by_search = {key for key in own if key.removeprefix(SETTINGS) in chosen}
        shared = {key for key in own - by_search if _is_shared(spread[table, key])}
        shown |= own - by_search - shared
        labels.append(RunLabel(variant, *(_write(fields, keys) for keys in (shown, shared, by_search))))
    return labels


def label_methods(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return labels of resolved configurations: components that differ, and what differs."""
    return [label.text for label in label_runs(configs)]


def flat_fields(value: Any, prefix: str = "") -> dict[str, str]:
    """Return a nested configuration as ``settings.step.damping: '0.1'``."""
    if isinstance(value, Mapping) and value:
        found: dict[str, str] = {}
        for key, item in value.items():
            found |= flat_fields(item, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: str(value)}


def find_changed_components(config: Mapping[str, Any]) -> dict[str, str]:
    """Return by family the components in which a configuration differs from its method."""
    recipe = RECIPES.get(str(config.get("method")))
    found = {}
    for family in FAMILIES:
        usual = FAMILIES.default(family) if recipe is None else recipe.components[family].name
        name = config.get(family)
        if name is None and recipe is not None and family not in config and _has_components(config):
            name = FAMILIES.default(family)  # a family that came later is left out where it has its default
        if name is not None and name != usual and (recipe is not None or is_code(str(name))):
            found[family] = str(name)
    return found


def _has_components(config: Mapping[str, Any]) -> bool:
    return any(family in config for family in FAMILIES)


def _name_variants(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the name of each run, or its method with the components in which it differs.

    A class of the user's is named without its module, unless two of one name differ in it.
    """
    found = [find_changed_components(config) for config in configs]
    modules: dict[str, set[str]] = {}
    for components in found:
        for name in components.values():
            modules.setdefault(name.rpartition(":")[2], set()).add(name)
    variants = []
    for config, components in zip(configs, found, strict=True):
        short = {
            family: name.rpartition(":")[2] if len(modules[name.rpartition(":")[2]]) == 1 else name
            for family, name in components.items()
        }
        words = [str(config.get("method")), *(f"{family}={name}" for family, name in short.items())]
        variants.append(str(config.get("name") or " ".join(words)))
    return variants


def _collect(heads: Iterable[Any], flat: Iterable[Mapping[str, str]]) -> dict[Any, dict[str, set[str | None]]]:
    """Return the values that each field takes, by head; None where a run lacks the field."""
    found: dict[Any, dict[str, set[str | None]]] = {}
    for fields, head in zip(flat, heads, strict=True):
        values = found.setdefault(head, {key: set() for key in fields})
        for key in values.keys() | fields.keys():
            values.setdefault(key, {None}).add(fields.get(key))
    return found


def _where(flat: Sequence[Mapping[str, str]], wanted: Sequence[bool]) -> list[Mapping[str, str]]:
    return [fields for fields, is_wanted in zip(flat, wanted, strict=True) if is_wanted]


def _spell(key: str) -> str:
    """Return the field of a setting: ``settings.step.damping`` of ``step.damping``."""
    head, dot, name = key.partition(".")
    if not dot:
        return key
    return f"{SETTINGS}{key}" if head in FAMILIES else f"{head}_options.{name}"


def _is_of_run(key: str) -> bool:
    """Return whether a field is about training as such: epochs, batch size, model, schedule."""
    head = key.partition(".")[0]
    return head not in TOLD and head not in ("settings", "benchmark_options")


def _is_shared(values: Mapping[str, set[str | None]]) -> bool:
    """Return whether several methods have a setting, all with one value."""
    return len(values) > 1 and len(set[str | None]().union(*values.values())) == 1


def _write(fields: Mapping[str, str], keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{key.removeprefix(SETTINGS)}={fields[key]}" for key in sorted(keys))
