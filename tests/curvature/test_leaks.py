"""What a pass leaves behind: nothing, without waiting for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from torch import Tensor, nn

from tests.zoo import ZOO, Case, SharedTransformer, tokens
from tmln.curvature import diagonal_fisher
from tmln.curvature.batches import read_batch
from tmln.curvature.hooks import HookPass, _Trace
from tmln.curvature.kfac_factors import FISHERS, kfac_factors
from tmln.curvature.likelihoods import class_log_likelihood


@pytest.fixture(scope="module")
def fresh() -> None:
    """What is there already is not looked through, nor what torch imports with the first pass: it took seconds."""
    model, (x, y) = encoder(), tokens(5, 4)(4)
    diagonal_fisher(model, [(x, y)], chunk_size=2, targets="sampled")
    kfac_factors(model, x, targets=y, fisher="mc")
    del model, x, y
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collector(fresh: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def held() -> int:
    """Bytes of all tensors that Python knows."""
    found: list[Any] = [thing for thing in gc.get_objects() if type(thing) in (Tensor, nn.Parameter)]
    return sum(thing.numel() * thing.element_size() for thing in found)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(
        nn.Embedding(11, 8), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Flatten(), nn.Linear(40, 4)
    )


LEAKS = ZOO | {"encoder": Case(encoder, tokens(5, 4))}


def scored(model: nn.Module, output: Tensor, target: Tensor) -> Tensor:
    return class_log_likelihood(output, target)


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", LEAKS)
def test_nothing_survives_a_call(name: str) -> None:
    case = LEAKS[name]
    model, (x, y) = case.make(), case.draw(4)
    diagonal_fisher(model, [(x, y)], chunk_size=2)  # what torch keeps for itself, once
    before = held()
    for targets in ("labels", "sampled"):
        diagonal_fisher(model, [(x, y)], chunk_size=2, targets=targets)
    assert held() == before


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("fails", [False, True])
def test_a_trace_and_its_activations_end_with_the_pass(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[weakref.ref[_Trace]] = []
    activations: list[weakref.ref[Tensor]] = []
    begin: Any = _Trace.__init__
    watch: Any = _Trace.forward

    def init(self: _Trace, *args: Any) -> None:
        begin(self, *args)
        traces.append(weakref.ref(self))

    def forward(self: _Trace, *args: Any) -> Any:
        output = watch(self, *args)
        activations.extend(weakref.ref(leaf) for leaf in (args[-1], output) if isinstance(leaf, Tensor))
        if fails and len(activations) > 10:
            raise ArithmeticError("asked to fail")
        return output

    monkeypatch.setattr(_Trace, "__init__", init)
    monkeypatch.setattr(_Trace, "forward", forward)
    model = SharedTransformer()
    hooks = HookPass(model.eval(), set(model.parameters()), class_log_likelihood)
    try:
        hooks(read_batch(tokens(5)(3)))
    except ArithmeticError:
        assert fails
    assert len(traces) == 1
    assert len(activations) > 10
    assert [ref() for ref in traces] == [None]
    assert all(ref() is None for ref in activations)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", LEAKS)
def test_a_model_is_freed_when_nobody_uses_it(name: str) -> None:
    """Also one that its own likelihood knows."""
    case = LEAKS[name]
    model = case.make()
    diagonal_fisher(model, [case.draw(2)], log_likelihood=partial(scored, model))
    parameters = [weakref.ref(p) for p in model.parameters()]
    del model
    assert all(p() is None for p in parameters)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", LEAKS)
def test_nothing_survives_a_kfac_pass(name: str) -> None:
    case = LEAKS[name]
    model, (x, y) = case.make(), case.draw(4)
    kfac_factors(model, x, fisher="mc")
    before = held()
    for fisher in FISHERS:
        kfac_factors(model, x, targets=y, fisher=fisher)
    assert held() == before
