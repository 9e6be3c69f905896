"""Build the stream, model and learner of a run from its configuration, and count its steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tmln.experiments.config import RunConfig
from tmln.experiments.machine import run_device
from tmln.experiments.memory_estimate import COPIES, check_weights
from tmln.learner import Learner
from tmln.models import make_model, takes_pixels, takes_texts
from tmln.models.custom import check_allowed
from tmln.seeds import seed_of
from tmln.streams import Stream, Task, concat, make_stream
from tmln.streams.options import LOCATION_OPTIONS, RUN_SEED

ORDERS = {"class_order", "session_order"}  # options that a run's own seed may decide


def build(config: RunConfig) -> tuple[Stream, Learner]:
    """Return the stream and a learner at its beginning; one seed fixes both."""
    stream = stream_of(config)
    return stream, learner_of(config, stream)


def stream_of(config: RunConfig) -> Stream:
    """Return the run's stream; class and session orders that are drawn follow the run's seed."""
    full = config.resolved()
    places = {key: value for key, value in config.benchmark_options.items() if key in LOCATION_OPTIONS}
    options = {**full["benchmark_options"], **places}
    for key in ORDERS & options.keys():
        if options[key] == RUN_SEED:  # numpy's legacy generator takes 32 bits
            options[key] = f"seed:{seed_of(full['seed'], key) % 2**32}"
    kind, _, folder = full["model"].partition(":")
    if kind == "transformers" and "tokenizer" in options:  # a text model takes the tokens of its own tokenizer
        options["tokenizer"] = options["tokenizer"] or folder
    stream = make_stream(full["benchmark"], **options)
    return stream.as_pixels() if takes_pixels(full["model"], full["model_options"]) else stream


def learner_of(config: RunConfig, stream: Stream, fabric: Any = None, accumulate: int = 1) -> Learner:
    """Return the learner of a run with nothing learned."""
    full, recipe = config.resolved(), config.recipe()
    check_allowed(full["model"], full["model_options"])
    recipe.check_code()
    if ":" not in full["model"] and takes_texts(full["model"]) != stream.has_texts:
        has, remedy = ("texts", "minilm") if stream.has_texts else ("no texts", "mlp")
        raise ValueError(
            f"benchmark {stream.name} has {has}, which model {full['model']!r} does not take: use {remedy}"
        )
    make = partial(make_model, full["model"], stream.shape, stream.classes, **full["model_options"])
    if ":" not in full["model"]:  # a model from elsewhere is made once
        check_weights(make, COPIES if fabric is None else 1)
    torch.manual_seed(seed_of(full["seed"], "weights"))
    model = make()
    model = model.to(run_device() if fabric is None else fabric.device)
    return Learner(
        model,
        recipe,
        lr=full["lr"],
        batch_size=full["batch_size"],
        seed=full["seed"],
        augment=stream.augment,
        prepare=stream.prepare,
        logit_mask=full["logit_mask"],
        compile=full["compile"],
        schedule=config.schedule,
        warmup=config.warmup,
        heads=stream.heads,
        fabric=fabric,
        precision=config.precision,
        accumulate=accumulate,
        batch_statistics=config.batch_statistics,
    )


def steps_of(stream: Stream, learner: Learner, epochs: int) -> list[int]:
    """Return the steps of each task; ``joint`` learns all earlier ones again."""
    sizes, trains = [len(task.train) for task in stream], partial(learner.step.trains_at, learner.step.settings)
    return _steps(sizes, learner.recipe.joint, epochs, learner.batch_size, trains)


def steps_in(stream: Stream, config: RunConfig) -> int:
    """Return the steps of a whole run; a merged one learns all tasks at once."""
    sizes, full = [len(task.train) for task in stream], config.resolved()
    sizes = [sum(sizes)] if config.merged else sizes
    recipe = config.recipe()
    recipe.check_code()  # before a step of the user's is imported
    kind, settings = recipe.resolve("step")
    trains = partial(kind.trains_at, settings)  # type: ignore[attr-defined]  # a Step
    return sum(_steps(sizes, recipe.joint, full["epochs"], full["batch_size"], trains))


def _steps(sizes: list[int], joint: bool, epochs: int, batch_size: int, trains: Callable[[int], bool]) -> list[int]:
    sizes = list(itertools.accumulate(sizes)) if joint else sizes
    return [epochs * -(-size // batch_size) if trains(index) else 0 for index, size in enumerate(sizes)]


def merge(stream: Stream) -> Task:
    """Return all tasks as one, which the shortcut reference learns."""
    classes = tuple(sorted({c for task in stream for c in task.classes}))
    return Task("all", concat([task.train for task in stream]), concat(list(stream.tests)), classes)
