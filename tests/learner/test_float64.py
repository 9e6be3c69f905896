"""Inputs of double precision: a model of double precision gets every digit; for another a warning says once."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.streams import arrays

pytestmark = pytest.mark.usefixtures("narrow")

X = 1 / torch.arange(3, 43, dtype=torch.float64).reshape(10, 4)
Y = torch.arange(10) % 2


def test_a_double_model_is_given_every_digit() -> None:
    model = nn.Linear(4, 2).double()
    seen: list[Tensor] = []
    learner = Learner(model, "er", batch_size=10)
    model.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach().clone()))
    learner.learn((X, Y))
    assert {x.dtype for x in seen} == {torch.float64}
    assert torch.equal(seen[0].sort(0).values, X.sort(0).values)
    for use in (lambda: learner.evaluate((X, Y)), lambda: learner.predict(X), lambda: learner.predict(X.numpy())):
        seen.clear()
        use()
        assert torch.equal(torch.cat(seen), X)
    assert learner.replay.memory is not None
    ((x, _),) = learner.replay.memory.batches(100, ("x", "y"))
    assert torch.equal(x.sort(0).values, X.sort(0).values)


def test_a_single_model_rounds_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    arrays._warn_rounded.cache_clear()
    learner = Learner(nn.Linear(4, 2), "naive", batch_size=10)
    with caplog.at_level(logging.WARNING):
        learner.learn((X, Y))
        learner.evaluate((X, Y))
        learner.learn((X.float(), Y))
    assert [record.message.split(",")[0] for record in caplog.records] == ["inputs are float64"]
