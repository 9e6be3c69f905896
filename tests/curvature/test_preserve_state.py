"""What a pass leaves behind: nothing, whatever mode each module was in, and whatever happened in between."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
import torch
from torch import nn

from tmln.curvature.preserve_state import eval_mode, preserve_model


class Hidden(nn.Module):
    """Has a layer that nobody knows of, to which it hands its mode on; and counts how often it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.told = [nn.Dropout(0.5)], 0

    def train(self, mode: bool = True) -> Hidden:
        self.told += 1
        for layer in self.layers:
            layer.train(mode)
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def made() -> tuple[nn.Sequential, Hidden]:
    hidden = Hidden()
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), hidden)
    model[1].eval()
    hidden.told = 0
    return model, hidden


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


@pytest.mark.parametrize(
    "how", [eval_mode, lambda model: preserve_model(model, training=False)], ids=["eval", "untouched"]
)
def test_every_module_is_in_its_own_mode_again(how: Any) -> None:
    model, _ = made()
    before = modes(model)
    assert before == [True, True, False, True]
    within: AbstractContextManager[None] = how(model)
    with suppress(KeyError), within:
        assert not any(modes(model))
        raise KeyError
    assert modes(model) == before


def test_a_models_own_eval_is_called_where_it_answers_and_not_where_it_is_only_looked_at() -> None:
    model, hidden = made()
    with eval_mode(model):
        assert not hidden.layers[0].training
    assert hidden.told == 1
    with preserve_model(model, training=False):
        pass
    assert hidden.told == 1


def test_gradients_statistics_and_random_numbers_are_as_before() -> None:
    model, _ = made()
    norm = model[0]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    weight = norm.weight
    weight.grad = grad = torch.ones(2)
    state, statistics = torch.get_rng_state(), norm.running_mean.clone()
    with preserve_model(model, training=True):
        assert all(p.grad is None for p in model.parameters())
        weight.requires_grad_(False)
        model(torch.randn(8, 2))
        assert not torch.equal(norm.running_mean, statistics)
    assert weight.grad is grad
    assert weight.requires_grad
    assert torch.equal(norm.running_mean, statistics)
    assert torch.equal(torch.get_rng_state(), state)
