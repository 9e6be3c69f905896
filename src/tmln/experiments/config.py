"""A run's configuration: benchmark, model, method and settings. Its hash is the run's identity."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from tmln.data.reading import DataError
from tmln.experiments.identity import canonical, run_name
from tmln.experiments.yaml_reader import read_value, read_yaml
from tmln.lr_schedule import Schedule, ScheduleName
from tmln.methods.recipes import RECIPES, Recipe, find_recipe
from tmln.methods.registry import FAMILIES, name_component
from tmln.models.registry import is_pretrained, model_options, one_line
from tmln.streams.benchmarks import BENCHMARKS, Benchmark, find_benchmark, parse_options, split_name
from tmln.streams.options import LOCATION_OPTIONS, OwnOptions, omit_later_defaults
from tmln.suggest import did_you_mean
from tmln.user_code import TRUSTED, code_allowed

__all__ = ["RunConfig", "canonical", "run_id"]


# Families that every run's name has. One that came later is in it where it is not the default, so
# that earlier runs keep their names.
NAMED = ("replay", "penalty", "step")

LONGEST_NAME = 60  # characters of a row's name

if TYPE_CHECKING:
    _Families = BaseModel
else:  # a field for every family
    _Families = create_model("_Families", **dict.fromkeys(FAMILIES, (str | None, None)))


class RunConfig(_Families):
    """The configuration of one run; None stands for the benchmark's or the recipe's own value.

    >>> config = RunConfig(benchmark="split-digits", method="tmln", settings={"step.damping": 0.2})
    >>> config.resolved()["epochs"]
    10
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    benchmark: str
    benchmark_options: dict[str, Any] = Field(default_factory=dict)
    model: str | None = None
    model_options: dict[str, Any] = Field(default_factory=dict)
    method: str = "tmln"
    settings: dict[str, Any] = Field(default_factory=dict)
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    logit_mask: Literal["none", "seen"] = "none"
    merged: bool = False  # all tasks learned at once, as one
    compile: bool = False  # torch.compile the model's training pass; other rounding, so another run
    schedule: ScheduleName = "constant"  # of the rate within a task
    warmup: float = 0.0  # steps, or a share of the task's, in which the rate rises
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32"  # of training passes
    batch_statistics: Literal["global", "rank"] = "global"  # by which batch norm normalises where several ranks learn
    train_accuracy: bool = False  # test on the training data, too, when all is learned
    test_then_train: bool = False  # test on each batch of a task's first epoch before it is trained on
    name: str | None = None  # of its row in tables, instead of the method's; computes nothing else

    @field_validator("settings", mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        """Read ``step: {damping: 0.2}`` as ``step.damping: 0.2``."""
        if not isinstance(value, Mapping):
            return value
        flat: dict[str, Any] = {}
        for key, item in value.items():
            nested = isinstance(item, Mapping) and key in FAMILIES
            flat.update({f"{key}.{name}": inner for name, inner in item.items()} if nested else {key: item})
        return {key: name_component(item) for key, item in flat.items()}

    @field_validator("precision", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return "32" if value == 32 and not isinstance(value, bool) else value  # as YAML reads it

    @field_validator(*FAMILIES, mode="before")
    @classmethod
    def _name_class(cls, value: Any) -> Any:
        return name_component(value)

    @field_validator("name", mode="before")
    @classmethod
    def _check_row_name(cls, value: Any) -> Any:
        return None if value is None else check_row_name(str(value))

    @field_validator("warmup")
    @classmethod
    def _share_or_steps(cls, value: float) -> float:
        return Schedule(warmup=value).warmup

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunConfig:
        """Return a checked configuration of plain values; an error is one line."""
        try:
            config = cls(**{key: value for key, value in values.items() if key in cls.model_fields})
        except ValidationError as error:
            raise ValueError(one_line(error)) from None
        for key in values.keys() - cls.model_fields.keys():
            raise ValueError(f"unknown setting {key!r}{config._hint(str(key))} (known: {', '.join(cls.model_fields)})")
        config.resolved()
        return config

    def with_setting(self, key: str, value: Any) -> RunConfig:
        """Return a changed copy.

        Keys are ``epochs``, ``step.damping``, ``benchmark.tasks``, and so on.

        Text, as from a command line, is read as YAML.
        """
        try:
            return self._with({key: _read(value)})
        except ValueError as error:
            if not isinstance(value, str):
                raise
            try:
                return self._with({key: value})  # a folder can be called 2024
            except ValueError:
                raise error from None

    def with_settings(self, changes: Mapping[str, Any]) -> RunConfig:
        """Return a copy with several changes, in any order.

        ``penalty`` is applied before ``penalty.strength``, a wrapped component before its settings.
        """
        ordered = sorted(changes, key=lambda key: key.count("."))
        whole = None
        if len(ordered) > 1:  # checked once; if that is an error, one by one, for what may be read in two ways
            try:
                return self._with({key: _read(changes[key]) for key in ordered})
            except ValueError as error:
                whole = error
        config = self
        try:
            for key in ordered:
                config = config.with_setting(key, changes[key])
        except DataError as error:  # own data that some of the settings are not enough for
            raise (whole or error) from None
        return config

    def _with(self, changes: Mapping[str, Any]) -> RunConfig:
        values = self.model_dump()
        for key, value in changes.items():
            self._put(values, key, value)
        return RunConfig.of(values)

    def _put(self, values: dict[str, Any], key: str, value: Any) -> None:
        direct = [name for name in values if not name.endswith("options") and name not in ("settings", *FAMILIES)]
        direct += FAMILIES
        groups = ("benchmark", "model", *FAMILIES)
        group, _, name = key.partition(".")
        if key in direct:
            values[key] = value
        elif name and group in groups:
            inner, name = ("settings", key) if group in FAMILIES else (f"{group}_options", name)
            values[inner][name] = value
        else:
            raise ValueError(
                f"unknown setting {key!r}{self._hint(key)} "
                f"(settings: {', '.join(direct)}; and {', '.join(f'{group}.NAME' for group in groups)})"
            )

    def _hint(self, key: str) -> str:
        """Return which setting an unknown one may mean.

        ``size`` is ``benchmark.size`` if there is one.
        """
        full, options = self.resolved(), find_benchmark(self.benchmark).options.model_fields
        dotted = [f"benchmark.{name}" for name in options]
        dotted += [*(f"model.{name}" for name in full["model_options"]), *full["settings"]]
        meant = next((known for known in dotted if known.partition(".")[2] == key), None)
        elsewhere = [name for name, row in BENCHMARKS.items() if key in row.options.model_fields]
        if elsewhere and not meant:
            return f"; that is an option of {', '.join(elsewhere)}; {self.benchmark} has {', '.join(options)}"
        return f"; did you mean {meant!r}?" if meant else did_you_mean(key, [*type(self).model_fields, *dotted])

    def recipe(self) -> Recipe:
        """Return the method's recipe with the components and settings of this configuration."""
        recipe = find_recipe(self.method)
        for family in FAMILIES:
            name = getattr(self, family)
            recipe = recipe if name is None else recipe.with_component(family, name)
        return recipe.with_settings(self.settings)

    def lacks(self, key: str) -> str:
        """Return which component lacks a setting like ``replay.capacity``; empty if none does."""
        family, _, name = key.partition(".")
        if family not in FAMILIES or not name:
            return ""
        component, settings = self.recipe().resolve(family)
        return "" if name in component.setting_fields(settings) else f"{family} {component.name!r} has no {name}"

    def resolved(self) -> dict[str, Any]:
        """Return every setting as plain values under sorted keys, defaults included.

        A RunConfig again if read as one.
        """
        allowed = (
            code_allowed(),
            os.environ.get(TRUSTED, ""),
        )  # the settings of user components depend on it
        if allowed not in self._complete:
            self._complete[allowed] = self._resolve()
        return {key: _sort_keys(value) for key, value in self._complete[allowed].items()}  # a copy

    @cached_property
    def _complete(self) -> dict[tuple[bool, str], dict[str, Any]]:
        """Resolved configurations by whether code is allowed.

        Hundreds of runs ask thousands of times.
        """
        return {}

    def model_copy(self, **how: Any) -> RunConfig:
        """Copy as pydantic does, without the original's cached values."""
        copied = super().model_copy(**how)
        vars(copied).pop("_complete", None)
        return copied

    def _resolve(self) -> dict[str, Any]:
        row, recipe = find_benchmark(self.benchmark), self.recipe()
        model = self.model or row.model
        components, settings = _spell_components(recipe, find_recipe(self.method))
        complete = {
            "benchmark": split_name(self.benchmark)[0],
            "benchmark_options": self._benchmark_options(row),
            "model": model,
            "model_options": self._model_options(model, components["step"]),
            "method": self.method,
            **components,
            "settings": settings,
            "epochs": self.epochs or row.epochs,
            "batch_size": self.batch_size or row.batch_size,
            "lr": self.lr or row.lr,
            "seed": self.seed,
            "logit_mask": self.logit_mask,
            "merged": self.merged,
            "compile": self.compile,
            # runs without these keep the names they had
            **({"schedule": self.schedule} if self.schedule != "constant" else {}),
            **({"warmup": self.warmup} if self.warmup else {}),
            **({"precision": self.precision} if self.precision != "32" else {}),
            **({"batch_statistics": self.batch_statistics} if self.batch_statistics != "global" else {}),
            **({"train_accuracy": True} if self.train_accuracy else {}),
            **({"test_then_train": True} if self.test_then_train else {}),
            **({"name": self.name} if self.name else {}),
        }
        return {key: _sort_keys(complete[key]) for key in sorted(complete)}

    def _model_options(self, model: str, step: str) -> dict[str, Any]:
        """Return the model's options, with how batch norm is treated where weights are pre-trained.

        Runs in which a backbone of ours is not trained have the names of before there was a choice.
        """
        options = model_options(model, self.model_options)
        if is_pretrained(model, options) and (":" in model or step != "frozen"):
            options.setdefault("frozen_norms", True)
        return options

    def _benchmark_options(self, row: Benchmark) -> dict[str, Any]:
        parsed = parse_options(self.benchmark, self.benchmark_options)
        if isinstance(parsed, OwnOptions) and not parsed.fingerprint:
            from tmln.streams.own_benchmark import fingerprint_of

            parsed = parsed.model_copy(update={"fingerprint": fingerprint_of(parsed)})
        options = parsed.model_dump(exclude=set(LOCATION_OPTIONS))
        options["tasks"] = options["tasks"] or len(options.get("task_classes") or ()) or row.tasks
        if row.options.model_fields["augment"].default == "auto" and options["augment"] == row.augment:
            options["augment"] = "auto"
        options = omit_later_defaults(row.options, options)
        order = options.get("class_order")
        if isinstance(order, str) and "," in order:
            options["class_order"] = [int(label) if label.strip().isdigit() else label for label in order.split(",")]
        return options

    def to_yaml(self) -> str:
        """Return the resolved configuration as YAML, which :meth:`from_yaml` reads."""
        return yaml.safe_dump(self.resolved(), allow_unicode=True)

    @classmethod
    def from_yaml(cls, text: str) -> RunConfig:
        """Read a configuration; settings may be nested or dotted: ``step.damping: 0.2``."""
        values = read_yaml(text)
        if not isinstance(values, dict):
            raise ValueError(f"a configuration is a YAML mapping such as 'benchmark: split-digits', not {values!r}")
        dotted = {key: value for key, value in values.items() if "." in str(key)}
        return cls.of({key: value for key, value in values.items() if key not in dotted}).with_settings(dotted)


def run_id(config: RunConfig) -> str:
    """Return a run's name: benchmark, method, seed, and 16 digits of a hash."""
    return run_name(config.resolved())


def check_row_name(name: str) -> str:
    """Return the name of a row, if it is one line that a table can show."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable() or "," in name:
        raise ValueError(f"a row's name is 1 to {LONGEST_NAME} printable characters without a comma, not {name!r}")
    if name in RECIPES:
        raise ValueError(f"{name!r} is a method of its own (tmln list methods): choose another name for the row")
    return name.strip()


def _spell_components(recipe: Recipe, method: Recipe) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the components of a run and all their settings, as its name has them.

    A family or setting that was added later (``"later"`` in a field's json_schema_extra) is left
    out where it has its default, so that earlier runs keep their names; but not where the method
    has another value, which would be restored.
    """
    components: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for family, choice in recipe.components.items():
        values, usual, own = recipe.resolve_settings(family), FAMILIES.default(family), method.components[family]
        plain = choice.name == own.name == usual and values == Recipe().resolve_settings(family)
        if family in NAMED or not plain:
            components[family] = choice.name
            left_out = recipe.later_defaults(family) - own.settings.keys()
            settings.update({f"{family}.{name}": value for name, value in values.items() if name not in left_out})
    return components, settings


def _read(value: Any) -> Any:
    return read_value(value) if isinstance(value, str) else value


def _sort_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sort_keys(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [_sort_keys(item) for item in value]
    return str(value.expanduser().resolve()) if isinstance(value, Path) else value
