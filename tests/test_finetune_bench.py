"""benchmarks/finetune.py on a tiny model: its lines, and that LoRA's protection is of trained weights alone."""

from __future__ import annotations

import pytest
from benchmarks.finetune import boundary, llama, steps

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
TINY = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50,
}  # fmt: skip


@pytest.mark.parametrize("lora", [True, False])
def test_lines(lora: bool) -> None:
    """Anchor, F, S-bar, path, preconditioner and Adam's two means: seven numbers for each trained weight."""
    step, trained, whole = steps(lora, TINY, rounds=1, count=160)
    assert 0 < step.ratio < 100
    model = llama(lora, TINY)
    share = sum(p.numel() for p in model.parameters() if p.requires_grad) / sum(p.numel() for p in model.parameters())
    assert trained.ratio == pytest.approx(7.0, rel=0.05)  # and a count for each tensor
    assert whole.ratio == pytest.approx(trained.ratio * share)
    (line,) = boundary(lora, TINY, rounds=1, count=16)
    assert line.goal == (1.5 if lora else 2.0)
    assert 0 < line.ratio < 1000
