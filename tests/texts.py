"""A tiny text encoder in a folder, as save_pretrained writes it, and its vocabulary of whole words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = tuple("what is the weather in rome will it rain play a song music on book table for two please".split())  # noqa: SIM905
WIDTH = 8


def save_tokenizer(place: Path, words: tuple[str, ...] = WORDS) -> Path:
    """Write a tokenizer.json: words are tokens, lower case, between [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *words))}
    made: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    place.mkdir(parents=True, exist_ok=True)
    made.save(str(place / "tokenizer.json"))
    return place


def save_encoder(place: Path, words: tuple[str, ...] = WORDS) -> Path:
    """Write a BERT of two layers and its tokenizer."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(words), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=128,
    )  # fmt: skip
    BertModel(config).save_pretrained(place)
    return save_tokenizer(place, words)
