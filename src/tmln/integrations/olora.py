"""O-LoRA (Wang et al. 2023): a pair of low-rank matrices for each task, orthogonal to earlier ones.

::

    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=8))
    first = ContinualTrainer(model, args, train_dataset=task1, penalty="olora")
    first.train()
    ContinualTrainer(model, args, train_dataset=task2, penalty="olora", previous=first).train()
    save_merged(model, "adapter")          # one ordinary peft adapter, the sum of all pairs
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Guide, Penalty, Settings

MERGED = "merged"


class OLoRASettings(Settings):
    """Settings of lambda * sum over earlier pairs of |A_i A_t^T|."""

    strength: float = Field(
        default=0.5,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda, the factor of the overlap with earlier pairs",
        json_schema_extra={"search": {"low": 0.01, "high": 10.0, "log": True}},
    )


def overlap(new: Tensor, earlier: list[Tensor]) -> Tensor:
    """Return the sum of |A_i A_t^T| over earlier pairs; A is [rank, inputs].

    >>> overlap(torch.tensor([[1.0, 2.0]]), [torch.tensor([[3.0, -4.0], [0.0, 1.0]])])
    tensor(7.)
    """
    return torch.stack([(a @ new.mT).abs().sum() for a in earlier]).sum() if earlier else new.new_zeros(())


def overlap_gradient(new: Tensor, earlier: list[Tensor]) -> Tensor:
    """Return the gradient of :func:`overlap` with respect to A_t, sum of sign(A_t A_i^T) A_i.

    >>> overlap_gradient(torch.tensor([[1.0, 2.0]]), [torch.tensor([[3.0, -4.0], [0.0, 1.0]])])
    tensor([[-3.,  5.]])
    """
    total = torch.zeros_like(new)
    for a in earlier:
        total += (new @ a.mT).sign() @ a
    return total


class OLoRA(Penalty[OLoRASettings]):
    """lambda * sum_{i<t} sum |A_i A_t^T| over all adapted layers; earlier pairs stay frozen."""

    name = "olora"
    Settings = OLoRASettings
    guide = Guide(
        equation=r"\lambda \sum_{i<t} \sum |A_i A_t^\top|",
        origin="Wang et al. 2023, Orthogonal Subspace Learning for Language Model Continual Learning.",
        cost="A pair of matrices for each task, and a product of the pairs in every step.",
        use="For a language model that learns one task after another, where no text of before may be stored.",
        avoid="For many tasks: the rank of the merged adapter is the sum of all ranks.",
    )

    def __init__(self, settings: OLoRASettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.pairs = list(split_pairs(model))

    def value(self) -> float:
        """Return the penalty's value now."""
        with torch.no_grad():
            return self.settings.strength * sum(float(overlap(new, earlier)) for new, earlier in self.pairs)

    @torch.no_grad()
    def add_gradient(self) -> None:
        for new, earlier in self.pairs:
            if earlier and new.grad is not None:
                new.grad.add_(overlap_gradient(new, earlier), alpha=self.settings.strength)


def _layers(model: nn.Module) -> Iterator[Any]:
    return (m for m in model.modules() if isinstance(getattr(m, "lora_A", None), nn.ModuleDict) and len(m.lora_A))  # type: ignore[arg-type]


def split_pairs(model: nn.Module) -> Iterator[tuple[nn.Parameter, list[Tensor]]]:
    """Yield, for each adapted layer, the A that is trained and those of earlier tasks."""
    for layer in _layers(model):
        everything = [a.weight for name, a in layer.lora_A.items() if name != MERGED]
        trained = [a for a in everything if a.requires_grad]
        if len(trained) > 1:
            raise ValueError(f"O-LoRA trains one pair at a time, and {len(trained)} of a layer are trainable")
        if trained:
            yield trained[0], [a.detach() for a in everything if a is not trained[0]]


def pair_names(model: Any) -> list[str]:
    """Return the names of a peft model's pairs, the oldest first."""
    return [name for name in model.peft_config if name != MERGED]


def activate_pairs(model: Any) -> None:
    """Let all pairs take part, and train the newest one only."""
    names = pair_names(model)
    model.base_model.set_adapter(names)
    for layer in _layers(model):
        for matrices in (layer.lora_A, layer.lora_B):
            for name, matrix in matrices.items():
                matrix.requires_grad_(name == names[-1])


def add_pair(model: Any) -> str:
    """Add a pair for the next task, set up as the first one, and freeze those before it.

    Returns:
        Its name; a new pair does not change the model's output.
    """
    names = pair_names(model)
    name = f"task{len(names) + 1}"
    model.add_adapter(name, model.peft_config[names[0]])
    activate_pairs(model)
    return name


def load_pairs(base: nn.Module, folder: str | PathLike[str]) -> Any:
    """Load the pairs that ``model.save_pretrained(folder)`` or a Trainer saved, to train on."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(base, str(folder))
    others = [path.parent for path in Path(folder).glob("task*/adapter_config.json")]
    for path in sorted(others, key=lambda path: int(path.name.removeprefix("task"))):
        model.load_adapter(str(path), path.name)
    activate_pairs(model)
    return model


def save_merged(model: Any, folder: str | PathLike[str]) -> Path:
    """Save one peft adapter that is the sum of all pairs, of as many ranks as they have together.

    Returns:
        The folder of the adapter, for ``PeftModel.from_pretrained(base, folder)``.
    """
    names = pair_names(model)
    model.add_weighted_adapter(names, [1.0] * len(names), MERGED, combination_type="cat")
    try:
        model.save_pretrained(str(folder), selected_adapters=[MERGED])
    finally:
        model.delete_adapter(MERGED)
        activate_pairs(model)
    return Path(folder) / MERGED
