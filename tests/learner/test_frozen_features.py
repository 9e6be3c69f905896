"""A head alone is trained on features that are computed once: as if the whole model was passed, to rounding."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tmln import Learner
from tmln.learner import frozen_features
from tmln.methods.fine_tuning import FineTuning, set_fine_tuning
from tmln.streams.arrays import as_samples
from tmln.streams.augment import Normalise
from tmln.streams.samples import JoinedSource, MappedSource, Samples, TensorSource


class Counting(nn.Module):
    """A backbone that counts the samples that pass through it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.rows = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        out: Tensor = self.norm(self.convolution(x)).relu().mean((2, 3))
        return out


def network(freeze: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(Counting(), nn.Dropout(0.5), nn.Linear(4, 2))
    if freeze:
        set_fine_tuning(model, FineTuning("2", freeze="backbone"))
    return model


def pictures(seed: int, first: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (20, 1, 6, 6), generator=generator, dtype=torch.uint8)
    return x, torch.arange(20) % 2 + first


def learner_of(model: nn.Module, **how: Any) -> Learner:
    return Learner(model, "er", **{"lr": 0.1, "batch_size": 8, "settings": {"replay.capacity": 12}, **how})


@pytest.mark.parametrize("mask", ["none", "seen"])
def test_each_sample_passes_once_and_the_result_is_the_same(mask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for limit in (frozen_features.LIMIT, 0):
        monkeypatch.setattr(frozen_features, "LIMIT", limit)
        learner = learner_of(network(), logit_mask=mask)
        learner.learn(pictures(0), epochs=6)
        first = learner.model[0].rows  # type: ignore[index]
        learner.learn(pictures(1, 2), epochs=6)
        found.append((learner.model, first, learner.model[0].rows - first))  # type: ignore[index]
    (known, *counts), (whole, *all_counts) = found
    for a, b in zip(known.state_dict().values(), whole.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert counts[0] <= 20 + 4  # and the few by which the head is found
    assert counts[1] <= 20 + 12 + 8  # replayed ones once
    assert all_counts[0] >= 6 * 20
    assert all_counts[1] >= 6 * 20


def test_a_task_that_is_resumed_ends_with_the_same_bits() -> None:
    whole, part = learner_of(network()), learner_of(network())
    for learner in (whole, part):
        learner.learn(pictures(0), epochs=3)
    whole.learn(pictures(1, 2), epochs=3)
    saved: dict[str, Any] = {}

    def stop(epoch: int, number: int, loss: float) -> None:
        if (epoch, number) == (1, 1):
            saved.update(copy.deepcopy(part.state_dict()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        part.learn(pictures(1, 2), epochs=3, atomic=False, on_step=stop)
    again = learner_of(network())
    again.load_state_dict(saved)
    again.learn(pictures(1, 2), epochs=3)
    for a, b in zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


class Jittered(Dataset[tuple[Tensor, int]]):
    """A data set that draws its inputs anew each time they are read."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randint(256, (1, 6, 6), dtype=torch.uint8), index % 2


def test_a_data_set_may_draw_its_inputs_anew() -> None:
    learner = learner_of(network())
    learner.learn(Jittered(), epochs=3)
    assert learner.model[0].rows >= 3 * 20  # type: ignore[index]
    joined = JoinedSource((TensorSource(pictures(0)[0]), as_samples(Jittered(), torch.float32).source))
    assert frozen_features.reads_dataset(MappedSource(joined, torch.clone))
    assert not frozen_features.reads_dataset(MappedSource(joined.sources[0], torch.clone))


def test_more_samples_than_there_is_room_for_pass_the_whole_model() -> None:
    model = network().eval()
    head = frozen_features.HeadPass(model, model, "2", room=3)
    x = torch.rand(5, 1, 6, 6)
    torch.testing.assert_close(head(x[:3]), model(x[:3]))
    torch.testing.assert_close(head(x), model(x))
    assert (len(head.known), head.computed) == (3, 3)


def shift(x: Tensor, generator: torch.Generator) -> Tensor:
    return (x.float() / 255).roll(int(torch.randint(6, (), generator=generator)), 3)


def test_where_the_whole_model_is_passed() -> None:
    """With augmentation, weights of the backbone that are trained, or something behind the head."""
    x, y = pictures(0)
    task = Samples(TensorSource(x), y, torch.arange(len(y)))
    assert frozen_features.make_head_pass(learner_of(network()), task) is not None
    normalised = learner_of(network(), augment=Normalise((0.5,), (0.5,)), prepare=Normalise((0.5,), (0.5,)))
    assert frozen_features.make_head_pass(normalised, task) is not None
    assert frozen_features.make_head_pass(learner_of(network(freeze=False)), task) is None
    assert frozen_features.make_head_pass(learner_of(network(), augment=shift), task) is None
    assert not frozen_features.is_deterministic(partial(shift))
    scaled = nn.Sequential(network(freeze=False), nn.Softsign())
    set_fine_tuning(scaled, FineTuning("0.2", freeze="backbone"))
    assert frozen_features.make_head_pass(learner_of(scaled), task) is None


@pytest.mark.parametrize("mask", ["none", "seen"])
@pytest.mark.parametrize("method", ["er", "tmln+", "tmln-kfac+", "feature-replay", "mas"])
def test_a_folder_keeps_features_for_training_tests_and_boundaries(
    method: str, mask: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn() -> Learner:
        learner = Learner(network(), method, lr=0.01, batch_size=8, logit_mask=mask)
        for task in (pictures(0), pictures(1, 2)):  # the head grows
            learner.learn(task, epochs=3)
            learner.evaluate(task)
        return learner

    whole = learn()
    monkeypatch.setenv("TMLN_FEATURES", str(tmp_path))
    kept, again = learn(), learn()
    assert whole.model[0].rows > 100 > kept.model[0].rows  # type: ignore[index]
    assert again.model[0].rows <= 20  # type: ignore[index]  # of two samples each, by which layers are found
    for a, b, c in zip(*(one.model.state_dict().values() for one in (whole, kept, again)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        assert torch.equal(b, c)
    monkeypatch.delenv("TMLN_FEATURES")
    resumed = Learner(network(), method, lr=0.01, batch_size=8, logit_mask=mask)
    resumed.load_state_dict(again.state_dict())  # names are the same with and without the folder
    assert resumed.evaluate(pictures(1, 2)) == pytest.approx(again.evaluate(pictures(1, 2)), abs=1e-4)
