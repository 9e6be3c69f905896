"""The base of answers that are fitted to the features of a replay memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Answer, BuildContext, Features, Settings, TaskContext
from tmln.methods.component import S
from tmln.methods.replay.reservoir import Reservoir


class LayerSettings(Settings):
    """Settings of the features."""

    layer: str | None = Field(
        None, description="name of the layer whose input is the features; the last linear layer unless given"
    )


class MemoryAnswer(Answer[S]):
    """An answer fitted to the memory's features at a task's end.

    Within a task, whose classes may not be in the memory, the largest output predicts, and the
    fit is dropped.
    """

    required_components: ClassVar[Mapping[str, str]] = {"replay": "er"}
    needs_boundary = True
    fixed_memory_terms = ()
    needs_linear = False  # the layer must be the nn.Linear that gives the output

    def __init__(self, settings: S, context: BuildContext) -> None:
        super().__init__(settings, context)
        replay = context.components["replay"]
        memories = [getattr(context.components[family], "memory", None) for family in ("replay", "step")]
        memory = next((memory for memory in memories if memory is not None), None)
        if memory is None:
            raise ValueError(
                f"answer {self.name!r} is fitted to a memory, and replay {replay.name!r} has none: "
                "choose one that has (replay 'er', 'der++', 'er-ace', 'distill'), or answer 'argmax'"
            )
        self.memory: Reservoir = memory
        self.features = Features(getattr(settings, "layer", None), "answer.layer", self.needs_linear)

    @property
    def is_fitted(self) -> bool:
        """Whether there is a fit to predict with."""
        raise NotImplementedError

    def reset(self) -> None:
        """Drop the fit, so that the largest output predicts."""
        raise NotImplementedError

    def fit(self, features: Tensor, output: Tensor, y: Tensor, layer: nn.Module) -> None:
        """Fit to the whole memory: features, outputs (-inf for closed classes) and labels."""
        raise NotImplementedError

    def score(self, output: Tensor, features: Tensor) -> Tensor:
        """Return the scores of some samples."""
        raise NotImplementedError

    def begin(self, context: TaskContext) -> None:
        self.reset()
        self.features.find(context.model, context.example_inputs())  # an error before the task is learned

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        if not len(self.memory):
            return
        found = []
        with preserve_model(context.model, training=False):
            for x, y in context.batches(self.memory):
                output, features = self.features.extract(context.model, x)
                found.append((features, output, y))
            features, output, y = (torch.cat(column) for column in zip(*found, strict=True))
            self.fit(features, output, y, self.features.get_layer(context.model, x))

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        if not self.is_fitted:
            return super().scores(model, x)
        output, features = self.features.extract(model, x)
        return output, self.score(output, features)
