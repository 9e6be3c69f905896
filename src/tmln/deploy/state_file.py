"""A state file that says how its model is made, so that a path is all it takes to go on, test, predict and export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from tmln.learner import Learner
from tmln.learner.checkpoint import load_file
from tmln.learner.head import find_head
from tmln.models import make_model
from tmln.models.custom import check_allowed
from tmln.streams.augment import Normalise
from tmln.user_code import code_allowed


@dataclass(frozen=True)
class About:
    """What a model is made of: its name and options, inputs and first outputs, and how inputs are normalised."""

    model: str
    shape: tuple[int, ...]
    outputs: int
    options: Mapping[str, Any] = field(default_factory=dict)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    freeze: bool = False  # all but the head
    head: str | None = None  # its name, where it was said

    def plain(self) -> dict[str, Any]:
        """As a state file holds it."""
        return {**asdict(self), "shape": list(self.shape), "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> About:
        """What :meth:`plain` gave."""
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        return cls(**{key: given[key] for key in cls.__dataclass_fields__ if key in given})

    @property
    def prepare(self) -> Normalise:
        """Stored inputs -> those of the model."""
        return Normalise(self.mean, self.std)

    def network(self) -> nn.Module:
        """As it is made at first; code of the user's only where that is allowed."""
        check_allowed(self.model, self.options)
        model = make_model(self.model, self.shape, self.outputs, **self.options)
        if self.freeze:
            head = model.get_submodule(find_head(model, torch.zeros(1, *self.shape), self.head))
            own = set(map(id, head.parameters()))
            for p in model.parameters():
                p.requires_grad_(id(p) in own)
        return model


def opened(path: str | Path, saved: Mapping[str, Any] | None = None) -> Learner:
    """The learner of a state file that :mod:`tmln.deploy` made; ``saved`` is what is in it, if it was read."""
    saved = load_file(path) if saved is None else saved
    about = saved.get("about") or {}
    if "model" not in about:
        raise ValueError(
            f"{path} does not say which model it is of: it was saved from Python; Learner.load({str(path)!r}, model) "
            "loads it there"
        )
    made = About.of(about)
    if made.options.get("pretrained"):  # the weights are in the file: nothing is fetched because it says so
        made = replace(made, options={**made.options, "pretrained": False})
    model = made.network()
    _refuse_other_architecture(path, made.model, model, saved["state"]["model"])
    return Learner.of(saved, model, prepare=made.prepare, allow_code=code_allowed())


def _refuse_other_architecture(path: str | Path, name: str, model: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Code outside the file makes the model, and may have changed since; the first dimension may be a head's that grew.

    Which of them is the head is seen when it is loaded."""
    own = model.state_dict()
    for key in (*own, *tensors):
        if key in own and key in tensors and own[key].shape[1:] == tensors[key].shape[1:]:
            continue
        made, held = ("none" if key not in of else list(of[key].shape) for of in (own, tensors))
        raise ValueError(
            f"{path} is of another architecture than model {name} as it is made now: {key} is {held} in the file, "
            f"{made} in the model; use the code that it was made with"
        )


def load_weights(model: nn.Module, path: Path) -> None:
    """Weights of a backbone from a safetensors file; a head of another size stays as it was made."""
    try:
        found = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors ({error})") from error
    own = model.state_dict()
    fitting = {key: value for key, value in found.items() if key in own and own[key].shape == value.shape}
    if not fitting:
        some = ", ".join(list(found)[:3])
        raise ValueError(f"{path}: none of its {len(found)} tensors ({some}, ...) is one of the model's")
    missing = [key for key in own if key not in fitting]
    model.load_state_dict(fitting, strict=False)
    if len(missing) > len(own) // 2:
        raise ValueError(f"{path}: of the model's {len(own)} tensors it lacks {len(missing)}, {missing[0]} for one")
