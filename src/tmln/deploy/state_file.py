"""A state file that says how its model is built, so that its path suffices to open it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from tmln.learner import Learner
from tmln.learner.checkpoint import load_file, read_newest
from tmln.learner.heads import find_head
from tmln.learner.state import check_file
from tmln.learner.task_data import MOST_VALUES
from tmln.methods.fine_tuning import FineTuning, find_fine_tuning, set_fine_tuning
from tmln.models import make_model, spell_options
from tmln.models.custom import check_allowed
from tmln.models.registry import LIBRARIES
from tmln.streams.augment import Normalise
from tmln.suggest import did_you_mean
from tmln.user_code import code_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator


PARAMETERS = 4  # times as many as the file holds may be made on the way to a model, which may replace some

Finite = Annotated[float, Field(allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1, le=2**31)]


class ModelSpec(BaseModel):
    """How a model is built: name, options, inputs, first outputs, and normalisation."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: Annotated[str, Field(max_length=1000)]
    shape: tuple[Size, ...]
    outputs: Size
    options: dict[str, Any] = {}
    mean: tuple[Finite, ...] = (0.0,)
    std: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = (1.0,)
    freeze: bool = False  # train the head alone
    head: str | None = None  # its name, where the user gave it

    @model_validator(mode="after")
    def _check_sizes(self) -> ModelSpec:
        if math.prod(self.shape) > MOST_VALUES:
            raise ValueError(f"inputs of {math.prod(self.shape):,} values, more than the {MOST_VALUES:,} that are read")
        channels = self.shape[0] if self.shape else 1
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, channels):
            raise ValueError(f"mean and std of {len(self.mean)} and {len(self.std)} channels, inputs of {channels}")
        return self

    @classmethod
    def read(cls, about: Mapping[str, Any], path: str | Path) -> ModelSpec:
        """Read it from a state file's ``about``; other keys there are the user's own."""
        known = {name: about[name] for name in cls.model_fields if name in about}
        tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
        try:
            return cls.model_validate(tuples)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(key) for key in ("about", *first["loc"]))
            raise ValueError(f"{path} is not a state that this tmln reads: {place}: {first['msg']}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a state file holds them."""
        plain = self.model_dump()
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    @property
    def prepare(self) -> Normalise:
        """The function from stored inputs to those of the model."""
        return Normalise(self.mean, self.std)

    def build(self, tensors: Mapping[str, Any] | None = None) -> nn.Module:
        """Build the model, untrained; code of the user's is called only where that is allowed.

        ``tensors``: the model's state in a file. The model is compared with it before memory is
        taken.
        """
        check_allowed(self.model, self.options)
        if tensors is None:
            model = make_model(self.model, self.shape, self.outputs, **self.options)
        else:
            model = self._build_for(tensors)
        if self.freeze:
            if self.options.get("lora"):
                raise ValueError("--freeze backbone trains the head alone, and model.lora adapters, too: choose one")
            found = find_fine_tuning(model)
            given = FineTuning(self.find_head(model)) if found is None else found[1]
            set_fine_tuning(model, replace(given, freeze="backbone"))
        return model

    def find_head(self, model: nn.Module) -> str:
        """Return the name of the layer that gives the model's output."""
        return find_head(model, torch.zeros(1, *self.shape), self.head)

    def _build_for(self, tensors: Mapping[str, Any]) -> nn.Module:
        """Build a model that a file describes: no larger than the tensors that are in the file."""
        spec = self
        if "pretrained" in spec.options:  # the weights are in the file, and nothing is fetched because a file says so
            spec = replace_options(spec, pretrained=False)
        kind, colon, _ = spec.model.partition(":")
        if kind in LIBRARIES:
            kept = {key: value for key, value in spec.options.items() if key != "weights"}
            spec = spec.model_copy(update={"options": kept})
        make = partial(make_model, spec.model, spec.shape, spec.outputs, **spec.options)
        if colon and kind not in LIBRARIES:  # code that the user allowed: trusted, and free to do what a plan cannot
            return make()
        with limit_parameters(PARAMETERS * (len(tensors) + 25)):
            with suppress(RuntimeError), warnings.catch_warnings(), torch.device("meta"):
                warnings.simplefilter("ignore")
                self.check_architecture(make().state_dict(), tensors)  # unless it reads values as it is built
            return make()

    def check_architecture(self, built: Mapping[str, Tensor], tensors: Mapping[str, Any]) -> None:
        """Raise unless tensors have the file's shapes; those that grew there may have fewer rows.

        Code outside the file builds the model, and may have changed since. Which layer is the head
        is seen later.
        """
        for key in (*built, *tensors):
            if key in built and key in tensors:
                ours, theirs = built[key].shape, getattr(tensors[key], "shape", built[key].shape)
                if ours[1:] == theirs[1:] and len(ours) == len(theirs) and (not ours or ours[0] <= theirs[0]):
                    continue
            made, held = ("none" if key not in of else list(of[key].shape) for of in (built, tensors))
            raise ValueError(
                f"it is of another architecture than model {self.model} as it is built now: {key} is {held} in the "
                f"file, {made} in the model; use the code that it was made with"
            )


def replace_options(spec: ModelSpec, **options: Any) -> ModelSpec:
    """Return the specification with other options of the model."""
    return spec.model_copy(update={"options": {**spec.options, **options}})


@contextmanager
def limit_parameters(most: int) -> Iterator[None]:
    """Raise ValueError if more than ``most`` parameters are registered within the block."""
    count = 0

    def hook(module: nn.Module, name: str, value: nn.Parameter) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise ValueError(
                f"the model would have more than {most:,} parameters, many times those that are in the file"
            )

    handle = register_module_parameter_registration_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def open_learner(path: str | Path, saved: Mapping[str, Any] | None = None) -> Learner:
    """Return the learner of a state file that :mod:`tmln.deploy` made.

    ``saved`` is what is in the file, if it was read. All of it is checked before anything is built
    or imported.
    """
    if saved is None:
        path = Path(path).expanduser()
        check_path(path)
        saved = load_file(path)
    _, file = check_file(saved, str(path), code_allowed())
    if "model" not in file.about:
        raise ValueError(
            f"{path} does not say which model it is of: it was saved from Python; Learner.load({str(path)!r}, model) "
            "loads it there"
        )
    spec = ModelSpec.read(file.about, path)
    try:
        model = spec.build(file.state.model)
        spec.check_architecture(model.state_dict(), file.state.model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Learner.from_saved(saved, model, prepare=spec.prepare, allow_code=code_allowed(), what=str(path))


def check_path(path: Path) -> None:
    """Raise an error that says what to do unless there is a file."""
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder, not a state file; tmln export --run {path} -o model.tmln makes one of a run, "
            f"tmln learn --state model.tmln --data {path} one of pictures"
        )
    if not path.exists():
        near = [file.name for file in path.parent.glob("*.tmln")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, near) or f"; tmln learn --state {path} --data FOLDER makes it"
        raise FileNotFoundError(f"no file {path}{hint}")


def learner_of_run(folder: str | Path) -> Learner:
    """Return the learner of a finished run as it was at the end, with the names of its classes.

    What the run's last checkpoint lacks is learned again, which gives the same bits: the hash of
    the weights is compared with the one in the result. Samples that the run kept on disk are read
    into memory.
    """
    from tmln.experiments.build import build
    from tmln.experiments.config import RunConfig, run_id
    from tmln.experiments.files import read_regular, refuse_links
    from tmln.experiments.run import fingerprint
    from tmln.experiments.store import Store

    folder = Path(folder).expanduser().resolve()
    refuse_links(folder)
    result = Store(folder.parent).result(folder.name)
    if result is None:
        raise ValueError(
            f"{folder}: no finished run; tmln run finishes it, tmln show {folder.parent} lists what there is"
        )
    config = RunConfig.from_yaml(read_regular(folder / "config.yaml").decode())
    if run_id(config) != folder.name:
        raise ValueError(
            f"{folder}: its config.yaml is the one of {run_id(config)}: the folder was renamed or the file changed; "
            "export the folder that tmln wrote"
        )
    settings = {key: value for key, value in config.settings.items() if key != "replay.path"}
    config = config.model_copy(update={"settings": settings})
    stream, learner = build(config)
    if stream.heads:
        raise ValueError(
            f"{folder}: every task of this run has its own head, and the task of new data is not known; run it "
            "with benchmark.heads=single"
        )
    if not isinstance(stream.prepare, Normalise):
        raise ValueError(f"benchmark {stream.name} prepares its inputs in its own way, which a state cannot hold")
    saved = read_newest(folder / "checkpoint")
    if saved is not None:
        history = [task.train for task in stream.tasks[: saved[0]["learner"]["tasks"]]]
        learner.load_state_dict(saved[0]["learner"], history if learner.recipe.joint else ())
    full = config.resolved()
    while learner.tasks < len(stream.tasks):
        task = stream.tasks[learner.tasks]
        learner.learn(task.train, int(full["epochs"]), classes=task.classes, atomic=False)
    expected = result.weights_sha256
    if expected and fingerprint(learner.model) != expected:
        raise RuntimeError(
            f"{folder}: learned again its weights are others than those of its result, as on another machine; "
            "run it again here"
        )
    learner.names = stream.class_names
    spec = ModelSpec(
        model=full["model"],
        shape=tuple(stream.shape),
        outputs=stream.classes,
        options=spell_options(full["model"], full["model_options"], learner.model),
        mean=tuple(stream.mean),
        std=tuple(stream.std),
    )
    learner.about = {**spec.to_dict(), "method": config.method}
    return learner


def open(path: str | os.PathLike[str]) -> Learner:
    """Return the learner of a state file, ready to predict and to go on learning.

    The file says how its model is built and how inputs are prepared::

        learner = tmln.open("shop.tmln")
        learner.predict("photos/")  # or paths, Pillow images, arrays [H, W, 3] of uint8
        learner.learn("week3/", epochs=10)
        learner.save("shop.tmln")

    States of models that are code of your own, ``package.module:Name``, need TMLN_ALLOW_CODE=1.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a state, was damaged, or does not say how its model is built, as
            one that ``Learner.save`` wrote for a model of your own; ``Learner.load`` reads that.
    """
    return open_learner(Path(path))
