"""Draws recorded on 2026-11-17, when a memory took (x, y) alone: the same seed still gives the same bits."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from tmln.methods.replay import Reservoir

KEPT = [0, 16, 19, 8, 13, 12]


def digest(value: Tensor) -> str:
    return sha256(value.numpy().tobytes()).hexdigest()[:16]


def filled() -> Reservoir:
    """Twenty samples in batches of five through six slots."""
    memory = Reservoir(6, seed=3)
    for k in range(4):
        n = torch.arange(5 * k, 5 * k + 5)
        memory.add(torch.stack([n, -n], 1).to(torch.int16), n, logits=n[:, None] / 2)
    return memory


def goes_on(memory: Reservoir) -> tuple[list[int], list[int]]:
    """What is kept after fifty more samples, and a draw then."""
    memory.add(torch.zeros(50, 2, dtype=torch.int16), torch.arange(100, 150), logits=torch.zeros(50, 1))
    return memory.state_dict()["fields"]["y"].tolist(), memory.draw(3)["y"].tolist()


AFTER = ([149, 16, 119, 104, 133, 106], [119, 149, 133])


def drawn_from(memory: Reservoir) -> None:
    assert len(memory.draw(0)["y"]) == 0  # a draw all the same
    assert [memory.draw(4)["y"].tolist(), memory.draw(9)["y"].tolist()] == [[8, 19, 12, 0], [12, 19, 8, 16, 13, 0]]
    found = memory.draw(3)
    assert found["x"].tolist() == [[16, -16], [19, -19], [12, -12]]
    assert found["logits"].tolist() == [[8.0], [9.5], [6.0]]


def test_what_is_kept_and_drawn() -> None:
    memory = filled()
    assert memory.state_dict()["fields"]["y"].tolist() == KEPT
    drawn_from(memory)
    assert goes_on(memory) == AFTER


def test_the_state_has_the_same_form() -> None:
    memory = filled()
    drawn_from(memory)
    state = memory.state_dict()
    assert list(state) == ["capacity", "seen", "generator", "fields"]
    assert (state["capacity"], state["seen"]) == (6, 20)
    assert digest(state["generator"]) == "c8d191e4dc25b126"
    assert {name: (value.dtype, tuple(value.shape)) for name, value in state["fields"].items()} == {
        "x": (torch.int16, (6, 2)),
        "y": (torch.int64, (6,)),
        "logits": (torch.float32, (6, 1)),
    }


def test_a_state_saved_then_is_loaded() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        torch.rand(5, generator=generator, dtype=torch.float64)
    for _ in range(4):
        torch.randperm(6, generator=generator)
    kept = torch.tensor(KEPT)
    fields = {"x": torch.stack([kept, -kept], 1).to(torch.int16), "y": kept, "logits": kept[:, None] / 2}
    saved: dict[str, Any] = {"capacity": 6, "seen": 20, "generator": generator.get_state(), "fields": fields}
    memory = Reservoir(6)
    memory.load_state_dict(saved)
    assert goes_on(memory) == AFTER


def test_a_larger_memory() -> None:
    memory = Reservoir(1000, seed=11)
    for k in range(20):
        memory.add(torch.zeros(500, 1), torch.arange(500 * k, 500 * k + 500))
    assert digest(torch.cat([y for _, y in memory.batches(128)])) == "ffe021549c7eb1b5"
    assert digest(torch.cat([memory.sample(10)[1] for _ in range(20)])) == "de6c4d09c89310a7"
