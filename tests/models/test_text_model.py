"""Text models: tokens, padding that counts for nothing, MiniLM against the reference, folders of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.texts import WIDTH, save_encoder, save_tokenizer
from tmln.curvature import diagonal_fisher
from tmln.models import make_model, spell_options
from tmln.models.text_model import (
    PADDING,
    TextModel,
    cut_padding,
    find_minilm,
    find_tokenizer,
    has_minilm,
    read_tokenizer,
    tokenise,
)

needs_minilm = pytest.mark.skipif(not has_minilm(), reason="the weights of MiniLM are not installed: tmln[text]")
TEXTS = ("play a song", "what is the weather in rome", "book a table for two please", "rain")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def made(folder: Path, length: int = 12, classes: int = 3, **options: Any) -> TextModel:
    torch.manual_seed(1)
    model = make_model(f"transformers:{folder}", (length,), classes, **options).eval()
    assert isinstance(model, TextModel)
    return model


def test_tokens_by_hand(tmp_path: Path) -> None:
    words = read_tokenizer(save_tokenizer(tmp_path, ("play", "a", "song")))
    found = tokenise(["Play a song", "a tune", ""], 6, words)
    assert found.dtype == torch.int32
    assert found.tolist() == [[2, 4, 5, 6, 3, -1], [2, 5, 1, 3, -1, -1], [2, 3, -1, -1, -1, -1]]
    assert tokenise(["play a song"], 4, words).tolist() == [[2, 4, 5, 3]]  # cut, and still between its ends


def by_hand(model: TextModel, tokens: list[int]) -> Tensor:
    """One text at a time, without padding: the mean of its states, divided by its length, through the head."""
    states = model.network(input_ids=torch.tensor([tokens])).last_hidden_state[0]
    mean = states.sum(0) / len(tokens)
    logits: Tensor = model.linear(mean / mean.square().sum().sqrt())
    return logits


@torch.no_grad()
def test_padding_counts_for_nothing(folder: Path) -> None:
    model = made(folder)
    tokens = tokenise(TEXTS, 12, model.tokenizer)
    expected = torch.stack([by_hand(model, [t for t in row if t >= 0]) for row in tokens.tolist()])
    torch.testing.assert_close(model(tokens), expected, atol=1e-6, rtol=1e-5)
    wide = torch.cat([tokens, torch.full((4, 9), PADDING, dtype=torch.int32)], 1)
    assert torch.equal(model(wide), model(tokens))
    torch.testing.assert_close(model(tokens.float()), expected, atol=1e-6, rtol=1e-5)
    assert bool(model(torch.full((2, 5), PADDING)).isfinite().all())
    assert model(tokens[:0]).shape == (0, 3)


@torch.no_grad()
def test_many_texts_are_passed_by_length_in_their_order(folder: Path) -> None:
    """100 texts of 2 to 12 tokens: passes of 32 have no more columns than their longest text."""
    model, generator = made(folder), torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 13, (100,), generator=generator)
    tokens = torch.randint(1, 20, (100, 12), generator=generator, dtype=torch.int32)
    tokens[torch.arange(12) >= lengths[:, None]] = PADDING
    seen: list[tuple[int, ...]] = []
    handle = model.network.register_forward_pre_hook(
        lambda module, _, given: seen.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    found = model(tokens)
    handle.remove()
    assert [rows for rows, _ in seen] == [32, 32, 32, 4]
    assert [columns for _, columns in seen] == [int(lengths.sort().values[k]) for k in (31, 63, 95, 99)]
    for row in (0, 50, 99):
        torch.testing.assert_close(
            found[row], by_hand(model, tokens[row][: lengths[row]].tolist()), atol=1e-6, rtol=1e-5
        )


def test_padding_is_cut_where_no_text_has_a_token() -> None:
    tokens = torch.tensor([[5, 6, -1, -1], [7, -1, -1, -1]])
    assert cut_padding(tokens).tolist() == [[5, 6], [7, -1]]
    assert cut_padding(tokens[:, 3:]).shape == (2, 1)
    assert torch.func.vmap(cut_padding)(tokens[:, None]).shape == (2, 1, 4)  # values are hidden there


def test_fisher_is_the_mean_of_squared_gradients(folder: Path) -> None:
    model = made(folder).double()
    tokens = tokenise(TEXTS, 12, model.tokenizer)
    found = diagonal_fisher(model, [(tokens, torch.tensor([0, 1, 2, 0]))], targets="labels")
    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for row, label in zip(tokens, (0, 1, 2, 0), strict=True):
        model.zero_grad()
        nn.functional.cross_entropy(model(row[None]), torch.tensor([label])).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                expected[name] += p.grad.square() / 4
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)


def test_a_state_spells_the_model_without_its_folder(folder: Path, tmp_path: Path) -> None:
    model = made(folder)
    name = f"transformers:{folder}"
    spelled = spell_options(name, {}, model)
    json.dumps(spelled)
    again = make_model("transformers:nowhere", (12,), 3, **{**spelled, "pretrained": False})
    again.load_state_dict(model.state_dict())
    tokens = tokenise(TEXTS, 12, find_tokenizer(again) or "")
    assert torch.equal(again.eval()(tokens), model(tokens))


@pytest.mark.parametrize("freeze", ["backbone", "none"])
def test_adapters_and_a_frozen_encoder(folder: Path, freeze: str) -> None:
    model = made(folder, **({"freeze": "backbone"} if freeze == "backbone" else {"lora": 2}))
    model.train()(tokenise(TEXTS, 12, model.tokenizer)).sum().backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None and p.requires_grad}
    assert {"linear.weight", "linear.bias"} <= trained
    assert freeze == "backbone" or any("lora" in name for name in trained)


def test_errors_name_the_remedy(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'minilm' takes tokens of texts \[L\], not inputs of shape \(3, 8, 8\)"):
        make_model("minilm", (3, 8, 8), 2)
    with pytest.raises(ValueError, match=r"takes 128 tokens at most, not 129: set benchmark\.length=128"):
        made(folder, length=129)
    with pytest.raises(ValueError, match="unknown option 'size' of model 'transformers:"):
        made(folder, size=3)
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        read_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"a tokenizer\.json cannot be read"):
        tokenise(["a"], 4, "{}")
    from transformers import ViTConfig, ViTModel

    ViTModel(
        ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    ).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is no encoder of texts"):
        made(tmp_path)


@needs_minilm
@torch.no_grad()
def test_embeddings_are_those_of_the_reference() -> None:
    """Of transformers, as the model's card has it: a padded batch, the mean over the mask, length 1."""
    from transformers import AutoModel, AutoTokenizer

    library, place = AutoTokenizer.from_pretrained(find_minilm()), find_minilm()
    reference = AutoModel.from_pretrained(place).eval()
    texts = [
        "what expression would i use to say i love you if i were an italian",
        "WHISPER, please!",
        "naïve café 東京",
    ]
    batch = library(texts, padding=True, return_tensors="pt")
    states, mask = reference(**batch).last_hidden_state, batch["attention_mask"][..., None].float()
    expected = nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
    model = make_model("minilm", (64,), 5).eval()
    assert isinstance(model, TextModel)
    found = model.embed(tokenise(texts, 64, model.tokenizer))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert model.linear.in_features == 384
    assert sum(p.numel() for p in model.network.parameters()) == 22_565_376


@needs_minilm
def test_without_its_weights_minilm_has_the_same_layers() -> None:
    built = {name: value.shape for name, value in make_model("minilm", (8,), 2, pretrained=False).state_dict().items()}
    assert built == {name: value.shape for name, value in make_model("minilm", (8,), 2).state_dict().items()}
    assert WIDTH == 8
