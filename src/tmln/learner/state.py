"""A learner's state: the schema of a state file, and how a state is taken and restored.

Everything that a state file says is checked against this schema before anything is built or
imported: known keys, types and ranges, and sizes against the tensors that are in the file.
``VERSION`` goes up with every change of the format, and of a component's rule or defaults;
tests/golden keeps a fixture of each version, and a record of the schema.

- Version 1 (tmln 0.1 and 0.2): the recipe names settings that differ from the defaults of its time.
- Version 2: the recipe names every setting, so that a state does not depend on later defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator
from torch import Tensor

from tmln.data.images import Fit
from tmln.distributed.sharding import load_model_weights, reshard_model
from tmln.learner.checkpoint import NewerFormat
from tmln.learner.forward import Precision
from tmln.learner.heads import MAX_UNNAMED, fit_head
from tmln.learner.loop import TaskPosition
from tmln.learner.task_data import MOST_VALUES, check_transforms
from tmln.lr_schedule import ScheduleName
from tmln.methods import copy_state, get_reference_weight
from tmln.methods.recipes import FAMILIES, Recipe
from tmln.methods.replay.disk_files import read_note
from tmln.streams.arrays import as_samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

VERSION = 2

# Defaults that changed after version 1: settings that a state of version 1 has to name.
CHANGED_DEFAULTS = {("replay", "der++"): ("alpha", "beta")}

Count = Annotated[int, Field(ge=0, le=2**53)]
Text = Annotated[str, Field(max_length=100_000)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Schema(BaseModel):
    """A component of a state file: known keys of exact types, nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class ChoiceState(Schema):
    """A component by name, and its settings."""

    name: Text
    settings: dict[str, Any]


if TYPE_CHECKING:
    _Families = Schema
else:  # a field for every family; states from before a family came have none of it
    _Families = create_model("_Families", __base__=Schema, **dict.fromkeys(FAMILIES, (ChoiceState | None, None)))


class RecipeState(_Families):
    """What the method is, as :meth:`tmln.methods.recipes.Recipe.to_dict` writes it."""

    joint: bool = False
    independent: bool = False
    about: Text = ""


class OptionsState(Schema):
    """Arguments of the learner that a file carries; never the name of a component."""

    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    batch_size: Annotated[int, Field(ge=1, le=2**53)]
    seed: int
    logit_mask: Literal["none", "seen"] = "none"
    compile: bool = False
    micro_batch: Annotated[int, Field(ge=1, le=2**53)] | None = None
    schedule: ScheduleName = "constant"
    warmup: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    head: Text | None = None
    keep: Count = 1
    precision: Precision = "32"
    batch_statistics: Literal["global", "rank"] = "global"
    heads: tuple[tuple[Count, ...], ...] = ()


class PlaceState(Schema):
    """Where in a task a learner is."""

    known: tuple[Count, ...]
    order: Tensor
    epoch: Count = 0
    step: Count = 0

    @field_validator("order")
    @classmethod
    def _check_generator(cls, value: Tensor) -> Tensor:
        return check_generator(value)


class IntakeState(Schema):
    """Shape and dtype of a stored sample, and what the transforms make of an artificial one."""

    shape: list[Count]
    dtype: Literal["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
    fit: Fit = "crop"  # of pictures; older states do not say, and cropped
    prepare: Tensor | None = None
    augment: Tensor | None = None

    @field_validator("shape")
    @classmethod
    def _check_size(cls, value: list[int]) -> list[int]:
        if math.prod(value) > MOST_VALUES:
            raise ValueError(f"a sample of {math.prod(value):,} values, more than the {MOST_VALUES:,} that are read")
        return value


class ScaleState(Schema):
    """The loss scale of ``precision="16-mixed"``."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    calm: Count


class LearnerState(Schema):
    """All that the rest of a run depends on but the data."""

    version: Annotated[int, Field(ge=1)] = 1
    model: dict[str, Any]
    parts: dict[str, dict[str, Any]]
    generators: Annotated[list[Tensor], Field(min_length=3, max_length=3)]
    tasks: Count
    classes: list[Count]
    names: list[Text] = []
    earlier: list[Any] | None = None  # which held-out samples were right; a file from before has accuracies
    intake: IntakeState | None = None
    place: PlaceState | None = None
    initial: dict[str, Any] | None = None
    scale: ScaleState | None = None

    @field_validator("parts", mode="before")
    @classmethod
    def _name_families(cls, value: Any) -> Any:
        """Version 0.1 wrote a list: replay, penalty, step."""
        return dict(zip(("replay", "penalty", "step"), value, strict=True)) if isinstance(value, list) else value

    @field_validator("earlier")
    @classmethod
    def _check_earlier(cls, value: list[Any] | None) -> list[Any] | None:
        """Drop accuracies that an earlier tmln wrote: they do not say which samples were right."""
        if value is not None and any(isinstance(one, Mapping) for one in value):
            return None
        if not all(one is None or (isinstance(one, Tensor) and one.dtype == torch.bool) for one in value or ()):
            raise ValueError("earlier: which samples were right, a tensor of bool for each task")
        return value

    @field_validator("generators")
    @classmethod
    def _check_generators(cls, value: list[Tensor]) -> list[Tensor]:
        return [check_generator(one) for one in value]

    @field_validator("model", "initial")
    @classmethod
    def _check_tensors(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for name, tensor in (value or {}).items():
            if not isinstance(tensor, Tensor) and not name.endswith("_extra_state"):
                raise ValueError(f"{name} is a {type(tensor).__name__}, not a tensor")
        return value

    @model_validator(mode="after")
    def _check_sizes(self) -> LearnerState:
        """Compare numbers of classes with the model's tensors: memory grows with them."""
        largest = max((max(t.shape, default=0) for t in self.model.values() if isinstance(t, Tensor)), default=0)
        most = max(largest, MAX_UNNAMED)
        known = () if self.place is None else self.place.known
        if (count := max((len(self.names), *(c + 1 for c in (*self.classes, *known))))) > most:
            raise ValueError(f"{count:,} classes, but the model has room for {most:,} at most")
        if unknown := self.parts.keys() - set(FAMILIES):
            raise ValueError(f"parts: unknown family {min(unknown)!r}")
        if self.initial is not None and _shapes(self.initial) != _shapes(self.model):
            raise ValueError("initial: the first weights have other shapes than the model's")
        return self


class LessonState(Schema):
    """One task that was learned."""

    name: Text
    date: Text
    counts: dict[Count, Count]
    new: list[Count]
    accuracy: Share | None = None


class HeldState(Schema):
    """Samples that were held out of a task."""

    x: Tensor
    y: Tensor
    features: Tensor | None = None


class RecordState(Schema):
    """The tasks so far, what was held out of each, and the rows of the last retention table."""

    lessons: list[LessonState]
    held: list[HeldState | None]
    rows: list[Annotated[list[Any], Field(min_length=5, max_length=5)]]
    intervals: dict[Text, Annotated[list[Real], Field(min_length=2, max_length=2)]] = {}
    evidence: Tensor | None = None

    @model_validator(mode="after")
    def _check_lengths(self) -> RecordState:
        if len(self.held) != len(self.lessons):
            raise ValueError(f"{len(self.lessons)} tasks, but {len(self.held)} sets of held-out samples")
        for held in self.held:
            if held is not None and (held.y.dim() != 1 or held.y.dtype != torch.int64 or len(held.x) != len(held.y)):
                raise ValueError("held: samples and labels do not fit together")
            if held is not None and held.features is not None and held.features.shape[:1] != held.y.shape:
                raise ValueError("held: features and labels do not fit together")
        count_held = sum(len(held.y) for held in self.held if held is not None)
        if self.evidence is not None and (
            self.evidence.shape != (count_held,) or not self.evidence.is_floating_point()
        ):
            raise ValueError("evidence: there is to be a number for every held-out sample")
        for task, label, count, before, after in self.rows:
            shares = [share for share in (before, after) if share is not None]
            fits = isinstance(task, str) and isinstance(label, str) and type(count) is int
            if not fits or after is None or not all(type(share) is float and 0 <= share <= 1 for share in shares):
                raise ValueError("rows: a row is a task, a class, a count and two shares")
        return self


class EarlierState(Schema):
    """A state that ``undo()`` goes back to."""

    state: LearnerState
    record: RecordState | None = None


class StateFile(Schema):
    """What ``Learner.save`` writes. ``about`` is the user's own, and not interpreted here."""

    recipe: RecipeState
    options: OptionsState
    state: LearnerState
    record: RecordState | None = None
    previous: list[EarlierState] = []
    refused: EarlierState | None = None
    about: dict[str, Any] = {}


def check_file(
    saved: Mapping[str, Any], what: str = "the state", allow_code: bool = False, memory_path: str | None = None
) -> tuple[Recipe, StateFile]:
    """Check all that a state file says, and return its recipe and its content.

    Nothing is built or imported before. Components that are code are refused unless ``allow_code``;
    a folder for the memory is taken from ``memory_path``, or from the file if the samples of this
    state are there.
    """
    for one in (saved, *_dicts(saved.get("previous")), *_dicts([saved.get("refused")])):
        _check_version(one.get("state"), what)
    file = _validate(StateFile, saved, what)
    recipe = Recipe.from_dict(file.recipe.model_dump(exclude_none=True))
    if not allow_code:
        recipe.check_code()
    if file.state.version < VERSION:
        for (family, name), settings in CHANGED_DEFAULTS.items():
            choice = recipe.components[family]
            if choice.name == name and (open_ := [key for key in settings if key not in choice.settings]):
                raise ValueError(
                    f"{what} was saved by an earlier tmln, in which {family} {name!r} had other defaults for "
                    f"{' and '.join(open_)}: learn it again, or load it with the version that saved it"
                )
    if memory_path is not None:
        return recipe.with_setting("replay.path", memory_path), file
    _check_memory_folder(recipe, file.state, what)
    return recipe, file


def check_state(state: Mapping[str, Any], what: str = "the state") -> LearnerState:
    """Check the state of a learner, as :func:`take_state` gives it."""
    _check_version(state, what)
    found: LearnerState = _validate(LearnerState, state, what)
    return found


def full_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as a file holds it, every setting named: defaults may change later."""
    plain = recipe.to_dict()
    for family in FAMILIES:
        plain[family]["settings"] = {**recipe.resolve_settings(family), **plain[family]["settings"]}
    return plain


def check_generator(value: Tensor) -> Tensor:
    """Check that ``value`` is the state of a random generator on the CPU."""
    try:
        torch.Generator().set_state(value.cpu())
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"not the state of a random generator ({error})") from None
    return value


def _validate(schema: type[Any], content: Any, what: str) -> Any:
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(key)[:60] for key in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise ValueError(
            f"{what} is not a state that this tmln reads: {place}{': ' * bool(place)}{message}; "
            "save it again with this version, or load it with the version that saved it"
        ) from None


def _check_version(state: Any, what: str) -> None:
    version = state.get("version", 1) if isinstance(state, Mapping) else 1
    if type(version) is int and version > VERSION:
        raise NewerFormat(f"{what} has version {version}, this tmln reads up to version {VERSION}: upgrade tmln")


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _shapes(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in tensors.items()}


def _check_memory_folder(recipe: Recipe, state: LearnerState, what: str) -> None:
    """Refuse a folder for the memory that does not hold this state's samples."""
    from pathlib import Path

    path = recipe.replay.settings.get("path")
    if path is None:
        return
    if isinstance(path, str):
        memory = state.parts.get("replay", {}).get("memory")
        files = memory.get("files") if isinstance(memory, Mapping) else None
        if isinstance(files, Mapping) and isinstance(files.get("path"), str) and type(files.get("rows")) is int:
            named = Path(files["path"])
            for folder in (Path(path).absolute() / named.name, named):
                note = read_note(folder)
                if note is not None and note.holds(str(files.get("branch")), files["rows"]):
                    return
    raise ValueError(
        f"{what} names the folder {path!r} for its memory, where the samples of this state are not: put them there, or "
        "choose the folder yourself, Learner.load(..., memory_path=...)"
    )


def take_state(learner: Learner) -> dict[str, Any]:
    """Return all that the rest of a run depends on but the data."""
    trained, position = learner.trained, learner.position
    return {
        "version": VERSION,
        "model": dict(learner.model.state_dict()),
        "parts": {family: component.state_dict() for family, component in learner.components.items()},
        "generators": [position.order.get_state(), position.noise.get_state(), torch.get_rng_state()],
        "tasks": position.tasks,
        "classes": list(position.classes),
        "names": list(position.names),
        "earlier": learner.seen.earlier,
        "intake": learner.seen.transforms,
        "place": None if position.within is None else asdict(position.within),
        "initial": None if trained.first is None else dict(trained.first),
        **({} if trained.backward.scale is None else {"scale": trained.backward.scale.state_dict()}),
    }


def restore_state(learner: Learner, saved: Mapping[str, Any], history: Sequence[Any]) -> None:
    """Put a state in place; what cannot be is refused before anything changes."""
    state, trained, position, seen = check_state(saved), learner.trained, learner.position, learner.seen
    transforms = None if state.intake is None else state.intake.model_dump()
    if transforms is not None:
        check_transforms(transforms, learner.prepare, learner.augment)
    if learner.recipe.joint and len(history) != state.tasks:
        raise ValueError(f"'joint' learned {state.tasks} tasks; pass their data as history, got {len(history)}")
    for family, component in learner.components.items():
        if component.state_names and family not in state.parts:
            raise ValueError(f"the state has nothing of {family} {component.name!r}; it was made with other components")
        if missing := [name for name in component.state_names if name not in state.parts[family]]:
            raise ValueError(
                f"the state of {family} {component.name!r} has no {missing[0]!r}: it was saved by an earlier tmln; "
                "learn it again, or load it with the version that saved it"
            )
    fit_head(learner, state.model)
    reshard_model(learner.model)  # a pass that failed may have left layers gathered
    load_model_weights(learner.model, state.model)
    learner.meet(state.classes)  # before the components: a teacher copies the model with the classes that it has open
    for family, component in learner.components.items():
        if family in state.parts:
            component.load_state_dict(state.parts[family])
    for generator, value in zip(
        (position.order, position.noise, torch.default_generator), state.generators, strict=True
    ):
        generator.set_state(value.cpu())
    if trained.backward.scale is not None and state.scale is not None:
        trained.backward.scale.load_state_dict(state.scale.model_dump())
    trained.first, seen.transforms, seen.earlier = state.initial, transforms, state.earlier
    position.tasks, position.names = state.tasks, tuple(state.names)
    position.within = None if state.place is None else TaskPosition(**state.place.model_dump())
    seen.history = [as_samples(data, get_reference_weight(learner.model).dtype) for data in history]


@contextmanager
def restore_on_error(learner: Learner) -> Iterator[dict[str, Any]]:
    """Yield a copy of the learner's state; restore it if the block raises."""
    before = copy_state(take_state(learner), torch.device("cpu"))
    history, modes = learner.seen.history, [(module, module.training) for module in learner.model.modules()]
    try:
        yield before
    except BaseException:
        restore_state(learner, before, history)
        for module, mode in modes:
            module.training = mode
        raise
