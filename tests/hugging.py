"""Tiny models of Hugging Face's transformers with random weights, and batches for them; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5EncoderModel,
    T5ForTokenClassification,
    ViTConfig,
    ViTForImageClassification,
)

VOCABULARY, LENGTH, CLASSES = 23, 6, 3
Texts = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """A model, a batch of some samples for it, and the parameters that its batch does not reach."""

    make: Callable[[], nn.Module]
    draw: Callable[[int], Texts]
    name: str  # of its likelihood


def texts(size: int, *, mask: bool = True) -> Texts:
    """Some samples are shorter than others, one is full."""
    lengths = torch.randint(2, LENGTH + 1, (size, 1)).index_fill_(0, torch.tensor([0]), LENGTH)
    ids = {"input_ids": torch.randint(3, VOCABULARY, (size, LENGTH))}
    return ids | ({"attention_mask": (torch.arange(LENGTH) < lengths).long()} if mask else {})


def classified(size: int) -> Texts:
    return texts(size) | {"labels": torch.randint(CLASSES, (size,))}


def continued(size: int) -> Texts:
    batch = texts(size)
    return batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def continued_without_mask(size: int) -> Texts:
    batch = texts(size, mask=False)
    return batch | {"labels": batch["input_ids"].clone()}


def hidden(size: int) -> Texts:
    batch = continued(size)
    seen = (torch.rand(size, LENGTH) < 0.6).index_fill_(1, torch.tensor([1]), False)
    return batch | {"labels": batch["labels"].masked_fill(seen, -100)}


def tagged(size: int) -> Texts:
    batch = texts(size)
    return batch | {"labels": torch.randint(CLASSES, (size, LENGTH)).masked_fill(batch["attention_mask"] == 0, -100)}


def pictures(size: int) -> Texts:
    return {"pixel_values": torch.randn(size, 3, 8, 8), "labels": torch.randint(CLASSES, (size,))}


SMALL: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
TEXT: dict[str, Any] = SMALL | {"vocab_size": VOCABULARY, "max_position_embeddings": 16, "pad_token_id": 0}


def bert(kind: Any, **options: Any) -> nn.Module:
    model: nn.Module = kind(BertConfig(**TEXT, num_labels=CLASSES, **options))
    return model


def gpt2(kind: Any = GPT2LMHeadModel) -> nn.Module:
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": VOCABULARY, "n_positions": 16}
    model: nn.Module = kind(GPT2Config(**sizes, **special, num_labels=CLASSES))
    return model


def llama() -> nn.Module:
    model: nn.Module = LlamaForCausalLM(LlamaConfig(**TEXT, num_key_value_heads=1))
    return model


def vit() -> nn.Module:
    model: nn.Module = ViTForImageClassification(ViTConfig(**SMALL, image_size=8, patch_size=4, num_labels=CLASSES))
    return model


def t5_config() -> Any:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    return T5Config(vocab_size=VOCABULARY, pad_token_id=0, num_labels=CLASSES, **sizes)


class OwnHead(nn.Module):
    """A model of one's own around a T5 encoder: answers with a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = T5EncoderModel(t5_config()), nn.Linear(8, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return {"logits": self.head(states.mean(1))}


def lora(model: nn.Module, task: str, **options: Any) -> nn.Module:
    adapted: nn.Module = get_peft_model(model, LoraConfig(r=2, task_type=task, **options))
    for name, p in adapted.named_parameters():
        if "lora_B" in name:  # zero at first: A would have no gradient
            nn.init.normal_(p, std=0.3)
    return adapted


MODELS: dict[str, Case] = {
    "BERT, classes": Case(lambda: bert(BertForSequenceClassification), classified, "classes"),
    "BERT, eager attention": Case(
        lambda: bert(BertForSequenceClassification, attn_implementation="eager"), classified, "classes"
    ),
    "BERT, masked tokens": Case(lambda: bert(BertForMaskedLM), hidden, "masked-tokens"),
    "BERT, tags": Case(lambda: bert(BertForTokenClassification), tagged, "masked-tokens"),
    "GPT-2": Case(gpt2, continued, "tokens"),
    "GPT-2 without a mask": Case(gpt2, continued_without_mask, "tokens"),
    "GPT-2, classes": Case(lambda: gpt2(GPT2ForSequenceClassification), classified, "classes"),
    "Llama": Case(llama, continued, "tokens"),
    "ViT": Case(vit, pictures, "classes"),
    "T5 encoder": Case(OwnHead, classified, "classes"),
    "T5, tags": Case(lambda: T5ForTokenClassification(t5_config()), tagged, "masked-tokens"),
    "LoRA on BERT": Case(lambda: lora(bert(BertForSequenceClassification), "SEQ_CLS"), classified, "classes"),
    "LoRA on GPT-2": Case(lambda: lora(gpt2(), "CAUSAL_LM", fan_in_fan_out=True), continued, "tokens"),
    "LoRA on Llama": Case(lambda: lora(llama(), "CAUSAL_LM"), continued, "tokens"),
    "DoRA on Llama": Case(lambda: lora(llama(), "CAUSAL_LM", use_dora=True), continued, "tokens"),
}
