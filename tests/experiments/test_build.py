"""Runs of backbones: the network normalises, so the stream does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tmln.experiments.build import build, stream_of
from tmln.experiments.config import RunConfig


def test_a_backbone_gets_pixels_between_0_and_1() -> None:
    config = RunConfig(
        benchmark="split-digits", model="efficientnet-lite0", model_options={"pretrained": False, "size": 32}
    )
    stream, learner = build(config)
    assert (stream.mean, stream.std) == ((0.0,), (1.0,))
    x, _ = stream.tasks[0].train.gather(torch.arange(8))
    assert learner.prepare(x).min() >= 0
    assert learner.prepare(x).max() <= 1
    assert learner.model(learner.prepare(x)).shape == (8, 10)


def test_transforms_of_ones_own_are_refused() -> None:
    stream = stream_of(RunConfig(benchmark="split-digits"))
    with pytest.raises(ValueError, match="choose another model"):
        replace(stream, prepare=lambda x: x).as_pixels()
