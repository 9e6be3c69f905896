"""How a model of Hugging Face's transformers reads its labels, found without importing the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

CAUSAL = ("ForCausalLM", "LMHeadModel")
CLASSES = ("SequenceClassification", "ImageClassification", "VideoClassification", "AudioClassification")
PROBLEMS = {
    "regression": "gaussian",
    "single_label_classification": "classes",
    "multi_label_classification": "bernoulli",
}


@dataclass(frozen=True)
class Reading:
    """What a model's own loss does with labels."""

    kind: str  # "tokens", "masked-tokens" or "classes"
    shifts: bool = False
    problem: str | None = None
    outputs: int | None = None

    def name(self, target: Any) -> str:
        """The likelihood's name; a classifier without a problem type goes by the labels, as in the library."""
        if self.kind != "classes":
            return self.kind
        if self.problem is not None:
            return PROBLEMS[self.problem]
        if self.outputs == 1:
            return "gaussian"
        return "bernoulli" if isinstance(target, Tensor) and target.is_floating_point() else "classes"


def bare(model: nn.Module) -> nn.Module:
    """The model inside wrappers: of PEFT, of torch.compile, of DistributedDataParallel."""
    while True:
        unwrap: Any = getattr(model, "get_base_model", None)
        inner = unwrap() if callable(unwrap) else getattr(model, "_orig_mod", getattr(model, "module", None))
        if not isinstance(inner, nn.Module) or inner is model:
            return model
        model = inner


def reading_of(model: nn.Module) -> Reading | None:
    """By the name of its task; ``None`` for other models, and for tasks whose labels have no name here."""
    model = bare(model)
    theirs = next((kind for kind in type(model).__mro__ if kind.__module__.startswith("transformers.models.")), None)
    if theirs is None:
        return None
    config = getattr(model, "config", None)
    if theirs.__name__.endswith(CAUSAL):
        return Reading("tokens", shifts=True)
    if theirs.__name__.endswith("ForConditionalGeneration"):
        decodes = bool(getattr(config, "is_encoder_decoder", False))  # its inputs are shifted instead of its labels
        return Reading("masked-tokens") if decodes else Reading("tokens", shifts=True)
    if theirs.__name__.endswith(("ForMaskedLM", "ForTokenClassification")):
        return Reading("masked-tokens")
    if theirs.__name__.endswith(CLASSES):
        return Reading("classes", False, getattr(config, "problem_type", None), getattr(config, "num_labels", None))
    return None
