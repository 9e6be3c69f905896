"""Two ranks learn what one process learns: every named method, and what a learner can be told besides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed.two_ranks import run_on_two_ranks
from tests.learner.methods_on_ranks import CASES, learned, left
from tmln.distributed.process_group import Ranks
from tmln.learner import Learner
from tmln.learner.trained import check_compile
from tmln.methods import Batch

OTHERS = ("own statistics", "dropout")  # of which docs/devices.md says that they depend on how many ranks there are
HALF = ("bf16", "fp16")  # of which the last bits of products depend on how they are split


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_on_two_ranks("tests.learner.methods_on_ranks", tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_do_what_one_process_does(name: str, ranks: list[dict[str, Any]]) -> None:
    alone, (first, second) = left(learned(CASES[name])), [found[name] for found in ranks]
    for key, value in first["weights"].items():
        assert torch.equal(value, second["weights"][key]), "ranks are the same to the bit"
    assert all(torch.equal(a, b) for a, b in zip(first["draws"], second["draws"], strict=True))
    if name in OTHERS:
        return
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


class FakeFabric:
    """Of two processes that were not started."""

    world_size, device = 2, torch.device("cpu")

    def __init__(self, strategy: str) -> None:
        self.strategy = type(strategy, (), {})()


def test_what_a_learner_does_not_do_on_fabrics_devices() -> None:
    with pytest.raises(ValueError, match="does not work under Fabric's DeepSpeedStrategy: choose 'ddp'"):
        Learner(nn.Linear(2, 2), fabric=FakeFabric("DeepSpeedStrategy"))
    with pytest.raises(RuntimeError, match="Fabric has 2 processes, not started yet"):
        Learner(nn.Linear(2, 2), fabric=FakeFabric("DDPStrategy"))
    wrapped = nn.Linear(2, 2)
    wrapped._forward_module = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="set up by Fabric already"):
        Learner(wrapped, fabric=FakeFabric("DDPStrategy"))
    with pytest.raises(ValueError, match="accumulate must be at least 1, got 0"):
        Learner(nn.Linear(2, 2), accumulate=0)
    with pytest.raises(ValueError, match="batch_statistics must be 'global' or 'rank', got 'all'"):
        Learner(nn.Linear(2, 2), batch_statistics="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be compiled"):
        check_compile(nn.BatchNorm1d(2), Ranks(None, 0, 2), compile=True, synced=True)


def test_shares_of_a_batch_by_hand() -> None:
    """Eleven samples of which seven are the task's, for three ranks."""
    batch = Batch(torch.arange(11.0), torch.arange(11), 7, {"logits": torch.zeros(4)})
    shares = [batch.rank_share(Ranks(None, rank, 3)) for rank in range(3)]
    assert [share.y.tolist() for share in shares] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]
    assert [share.current for share in shares] == [3, 4, 0]
