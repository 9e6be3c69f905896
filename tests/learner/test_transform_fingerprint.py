"""A state remembers what was done to stored samples; a learner that does something else is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from tmln.learner import Learner
from tmln.learner.checkpoint import load_file, save_file


def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randint(0, 256, (24, 5), dtype=torch.uint8), torch.arange(24) % 2


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 2)


def centred(x: Tensor) -> Tensor:
    return x.float() / 64 - 2


def noisy(x: Tensor, generator: Generator) -> Tensor:
    return centred(x) + torch.randn(x.shape, generator=generator)


def saved(path: Path, **options: object) -> Path:
    learner = Learner(network(), "er", **options)  # type: ignore[arg-type]
    learner.learn(data())
    learner.save(path)
    return path


def test_another_prepare_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "state", prepare=centred)
    with pytest.raises(ValueError, match=r"another prepare: .* from -2 to .*, this learner makes .* from 0 to"):
        Learner.load(path, network())
    with pytest.raises(ValueError, match="another prepare"):
        Learner.load(path, network(), prepare=lambda x: centred(x)[:, :4])
    again = Learner.load(path, network(), prepare=lambda x: x.float() / 64 - 2)  # another function, the same inputs
    assert again.tasks == 1


def test_another_augmentation_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "state", prepare=centred, augment=noisy)
    with pytest.raises(ValueError, match="another augment"):
        Learner.load(path, network(), prepare=centred)
    assert Learner.load(path, network(), prepare=centred, augment=noisy).tasks == 1


def test_noise_from_elsewhere_cannot_be_compared_and_is_let_through(tmp_path: Path) -> None:
    source = np.random.default_rng(0)

    def wild(x: Tensor, generator: Generator) -> Tensor:
        return centred(x) + torch.as_tensor(source.normal(size=tuple(x.shape))).float()

    path = saved(tmp_path / "state", prepare=centred, augment=wild)
    assert Learner.load(path, network(), prepare=centred, augment=wild).tasks == 1


def test_a_prepare_that_refuses_artificial_samples_is_let_be(tmp_path: Path) -> None:
    known = {tuple(row.tolist()) for row in data()[0]}

    def strict(x: Tensor) -> Tensor:
        if not {tuple(row.tolist()) for row in x} <= known:
            raise KeyError("unknown sample")
        return x.float()

    path = saved(tmp_path / "state", prepare=strict)
    assert Learner.load(path, network(), prepare=strict).tasks == 1


def test_looking_draws_no_random_numbers_and_keeps_no_sample() -> None:
    def dropping(x: Tensor, generator: Generator) -> Tensor:
        return centred(x) * (torch.rand(x.shape) > 0.5)

    learner = Learner(network(), "naive", prepare=centred, augment=dropping, batch_size=24)
    task = data()
    torch.manual_seed(5)
    learner.learn(task)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    torch.rand(24, 5)  # what the one batch drew
    assert torch.equal(after, torch.get_rng_state())
    intake = learner.state_dict()["intake"]
    assert intake["shape"] == [5]
    assert intake["dtype"] == "uint8"
    assert torch.allclose(intake["prepare"][1:], centred(torch.arange(5) * 37 % 256).double())


def test_states_of_before_are_loaded(tmp_path: Path) -> None:
    path = saved(tmp_path / "state", prepare=centred)
    content = load_file(path)
    del content["state"]["intake"]
    save_file(path, content)
    assert Learner.load(path, network()).tasks == 1
