"""What a batch is cut into: what has the samples along dim 0, and nothing else."""

from __future__ import annotations

import torch

from tmln.curvature.batches import SampleBatch


def test_only_what_has_the_samples_is_cut() -> None:
    x, y, table, scale = torch.arange(8.0).view(4, 2), torch.arange(4), torch.arange(5), torch.tensor(2.0)
    batch = SampleBatch((x, table), {"scale": scale, "mode": "sum"}, y, 4)
    part = batch[1:3]
    assert part.size == 2
    assert torch.equal(part.args[0], x[1:3])
    assert torch.equal(part.target, y[1:3])
    assert part.args[1] is table
    assert part.kwargs["scale"] is scale
    assert part.kwargs["mode"] == "sum"
    assert [chunk.size for chunk in batch.chunks(3)] == [3, 1]
