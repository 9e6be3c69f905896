"""The diagonal empirical Fisher, exactly and per sample (equation 1): F_i = mean_n (d log p(y_n|x_n) / d theta_i)^2."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tmln.curvature.batches import Batch, LogLikelihood, call, class_log_likelihood, read_batch, sample_targets
from tmln.curvature.functional import LoopPass, VmapPass
from tmln.curvature.hooks import HookPass, Unsupported
from tmln.curvature.untouched import untouched
from tmln.progress import track

Squares = Callable[[Batch], dict[Tensor, Tensor]]
MEMORY = 128 * 2**20  # bytes; larger chunks were no faster in any network of the benchmark
logger = logging.getLogger("tmln.curvature")


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

    Layers with a rule (:mod:`tmln.curvature.rules`) are squared as their gradients arrive. The first two samples are
    checked against plain autograd; a model that this way does not do exactly goes through ``torch.func.vmap``, or
    one sample at a time, which is logged once.
    """
    if targets not in ("labels", "sampled"):
        raise ValueError(f"targets must be 'labels' or 'sampled', got {targets!r}")
    if targets == "sampled" and log_likelihood is not None:
        raise ValueError("targets='sampled' draws from a softmax; with your own log_likelihood give sampled labels")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not names:
        raise ValueError(f"{type(model).__name__} has no trainable parameter")
    inner = getattr(model, "_orig_mod", model)  # a compiled module: its hooks would be compiled away
    device = next(iter(names.values())).device
    scores = log_likelihood or class_log_likelihood
    if targets == "sampled":
        generator = generator or torch.Generator(device).manual_seed(0)

    sums = {p: torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in names.values()}
    samples, run = 0, None
    with untouched(model, training=False), torch.enable_grad():
        for raw in track(batches, "Fisher diagonal", progress):
            batch = read_batch(raw).to(device)
            if batch.size == 0:
                continue
            if run is None:
                run = _Run(inner, set(names.values()), _checked(scores), generator, chunk_size, memory, batch[:2])
            for chunk in batch.chunks(run.chunk_size):
                for p, squares in run(chunk).items():
                    sums[p].add_(squares)
            samples += batch.size
    if run is None:
        raise ValueError("no samples: the data loader or memory is empty")
    values = {name: sums[p].div_(samples) for name, p in names.items()}
    return Fisher(values, names, samples, run.way)


def _checked(scores: LogLikelihood) -> LogLikelihood:
    def score(output: Any, target: Any) -> Tensor:
        value = scores(output, target)
        if not isinstance(value, Tensor) or value.dim() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"log_likelihood must return one value a sample, [B]; got {shape}")
        return value

    return score


class _Run:
    """The way that was found for this model, and how many samples it takes at a time."""

    def __init__(
        self,
        model: nn.Module,
        trainable: set[Tensor],
        score: LogLikelihood,
        generator: torch.Generator | None,
        chunk_size: int | None,
        memory: int,
        probe: Batch,
    ) -> None:
        self.model, self.generator = model, generator
        if generator is not None:  # the probe needs the same labels twice, and must not use up draws
            probe = self._draw(probe, torch.Generator(generator.device).manual_seed(0))
        truth = LoopPass(model, trainable, score)
        expected = truth(probe)  # a wrong model, target or loss raises here, in plain words
        width = max(p.element_size() for p in trainable)
        floats = 0
        self.squares: Squares
        try:
            hooks = HookPass(model, trainable, score)
            with _NoDataDependence():
                found = hooks(probe)
            _compare(found, expected)
            floats, self.way, self.squares = hooks.floats_per_sample, "hooks", hooks
        except Exception as reason:
            try:
                vmapped = VmapPass(model, trainable, score)
                _compare(vmapped(probe), expected)
                floats, self.way, self.squares = 3 * sum(p.numel() for p in trainable), "vmap", vmapped
            except Exception as second:
                self.way, self.squares = "loop", truth
                reason = second
            _log_once(type(model).__name__, self.way, str(reason).split("\n")[0])
        fitting = max(1, memory // max(1, floats * width))
        self.chunk_size = chunk_size or fitting

    def _draw(self, batch: Batch, generator: torch.Generator) -> Batch:
        with torch.no_grad():
            drawn = sample_targets(call(self.model, batch), generator)
        return Batch(batch.args, batch.kwargs, drawn, batch.size)

    def __call__(self, chunk: Batch) -> dict[Tensor, Tensor]:
        return self.squares(chunk if self.generator is None else self._draw(chunk, self.generator))


def _compare(found: dict[Tensor, Tensor], expected: dict[Tensor, Tensor]) -> None:
    """Gross errors only (a layer used past its rule, samples mixed): rounding is not judged here."""
    scale = max((float(value.max()) for value in expected.values() if value.numel()), default=0.0)
    for p in found.keys() | expected.keys():
        a = found.get(p, torch.zeros_like(p))
        b = expected.get(p, torch.zeros_like(p))
        allowed = 0.01 * float(b.max()) + 1e-5 * scale if b.numel() else 0.0
        if b.numel() and not float((a - b).abs().max()) <= allowed:
            raise Unsupported(f"a parameter of shape {tuple(p.shape)} is used in a way that hooks do not see")


class _NoDataDependence(TorchDispatchMode):
    """A forward that branches on values treats a chunk as one: then samples must go alone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise Unsupported("its forward depends on the values in a batch")
        return func(*args, **(kwargs or {}))


@cache
def _log_once(model: str, way: str, reason: str) -> None:
    logger.warning("diagonal_fisher: %s goes by %s, which is slower (%s)", model, way, reason)
