"""Half precision: gradients are those of the loss, whatever it was scaled by."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.forward import FIRST_SCALE, GROWTH_INTERVAL, LossScale


def test_gradients_are_unscaled_and_added_up_in_single_precision() -> None:
    weight, scale = nn.Parameter(torch.tensor([2.0, 3.0])), LossScale()
    scale.backward((weight * weight).sum(), [weight])
    assert weight.grad is not None
    assert weight.grad.tolist() == [4.0, 6.0]
    assert scale.value == FIRST_SCALE


def test_an_overflow_halves_the_scale_and_no_gradient_is_lost() -> None:
    weight, scale = nn.Parameter(torch.tensor([1.0])), LossScale()

    def half(gradient: Tensor) -> Tensor:
        return gradient.half().float()  # above 65504 infinite

    weight.register_hook(half)
    scale.backward((4 * weight).sum(), [weight])
    assert weight.grad is not None
    assert weight.grad.tolist() == [4.0]
    assert scale.value == 2.0**13, "4 * 2^14 is 65536, too large"


def test_the_scale_grows_again_and_is_saved() -> None:
    weight, scale = nn.Parameter(torch.tensor([1.0])), LossScale()
    scale.load_state_dict({"value": 8.0, "calm": GROWTH_INTERVAL - 1})
    scale.backward(weight.sum(), [weight])
    assert scale.state_dict() == {"value": 16.0, "calm": 0}


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_the_path_is_that_of_unscaled_gradients(precision: str) -> None:
    x, y = torch.randn(16, 4, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2
    paths = []
    for kind in ("32", precision):
        torch.manual_seed(0)
        learner = Learner(nn.Linear(4, 2), "tmln", batch_size=8, precision=kind)  # type: ignore[arg-type]
        learner.learn((x, y))
        paths.append(
            torch.cat([learner.step.optimizer.state[p]["sensitivity"].flatten() for p in learner.model.parameters()])
        )
        assert (learner.state_dict().get("scale") is not None) == (kind == "16-mixed")
    torch.testing.assert_close(paths[1], paths[0], rtol=0.2, atol=0.05)


def test_another_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="precision must be one of 32, bf16-mixed, 16-mixed, got '64'"):
        Learner(nn.Linear(2, 2), precision="64")  # type: ignore[arg-type]
