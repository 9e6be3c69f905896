"""One lesson for a state file: made from its first data or opened, taught, and replaced whole or left as it was."""

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
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.deploy.state_file import About, load_weights, opened
from tmln.learner import Learner, Retention
from tmln.learner.checkpoint import DAMAGE, load_file
from tmln.learner.class_names import check_names
from tmln.learner.task_history import FRACTION, Record
from tmln.signals import Interrupted, saving
from tmln.streams.assemble import choose_validation
from tmln.streams.own_data import OwnSamples, read_own_samples
from tmln.streams.samples import Samples

SMALL = 32  # pixels up to which two convolutions do
STEPS = 1000  # that a lesson takes about, unless it is told how many epochs
EPOCHS = (5, 60)
SAVE_EVERY = 2.0  # seconds between saves beside the file, at least,
SAVE_SHARE = 0.02  # and the share of the time that they may take


@dataclass(frozen=True)
class Wish:
    """What a new state is made with, None being chosen by the data, and how a lesson is learned."""

    model: str | None = None
    image_size: int | None = None
    method: str | None = None
    epochs: int | None = None
    weights: Path | None = None
    freeze: bool = False
    hold_out: float = FRACTION
    max_forgetting: float | None = None
    keep: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """What a display is told after every step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


def teach(
    state: str | Path,
    data: str | Path,
    wish: Wish | None = None,
    on_step: Callable[[Moment], None] = lambda moment: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Learner, Retention]:
    """Learn ``data`` into the file ``state``, which is replaced when all is done, and not touched before.

    What was reached is put beside the file after the first step, then every few seconds, and where ``stop`` says so:
    the same call goes on from there, also after one that was killed.
    """
    wish, state = wish or Wish(), Path(state).expanduser()
    if not state.parent.is_dir():  # before any work
        raise ValueError(f"{state}: there is no folder {state.parent}; make it, or choose another")
    base = load_file(state) if state.exists() else None
    if base is not None:
        _refuse_other(state, base, wish)
    shape = None if base is None else (base["state"]["intake"] or {}).get("shape")
    own = read_own_samples(data, shape, wish.image_size)
    if own.names:
        check_names(own.names)
    mark = {
        "data": _mark(own.train),
        "state": 0 if base is None else zlib.crc32(state.read_bytes()),
        "wish": zlib.crc32(repr(replace(wish, max_forgetting=None, keep=0)).encode()),
    }
    beside = state.with_name(f".{state.name}.learning")
    learner = _gone_on(beside, mark) or (_made(own, wish) if base is None else opened(state, base))
    learner.keep = wish.keep
    share = wish.hold_out if own.test is None else 0.0
    count = len(own.train) - (int(choose_validation(own.train.y, share, learner.seed).sum()) if share else 0)
    if any(isinstance(module, _BatchNorm) for module in learner.model.modules()):
        learner.batch_size = _without_rest(count, learner.batch_size)
    epochs = wish.epochs or min(max(math.ceil(STEPS * learner.batch_size / count), EPOCHS[0]), EPOCHS[1])
    epochs = learner.about.get("underway", {}).get("epochs", epochs)
    steps, save_at = epochs * math.ceil(count / learner.batch_size), 0.0

    def after_step(epoch: int, number: int, loss: float) -> None:
        nonlocal save_at
        done = epoch * math.ceil(count / learner.batch_size) + number + 1
        on_step(Moment(epoch, epochs, done, steps, loss))
        asked, begin = stop(), time.monotonic()
        if asked or begin >= save_at:
            learner.about["underway"] = {**mark, "epochs": epochs}
            with saving():
                learner.save(beside)
            end = time.monotonic()
            save_at = end + max(SAVE_EVERY, (end - begin) / SAVE_SHARE)
        if asked:
            raise Interrupted(f"stopped in epoch {epoch + 1} of {epochs}; the same command goes on from there")

    name = Path(data).expanduser().resolve().name
    forgetting = wish.max_forgetting
    try:
        learner.learn(
            own, epochs, name=name, hold_out=wish.hold_out, max_forgetting=forgetting, atomic=False, on_step=after_step
        )
    except Interrupted:
        raise
    except BaseException:
        beside.unlink(missing_ok=True)  # going on would fail again
        raise
    learner.about.pop("underway", None)
    before = [] if base is None else [*base.get("previous", ()), {"state": base["state"], "record": base.get("record")}]
    learner.previous = [(one["state"], Record.of(one["record"])) for one in before][-wish.keep :] if wish.keep else []
    with saving():
        learner.save(state)
        beside.unlink(missing_ok=True)
    return learner, learner.retention


def _made(own: OwnSamples, wish: Wish) -> Learner:
    """A model for this data, and a learner at its beginning."""
    shape = own.train.shape
    pictures = len(shape) == 3
    usual = ("cnn" if shape[1] == shape[2] <= SMALL else "convnet") if pictures else "mlp"
    mean, std = colours(own.train) if pictures else ((0.0,), (1.0,))
    given = {key: value for key, value in wish.settings.items() if "." not in key}
    options = {key.removeprefix("model."): _number(v) for key, v in wish.settings.items() if key.startswith("model.")}
    parts = {k: _number(v) for k, v in wish.settings.items() if "." in k and not k.startswith("model.")}
    numbers = {"lr": 0.01, "batch_size": 32, "seed": 0, **{key: _number(value) for key, value in given.items()}}
    if unknown := numbers.keys() - {"lr", "batch_size", "seed", "head", "logit_mask", "micro_batch"}:
        raise ValueError(f"unknown setting {min(unknown)!r}; lr, batch_size, seed, head, model.NAME or step.NAME, say")
    outputs = len(own.names) if own.names else max(own.train.classes) + 1
    about = About(wish.model or usual, shape, outputs, options, mean, std, wish.freeze, given.get("head"))
    torch.manual_seed(int(numbers["seed"]))
    model = about.network()
    if wish.weights is not None:
        load_weights(model, wish.weights)
    learner = Learner(model, wish.method or "tmln", settings=parts, prepare=about.prepare, keep=wish.keep, **numbers)
    learner.about = {**about.plain(), "method": wish.method or "tmln"}
    return learner


def _refuse_other(state: Path, base: Mapping[str, Any], wish: Wish) -> None:
    """What a state was made with cannot be changed by a later lesson; saying the same again is no change."""
    about, shape = base.get("about") or {}, (base["state"]["intake"] or {}).get("shape")
    was = {
        "--model": (wish.model, about.get("model")),
        "--method": (wish.method, about.get("method")),
        "--image-size": (wish.image_size, shape[-1] if shape else None),
    }
    for option, (now, then) in was.items():
        if now is not None and now != then:
            raise ValueError(f"{state} was made with {option} {then}, not {now}; leave {option} out, or begin another")
    if wish.settings or wish.weights is not None:
        raise ValueError(
            f"{state} has its settings and weights: leave --set and --initial-weights out, or begin another"
        )


def _gone_on(beside: Path, mark: Mapping[str, int]) -> Learner | None:
    """What was reached of the same data from the same state by the same wish, if there is such."""
    if not beside.exists():
        return None
    try:
        saved = load_file(beside)
        under = saved["about"]["underway"]
        same = all(under[key] == value for key, value in mark.items())
    except DAMAGE:
        same = False
    if same:
        return opened(beside, saved)
    warnings.warn(f"{beside.name} is of another lesson that was stopped; it is given up for this one", stacklevel=3)
    return None


def _without_rest(count: int, size: int) -> int:
    """A batch size that leaves no single sample over, by which batch norm could not normalise."""
    while size > 2 and count % size == 1:
        size -= 1
    return size


def colours(samples: Samples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, of at most 512 pictures."""
    step = max(1, len(samples) // 512)
    x = samples.gather(torch.arange(0, len(samples), step))[0].float() / 255
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3)).clamp_min(0.05)
    return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())


def _mark(samples: Samples) -> int:
    """A number that equal data have in common."""
    x = samples.gather(torch.arange(0, len(samples), max(1, len(samples) // 64)))[0]
    return zlib.crc32(x.contiguous().numpy().tobytes(), zlib.crc32(samples.y.numpy().tobytes()))


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
