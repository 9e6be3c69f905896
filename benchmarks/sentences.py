"""Measure sentence embeddings: texts to features against a bare forward pass of the encoder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.timing import Line, best_times
from tmln.data import data_root
from tmln.learner import Learner
from tmln.models import make_model
from tmln.models.text_model import PIECE, TextModel, cut_padding, tokenise
from tmln.streams import make_stream

TEXTS, LENGTH, ROUNDS = 512, 64, 3
SENTENCE = "how do i pay the bill that came by post last week and what is left in my account after that"


def lines() -> Iterator[Line]:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(3, 20, (TEXTS,), generator=generator).tolist()
    words = SENTENCE.split()
    texts = [" ".join(words[int(k)] for k in torch.randint(len(words), (n,), generator=generator)) for n in sizes]
    model = make_model("minilm", (LENGTH,), 10).eval()
    assert isinstance(model, TextModel)
    tokens = tokenise(texts, LENGTH, model.tokenizer)
    order = (tokens >= 0).sum(1).argsort()
    pieces = [as_library(cut_padding(tokens[rows])) for rows in order.split(PIECE)]
    whole = as_library(tokens)
    y = torch.arange(TEXTS) % 10

    def bare() -> None:
        for ids, mask in pieces:
            model.network(input_ids=ids, attention_mask=mask)

    def padded() -> None:
        for ids, mask in zip(whole[0].split(PIECE), whole[1].split(PIECE), strict=True):
            model.network(input_ids=ids, attention_mask=mask)

    def embed() -> None:
        model.embed(tokenise(texts, LENGTH, model.tokenizer))

    def learn() -> None:
        Learner(model, "ncm-frozen").learn((tokens, y), atomic=False)

    with torch.no_grad():
        runs = {"bare": bare, "embed": embed, "learn": learn, "padded": padded}
        times = best_times(runs, ROUNDS, time.process_time)  # of the core: other processes share the machine
    what = f"forward pass of {TEXTS} texts, by length"
    yield Line(f"{what} / texts to embeddings", times["bare"] / times["embed"], 0.9, at_least=True)
    yield Line(f"{what} / a task of a closed-form head", times["bare"] / times["learn"], None)
    yield Line(f"{what} / the same, padded to {LENGTH} tokens", times["bare"] / times["padded"], None)


def as_library(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Token numbers and mask, as transformers takes them."""
    mask = tokens >= 0
    return torch.where(mask, tokens, 0).long(), mask.long()


def clinc150() -> tuple[NDArray[Any], ...]:
    """Embeddings of CLINC150 by MiniLM and their intents: 20 texts of each to learn, 5 to test.

    For ``tmln compare --benchmark benchmarks.sentences:clinc150 --allow-code``; computed once.
    """
    kept = data_root() / "prepared" / "clinc150-minilm.npz"
    if not kept.exists():
        stream = make_stream("split-clinc150", tasks=1, length=LENGTH, per_class=20, per_class_test=5)
        model = make_model("minilm", (LENGTH,), stream.classes).eval()
        assert isinstance(model, TextModel)
        found: list[NDArray[Any]] = []
        with torch.no_grad():
            for samples in (stream[0].train, stream[0].test):
                found += [model.embed(samples.x).numpy(), samples.y.numpy()]
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, *found)
        os.replace(part, kept)
    with np.load(kept) as arrays:
        return tuple(arrays[name] for name in arrays.files)
