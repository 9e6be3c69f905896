"""What is said when the loss is no number: it names the data, or settings that there are and that help."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.learner.loop import explain_divergence
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
