"""O-LoRA: the overlap by hand and against autograd, frozen pairs, one merged adapter that peft reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.hugging import MODELS, llama
from tests.integrations.test_continual_trainer import collate, same, samples, trainer, weights
from tmln.integrations.olora import (
    OLoRA,
    OLoRASettings,
    add_pair,
    load_pairs,
    overlap,
    overlap_gradient,
    pair_names,
    save_merged,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def adapted() -> Any:
    torch.manual_seed(0)
    return MODELS["LoRA on Llama"].make()


def test_the_overlap_by_hand() -> None:
    """A_t = (1, 2), A_1 = (3, -4; 0, 1): products -5 and 2."""
    new, earlier = torch.tensor([[1.0, 2.0]]), [torch.tensor([[3.0, -4.0], [0.0, 1.0]])]
    assert overlap(new, earlier) == 7.0
    assert overlap_gradient(new, earlier).tolist() == [[-3.0, 5.0]]
    assert overlap(new, []) == 0.0


def test_the_gradient_is_that_of_autograd() -> None:
    model = adapted()
    add_pair(model)
    add_pair(model)
    penalty = OLoRA(OLoRASettings(strength=0.7), model)
    assert all(len(earlier) == 2 for _, earlier in penalty.pairs)
    total = 0.7 * torch.stack([overlap(new, earlier) for new, earlier in penalty.pairs]).sum()
    assert penalty.value() == pytest.approx(float(total))
    expected = torch.autograd.grad(total, [new for new, _ in penalty.pairs])
    for new, _ in penalty.pairs:
        new.grad = torch.ones_like(new)
    penalty.add_gradient()
    for (new, _), g in zip(penalty.pairs, expected, strict=True):
        assert new.grad is not None
        assert torch.allclose(new.grad, 1 + g, atol=1e-6)


def train_two(folder: Path, strength: float = 0.5, **options: Any) -> Any:
    model = adapted()
    own: dict[str, Any] = {"penalty": "olora", "settings": {"penalty.strength": strength}}
    first = trainer(model, folder / "1", **own)
    first.train()
    kept = [p.detach().clone() for name, p in model.named_parameters() if ".default." in name]
    second = trainer(model, folder / "2", samples(2), options, previous=first, **own)
    second.train()
    assert same(kept, [p for name, p in model.named_parameters() if ".default." in name])
    return model


def test_two_tasks_and_one_adapter_that_peft_reads(tmp_path: Path) -> None:
    model = train_two(tmp_path)
    assert pair_names(model) == ["default", "task2"]
    assert all(".task2." in name for name, p in model.named_parameters() if p.requires_grad)
    batch = collate(samples(3))
    model.eval()
    with torch.no_grad():
        expected = model(**batch).logits
        with model.disable_adapter():
            assert not torch.allclose(model(**batch).logits, expected, atol=1e-3)
        folder = save_merged(model, tmp_path / "merged")
        assert torch.allclose(model(**batch).logits, expected, atol=1e-6)  # as it was
        torch.manual_seed(0)
        read = PeftModel.from_pretrained(llama(), str(folder)).eval()
        assert torch.allclose(read(**batch).logits, expected, atol=1e-5)
        assert read.peft_config["default"].r == 4  # the sum of both ranks
        model.save_pretrained(str(tmp_path / "pairs"))
        torch.manual_seed(0)
        again = load_pairs(llama(), tmp_path / "pairs").eval()
        assert torch.allclose(again(**batch).logits, expected, atol=1e-5)
    assert same(weights(again), weights(model))


def test_the_penalty_makes_pairs_orthogonal(tmp_path: Path) -> None:
    values = []
    for strength in (0.0, 2.0):
        model = train_two(tmp_path / str(strength), strength, num_train_epochs=8)
        values.append(OLoRA(OLoRASettings(strength=1.0), model).value())
    assert values[1] < 0.6 * values[0]


def test_resumes_in_the_second_task_to_the_bit(tmp_path: Path) -> None:
    whole = train_two(tmp_path, save_strategy="steps", save_steps=2)
    model = adapted()
    again = trainer(
        model, tmp_path / "2", samples(2), penalty="olora", settings={"penalty.strength": 0.5}, previous=tmp_path / "1"
    )
    again.train(resume_from_checkpoint=str(tmp_path / "2" / "checkpoint-2"))
    assert same(list(whole.parameters()), list(model.parameters()))


def test_a_second_train_needs_a_new_trainer(tmp_path: Path) -> None:
    one = trainer(adapted(), tmp_path, penalty="olora")
    one.train()
    with pytest.raises(ValueError, match="previous="):
        one.train()
