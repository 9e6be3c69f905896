"""Every named method: a replay, a penalty and a step, with the numbers that differ from the parts' own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tmln.seeds import seed_of
from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.parts import Part, Penalty, Replay, Step


class _Families(Mapping[str, Mapping[str, "type[Part[Any]]"]]):
    """Each family's table of parts, loaded when first asked for: the table of methods is read without torch."""

    HOMES: ClassVar = {
        "replay": "tmln.replay.REPLAYS",
        "penalty": "tmln.penalties.PENALTIES",
        "step": "tmln.steps.STEPS",
    }

    def __getitem__(self, family: str) -> Mapping[str, type[Part[Any]]]:
        module, _, table = self.HOMES[family].rpartition(".")
        found: Mapping[str, type[Part[Any]]] = getattr(importlib.import_module(module), table)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.HOMES)

    def __len__(self) -> int:
        return len(self.HOMES)


FAMILIES = _Families()


@dataclass(frozen=True)
class Choice:
    """A part by name, and the settings in which it differs from its defaults."""

    name: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """What makes a method: ``joint`` starts afresh at every task, on all data so far, ``independent`` on it alone."""

    replay: Choice = Choice()
    penalty: Choice = Choice()
    step: Choice = Choice("sgd")
    joint: bool = False
    independent: bool = False
    about: str = ""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Recipe:
        """A recipe from the plain containers that ``dataclasses.asdict`` makes of it."""
        parts = {family: Choice(**plain[family]) for family in FAMILIES}
        return cls(**{**plain, **parts})

    def part(self, family: str) -> tuple[type[Part[Any]], Any]:
        """The class of one part and its checked settings."""
        from tmln.parts import find_part, read_settings

        choice: Choice = getattr(self, family)
        kind = find_part(family, FAMILIES[family], choice.name)
        return kind, read_settings(kind, choice.settings)

    def with_part(self, family: str, name: str) -> Recipe:
        """Another part, with its default settings; the same one keeps the recipe's."""
        if name == getattr(self, family).name:
            return self
        from tmln.parts import find_part

        find_part(family, FAMILIES[family], name)
        changes: dict[str, Any] = {family: Choice(name)}
        return replace(self, **changes)

    def with_setting(self, key: str, value: Any) -> Recipe:
        """``step.damping`` = 0.2 and the like."""
        family, _, setting = key.partition(".")
        if family not in FAMILIES or not setting:
            raise ValueError(
                f"unknown setting {key!r}{did_you_mean(family, FAMILIES)} "
                "(write replay.NAME, penalty.NAME or step.NAME)"
            )
        choice: Choice = getattr(self, family)
        changes: dict[str, Any] = {family: Choice(choice.name, {**choice.settings, setting: value})}
        changed = replace(self, **changes)
        changed.part(family)
        return changed


_MOMENTUM = Choice("sgd", {"momentum": 0.9})
_PLAIN = Choice("sgd")
_ER = Choice("er")
_EXACT = {"proximal": True}

RECIPES: dict[str, Recipe] = {
    "naive": Recipe(step=_MOMENTUM, about="SGD with momentum, nothing against forgetting"),
    "joint": Recipe(step=_MOMENTUM, joint=True, about="the oracle: afresh on all data so far, at every task"),
    "independent": Recipe(step=_MOMENTUM, independent=True, about="a reference: afresh at every task, on it alone"),
    "er": Recipe(_ER, step=_MOMENTUM, about="experience replay from a reservoir"),
    # Explicit steps overshoot the anchor and diverge: those of ewc++ at the paper's strength, those of importances that
    # add up over the tasks sooner or later.
    "ewc++": Recipe(penalty=Choice("ewc++", _EXACT), step=_PLAIN, about="a running Fisher penalty, its step exact"),
    "rwalk": Recipe(_ER, Choice("rwalk"), _PLAIN, about="Riemannian walk: Fisher and path penalty, with replay"),
    "upgd": Recipe(step=Choice("upgd"), about="noise and gradient gated by utility"),
    "ocar": Recipe(_ER, step=Choice("ocar"), about="K-FAC natural gradient on current and replayed samples"),
    "tmln": Recipe(_ER, step=Choice("tmln"), about="gradient / (F + lambda + gamma*S-bar), with replay"),
    "tmln-static": Recipe(_ER, step=Choice("tmln", {"trajectory": 0.0}), about="TMLN without S-bar"),
    "tmln-euclidean": Recipe(_ER, step=Choice("tmln", {"geometry": "euclidean"}), about="TMLN without F"),
    "der++": Recipe(Choice("der++"), step=_MOMENTUM, about="replay of logits and labels"),
    "er-ace": Recipe(Choice("er-ace"), step=_MOMENTUM, about="replay with asymmetric cross entropy"),
    "ewc": Recipe(penalty=Choice("ewc", _EXACT), step=_PLAIN, about="online EWC: Fisher at task ends"),
    "si": Recipe(penalty=Choice("si", _EXACT), step=_PLAIN, about="synaptic intelligence: path penalty"),
    "mas": Recipe(penalty=Choice("mas", _EXACT), step=_PLAIN, about="memory-aware synapses: output sensitivity"),
    "lwf": Recipe(penalty=Choice("lwf"), step=_MOMENTUM, about="learning without forgetting: distillation"),
    "a-gem": Recipe(step=Choice("a-gem"), about="gradients that would hurt the memory are projected"),
    "tmln+der++": Recipe(Choice("der++"), step=Choice("tmln"), about="the TMLN step under DER++ replay"),
    "tmln+er-ace": Recipe(Choice("er-ace"), step=Choice("tmln"), about="the TMLN step under ER-ACE replay"),
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"unknown method {name!r}{did_you_mean(name, RECIPES)} (tmln list methods)")
    return RECIPES[name]


def make_parts(recipe: Recipe, model: Any, lr: float, seed: int) -> tuple[Replay[Any], Penalty[Any], Step[Any]]:
    """The three parts, ready to train ``model``."""
    from tmln.parts import Penalty, Replay, Step

    replay_kind, replay_settings = recipe.part("replay")
    penalty_kind, penalty_settings = recipe.part("penalty")
    step_kind, step_settings = recipe.part("step")
    assert issubclass(replay_kind, Replay)
    assert issubclass(penalty_kind, Penalty)
    assert issubclass(step_kind, Step)
    replay = replay_kind(replay_settings, seed_of(seed, "replay"))
    step = step_kind(step_settings, model, lr, seed_of(seed, "step"), replay.memory)
    return replay, penalty_kind(penalty_settings, model), step
