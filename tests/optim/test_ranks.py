"""Two ranks against one process: F, boundary, shards, UPGD's maximum, OCAR's factors. One pair of processes for all."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.two_ranks import run_on_two_ranks
from tmln.distributed.process_group import SINGLE, ShardValue, is_sharded, ranks_of, reduce_parts


@pytest.mark.slow
def test_two_ranks_do_what_one_process_with_all_samples_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second = run_on_two_ranks("tests.optim.optimizers_on_ranks", tmp_path_factory)
    assert first == second
    assert len(first) == 10


def test_without_a_group_there_is_one_rank() -> None:
    assert ranks_of(None) == ranks_of("local") == SINGLE
    assert SINGLE.gather_objects(lambda: 3) == [3]
    assert SINGLE.reduce_max([1.0, -2.0]) == [1.0, -2.0]
    assert SINGLE.find_difference([1.0]) is None
    plain = torch.ones(2)
    assert not is_sharded(plain)
    assert reduce_parts([ShardValue(plain, 2.0), ShardValue(plain, 5.0)], "sum") == [2.0, 5.0]
    with pytest.raises(ValueError, match="group must be None, 'local' or a process group, got 'world'"):
        ranks_of("world")  # type: ignore[arg-type]
