"""Log-likelihoods log p(y|x) of each sample, by name, and how Hugging Face's models read labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.lazy_gradients import at_least_single
from tmln.suggest import did_you_mean

CAUSAL = ("ForCausalLM", "LMHeadModel")
CLASSES = ("SequenceClassification", "ImageClassification", "VideoClassification", "AudioClassification")
PROBLEMS = {
    "regression": "gaussian",
    "single_label_classification": "classes",
    "multi_label_classification": "bernoulli",
}


@dataclass(frozen=True)
class LabelReading:
    """What a Hugging Face model's own loss does with labels."""

    kind: str  # "tokens", "masked-tokens" or "classes"
    shifts: bool = False
    problem: str | None = None
    outputs: int | None = None

    def name(self, target: Any) -> str:
        """Return the likelihood's name; without a problem type it follows from the label dtype."""
        if self.kind != "classes":
            return self.kind
        if self.problem is not None:
            return PROBLEMS[self.problem]
        if self.outputs == 1:
            return "gaussian"
        return "bernoulli" if isinstance(target, Tensor) and target.is_floating_point() else "classes"


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the model inside PEFT, torch.compile and DistributedDataParallel."""
    while True:
        unwrap: Any = getattr(model, "get_base_model", None)
        inner = unwrap() if callable(unwrap) else getattr(model, "_orig_mod", getattr(model, "module", None))
        if not isinstance(inner, nn.Module) or inner is model:
            return model
        model = inner


def read_hf_task(model: nn.Module) -> LabelReading | None:
    """Return the label reading by the name of the model's class, or ``None`` if it has none here.

    The library itself is not imported.
    """
    model = unwrap_model(model)
    theirs = next((kind for kind in type(model).__mro__ if kind.__module__.startswith("transformers.models.")), None)
    if theirs is None:
        return None
    config = getattr(model, "config", None)
    if theirs.__name__.endswith(CAUSAL):
        return LabelReading("tokens", shifts=True)
    if theirs.__name__.endswith("ForConditionalGeneration"):
        decodes = bool(getattr(config, "is_encoder_decoder", False))  # its inputs are shifted instead of its labels
        return LabelReading("masked-tokens") if decodes else LabelReading("tokens", shifts=True)
    if theirs.__name__.endswith(("ForMaskedLM", "ForTokenClassification")):
        return LabelReading("masked-tokens")
    if theirs.__name__.endswith(CLASSES):
        return LabelReading(
            "classes", False, getattr(config, "problem_type", None), getattr(config, "num_labels", None)
        )
    return None


LogLikelihood = Callable[[Any, Any], Tensor]
IGNORED = -100  # the label of what is not scored, as in torch and in transformers


def class_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """Return log p(y|x) under a softmax; over several positions (``[B, C, ...]``) their sum."""
    losses = F.cross_entropy(output, target, reduction="none", ignore_index=IGNORED)
    return -losses.flatten(1).sum(1) if losses.dim() > 1 else -losses


def token_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """Return the sum over positions of log p(label), a softmax over the last dim; without -100."""
    flat = at_least_single(output).flatten(0, -2)
    losses = F.cross_entropy(flat, target.flatten(), reduction="none", ignore_index=IGNORED)
    return -losses.view(len(output), -1).sum(1)


def bernoulli_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """Return the sum over outputs of log p(y) with p(1) = sigmoid(output)."""
    target = target.to(output.dtype).view_as(output)
    return -F.binary_cross_entropy_with_logits(output, target, reduction="none").flatten(1).sum(1)


def gaussian_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """Return -||y - output||^2 / 2, a normal distribution of variance 1 without its constant."""
    return -0.5 * (target.to(output.dtype).view_as(output) - output).square().flatten(1).sum(1)


NAMES: dict[str, LogLikelihood] = {
    "classes": class_log_likelihood,
    "tokens": token_log_likelihood,
    "masked-tokens": token_log_likelihood,
    "bernoulli": bernoulli_log_likelihood,
    "gaussian": gaussian_log_likelihood,
}


def shift_labels(target: Tensor) -> Tensor:
    """Shift labels to the left by one: the output at t predicts the label at t + 1."""
    return F.pad(target[:, 1:], (0, 1), value=IGNORED)


class Likelihood:
    """The log-likelihood of a model: by name, by a function, or by its class and shapes.

    The first output that is seen decides on the name for all later ones.
    """

    def __init__(self, model: nn.Module, choice: str | LogLikelihood | None) -> None:
        if isinstance(choice, str) and choice not in NAMES:
            raise ValueError(
                f"log_likelihood={choice!r} is unknown{did_you_mean(choice, NAMES)} ({', '.join(NAMES)}, or a function)"
            )
        self.model, self.choice = type(model).__name__, choice
        self.reading = None if callable(choice) else read_hf_task(model)
        self.name: str | None = None
        self.labels: int | None = None  # how many a softmax is over

    @property
    def shifts(self) -> bool:
        return self.name == "tokens" and self.reading is not None and self.reading.shifts

    def __call__(self, output: Any, target: Any) -> Tensor:
        if callable(self.choice):
            value: Tensor = self.choice(output, target)
            return value
        name = self.resolve_name(output, target)
        score: LogLikelihood = NAMES[name]
        return score(output, shift_labels(target) if self.shifts else target)

    def draw(self, output: Any, target: Any, attended: Any, generator: torch.Generator) -> Tensor:
        """Draw targets from the model's own distribution; ignored labels stay ignored."""
        name = self.resolve_name(output, target)
        logits: Tensor = output.detach()
        if name == "gaussian":
            return logits + torch.randn(logits.shape, dtype=logits.dtype, device=logits.device, generator=generator)
        if name == "bernoulli":
            return torch.bernoulli(logits.sigmoid(), generator=generator)
        logits = logits if name != "classes" else logits.movedim(1, -1)
        drawn = torch.multinomial(logits.softmax(-1).flatten(0, -2), 1, generator=generator).view(logits.shape[:-1])
        if self.shifts:  # what is drawn at t is the label at t + 1; the first token is not predicted
            drawn = F.pad(drawn[:, :-1], (1, 0), value=IGNORED)
        if isinstance(target, Tensor) and target.shape == drawn.shape and not target.is_floating_point():
            drawn = drawn.masked_fill(target == IGNORED, IGNORED)
        elif target is None and isinstance(attended, Tensor) and attended.shape == drawn.shape:
            drawn = drawn.masked_fill(attended == 0, IGNORED)
        return drawn

    def check_labels(self, inputs: list[Any], target: Any) -> None:
        """Raise if labels contradict the name: inputs that nothing shifts, tokens read as bits."""
        if self.name == "bernoulli" and isinstance(target, Tensor) and not _are_bits(target):
            raise ValueError(
                f"labels of {float(target.min()):g} to {float(target.max()):g} were read as bits, as {self.model} has "
                f"one output for each ({_describe_shape(target)}); tokens need logits [B, T, V] over a vocabulary"
            )
        if self.name != "tokens" or self.shifts or not isinstance(target, Tensor):
            return
        if any(isinstance(x, Tensor) and x.shape == target.shape and torch.equal(x, target) for x in inputs):
            raise ValueError(
                f"the labels are the inputs themselves, and nothing says that {self.model} shifts them; give labels "
                "that are shifted already, or a function, or 'masked-tokens' to score each position by its own token"
            )

    def explain_error(self, target: Any) -> None:
        """Raise an IndexError that names a label beyond the outputs, if there is one."""
        if self.labels is None or not isinstance(target, Tensor) or target.is_floating_point():
            return
        beyond = target[(target != IGNORED) & ((target < 0) | (target >= self.labels))]
        if len(beyond):
            raise IndexError(
                f"label {int(beyond[0])} is out of bounds: {self.model} has logits for {self.labels} labels; give it "
                f"one for each, or {IGNORED} to what is not scored"
            )

    def resolve_name(self, output: Any, target: Any) -> str:
        """Return the name by which this output and all later ones are read."""
        if self.name is None:
            self.name = self._read(output, target)
            if "tokens" in self.name or self.name == "classes":
                self.labels = output.shape[1 if self.name == "classes" else -1]
        return self.name

    def _read(self, output: Any, target: Any) -> str:
        if not isinstance(output, Tensor):
            raise TypeError(
                f"{self.model} answers with {type(output).__name__}, without logits; "
                "give log_likelihood=f(output, target)"
            )
        named = self.choice if isinstance(self.choice, str) else None
        if self.reading is not None:
            own = self.reading.name(target)
            unshifted = (named, own) == ("tokens", "masked-tokens")  # the same, where nothing is shifted
            if named not in (None, own) and not unshifted:
                raise ValueError(
                    f"{self.model}'s own loss reads its labels as {own!r}, not {named!r}; leave log_likelihood out, or "
                    "give a function"
                )
            named = named or own
        fitting = matching_names(output, target)
        if named is None:
            if len(fitting) != 1:
                raise ValueError(_describe_mismatch(output, target, fitting))
            return fitting[0]
        if target is not None and named not in fitting and not (named == "masked-tokens" and "tokens" in fitting):
            raise ValueError(
                f"log_likelihood={named!r} does not fit an output {tuple(output.shape)} and a target "
                f"{_describe_shape(target)}; these fit {' or '.join(map(repr, fitting)) or 'no name: give a function'}"
            )
        return named


def matching_names(output: Tensor, target: Any) -> list[str]:
    """Return the names that fit these shapes, without synonyms."""
    if not isinstance(target, Tensor):
        return ["classes"] if output.dim() == 2 else []
    if target.is_floating_point():
        same = target.shape == output.shape
        single = output.shape[1:] == (1,) and target.dim() == 1
        return (["classes"] if same and output.dim() > 1 else []) + (
            ["bernoulli", "gaussian"] if same or single else []
        )
    found = ["classes"] if target.shape == output.shape[:1] + output.shape[2:] and output.dim() > 1 else []
    if output.dim() > 2 and target.shape == output.shape[:-1]:
        found.append("tokens")
    if not found and target.shape == output.shape:
        found.append("bernoulli")
    return found


def _are_bits(target: Tensor) -> bool:
    return bool(((target >= 0) & (target <= 1)).all())


def _describe_shape(target: Any) -> str:
    return f"{tuple(target.shape)} of {target.dtype}" if isinstance(target, Tensor) else type(target).__name__


def _describe_mismatch(output: Tensor, target: Any, fitting: list[str]) -> str:
    shapes = f"an output {tuple(output.shape)} and a target {_describe_shape(target)}"
    if not fitting:
        return f"{shapes} fit no likelihood that has a name ({', '.join(NAMES)}); give log_likelihood=f(output, target)"
    return f"{shapes} fit {' and '.join(map(repr, fitting))}; say which: log_likelihood={fitting[-1]!r}"
