"""log p(y|x) of each sample, by name: what an output says about its target, and how targets are drawn from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.huggingface import reading_of
from tmln.curvature.kfac_layers import at_least_single
from tmln.suggest import did_you_mean

LogLikelihood = Callable[[Any, Any], Tensor]
IGNORED = -100  # the label of what is not scored, as in torch and in transformers


def class_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """log p(y|x) of each sample under a softmax; over several positions (``[B, C, ...]``) their sum."""
    losses = F.cross_entropy(output, target, reduction="none", ignore_index=IGNORED)
    return -losses.flatten(1).sum(1) if losses.dim() > 1 else -losses


def token_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """The sum over a sample's positions of log p(label) under a softmax over the last dim; -100 is not scored."""
    flat = at_least_single(output).flatten(0, -2)
    losses = F.cross_entropy(flat, target.flatten(), reduction="none", ignore_index=IGNORED)
    return -losses.view(len(output), -1).sum(1)


def bernoulli_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """The sum over outputs of log p(y) with p(1) = sigmoid(output)."""
    target = target.to(output.dtype).view_as(output)
    return -F.binary_cross_entropy_with_logits(output, target, reduction="none").flatten(1).sum(1)


def gaussian_log_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """-||y - output||^2 / 2, a normal distribution of variance 1 without its constant."""
    return -0.5 * (target.to(output.dtype).view_as(output) - output).square().flatten(1).sum(1)


NAMES: dict[str, LogLikelihood] = {
    "classes": class_log_likelihood,
    "tokens": token_log_likelihood,
    "masked-tokens": token_log_likelihood,
    "bernoulli": bernoulli_log_likelihood,
    "gaussian": gaussian_log_likelihood,
}


def shift_labels(target: Tensor) -> Tensor:
    """Labels moved one position to the left: what the output at t is scored against is the label at t + 1."""
    return F.pad(target[:, 1:], (0, 1), value=IGNORED)


class Likelihood:
    """The score of a model: a name, a function of the user's, or what a model and its shapes say by themselves.

    The name is settled by the first output that is seen, and holds from then on.
    """

    def __init__(self, model: nn.Module, choice: str | LogLikelihood | None) -> None:
        if isinstance(choice, str) and choice not in NAMES:
            raise ValueError(
                f"log_likelihood={choice!r} is unknown{did_you_mean(choice, NAMES)} ({', '.join(NAMES)}, or a function)"
            )
        self.model, self.choice = type(model).__name__, choice
        self.reading = None if callable(choice) else reading_of(model)
        self.name: str | None = None
        self.labels: int | None = None  # how many a softmax is over

    @property
    def shifts(self) -> bool:
        return self.name == "tokens" and self.reading is not None and self.reading.shifts

    def __call__(self, output: Any, target: Any) -> Tensor:
        if callable(self.choice):
            value: Tensor = self.choice(output, target)
            return value
        name = self.settled(output, target)
        score: LogLikelihood = NAMES[name]
        return score(output, shift_labels(target) if self.shifts else target)

    def draw(self, output: Any, target: Any, attended: Any, generator: torch.Generator) -> Tensor:
        """Targets from the model's own distribution; labels that are ignored stay so."""
        name = self.settled(output, target)
        logits: Tensor = output.detach()
        if name == "gaussian":
            return logits + torch.randn(logits.shape, dtype=logits.dtype, device=logits.device, generator=generator)
        if name == "bernoulli":
            return torch.bernoulli(logits.sigmoid(), generator=generator)
        logits = logits if name != "classes" else logits.movedim(1, -1)
        drawn = torch.multinomial(logits.softmax(-1).flatten(0, -2), 1, generator=generator).view(logits.shape[:-1])
        if self.shifts:  # what is drawn at t is the label at t + 1; the first token is nobody's prediction
            drawn = F.pad(drawn[:, :-1], (1, 0), value=IGNORED)
        if isinstance(target, Tensor) and target.shape == drawn.shape and not target.is_floating_point():
            drawn = drawn.masked_fill(target == IGNORED, IGNORED)
        elif target is None and isinstance(attended, Tensor) and attended.shape == drawn.shape:
            drawn = drawn.masked_fill(attended == 0, IGNORED)
        return drawn

    def inspect(self, inputs: list[Any], target: Any) -> None:
        """Refuse labels that cannot be what the name says.

        Those that are the inputs themselves, where nothing shifts them: a model would score a copy. And bits that are
        none: tokens, say, of a model that has one output a position in place of a vocabulary's.
        """
        if self.name == "bernoulli" and isinstance(target, Tensor) and not _bits(target):
            raise ValueError(
                f"labels of {float(target.min()):g} to {float(target.max()):g} were read as bits, as {self.model} has "
                f"one output for each ({_shape(target)}); tokens need logits [B, T, V] over a vocabulary"
            )
        if self.name != "tokens" or self.shifts or not isinstance(target, Tensor):
            return
        if any(isinstance(x, Tensor) and x.shape == target.shape and torch.equal(x, target) for x in inputs):
            raise ValueError(
                f"the labels are the inputs themselves, and nothing says that {self.model} shifts them; give labels "
                "that are shifted already, or a function, or 'masked-tokens' to score each position by its own token"
            )

    def explain(self, target: Any) -> None:
        """Raise in plain words what torch said of these labels in its own, if they are beyond the outputs."""
        if self.labels is None or not isinstance(target, Tensor) or target.is_floating_point():
            return
        beyond = target[(target != IGNORED) & ((target < 0) | (target >= self.labels))]
        if len(beyond):
            raise IndexError(
                f"label {int(beyond[0])} is out of bounds: {self.model} has logits for {self.labels} labels; give it "
                f"one for each, or {IGNORED} to what is not scored"
            )

    def settled(self, output: Any, target: Any) -> str:
        """The name by which this output and all later ones are read."""
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
        fitting = readings(output, target)
        if named is None:
            if len(fitting) != 1:
                raise ValueError(_refusal(output, target, fitting))
            return fitting[0]
        if target is not None and named not in fitting and not (named == "masked-tokens" and "tokens" in fitting):
            raise ValueError(
                f"log_likelihood={named!r} does not fit an output {tuple(output.shape)} and a target "
                f"{_shape(target)}; these fit {' or '.join(map(repr, fitting)) or 'no name: give a function'}"
            )
        return named


def readings(output: Tensor, target: Any) -> list[str]:
    """The names that fit these shapes; one that differs from another in name only is left out."""
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


def _bits(target: Tensor) -> bool:
    return bool(((target >= 0) & (target <= 1)).all())


def _shape(target: Any) -> str:
    return f"{tuple(target.shape)} of {target.dtype}" if isinstance(target, Tensor) else type(target).__name__


def _refusal(output: Tensor, target: Any, fitting: list[str]) -> str:
    shapes = f"an output {tuple(output.shape)} and a target {_shape(target)}"
    if not fitting:
        return f"{shapes} fit no likelihood that has a name ({', '.join(NAMES)}); give log_likelihood=f(output, target)"
    return f"{shapes} fit {' and '.join(map(repr, fitting))}; say which: log_likelihood={fitting[-1]!r}"
