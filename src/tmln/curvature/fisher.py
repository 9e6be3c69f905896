"""The diagonal empirical Fisher, exact and per sample (equation 1).

F_i = mean_n (d log p(y_n|x_n) / d theta_i)^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tmln.curvature.batches import SampleBatch, call_model, read_batch
from tmln.curvature.likelihoods import Likelihood, LogLikelihood
from tmln.curvature.pass_selection import PASSES, PassSelector
from tmln.curvature.preserve_state import preserve_model
from tmln.curvature.square_sums import SQUARE, Magnitude
from tmln.distributed.process_group import Group, Ranks, from_local_part, is_sharded, local_shard, ranks_of
from tmln.distributed.sharding import gather_parameters, reshard_model
from tmln.progress import track

MEMORY = 128 * 2**20  # bytes: 30 to 60 samples of the width-20 ResNet18, where larger chunks were no faster


class Fisher(Mapping[str, Tensor]):
    """A mapping from names to F, with the parameters, the number of samples and the pass used."""

    def __init__(self, values: dict[str, Tensor], parameters: dict[str, Tensor], samples: int, strategy: str) -> None:
        self._values = values
        self.parameters = parameters
        self.samples = samples
        self.strategy = strategy

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Fisher({len(self)} tensors, {self.samples} samples, by {self.strategy})"


def diagonal_fisher(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    log_likelihood: str | LogLikelihood | None = None,
    targets: Literal["labels", "sampled"] = "labels",
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    memory: int | None = None,
    progress: bool | None = None,
    group: Group = None,
) -> Fisher:
    """Compute the mean over samples of squared gradients of log p(y|x), by parameter.

    >>> model = nn.Linear(2, 2)
    >>> x, y = torch.randn(10, 2), torch.randint(2, (10,))
    >>> diagonal_fisher(model, [(x, y)])
    Fisher(2 tensors, 10 samples, by hooks)

    The model runs in eval mode (per-sample gradients do not exist under batch statistics). Flags,
    ``.grad``, random state, hooks and buffers are restored, also after an exception.

    Layers with a rule (:mod:`tmln.curvature.layer_rules`) are squared as their gradients arrive.
    Every call compares two samples of each shape, and some drawn at random, with plain autograd; a
    model for which they differ goes through ``torch.func.vmap``, or one sample at a time, which is
    logged once. An argument that all samples share may be as long as a batch: which arguments have
    samples is then found by comparing the output of the whole batch with those of its parts.

    Parameters in shards (FSDP2, tensor parallel) get F in the same shards. Weights are gathered for
    the pass, and each rank passes the batches of all and keeps its part of F: the result is that of
    one process, and takes as long.

    Args:
        model: the model.
        batches: yields ``(x, y)``, ``(x1, x2, y)``, or dicts: the model's keyword arguments, with
            the target under ``labels`` or ``target``.
        log_likelihood: ``"classes"``, ``"tokens"``, ``"masked-tokens"``, ``"bernoulli"``,
            ``"gaussian"``, or a function ``f(output, target)`` -> log p of each sample, [B]
            (:mod:`tmln.curvature.likelihoods`). Unless given, what a Hugging Face model does with
            its labels, or what the shapes say; shapes that fit two are refused. A sequence's is the
            sum over its tokens.
        targets: ``"labels"`` is the empirical Fisher; ``"sampled"`` draws y from the model (the
            true Fisher by Monte Carlo). Ignored labels (-100) stay ignored.
        generator: draws the targets; unless given, one seeded with 0.
        chunk_size: samples in one pass; unless given, as many as ``memory`` allows.
        memory: bytes of activations; unless given, 128 MB, or as much as the parameters take,
            frozen ones twice.
        progress: whether to show a progress bar; unless given, in a terminal after two seconds.
        group: whose samples count. Where ``torch.distributed`` is initialised, every rank calls
            with its own batches (any number) and gets the mean over the samples of all ranks, the
            same bits everywhere. A process group: of its ranks. ``"local"``: of this rank's batches
            alone.

    Returns:
        F by name; it also knows the parameters, so that optimizers can match it.
    """
    if targets not in ("labels", "sampled"):
        raise ValueError(f"targets must be 'labels' or 'sampled', got {targets!r}")
    if targets == "sampled" and callable(log_likelihood):
        raise ValueError("targets='sampled' draws from a likelihood with a name; with your own give sampled labels")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    reshard_model(model)
    names: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not names:
        raise ValueError(f"{type(model).__name__} has no trainable parameter")
    device = next(iter(names.values())).device
    generator = (
        (generator or torch.Generator(device).manual_seed(_seed(names, group))) if targets == "sampled" else None
    )
    score = Likelihood(_unwrap(model), log_likelihood)
    found = mean_gradient_magnitudes(
        model,
        batches,
        set(names.values()),
        score,
        SQUARE,
        "Fisher diagonal",
        generator,
        chunk_size,
        memory,
        progress,
        group,
    )
    return Fisher({name: found.means[p] for name, p in names.items()}, names, found.samples, found.strategy)


class GradientMeans(NamedTuple):
    """Mean magnitudes of per-sample gradients, the number of samples, and the pass used."""

    means: dict[Tensor, Tensor]
    samples: int
    strategy: str


def mean_gradient_magnitudes(
    model: nn.Module,
    batches: Iterable[Any],
    parameters: set[Tensor],
    score: Likelihood | LogLikelihood,
    size: Magnitude,
    what: str,
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    memory: int | None = None,
    progress: bool | None = None,
    group: Group = None,
) -> GradientMeans:
    """Compute mean_n |d score(f(x_n), y_n) / d theta|^power exactly, per sample, in eval mode.

    The common pass of the Fisher diagonal (squares of log p) and of output sensitivities (absolute
    values of ||f||^2). ``generator`` draws targets from the model. Frozen parameters count if they
    are among ``parameters``. Other arguments are as in :func:`diagonal_fisher`.
    """
    reshard_model(model)
    inner, ranks = _unwrap(model), ranks_of(group)
    likelihood = score if isinstance(score, Likelihood) else Likelihood(inner, score)
    device = next(iter(parameters)).device
    width = max(p.element_size() for p in parameters)
    room = memory or max(MEMORY, _model_bytes(model, parameters))
    ordered = [p for p in model.parameters() if p in parameters]  # a set has another order on every rank

    def chunk(floats: int) -> int:
        return chunk_size or max(1, room // max(1, floats * width))

    def label(part: SampleBatch) -> SampleBatch:
        return part if generator is None or not part.size else _draw_targets(inner, likelihood, part, generator)

    def label_again(part: SampleBatch) -> SampleBatch:  # by draws that are not missing afterwards
        again = torch.Generator(device).manual_seed(0)
        return part if generator is None else _draw_targets(inner, likelihood, part, again)

    def run_batches(selector: PassSelector, read: Iterable[SampleBatch]) -> int:
        samples = 0
        with preserve_model(model, training=False), _exact_precision(inner, device):
            for p in selector.trainable:
                p.requires_grad_(True)
            for batch in read:
                batch = batch.to(device)
                try:
                    selector.add(batch)
                except (IndexError, RuntimeError):
                    likelihood.explain_error(batch.target)
                    raise
                likelihood.check_labels([*batch.args, *batch.kwargs.values()], batch.target)
                samples += batch.size
        return samples

    read = (read_batch(raw, labelled=generator is None) for raw in track(batches, what, progress))
    filled = (batch for batch in read if batch.size)
    with gather_parameters(inner) as plain:
        used = {p: plain.get(p, p) for p in ordered}
        sharded = {q: p for p, q in plain.items()}
        keep = (lambda q, value: local_shard(value, sharded[q]) if q in sharded else value) if plain else None
        selector = PassSelector(inner, set(used.values()), likelihood, chunk, label, label_again, size, keep)
        if plain:
            counts, strategies = [run_batches(selector, _interleave_batches(filled, ranks))], [selector.slowest]
        else:
            gathered = ranks.gather_objects(
                lambda: (run_batches(selector, filled), selector.slowest if selector.selected_by_kind else PASSES[0]),
                f"the pass of the {what}",
            )
            counts, strategies = [count for count, _ in gathered], [strategy for _, strategy in gathered]
    samples = sum(counts)
    if samples == 0:
        raise ValueError("no samples: the data loader or memory is empty" + (" on every rank" * (ranks.size > 1)))
    reached = selector.reached or any(bool(total.any()) for total in selector.sums.values.values())
    if not any(ranks.gather_objects(lambda: reached)):
        raise RuntimeError(
            f"no gradient reached any parameter of {type(inner).__name__} in {samples} samples: its forward pass uses "
            "other tensors than its parameters, or detaches them; give the model that does the forward pass itself"
        )
    means: dict[Tensor, Tensor] = {}
    for p in ordered:
        total = selector.sums.values.pop(used[p], None)
        dtype = torch.promote_types(p.dtype, torch.float32)
        if is_sharded(p):
            here = (
                local_shard(torch.zeros(p.shape, dtype=dtype, device=device), p) if total is None else total.to(dtype)
            )
            means[p] = from_local_part(here.div_(samples), p)
            continue
        means[p] = torch.zeros_like(p, dtype=dtype)
        if total is not None:
            means[p].copy_(total)
        if not plain:
            ranks.sum_(means[p])
        means[p].div_(samples)
    return GradientMeans(means, samples, max(strategies, key=PASSES.index) if ranks.size > 1 else selector.slowest)


def _interleave_batches(batches: Iterator[SampleBatch], ranks: Ranks) -> Iterator[SampleBatch]:
    """Yield the batches of every rank in the same order on all: one of each at a time."""
    while True:
        turn = ranks.gather_objects(
            lambda: None if (batch := next(batches, None)) is None else batch.to(torch.device("cpu"))
        )
        some = [batch for batch in turn if batch is not None]
        if not some:
            return
        yield from some


def _seed(names: Mapping[str, Tensor], group: Group) -> int:
    """Return the seed of drawn labels: each rank draws its own unless all pass all samples."""
    return 0 if any(is_sharded(p) for p in names.values()) else ranks_of(group).rank


def _model_bytes(model: nn.Module, parameters: set[Tensor]) -> int:
    """Return the bytes of the model, frozen parameters twice: others need sums, too."""
    return sum(p.numel() * p.element_size() * (1 if p in parameters else 2) for p in model.parameters())


def _unwrap(model: nn.Module) -> nn.Module:
    """Return the model in torch.compile and DistributedDataParallel, where hooks work as usual."""
    while True:
        compiled = getattr(model, "_orig_mod", None)
        if isinstance(compiled, nn.Module):
            model = compiled
        elif isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


@contextmanager
def _exact_precision(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Compute in the precision of the weights, without autocast and without fused layers."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    # Accelerate, and so Hugging Face's Trainer, replace forward by one under autocast
    forwards = {m: m.forward for m in model.modules() if "_original_forward" in vars(m)}
    try:
        for module in forwards:
            module.forward = vars(module)["_original_forward"]
        casts = torch.amp.is_autocast_available(device.type)
        with torch.autocast(device.type, enabled=False) if casts else nullcontext(), torch.enable_grad():
            yield
    finally:
        for module, forward in forwards.items():
            module.forward = forward
        torch.backends.mha.set_fastpath_enabled(fused)


def _draw_targets(model: nn.Module, score: Likelihood, batch: SampleBatch, generator: torch.Generator) -> SampleBatch:
    with torch.no_grad():
        drawn = score.draw(call_model(model, batch), batch.target, batch.kwargs.get("attention_mask"), generator)
    return batch.with_target(drawn)
