"""What answers by the memory share: where it is, and its features under the weights that answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Answer, BuildContext, Features, MemoryConditions, MemoryTerm, Settings, TaskContext
from tmln.methods.component import S
from tmln.methods.replay.reservoir import Reservoir


class LayerSettings(Settings):
    """Which layer the features go into."""

    layer: str | None = Field(
        None, description="the layer whose input is the features, by name; the last linear one unless given"
    )


class MemoryAnswer(Answer[S]):
    """Fitted at a task's end to the memory's features. Within a task, whose classes the memory may not have and whose
    weights move, the plain output answers: nothing is kept of the fit, so that nothing is held then.
    """

    required_components: ClassVar[Mapping[str, str]] = {"replay": "er"}
    needs_boundary = True
    linear = False  # the layer has to be an nn.Linear that gives the output

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
        self.features = Features(getattr(settings, "layer", None), "answer.layer", self.linear)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return []

    @property
    def fitted(self) -> bool:
        """There is something to answer by."""
        raise NotImplementedError

    def forget(self) -> None:
        """From now on the plain output answers."""
        raise NotImplementedError

    def fit(self, features: Tensor, output: Tensor, y: Tensor, layer: nn.Module) -> None:
        """To all of the memory: its features, outputs (-inf for closed classes) and labels."""
        raise NotImplementedError

    def better(self, output: Tensor, features: Tensor) -> Tensor:
        """The scores of some samples."""
        raise NotImplementedError

    def begin(self, context: TaskContext) -> None:
        self.forget()
        self.features.find(context.model, context.example_inputs())  # an error before the task is learned

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        if not len(self.memory):
            return
        found = []
        with preserve_model(context.model, training=False):
            for x, y in context.batches(self.memory):
                output, features = self.features.of(context.model, x)
                found.append((features, output, y))
            features, output, y = (torch.cat(column) for column in zip(*found, strict=True))
            self.fit(features, output, y, self.features.layer(context.model, x))

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        if not self.fitted:
            return super().scores(model, x)
        output, features = self.features.of(model, x)
        return output, self.better(output, features)
