"""A learner's state: taken, put back exactly, and kept safe while something may fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from tmln.distributed.sharding import load_model_weights, reshard_model
from tmln.learner.epoch import Place
from tmln.learner.growth import fit_head
from tmln.learner.transform_fingerprint import check_intake
from tmln.methods import copy_state, get_reference_weight
from tmln.streams.arrays import as_samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


def state_of(learner: Learner) -> dict[str, Any]:
    """All that the rest of a run depends on but the data: tensors, numbers and containers of them."""
    return {
        "model": dict(learner.model.state_dict()),
        "parts": {family: part.state_dict() for family, part in learner.by_family.items()},
        "generators": [learner.order.get_state(), learner.noise.get_state(), torch.get_rng_state()],
        "tasks": learner.tasks,
        "classes": list(learner.classes),
        "names": list(learner.names),
        "earlier": learner.earlier,
        "intake": learner.intake,
        "place": None if learner.place is None else asdict(learner.place),
        "initial": None if learner.initial is None else dict(learner.initial),
        **({} if learner.backward.scale is None else {"scale": learner.backward.scale.state_dict()}),
    }


def restore(learner: Learner, state: Mapping[str, Any], history: Sequence[Any]) -> None:
    """Put ``state`` in place; what cannot be is refused before anything changes."""
    intake = state.get("intake")  # states of version 0.1 have none
    if intake is not None:
        check_intake(intake, learner.prepare, learner.augment)
    if learner.recipe.joint and len(history) != state["tasks"]:
        raise ValueError(f"'joint' learned {state['tasks']} tasks; pass their data as history, got {len(history)}")
    states = _by_family(state["parts"])
    for family, part in learner.by_family.items():
        if part.state_names and family not in states:
            raise ValueError(f"the state has nothing of {family} {part.name!r}; it was made with other parts")
    fit_head(learner, state["model"])
    reshard_model(learner.model)  # a pass that failed may have left layers gathered
    load_model_weights(learner.model, state["model"])
    learner.meet(state["classes"])  # before the parts: a teacher copies the model with the classes that it has open
    for family, part in learner.by_family.items():
        if family in states:
            part.load_state_dict(states[family])
    order, noise, everyone = state["generators"]
    learner.order.set_state(order.cpu())
    learner.noise.set_state(noise.cpu())
    torch.set_rng_state(everyone.cpu())
    if learner.backward.scale is not None and "scale" in state:
        learner.backward.scale.load_state_dict(state["scale"])
    learner.tasks, learner.intake, learner.initial = state["tasks"], intake, state["initial"]
    learner.names, learner.earlier = tuple(state.get("names", ())), state.get("earlier")
    place = state["place"]
    learner.place = None if place is None else Place(**{**place, "known": tuple(place["known"])})
    learner.history = [as_samples(data, get_reference_weight(learner.model).dtype) for data in history]


def _by_family(parts: Mapping[str, Any] | Sequence[Any]) -> Mapping[str, Any]:
    """States of version 0.1 are a list: replay, penalty, step."""
    return parts if isinstance(parts, Mapping) else dict(zip(("replay", "penalty", "step"), parts, strict=True))


@contextmanager
def as_before(learner: Learner) -> Iterator[dict[str, Any]]:
    """Within the block, which is given the state, all may fail: then it is as it was, and the exception goes on."""
    before = copy_state(state_of(learner), torch.device("cpu"))
    history, modes = learner.history, [(module, module.training) for module in learner.model.modules()]
    try:
        yield before
    except BaseException:
        restore(learner, before, history)
        for module, mode in modes:
            module.training = mode
        raise
