"""ContinualTrainer with TMLN and replay against the plain Trainer: steps, boundaries, memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.curvature import diagonal_fisher
from tmln.integrations.continual_trainer import ContinualTrainer
from tmln.integrations.memory import unwrapped
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

LENGTH, BATCH = 48, 8
ACCUMULATED = (1, 4)  # batches of a step, of 384 and of 1,536 tokens
TEXTS = (64, 500)  # of a boundary
SIZES: dict[str, Any] = {  # those of stories15m, with a smaller vocabulary
    "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 8000,
}  # fmt: skip


def llama(lora: bool = False, sizes: dict[str, Any] = SIZES) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = LlamaForCausalLM(LlamaConfig(max_position_embeddings=256, **sizes))
    if lora:
        from peft import LoraConfig, get_peft_model

        base: Any = model
        adapted: nn.Module = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear"))
        return adapted
    return model


def texts(count: int, vocabulary: int) -> list[dict[str, Tensor]]:
    """Return texts of one length, so that all steps are of equally many tokens."""
    ids = torch.randint(3, vocabulary, (count, LENGTH))
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids]


class Clock(TrainerCallback):  # type: ignore[misc]
    """Callback that keeps the processor time of the fastest step, loading of its batch included."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.last: float | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        now = time.process_time()
        if self.last is not None and state.global_step > 2:
            self.best = min(self.best, now - self.last)
        self.last = now


def fastest_step(
    kind: Callable[..., Any], model: nn.Module, data: list[Any], accumulated: int, **options: Any
) -> tuple[float, Any]:
    """Return the seconds of the fastest step of one training, and the trainer."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, num_train_epochs=1, per_device_train_batch_size=BATCH, gradient_accumulation_steps=accumulated,
            use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        trainer = kind(model, args, train_dataset=data, callbacks=[clock], **options)
        trainer.train()
    return clock.best, trainer


def steps(
    lora: bool, sizes: dict[str, Any] = SIZES, rounds: int = 2, count: int = 200, accumulated: int = ACCUMULATED[-1]
) -> Iterator[Line]:
    """Yield the ratio of steps at equal tokens, and the state of protection beside the weights."""
    data, old = texts(count, sizes["vocab_size"]), texts(16, sizes["vocab_size"])
    best = {"plain": float("inf"), "continual": float("inf")}
    what = "LoRA" if lora else "all weights"
    for _ in range(rounds):
        plain, _ = fastest_step(Trainer, llama(lora, sizes), data, accumulated)
        options = {"step": "tmln", "replay": old, "replay_ratio": 0.05}
        own, trainer = fastest_step(
            ContinualTrainer, llama(lora, sizes), data[: round(0.95 * count)], accumulated, **options
        )
        best = {"plain": min(best["plain"], plain), "continual": min(best["continual"], own)}
    yield Line(
        f"step of {accumulated * BATCH * LENGTH:,} tokens, ContinualTrainer (TMLN, 5% replay) / Trainer, {what}",
        best["continual"] / best["plain"],
        1.05,
    )
    state = unwrapped(trainer.optimizer).state
    held = sum(v.numel() * v.element_size() for s in state.values() for v in s.values() if isinstance(v, Tensor))
    trained = sum(p.numel() * p.element_size() for p in trainer.model.parameters() if p.requires_grad)
    everything = sum(p.numel() * p.element_size() for p in trainer.model.parameters())
    yield Line(f"bytes of the optimizer's state / of trained weights, {what}", held / trained, None)
    yield Line(f"bytes of the optimizer's state / of the whole model, {what}", held / everything, None)


def boundary(lora: bool, sizes: dict[str, Any] = SIZES, rounds: int = 2, count: int = 500) -> Iterator[Line]:
    """Yield the ratio of the Fisher pass of a boundary to a training pass over the same texts."""
    model, data = llama(lora, sizes), texts(count, sizes["vocab_size"])
    rows = [data[k : k + BATCH] for k in range(0, count, BATCH)]
    batches = [{key: torch.stack([one[key] for one in row]) for key in row[0]} for row in rows]

    def train() -> None:
        model.train()
        for batch in batches:
            model.zero_grad()
            model(**batch).loss.backward()

    runs = {"train": train, "fisher": lambda: diagonal_fisher(model, batches, progress=False)}
    best = best_times(runs, rounds, time.process_time)
    what, goal = ("LoRA", 1.5) if lora else ("all weights", 2.0)
    yield Line(
        f"Fisher / training pass, {count} texts of {LENGTH} tokens, {what}", best["fisher"] / best["train"], goal
    )


def lines() -> Iterator[Line]:
    for lora in (True, False):
        for accumulated in ACCUMULATED:
            yield from steps(lora, accumulated=accumulated)
        for count in TEXTS:
            yield from boundary(lora, count=count)
