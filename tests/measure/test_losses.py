"""The loss at any weights: closed forms, the learner's own evaluation, and statistics of batch norm by hand."""

from __future__ import annotations

import copy
import math
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from tmln.experiments.config import RunConfig
from tmln.learner.evaluation import evaluate
from tmln.measure.losses import LossProbe, NormStatistics, draw_subset, make_probe, mix_buffers
from tmln.measure.trajectory import Checkpoint, Recording
from tmln.models import make_model
from tmln.streams import Samples
from tmln.streams.arrays import stream_of_tasks


def recording_of(model: nn.Module, count: int = 40, **config: object) -> Recording:
    """Two tasks of Gaussian inputs of the shape 1 x 8 x 8, and the model at its start."""
    generator = torch.Generator().manual_seed(1)

    def part(low: int) -> tuple[Tensor, Tensor]:
        return torch.randn(count, 1, 8, 8, generator=generator), torch.arange(count) % 2 + low

    stream = stream_of_tasks([(part(0), part(0)), (part(2), part(2))])
    start = Checkpoint(0, 0, False, copy.deepcopy(model.state_dict()))
    return Recording(RunConfig.of({"benchmark": "split-digits", **config}), stream, model, (start,))


def test_a_loss_in_closed_form() -> None:
    model = nn.Linear(2, 2, bias=False)
    probe = LossProbe(model, torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    found = probe(torch.tensor([0.5, 0.0, 0.0, 3.0]), {})
    assert found.loss == pytest.approx((math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(-6.0))) / 2, rel=1e-7)
    assert found.accuracy == 1.0
    assert probe(torch.tensor([-0.5, 0.0, 0.0, 3.0]), {}).accuracy == 0.5
    assert not math.isfinite(probe(torch.tensor([math.nan, 0.0, 0.0, 3.0]), {}).loss)


@pytest.mark.parametrize(("name", "options"), [("mlp", {}), ("resnet18-slim", {"width": 2})], ids=["mlp", "resnet"])
def test_at_trained_weights_it_is_the_learners_evaluation(name: str, options: dict[str, int]) -> None:
    torch.manual_seed(0)
    model = make_model(name, (1, 8, 8), 4, **options)
    model(torch.randn(32, 1, 8, 8))  # running statistics of its own
    recording = recording_of(model, count=150)
    model.train()
    before = copy.deepcopy(model.state_dict())
    probe = make_probe(recording, 1, samples=None)
    found = probe(recording.weights(recording.start), recording.buffers(recording.start))
    wanted = evaluate(model, recording.stream[1].test, recording.stream.prepare)
    assert (found.loss, found.accuracy) == pytest.approx((wanted["loss"], wanted["accuracy"]), rel=1e-5)
    probe(torch.zeros_like(recording.weights(recording.start)), {})
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model.training


def test_only_the_classes_met_compete() -> None:
    torch.manual_seed(0)
    model = make_model("mlp", (1, 8, 8), 4)
    weights = recording_of(model).weights(recording_of(model).start)
    losses = {}
    for mask, known in (("none", 0), ("seen", 0), ("seen", 1)):
        recording = recording_of(model, logit_mask=mask)
        losses[mask, known] = make_probe(recording, 0, known=known)(weights, {}).loss
    assert losses["seen", 0] < losses["seen", 1] == losses["none", 0]


def test_statistics_are_estimated_by_hand() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1, momentum=0.3), nn.Linear(1, 2, bias=False))
    fresh = torch.cat([torch.full((64, 1), 2.0), torch.full((32, 1), 5.0), torch.full((32, 1), 9.0)])
    x = torch.tensor([[4.0]])
    probe = LossProbe(model, x, torch.tensor([0]), refresh=fresh)
    weights = torch.tensor([1.0, 0.0, 1.0, -1.0])  # scale, shift, and two rows of one weight
    found = probe(weights, {"0.running_mean": torch.tensor([100.0]), "0.num_batches_tracked": torch.tensor(5)})
    variance = (0.0 + 64 * 4.0 / 63) / 2  # of the first batch, and of 5 and 9 in equal parts; unbiased
    z = (4.0 - (2.0 + 7.0) / 2) / math.sqrt(variance + 1e-5)
    assert found.loss == pytest.approx(math.log(1 + math.exp(-2 * z)), rel=1e-5)
    assert probe(weights, {}).loss == found.loss  # nothing is left of the call before
    norm = probe.norms[0]
    assert norm.momentum == 0.3
    assert not norm.training


def test_estimating_changes_nothing_without_batch_norm() -> None:
    torch.manual_seed(0)
    recording = recording_of(make_model("mlp", (1, 8, 8), 4))
    weights = recording.weights(recording.start)
    kept, fresh = (make_probe(recording, 0, bn=bn)(weights, {}) for bn in get_args(NormStatistics))
    assert kept == fresh


def test_a_subset_is_fixed_and_whole_where_it_is_small() -> None:
    samples = Samples.of(torch.arange(50.0).view(50, 1), torch.arange(50))
    few = draw_subset(samples, 10)
    assert len(set(few.y.tolist())) == 10
    assert few.y.tolist() == draw_subset(samples, 10).y.tolist() == sorted(few.y.tolist())
    assert few.y.tolist() != list(range(10))
    assert draw_subset(samples, 50) is draw_subset(samples, None) is samples
    with pytest.raises(ValueError, match="without samples"):
        draw_subset(samples.subset(torch.arange(0)), 10)


def test_buffers_are_mixed_in_shares_and_counters_taken() -> None:
    model = nn.BatchNorm1d(2)
    recording = recording_of(model)
    states = []
    for mean, count in ((0.0, 3), (8.0, 5)):
        state = copy.deepcopy(model.state_dict())
        state["running_mean"].fill_(mean)
        state["num_batches_tracked"].fill_(count)
        states.append(Checkpoint(0, 0, False, state))
    mixed = mix_buffers(recording, states, (0.75, 0.25))
    assert mixed["running_mean"].tolist() == [2.0, 2.0]
    assert mixed["running_var"].tolist() == [1.0, 1.0]
    assert int(mixed["num_batches_tracked"]) == 3
    assert int(mix_buffers(recording, states, (0.25, 0.75))["num_batches_tracked"]) == 5
    assert "weight" not in mixed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split": "valid"}, "split is test or train"),
        ({"bn": "kept"}, "bn is keep or reestimate"),
        ({"samples": 0}, "at least 1"),
        ({"samples": 1, "bn": "reestimate"}, "at least 2 samples"),
    ],
    ids=str,
)
def test_mistakes_are_answered(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_probe(recording_of(nn.Flatten()), 0, **options)  # type: ignore[arg-type]
