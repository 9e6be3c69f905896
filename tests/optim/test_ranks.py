"""Two ranks against one process: F, boundary, shards, UPGD's maximum, OCAR's factors. One pair of processes for all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.curvature.rankwork import both
from tmln.distributed.process_group import ALONE, ShardValue, is_sharded, over_parts, ranks_of


@pytest.mark.slow
def test_two_ranks_do_what_one_process_with_all_samples_does(tmp_path: Path) -> None:
    first, second = both("tests.optim.walk_of_ranks", tmp_path)
    assert first == second
    assert len(first) == 9


def test_without_a_group_there_is_one_rank() -> None:
    assert ranks_of(None) == ranks_of("local") == ALONE
    assert ALONE.heard(lambda: 3) == [3]
    assert ALONE.largest([1.0, -2.0]) == [1.0, -2.0]
    assert ALONE.apart([1.0]) is None
    plain = torch.ones(2)
    assert not is_sharded(plain)
    assert over_parts([ShardValue(plain, 2.0), ShardValue(plain, 5.0)], "sum") == [2.0, 5.0]
    with pytest.raises(ValueError, match="group must be None, 'local' or a process group, got 'world'"):
        ranks_of("world")  # type: ignore[arg-type]
