"""The diagonal empirical Fisher, exactly and per sample (equation 1): F_i = mean_n (d log p(y_n|x_n) / d theta_i)^2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.batches import (
    Batch,
    LogLikelihood,
    call,
    class_log_likelihood,
    read_batch,
    sample_targets,
)
from tmln.curvature.choose import Ways
from tmln.curvature.sizes import SQUARED, Size
from tmln.curvature.untouched import untouched
from tmln.progress import track

MEMORY = 128 * 2**20  # bytes: 30 to 60 samples of the width-20 ResNet18, where larger chunks were no faster


class Fisher(Mapping[str, Tensor]):
    """``{name: F}``, which also knows the parameter that each tensor belongs to, and how many samples it saw."""

    def __init__(self, values: dict[str, Tensor], parameters: dict[str, Tensor], samples: int, way: str) -> None:
        self._values = values
        self.parameters = parameters
        self.samples = samples
        self.way = way

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Fisher({len(self)} tensors, {self.samples} samples, by {self.way})"


def diagonal_fisher(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    log_likelihood: LogLikelihood | None = None,
    targets: Literal["labels", "sampled"] = "labels",
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    memory: int = MEMORY,
    progress: bool | None = None,
) -> Fisher:
    """The mean over all samples of the squared gradient of log p(y|x), for every trainable parameter.

    >>> model = nn.Linear(2, 2)
    >>> x, y = torch.randn(10, 2), torch.randint(2, (10,))
    >>> diagonal_fisher(model, [(x, y)])
    Fisher(2 tensors, 10 samples, by hooks)

    The model is evaluated in eval mode (per-sample gradients do not exist under batch statistics) and comes back as
    it was: flags, ``.grad``, random state, hooks and buffers, also after an exception.

    Args:
        batches: yields ``(x, y)``, ``(x1, x2, y)``, or dicts with the target under ``labels`` or ``target``.
        log_likelihood: ``f(output, target)`` -> log p of each sample, [B]; a softmax over classes unless given.
        targets: ``"labels"`` is the empirical Fisher; ``"sampled"`` draws y from the model (the true Fisher by Monte
            Carlo), with ``generator`` (one seeded with 0 unless given).
        chunk_size: samples in one pass; unless given, as many as ``memory`` bytes of activations allow.
        progress: a progress bar; unless given, where a terminal watches a pass of more than two seconds.

    Layers with a rule (:mod:`tmln.curvature.rules`) are squared as their gradients arrive. In every call the first two
    samples of each shape are checked against plain autograd; a model that this way does not do exactly goes through
    ``torch.func.vmap``, or one sample at a time, which is logged once.
    """
    if targets not in ("labels", "sampled"):
        raise ValueError(f"targets must be 'labels' or 'sampled', got {targets!r}")
    if targets == "sampled" and log_likelihood is not None:
        raise ValueError("targets='sampled' draws from a softmax; with your own log_likelihood give sampled labels")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    names: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not names:
        raise ValueError(f"{type(model).__name__} has no trainable parameter")
    device = next(iter(names.values())).device
    generator = (generator or torch.Generator(device).manual_seed(0)) if targets == "sampled" else None
    score = log_likelihood or class_log_likelihood
    trainable = set(names.values())
    found = gradient_sizes(
        model, batches, trainable, score, SQUARED, "Fisher diagonal", generator, chunk_size, memory, progress
    )
    return Fisher({name: found.means[p] for name, p in names.items()}, names, found.samples, found.way)


class Sizes(NamedTuple):
    """The mean size of per-sample gradients, of how many samples, and by which way."""

    means: dict[Tensor, Tensor]
    samples: int
    way: str


def gradient_sizes(
    model: nn.Module,
    batches: Iterable[Any],
    parameters: set[Tensor],
    score: LogLikelihood,
    size: Size,
    what: str,
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    memory: int = MEMORY,
    progress: bool | None = None,
) -> Sizes:
    """mean_n |d score(f(x_n), y_n) / d theta|^power for these parameters, exactly and per sample, in eval mode.

    One pass for the Fisher diagonal (squares of log p) and for output sensitivities (absolute values of ||f||^2).
    ``generator`` draws the targets from the model. Parameters that are frozen count, if they are asked for.
    """
    inner = getattr(model, "_orig_mod", model)  # a compiled module: its hooks would be compiled away
    device = next(iter(parameters)).device
    sums = {p: torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in parameters}
    width = max(p.element_size() for p in parameters)

    def labelled(probe: Batch) -> Batch:  # by draws that are not missing afterwards
        return probe if generator is None else _relabelled(inner, probe, torch.Generator(device).manual_seed(0))

    ways, samples = Ways(inner, parameters, score, labelled, size), 0
    with untouched(model, training=False), torch.enable_grad():
        for p in parameters:
            p.requires_grad_(True)
        for raw in track(batches, what, progress):
            batch = read_batch(raw).to(device)
            if batch.size == 0:
                continue
            verdict = ways.verdict(batch)
            for chunk in batch.chunks(chunk_size or max(1, memory // max(1, verdict.floats * width))):
                if generator is not None:
                    chunk = _relabelled(inner, chunk, generator)
                for p, value in ways.sums(verdict, chunk).items():
                    sums[p].add_(value)
            samples += batch.size
    if samples == 0:
        raise ValueError("no samples: the data loader or memory is empty")
    return Sizes({p: total.div_(samples) for p, total in sums.items()}, samples, ways.slowest)


def _relabelled(model: nn.Module, batch: Batch, generator: torch.Generator) -> Batch:
    with torch.no_grad():
        drawn = sample_targets(call(model, batch), generator)
    return Batch(batch.args, batch.kwargs, drawn, batch.size)
