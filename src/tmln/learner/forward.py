"""Passes through the model: masked logits, mixed precision, micro-batches, backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.data_parallel import BatchNorm, average_gradients
from tmln.distributed.process_group import SINGLE, Ranks, ShardValue, is_sharded, local_part, reduce_parts

Precision = Literal["32", "bf16-mixed", "16-mixed"]
HALF_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
FIRST_SCALE, MAX_SCALE = 2.0**16, 2.0**24  # torch's GradScaler begins there, too
GROWTH_INTERVAL = 2000  # gradients without an overflow, after which the scale is doubled


def mask_logits(output: Tensor, open_classes: Sequence[int] | None) -> Tensor:
    """Set the logits of all classes but ``open_classes`` to -inf; None leaves all as they are."""
    return output if open_classes is None else _mask(output, _closed_classes(open_classes))


class MaskedModel(nn.Module):
    """A model whose closed classes have the logit -inf: no probability and no gradient.

    Training, the Fisher diagonal, K-FAC, output sensitivities, reference gradients and teachers all
    use it, so that a class that was not met does not exist for any of them, as if the head grew.
    """

    closed: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("closed", _closed_classes(()), persistent=False)
        self.train(model.training)

    def open(self, classes: Sequence[int]) -> None:
        """Let these classes compete from now on, and no others."""
        self.closed = _closed_classes(classes)

    def close(self, output: Tensor) -> Tensor:
        """Return the model's output with the logits of closed classes at -inf."""
        return _mask(output, self.closed)

    def forward(self, x: Tensor) -> Tensor:
        return self.close(self.model(x))


class TaskHeads(MaskedModel):
    """A model with a head for each task: of every sample only its own task's classes compete.

    Within :meth:`for_labels` the labels say which head each sample has; elsewhere all samples are
    of the task that was opened, as in Fishers and importances at its end.

    Args:
        model: the network, whose last layer has the rows of all heads.
        heads: the classes of each head; no class is in two.
    """

    rows: Tensor | None

    def __init__(self, model: nn.Module, heads: Sequence[Sequence[int]]) -> None:
        super().__init__(model)
        self.heads = check_heads(heads)
        self.rows = None

    def open(self, classes: Sequence[int]) -> None:
        """Leave the open head: it is the task's, whatever classes were met."""

    def open_head(self, classes: Sequence[int]) -> None:
        """Let the classes of the task that begins compete."""
        self.closed = _closed_classes(find_head_classes(self.heads, classes))

    @contextmanager
    def for_labels(self, y: Tensor) -> Iterator[None]:
        """Choose each sample's head by its label, for batches of these samples in the block."""
        before, self.rows = self.rows, close_other_heads(self.heads, y)
        try:
            yield
        finally:
            self.rows = before

    def close(self, output: Tensor) -> Tensor:
        if self.rows is None or len(self.rows) != len(output):
            return super().close(output)
        return mask_rows(output, self.rows)


def check_heads(heads: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the heads; raise if one has no classes, or two have a class in common."""
    found = tuple(tuple(int(label) for label in classes) for classes in heads)
    labels = [label for classes in found for label in classes]
    if not all(found) or len(set(labels)) != len(labels) or min(labels, default=0) < 0:
        raise ValueError(f"heads are lists of classes, each class in one of them: [[0, 1], [2, 3]], not {list(heads)}")
    return found


def find_head_classes(heads: Sequence[Sequence[int]], classes: Sequence[int]) -> tuple[int, ...]:
    """Return the classes of all heads that have one of these classes."""
    known = {label for head in heads for label in head}
    if missing := set(classes) - known:
        raise ValueError(f"class {min(missing)} is in no head: heads have the classes {sorted(known)}")
    return tuple(label for head in heads if set(head) & set(classes) for label in head)


def close_other_heads(heads: Sequence[Sequence[int]], y: Tensor) -> Tensor:
    """Return for each sample and class whether it is closed: not in the head of the label."""
    classes = max(label for head in heads for label in head) + 1
    head_of = torch.full((classes,), -1, device=y.device)
    for number, head in enumerate(heads):
        head_of[list(head)] = number
    if len(y) and (int(y.max()) >= classes or bool((head_of[y] < 0).any())):
        find_head_classes(heads, y.tolist())
    return head_of != head_of[y].unsqueeze(1)


def mask_rows(output: Tensor, closed: Tensor) -> Tensor:
    """Set the logits of closed classes to -inf, those of each sample in its row."""
    every = F.pad(closed, (0, output.shape[1] - closed.shape[1]), value=True)
    return output.masked_fill(every.to(output.device), float("-inf"))


def mask_heads(output: Tensor, y: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
    """Return the output in which of each sample only the head of its label is open."""
    return mask_rows(output, close_other_heads(heads, y.to(output.device)))


class AutocastModel(nn.Module):
    """A model under autocast, whose output, and so its loss, is in single precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, self.dtype):
            output: Tensor = self.model(x)
        return output.float()


class MicroBatches(nn.Module):
    """A model that passes ``rows`` samples at a time and recomputes activations.

    Activations take the memory of one micro-batch, and the loss sees the whole batch, for the price
    of a second forward pass. Random numbers (dropout) are the same both times. ``ranks``: those
    whose weights are gathered for each pass, so that all of them pass as many micro-batches,
    whatever rows each has.
    """

    def __init__(self, model: nn.Module, rows: int, ranks: Ranks = SINGLE) -> None:
        super().__init__()
        if rows < 1:
            raise ValueError(f"micro_batch must be at least 1, got {rows}")
        if (norm := next((m for m in model.modules() if isinstance(m, BatchNorm)), None)) is not None:
            raise ValueError(
                f"micro_batch={rows}: the model has a {type(norm).__name__}, which normalises by the batch, so that in "
                "pieces it would be another network; lower batch_size instead, or use GroupNorm"
            )
        self.model, self.rows, self.ranks = model, rows, ranks

    def forward(self, x: Tensor) -> Tensor:
        most = int(self.ranks.reduce_max([len(x)])[0])
        if most <= self.rows or not torch.is_grad_enabled():
            whole: Tensor = self.model(x)
            return whole
        pieces = x.split(self.rows) if self.ranks.size == 1 else x.tensor_split(-(-most // self.rows))
        return torch.cat([checkpoint(self.model, piece, use_reentrant=False) for piece in pieces])


class LossScale:
    """The factor of a loss in half precision, so that small gradients do not vanish.

    Gradients are divided by it before anything reads them. Where one overflows, the backward pass
    is repeated at half the scale, so that no step is left out and a run depends on its seed alone.
    """

    def __init__(self) -> None:
        self.value, self.calm = FIRST_SCALE, 0

    def backward(self, loss: Tensor, parameters: Sequence[Tensor], ranks: Ranks = SINGLE) -> None:
        """Put the gradient of ``loss``, averaged over ``ranks``, into ``.grad`` (None before)."""
        while True:
            (loss * self.value).backward(retain_graph=True)
            average_gradients(parameters, ranks)
            found = [p.grad for p in parameters if p.grad is not None]
            if not found or _is_finite(found) or self.value < 1.0:
                break
            self.value, self.calm = self.value / 2, 0
            for p in parameters:
                p.grad = None
        if found:
            torch._foreach_div_(found, self.value)
        self.calm += 1
        if self.calm >= GROWTH_INTERVAL:
            self.value, self.calm = min(2 * self.value, MAX_SCALE), 0

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value, "calm": self.calm}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value, self.calm = float(state["value"]), int(state["calm"])


class Backward:
    """Adds the gradient of a loss to ``.grad``: unscaled, and averaged over all ranks."""

    def __init__(self, ranks: Ranks, scale: LossScale | None = None) -> None:
        self.ranks, self.scale = ranks, scale

    def __call__(self, loss: Tensor, parameters: Sequence[Tensor], retain_graph: bool = False) -> None:
        if self.ranks.size == 1 and self.scale is None:
            loss.backward(retain_graph=retain_graph)
            return
        before = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        if self.scale is None:
            loss.backward(retain_graph=retain_graph)
            average_gradients(parameters, self.ranks)
        else:
            self.scale.backward(loss, parameters, self.ranks)
        with torch.no_grad():
            for p, old in zip(parameters, before, strict=True):
                if old is not None:
                    p.grad = old if p.grad is None else old + p.grad


def bytes_per_sample(model: nn.Module, x: Tensor) -> int:
    """Return the bytes that a training pass keeps of each sample of ``x``, besides the weights."""
    weights = {local_part(p).untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def count(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return saved

    with preserve_model(model, training=True), torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
            output = model(x)
        size = sum(storage.nbytes() for storage in kept.values())  # weights that were gathered are freed by now
        del output
    return -(-size // len(x))


def bytes_in_pass(model: nn.Module, x: Tensor) -> int:
    """Return the bytes that a pass without gradients holds of each sample of ``x``, about.

    Twice the largest sum of a layer's inputs and outputs: copies within kernels, shortcuts.
    """
    most = 0

    def count(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        nonlocal most
        most = max(most, sum(one.nbytes for one in (*inputs, output) if isinstance(one, Tensor)))

    hooks = [module.register_forward_hook(count) for module in model.modules() if not list(module.children())]
    try:
        with preserve_model(model, training=False), torch.no_grad():
            model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return 2 * -(-most // len(x))


def _closed_classes(open_classes: Sequence[int]) -> Tensor:
    """Return for each class up to the last open one whether it is closed."""
    closed = torch.ones(max(open_classes, default=-1) + 1, dtype=torch.bool)
    closed[list(open_classes)] = False
    return closed


def _mask(output: Tensor, closed: Tensor) -> Tensor:
    every = F.pad(closed, (0, output.shape[1] - len(closed)), value=True)
    return output.masked_fill(every.to(output.device), float("-inf"))


def _is_finite(values: list[Tensor]) -> bool:
    """Return whether all values are finite on all ranks, by a sum of norms."""
    total = float(torch.stack(torch._foreach_norm([local_part(value) for value in values])).sum())
    cut = next((value for value in values if is_sharded(value)), values[0])
    return math.isfinite(reduce_parts([ShardValue(cut, total)], "sum")[0])
