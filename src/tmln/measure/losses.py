"""Loss and accuracy of a task at any weights, and at the stages of a recorded run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.distributed.data_parallel import BatchNorm
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.learner.forward import mask_logits
from tmln.measure.trajectory import Checkpoint, Recording, record, record_all
from tmln.seeds import seed_of
from tmln.streams.samples import Samples

NormStatistics = Literal["keep", "reestimate"]
Split = Literal["test", "train"]
BATCH = 64  # images that fit in the cache: 500 took 0.81 s by 64, 1.23 s at once (width-20 ResNet, one core)


class Measurement(NamedTuple):
    """Mean cross entropy (NaN or infinite if the weights make it so) and accuracy."""

    loss: float
    accuracy: float


class LossProbe:
    """Evaluation of one model at other weights: ``probe(weights, buffers)``.

    ``weights`` is a vector of the trainable parameters, ``buffers`` the other state. Inputs are
    prepared once, and one copy of the model is filled in place. With ``refresh``, inputs of the
    training set, running statistics of batch norm are computed from them in every call, as networks
    between trained ones need (Izmailov et al. 2018, Garipov et al. 2018).
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
        self.norms = [m for m in self.model.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
        self.batches = [*zip(x.split(BATCH), y.split(BATCH), strict=True)]
        self.open_classes = open_classes
        self.refresh = () if refresh is None else refresh.chunk(-(-len(refresh) // BATCH))

    @torch.no_grad()
    def __call__(self, weights: Tensor, buffers: Mapping[str, Tensor]) -> Measurement:
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
        return Measurement(loss / count, right / count)

    def _refresh(self) -> None:
        """Replace running statistics by the mean over batches; only batch norm is in train mode."""
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


def make_probe(
    recording: Recording,
    task: int,
    *,
    samples: int | None = 500,
    split: Split = "test",
    bn: NormStatistics = "keep",
    known: int | None = None,
) -> LossProbe:
    """Make a probe of task number ``task`` (from 0), on a fixed subset of its data; None takes all.

    ``known`` is the last task whose classes compete if the run masks unmet classes.
    ``bn="reestimate"`` takes statistics from as many training samples of the same task.
    """
    check_options(samples, split, bn)
    stream = recording.stream
    chosen = draw_subset(stream[task].test if split == "test" else stream[task].train, samples)
    masked = recording.config.logit_mask == "seen"
    refresh = None
    if bn == "reestimate":
        refresh = stream.prepare(draw_subset(stream[task].train, samples).x)
    open_classes = stream.seen(len(stream) - 1 if known is None else known) if masked else None
    if stream.heads:
        open_classes = stream[task].classes
    return LossProbe(recording.model, stream.prepare(chosen.x), chosen.y, open_classes=open_classes, refresh=refresh)


def check_options(samples: int | None, split: str, bn: str) -> None:
    """Raise if there is no such probe; call it before long work."""
    for name, value, choices in (("split", split, get_args(Split)), ("bn", bn, get_args(NormStatistics))):
        if value not in choices:
            raise ValueError(f"{name} is {' or '.join(choices)}, not {value!r}")
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if samples == 1 and bn == "reestimate":
        raise ValueError("statistics of batch norm are of at least 2 samples: take more, or keep the trained ones")


def draw_subset(samples: Samples, wanted: int | None) -> Samples:
    """Draw a subset without replacement, the same for every method and seed."""
    if not len(samples):
        raise ValueError("a task without samples has no loss")
    if wanted is None or wanted >= len(samples):
        return samples
    generator = torch.Generator().manual_seed(seed_of(0, "subset"))
    return samples.subset(torch.randperm(len(samples), generator=generator)[:wanted].sort().values)


def mix_buffers(recording: Recording, points: Sequence[Checkpoint], shares: Sequence[float]) -> dict[str, Tensor]:
    """Return buffers interpolated between checkpoints; counters are those of the largest share."""
    states = [recording.buffers(point) for point in points]
    largest = states[max(range(len(shares)), key=shares.__getitem__)]
    mixed = {}
    for name, value in largest.items():
        parts = [share * state[name].double() for share, state in zip(shares, states, strict=True)]
        mixed[name] = sum(parts[1:], parts[0]) if value.is_floating_point() else value
    return mixed


STAGES = ("start", "after task 1", "after task 2")


def measure_losses(
    recording: Recording, *, samples: int | None = None, split: Split = "test"
) -> dict[str, dict[str, float]]:
    """Return task -> stage -> mean loss, of all test samples unless fewer are requested."""
    anchors = [recording.start, *recording.solutions[:2]]
    if len(anchors) < len(STAGES):
        raise ValueError(f"the run has not learned two tasks: {recording.diverged or 'record more of it'}")
    found: dict[str, dict[str, float]] = {}
    for task in (0, 1):
        probe = make_probe(recording, task, samples=samples, split=split, known=1)
        losses = [probe(recording.weights(point), recording.buffers(point)).loss for point in anchors]
        found[f"task {task + 1}"] = dict(zip(STAGES, losses, strict=True))
    return found


def measure_trajectory_losses(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    checkpoints: int = 20,
) -> list[dict[str, Any]]:
    """Return a row per configuration: ``losses`` of :func:`measure_losses`, or a ``problem``.

    Recordings are shared with :mod:`tmln.measure.landscape` if ``checkpoints`` are equal.
    """
    record_all(configs, store, tasks=2, checkpoints=checkpoints)
    rows = []
    for config in configs:
        recording = record(config, store, tasks=2, checkpoints=checkpoints)
        row: dict[str, Any] = {"method": config.method, "seed": config.seed, "losses": None}
        row["problem"] = f"diverged ({recording.diverged})" if recording.diverged else None
        if not recording.diverged:
            row["losses"] = measure_losses(recording)
        rows.append(row)
    return rows
