"""Every named method: a part of every family, with the numbers that differ from the parts' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tmln.methods.guide import Guide
from tmln.methods.registry import FAMILIES, INNER
from tmln.seeds import seed_of
from tmln.suggest import did_you_mean
from tmln.user_code import check_code, code_allowed, is_code

if TYPE_CHECKING:  # the table of methods is read without torch
    from tmln.methods import Component, MemoryTerm

__all__ = ["FAMILIES", "RECIPES", "Choice", "Recipe", "find_recipe", "make_parts"]


@dataclass(frozen=True)
class Choice:
    """A part by name, and the settings in which it differs from its defaults."""

    name: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, init=False)
class Recipe:
    """What makes a method: ``joint`` starts afresh at every task, on all data so far, ``independent`` on it alone.

    >>> recipe = Recipe(replay=Choice("er"), about="experience replay")
    >>> recipe.replay.name, recipe.penalty.name, recipe.step.name
    ('er', 'none', 'sgd')

    A family that is not named has its default. ``guide`` is for methods of which their parts do not tell all: it stands
    on the method's page in place of theirs, and is no part of what the method is.
    """

    chosen: Mapping[str, Choice]  # of every family
    joint: bool = False
    independent: bool = False
    about: str = ""
    guide: Guide | None = field(default=None, compare=False)

    def __init__(
        self,
        *,
        chosen: Mapping[str, Choice] | None = None,
        joint: bool = False,
        independent: bool = False,
        about: str = "",
        guide: Guide | None = None,
        **parts: Choice,
    ) -> None:
        for name in parts:
            if name not in FAMILIES:
                raise TypeError(
                    f"a recipe has no {name!r}{did_you_mean(name, FAMILIES)} (parts: {', '.join(FAMILIES)})"
                )
        usual = {name: Choice(FAMILIES.default(name)) for name in FAMILIES}
        values = {"chosen": {**usual, **(chosen or {}), **parts}, "joint": joint}
        for name, value in {**values, "independent": independent, "about": about, "guide": guide}.items():
            object.__setattr__(self, name, value)

    @property
    def afresh(self) -> bool:
        """Every task begins at the first weights, not at those of the task before."""
        return self.joint or self.independent

    def __getattr__(self, name: str) -> Choice:
        """``recipe.step`` and so on."""
        if name in FAMILIES and "chosen" in vars(self):
            return self.chosen[name]
        raise AttributeError(f"a recipe has no {name!r}")

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Recipe:
        """A recipe from the plain containers of :meth:`plain`; a family that was not there then has its default."""
        parts = {family: Choice(**plain[family]) for family in FAMILIES if family in plain}
        return cls(**{**plain, **parts})

    def plain(self) -> dict[str, Any]:
        """Plain containers, to be saved."""
        parts = {name: {"name": c.name, "settings": dict(c.settings)} for name, c in self.chosen.items()}
        return {**parts, **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("chosen", "guide")}}

    def part(self, family: str) -> tuple[type[Component[Any]], Any]:
        """The class of one part and its checked settings. Code of the user's is imported."""
        from tmln.methods import read_settings

        kind = FAMILIES[family].find(self.chosen[family].name)
        return kind, read_settings(kind, self.chosen[family].settings)

    def settings_of(self, family: str) -> dict[str, Any]:
        """All settings of a part, defaults included; of code that nobody has allowed, those given."""
        choice = self.chosen[family]
        if is_code(choice.name) and not code_allowed():
            return dict(choice.settings)
        found: dict[str, Any] = self.part(family)[1].model_dump()
        return found

    def neutral(self, family: str) -> set[str]:
        """Settings of a part that came later than runs of it, and have their default."""
        choice = self.chosen[family]
        if is_code(choice.name) and not code_allowed():
            return set()
        part, settings = self.part(family)
        values, found = settings.model_dump(), set()
        for name, about in part.fields(settings).items() if not _has_code(values) or code_allowed() else ():
            extra = about.json_schema_extra
            if isinstance(extra, dict) and extra.get("later") and values.get(name) == about.default:
                found.add(name)
        return found

    def with_part(self, family: str, name: str) -> Recipe:
        """Another part, with its default settings; the same one keeps the recipe's. Code is not looked at yet."""
        if name == self.chosen[family].name:
            return self
        if not is_code(name):
            FAMILIES[family].find(name)
        return replace(self, chosen={**self.chosen, family: Choice(name)}, guide=None)

    def with_setting(self, key: str, value: Any) -> Recipe:
        """``step.damping`` = 0.2 and the like. Another inner part drops the settings of the one before."""
        family, _, setting = key.partition(".")
        if family not in FAMILIES or not setting:
            raise ValueError(
                f"unknown setting {key!r}{did_you_mean(family, FAMILIES)} "
                f"(write {' or '.join(f'{family}.NAME' for family in FAMILIES)})"
            )
        choice = self.chosen[family]
        kept = dict(choice.settings)
        if setting.split(".")[-1] == INNER and value != self.settings_of(family).get(setting):
            kept = {name: old for name, old in kept.items() if not name.startswith(f"{setting}.")}
        chosen = {**self.chosen, family: Choice(choice.name, {**kept, setting: value})}
        changed = replace(self, chosen=chosen, guide=None)
        if not is_code(choice.name):
            changed.part(family)
        return changed

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """Several at once, in any order: an inner part comes before its settings."""
        recipe = self
        for key in sorted(settings, key=lambda key: key.count(".")):
            recipe = recipe.with_setting(key, settings[key])
        return recipe

    def check_code(self) -> None:
        """An error if a part, or one within it, is code that nobody has allowed."""
        for family, choice in self.chosen.items():
            check_code(family, choice.name)
            for setting, value in choice.settings.items():
                if setting.split(".")[-1] == INNER:
                    check_code(family, str(value))

    def memory_terms(self, half: bool = False) -> list[MemoryTerm] | None:
        """What the method holds in the middle of a task after the first; None where a part has not said.

        ``half``: of weights in half precision.
        Path integrals take another N from their 1024th step in a task on, for the sum of the steps before.
        """
        from tmln.methods import MemoryConditions

        found: list[MemoryTerm] = []
        beside = MemoryConditions(gradient_modified=bool(self.part("penalty")[0].modifies_gradient), half=half)
        for family in FAMILIES:
            part, settings = self.part(family)
            terms = part.memory_terms(settings, beside)
            if terms is None:
                return None
            found += [replace(term, name=f"{family}.{term.name}") for term in terms]
        return found


def _has_code(values: Mapping[str, Any]) -> bool:
    """Is a part within this one code?"""
    return any(name.split(".")[-1] == INNER and is_code(str(value)) for name, value in values.items())


_MOMENTUM = Choice("sgd", {"momentum": 0.9})
_PLAIN = Choice("sgd")
_SHARP = Choice("sam", {"inner.momentum": 0.9})
_ER = Choice("er")
_EXACT = {"proximal": True}
_BALANCED = Choice("er", {"balance": 1.0})
_DARK = Choice("der++", {"balance": 1.0, "fill": "end", "alpha": 0.1, "beta": 1.0})
_AVERAGE = Choice("average")
_ADAMW = Choice("adamw")
_FACTORED = Choice("tmln", {"geometry": "kfac", "factors": "running"})

RECIPES: dict[str, Recipe] = {
    "naive": Recipe(
        step=_MOMENTUM,
        about="SGD with momentum, nothing against forgetting",
        guide=Guide(
            equation=r"\theta_k = \mathrm{SGD}(\theta_{k-1}; \, D_k)",
            origin="",
            cost="Nothing but the momentum, a sum for every weight.",
            use="As the floor of every comparison; and where what was learned before may go.",
            avoid="Where it may not: under one head that new classes come to, the last task is all that is left.",
        ),
    ),
    "joint": Recipe(
        step=_MOMENTUM,
        joint=True,
        about="the oracle: afresh on all data so far, at every task",
        guide=Guide(
            equation=r"\theta_k = \mathrm{SGD}(\theta_0; \, D_1 \cup \dots \cup D_k)",
            origin="",
            cost="All data so far, kept and learned again at every task: of K tasks of one size (K + 1)/2 times the "
            "steps of `naive`.",
            use="Where all data may be kept and there is time to learn them again; and as the reference that the "
            "intransigence of others is measured from.",
            avoid="Where old data are gone, may not be stored, or are too many to be learned again at every task. It "
            "is no upper bound either: with few epochs others come out above it (docs/results.md).",
        ),
    ),
    "independent": Recipe(
        step=_MOMENTUM,
        independent=True,
        about="a reference: afresh at every task, on it alone",
        guide=Guide(
            equation=r"\theta_k = \mathrm{SGD}(\theta_0; \, D_k)",
            origin="",
            cost="As `naive`.",
            use="As a reference: what a task reaches that owes nothing to those before it.",
            avoid="As a method: its model knows the last task alone.",
        ),
    ),
    "er": Recipe(replay=_ER, step=_MOMENTUM, about="experience replay from a reservoir"),
    # Explicit steps overshoot the anchor and diverge: those of ewc++ at the paper's strength, those of importances that
    # add up over the tasks sooner or later.
    "ewc++": Recipe(penalty=Choice("ewc++", _EXACT), step=_PLAIN, about="a running Fisher penalty, its step exact"),
    "rwalk": Recipe(
        replay=_ER, penalty=Choice("rwalk"), step=_PLAIN, about="Riemannian walk: Fisher and path penalty, with replay"
    ),
    "upgd": Recipe(step=Choice("upgd"), about="noise and gradient gated by utility"),
    "ocar": Recipe(replay=_ER, step=Choice("ocar"), about="K-FAC natural gradient on current and replayed samples"),
    "tmln": Recipe(replay=_ER, step=Choice("tmln"), about="gradient / (F + lambda + gamma*S-bar), with replay"),
    "tmln-static": Recipe(replay=_ER, step=Choice("tmln", {"trajectory": 0.0}), about="TMLN without S-bar"),
    "tmln-euclidean": Recipe(replay=_ER, step=Choice("tmln", {"geometry": "euclidean"}), about="TMLN without F"),
    "der++": Recipe(replay=Choice("der++"), step=_MOMENTUM, about="replay of logits and labels"),
    "er-ace": Recipe(replay=Choice("er-ace"), step=_MOMENTUM, about="replay with asymmetric cross entropy"),
    "ewc": Recipe(penalty=Choice("ewc", _EXACT), step=_PLAIN, about="online EWC: Fisher at task ends"),
    "si": Recipe(penalty=Choice("si", _EXACT), step=_PLAIN, about="synaptic intelligence: path penalty"),
    "mas": Recipe(penalty=Choice("mas", _EXACT), step=_PLAIN, about="memory-aware synapses: output sensitivity"),
    "lwf": Recipe(penalty=Choice("lwf"), step=_MOMENTUM, about="learning without forgetting: distillation"),
    "a-gem": Recipe(step=Choice("a-gem"), about="gradients that would hurt the memory are projected"),
    "sam": Recipe(step=_SHARP, about="SGD with momentum on the gradient of the worst place near by"),
    "er+sam": Recipe(replay=_ER, step=_SHARP, about="sharpness-aware steps under experience replay"),
    "tmln+der++": Recipe(replay=Choice("der++"), step=Choice("tmln"), about="the TMLN step under DER++ replay"),
    "tmln+er-ace": Recipe(replay=Choice("er-ace"), step=Choice("tmln"), about="the TMLN step under ER-ACE replay"),
    "tmln+": Recipe(
        replay=_BALANCED, step=Choice("tmln"), weights=_AVERAGE, about="TMLN, replay balanced, weights averaged"
    ),
    "icarl": Recipe(
        replay=Choice("distill", {"selection": "herding"}),
        step=_MOMENTUM,
        answer=Choice("ncm"),
        about="iCaRL: herded memory, sigmoid distillation, nearest class mean",
    ),
    "wa": Recipe(
        replay=Choice("distill", {"loss": "softmax"}),
        step=_MOMENTUM,
        weights=Choice("aligned"),
        about="weight aligning: replay and distillation, new classes' rows scaled at task ends",
    ),
    "cls-er": Recipe(
        replay=Choice("er", {"fill": "every-epoch"}),
        penalty=Choice("consistency", {"plastic_decay": 0.9, "stable_decay": 0.97}),  # for tasks of some hundred steps
        step=_MOMENTUM,
        weights=Choice("stable"),
        about="two averages of the weights teach replayed samples; the slow one answers",
    ),
    "er+": Recipe(replay=_BALANCED, step=_MOMENTUM, weights=_AVERAGE, about="ER, balanced, averaged"),
    "tmln+der": Recipe(
        replay=_DARK, step=Choice("tmln"), weights=_AVERAGE, about="TMLN, DER++ stored at task ends, balanced, averaged"
    ),
    "tmln-kfac": Recipe(replay=_ER, step=_FACTORED, about="TMLN's shield on K-FAC, with replay"),
    "tmln-kfac+": Recipe(
        replay=_BALANCED, step=_FACTORED, weights=_AVERAGE, about="TMLN's shield on K-FAC, balanced, averaged"
    ),
    "tmln-kfac+der": Recipe(
        replay=_DARK, step=_FACTORED, weights=_AVERAGE, about="TMLN's shield on K-FAC, DER++ as in tmln+der"
    ),
    "ocar+": Recipe(replay=_BALANCED, step=Choice("ocar"), weights=_AVERAGE, about="OCAR, balanced, averaged"),
    "ocar+der": Recipe(replay=_DARK, step=Choice("ocar"), weights=_AVERAGE, about="OCAR, DER++ as in tmln+der"),
    "der+": Recipe(
        replay=_DARK, step=_MOMENTUM, weights=_AVERAGE, about="DER++ stored at task ends, balanced, averaged"
    ),
    "adamw": Recipe(step=_ADAMW, about="AdamW, nothing against forgetting"),
    "tmln-adam": Recipe(
        replay=_ER, step=Choice("tmln", {"base": "adam"}), about="TMLN's shield on Adam's direction, with replay"
    ),
    "mofo": Recipe(step=Choice("mofo"), about="Adam, of which only the weights with the largest momentum move"),
    "fopng": Recipe(step=Choice("fopng"), about="natural gradients, Fisher-orthogonal to those of earlier tasks"),
    "er+adamw": Recipe(replay=_ER, step=_ADAMW, about="experience replay under AdamW"),
}


def find_recipe(name: str) -> Recipe:
    """The method of this name."""
    if name not in RECIPES:
        raise ValueError(f"unknown method {name!r}{did_you_mean(name, RECIPES)} (tmln list methods)")
    return RECIPES[name]


def make_parts(recipe: Recipe, model: Any, lr: float, seed: int) -> dict[str, Component[Any]]:
    """A part of every family, ready to train ``model``."""
    from tmln.methods import BuildContext

    made: dict[str, Component[Any]] = {}
    for family in FAMILIES:
        kind, settings = recipe.part(family)
        made[family] = kind.make(settings, BuildContext(model, lr, seed_of(seed, family), made))
    return made
