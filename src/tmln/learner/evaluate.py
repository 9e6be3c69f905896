"""Accuracy and loss on test sets, in eval mode, over a single head without task identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.preserve_state import eval_mode
from tmln.distributed.process_group import SINGLE, Ranks
from tmln.learner.logit_mask import mask_logits
from tmln.methods import get_reference_weight, move_to_model, prepare_inputs
from tmln.streams.samples import Samples

Look = Callable[[int, Tensor, Tensor], None]
Scores = Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]]


def plain(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output answers."""
    output = model(x)
    return output, output


def evaluate(
    model: nn.Module,
    samples: Samples,
    prepare: Callable[[Tensor], Tensor],
    *,
    open_classes: Sequence[int] | None = None,
    batch_size: int = 512,
) -> dict[str, float]:
    """``{"accuracy": fraction, "loss": mean cross entropy}``; the model's mode comes back as it was."""
    (found,) = evaluate_tasks(model, [(samples, None)], prepare, open_classes=open_classes, batch_size=batch_size)
    return found


@torch.no_grad()
def evaluate_tasks(
    model: nn.Module,
    tests: Sequence[tuple[Samples, Sequence[int] | None]],
    prepare: Callable[[Tensor], Tensor],
    *,
    open_classes: Sequence[int] | None = None,
    batch_size: int = 512,
    scores: Scores = plain,
    look: Look | None = None,
    ranks: Ranks = SINGLE,
) -> list[dict[str, float]]:
    """Accuracy, loss, and accuracy among the task's own classes, of every (samples, classes): one forward pass each.
    Where classes are None, that among them is left out.

    ``scores(model, x)`` gives the output, of which the loss is, and what both accuracies go by. ``look(index, scores,
    labels)`` is shown what answers in every batch of the test ``index`` in that pass. Each of ``ranks`` passes its
    share of a batch, and all of them have what was found of the whole.
    """
    with eval_mode(model):
        return [
            _measure(
                model, samples, classes, prepare, open_classes, batch_size, scores, look and partial(look, index), ranks
            )
            for index, (samples, classes) in enumerate(tests)
        ]


def _measure(
    model: nn.Module,
    samples: Samples,
    classes: Sequence[int] | None,
    prepare: Callable[[Tensor], Tensor],
    open_classes: Sequence[int] | None,
    batch_size: int,
    scores: Scores,
    look: Callable[[Tensor, Tensor], None] | None,
    ranks: Ranks,
) -> dict[str, float]:
    if not len(samples):
        raise ValueError("cannot evaluate on an empty set")
    first, count = get_reference_weight(model), len(samples)
    right, masked, loss = 0, 0, 0.0
    for x, y in samples.batches(batch_size):
        y = move_to_model(first, y)
        raw, scored = scores(model, prepare_inputs(first, x[ranks.rows(len(x))], prepare))
        if ranks.size > 1:
            same, raw = scored is raw, ranks.gather_rows(raw, len(x))
            scored = raw if same else ranks.gather_rows(scored, len(x))
        output = mask_logits(raw, open_classes)
        answered = output if scored is raw else mask_logits(scored, open_classes)
        if look is not None:
            look(answered, y)
        right += int((answered.argmax(1) == y).sum())
        if classes is not None:
            masked += int((mask_logits(scored, classes).argmax(1) == y).sum())
        loss += float(F.cross_entropy(output, y, reduction="sum"))
    within = {} if classes is None else {"masked_accuracy": masked / count}
    return {"accuracy": right / count, **within, "loss": loss / count}
