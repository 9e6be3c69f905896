"""Two ranks learn what one process learns: every named method, and what a learner can be told besides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.curvature.rankwork import both
from tests.learner.walk_of_methods import CASES, learned, left

HALF = ("bf16", "fp16")  # of which the last bits of products depend on how they are split


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return both("tests.learner.walk_of_methods", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_do_what_one_process_does(name: str, ranks: list[dict[str, Any]]) -> None:
    alone, (first, second) = left(learned(CASES[name])), [found[name] for found in ranks]
    for key, value in first["weights"].items():
        assert torch.equal(value, second["weights"][key]), "ranks are the same to the bit"
    near = 1e-2 if name in HALF else 1e-6
    for key, value in alone["weights"].items():
        torch.testing.assert_close(first["weights"][key], value, rtol=0, atol=near)
    for mine, theirs in zip(alone["tests"], first["tests"], strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], abs=10 * near)
        assert name in HALF or theirs["accuracy"] == mine["accuracy"]
    for mine, theirs, others in zip(alone["memory"], first["memory"], second["memory"], strict=True):
        torch.testing.assert_close(theirs, mine, rtol=0, atol=10 * near)
        assert torch.equal(theirs, others)
    assert all(torch.equal(a, b) for a, b in zip(alone["draws"], first["draws"], strict=True))
