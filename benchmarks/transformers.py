"""Compare the diagonal Fisher of transformers with a training pass: time and peak memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.curvature import diagonal_fisher
from tmln.experiments.memory_estimate import peak_bytes, reset_peak

BATCH = 32  # samples of one training step


@dataclass(frozen=True)
class Subject:
    """A model, its batches of some length, and how it is trained on one of them."""

    make: Callable[[], nn.Module]
    draw: Callable[[int, int], Any]
    loss: Callable[[nn.Module, Any], Tensor]
    goal: float


class Encoder(nn.Module):
    """torch's own encoder with a padding mask: 50 million parameters."""

    def __init__(self, width: int = 768, layers: int = 7) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.embedding(ids), src_key_padding_mask=padding).mean(1))
        return out


def padded(size: int, length: int) -> tuple[Tensor, Tensor]:
    """Draw tokens and a mask of those that count, at least half of each sample's."""
    kept = torch.randint(length // 2, length + 1, (size, 1))
    return torch.randint(5, 1000, (size, length)), (torch.arange(length) < kept).long()


def draw_encoder(size: int, length: int) -> Any:
    ids, mask = padded(size, length)
    return ids, mask == 0, torch.randint(10, (size,))


def draw_classes(size: int, length: int) -> Any:
    ids, mask = padded(size, length)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.randint(10, (size,))}


def draw_tokens(size: int, length: int) -> Any:
    ids, mask = padded(size, length)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def encoder_loss(model: nn.Module, batch: Any) -> Tensor:
    ids, padding, y = batch
    return F.cross_entropy(model(ids, padding), y)


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    model: nn.Module = BertForSequenceClassification(BertConfig(vocab_size=8000, num_hidden_layers=6, num_labels=10))
    return model


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    model: nn.Module = GPT2LMHeadModel(GPT2Config(vocab_size=8000, n_layer=6, n_positions=256))
    return model


def lora(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def adapted() -> nn.Module:
        from peft import LoraConfig, get_peft_model

        model: nn.Module = get_peft_model(make(), LoraConfig(r=8, fan_in_fan_out=make is gpt2))
        return model

    return adapted


SUBJECTS = {
    "nn.TransformerEncoder": Subject(Encoder, draw_encoder, encoder_loss, 2.0),
    "BERT-like": Subject(bert, draw_classes, own_loss, 2.0),
    "GPT-2-like": Subject(gpt2, draw_tokens, own_loss, 2.0),
    "LoRA on the BERT-like": Subject(lora(bert), draw_classes, own_loss, 1.3),
    "LoRA on the GPT-2-like": Subject(lora(gpt2), draw_tokens, own_loss, 1.3),
}


def training_pass(subject: Subject, model: nn.Module, batches: list[Any]) -> Callable[[], None]:
    def run() -> None:
        model.train()
        for batch in batches:
            model.zero_grad()
            subject.loss(model, batch).backward()

    return run


def peak(run: Callable[[], object]) -> int:
    reset_peak()
    run()
    return peak_bytes()


def measured(name: str, length: int, samples: int, rounds: int) -> Iterator[Line]:
    subject = SUBJECTS[name]
    torch.manual_seed(0)
    model = subject.make()
    batches = [subject.draw(BATCH, length) for _ in range(samples // BATCH)]
    train = training_pass(subject, model, batches)
    runs = {"train": train, "fisher": lambda: diagonal_fisher(model, batches)}
    best = best_times(runs, rounds)
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    what = f"{name} ({millions:.0f}M), {samples} samples of {length} tokens"
    yield Line(f"Fisher / training pass, {what}", best["fisher"] / best["train"], subject.goal)
    model.zero_grad(set_to_none=True)
    found = peak(runs["fisher"])  # before the training pass, whose freed memory may stay with the process
    yield Line(f"peak memory, Fisher / training pass, {what}", found / peak(train), 1.5)


def lines() -> Iterator[Line]:
    for length, samples, rounds in ((16, 128, 2), (128, 64, 1)):  # about ten minutes on two quiet cores
        for name in SUBJECTS:
            yield from measured(name, length, samples, rounds)
