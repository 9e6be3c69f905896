"""What is said when the loss is no number: it names the data, or settings that there are and that help."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from torch import nn

from tmln.learner import Learner, loop
from tmln.learner.loop import Diverged, explain_divergence
from tmln.methods.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("narrow")


def advised(learner: Learner) -> list[str]:
    said = str(explain_divergence(float("nan"), torch.zeros(2, 5), "task 1", learner.lr, learner.step))
    assert "lower lr" in said
    return re.findall(r"raise ([\w.]+)", said)


@pytest.mark.parametrize("method", RECIPES)
def test_every_method_is_advised_what_it_has_and_what_lowers_its_rate(method: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        learner = Learner(nn.Linear(5, 4), method)
        for name in advised(learner):
            other = Learner(nn.Linear(5, 4), method, settings={name: 2 * learner.step.settings.damping})
            assert other.step.effective_lr == pytest.approx(learner.step.effective_lr / 2)


@pytest.mark.parametrize(
    ("method", "options", "names"),
    [
        ("naive", {}, []),
        ("tmln", {}, ["step.damping"]),
        ("tmln", {"settings": {"step.form": "proximal"}}, []),
        ("naive", {"step": "sam", "settings": {"step.inner": "tmln"}}, ["step.inner.damping"]),
        ("naive", {"step": "a-gem"}, []),
        ("ocar", {}, ["step.damping"]),
    ],
)
def test_a_damping_is_advised_where_the_rate_is_divided_by_it(
    method: str, options: dict[str, object], names: list[str]
) -> None:
    assert advised(Learner(nn.Linear(5, 4), method, **options)) == names  # type: ignore[arg-type]


def test_bad_data_is_named_before_any_setting() -> None:
    learner = Learner(nn.Linear(5, 4), "tmln")
    said = str(explain_divergence(float("nan"), torch.full((2, 5), float("inf")), "task 1", learner.lr, learner.step))
    assert "not finite" in said
    assert "lr" not in said


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are read as on a GPU."""
    on_gpu = loop.is_loss_read
    monkeypatch.setattr(loop, "is_loss_read", lambda device, number: on_gpu(torch.device("cuda"), number))


def train(steps: int, lr: float = 0.1, seen: list[float] | None = None) -> Learner:
    torch.manual_seed(0)
    learner = Learner(nn.Linear(5, 2), "er", lr=lr, batch_size=4)
    note = None if seen is None else lambda epoch, step, loss: seen.append(loss)
    learner.learn((torch.randn(4 * steps, 5), torch.arange(4 * steps) % 2), epochs=1, on_step=note)
    return learner


@pytest.mark.usefixtures("gpu")
def test_a_loss_on_a_gpu_is_read_every_tenth_step() -> None:
    """Steps 1, 11 and 21 of 25 read theirs; the last is a tensor until somebody asks."""
    losses: list[float] = []
    learner = train(25, seen=losses)
    assert losses == [losses[0]] * 10 + [losses[10]] * 10 + [losses[20]] * 5
    assert len({*losses}) == 3
    assert isinstance(learner.last_loss, torch.Tensor)


def test_reading_less_changes_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    read_all: list[float] = []
    usual = train(25, seen=read_all)
    monkeypatch.setattr(loop, "is_loss_read", lambda device, number: number % 10 == 0)
    seldom = train(25)
    weights = [torch.cat([p.detach().flatten() for p in one.model.parameters()]) for one in (usual, seldom)]
    assert torch.equal(*weights)
    assert float(seldom.last_loss) == read_all[-1] == usual.last_loss


@pytest.mark.usefixtures("gpu")
def test_a_task_does_not_end_with_a_loss_that_is_not_finite() -> None:
    with pytest.raises(Diverged, match="lower lr"):
        train(8, lr=1e38)
