"""K-FAC of outputs that are no classes: by hand, against gradients one by one, and refused where it cannot be had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tmln
from tests.curvature.test_likelihoods import Words
from tests.hugging import MODELS
from tmln.curvature.kfac import KFAC
from tmln.curvature.kfac_factors import BatchPlace, kfac_factors, mean_factors
from tmln.curvature.likelihoods import NAMES
from tmln.optim import OCAR, TMLNKFAC


def single(weight: float, outputs: int = 1) -> nn.Linear:
    layer = nn.Linear(1, outputs, bias=False)
    nn.init.constant_(layer.weight, weight)
    return layer


@pytest.mark.parametrize(
    ("name", "fisher", "weight", "target", "expected"),
    [
        ("gaussian", "exact", 0.5, None, 1.0),
        ("gaussian", "empirical", 0.5, 3.0, 4.0),  # s = 1, and d log p / ds = y - s = 2
        ("bernoulli", "exact", 0.0, None, 0.25),  # p(1-p)
        ("bernoulli", "empirical", 0.0, 1.0, 0.25),  # (1-p)^2
    ],
)
def test_by_hand(name: str, fisher: str, weight: float, target: float | None, expected: float) -> None:
    targets = None if target is None else torch.tensor([[target]])
    found = kfac_factors(single(weight), torch.tensor([[2.0]]), targets=targets, fisher=fisher, log_likelihood=name)[""]
    assert found.input.item() == 4.0
    assert found.output.item() == pytest.approx(expected)


def test_tokens_by_hand() -> None:
    """p = 1/2 everywhere; of two positions one is not scored, and counts as a position all the same."""
    x, labels = torch.tensor([[[2.0], [3.0]]]), torch.tensor([[0, -100]])
    found = kfac_factors(single(0.0, 2), x, targets=labels, fisher="empirical", log_likelihood="tokens")[""]
    assert found.input.item() == 13.0
    assert torch.allclose(found.output, torch.tensor([[0.125, -0.125], [-0.125, 0.125]]))


def scene(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    if "tokens" in name:
        y = torch.randint(5, (4, 3))
        y[0, 1] = -100
        return Words(), torch.randint(5, (4, 3)), y
    y = {"classes": torch.randint(3, (4,)), "bernoulli": torch.randint(2, (4, 3)).float()}.get(name, torch.randn(4, 3))
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(4, 2), y


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_its_gradients_one_by_one(name: str) -> None:
    """G of the last layer: the squared gradients of log p by its outputs, weighed; a function gives the same."""
    model, x, y = scene(name)
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0])
    options: dict[str, Any] = {"targets": y, "weights": weights, "fisher": "empirical"}
    found = kfac_factors(model, x, log_likelihood=name, **options)
    by_function = kfac_factors(model, x, log_likelihood=lambda out, target: NAMES[name](out, target), **options)
    total = torch.zeros_like(found[list(found)[-1]].output)
    for k in range(len(x)):
        output = model(x[k : k + 1]).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(NAMES[name](output, y[k : k + 1]).sum(), output)
        rows = gradient.flatten(0, -2)
        total += weights[k] * rows.T @ rows
    positions = 3 if "tokens" in name else 1
    torch.testing.assert_close(found[list(found)[-1]].output, total / (len(x) * positions))
    for layer, factors in found.items():
        assert torch.equal(factors.output, by_function[layer].output)


@pytest.mark.parametrize("name", ["tokens", "bernoulli", "gaussian"])
def test_drawn_labels_are_those_of_the_model(name: str) -> None:
    """The mean over many draws is the exact factor, which for tokens is that of classes at one position."""
    torch.manual_seed(0)
    layer, x = nn.Linear(2, 3), torch.randn(1, 2).expand(8000, 2)
    generator = torch.Generator().manual_seed(0)
    if name == "tokens":
        exact = kfac_factors(layer, x[:1], fisher="exact")[""]
        drawn = kfac_factors(layer, x[:, None], fisher="mc", log_likelihood=name, generator=generator)[""]
    else:
        exact = kfac_factors(layer, x[:1], fisher="exact", log_likelihood=name)[""]
        drawn = kfac_factors(layer, x, fisher="mc", log_likelihood=name, generator=generator)[""]
    assert float((drawn.output - exact.output).abs().max()) < 0.05
    assert float(exact.output.abs().max()) > 0.1


def causal(output: Tensor, labels: Tensor) -> Tensor:
    """What a causal language model of Hugging Face's does with its labels, written out."""
    losses = F.cross_entropy(output[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
    return -losses.view(len(output), -1).sum(1)


@pytest.mark.parametrize("name", ["BERT, classes", "BERT, tags", "LoRA on Llama"])
def test_hugging_face_models_say_what_their_labels_are(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name].make().eval()
    batch = MODELS[name].draw(4)
    score = causal if "Llama" in name else NAMES["classes" if "classes" in name else "tokens"]
    found = kfac_factors(model, batch, fisher="empirical")
    assert found
    for layer, factors in kfac_factors(model, batch, fisher="empirical", log_likelihood=score).items():
        torch.testing.assert_close(found[layer].output, factors.output)
    halves = [{key: value[rows] for key, value in batch.items()} for rows in (slice(0, 1), slice(1, 4))]
    for layer, factors in mean_factors(model, halves).items():
        torch.testing.assert_close(found[layer].input, factors.input)


def test_ocar_steps_a_language_model() -> None:
    torch.manual_seed(0)
    model = MODELS["LoRA on Llama"].make().train(False)
    batch = MODELS["LoRA on Llama"].draw(4)
    optimizer = OCAR(model, lr=0.1, fisher="mc")
    assert optimizer.observe(batch, replay=2, replay_weight=3.0)
    loss = model(**batch).loss
    loss.backward()
    directions = optimizer.kfac.precondition()
    before = {p: p.detach().clone() for p in directions}
    optimizer.step()
    assert directions
    for p, old in before.items():
        torch.testing.assert_close(p.detach(), old - 0.1 * directions[p])


def test_tmln_on_factors_of_tags() -> None:
    torch.manual_seed(0)
    model, memory = MODELS["BERT, tags"].make().eval(), tmln.Reservoir(4)
    batch = MODELS["BERT, tags"].draw(4)
    memory.add(batch)
    optimizer = TMLNKFAC(model, lr=0.01, labels="empirical", log_likelihood="masked-tokens")
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.consolidate(tmln.diagonal_fisher(model, memory.batches(2)), memory.batches(2))
    expected = mean_factors(model, [batch])
    for layer, factors in optimizer.kfac.factors.items():
        torch.testing.assert_close(factors.output, expected[layer].output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_likelihood": "tokens", "fisher": "exact"}, r"'exact' takes every label of every position.*15 of them"),
        ({"log_likelihood": causal, "fisher": "mc"}, "log_likelihood is a function; choose fisher='empirical'"),
        ({"log_likelihood": "token"}, "'token' is unknown; did you mean 'tokens'"),
        ({"targets": None, "fisher": "mc"}, "fit no likelihood that has a name"),
        ({"log_likelihood": "tokens", "fisher": "mc", "among": BatchPlace(0, 8)}, "on all ranks for classes only"),
        ({"log_likelihood": "tokens", "targets": None}, r"needs targets of shape \(4, ...\), got none"),
        ({"log_likelihood": "gaussian"}, "does not fit an output"),
    ],
)
def test_what_has_no_factors_is_refused(options: dict[str, Any], message: str) -> None:
    model, x, y = scene("tokens")
    with pytest.raises(ValueError, match=message):
        kfac_factors(model, x, **{"targets": y, "fisher": "empirical", **options})


def test_labels_that_cannot_be() -> None:
    model, x, y = scene("tokens")
    with pytest.raises(IndexError, match="label 7 is out of bounds: Words has logits for 5"):
        kfac_factors(model, x, targets=torch.full_like(y, 7), fisher="empirical", log_likelihood="tokens")
    bits = torch.tensor([[0, 2]])
    with pytest.raises(ValueError, match="labels of 0 to 2 were read as bits"):
        kfac_factors(nn.Linear(1, 2), torch.ones(1, 1), targets=bits, fisher="empirical", log_likelihood="bernoulli")


def test_names_and_inputs_are_looked_at_first() -> None:
    model, x, y = scene("tokens")
    with pytest.raises(ValueError, match="did you mean 'gaussian'"):
        KFAC(model, log_likelihood="gausian")
    with pytest.raises(ValueError, match="counts labels, one a sample"):
        OCAR(model, log_likelihood="tokens", replay_weight="class_ratio").observe(x, y, replay=2)
    with pytest.raises(TypeError, match="a tensor or a mapping of the model's arguments, not a list"):
        OCAR(model, log_likelihood="tokens").observe([x], y)  # type: ignore[arg-type]
