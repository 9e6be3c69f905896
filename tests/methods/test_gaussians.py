"""Class Gaussians: moments by hand and by numpy, draws, and what is made of them: replay, a head, two rates."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.loop import make_task_context
from tmln.methods import Batch
from tmln.methods.fine_tuning import FineTuning, set_fine_tuning
from tmln.methods.gaussians import ClassGaussians, Covariance, Gaussian, add_samples, leading_rows
from tmln.methods.weights.realigned import normalise_logits
from tmln.streams import as_samples

D = 6
KINDS: tuple[Covariance, ...] = ("full", "diagonal", "low-rank")


def cloud(n: int, seed: int = 0, d: int = D) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(d, d, generator=torch.Generator().manual_seed(5))
    return torch.randn(n, d, generator=generator) @ mixed + 3


def empty(d: int = D) -> Gaussian:
    return Gaussian(0.0, torch.zeros(d), torch.zeros(d), torch.zeros(0, d))


def covariance_of(found: Gaussian) -> Tensor:
    return found.factor.T @ found.factor + found.variance.diag()


def test_moments_by_hand() -> None:
    """(0,0), (2,0), then (4,6): mean (2,2), S = ((8/3, 4), (4, 8))."""
    first = add_samples(empty(2), torch.tensor([[0.0, 0.0], [2.0, 0.0]]), "full", 0)
    both = add_samples(first, torch.tensor([[4.0, 6.0]]), "full", 0)
    assert both.number == 3
    torch.testing.assert_close(both.mean, torch.tensor([2.0, 2.0]).double())
    torch.testing.assert_close(covariance_of(both), torch.tensor([[8 / 3, 4], [4, 8]]).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_have_the_moments_of_the_whole(kind: Covariance) -> None:
    x, found = cloud(50), empty()
    for piece in x.split([1, 20, 29]):
        found = add_samples(found, piece, kind, D)
    expected = torch.from_numpy(np.cov(x.double().numpy().T, bias=True))
    torch.testing.assert_close(found.mean, x.double().mean(0))
    torch.testing.assert_close(covariance_of(found).diagonal(), expected.diagonal(), rtol=1e-4, atol=1e-4)
    if kind != "diagonal":
        torch.testing.assert_close(covariance_of(found), expected, rtol=1e-4, atol=1e-4)


def test_low_rank_is_the_best_of_its_rank_with_all_variances() -> None:
    x = cloud(80)
    found = add_samples(empty(), x, "low-rank", 2)
    whole = torch.from_numpy(np.cov(x.double().numpy().T, bias=True))
    values, vectors = torch.linalg.eigh(whole)
    torch.testing.assert_close(found.factor.T @ found.factor, (vectors[:, -2:] * values[-2:]) @ vectors[:, -2:].T)
    torch.testing.assert_close(covariance_of(found).diagonal(), whole.diagonal())
    assert leading_rows(x[:1].double(), 3).shape == (3, D)  # fewer samples than directions


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments(kind: Covariance) -> None:
    made, x = ClassGaussians(kind, 3, seed=1), cloud(400)
    made.add(7, x)
    made.add(2, torch.full((1, D), 5.0))  # one sample: draws of it are itself
    drawn, labels = made.draw(torch.zeros(20000, dtype=torch.int64))
    assert labels.unique().tolist() == [7]
    torch.testing.assert_close(drawn.mean(0), x.mean(0), atol=0.1, rtol=0)
    found, expected = np.cov(drawn.numpy().T), np.cov(x.numpy().T, bias=True)
    np.testing.assert_allclose(np.diag(found), np.diag(expected), rtol=0.06)
    if kind == "full":
        np.testing.assert_allclose(found, expected, atol=0.06 * np.abs(expected).max())
    alone, labels = made.draw(torch.ones(3, dtype=torch.int64))
    assert (alone == 5).all()
    assert labels.tolist() == [2, 2, 2]
    assert {*made.draw_any(40)[1].tolist()} == {2, 7}


def test_equal_features_and_other_widths() -> None:
    made = ClassGaussians("full", 1, seed=1)
    made.add(0, torch.ones(4, D))
    assert made.draw(torch.zeros(2, dtype=torch.int64))[0].tolist() == [[1.0] * D] * 2
    with pytest.raises(ValueError, match="4 features, but those of earlier classes 6"):
        made.add(1, torch.ones(2, 4))


# -- in a learner ------------------------------------------------------------------------------------------------------


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


def data(classes: tuple[int, ...], seed: int = 0, n: int = 120) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centre = 3 * torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    y = torch.tensor(classes)[torch.arange(n) % len(classes)]
    return centre[y] + torch.randn(n, 4, generator=generator), y


def learn(epochs: int = 20, **how: Any) -> Learner:
    how = {"lr": 0.05, "batch_size": 20, **how}
    trained = Learner(network(), how.pop("method", "naive"), **how)
    for classes in ((0, 1), (2, 3)):
        trained.learn(data(classes), epochs=epochs)
    return trained


def accuracy(trained: Learner) -> float:
    return trained.evaluate(data((0, 1, 2, 3), seed=9, n=400))["accuracy"]


@pytest.mark.parametrize("mask", ["none", "seen"])
def test_drawn_features_keep_what_a_head_forgets(mask: Any) -> None:
    plain = accuracy(learn(step="slow-backbone", settings={"step.inner.momentum": 0.9}, logit_mask=mask))
    kept = accuracy(learn(method="feature-replay", logit_mask=mask))
    assert plain < 0.6
    assert kept > 0.85


def test_the_loss_is_that_of_batch_and_draws_together() -> None:
    trained = learn(replay="features", epochs=1)
    x, y = data((2, 3))
    drawn = trained.replay.draw(x[:5], y[:5])
    assert (len(drawn[0]), len(drawn[1])) == (0, 0)
    batch = Batch(x[:5], y[:5], 5, drawn[2])
    found, output = trained.replay.loss(trained.model, batch)
    head = trained.model[2]  # type: ignore[index]
    both = torch.cat([trained.model(x[:5]), head(drawn[2]["features"])])
    assert output.shape == (5, 4)
    torch.testing.assert_close(found, F.cross_entropy(both, torch.cat([y[:5], drawn[2]["labels"]])))


def test_no_sample_is_stored() -> None:
    trained = learn(replay="features", epochs=1)
    state = trained.replay.state_dict()["gaussians"]
    assert {name: tuple(value.shape) for name, value in state.items() if name in ("mean", "factor")} == {
        "mean": (4, 16),
        "factor": (4, 16, 16),
    }


def test_a_realigned_head_knows_all_classes() -> None:
    settings = {"step.inner.momentum": 0.9}
    plain = learn(step="slow-backbone", settings=settings)
    realigned = learn(method="slca")
    assert accuracy(plain) < 0.6
    assert accuracy(realigned) > 0.85
    assert realigned.diagnostics["weights/loss on draws"] < 1


def test_realignment_changes_the_head_alone_and_leaves_gradients() -> None:
    trained = Learner(network(), weights="realigned")
    trained.learn(data((0, 1)))
    before = copy.deepcopy(trained.model.state_dict())
    answer = trained.model[2].weight.grad  # type: ignore[index]
    context = make_task_context(trained, as_samples(data((0, 1))), (0, 1), ())
    random = torch.get_rng_state()
    trained.weights.end(context)
    assert torch.equal(torch.get_rng_state(), random)
    assert trained.model[2].weight.grad is answer  # type: ignore[index]
    changed = [name for name, value in trained.model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["2.weight", "2.bias"]


def test_logits_are_normalised() -> None:
    logits = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert normalise_logits(logits, 10.0).tolist() == [[6, 8], [0, 0]]
    assert normalise_logits(logits, 0.0) is logits


def test_backbone_and_head_have_rates_of_their_own() -> None:
    """Without momentum a step of the backbone is a tenth of that of plain descent, the head's is the same."""
    x, y = data((0, 1), n=20)
    moved = []
    for how in ({"step": "slow-backbone", "settings": {"step.scale": 0.1}}, {"step": "sgd"}):
        trained = Learner(network(), lr=0.05, batch_size=20, **how)
        trained.learn((x, y))
        moved.append([now - old for now, old in zip(trained.model.parameters(), network().parameters(), strict=True)])
    for index, (slow, plain) in enumerate(zip(*moved, strict=True)):
        torch.testing.assert_close(slow, plain * (0.1 if index < 2 else 1.0), rtol=1e-4, atol=1e-7)


def test_the_models_own_scale_comes_first() -> None:
    model = network()
    set_fine_tuning(model, FineTuning("2", backbone_lr_scale=0.1))
    groups = Learner(model, lr=0.05, step="slow-backbone").step.optimizer.param_groups
    assert [(len(group["params"]), group["lr"]) for group in groups] == [(2, 0.05), (2, pytest.approx(0.005))]
    with pytest.raises(ValueError, match="has none"):
        Learner(nn.Sequential(nn.Conv2d(1, 2, 1)), step="slow-backbone")


@pytest.mark.parametrize("step", ["tmln", "adamw"])
def test_any_step_adapts_the_first_session(step: str) -> None:
    trained = Learner(network(), "ranpac+", settings={"step.inner": step, "answer.width": 50}, lr=0.01, batch_size=20)
    trained.learn(data((0, 1)), epochs=5)
    after = copy.deepcopy(trained.model[0].state_dict())  # type: ignore[index]
    assert not torch.equal(after["weight"], network().state_dict()["0.weight"])
    trained.learn(data((2, 3)), epochs=5)
    assert torch.equal(after["weight"], trained.model.state_dict()["0.weight"])
    assert accuracy(trained) > 0.85
