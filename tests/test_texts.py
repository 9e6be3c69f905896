"""The study of texts, small: what it reads, what it shares out, and that a stopped one goes on."""

from __future__ import annotations

from pathlib import Path

import benchmarks.texts as study
import pytest
import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """In the place of a transformer's: it looks at the mask, and has weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, hidden: Tensor, closed: Tensor) -> Tensor:
        out: Tensor = hidden + torch.tanh(self.inner(hidden)) * (closed[:, 0, 0, :, None] == 0)
        return out


def tasks(width: int = 6) -> list[study.Task]:
    generator = torch.Generator().manual_seed(0)
    made: list[study.Task] = []
    for task in range(2):
        part = {}
        for name, count in {"train": 16, "validation": 8, "test": 8}.items():
            labels = torch.arange(count) % 2 + 2 * task
            hidden = torch.randn(count, 3, width, generator=generator)
            hidden[:, :, :4] += 3 * torch.eye(4)[labels].unsqueeze(1)
            mask = torch.tensor([1, 1, 0]).expand(count, 3)
            part[name] = {"hidden": hidden, "attention_mask": mask, "labels": labels}
        made.append(part)
    return made


def test_texts_are_shared_out() -> None:
    assert study.parsed("One\n two\n%\nThree\n%\nOne two\n%\n") == ["One two", "Three"]
    texts = [str(n) for n in range(10)]
    parts = study.shared_out(texts, "any", {"train": 5, "test": 4})
    assert [len(part) for part in parts.values()] == [5, 4]
    assert len({text for part in parts.values() for text in part}) == 9
    assert parts == study.shared_out(texts, "any", {"train": 5, "test": 4})
    with pytest.raises(ValueError, match="'any' has 10 texts, and 11 are needed"):
        study.shared_out(texts, "any", {"train": 11})


def test_accuracies_among_all_and_within_a_task() -> None:
    model = study.Tuned([], 4, 4)
    nn.init.zeros_(model.head.bias)
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(4))
    hidden = torch.tensor([[[5.0, 1.0, 0.0, 0.0]], [[0.0, 1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0, 9.0]]])
    data = {"hidden": hidden, "attention_mask": torch.ones(3, 1), "labels": torch.tensor([0, 1, 1])}
    assert study.accuracies(model, data) == pytest.approx((1 / 3, 2 / 3))  # the third is 3, and within {0, 1} a tie: 0


def test_padding_is_not_in_the_mean() -> None:
    model = study.Tuned([Layer(6)], 6, 4)
    data = tasks()[0]["test"]
    changed = data["hidden"].clone()
    changed[:, 2] = 100.0
    assert torch.equal(model(data["hidden"], data["attention_mask"]), model(changed, data["attention_mask"]))


def test_a_stopped_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        study, "METHODS", [study.Method(m.name, m.kind, m.replay, m.candidates[:2]) for m in study.METHODS]
    )
    torch.manual_seed(0)
    layers, path = [Layer(6)], tmp_path / "notes.jsonl"
    lines = study.study(layers, tasks(), 2, study.Notes(path))
    assert len(lines) == 2 + len(study.METHODS)
    assert len(path.read_text().splitlines()) == sum(len(method.candidates) + 2 for method in study.METHODS)
    kept = path.read_text().splitlines()
    path.write_text("\n".join(kept[:7]) + "\n")
    assert study.study(layers, tasks(), 2, study.Notes(path)) == lines  # seven are read, the others made again, alike
    assert path.read_text().splitlines() == kept
