"""Parameters that are unfrozen, or frozen, after the penalty was made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.methods.penalties.loop import Numbers, Task, make_context, make_tasks, run_steps, same
from tests.methods.penalties.test_every_penalty import NAMES, VARIANTS, make
from tmln.methods import Batch
from tmln.methods.penalties import PENALTIES
from tmln.methods.penalties.quadratic import Quadratic

QUADRATIC = [name for name in NAMES if issubclass(PENALTIES[name], Quadratic)]


def half_frozen() -> nn.Sequential:
    """Two of four parameters train; they come last in the model, so that positions among the trainable ones shift."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
    model[0].requires_grad_(False)
    return model


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def learn(part: Any, model: nn.Module, optimizer: torch.optim.Optimizer, index: int, task: Task) -> None:
    part.begin(make_context(model, index, task))
    run_steps(part, model, optimizer, task, range(7))
    part.end(make_context(model, index, task))


def pulled(part: Any, model: nn.Sequential, task: Task, weight: Tensor) -> Tensor:
    """The penalty's own gradient of a weight, a little away from where it is."""
    with torch.no_grad():
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3))
    for p in model.parameters():
        p.grad = None
    x, y = task
    extra = part.loss(model, Batch(x, y, len(x)), model(x))
    if extra is not None:
        extra.backward()
    part.after_backward()
    part.add_gradient()
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


@pytest.mark.parametrize("name", [name for name in PENALTIES if name != "consistency"])
def test_what_is_unfrozen_is_held_from_the_next_boundary_on(name: str) -> None:
    model, tasks = half_frozen(), make_tasks()
    part, optimizer = make(name, model, **PENALTIES[name].active_settings), sgd(model)
    learn(part, model, optimizer, 0, tasks[0])
    model.requires_grad_(True)
    first: Any = model[0].weight
    if isinstance(part, Quadratic):
        part.begin(make_context(model, 1, tasks[1]))
        assert set(part.parameters) == set(model.parameters())
        assert not pulled(part, model, tasks[1], first).any()  # no importance yet
    learn(part, model, optimizer, 1, tasks[1])
    before = first.detach().clone()
    part.begin(make_context(model, 2, tasks[2]))
    part.after_backward()
    part.add_gradient()
    gradient = pulled(part, model, tasks[2], first)
    assert ((gradient * (first.detach() - before)).sum() > 0) == (name != "none")
    if isinstance(part, Quadratic):
        assert set(part.parameters) == set(model.parameters())
        assert len(part.anchor) == len(part.importance) == 4
        assert all(bool((value > 0).any()) for value in part.importance)
        for p, anchor in zip(part.parameters, part.anchor, strict=True):
            assert torch.equal(anchor, before if p is first else p)


MEASURED: list[tuple[str, dict[str, Any]]] = [
    ("ewc++", {}),
    ("ewc++", {"init": "first"}),
    ("ewc++", {"fisher_source": "dataset"}),
    ("ewc++", {"fisher_source": "dataset", "init": "first"}),
    ("rwalk", {"normalize": False, "interval": 1}),
    ("rwalk", {"normalize": False, "interval": 1, "merge": "halved", "init": "first", "relu": "normalisation"}),
    ("ewc", {}),
    ("si", {}),
    ("mas", {}),
]


@pytest.mark.parametrize(("name", "values"), MEASURED)
@pytest.mark.parametrize("after", [0, 3, 6])
def test_it_is_measured_as_by_a_penalty_that_is_made_when_it_is_unfrozen(
    name: str, values: dict[str, Any], after: int
) -> None:
    """Both look at one run without a pull; ``after`` steps of the second task the first layer is unfrozen."""
    model, tasks = half_frozen(), make_tasks()
    part: Any = make(name, model, strength=0.0, **values)
    optimizer = sgd(model)
    learn(part, model, optimizer, 0, tasks[0])
    context = make_context(model, 1, tasks[1])
    part.begin(context)
    run_steps(part, model, optimizer, tasks[1], range(after))
    model.requires_grad_(True)
    late: Any = make(name, model, strength=0.0, **values)
    late.begin(context)

    class Both:
        loss = late.loss

        def add_gradient(self) -> None:
            part.add_gradient()
            late.add_gradient()

        def after_backward(self) -> None:
            part.after_backward()
            late.after_backward()

        def after_step(self) -> None:
            part.after_step()
            late.after_step()

    def rest(index: int, start: int) -> None:
        run_steps(Both(), model, optimizer, tasks[index], range(start, 7))  # type: ignore[arg-type]
        for each in (part, late):
            each.end(make_context(model, index, tasks[index]))

    rest(1, after)
    for each in (part, late):
        each.begin(make_context(model, 2, tasks[2]))
    rest(2, 0)
    for weight in model[0].parameters():
        early, expected = (
            next(value for p, value in zip(each.parameters, each.importance, strict=True) if p is weight)
            for each in (part, late)
        )
        assert expected.any()
        assert torch.equal(early, expected)


@pytest.mark.parametrize(("name", "values"), [("ewc", {}), ("mas", {}), ("ewc++", {"fisher_source": "dataset"})])
def test_a_boundary_measures_what_was_unfrozen_since_the_last_step(name: str, values: dict[str, Any]) -> None:
    model, tasks = half_frozen(), make_tasks()
    part: Any = make(name, model, strength=0.0, **values)
    part.begin(make_context(model, 0, tasks[0]))
    run_steps(part, model, sgd(model), tasks[0], range(3))
    model.requires_grad_(True)
    part.end(make_context(model, 0, tasks[0]))
    assert set(part.parameters) == set(model.parameters())
    assert all(value.any() for value in part.importance)


FLAGS: list[Callable[[nn.Sequential], Any]] = [
    lambda model: model.requires_grad_(True),
    lambda model: model[2].requires_grad_(False) and model[0].requires_grad_(True),
    lambda model: model[2].weight.requires_grad_(False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), [(n, v) for n, v in VARIANTS if n in QUADRATIC])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_state_finds_its_parameters_whatever_is_trainable_when_it_is_loaded(
    name: str, values: dict[str, Any], flags: Callable[[nn.Sequential], Any], earlier: bool
) -> None:
    """Saved in the second task, before or (``earlier``) after all was unfrozen; then the flags change."""
    model, tasks = half_frozen(), make_tasks()
    part, optimizer = make(name, model, **values), sgd(model)
    learn(part, model, optimizer, 0, tasks[0])
    if earlier:
        model.requires_grad_(True)
    part.begin(make_context(model, 1, tasks[1]))
    run_steps(part, model, optimizer, tasks[1], range(4))
    state = copy.deepcopy(part.state_dict())
    flags(model)

    twin = copy.deepcopy(model)
    resumed, other = make(name, twin, **values), sgd(twin)
    resumed.load_state_dict(state)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for a, b, c in ((part, model, optimizer), (resumed, twin, other)):
        run_steps(a, b, c, tasks[1], range(4, 9))
        a.end(make_context(b, 1, tasks[1]))
        a.begin(make_context(b, 2, tasks[2]))
        run_steps(a, b, c, tasks[2], range(4))
    assert same(model.state_dict(), twin.state_dict())
    assert same(part.state_dict(), resumed.state_dict())
    fresh = make(name, twin, **values)
    fresh.load_state_dict(part.state_dict())
    assert same(part.state_dict(), fresh.state_dict())


@pytest.mark.parametrize("name", QUADRATIC)
def test_a_state_of_another_architecture_is_refused_in_words(name: str) -> None:
    model, tasks = half_frozen(), make_tasks()
    part = make(name, model, **PENALTIES[name].active_settings)
    learn(part, model, sgd(model), 0, tasks[0])
    state = part.state_dict()
    for size in (2, 3):
        smaller = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(size)])
        words = f"state is of parameter 3, counted from 0, and the model has {size}; load it for a model"
        with pytest.raises(ValueError, match=words):
            make(name, smaller).load_state_dict(state)
    wider = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6))
    words = r"the \w+ of parameter 2 has the shape \(6, 8\), the parameter \(6, 9\); load it for a model of the same"
    with pytest.raises(ValueError, match=words):
        make(name, wider).load_state_dict(state)


@pytest.mark.parametrize("name", ["si", "rwalk"])
def test_so_is_a_path_of_another_shape(name: str) -> None:
    model = half_frozen()
    part = make(name, model)
    part.begin(make_context(model, 0, make_tasks()[0]))
    state = {"positions": part.state_dict()["positions"], "path": part.state_dict()["path"]}
    with pytest.raises(ValueError, match="the path of parameter 2 has the shape"):
        make(name, nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6))).load_state_dict(state)


def test_a_layer_that_was_replaced_is_named_when_the_state_is_taken() -> None:
    model = half_frozen()
    part = make("ewc", model)
    model[2] = nn.Linear(8, 7)
    with pytest.raises(RuntimeError, match=r"ewc: a parameter of shape \(6, 8\) is no longer in the model; make the"):
        part.state_dict()


@pytest.mark.parametrize("every", [False, True])
def test_the_exact_step_does_not_move_what_was_frozen_since(every: bool) -> None:
    model = nn.ParameterList([Numbers(1.0).theta, Numbers(2.0).theta])
    part: Any = make("ewc", model, strength=1.0, proximal=True)
    part.consolidate([torch.ones(1, dtype=torch.float64) for _ in range(2)])
    part.rate = 1.0  # x = 1: halfway back
    for p in model:
        p.data += 1.0
    model[0].requires_grad_(False)
    model[1].requires_grad_(not every)
    part.after_step()
    assert [p.item() for p in model] == [2.0, 3.0 if every else 2.5]
