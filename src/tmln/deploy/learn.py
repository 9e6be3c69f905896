"""Learn a data set into a state file, which is replaced as a whole or not at all."""

from __future__ import annotations

import math
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tmln.data.images import Fit
from tmln.data.own_data import DEFAULT_SIDE
from tmln.deploy.candidates import (
    DEFAULT,
    FROM_SCRATCH,
    INSTALL,
    LARGEST,
    METHOD,
    TEXT_MODEL,
    WITH_BACKBONE,
    Candidate,
    choose_backbone,
    compare_candidates,
    explain_backbone,
    explain_scratch,
    is_undecided,
    uses_backbone,
)
from tmln.deploy.state_file import ModelSpec, open_learner
from tmln.distributed.data_parallel import has_batch_norm
from tmln.learner import Forgot, Learner, Retention
from tmln.learner.checkpoint import DAMAGE, load_file
from tmln.learner.history import TaskRecord
from tmln.learner.state import StateFile, check_file
from tmln.learner.task_data import HOLD_OUT, check_names
from tmln.methods.recipes import FAMILIES, Recipe, find_recipe
from tmln.models import BACKBONES, spell_options, takes_pixels, takes_texts
from tmln.models.text_model import read_tokenizer
from tmln.models.weights_file import load_weights
from tmln.signals import Interrupted, saving
from tmln.streams.assemble import choose_validation
from tmln.streams.own_data import OwnSamples, is_text_table, read_own_samples
from tmln.streams.samples import Samples
from tmln.suggest import did_you_mean
from tmln.user_code import code_allowed

# Without pre-trained weights and unless the user asks for a method; every network is trained with
# a rate that falls within each task. Measured in docs/own_data.md over ten seeds.
METHOD_FROM_SCRATCH = "er+"
SCHEDULE = {"schedule": "cosine", "warmup": 0.1}
LR, LR_FINE_TUNING = 0.01, 0.001  # the lower one where weights are loaded and all of them trained
LR_PICTURES = 0.003  # of the default from scratch; for arrays and texts it was not measured
LEARNER_SETTINGS = ("lr", "batch_size", "seed", "head", "logit_mask", "micro_batch", "schedule", "warmup")
SMALL = 32  # pixels up to which two convolutions are enough
STEPS = 1000  # of a task, about, unless the user gives epochs
EPOCHS = (5, 60)
SAVE_EVERY = 2.0  # seconds between saves beside the file, at least,
SAVE_SHARE = 0.02  # and the share of the time that they may take


@dataclass(frozen=True)
class LearnRequest:
    """What a new state is made with, None being chosen by the data, and how a task is learned."""

    model: str | None = None
    image_size: int | None = None
    method: str | None = None
    epochs: int | None = None
    weights: Path | None = None
    freeze: bool = False
    hold_out: float = HOLD_OUT
    max_forgetting: float | None = None
    keep: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    from_scratch: bool = False
    weights_partial: bool = False
    fit: Fit | None = None
    skip_bad: bool = False
    try_candidates: bool = False


@dataclass
class LearnNotes:
    """What is known of a call of :func:`learn_into` beside the learner, for a report.

    ``left_out`` names bad files and folders; ``candidates`` are those that ``--try`` compared.
    """

    left_out: tuple[str, ...] = ()
    read_seconds: float = 0.0
    seconds: float = 0.0
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class StepProgress:
    """What a display gets after every step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


def learn_into(
    state: str | Path,
    data: str | Path,
    request: LearnRequest | None = None,
    on_step: Callable[[StepProgress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    notes: LearnNotes | None = None,
) -> tuple[Learner, Retention]:
    """Learn ``data`` into the file ``state``, which is replaced when all is done.

    Progress is saved beside the file after the first step, then every few seconds, and where
    ``stop`` returns True: the same call resumes from there, also after a kill.

    Args:
        state: the state file; made if it is not there.
        data: a folder, an ``.npz`` or a table of texts, as :meth:`tmln.Learner.learn` takes them.
        request: how a new state is made, and how this task is learned.
        on_step: called after every step.
        stop: asked after every step; if True, progress is saved and
            :class:`~tmln.signals.Interrupted` raised.
        notes: filled with what was left out, and the seconds that it took.

    Returns:
        The learner and its retention table.
    """
    request, state, notes = request or LearnRequest(), Path(state).expanduser(), notes or LearnNotes()
    begun = time.monotonic()
    if not state.parent.is_dir():  # before any work
        raise ValueError(f"{state}: there is no folder {state.parent}; make it, or choose another")
    base = load_file(state) if state.exists() else None
    file = None if base is None else check_file(base, str(state), code_allowed())[1]
    if file is not None:
        _refuse_changes(state, file, request)
    intake = None if file is None else file.state.intake
    shape = None if intake is None else tuple(intake.shape)
    fit = request.fit or "pad" if intake is None else intake.fit
    chosen = base is None and uses_backbone(data, request)
    if is_text_table(data) and request.from_scratch:
        raise ValueError("texts are learned by a pre-trained encoder: leave --from-scratch out")
    if is_text_table(data) and base is None and not chosen:
        request = replace(request, model=request.model or TEXT_MODEL)
    tokenizer = read_own_tokenizer(request.model, file) if is_text_table(data) else None
    is_backbone = chosen or takes_pixels(request.model or "", model_options_of(request))
    largest = LARGEST if is_backbone else DEFAULT_SIDE
    own = read_own_samples(data, shape, request.image_size, largest, fit, request.skip_bad, tokenizer)
    notes.left_out, notes.read_seconds = own.left_out, time.monotonic() - begun
    if own.names:
        check_names(own.names)
    mark = {
        "data": _checksum(own.train),
        "state": 0 if base is None else zlib.crc32(state.read_bytes()),
        "request": zlib.crc32(repr(replace(request, max_forgetting=None, keep=0)).encode()),
    }
    name = Path(data).expanduser().resolve().name
    if request.try_candidates:
        if base is not None or request.method is not None:
            raise ValueError(
                f"--try compares methods for a new state: {state} exists already"
                if base is not None
                else f"--try compares methods by itself: leave --method {request.method} out"
            )
        best, notes.candidates = try_candidates(own, request, chosen, name)
        with saving():
            best.save(state)
        notes.seconds = time.monotonic() - begun
        return best, best.retention
    beside = state.with_name(f".{state.name}.learning")
    learner = _resume(beside, mark)
    if learner is None:
        learner = _make_learner(own, request, chosen) if base is None else open_learner(state, base)
        usual = request.method is None and not any(key.partition(".")[0] in FAMILIES for key in request.settings)
        if base is None and not chosen and usual and not begins_with_weights(request):
            learner.about["reason"] = explain_scratch(learner.about["model"], METHOD_FROM_SCRATCH)
            if is_undecided(data, request):
                learner.about["reason"] += f"; {INSTALL}"
    learner.keep = request.keep
    share = request.hold_out if own.test is None else 0.0
    count = len(own.train) - (int(choose_validation(own.train.y, share, learner.seed).sum()) if share else 0)
    if has_batch_norm(learner.model):
        learner.batch_size = _avoid_single(count, learner.batch_size)
    epochs = request.epochs or choose_epochs(count, learner.batch_size)
    epochs = learner.about.get("underway", {}).get("epochs", epochs)
    steps, save_at = epochs * math.ceil(count / learner.batch_size), 0.0

    def after_step(epoch: int, number: int, loss: float) -> None:
        nonlocal save_at
        done = epoch * math.ceil(count / learner.batch_size) + number + 1
        on_step(StepProgress(epoch, epochs, done, steps, loss))
        stopping, begin = stop(), time.monotonic()
        if stopping or begin >= save_at:
            learner.about["underway"] = {**mark, "epochs": epochs}
            with saving():
                learner.save(beside)
            end = time.monotonic()
            save_at = end + max(SAVE_EVERY, (end - begin) / SAVE_SHARE)
        if stopping:
            raise Interrupted(f"stopped in epoch {epoch + 1} of {epochs}; the same command goes on from there")

    share, most = request.hold_out, request.max_forgetting
    try:
        learner.learn(own, epochs, name=name, hold_out=share, max_forgetting=most, atomic=False, on_step=after_step)
    except Interrupted:
        raise
    except Forgot as error:
        if base is not None and error.refused is not None and request.keep:
            kept = open_learner(state, base)
            kept.keep, kept.seen.refused = request.keep, error.refused
            with saving():
                kept.save(state)
        beside.unlink(missing_ok=True)
        raise
    except BaseException:
        beside.unlink(missing_ok=True)  # resuming would fail again
        raise
    learner.about.pop("underway", None)
    before = [] if base is None else [*base.get("previous", ()), {"state": base["state"], "record": base.get("record")}]
    previous = [(one["state"], TaskRecord.from_dict(one.get("record"))) for one in before]
    learner.seen.previous = previous[-request.keep :] if request.keep else []
    with saving():
        learner.save(state)
        beside.unlink(missing_ok=True)
    notes.seconds = time.monotonic() - begun
    return learner, learner.retention


def choose_epochs(count: int, batch_size: int) -> int:
    """Return the passes over ``count`` samples that are about ``STEPS`` steps."""
    return min(max(math.ceil(STEPS * batch_size / count), EPOCHS[0]), EPOCHS[1])


def try_candidates(
    own: OwnSamples, request: LearnRequest, chosen: bool, name: str
) -> tuple[Learner, tuple[Candidate, ...]]:
    """Learn the first task with each candidate; return the learner of the best, and all results."""
    request = replace(request, try_candidates=False)
    share = request.hold_out if own.test is None else 0.0
    count = len(own.train) - (int(choose_validation(own.train.y, share, 0).sum()) if share else 0)

    def learn(method: str, about: str, settings: Mapping[str, str], epochs: int | None) -> Learner:
        changed = replace(request, settings={**settings, **request.settings})
        if chosen:
            model, options = choose_backbone(own.train.shape)
            changed = replace(changed, model=model, image_size=None, settings={**options, **changed.settings})
        changed = replace(changed, method=None if method == DEFAULT else method)
        learner = _make_learner(own, changed)
        if has_batch_norm(learner.model):
            learner.batch_size = _avoid_single(count, learner.batch_size)
        learner.about["reason"] = f"{about}: the best of --try on held-out images"
        epochs = request.epochs or epochs or choose_epochs(count, learner.batch_size)
        learner.learn(own, epochs, name=name, hold_out=request.hold_out, atomic=False)
        return learner

    return compare_candidates(WITH_BACKBONE if chosen else FROM_SCRATCH, learn)


def _make_learner(own: OwnSamples, request: LearnRequest, chosen: bool = False) -> Learner:
    """Build a model for this data, and a learner that has learned nothing yet.

    ``chosen``: the model is the pre-trained backbone.
    """
    shape = own.train.shape
    if chosen:
        model_name, model_settings = choose_backbone(shape)
        request = replace(request, model=model_name, method=METHOD, settings=model_settings)
    pictures, texts = len(shape) == 3, own.train.gather(torch.arange(1))[0].dtype == torch.int32
    usual = ("cnn" if shape[1] == shape[2] <= SMALL else "convnet") if pictures else TEXT_MODEL if texts else "mlp"
    request = replace(request, model=request.model or usual)
    options = model_options_of(request)
    pixels = not pictures or takes_pixels(request.model or "", options)  # a backbone normalises by itself
    mean, std = ((0.0,), (1.0,)) if pixels else channel_statistics(own.train)
    given = {key: value for key, value in request.settings.items() if "." not in key}
    dotted = {key: _parse(value) for key, value in request.settings.items() if "." in key}
    settings = {key: value for key, value in dotted.items() if not key.startswith("model.")}
    tuned = not request.freeze and begins_with_weights(request)
    components = {family: given.pop(family) for family in FAMILIES if family in given}
    from_scratch = pictures and not (request.method or request.freeze or "step" in components)
    numbers = {
        "lr": LR_FINE_TUNING if tuned and request.method is None else LR_PICTURES if from_scratch else LR,
        "batch_size": 32,
        "seed": 0,
        **SCHEDULE,
        **{key: _parse(value) for key, value in given.items()},
    }
    if unknown := numbers.keys() - set(LEARNER_SETTINGS):
        known = [*sorted(LEARNER_SETTINGS), *FAMILIES]
        raise ValueError(
            f"unknown setting {min(unknown)!r}{did_you_mean(min(unknown), known)} ({', '.join(known)}, or model.NAME, "
            "step.NAME and so on)"
        )
    recipe = choose_from_scratch() if request.method is None else find_recipe(request.method)
    for family, component in components.items():
        recipe = recipe.with_component(family, component)
    recipe.with_settings(settings).check_code()  # typed as text, not passed by a program
    spec = ModelSpec(
        model=request.model or usual,
        shape=shape,
        outputs=len(own.names) if own.names else max(own.train.classes) + 1,
        options=options,
        mean=mean,
        std=std,
        freeze=request.freeze,
        head=given.get("head"),
    )
    torch.manual_seed(int(numbers["seed"]))
    model = spec.build()
    spec = spec.model_copy(update={"options": spell_options(spec.model, options, model)})
    loaded = None
    if request.weights is not None:
        loaded = load_weights(model, request.weights, spec.find_head(model), request.weights_partial)
    learner = Learner(model, recipe, settings=settings, prepare=spec.prepare, keep=request.keep, **numbers)
    method = request.method or METHOD_FROM_SCRATCH
    learner.about = {**spec.to_dict(), "method": method, **({} if loaded is None else {"weights": str(loaded)})}
    if chosen:
        learner.about["reason"] = explain_backbone(spec.model, options.get("size"))
    return learner


def read_own_tokenizer(model: str | None, file: StateFile | None) -> str | None:
    """Return the tokenizer of a state, or of a new one's model; None of a model of no texts."""
    if file is not None:
        found = file.about.get("options")
        kept = found.get("tokenizer") if isinstance(found, dict) else None
        return kept if isinstance(kept, str) else None
    kind, _, folder = (model or TEXT_MODEL).partition(":")
    if kind == "transformers":
        return read_tokenizer(folder)
    return read_tokenizer() if kind == TEXT_MODEL else None


def model_options_of(request: LearnRequest) -> dict[str, Any]:
    """Return the options of the model that are asked for."""
    prefix = "model."
    requested = {key: value for key, value in request.settings.items() if key.startswith(prefix)}
    return {key.removeprefix(prefix): _parse(value) for key, value in requested.items()}


def begins_with_weights(request: LearnRequest) -> bool:
    """Return whether a new state's network is not trained from scratch."""
    is_backbone = request.model in BACKBONES or takes_texts(request.model or "")
    known = model_options_of(request).get("pretrained", is_backbone)
    return request.weights is not None or bool(known)


def choose_from_scratch() -> Recipe:
    """Return the recipe of a new state where no method is asked for: ``er+`` with AdamW."""
    recipe = find_recipe(METHOD_FROM_SCRATCH).with_component("step", "adamw")
    return recipe.with_setting("replay.selection", "class-balanced")


def _refuse_changes(state: Path, file: StateFile, request: LearnRequest) -> None:
    """Refuse to change what a state was made with; saying the same again is no change."""
    shape = None if file.state.intake is None else file.state.intake.shape
    was = {
        "--model": (request.model, file.about.get("model")),
        "--method": (request.method, file.about.get("method")),
        "--image-size": (request.image_size, shape[-1] if shape else None),
        "--fit": (request.fit, file.state.intake.fit if file.state.intake else None),
    }
    for option, (now, then) in was.items():
        if now is not None and now != then:
            raise ValueError(f"{state} was made with {option} {then}, not {now}; leave {option} out, or begin another")
    if request.freeze and not file.about.get("freeze", False):
        raise ValueError(f"{state} was made without --freeze backbone; leave it out, or begin another")
    if request.settings or request.weights is not None:
        raise ValueError(
            f"{state} has its settings and weights: leave --set and --initial-weights out, or begin another"
        )


def _resume(beside: Path, mark: Mapping[str, int]) -> Learner | None:
    """Return what was reached with the same data, state and request, if there is such."""
    if not beside.exists():
        return None
    try:
        saved = load_file(beside)
        underway = saved["about"]["underway"]
        same = all(underway[key] == value for key, value in mark.items())
    except DAMAGE:
        same = False
    if same:
        return open_learner(beside, saved)
    warnings.warn(f"{beside.name} is of another task that was stopped; it is given up for this one", stacklevel=3)
    return None


def _avoid_single(count: int, size: int) -> int:
    """Return a batch size that leaves no single sample over, for batch norm."""
    while 2 < size < count and count % size == 1:
        size -= 1
    return size


def channel_statistics(samples: Samples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, of at most 512 pictures."""
    step = max(1, len(samples) // 512)
    x = samples.gather(torch.arange(0, len(samples), step))[0].float() / 255
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3)).clamp_min(0.05)
    return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())


def _checksum(samples: Samples) -> int:
    """Return a number that equal data have in common."""
    x = samples.gather(torch.arange(0, len(samples), max(1, len(samples) // 64)))[0]
    return zlib.crc32(x.contiguous().numpy().tobytes(), zlib.crc32(samples.y.numpy().tobytes()))


def _parse(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
