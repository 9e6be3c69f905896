"""``logit_mask="seen"``: a class that was not met does not exist for any pass, as if the head had not grown yet."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.forward import MaskedModel, mask_logits
from tmln.methods.recipes import RECIPES, Recipe
from tmln.streams import Samples

pytestmark = pytest.mark.usefixtures("narrow")

# what draws as many random numbers as the head has rows does not draw the same for a smaller head
SETTINGS: dict[str, dict[str, Any]] = {
    "ocar": {"step.fisher": "exact"},
    "upgd": {"step.sigma": 0.0},
    # decay is of all weights, open or closed; a share of a tensor's counts the closed ones, too
    "adamw": {"step.weight_decay": 0.0},
    "er+adamw": {"step.weight_decay": 0.0},
    "mofo": {"step.weight_decay": 0.0, "step.fraction": 1.0},
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def network(classes: int) -> nn.Sequential:
    """The same first rows for every number of classes. No bias before batch norm: its gradient is rounding errors,
    which Adam and FOPNG divide by their own size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 6))
    head = model[3]
    assert isinstance(head, nn.Linear)
    head.weight = nn.Parameter(head.weight[:classes].detach().clone())
    head.bias = nn.Parameter(head.bias[:classes].detach().clone())
    return model


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(40) % 2 + 2 * k
    return torch.randn(40, 5, generator=generator) + y[:, None], y


def learner(method: str, classes: int, mask: str) -> Learner:
    return Learner(
        network(classes),
        method,
        settings=SETTINGS.get(method),
        batch_size=10,
        logit_mask=mask,  # type: ignore[arg-type]
    )


def steps_differ(recipe: Recipe) -> bool:
    """K-FAC's damping depends on the size of the head."""
    return recipe.step.name == "ocar" or recipe.step.settings.get("geometry") == "kfac"


def tensors(state: Any) -> Iterator[Tensor]:
    """Every float tensor of a nested state, in order; stored samples and logits apart."""
    if isinstance(state, Tensor) and state.is_floating_point():
        yield state
    elif isinstance(state, dict):
        for key, value in state.items():
            if key not in ("memory", "checks"):
                yield from tensors(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            yield from tensors(value)


@pytest.mark.parametrize("method", [name for name, recipe in RECIPES.items() if not steps_differ(recipe)])
def test_it_is_a_learner_whose_head_has_only_the_classes_met(method: str) -> None:
    """Weights and every part's state after a task and its boundary; what belongs to closed rows is as it was, or 0."""
    masked, small = learner(method, 6, "seen"), learner(method, 2, "none")
    before = copy.deepcopy(masked.model[3].state_dict())  # type: ignore[index]
    for trained in (masked, small):
        trained.learn(task(0), epochs=2)
    for name, value in small.model.state_dict().items():
        torch.testing.assert_close(masked.model.state_dict()[name][: len(value)] if value.dim() else value, value)
    for name, value in before.items():
        assert torch.equal(masked.model.state_dict()[f"3.{name}"][2:], value[2:])
    for part, twin in zip(tuple(masked.components.values()), tuple(small.components.values()), strict=True):
        for a, b in zip(tensors(part.state_dict()), tensors(twin.state_dict()), strict=True):
            if a.shape == b.shape:
                torch.testing.assert_close(a, b)
            else:  # of the head
                torch.testing.assert_close(a[tuple(slice(size) for size in b.shape)], b)
    assert masked.evaluate(task(0)) == pytest.approx(small.evaluate(task(0)))


def test_closed_classes_have_no_share_in_ocars_factors() -> None:
    """Its damping depends on the size of the head, so steps differ; what it measures does not."""
    masked, small = learner("ocar", 6, "seen"), learner("ocar", 2, "none")
    x, y = task(0)
    for trained in (masked, small):
        trained.learn((x[:10], y[:10]))  # one step: the factors of the first batch
    found, wanted = (
        {name.removeprefix("model."): factors for name, factors in trained.step.optimizer.kfac.factors.items()}  # type: ignore[attr-defined]
        for trained in (masked, small)
    )
    assert found.keys() == wanted.keys()
    torch.testing.assert_close(found["3"].input, wanted["3"].input)
    torch.testing.assert_close(found["3"].output[:2, :2], wanted["3"].output)
    assert not found["3"].output[2:].any()
    torch.testing.assert_close(found["0"].output, wanted["0"].output)


@pytest.mark.parametrize("method", RECIPES)
def test_three_tasks_stay_finite_and_leave_the_unmet_alone(method: str) -> None:
    trained = learner(method, 8 if method == "upgd" else 6, "seen")
    for k in range(3):
        head = trained.model[3].weight.detach().clone()  # type: ignore[index]
        trained.learn(task(k), epochs=2)
        now = trained.model[3].weight  # type: ignore[index]
        assert torch.equal(now[2 * k + 2 :], head[2 * k + 2 :]) or method in ("joint", "independent")
        assert now.isfinite().all()
        assert all(
            t.isfinite().all() for part in tuple(trained.components.values()) for t in tensors(part.state_dict())
        )
    assert trained.classes == (0, 1, 2, 3, 4, 5)


def test_stored_logits_of_closed_classes_are_not_compared() -> None:
    """der++ kept -inf for them, and their difference is no number."""
    trained = learner("der++", 6, "seen")
    losses: list[float] = []
    for k in range(2):
        trained.learn(task(k), epochs=2, on_step=lambda epoch, step, loss: losses.append(loss))
    memory = trained.replay.memory
    assert memory is not None
    stored = memory.draw(1000)
    assert stored["logits"].isinf().any()
    assert torch.isfinite(torch.tensor(losses)).all()


def test_blurry_samples_open_their_classes() -> None:
    x, y = task(0)
    y[:3] = 4  # a sample of a later task, among the first one's
    trained = learner("er", 6, "seen")
    trained.learn((x, y), classes=(0, 1))
    assert trained.classes == (0, 1, 4)


def test_a_restored_learner_has_the_same_classes_open(tmp_path: Any) -> None:
    trained = learner("lwf", 6, "seen")
    trained.learn(task(0))
    trained.save(tmp_path / "state")
    again = Learner.load(tmp_path / "state", network(6))
    assert isinstance(again.trained.masked, MaskedModel)
    for one in (trained, again):
        one.learn(task(1))
    assert torch.equal(trained.model[3].weight, again.model[3].weight)  # type: ignore[index]


@pytest.mark.slow
def test_the_mask_follows_the_classes_under_compile() -> None:
    losses: list[list[float]] = []
    for compiled in (False, True):
        losses.append([])
        trained = learner("er", 6, "seen")
        if compiled:
            trained.trained.forward = torch.compile(trained.trained.masked, backend="eager")  # type: ignore[assignment]
        for k in range(3):
            trained.learn(task(k), on_step=lambda epoch, step, loss: losses[-1].append(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_masks_by_hand() -> None:
    inf = float("inf")
    output = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert mask_logits(output, [1, 3]).tolist() == [[-inf, 2.0, -inf, 4.0]]
    assert mask_logits(output, [0]).tolist() == [[1.0, -inf, -inf, -inf]]
    assert mask_logits(output, None) is output
    scored = MaskedModel(nn.Identity())
    for classes, wanted in (((), [-inf] * 4), ((2,), [-inf, -inf, 3.0, -inf]), ((0, 3), [1.0, -inf, -inf, 4.0])):
        scored.open(classes)
        assert scored(output).tolist() == [wanted]
    assert not list(scored.state_dict())


def test_evaluation_sees_the_same_model() -> None:
    trained = learner("naive", 6, "seen")
    trained.learn(task(0))
    x, y = task(0)
    trained.model.eval()
    wanted = nn.functional.cross_entropy(trained.trained.masked(x), y).item()
    assert trained.evaluate(Samples.of(x, y))["loss"] == pytest.approx(wanted)
