"""The loss and accuracy of one task at any weights: inputs prepared once, one copy of the model filled in place."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.learner.logit_mask import mask_logits
from tmln.measure.trajectory import Checkpoint, Recording
from tmln.seeds import seed_of
from tmln.streams.samples import Samples

BatchNorm = Literal["keep", "reestimate"]
Split = Literal["test", "train"]
BATCH = 64  # images that stay in the cache: 500 took 0.81 s of a core by 64, 1.23 s at once (width-20 ResNet)


class Measured(NamedTuple):
    """Mean cross entropy, NaN or infinite where the weights make it so, and the fraction that is right."""

    loss: float
    accuracy: float


class LossAt:
    """Calls are ``probe(weights, buffers)``: a vector of the trainable parameters, and what else the model holds.

    With ``refresh``, inputs of the training set, the running statistics of batch norm are computed anew from them at
    every call, as a network between trained ones needs (Izmailov et al. 2018, Garipov et al. 2018).
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        open_classes: Sequence[int] | None = None,
        refresh: Tensor | None = None,
    ) -> None:
        self.model = copy.deepcopy(model).eval()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.sizes = [p.numel() for p in self.parameters]
        self.norms = [m for m in self.model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
        self.batches = [*zip(x.split(BATCH), y.split(BATCH), strict=True)]
        self.open_classes = open_classes
        self.refresh = () if refresh is None else refresh.chunk(-(-len(refresh) // BATCH))

    @torch.no_grad()
    def __call__(self, weights: Tensor, buffers: Mapping[str, Tensor]) -> Measured:
        for parameter, part in zip(self.parameters, weights.split(self.sizes), strict=True):
            parameter.copy_(part.view(parameter.shape))
        for name, buffer in self.model.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
        if self.refresh and self.norms:
            self._refresh()
        loss, right, count = 0.0, 0, 0
        for x, y in self.batches:
            output = mask_logits(self.model(x), self.open_classes).double()
            loss += float(F.cross_entropy(output, y, reduction="sum"))
            right += int((output.argmax(1) == y).sum())
            count += len(y)
        return Measured(loss / count, right / count)

    def _refresh(self) -> None:
        """The mean of the batches' statistics; only batch norm is put into training."""
        momenta = [norm.momentum for norm in self.norms]
        for norm in self.norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.train()
        for x in self.refresh:
            self.model(x)
        for norm, momentum in zip(self.norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


def loss_at_task(
    recording: Recording,
    task: int,
    *,
    samples: int | None = 500,
    split: Split = "test",
    bn: BatchNorm = "keep",
    known: int | None = None,
) -> LossAt:
    """Of task number ``task`` (from 0), on a fixed subset of its data; None takes all.

    ``known`` is the last task whose classes compete where the run masks unmet ones. ``bn="reestimate"`` takes the
    statistics from training data of the same task, as many samples.
    """
    check_options(samples, split, bn)
    stream = recording.stream
    chosen = subset(stream[task].test if split == "test" else stream[task].train, samples)
    masked = recording.config.logit_mask == "seen"
    refresh = None
    if bn == "reestimate":
        refresh = stream.prepare(subset(stream[task].train, samples).x)
    open_classes = stream.seen(len(stream) - 1 if known is None else known) if masked else None
    return LossAt(recording.model, stream.prepare(chosen.x), chosen.y, open_classes=open_classes, refresh=refresh)


def check_options(samples: int | None, split: str, bn: str) -> None:
    """Raise if there is no such probe; to be asked before long work."""
    for name, value, choices in (("split", split, get_args(Split)), ("bn", bn, get_args(BatchNorm))):
        if value not in choices:
            raise ValueError(f"{name} is {' or '.join(choices)}, not {value!r}")
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if samples == 1 and bn == "reestimate":
        raise ValueError("statistics of batch norm are of at least 2 samples: take more, or keep the trained ones")


def subset(samples: Samples, wanted: int | None) -> Samples:
    """The same ones for every method and seed, drawn without replacement; all where there are no more."""
    if not len(samples):
        raise ValueError("a task without samples has no loss")
    if wanted is None or wanted >= len(samples):
        return samples
    generator = torch.Generator().manual_seed(seed_of(0, "subset"))
    return samples.subset(torch.randperm(len(samples), generator=generator)[:wanted].sort().values)


def mixed_buffers(recording: Recording, points: Sequence[Checkpoint], shares: Sequence[float]) -> dict[str, Tensor]:
    """Buffers between those of checkpoints, in these shares; counters are those of the largest share."""
    states = [recording.buffers(point) for point in points]
    largest = states[max(range(len(shares)), key=shares.__getitem__)]
    mixed = {}
    for name, value in largest.items():
        parts = [share * state[name].double() for share, state in zip(shares, states, strict=True)]
        mixed[name] = sum(parts[1:], parts[0]) if value.is_floating_point() else value
    return mixed
