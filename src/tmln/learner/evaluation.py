"""Evaluate and predict in eval mode, over a single head, or over the head of each task.

A model that cannot be trained or evaluated is refused in one line with a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.preserve_state import eval_mode, preserve_model
from tmln.distributed.process_group import SINGLE, Ranks
from tmln.learner.forward import mask_heads, mask_logits
from tmln.methods import get_reference_weight, move_to_model, prepare_inputs
from tmln.methods.answers.closed_form import ClosedFormAnswer
from tmln.models.text_model import find_tokenizer
from tmln.streams.arrays import as_samples
from tmln.streams.own_data import find_decoded, read_decoded, read_own_inputs, read_own_sentences
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


Observer = Callable[[int, Tensor, Tensor], None]
UNKNOWN = "unknown"  # the label of what is of no class learned
Scores = Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]]


def check_model(model: Any) -> None:
    """Raise unless ``model`` is a network with parameters."""
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}: make a network of it, {model.__name__}(...)")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    if next(model.parameters(), None) is None:
        raise ValueError(f"model, a {type(model).__name__}, has no parameters: there is nothing to train")


def check_trainable(learner: Learner) -> None:
    """Raise if the step trains weights and all of them are frozen."""
    step = learner.step
    if step.trains_at(step.settings, learner.tasks) and not any(p.requires_grad for p in learner.model.parameters()):
        raise ValueError(
            "every parameter of the model has requires_grad=False: set it to True for those to train (the head, "
            "say), or use a head in closed form on frozen features, method='slda'"
        )


@contextmanager
def explain_failure(learner: Learner, samples: Samples) -> Iterator[None]:
    """Where torch raises of shapes or types, raise in one line what the model cannot take."""
    try:
        yield
    except (RuntimeError, IndexError) as error:
        reason = None if "device" in str(error) else find_misfit(learner, samples)
        if reason is None:
            raise
        raise ValueError(reason) from error


def find_misfit(learner: Learner, samples: Samples) -> str | None:
    """Return in one line why the model takes no sample or gives no logits, or None."""
    model = learner.model
    with preserve_model(model, training=False), torch.no_grad():
        try:
            x = prepare_inputs(model, samples.gather(torch.arange(1))[0], learner.prepare)
            output = model(x)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return (
                f"the model cannot take a sample of shape {list(samples.shape)}: {reason}. Check the model's first "
                "layer, the shape of the data, and prepare="
            )
    if not isinstance(output, Tensor):
        return f"the model returns a {type(output).__name__}: wrap it so that it returns logits [N, classes]"
    if output.dim() != 2 or len(output) != 1:
        return f"the model returns {list(output.shape)} for one sample: logits [N, classes] are needed"
    return None


@dataclass(frozen=True)
class Prediction:
    """The most probable class and its probability; ``top`` holds further ones if requested.

    Where ``known`` is False, the label is ``"unknown"``; ``nearest`` and ``index`` are of the most
    probable class all the same.
    """

    label: str
    probability: float
    index: int
    top: tuple[tuple[str, float], ...] = ()
    path: Path | str | None = None  # of a picture; or the text
    known: bool = True
    nearest: str = ""

    def __str__(self) -> str:
        if not self.known:
            return f"{self.label} (nearest {self.nearest}, {self.probability:.0%})"
        return f"{self.label} ({self.probability:.0%})"


def score_by_output(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the model's output twice: for the loss, and as scores."""
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
    """Return ``{"accuracy": fraction, "loss": mean cross entropy}``; restore the mode."""
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
    scores: Scores = score_by_output,
    look: Observer | None = None,
    ranks: Ranks = SINGLE,
    heads: Sequence[Sequence[int]] = (),
) -> list[dict[str, float]]:
    """Return accuracy, loss, and accuracy among the task's own classes of every test.

    Args:
        model: the model; its mode is restored.
        tests: samples and the task's own classes, or None, which leaves the accuracy among them
            out.
        prepare: stored samples to model inputs.
        open_classes: classes that compete; all unless given.
        batch_size: samples of a pass.
        scores: ``scores(model, x)`` returns the output, for the loss, and the scores, for both
            accuracies.
        look: called as ``look(index, scores, labels)`` for every batch of the test ``index``.
        ranks: processes of which each passes its share of a batch; all of them return the result of
            the whole.
        heads: classes of each head where every task has its own; labels choose the head.
    """
    with eval_mode(model):
        return [
            _evaluate_task(
                model,
                samples,
                classes,
                prepare,
                open_classes,
                batch_size,
                scores,
                look and partial(look, index),
                ranks,
                heads,
            )
            for index, (samples, classes) in enumerate(tests)
        ]


def _evaluate_task(
    model: nn.Module,
    samples: Samples,
    classes: Sequence[int] | None,
    prepare: Callable[[Tensor], Tensor],
    open_classes: Sequence[int] | None,
    batch_size: int,
    scores: Scores,
    look: Callable[[Tensor, Tensor], None] | None,
    ranks: Ranks,
    heads: Sequence[Sequence[int]],
) -> dict[str, float]:
    if not len(samples):
        raise ValueError("cannot evaluate on an empty set")
    reference, count = get_reference_weight(model), len(samples)
    right, masked, loss = 0, 0, 0.0
    for x, y in samples.batches(batch_size):
        y = move_to_model(reference, y)
        raw, scored = scores(model, prepare_inputs(reference, x[ranks.rows(len(x))], prepare))
        if ranks.size > 1:
            same, raw = scored is raw, ranks.gather_rows(raw, len(x))
            scored = raw if same else ranks.gather_rows(scored, len(x))
        output = mask_heads(raw, y, heads) if heads else mask_logits(raw, open_classes)
        answered = output
        if scored is not raw:
            answered = mask_heads(scored, y, heads) if heads else mask_logits(scored, open_classes)
        if look is not None:
            look(answered, y)
        right += int((answered.argmax(1) == y).sum())
        if classes is not None:
            masked += int((mask_logits(scored, classes).argmax(1) == y).sum())
        loss += float(F.cross_entropy(output, y, reduction="sum"))
    within = {} if classes is None else {"masked_accuracy": masked / count}
    return {"accuracy": right / count, **within, "loss": loss / count}


@torch.no_grad()
def compute_scores(learner: Learner, samples: Samples, head: int | None = None) -> Iterator[Tensor]:
    """Yield the scores of the answer component in batches, in eval mode.

    Scores are logits where the answer is ``argmax``; closed classes have -inf. NaN is an error: it
    would be answered by the first class. Where every task has its own head, it is ``head``, or that
    of the samples' labels.
    """
    model = learner.model
    with eval_mode(model), learner.weights.prediction_weights():
        for x, y in samples.batches(2 * learner.trained.rows_per_pass):
            inputs = prepare_inputs(model, x, learner.prepare)
            with explain_failure(learner, samples):
                _, scores = learner.score(model, inputs)
            if bool(scores.isnan().any()):
                raise ValueError(_explain_nan(model, inputs))
            if learner.heads and head is None:
                yield mask_heads(scores, y, learner.heads)
            else:
                yield mask_logits(scores, learner.open_classes if head is None else learner.heads[head])


def predict_labels(learner: Learner, samples: Samples) -> Tensor:
    """Return the index of the predicted class of each sample."""
    return torch.cat([scores.argmax(1).cpu() for scores in compute_scores(learner, samples)])


def find_features(learner: Learner, samples: Samples) -> Tensor | None:
    """Return the features of samples, where the model is frozen and its answer is one of features.

    They stay the same from task to task, so that held-out samples need no other pass.
    """
    answer, model, found = learner.answer, learner.model, []
    if (
        learner.heads
        or not isinstance(answer, ClosedFormAnswer)
        or not answer.is_frozen
        or not bool(answer.counts.any())
    ):
        return None
    with eval_mode(model):
        for x, _ in samples.batches(2 * learner.trained.rows_per_pass):
            features = answer.features_of(model, prepare_inputs(model, x, learner.prepare))
            assert features is not None
            found.append(features)
    return torch.cat(found)


def compute_evidence(scores: Tensor, classes: Sequence[int]) -> Tensor:
    """Return the largest score of these classes minus their mean, [n]: how well one of them fits.

    Unlike a probability it does not grow where all classes fit badly, and one nearly as badly.

    >>> compute_evidence(torch.tensor([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), [0, 1, 2])
    tensor([2., 0.])
    """
    own = scores[:, list(classes)]
    open_ = own.isfinite()  # those of another task's head do not compete
    return own.amax(1) - own.where(open_, 0.0).sum(1) / open_.sum(1).clamp_min(1)


def measure_evidence(learner: Learner, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return of each sample the predicted class, and the evidence for it."""
    found = [(s.argmax(1).cpu(), compute_evidence(s, learner.classes).cpu()) for s in compute_scores(learner, samples)]
    labels, evidence = zip(*found, strict=True)
    return torch.cat(labels), torch.cat(evidence).float()


def find_unknown(learner: Learner, known: Samples, unknown: Samples, keep: float = 0.95) -> float:
    """Return the share of unknown samples with less evidence than a share ``keep`` of the known.

    It is the rate at which samples of no class are found where so many others are kept.
    """
    least = torch.quantile(measure_evidence(learner, known)[1], 1 - keep)
    return float((measure_evidence(learner, unknown)[1] < least).float().mean())


def predict(
    learner: Learner,
    data: Any,
    top: int = 1,
    head: int | None = None,
    skip_bad: bool = False,
    unknown: bool | float = False,
) -> list[Prediction]:
    """Return for each sample the ``top`` most probable classes, or all if there are fewer.

    ``data`` is a tensor or array of inputs as stored, paths of pictures and of folders of them,
    pictures as Pillow images, encoded bytes or uint8 arrays [H, W, C] of any size, or anything that
    can be learned, whose labels are not used; of a model of texts, texts and paths of tables.
    ``unknown``: the evidence (:func:`compute_evidence`)
    below which a sample is of no class learned; True: ``learner.unknown_threshold()``.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if learner.heads and (head is None or not 0 <= head < len(learner.heads)):
        raise ValueError(f"every task has its own head: say which by head=0 to {len(learner.heads) - 1}, not {head}")
    if head is not None and not learner.heads:
        raise ValueError(f"head={head}, but the model has one head over all classes")
    least = learner.unknown_threshold() if unknown is True else None if unknown is False else float(unknown)
    samples, paths = _read_unlabelled(learner, data, skip_bad)
    found: list[Prediction] = []
    for scores in compute_scores(learner, samples, head):
        shares = scores.float().softmax(1)
        candidates = int(scores.isfinite().sum(1).max()) or scores.shape[1]
        best, places = shares.topk(min(top, candidates), dim=1)
        known = [True] * len(scores)
        if least is not None:
            known = (compute_evidence(scores, learner.classes).float() >= least).tolist()
        for probabilities, indices, fits in zip(best.tolist(), places.tolist(), known, strict=True):
            named = tuple((learner.name_of(i), p) for i, p in zip(indices, probabilities, strict=True))
            path = paths[len(found)] if paths else None
            (nearest, probability), rest = named[0], named if top > 1 else ()
            label = nearest if fits else UNKNOWN
            found.append(Prediction(label, probability, indices[0], rest, path, fits, nearest))
    return found


def _explain_nan(model: nn.Module, inputs: Tensor) -> str:
    if not bool(inputs.isfinite().all()):
        return f"no prediction: the batch of {len(inputs)} samples holds values that are not finite; look at the data"
    if name := find_nonfinite(model):
        return f"no prediction: {name} of the model holds values that are not finite; undo(), or train it again"
    return "no prediction: the model's output is not a number, though its weights and inputs are"


def find_nonfinite(model: nn.Module) -> str | None:
    """Return the name of the first weight or buffer that holds NaN or infinity, or None."""
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            return name
    return None


def _read_unlabelled(learner: Learner, data: Any, skip_bad: bool) -> tuple[Samples, Sequence[Path | str]]:
    if isinstance(data, (str, PathLike)):
        data = [data]
    known = learner.seen.transforms
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, PathLike)) for item in data):
        if known is None:
            raise RuntimeError("nothing was learned yet, so that it is not known what pictures are to be made of")
        if (tokenizer := find_tokenizer(learner.model)) is not None:
            return read_own_sentences(data, known["shape"], tokenizer)
        return read_own_inputs([Path(item) for item in data], known["shape"], known["fit"], skip_bad)
    if known is not None and (pictures := find_decoded(data, known["shape"])) is not None:
        return read_decoded(pictures, known["shape"], known["fit"]), ()
    if isinstance(data, Tensor) or type(data).__module__ == "numpy":
        x = torch.as_tensor(data)
        data = (x, torch.zeros(len(x), dtype=torch.int64))
    return as_samples(data, get_reference_weight(learner.model).dtype), ()
