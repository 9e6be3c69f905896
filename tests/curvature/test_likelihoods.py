"""Likelihoods by name: by hand, against autograd by hand, and refused where a shape could mean two things."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.curvature.test_fisher import assert_same
from tmln.curvature import diagonal_fisher
from tmln.curvature.likelihoods import (
    NAMES,
    Likelihood,
    bernoulli_log_likelihood,
    gaussian_log_likelihood,
    matching_names,
    shift_labels,
    token_log_likelihood,
)

LOG2 = math.log(2.0)


class Words(nn.Module):
    """Logits for each position."""

    def __init__(self, vocabulary: int = 5) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.table(x)))
        return out


def squares(model: nn.Module, values: list[Tensor]) -> dict[str, Tensor]:
    """The mean of squared gradients of one log-likelihood a sample."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for value in values:
        for name, gradient in zip(names, torch.autograd.grad(value, parameters), strict=True):
            total[name] += gradient**2 / len(values)
    return total


def test_by_hand() -> None:
    flat = torch.zeros(2, 3, 2)
    assert token_log_likelihood(flat, torch.tensor([[0, 1, 1], [-100, 0, -100]])).tolist() == pytest.approx(
        [-3 * LOG2, -LOG2]
    )
    assert token_log_likelihood(flat, torch.full((2, 3), -100)).tolist() == [0.0, 0.0]
    assert bernoulli_log_likelihood(torch.zeros(1, 4), torch.tensor([[0, 1, 1, 0]])).item() == pytest.approx(-4 * LOG2)
    assert gaussian_log_likelihood(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])).item() == -2.5
    assert gaussian_log_likelihood(torch.tensor([[1.0]]), torch.tensor([3.0])).item() == -2.0
    assert shift_labels(torch.tensor([[1, 2, 3]])).tolist() == [[2, 3, -100]]


@pytest.mark.parametrize("name", [None, "tokens", "masked-tokens"])
def test_a_sequence_is_the_sum_of_its_tokens(name: str | None) -> None:
    torch.manual_seed(0)
    model = Words().double()
    x, y = torch.randint(5, (6, 3)), torch.randint(5, (6, 3))
    y[0, 1] = y[3, :] = -100
    values = []
    for i in range(6):
        logs = model(x[i]).log_softmax(-1)
        values.append(sum((logs[t, y[i, t]] for t in range(3) if y[i, t] != -100), 0 * logs.sum()))
    fisher = diagonal_fisher(model, [(x, y)], log_likelihood=name)
    assert fisher.strategy == "hooks"
    assert_same(fisher, squares(model, values), 1e-10)


def test_bernoulli_and_gaussian_against_autograd() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double(), torch.randn(7, 3).double()
    y = torch.randint(2, (7, 2)).double()
    signs = 2 * y - 1
    expected = squares(model, [nn.functional.logsigmoid(signs[i] * model(x[i])).sum() for i in range(7)])
    assert_same(diagonal_fisher(model, [(x, y)], log_likelihood="bernoulli"), expected, 1e-10)
    expected = squares(model, [-(model(x[i]) - y[i]).square().sum() / 2 for i in range(7)])
    assert_same(diagonal_fisher(model, [(x, y)], log_likelihood="gaussian"), expected, 1e-10)


@pytest.mark.parametrize(("name", "variance"), [("bernoulli", 0.25), ("gaussian", 1.0)])
def test_drawn_targets_of_other_likelihoods(name: str, variance: float) -> None:
    """F of a bias is the variance of the target: p(1-p), or 1."""
    model = nn.Linear(1, 3).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    x = torch.ones(20_000, 1).double()
    fisher = diagonal_fisher(model, [(x, torch.zeros(20_000, 3))], log_likelihood=name, targets="sampled")
    torch.testing.assert_close(fisher["bias"], torch.full((3,), variance).double(), rtol=0.05, atol=0)


@pytest.mark.parametrize(
    ("output", "target", "fits"),
    [
        ((4, 3), torch.zeros(4).long(), ["classes"]),
        ((4, 3, 5), torch.zeros(4, 5).long(), ["classes"]),
        ((4, 5, 3), torch.zeros(4, 5).long(), ["tokens"]),
        ((4, 5, 5), torch.zeros(4, 5).long(), ["classes", "tokens"]),
        ((4, 3), torch.zeros(4, 3), ["classes", "bernoulli", "gaussian"]),
        ((4, 1), torch.zeros(4), ["bernoulli", "gaussian"]),
        ((4, 3), torch.zeros(4, 3).long(), ["bernoulli"]),
        ((4, 3), torch.zeros(4, 7).long(), []),
    ],
)
def test_what_shapes_may_mean(output: tuple[int, ...], target: Tensor, fits: list[str]) -> None:
    assert matching_names(torch.zeros(output), target) == fits


X = torch.randint(5, (4, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "batch", "name", "words"),
    [
        (Words(), (X, X.flip(1)), None, r"\(1, 5, 5\).*fit 'classes' and 'tokens'; say which: log_likelihood='tokens'"),
        (nn.Linear(5, 3), (X.float(), torch.rand(4, 3)), None, "fit 'classes' and 'bernoulli' and 'gaussian'; say"),
        (nn.Linear(5, 3), (X.float(), torch.zeros(4, 7).long()), None, "fit no likelihood that has a name"),
        (nn.Linear(5, 3), (X.float(), torch.zeros(4).long()), "tokens", "'tokens' does not fit.*these fit 'classes'"),
        (nn.Linear(5, 3), (X.float(), torch.zeros(4).long()), "token", "'token' is unknown; did you mean 'tokens'"),
        (Words(3), (X, X % 3), "gaussian", "'gaussian' does not fit"),
        (Words(7), (X, X), None, "the labels are the inputs themselves.*'masked-tokens'"),
    ],
)
def test_refused(model: nn.Module, batch: Any, name: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        diagonal_fisher(model, [batch], log_likelihood=name)


def test_tokens_without_a_vocabulary() -> None:
    """One output a position, or fewer than there are labels: nothing that could be scored."""
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 1), nn.Flatten())
    with pytest.raises(ValueError, match=r"labels of 0 to 4 were read as bits.* logits \[B, T, V\] over a vocabulary"):
        diagonal_fisher(model, [(X + 1, X)])
    diagonal_fisher(model, [(X + 1, X % 2)])  # these are bits
    for name, labels, found in (("tokens", X.flip(1), 3), ("tokens", torch.full((4, 5), -1), -1)):
        with pytest.raises(IndexError, match=rf"label {found} is out of bounds: Words has logits for 3 labels"):
            diagonal_fisher(Words(3), [(X, labels.clamp(max=3))], log_likelihood=name)


def test_a_choice_settles_it() -> None:
    torch.manual_seed(0)
    model, y = Words().double(), X.flip(1)
    by_token = diagonal_fisher(model, [(X, y)], log_likelihood="tokens")
    expected = squares(model, [-nn.functional.cross_entropy(model(X[i]), y[i], reduction="sum") for i in range(4)])
    assert_same(by_token, expected, 1e-10)
    by_class = diagonal_fisher(model, [(X, y)], log_likelihood="classes")
    assert float((by_token["head.bias"] - by_class["head.bias"]).abs().max()) > 0.1 * float(by_token["head.bias"].max())


def test_own_inputs_may_be_scored_by_name_or_after_a_shift() -> None:
    model = Words(7)
    diagonal_fisher(model, [(X, X)], log_likelihood="masked-tokens")
    diagonal_fisher(model, [(X[:, :-1], X[:, 1:])])


def test_without_logits_a_function_is_needed() -> None:
    class Pair(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), x

    with pytest.raises(TypeError, match="Pair answers with tuple, without logits; give log_likelihood"):
        diagonal_fisher(Pair(5, 3), [(X.float(), torch.zeros(4).long())])


def test_every_name_is_a_likelihood() -> None:
    for name in NAMES:
        assert Likelihood(nn.Linear(1, 1), name).choice == name
