"""Recipes: every named method as one component of each family, with its settings.

Methods of your own are registered by :func:`register`, or by an installed package's entry points of
the group ``tmln.methods``: ``mine = "my_package:RECIPE"``, a recipe or a function that returns one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tmln.methods.registry import FAMILIES, INNER, Guide, name_component
from tmln.seeds import seed_of
from tmln.suggest import did_you_mean
from tmln.user_code import check_code, is_code, is_foreign, trust_code

if TYPE_CHECKING:  # the table of methods is read without torch
    from tmln.methods import Component, MemoryTerm

__all__ = ["FAMILIES", "RECIPES", "ComponentSpec", "Recipe", "find_recipe", "make_components", "register"]


@dataclass(frozen=True)
class ComponentSpec:
    """A component by name, and the settings that differ from its defaults.

    A class may be given for the name.
    """

    name: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", name_component(self.name))


@dataclass(frozen=True, init=False)
class Recipe:
    """A method: one component of every family.

    >>> recipe = Recipe(replay=ComponentSpec("er"), about="experience replay")
    >>> recipe.replay.name, recipe.penalty.name, recipe.step.name
    ('er', 'none', 'sgd')

    Attributes:
        components: The component of every family; a family that is not named has its default.
        joint: Every task begins at the initial weights, on all data so far.
        independent: Every task begins at the initial weights, on its own data alone.
        about: One line for ``tmln list methods``.
        guide: Documentation, for methods that their components do not explain; not part of the
            method's identity.
    """

    components: Mapping[str, ComponentSpec]
    joint: bool = False
    independent: bool = False
    about: str = ""
    guide: Guide | None = field(default=None, compare=False)

    def __init__(
        self,
        *,
        components: Mapping[str, ComponentSpec] | None = None,
        joint: bool = False,
        independent: bool = False,
        about: str = "",
        guide: Guide | None = None,
        **by_family: ComponentSpec,
    ) -> None:
        for name in by_family:
            if name not in FAMILIES:
                raise TypeError(
                    f"a recipe has no {name!r}{did_you_mean(name, FAMILIES)} (components: {', '.join(FAMILIES)})"
                )
        defaults = {name: ComponentSpec(FAMILIES.default(name)) for name in FAMILIES}
        values = {"components": {**defaults, **(components or {}), **by_family}, "joint": joint}
        for name, value in {**values, "independent": independent, "about": about, "guide": guide}.items():
            object.__setattr__(self, name, value)

    @property
    def restarts_each_task(self) -> bool:
        """Whether every task begins at the initial weights, not at those of the task before."""
        return self.joint or self.independent

    def __getattr__(self, name: str) -> ComponentSpec:
        if name in FAMILIES and "components" in vars(self):
            return self.components[name]
        raise AttributeError(f"a recipe has no {name!r}")

    def describe(self) -> str:
        """Return the method's name, or the components that are not the default.

        >>> RECIPES["er+"].describe(), Recipe(step=ComponentSpec("tmln")).describe()
        ("method='er+'", "step='tmln'")
        """
        same = (name for name, row in RECIPES.items() if row.to_dict() | {"about": self.about} == self.to_dict())
        if (name := next(same, None)) is not None:
            return f"method={name!r}"
        own = {f: spec.name for f, spec in self.components.items() if spec.name != FAMILIES.default(f)}
        return ", ".join(f"{family}={name!r}" for family, name in own.items()) or "no components"

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Recipe:
        """Return a recipe from the result of :meth:`to_dict`.

        A family that is missing has its default.
        """
        return cls(**{**plain, **{family: ComponentSpec(**plain[family]) for family in FAMILIES if family in plain}})

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, to be saved."""
        by_family = {f: {"name": spec.name, "settings": dict(spec.settings)} for f, spec in self.components.items()}
        return {**by_family, "joint": self.joint, "independent": self.independent, "about": self.about}

    def resolve(self, family: str) -> tuple[type[Component[Any]], Any]:
        """Return the class and the validated settings of a component.

        The user's code is imported.
        """
        from tmln.methods import read_settings

        kind = FAMILIES[family].find(self.components[family].name)
        return kind, read_settings(kind, self.components[family].settings)

    def resolve_settings(self, family: str) -> dict[str, Any]:
        """Return all settings of a component.

        Of code that is not allowed to be imported, those given.
        """
        spec = self.components[family]
        if is_foreign(spec.name):
            return dict(spec.settings)
        found: dict[str, Any] = self.resolve(family)[1].model_dump()
        return found

    def later_defaults(self, family: str) -> set[str]:
        """Return the settings at their default that were added after runs of the component existed.

        They are left out of a run's hash, so that old runs keep their names.
        """
        spec = self.components[family]
        if is_foreign(spec.name):
            return set()
        kind, settings = self.resolve(family)
        values = settings.model_dump()
        if any(is_foreign(str(value)) for name, value in values.items() if _names_inner(name)):
            return set()
        return {
            name
            for name, about in kind.setting_fields(settings).items()
            if isinstance(about.json_schema_extra, dict)
            and about.json_schema_extra.get("later")
            and values.get(name) == about.default
        }

    def with_component(self, family: str, component: str | type[Component[Any]]) -> Recipe:
        """Return the recipe with another component at its defaults.

        The same component keeps its settings.
        """
        name: str = name_component(component)
        if name == self.components[family].name:
            return self
        if not is_code(name):
            FAMILIES[family].find(name)
        return replace(self, components={**self.components, family: ComponentSpec(name)}, guide=None)

    def with_setting(self, key: str, value: Any) -> Recipe:
        """Return the recipe with a setting such as ``step.damping``.

        A new inner component drops the settings of the old one.
        """
        family, _, setting = key.partition(".")
        if family not in FAMILIES or not setting:
            raise ValueError(
                f"unknown setting {key!r}{did_you_mean(family, FAMILIES)} "
                f"(write {' or '.join(f'{family}.NAME' for family in FAMILIES)})"
            )
        spec = self.components[family]
        kept, value = dict(spec.settings), name_component(value)
        if _names_inner(setting) and value != self.resolve_settings(family).get(setting):
            kept = {name: old for name, old in kept.items() if not name.startswith(f"{setting}.")}
        components = {**self.components, family: ComponentSpec(spec.name, {**kept, setting: value})}
        changed = replace(self, components=components, guide=None)
        if not is_code(spec.name):
            changed.resolve(family)
        return changed

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """Return the recipe with several settings, given in any order."""
        recipe = self  # an inner component comes before its settings
        for key in sorted(settings, key=lambda key: key.count(".")):
            recipe = recipe.with_setting(key, settings[key])
        return recipe

    def check_code(self) -> None:
        """Raise an error if a component, or one within it, is code that is not allowed."""
        for family, spec in self.components.items():
            check_code(family, spec.name)
            for setting, value in spec.settings.items():
                if _names_inner(setting):
                    check_code(family, str(value))

    def memory_terms(self, half: bool = False) -> list[MemoryTerm] | None:
        """Return the memory held in the middle of a task after the first.

        None if a component does not say.

        Path integrals take another N from their 1024th step in a task on, for the sum of the steps
        before.

        Args:
            half: The weights are in half precision.
        """
        from tmln.methods import MemoryConditions

        found: list[MemoryTerm] = []
        conditions = MemoryConditions(bool(self.resolve("penalty")[0].modifies_gradient), half)
        for family in FAMILIES:
            kind, settings = self.resolve(family)
            terms = kind.memory_terms(settings, conditions)
            if terms is None:
                return None
            found += [replace(term, name=f"{family}.{term.name}") for term in terms]
        return found


def _names_inner(setting: str) -> bool:
    return setting.split(".")[-1] == INNER


_MOMENTUM = ComponentSpec("sgd", {"momentum": 0.9})
_PLAIN = ComponentSpec("sgd")
_SHARP = ComponentSpec("sam", {"inner.momentum": 0.9})
_ER = ComponentSpec("er")
_EXACT = {"proximal": True}
_BALANCED = ComponentSpec("er", {"balance": 1.0})
_DARK = ComponentSpec("der++", {"balance": 1.0, "fill": "end", "alpha": 0.1, "beta": 1.0})
_AVERAGE = ComponentSpec("average")
_ADAMW = ComponentSpec("adamw")
_FACTORED = ComponentSpec("tmln", {"geometry": "kfac", "factors": "running"})

BUILT_IN: dict[str, Recipe] = {
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
    # With explicit steps these penalties diverge: ewc++ at the paper's strength, the others once
    # their importances have added up over the tasks.
    "ewc++": Recipe(
        penalty=ComponentSpec("ewc++", _EXACT), step=_PLAIN, about="a running Fisher penalty, its step exact"
    ),
    "rwalk": Recipe(
        replay=_ER,
        penalty=ComponentSpec("rwalk"),
        step=_PLAIN,
        about="Riemannian walk: Fisher and path penalty, with replay",
    ),
    "upgd": Recipe(step=ComponentSpec("upgd"), about="noise and gradient gated by utility"),
    "ocar": Recipe(
        replay=_ER, step=ComponentSpec("ocar"), about="K-FAC natural gradient on current and replayed samples"
    ),
    "tmln": Recipe(replay=_ER, step=ComponentSpec("tmln"), about="gradient / (F + lambda + gamma*S-bar), with replay"),
    "tmln-static": Recipe(replay=_ER, step=ComponentSpec("tmln", {"trajectory": 0.0}), about="TMLN without S-bar"),
    "tmln-euclidean": Recipe(replay=_ER, step=ComponentSpec("tmln", {"geometry": "euclidean"}), about="TMLN without F"),
    "der++": Recipe(replay=ComponentSpec("der++"), step=_MOMENTUM, about="replay of logits and labels"),
    "er-ace": Recipe(replay=ComponentSpec("er-ace"), step=_MOMENTUM, about="replay with asymmetric cross entropy"),
    "ewc": Recipe(penalty=ComponentSpec("ewc", _EXACT), step=_PLAIN, about="online EWC: Fisher at task ends"),
    "si": Recipe(penalty=ComponentSpec("si", _EXACT), step=_PLAIN, about="synaptic intelligence: path penalty"),
    "mas": Recipe(penalty=ComponentSpec("mas", _EXACT), step=_PLAIN, about="memory-aware synapses: output sensitivity"),
    "lwf": Recipe(penalty=ComponentSpec("lwf"), step=_MOMENTUM, about="learning without forgetting: distillation"),
    "a-gem": Recipe(step=ComponentSpec("a-gem"), about="gradients that would hurt the memory are projected"),
    "gem": Recipe(step=ComponentSpec("gem"), about="gradients that would hurt an earlier task are projected"),
    "gdumb": Recipe(
        replay=ComponentSpec("er", {"selection": "greedy"}),
        step=ComponentSpec("retrain"),
        about="trained afresh on a class-balanced memory alone",
    ),
    "mir": Recipe(
        replay=ComponentSpec("mir", {"fill": "online"}),
        step=_MOMENTUM,
        about="replay of the samples whose loss the batch would raise most",
    ),
    "scr": Recipe(
        replay=ComponentSpec("scr"),
        step=_MOMENTUM,
        answer=ComponentSpec("ncm"),
        about="supervised contrastive replay, nearest class mean",
    ),
    "x-der": Recipe(
        replay=ComponentSpec("x-der", {"selection": "class-balanced"}),
        step=_MOMENTUM,
        about="DER++ with a cross entropy for each task, stored logits kept up to date",
    ),
    "bic": Recipe(
        replay=ComponentSpec("distill", {"loss": "softmax"}),
        step=_MOMENTUM,
        weights=ComponentSpec("bias-corrected"),
        about="replay and distillation, new classes' logits corrected by two numbers",
    ),
    "lucir": Recipe(
        replay=ComponentSpec("lucir", {"selection": "herding"}),
        step=_MOMENTUM,
        answer=ComponentSpec("cosine"),
        about="a cosine classifier, features near the teacher's, a margin for replayed samples",
    ),
    "sam": Recipe(step=_SHARP, about="SGD with momentum on the gradient of the worst place near by"),
    "er+sam": Recipe(replay=_ER, step=_SHARP, about="sharpness-aware steps under experience replay"),
    "tmln+der++": Recipe(
        replay=ComponentSpec("der++"), step=ComponentSpec("tmln"), about="the TMLN step under DER++ replay"
    ),
    "tmln+er-ace": Recipe(
        replay=ComponentSpec("er-ace"), step=ComponentSpec("tmln"), about="the TMLN step under ER-ACE replay"
    ),
    "tmln+": Recipe(
        replay=_BALANCED, step=ComponentSpec("tmln"), weights=_AVERAGE, about="TMLN, replay balanced, weights averaged"
    ),
    "icarl": Recipe(
        replay=ComponentSpec("distill", {"selection": "herding"}),
        step=_MOMENTUM,
        answer=ComponentSpec("ncm"),
        about="iCaRL: herded memory, sigmoid distillation, nearest class mean",
    ),
    "wa": Recipe(
        replay=ComponentSpec("distill", {"loss": "softmax"}),
        step=_MOMENTUM,
        weights=ComponentSpec("aligned"),
        about="weight aligning: replay and distillation, new classes' rows scaled at task ends",
    ),
    "cls-er": Recipe(
        replay=ComponentSpec("er", {"fill": "every-epoch"}),
        penalty=ComponentSpec(
            "consistency", {"plastic_decay": 0.9, "stable_decay": 0.97}
        ),  # for tasks of some hundred steps
        step=_MOMENTUM,
        weights=ComponentSpec("stable"),
        about="two averages of the weights teach replayed samples; the slow one answers",
    ),
    "er+": Recipe(replay=_BALANCED, step=_MOMENTUM, weights=_AVERAGE, about="ER, balanced, averaged"),
    "tmln+der": Recipe(
        replay=_DARK,
        step=ComponentSpec("tmln"),
        weights=_AVERAGE,
        about="TMLN, DER++ stored at task ends, balanced, averaged",
    ),
    "tmln-kfac": Recipe(replay=_ER, step=_FACTORED, about="TMLN's shield on K-FAC, with replay"),
    "tmln-kfac+": Recipe(
        replay=_BALANCED, step=_FACTORED, weights=_AVERAGE, about="TMLN's shield on K-FAC, balanced, averaged"
    ),
    "tmln-kfac+der": Recipe(
        replay=_DARK, step=_FACTORED, weights=_AVERAGE, about="TMLN's shield on K-FAC, DER++ as in tmln+der"
    ),
    "ocar+": Recipe(replay=_BALANCED, step=ComponentSpec("ocar"), weights=_AVERAGE, about="OCAR, balanced, averaged"),
    "ocar+der": Recipe(replay=_DARK, step=ComponentSpec("ocar"), weights=_AVERAGE, about="OCAR, DER++ as in tmln+der"),
    "der+": Recipe(
        replay=_DARK, step=_MOMENTUM, weights=_AVERAGE, about="DER++ stored at task ends, balanced, averaged"
    ),
    "adamw": Recipe(step=_ADAMW, about="AdamW, nothing against forgetting"),
    "tmln-adam": Recipe(
        replay=_ER, step=ComponentSpec("tmln", {"base": "adam"}), about="TMLN's shield on Adam's direction, with replay"
    ),
    "mofo": Recipe(step=ComponentSpec("mofo"), about="Adam, of which only the weights with the largest momentum move"),
    "fopng": Recipe(
        step=ComponentSpec("fopng"), about="natural gradients, Fisher-orthogonal to those of earlier tasks"
    ),
    "er+adamw": Recipe(replay=_ER, step=_ADAMW, about="experience replay under AdamW"),
    "ncm-frozen": Recipe(
        step=ComponentSpec("frozen"),
        answer=ComponentSpec("stream-ncm"),
        about="a frozen backbone, nearest class mean over all samples",
    ),
    "slda": Recipe(
        step=ComponentSpec("frozen"),
        answer=ComponentSpec("slda"),
        about="a frozen backbone, exact linear discriminant analysis",
    ),
    "ranpac": Recipe(
        step=ComponentSpec("frozen"),
        answer=ComponentSpec("ranpac"),
        about="a frozen backbone, ridge regression on random features",
    ),
    "ranpac+": Recipe(
        step=ComponentSpec("first-session", {"inner.momentum": 0.9}),
        answer=ComponentSpec("ranpac"),
        about="ranpac on a backbone that the first task adapts",
    ),
    "slca": Recipe(
        step=ComponentSpec("slow-backbone", {"inner.momentum": 0.9}),
        weights=ComponentSpec("realigned"),
        about="a backbone at a hundredth of the rate, the head realigned with class Gaussians",
    ),
    "feature-replay": Recipe(
        replay=ComponentSpec("features"),
        step=ComponentSpec("slow-backbone", {"inner.momentum": 0.9}),
        about="features drawn from class Gaussians in place of samples, on a slow backbone",
    ),
}


class Recipes(MutableMapping[str, Recipe]):
    """All methods by name: those of tmln, of installed packages, and of this program.

    Entry points are listed when a name is not among tmln's own, and imported when they are used.
    """

    def __init__(self, own: dict[str, Recipe]) -> None:
        self._own = own
        self._installed: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Recipe:
        if name in self._own:
            return self._own[name]
        given = json.loads(os.environ.get(GIVEN, "{}"))  # of the program that started this process
        entry = self._entry_points().get(name)
        if name in given:
            self._own[name] = Recipe.from_dict(given[name])
        elif entry is not None:
            self._own[name] = _load_entry_point(name, entry)
        return self._own[name]

    def __setitem__(self, name: str, recipe: Recipe) -> None:
        self._own[name] = recipe

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._others()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *(name for name in self._others() if name not in self._own)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _others(self) -> list[str]:
        return [*json.loads(os.environ.get(GIVEN, "{}")), *self._entry_points()]

    def _entry_points(self) -> dict[str, Any]:
        if self._installed is None:
            from importlib.metadata import entry_points

            self._installed = {found.name: found for found in entry_points(group=ENTRY_POINTS)}
        return self._installed

    def find_installed_again(self) -> None:
        """Forget which packages were installed, after one was."""
        self._installed = None


ENTRY_POINTS = "tmln.methods"  # the group of installed packages' methods
GIVEN = "TMLN_METHODS"  # methods that the program registered, as JSON, for the processes that it starts
RECIPES = Recipes(dict(BUILT_IN))


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a method."""
    if name not in RECIPES:
        raise ValueError(f"unknown method {name!r}{did_you_mean(name, RECIPES)} (tmln list methods)")
    return RECIPES[name]


def register(
    name: str,
    recipe: Recipe | str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    about: str = "",
    guide: Guide | None = None,
    **components: str | type[Component[Any]],
) -> Recipe:
    """Register a method of your own under a name, and return its recipe.

    It then works wherever names of methods do, in this process and in the worker processes that it
    starts. An installed package registers methods for every program by an entry point instead.

    >>> mine = register("my-er", "er", settings={"replay.capacity": 50}, about="a small memory")
    >>> mine.replay.settings["capacity"], "my-er" in RECIPES
    (50, True)

    Args:
        name: The name, as in ``Learner(model, "my-er")`` and ``--method my-er``.
        recipe: What to begin with: a recipe, or the name of a method; else the defaults.
        settings: Settings such as ``{"step.momentum": 0.9}``.
        about: One line for ``tmln list methods``.
        guide: Documentation.
        **components: A component of any family, by name or as a class.

    Raises:
        ValueError: The name is tmln's or not a name, or a component or setting does not exist.
    """
    if not name or not name.isprintable() or any(sign in name for sign in " ,=:/"):
        raise ValueError(f"a method's name has no space and none of , = : /, not {name!r}")
    if name in BUILT_IN and name not in json.loads(os.environ.get(GIVEN, "{}")):
        raise ValueError(f"there is a method {name!r} already (tmln list methods); choose another name")
    found = Recipe() if recipe is None else find_recipe(recipe) if isinstance(recipe, str) else recipe
    for family, component in components.items():
        if family not in FAMILIES:
            raise TypeError(f"a method has no {family!r}{did_you_mean(family, FAMILIES)}")
        found = found.with_component(family, component)
    found = replace(found.with_settings(settings or {}), about=about or found.about, guide=guide)
    _check_registered(name, found)
    given = {**json.loads(os.environ.get(GIVEN, "{}")), name: found.to_dict()}
    os.environ[GIVEN] = json.dumps(given)
    RECIPES[name] = found
    return found


def _check_registered(name: str, recipe: Recipe) -> None:
    """Raise an error for a recipe that is a reference or whose components do not exist."""
    if recipe.restarts_each_task:
        raise ValueError(f"method {name!r} learns every task afresh, which only tmln's references do")
    for family, spec in recipe.components.items():
        for code in (spec.name, *(str(value) for key, value in spec.settings.items() if _names_inner(key))):
            if is_code(code):
                trust_code(code)
        recipe.resolve(family)


def _load_entry_point(name: str, entry: Any) -> Recipe:
    """Import an installed package's method: a recipe, or a function that returns one."""
    where = f"method {name!r} of the entry point {entry.value}"
    try:
        found = entry.load()
        found = found if isinstance(found, Recipe) or not callable(found) else found()
    except Exception as error:  # whatever a package of others may raise
        raise ValueError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Recipe):
        raise ValueError(f"{where} is no tmln.methods.recipes.Recipe but {type(found).__name__}")
    _check_registered(name, found)
    return found


def make_components(recipe: Recipe, model: Any, lr: float, seed: int) -> dict[str, Component[Any]]:
    """Build a component of every family, ready to train ``model``."""
    from tmln.methods import BuildContext

    made: dict[str, Component[Any]] = {}
    for family in FAMILIES:
        kind, settings = recipe.resolve(family)
        made[family] = kind.make(settings, BuildContext(model, lr, seed_of(seed, family), made))
    return made
