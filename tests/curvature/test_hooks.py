"""Where the rules of the fast pass end: layers, calls and numbers that are not what they seem."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tmln.curvature.square_sums
from tests.curvature.test_fisher import assert_same, oracle
from tests.zoo import ZOO, TopParameter, images, mlp, sequences
from tmln.curvature import diagonal_fisher
from tmln.curvature.batches import read_batch
from tmln.curvature.crosscheck import Unsupported
from tmln.curvature.hooks import HookPass
from tmln.curvature.layer_rules import compute_attention, is_plain_attention, rule_for
from tmln.curvature.likelihoods import class_log_likelihood

# Which modules have a rule


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def replaced() -> nn.Linear:
    layer = nn.Linear(3, 4)
    vars(layer)["forward"] = lambda x: 2 * x
    return layer


@pytest.mark.parametrize(
    ("module", "known"),
    [
        (nn.Linear(3, 4), True),
        (Doubled(3, 4), False),
        (replaced(), False),
        (torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), False),
        (nn.BatchNorm1d(3), True),
        (nn.BatchNorm1d(3, track_running_stats=False), False),
        (nn.InstanceNorm1d(3, affine=True), True),
        (nn.Embedding(3, 4), True),
        (nn.Embedding(3, 4, max_norm=1.0), False),
        (nn.Embedding(3, 4, scale_grad_by_freq=True), False),
        (nn.Bilinear(3, 3, 4), False),
    ],
)
def test_a_rule_is_for_just_what_it_was_made_for(module: nn.Module, known: bool) -> None:
    assert (rule_for(module) is not None) is known


X, OTHER = torch.randn(3, 4, 8), torch.randn(3, 5, 8)
LATER = torch.ones(4, 4, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("options", "inputs", "kwargs"),
    [
        ({}, (X, X, X), {}),
        ({"bias": False}, (X, X, X), {"need_weights": False, "attn_mask": None}),
        ({"batch_first": False}, (X, X, X), {"need_weights": False}),
        ({"kdim": 6, "vdim": 5}, (X, torch.randn(3, 5, 6), torch.randn(3, 5, 5)), {}),
        ({"kdim": 6, "vdim": 5, "bias": False}, (X, torch.randn(3, 5, 6), torch.randn(3, 5, 5)), {}),
        ({}, (X, OTHER, OTHER), {"need_weights": False}),
        ({}, (X, X, X.flip(1)), {}),
        ({}, (X, X, X), {"attn_mask": LATER, "is_causal": True, "need_weights": False}),
        ({}, (X, X, X), {"attn_mask": LATER.float(), "key_padding_mask": PADDED.float()}),
        ({}, (X, X, X), {"attn_mask": LATER.repeat(6, 1, 1), "average_attn_weights": False}),
        ({}, (X, X, X), {"key_padding_mask": PADDED, "need_weights": False}),
    ],
)
def test_attention_taken_apart_is_attention(
    options: dict[str, Any], inputs: tuple[Tensor, Tensor, Tensor], kwargs: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, **{"batch_first": True, **options}).eval()
    if module.in_proj_bias is not None:
        nn.init.normal_(module.in_proj_bias)
    found = compute_attention(module, lambda w, b, rows, a: linear_rows(w, b, rows, a), *inputs, **kwargs)
    expected = module(*inputs, **kwargs)
    torch.testing.assert_close(found, expected)


def linear_rows(weight: Tensor, bias: Tensor | None, rows: slice, a: Tensor) -> Tensor:
    part = None if bias is None else bias[rows]
    return nn.functional.linear(a, weight[rows], part) if len(weight) else a + (0 if part is None else part)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_attention_with_keys_of_its_own_is_taken_whole(options: dict[str, Any]) -> None:
    assert not is_plain_attention(nn.MultiheadAttention(8, 2, **options))
    assert is_plain_attention(nn.MultiheadAttention(8, 2))


# Calls


class Calls(nn.Module):
    """Two layers between which ``how`` does something that per-sample rules could trip over."""

    def __init__(self, how: Callable[[Calls, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.how = nn.Linear(3, 3), nn.Linear(3, 4), how

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.how(self, x))
        return out


def without_gradient(model: Calls, x: Tensor) -> Tensor:
    with torch.no_grad():
        hint: Tensor = model.first(x)
    return torch.tanh(model.first(x)) + hint


def through_a_hook(model: Calls, x: Tensor) -> Tensor:
    """A hook of the user's scales what the layer gives; the rule must see the layer's own output."""
    handle = model.first.register_forward_hook(lambda module, args, output: 3 * output)
    h: Tensor = model.first(x)
    handle.remove()
    return torch.tanh(h)


def called_with_a_name(model: Calls, x: Tensor) -> Tensor:
    return torch.tanh(model.first(input=x))


@pytest.mark.parametrize("how", [without_gradient, through_a_hook, called_with_a_name])
def test_unusual_calls(how: Callable[[Calls, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model, x, y = Calls(how), torch.randn(5, 3), torch.randint(4, (5,))
    fisher = diagonal_fisher(model, [(x, y)])
    assert_same(fisher, oracle(model, x, y), 1e-5)
    assert fisher.strategy == "hooks"


def test_an_input_that_is_overwritten_later_is_refused() -> None:
    def overwritten(model: Calls, x: Tensor) -> Tensor:
        x = x.clone()
        h: Tensor = model.first(x)
        return h + x.mul_(3)

    model = Calls(overwritten)
    with pytest.raises(Unsupported, match="overwritten"):
        HookPass(model, set(model.parameters()), class_log_likelihood)(
            read_batch((torch.randn(5, 3), torch.zeros(5, dtype=torch.long)))
        )


def test_a_hook_of_the_users_own_stays_behind_the_rules() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(3, 4)), torch.randn(5, 3), torch.randint(4, (5,))
    model[0].register_forward_hook(lambda module, args, output: 3 * output)
    fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, x, y), 1e-5)


class Unseen(nn.Module):
    """Uses a layer's weight and never the layer, and only for what is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(x + nn.functional.linear(torch.relu(x), self.first.weight))
        return out


def test_a_weight_used_without_its_layer_is_missed_also_where_its_gradient_is_zero() -> None:
    torch.manual_seed(0)
    model, x, y = Unseen(), torch.randn(5, 3), torch.randint(4, (5,))
    x[:2] = -x[:2].abs()
    assert_same(diagonal_fisher(model, [(x, y)]), oracle(model, x, y), 1e-5)


def test_a_compiled_model_is_never_run_as_such() -> None:
    """Its hooks would be compiled away."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("compiled")

    torch.manual_seed(0)
    model, (x, y) = mlp(), images(3)(5)
    compiled: Any = torch.compile(model, backend=refuse)
    fisher = diagonal_fisher(compiled, [(x, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, {f"_orig_mod.{name}": value for name, value in oracle(model, x, y).items()}, 1e-5)


class Answers(nn.Module):
    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.head, self.form = nn.Linear(3, 4), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.head(x))


@pytest.mark.parametrize(
    ("form", "score"),
    [
        (lambda out: {"logits": out, "loss": None}, None),
        (lambda out: SimpleNamespace(logits=out), None),
        (lambda out: {"scores": out}, lambda found, y: class_log_likelihood(found["scores"], y)),
        (lambda out: (out, None), lambda found, y: class_log_likelihood(found[0], y)),
    ],
    ids=["mapping", "object", "mapping without logits", "tuple"],
)
def test_what_a_model_may_answer(form: Callable[[Tensor], Any], score: Any) -> None:
    torch.manual_seed(0)
    model, x, y = Answers(form), torch.randn(5, 3), torch.randint(4, (5,))
    fisher = diagonal_fisher(model, [(x, y)], log_likelihood=score)
    assert_same(fisher, {f"head.{name}": value for name, value in oracle(model.head, x, y).items()}, 1e-5)


# Numbers


@pytest.mark.parametrize(("block", "large"), [(1, 1), (100, 1), (1000, 2**30), (2**30, 2**30)])
@pytest.mark.parametrize("name", ["cnn with batch norm", "transformer, shared embedding", "conv1d with groups"])
def test_blocks_do_not_change_the_sums(name: str, block: int, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO[name]
    torch.manual_seed(0)
    model, (x, y) = case.make(), case.draw(7)
    monkeypatch.setattr(tmln.curvature.square_sums, "BLOCK", block)
    monkeypatch.setattr(tmln.curvature.square_sums, "TILES", block)
    monkeypatch.setattr(tmln.curvature.square_sums, "LARGE", large)
    fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, x, y), 1e-5)


def behind(model: nn.Linear, x: Tensor) -> Tensor:
    return nn.functional.linear(x, model.weight, model.bias)


def branching(model: nn.Linear, x: Tensor) -> Tensor:
    out: Tensor = model(x) if x.sum() > -1 else -model(x)
    return out


class Half(nn.Module):
    def __init__(self, how: Callable[[Any, Tensor], Tensor], layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.how = layer, how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.layer, x)


@pytest.mark.parametrize(
    ("how", "way"),
    [(lambda layer, x: layer(x), "hooks"), (behind, "vmap"), (branching, "loop")],
    ids=["hooks", "vmap", "loop"],
)
def test_squares_of_half_precision_do_not_vanish(how: Callable[[Any, Tensor], Tensor], way: str) -> None:
    """Gradients of 2^-13 are fine in float16, their squares are not; and 1000 of them are not 256 in bfloat16."""
    model = Half(how, nn.Linear(1, 1)).half()
    ones = torch.ones(1000, 1, dtype=torch.float16)
    fisher = diagonal_fisher(model, [(ones[:4], ones[:4])], log_likelihood=lambda out, y: 2.0**-13 * out[:, 0])
    assert (fisher.strategy, [value.item() for value in fisher.values()]) == (way, [2.0**-26] * 2)
    ones = ones.bfloat16()
    fisher = diagonal_fisher(model.bfloat16(), [(ones, ones)], log_likelihood=lambda out, y: out[:, 0])
    assert (fisher.strategy, [value.item() for value in fisher.values()]) == (way, [1.0] * 2)


def test_squares_of_a_half_precision_embedding_do_not_vanish() -> None:
    model = nn.Embedding(2, 1).half()
    fisher = diagonal_fisher(
        model, [(torch.tensor([0, 0, 1, 1]), torch.zeros(4))], log_likelihood=lambda out, y: 2.0**-13 * out[:, 0]
    )
    assert (fisher.strategy, fisher["weight"].flatten().tolist()) == ("hooks", [2.0**-27, 2.0**-27])


# Memory


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_memory_counts_bytes(dtype: torch.dtype) -> None:
    """A sample keeps 27 + 16 (relu) + 16 + 8 + 8 (tanh) + 4 floats for its backward pass, and as many on their way."""
    model, x, y = mlp().to(dtype), torch.randn(40, 27, dtype=dtype), torch.randint(4, (40,))
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    diagonal_fisher(model, [(x, y)], memory=10_000)
    assert sizes[:2] == [1, 1]
    assert max(sizes[2:]) == sizes[2]
    assert dtype.itemsize * sizes[2] == pytest.approx(10_000 / (2 * 67), rel=0.25)


def test_memory_bounds_the_chunk_of_vmap() -> None:
    """It holds the gradients of all parameters for each sample."""
    calls: list[int] = []

    class Counting(TopParameter):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            return super().forward(x)

    model, (x, y) = Counting(), images(3)(40)
    held = 4 * 3 * sum(p.numel() for p in model.parameters())
    assert diagonal_fisher(model, [(x, y)], memory=40 * held).strategy == "vmap"
    once = len(calls)
    diagonal_fisher(model, [(x, y)], memory=10 * held)
    assert len(calls) - once == once + 3  # four passes rather than one


def test_sequences_of_every_length_have_their_own_chunk() -> None:
    model = ZOO["recurrent"].make()
    sizes: list[tuple[int, int]] = []
    model.register_forward_pre_hook(lambda module, args: sizes.append((args[0].shape[1], len(args[0]))))
    diagonal_fisher(model, [sequences(1)(64), sequences(16)(64)], memory=10_000)
    short, long = (max(size for length, size in sizes if length == wanted) for wanted in (1, 16))
    assert short > 4 * long
